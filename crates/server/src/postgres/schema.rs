//! The schema `public`: `public.t` is the table `t` of the current database.
//!
//! The catalogs list every table in it, so tools write it before each name. `script` takes it out of the
//! tokens of a statement, before anything else reads them; the positions of the others stay. Knows no
//! catalog: the caller says whether a database has the name, which then means that database.
//!
//! A name of two parts is that of a column (`public.c` of a table `public`) or of a table. A statement that
//! names a table or a column `public` by itself has names of tables behind certain words only; in every
//! other statement, each `public.x` is a table.

use super::token::{SqlToken, SqlTokenKind, unquoted};

/// The name of the schema.
pub(super) const SCHEMA: &str = "public";

/// Words behind which a list of tables begins.
const TABLE_WORDS: [&str; 12] = [
    "FROM", "JOIN", "INTO", "TABLE", "UPDATE", "COPY", "TRUNCATE", "VIEW", "EXISTS", "DESC",
    "DESCRIBE", "ESTIMATE",
];

/// Words behind which no list of tables goes on.
const CLAUSE_WORDS: [&str; 10] =
    ["WHERE", "ON", "GROUP", "ORDER", "HAVING", "WINDOW", "SELECT", "LIMIT", "SET", "VALUES"];

/// Returns whether tokens have the name of the schema.
pub(super) fn names_schema(sql: &str, tokens: &[SqlToken]) -> bool {
    tokens.iter().any(|token| is_schema(sql, *token))
}

/// Returns the tokens of a statement without the schema before names of tables.
pub(super) fn without_schema(sql: &str, tokens: &[SqlToken]) -> Vec<SqlToken> {
    let mut names = QualifiedNames::new(sql, tokens);
    let mut kept = Vec::with_capacity(tokens.len());
    while let Some(token) = tokens.get(names.at) {
        if names.is_schema_of_table() {
            // With the dot behind it.
            names.at += 2;
            continue;
        }
        kept.push(*token);
        names.pass(*token);
    }
    kept
}

fn is_name(token: SqlToken) -> bool {
    use SqlTokenKind::{BackquotedName, QuotedName, Word};
    matches!(token.kind, Word | QuotedName | BackquotedName)
}

/// Returns whether a token is the name of the schema: in any case without quotes, as in PostgreSQL.
fn is_schema(sql: &str, token: SqlToken) -> bool {
    match token.kind {
        SqlTokenKind::Word => token.is_word(sql, SCHEMA),
        _ => is_name(token) && unquoted(token, sql) == SCHEMA,
    }
}

/// A common table while its query is read.
struct OpenCommonTable {
    name: String,
    /// The brackets around its name.
    depth: usize,
}

/// The walk over the names of a statement.
struct QualifiedNames<'s> {
    sql: &'s str,
    tokens: &'s [SqlToken],
    at: usize,
    /// Whether a table or a column is called like the schema.
    is_ambiguous: bool,
    /// Whether a list of tables goes on, for each open bracket and outside of all.
    in_tables: Vec<bool>,
    open_common_tables: Vec<OpenCommonTable>,
    /// The common tables whose queries have ended: their names hide tables of the database.
    common_tables: Vec<String>,
}

impl<'s> QualifiedNames<'s> {
    fn new(sql: &'s str, tokens: &'s [SqlToken]) -> Self {
        let is_alone = |(at, token): (usize, &SqlToken)| {
            let next = tokens.get(at + 1);
            is_schema(sql, *token) && !next.is_some_and(|next| next.is_symbol(sql, "."))
        };
        Self {
            sql,
            tokens,
            at: 0,
            is_ambiguous: tokens.iter().enumerate().any(is_alone),
            in_tables: vec![false],
            open_common_tables: Vec::new(),
            common_tables: Vec::new(),
        }
    }

    fn token(&self, at: usize) -> Option<SqlToken> {
        self.tokens.get(at).copied()
    }

    fn is_symbol(&self, at: usize, symbol: &str) -> bool {
        self.token(at).is_some_and(|token| token.is_symbol(self.sql, symbol))
    }

    /// Returns the number of parts of the qualified name that begins at a token, a star included.
    fn part_count(&self, first: usize) -> usize {
        let mut count = 1;
        while self.is_symbol(first + 2 * count - 1, ".") {
            let part = first + 2 * count;
            if !self.token(part).is_some_and(is_name) && !self.is_symbol(part, "*") {
                break;
            }
            count += 1;
        }
        count
    }

    /// Returns whether the next token is the schema before the name of a table: the first part of a name,
    /// or the one behind a database.
    fn is_schema_of_table(&self) -> bool {
        let is_next = self.token(self.at).is_some_and(|token| is_schema(self.sql, token));
        if !is_next || !self.is_symbol(self.at + 1, ".") {
            return false;
        }
        let is_behind_dot = self.at > 0 && self.is_symbol(self.at - 1, ".");
        let first = if is_behind_dot { self.at.saturating_sub(2) } else { self.at };
        let is_whole = first == 0 || !self.is_symbol(first - 1, ".");
        let behind = self.part_count(self.at) - 1;
        if !is_whole || behind == 0 || self.is_common_table(self.at + 2) {
            return false;
        }
        // `public.t.c` and `public.t.*`.
        if behind >= 2 {
            return true;
        }
        let is_star = self.is_symbol(self.at + 2, "*");
        !is_star && (!self.is_ambiguous || self.is_table_position(first))
    }

    /// Returns whether a name at a token is that of a table.
    fn is_table_position(&self, first: usize) -> bool {
        let Some(before) = first.checked_sub(1).and_then(|at| self.token(at)) else { return false };
        let is_listed = self.in_tables.last().copied().unwrap_or(false);
        TABLE_WORDS.iter().any(|word| before.is_word(self.sql, word))
            || (is_listed && before.is_symbol(self.sql, ","))
    }

    fn is_common_table(&self, at: usize) -> bool {
        let name = self.token(at).map(|token| unquoted(token, self.sql));
        name.is_some_and(|name| self.common_tables.contains(&name))
    }

    /// Notes a token that stays, and goes on behind it.
    fn pass(&mut self, token: SqlToken) {
        match token.text(self.sql) {
            "(" | "[" => self.in_tables.push(false),
            ")" | "]" => {
                if self.in_tables.len() > 1 {
                    self.in_tables.pop();
                }
                self.end_common_table();
            }
            _ if token.kind == SqlTokenKind::Word => self.pass_word(token),
            _ => {}
        }
        if is_name(token) {
            self.begin_common_table(token);
        }
        self.at += 1;
    }

    fn pass_word(&mut self, token: SqlToken) {
        let is_any = |words: &[&str]| words.iter().any(|word| token.is_word(self.sql, word));
        let begins = is_any(&TABLE_WORDS);
        if (begins || is_any(&CLAUSE_WORDS))
            && let Some(in_tables) = self.in_tables.last_mut()
        {
            *in_tables = begins;
        }
    }

    /// Notes a common table where `name AS (` begins.
    fn begin_common_table(&mut self, token: SqlToken) {
        let is_as = self.token(self.at + 1).is_some_and(|next| next.is_word(self.sql, "AS"));
        if is_as && self.is_symbol(self.at + 2, "(") {
            let (name, depth) = (unquoted(token, self.sql), self.in_tables.len());
            self.open_common_tables.push(OpenCommonTable { name, depth });
        }
    }

    /// Notes that the query of a common table has ended, where its bracket was closed.
    fn end_common_table(&mut self) {
        let depth = self.in_tables.len();
        if let Some(ended) = self.open_common_tables.pop_if(|open| open.depth == depth) {
            self.common_tables.push(ended.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::without_schema;
    use crate::postgres::token::tokenize;

    fn check(sql: &str, expected: &str) {
        let found = without_schema(sql, &tokenize(sql).unwrap());
        let words: Vec<&str> = found.iter().map(|token| token.text(sql)).collect();
        assert_eq!(words.join(" "), expected, "{sql}");
    }

    #[test]
    fn the_schema_before_a_table_is_left_out() {
        check(
            "SELECT \"public\".\"t\".\"c\", PUBLIC.t.* FROM \"public\".\"t\" JOIN public.u ON 1",
            "SELECT \"t\" . \"c\" , t . * FROM \"t\" JOIN u ON 1",
        );
        check("INSERT INTO public.t (a) VALUES (1)", "INSERT INTO t ( a ) VALUES ( 1 )");
        check("DROP TABLE IF EXISTS public.a, public.b", "DROP TABLE IF EXISTS a , b");
        check("CREATE INDEX i ON public.t (a)", "CREATE INDEX i ON t ( a )");
        check("SELECT * FROM public.price(a => 1)", "SELECT * FROM price ( a => 1 )");
        check("SELECT d.public.t.c FROM d.public.t", "SELECT d . t . c FROM d . t");
        check("SELECT a FROM \"PUBLIC\".t", "SELECT a FROM \"PUBLIC\" . t");
        check("SET search_path = public", "SET search_path = public");
    }

    #[test]
    fn a_table_or_column_of_that_name_is_none() {
        check("SELECT public.a FROM public", "SELECT public . a FROM public");
        check("SELECT public.* FROM x.public", "SELECT public . * FROM x . public");
        check(
            "SELECT \"public\".\"t\".\"public\", public.u FROM public.t, public.u WHERE t.public",
            "SELECT \"t\" . \"public\" , public . u FROM t , u WHERE t . public",
        );
        check("SELECT public.a FROM public.public", "SELECT public . a FROM public");
    }

    #[test]
    fn a_common_table_hides_no_table_of_the_schema() {
        check(
            "WITH t AS (SELECT * FROM public.t) SELECT * FROM t JOIN public.t ON 1",
            "WITH t AS ( SELECT * FROM t ) SELECT * FROM t JOIN public . t ON 1",
        );
    }
}

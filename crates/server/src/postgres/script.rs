//! A script of SQL statements as a client sent it, and a cursor over the tokens of one of them.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_engine::Session;

use super::{
    schema::{SCHEMA, names_schema, without_schema},
    token::{SqlToken, SqlTokenKind, tokenize, unquoted},
};

/// A script and its tokens.
#[derive(Debug)]
pub(crate) struct Script<'s> {
    sql: &'s str,
    tokens: Vec<SqlToken>,
}

impl<'s> Script<'s> {
    /// Reads a script.
    pub(crate) fn new(sql: &'s str) -> Result<Self> {
        Ok(Self { sql, tokens: tokenize(sql)? })
    }

    /// Reads a script of a session: the schema `public` is left out of the names of tables, unless a
    /// database has its name.
    pub(crate) fn of_session(sql: &'s str, session: &Session) -> Result<Self> {
        let script = Self::new(sql)?;
        Ok(script.in_public_schema(|| session.has_database(SCHEMA)))
    }

    fn in_public_schema(mut self, has_database: impl FnOnce() -> bool) -> Self {
        if names_schema(self.sql, &self.tokens) && !has_database() {
            let is_end = |token: &SqlToken| token.is_symbol(self.sql, ";");
            let statements = self.tokens.split_inclusive(is_end);
            self.tokens = statements.flat_map(|s| without_schema(self.sql, s)).collect();
        }
        self
    }

    /// Returns its statements; empty ones are left out.
    pub(crate) fn statements(&self) -> impl Iterator<Item = TokenCursor<'_>> {
        let parts = self.tokens.split(|token| token.is_symbol(self.sql, ";"));
        let parts = parts.filter(|tokens| !tokens.is_empty());
        parts.map(|tokens| TokenCursor { sql: self.sql, tokens, at: 0 })
    }

    /// Returns what stands behind a statement, comments and white space: up to its semicolon, and behind
    /// the last statement up to the end of the script.
    pub(crate) fn text_behind(&self, statement: TokenCursor<'_>) -> &str {
        let Some(last) = statement.tokens.last() else { return "" };
        let behind = self.tokens.partition_point(|token| token.start() <= last.start());
        let others = self.tokens.get(behind..).unwrap_or_default();
        let is_last = others.iter().all(|token| token.is_symbol(self.sql, ";"));
        let end = match others.first() {
            Some(next) if !is_last => next.start(),
            _ => self.sql.len(),
        };
        &self.sql[last.end()..end]
    }
}

/// The tokens of one statement, of which some were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenCursor<'s> {
    sql: &'s str,
    tokens: &'s [SqlToken],
    at: usize,
}

impl<'s> TokenCursor<'s> {
    /// Returns the text of the whole script.
    pub(crate) fn sql(&self) -> &'s str {
        self.sql
    }

    /// Returns all tokens of the statement.
    pub(crate) fn tokens(&self) -> &'s [SqlToken] {
        self.tokens
    }

    /// Returns the tokens that were not read.
    pub(crate) fn rest(&self) -> &'s [SqlToken] {
        &self.tokens[self.at..]
    }

    /// Returns the next tokens as a statement of their own.
    pub(crate) fn first(&self, count: usize) -> Self {
        Self { sql: self.sql, tokens: self.rest().get(..count).unwrap_or_default(), at: 0 }
    }

    /// Returns the text of the statement.
    pub(crate) fn text(&self) -> &'s str {
        match (self.tokens.first(), self.tokens.last()) {
            (Some(first), Some(last)) => &self.sql[first.start()..last.end()],
            _ => "",
        }
    }

    /// Returns the next token.
    pub(crate) fn peek(&self) -> Option<SqlToken> {
        self.tokens.get(self.at).copied()
    }

    /// Reads a token.
    pub(crate) fn next(&mut self) -> Option<SqlToken> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Returns whether everything was read.
    pub(crate) fn is_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    /// Reads a keyword if it is next.
    pub(crate) fn accept(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is_word(self.sql, word));
        self.at += usize::from(found);
        found
    }

    /// Reads keywords if they are next.
    pub(crate) fn accept_all(&mut self, words: &[&str]) -> bool {
        let mut ahead = *self;
        let found = words.iter().all(|word| ahead.accept(word));
        if found {
            *self = ahead;
        }
        found
    }

    /// Reads an operator or a bracket if it is next.
    pub(crate) fn accept_symbol(&mut self, symbol: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is_symbol(self.sql, symbol));
        self.at += usize::from(found);
        found
    }

    /// Reads a name; one without quotes keeps its case, as in the engine.
    pub(crate) fn name(&mut self) -> Option<String> {
        let token = self.peek()?;
        let is_name = matches!(
            token.kind,
            SqlTokenKind::Word | SqlTokenKind::QuotedName | SqlTokenKind::BackquotedName
        );
        self.at += usize::from(is_name);
        is_name.then(|| unquoted(token, self.sql))
    }

    /// Reads `name` or `database.name`.
    pub(crate) fn qualified_name(&mut self) -> Option<String> {
        let mut name = self.name()?;
        if self.accept_symbol(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Some(name)
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Option<String> {
        let token = self.peek()?;
        let is_text = matches!(
            token.kind,
            SqlTokenKind::Text | SqlTokenKind::EscapedText | SqlTokenKind::DollarText
        );
        self.at += usize::from(is_text);
        is_text.then(|| unquoted(token, self.sql))
    }

    /// Makes the error for the next token.
    pub(crate) fn syntax_error<T>(&self) -> Result<T> {
        let (message, span) = match self.peek() {
            Some(token) => {
                let message = format!("syntax error at or near `{}`", token.text(self.sql));
                (message, Span::new(token.start(), token.end()))
            }
            None => {
                let end = self.tokens.last().map_or(0, |token| token.end());
                ("syntax error at end of input".to_owned(), Span::new(end, end))
            }
        };
        Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err()
    }
}

#[cfg(test)]
mod tests {
    use super::Script;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        let script = Script::new("; a ';' ;; b \"x;\" -- ;\n;").unwrap();
        let texts: Vec<&str> = script.statements().map(|statement| statement.text()).collect();
        assert_eq!(texts, ["a ';'", "b \"x;\""]);
    }

    #[test]
    fn the_schema_public_is_the_current_database_unless_a_database_has_its_name() {
        let names = |has_database: bool| {
            let script = Script::new("SELECT 1; SELECT a FROM public.t, public.u").unwrap();
            let script = script.in_public_schema(|| has_database);
            let second = script.statements().nth(1).unwrap();
            second.tokens().iter().map(|token| token.text(second.sql())).collect::<String>()
        };
        assert_eq!(names(false), "SELECTaFROMt,u");
        assert_eq!(names(true), "SELECTaFROMpublic.t,public.u");
    }

    #[test]
    fn the_last_statement_has_all_text_up_to_the_end_behind_it() {
        let script = Script::new("a /*1*/; b /*2*/ ; /*3*/ c /*4*/ ;; /*5*/ ").unwrap();
        let behind = script.statements().map(|statement| script.text_behind(statement));
        assert_eq!(behind.collect::<Vec<_>>(), [" /*1*/", " /*2*/ ", " /*4*/ ;; /*5*/ "]);
    }

    #[test]
    fn names_and_strings_are_read() {
        let script = Script::new("Copy a.\"B c\" 'it''s'").unwrap();
        let mut cursor = script.statements().next().unwrap();
        assert!(cursor.accept("COPY") && !cursor.accept("FROM"));
        assert_eq!(cursor.qualified_name().as_deref(), Some("a.B c"));
        assert_eq!(cursor.string().as_deref(), Some("it's"));
        assert!(cursor.is_end());
    }
}

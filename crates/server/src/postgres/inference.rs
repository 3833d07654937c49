//! The types of parameters that a client has not named, found by where they are in the statement.
//!
//! A parameter beside a column has the type of the column: in a comparison, in BETWEEN and IN, and in the
//! VALUES of an INSERT. Others are text, which the engine reads in the type that it needs. Knows tables by
//! a function that the caller gives.

use lockstep_row::DataType;

use super::{
    script::TokenCursor,
    token::{SqlToken, SqlTokenKind, unquoted},
    translation::Translation,
};

/// Columns of a table, by name.
type KnownColumns = Vec<(String, DataType)>;

/// Finds the types of parameters. The result has a type, or none, for each number from 1.
pub(crate) fn parameter_types(
    statement: TokenCursor<'_>,
    translation: &Translation,
    columns_of: impl Fn(&str) -> Option<KnownColumns>,
) -> Vec<Option<DataType>> {
    let (uses, limits) = (&translation.parameters, &translation.limits);
    let numbers = uses.iter().map(|found| found.number).chain(limits.iter().map(|l| l.number));
    let mut types = vec![None; numbers.max().unwrap_or(0).into()];
    for limit in limits {
        types[usize::from(limit.number) - 1] = Some(DataType::BigInt);
    }
    let sought = uses.iter().any(|found| found.cast.is_none());
    let context = StatementContext {
        sql: statement.sql(),
        tokens: statement.tokens(),
        columns: if sought { table_columns(statement, columns_of) } else { Vec::new() },
        inserted: inserted_columns(statement),
    };
    for found in uses {
        let entry: &mut Option<DataType> = &mut types[usize::from(found.number) - 1];
        if entry.is_none() {
            *entry = found.cast.clone().or_else(|| context.type_at(found.token));
        }
    }
    types
}

/// Returns the columns of all tables that a statement names, in order.
fn table_columns(
    mut statement: TokenCursor<'_>,
    columns_of: impl Fn(&str) -> Option<KnownColumns>,
) -> KnownColumns {
    let mut columns = Vec::new();
    while !statement.is_end() {
        let is_before_table = ["FROM", "JOIN", "INTO", "UPDATE"];
        if is_before_table.iter().any(|word| statement.accept(word)) {
            let mut ahead = statement;
            if let Some(found) = ahead.qualified_name().and_then(|name| columns_of(&name)) {
                columns.extend(found);
                statement = ahead;
            }
        } else {
            let _token = statement.next();
        }
    }
    columns
}

/// Where the rows of an INSERT are, and the columns that it names.
struct InsertedColumns {
    /// The token VALUES.
    values: usize,
    /// None: all columns of the table.
    names: Option<Vec<String>>,
}

fn inserted_columns(statement: TokenCursor<'_>) -> Option<InsertedColumns> {
    let mut cursor = statement;
    if !cursor.accept("INSERT") {
        return None;
    }
    while !cursor.accept("INTO") {
        let _token = cursor.next()?;
    }
    cursor.accept("TABLE");
    cursor.qualified_name()?;
    let mut names = None;
    if cursor.accept_symbol("(") {
        let mut found = vec![cursor.name()?];
        while cursor.accept_symbol(",") {
            found.push(cursor.name()?);
        }
        cursor.accept_symbol(")").then_some(())?;
        names = Some(found);
    }
    let values = statement.tokens().len() - cursor.rest().len();
    cursor.accept("VALUES").then_some(InsertedColumns { values, names })
}

/// A statement in which types are sought.
struct StatementContext<'s> {
    sql: &'s str,
    tokens: &'s [SqlToken],
    columns: KnownColumns,
    inserted: Option<InsertedColumns>,
}

impl StatementContext<'_> {
    fn type_at(&self, at: usize) -> Option<DataType> {
        if let Some(inserted) = self.inserted.as_ref().filter(|inserted| at > inserted.values) {
            return self.inserted_type(inserted, at);
        }
        self.column_type(self.column_beside(at)?)
    }

    /// Returns the type of the column to which a value of an INSERT goes.
    fn inserted_type(&self, inserted: &InsertedColumns, at: usize) -> Option<DataType> {
        let mut depth = 0_usize;
        let mut position = 0;
        for token in &self.tokens[inserted.values + 1..at] {
            match token.text(self.sql) {
                "(" => {
                    depth += 1;
                    position = if depth == 1 { 0 } else { position };
                }
                ")" => depth = depth.checked_sub(1)?,
                "," if depth == 1 => position += 1,
                _ => {}
            }
        }
        if depth != 1 {
            return None;
        }
        match &inserted.names {
            None => self.columns.get(position).map(|(_, data_type)| data_type.clone()),
            Some(names) => {
                let name = names.get(position)?;
                self.columns.iter().find(|(column, _)| column == name).map(|(_, t)| t.clone())
            }
        }
    }

    /// Returns the token of the column with which a parameter is compared.
    fn column_beside(&self, at: usize) -> Option<usize> {
        let before = at.checked_sub(1)?;
        if self.is_operator(before) || self.is_word(before, &["LIKE", "ILIKE", "BETWEEN"]) {
            let column = before.checked_sub(1)?;
            return Some(if self.is_word(column, &["NOT"]) {
                column.checked_sub(1)?
            } else {
                column
            });
        }
        if self.is_word(before, &["AND"]) && at >= 4 && self.is_word(at - 3, &["BETWEEN"]) {
            return Some(at - 4);
        }
        if self.is_operator(at + 1) {
            let mut column = at + 2;
            while self.tokens.get(column + 1).is_some_and(|token| token.is_symbol(self.sql, ".")) {
                column += 2;
            }
            return Some(column);
        }
        self.column_before_in(at)
    }

    /// Returns the column before `IN (` where a parameter is in the list.
    fn column_before_in(&self, at: usize) -> Option<usize> {
        let mut open = at.checked_sub(1)?;
        while !self.tokens.get(open)?.is_symbol(self.sql, "(") {
            open = open.checked_sub(1)?;
        }
        let word = open.checked_sub(1)?;
        if !self.is_word(word, &["IN"]) {
            return None;
        }
        let column = word.checked_sub(1)?;
        if self.is_word(column, &["NOT"]) { column.checked_sub(1) } else { Some(column) }
    }

    fn is_word(&self, at: usize, words: &[&str]) -> bool {
        let token = self.tokens.get(at);
        token.is_some_and(|token| words.iter().any(|word| token.is_word(self.sql, word)))
    }

    fn is_operator(&self, at: usize) -> bool {
        const OPERATORS: [&str; 13] =
            ["=", "==", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%"];
        let token = self.tokens.get(at);
        token.is_some_and(|token| {
            token.kind == SqlTokenKind::Symbol && OPERATORS.contains(&token.text(self.sql))
        })
    }

    fn column_type(&self, at: usize) -> Option<DataType> {
        let token = self.tokens.get(at)?;
        let is_name = matches!(
            token.kind,
            SqlTokenKind::Word | SqlTokenKind::QuotedName | SqlTokenKind::BackquotedName
        );
        let name = is_name.then(|| unquoted(*token, self.sql))?;
        self.columns.iter().find(|(column, _)| *column == name).map(|(_, t)| t.clone())
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::DataType;

    use super::parameter_types;
    use crate::postgres::{script::Script, translation::Translation};

    fn check(sql: &str, expected: &[Option<DataType>]) {
        let script = Script::new(sql).unwrap();
        let statement = script.statements().next().unwrap();
        let translation = Translation::new(statement).unwrap();
        let column = |name: &str, data_type| (name.to_owned(), data_type);
        let found = parameter_types(statement, &translation, |table| match table {
            "t" | "db.t" => Some(vec![
                column("a", DataType::Int),
                column("b", DataType::Double),
                column("ts", DataType::Timestamp),
            ]),
            _ => None,
        });
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn a_parameter_beside_a_column_has_its_type() {
        let (int, double, time) =
            (Some(DataType::Int), Some(DataType::Double), Some(DataType::Timestamp));
        check("SELECT * FROM t WHERE a = $1 AND $2 < t.b", &[int.clone(), double.clone()]);
        check("SELECT * FROM db.t WHERE ts BETWEEN $1 AND $2", &[time.clone(), time.clone()]);
        check(
            "SELECT a FROM t WHERE a NOT IN (1, $1) LIMIT $2",
            &[int.clone(), Some(DataType::BigInt)],
        );
        check("SELECT $1, $2::int", &[None, int.clone()]);
        check("SELECT x FROM u WHERE x = $1", &[None]);
        check(
            "INSERT INTO t VALUES ($1, $2, $3), ($4, f($5), NULL)",
            &[int.clone(), double.clone(), time.clone(), int.clone(), None],
        );
        check("INSERT INTO t (ts, a) VALUES ($2, $1)", &[int, time]);
        check("DELETE FROM t WHERE b > $1", &[double]);
    }
}

//! SQL for peers: one template, rendered for each dialect.
//!
//! A template names its parameters, `{name}`, and its casts, `{int:…}` and `{text:…}`. Peers that
//! number parameters get each once; MariaDB gets a `?` for each mention.

use crate::cell::Cell;

/// Whose SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// DuckDB.
    DuckDb,
    /// MariaDB.
    MariaDb,
    /// PostgreSQL.
    Postgres,
}

/// The type of a parameter or a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Up to so many ASCII characters.
    Text(u32),
    /// 64 bits.
    Int,
    /// 64 bits.
    Double,
    /// Milliseconds.
    Time,
}

/// A parameter of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// As `{name}` in the template.
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: Kind,
}

/// A statement in a dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The text.
    pub(crate) sql: String,
    /// For each parameter of the text, its position in the row of values.
    pub(crate) parameters: Vec<usize>,
    /// For each parameter of the text, its type.
    pub(crate) kinds: Vec<Kind>,
}

impl Statement {
    /// The values of a row that the text takes, in its order.
    pub(crate) fn values<'a>(&self, row: &'a [Cell]) -> impl Iterator<Item = &'a Cell> {
        self.parameters.iter().map(|position| &row[*position])
    }
}

impl Dialect {
    /// The name of a type.
    pub(crate) fn type_name(self, kind: Kind) -> String {
        match (self, kind) {
            (Self::MariaDb, Kind::Text(length)) => format!("VARCHAR({length})"),
            (_, Kind::Text(_)) => "VARCHAR".to_owned(),
            (_, Kind::Int) => "BIGINT".to_owned(),
            (Self::Postgres, Kind::Double) => "DOUBLE PRECISION".to_owned(),
            (_, Kind::Double) => "DOUBLE".to_owned(),
            (Self::MariaDb, Kind::Time) => "DATETIME(3)".to_owned(),
            (_, Kind::Time) => "TIMESTAMP".to_owned(),
        }
    }

    /// An expression as a 64-bit integer.
    pub(crate) fn as_int(self, expression: &str) -> String {
        match self {
            Self::MariaDb => format!("CAST({expression} AS SIGNED)"),
            _ => format!("CAST({expression} AS BIGINT)"),
        }
    }

    /// An expression as text.
    pub(crate) fn as_text(self, expression: &str) -> String {
        match self {
            Self::MariaDb => format!("CAST({expression} AS CHAR)"),
            _ => format!("CAST({expression} AS VARCHAR)"),
        }
    }

    /// An expression as a double.
    pub(crate) fn as_double(self, expression: &str) -> String {
        match self {
            Self::Postgres => format!("CAST({expression} AS DOUBLE PRECISION)"),
            _ => format!("CAST({expression} AS DOUBLE)"),
        }
    }

    /// The year of a moment.
    pub(crate) fn year(self, expression: &str) -> String {
        match self {
            Self::Postgres => self.as_int(&format!("extract(year FROM {expression})")),
            _ => self.as_int(&format!("year({expression})")),
        }
    }

    /// Renders a template. Panics when it names a parameter that is not there: templates are ours.
    pub(crate) fn render(self, template: &str, parameters: &[Parameter]) -> Statement {
        let mut statement = Statement { sql: String::new(), parameters: vec![], kinds: vec![] };
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("a parameter ends");
            let position = parameters.iter().position(|parameter| parameter.name == name);
            let position = position.unwrap_or_else(|| panic!("`{name}` is a parameter"));
            statement.sql.push_str(before);
            self.place(&mut statement, position, parameters[position].kind);
            rest = after;
        }
        statement.sql.push_str(rest);
        statement
    }

    fn place(self, statement: &mut Statement, position: usize, kind: Kind) {
        let known = statement.parameters.iter().position(|known| *known == position);
        let number = match known.filter(|_| self != Self::MariaDb) {
            Some(number) => number,
            None => {
                statement.parameters.push(position);
                statement.kinds.push(kind);
                statement.parameters.len() - 1
            }
        };
        match self {
            Self::MariaDb => statement.sql.push('?'),
            _ => {
                let type_name = self.type_name(kind);
                statement.sql.push_str(&format!("CAST(${} AS {type_name})", number + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Kind, Parameter};

    #[test]
    fn parameters_are_numbered_or_repeated() {
        let parameters = [("k", Kind::Text(10)), ("t", Kind::Time)]
            .map(|(name, kind)| Parameter { name: name.to_owned(), kind });
        let template = "SELECT {t} WHERE k = {k} AND t < {t}";
        let statement = Dialect::Postgres.render(template, &parameters);
        assert_eq!(
            statement.sql,
            "SELECT CAST($1 AS TIMESTAMP) WHERE k = CAST($2 AS VARCHAR) AND t < CAST($1 AS TIMESTAMP)"
        );
        assert_eq!(statement.parameters, [1, 0]);
        let statement = Dialect::MariaDb.render(template, &parameters);
        assert_eq!(statement.sql, "SELECT ? WHERE k = ? AND t < ?");
        assert_eq!(statement.parameters, [1, 0, 1]);
    }
}

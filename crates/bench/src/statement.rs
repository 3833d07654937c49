//! SQL for peers: one template, rendered for each dialect.
//!
//! A template names its parameters, `{name}`, and its casts, `{int:…}` and `{text:…}`. Peers that
//! number parameters bind each once; MariaDB has a `?` for each mention.

use crate::answer::AnswerValue;

/// The SQL dialect of a peer.
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
pub(crate) enum PeerType {
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
pub(crate) struct StatementParameter {
    /// The name, as in `{name}` of the template.
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: PeerType,
}

/// A statement in a dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerStatement {
    /// The text.
    pub(crate) sql: String,
    /// For each parameter of the text, its position in the row of values.
    pub(crate) parameters: Vec<usize>,
    /// For each parameter of the text, its type.
    pub(crate) kinds: Vec<PeerType>,
}

impl PeerStatement {
    /// Returns the values of a row that the text takes, in its order.
    pub(crate) fn values<'a>(
        &self,
        row: &'a [AnswerValue],
    ) -> impl Iterator<Item = &'a AnswerValue> {
        self.parameters.iter().map(|position| &row[*position])
    }
}

impl Dialect {
    /// Returns the name of a type.
    pub(crate) fn type_name(self, kind: PeerType) -> String {
        match (self, kind) {
            (Self::MariaDb, PeerType::Text(length)) => format!("VARCHAR({length})"),
            (_, PeerType::Text(_)) => "VARCHAR".to_owned(),
            (_, PeerType::Int) => "BIGINT".to_owned(),
            (Self::Postgres, PeerType::Double) => "DOUBLE PRECISION".to_owned(),
            (_, PeerType::Double) => "DOUBLE".to_owned(),
            (Self::MariaDb, PeerType::Time) => "DATETIME(3)".to_owned(),
            (_, PeerType::Time) => "TIMESTAMP".to_owned(),
        }
    }

    /// Casts an expression to a 64-bit integer.
    pub(crate) fn as_int(self, expression: &str) -> String {
        match self {
            Self::MariaDb => format!("CAST({expression} AS SIGNED)"),
            _ => format!("CAST({expression} AS BIGINT)"),
        }
    }

    /// Casts an expression to text.
    pub(crate) fn as_text(self, expression: &str) -> String {
        match self {
            Self::MariaDb => format!("CAST({expression} AS CHAR)"),
            _ => format!("CAST({expression} AS VARCHAR)"),
        }
    }

    /// Casts an expression to a double.
    pub(crate) fn as_double(self, expression: &str) -> String {
        match self {
            Self::Postgres => format!("CAST({expression} AS DOUBLE PRECISION)"),
            _ => format!("CAST({expression} AS DOUBLE)"),
        }
    }

    /// Returns an expression for the year of a timestamp.
    pub(crate) fn year(self, expression: &str) -> String {
        match self {
            Self::Postgres => self.as_int(&format!("extract(year FROM {expression})")),
            _ => self.as_int(&format!("year({expression})")),
        }
    }

    /// Renders a template. Panics when it names a parameter that does not exist: templates are
    /// constants of this crate.
    pub(crate) fn render(self, template: &str, parameters: &[StatementParameter]) -> PeerStatement {
        let mut statement = PeerStatement { sql: String::new(), parameters: vec![], kinds: vec![] };
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

    fn place(self, statement: &mut PeerStatement, position: usize, kind: PeerType) {
        let known = statement.parameters.iter().position(|known| *known == position);
        let number = match known.filter(|_| self != Self::MariaDb) {
            Some(number) => number,
            None => {
                statement.parameters.push(position);
                statement.kinds.push(kind);
                statement.parameters.len() - 1
            }
        };
        debug_assert_eq!(statement.parameters.len(), statement.kinds.len());
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
    use super::{Dialect, PeerType, StatementParameter};

    #[test]
    fn parameters_are_numbered_or_repeated() {
        let parameters = [("k", PeerType::Text(10)), ("t", PeerType::Time)]
            .map(|(name, kind)| StatementParameter { name: name.to_owned(), kind });
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

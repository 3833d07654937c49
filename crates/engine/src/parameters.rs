//! Statements with parameters: a value for each `?`, given beside the text.
//!
//! A value has a type, and NULL may have any. The number of values must be the number of `?`.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::{Parsed, ast::Statement, parse};

use crate::{
    Output, Relation, Session,
    access::Needs,
    entrance::{CallDescription, no_plan},
};

/// A value for a `?` and its type; NULL has the type [`DataType::Null`] or any other.
pub type Parameter = (Value, DataType);

/// A parsed statement, which may be run several times with different parameters.
#[derive(Debug, Clone)]
pub struct PreparedStatement {
    parsed: Parsed,
    sql: String,
}

impl PreparedStatement {
    /// Returns how many parameters the statement has.
    pub fn parameter_count(&self) -> usize {
        self.parsed.parameter_count
    }

    /// Returns the text of the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

impl Session {
    /// Binds one query without running it.
    pub fn query(&self, sql: &str) -> Result<Relation> {
        self.query_with(sql, &[])
    }

    /// Runs one statement with a value for each `?`, in the order of the text. Without values it
    /// runs a script as [`Self::execute`] does.
    ///
    /// ```
    /// use lockstep_engine::Database;
    /// use lockstep_row::{DataType, Value};
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (k STRING, v INT)")?;
    /// let row = [(Value::String("a".into()), DataType::String), (Value::Int(1), DataType::Int)];
    /// session.execute_with("INSERT INTO t VALUES (?, ?)", &row)?;
    /// let found = session.execute_with("SELECT v FROM t WHERE k = ?", &row[..1])?;
    /// assert_eq!(found.row_count(), 1);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn execute_with(&self, sql: &str, parameters: &[Parameter]) -> Result<Output> {
        if parameters.is_empty() {
            return self.execute(sql);
        }
        self.execute_prepared(&self.prepare(sql)?, parameters)
    }

    /// Parses one statement, which may be run several times with different parameters.
    pub fn prepare(&self, sql: &str) -> Result<PreparedStatement> {
        let mut statements = parse(sql)?;
        match (statements.pop(), statements.is_empty()) {
            (Some(parsed), true) => Ok(PreparedStatement { parsed, sql: sql.to_owned() }),
            _ => Diagnostic::new(code::SYNTAX_ERROR, "parameters need exactly one statement")
                .with_hint("Run the statements of a script one by one.")
                .err(),
        }
    }

    /// Runs a prepared statement with a value for each `?`.
    pub fn execute_prepared(
        &self,
        prepared: &PreparedStatement,
        parameters: &[Parameter],
    ) -> Result<Output> {
        check_count(&prepared.parsed, parameters)?;
        self.run_statement(&prepared.parsed, &prepared.sql, parameters)
    }

    /// Binds one query with a value for each `?`, without running it.
    pub fn query_with(&self, sql: &str, parameters: &[Parameter]) -> Result<Relation> {
        let prepared = self.prepare(sql).map_err(|error| match error.code {
            code::SYNTAX_ERROR if error.span.is_none() => {
                Box::new(Diagnostic::new(code::SYNTAX_ERROR, "expected exactly one query"))
            }
            _ => error,
        })?;
        let Statement::Query(query) = &prepared.parsed.statement else {
            return Diagnostic::new(code::SYNTAX_ERROR, "this statement is not a query")
                .at(prepared.parsed.span)
                .with_hint("Run it with execute.")
                .err();
        };
        check_count(&prepared.parsed, parameters)?;
        let operation = || CallDescription {
            action: "SELECT",
            text: sql,
            needs: Needs::default(),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || self.relation(query, parameters))
    }
}

/// Checks that the number of values is the number of `?`.
pub(crate) fn check_count(parsed: &Parsed, parameters: &[Parameter]) -> Result<()> {
    let (expected, found) = (parsed.parameter_count, parameters.len());
    if expected == found {
        return Ok(());
    }
    let message = format!("the statement has {expected} `?`, and {found} values were given");
    Diagnostic::new(code::INVALID_PARAMETER, message).at(parsed.span).err()
}

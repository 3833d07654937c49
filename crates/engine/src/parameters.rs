//! Statements with parameters: a value for each `?`, given beside the text.
//!
//! A value has a type, and NULL may have any. The number of values must be the number of `?`.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::{
    Parsed,
    ast::{Query, Statement},
    parse,
};

use crate::{
    FindObject, Output, Relation, Session,
    access::Needs,
    entrance::{CallDescription, no_plan},
    statement::all_write_rows,
};

/// A value for a `?` and its type; NULL has the type [`DataType::Null`] or any other.
pub type Parameter = (Value, DataType);

/// A parsed statement, which may be run several times with different parameters.
#[derive(Debug, Clone)]
pub struct PreparedStatement {
    pub(crate) parsed: Parsed,
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

/// A parsed script of one or more statements: for a front end that looks at it before it runs it.
#[derive(Debug, Clone)]
pub struct ParsedScript {
    statements: Vec<Parsed>,
    text: String,
}

impl ParsedScript {
    /// Parses a script.
    ///
    /// ```
    /// use lockstep_engine::{Database, ParsedScript};
    ///
    /// let script = ParsedScript::parse("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)")?;
    /// assert!(!script.only_writes_rows());
    /// let output = Database::in_memory().session().run_script(&script, &[])?;
    /// assert_eq!(output.rows_affected, Some(1));
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { statements: parse(text)?, text: text.to_owned() })
    }

    pub(crate) fn statements(&self) -> &[Parsed] {
        &self.statements
    }

    /// Returns what [`only_writes_rows`](crate::only_writes_rows) says of the text, without parsing it
    /// again.
    pub fn only_writes_rows(&self) -> bool {
        all_write_rows(&self.statements)
    }
}

impl Session {
    /// Runs a parsed script as [`Self::execute_with`] runs its text.
    pub fn run_script(&self, script: &ParsedScript, parameters: &[Parameter]) -> Result<Output> {
        let ParsedScript { statements, text } = script;
        match statements.as_slice() {
            _ if parameters.is_empty() => self.run_statements(statements, text),
            [only] => {
                debug_assert!(!parameters.is_empty(), "a script without them may be longer");
                check_parameters(only, parameters)?;
                self.run_statement(only, text, parameters)
            }
            _ => not_one_statement().err(),
        }
    }

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
            _ => not_one_statement().err(),
        }
    }

    /// Runs a prepared statement with a value for each `?`.
    pub fn execute_prepared(
        &self,
        prepared: &PreparedStatement,
        parameters: &[Parameter],
    ) -> Result<Output> {
        check_parameters(&prepared.parsed, parameters)?;
        self.run_statement(&prepared.parsed, &prepared.sql, parameters)
    }

    /// Binds one query with a value for each `?`, without running it.
    pub fn query_with(&self, sql: &str, parameters: &[Parameter]) -> Result<Relation> {
        self.query_naming(sql, parameters, None)
    }

    /// Binds one query as [`Self::query_with`] does, in which names that no table of the current
    /// database has may be those of the caller's Arrow objects. Their rows are not copied.
    ///
    /// ```
    /// use lockstep_engine::Database;
    ///
    /// let session = Database::in_memory().session();
    /// let rows = session.execute("SELECT 1 AS a")?;
    /// let find = |name: &str| {
    ///     Ok((name == "mine").then(|| (rows.batches[0].schema(), rows.batches.clone())))
    /// };
    /// let sum = session.query_naming("SELECT sum(a) AS s FROM mine", &[], Some(&find))?;
    /// assert_eq!(sum.collect(None)?.row_count(), 1);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn query_naming(
        &self,
        sql: &str,
        parameters: &[Parameter],
        objects: Option<FindObject<'_>>,
    ) -> Result<Relation> {
        let prepared = self.prepare_query(sql, parameters)?;
        let query = only_rows(&prepared.parsed)?;
        let operation = || CallDescription {
            action: "SELECT",
            text: sql,
            needs: Needs::default(),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || self.relation(query, parameters, objects))
    }

    /// Parses a text that has to be one query, and checks its parameters.
    pub(crate) fn prepare_query(
        &self,
        sql: &str,
        parameters: &[Parameter],
    ) -> Result<PreparedStatement> {
        let prepared = self.prepare(sql).map_err(|error| match error.code {
            code::SYNTAX_ERROR if error.span.is_none() => {
                Box::new(Diagnostic::new(code::SYNTAX_ERROR, "expected exactly one query"))
            }
            _ => error,
        })?;
        only_rows(&prepared.parsed)?;
        check_parameters(&prepared.parsed, parameters)?;
        Ok(prepared)
    }
}

/// Makes the error for a script with parameters that is not one statement.
fn not_one_statement() -> Diagnostic {
    Diagnostic::new(code::SYNTAX_ERROR, "parameters require a single statement")
        .with_hint("Run the statements of a script one by one.")
}

/// Checks that the number of values is the number of `?`, and that a statement takes values of their
/// types: an ARRAY none, a MAP only one that stores it.
pub(crate) fn check_parameters(parsed: &Parsed, parameters: &[Parameter]) -> Result<()> {
    let is_query = matches!(parsed.statement, Statement::Query(_));
    let refused = parameters.iter().position(|(value, _)| match value {
        Value::Array(_) => true,
        Value::Map(_) => is_query,
        _ => false,
    });
    if let Some(at) = refused {
        let message = match &parameters[at].0 {
            Value::Array(_) => {
                format!("parameter {} is an ARRAY, which statements do not support", at + 1)
            }
            _ => format!("parameter {} is a MAP, which queries do not support", at + 1),
        };
        return Diagnostic::unsupported(message)
            .with_hint("Pass each element as a separate parameter.")
            .at(parsed.span)
            .err();
    }
    let (expected, found) = (parsed.parameter_count, parameters.len());
    if expected == found {
        return Ok(());
    }
    let message = format!("{found} parameters supplied, but the statement requires {expected}");
    Diagnostic::new(code::INVALID_PARAMETER, message).at(parsed.span).err()
}

/// Returns the query of a statement that gives rows; another one is an error.
pub(crate) fn only_rows(parsed: &Parsed) -> Result<&Query> {
    let message = match &parsed.statement {
        Statement::Query(query) if query.into_outfile.is_none() => return Ok(query),
        Statement::Query(_) => "a query with INTO OUTFILE writes a file and returns no rows",
        _ => "this statement is not a query",
    };
    let error = Diagnostic::new(code::SYNTAX_ERROR, message).at(parsed.span);
    error.with_hint("Run it with execute.").err()
}

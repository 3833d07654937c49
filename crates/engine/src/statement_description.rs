//! What a statement will return, without running it: for protocols whose clients ask before they run.
//!
//! A query is bound, which finds the types of its columns. SHOW, DESC and EXPLAIN change nothing, and
//! [`StatementEffect::Reads`] says so: a front end may run them to know their columns.

use lockstep_diagnostic::{Result, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::Statement;

use crate::{Parameter, Session, statement::verification_columns, variables::Storage};

/// What running a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementEffect {
    /// It is a query.
    Query,
    /// It returns rows about the database and changes nothing.
    Reads,
    /// It is VERIFY, which changes nothing and may take long.
    Verifies,
    /// Anything else.
    Other,
}

/// What is known of a statement before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementDescription {
    /// What it does.
    pub effect: StatementEffect,
    /// The number of its `?`.
    pub parameter_count: usize,
    /// The names and types of the columns of a query or of VERIFY; `None` where only running it tells.
    pub columns: Option<Vec<(String, DataType)>>,
}

impl Session {
    /// Describes a script by its last statement. A query is bound, with NULL for each `?`.
    ///
    /// ```
    /// use lockstep_engine::{Database, StatementEffect};
    ///
    /// let session = Database::in_memory().session();
    /// let found = session.describe_statement("SELECT ? AS a, 1.5 AS b")?;
    /// assert_eq!((found.effect, found.parameter_count), (StatementEffect::Query, 1));
    /// assert_eq!(found.columns.map(|columns| columns.len()), Some(2));
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn describe_statement(&self, sql: &str) -> Result<StatementDescription> {
        let (effect, parameter_count) = self.statement_effect(sql)?;
        let columns = match effect {
            StatementEffect::Query => Some(self.columns_of_query(sql, parameter_count)?),
            StatementEffect::Verifies => Some(verification_columns(sql)),
            StatementEffect::Reads | StatementEffect::Other => None,
        };
        Ok(StatementDescription { effect, parameter_count, columns })
    }

    /// Returns what a script does, by its last statement, and the number of its `?`. A query that is to be
    /// a job, since the session reads offline data, is none.
    pub fn statement_effect(&self, sql: &str) -> Result<(StatementEffect, usize)> {
        let mut statements = lockstep_sql::parse(sql)?;
        let is_single = statements.len() == 1;
        let Some(last) = statements.pop() else { return Ok((StatementEffect::Other, 0)) };
        let is_online = self.storage() == Storage::Online;
        let effect = match &last.statement {
            Statement::Query(query) if query.into_outfile.is_none() && is_online => {
                StatementEffect::Query
            }
            Statement::Show(_) | Statement::Describe(_) | Statement::Explain { .. } => {
                StatementEffect::Reads
            }
            Statement::VerifyDeployment { .. } => StatementEffect::Verifies,
            _ => StatementEffect::Other,
        };
        // Statements before the last one may make the tables that it reads.
        let effect = if is_single { effect } else { StatementEffect::Other };
        Ok((effect, last.parameter_count))
    }

    fn columns_of_query(&self, sql: &str, parameters: usize) -> Result<Vec<(String, DataType)>> {
        let bind = |parameter: Parameter| -> Result<Vec<(String, DataType)>> {
            let found = self.query_with(sql, &vec![parameter; parameters])?;
            Ok(found.columns().to_vec())
        };
        match bind((Value::Null, DataType::Null)) {
            // Some functions take no NULL without a type.
            Err(error) if parameters > 0 && error.code != code::UNDEFINED_TABLE => {
                bind((Value::Null, DataType::String)).map_err(|_other| error)
            }
            found => found,
        }
    }
}

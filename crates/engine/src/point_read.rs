//! Statements that read a few rows by the keys of a declared index, and take microseconds, and calls of deployments: a front
//! end that runs long statements apart looks before it runs one.

use lockstep_batch::{ExecuteOptions, is_answered_by_key};
use lockstep_sql::{
    Parsed,
    ast::{Query, SetExpr, Statement, TableRef},
};

use crate::{
    Parameter, ParsedScript, PreparedStatement, Session, database::TableSet, entrance::ReadObjects,
    index_read, named_source::NamedSources, parameters::check_parameters, variables::Storage,
};

impl ParsedScript {
    /// Returns whether [`Session::is_answered_by_key`] may be true of the script, whatever the tables.
    pub fn may_be_answered_by_key(&self) -> bool {
        matches!(self.statements(), [only] if is_call(only) || query_by_key(only).is_some())
    }
}

impl Session {
    /// Returns whether a script is one CALL, or one SELECT that reads a few rows of one table by the keys of a declared
    /// index, as the table is now. Costs some tens of microseconds, and less for any other script. Names
    /// belong to `database`, or to the current one for `None`.
    ///
    /// ```
    /// use lockstep_engine::{Database, ParsedScript};
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (k INT, v INT, INDEX(KEY = k))")?;
    /// let is_answered_by_key = |sql| {
    ///     let script = ParsedScript::parse(sql)?;
    ///     Ok::<_, Box<lockstep_engine::Diagnostic>>(session.is_answered_by_key(&script, &[], None))
    /// };
    /// assert!(is_answered_by_key("SELECT v FROM t WHERE k = 1")?);
    /// assert!(!is_answered_by_key("SELECT k FROM t WHERE v = 1")?);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn is_answered_by_key(
        &self,
        script: &ParsedScript,
        parameters: &[Parameter],
        database: Option<&str>,
    ) -> bool {
        matches!(script.statements(), [only] if self.reads_by_key(only, parameters, database))
    }

    /// Returns what [`Self::is_answered_by_key`] does, of a prepared statement in the current database.
    pub fn is_prepared_answered_by_key(
        &self,
        prepared: &PreparedStatement,
        parameters: &[Parameter],
    ) -> bool {
        self.reads_by_key(&prepared.parsed, parameters, None)
    }

    fn reads_by_key(
        &self,
        parsed: &Parsed,
        parameters: &[Parameter],
        database: Option<&str>,
    ) -> bool {
        if is_call(parsed) {
            return true;
        }
        let Some(query) = query_by_key(parsed) else { return false };
        if self.storage() != Storage::Online || check_parameters(parsed, parameters).is_err() {
            return false;
        }
        // The names that the query means are noted by the call that runs it.
        let _objects = ReadObjects::begin();
        let sources = NamedSources::default();
        let options = self.query_options(parameters);
        let bound =
            lockstep_host::with_large_stack(|| self.bind_in(query, &options, &sources, database));
        let Ok(bound) = bound else { return false };
        let Ok(entries) = self.database.entries_of(&bound.plan) else { return false };
        let read_through = index_read::of(self.settings().compatibility, &bound.plan);
        let options = ExecuteOptions { read_through, ..ExecuteOptions::default() };
        is_answered_by_key(&bound.plan, &TableSet::of(&entries), &options)
    }
}

/// Returns whether a statement is a request of one row.
fn is_call(parsed: &Parsed) -> bool {
    matches!(parsed.statement, Statement::Call { .. })
}

/// Returns the query of a statement that may read by key: a SELECT of one table with a WHERE.
fn query_by_key(parsed: &Parsed) -> Option<&Query> {
    let Statement::Query(query) = &parsed.statement else { return None };
    let SetExpr::Select(select) = &query.body else { return None };
    let is_plain = query.with.is_empty()
        && query.known_at.is_none()
        && query.into_outfile.is_none()
        && query.config.is_empty()
        && select.filter.is_some()
        && select.group_by.is_empty()
        && select.having.is_none()
        && !select.distinct
        && matches!(select.from, Some(TableRef::Table { .. }));
    is_plain.then_some(query)
}

//! Request mode of a session: a deployment or a query, compiled, and answers to request rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::{Parsed, ast::Statement, parse};

use crate::{
    Output, PreparedRequest, Session,
    access::{Needs, Requirement},
    entrance::{CallDescription, no_plan},
    known::KnownQuery,
    request_cache::RequestKey,
    session::{object_name, retried},
    statement::check_query_config,
    user::{Privilege, Securable},
};

impl Session {
    /// Returns the request-mode program of a deployment (by name) or of a query (SQL text). The
    /// program of a deployment is compiled already; that of a query is compiled unless the cache
    /// has it.
    ///
    /// The program answers for the definition from which it was compiled: once the deployment or a
    /// table of the query is dropped, even if it is created again, its answers are the error
    /// [`code::STALE_DEFINITION`].
    pub fn prepare_request(&self, target: &str) -> Result<Arc<PreparedRequest>> {
        self.enter(|| self.request_operation(target, &no_plan), || self.find_request(target))
    }

    /// Returns what [`Self::prepare_request`] returns where it is there already, without waiting for a
    /// change of the catalog: `None` for a query that is to be compiled, and for what does not exist.
    pub fn find_prepared(&self, target: &str) -> Result<Option<Arc<PreparedRequest>>> {
        let find = || {
            let found = match is_name(target) {
                true => self.try_find_deployment(target),
                false => self.find_cached(target),
            };
            found.map(|request| request.for_session(self)).transpose()
        };
        self.enter(|| self.request_operation(target, &no_plan), find)
    }

    /// Describes a request for the entrance. Where the target is a name, it need not exist to be refused.
    fn request_operation<'a>(
        &self,
        target: &'a str,
        plan: &'a dyn Fn() -> Option<String>,
    ) -> CallDescription<'a> {
        let needs = match is_name(target) {
            true => Needs::of(vec![self.execution_of(target)]),
            false => Needs::default(),
        };
        CallDescription { action: "REQUEST", text: target, needs, is_audited: false, plan }
    }

    /// Returns what the use of a deployment needs.
    pub(crate) fn execution_of(&self, deployment: &str) -> Requirement {
        let name = self.qualified(&object_name(deployment.trim()));
        Requirement::new(Privilege::Execute, Securable::Deployment(name))
    }

    fn find_request(&self, target: &str) -> Result<Arc<PreparedRequest>> {
        if is_name(target) {
            return self.find_deployment(target)?.request.for_session(self);
        }
        if let Some(request) = self.find_cached(target) {
            return request.for_session(self);
        }
        // The name of a deployment may have spaces in it.
        if let Ok(found) = self.find_deployment(target) {
            return found.request.for_session(self);
        }
        // Before it is compiled: another thread may change the session meanwhile.
        let (text, database) = (target.to_owned(), self.current_database());
        let key = RequestKey { text, database, settings: self.settings() };
        let request = retried(|| self.compile_request(target)).map(Arc::new)?;
        self.database.requests().insert(key, &request);
        request.for_session(self)
    }

    /// Returns the request of a query that was compiled before.
    fn find_cached(&self, query: &str) -> Option<Arc<PreparedRequest>> {
        self.with_current_database(|database, settings| {
            self.database.requests().find(query, database, settings)
        })
    }

    fn compile_request(&self, sql: &str) -> Result<PreparedRequest> {
        let mut statements = parse(sql)?;
        match (statements.pop(), statements.is_empty()) {
            (Some(Parsed { statement: Statement::Query(query), .. }), true) => {
                KnownQuery::refuse(&query)?;
                let bound = self.bind(&query)?;
                check_query_config(self, &query, &bound)?;
                let entries = self.database.entries_of(&bound.plan)?;
                PreparedRequest::compile(&bound, &self.database, &entries, self.temporary_storage())
            }
            _ => Diagnostic::new(
                code::SYNTAX_ERROR,
                "a request requires the name of a deployment or a single query",
            )
            .err(),
        }
    }

    /// Answers request rows in request mode: one output row for each, in order, unless a WHERE
    /// drops it. Rows do not see each other and are not stored. Columns are matched by name;
    /// columns that the table does not have are ignored.
    pub fn request(&self, target: &str, rows: &[RecordBatch]) -> Result<Output> {
        let conversion = self.conversion();
        let answer = || self.find_request(target)?.answer_batches(rows, conversion);
        let plan = || self.find_request(target).ok().map(|request| request.explain());
        self.enter(|| self.request_operation(target, &plan), || retried(answer))
    }

    /// Answers request rows as [`Self::request`] does, with a request that was prepared from `target`:
    /// for the definition from which it was compiled, and no other.
    pub fn request_prepared(
        &self,
        target: &str,
        request: &PreparedRequest,
        rows: &[RecordBatch],
    ) -> Result<Output> {
        let conversion = self.conversion();
        let plan = || Some(request.explain());
        let operation = || self.request_operation(target, &plan);
        self.enter(operation, || request.answer_batches(rows, conversion))
    }
}

/// Returns whether a target is the name of a deployment for certain: another one may be a query.
fn is_name(target: &str) -> bool {
    !target.trim().contains(char::is_whitespace)
}

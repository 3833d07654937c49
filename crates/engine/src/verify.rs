//! Verification: proves that a deployment's answers equal its training set (promise L2).
//!
//! The deployed program itself answers, over the same indexes and the columns that they include.
//! Each stored row of the request table is a request at its own position, so that it sees the rows
//! that batch mode shows it. Both modes read one snapshot of every table, taken at the start.
//! (ADR 0022) Where not each row of the result comes from a row of the table, batch mode runs for each
//! request ([`position`], ADR 0040), else once for all ([`rows`]).
//!
//! *Cost*: the query in batch mode, then a request for each row that is replayed, on as many threads as
//! the machine runs. Holds some batches of rows at a time, and what batch mode holds. Until it ends, the
//! memory of removed rows is not freed.

mod position;
mod report;
mod rows;
mod sample;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_request::gives_row_by_row;

pub(crate) use self::{position::data_of, sample::RowSample};
use self::{position::verify_at_positions, report::ReplayReport, rows::verify_row_by_row};
use crate::{
    Database, ProgressCallback, Session,
    access::{Needs, Requirement},
    database::TableSet,
    deployment::Deployment,
    entrance::{CallDescription, no_plan},
    index_read,
    known::KnownTables,
    session::retried,
    user::{Privilege, Securable},
};

impl Session {
    /// Replays the stored rows of the request table as requests to the deployed program, each at
    /// its own position, and compares with batch mode bit by bit. Both read one snapshot of the
    /// tables.
    pub fn verify(&self, deployment: &str) -> Result<Verification> {
        self.verify_with(deployment, &VerifyOptions::default())
    }

    /// Verifies as [`Self::verify`] does, with a sample of the rows or with reports of progress.
    pub fn verify_with(&self, deployment: &str, options: &VerifyOptions) -> Result<Verification> {
        let operation = || CallDescription {
            action: "VERIFY",
            text: deployment,
            needs: Needs::of(vec![self.execution_of(deployment)]),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || retried(|| self.run_verification(deployment, options)))
    }

    /// Verifies a deployment in a call that is entered.
    pub(crate) fn run_verification(
        &self,
        deployment: &str,
        options: &VerifyOptions,
    ) -> Result<Verification> {
        let found = self.find_deployment(deployment)?;
        // The differences have values of the tables.
        self.permit(&Needs::of(reads_of(&found)))?;
        let verification = verify(&self.database, &found, options);
        // Tables that were dropped meanwhile, after the deployment, were empty.
        found.definition.check()?;
        verification
    }
}

/// Returns what somebody needs who sees values of the tables of a deployment.
pub(crate) fn reads_of(deployment: &Deployment) -> Vec<Requirement> {
    let read = |name| Requirement::new(Privilege::Select, Securable::Table(name));
    deployment.tables.iter().map(|table| read(table.name.clone())).collect()
}

/// The options of a verification.
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// How many rows are replayed, drawn evenly and the same each time; `None` is every row, or 256
    /// where each costs a run of the query in batch mode.
    pub sample: Option<u64>,
    /// Called with the fraction of the rows that are done.
    pub progress: Option<ProgressCallback>,
}

impl std::fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verification {
    /// The number of stored rows of the request table.
    pub rows: u64,
    /// The number of stored rows that were replayed as requests.
    pub requests: u64,
    /// The number of values that were compared.
    pub values: u64,
    /// The number of values that differ in any bit, and of rows that only one mode has.
    pub differing: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The duration, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Verification {
    /// Whether requests were replayed and nothing differs.
    pub fn is_ok(&self) -> bool {
        self.requests > 0 && self.differing == 0
    }

    /// Returns how many rows were verified in a second, in batch mode and in request mode.
    #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
    pub fn rows_per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The position of the stored row in order of arrival, from 0.
    pub row: u64,
    /// The column of the answer; empty when only one mode has a row.
    pub column: String,
    /// The value in batch mode.
    pub batch: String,
    /// The value in request mode.
    pub request: String,
}

/// Replays stored rows of the request table as requests, and compares with batch mode.
fn verify(
    database: &Database,
    deployment: &Deployment,
    options: &VerifyOptions,
) -> Result<Verification> {
    let begin_ns = database.clock().monotonic_ns();
    let (query, program) = (&deployment.query, deployment.request.program());
    let Some(request_table) = &query.request_table else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "the deployment reads no table").err();
    };
    // Tables that only batch mode reads may not be among the program's.
    let current = TableSet::of(&database.entries_of(&query.plan)?);
    let current = current.spilling_to(database.temporary_storage());
    let read_through = index_read::of(deployment.settings.compatibility, &query.plan);
    let tables = KnownTables::new(program, &current, read_through);
    let (columns, settings) = (deployment.request.output(), &deployment.settings);
    let report = ReplayReport::new(columns, settings, options.progress.as_ref());
    let id = request_table.id;
    let options = (options, database.host().threads.count());
    let report = if program.is_compiled() && gives_row_by_row(&query.plan) {
        verify_row_by_row(deployment, (&tables, id), options, report)?
    } else {
        verify_at_positions(deployment, (&tables, id), options, report)?
    };
    let mut found = report.end();
    found.elapsed_ns = database.clock().monotonic_ns().saturating_sub(begin_ns);
    Ok(found)
}

#[cfg(test)]
mod tests;

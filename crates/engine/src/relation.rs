//! Relations: queries that are bound, and run when their rows are fetched.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::array::RecordBatch;
use lockstep_batch::{ExecuteOptions, ProgressListener};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::Compatibility;
use lockstep_plan::BoundQuery;
use lockstep_row::DataType;

use crate::{
    Database, Limits, Output, PreparedRequest, conversion::Conversion, database::TableSet,
    index_read, variables::Storage,
};

/// A function that is called with the fraction of the work that is done, from 0.0 to 1.0, from any
/// thread.
pub type ProgressCallback = Arc<dyn Fn(f64) + Send + Sync>;

/// Reports the progress of an operator as a fraction.
struct FractionReporter(ProgressCallback);

impl ProgressListener for FractionReporter {
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
    fn report(&self, _operator: &'static str, done: u64, total: u64) {
        (self.0)(done as f64 / total.max(1) as f64);
    }
}

/// The settings of the session when a query was bound.
#[derive(Debug, Clone)]
pub(crate) struct RelationContext {
    /// The data that the query reads.
    pub(crate) storage: Storage,
    /// The memory and time that the query may use.
    pub(crate) limits: Limits,
    /// The rules by which the files of offline tables are read.
    pub(crate) conversion: Conversion,
    /// Warnings about the query's CONFIG.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// A bound query that has not run yet.
pub struct Relation {
    database: Database,
    query: BoundQuery,
    context: RelationContext,
    /// The request rows of the query's CONFIG, when it runs in request mode.
    requests: Option<Vec<RecordBatch>>,
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relation").field("columns", &self.query.columns).finish_non_exhaustive()
    }
}

impl Relation {
    /// Makes the relation of a query that is answered for these request rows, or runs in batch mode
    /// where there are none.
    pub(crate) fn new(
        database: Database,
        query: BoundQuery,
        context: RelationContext,
        requests: Option<Vec<RecordBatch>>,
    ) -> Self {
        Self { database, query, context, requests }
    }

    /// Returns the names (which may repeat) and types of the result's columns.
    pub fn columns(&self) -> &[(String, DataType)] {
        &self.query.columns
    }

    /// Runs the query in batch mode, or in request mode when its CONFIG says so, under the limits
    /// that the session had when it was bound. Fails with
    /// [`code::STALE_DEFINITION`](crate::code::STALE_DEFINITION) where a table of the query was
    /// dropped since then, even if another table has the name now.
    pub fn collect(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        self.database.check_open()?;
        let mut output = self.context.limits.run(|| self.run(progress))?;
        output.warnings.extend(self.context.warnings.iter().cloned());
        Ok(output)
    }

    fn run(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        if let Some(requests) = &self.requests {
            let entries = self.database.entries_of(&self.query.plan)?;
            return PreparedRequest::compile(&self.query, &entries)?
                .answer_batches(requests, self.context.conversion);
        }
        let progress = progress
            .map(|callback| -> Arc<dyn ProgressListener> { Arc::new(FractionReporter(callback)) });
        let compatibility = self.context.conversion.settings().compatibility;
        let read_through = match (compatibility, self.context.storage) {
            (Compatibility::OpenMldb, Storage::Online) => {
                index_read::read_through(&self.query.plan)
            }
            _ => BTreeMap::new(),
        };
        let options = ExecuteOptions { progress, read_through, ..ExecuteOptions::default() };
        let entries = self.database.entries_of(&self.query.plan)?;
        let tables = match self.context.storage {
            Storage::Online => TableSet::of(&entries),
            Storage::Offline => self.database.offline_tables(&entries, self.context.conversion)?,
        };
        let batches = lockstep_batch::execute(&self.query.plan, &tables, &options);
        // A table that was dropped meanwhile was empty while the query read it.
        entries.iter().try_for_each(|entry| entry.definition.check())?;
        let batches = batches?;
        let settings = self.context.conversion.settings();
        let columns = self.query.columns.clone();
        Ok(Output { columns, batches, settings, ..Output::default() })
    }
}

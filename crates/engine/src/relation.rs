//! A query in batch mode: bound, and run when its rows are asked for.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::array::RecordBatch;
use lockstep_batch::{ExecuteOptions, ProgressListener};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::Compatibility;
use lockstep_plan::BoundQuery;
use lockstep_row::DataType;

use crate::{
    Database, Limits, Output, PreparedRequest, conversion::Conversion, database::Tables,
    index_read, settings::Storage,
};

/// Called with the share of the work that is done, 0.0 to 1.0, from any thread.
pub type ProgressCallback = Arc<dyn Fn(f64) + Send + Sync>;

/// Turns an operator's steps into a share.
struct Share(ProgressCallback);

impl ProgressListener for Share {
    #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
    fn report(&self, _operator: &'static str, done: u64, total: u64) {
        (self.0)(done as f64 / total.max(1) as f64);
    }
}

/// Which data a query reads.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) storage: Storage,
    /// What the query may use when it runs.
    pub(crate) limits: Limits,
    /// How the files of offline tables are read.
    pub(crate) conversion: Conversion,
    /// What the query's CONFIG says in vain.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// A bound query that has not run yet.
pub struct Relation {
    database: Database,
    query: BoundQuery,
    source: Source,
    /// The request rows, when the query carries them and is answered in request mode.
    requests: Option<Vec<RecordBatch>>,
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relation").field("columns", &self.query.columns).finish_non_exhaustive()
    }
}

impl Relation {
    /// A query that is answered for these request rows; in batch mode when there are none.
    pub(crate) fn new(
        database: Database,
        query: BoundQuery,
        source: Source,
        requests: Option<Vec<RecordBatch>>,
    ) -> Self {
        Self { database, query, source, requests }
    }

    /// The result's column names (which may repeat) and types.
    pub fn columns(&self) -> &[(String, DataType)] {
        &self.query.columns
    }

    /// Runs the query in batch mode, or in request mode when its CONFIG says so, under the limits
    /// that the session had when it was bound. Fails with
    /// [`code::STALE_DEFINITION`](crate::code::STALE_DEFINITION) when a table of it was dropped
    /// since it was bound, also when another table has the name.
    pub fn collect(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        let mut output = self.source.limits.run(|| self.run(progress))?;
        output.warnings.extend(self.source.warnings.iter().cloned());
        Ok(output)
    }

    fn run(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        if let Some(requests) = &self.requests {
            let entries = self.database.entries_of(&self.query.plan)?;
            return PreparedRequest::compile(&self.query, &entries)?
                .answer_batches(requests, self.source.conversion);
        }
        let progress =
            progress.map(|callback| -> Arc<dyn ProgressListener> { Arc::new(Share(callback)) });
        let compatibility = self.source.conversion.settings().compatibility;
        let read_through = match (compatibility, self.source.storage) {
            (Compatibility::OpenMldb, Storage::Online) => {
                index_read::read_through(&self.query.plan)
            }
            _ => BTreeMap::new(),
        };
        let options = ExecuteOptions { progress, read_through, ..ExecuteOptions::default() };
        let entries = self.database.entries_of(&self.query.plan)?;
        let tables = match self.source.storage {
            Storage::Online => Tables::of(&entries),
            Storage::Offline => self.database.offline_tables(&entries, self.source.conversion)?,
        };
        let batches = lockstep_batch::execute(&self.query.plan, &tables, &options);
        // A table that was dropped meanwhile had no rows any more.
        entries.iter().try_for_each(|entry| entry.definition.check())?;
        let batches = batches?;
        let settings = self.source.conversion.settings();
        let columns = self.query.columns.clone();
        Ok(Output { columns, batches, settings, ..Output::default() })
    }
}

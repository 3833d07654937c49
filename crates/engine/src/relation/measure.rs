//! What a query takes: its time, its rows, and what it reads of the files of tables.

use std::{sync::Arc, time::Duration};

use lockstep_diagnostic::Result;
use lockstep_host::{BlockReads, CallProgress, QueryContext};

use super::Relation;
use crate::Database;

/// What a query took.
#[derive(Debug, Clone)]
pub(crate) struct QueryMeasure {
    /// How many rows it has.
    pub(crate) rows: u64,
    pub(crate) mode: MeasuredMode,
    /// How long it ran.
    pub(crate) run: Duration,
    /// What it read of the files of tables while it ran.
    pub(crate) reads: BlockReads,
}

/// The mode in which a query ran.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MeasuredMode {
    Batch,
    Request {
        /// How long its compilation took before; `None`: it was compiled.
        compilation: Option<Duration>,
    },
}

impl Relation {
    /// Runs the query as [`Relation::collect`] does, and measures it. Its rows are discarded; in batch mode
    /// they need not fit in memory.
    pub(crate) fn measure(&self) -> Result<QueryMeasure> {
        let mut rows = 0;
        let Some(requests) = &self.requests else {
            let (run, reads) = measured(&self.database, || {
                let count = &mut |batch: arrow::array::RecordBatch| {
                    rows += u64::try_from(batch.num_rows()).unwrap_or(0);
                    Ok(())
                };
                self.run_each(None, count).map(|_warnings| ())
            })?;
            return Ok(QueryMeasure { rows, mode: MeasuredMode::Batch, run, reads });
        };
        self.check()?;
        self.context.limits.run(|| {
            let mut request = None;
            let (compilation, _) = measured(&self.database, || {
                request = Some(self.compile()?);
                Ok(())
            })?;
            let request = request.expect("it was compiled");
            let (run, reads) = measured(&self.database, || {
                rows = u64::try_from(self.answer(&request, requests)?.row_count()).unwrap_or(0);
                Ok(())
            })?;
            let mode = MeasuredMode::Request { compilation: Some(compilation) };
            Ok(QueryMeasure { rows, mode, run, reads })
        })
    }
}

/// Runs something; returns how long it took and what it read.
pub(crate) fn measured(
    database: &Database,
    run: impl FnOnce() -> Result<()>,
) -> Result<(Duration, BlockReads)> {
    let clock = database.clock();
    let progress = Arc::new(CallProgress::default());
    let began = clock.monotonic_ns();
    QueryContext::nested().watched(Arc::clone(&progress)).run(run)?;
    let elapsed = clock.monotonic_ns().saturating_sub(began);
    Ok((Duration::from_nanos(elapsed), progress.block_reads()))
}

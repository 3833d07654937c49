//! What a query takes: its time, its rows, and what it reads of the files of tables.

use std::{sync::Arc, time::Duration};

use lockstep_diagnostic::Result;
use lockstep_host::{BlockReads, CallProgress, QueryContext};

use super::Relation;

/// What a query took.
#[derive(Debug, Clone)]
pub(crate) struct QueryMeasure {
    /// How many rows it has.
    pub(crate) rows: u64,
    /// How long its compilation took, where it ran in request mode.
    pub(crate) compilation: Option<Duration>,
    /// How long it ran.
    pub(crate) run: Duration,
    /// What it read of the files of tables while it ran.
    pub(crate) reads: BlockReads,
}

impl Relation {
    /// Runs the query as [`Relation::collect`] does, and measures it. Its rows are discarded; in batch mode
    /// they need not fit in memory.
    pub(crate) fn measure(&self) -> Result<QueryMeasure> {
        let Some(requests) = &self.requests else {
            let mut rows = 0;
            let (run, reads) = self.measured(|| {
                self.run_each(None, &mut |batch| {
                    rows += u64::try_from(batch.num_rows()).unwrap_or(0);
                    Ok(())
                })?;
                Ok(())
            })?;
            return Ok(QueryMeasure { rows, compilation: None, run, reads });
        };
        self.check()?;
        self.context.limits.run(|| {
            let mut request = None;
            let (compilation, _) = self.measured(|| {
                request = Some(self.compile()?);
                Ok(())
            })?;
            let request = request.expect("it was compiled");
            let mut rows = 0;
            let (run, reads) = self.measured(|| {
                rows = u64::try_from(self.answer(&request, requests)?.row_count()).unwrap_or(0);
                Ok(())
            })?;
            Ok(QueryMeasure { rows, compilation: Some(compilation), run, reads })
        })
    }

    /// Runs something; returns how long it took and what it read.
    fn measured(&self, run: impl FnOnce() -> Result<()>) -> Result<(Duration, BlockReads)> {
        let clock = self.database.clock();
        let progress = Arc::new(CallProgress::default());
        let began = clock.monotonic_ns();
        QueryContext::nested().watched(Arc::clone(&progress)).run(run)?;
        let elapsed = clock.monotonic_ns().saturating_sub(began);
        Ok((Duration::from_nanos(elapsed), progress.block_reads()))
    }
}

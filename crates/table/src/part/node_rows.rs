//! The rows of a key of a disk table of which the nodes of its levels are made: those in memory, the frozen ones and
//! those of all runs, visible or not.
//!
//! *Cost*: the pages of the rows that are read, and no others; where to stop is known from the last blocks
//! of the runs.

use lockstep_series::{ChunkRun, RowSlices, RowsToFold};

use crate::{ReadError, Snapshot, disk::DiskRows};

/// The rows of a key in all places. See the module's documentation.
pub(crate) struct NodeRows<'s> {
    snapshot: &'s Snapshot<'s>,
    disk: &'s DiskRows,
    index: usize,
    key: Vec<u8>,
    /// Rows with a smaller event time have expired: of many, none is worth a node.
    event_time_min: i64,
    has_failed: bool,
}

impl<'s> NodeRows<'s> {
    pub(crate) fn new(
        snapshot: &'s Snapshot<'s>,
        disk: &'s DiskRows,
        index: usize,
        key: &[u8],
        event_time_min: i64,
    ) -> Self {
        Self { snapshot, disk, index, key: key.to_vec(), event_time_min, has_failed: false }
    }

    /// Returns the event time of the newest row.
    pub(crate) fn newest(&self) -> Result<Option<i64>, ReadError> {
        let (mut rows, pages) = self.snapshot.every_row(self.disk, self.index, &self.key);
        Ok(rows.next_run(&pages)?.map(|run| run.event_time(0)))
    }

    /// Returns an event time up to which there are about so many rows, if there are more.
    fn cut(&self, from: i64, until: i64, rows_max: usize) -> Option<i64> {
        let mut pages = Vec::new();
        for run in self.disk.parts.runs(self.index) {
            let rows = run.rows_per_page().max(1);
            let times = run.page_times(&self.key, from, until);
            pages.extend(times.take(rows_max.div_ceil(rows)).map(|time| (time, rows)));
        }
        pages.sort_unstable();
        let mut seen = 0_usize;
        let mut cut = pages.into_iter().filter(|(_, rows)| {
            seen = seen.saturating_add(*rows);
            seen >= rows_max
        });
        cut.next().map(|(time, _)| time)
    }

    /// Returns the runs of the rows from an event time up to and without another one, newest first.
    fn runs(&self, from: i64, until: i64) -> Result<Vec<ChunkRun<'s>>, ReadError> {
        debug_assert!(from < until, "there may be rows between");
        let (mut rows, pages) = self.snapshot.every_row(self.disk, self.index, &self.key);
        rows.seek(until - 1);
        let mut runs = Vec::new();
        while let Some(run) = rows.next_run(&pages)? {
            let newer = run.partition_point(|event_time| event_time >= from);
            if newer > 0 {
                runs.push(run.slice(0..newer));
            }
            if newer < run.len() {
                return Ok(runs);
            }
        }
        Ok(runs)
    }
}

impl<'s> RowsToFold<'s> for NodeRows<'s> {
    const ROWS_AT_ONCE: usize = 1 << 16;

    fn between(&mut self, from: i64, until: i64, rows_max: usize) -> RowSlices<'s> {
        let from = from.max(self.event_time_min);
        if from >= until {
            return RowSlices::default();
        }
        let cut = self.cut(from, until, rows_max);
        match self.runs(from, cut.unwrap_or(until)) {
            Ok(runs) => RowSlices::of_runs(runs, cut.is_some()),
            Err(_) => {
                // The reader that needs the rows gets the error.
                self.has_failed = true;
                RowSlices::default()
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }
}

//! Merging runs: one run of the rows of several, without those that no reader sees any more.
//!
//! *Cost*: each page of the inputs is read once, from the first to the last; memory for one page of
//! each. Rows are copied as bytes.
//!
//! # Retention
//!
//! A row that is expired by its event time may be left out of any merge. Where a rule counts the rows
//! of a key, a row is left out when the merge itself has seen as many newer rows of the key as are
//! kept: rows in other runs and in memory only make it older. A row that arrived after the horizon may
//! be hidden from a reader, so it displaces none.

use std::sync::Arc;

use lockstep_row::Retention;
use lockstep_series::{Bounds, KeyRow, PageRows, RowRef};

use crate::{
    Horizon, ReadError,
    part::{
        bug::{self, PartBug},
        run::{IndexRun, RunFile, RunWriter},
    },
};

/// The error of a merge.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// An input could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The run could not be written.
    #[error(transparent)]
    Write(#[from] lockstep_wal::Error),
}

/// The rule by which a merge leaves out rows. Before their files are removed, the table has to note the
/// time of the horizon, so that no later snapshot is of an earlier time.
#[derive(Debug, Clone, Copy)]
pub struct MergeRule {
    /// The rule of the index.
    pub retention: Retention,
    /// No reader is older.
    pub horizon: Horizon,
}

/// The number of rows between two checkpoints.
const CHECKPOINT_ROWS: u64 = 4_096;

/// The rows of a run, one after the other.
struct RunScan {
    run: Arc<IndexRun>,
    /// The page, and the next row in it.
    page: Option<(PageRows, usize)>,
    next_page: usize,
}

impl RunScan {
    fn new(run: &Arc<IndexRun>) -> Result<Self, ReadError> {
        let mut scan = Self { run: Arc::clone(run), page: None, next_page: 0 };
        scan.reach_row()?;
        Ok(scan)
    }

    /// Returns the next row, with its key.
    fn next(&self) -> Option<(&[u8], KeyRow<'_>)> {
        let (page, at) = self.page.as_ref()?;
        page.get(*at)
    }

    /// Passes the next row.
    fn advance(&mut self) -> Result<(), ReadError> {
        debug_assert!(self.next().is_some(), "there is a row to pass");
        if let Some((_, at)) = &mut self.page {
            *at += 1;
        }
        self.reach_row()
    }

    /// Reads pages until there is a row.
    fn reach_row(&mut self) -> Result<(), ReadError> {
        while self.next().is_none() && self.next_page < self.run.page_count() {
            self.page = Some((self.run.read_rows(self.next_page)?, 0));
            self.next_page += 1;
        }
        Ok(())
    }
}

/// Writes the rows of runs into one. `checkpoint` is called every few thousand rows, and ends the merge
/// when it fails.
pub fn merge<E: From<MergeError>>(
    runs: &[Arc<IndexRun>],
    rule: MergeRule,
    mut writer: RunWriter,
    mut checkpoint: impl FnMut() -> Result<(), E>,
) -> Result<RunFile, E> {
    let MergeRule { retention, horizon } = rule;
    let bounds = Bounds::new(u64::MAX, retention, horizon.now_ms);
    let scans = runs.iter().map(RunScan::new).collect::<Result<Vec<_>, _>>();
    let mut scans = scans.map_err(MergeError::from)?;
    let (mut key, mut rows) = (Vec::new(), 0_u64);
    while let Some(least) = scans.iter().filter_map(|scan| Some(scan.next()?.0)).min() {
        key.clear();
        key.extend_from_slice(least);
        writer.begin_key(&key);
        let mut displacing = 0;
        let mut first = None;
        while let Some(newest) = newest_of_key(&scans, &key) {
            let Some((_, KeyRow { event_time, row })) = scans[newest].next() else { break };
            let is_lost = bug::is_seeded(PartBug::OneRunOfKeyMerged)
                && *first.get_or_insert(newest) != newest;
            let is_before = row.arrival() < horizon.visible_arrival;
            if !bounds.is_expired(event_time, displacing + 1) && !is_lost {
                writer.push(event_time, row).map_err(MergeError::from)?;
            }
            let displaces = is_before || bug::is_seeded(PartBug::LatestCutByLaterRows);
            displacing += u64::from(displaces);
            scans[newest].advance().map_err(MergeError::from)?;
            rows += 1;
            if rows % CHECKPOINT_ROWS == 0 {
                checkpoint()?;
            }
        }
    }
    Ok(writer.finish().map_err(MergeError::from)?)
}

/// Returns the scan whose next row is the newest of those of a key.
fn newest_of_key(scans: &[RunScan], key: &[u8]) -> Option<usize> {
    let position = |row: RowRef<'_>, event_time| (event_time, row.arrival());
    let of_key = scans.iter().enumerate().filter_map(|(at, scan)| {
        let (of, KeyRow { event_time, row }) = scan.next()?;
        (of == key).then(|| (position(row, event_time), at))
    });
    of_key.max().map(|(_, at)| at)
}

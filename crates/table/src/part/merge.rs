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
use lockstep_series::{Bounds, KeyRow, RowRef};

use crate::{
    Horizon, ReadError,
    part::{
        bug::{self, PartBug},
        key_scan::{KeyScan, VisitedRow, for_each_row},
        run::{IndexRun, RunWriter},
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

/// Writes the rows of runs into one, of those that are not expired the ones for which `is_kept` holds.
/// `checkpoint` is called every few thousand rows, and ends the merge when it fails.
pub fn merge<E: From<MergeError>>(
    runs: &[Arc<IndexRun>],
    rule: MergeRule,
    writer: RunWriter,
    is_kept: impl FnMut(RowRef<'_>) -> bool,
    checkpoint: impl FnMut() -> Result<(), E>,
) -> Result<IndexRun, E> {
    let scans = runs.iter().map(KeyScan::of_run).collect::<Result<Vec<_>, _>>();
    merge_scans(scans.map_err(MergeError::from)?, rule, writer, is_kept, checkpoint)
}

/// The error of what a visit of rows calls.
enum Visited<E> {
    Read(ReadError),
    Failed(E),
}

impl<E> From<ReadError> for Visited<E> {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Writes the rows of scans into a run as [`merge`] does.
pub(crate) fn merge_scans<E: From<MergeError>>(
    mut scans: Vec<KeyScan<'_>>,
    rule: MergeRule,
    mut writer: RunWriter,
    mut is_kept: impl FnMut(RowRef<'_>) -> bool,
    mut checkpoint: impl FnMut() -> Result<(), E>,
) -> Result<IndexRun, E> {
    let MergeRule { retention, horizon } = rule;
    let bounds = Bounds::new(u64::MAX, retention, horizon.now_ms);
    let (mut displacing, mut first, mut rows) = (0, 0, 0_u64);
    let visited = for_each_row(&mut scans, |visited| {
        let VisitedRow { key, is_first, row: KeyRow { event_time, row }, source } = visited;
        if is_first {
            writer.begin_key(key);
            (displacing, first) = (0, source);
        }
        let is_lost = bug::is_seeded(PartBug::OneRunOfKeyMerged) && source != first;
        if !bounds.is_expired(event_time, displacing + 1) && !is_lost && is_kept(row) {
            let pushed = writer.push(event_time, row).map_err(MergeError::from);
            pushed.map_err(|error| Visited::Failed(error.into()))?;
        }
        let displaces = row.arrival() < horizon.visible_arrival
            || bug::is_seeded(PartBug::LatestCutByLaterRows);
        displacing += u64::from(displaces);
        rows += 1;
        if rows % CHECKPOINT_ROWS == 0 {
            checkpoint().map_err(Visited::Failed)?;
        }
        Ok(())
    });
    visited.map_err(|error| match error {
        Visited::Read(error) => MergeError::Read(error).into(),
        Visited::Failed(error) => error,
    })?;
    Ok(writer.finish().map_err(MergeError::from)?)
}

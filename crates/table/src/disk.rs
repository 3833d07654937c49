//! A disk table: what it has beside its rows in memory.
//!
//! The rows that arrived last are in memory, as those of any table. When they are many, they are *frozen*: a
//! flush writes them into *parts*, while new ones arrive in memory. Parts have every row up to an arrival, once
//! in order of arrival ([`RowExtent`]) and once by each index ([`IndexRun`]). Readers take memory, frozen rows and
//! parts as one value, the state of the table. (ADR 0060)
//!
//! # Who changes it
//!
//! Only the holder of the change lock replaces any of it. A flush and a merge write their files first, and
//! replace then what they were made of, if it is still there; otherwise they are given up.

mod checkpointed;
mod compaction;
mod flush;
mod rewrite;
mod storage;
mod tuning;

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
};

use lockstep_row::{Retention, RowCodec};
use lockstep_series::{Account, Guard, LogRow, RowLog};
use lockstep_wal::{DataFileWriter, DatabaseDirectory};

pub use self::flush::FlushedTable;
pub(crate) use self::rewrite::{CreateFile, RunsAhead, build_runs, build_runs_after, checkpoint};
pub(crate) use self::tuning::tuning;
pub use self::tuning::{DiskTuning, set_disk_tuning};
use crate::{
    ReadError, Table, TableError,
    arrival_set::ArrivalSet,
    part::{IndexRun, RowExtent},
    scan::ExtentScan,
    state::{Index, TableState},
    table::number,
};

/// The rows of a disk table beside those that arrived last.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskRows {
    /// Rows that are being flushed, newer than those of the parts.
    pub(crate) frozen: Option<Arc<FrozenRows>>,
    pub(crate) parts: Arc<TableParts>,
}

/// Rows in memory to which none is added any more.
#[derive(Debug)]
pub(crate) struct FrozenRows {
    // Dropped before the log, to whose rows they point.
    /// The stored part of each of the schema's indexes.
    pub(crate) indexes: Vec<Index>,
    pub(crate) log: Arc<RowLog>,
    /// Rows of the log that are in no index any more.
    pub(crate) removed_rows: Arc<ArrivalSet>,
    /// Rows with a smaller arrival are in them, or in the parts.
    pub(crate) end: u64,
}

/// The rows of a table that are on a disk, up to an arrival.
#[derive(Debug, Clone, Default)]
pub struct TableParts {
    /// The rows in order of arrival, the oldest extent first.
    extents: Vec<Arc<RowExtent>>,
    /// For each index by position the rows by key, the newest run first.
    runs: Vec<Vec<Arc<IndexRun>>>,
    /// The number of rows when they were all written last.
    rewritten_rows: u64,
}

/// Memory that an account is charged with, until it is dropped.
pub(crate) struct MemoryCharge {
    account: Arc<dyn Account>,
    bytes: i64,
}

impl MemoryCharge {
    /// Charges an account once; further ones are not.
    pub(crate) fn once(charge: &OnceLock<Self>, account: &Arc<dyn Account>, bytes: usize) {
        charge.get_or_init(|| {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            account.charge(bytes);
            Self { account: Arc::clone(account), bytes }
        });
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.account.charge(-self.bytes);
    }
}

impl fmt::Debug for MemoryCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCharge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl TableParts {
    /// Makes parts of what a manifest lists.
    pub fn new(extents: Vec<Arc<RowExtent>>, runs: Vec<Vec<Arc<IndexRun>>>) -> Self {
        let rewritten_rows = extents.iter().map(|extent| extent.row_count()).sum();
        Self { extents, runs, rewritten_rows }
    }

    /// Returns the rows in order of arrival.
    pub fn extents(&self) -> &[Arc<RowExtent>] {
        &self.extents
    }

    /// Returns the runs of an index, the newest one first.
    pub fn runs(&self, index: usize) -> &[Arc<IndexRun>] {
        self.runs.get(index).map_or(&[], Vec::as_slice)
    }

    /// Returns the runs of each index by position.
    pub fn all_runs(&self) -> &[Vec<Arc<IndexRun>>] {
        &self.runs
    }

    /// Returns the number of rows, among them expired ones.
    pub fn row_count(&self) -> u64 {
        self.extents.iter().map(|extent| extent.row_count()).sum()
    }

    /// Returns the arrival after that of the last row.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, |last| last.arrivals().end)
    }

    /// Returns the time at which the last row arrived. Reads a block.
    pub(crate) fn last_arrival_ms(&self, codec: &RowCodec) -> Result<Option<i64>, ReadError> {
        let Some(last) = self.extents.last() else { return Ok(None) };
        last.arrival_ms(last.arrivals().end - 1, codec)
    }

    /// Returns the bytes of the files.
    pub fn file_bytes(&self) -> u64 {
        let extents = self.extents.iter().map(|extent| extent.file().bytes);
        extents.chain(self.runs.iter().flatten().map(|run| run.file().bytes)).sum()
    }

    /// Returns the number of files.
    pub fn file_count(&self) -> usize {
        self.extents.len() + self.runs.iter().map(Vec::len).sum::<usize>()
    }

    /// Returns the bytes of memory that it takes, without pages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let extents = self.extents.iter().map(|extent| extent.memory_bytes()).sum::<usize>();
        let runs = self.runs.iter().flatten().map(|run| run.memory_bytes()).sum::<usize>();
        number(extents + runs)
    }

    /// Charges an account with its memory, except what it was charged with before.
    fn adopt(&self, account: &Arc<dyn Account>) {
        self.extents.iter().for_each(|extent| extent.adopt(account));
        self.runs.iter().flatten().for_each(|run| run.adopt(account));
    }

    /// Returns parts with newer rows, and with runs of indexes that have none here.
    pub(crate) fn with_newer(&self, newer: &Self) -> Self {
        let mut added = self.clone();
        added.extents.extend(newer.extents.iter().cloned());
        added.runs.resize_with(added.runs.len().max(newer.runs.len()), Vec::new);
        for (runs, newer) in added.runs.iter_mut().zip(&newer.runs) {
            runs.splice(0..0, newer.iter().cloned());
        }
        debug_assert!(
            added.extents.is_sorted_by(|one, next| one.arrivals().end <= next.arrivals().start),
            "extents are in order of arrival"
        );
        added
    }

    /// Returns parts with other runs.
    pub(crate) fn with_all_runs(&self, runs: Vec<Vec<Arc<IndexRun>>>) -> Self {
        Self { runs, ..self.clone() }
    }

    /// Returns parts in which the index at a position has other runs.
    pub(crate) fn with_runs(&self, index: usize, runs: Vec<Arc<IndexRun>>) -> Self {
        let mut changed = self.clone();
        if changed.runs.len() <= index {
            changed.runs.resize_with(index + 1, Vec::new);
        }
        changed.runs[index] = runs;
        changed
    }
}

impl FrozenRows {
    fn memory_bytes(&self) -> u64 {
        self.log.memory_bytes() + self.indexes.iter().map(Index::memory_bytes).sum::<u64>()
    }

    /// Visits the rows in order of arrival, those that are in the indexes, until one fails.
    pub(crate) fn for_each_row<E>(
        &self,
        mut visit: impl FnMut(LogRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let guard = lockstep_series::pin();
        let mut rows = self.log.rows(u64::MAX, &guard);
        rows.try_for_each(|found| match self.removed_rows.contains(found.row.arrival()) {
            true => Ok(()),
            false => visit(found),
        })
    }
}

impl DiskRows {
    /// Returns the number of rows, among them expired ones.
    pub(crate) fn row_count(&self, guard: &Guard) -> u64 {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.log.row_count(guard));
        number(frozen) + self.parts.row_count()
    }

    /// Returns the bytes of memory, without pages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.parts.memory_bytes() + self.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes())
    }

    /// Charges an account with its memory, except what it was charged with before.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) {
        self.parts.adopt(account);
        if let Some(frozen) = &self.frozen {
            frozen.log.adopt(account);
            frozen.indexes.iter().for_each(|index| index.series.adopt(account));
        }
    }

    /// Returns the time at which a visible row arrived.
    pub(crate) fn arrival_ms(
        &self,
        state: &TableState,
        arrival: u64,
        codec: &RowCodec,
        guard: &Guard,
    ) -> Result<i64, ReadError> {
        let extents = self.parts.extents();
        let at = extents.partition_point(|extent| extent.arrivals().end <= arrival);
        if let Some(extent) = extents.get(at)
            && let Some(arrival_ms) = extent.arrival_ms(arrival, codec)?
        {
            return Ok(arrival_ms);
        }
        let frozen = self.frozen.as_ref().filter(|frozen| arrival < frozen.end);
        let log = frozen.map_or(&state.log, |frozen| &frozen.log);
        Ok(log.arrival_ms(arrival, guard))
    }
}

impl Table {
    /// Gives the table the directory in which it may put rows.
    pub fn set_directory(&self, directory: &Arc<DatabaseDirectory>) {
        // The first one stays: a table is of one database.
        drop(self.directory.set(Arc::downgrade(directory)));
    }

    /// Creates a data file for a part of the table.
    pub(crate) fn create_part_file(&self) -> Result<DataFileWriter, lockstep_wal::Error> {
        let directory = self.directory.get().and_then(Weak::upgrade);
        directory.ok_or(lockstep_wal::Error::Closed)?.create_data_file()
    }

    /// Creates a data file as [`Self::create_part_file`] does.
    pub(crate) fn create_part(&self) -> Result<DataFileWriter, TableError> {
        self.create_part_file().map_err(part_error)
    }

    /// Returns whether rows of the table may be on a disk, so that who reads them may wait.
    #[inline]
    pub fn is_on_disk(&self) -> bool {
        // Relaxed: who relies on it holds the change lock.
        self.is_on_disk.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory of rows of a disk table that are not in files.
    pub fn unflushed_bytes(&self) -> u64 {
        let snapshot = self.snapshot();
        let state = snapshot.state();
        let Some(disk) = &state.disk else { return 0 };
        let frozen = disk.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
        let indexes = state.indexes.iter().map(Index::memory_bytes).sum::<u64>();
        state.log.memory_bytes() + indexes + frozen
    }

    /// Returns the files of the table: of a memory table those that the last checkpoint has written.
    pub fn parts(&self) -> Option<Arc<TableParts>> {
        let snapshot = self.snapshot();
        match &snapshot.state().disk {
            Some(disk) => Some(Arc::clone(&disk.parts)),
            None => self.checkpointed(),
        }
    }

    /// Visits the rows of extents and the frozen rows of a state, in order of arrival, until one fails.
    pub(crate) fn for_each_row_on_disk<E: From<ReadError>>(
        &self,
        disk: &DiskRows,
        mut visit: impl FnMut(LogRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        ExtentScan::new(&disk.parts, &self.codec, 0..u64::MAX).for_each(&mut visit)?;
        disk.frozen.as_ref().map_or(Ok(()), |frozen| frozen.for_each_row(visit))
    }
}

/// Makes the error of a part that could not be written.
pub(crate) fn part_error(error: lockstep_wal::Error) -> TableError {
    TableError::Part(error.into())
}

/// Returns the rule by which a merge may leave out rows of an index of a state; everything is kept where a row is
/// to be looked up in other indexes.
pub(crate) fn merge_retention(state: &TableState, index: usize) -> Retention {
    state.live_retentions[index].unwrap_or(Retention::Forever)
}

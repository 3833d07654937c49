//! Flushing: the rows that arrived last are frozen, and written into parts.
//!
//! A checkpoint does it ([`crate::FrozenTable`]): it freezes the rows, writes their files, commits a manifest
//! that lists them, and has them installed. Until then readers take the rows from memory; from then on from
//! the files, in which each row is what it was.

use std::sync::Arc;

use lockstep_series::{Bounds, LogRow, RowLog};
use lockstep_wal::{DataFileWriter, Error};

use super::{DiskRows, FrozenRows, TableParts, merge_retention, part_error, tuning};
use crate::{
    CheckpointBlock, FrozenTable, Horizon, Table, TableError,
    part::{
        ExtentWriter, IndexRun, KeyScan, MergeError, MergeRule, RowExtent, RunWriter, merge_scans,
    },
    state::{Index, Origin, TableState},
    table::{ExclusiveLock, number},
};

/// The files of a disk table that was flushed.
#[derive(Debug)]
pub struct FlushedTable {
    /// The parts before.
    before: Arc<TableParts>,
    /// What was written; `None` when no row had arrived.
    written: Option<FlushedRows>,
}

/// Frozen rows that are in files.
#[derive(Debug)]
struct FlushedRows {
    frozen: Arc<FrozenRows>,
    extents: Vec<Arc<RowExtent>>,
    /// The run of each index by position, where it has rows.
    runs: Vec<Option<Arc<IndexRun>>>,
    /// The horizon as of which rows were left out of runs.
    horizon: Horizon,
    /// Whether some were.
    has_left_out: bool,
}

impl FlushedTable {
    /// Returns the parts that the table had before.
    pub fn before(&self) -> &TableParts {
        &self.before
    }

    /// Returns the parts that were written: newer rows than those before.
    pub fn written(&self) -> TableParts {
        let nothing = TableParts::default();
        self.written.as_ref().map_or(nothing, |written| written.added_to(&TableParts::default()))
    }

    /// Returns the number of rows that were written.
    pub fn rows(&self) -> u64 {
        let written = self.written.iter().flat_map(|written| &written.extents);
        written.map(|extent| extent.row_count()).sum()
    }

    /// Returns the bytes of the files that were written.
    pub fn bytes(&self) -> u64 {
        let Some(FlushedRows { extents, runs, .. }) = &self.written else { return 0 };
        let extents = extents.iter().map(|extent| extent.file().bytes);
        extents.chain(runs.iter().flatten().map(|run| run.file().bytes)).sum()
    }
}

/// Writes rows in order of arrival into extents.
pub(crate) struct ExtentsWriter<'c> {
    create: &'c mut dyn FnMut() -> Result<DataFileWriter, Error>,
    block: CheckpointBlock,
    open: Option<ExtentWriter>,
    finished: Vec<Arc<RowExtent>>,
}

impl<'c> ExtentsWriter<'c> {
    pub(crate) fn new(create: &'c mut dyn FnMut() -> Result<DataFileWriter, Error>) -> Self {
        Self { create, block: CheckpointBlock::default(), open: None, finished: Vec::new() }
    }

    /// Adds a row, which arrived after those before.
    pub(crate) fn push(&mut self, found: LogRow<'_>) -> Result<(), Error> {
        self.block.push(found);
        let is_full = number(self.block.len()) >= tuning().block_bytes;
        if is_full { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> Result<(), Error> {
        self.block.end_run();
        if self.block.row_count() == 0 {
            return Ok(());
        }
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => ExtentWriter::new((self.create)()?),
        };
        writer.push(&self.block)?;
        self.block.clear();
        if writer.bytes() < tuning().extent_bytes {
            self.open = Some(writer);
        } else {
            self.finished.push(Arc::new(writer.finish()?));
        }
        Ok(())
    }

    /// Puts all rows on the disk.
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<RowExtent>>, Error> {
        self.write_block()?;
        if let Some(writer) = self.open.take() {
            self.finished.push(Arc::new(writer.finish()?));
        }
        Ok(self.finished)
    }
}

impl Table {
    /// Freezes the rows of a disk table that are in memory, unless some are frozen. Returns the position before
    /// which all records of the table are in what is frozen.
    pub(crate) fn rotate(&self, exclusive: &ExclusiveLock<'_>) -> u64 {
        let state = self.exclusive_state(exclusive);
        let disk = state.disk.as_ref().expect("it is a disk table");
        if let Some(frozen) = &disk.frozen {
            return frozen.end;
        }
        let end = self.commit_queue.first_in_flight(|| self.arrivals.next());
        if state.log.row_count(&lockstep_series::pin()) == 0 {
            return end;
        }
        let frozen = FrozenRows {
            indexes: state.indexes.clone(),
            log: Arc::clone(&state.log),
            removed_rows: Arc::clone(&self.removed_rows.lock()),
            end,
        };
        let disk = DiskRows { frozen: Some(Arc::new(frozen)), parts: Arc::clone(&disk.parts) };
        let indexes = state.indexes.iter().map(Index::emptied).collect();
        let rotated = TableState::new(Arc::clone(&state.schema), indexes, Arc::new(RowLog::new()));
        self.replace_copied(exclusive, rotated.with_disk(Some(disk)));
        end
    }

    /// Replaces frozen rows by the files that have them, unless the table has changed since.
    pub fn install(&self, flushed: &FlushedTable) {
        let Some(written) = &flushed.written else { return };
        self.change_alone(|change| {
            let state = change.state();
            let Some(disk) = &state.disk else { return };
            let is_there =
                disk.frozen.as_ref().is_some_and(|frozen| Arc::ptr_eq(frozen, &written.frozen));
            if !is_there {
                return;
            }
            if written.has_left_out {
                self.note_removal(written.horizon);
            }
            let parts = Arc::new(written.added_to(&disk.parts));
            let installed = DiskRows { frozen: None, parts };
            let exclusive = self.lock_exclusive();
            self.replace_state(&exclusive, state.with_disk(Some(installed)));
        });
    }
}

impl FlushedRows {
    /// Returns parts with what was written.
    fn added_to(&self, parts: &TableParts) -> TableParts {
        let mut added = parts.clone();
        added.extents.extend(self.extents.iter().cloned());
        added.runs.resize_with(added.runs.len().max(self.runs.len()), Vec::new);
        for (runs, run) in added.runs.iter_mut().zip(&self.runs) {
            runs.splice(0..0, run.clone());
        }
        debug_assert!(
            added.extents.is_sorted_by(|one, next| one.arrivals().end <= next.arrivals().start),
            "extents are in order of arrival"
        );
        added
    }
}

impl FrozenTable {
    /// Writes the frozen rows of a disk table into files that `create` creates; `None` for a memory table.
    pub fn flush(
        &self,
        create: &mut dyn FnMut() -> Result<DataFileWriter, Error>,
    ) -> Result<Option<FlushedTable>, TableError> {
        let Some(state) = self.disk_state() else { return Ok(None) };
        let Some(DiskRows { frozen, parts }) = &state.disk else { return Ok(None) };
        let Some(frozen) = frozen else {
            return Ok(Some(FlushedTable { before: Arc::clone(parts), written: None }));
        };
        let written = self.write_rows(state, frozen, create)?;
        Ok(Some(FlushedTable { before: Arc::clone(parts), written: Some(written) }))
    }

    fn write_rows(
        &self,
        state: &TableState,
        frozen: &Arc<FrozenRows>,
        create: &mut dyn FnMut() -> Result<DataFileWriter, Error>,
    ) -> Result<FlushedRows, TableError> {
        let mut extents = ExtentsWriter::new(create);
        frozen
            .for_each_row(|found| match found.row.arrival() < frozen.end {
                true => extents.push(found),
                false => Ok(()),
            })
            .map_err(part_error)?;
        let extents = extents.finish().map_err(part_error)?;
        let rows: u64 = extents.iter().map(|extent| extent.row_count()).sum();
        let horizon = self.horizon();
        let (mut runs, mut has_left_out) = (Vec::new(), false);
        for (at, index) in frozen.indexes.iter().enumerate() {
            if index.origin == Origin::Removed || rows == 0 {
                runs.push(None);
                continue;
            }
            let guard = lockstep_series::pin();
            let scan = KeyScan::of_series(&index.series, Bounds::visible(frozen.end), &guard);
            let writer =
                RunWriter::new(create().map_err(part_error)?, number(index.series.key_count()));
            let rule = MergeRule { retention: merge_retention(state, at), horizon };
            let run = merge_scans::<TableError>(vec![scan], rule, writer, |_| true, || Ok(()))?;
            has_left_out |= run.counts().rows < rows;
            runs.push(Some(Arc::new(run)));
        }
        Ok(FlushedRows { frozen: Arc::clone(frozen), extents, runs, horizon, has_left_out })
    }
}

impl From<MergeError> for TableError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::Read(error) => Self::Read(error),
            MergeError::Write(error) => part_error(error),
        }
    }
}

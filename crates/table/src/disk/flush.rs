//! Flushing: the rows that arrived last are written into parts.
//!
//! A checkpoint does it ([`crate::FrozenTable`]): it freezes the rows of a disk table, writes their files, commits
//! a manifest that lists them, and has them installed. Until then readers take the rows from memory; from then on
//! from the files, in which each row is what it was. The rows of a memory table stay where they are
//! (`checkpointed`).

use std::sync::{Arc, atomic::Ordering};

use lockstep_row::TableSchema;
use lockstep_series::{Bounds, LogRow, RowLog};
use lockstep_wal::Error;

use super::{CreateFile, DiskRows, FrozenRows, TableParts, merge_retention, part_error, tuning};
use crate::{
    CheckpointBlock, FrozenTable, Horizon, Table, TableError,
    part::{
        ExtentWriter, KeyScan, MergeError, MergeRule, RowExtent, RunWriter, TimeBounds,
        bug::{self, PartBug},
        merge_scans, time_columns,
    },
    state::{Index, Origin, TableState},
    table::{ExclusiveLock, number},
};

/// The files of a table that was flushed.
#[derive(Debug)]
pub struct FlushedTable {
    /// The parts before that are listed again.
    pub(super) before: Arc<TableParts>,
    /// What was written: rows that are newer, and runs of indexes that had none.
    pub(super) written: TableParts,
    pub(super) source: FlushSource,
}

/// The rows that were flushed.
#[derive(Debug)]
pub(super) enum FlushSource {
    /// No row of a disk table had arrived.
    Nothing,
    /// Frozen rows of a disk table.
    Frozen {
        frozen: Arc<FrozenRows>,
        /// The horizon as of which rows were left out of runs.
        horizon: Horizon,
        /// Whether some were.
        has_left_out: bool,
    },
    /// Rows of a memory table, where they stay.
    Memory {
        /// The number of the table's removals then ([`FrozenTable::generation`]).
        generation: u64,
        /// The key and the event time of each index by position.
        indexes: Vec<IndexOrder>,
    },
}

/// The columns by which an index is sorted; `None` for a removed one.
pub(crate) type IndexOrder = Option<(Vec<usize>, Option<usize>)>;

impl FlushedTable {
    /// Returns the parts before that are listed again.
    pub fn before(&self) -> &TableParts {
        &self.before
    }

    /// Returns the parts that were written: newer rows than those before, and runs of indexes that had none.
    pub fn written(&self) -> &TableParts {
        &self.written
    }

    /// Returns the number of rows that were written.
    pub fn rows(&self) -> u64 {
        self.written.row_count()
    }

    /// Returns the bytes of the files that were written.
    pub fn bytes(&self) -> u64 {
        self.written.file_bytes()
    }
}

/// Writes rows in order of arrival into extents.
pub(crate) struct ExtentsWriter<'c> {
    table: &'c Table,
    create: CreateFile<'c>,
    /// The columns of which each block has bounds, and the bounds of the block that is made.
    time_columns: Vec<usize>,
    times: Vec<TimeBounds>,
    block: CheckpointBlock,
    open: Option<ExtentWriter>,
    finished: Vec<Arc<RowExtent>>,
}

impl<'c> ExtentsWriter<'c> {
    /// Makes a writer of rows of a table whose indexes are those of a schema.
    pub(crate) fn new(table: &'c Table, schema: &TableSchema, create: CreateFile<'c>) -> Self {
        let time_columns = time_columns(schema);
        let times = vec![TimeBounds::NONE; time_columns.len()];
        let (block, open, finished) = (CheckpointBlock::default(), None, Vec::new());
        Self { table, create, time_columns, times, block, open, finished }
    }

    /// Adds a row, which arrived after those before.
    pub(crate) fn push(&mut self, found: LogRow<'_>) -> Result<(), Error> {
        let row = self.table.view(found.row);
        let is_noted = self.block.row_count() == 0 || !bug::is_seeded(PartBug::TimesOfFirstRow);
        for (column, times) in self.time_columns.iter().zip(&mut self.times).filter(|_| is_noted) {
            if let Some(time) = row.get(*column).as_i64() {
                times.add(time);
            }
        }
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
            None => ExtentWriter::new((self.create)()?, &self.time_columns),
        };
        writer.push(&self.block, &self.times)?;
        self.block.clear();
        self.times.fill(TimeBounds::NONE);
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
        // Relaxed: the number itself is all that is shared.
        self.unfrozen_bytes.store(0, Ordering::Relaxed);
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
        let indexes = state.indexes.iter().map(Index::successor).collect();
        let rotated = TableState::new(Arc::clone(&state.schema), indexes, Arc::new(RowLog::new()));
        self.replace_copied(exclusive, rotated.with_disk(Some(disk)));
        end
    }

    /// Notes the files that a checkpoint lists, and replaces frozen rows by those that have them, unless the table
    /// has changed since.
    pub fn install(&self, flushed: &FlushedTable) {
        match &flushed.source {
            FlushSource::Nothing => {}
            FlushSource::Memory { generation, indexes } => {
                self.install_checkpointed(flushed, *generation, indexes);
            }
            FlushSource::Frozen { frozen, horizon, has_left_out } => {
                let left_out = has_left_out.then_some(*horizon);
                self.install_frozen(frozen, &flushed.written, left_out);
            }
        }
    }

    /// Replaces frozen rows by files that have them, but for rows that had expired at a horizon.
    fn install_frozen(
        &self,
        flushed: &Arc<FrozenRows>,
        written: &TableParts,
        left_out: Option<Horizon>,
    ) {
        self.change_alone(|change| {
            let state = change.state();
            let Some(disk) = &state.disk else { return };
            let is_same = disk.frozen.as_ref().is_some_and(|frozen| Arc::ptr_eq(frozen, flushed));
            if !is_same && !bug::is_seeded(PartBug::FlushedOverChange) {
                return;
            }
            if let Some(horizon) = left_out {
                self.note_removal(horizon);
            }
            if !flushed.removed_rows.is_empty() {
                // Files do not have them.
                self.hold_for_tails(&state);
            }
            let parts = Arc::new(disk.parts.with_newer(written));
            let stays = bug::is_seeded(PartBug::FrozenReadTwice);
            let frozen = disk.frozen.clone().filter(|_| stays);
            let installed = DiskRows { frozen, parts };
            let exclusive = self.lock_exclusive();
            self.replace_state(&exclusive, state.with_disk(Some(installed)));
        });
    }
}

impl FrozenTable {
    /// Writes the rows that no file has into files that `create` creates: of a disk table the frozen ones, of a
    /// memory table those that arrived since the last checkpoint.
    pub fn flush(&self, create: CreateFile<'_>) -> Result<FlushedTable, TableError> {
        let Some((state, disk)) = self.disk_state() else { return self.flush_memory(create) };
        let before = Arc::clone(&disk.parts);
        let Some(frozen) = &disk.frozen else {
            let written = TableParts::default();
            return Ok(FlushedTable { before, written, source: FlushSource::Nothing });
        };
        let mut extents = ExtentsWriter::new(self.table(), &state.schema, create);
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
                runs.push(Vec::new());
                continue;
            }
            let guard = lockstep_series::pin();
            let scan = KeyScan::of_series(&index.series, Bounds::visible(frozen.end), &guard);
            let writer =
                RunWriter::new(create().map_err(part_error)?, number(index.series.key_count()));
            let rule = MergeRule { retention: merge_retention(state, at), horizon };
            let run = merge_scans::<TableError>(vec![scan], rule, writer, |_| true, || Ok(()))?;
            has_left_out |= run.counts().rows < rows;
            runs.push(vec![Arc::new(run)]);
        }
        let source = FlushSource::Frozen { frozen: Arc::clone(frozen), horizon, has_left_out };
        Ok(FlushedTable { before, written: TableParts::new(extents, runs), source })
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

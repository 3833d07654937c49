//! The files of a memory table: what checkpoints have written of it, so that a directory opens without reading it.
//!
//! They are parts like those of a disk table, and have the rows up to an arrival; the rows are in memory as well,
//! where readers take them. A checkpoint adds what has arrived since the one before. Rows that were removed
//! otherwise than by expiring, which would come back when the directory is opened, end them all: the next
//! checkpoint writes the table as a whole, as it does when half of the rows in files have expired.
//!
//! An opened directory reads the table from them, as a disk table, until [`Table::load_files`] has put it into memory.
//!
//! *Cost*: a row is written once in order of arrival, and for each index about once for each eightfold growth of
//! the table (`compaction`). The memory of what is known of the files is that of a disk table.

use std::sync::{Arc, atomic::Ordering};

use lockstep_row::IndexSpec;

use super::{
    CreateFile, TableParts, build_runs,
    flush::{ExtentsWriter, FlushSource, FlushedTable, IndexOrder},
    part_error,
};
use crate::{
    FrozenTable, Table, TableError,
    state::{Index, Origin, TableState},
};

/// How many rows are written under one guard.
const STEP_ROWS: usize = if cfg!(test) { 2 } else { 4_096 };

impl Table {
    /// Returns the files of a memory table.
    pub(crate) fn checkpointed(&self) -> Option<Arc<TableParts>> {
        self.checkpointed.lock().clone()
    }

    /// Sets the files of a memory table, which is not changed meanwhile.
    pub(crate) fn set_checkpointed(&self, parts: Option<Arc<TableParts>>) {
        if let Some(parts) = &parts {
            parts.adopt(&self.account);
        }
        *self.checkpointed.lock() = parts;
    }

    /// Replaces the files of a memory table, if there are any and `replace` returns others.
    pub(super) fn replace_checkpointed(
        &self,
        replace: impl FnOnce(&TableParts) -> Option<TableParts>,
    ) {
        let before = self.checkpointed();
        if let Some(replaced) = before.and_then(|before| replace(&before)) {
            self.set_checkpointed(Some(Arc::new(replaced)));
        }
    }

    /// Forgets the files that are not those of a table in another state: all of a disk table, and the runs of an
    /// index that is over other columns.
    pub(crate) fn settle_checkpointed(&self, before: &TableState, after: &TableState) {
        if after.disk.is_some() {
            self.set_checkpointed(None);
            return;
        }
        if Arc::ptr_eq(&before.schema, &after.schema) {
            return;
        }
        let (before, after) = (index_columns(before), index_columns(after));
        self.replace_checkpointed(|parts| Some(parts.with_runs_of(&before, &after)));
    }

    /// Notes the files of a memory table that a checkpoint lists, unless rows were removed since, or were moved.
    pub(super) fn install_checkpointed(
        &self,
        flushed: &FlushedTable,
        generation: u64,
        indexes: &[IndexOrder],
    ) {
        self.change_alone(|change| {
            let state = change.state();
            if state.disk.is_some() || self.generation() != generation {
                return;
            }
            let FlushedTable { before, written, .. } = flushed;
            let parts = if before.extents().is_empty() {
                written.clone()
            } else {
                // Merged meanwhile, perhaps, or moved to the disk and back.
                let current = self.checkpointed().filter(|current| current.end() == before.end());
                let Some(current) = current else { return };
                current.with_newer(written)
            };
            debug_assert!(parts.end() <= self.arrivals.next(), "files have rows that arrived");
            let parts = parts.with_runs_of(indexes, &index_columns(&state));
            self.set_checkpointed(Some(Arc::new(parts)));
        });
    }
}

/// Returns the columns by which each index of a state is sorted.
fn index_columns(state: &TableState) -> Vec<IndexOrder> {
    let columns = |(spec, index): (&IndexSpec, &Index)| {
        (index.origin != Origin::Removed).then(|| (spec.keys.clone(), spec.event_time))
    };
    state.schema.indexes.iter().zip(&state.indexes).map(columns).collect()
}

impl TableParts {
    /// Returns parts without the runs of indexes that were over other columns.
    fn with_runs_of(&self, before: &[IndexOrder], after: &[IndexOrder]) -> Self {
        let mut parts = self.clone();
        for (at, runs) in parts.runs.iter_mut().enumerate() {
            let is_same = match (before.get(at), after.get(at)) {
                (Some(Some(before)), Some(Some(after))) => before == after,
                _ => false,
            };
            if !is_same {
                runs.clear();
            }
        }
        parts
    }
}

impl FrozenTable {
    /// Writes the rows of a memory table that no file has.
    pub(super) fn flush_memory(&self, create: CreateFile<'_>) -> Result<FlushedTable, TableError> {
        let before = self.kept_parts();
        debug_assert!(before.end() <= self.position(), "files end before the position");
        let mut extents = ExtentsWriter::new(self.table(), self.schema(), &mut *create);
        self.write_rows_since(before.end(), &mut extents)?;
        let written = TableParts::new(extents.finish().map_err(part_error)?, Vec::new());
        let all = before.with_newer(&written);
        let mut runs = Vec::new();
        let indexes = self.index_columns();
        for (at, index) in self.indexes().indexes.iter().enumerate() {
            let source = if before.runs(at).is_empty() { &all } else { &written };
            runs.push(match indexes[at].is_none() || source.extents().is_empty() {
                true => Vec::new(),
                false => build_runs(self.table(), source, &index.spec, &mut *create)?,
            });
        }
        let written = written.with_all_runs(runs);
        let source = FlushSource::Memory { generation: self.generation(), indexes };
        Ok(FlushedTable { before, written, source })
    }

    /// Returns the files before; none when most rows in them have expired, so that all are written again.
    fn kept_parts(&self) -> Arc<TableParts> {
        let is_kept =
            |parts: &&Arc<TableParts>| parts.row_count() / 2 <= self.row_count_in_memory();
        self.checkpointed().filter(is_kept).cloned().unwrap_or_default()
    }

    fn write_rows_since(
        &self,
        from: u64,
        extents: &mut ExtentsWriter<'_>,
    ) -> Result<(), TableError> {
        let mut next = Some(from);
        while let Some(from) = next {
            let step = self.visit_rows_since(from, STEP_ROWS, |found| extents.push(found));
            next = step.map_err(part_error)?;
        }
        Ok(())
    }

    /// Returns the columns by which each index is sorted.
    fn index_columns(&self) -> Vec<IndexOrder> {
        let indexes = self.indexes().indexes.iter();
        let columns = indexes.map(|index| {
            (index.origin != Origin::Removed)
                .then(|| (index.spec.keys.clone(), index.spec.event_time))
        });
        columns.collect()
    }
}

impl Table {
    /// Returns whether it is a memory table: its rows are in memory, or are to be put there.
    pub fn is_of_memory(&self) -> bool {
        // Relaxed: set before others have the table; reset by the holder of the change lock.
        !self.is_on_disk() || self.is_to_load.load(Ordering::Relaxed)
    }
}

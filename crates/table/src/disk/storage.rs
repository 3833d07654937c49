//! Moving a table between memory and disk while it serves.
//!
//! Onto the disk: the rows that are in memory stay there until the next flush. Into memory: they are read from
//! the files and copied, with new indexes, while readers and writers go on; the files are not needed then.

use std::sync::Arc;

use super::DiskRows;
use crate::{
    Table, TableError,
    append::{Reservation, SLOT_BYTES},
    build::{CopiedRows, TableRebuild},
    draft::TableDraft,
    state::{Index, TableState},
    table::number,
};

impl Table {
    /// Lets rows of the table lie on a disk. Does nothing where they may already, and for a table without a
    /// directory.
    pub fn move_to_disk(&self) -> Result<(), TableError> {
        if self.directory.get().is_none() {
            return Ok(());
        }
        self.give_up_levels();
        self.change(|change| {
            self.check_open()?;
            let state = change.state();
            if state.disk.is_none() {
                let exclusive = self.lock_exclusive();
                self.replace_state(&exclusive, state.with_disk(Some(DiskRows::default())));
            }
            Ok(())
        })
    }

    /// Puts all rows of the table into memory. Fails when the memory budget does not allow it, a file cannot be
    /// read, or the call was interrupted; then nothing has changed. Does nothing for a memory table.
    pub fn move_to_memory(&self) -> Result<(), TableError> {
        self.change(|change| {
            self.check_open()?;
            let state = change.state();
            let Some(disk) = &state.disk else { return Ok(()) };
            let reservation = Reservation::new(self, self.memory_needed(&state, disk))?;
            let draft = TableDraft::of(&state);
            let is_kept = &mut |_: lockstep_series::LogRow<'_>| Ok(true);
            let rebuild = TableRebuild::start(change, &state, &draft, CopiedRows::All, is_kept)?;
            let exclusive = self.lock_exclusive();
            let (indexes, log) = rebuild.finish(is_kept, &exclusive)?;
            // Before the state is replaced, which charges what was copied.
            drop(reservation);
            let moved = TableState::new(Arc::clone(&state.schema), indexes, Arc::new(log));
            self.replace_copied(&exclusive, moved);
            Ok(())
        })
    }

    /// Estimates the bytes of memory of the rows that are on the disk.
    fn memory_needed(&self, state: &TableState, disk: &DiskRows) -> u64 {
        let rows = disk.parts.row_count();
        let slot = |index: &Index| number(SLOT_BYTES + index.projection.size());
        let slots = state.present().map(|(_, (_, index))| slot(index)).sum::<u64>();
        let extents = disk.parts.extents().iter().map(|extent| extent.file().bytes);
        extents.sum::<u64>() + rows * slots
    }
}

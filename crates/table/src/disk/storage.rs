//! Moving a table between memory and disk while it serves.
//!
//! Onto the disk: the rows that are in memory stay there until the next flush. Into memory: they are read from
//! the files and copied, with new indexes, while readers and writers go on. That is also how the rows of a
//! directory that was opened get into memory.

use std::sync::{Arc, atomic::Ordering};

use super::DiskRows;
use crate::{
    Table, TableError,
    append::{Reservation, SLOT_BYTES},
    build::CopiedTable,
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
            // Relaxed: the change lock is held.
            self.is_to_load.store(false, Ordering::Relaxed);
            if state.disk.is_none() {
                let exclusive = self.lock_exclusive();
                self.replace_state(&exclusive, state.with_disk(Some(DiskRows::default())));
            }
            Ok(())
        })
    }

    /// Puts all rows of the table into memory. Fails when the memory budget does not allow it, a file cannot be
    /// read, or the call was interrupted; then nothing has changed. Does nothing for a memory table.
    ///
    /// *Cost*: reads the files once. Other changes of the table wait while the rows are added that arrived meanwhile;
    /// where rows were removed by then, it begins again.
    pub fn move_to_memory(&self) -> Result<(), TableError> {
        while !self.try_to_load()? {}
        Ok(())
    }

    /// Puts the rows of a memory table into memory that was opened from its files; does nothing for others.
    pub fn load_files(&self) -> Result<(), TableError> {
        // Relaxed: who resets it holds the change lock, under which it is looked at again.
        if self.is_to_load.load(Ordering::Relaxed) { self.move_to_memory() } else { Ok(()) }
    }

    /// Has the rows of a table on the disk put into memory later, by [`Self::load_files`].
    pub fn load_later(&self) {
        // Relaxed: nobody else has the table yet.
        self.is_to_load.store(self.is_on_disk(), Ordering::Relaxed);
    }

    /// Returns how many rows of a memory table are still to be put into memory.
    pub fn rows_to_load(&self) -> u64 {
        // Relaxed: numbers to report.
        if !self.is_to_load.load(Ordering::Relaxed) {
            return 0;
        }
        let on_disk = self.parts().map_or(0, |parts| parts.row_count());
        on_disk.saturating_sub(self.loaded_rows.load(Ordering::Relaxed))
    }

    /// Copies the rows into memory; `false` when rows were removed meanwhile.
    fn try_to_load(&self) -> Result<bool, TableError> {
        self.check_open()?;
        let (state, generation) = {
            // One of them may be newer than the other: it is looked at again.
            let generation = self.generation();
            (self.snapshot().state().clone(), generation)
        };
        let Some(disk) = &state.disk else { return Ok(true) };
        let reservation = Reservation::new(self, self.memory_needed(&state, disk))?;
        let draft = TableDraft::of(&state);
        let copy = CopiedTable::of_parts(self, &disk.parts, &draft)?;
        self.change(|change| {
            self.check_open()?;
            let state = change.state();
            let Some(disk) = &state.disk else { return Ok(true) };
            if self.generation() != generation {
                return Ok(false);
            }
            let rebuild = copy.followed(change, &state, disk)?;
            let exclusive = self.lock_exclusive();
            let (indexes, log) = rebuild.finish(&mut |_| Ok(true), &exclusive)?;
            // Before the state is replaced, which charges what was copied.
            drop(reservation);
            let moved = TableState::new(Arc::clone(&state.schema), indexes, Arc::new(log));
            self.replace_copied(&exclusive, moved);
            self.set_checkpointed(Some(Arc::clone(&disk.parts)));
            // Relaxed: the change lock is held.
            self.is_to_load.store(false, Ordering::Relaxed);
            Ok(true)
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

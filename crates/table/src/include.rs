//! Indexes that include columns: a record beside each slot, so that a reader of a few columns of many
//! rows need not touch the rows.
//!
//! `engine` includes columns when a deployment is made. This is a matter of speed alone: where it is
//! refused, readers find no records and read the rows.

use lockstep_row::IncludedColumn;

use crate::{Table, TableError, draft::TableDraft, state::TableState, table::number};

/// The most bytes of a record. With more, a late row copies too much.
pub const INCLUDED_BYTES_MAX: usize = lockstep_series::RECORD_SIZE_MAX;

/// The outcome of including columns in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inclusion {
    /// The index includes them, as far as they can be included.
    Included,
    /// It does not: a record would be larger than [`INCLUDED_BYTES_MAX`].
    TooLarge {
        /// Bytes that a record would take.
        size: usize,
    },
    /// It does not: the memory budget does not allow it.
    OutOfMemory {
        /// Bytes that were needed.
        needed: u64,
    },
}

impl Table {
    /// Makes an index include columns, all or none, beside those that it includes already. It includes
    /// them until it or the table is dropped: [`Self::hold`] is for a user that will release them.
    /// Rebuilds the index unless it includes all of them; readers and writers go on. Panics when there
    /// is no such index or column.
    pub fn include(&self, index: usize, columns: &[IncludedColumn]) -> Inclusion {
        let includes = |state: &TableState| {
            let held = &*state.indexes[index].projection;
            held.with(&self.codec, columns) == *held
        };
        if includes(self.snapshot().state()) {
            self.hold_permanently(index, columns);
            return Inclusion::Included;
        }
        self.change(|change| {
            let mut draft = TableDraft::of(&change.state());
            match self.included(&draft, index, columns) {
                Ok(projection) => draft.indexes[index].projection = projection,
                Err(inclusion) => return inclusion,
            }
            match self.realize(change, &draft) {
                Ok(()) => {
                    self.hold_permanently(index, columns);
                    Inclusion::Included
                }
                Err(
                    TableError::OutOfMemory { needed, .. } | TableError::MachineFull { needed },
                ) => Inclusion::OutOfMemory { needed },
                Err(_) => Inclusion::OutOfMemory { needed: 0 },
            }
        })
    }

    /// Estimates the bytes by which an index grows when its records get another size.
    pub(crate) fn growth(&self, record_size: usize, record_size_after: usize) -> u64 {
        let grown = number(record_size_after - record_size);
        // An eighth of the slots of an index of some size is empty.
        let rows = self.snapshot().row_count_in_memory();
        let slots = rows + rows / 8;
        slots * grown
    }
}

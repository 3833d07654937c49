//! Indexes that include columns: a record beside each slot, so that who reads a few columns of many
//! rows need not touch the rows.
//!
//! `engine` asks for it when a deployment is made. What is asked for is a matter of speed alone:
//! where it is refused, readers find no records and read the rows.

use lockstep_row::IncludedColumn;

use crate::{Table, TableError, draft::Draft, state::State, table::number};

/// The most bytes of a record. With more, a late row copies too much.
pub const INCLUDED_BYTES_MAX: usize = lockstep_series::RECORD_SIZE_MAX;

/// What became of the wish that an index include columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inclusion {
    /// It includes them, as far as they can be included.
    Included,
    /// It does not: a record would take so many bytes, more than [`INCLUDED_BYTES_MAX`].
    TooLarge {
        /// Bytes that a record would take.
        size: usize,
    },
    /// It does not: the memory budget has no room for so many bytes.
    OutOfMemory {
        /// Bytes that were wanted.
        needed: u64,
    },
}

impl Table {
    /// Makes an index include columns, all or none, beside those that it includes already. It
    /// goes on including them, whatever else changes, until it or the table is dropped: whoever
    /// can let go of them again takes a [`Self::hold`]. Makes the index anew unless it includes
    /// all of them; readers and writers go on. Panics when there is no such index or column.
    pub fn include(&self, index: usize, columns: &[IncludedColumn]) -> Inclusion {
        let includes = |state: &State| {
            let held = &*state.indexes[index].projection;
            held.with(&self.codec, columns) == *held
        };
        if includes(self.snapshot().state()) {
            self.hold_for_ever(index, columns);
            return Inclusion::Included;
        }
        self.change(|changing| {
            let mut draft = Draft::of(&changing.state());
            match self.included(&draft, index, columns) {
                Ok(projection) => draft.indexes[index].projection = projection,
                Err(inclusion) => return inclusion,
            }
            match self.realize(changing, &draft) {
                Ok(()) => {
                    self.hold_for_ever(index, columns);
                    Inclusion::Included
                }
                Err(TableError::OutOfMemory { needed, .. }) => Inclusion::OutOfMemory { needed },
                Err(_) => Inclusion::OutOfMemory { needed: 0 },
            }
        })
    }

    /// Bytes that an index is expected to grow by when its records come to have this size.
    pub(crate) fn growth(&self, record_size: usize, record_size_after: usize) -> u64 {
        let grown = number(record_size_after - record_size);
        // An eighth of the slots of an index of some size is empty.
        let slots = self.row_count() + self.row_count() / 8;
        slots * grown
    }
}

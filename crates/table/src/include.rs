//! Indexes that include columns: a record beside each slot, so that who reads a few columns of many
//! rows need not touch the rows.
//!
//! `engine` asks for it when a deployment is made. What is asked for is a matter of speed alone:
//! where it is refused, readers find no records and read the rows.

use std::sync::Arc;

use lockstep_row::{IncludedColumn, Projection};

use crate::{
    Table,
    state::{Index, State},
    table::number,
};

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
    /// goes on including them, whatever else changes, until it or the table is dropped. Makes the
    /// index anew from the live rows unless it includes all of them; readers go on, writers wait.
    /// Panics when there is no such index or column.
    pub fn include(&self, index: usize, columns: &[IncludedColumn]) -> Inclusion {
        let grown = |state: &State| -> Option<Projection> {
            let held = &*state.indexes[index].projection;
            let grown = held.with(&self.codec, columns);
            (grown != *held).then_some(grown)
        };
        if grown(self.snapshot().state()).is_none() {
            return Inclusion::Included;
        }
        let alone = self.alone();
        let snapshot = self.snapshot();
        let state = snapshot.state();
        let Some(projection) = grown(state) else { return Inclusion::Included };
        let size = projection.size();
        if size > INCLUDED_BYTES_MAX {
            return Inclusion::TooLarge { size };
        }
        let held = &state.indexes[index];
        let needed = self.growth(held, size);
        if !self.budget.reserve(needed) {
            return Inclusion::OutOfMemory { needed };
        }
        let projection = Arc::new(projection);
        let built = self.build((&state.schema.indexes[index], &projection), &snapshot);
        // Before the state is replaced, so that nothing is charged twice.
        let taken = |index: &Index| i64::try_from(index.series.memory_bytes());
        let grown = match (taken(&built), taken(held)) {
            (Ok(built), Ok(held)) => built - held,
            _ => 0,
        };
        let state = state.with_replaced(index, built);
        self.charge(grown, needed);
        self.replace_state(&alone, state);
        Inclusion::Included
    }

    /// Bytes that an index is expected to grow by when its records come to have this size.
    fn growth(&self, index: &Index, record_size: usize) -> u64 {
        let grown = number(record_size - index.projection.size());
        // An eighth of the slots of an index of some size is empty.
        let slots = self.row_count() + self.row_count() / 8;
        slots * grown
    }
}

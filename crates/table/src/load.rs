//! Loading many rows as one append, batch by batch.
//!
//! `engine` loads files with it. The rows of a [`Load`] are encoded and checked, and room is taken
//! for them, as they come, while other appends go on; at last all of them get their arrivals and
//! become visible at once. Until then a load holds its rows as they will lie in the log, and gives
//! each batch up as it goes there, so that it takes little more memory than the rows will.

use std::{fmt, sync::Arc};

use lockstep_host::query;
use lockstep_row::{Datum, TableSchema};
use lockstep_series::RowBatch;

use crate::{
    Appended, Table, TableError,
    append::{Lookup, Room},
};

/// Rows that are being loaded into a table. Dropping it leaves nothing of them.
pub struct Load<'a> {
    table: &'a Table,
    batches: Vec<RowBatch>,
    room: Option<Room<'a>>,
    row_count: u64,
    /// Whether the event times of declared indexes must be there.
    is_timed: bool,
    /// The schema whose declared indexes the event times were checked against.
    checked: Option<Arc<TableSchema>>,
}

impl Table {
    /// Begins to load rows, which become visible at the end, all or none, with the checks of
    /// [`Self::append_timed`].
    pub fn load(&self) -> Load<'_> {
        let (batches, room, checked) = (Vec::new(), None, None);
        Load { table: self, batches, room, row_count: 0, is_timed: true, checked }
    }

    /// The same without these checks, as [`Self::append`].
    pub fn load_any(&self) -> Load<'_> {
        Load { is_timed: false, ..self.load() }
    }
}

impl Load<'_> {
    /// Adds rows. After an error the load is of no use. Rows are numbered from the beginning of
    /// the load.
    pub fn push<'r, R>(&mut self, rows: R) -> Result<(), TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        let mut batch = RowBatch::default();
        self.table.encode(rows, &mut batch, self.row_count)?;
        if batch.is_empty() {
            return Ok(());
        }
        batch.shrink_to_fit();
        if self.is_timed {
            let schema = self.table.schema();
            self.table.check_event_times(&schema, &batch, self.row_count)?;
            if !self.is_checked(&schema) {
                self.check(&schema)?;
            }
            self.checked = Some(schema);
        }
        let room = self.table.reserve(&batch)?;
        match &mut self.room {
            Some(all) => all.join(room),
            None => self.room = Some(room),
        }
        self.row_count += crate::table::number(batch.len());
        self.batches.push(batch);
        Ok(())
    }

    /// How many rows were added.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Makes the rows visible. Fails when the table was dropped, or has an index by now that does
    /// not take them; then nothing of them is left.
    pub fn finish(mut self) -> Result<Appended, TableError> {
        let Some(mut room) = self.room.take() else { return Ok(Appended::default()) };
        // Before any lock: who is asked may run anything.
        let _commit = query::commit().map_err(TableError::Interrupted)?;
        let shared = self.table.share();
        self.table.check_open()?;
        let state = self.table.shared_state(&shared);
        if self.is_timed && !self.is_checked(&state.schema) {
            self.check(&state.schema)?;
        }
        self.table.apply(state, &mut self.batches, &mut Lookup::default(), &mut room)
    }

    fn is_checked(&self, schema: &Arc<TableSchema>) -> bool {
        self.checked.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, schema))
    }

    /// Checks what was added before the table got other indexes.
    fn check(&self, schema: &TableSchema) -> Result<(), TableError> {
        let mut row_number = 0;
        for batch in &self.batches {
            self.table.check_event_times(schema, batch, row_number)?;
            row_number += crate::table::number(batch.len());
        }
        Ok(())
    }
}

impl fmt::Debug for Load<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").field("row_count", &self.row_count).finish_non_exhaustive()
    }
}

//! Loading many rows as one append, batch by batch.
//!
//! `engine` loads files with it. The rows of a [`BulkLoad`] are encoded and checked, and memory is
//! reserved for them, batch by batch, while other appends go on; finally all of them get their arrivals
//! and become visible at once. Until then a load holds its rows encoded, and frees each batch when it
//! is in the log, so that it takes little more memory than the stored rows. Loads of several tables can
//! be finished as one append ([`BulkLoad::finish_all`]).

mod multi_table;

use std::{fmt, sync::Arc};

use lockstep_host::query;
use lockstep_row::{Datum, TableSchema};
use lockstep_series::RowBatch;

use crate::{
    Appended, Table, TableError,
    append::{ApplyMemory, Reservation},
};

/// Rows that are being loaded into a table. When it is dropped unfinished, none of them is stored.
pub struct BulkLoad<'a> {
    table: &'a Table,
    batches: Vec<RowBatch>,
    reservation: Option<Reservation<'a>>,
    row_count: u64,
    /// Whether the event times of declared indexes must not be NULL.
    is_timed: bool,
    /// The schema whose declared indexes the event times were checked against.
    checked: Option<Arc<TableSchema>>,
}

impl Table {
    /// Begins to load rows, which become visible at the end, all or none, with the checks of
    /// [`Self::append_timed`].
    pub fn load(&self) -> BulkLoad<'_> {
        let (batches, reservation, checked) = (Vec::new(), None, None);
        BulkLoad { table: self, batches, reservation, row_count: 0, is_timed: true, checked }
    }

    /// Begins to load rows as [`Self::load`] does, with the checks of [`Self::append`] only.
    pub fn load_any(&self) -> BulkLoad<'_> {
        BulkLoad { is_timed: false, ..self.load() }
    }
}

impl BulkLoad<'_> {
    /// Adds rows. After an error the load cannot be used further. Rows are numbered from the beginning
    /// of the load.
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
        let reservation = self.table.reserve(&batch)?;
        match &mut self.reservation {
            Some(all) => all.merge(reservation),
            None => self.reservation = Some(reservation),
        }
        self.row_count += crate::table::number(batch.len());
        self.batches.push(batch);
        Ok(())
    }

    /// Returns the number of rows that were added.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Makes the rows visible. Fails when the table was dropped, or got an index that does not accept
    /// them; then none of them is stored.
    pub fn finish(mut self) -> Result<Appended, TableError> {
        let Some(mut reservation) = self.reservation.take() else { return Ok(Appended::default()) };
        // Before any lock: the check for interrupts may run any code.
        let _commit = query::commit().map_err(TableError::Interrupted)?;
        let shared = self.table.lock_shared();
        self.table.check_open()?;
        let state = self.table.shared_state(&shared);
        self.check_again(&state.schema)?;
        self.table.apply(state, &mut self.batches, &mut ApplyMemory::default(), &mut reservation)
    }

    /// Returns whether all rows were checked against a schema.
    fn is_checked(&self, schema: &Arc<TableSchema>) -> bool {
        self.checked.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, schema))
    }

    /// Checks the rows if the table has other indexes now than when they were added.
    fn check_again(&self, schema: &Arc<TableSchema>) -> Result<(), TableError> {
        if self.is_timed && !self.is_checked(schema) { self.check(schema) } else { Ok(()) }
    }

    /// Checks the rows that were added before the table got other indexes.
    fn check(&self, schema: &TableSchema) -> Result<(), TableError> {
        let mut row_number = 0;
        for batch in &self.batches {
            self.table.check_event_times(schema, batch, row_number)?;
            row_number += crate::table::number(batch.len());
        }
        Ok(())
    }
}

impl fmt::Debug for BulkLoad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoad").field("row_count", &self.row_count).finish_non_exhaustive()
    }
}

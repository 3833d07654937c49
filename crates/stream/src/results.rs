//! Main rows whose windows are not all computed.

use std::collections::VecDeque;

use lockstep_row::Value;

/// The number of a main row, as long as it has not been joined.
pub(crate) type RowId = u32;

/// The rows, each with the results that it has so far. Memory is used again by later rows.
#[derive(Debug, Default)]
pub(crate) struct PendingResults {
    rows: Vec<PendingRow>,
    free: Vec<RowId>,
    /// The rows that lack nothing any more, in the order in which they were completed.
    complete: VecDeque<RowId>,
}

/// A row that waits for results.
#[derive(Debug, Default)]
pub(crate) struct PendingRow {
    /// Its arrival.
    pub(crate) arrival: u64,
    /// Its event time; `None` for NULL.
    pub(crate) time: Option<i64>,
    /// Its columns; empty until it is kept.
    pub(crate) columns: Vec<Value>,
    /// The results, by the positions of their calls.
    pub(crate) results: Vec<Value>,
    /// How many results it lacks.
    missing: usize,
    is_kept: bool,
}

impl PendingResults {
    /// Begins with a row that has no results yet.
    pub(crate) fn begin(&mut self, arrival: u64, time: Option<i64>, outputs: usize) -> RowId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.rows.push(PendingRow::default());
            RowId::try_from(self.rows.len() - 1).expect("fewer than 2^32 rows are pending")
        });
        let row = self.row_mut(id);
        debug_assert!(row.results.is_empty() && row.columns.is_empty(), "it was joined");
        (row.arrival, row.time) = (arrival, time);
        row.results.resize(outputs, Value::Null);
        (row.missing, row.is_kept) = (outputs, false);
        id
    }

    /// Gives a row one of its results.
    pub(crate) fn set(&mut self, id: RowId, output: usize, value: Value) {
        let row = self.row_mut(id);
        row.results[output] = value;
        row.missing -= 1;
        if row.missing == 0 && row.is_kept {
            self.complete.push_back(id);
        }
    }

    /// Keeps the columns of a row, which may lack results longer than its columns are at hand.
    pub(crate) fn keep(&mut self, id: RowId, columns: &[Value]) {
        let row = self.row_mut(id);
        debug_assert!(!row.is_kept && row.missing > 0, "it waits for results");
        row.columns.extend_from_slice(columns);
        row.is_kept = true;
    }

    /// Takes the columns of a row that was kept, to read them while results are set.
    pub(crate) fn take_columns(&mut self, id: RowId) -> Vec<Value> {
        debug_assert!(self.row(id).is_kept, "its columns are here");
        std::mem::take(&mut self.row_mut(id).columns)
    }

    /// Gives them back.
    pub(crate) fn put_back(&mut self, id: RowId, columns: Vec<Value>) {
        self.row_mut(id).columns = columns;
    }

    /// Returns a row.
    pub(crate) fn row(&self, id: RowId) -> &PendingRow {
        &self.rows[id as usize]
    }

    /// Returns the next of the rows that were kept and lack nothing any more.
    pub(crate) fn next_complete(&mut self) -> Option<RowId> {
        self.complete.pop_front()
    }

    /// Forgets a row that was joined.
    pub(crate) fn end(&mut self, id: RowId) {
        let row = self.row_mut(id);
        debug_assert_eq!(row.missing, 0, "it has all results");
        row.columns.clear();
        row.results.clear();
        self.free.push(id);
    }

    /// Returns the arrivals of the rows that wait.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().filter(|row| !row.results.is_empty()).map(|row| row.arrival)
    }

    /// Returns how many rows wait.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    /// Returns about how many bytes they have.
    pub(crate) fn bytes(&self) -> usize {
        let of_row = |row: &PendingRow| {
            size_of::<PendingRow>()
                + (row.columns.capacity() + row.results.capacity()) * size_of::<Value>()
        };
        self.rows.iter().map(of_row).sum()
    }

    fn row_mut(&mut self, id: RowId) -> &mut PendingRow {
        &mut self.rows[id as usize]
    }
}

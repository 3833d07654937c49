//! Copying the rows of a table to another one with other columns.
//!
//! ALTER TABLE and the loads of offline data copy rows. The rows become visible together, at the end.

use lockstep_diagnostic::Result;
use lockstep_host::{CallStep, query};
use lockstep_row::{Arena, Datum, Value};
use lockstep_table::{Appended, RowCopy, Table};

use crate::{append::table_error, context::checkpoint};

/// The number of rows that are copied between two looks at whether the call was interrupted.
const ROWS_AT_ONCE: usize = 1_024;

/// The source of the values of a column of the copy.
pub(crate) enum ValueSource {
    /// From the column at this position.
    Column(usize),
    /// They are all this one.
    Constant(Value),
}

/// Copies the rows of a table to another one, in their order of arrival; all of them or none.
pub(crate) fn copy_rows(from: &Table, to: &Table, sources: &[ValueSource]) -> Result<Appended> {
    let snapshot = from.snapshot();
    let mut load = to.load_any();
    let mut scan = snapshot.scan();
    let total = from.row_count();
    loop {
        let mut copies = Vec::with_capacity(ROWS_AT_ONCE);
        while copies.len() < ROWS_AT_ONCE
            && let Some(stored) = scan.next_row()?
        {
            copies.push(RowCopy::of(&stored));
        }
        let arena = Arena::new();
        let mut rows: Vec<Vec<Datum<'_>>> = Vec::with_capacity(copies.len());
        for copy in &copies {
            let row = copy.view(from).row;
            let values = sources.iter().map(|source| match source {
                ValueSource::Column(position) => row.get_in(*position, &arena),
                ValueSource::Constant(value) => value.as_datum(&arena),
            });
            rows.push(values.collect());
        }
        if rows.is_empty() {
            break;
        }
        checkpoint()?;
        query::report(CallStep::CopyRows, load.row_count().min(total), total);
        load.push(&rows).map_err(|error| table_error(&error))?;
    }
    load.finish().map_err(|error| table_error(&error))
}

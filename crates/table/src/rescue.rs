//! Rows of a log and of a checkpoint outside of their table, for who checks or saves a damaged
//! directory.
//!
//! `engine` looks into blocks with [`visit_block`]. [`RescuedRows`] collects from the log the rows that
//! are missing in the checkpoint because a block of it cannot be read: a log reaches back further than
//! the checkpoint needs it. Touches no table and no file.

use std::{collections::BTreeMap, ops::Range};

use lockstep_row::{RowCodec, RowView};
use lockstep_series::RowBatch;

use crate::{LoggedRows, checkpoint, record::RowsPart, table::number};

/// Gives the arrival and the bytes of each row of a block to `visit`. Returns whether the bytes are a
/// block whose rows are in order of arrival; if not, `visit` was given those before the error.
pub fn visit_block(bytes: &[u8], visit: &mut dyn FnMut(u64, &[u8])) -> bool {
    let (mut rest, mut next) = (bytes, 0);
    while !rest.is_empty() {
        let Some((_, rows)) = checkpoint::next_run(&mut rest) else { return false };
        let Some(batch) = RowBatch::from_arrived(rows.to_vec(), next) else { return false };
        for row in batch.rows() {
            visit(row.arrival(), row.bytes());
            next = row.arrival() + 1;
        }
    }
    true
}

impl LoggedRows<'_> {
    /// Returns the number of rows; `None` when they are not rows of a table with this codec.
    pub fn count_rows_of(&self, codec: &RowCodec) -> Option<u64> {
        let batch = RowBatch::from_stored(self.stored.to_vec())?;
        batch.rows().all(|row| codec.is_row(row.bytes())).then(|| number(batch.len()))
    }
}

/// Rows of one table that were found in the log, by their arrivals.
#[derive(Debug)]
pub struct RescuedRows {
    codec: RowCodec,
    /// Rows with other arrivals are not wanted.
    wanted: Vec<Range<u64>>,
    rows: BTreeMap<u64, RescuedRow>,
    /// Rows of appends whose end has not come yet.
    parts: BTreeMap<u64, RescuedRow>,
}

/// A row without its arrival.
#[derive(Debug)]
struct RescuedRow {
    arrival_ms: i64,
    bytes: Vec<u8>,
}

impl RescuedRows {
    /// Collects rows with these arrivals.
    pub fn new(codec: RowCodec, wanted: Vec<Range<u64>>) -> Self {
        Self { codec, wanted, rows: BTreeMap::new(), parts: BTreeMap::new() }
    }

    /// Adds the rows of a record at a position.
    pub fn rows(&mut self, position: u64, logged: &LoggedRows<'_>) {
        let LoggedRows { arrival_ms, stored, part } = *logged;
        let Some(batch) = RowBatch::from_stored(stored.to_vec()) else { return };
        let end = position + number(batch.len());
        let is_wanted = |arrival: u64| self.wanted.iter().any(|range| range.contains(&arrival));
        let first = match part {
            RowsPart::Last { first } => first,
            RowsPart::Part | RowsPart::Whole => position,
        };
        let found = (position..end).zip(batch.rows());
        let found =
            found.filter(|(arrival, row)| is_wanted(*arrival) && self.codec.is_row(row.bytes()));
        let found = found.map(|(arrival, row)| {
            (arrival, RescuedRow { arrival_ms, bytes: row.bytes().to_vec() })
        });
        match part {
            RowsPart::Part => self.parts.extend(found),
            RowsPart::Whole | RowsPart::Last { .. } => self.rows.extend(found),
        }
        if let RowsPart::Last { .. } = part {
            self.rows.append(&mut self.parts.split_off(&first));
            self.parts.clear();
        }
    }

    /// Removes the rows for which `is_deleted` holds.
    pub fn delete(&mut self, is_deleted: impl Fn(RowView<'_>) -> bool) {
        self.rows.retain(|_, row| !is_deleted(self.codec.view(&row.bytes)));
    }

    /// Removes every row.
    pub fn truncate(&mut self) {
        self.rows.clear();
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes the rows that arrived before `end` out, as a block of a checkpoint.
    pub fn take_block(&mut self, end: u64) -> Vec<u8> {
        let later = self.rows.split_off(&end);
        let taken = std::mem::replace(&mut self.rows, later);
        let mut block = Vec::new();
        for (arrival, RescuedRow { arrival_ms, bytes }) in taken {
            let mut batch = RowBatch::default();
            let pushed: Result<(), std::convert::Infallible> = batch.push(|out| {
                out.extend_from_slice(&bytes);
                Ok(())
            });
            pushed.expect("the row is copied");
            checkpoint::push_run(&mut block, arrival_ms, &batch.arrived_from(arrival));
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::{Column, DataType, Datum, RowCodec, TableSchema};
    use lockstep_series::RowBatch;

    use super::{RescuedRows, visit_block};
    use crate::{LoggedRows, record::RowsPart};

    fn codec() -> RowCodec {
        let columns = vec![Column::new("n", DataType::BigInt)];
        RowCodec::new(&TableSchema { columns, indexes: Vec::new() })
    }

    /// Adds rows with the values `from`, `from + 1` and so on.
    fn add(rescued: &mut RescuedRows, position: u64, count: i64, part: RowsPart) {
        let mut batch = RowBatch::default();
        for at in 0..count {
            let value = i64::try_from(position).unwrap() + at;
            batch.push(|out| codec().encode(&[Datum::BigInt(value)], out)).unwrap();
        }
        rescued.rows(position, &LoggedRows { arrival_ms: 7, stored: batch.stored_bytes(), part });
    }

    fn arrivals(block: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        let codec = codec();
        let is_block = visit_block(block, &mut |arrival, bytes| {
            let value = codec.view(bytes).get(0);
            assert_eq!(value, Datum::BigInt(i64::try_from(arrival).unwrap()));
            found.push(arrival);
        });
        assert!(is_block);
        found
    }

    #[test]
    fn rows_of_the_wanted_arrivals_are_collected_once_and_in_order() {
        let mut rescued = RescuedRows::new(codec(), vec![2..5, 8..20]);
        add(&mut rescued, 0, 4, RowsPart::Whole);
        add(&mut rescued, 4, 6, RowsPart::Whole);
        add(&mut rescued, 10, 2, RowsPart::Part);
        assert_eq!(rescued.len(), 5);
        // The first part belongs to an append that failed.
        add(&mut rescued, 12, 1, RowsPart::Part);
        add(&mut rescued, 13, 1, RowsPart::Last { first: 12 });
        rescued.delete(|row| row.get(0) == Datum::BigInt(3));
        assert_eq!(arrivals(&rescued.take_block(9)), [2, 4, 8]);
        assert_eq!(arrivals(&rescued.take_block(u64::MAX)), [9, 12, 13]);
        add(&mut rescued, 14, 2, RowsPart::Whole);
        rescued.truncate();
        assert!(rescued.is_empty());
    }

    #[test]
    fn what_is_no_block_is_said_to_be_none() {
        let mut rescued = RescuedRows::new(codec(), Vec::from_iter(std::iter::once(0..9)));
        add(&mut rescued, 0, 9, RowsPart::Whole);
        let block = rescued.take_block(u64::MAX);
        assert!(visit_block(&block, &mut |_, _| ()));
        for length in 1..block.len() {
            let is_run = visit_block(&block[..length], &mut |_, _| ());
            // Each row is a run of its own.
            assert_eq!(is_run, length % (block.len() / 9) == 0, "{length} bytes");
        }
        let twice = [block.clone(), block].concat();
        assert!(!visit_block(&twice, &mut |_, _| ()));
    }
}

//! Counting the rows of an append whose event times look like seconds where milliseconds are stored.
//!
//! `append` calls it before it stores rows, so that each way into a table warns of the mistake. Reads
//! the event times of the rows and nothing else.

use std::ops::Range;

use lockstep_row::DataType;
use lockstep_series::RowBatch;

use crate::{Table, state::TableState, table::number};

/// Times, in milliseconds since 1970, that are most likely seconds: as milliseconds they are between
/// 2 January and 10 April 1970, as seconds between March 1973 and July 2242.
pub const LIKE_SECONDS: Range<i64> = 100_000_000..8_600_000_000;

impl Table {
    /// Counts the rows with an event time of an index, a TIMESTAMP, that is in [`LIKE_SECONDS`].
    pub(crate) fn count_like_seconds(&self, state: &TableState, batches: &[RowBatch]) -> u64 {
        let schema = &state.schema;
        let mut columns: Vec<usize> =
            schema.indexes.iter().filter_map(|index| index.event_time).collect();
        columns.retain(|column| schema.columns[*column].data_type == DataType::Timestamp);
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            return 0;
        }
        let rows = batches.iter().flat_map(RowBatch::rows).map(|row| self.view(row));
        let like_seconds = rows.filter(|row| {
            let mut times = columns.iter().filter_map(|column| row.get(*column).as_i64());
            times.any(|time| LIKE_SECONDS.contains(&time))
        });
        number(like_seconds.count())
    }
}

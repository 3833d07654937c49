//! The stored rows that logged requests became: an event is often requested first, and stored then.
//!
//! In a training set a row is answered at its own position, without itself. So the row with the values of a
//! request, the first that arrived after it, stands for the request.

use std::collections::HashMap;

use lockstep_diagnostic::Result;
use lockstep_function::{Settings, cast::write_datum};
use lockstep_row::{Arena, Datum, RowView};
use lockstep_table::Snapshot;

use super::AnswerColumns;
use crate::context::checkpoint;

/// The number of rows between two checks for an interrupt.
const ROWS_PER_CHECKPOINT: usize = 4_096;

/// By the number of a logged answer, the arrival of the stored row that its request became.
#[derive(Debug, Default)]
pub(super) struct OwnRows {
    arrivals: HashMap<u64, u64>,
}

/// Requests whose row has not been found, by their values.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    by_values: HashMap<String, Vec<WaitingRequest>>,
}

#[derive(Debug, Clone, Copy)]
struct WaitingRequest {
    number: u64,
    /// The arrival before which it saw the rows of its table.
    seen: u64,
}

impl WaitingRequests {
    /// Adds the request of a logged answer, which saw the rows of its table before an arrival.
    pub(super) fn add(
        &mut self,
        (number, seen): (u64, u64),
        row: RowView<'_>,
        columns: &AnswerColumns,
        settings: Settings,
    ) {
        let positions = columns.request().iter().flatten().copied();
        let values = text_of_values(row, positions, settings);
        self.by_values.entry(values).or_default().push(WaitingRequest { number, seen });
    }

    /// Finds the rows in the table of the requests.
    pub(super) fn find(
        mut self,
        table: &Snapshot<'_>,
        columns: &AnswerColumns,
        settings: Settings,
    ) -> Result<OwnRows> {
        let mut found = OwnRows::default();
        let read = columns.request().iter().enumerate().filter(|(_, at)| at.is_some());
        let read: Vec<usize> = read.map(|(column, _)| column).collect();
        let mut rows = table.scan();
        for count in 0_usize.. {
            if count.is_multiple_of(ROWS_PER_CHECKPOINT) {
                checkpoint()?;
            }
            if self.by_values.is_empty() {
                break;
            }
            let Some(stored) = rows.next_row()? else { break };
            let values = text_of_values(stored.row, read.iter().copied(), settings);
            let Some(waiting) = self.by_values.get_mut(&values) else { continue };
            waiting.retain(|request| {
                let is_own = request.seen <= stored.arrival;
                if is_own {
                    found.arrivals.insert(request.number, stored.arrival);
                }
                !is_own
            });
            if waiting.is_empty() {
                self.by_values.remove(&values);
            }
        }
        Ok(found)
    }
}

impl OwnRows {
    /// Returns the arrival of the row that the request of a logged answer became.
    pub(super) fn of(&self, number: u64) -> Option<u64> {
        self.arrivals.get(&number).copied()
    }
}

/// Writes values so that rows with other values have another text.
fn text_of_values(
    row: RowView<'_>,
    positions: impl Iterator<Item = usize>,
    settings: Settings,
) -> String {
    let arena = Arena::new();
    let mut text = String::new();
    for position in positions {
        let value = row.get_in(position, &arena);
        let begin = text.len();
        if !matches!(value, Datum::Null) {
            // A text takes what is written to it.
            let _written = write_datum(value, &settings, &mut text);
            let length = text.len() - begin;
            text.push_str(&format!("\u{1}{length}"));
        }
        text.push('\u{2}');
    }
    text
}

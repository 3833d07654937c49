//! The order in which the operations of several writers were done, as far as it can be seen.
//!
//! Each writer's operations are in order. Those of different writers touch different objects, except
//! for the shared tables: there the order of the surviving rows is the order of the appends, a row that
//! is there was appended after the last TRUNCATE, and one that is not before it. And what was
//! acknowledged was done before what was sent later.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    difference::{Violation, ViolationKind},
    objects::{SHARED, SHARED_TRUNCATED},
    observation::Observation,
    operation::{AddedRows, DrawnOperation, is_done},
};

/// An operation that was sent.
#[derive(Debug, Clone)]
pub struct SentOperation {
    /// The operation.
    pub operation: DrawnOperation,
    /// The writer.
    pub writer: usize,
    /// When it was sent, in events of the driver.
    pub sent: u64,
    /// When its acknowledgement was read, and its outcome.
    pub acknowledged: Option<(u64, String)>,
}

/// What an operation does to a shared table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SharedUse {
    /// Nothing.
    Nothing,
    /// It removes every row, and is the last one to do so or not.
    Truncates { is_last: bool },
    /// It appends rows to some of the tables.
    Appends(Vec<SharedRows>),
}

/// Rows of an operation in a shared table, the first of which that is still there has this place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SharedRows {
    table: String,
    place: Option<usize>,
}

/// An operation with what it does to a shared table.
struct Placed {
    sent: SentOperation,
    shared: SharedUse,
}

/// Puts operations in an order in which they may have been done.
pub fn merged(
    sent: Vec<SentOperation>,
    writers: usize,
    found: &Observation,
    violations: &mut Vec<Violation>,
) -> Vec<SentOperation> {
    let places: BTreeMap<&str, BTreeMap<u64, usize>> = SHARED
        .iter()
        .map(|(table, ..)| {
            let numbers = found.numbers(table).into_iter();
            (*table, numbers.enumerate().map(|(place, number)| (number, place)).collect())
        })
        .collect();
    let mut queues: Vec<VecDeque<Placed>> = (0..writers).map(|_| VecDeque::new()).collect();
    let mut left = sent.len();
    for sent in sent {
        let is_refused = sent.acknowledged.as_ref().is_some_and(|(_, outcome)| !is_done(outcome));
        let shared =
            if is_refused { SharedUse::Nothing } else { shared_use(&sent.operation, &places) };
        queues[sent.writer].push_back(Placed { sent, shared });
    }
    let truncates = |placed: &&mut Placed| matches!(placed.shared, SharedUse::Truncates { .. });
    if let Some(last) = queues.iter_mut().flatten().filter(truncates).last() {
        // One writer truncates.
        last.shared = SharedUse::Truncates { is_last: true };
    }
    let mut merged = Vec::with_capacity(left);
    while left > 0 {
        left -= 1;
        let may_be_next = |writer: &usize| is_next(*writer, &queues);
        let next = (0..writers).find(may_be_next).unwrap_or_else(|| {
            let what = "no order of the operations gives the order of the rows";
            violations.push(Violation::new(ViolationKind::Order, what));
            let rest = (0..writers).find(|writer| !queues[*writer].is_empty());
            rest.expect("there are operations left")
        });
        merged.extend(queues[next].pop_front().map(|placed| placed.sent));
    }
    merged
}

/// Finds out what an operation does to a shared table.
fn shared_use(
    operation: &DrawnOperation,
    places: &BTreeMap<&str, BTreeMap<u64, usize>>,
) -> SharedUse {
    let mut appends = Vec::new();
    for AddedRows { table, rows } in &operation.added {
        let Some(places) = places.get(table.as_str()) else { continue };
        if rows.count == 0 {
            return SharedUse::Truncates { is_last: false };
        }
        let place = rows.numbers().filter_map(|number| places.get(&number).copied()).min();
        appends.push(SharedRows { table: table.clone(), place });
    }
    if appends.is_empty() { SharedUse::Nothing } else { SharedUse::Appends(appends) }
}

/// Returns whether the first operation of a writer may come before all others that are left.
fn is_next(writer: usize, queues: &[VecDeque<Placed>]) -> bool {
    let Some(first) = queues[writer].front() else { return false };
    let mut others = queues.iter().enumerate().filter(|(other, _)| *other != writer);
    others.all(|(_, queue)| {
        let is_later = queue.front().is_none_or(|other| {
            other.sent.acknowledged.as_ref().is_none_or(|(at, _)| *at > first.sent.sent)
        });
        is_later && queue.iter().all(|other| !must_precede(&other.shared, &first.shared))
    })
}

/// Returns whether an operation must come before another one of another writer.
fn must_precede(other: &SharedUse, first: &SharedUse) -> bool {
    match (other, first) {
        (SharedUse::Appends(others), SharedUse::Appends(rows)) => {
            let is_before = |other: &SharedRows, rows: &SharedRows| {
                let are_there = other.place.is_some() && rows.place.is_some();
                are_there && other.table == rows.table && other.place < rows.place
            };
            others.iter().any(|other| rows.iter().any(|rows| is_before(other, rows)))
        }
        (SharedUse::Truncates { .. }, SharedUse::Appends(rows)) => {
            rows.iter().any(|rows| rows.table == SHARED_TRUNCATED && rows.place.is_some())
        }
        (SharedUse::Appends(rows), SharedUse::Truncates { is_last: true }) => {
            rows.iter().any(|rows| rows.table == SHARED_TRUNCATED && rows.place.is_none())
        }
        _ => false,
    }
}

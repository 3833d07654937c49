//! The LAST JOINs and windows of a stream by their definition: each match and each frame is found among all rows, and
//! aggregates are computed from nothing.

use std::{cmp::Reverse, collections::BTreeMap};

use lockstep_function::{RowsEnd, StateUse};
use lockstep_plan::{Frame, FrameAhead, Window};
use lockstep_row::{Arena, Datum, Value, key::encode_key};

use super::{
    Joined,
    draw::{Case, CaseRow, RIGHT_WIDTH, TIME, arrival, window_row},
};
use crate::{CallSpec, LookupSpec, ScanSpec};

/// What a stream has to give.
pub(super) struct Expected {
    pub(super) joined: Joined,
    /// The arrivals of late rows.
    pub(super) late: Vec<u64>,
    /// How many main rows the program leaves out.
    pub(super) left_out: usize,
}

/// A row that is not late.
#[derive(Clone, Copy)]
struct Taken<'c> {
    arrival: u64,
    row: &'c CaseRow,
}

/// Evaluates a case.
pub(super) fn evaluate(case: &Case) -> Expected {
    let mut newest: BTreeMap<usize, i64> = BTreeMap::new();
    let (mut taken, mut late) = (Vec::new(), Vec::new());
    for (at, row) in case.rows.iter().enumerate() {
        if let Some(time) = row.time() {
            let newest = newest.entry(row.source).or_insert(time);
            if time < *newest - case.lateness_ms {
                late.push(arrival(at));
                continue;
            }
            *newest = time.max(*newest);
        }
        taken.push(Taken { arrival: arrival(at), row });
    }
    let rows: Vec<(u64, CaseRow)> = taken
        .iter()
        .filter_map(|row| Some((row.arrival, window_row_of(case, &taken, *row)?)))
        .collect();
    let left_out = taken.len() - rows.len();
    let taken: Vec<_> =
        rows.iter().map(|(arrival, row)| Taken { arrival: *arrival, row }).collect();
    let mut joined = Joined::new();
    for main in taken.iter().filter(|taken| taken.row.source == 0) {
        let mut results = vec![String::new(); case.spec().outputs()];
        for scan in &case.spec().scans {
            for group in &scan.groups {
                let rows = frame(scan, &group.window, &taken, *main);
                for call in &group.calls {
                    results[call.output] = format!("{:?}", aggregate(call, &rows));
                }
            }
        }
        let columns = joined_by(&case.output_lookups, &taken, *main);
        let columns = columns.iter().map(|value| format!("{value:?}")).collect();
        joined.insert(main.arrival, (columns, results));
    }
    Expected { joined, late, left_out }
}

/// Returns a row as the windows have it; `None` where it is left out.
fn window_row_of(case: &Case, rows: &[Taken<'_>], row: Taken<'_>) -> Option<CaseRow> {
    if case.lookups.is_empty() || row.row.source != 0 {
        return Some(row.row.clone());
    }
    let joined = joined_by(&case.lookups, rows, row);
    Some(CaseRow { source: 0, columns: window_row(&joined)? })
}

/// Returns the columns of a main row, and those that LAST JOINs join.
fn joined_by(lookups: &[LookupSpec], rows: &[Taken<'_>], main: Taken<'_>) -> Vec<Value> {
    let mut joined = main.row.columns.clone();
    for lookup in lookups {
        let matched = newest_match(lookup, rows, (main, &joined));
        joined.extend((0..RIGHT_WIDTH).map(|column| {
            matched.map_or(Value::Null, |matched| matched.row.columns[column].clone())
        }));
    }
    joined
}

/// Returns the row that a main row is joined with.
fn newest_match<'c>(
    lookup: &LookupSpec,
    rows: &[Taken<'c>],
    (main, joined): (Taken<'_>, &[Value]),
) -> Option<Taken<'c>> {
    let time = main.row.time()?;
    let is_match = |right: &&Taken<'c>| {
        let Some(right_time) = right.row.time() else { return false };
        let is_late_enough = lookup.at_least.is_none_or(|least| match joined[least.column] {
            Value::Timestamp(least_time) => {
                right_time > least_time || (least.is_inclusive && right_time == least_time)
            }
            _ => false,
        });
        right.row.source == lookup.source
            && key(&right.row.columns, &lookup.keys) == key(joined, &lookup.main_keys)
            && (right_time < time || (lookup.is_inclusive && right_time == time))
            && is_late_enough
    };
    let matches = rows.iter().filter(is_match);
    matches.max_by_key(|right| (right.row.time(), right.arrival)).copied()
}

/// Returns some columns as a key.
fn key(columns: &[Value], keys: &[usize]) -> Vec<u8> {
    let (mut key, arena) = (Vec::new(), Arena::new());
    encode_key(keys.iter().map(|column| columns[*column].as_datum(&arena)), &mut key);
    key
}

/// Returns the rows of a frame in event order.
fn frame<'c>(
    scan: &ScanSpec,
    window: &Window,
    rows: &[Taken<'c>],
    main: Taken<'c>,
) -> Vec<Taken<'c>> {
    let key = |row: &CaseRow| key(&row.columns, &scan.keys);
    let rank = |row: &CaseRow| match row.source {
        0 => Some(usize::MAX),
        source => {
            let place = scan.unions.iter().position(|union| *union == source)?;
            Some(scan.unions.len() - place)
        }
    };
    let order = |taken: &Taken<'c>| (taken.row.time(), rank(taken.row), taken.arrival);
    let own_key = key(main.row);
    let is_candidate = |taken: &&Taken<'c>| {
        let is_main = taken.row.source == 0;
        taken.arrival != main.arrival
            && rank(taken.row).is_some()
            && !(is_main && scan.without_main)
            && taken.row.time().is_some()
            && main.row.time().is_some()
            && !(window.exclude_current_time && taken.row.time() == main.row.time())
            && key(taken.row) == own_key
    };
    let candidates = rows.iter().filter(is_candidate).copied();
    let (mut before, mut after): (Vec<_>, Vec<_>) =
        candidates.partition(|taken| order(taken) < order(&main));
    before.sort_by_key(|taken| Reverse(order(taken)));
    after.sort_by_key(order);
    let distance = |taken: &Taken<'c>| main.row.time().unwrap_or(0) - taken.row.time().unwrap_or(0);
    let is_before = |at: usize, taken: &Taken<'c>| match window.frame {
        Frame::Rows { from, to } => {
            let position = at as u64 + 1;
            position >= to && from.is_none_or(|from| position <= from)
        }
        Frame::Range { from, to } => {
            distance(taken) >= to && from.is_none_or(|from| distance(taken) <= from)
        }
    };
    let before = before.into_iter().enumerate().filter(|(at, taken)| is_before(*at, taken));
    let reaches = match window.frame {
        Frame::Rows { to, .. } => to == 0,
        Frame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
    };
    let own = (reaches && !window.exclude_current_row).then_some(main);
    let is_ahead = |at: usize, taken: &Taken<'c>| {
        let Some(FrameAhead { nearest, farthest }) = window.ahead else { return false };
        let place = match window.frame {
            Frame::Rows { .. } => i64::try_from(at).unwrap() + 1,
            Frame::Range { .. } => -distance(taken),
        };
        place >= nearest && farthest.is_none_or(|farthest| place <= farthest)
    };
    let ahead = after.into_iter().enumerate().filter(|(at, taken)| is_ahead(*at, taken));
    // Newest first.
    let ahead: Vec<_> = ahead.map(|(_, taken)| taken).collect();
    let all = ahead.into_iter().rev().chain(own).chain(before.map(|(_, taken)| taken));
    let most = window.max_size.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    let mut all: Vec<_> = all.take(most).collect();
    all.reverse();
    all
}

/// Computes an aggregate over rows in event order.
fn aggregate(call: &CallSpec, rows: &[Taken<'_>]) -> Value {
    let (mut state, arena) = (call.bound.new_state(StateUse::Fold), Arena::new());
    for Taken { row, .. } in rows {
        let arguments = call.arguments.iter().map(|column| row.columns[*column].as_datum(&arena));
        let arguments: Vec<Datum<'_>> = arguments.collect();
        call.bound.add(&mut state, &arguments, RowsEnd::Newest);
    }
    call.bound.value(&state, &arena).to_value()
}

impl CaseRow {
    /// Returns the event time; `None` for NULL.
    pub(super) fn time(&self) -> Option<i64> {
        match self.columns[TIME] {
            Value::Timestamp(time) => Some(time),
            _ => None,
        }
    }
}

//! Windows and LAST JOIN computed by rescanning a `Vec` of rows: slow, and obviously right.
//!
//! The rules are those of `lockstep_plan`'s nodes, implemented again from their text. Shares no
//! code with the executors or the function library; float sums are done in big integers.
//!
//! | module | what |
//! |---|---|
//! | [`exact`] | the correctly rounded sum of doubles |
//! | [`fold`] | the aggregates, from the list of a frame's values |

pub mod exact;
pub mod fold;

use std::cmp::Reverse;

use lockstep_row::{DataType, Value};

use self::fold::Function;

/// One row.
pub type OracleRow = Vec<Value>;

/// A table: its rows in the order of their arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct OracleTable {
    /// The name.
    pub name: String,
    /// Names and types of the columns.
    pub columns: Vec<(String, DataType)>,
    /// The rows, the earliest arrival first.
    pub rows: Vec<OracleRow>,
}

/// The setting `compatibility`, which changes aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OracleMode {
    /// The default.
    Standard,
    /// OpenMLDB's: integers wrap at the width of the argument, and NULL, 0 and missing values count
    /// differently.
    OpenMldb,
}

/// A query: LAST JOINs onto the main table, then windows over the joined rows.
///
/// Table 0 is the main table. A joined row is a main row followed by the columns of each join's
/// table; columns are numbered by their position in it.
#[derive(Debug, Clone, PartialEq)]
pub struct OracleQuery {
    /// The semantics of the functions.
    pub mode: OracleMode,
    /// The joins, in the written order.
    pub joins: Vec<OracleJoin>,
    /// The windows.
    pub windows: Vec<OracleWindow>,
    /// The columns of the result.
    pub items: Vec<Item>,
}

/// One column of the result.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A column of the joined row.
    Column(usize),
    /// An aggregate.
    Call {
        /// The window, by number.
        window: usize,
        /// The function and its arguments.
        function: Function,
    },
}

/// LAST JOIN of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct OracleJoin {
    /// The right table, by number.
    pub table: usize,
    /// Left column (of the joined row so far), right column (of the right table).
    pub keys: Vec<(usize, usize)>,
    /// The right column that says which row is newest.
    pub order_by: Option<usize>,
    /// The order without ORDER BY: the event time of the right table's index over the keys. Without
    /// either, the latest arrival is the newest.
    pub implied_order: Option<usize>,
    /// `right.order_by <= left column`; `<` unless inclusive.
    pub bound: Option<JoinBound>,
    /// `right column < left column`.
    pub less: Option<(usize, usize)>,
}

/// An upper end for the order column of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinBound {
    /// A column of the joined row so far.
    pub left: usize,
    /// `<=`.
    pub is_inclusive: bool,
}

/// Where a frame ends, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameEnd {
    /// `UNBOUNDED PRECEDING`.
    Unbounded,
    /// `n PRECEDING`.
    Preceding(i64),
    /// `n OPEN PRECEDING`.
    OpenPreceding(i64),
    /// `CURRENT ROW`.
    CurrentRow,
    /// `n FOLLOWING`, n being at least 1.
    Following(i64),
    /// `n OPEN FOLLOWING`, n being at least 1.
    OpenFollowing(i64),
    /// `UNBOUNDED FOLLOWING`.
    UnboundedFollowing,
}

impl FrameEnd {
    /// Returns whether it is after the current row.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Following(_) | Self::OpenFollowing(_) | Self::UnboundedFollowing)
    }
}

/// A window.
#[derive(Debug, Clone, PartialEq)]
pub struct OracleWindow {
    /// Columns of the joined row.
    pub partition_by: Vec<usize>,
    /// A column of the joined row.
    pub order_by: Option<usize>,
    /// `ROWS_RANGE` rather than ROWS.
    pub is_range: bool,
    /// The oldest end.
    pub start: FrameEnd,
    /// The newest end.
    pub end: FrameEnd,
    /// MAXSIZE.
    pub max_size: Option<usize>,
    /// Attributes.
    pub excludes: Excludes,
    /// UNION sources by table number, in the written order; empty when there are joins.
    pub unions: Vec<usize>,
}

/// The rows that a window excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "three attributes, any of which may be written")]
pub struct Excludes {
    /// EXCLUDE `CURRENT_TIME`.
    pub current_time: bool,
    /// EXCLUDE `CURRENT_ROW`.
    pub current_row: bool,
    /// `INSTANCE_NOT_IN_WINDOW`.
    pub main_rows: bool,
}

/// A row in the sequence of a window, newest first.
#[derive(Debug, Clone, Copy)]
struct PlacedRow<'a> {
    row: &'a OracleRow,
    order: i128,
    /// 0 for the main table; then the UNION sources as written.
    source: usize,
    arrival: usize,
}

/// The rows of a key around a row.
#[derive(Debug)]
struct KeySequence<'a> {
    /// The row, then those that precede it, newest first.
    back: Vec<PlacedRow<'a>>,
    /// Those that follow it, oldest first.
    ahead: Vec<PlacedRow<'a>>,
}

/// Computes the result in batch mode: one row for each main row, by arrival.
pub fn evaluate(query: &OracleQuery, tables: &[OracleTable]) -> Vec<OracleRow> {
    assert!(!tables.is_empty(), "a query has a main table");
    let joined: Vec<OracleRow> =
        tables[0].rows.iter().map(|row| join_all(query, tables, row)).collect();
    (0..joined.len()).map(|index| evaluate_one(query, tables, &joined, index)).collect()
}

/// Computes the answer to a request: the row that batch mode returns for it as the latest arrival.
/// Only for queries without joins.
pub fn evaluate_request(
    query: &OracleQuery,
    tables: &[OracleTable],
    request: &OracleRow,
) -> OracleRow {
    assert!(query.joins.is_empty(), "a request is computed without joins");
    let mut rows = tables[0].rows.clone();
    rows.push(request.clone());
    evaluate_one(query, tables, &rows, rows.len() - 1)
}

fn evaluate_one(
    query: &OracleQuery,
    tables: &[OracleTable],
    joined: &[OracleRow],
    index: usize,
) -> OracleRow {
    let item = |item: &Item| match item {
        Item::Column(column) => joined[index][*column].clone(),
        Item::Call { window, function } => {
            let window = &query.windows[*window];
            let sequence = sequence(window, tables, joined, index);
            match function {
                Function::Lag { column, offset } => {
                    let found = sequence.back.get(*offset);
                    found.map_or(Value::Null, |placed| placed.row[*column].clone())
                }
                _ => fold::fold(function, &frame(window, &sequence), query.mode),
            }
        }
    };
    query.items.iter().map(item).collect()
}

/// Returns the rows of a frame, newest first.
fn frame<'a>(window: &OracleWindow, sequence: &KeySequence<'a>) -> Vec<&'a OracleRow> {
    let KeySequence { back, ahead } = sequence;
    assert!(!back.is_empty(), "the current row is part of its sequence");
    let now = back[0].order;
    assert!(back.iter().all(|placed| placed.order <= now), "no row is from the future");
    // Distances are back from the current row.
    let from = match window.start {
        FrameEnd::Unbounded => None,
        FrameEnd::Preceding(distance) => Some(i128::from(distance)),
        FrameEnd::OpenPreceding(distance) => Some(i128::from(distance) - 1),
        FrameEnd::CurrentRow => Some(0),
        FrameEnd::Following(distance) => Some(-i128::from(distance)),
        FrameEnd::OpenFollowing(distance) => Some(-i128::from(distance) - 1),
        FrameEnd::UnboundedFollowing => panic!("a frame does not begin at UNBOUNDED FOLLOWING"),
    };
    let to = match window.end {
        FrameEnd::Unbounded => panic!("a frame does not end at UNBOUNDED PRECEDING"),
        FrameEnd::Preceding(distance) => Some(i128::from(distance)),
        FrameEnd::OpenPreceding(distance) => Some(i128::from(distance) + 1),
        FrameEnd::CurrentRow => Some(0),
        FrameEnd::Following(distance) => Some(-i128::from(distance)),
        FrameEnd::OpenFollowing(distance) => Some(-i128::from(distance) + 1),
        FrameEnd::UnboundedFollowing => None,
    };
    let is_covered = |position: i128, placed: &PlacedRow<'_>| {
        let distance = if window.is_range { now - placed.order } else { position };
        to.is_none_or(|to| distance >= to) && from.is_none_or(|from| distance <= from)
    };
    let mut rows = Vec::new();
    if window.end.is_ahead() {
        for (position, placed) in (1..).zip(ahead) {
            if is_covered(-position, placed) {
                rows.insert(0, placed.row);
            }
        }
    }
    for (position, placed) in (0..).zip(back) {
        let is_left_out = position == 0 && window.excludes.current_row;
        if is_covered(position, placed) && !is_left_out {
            rows.push(placed.row);
        }
    }
    if let Some(max_size) = window.max_size {
        rows.truncate(max_size);
    }
    assert!(rows.len() <= back.len() + ahead.len());
    rows
}

/// Returns the rows of the current row's key.
fn sequence<'a>(
    window: &OracleWindow,
    tables: &'a [OracleTable],
    joined: &'a [OracleRow],
    index: usize,
) -> KeySequence<'a> {
    assert!(window.unions.iter().all(|table| *table < tables.len()), "sources are tables");
    let current = &joined[index];
    let order_of = |row: &OracleRow| match window.order_by {
        None => Some(0),
        Some(column) => integer(&row[column]),
    };
    let Some(now) = order_of(current) else {
        // Without an event time the sequence is the current row only.
        let alone = PlacedRow { row: current, order: 0, source: 0, arrival: index };
        return KeySequence { back: vec![alone], ahead: Vec::new() };
    };
    let mut others = Vec::new();
    for (arrival, row) in joined.iter().enumerate() {
        let Some(order) = order_of(row) else { continue };
        let is_other = arrival != index && !window.excludes.main_rows;
        if is_other && same_key(window, row, current) {
            others.push(PlacedRow { row, order, source: 0, arrival });
        }
    }
    for (position, table) in window.unions.iter().enumerate() {
        for (arrival, row) in tables[*table].rows.iter().enumerate() {
            let Some(order) = order_of(row) else { continue };
            if same_key(window, row, current) {
                others.push(PlacedRow { row, order, source: position + 1, arrival });
            }
        }
    }
    if window.excludes.current_time {
        others.retain(|placed| placed.order != now);
    }
    others.sort_by_key(|placed| (Reverse(placed.order), placed.source, Reverse(placed.arrival)));
    let precedes = |placed: &PlacedRow<'_>| {
        placed.order < now || (placed.order == now && (placed.source > 0 || placed.arrival < index))
    };
    let (before, mut ahead): (Vec<_>, Vec<_>) = others.into_iter().partition(precedes);
    ahead.reverse();
    let current = PlacedRow { row: current, order: now, source: 0, arrival: index };
    KeySequence { back: std::iter::once(current).chain(before).collect(), ahead }
}

fn same_key(window: &OracleWindow, left: &OracleRow, right: &OracleRow) -> bool {
    window.partition_by.iter().all(|column| left[*column] == right[*column])
}

fn join_all(query: &OracleQuery, tables: &[OracleTable], row: &OracleRow) -> OracleRow {
    let mut joined = row.clone();
    for join in &query.joins {
        let table = &tables[join.table];
        match newest_match(join, &joined, &table.rows) {
            Some(matched) => joined.extend(matched.iter().cloned()),
            None => joined.extend(std::iter::repeat_n(Value::Null, table.columns.len())),
        }
    }
    joined
}

fn newest_match<'a>(
    join: &OracleJoin,
    left: &OracleRow,
    rights: &'a [OracleRow],
) -> Option<&'a OracleRow> {
    let is_match = |right: &OracleRow| {
        let keys_are_equal = join.keys.iter().all(|(l, r)| left[*l] == right[*r]);
        let is_in_time = join.bound.is_none_or(|bound| {
            let order_by = join.order_by.expect("a bound is on the order column");
            match (integer(&right[order_by]), integer(&left[bound.left])) {
                (Some(right), Some(left)) => right < left || (bound.is_inclusive && right == left),
                _ => false,
            }
        });
        let is_less =
            join.less.is_none_or(|(r, l)| match (integer(&right[r]), integer(&left[l])) {
                (Some(right), Some(left)) => right < left,
                _ => false,
            });
        keys_are_equal && is_in_time && is_less
    };
    let order_by = join.order_by.or(join.implied_order);
    let order_of = |right: &OracleRow| order_by.map(|column| integer(&right[column]));
    let matches = rights.iter().enumerate().filter(|(_, right)| is_match(right));
    matches.max_by_key(|(arrival, right)| (order_of(right), *arrival)).map(|(_, right)| right)
}

/// Returns the value of an integer, a TIMESTAMP or a DATE; `None` for NULL.
pub(crate) fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::SmallInt(value) => Some(i128::from(*value)),
        Value::Int(value) | Value::Date(value) => Some(i128::from(*value)),
        Value::BigInt(value) | Value::Timestamp(value) => Some(i128::from(*value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

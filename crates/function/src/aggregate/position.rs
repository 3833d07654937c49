//! The aggregates that return the value of one row by its position in the frame: `lag`,
//! `first_value`, `last_value`, `nth_value_where`.
//!
//! The position is a distance from the newest or from the oldest of the rows that count. Only
//! values that can still become the result are stored: `distance + 1` of them, except that a sliding
//! state stores all for a distance from the oldest.

use std::{any::Any, collections::VecDeque};

use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    AggregateFunction, BoundAggregate, PickedRow, StateForm,
    encoding::{StateReader, put_count, put_unsigned, put_value},
    signature::{
        BOOL, SCALAR, bound_rows, expect, expect_count, expect_flag, expect_integer, wrong_constant,
    },
    state::{PartialState, RowState, RowsEnd, StateClass, StateUse},
};
use crate::{CallArguments, SignatureError};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "lag",
        aliases: &["at"],
        category: "order in time",
        signature: "lag(x ANY[, n constant integer[, ignore_null constant BOOL]]) → the type of `x`",
        doc: "Returns the value of `x` in the `n`-th row before the newest row, which is row 0. \
              NULL if there is no such row. `lag(x)` is `lag(x, 1)`. With `ignore_null`, rows in \
              which `x` is NULL are skipped. As a select item of its own, it counts from the \
              current row and is not limited by the frame: neither by its bounds nor by MAXSIZE or \
              EXCLUDE CURRENT_ROW, with two arguments as with three. EXCLUDE CURRENT_TIME and \
              INSTANCE_NOT_IN_WINDOW exclude rows in this case, too. Inside a larger expression or \
              the argument of an aggregate, it counts from the newest row of the frame and does \
              not leave the frame.",
        examples: &[
            ("lag(x, 0)", "4"),
            ("lag(x, 1)", "1"),
            ("lag(x, 3)", "NULL"),
            ("lag(x, 3, true)", "2"),
        ],
        is_ordered: true,
        class: StateClass::Ordered,
        bind: bind_lag,
    },
    AggregateFunction {
        name: "first_value",
        aliases: &[],
        category: "order in time",
        signature: "first_value(x ANY[, ignore_null constant BOOL]) → the type of `x`",
        doc: "Returns the value of `x` in the oldest row of the frame or, with `ignore_null`, in \
              the oldest row in which `x` is not NULL. NULL if there is no such row.",
        examples: &[("first_value(x)", "2")],
        is_ordered: true,
        class: StateClass::Ordered,
        bind: |arguments| bind_end(arguments, Distance::FromOldest(0)),
    },
    AggregateFunction {
        name: "last_value",
        aliases: &[],
        category: "order in time",
        signature: "last_value(x ANY[, ignore_null constant BOOL]) → the type of `x`",
        doc: "Returns the value of `x` in the newest row of the frame or, with `ignore_null`, in \
              the newest row in which `x` is not NULL. NULL if there is no such row.",
        examples: &[("last_value(x)", "4"), ("last_value(ok, true)", "true")],
        is_ordered: true,
        class: StateClass::Ordered,
        bind: |arguments| bind_end(arguments, Distance::FromNewest(0)),
    },
    AggregateFunction {
        name: "nth_value_where",
        aliases: &[],
        category: "order in time",
        signature: "nth_value_where(x ANY, n constant integer, condition BOOL) → the type of `x`",
        doc: "Returns the value of `x` in the `n`-th row for which `condition` is true, counted \
              from 1 at the oldest row, or from -1 at the newest. NULL if there are fewer such \
              rows, if the value is NULL, and if `n` is 0 or NULL.",
        examples: &[("nth_value_where(x, 2, ok)", "4"), ("nth_value_where(x, -1, ok)", "1")],
        is_ordered: true,
        class: StateClass::Ordered,
        bind: bind_nth_value_where,
    },
];

fn bind_lag(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=3)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let offset = expect_integer(arguments, 1)?.and_then(|offset| usize::try_from(offset).ok());
    let Some(offset) = offset else {
        return Err(wrong_constant(1, "a non-negative constant integer"));
    };
    let counts = CountedRows::not_null_if(expect_flag(arguments, 2)?);
    let mut parameters = vec![data_type.clone(), DataType::BigInt];
    parameters.extend((arguments.types.len() == 3).then_some(DataType::Bool));
    let distance = Distance::FromNewest(offset);
    Ok(bind_position(parameters, data_type, Some(distance), counts))
}

/// Binds `first_value` or `last_value`.
fn bind_end(
    arguments: &CallArguments<'_>,
    distance: Distance,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=2)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let counts = CountedRows::not_null_if(expect_flag(arguments, 1)?);
    let mut parameters = vec![data_type.clone()];
    parameters.extend((arguments.types.len() == 2).then_some(DataType::Bool));
    Ok(bind_position(parameters, data_type, Some(distance), counts))
}

fn bind_position(
    parameters: Vec<DataType>,
    returns: DataType,
    distance: Option<Distance>,
    counts: CountedRows,
) -> BoundAggregate {
    let make = move |used| Positioned::new(used, distance, counts);
    let mut bound = bound_rows(parameters, returns, StateClass::Ordered, make);
    if let StateForm::Rows(form) = &mut bound.state {
        // Where every row counts the position alone selects the row.
        form.pick = match (counts, distance) {
            (CountedRows::Always, Some(Distance::FromNewest(distance))) => {
                Some(PickedRow::FromNewest(distance))
            }
            (CountedRows::Always, Some(Distance::FromOldest(0))) => Some(PickedRow::Oldest),
            _ => None,
        };
    }
    bound
}

fn bind_nth_value_where(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 3..=3)?;
    let data_type = expect(arguments, 0, &SCALAR)?;
    let nth = expect_integer(arguments, 1)?.unwrap_or(0);
    expect(arguments, 2, &BOOL)?;
    // A distance that does not fit is beyond the end of any frame.
    let distance = usize::try_from(nth.unsigned_abs()).unwrap_or(usize::MAX).checked_sub(1);
    let from = if nth > 0 { Distance::FromOldest } else { Distance::FromNewest };
    let distance = distance.map(from);
    let parameters = vec![data_type.clone(), DataType::BigInt, DataType::Bool];
    Ok(bind_position(parameters, data_type, distance, CountedRows::WhenTrue))
}

/// The position of the row whose value is returned.
#[derive(Debug, Clone, Copy)]
enum Distance {
    FromNewest(usize),
    FromOldest(usize),
}

/// The condition on the rows that count.
#[derive(Debug, Clone, Copy)]
enum CountedRows {
    Always,
    WhenNotNull,
    /// The third argument is the condition.
    WhenTrue,
}

impl CountedRows {
    fn not_null_if(ignore_null: bool) -> Self {
        if ignore_null { Self::WhenNotNull } else { Self::Always }
    }

    fn includes(self, arguments: &[Datum<'_>]) -> bool {
        match self {
            Self::Always => true,
            Self::WhenNotNull => !arguments[0].is_null(),
            Self::WhenTrue => arguments[2] == Datum::Bool(true),
        }
    }
}

/// The state: the values that can still become the result.
struct Positioned {
    used: StateUse,
    /// `None`: the result is always NULL.
    distance: Option<Distance>,
    counts: CountedRows,
    /// The number of rows of the frame that count.
    rows: u64,
    /// The values that can still become the result, oldest first.
    values: VecDeque<Value>,
}

impl Positioned {
    fn new(used: StateUse, distance: Option<Distance>, counts: CountedRows) -> Self {
        Self { used, distance, counts, rows: 0, values: VecDeque::new() }
    }

    /// Returns the position of the result among so many values.
    fn index(&self, count: usize) -> Option<usize> {
        match self.distance? {
            Distance::FromOldest(distance) => Some(distance),
            Distance::FromNewest(distance) => count.checked_sub(1)?.checked_sub(distance),
        }
    }

    /// Removes the values that can no longer become the result.
    fn trim(&mut self) {
        match self.distance {
            Some(Distance::FromNewest(distance)) => {
                let surplus = self.values.len().saturating_sub(distance.saturating_add(1));
                drop(self.values.drain(..surplus));
            }
            Some(Distance::FromOldest(distance)) if self.used == StateUse::Fold => {
                self.values.truncate(distance.saturating_add(1));
            }
            Some(Distance::FromOldest(_)) => {}
            None => self.values.clear(),
        }
    }
}

impl RowState for Positioned {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        let Some(distance) = self.distance else { return };
        if !self.counts.includes(arguments) {
            return;
        }
        self.rows += 1;
        let stored = self.values.len();
        let is_beyond = match (end, distance) {
            (RowsEnd::Oldest, Distance::FromNewest(distance)) => stored > distance,
            (RowsEnd::Newest, Distance::FromOldest(distance)) => {
                self.used == StateUse::Fold && stored > distance
            }
            _ => false,
        };
        if is_beyond {
            return;
        }
        match end {
            RowsEnd::Oldest => self.values.push_front(arguments[0].to_value()),
            RowsEnd::Newest => self.values.push_back(arguments[0].to_value()),
        }
        self.trim();
        debug_assert!(self.values.len() as u64 <= self.rows, "each value is of a row that counts");
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if self.distance.is_none() || !self.counts.includes(arguments) {
            return;
        }
        debug_assert_eq!(self.used, StateUse::Slide, "only sliding removes rows");
        debug_assert!(self.rows > 0, "a row that leaves was added");
        self.rows -= 1;
        if self.values.len() as u64 > self.rows {
            self.values.pop_front();
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let index = self.index(self.values.len());
        index
            .and_then(|index| self.values.get(index))
            .map_or(Datum::Null, |value| copy_scalar(value, arena))
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        if !self.counts.includes(arguments) {
            return self.value(arena);
        }
        // The values are as if the row was added and none was trimmed for it.
        match self.index(self.values.len() + 1) {
            Some(index) if index == self.values.len() => {
                copy_scalar(&arguments[0].to_value(), arena)
            }
            Some(index) => {
                self.values.get(index).map_or(Datum::Null, |value| copy_scalar(value, arena))
            }
            None => Datum::Null,
        }
    }

    fn heap_bytes(&self) -> usize {
        // All texts taken to be as long as the newest: few values are stored, or all are alike.
        let newest = match self.values.back() {
            Some(Value::String(text)) => text.len(),
            _ => 0,
        };
        self.values.capacity() * size_of::<Value>() + self.values.len() * newest
    }

    fn reset(&mut self) {
        self.rows = 0;
        self.values.clear();
    }

    fn as_partial(&self) -> Option<&dyn PartialState> {
        Some(self)
    }

    fn as_partial_mut(&mut self) -> Option<&mut dyn PartialState> {
        Some(self)
    }
}

impl PartialState for Positioned {
    fn merge(&mut self, other: &dyn Any, end: RowsEnd) {
        let Some(other) = other.downcast_ref::<Self>() else {
            debug_assert!(false, "states of one aggregate are merged");
            return;
        };
        self.rows += other.rows;
        match end {
            RowsEnd::Newest => self.values.extend(other.values.iter().cloned()),
            RowsEnd::Oldest => {
                other.values.iter().rev().for_each(|value| self.values.push_front(value.clone()));
            }
        }
        self.trim();
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.rows.into());
        put_count(out, self.values.len());
        self.values.iter().for_each(|value| put_value(out, value));
    }

    fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        self.rows = reader.rows()?;
        for _ in 0..reader.count()? {
            self.values.push_back(reader.value()?);
        }
        (self.values.len() as u64 <= self.rows).then_some(())
    }
}

/// Returns a value that is neither an array nor a map, with its text copied to the arena; NULL for
/// those.
pub fn copy_scalar<'a>(value: &Value, arena: &'a Arena) -> Datum<'a> {
    match value.as_scalar() {
        Some(Datum::String(text)) => Datum::String(arena.alloc_str(text)),
        Some(scalar) => without_text(scalar),
        None => Datum::Null,
    }
}

/// Returns a value that is not a text, a list or a map with an independent lifetime; NULL for
/// those.
fn without_text<'a>(value: Datum<'_>) -> Datum<'a> {
    match value {
        Datum::Bool(value) => Datum::Bool(value),
        Datum::SmallInt(value) => Datum::SmallInt(value),
        Datum::Int(value) => Datum::Int(value),
        Datum::BigInt(value) => Datum::BigInt(value),
        Datum::Float(value) => Datum::Float(value),
        Datum::Double(value) => Datum::Double(value),
        Datum::Timestamp(value) => Datum::Timestamp(value),
        Datum::Date(value) => Datum::Date(value),
        Datum::Null | Datum::String(_) | Datum::Array(_) | Datum::Map(_) => Datum::Null,
    }
}

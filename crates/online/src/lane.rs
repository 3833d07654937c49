//! A lane: the values of one expression in the rows of a block.
//!
//! A scan collects rows into blocks ([`crate::window`]); a lane goes through a block once, leaves
//! out the rows that do not count, and hands the values to every state that folds them. What a
//! column is, is decided for a block and not for each row; a column of fixed width is read in
//! place.

use lockstep_function::aggregate::fold::{self, State};
use lockstep_row::{Arena, Datum, FixedColumn, FixedKind, TextColumn};

use crate::frame::{BoundExpr, Cells, Frame, Leaf, Place};

/// The most rows of a block: few enough that their cache lines stay near while lane after lane
/// goes through them.
pub(crate) const BLOCK_ROWS: usize = 64;

/// What a lane's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nobody asks: only which rows count.
    Rows,
    Integers,
    Floats,
    Texts,
}

/// A lane of a scan, whatever the source of the rows.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) class: Class,
    /// Which of the scan's conditions must be true.
    pub(crate) condition: Option<usize>,
    /// Whether zeros do not count.
    pub(crate) passes_zero: bool,
    /// The groups that have a state here, a bit each.
    pub(crate) groups: u64,
    /// The states, with their groups.
    pub(crate) states: Vec<(usize, usize)>,
}

/// Where a lane's values are in the rows of one source.
#[derive(Debug)]
pub(crate) enum Input {
    /// Every row has one: the lane counts rows.
    Nothing,
    /// In the stored row, in place.
    Fixed(FixedColumn),
    /// The same for texts.
    Text(TextColumn),
    /// In the stored row; only whether it is NULL is asked.
    Presence(usize),
    /// Anywhere else.
    Expr(BoundExpr),
}

/// Memory for the values of one lane.
pub(crate) struct Buffers<'s> {
    integers: [i64; BLOCK_ROWS],
    floats: [f64; BLOCK_ROWS],
    texts: [&'s str; BLOCK_ROWS],
}

impl Buffers<'_> {
    pub(crate) fn new() -> Self {
        Self { integers: [0; BLOCK_ROWS], floats: [0.0; BLOCK_ROWS], texts: [""; BLOCK_ROWS] }
    }
}

impl Input {
    /// Collects the values that are not NULL. At most [`BLOCK_ROWS`] rows; those of an input that
    /// is not an expression are stored rows.
    pub(crate) fn gather<'b, 's>(
        &'s self,
        lane: &Lane,
        rows: &[Frame<'s, 's>],
        buffers: &'b mut Buffers<'s>,
        arena: &'s Arena,
    ) -> fold::Lane<'b> {
        let Buffers { integers, floats, texts } = buffers;
        match (lane.class, self) {
            (Class::Rows, input) => fold::Lane::Rows(input.count(rows, arena)),
            (Class::Integers, Self::Fixed(column)) => {
                let count = gather_integers(*column, rows, integers);
                fold::Lane::Integers(kept(integers, count, lane.passes_zero))
            }
            (Class::Floats, Self::Fixed(column)) => {
                let count = gather_floats(*column, rows, floats);
                fold::Lane::Floats(kept(floats, count, lane.passes_zero))
            }
            (Class::Integers, Self::Expr(expr)) => {
                let count = each(rows, expr, arena, integers, integer);
                fold::Lane::Integers(kept(integers, count, lane.passes_zero))
            }
            (Class::Floats, Self::Expr(expr)) => {
                let count = each(rows, expr, arena, floats, |value| value.as_f64());
                fold::Lane::Floats(kept(floats, count, lane.passes_zero))
            }
            (Class::Texts, Self::Text(column)) => {
                let mut count = 0;
                for row in rows {
                    let Leaf::Stored(view) = row.leaf else { continue };
                    if let Some(text) = view.text(*column) {
                        texts[count] = text;
                        count += 1;
                    }
                }
                fold::Lane::Texts(&texts[..count])
            }
            (Class::Texts, Self::Expr(expr)) => {
                let count = each(rows, expr, arena, texts, |value| value.as_str());
                fold::Lane::Texts(&texts[..count])
            }
            (_, Self::Nothing | Self::Presence(_) | Self::Fixed(_) | Self::Text(_)) => {
                debug_assert!(false, "values are asked of an input that has them");
                fold::Lane::Rows(0)
            }
        }
    }

    fn count<'s>(&'s self, rows: &[Frame<'s, 's>], arena: &'s Arena) -> usize {
        let is_there = |row: &&Frame<'s, 's>| match (self, row.leaf) {
            (Self::Nothing, _) => true,
            (Self::Fixed(column), Leaf::Stored(view)) => !column.is_null(view.bytes()),
            (Self::Presence(column), Leaf::Stored(view)) => !view.is_null(*column),
            (Self::Expr(expr), _) => !expr.eval(*row, arena).is_null(),
            (Self::Text(column), Leaf::Stored(view)) => view.text(*column).is_some(),
            (Self::Fixed(_) | Self::Presence(_) | Self::Text(_), Leaf::Values(_)) => {
                debug_assert!(false, "only stored rows are read in place");
                false
            }
        };
        if matches!(self, Self::Nothing) {
            rows.len()
        } else {
            rows.iter().filter(is_there).count()
        }
    }
}

impl Lane {
    /// Feeds the value of one row; `None` where rows are counted.
    pub(crate) fn add_one(&self, state: &mut State, value: Option<Datum<'_>>) {
        let Some(value) = value else { return state.add(fold::Lane::Rows(1)) };
        match (self.class, value) {
            (_, Datum::Null) => {}
            (Class::Rows, _) => state.add(fold::Lane::Rows(1)),
            (Class::Texts, Datum::String(text)) => state.add(fold::Lane::Texts(&[text])),
            (Class::Integers, value) => {
                let value = integer(value).filter(|value| !self.passes_zero || *value != 0);
                value.into_iter().for_each(|value| state.add(fold::Lane::Integers(&[value])));
            }
            (Class::Floats, value) => {
                let value = value.as_f64().filter(|value| !self.passes_zero || *value != 0.0);
                value.into_iter().for_each(|value| state.add(fold::Lane::Floats(&[value])));
            }
            (Class::Texts, _) => debug_assert!(false, "a lane of texts has texts"),
        }
    }
}

fn integer(value: Datum<'_>) -> Option<i64> {
    match value {
        Datum::Bool(value) => Some(i64::from(value)),
        other => other.as_i64(),
    }
}

/// The first `count` values, perhaps without zeros.
fn kept<T: Default + PartialEq + Copy>(
    values: &mut [T; BLOCK_ROWS],
    count: usize,
    passes_zero: bool,
) -> &[T] {
    if !passes_zero {
        return &values[..count];
    }
    let mut kept = 0;
    for at in 0..count {
        values[kept] = values[at];
        kept += usize::from(values[at] != T::default());
    }
    &values[..kept]
}

fn each<'s, T>(
    rows: &[Frame<'s, 's>],
    expr: &'s BoundExpr,
    arena: &'s Arena,
    out: &mut [T; BLOCK_ROWS],
    convert: impl Fn(Datum<'s>) -> Option<T>,
) -> usize {
    let mut count = 0;
    for row in rows {
        let value = match (expr, row.leaf) {
            (BoundExpr::Place(Place::Leaf(column)), Leaf::Stored(view)) => view.get(*column),
            (BoundExpr::Place(place), _) => row.get(*place),
            (expr, _) => expr.eval(row, arena),
        };
        if let Some(value) = convert(value) {
            out[count] = value;
            count += 1;
        }
    }
    count
}

fn gather_integers(
    column: FixedColumn,
    rows: &[Frame<'_, '_>],
    out: &mut [i64; BLOCK_ROWS],
) -> usize {
    match column.kind() {
        FixedKind::I64 => gather(column, rows, out, i64::from_le_bytes),
        FixedKind::I32 => gather(column, rows, out, |bytes| i32::from_le_bytes(bytes).into()),
        FixedKind::I16 => gather(column, rows, out, |bytes| i16::from_le_bytes(bytes).into()),
        FixedKind::Bool => gather(column, rows, out, |[byte]| i64::from(byte != 0)),
        FixedKind::F32 | FixedKind::F64 => {
            debug_assert!(false, "a float is not in a lane of integers");
            0
        }
    }
}

fn gather_floats(
    column: FixedColumn,
    rows: &[Frame<'_, '_>],
    out: &mut [f64; BLOCK_ROWS],
) -> usize {
    match column.kind() {
        FixedKind::F64 => gather(column, rows, out, f64::from_le_bytes),
        FixedKind::F32 => gather(column, rows, out, |bytes| f32::from_le_bytes(bytes).into()),
        FixedKind::Bool | FixedKind::I16 | FixedKind::I32 | FixedKind::I64 => {
            debug_assert!(false, "an integer is not in a lane of floats");
            0
        }
    }
}

/// Writes every value and steps on when it is not NULL: there is no branch to guess wrong.
#[inline]
fn gather<T, const SIZE: usize>(
    column: FixedColumn,
    rows: &[Frame<'_, '_>],
    out: &mut [T; BLOCK_ROWS],
    read: impl Fn([u8; SIZE]) -> T,
) -> usize {
    let mut count = 0;
    for row in rows {
        let Leaf::Stored(view) = row.leaf else { continue };
        let bytes = view.bytes();
        out[count] = read(column.bytes(bytes));
        count += usize::from(!column.is_null(bytes));
    }
    count
}

//! A lane: the values of one expression in the rows of a block.
//!
//! A scan collects rows into blocks ([`crate::window`]); a lane goes through a block once, leaves
//! out the rows that do not count, and hands the values to every state that folds them. What a
//! column is, is decided for a block and not for each row; a column of fixed width is read in
//! place, and an expression over such columns, with the condition of the lane, may be machine code.

use std::sync::Arc;

use lockstep_function::aggregate::fold::{self, State};
use lockstep_row::{Arena, Datum, FixedColumn, FixedKind, ShortText, TextCell, TextColumn};
use lockstep_table::{KeyRun, RecordField, Records};

use crate::{
    frame::{BoundExpr, Cells, Frame, Leaf, Place},
    machine::LaneProgram,
};

/// The most rows of a block: few enough that their cache lines stay near while lane after lane
/// goes through them.
pub(crate) const BLOCK_ROWS: usize = 64;
/// The most rows that a lane is given at once: those of a block, or of a run of records, of which
/// more stay near.
pub(crate) const LANE_ROWS: usize = 128;

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
    /// The states, with the groups that they are for, a bit each.
    pub(crate) states: Vec<(u64, usize)>,
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
    /// Computed from columns of the stored row that are of fixed width.
    Machine {
        /// What computes it.
        program: Arc<LaneProgram>,
        /// Whether it leaves out the rows for which the condition of the lane is not true.
        tests_condition: bool,
    },
    /// Anywhere else.
    Expr(BoundExpr),
}

/// Where a lane's values are in the records of an index that includes them.
#[derive(Debug)]
pub(crate) enum RecordInput {
    /// Every row has one: the lane counts rows.
    Nothing,
    Fixed(FixedColumn),
    /// Short texts are in the record, long ones in the row.
    Text(TextCell, TextColumn),
    /// Only whether it is NULL is asked: the byte and the bit that say so.
    Presence(usize, u8),
    /// Computed, by code that leaves out the rows for which the condition is not true.
    Machine(Arc<LaneProgram>),
}

/// Memory for the values of one lane.
pub(crate) struct Buffers<'s> {
    integers: [i64; LANE_ROWS],
    floats: [f64; LANE_ROWS],
    texts: [&'s str; LANE_ROWS],
    shorts: [ShortText; LANE_ROWS],
}

impl Buffers<'_> {
    pub(crate) fn new() -> Self {
        Self {
            integers: [0; LANE_ROWS],
            floats: [0.0; LANE_ROWS],
            texts: [""; LANE_ROWS],
            shorts: [ShortText::default(); LANE_ROWS],
        }
    }
}

impl Input {
    /// Collects the values that are not NULL. At most [`LANE_ROWS`] rows; those of an input that
    /// is not an expression are stored rows.
    pub(crate) fn gather<'b, 's>(
        &'s self,
        lane: &Lane,
        rows: &[Frame<'s, 's>],
        buffers: &'b mut Buffers<'s>,
        arena: &'s Arena,
    ) -> fold::Lane<'b> {
        let Buffers { integers, floats, texts, .. } = buffers;
        match (lane.class, self) {
            (Class::Integers, Self::Machine { program, .. }) => {
                fold::Lane::Integers(collect(program, stored(rows), integers))
            }
            (Class::Floats, Self::Machine { program, .. }) => {
                fold::Lane::Floats(collect(program, stored(rows), floats))
            }
            (Class::Rows, input) => fold::Lane::Rows(input.count(rows, arena)),
            (Class::Integers, Self::Fixed(column)) => {
                let count = gather_integers(*column, Values::Rows(stored(rows)), integers);
                fold::Lane::Integers(kept(integers, count, lane.passes_zero))
            }
            (Class::Floats, Self::Fixed(column)) => {
                let count = gather_floats(*column, Values::Rows(stored(rows)), floats);
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
            (
                _,
                Self::Nothing
                | Self::Presence(_)
                | Self::Fixed(_)
                | Self::Text(_)
                | Self::Machine { .. },
            ) => {
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
            (Self::Machine { .. }, _) => {
                debug_assert!(false, "machine code counts by itself");
                false
            }
            (Self::Text(column), Leaf::Stored(view)) => view.text(*column).is_some(),
            (Self::Fixed(_) | Self::Presence(_) | Self::Text(_), Leaf::Values(_)) => {
                debug_assert!(false, "only stored rows are read in place");
                false
            }
        };
        match self {
            Self::Nothing => rows.len(),
            Self::Machine { program, .. } => {
                collect(program, stored(rows), &mut [0; LANE_ROWS]).len()
            }
            _ => rows.iter().filter(is_there).count(),
        }
    }

    /// Whether rows for which the condition of the lane is not true are left out here.
    pub(crate) fn tests_condition(&self) -> bool {
        matches!(self, Self::Machine { tests_condition: true, .. })
    }
}

/// Values that machine code writes: 64 bits each, integers and DOUBLEs alike.
trait Word: Copy {}
impl Word for i64 {}
impl Word for f64 {}

/// The values of the rows that count.
fn collect<'b, 'r, T: Word>(
    program: &LaneProgram,
    rows: impl Iterator<Item = &'r [u8]>,
    out: &'b mut [T; LANE_ROWS],
) -> &'b [T] {
    let mut starts = [std::ptr::null(); LANE_ROWS];
    let mut count = 0;
    for bytes in rows {
        starts[count] = bytes.as_ptr();
        count += 1;
    }
    // SAFETY: the rows are of the source, and of the form, stored or records, that the program was
    // made for, so its columns are where it reads; and there is room for a value of each.
    let count = unsafe { program.run(&starts[..count], out.as_mut_ptr().cast()) };
    &out[..count]
}

impl RecordInput {
    /// Collects the values that are not NULL, of at most [`LANE_ROWS`] rows.
    pub(crate) fn gather<'b, 's: 'b>(
        &'s self,
        lane: &Lane,
        (run, records): (&KeyRun<'s>, Records<'s>),
        buffers: &'b mut Buffers<'s>,
    ) -> fold::Lane<'b> {
        let Buffers { integers, floats, texts, shorts } = buffers;
        match (lane.class, self) {
            (Class::Rows, input) => fold::Lane::Rows(input.count(records)),
            (Class::Integers, Self::Fixed(column)) => {
                let count =
                    gather_integers(*column, Values::<NoRows<'_>>::Records(records), integers);
                fold::Lane::Integers(kept(integers, count, lane.passes_zero))
            }
            (Class::Integers, Self::Machine(program)) => {
                fold::Lane::Integers(collect_records(program, records, integers))
            }
            (Class::Floats, Self::Fixed(column)) => {
                let count = gather_floats(*column, Values::<NoRows<'_>>::Records(records), floats);
                fold::Lane::Floats(kept(floats, count, lane.passes_zero))
            }
            (Class::Floats, Self::Machine(program)) => {
                fold::Lane::Floats(collect_records(program, records, floats))
            }
            (Class::Texts, Self::Text(cell, column)) => {
                let Some(found) = TextCell::texts(records.field(cell.at(), TextCell::WIDTH)) else {
                    return fold::Lane::Texts(gather_texts(*column, run, texts));
                };
                let nulls = Nulls::of(records, cell.null_bit());
                if !nulls.are_there() {
                    return fold::Lane::ShortTexts(found);
                }
                let count = nulls.leave_out(found.iter().copied(), shorts);
                fold::Lane::ShortTexts(&shorts[..count])
            }
            _ => {
                debug_assert!(false, "a record has values of the class that is asked");
                fold::Lane::Rows(0)
            }
        }
    }

    fn count(&self, records: Records<'_>) -> usize {
        match self {
            Self::Nothing => records.len(),
            Self::Presence(byte, mask) => Nulls::of(records, (*byte, *mask)).values(),
            Self::Fixed(column) => Nulls::of(records, column.null_bit()).values(),
            Self::Text(cell, _) => Nulls::of(records, cell.null_bit()).values(),
            Self::Machine(program) => collect_records(program, records, &mut [0; LANE_ROWS]).len(),
        }
    }

    /// Returns the fields of the records that are read.
    pub(crate) fn fields(&self) -> Vec<RecordField> {
        let field = |offset, width| RecordField { offset, width };
        let of_fixed = |column: &FixedColumn| {
            [field(column.null_bit().0, 1), field(column.at(), column.kind().size())]
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Presence(byte, _) => vec![field(*byte, 1)],
            Self::Fixed(column) => of_fixed(column).to_vec(),
            Self::Text(cell, _) => {
                vec![field(cell.null_bit().0, 1), field(cell.at(), TextCell::WIDTH)]
            }
            Self::Machine(program) => program.columns().flat_map(of_fixed).collect(),
        }
    }
}

/// The values of the records of rows that count.
fn collect_records<'b, T: Word>(
    program: &LaneProgram,
    records: Records<'_>,
    out: &'b mut [T; LANE_ROWS],
) -> &'b [T] {
    assert!(records.len() <= LANE_ROWS, "there is room for a value of each");
    // SAFETY: there is room for a value of each, of 64 bits.
    let count = unsafe { program.run_records(records, out.as_mut_ptr().cast()) };
    &out[..count]
}

/// Which of some records have NULL in a column: a byte of each, oldest first, and the bit of it.
#[derive(Clone, Copy)]
struct Nulls<'s> {
    bytes: &'s [u8],
    mask: u8,
}

impl<'s> Nulls<'s> {
    fn of(records: Records<'s>, (byte, mask): (usize, u8)) -> Self {
        Self { bytes: records.field(byte, 1), mask }
    }

    fn are_there(self) -> bool {
        self.bytes.iter().fold(0, |all, byte| all | byte) & self.mask != 0
    }

    /// How many are not NULL.
    fn values(self) -> usize {
        self.bytes.iter().map(|byte| usize::from(byte & self.mask == 0)).sum()
    }

    /// Writes every value and steps on when it is not NULL: there is no branch to guess wrong.
    /// Returns how many there are.
    #[inline]
    fn leave_out<T>(self, values: impl Iterator<Item = T>, out: &mut [T; LANE_ROWS]) -> usize {
        let mut count = 0;
        for (value, byte) in values.zip(self.bytes) {
            out[count] = value;
            count += usize::from(byte & self.mask == 0);
        }
        count
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
    values: &mut [T; LANE_ROWS],
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
    out: &mut [T; LANE_ROWS],
    convert: impl Fn(Datum<'s>) -> Option<T>,
) -> usize {
    let mut count = 0;
    for row in rows {
        let value = match (expr, row.leaf) {
            (BoundExpr::Place(Place::Leaf(column)), Leaf::Stored(view)) => {
                view.get_in(*column, arena)
            }
            (BoundExpr::Place(place), _) => row.get(*place, arena),
            (expr, _) => expr.eval(row, arena),
        };
        if let Some(value) = convert(value) {
            out[count] = value;
            count += 1;
        }
    }
    count
}

/// Where the values of a column of fixed width are.
enum Values<'r, R> {
    Rows(R),
    Records(Records<'r>),
}

/// Values that are nowhere but in records.
type NoRows<'r> = std::iter::Empty<&'r [u8]>;

fn gather_integers<'r>(
    column: FixedColumn,
    rows: Values<'r, impl Iterator<Item = &'r [u8]>>,
    out: &mut [i64; LANE_ROWS],
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

fn gather_floats<'r>(
    column: FixedColumn,
    rows: Values<'r, impl Iterator<Item = &'r [u8]>>,
    out: &mut [f64; LANE_ROWS],
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

/// Collects the values that are not NULL, of at most [`LANE_ROWS`] rows.
#[inline]
fn gather<'r, T, const SIZE: usize>(
    column: FixedColumn,
    rows: Values<'r, impl Iterator<Item = &'r [u8]>>,
    out: &mut [T; LANE_ROWS],
    read: impl Fn([u8; SIZE]) -> T,
) -> usize {
    match rows {
        Values::Rows(rows) => {
            // Every value is written; a NULL is written over: there is no branch to guess wrong.
            let mut count = 0;
            for bytes in rows {
                out[count] = read(column.bytes(bytes));
                count += usize::from(!column.is_null(bytes));
            }
            count
        }
        Values::Records(records) => {
            let values = records.field(column.at(), SIZE).as_chunks().0;
            let values = values.iter().map(|bytes| read(*bytes));
            let nulls = Nulls::of(records, column.null_bit());
            if nulls.are_there() {
                return nulls.leave_out(values, out);
            }
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
            records.len()
        }
    }
}

/// The texts of the rows of a run.
fn gather_texts<'b, 's>(
    column: TextColumn,
    run: &KeyRun<'s>,
    out: &'b mut [&'s str; LANE_ROWS],
) -> &'b [&'s str] {
    let mut count = 0;
    for text in (0..run.len()).filter_map(|row| run.row(row).text(column)) {
        out[count] = text;
        count += 1;
    }
    &out[..count]
}

/// The bytes of stored rows.
fn stored<'r, 's: 'r>(rows: &'r [Frame<'s, 's>]) -> impl Iterator<Item = &'s [u8]> + 'r {
    rows.iter().filter_map(|row| match row.leaf {
        Leaf::Stored(view) => Some(view.bytes()),
        Leaf::Values(_) => None,
    })
}

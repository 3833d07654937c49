//! Aggregate states that are updated with blocks of values. Request mode uses them instead of
//! accumulators for aggregates that have a [`Fold`].
//!
//! An [`Accumulator`](super::Accumulator) is called for each row and dispatches on the type of each
//! value. A [`FoldState`] is updated with a [`ValueLane`]: the values of one expression in many
//! rows, in one representation, without NULLs and without rows that do not count. Aggregates over
//! the same values share a state: `count`, `sum` and `avg` of one expression are three [`Answer`]s
//! of two states, and the variance family is several of one.
//!
//! Blocks are added newest first and nothing is removed; no answer depends on the order of the
//! values in a block. The accumulator defines the result; `tests` compare each state with it.

use lockstep_row::{Arena, DataType, Datum, ShortText, Value};

use super::{
    distinct::Distinct,
    key::{KeyRef, TotalFloat},
    moment::MomentAnswer,
    multiset::{Frequencies, MultisetAnswer},
    total::{Sums, TotalAnswer},
};
use crate::exact_sum::ExactMoments;

/// The description of how an aggregate is computed from blocks of values.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The argument whose values are folded; `None` where rows are counted.
    pub value: Option<usize>,
    /// The condition on the rows that count.
    pub condition: Option<RowCondition>,
    /// The kind of state.
    pub state: StateKind,
    /// The result that is computed from the state.
    pub answer: Answer,
}

/// A condition on the rows that count. Rows whose value is NULL never count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCondition {
    /// The argument that must be true.
    pub argument: usize,
    /// Whether rows whose value is zero do not count.
    pub excludes_zero: bool,
}

/// The kind of a state. Calls over the same rows and values with the same kind share a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// The number of rows.
    Count,
    /// The number of values and their exact sum.
    Total,
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
    /// Number, sum and sum of squares.
    Moments,
    /// The distinct values.
    Distinct,
    /// The distinct values, each with its number of occurrences.
    Frequencies,
    /// The value, NULL included, of the row with this distance from the newest, which is 0.
    FromNewest(usize),
    /// The value, NULL included, of the oldest row.
    Oldest,
}

impl StateKind {
    /// Returns whether the state has the value of one row, and is updated by [`FoldState::pick`].
    pub fn picks(self) -> bool {
        matches!(self, Self::FromNewest(_) | Self::Oldest)
    }

    /// Returns whether the state has the values of many rows.
    pub fn keeps_values(self) -> bool {
        matches!(self, Self::Distinct | Self::Frequencies)
    }
}

/// The finalization of a state: which result is computed from it.
#[derive(Debug, Clone)]
pub struct Answer(pub(super) AnswerKind);

#[derive(Debug, Clone)]
pub(super) enum AnswerKind {
    Count,
    Total(TotalAnswer),
    /// The type of the value.
    Extreme(DataType),
    Moment(MomentAnswer),
    Distinct,
    Frequencies(MultisetAnswer),
    Picked,
}

/// The values of one expression in the rows of a block that count, in any order.
#[derive(Debug, Clone, Copy)]
pub enum ValueLane<'l> {
    /// Integers, TIMESTAMPs, DATEs, and BOOLs as 0 and 1.
    Integers(&'l [i64]),
    /// FLOATs, widened, and DOUBLEs.
    Floats(&'l [f64]),
    /// STRINGs.
    Texts(&'l [&'l str]),
    /// STRINGs that are all short.
    ShortTexts(&'l [ShortText]),
    /// The number of rows, without values.
    Rows(usize),
}

impl ValueLane<'_> {
    /// Returns the number of rows that count.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::ShortTexts(values) => values.len(),
            Self::Rows(count) => count,
        }
    }

    /// Returns whether no row counts.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The running state of one or several aggregates.
#[derive(Debug)]
pub struct FoldState(StateData);

#[derive(Debug)]
enum StateData {
    Count(u64),
    Total(Sums),
    Extreme(ExtremeState),
    // In boxes, so that the states of many sums and extremes lie close together.
    Moments(Box<ExactMoments>),
    Distinct(Box<Distinct>),
    Frequencies(Box<Frequencies>),
    Picked { distance: Option<usize>, seen: usize, value: Value },
}

const _: () = assert!(size_of::<FoldState>() <= 80, "a scan may have thousands of states");

impl FoldState {
    /// Makes a state without rows.
    pub fn new(kind: StateKind) -> Self {
        Self(match kind {
            StateKind::Count => StateData::Count(0),
            StateKind::Total => StateData::Total(Sums::default()),
            StateKind::Least => {
                StateData::Extreme(ExtremeState { is_least: true, best: Best::None })
            }
            StateKind::Greatest => {
                StateData::Extreme(ExtremeState { is_least: false, best: Best::None })
            }
            StateKind::Moments => StateData::Moments(Box::default()),
            StateKind::Distinct => StateData::Distinct(Box::default()),
            StateKind::Frequencies => StateData::Frequencies(Box::default()),
            StateKind::FromNewest(distance) => {
                StateData::Picked { distance: Some(distance), seen: 0, value: Value::Null }
            }
            StateKind::Oldest => StateData::Picked { distance: None, seen: 0, value: Value::Null },
        })
    }

    /// Adds the values of a block.
    pub fn add(&mut self, lane: ValueLane<'_>) {
        match &mut self.0 {
            StateData::Count(count) => *count += lane.len() as u64,
            StateData::Total(sums) => match lane {
                ValueLane::Integers(values) => sums.add_integers(values),
                ValueLane::Floats(values) => sums.add_floats(values),
                ValueLane::Texts(_) | ValueLane::ShortTexts(_) | ValueLane::Rows(_) => {
                    debug_assert!(false, "totals are of numbers");
                }
            },
            StateData::Extreme(extreme) => extreme.add(lane),
            StateData::Moments(moments) => match lane {
                ValueLane::Floats(values) => values.iter().for_each(|value| moments.add(*value)),
                _ => debug_assert!(false, "moments are of floats"),
            },
            StateData::Distinct(distinct) => distinct.add(lane),
            StateData::Frequencies(frequencies) => frequencies.add(lane),
            StateData::Picked { .. } => debug_assert!(false, "a picked row is not in a lane"),
        }
    }

    /// Adds a block of so many rows to a state that picks a row; `value` returns the value of one
    /// of them, counted from the newest.
    pub fn pick<'a>(&mut self, rows: usize, value: impl FnOnce(usize) -> Datum<'a>) {
        let StateData::Picked { distance, seen, value: picked } = &mut self.0 else {
            debug_assert!(false, "only some states pick");
            return;
        };
        let before = *seen;
        *seen += rows;
        let row = match distance {
            Some(distance) => distance.checked_sub(before).filter(|row| *row < rows),
            None => rows.checked_sub(1),
        };
        if let Some(row) = row {
            *picked = value(row).to_value();
        }
    }

    /// Computes a result from the state, as [`FoldState::answer`] does, and writes it to `out`. A value
    /// that is returned through memory is copied in other pieces than it was written in, which takes
    /// the processor longer than to compute it.
    #[inline]
    pub fn write_answer<'a>(&self, answer: &Answer, arena: &'a Arena, out: &mut Datum<'a>) {
        match (&self.0, &answer.0) {
            (StateData::Total(sums), AnswerKind::Total(answer)) => answer.write(sums, out),
            (StateData::Extreme(ExtremeState { best, .. }), AnswerKind::Extreme(data_type)) => {
                match (best, data_type) {
                    (Best::Integer(value), DataType::BigInt) => *out = Datum::BigInt(*value),
                    (Best::Float(value), DataType::Double) => *out = Datum::Double(value.get()),
                    _ => *out = self.answer(answer, arena),
                }
            }
            _ => *out = self.answer(answer, arena),
        }
    }

    /// Computes a result from the state, without changing it.
    pub fn answer<'a>(&self, answer: &Answer, arena: &'a Arena) -> Datum<'a> {
        match (&self.0, &answer.0) {
            (StateData::Count(count), AnswerKind::Count) => {
                Datum::BigInt(i64::try_from(*count).expect("a count of rows"))
            }
            (StateData::Total(sums), AnswerKind::Total(answer)) => answer.of(sums),
            (StateData::Extreme(extreme), AnswerKind::Extreme(data_type)) => {
                extreme.answer(data_type, arena)
            }
            (StateData::Moments(moments), AnswerKind::Moment(answer)) => answer.of(moments),
            (StateData::Distinct(distinct), AnswerKind::Distinct) => {
                Datum::BigInt(i64::try_from(distinct.count()).expect("a count of rows"))
            }
            (StateData::Frequencies(frequencies), AnswerKind::Frequencies(answer)) => {
                frequencies.answer(answer, arena)
            }
            (StateData::Picked { value, .. }, AnswerKind::Picked) => match value.as_scalar() {
                Some(Datum::String(text)) => Datum::String(arena.alloc_str(text)),
                Some(scalar) => super::position::without_text(scalar),
                None => Datum::Null,
            },
            _ => {
                debug_assert!(false, "a fold's answer goes with its kind of state");
                Datum::Null
            }
        }
    }

    /// Returns the approximate number of bytes that stay allocated after [`FoldState::reset`].
    pub fn kept_bytes(&self) -> usize {
        match &self.0 {
            StateData::Distinct(distinct) => distinct.kept_bytes(),
            StateData::Frequencies(frequencies) => frequencies.kept_bytes(),
            StateData::Count(_)
            | StateData::Total(_)
            | StateData::Moments(_)
            | StateData::Extreme(_)
            | StateData::Picked { .. } => 0,
        }
    }

    /// Removes every row, without freeing memory.
    pub fn reset(&mut self) {
        match &mut self.0 {
            StateData::Count(count) => *count = 0,
            StateData::Total(sums) => sums.reset(),
            StateData::Extreme(extreme) => extreme.best.clear(),
            StateData::Moments(moments) => moments.reset(),
            StateData::Distinct(distinct) => distinct.reset(),
            StateData::Frequencies(frequencies) => frequencies.reset(),
            StateData::Picked { seen, value, .. } => (*seen, *value) = (0, Value::Null),
        }
    }
}

/// The state of the least or greatest value.
#[derive(Debug)]
struct ExtremeState {
    is_least: bool,
    best: Best,
}

/// The best value so far.
#[derive(Debug)]
enum Best {
    None,
    Integer(i64),
    Float(TotalFloat),
    /// The text, and whether there is one: the buffer is reused.
    Text(String, bool),
}

impl Best {
    fn clear(&mut self) {
        match self {
            Self::Text(_, is_there) => *is_there = false,
            other => *other = Self::None,
        }
    }
}

impl ExtremeState {
    fn add(&mut self, lane: ValueLane<'_>) {
        match lane {
            ValueLane::Integers(values) => {
                let Some(first) = values.first().copied() else { return };
                let better = if self.is_least { i64::min } else { i64::max };
                let best = values.iter().copied().fold(first, better);
                match &mut self.best {
                    Best::Integer(known) if self.is_least => *known = best.min(*known),
                    Best::Integer(known) => *known = best.max(*known),
                    other => *other = Best::Integer(best),
                }
            }
            ValueLane::Floats(values) => {
                let Some(best) = best_float(values, self.is_least) else { return };
                match &mut self.best {
                    Best::Float(known) if self.is_least => *known = best.min(*known),
                    Best::Float(known) => *known = best.max(*known),
                    other => *other = Best::Float(best),
                }
            }
            ValueLane::Texts(values) => {
                let texts = values.iter();
                let best = if self.is_least { texts.min() } else { texts.max() };
                let Some(best) = best.copied() else { return };
                self.add_text(best);
            }
            ValueLane::ShortTexts(values) => {
                let texts = values.iter().map(ShortText::as_str);
                let best = if self.is_least { texts.min() } else { texts.max() };
                best.into_iter().for_each(|best| self.add_text(best));
            }
            ValueLane::Rows(_) => debug_assert!(false, "an extreme is of values"),
        }
    }

    fn add_text(&mut self, text: &str) {
        match &mut self.best {
            Best::Text(known, true) => {
                let known_text = known.as_str();
                let is_better = if self.is_least { text < known_text } else { text > known_text };
                if is_better {
                    known.clear();
                    known.push_str(text);
                }
            }
            Best::Text(buffer, is_there) => {
                buffer.clear();
                buffer.push_str(text);
                *is_there = true;
            }
            other => *other = Best::Text(text.to_owned(), true),
        }
    }

    fn answer<'a>(&self, data_type: &DataType, arena: &'a Arena) -> Datum<'a> {
        let key = match &self.best {
            Best::None | Best::Text(_, false) => return Datum::Null,
            Best::Integer(value) => KeyRef::Integer(*value),
            Best::Float(value) => KeyRef::Float(*value),
            Best::Text(text, true) => KeyRef::Text(text),
        };
        key.datum_in(data_type, arena)
    }
}

/// Returns the least or greatest float in the total order. Float comparisons find it, unless there
/// are NaN or zeros, which they do not order: then the values are compared again.
fn best_float(values: &[f64], is_least: bool) -> Option<TotalFloat> {
    let (best, has_nan) = match is_least {
        true => best_number(values, |value, best| value < best),
        false => best_number(values, |value, best| value > best),
    }?;
    if !has_nan && best != 0.0 {
        return Some(TotalFloat::new(best));
    }
    let values = values.iter().map(|value| TotalFloat::new(*value));
    if is_least { values.min() } else { values.max() }
}

/// Returns the best of some values that are no NaN, and whether one of them is NaN. Four searches go
/// on side by side, so that none waits for the comparison before it.
#[inline]
fn best_number(values: &[f64], is_better: impl Fn(f64, f64) -> bool) -> Option<(f64, bool)> {
    const SEARCHES: usize = 4;
    let better = |value: f64, best: f64| if is_better(value, best) { value } else { best };
    let mut best = [*values.first()?; SEARCHES];
    let mut has_nan = false;
    let (blocks, rest) = values.as_chunks::<SEARCHES>();
    for block in blocks {
        for (best, value) in best.iter_mut().zip(block) {
            has_nan |= value.is_nan();
            *best = better(*value, *best);
        }
    }
    for value in rest {
        has_nan |= value.is_nan();
        best[0] = better(*value, best[0]);
    }
    Some((best.into_iter().fold(best[0], |all, one| better(one, all)), has_nan))
}

//! States that take in a frame block by block: what request mode runs instead of an accumulator,
//! where an aggregate has a [`Fold`].
//!
//! An [`Accumulator`](super::Accumulator) is called for each row and looks at each value to see
//! what it is. A [`State`] is given a [`Lane`]: the values of one expression in many rows, NULLs
//! and rows that do not count left out, of one representation. Aggregates that a state of one
//! kind can answer share it: `count`, `sum` and `avg` of one expression are three [`Answer`]s of
//! two states, and so is the variance family of one.
//!
//! Blocks come newest first and nothing is removed; within a block of values, no answer depends on
//! their order. What an answer is, is defined by the
//! accumulator; `tests` hold each state to it.

use lockstep_row::{Arena, DataType, Datum, ShortText, Value};

use super::{
    distinct::Distinct,
    key::{KeyRef, TotalFloat},
    moment::MomentAnswer,
    multiset::{Frequencies, Question},
    total::{Sums, TotalAnswer},
};
use crate::exact_sum::ExactMoments;

/// How an aggregate is computed from lanes.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The argument whose values are folded; `None` where rows are counted.
    pub value: Option<usize>,
    /// Which rows count.
    pub condition: Option<Condition>,
    /// What keeps them.
    pub state: StateKind,
    /// What is asked of the state.
    pub answer: Answer,
}

/// Which rows count, beside those whose value is NULL, which do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// The argument that must be true.
    pub argument: usize,
    /// Whether a value of zero does not count either.
    pub passes_zero: bool,
}

/// Kinds of states. Two calls over the same rows and values with the same kind share a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// How many rows.
    Count,
    /// Their number and their exact sum.
    Total,
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
    /// Number, sum and sum of squares.
    Moments,
    /// The different values.
    Distinct,
    /// Each value and how often it occurs.
    Frequencies,
    /// The value, NULL included, of the row with this distance from the newest, which is 0.
    FromNewest(usize),
    /// The value, NULL included, of the oldest row.
    Oldest,
}

impl StateKind {
    /// Whether the state keeps the value of one row, and is fed by [`State::pick`].
    pub fn picks(self) -> bool {
        matches!(self, Self::FromNewest(_) | Self::Oldest)
    }

    /// Whether the state keeps values of many rows.
    pub fn keeps_values(self) -> bool {
        matches!(self, Self::Distinct | Self::Frequencies)
    }
}

/// What is asked of a state.
#[derive(Debug, Clone)]
pub struct Answer(pub(super) Asked);

#[derive(Debug, Clone)]
pub(super) enum Asked {
    Count,
    Total(TotalAnswer),
    /// The type of the value.
    Extreme(DataType),
    Moment(MomentAnswer),
    Distinct,
    Frequencies(Question),
    Picked,
}

/// The values of one expression in the rows of a block that count, in any order.
#[derive(Debug, Clone, Copy)]
pub enum Lane<'l> {
    /// Integers, TIMESTAMPs, DATEs, and BOOLs as 0 and 1.
    Integers(&'l [i64]),
    /// FLOATs, widened, and DOUBLEs.
    Floats(&'l [f64]),
    /// STRINGs.
    Texts(&'l [&'l str]),
    /// STRINGs that are all short.
    ShortTexts(&'l [ShortText]),
    /// Only how many there are.
    Rows(usize),
}

impl Lane<'_> {
    /// How many rows count.
    pub fn len(self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::ShortTexts(values) => values.len(),
            Self::Rows(count) => count,
        }
    }

    /// Whether no row counts.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The running state of one or several aggregates.
#[derive(Debug)]
pub struct State(Kept);

#[derive(Debug)]
enum Kept {
    Count(u64),
    Total(Sums),
    Extreme(Extreme),
    Moments(ExactMoments),
    Distinct(Distinct),
    Frequencies(Frequencies),
    Picked { distance: Option<usize>, seen: usize, value: Value },
}

impl State {
    /// Before the first row.
    pub fn new(kind: StateKind) -> Self {
        Self(match kind {
            StateKind::Count => Kept::Count(0),
            StateKind::Total => Kept::Total(Sums::default()),
            StateKind::Least => Kept::Extreme(Extreme { is_least: true, best: Best::None }),
            StateKind::Greatest => Kept::Extreme(Extreme { is_least: false, best: Best::None }),
            StateKind::Moments => Kept::Moments(ExactMoments::default()),
            StateKind::Distinct => Kept::Distinct(Distinct::default()),
            StateKind::Frequencies => Kept::Frequencies(Frequencies::default()),
            StateKind::FromNewest(distance) => {
                Kept::Picked { distance: Some(distance), seen: 0, value: Value::Null }
            }
            StateKind::Oldest => Kept::Picked { distance: None, seen: 0, value: Value::Null },
        })
    }

    /// Takes in a block.
    pub fn add(&mut self, lane: Lane<'_>) {
        match &mut self.0 {
            Kept::Count(count) => *count += lane.len() as u64,
            Kept::Total(sums) => match lane {
                Lane::Integers(values) => sums.add_integers(values),
                Lane::Floats(values) => sums.add_floats(values),
                Lane::Texts(_) | Lane::ShortTexts(_) | Lane::Rows(_) => {
                    debug_assert!(false, "totals are of numbers");
                }
            },
            Kept::Extreme(extreme) => extreme.add(lane),
            Kept::Moments(moments) => match lane {
                Lane::Floats(values) => values.iter().for_each(|value| moments.add(*value)),
                _ => debug_assert!(false, "moments are of floats"),
            },
            Kept::Distinct(distinct) => distinct.add(lane),
            Kept::Frequencies(frequencies) => frequencies.add(lane),
            Kept::Picked { .. } => debug_assert!(false, "a picked row is not in a lane"),
        }
    }

    /// Tells a state that picks a row about a block of so many rows; `value` gives the value of
    /// one of them, counted from the newest.
    pub fn pick<'a>(&mut self, rows: usize, value: impl FnOnce(usize) -> Datum<'a>) {
        let Kept::Picked { distance, seen, value: picked } = &mut self.0 else {
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

    /// What the rows taken in come to. Does not change the state.
    pub fn answer<'a>(&self, answer: &Answer, arena: &'a Arena) -> Datum<'a> {
        match (&self.0, &answer.0) {
            (Kept::Count(count), Asked::Count) => {
                Datum::BigInt(i64::try_from(*count).expect("a count of rows"))
            }
            (Kept::Total(sums), Asked::Total(answer)) => answer.of(sums),
            (Kept::Extreme(extreme), Asked::Extreme(data_type)) => extreme.answer(data_type, arena),
            (Kept::Moments(moments), Asked::Moment(answer)) => answer.of(moments),
            (Kept::Distinct(distinct), Asked::Distinct) => {
                Datum::BigInt(i64::try_from(distinct.count()).expect("a count of rows"))
            }
            (Kept::Frequencies(frequencies), Asked::Frequencies(question)) => {
                frequencies.answer(question, arena)
            }
            (Kept::Picked { value, .. }, Asked::Picked) => match value.as_scalar() {
                Some(Datum::String(text)) => Datum::String(arena.alloc_str(text)),
                Some(scalar) => super::position::without_text(scalar),
                None => Datum::Null,
            },
            _ => {
                debug_assert!(false, "a state is asked for what it keeps");
                Datum::Null
            }
        }
    }

    /// About how many bytes it keeps, whatever rows it has taken in, for frames to come.
    pub fn kept_bytes(&self) -> usize {
        match &self.0 {
            Kept::Distinct(distinct) => distinct.kept_bytes(),
            Kept::Frequencies(frequencies) => frequencies.kept_bytes(),
            Kept::Count(_)
            | Kept::Total(_)
            | Kept::Moments(_)
            | Kept::Extreme(_)
            | Kept::Picked { .. } => 0,
        }
    }

    /// Forgets every row and keeps the memory.
    pub fn reset(&mut self) {
        match &mut self.0 {
            Kept::Count(count) => *count = 0,
            Kept::Total(sums) => sums.reset(),
            Kept::Extreme(extreme) => extreme.best.clear(),
            Kept::Moments(moments) => moments.reset(),
            Kept::Distinct(distinct) => distinct.reset(),
            Kept::Frequencies(frequencies) => frequencies.reset(),
            Kept::Picked { seen, value, .. } => (*seen, *value) = (0, Value::Null),
        }
    }
}

/// The best value so far.
#[derive(Debug)]
struct Extreme {
    is_least: bool,
    best: Best,
}

#[derive(Debug)]
enum Best {
    None,
    Integer(i64),
    Float(TotalFloat),
    /// The text, and whether there is one: the memory is kept.
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

impl Extreme {
    fn add(&mut self, lane: Lane<'_>) {
        match lane {
            Lane::Integers(values) => {
                let best = if self.is_least { values.iter().min() } else { values.iter().max() };
                let Some(best) = best.copied() else { return };
                match &mut self.best {
                    Best::Integer(kept) if self.is_least => *kept = best.min(*kept),
                    Best::Integer(kept) => *kept = best.max(*kept),
                    other => *other = Best::Integer(best),
                }
            }
            Lane::Floats(values) => {
                let Some(best) = best_float(values, self.is_least) else { return };
                match &mut self.best {
                    Best::Float(kept) if self.is_least => *kept = best.min(*kept),
                    Best::Float(kept) => *kept = best.max(*kept),
                    other => *other = Best::Float(best),
                }
            }
            Lane::Texts(values) => {
                let texts = values.iter();
                let best = if self.is_least { texts.min() } else { texts.max() };
                let Some(best) = best.copied() else { return };
                self.add_text(best);
            }
            Lane::ShortTexts(values) => {
                let texts = values.iter().map(ShortText::as_str);
                let best = if self.is_least { texts.min() } else { texts.max() };
                best.into_iter().for_each(|best| self.add_text(best));
            }
            Lane::Rows(_) => debug_assert!(false, "an extreme is of values"),
        }
    }

    fn add_text(&mut self, text: &str) {
        match &mut self.best {
            Best::Text(kept, true) => {
                let kept_text = kept.as_str();
                let is_better = if self.is_least { text < kept_text } else { text > kept_text };
                if is_better {
                    kept.clear();
                    kept.push_str(text);
                }
            }
            Best::Text(kept, is_there) => {
                kept.clear();
                kept.push_str(text);
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

/// The least or greatest float in the total order. Plain comparisons find it, unless there are
/// NaN or zeros, about which they say nothing: then each value is looked at again.
fn best_float(values: &[f64], is_least: bool) -> Option<TotalFloat> {
    let first = *values.first()?;
    let mut has_nan = false;
    let mut best = first;
    for value in values {
        has_nan |= value.is_nan();
        let is_better = if is_least { *value < best } else { *value > best };
        best = if is_better { *value } else { best };
    }
    if !has_nan && best != 0.0 {
        return Some(TotalFloat::new(best));
    }
    let values = values.iter().map(|value| TotalFloat::new(*value));
    if is_least { values.min() } else { values.max() }
}

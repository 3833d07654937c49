//! The states of aggregates: what is stored of the rows that an aggregate was computed over.
//!
//! There is one state for each aggregate, whoever computes it. Request mode adds the rows of a frame
//! from the newest to the oldest, by rows or by blocks of values; batch mode adds them at the newest
//! end and removes them at the oldest; GROUP BY adds them in event order; partial results are merged
//! with their neighbours and encoded. The result depends on the rows and on their order in time
//! alone, never on which of these computed it (promise L2).
//!
//! An [`AggregateState`] is updated with a [`ValueLane`], the values of one expression in many rows,
//! in one representation, without NULLs and without rows that do not count; or with the arguments of
//! one row, by [`BoundAggregate`](super::BoundAggregate). Aggregates over the same values share a
//! state: `count`, `sum` and `avg` of one expression are three [`Answer`]s of two states, and the
//! variance family is several of one. Aggregates that need whole rows have a [`RowState`].
//!
//! # Laws
//!
//! `tests::laws` proves them for every aggregate: a merge of neighbours is the state of all their
//! rows, however they were split and in which order the pieces were merged; `decode` undoes
//! `encode`; a removal leaves the state of the rows that remain. [`StateClass`] says which of them
//! an aggregate has.

use std::{any::Any, fmt, sync::Arc};

use lockstep_row::{Arena, DataType, Datum, ShortText};

use super::{
    dictionary::ValueDictionary,
    distinct::Distinct,
    drawdown::{Drawdown, SlidingDrawdown},
    encoding::{StateReader, put_unsigned},
    extreme::{ExtremeQueue, ExtremeState},
    frequencies::Frequencies,
    key::{KeyRef, TotalFloat},
    moment::MomentAnswer,
    multiset::MultisetAnswer,
    total::{Sums, TotalAnswer},
};
use crate::exact_sum::ExactMoments;

/// An end of rows in event order: where a row is added, or where the rows of another state lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsEnd {
    /// Before all rows of the state.
    Oldest,
    /// After all rows of the state.
    Newest,
}

/// How a state is used, which decides how the rows are represented and never what the result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateUse {
    /// Rows are added at one end, states are merged and encoded; nothing is removed.
    Fold,
    /// Rows are added at the newest end and removed at the oldest, with a result for each step.
    Slide,
}

/// What a state can do beyond adding rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateClass {
    /// States are merged, and a row is removed by undoing its addition.
    Retractable,
    /// States are merged; a removal needs more than the state.
    Mergeable,
    /// States of rows that follow each other are merged, the older with the newer.
    Ordered,
    /// The rows themselves are the state, for this reason.
    Rows(&'static str),
}

impl StateClass {
    /// Returns the word for the class in the function reference and in EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retractable => "retractable",
            Self::Mergeable => "mergeable",
            Self::Ordered => "ordered merge",
            Self::Rows(_) => "rows",
        }
    }
}

/// How an aggregate is computed from one value of each row.
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
    /// The type whose zero, or empty text, NULL counts as; elsewhere rows with NULL do not count.
    pub(super) null_as_zero_of: Option<DataType>,
}

impl Fold {
    /// Makes a fold of the values of an argument that are not NULL.
    pub(super) fn new(value: Option<usize>, state: StateKind, answer: AnswerKind) -> Self {
        Self { value, condition: None, state, answer: Answer(answer), null_as_zero_of: None }
    }

    /// Returns whether blocks of values without NULLs are enough.
    pub fn takes_blocks(&self) -> bool {
        self.null_as_zero_of.is_none() && self.state != StateKind::Drawdown
    }

    /// Returns the argument that is folded, and the condition with its argument, by what the caller calls the
    /// arguments. Folds of one kind of state with equal sources have equal states, whatever they answer;
    /// `None` where blocks are not enough.
    pub fn source<A: Copy>(&self, arguments: &[A]) -> Option<FoldSource<A>> {
        let condition = self.condition;
        self.takes_blocks().then(|| FoldSource {
            value: self.value.map(|value| arguments[value]),
            condition: condition.map(|of| (arguments[of.argument], of.excludes_zero)),
        })
    }

    /// Returns the value of a row that counts: true where rows are counted.
    #[inline]
    pub(super) fn counted<'a>(&self, arguments: &[Datum<'a>]) -> Option<Datum<'a>> {
        let value = match self.value {
            None => Datum::Bool(true),
            Some(value) => match (arguments[value], &self.null_as_zero_of) {
                (Datum::Null, None) => return None,
                (Datum::Null, Some(DataType::String)) => Datum::String(""),
                (Datum::Null, Some(float)) if float.is_float() => Datum::Double(0.0),
                (Datum::Null, Some(_)) => Datum::BigInt(0),
                (value, _) => value,
            },
        };
        match self.condition {
            None => Some(value),
            Some(condition) => condition.includes(arguments, value).then_some(value),
        }
    }
}

/// What a fold reads of a row; see [`Fold::source`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldSource<A> {
    /// The argument that is folded.
    pub value: Option<A>,
    /// The argument that must be true, and whether rows whose value is zero do not count.
    pub condition: Option<(A, bool)>,
}

/// A condition on the rows that count. Rows whose value is NULL never count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCondition {
    /// The argument that must be true.
    pub argument: usize,
    /// Whether rows whose value is zero do not count.
    pub excludes_zero: bool,
}

impl RowCondition {
    fn includes(self, arguments: &[Datum<'_>], value: Datum<'_>) -> bool {
        let is_zero = || match value {
            Datum::Float(value) => value == 0.0,
            Datum::Double(value) => value == 0.0,
            value => value.as_i64() == Some(0),
        };
        arguments[self.argument] == Datum::Bool(true) && !(self.excludes_zero && is_zero())
    }
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
    /// The greatest fall from a value to a later one, with the extremes.
    Drawdown,
}

impl StateKind {
    /// Returns whether the state has the values of many rows.
    pub fn keeps_values(self) -> bool {
        matches!(self, Self::Distinct | Self::Frequencies)
    }

    /// Returns what its states can do.
    pub fn class(self) -> StateClass {
        match self {
            Self::Count | Self::Total | Self::Moments | Self::Frequencies => {
                StateClass::Retractable
            }
            Self::Least | Self::Greatest | Self::Distinct => StateClass::Mergeable,
            Self::Drawdown => StateClass::Ordered,
        }
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
    Drawdown,
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

    /// Calls a function with each value.
    #[inline]
    fn for_each_key(&self, mut apply: impl FnMut(KeyRef<'_>)) {
        match self {
            Self::Integers(values) => {
                values.iter().for_each(|value| apply(KeyRef::Integer(*value)));
            }
            Self::Floats(values) => {
                values.iter().for_each(|value| apply(KeyRef::Float(TotalFloat::new(*value))));
            }
            Self::Texts(values) => values.iter().for_each(|text| apply(KeyRef::Text(text))),
            Self::ShortTexts(values) => {
                values.iter().for_each(|text| apply(KeyRef::Text(text.as_str())));
            }
            Self::Rows(_) => debug_assert!(false, "rows have no values"),
        }
    }
}

/// The state of an aggregate that needs more of a row than one value.
pub trait RowState: Send + Sync + Any {
    /// Adds one row at an end.
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd);
    /// Removes the oldest row, whose arguments are passed again. [`StateUse::Slide`] only.
    fn remove(&mut self, arguments: &[Datum<'_>]);
    /// Returns the aggregate of the rows. Does not change the state.
    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a>;
    /// Returns the aggregate of the rows and of one more at the newest end. The state is as before
    /// afterwards. [`StateUse::Slide`] only.
    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a>;
    /// Returns the approximate number of bytes of the state outside itself. Where states are merged,
    /// in O(1): GROUP BY calls it for each row.
    fn heap_bytes(&self) -> usize;
    /// Removes every row, without freeing memory.
    fn reset(&mut self);
    /// Returns it as a state that is merged and encoded; `None` where the rows are the state.
    fn as_partial(&self) -> Option<&dyn PartialState> {
        None
    }
    /// Returns the same to be changed.
    fn as_partial_mut(&mut self) -> Option<&mut dyn PartialState> {
        None
    }
}

/// A [`RowState`] that is merged and encoded. [`StateUse::Fold`] only.
pub trait PartialState {
    /// Adds the rows of another state of the same aggregate, which lie at an end of its own.
    fn merge(&mut self, other: &dyn Any, end: RowsEnd);
    /// Appends the state to some bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads what `encode` wrote into an empty state; `None` for damaged bytes.
    fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()>;
    /// Returns it as a state whose values nodes have by their numbers; `None` where it has none.
    fn as_numbered(&self) -> Option<&dyn NumberedState> {
        None
    }
    /// Returns the same to be changed.
    fn as_numbered_mut(&mut self) -> Option<&mut dyn NumberedState> {
        None
    }
}

/// A [`PartialState`] with an entry for each of its values, whose nodes may have the numbers of the
/// values in a dictionary.
pub trait NumberedState {
    /// See [`AggregateState::encode_node`].
    fn encode_node(&self, rows: u64, dictionary: &mut Arc<ValueDictionary>, out: &mut Vec<u8>);
    /// See [`AggregateState::merge_node`].
    fn merge_node(&mut self, reader: &mut StateReader<'_>, end: RowsEnd) -> Option<()>;
    /// See [`AggregateState::resolve`].
    fn resolve(&mut self, dictionary: &ValueDictionary, end: RowsEnd) -> Option<()>;
}

/// The running state of one or several aggregates.
pub struct AggregateState(pub(super) StateData);

pub(super) enum StateData {
    Count(u64),
    Total(Sums),
    Extreme(ExtremeState),
    // In boxes, so that the states of many sums and extremes lie close together.
    Moments(Box<ExactMoments>),
    Distinct(Box<Distinct>),
    Frequencies(Box<Frequencies>),
    Drawdown(Box<Drawdown>),
    SlidingExtreme(Box<ExtremeQueue>),
    SlidingDrawdown(Box<SlidingDrawdown>),
    Rows(Box<dyn RowState>),
}

const _: () = assert!(size_of::<AggregateState>() <= 80, "a scan may have thousands of states");

impl fmt::Debug for AggregateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregateState").field("kind", &self.kind()).finish_non_exhaustive()
    }
}

impl AggregateState {
    /// Makes a state without rows.
    pub fn new(kind: StateKind, used: StateUse) -> Self {
        let slides = used == StateUse::Slide;
        Self(match kind {
            StateKind::Count => StateData::Count(0),
            StateKind::Total => StateData::Total(Sums::default()),
            StateKind::Least | StateKind::Greatest => {
                let is_least = kind == StateKind::Least;
                match slides {
                    false => StateData::Extreme(ExtremeState::new(is_least)),
                    true => StateData::SlidingExtreme(Box::new(ExtremeQueue::new(is_least))),
                }
            }
            StateKind::Moments => StateData::Moments(Box::default()),
            // A removal has to know whether a value occurs again.
            StateKind::Distinct if slides => StateData::Frequencies(Box::default()),
            StateKind::Distinct => StateData::Distinct(Box::default()),
            StateKind::Frequencies => StateData::Frequencies(Box::default()),
            StateKind::Drawdown if slides => StateData::SlidingDrawdown(Box::default()),
            StateKind::Drawdown => StateData::Drawdown(Box::default()),
        })
    }

    /// Returns a number that identifies the kind in the encoding.
    fn kind(&self) -> u8 {
        match &self.0 {
            StateData::Count(_) => 1,
            StateData::Total(_) => 2,
            StateData::Extreme(extreme) => 3 + u8::from(extreme.is_least()),
            StateData::Moments(_) => 5,
            StateData::Distinct(_) => 6,
            StateData::Frequencies(_) => 7,
            StateData::Drawdown(_) => 8,
            StateData::Rows(_) => 9,
            StateData::SlidingExtreme(_) | StateData::SlidingDrawdown(_) => 0,
        }
    }

    /// Adds the values of a block: in any order, unless the state slides, where they come at the newest
    /// end in the order of their rows.
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
            StateData::SlidingExtreme(queue) => lane.for_each_key(|key| queue.add(key)),
            StateData::Drawdown(_) | StateData::SlidingDrawdown(_) | StateData::Rows(_) => {
                debug_assert!(false, "the state takes rows");
            }
        }
    }

    /// Removes the values of the oldest rows that count, which are passed again in their order.
    /// [`StateUse::Slide`] only.
    pub fn remove(&mut self, lane: ValueLane<'_>) {
        match &mut self.0 {
            StateData::Count(count) => {
                debug_assert!(*count >= lane.len() as u64, "a row that leaves was added");
                *count -= lane.len() as u64;
            }
            StateData::Total(sums) => match lane {
                ValueLane::Integers(values) => sums.remove_integers(values),
                ValueLane::Floats(values) => sums.remove_floats(values),
                ValueLane::Texts(_) | ValueLane::ShortTexts(_) | ValueLane::Rows(_) => {
                    debug_assert!(false, "totals are of numbers");
                }
            },
            StateData::Moments(moments) => match lane {
                ValueLane::Floats(values) => values.iter().for_each(|value| moments.remove(*value)),
                _ => debug_assert!(false, "moments are of floats"),
            },
            StateData::Frequencies(frequencies) => frequencies.remove(lane),
            StateData::SlidingExtreme(queue) => (0..lane.len()).for_each(|_| queue.remove()),
            StateData::Extreme(_)
            | StateData::Distinct(_)
            | StateData::Drawdown(_)
            | StateData::SlidingDrawdown(_)
            | StateData::Rows(_) => debug_assert!(false, "the state does not slide over blocks"),
        }
    }

    /// Adds the value of a row that counts at an end.
    #[inline]
    pub(super) fn add_value(&mut self, value: Datum<'_>, end: RowsEnd) {
        match &mut self.0 {
            StateData::Count(count) => *count += 1,
            StateData::Total(sums) => sums.add(value),
            StateData::Moments(moments) => {
                value.as_f64().into_iter().for_each(|value| moments.add(value));
            }
            StateData::Drawdown(drawdown) => {
                value.as_f64().into_iter().for_each(|value| drawdown.add(value, end));
            }
            StateData::SlidingDrawdown(drawdown) => {
                debug_assert_eq!(end, RowsEnd::Newest, "rows slide in at the newest end");
                value.as_f64().into_iter().for_each(|value| drawdown.add(value));
            }
            other => {
                let Some(key) = KeyRef::of(value) else { return };
                match other {
                    StateData::Extreme(extreme) => extreme.add_key(key),
                    StateData::SlidingExtreme(queue) => {
                        debug_assert_eq!(end, RowsEnd::Newest, "rows slide in at the newest end");
                        queue.add(key);
                    }
                    StateData::Distinct(distinct) => distinct.add_key(key),
                    StateData::Frequencies(frequencies) => frequencies.add_key(key, 1),
                    _ => debug_assert!(false, "the state takes rows"),
                }
            }
        }
    }

    /// Removes the value of the oldest row that counts.
    #[inline]
    pub(super) fn remove_value(&mut self, value: Datum<'_>) {
        match &mut self.0 {
            StateData::Count(count) => {
                debug_assert!(*count > 0, "a row that leaves was added");
                *count -= 1;
            }
            StateData::Total(sums) => sums.remove(value),
            StateData::Moments(moments) => {
                value.as_f64().into_iter().for_each(|value| moments.remove(value));
            }
            StateData::Frequencies(frequencies) => {
                KeyRef::of(value).into_iter().for_each(|key| frequencies.remove_key(key));
            }
            StateData::SlidingExtreme(queue) => queue.remove(),
            StateData::SlidingDrawdown(drawdown) => drawdown.remove(),
            StateData::Extreme(_)
            | StateData::Distinct(_)
            | StateData::Drawdown(_)
            | StateData::Rows(_) => debug_assert!(false, "the state does not slide"),
        }
    }

    /// Adds the rows of another state of the same aggregate, which lie at an end of its own.
    /// Returns false where the rows are the state.
    pub fn merge(&mut self, other: &Self, end: RowsEnd) -> bool {
        match (&mut self.0, &other.0) {
            (StateData::Count(own), StateData::Count(other)) => *own += *other,
            (StateData::Total(own), StateData::Total(other)) => own.merge(other),
            (StateData::Extreme(own), StateData::Extreme(other)) => own.merge(other),
            (StateData::Moments(own), StateData::Moments(other)) => own.merge(other),
            (StateData::Distinct(own), StateData::Distinct(other)) => own.merge(other),
            (StateData::Frequencies(own), StateData::Frequencies(other)) => own.merge(other),
            (StateData::Drawdown(own), StateData::Drawdown(other)) => own.merge(other, end),
            (StateData::Rows(own), StateData::Rows(other)) => {
                let other: &dyn RowState = other.as_ref();
                match own.as_partial_mut() {
                    Some(partial) => partial.merge(other as &dyn Any, end),
                    None => return false,
                }
            }
            _ => {
                debug_assert!(false, "states of one aggregate are merged");
                return false;
            }
        }
        true
    }

    /// Appends the state to some bytes. Returns false where the rows are the state.
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        out.extend([ENCODING_VERSION, self.kind()]);
        match &self.0 {
            StateData::Count(count) => put_unsigned(out, (*count).into()),
            StateData::Total(sums) => sums.encode(out),
            StateData::Extreme(extreme) => extreme.encode(out),
            StateData::Moments(moments) => moments.encode(out),
            StateData::Distinct(distinct) => distinct.encode(out),
            StateData::Frequencies(frequencies) => frequencies.encode(out),
            StateData::Drawdown(drawdown) => drawdown.encode(out),
            StateData::Rows(rows) => match rows.as_partial() {
                Some(partial) => partial.encode(out),
                None => return false,
            },
            StateData::SlidingExtreme(_) | StateData::SlidingDrawdown(_) => return false,
        }
        true
    }

    /// Reads what `encode` wrote into an empty state of the same aggregate; `None` for damaged bytes
    /// and for those of another version or kind. The state has no meaning then.
    pub fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        if reader.byte()? != ENCODING_VERSION || reader.byte()? != self.kind() {
            return None;
        }
        match &mut self.0 {
            StateData::Count(count) => *count = reader.rows()?,
            StateData::Total(sums) => *sums = Sums::decode(reader)?,
            StateData::Extreme(extreme) => extreme.decode(reader)?,
            StateData::Moments(moments) => **moments = ExactMoments::decode(reader)?,
            StateData::Distinct(distinct) => distinct.decode(reader)?,
            StateData::Frequencies(frequencies) => frequencies.decode(reader)?,
            StateData::Drawdown(drawdown) => **drawdown = Drawdown::decode(reader)?,
            StateData::Rows(rows) => rows.as_partial_mut()?.decode(reader)?,
            StateData::SlidingExtreme(_) | StateData::SlidingDrawdown(_) => return None,
        }
        Some(())
    }

    /// Adds the rows of an encoded state of the same aggregate, which lie at an end of its own. `spare`
    /// is another state of the aggregate, whose rows are lost. `None` for damaged bytes; then the state
    /// has no meaning.
    pub fn merge_encoded(
        &mut self,
        reader: &mut StateReader<'_>,
        end: RowsEnd,
        spare: &mut Self,
    ) -> Option<()> {
        match &mut self.0 {
            StateData::Count(_) | StateData::Total(_) => self.merge_encoded_total(reader),
            // They decode into what they have, value by value.
            StateData::Extreme(_) | StateData::Distinct(_) | StateData::Frequencies(_) => {
                self.decode(reader)
            }
            _ => {
                spare.reset();
                spare.decode(reader)?;
                self.merge(spare, end).then_some(())
            }
        }
    }

    /// Adds the rows of an encoded count or sum.
    #[inline]
    fn merge_encoded_total(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        if reader.byte()? != ENCODING_VERSION || reader.byte()? != self.kind() {
            return None;
        }
        match &mut self.0 {
            StateData::Count(count) => *count = count.checked_add(reader.rows()?)?,
            StateData::Total(sums) => sums.merge_encoded(reader)?,
            _ => return None,
        }
        Some(())
    }

    /// Appends the state to a node over so many rows of a key. What it has for each of many values goes
    /// by the numbers of the values in a dictionary, which all nodes of the key share and which grows
    /// by those that are new. Returns false where the rows are the state.
    pub fn encode_node(
        &self,
        rows: u64,
        dictionary: &mut Arc<ValueDictionary>,
        out: &mut Vec<u8>,
    ) -> bool {
        let numbered: Option<&dyn NumberedState> = match &self.0 {
            StateData::Distinct(distinct) => Some(distinct.as_ref()),
            StateData::Frequencies(frequencies) => Some(frequencies.as_ref()),
            StateData::Rows(rows) => rows.as_partial().and_then(PartialState::as_numbered),
            _ => None,
        };
        let Some(numbered) = numbered else { return self.encode(out) };
        out.extend([ENCODING_VERSION, self.kind()]);
        numbered.encode_node(rows, dictionary, out);
        true
    }

    /// Adds the rows of a node, which lie at an end of its own, as [`AggregateState::merge_encoded`] does.
    /// Values that the node has by their numbers are added by [`AggregateState::resolve`], before which
    /// the state has no meaning. `None` for damaged bytes.
    pub fn merge_node(
        &mut self,
        reader: &mut StateReader<'_>,
        end: RowsEnd,
        spare: &mut Self,
    ) -> Option<()> {
        let kind = self.kind();
        let Some(numbered) = self.as_numbered_mut() else {
            return self.merge_encoded(reader, end, spare);
        };
        if reader.byte()? != ENCODING_VERSION || reader.byte()? != kind {
            return None;
        }
        numbered.merge_node(reader, end)
    }

    /// Reads a node over, whose rows are not added.
    pub fn skip_node(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        let kind = self.kind();
        self.reset();
        let read = match self.as_numbered_mut() {
            None => self.decode(reader),
            Some(numbered) => {
                if reader.byte()? != ENCODING_VERSION || reader.byte()? != kind {
                    return None;
                }
                numbered.merge_node(reader, RowsEnd::Oldest)
            }
        };
        self.reset();
        read
    }

    /// Adds the values that nodes of one key have by their numbers, after [`AggregateState::merge_node`].
    /// The rows of the nodes lie at an end of its own. `None` where a number is not in the dictionary.
    pub fn resolve(&mut self, dictionary: &ValueDictionary, end: RowsEnd) -> Option<()> {
        self.as_numbered_mut().map_or(Some(()), |numbered| numbered.resolve(dictionary, end))
    }

    fn as_numbered_mut(&mut self) -> Option<&mut dyn NumberedState> {
        match &mut self.0 {
            StateData::Distinct(distinct) => Some(distinct.as_mut()),
            StateData::Frequencies(frequencies) => Some(frequencies.as_mut()),
            StateData::Rows(rows) => rows.as_partial_mut()?.as_numbered_mut(),
            _ => None,
        }
    }

    /// Computes a result from the state, as [`AggregateState::answer`] does, and writes it to `out`.
    /// A value that is returned through memory is copied in other pieces than it was written in,
    /// which takes the processor longer than to compute it.
    #[inline]
    pub fn write_answer<'a>(&self, answer: &Answer, arena: &'a Arena, out: &mut Datum<'a>) {
        match (&self.0, &answer.0) {
            (StateData::Total(sums), AnswerKind::Total(answer)) => answer.write(sums, out),
            (StateData::Extreme(extreme), AnswerKind::Extreme(data_type)) => {
                extreme.write_answer(data_type, arena, out);
            }
            _ => *out = self.answer(answer, arena),
        }
    }

    /// Computes a result from the state, without changing it.
    pub fn answer<'a>(&self, answer: &Answer, arena: &'a Arena) -> Datum<'a> {
        let count = |count: usize| Datum::BigInt(i64::try_from(count).expect("a count of rows"));
        match (&self.0, &answer.0) {
            (StateData::Count(count), AnswerKind::Count) => {
                Datum::BigInt(i64::try_from(*count).expect("a count of rows"))
            }
            (StateData::Total(sums), AnswerKind::Total(answer)) => answer.of(sums),
            (StateData::Extreme(extreme), AnswerKind::Extreme(data_type)) => {
                extreme.answer(data_type, arena)
            }
            (StateData::SlidingExtreme(queue), AnswerKind::Extreme(data_type)) => {
                queue.answer(data_type, arena)
            }
            (StateData::Moments(moments), AnswerKind::Moment(answer)) => answer.of(moments),
            (StateData::Distinct(distinct), AnswerKind::Distinct) => count(distinct.count()),
            (StateData::Frequencies(frequencies), AnswerKind::Distinct) => {
                count(frequencies.distinct())
            }
            (StateData::Frequencies(frequencies), AnswerKind::Frequencies(answer)) => {
                frequencies.answer(answer, arena)
            }
            (StateData::Drawdown(drawdown), AnswerKind::Drawdown) => drawdown.answer(),
            (StateData::SlidingDrawdown(drawdown), AnswerKind::Drawdown) => drawdown.answer(),
            _ => {
                debug_assert!(false, "an answer goes with its kind of state");
                Datum::Null
            }
        }
    }

    /// Computes a result from the state and the value of one more row that counts, at the newest end,
    /// which is not added. [`StateUse::Slide`] only.
    pub(super) fn answer_with<'a>(
        &mut self,
        answer: &Answer,
        value: Datum<'_>,
        arena: &'a Arena,
    ) -> Datum<'a> {
        match (&self.0, &answer.0) {
            (StateData::SlidingExtreme(queue), AnswerKind::Extreme(data_type)) => {
                match KeyRef::of(value) {
                    Some(key) => queue.answer_with(key, data_type, arena),
                    None => queue.answer(data_type, arena),
                }
            }
            (StateData::SlidingDrawdown(drawdown), AnswerKind::Drawdown) => {
                drawdown.answer_with(value.as_f64())
            }
            // Which row is removed makes no difference to the others.
            _ => {
                self.add_value(value, RowsEnd::Newest);
                let found = self.answer(answer, arena);
                self.remove_value(value);
                found
            }
        }
    }

    /// Returns the approximate number of bytes that it has allocated.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            StateData::Count(_) | StateData::Extreme(_) => 0,
            StateData::Total(sums) => sums.heap_bytes(),
            StateData::Moments(_) => size_of::<ExactMoments>(),
            StateData::Distinct(distinct) => size_of::<Distinct>() + distinct.heap_bytes(),
            StateData::Frequencies(frequencies) => {
                size_of::<Frequencies>() + frequencies.heap_bytes()
            }
            StateData::Drawdown(_) => size_of::<Drawdown>(),
            StateData::SlidingExtreme(queue) => queue.heap_bytes(),
            StateData::SlidingDrawdown(drawdown) => drawdown.heap_bytes(),
            StateData::Rows(rows) => size_of_val(rows.as_ref()) + rows.heap_bytes(),
        }
    }

    /// Removes every row, without freeing memory.
    pub fn reset(&mut self) {
        match &mut self.0 {
            StateData::Count(count) => *count = 0,
            StateData::Total(sums) => sums.reset(),
            StateData::Extreme(extreme) => extreme.reset(),
            StateData::Moments(moments) => moments.reset(),
            StateData::Distinct(distinct) => distinct.reset(),
            StateData::Frequencies(frequencies) => frequencies.reset(),
            StateData::Drawdown(drawdown) => **drawdown = Drawdown::default(),
            StateData::SlidingExtreme(queue) => queue.reset(),
            StateData::SlidingDrawdown(drawdown) => drawdown.reset(),
            StateData::Rows(rows) => rows.reset(),
        }
    }
}

/// The first byte of an encoded state.
const ENCODING_VERSION: u8 = 1;

//! The states of one aggregate for many groups.
//!
//! GROUP BY has millions of them. Those of counts and sums are stored as they are, in 8 to 48 bytes
//! each; the others as [`AggregateState`]s.

use lockstep_row::{DataType, Datum};

use super::{
    BoundAggregate, StateForm,
    state::{AggregateState, RowsEnd, StateData, StateKind, StateUse},
    total::Sums,
};
use crate::exact_sum::ExactSum;

/// The states of the groups, by the numbers of the groups.
pub(crate) struct GroupStates {
    states: StateVec,
    /// The bytes that the states have allocated outside the vector.
    heap_bytes: usize,
}

/// States in their smallest form.
enum StateVec {
    Counts(Vec<u64>),
    Integers(Vec<IntegerTotal>),
    Floats(Vec<FloatTotal>),
    States(Vec<AggregateState>),
}

/// The number of some integers and their sum.
#[derive(Clone, Copy, Default)]
struct IntegerTotal {
    count: u64,
    /// In two halves, since 128 bits would be aligned to 16 bytes.
    sum: [u64; 2],
}

/// The number of some floats and their sum.
#[derive(Clone, Default)]
struct FloatTotal {
    count: u64,
    sum: ExactSum,
}

const _: () = assert!(size_of::<IntegerTotal>() == 24 && size_of::<FloatTotal>() <= 48);

impl IntegerTotal {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "cuts the number into its halves")]
    fn add(&mut self, value: i64) {
        let sum = self.sum().wrapping_add(value.into()).cast_unsigned();
        self.sum = [sum as u64, (sum >> 64) as u64];
        self.count += 1;
    }

    #[inline]
    fn sum(self) -> i128 {
        let [low, high] = self.sum;
        (u128::from(low) | (u128::from(high) << 64)).cast_signed()
    }
}

impl StateVec {
    fn of(aggregate: &BoundAggregate) -> Self {
        let StateForm::Fold(fold) = &aggregate.state else { return Self::States(Vec::new()) };
        match (fold.state, fold.value.map(|value| &aggregate.parameters[value])) {
            (StateKind::Count, _) => Self::Counts(Vec::new()),
            (StateKind::Total, Some(DataType::Float | DataType::Double)) => {
                Self::Floats(Vec::new())
            }
            (StateKind::Total, _) => Self::Integers(Vec::new()),
            _ => Self::States(Vec::new()),
        }
    }
}

impl GroupStates {
    /// Makes the states of no groups.
    pub(crate) fn new(aggregate: &BoundAggregate) -> Self {
        Self { states: StateVec::of(aggregate), heap_bytes: 0 }
    }

    /// Adds states without rows until there are so many.
    pub(crate) fn resize(&mut self, aggregate: &BoundAggregate, groups: usize) {
        debug_assert!(groups >= self.len(), "groups are not taken back");
        match &mut self.states {
            StateVec::Counts(counts) => counts.resize(groups, 0),
            StateVec::Integers(totals) => totals.resize(groups, IntegerTotal::default()),
            StateVec::Floats(totals) => totals.resize(groups, FloatTotal::default()),
            StateVec::States(states) => {
                let heap_bytes = &mut self.heap_bytes;
                states.resize_with(groups, || {
                    let state = aggregate.new_state(StateUse::Fold);
                    *heap_bytes += state.heap_bytes();
                    state
                });
            }
        }
    }

    /// Adds a row to a group, whose rows come in event order.
    #[inline]
    pub(crate) fn add(&mut self, aggregate: &BoundAggregate, group: usize, row: &[Datum<'_>]) {
        let value = match (&self.states, &aggregate.state) {
            (StateVec::States(_), _) | (_, StateForm::Rows(_)) => Some(Datum::Null),
            (_, StateForm::Fold(fold)) => fold.counted(row),
        };
        let Some(value) = value else { return };
        match &mut self.states {
            StateVec::Counts(counts) => counts[group] += 1,
            StateVec::Integers(totals) => totals[group].add(value.as_i64().unwrap_or(0)),
            StateVec::Floats(totals) => {
                let total = &mut totals[group];
                let before = total.sum.heap_bytes();
                total.sum.add(value.as_f64().unwrap_or(0.0));
                total.count += 1;
                self.heap_bytes += total.sum.heap_bytes() - before;
            }
            StateVec::States(states) => {
                let state = &mut states[group];
                let before = state.heap_bytes();
                aggregate.add(state, row, RowsEnd::Newest);
                // A state does not shrink, but a hash table may be replaced by a smaller one.
                self.heap_bytes = (self.heap_bytes + state.heap_bytes()).saturating_sub(before);
            }
        }
    }

    /// Adds the rows of another state, which lie after those of the group. Returns false where the
    /// rows are the state.
    pub(crate) fn merge(&mut self, group: usize, newer: &AggregateState) -> bool {
        match (&mut self.states, &newer.0) {
            (StateVec::Counts(counts), StateData::Count(count)) => counts[group] += *count,
            (StateVec::Integers(totals), StateData::Total(sums)) => {
                let total = &mut totals[group];
                let sum = total.sum().wrapping_add(sums.integer).cast_unsigned();
                #[expect(clippy::cast_possible_truncation, reason = "cuts it into its halves")]
                let halves = [sum as u64, (sum >> 64) as u64];
                *total = IntegerTotal { count: total.count + sums.count, sum: halves };
            }
            (StateVec::Floats(totals), StateData::Total(sums)) => {
                let total = &mut totals[group];
                total.count += sums.count;
                let before = total.sum.heap_bytes();
                total.sum.merge(&sums.float);
                self.heap_bytes += total.sum.heap_bytes() - before;
            }
            (StateVec::States(states), _) => {
                let state = &mut states[group];
                let before = state.heap_bytes();
                let is_merged = state.merge(newer, RowsEnd::Newest);
                self.heap_bytes = (self.heap_bytes + state.heap_bytes()).saturating_sub(before);
                return is_merged;
            }
            _ => debug_assert!(false, "states of one aggregate are merged"),
        }
        true
    }

    /// Removes the first states and passes each to a function.
    pub(crate) fn take(&mut self, count: usize, mut visit: impl FnMut(&AggregateState)) {
        match &mut self.states {
            StateVec::Counts(counts) => take_first(counts, count)
                .for_each(|count| visit(&AggregateState(StateData::Count(count)))),
            StateVec::Integers(totals) => take_first(totals, count).for_each(|total| {
                let sums = Sums { count: total.count, integer: total.sum(), ..Sums::default() };
                visit(&AggregateState(StateData::Total(sums)));
            }),
            StateVec::Floats(totals) => {
                for FloatTotal { count, sum } in take_first(totals, count) {
                    self.heap_bytes -= sum.heap_bytes();
                    visit(&AggregateState(StateData::Total(Sums {
                        count,
                        integer: 0,
                        float: sum,
                    })));
                }
            }
            StateVec::States(states) => {
                for state in take_first(states, count) {
                    self.heap_bytes = self.heap_bytes.saturating_sub(state.heap_bytes());
                    visit(&state);
                }
            }
        }
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        match &self.states {
            StateVec::Counts(counts) => counts.len(),
            StateVec::Integers(totals) => totals.len(),
            StateVec::Floats(totals) => totals.len(),
            StateVec::States(states) => states.len(),
        }
    }

    /// Returns the approximate number of bytes that it has allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        let vector = match &self.states {
            StateVec::Counts(counts) => counts.capacity() * size_of::<u64>(),
            StateVec::Integers(totals) => totals.capacity() * size_of::<IntegerTotal>(),
            StateVec::Floats(totals) => totals.capacity() * size_of::<FloatTotal>(),
            StateVec::States(states) => states.capacity() * size_of::<AggregateState>(),
        };
        vector + self.heap_bytes
    }
}

/// Removes the first items of a vector, and frees its memory with the last of them.
fn take_first<T>(items: &mut Vec<T>, count: usize) -> std::vec::IntoIter<T> {
    debug_assert!(count <= items.len(), "only states that exist are taken");
    let rest = items.split_off(count);
    std::mem::replace(items, rest).into_iter()
}

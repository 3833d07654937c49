//! States that go on from one time slice of a part to the next.
//!
//! A window without a beginning holds all rows of its key that precede the current one, and none ever
//! leaves it. Where the rows of a key are computed in several slices
//! ([`super::slices_on_disk`]), such a window needs no row of the slices before: its states have them.

use std::ops::Range;

use datafusion::{error::Result, execution::memory_pool::MemoryReservation};
use hashbrown::HashMap;
use lockstep_function::AggregateState;
use lockstep_host::sync::Mutex;
use lockstep_plan::{has_beginning, state_use};

use super::{
    frames::{candidates_among, later_rows},
    partition::Ordering,
    shared_state::{SharedState, shared_states},
};
use crate::lower::GroupShape;

/// The keys whose rows go on in another slice.
#[derive(Debug)]
pub(super) struct CarriedKeys<'g> {
    groups: &'g [GroupShape],
    /// Whether there are windows without a beginning; no key is carried otherwise.
    are_needed: bool,
    keys: Vec<CarriedKey>,
    /// Where the keys of this slice are in `keys`, by their numbers in its ordering.
    places: HashMap<usize, usize>,
}

/// The states of one key.
#[derive(Debug)]
struct CarriedKey {
    /// The first of its rows that were kept for the next slice; none yet where it began in this one.
    first_row: Option<u32>,
    /// For each group its states, or none where its window has a beginning.
    groups: Vec<Option<CarriedGroup>>,
}

/// The states of the calls of a window without a beginning, over the first rows of a key.
#[derive(Debug)]
pub(super) struct CarriedGroup {
    /// How many of the key's candidates in the slice the states have already.
    pub(super) folded: usize,
    /// The states, in the order of [`shared_states`]. One task computes a state; no two wait for each
    /// other.
    pub(super) states: Vec<Mutex<AggregateState>>,
}

impl<'g> CarriedKeys<'g> {
    /// Carries the states of some groups, which share their order.
    pub(super) fn new(groups: &'g [GroupShape]) -> Self {
        let are_needed = groups.iter().any(|shape| !has_beginning(&shape.group.window));
        Self { groups, are_needed, keys: Vec::new(), places: HashMap::new() }
    }

    /// Finds the states of the keys of a slice, and makes those of the `unfinished` keys that begin in it.
    /// `kept_row` returns which of the rows that were kept a key's first one is. The slice may be begun
    /// again with other rows as long as no call was computed.
    pub(super) fn begin_slice(
        &mut self,
        ordering: &Ordering,
        unfinished: &[usize],
        kept_row: impl Fn(usize) -> Option<u32>,
    ) {
        self.places.clear();
        if !self.are_needed {
            return;
        }
        self.keys.retain(|key| key.first_row.is_some());
        let known = self.keys.iter().enumerate();
        let known: HashMap<_, _> = known.map(|(at, key)| (key.first_row, at)).collect();
        for key in (0..ordering.key_count()).filter(|key| !ordering.key(*key).is_empty()) {
            if let Some(row) = kept_row(key)
                && let Some(at) = known.get(&Some(row))
            {
                self.places.insert(key, *at);
            }
        }
        debug_assert_eq!(self.places.len(), self.keys.len(), "a key that goes on has rows");
        for key in unfinished {
            if !self.places.contains_key(key) {
                self.places.insert(*key, self.keys.len());
                self.keys.push(CarriedKey::new(self.groups));
            }
        }
    }

    /// Returns the states of a group for a key of the slice.
    pub(super) fn group(&self, key: usize, group: usize) -> Option<&CarriedGroup> {
        self.keys[*self.places.get(&key)?].groups[group].as_ref()
    }

    /// Returns whether states are changed by computing a slice, so that it cannot be computed again.
    pub(super) fn are_changed(&self) -> bool {
        !self.places.is_empty()
    }

    /// Counts memory; where states are changed it is counted beyond what is free, too.
    pub(super) fn count(&self, memory: &MemoryReservation, bytes: usize) -> Result<()> {
        if self.are_changed() {
            memory.grow(bytes);
            return Ok(());
        }
        memory.try_grow(bytes)
    }

    /// Ends a slice whose calls were computed: forgets the keys that end in it. Returns, for each of the
    /// unfinished ones, the positions of the rows that later slices need.
    pub(super) fn end_slice(
        &mut self,
        ordering: &Ordering,
        unfinished: &[usize],
    ) -> Vec<Range<usize>> {
        let mut needed = Vec::with_capacity(unfinished.len());
        let mut going_on = Vec::with_capacity(unfinished.len());
        let mut keys: Vec<_> = self.keys.drain(..).map(Some).collect();
        for number in unfinished {
            let key = ordering.key(*number);
            let windows = self.groups.iter().map(|shape| &shape.group.window);
            let later = windows.map(|window| (window, later_rows(window, ordering, *number)));
            let later: Vec<_> = later.collect();
            let mut first = later.iter().map(|(_, rows)| rows.first).min().unwrap_or(key.start);
            if let Some(at) = self.places.get(number) {
                // One row at least tells which key the states are of.
                first = first.min(key.end - 1);
                let mut carried = keys[*at].take().expect("each key has states of its own");
                let groups = carried.groups.iter_mut().zip(&later);
                for (group, (window, rows)) in
                    groups.filter_map(|(group, of)| Some((group.as_mut()?, of)))
                {
                    let gone = candidates_among(window, ordering, key.start..first);
                    group.folded = rows.passed - gone;
                }
                going_on.push(carried);
            }
            needed.push(first..key.end);
        }
        self.keys = going_on;
        self.places.clear();
        needed
    }

    /// Says which of the rows that are kept for the next slice is the first of each unfinished key.
    pub(super) fn set_first_rows(&mut self, rows: impl Iterator<Item = u32>) {
        for (key, row) in self.keys.iter_mut().zip(rows) {
            key.first_row = Some(row);
        }
    }

    /// Returns the bytes of the states.
    pub(super) fn bytes(&self) -> usize {
        let groups = self.keys.iter().flat_map(|key| key.groups.iter().flatten());
        let state_bytes = |state: &Mutex<AggregateState>| {
            size_of::<Mutex<AggregateState>>() + state.lock().heap_bytes()
        };
        groups.flat_map(|group| &group.states).map(state_bytes).sum()
    }
}

impl CarriedKey {
    fn new(groups: &[GroupShape]) -> Self {
        let group = |shape: &GroupShape| {
            let window = &shape.group.window;
            let state = |state: &SharedState| {
                let bound = &shape.group.calls[state.calls[0]].bound;
                Mutex::new(bound.new_state(state_use(bound, window)))
            };
            let states = || shared_states(shape).iter().map(state).collect();
            (!has_beginning(window)).then(|| CarriedGroup { folded: 0, states: states() })
        };
        Self { first_row: None, groups: groups.iter().map(group).collect() }
    }
}

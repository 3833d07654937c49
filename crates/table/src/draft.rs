//! A draft of the indexes that a table is to have.
//!
//! A change makes a draft of the current state and modifies it; `change` makes the state that it
//! describes. Knows the rules by which indexes keep rows: what the user declared, widened by what
//! is held.

use std::sync::Arc;

use lockstep_row::{IndexSpec, Projection, Retention, TableSchema};

use crate::{
    hold::{HoldEntry, Widened},
    state::{self, Origin, TableState},
};

/// All indexes of a table, by position.
#[derive(Debug, Clone)]
pub(crate) struct TableDraft {
    pub(crate) indexes: Vec<DraftedIndex>,
}

/// An index of a draft.
#[derive(Debug, Clone)]
pub(crate) struct DraftedIndex {
    pub(crate) spec: IndexSpec,
    pub(crate) origin: Origin,
    pub(crate) projection: Arc<Projection>,
}

impl TableDraft {
    /// Describes a state.
    pub(crate) fn of(state: &TableState) -> Self {
        let drafted = |(spec, index): (&IndexSpec, &state::Index)| DraftedIndex {
            spec: spec.clone(),
            origin: index.origin,
            projection: Arc::clone(&index.projection),
        };
        Self { indexes: state.schema.indexes.iter().zip(&state.indexes).map(drafted).collect() }
    }

    /// Returns the schema with these indexes.
    pub(crate) fn schema(&self, columns: &TableSchema) -> TableSchema {
        let indexes = self.indexes.iter().map(|index| index.spec.clone()).collect();
        TableSchema { columns: columns.columns.clone(), indexes }
    }

    /// Returns the position of the index over exactly these columns, which is added when there is none,
    /// and whether it is new.
    pub(crate) fn index_for(&mut self, keys: &[usize], event_time: Option<usize>) -> (usize, bool) {
        let position = self.indexes.iter().position(|index| index.is_over(keys, event_time));
        if let Some(position) = position {
            return (position, false);
        }
        let spec = IndexSpec {
            name: self.free_name(),
            keys: keys.to_vec(),
            event_time,
            retention: Retention::Forever,
            declared: false,
        };
        (self.add(spec, Origin::Automatic), true)
    }

    /// Adds an index, at the position of a removed one if there is one, and returns its position. It is
    /// behind every index over the same columns, so that readers that took the first of these find the
    /// same one when a directory is opened again.
    pub(crate) fn add(&mut self, spec: IndexSpec, origin: Origin) -> usize {
        let is_alike = |index: &DraftedIndex| index.is_over(&spec.keys, spec.event_time);
        let from = self.indexes.iter().rposition(is_alike).map_or(0, |last| last + 1);
        let added = DraftedIndex { spec, origin, projection: Arc::default() };
        let free = self.indexes[from..].iter().position(|index| index.origin == Origin::Removed);
        match free.map(|free| from + free) {
            Some(position) => {
                self.indexes[position] = added;
                position
            }
            None => {
                self.indexes.push(added);
                self.indexes.len() - 1
            }
        }
    }

    /// Returns a name that no index has.
    pub(crate) fn free_name(&self) -> String {
        let is_taken = |name: &String| self.indexes.iter().any(|index| index.spec.name == *name);
        let mut names = (self.indexes.len()..).map(|number| format!("auto_{number}"));
        names.find(|name| !is_taken(name)).expect("there are more numbers than indexes")
    }

    /// Returns whether the index has a rule by which it keeps rows.
    pub(crate) fn is_declared(&self, index: usize) -> bool {
        self.indexes.get(index).is_some_and(|index| index.spec.declared)
    }

    /// Sets the rule of each index, which follows from what was declared and what is held.
    pub(crate) fn apply_rules(&mut self, holds: &[HoldEntry]) {
        let held = |at: usize| {
            let of_index = holds.iter().filter(|held| held.index == at);
            of_index.filter_map(|held| held.retention).reduce(Retention::union)
        };
        for (at, index) in self.indexes.iter_mut().enumerate() {
            if let Origin::Declared(declared) = index.origin {
                let wanted = held(at).map_or(declared, |held| declared.union(held));
                let is_more = wanted.simplified() != declared.simplified();
                index.spec.retention = if is_more { wanted } else { declared };
                index.spec.declared = true;
            }
        }
        let declared: Vec<IndexSpec> = self
            .indexes
            .iter()
            .filter(|index| matches!(index.origin, Origin::Declared(_)))
            .map(|index| index.spec.clone())
            .collect();
        for (at, index) in self.indexes.iter_mut().enumerate() {
            if index.origin != Origin::Automatic {
                continue;
            }
            let wanted = held(at).filter(|held| !keep(&declared, index.spec.event_time, *held));
            index.spec.declared = wanted.is_some();
            let alike = declared.iter().filter(|spec| spec.event_time == index.spec.event_time);
            // A reader of the rows that this index keeps sees no fewer than by the other indexes.
            index.spec.retention = wanted.map_or(Retention::Forever, |wanted| {
                alike.fold(wanted, |kept, spec| kept.union(spec.retention))
            });
        }
    }

    /// Lets each index keep what it keeps in another draft as well.
    pub(crate) fn keep_rules_of(&mut self, other: &Self) {
        debug_assert!(self.indexes.len() >= other.indexes.len(), "indexes keep their positions");
        let pairs = self.indexes.iter_mut().zip(&other.indexes);
        for (index, before) in pairs.filter(|(_, before)| before.spec.declared) {
            let narrower = index.spec.declared.then_some(index.spec.retention);
            if narrower.is_none_or(|narrower| keeps_more(narrower, before.spec.retention)) {
                index.spec.retention = narrower
                    .map_or(before.spec.retention, |rule| rule.union(before.spec.retention));
                index.spec.declared = true;
            }
        }
    }

    /// Returns the rule of an index in another draft, if it is wider there than here.
    pub(crate) fn widened(&self, other: &Self, index: usize) -> Option<Widened> {
        let after = &other.indexes[index].spec;
        let before = self.indexes.get(index).map(|index| &index.spec);
        let from = before.filter(|spec| spec.declared).map(|spec| spec.retention);
        let is_more = after.declared && from.is_none_or(|from| keeps_more(from, after.retention));
        is_more.then(|| Widened { index: after.name.clone(), from, to: after.retention })
    }

    /// Returns whether some index of another draft keeps rows that it does not keep here.
    pub(crate) fn is_widened(&self, other: &Self) -> bool {
        (0..other.indexes.len()).any(|index| self.widened(other, index).is_some())
    }

    /// Returns whether each index keeps rows by the rule that it has in another draft.
    pub(crate) fn has_rules_of(&self, other: &Self) -> bool {
        let rules = |draft: &Self| -> Vec<(usize, IndexSpec)> {
            let indexes = draft.indexes.iter().enumerate();
            let declared = indexes.filter(|(_, index)| index.spec.declared);
            declared.map(|(at, index)| (at, index.spec.clone())).collect()
        };
        rules(self) == rules(other)
    }

    /// Returns whether no row can expire.
    pub(crate) fn keeps_everything(&self) -> bool {
        state::keeps_everything(self.indexes.iter().map(|index| &index.spec))
    }

    /// Restores the included columns of the indexes that a state has.
    pub(crate) fn keep_projections(&mut self, state: &TableState) {
        for (index, held) in self.indexes.iter_mut().zip(&state.indexes) {
            if index.origin != Origin::Removed {
                index.projection = Arc::clone(&held.projection);
            }
        }
    }
}

impl DraftedIndex {
    /// Returns whether the index is over exactly these columns, in any order.
    fn is_over(&self, keys: &[usize], event_time: Option<usize>) -> bool {
        let spec = &self.spec;
        self.origin != Origin::Removed
            && spec.event_time == event_time
            && spec.keys.len() == keys.len()
            && spec.keys.iter().all(|key| keys.contains(key))
    }

    /// Returns whether the index of another draft has the same rows in the same way.
    pub(crate) fn is_built_as(&self, other: &Self) -> bool {
        let is_removed = |index: &Self| index.origin == Origin::Removed;
        let columns = |index: &'_ Self| (index.spec.keys.clone(), index.spec.event_time);
        match (is_removed(self), is_removed(other)) {
            (true, true) => true,
            (false, false) => {
                columns(self) == columns(other) && self.projection == other.projection
            }
            _ => false,
        }
    }

    /// Removes the index; its position stays empty.
    pub(crate) fn remove(&mut self) {
        let (spec, projection) = (IndexSpec::removed(), Arc::default());
        *self = Self { spec, origin: Origin::Removed, projection };
    }
}

/// Returns whether the second rule keeps rows that the first one does not.
fn keeps_more(from: Retention, to: Retention) -> bool {
    from.union(to) != from.simplified()
}

/// Returns whether declared indexes keep rows for as long as is wanted by an event time: no row
/// expires, or rows expire by the same event time and not earlier.
fn keep(declared: &[IndexSpec], event_time: Option<usize>, wanted: Retention) -> bool {
    declared.is_empty()
        || declared.iter().any(|spec| match (spec.retention.simplified(), wanted.simplified()) {
            (Retention::Forever, _) => true,
            (
                Retention::Absolute { ttl_ms } | Retention::AbsAndLat { ttl_ms, .. },
                Retention::Absolute { ttl_ms: wanted },
            ) => spec.event_time == event_time && ttl_ms >= wanted,
            _ => false,
        })
}

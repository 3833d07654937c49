//! What the indexes of a table are to be.
//!
//! Whoever changes them drafts it from the state there is; `change` makes the state that it
//! describes. Knows the rules by which indexes keep rows: what the user declared, widened by what
//! is held.

use std::sync::Arc;

use lockstep_row::{IndexSpec, Projection, Retention, TableSchema};

use crate::{
    hold::{Held, Widened},
    state::{self, Origin, State},
};

/// All indexes of a table, by position.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) indexes: Vec<DraftedIndex>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct DraftedIndex {
    pub(crate) spec: IndexSpec,
    pub(crate) origin: Origin,
    pub(crate) projection: Arc<Projection>,
}

impl Draft {
    /// What there is.
    pub(crate) fn of(state: &State) -> Self {
        let drafted = |(spec, index): (&IndexSpec, &state::Index)| DraftedIndex {
            spec: spec.clone(),
            origin: index.origin,
            projection: Arc::clone(&index.projection),
        };
        Self { indexes: state.schema.indexes.iter().zip(&state.indexes).map(drafted).collect() }
    }

    /// The schema with these indexes.
    pub(crate) fn schema(&self, columns: &TableSchema) -> TableSchema {
        let indexes = self.indexes.iter().map(|index| index.spec.clone()).collect();
        TableSchema { columns: columns.columns.clone(), indexes }
    }

    /// The position of the index over exactly these columns, and whether it is a new one.
    pub(crate) fn index_for(&mut self, keys: &[usize], event_time: Option<usize>) -> (usize, bool) {
        let is_over = |index: &DraftedIndex| {
            let spec = &index.spec;
            index.origin != Origin::Removed
                && spec.event_time == event_time
                && spec.keys.len() == keys.len()
                && spec.keys.iter().all(|key| keys.contains(key))
        };
        if let Some(position) = self.indexes.iter().position(is_over) {
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

    /// Adds an index, in the place of a removed one if there is one, and returns its position.
    pub(crate) fn add(&mut self, spec: IndexSpec, origin: Origin) -> usize {
        let added = DraftedIndex { spec, origin, projection: Arc::default() };
        match self.indexes.iter().position(|index| index.origin == Origin::Removed) {
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

    /// A name that no index has.
    pub(crate) fn free_name(&self) -> String {
        let is_taken = |name: &String| self.indexes.iter().any(|index| index.spec.name == *name);
        let mut names = (self.indexes.len()..).map(|number| format!("auto_{number}"));
        names.find(|name| !is_taken(name)).expect("there are more numbers than indexes")
    }

    /// Whether the index has a rule by which it keeps rows.
    pub(crate) fn is_declared(&self, index: usize) -> bool {
        self.indexes.get(index).is_some_and(|index| index.spec.declared)
    }

    /// Gives each index the rule that follows from what was declared and what is held.
    pub(crate) fn apply_rules(&mut self, holds: &[Held]) {
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
            // Whoever sees only what this index keeps is to see no less than by the others.
            index.spec.retention = wanted.map_or(Retention::Forever, |wanted| {
                alike.fold(wanted, |kept, spec| kept.union(spec.retention))
            });
        }
    }

    /// What another draft has the rule of an index widened to, compared with this one.
    pub(crate) fn widened(&self, other: &Self, index: usize) -> Option<Widened> {
        let after = &other.indexes[index].spec;
        let before = self.indexes.get(index).map(|index| &index.spec);
        let from = before.filter(|spec| spec.declared).map(|spec| spec.retention);
        let is_more = after.declared && from.is_none_or(|from| keeps_more(from, after.retention));
        is_more.then(|| Widened { index: after.name.clone(), from, to: after.retention })
    }

    /// Whether some index of another draft keeps rows that it does not keep here.
    pub(crate) fn is_widened(&self, other: &Self) -> bool {
        (0..other.indexes.len()).any(|index| self.widened(other, index).is_some())
    }

    /// Whether no row can expire.
    pub(crate) fn keeps_everything(&self) -> bool {
        state::keeps_everything(self.indexes.iter().map(|index| &index.spec))
    }

    /// Leaves the included columns of what stays as they are.
    pub(crate) fn keep_projections(&mut self, state: &State) {
        for (index, held) in self.indexes.iter_mut().zip(&state.indexes) {
            if index.origin != Origin::Removed {
                index.projection = Arc::clone(&held.projection);
            }
        }
    }
}

impl DraftedIndex {
    /// Removes it; its place stays.
    pub(crate) fn remove(&mut self) {
        let (spec, projection) = (IndexSpec::removed(), Arc::default());
        *self = Self { spec, origin: Origin::Removed, projection };
    }
}

/// Whether the second rule keeps rows that the first one does not.
fn keeps_more(from: Retention, to: Retention) -> bool {
    from.union(to) != from.simplified()
}

/// Whether declared indexes keep rows for as long as is wanted by an event time: no row expires,
/// or one expires by the same event time and not before it may.
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

//! Holds: reference counts of indexes, included columns and retention.
//!
//! A deployment, a prepared request or another reader by key *holds* what it needs of a table: an
//! index, the columns that the index includes, and rows that are kept for long enough. What the table
//! lacks is made. When the last hold of an automatic index is released, the index is removed; included
//! columns that are no longer held are removed, and a declared index keeps rows by the rule that the
//! user gave it again; rows that only a released hold had kept expire like any others.
//!
//! # Positions
//!
//! The position of an index is constant while it is held. An index that is removed leaves an empty
//! position ([`lockstep_row::IndexSpec::removed`]) that a later index may get. So a reader that uses a
//! position, or the records of an index, keeps the hold for as long as it reads: a compiled program
//! owns its holds.

use std::sync::{Arc, Weak};

use lockstep_host::QueryContext;
use lockstep_row::{IncludedColumn, IndexSpec, Projection, Retention, RowCodec};
use lockstep_series::Account;

use crate::{
    INCLUDED_BYTES_MAX, Inclusion, Table, TableError, change::ChangeGuard, draft::TableDraft,
    state::Origin,
};

/// The needs of a reader of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexNeed {
    /// Positions of the key columns, in any order. None: the whole table is one key.
    pub keys: Vec<usize>,
    /// Position of the event-time column; `None` for order of arrival.
    pub event_time: Option<usize>,
    /// For how long rows must be kept; `None`: what the table keeps is enough. Where a declared
    /// index keeps less, it is widened; where no declared index is over these keys and none keeps
    /// rows for as long by the same event time, the automatic index gets a rule of its own.
    pub retention: Option<Retention>,
    /// The columns that the index is to include, all or none. This is a matter of speed alone: see
    /// [`IndexHold::inclusion`].
    pub columns: Vec<IncludedColumn>,
}

/// A hold of what an [`IndexNeed`] describes, until it is dropped. Does not keep the table alive: once
/// the table is dropped it holds nothing.
#[derive(Debug)]
pub struct IndexHold {
    table: Weak<Table>,
    id: u64,
    index: usize,
    inclusion: Inclusion,
    widened: Option<Widened>,
    refused: Option<TableError>,
}

/// A rule by which an index keeps rows for longer than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widened {
    /// The name of the index whose rule it is.
    pub index: String,
    /// Its rule before; `None` for an index without one.
    pub from: Option<Retention>,
    /// Its rule now.
    pub to: Retention,
}

/// The outcome that holding an index would have. See [`Table::find_for`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provision {
    /// The table has the index.
    Existing {
        /// Its position.
        index: usize,
        /// Whether it would be rebuilt to include more columns.
        includes_more: bool,
        /// The rule that would be widened.
        widened: Option<Widened>,
    },
    /// The index would be built.
    WouldBuild {
        /// The name that it would have.
        name: String,
        /// How many rows it would be built from.
        rows: u64,
        /// The rule that it would get.
        widened: Option<Widened>,
    },
}

/// The holds of a table.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    next_id: u64,
    held: Vec<HoldEntry>,
    /// Whether a hold was released and the table may still have what is no longer needed.
    is_released: bool,
    /// Whether what nothing holds stays until [`Table::remove_unheld`].
    is_deferred: bool,
}

/// A hold, as the table counts it.
#[derive(Debug, Clone)]
pub(crate) struct HoldEntry {
    id: u64,
    /// Empty: a permanent hold without an owner.
    owner: String,
    pub(crate) index: usize,
    pub(crate) retention: Option<Retention>,
    columns: Vec<IncludedColumn>,
}

/// The hold that was granted for a need.
struct HoldGrant {
    held: HoldEntry,
    inclusion: Inclusion,
    widened: Option<Widened>,
    refused: Option<TableError>,
}

impl Table {
    /// Holds what a reader needs, and makes what the table lacks: builds the index, makes it include
    /// columns, lets rows be kept for longer. [`Self::holders`] lists the `owner`. Rows that have
    /// expired everywhere stay expired. Fails when the memory budget does not allow the index, the
    /// table was dropped, or the call was interrupted; then nothing has changed. Panics when a column
    /// is out of range or of a type that cannot be a key or an event time: the plan has checked that.
    ///
    /// Readers and writers go on while it builds.
    pub fn hold(self: &Arc<Self>, need: &IndexNeed, owner: &str) -> Result<IndexHold, TableError> {
        let ahead = self.runs_of_new_index(&need.keys, need.event_time)?;
        let grant = self.change_after(ahead, |change| self.grant(change, need, owner))?;
        Ok(IndexHold {
            table: Arc::downgrade(self),
            id: grant.held.id,
            index: grant.held.index,
            inclusion: grant.inclusion,
            widened: grant.widened,
            refused: grant.refused,
        })
    }

    /// Returns what [`Self::hold`] would do now. Changes nothing and does not wait.
    pub fn find_for(&self, need: &IndexNeed) -> Provision {
        let snapshot = self.snapshot();
        let before = TableDraft::of(snapshot.state());
        let mut holds = self.holds.lock().held.clone();
        let mut draft = before.clone();
        let (index, is_new) = draft.index_for(&need.keys, need.event_time);
        holds.push(HoldEntry::new(0, "", index, need));
        draft.apply_rules(&holds);
        let widened = before.widened(&draft, index);
        if is_new {
            let name = draft.indexes[index].spec.name.clone();
            return Provision::WouldBuild { name, rows: snapshot.stored_row_count(), widened };
        }
        let projection = &*draft.indexes[index].projection;
        let includes_more = projection.with(&self.codec, &need.columns) != *projection;
        Provision::Existing { index, includes_more, widened }
    }

    /// Returns the event-time column of the index over exactly these columns that suits a reader best that
    /// reads all rows of a key in whichever order: that of a declared index over them, if possible one of
    /// which rows expire by a rule of its own; else that of the first declared index, with which rows expire
    /// in the order of the index. Automatic indexes do not matter, so that the answer is the same when a
    /// directory is opened again.
    pub fn event_time_over(&self, keys: &[usize]) -> Option<usize> {
        let snapshot = self.snapshot();
        let state = snapshot.state();
        let declared = || state.schema.indexes.iter().enumerate().filter(|(_, spec)| spec.declared);
        let is_over = |spec: &IndexSpec| {
            spec.keys.len() == keys.len() && spec.keys.iter().all(|key| keys.contains(key))
        };
        let over = declared().filter(|(_, spec)| is_over(spec));
        let best = over.min_by_key(|(at, _)| (state.live_retentions[*at].is_none(), *at));
        best.or_else(|| declared().next()).and_then(|(_, spec)| spec.event_time)
    }

    /// Returns the owners of an index's holds, in the order of names, each once. Empty for an index that
    /// is not held.
    pub fn holders(&self, index: usize) -> Vec<String> {
        let holds = self.holds.lock();
        let of_index = holds.held.iter().filter(|held| held.index == index);
        let mut owners: Vec<String> =
            of_index.map(|held| held.owner.clone()).filter(|owner| !owner.is_empty()).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Returns the rule that the user gave an index; `None` for one that was not declared. In fact it
    /// may keep more: see `IndexSpec::retention`.
    pub fn declared_retention(&self, index: usize) -> Option<Retention> {
        match self.snapshot().state().indexes.get(index)?.origin {
            Origin::Declared(retention) => Some(retention),
            Origin::Automatic | Origin::Removed => None,
        }
    }

    /// Makes what a need describes, and registers the hold.
    fn grant(
        &self,
        change: &ChangeGuard<'_>,
        need: &IndexNeed,
        owner: &str,
    ) -> Result<HoldGrant, TableError> {
        let before = TableDraft::of(&change.state());
        let mut draft = before.clone();
        let (index, _) = draft.index_for(&need.keys, need.event_time);
        let (id, mut holds) = self.holds.lock().begin();
        let is_deferred = self.holds.lock().is_deferred;
        let held = HoldEntry::new(id, owner, index, need);
        let mut grant =
            HoldGrant { held, inclusion: Inclusion::Included, widened: None, refused: None };
        holds.push(grant.held.clone());
        draft.apply_rules(&holds);
        if draft.indexes[index].spec.declared && !before.is_declared(index) {
            let checked = change.check_event_times(&draft.indexes[index].spec);
            if let Err(failed @ (TableError::Interrupted(_) | TableError::Read(_))) = checked {
                return Err(failed);
            }
            if let Err(refused) = checked {
                grant.refused = Some(refused);
                grant.held.retention = None;
                holds.pop();
                holds.push(grant.held.clone());
                draft.apply_rules(&holds);
            }
        }
        if is_deferred {
            // Who needs the wider rule has not taken its hold yet.
            draft.keep_rules_of(&before);
        }
        let included = self.included(&draft, index, &need.columns);
        match included {
            Ok(projection) => draft.indexes[index].projection = projection,
            Err(inclusion) => {
                grant.inclusion = inclusion;
                grant.held.columns.clear();
            }
        }
        grant.widened = before.widened(&draft, index);
        self.realize(change, &draft)?;
        self.holds.lock().held.push(grant.held.clone());
        Ok(grant)
    }

    /// Returns the projection of an index that includes these columns as well; or why it cannot.
    pub(crate) fn included(
        &self,
        draft: &TableDraft,
        index: usize,
        columns: &[IncludedColumn],
    ) -> Result<Arc<Projection>, Inclusion> {
        let held = &draft.indexes[index].projection;
        let projection = held.with(&self.codec, columns);
        if projection == **held {
            return Ok(Arc::clone(held));
        }
        let size = projection.size();
        if size > INCLUDED_BYTES_MAX {
            return Err(Inclusion::TooLarge { size });
        }
        let needed = self.growth(held.size(), size);
        if !self.budget.reserve(needed) {
            return Err(Inclusion::OutOfMemory { needed });
        }
        // The memory is reserved when the index is built.
        self.budget.charge(-i64::try_from(needed).unwrap_or(i64::MAX));
        Ok(Arc::new(projection))
    }

    /// Holds an index for ever, without an owner.
    pub(crate) fn hold_permanently(&self, index: usize, columns: &[IncludedColumn]) {
        let mut holds = self.holds.lock();
        let is_held = |held: &HoldEntry| held.owner.is_empty() && held.index == index;
        if columns.is_empty() && holds.held.iter().any(is_held) {
            return;
        }
        let id = holds.begin().0;
        let need = IndexNeed { columns: columns.to_vec(), ..IndexNeed::default() };
        holds.held.push(HoldEntry::new(id, "", index, &need));
    }

    /// Sets the rules of a draft's indexes, which follow from what is held.
    pub(crate) fn apply_held_rules(&self, draft: &mut TableDraft) {
        draft.apply_rules(&self.holds.lock().held);
    }

    /// Notes that the table may have something that is no longer held.
    pub(crate) fn note_release(&self) {
        self.holds.lock().is_released = true;
    }

    /// Keeps what nothing holds until [`Self::remove_unheld`]: the readers of a table that is read from a
    /// log take their holds one after the other, and those of an engine that ends release them so.
    pub fn defer_removal(&self) {
        self.holds.lock().is_deferred = true;
    }

    /// Returns whether nothing is to be removed now.
    fn is_settled(&self) -> bool {
        let holds = self.holds.lock();
        !holds.is_released || holds.is_deferred
    }

    /// Removes what is no longer held, unless the table is being changed: then the change does this at
    /// its end, or the next one at its beginning.
    pub(crate) fn settle_holds(&self) {
        while !self.is_settled() {
            let Some(change) = self.try_change() else { return };
            self.settle_under(&change);
        }
    }

    /// Removes what is no longer held.
    pub(crate) fn settle_under(&self, change: &ChangeGuard<'_>) {
        if !self.is_settled() {
            self.holds.lock().is_released = false;
            self.remove_unheld_under(change);
        }
    }

    /// Removes the automatic indexes, included columns and rules that nothing holds. A table that was
    /// read from a log has those of readers that there are no more.
    pub fn remove_unheld(&self) {
        {
            let mut holds = self.holds.lock();
            holds.is_deferred = false;
            holds.is_released = true;
        }
        QueryContext::new().run(|| self.settle_holds());
    }

    /// Removes the indexes, included columns and rules that are no longer held.
    fn remove_unheld_under(&self, change: &ChangeGuard<'_>) {
        let mut draft = TableDraft::of(&change.state());
        let holds = self.holds.lock().held.clone();
        for (at, index) in draft.indexes.iter_mut().enumerate() {
            let of_index = || holds.iter().filter(|held| held.index == at);
            if index.origin == Origin::Automatic && of_index().next().is_none() {
                index.remove();
                continue;
            }
            let columns: Vec<IncludedColumn> =
                of_index().flat_map(|held| held.columns.iter().copied()).collect();
            index.projection = prefix(&index.projection, &columns, &self.codec);
        }
        draft.apply_rules(&holds);
        // An index stays as it is when the memory budget does not allow a smaller copy.
        if self.realize_release(change, &draft).is_err() {
            draft.keep_projections(&change.state());
            drop(self.realize_release(change, &draft));
        }
    }
}

/// Returns the least projection that begins as `projection` does and includes the columns: a reader by
/// the one reads records of the other, as far as it holds what it reads.
fn prefix(
    projection: &Arc<Projection>,
    columns: &[IncludedColumn],
    codec: &RowCodec,
) -> Arc<Projection> {
    let all: Vec<IncludedColumn> = projection.columns().collect();
    let includes = |at: usize| columns.iter().any(|held| held.column == all[at].column);
    let count = (0..all.len()).rev().find(|at| includes(*at)).map_or(0, |at| at + 1);
    let shorter = Projection::default().with(codec, &all[..count]);
    let is_same_field = |included: &IncludedColumn| {
        let column = included.column;
        shorter.presence(column) == projection.presence(column)
            && shorter.fixed_column(column) == projection.fixed_column(column)
            && shorter.text_cell(column) == projection.text_cell(column)
    };
    let is_prefix = all[..count].iter().all(is_same_field);
    if is_prefix && shorter != **projection { Arc::new(shorter) } else { Arc::clone(projection) }
}

impl Holds {
    /// Returns an identifier for a new hold, and the existing holds.
    fn begin(&mut self) -> (u64, Vec<HoldEntry>) {
        self.next_id += 1;
        (self.next_id, self.held.clone())
    }
}

impl HoldEntry {
    /// Makes a hold of an index.
    fn new(id: u64, owner: &str, index: usize, need: &IndexNeed) -> Self {
        let (owner, columns) = (owner.to_owned(), need.columns.clone());
        Self { id, owner, index, retention: need.retention, columns }
    }
}

impl IndexHold {
    /// Returns the position of the index, constant as long as it is held.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns whether the index includes the needed columns. Where it does not, rows are read.
    pub fn inclusion(&self) -> Inclusion {
        self.inclusion
    }

    /// Returns the rule that was widened when the hold was taken, if one was.
    pub fn widened(&self) -> Option<&Widened> {
        self.widened.as_ref()
    }

    /// Returns why rows are not kept for as long as needed: a stored row has no event time.
    pub fn refused(&self) -> Option<&TableError> {
        self.refused.as_ref()
    }
}

impl Drop for IndexHold {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        {
            let mut holds = table.holds.lock();
            holds.held.retain(|held| held.id != self.id);
            holds.is_released = true;
        }
        QueryContext::new().run(|| table.settle_holds());
    }
}

//! Indexes that belong to those who read through them.
//!
//! A deployment, a prepared request or whoever else reads rows by key *holds* what it needs of a
//! table: an index, the columns that the index includes, and rows that are kept for long enough.
//! Where the table lacks some of it, it is made. Holds of one table are counted: when the last one
//! of an automatic index is released the index is removed, included columns that nobody holds go,
//! and a declared index keeps rows by the rule that the user gave it again; rows that only a
//! released hold had kept expire like any others.
//!
//! # Positions
//!
//! The position of an index is constant while somebody holds it. An index that is removed leaves
//! an empty place ([`lockstep_row::IndexSpec::removed`]) that a later index may take. So whoever reads through a
//! position, or reads the records of an index, keeps the hold for as long as it reads: a compiled
//! program keeps its holds beside it.

use std::sync::{Arc, Weak};

use lockstep_host::QueryContext;
use lockstep_row::{IncludedColumn, Projection, Retention, RowCodec};
use lockstep_series::Account;

use crate::{
    INCLUDED_BYTES_MAX, Inclusion, Table, TableError, change::Changing, draft::Draft,
    state::Origin, table::number,
};

/// What somebody needs of a table.
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
    /// The columns that the index is to include, all or none. What is asked for is a matter of
    /// speed alone: see [`IndexHold::inclusion`].
    pub columns: Vec<IncludedColumn>,
}

/// Holds what an [`IndexNeed`] asked for, until it is dropped. Keeps neither the table nor its
/// memory alive: after the table is gone it holds nothing.
#[derive(Debug)]
pub struct IndexHold {
    table: Weak<Table>,
    id: u64,
    index: usize,
    inclusion: Inclusion,
    widened: Option<Widened>,
    refused: Option<TableError>,
}

/// That a table keeps rows for longer than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widened {
    /// The name of the index whose rule it is.
    pub index: String,
    /// Its rule before; `None` for an index without one.
    pub from: Option<Retention>,
    /// Its rule now.
    pub to: Retention,
}

/// What holding an index would come to. See [`Table::find_for`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provision {
    /// The table has the index.
    Existing {
        /// Its position.
        index: usize,
        /// Whether it would be made anew to include more columns.
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
    held: Vec<Held>,
    /// Whether something was released and the table may still have what it does not need.
    is_released: bool,
}

/// One hold.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    id: u64,
    /// Empty: nobody in particular, and for ever.
    owner: String,
    pub(crate) index: usize,
    pub(crate) retention: Option<Retention>,
    columns: Vec<IncludedColumn>,
}

/// What became of a need.
struct Grant {
    held: Held,
    inclusion: Inclusion,
    widened: Option<Widened>,
    refused: Option<TableError>,
}

impl Table {
    /// Holds what somebody needs, and makes what of it the table lacks: builds the index, makes it
    /// include columns, has rows kept for longer. `owner` is who is listed by [`Self::holders`].
    /// Rows that have expired everywhere stay so. Fails when the memory budget has no room for the
    /// index, the table was dropped, or the call was interrupted; then nothing has changed. Panics when a column is out of
    /// range or of a type that cannot be a key or an event time: the plan has checked that.
    ///
    /// Readers and writers go on while it builds.
    pub fn hold(self: &Arc<Self>, need: &IndexNeed, owner: &str) -> Result<IndexHold, TableError> {
        let grant = self.change(|changing| self.grant(changing, need, owner))?;
        Ok(IndexHold {
            table: Arc::downgrade(self),
            id: grant.held.id,
            index: grant.held.index,
            inclusion: grant.inclusion,
            widened: grant.widened,
            refused: grant.refused,
        })
    }

    /// What [`Self::hold`] would come to now. Changes nothing and waits for nobody.
    pub fn find_for(&self, need: &IndexNeed) -> Provision {
        let snapshot = self.snapshot();
        let before = Draft::of(snapshot.state());
        let mut holds = self.holds.lock().held.clone();
        let mut draft = before.clone();
        let (index, is_new) = draft.index_for(&need.keys, need.event_time);
        holds.push(Held::new(0, "", index, need));
        draft.apply_rules(&holds);
        let widened = before.widened(&draft, index);
        if is_new {
            let name = draft.indexes[index].spec.name.clone();
            return Provision::WouldBuild { name, rows: number(snapshot.log_row_count()), widened };
        }
        let projection = &*draft.indexes[index].projection;
        let includes_more = projection.with(&self.codec, &need.columns) != *projection;
        Provision::Existing { index, includes_more, widened }
    }

    /// Who holds an index, in the order of names, each once. Empty for an index that nobody holds.
    pub fn holders(&self, index: usize) -> Vec<String> {
        let holds = self.holds.lock();
        let of_index = holds.held.iter().filter(|held| held.index == index);
        let mut owners: Vec<String> =
            of_index.map(|held| held.owner.clone()).filter(|owner| !owner.is_empty()).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The rule that the user gave an index; `None` for one that was not declared. What it keeps
    /// in fact may be more: see `IndexSpec::retention`.
    pub fn declared_retention(&self, index: usize) -> Option<Retention> {
        match self.snapshot().state().indexes.get(index)?.origin {
            Origin::Declared(retention) => Some(retention),
            Origin::Automatic | Origin::Removed => None,
        }
    }

    /// Makes what a need asks for, and writes down who holds it.
    fn grant(
        &self,
        changing: &Changing<'_>,
        need: &IndexNeed,
        owner: &str,
    ) -> Result<Grant, TableError> {
        let before = Draft::of(&changing.state());
        let mut draft = before.clone();
        let (index, _) = draft.index_for(&need.keys, need.event_time);
        let (id, mut holds) = self.holds.lock().begin();
        let held = Held::new(id, owner, index, need);
        let mut grant =
            Grant { held, inclusion: Inclusion::Included, widened: None, refused: None };
        holds.push(grant.held.clone());
        draft.apply_rules(&holds);
        if draft.indexes[index].spec.declared && !before.is_declared(index) {
            let checked = changing.check_event_times(&draft.indexes[index].spec);
            if let Err(TableError::Interrupted(interrupt)) = checked {
                return Err(TableError::Interrupted(interrupt));
            }
            if let Err(refused) = checked {
                grant.refused = Some(refused);
                grant.held.retention = None;
                holds.pop();
                holds.push(grant.held.clone());
                draft.apply_rules(&holds);
            }
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
        self.realize(changing, &draft)?;
        self.holds.lock().held.push(grant.held.clone());
        Ok(grant)
    }

    /// The projection of an index that includes these columns as well; or why it cannot.
    pub(crate) fn included(
        &self,
        draft: &Draft,
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
        // What it takes in fact is reserved when it is built.
        self.budget.charge(-i64::try_from(needed).unwrap_or(i64::MAX));
        Ok(Arc::new(projection))
    }

    /// Holds an index for ever, for nobody in particular.
    pub(crate) fn hold_for_ever(&self, index: usize, columns: &[IncludedColumn]) {
        let mut holds = self.holds.lock();
        let is_held = |held: &Held| held.owner.is_empty() && held.index == index;
        if columns.is_empty() && holds.held.iter().any(is_held) {
            return;
        }
        let id = holds.begin().0;
        let need = IndexNeed { columns: columns.to_vec(), ..IndexNeed::default() };
        holds.held.push(Held::new(id, "", index, &need));
    }

    /// Gives the indexes of a draft the rules that follow from what is held.
    pub(crate) fn apply_held_rules(&self, draft: &mut Draft) {
        draft.apply_rules(&self.holds.lock().held);
    }

    /// Says that there may be something that nobody holds any more.
    pub(crate) fn note_release(&self) {
        self.holds.lock().is_released = true;
    }

    /// Takes down what nobody holds any more, unless the table is being changed: then whoever
    /// changes it does this afterwards.
    pub(crate) fn settle_holds(&self) {
        while self.holds.lock().is_released {
            let Some(changing) = self.try_changing() else { return };
            self.holds.lock().is_released = false;
            self.remove_unheld(&changing);
        }
    }

    fn remove_unheld(&self, changing: &Changing<'_>) {
        let mut draft = Draft::of(&changing.state());
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
        // Without room for a smaller copy of an index it stays as it is.
        if self.realize(changing, &draft).is_err() {
            draft.keep_projections(&changing.state());
            drop(self.realize(changing, &draft));
        }
    }
}

/// The least projection that begins as `projection` does and includes the columns: who reads
/// records by the one reads those of the other, as far as it holds what it reads.
fn prefix(
    projection: &Arc<Projection>,
    columns: &[IncludedColumn],
    codec: &RowCodec,
) -> Arc<Projection> {
    let all: Vec<IncludedColumn> = projection.columns().collect();
    let includes = |at: usize| columns.iter().any(|held| held.column == all[at].column);
    let count = (0..all.len()).rev().find(|at| includes(*at)).map_or(0, |at| at + 1);
    let shorter = Projection::default().with(codec, &all[..count]);
    let is_same_place = |included: &IncludedColumn| {
        let column = included.column;
        shorter.presence(column) == projection.presence(column)
            && shorter.fixed_column(column) == projection.fixed_column(column)
            && shorter.text_cell(column) == projection.text_cell(column)
    };
    let is_prefix = all[..count].iter().all(is_same_place);
    if is_prefix && shorter != **projection { Arc::new(shorter) } else { Arc::clone(projection) }
}

impl Holds {
    /// A number for a hold, and those that there are.
    fn begin(&mut self) -> (u64, Vec<Held>) {
        self.next_id += 1;
        (self.next_id, self.held.clone())
    }
}

impl Held {
    fn new(id: u64, owner: &str, index: usize, need: &IndexNeed) -> Self {
        let (owner, columns) = (owner.to_owned(), need.columns.clone());
        Self { id, owner, index, retention: need.retention, columns }
    }
}

impl IndexHold {
    /// The position of the index, as long as it is held.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What became of the columns that the index was to include. Where it does not include them,
    /// rows are read.
    pub fn inclusion(&self) -> Inclusion {
        self.inclusion
    }

    /// The rule that was widened when the hold was taken, if one was.
    pub fn widened(&self) -> Option<&Widened> {
        self.widened.as_ref()
    }

    /// Why rows are not kept for as long as was asked: a stored row has no event time to go by.
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

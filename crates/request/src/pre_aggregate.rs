//! Pre-aggregates: partial results over the rows of a source's index, for windows of many rows.
//!
//! A pre-aggregate belongs to a scan and one of its sources. Its levels (`lockstep_table`) hold, for
//! each key, nodes with the encoded states of everything that the windows of the scan compute, whichever
//! of the windows needs it. [`crate::merge`] takes nodes in place of rows wherever all windows treat the
//! rows alike, so the bounds of frames, ROWS and MAXSIZE, the request row and the order of sources are
//! decided where they are without them. `engine` has the nodes made ([`PreAggregate::maintain`]) on a
//! thread of its own, with the code that reads rows for an answer.
//!
//! # Which scans have one
//!
//! A source has one when its rows are those of a table by an index in event time, each call of the scan
//! has states that are merged, and a frame may have many rows ([`PreAggregation`]). Values of rows at a
//! distance from the newest are read of the rows themselves, before any node is taken.

mod estimate;

use std::{
    any::Any,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_function::{
    AggregateState, PickedRow, StateClass, StateUse,
    aggregate::{ValueDictionary, state::StateKind},
};
use lockstep_host::{failpoint::is_seeded, sync::Mutex};
use lockstep_row::Arena;
use lockstep_table::{
    KeyNodes, KeyRun, LevelKeys, LevelNode, LevelsHold, LevelsSize, LevelsWaker, Maintained,
    NodeDictionary, RunFold, Table,
};

use crate::{
    aggregates::{AggregateScratch, RowPick, ScanAggregates},
    block::RowBlock,
    groups::GroupSet,
    lane::{LaneState, ScanLane},
    row_calls::RowCall,
    window::ScanSource,
};

/// For which keys the scans of a program have pre-aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreAggregation {
    /// For none.
    #[default]
    Off,
    /// For those of which requests read many rows.
    Auto,
    /// For all keys with many rows.
    Always,
}

/// A reader of so many rows of a key without nodes asks for them.
const WANTED_ROWS_MIN: u64 = 1 << 10;

/// The partial results of a scan over one of its sources.
pub struct PreAggregate {
    source: Vec<Arc<ScanSource>>,
    /// What a node computes: everything of the scan, for one group.
    aggregates: ScanAggregates,
    /// The states of a node, and the states of the scan to which they are added.
    layout: NodeLayout,
    /// The same, added to the states of a node.
    own_layout: NodeLayout,
    hold: LevelsHold,
    keys: LevelKeys,
    /// Of the table and the index, to be shown.
    name: PreAggregateName,
    scratch: Mutex<NodeScratch>,
    rows_in_nodes: AtomicU64,
    rows_read: AtomicU64,
}

/// The memory in which nodes are made.
struct NodeScratch {
    states: AggregateScratch,
    arena: Arena,
}

/// The dictionaries of the nodes of a key: one for each state of a node, then one for each call.
#[derive(Debug, Clone)]
pub(crate) struct NodeDictionaries(pub(crate) Box<[Arc<ValueDictionary>]>);

impl NodeDictionaries {
    /// Makes empty dictionaries for what a node computes.
    fn new(aggregates: &ScanAggregates) -> Self {
        let count = aggregates.states.len() + aggregates.calls.len();
        let empty = Arc::new(ValueDictionary::default());
        Self(std::iter::repeat_n(empty, count).collect())
    }

    /// Returns those to which the nodes of a key refer.
    pub(crate) fn of_nodes(nodes: KeyNodes<'_>) -> &Self {
        let shared = nodes.dictionary().expect("the nodes of a key have dictionaries");
        Self::of(shared).expect("the dictionaries of nodes of a scan")
    }

    /// Returns dictionaries that are shared; `None` where they are of something else.
    fn of(shared: &dyn NodeDictionary) -> Option<&Self> {
        let shared: &dyn Any = shared;
        shared.downcast_ref()
    }

    /// Returns the number of values of all of them.
    fn len(&self) -> usize {
        self.0.iter().map(|dictionary| dictionary.len()).sum()
    }

    /// Returns whether nothing was added to other ones since these were taken from them.
    fn is_same(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| Arc::ptr_eq(own, other))
    }
}

impl NodeDictionary for NodeDictionaries {
    fn memory_bytes(&self) -> usize {
        self.0.iter().map(|dictionary| dictionary.heap_bytes()).sum()
    }
}

/// Where a pre-aggregate belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreAggregateName {
    /// The table, with its database.
    pub table: String,
    /// The index of the table.
    pub index: String,
    /// The windows of the scan.
    pub windows: String,
}

/// What a pre-aggregate is made for.
pub(crate) struct PreAggregateSpec<'c> {
    pub(crate) table: &'c Arc<Table>,
    /// The index of the source, which is held.
    pub(crate) index: usize,
    pub(crate) source: &'c Arc<ScanSource>,
    pub(crate) keys: LevelKeys,
    pub(crate) name: PreAggregateName,
    pub(crate) wake: LevelsWaker,
}

/// The counts of a pre-aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreAggregateUse {
    /// The size of its levels.
    pub size: LevelsSize,
    /// How many rows answers have taken from nodes.
    pub rows_in_nodes: u64,
    /// How many rows answers have read beside them.
    pub rows_read: u64,
}

/// The states of a node, in the order in which they are encoded.
pub(crate) struct NodeLayout {
    pub(crate) states: Vec<NodeState>,
}

/// A state of a node.
pub(crate) struct NodeState {
    kind: StateKind,
    /// The states to which it is added.
    pub(crate) targets: Vec<NodeTarget>,
}

/// A state to which that of a node is added.
pub(crate) struct NodeTarget {
    /// The window groups that it belongs to.
    pub(crate) groups: GroupSet,
    pub(crate) state: usize,
}

impl NodeLayout {
    /// Makes an empty state of each kind.
    pub(crate) fn new_states(&self) -> Vec<AggregateState> {
        self.states.iter().map(|state| AggregateState::new(state.kind, StateUse::Fold)).collect()
    }

    /// Lists the states of nodes of a scan: for each lane, each kind of state once.
    fn of(aggregates: &ScanAggregates) -> Self {
        let mut states: Vec<NodeState> = Vec::new();
        for lane in &aggregates.lanes {
            let first = states.len();
            for LaneState { groups, state } in &lane.states {
                let kind = aggregates.states[*state];
                let target = NodeTarget { groups: *groups, state: *state };
                match states[first..].iter_mut().find(|known| known.kind == kind) {
                    Some(known) => known.targets.push(target),
                    None => states.push(NodeState { kind, targets: vec![target] }),
                }
            }
        }
        Self { states }
    }

    /// Makes the layout of a node that is added to another one.
    fn of_node(&self) -> Self {
        let own = |(state, of_scan): (usize, &NodeState)| {
            let target = NodeTarget { groups: ONLY, state };
            NodeState { kind: of_scan.kind, targets: vec![target] }
        };
        Self { states: self.states.iter().enumerate().map(own).collect() }
    }

    /// Makes what a node computes of the aggregates of a scan.
    fn aggregates(&self, of_scan: &ScanAggregates) -> ScanAggregates {
        let mut next = 0;
        let lanes = of_scan.lanes.iter().map(|lane| {
            let is_of_lane = |state: &&NodeState| {
                let target = state.targets[0].state;
                lane.states.iter().any(|of_lane| of_lane.state == target)
            };
            let count = self.states[next..].iter().take_while(is_of_lane).count();
            let states = (next..next + count).map(|state| LaneState { groups: ONLY, state });
            next += count;
            ScanLane {
                class: lane.class,
                condition: lane.condition,
                skips_zeros: lane.skips_zeros,
                groups: ONLY,
                states: states.collect(),
            }
        });
        let lanes = lanes.collect();
        assert_eq!(next, self.states.len(), "each state is of a lane");
        let call = |call: &RowCall| RowCall {
            name: call.name,
            groups: ONLY,
            bound: call.bound.clone(),
            condition: call.condition,
            arguments: call.arguments.clone(),
            outputs: Vec::new(),
        };
        let pick = |pick: &RowPick| RowPick {
            groups: ONLY,
            row: pick.row,
            input: pick.input,
            outputs: Vec::new(),
        };
        ScanAggregates {
            lanes,
            states: self.states.iter().map(|state| state.kind).collect(),
            outputs: Vec::new(),
            picks: of_scan.picks.iter().map(pick).collect(),
            calls: of_scan.calls.iter().map(call).collect(),
            same_start: Vec::new(),
        }
    }
}

/// The only group of a node.
const ONLY: GroupSet = GroupSet::FIRST;

/// Returns why a scan can have no pre-aggregates; `None` when it can.
pub(crate) fn obstacle(aggregates: &ScanAggregates) -> Option<String> {
    let rows = aggregates.calls.iter().find_map(|call| match call.bound.class() {
        StateClass::Rows(reason) => Some(format!("`{}`: {reason}", call.name)),
        StateClass::Retractable | StateClass::Mergeable | StateClass::Ordered => None,
    });
    let is_empty = aggregates.lanes.is_empty() && aggregates.calls.is_empty();
    let reads_oldest = aggregates.picks.iter().any(|pick| pick.row == PickedRow::Oldest);
    rows.or_else(|| {
        let is_idle = is_empty && !reads_oldest;
        is_idle.then(|| {
            "the windows read only rows at a fixed distance from the newest row".to_owned()
        })
    })
}

impl PreAggregate {
    /// Makes the pre-aggregate of a source of a scan.
    pub(crate) fn new(spec: PreAggregateSpec<'_>, aggregates: &ScanAggregates) -> Self {
        let PreAggregateSpec { table, index, source, keys, name, wake } = spec;
        let layout = NodeLayout::of(aggregates);
        let own_layout = layout.of_node();
        let aggregates = layout.aggregates(aggregates);
        let states = AggregateScratch::new(&aggregates);
        let scratch = Mutex::new(NodeScratch { states, arena: Arena::new() });
        Self {
            source: vec![Arc::clone(source)],
            aggregates,
            layout,
            own_layout,
            hold: table.hold_levels(index, keys, wake),
            keys,
            name,
            scratch,
            rows_in_nodes: AtomicU64::new(0),
            rows_read: AtomicU64::new(0),
        }
    }

    /// Makes nodes of one key that waits for it. Returns `None` when there is nothing to do. Answers and
    /// writes go on meanwhile.
    pub fn maintain(&self) -> Option<Maintained> {
        let mut scratch = self.scratch.lock();
        let NodeScratch { states, arena } = &mut *scratch;
        let dictionaries = NodeDictionaries(Box::default());
        self.hold.maintain(&mut AnswerFold {
            of: self,
            states,
            arena,
            known: None,
            dictionaries,
            values_seen: 0,
        })
    }

    /// Returns where it belongs.
    pub fn name(&self) -> &PreAggregateName {
        &self.name
    }

    /// Returns its counts.
    pub fn usage(&self) -> PreAggregateUse {
        // Relaxed: numbers to report.
        let rows_in_nodes = self.rows_in_nodes.load(Ordering::Relaxed);
        let rows_read = self.rows_read.load(Ordering::Relaxed);
        PreAggregateUse { size: self.hold.size(), rows_in_nodes, rows_read }
    }

    /// Returns the number of the levels.
    #[inline]
    pub(crate) fn levels(&self) -> u64 {
        self.hold.id()
    }

    /// Returns the states of a node.
    #[inline]
    pub(crate) fn layout(&self) -> &NodeLayout {
        &self.layout
    }

    /// Notes how many rows an answer took from nodes, and how many it read. `key` returns the key where
    /// it has no nodes.
    #[inline]
    pub(crate) fn note<'k>(
        &self,
        rows_in_nodes: u64,
        rows_read: u64,
        key: impl FnOnce() -> Option<&'k [u8]>,
    ) {
        if rows_in_nodes == 0 && rows_read < WANTED_ROWS_MIN {
            return;
        }
        // Relaxed: numbers to report.
        self.rows_in_nodes.fetch_add(rows_in_nodes, Ordering::Relaxed);
        self.rows_read.fetch_add(rows_read, Ordering::Relaxed);
        if rows_read >= WANTED_ROWS_MIN
            && let Some(key) = key()
        {
            self.hold.ask(key);
        }
    }
}

/// Makes nodes with the code that answers requests.
struct AnswerFold<'f> {
    of: &'f PreAggregate,
    states: &'f mut AggregateScratch,
    arena: &'f mut Arena,
    /// The dictionaries of the key as they were before.
    known: Option<Arc<dyn NodeDictionary>>,
    /// The same, and what is added now.
    dictionaries: NodeDictionaries,
    /// How many values they had at the last call of `has_grown`.
    values_seen: usize,
}

/// Dictionaries have grown much when one of so many values is new.
const VALUES_PER_NEW_ONE: usize = 16;

impl RunFold for AnswerFold<'_> {
    fn begin_key(&mut self, dictionary: Option<&Arc<dyn NodeDictionary>>) {
        self.known = dictionary.cloned();
        let dictionary = dictionary.filter(|_| !is_seeded("dictionary_begun_anew"));
        let known = dictionary.and_then(|shared| NodeDictionaries::of(&**shared).cloned());
        self.dictionaries = known.unwrap_or_else(|| NodeDictionaries::new(&self.of.aggregates));
        self.values_seen = self.dictionaries.len();
    }

    fn has_grown(&mut self) -> bool {
        let len = self.dictionaries.len();
        let before = std::mem::replace(&mut self.values_seen, len);
        debug_assert!(before <= len, "dictionaries grow");
        (len - before) * VALUES_PER_NEW_ONE > len
    }

    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>> {
        let known = self.known.take().filter(|known| {
            let known = NodeDictionaries::of(&**known);
            known.is_some_and(|known| known.is_same(&self.dictionaries))
        });
        Some(known.unwrap_or_else(|| Arc::new(self.dictionaries.clone())))
    }

    fn fold(&mut self, runs: &[KeyRun<'_>], states: &mut Vec<u8>) {
        self.arena.reset();
        self.states.reset();
        let (of, scratch) = (self.of, &mut *self.states);
        let mut block = RowBlock::new(&of.aggregates, &of.source, scratch, &mut [], self.arena);
        runs.iter().for_each(|run| block.push_run(0, ONLY, run));
        block.flush();
        drop(block);
        let rows = runs.iter().map(|run| run.len() as u64).sum();
        of.aggregates.encode_node(self.states, rows, &mut self.dictionaries, states);
    }

    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        debug_assert_eq!(
            self.of.own_layout.states.len(),
            self.of.layout.states.len(),
            "a node has the states that the scan takes"
        );
        self.states.reset();
        let aggregates = &self.of.aggregates;
        let (layout, mut rows) = (&self.of.own_layout, 0);
        for node in nodes {
            rows += node.rows();
            aggregates.merge_node(self.states, ONLY, layout, node);
        }
        aggregates.resolve(self.states, ONLY, layout, &self.dictionaries);
        aggregates.encode_node(self.states, rows, &mut self.dictionaries, states);
    }
}

impl fmt::Display for PreAggregateUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LevelsSize { keys, bytes, waiting, .. } = self.size;
        let all = self.rows_in_nodes + self.rows_read;
        write!(f, "{keys} keys, {bytes} bytes, {waiting} keys waiting")?;
        if let Some(percent) = (self.rows_in_nodes * 100).checked_div(all) {
            write!(f, "; {percent} % of rows in results from pre-aggregates")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PreAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreAggregate").field("name", &self.name).finish_non_exhaustive()
    }
}

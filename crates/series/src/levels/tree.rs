//! The tree of one key: nodes over rows that follow each other in event time, each with the encoded
//! states of its rows.
//!
//! A leaf is over about 128 rows, an inner node over about [`FAN_OUT`] nodes of the level
//! below. A [`Forest`] has the nodes that have no parent, oldest first: few of each level. Rows of equal
//! event time are never divided, and the rows newer than the newest node are in none. States may refer
//! to a dictionary, which all nodes of the key share; what it is, is known to whoever makes the states.
//!
//! # Invariants
//!
//! * A node that is not stale has the states of all rows of its key from its oldest event time up to,
//!   and without, the oldest event time of the next node; but for rows that have arrived and are not
//!   visible to any reader yet.
//! * Nothing of a node changes but its greatest arrival, which becomes [`STALE`] when a late row
//!   falls into its range; then all nodes above it are stale too.
//! * The dictionary of a forest is that with which its newest states were made: an earlier one, with more.

use std::{any::Any, fmt, sync::Arc};

use lockstep_host::{failpoint::is_seeded, memory::footprint};

use crate::sync::{AtomicU64, Ordering};

/// An inner node is made of so many nodes of the level below.
pub(crate) const FAN_OUT: usize = 8;
/// States of more bytes than this, and as many for each row as the next constant says, are not stored.
const STATE_BYTES: u64 = 1 << 10;
/// See [`STATE_BYTES`]. A set takes 16 bytes for a value, and some 20 ns to be read for each; a row is
/// read in about 5 ns.
const STATE_BYTES_PER_ROW: u64 = 4;
/// The greatest arrival of a node whose states lack a row.
const STALE: u64 = u64::MAX;
/// The bits of the number of rows of a node.
const ROW_BITS: u32 = 56;

/// A node: the states of rows of one key that follow each other in event time. Who has it knows where it
/// begins without a look at the rest.
#[derive(Debug, Clone)]
pub struct LevelNode {
    /// The event time of its oldest row.
    oldest: i64,
    body: Arc<NodeBody>,
}

/// What a node has beside its beginning. Forests of one key share it.
#[derive(Debug)]
struct NodeBody {
    /// The event time of its newest row.
    newest: i64,
    /// The number of rows, and above [`ROW_BITS`] the level, which is 0 for a leaf: one word fewer in
    /// each of many nodes.
    rows_and_level: u64,
    /// No row of it has a greater arrival; or [`STALE`].
    arrival_max: AtomicU64,
    /// The encoded states; none where they would be so large that to read the rows is no slower.
    states: Box<[u8]>,
    /// The nodes that it is made of, oldest first; none for a leaf.
    children: Box<[LevelNode]>,
}

/// A dictionary to which the states of the nodes of a key refer. A later one has what an earlier one has.
pub trait NodeDictionary: Any + Send + Sync + fmt::Debug {
    /// Returns the bytes that it takes.
    fn memory_bytes(&self) -> usize;
}

/// The rows that a leaf is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafRows {
    pub(super) oldest: i64,
    pub(super) newest: i64,
    pub(super) rows: u64,
    /// An upper bound of their arrivals.
    pub(super) arrival_max: u64,
}

/// Rows of which states were computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenRows {
    pub(super) rows: u64,
    /// An upper bound of their arrivals.
    pub(super) arrival_max: u64,
}

/// The rows of a key that a reader still has to take, and the limits of what it takes as a whole.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpan {
    /// The event time of the next row.
    pub next: i64,
    /// All rows with a smaller event time are still to be taken.
    pub below: i64,
    /// No node with a row of a smaller event time is taken.
    pub lowest: i64,
    /// At most so many rows are taken.
    pub rows: u64,
    /// Rows with a smaller arrival are visible to the reader.
    pub visible: u64,
}

/// The outcome of taking nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodesTaken {
    /// The number of rows that the nodes are over.
    pub rows: u64,
    /// All rows with a smaller event time are still to be taken.
    pub below: i64,
    /// Down to this event time no node can be taken: rows are to be read one by one.
    pub read_until: i64,
}

/// What a walk does after a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    /// Goes on with the next older node.
    On,
    /// Ends: no node can be taken down to this event time.
    End { read_until: i64 },
}

impl LevelNode {
    /// Makes a leaf.
    pub(super) fn leaf(rows: LeafRows, states: &[u8]) -> Self {
        debug_assert!(rows.oldest <= rows.newest, "rows are in order");
        assert!(rows.rows > 0, "a leaf is over some rows");
        let body = NodeBody {
            newest: rows.newest,
            rows_and_level: rows_and_level(rows.rows, 0),
            arrival_max: AtomicU64::new(rows.arrival_max),
            states: worth_storing(states, rows.rows).into(),
            children: Box::default(),
        };
        Self { oldest: rows.oldest, body: Arc::new(body) }
    }

    /// Makes a node of nodes of one level, oldest first. `seen` are the rows of which its states were
    /// computed, where they are not those of the nodes.
    pub(super) fn inner(children: Vec<Self>, states: &[u8], seen: Option<SeenRows>) -> Self {
        let (first, last) = (&children[0], &children[children.len() - 1]);
        debug_assert!(
            children.is_sorted_by(|one, next| one.newest() < next.oldest),
            "nodes follow each other"
        );
        debug_assert!(
            children.iter().all(|node| node.level() == first.level()),
            "nodes of one level"
        );
        let arrival_max = children.iter().map(Self::arrival_max).max();
        let arrival_max = arrival_max.expect("there are children");
        let rows = seen.map_or_else(|| children.iter().map(Self::rows).sum(), |seen| seen.rows);
        let (oldest, newest, level) = (first.oldest, last.newest(), first.level() + 1);
        let body = NodeBody {
            newest,
            rows_and_level: rows_and_level(rows, level),
            arrival_max: AtomicU64::new(arrival_max.max(seen.map_or(0, |seen| seen.arrival_max))),
            states: worth_storing(states, rows).into(),
            children: children.into(),
        };
        Self { oldest, body: Arc::new(body) }
    }

    /// Returns the encoded states.
    pub fn states(&self) -> &[u8] {
        &self.body.states
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.body.rows_and_level & ((1 << ROW_BITS) - 1)
    }

    /// Returns the event time of the oldest row.
    pub fn oldest(&self) -> i64 {
        self.oldest
    }

    pub(super) fn newest(&self) -> i64 {
        self.body.newest
    }

    pub(super) fn level(&self) -> u8 {
        self.body.rows_and_level.to_be_bytes()[0]
    }

    pub(super) fn children(&self) -> &[Self] {
        &self.body.children
    }

    /// Returns an upper bound of the arrivals; [`STALE`] when a row is missing.
    fn arrival_max(&self) -> u64 {
        // Acquire: pairs with the Release in `mark`.
        self.body.arrival_max.load(Ordering::Acquire)
    }

    /// Returns the bytes that it takes, with the nodes below it.
    pub(super) fn memory_bytes(&self) -> usize {
        self.own_bytes() + self.children().iter().map(Self::memory_bytes).sum::<usize>()
    }

    /// Returns the bytes that it takes by itself.
    pub(super) fn own_bytes(&self) -> usize {
        node_footprint(self.states().len(), self.children().len())
    }

    /// Notes that a late row of this event time is missing, here and below. The caller holds the key's lock.
    fn mark(&self, event_time: i64) -> bool {
        let mut node = self;
        let mut was_fresh = false;
        loop {
            // Relaxed: whoever marks nodes holds the key's lock. Most nodes above are stale already, and to
            // write them again takes their cache lines from readers.
            if node.body.arrival_max.load(Ordering::Relaxed) != STALE {
                // Release: pairs with the Acquire in `arrival_max`. The row becomes visible after it.
                node.body.arrival_max.store(STALE, Ordering::Release);
                was_fresh = true;
            }
            match child_of(node.children(), event_time) {
                Some(child) => node = &node.children()[child],
                None => return was_fresh,
            }
        }
    }

    /// Returns the event time of its newest row, or of that of a node below it, that is expired after so many newer
    /// rows; otherwise counts its rows.
    fn newest_expired(
        &self,
        is_expired: &impl Fn(i64, u64) -> bool,
        passed: &mut u64,
    ) -> Option<i64> {
        if is_expired(self.newest(), *passed + 1) {
            return Some(self.newest());
        }
        let is_kept = !is_expired(self.oldest, *passed + self.rows());
        if is_kept || self.children().is_empty() {
            *passed += self.rows();
            return None;
        }
        self.children().iter().rev().find_map(|child| child.newest_expired(is_expired, passed))
    }

    /// Returns whether a reader can take it as a whole.
    fn is_whole(&self, span: &NodeSpan) -> bool {
        !self.states().is_empty()
            && self.newest() < span.below
            && (self.oldest >= span.lowest || is_seeded("edge_counted_twice"))
            && self.rows() <= span.rows
            && self.is_visible(span.visible)
    }

    /// Returns whether it lacks no row, and has none that a reader does not see.
    fn is_visible(&self, visible: u64) -> bool {
        let arrival_max = self.arrival_max();
        arrival_max < visible || (arrival_max != STALE && is_seeded("level_before_its_rows"))
    }

    /// Takes nodes, newest first, as large as possible.
    fn walk<'n>(&'n self, span: &mut NodeSpan, take: &mut impl FnMut(&'n Self) -> bool) -> Walked {
        if self.oldest >= span.below {
            return Walked::On;
        }
        debug_assert!(self.newest() >= self.oldest, "rows are in order");
        if self.is_whole(span) && take(self) {
            span.below = self.oldest;
            span.rows -= self.rows();
            return Walked::On;
        }
        if self.newest() < span.lowest {
            // Another reader, of more rows, may take it.
            return Walked::End { read_until: self.newest().saturating_add(1) };
        }
        if self.children().is_empty() {
            return Walked::End { read_until: self.oldest };
        }
        for child in self.children().iter().rev() {
            let walked = child.walk(span, take);
            if walked != Walked::On {
                return walked;
            }
        }
        Walked::On
    }
}

/// Packs a number of rows and a level.
fn rows_and_level(rows: u64, level: u8) -> u64 {
    assert!(rows >> ROW_BITS == 0, "a key has less than 2^56 rows");
    rows | u64::from(level) << ROW_BITS
}

/// Returns the bytes that a node takes with states of so many bytes and so many children.
pub(crate) fn node_footprint(states: usize, children: usize) -> usize {
    const COUNTS: usize = 2 * size_of::<usize>();
    let node = footprint(COUNTS + size_of::<NodeBody>());
    node + footprint(states) + footprint(children * size_of::<LevelNode>())
}

/// Returns the most bytes of states that a node of so many rows has: to read more takes as long as to read
/// the rows.
pub(crate) fn state_bytes_max(rows: u64) -> u64 {
    rows.saturating_mul(STATE_BYTES_PER_ROW).saturating_add(STATE_BYTES)
}

/// Returns states, unless they are so large that to read them takes as long as to read the rows.
fn worth_storing(states: &[u8], rows: u64) -> &[u8] {
    if states.len() as u64 <= state_bytes_max(rows) { states } else { &[] }
}

/// Returns the node into whose range an event time falls: the last one that begins at or before it,
/// or the first. `None` when there is no node.
fn child_of(nodes: &[LevelNode], event_time: i64) -> Option<usize> {
    let after = nodes.partition_point(|node| node.oldest <= event_time);
    (!nodes.is_empty()).then(|| after.saturating_sub(1))
}

/// The nodes of a key that have no parent, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    nodes: Vec<LevelNode>,
    /// The bytes that all nodes take.
    node_bytes: usize,
    /// What the states refer to.
    dictionary: Option<Arc<dyn NodeDictionary>>,
}

impl Forest {
    /// Makes a forest of nodes that take so many bytes, whose states refer to a dictionary.
    pub(super) fn new(
        nodes: Vec<LevelNode>,
        node_bytes: usize,
        dictionary: Option<Arc<dyn NodeDictionary>>,
    ) -> Self {
        debug_assert!(
            nodes.is_sorted_by(|one, next| one.newest() < next.oldest),
            "nodes follow each other"
        );
        debug_assert_eq!(
            node_bytes,
            nodes.iter().map(LevelNode::memory_bytes).sum::<usize>(),
            "the bytes are those of the nodes"
        );
        let dictionary = dictionary.filter(|_| !nodes.is_empty());
        Self { nodes, node_bytes, dictionary }
    }

    pub(super) fn nodes(&self) -> &[LevelNode] {
        &self.nodes
    }

    /// Returns the bytes that the nodes take.
    pub(super) fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Returns the bytes that the nodes and their dictionary take.
    pub(super) fn bytes(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, |shared| shared.memory_bytes());
        self.node_bytes + dictionary
    }

    /// Returns the bytes that it takes by itself, without its nodes: with its dictionary, unless that is the
    /// other one.
    pub(super) fn bytes_beside(&self, other: Option<&Arc<dyn NodeDictionary>>) -> usize {
        let is_other = |shared: &&Arc<dyn NodeDictionary>| {
            other.is_none_or(|other| !Arc::ptr_eq(shared, other))
        };
        let dictionary = self.dictionary.as_ref().filter(is_other);
        size_of_val(&*self.nodes)
            + size_of::<Self>()
            + dictionary.map_or(0, |shared| shared.memory_bytes())
    }

    /// Returns what the states refer to.
    pub(super) fn dictionary(&self) -> Option<&Arc<dyn NodeDictionary>> {
        self.dictionary.as_ref()
    }

    /// Returns the event time of the newest row that is in a node.
    pub(super) fn newest(&self) -> Option<i64> {
        self.nodes.last().map(LevelNode::newest)
    }

    /// Returns the number of rows that are in nodes.
    pub(super) fn rows(&self) -> u64 {
        self.nodes.iter().map(LevelNode::rows).sum()
    }

    /// Notes that a late row of this event time is missing. Returns whether it is in the range of a
    /// node that had all its rows.
    pub(super) fn mark(&self, event_time: i64) -> bool {
        if self.newest().is_none_or(|newest| event_time > newest) {
            return false;
        }
        child_of(&self.nodes, event_time).is_some_and(|at| self.nodes[at].mark(event_time))
    }

    /// Returns the event time of the newest row in nodes that is expired, if it is at a given position in its key
    /// from the newest row in nodes on, from 1; there may be expired ones between that and the next node.
    pub(super) fn newest_expired(&self, is_expired: impl Fn(i64, u64) -> bool) -> Option<i64> {
        let mut passed = 0;
        for node in self.nodes.iter().rev() {
            if let Some(newest) = node.newest_expired(&is_expired, &mut passed) {
                return Some(newest);
            }
        }
        None
    }

    /// Returns the nodes all of whose rows are newer than an event time.
    pub(super) fn after(&self, event_time: i64) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            keep_after(node, event_time, &mut nodes);
        }
        let bytes = nodes.iter().map(LevelNode::memory_bytes).sum();
        debug_assert!(nodes.iter().all(|node| node.oldest > event_time), "what is older is gone");
        Self::new(nodes, bytes, self.dictionary.clone())
    }

    /// Takes nodes, newest first, as large as possible; `take` returns whether the node is taken.
    pub(super) fn walk<'n>(
        &'n self,
        mut span: NodeSpan,
        take: &mut impl FnMut(&'n LevelNode) -> bool,
    ) -> NodesTaken {
        let (rows, below) = (span.rows, span.below);
        let read_until = self.walk_from(&mut span, take);
        debug_assert!(span.rows <= rows, "no more rows are taken than there may be");
        debug_assert!(span.below <= below, "a reader never goes back");
        NodesTaken { rows: rows - span.rows, below: span.below, read_until }
    }

    /// Walks from the next row on, and returns until which event time rows are to be read.
    fn walk_from<'n>(
        &'n self,
        span: &mut NodeSpan,
        take: &mut impl FnMut(&'n LevelNode) -> bool,
    ) -> i64 {
        debug_assert!(span.next <= span.below, "the next row is still to be taken");
        if span.next == span.below {
            // Some of the rows of this event time were taken.
            return span.next;
        }
        // Between the two there are no rows that the reader sees.
        span.below = span.below.min(span.next.saturating_add(1));
        let after = self.nodes.partition_point(|node| node.oldest <= span.next);
        let Some(node) = after.checked_sub(1).map(|at| &self.nodes[at]) else {
            return i64::MIN;
        };
        if span.next > node.newest() {
            return node.newest().saturating_add(1);
        }
        for node in self.nodes[..after].iter().rev() {
            if let Walked::End { read_until } = node.walk(span, take) {
                return read_until;
            }
        }
        i64::MIN
    }
}

/// Keeps a node, or those below it, as far as their rows are newer than an event time.
fn keep_after(node: &LevelNode, event_time: i64, kept: &mut Vec<LevelNode>) {
    if node.oldest > event_time {
        kept.push(node.clone());
        return;
    }
    if node.newest() > event_time {
        node.children().iter().for_each(|child| keep_after(child, event_time, kept));
    }
}

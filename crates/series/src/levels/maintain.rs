//! Making the nodes of a key: leaves of rows that are in none yet, nodes of leaves, and again those
//! that lack a late row.
//!
//! One thread at a time does it for a key, beside readers and writers. It folds the rows as they are in
//! the series, visible or not, so that a row that is not in a node arrives later and marks it.

use std::sync::Arc;

use super::tree::{FAN_OUT, Forest, LeafRows, LevelNode, NodeDictionary, SeenRows};
use crate::{ChunkRun, RecordFormat, entry::EntryRows, sync::leaf_rows};

/// How many rows are folded before the nodes are shown to readers and the guard is dropped.
const STEP_ROWS: usize = 1 << 14;

/// Computes the states of nodes.
pub trait NodeFold {
    /// Begins with the nodes of a key, whose states refer to a dictionary; `None` for the first ones.
    fn begin_key(&mut self, dictionary: Option<&Arc<dyn NodeDictionary>>);

    /// Returns whether the dictionary has got much since the last call, so that nodes that were made
    /// before had better be made again.
    fn has_grown(&mut self) -> bool;

    /// Ends, and returns the dictionary to which the states refer now.
    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>>;

    /// Appends the encoded states of rows, which are given newest first, to some bytes.
    fn fold(&mut self, runs: &[ChunkRun<'_>], states: &mut Vec<u8>);

    /// Appends the encoded states of the rows of nodes, which are given newest first, to some bytes.
    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>);
}

/// What maintenance of a key has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maintained {
    /// How many rows were folded.
    pub rows: u64,
    /// Whether there is more to do.
    pub is_unfinished: bool,
}

/// The rows of a key of which nodes are made.
pub trait RowsToFold<'g> {
    /// Inner nodes of more rows than this are made of the nodes below them or have no states.
    const ROWS_AT_ONCE: usize;

    /// Returns rows from an event time up to and without another one, at most about so many, visible or not.
    fn between(&mut self, from: i64, until: i64, rows_max: usize) -> RowSlices<'g>;

    /// Returns whether rows could not be read; then what was returned since is not to be used.
    fn has_failed(&self) -> bool;
}

/// The rows of a key that a series has.
#[derive(Clone, Copy)]
pub(crate) struct KeyRowsToFold<'g> {
    pub(crate) rows: EntryRows<'g>,
    pub(crate) format: Option<&'g RecordFormat>,
}

/// Nodes in the making.
pub(super) struct Maintenance<'m, R> {
    rows: R,
    fold: &'m mut dyn NodeFold,
    states: Vec<u8>,
    /// The bytes of all nodes of the forest.
    bytes: usize,
    /// The bytes of the nodes that were made again.
    replaced: usize,
    folded: u64,
}

/// Nodes that were made.
pub(super) struct MadeNodes {
    pub(super) forest: Forest,
    /// The bytes of the present nodes that are not among them.
    pub(super) replaced: usize,
    pub(super) done: Maintained,
}

/// Rows of one chunk.
#[derive(Debug, Clone, Copy)]
struct ChunkSlice<'g> {
    run: ChunkRun<'g>,
    /// An upper bound of the arrivals.
    arrival_max: u64,
}

/// Rows that follow each other, in chunks, oldest first.
#[derive(Debug, Default)]
pub struct RowSlices<'g> {
    slices: Vec<ChunkSlice<'g>>,
    rows: usize,
    /// Whether there are newer rows, which were left out.
    is_cut: bool,
}

impl<'g> RowSlices<'g> {
    /// Makes slices of runs, which are given newest first. `is_cut` says whether newer rows were left out.
    pub fn of_runs(runs: Vec<ChunkRun<'g>>, is_cut: bool) -> Self {
        let slice = |run: ChunkRun<'g>| {
            let arrivals = (0..run.len()).map(|at| run.row(at).arrival());
            ChunkSlice { run, arrival_max: arrivals.max().unwrap_or(0) }
        };
        let rows = runs.iter().map(ChunkRun::len).sum();
        debug_assert!(runs.iter().all(|run| !run.is_empty()), "a run has rows");
        Self { slices: runs.into_iter().rev().map(slice).collect(), rows, is_cut }
    }
}

/// A leaf in the making: its rows, oldest first.
#[derive(Default)]
struct LeafDraft<'g> {
    runs: Vec<ChunkRun<'g>>,
    rows: usize,
    arrival_max: u64,
}

impl<'g> RowsToFold<'g> for KeyRowsToFold<'g> {
    const ROWS_AT_ONCE: usize = usize::MAX;

    fn between(&mut self, from: i64, until: i64, rows_max: usize) -> RowSlices<'g> {
        let count = self.rows.chunk_count();
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.rows.view(middle).event_time(0) < from {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut found = RowSlices::default();
        for at in low.saturating_sub(1)..count {
            let view = self.rows.view(at);
            let slots = view.slots();
            if slots.event_time(0) >= until {
                return found;
            }
            let start = slots.partition_point(view.len(), |slots, at| slots.event_time(at) < from);
            let end = slots.partition_point(view.len(), |slots, at| slots.event_time(at) < until);
            if start >= end {
                continue;
            }
            if found.rows >= rows_max {
                found.is_cut = true;
                return found;
            }
            let run = ChunkRun::new(slots, start..end, self.format);
            found.rows += run.len();
            found.slices.push(ChunkSlice { run, arrival_max: view.arrival_max() });
        }
        found
    }

    fn has_failed(&self) -> bool {
        false
    }
}

impl<'m, 'g, R: RowsToFold<'g>> Maintenance<'m, R> {
    /// Starts with the bytes and the dictionary of the present nodes.
    pub(super) fn new(rows: R, fold: &'m mut dyn NodeFold, forest: &Forest) -> Self {
        fold.begin_key(forest.dictionary());
        let bytes = forest.node_bytes();
        Self { rows, fold, states: Vec::new(), bytes, replaced: 0, folded: 0 }
    }

    /// Makes the forest that has late rows of these event times, which are in order, and nodes of rows
    /// that were in none; `None` where rows could not be read.
    pub(super) fn run(mut self, forest: &Forest, late: &[i64]) -> Option<MadeNodes> {
        debug_assert!(late.is_sorted(), "late rows are in order");
        let mut nodes = match forest.newest() {
            // NULL is stored as the least event time, and is in no frame.
            Some(newest) => {
                self.repair(forest.nodes(), i64::MIN + 1, newest.saturating_add(1), late)
            }
            None => Vec::new(),
        };
        let is_unfinished = self.extend(&mut nodes);
        let done = Maintained { rows: self.folded, is_unfinished };
        let dictionary = self.fold.end_key();
        debug_assert!(
            dictionary.is_some() || forest.dictionary().is_none(),
            "states that stay refer to a dictionary"
        );
        if self.rows.has_failed() {
            return None;
        }
        let forest = Forest::new(nodes, self.bytes, dictionary);
        Some(MadeNodes { forest, replaced: self.replaced, done })
    }

    /// Makes nodes again into whose range a late row falls. The first one is for rows from an event time
    /// on, the last one for rows up to and without another one.
    fn repair(
        &mut self,
        nodes: &[LevelNode],
        from: i64,
        until: i64,
        mut late: &[i64],
    ) -> Vec<LevelNode> {
        let mut made = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let begin = if at == 0 { from } else { node.oldest() };
            let end = nodes.get(at + 1).map_or(until, LevelNode::oldest);
            let own;
            (own, late) = late.split_at(late.partition_point(|event_time| *event_time < end));
            if own.is_empty() {
                made.push(node.clone());
                continue;
            }
            self.give_back(node);
            if node.level() == 0 {
                self.leaves_between(begin, end, &mut made);
            } else {
                let children = self.repair(node.children(), begin, end, own);
                self.inner_nodes(&children, &mut made);
            }
        }
        made
    }

    /// Notes that another node is made in place of one, without those below it.
    fn give_back(&mut self, node: &LevelNode) {
        debug_assert!(self.bytes >= node.own_bytes(), "the node is counted");
        self.bytes -= node.own_bytes();
        self.replaced += node.own_bytes();
    }

    /// Makes leaves of all rows from an event time up to and without another one.
    fn leaves_between(&mut self, from: i64, until: i64, made: &mut Vec<LevelNode>) {
        debug_assert!(from < until, "a leaf has a range");
        let found = self.rows.between(from, until, usize::MAX);
        let parts = (found.rows / leaf_rows()).max(1);
        let rest = self.cut(&found, found.rows.div_ceil(parts), made);
        if rest.rows > 0 {
            made.push(self.leaf(rest));
        }
    }

    /// Makes inner nodes of children of one level.
    fn inner_nodes(&mut self, children: &[LevelNode], made: &mut Vec<LevelNode>) {
        let parts = children.len().div_ceil(2 * FAN_OUT).max(1);
        let per_part = children.len().div_ceil(parts).max(1);
        for part in children.chunks(per_part) {
            debug_assert!(part.len() <= 2 * FAN_OUT, "a node has few children");
            made.push(self.inner(part.to_vec()));
        }
    }

    /// Makes leaves of the rows that are newer than every node, as many as are full and followed by a
    /// newer row: only late rows can join them. Returns whether there are more.
    fn extend(&mut self, nodes: &mut Vec<LevelNode>) -> bool {
        let from = nodes.last().map_or(i64::MIN + 1, |node| node.newest().saturating_add(1));
        let mut rows_max = STEP_ROWS;
        loop {
            let found = self.rows.between(from, i64::MAX, rows_max);
            let mut leaves = Vec::new();
            let _rest = self.cut(&found, leaf_rows(), &mut leaves);
            if leaves.is_empty() && found.is_cut {
                // So many rows have one event time.
                rows_max *= 2;
                continue;
            }
            for leaf in leaves {
                nodes.push(leaf);
                self.group(nodes);
            }
            return found.is_cut;
        }
    }

    /// Makes inner nodes of the newest ones where there are enough of a level.
    fn group(&mut self, nodes: &mut Vec<LevelNode>) {
        loop {
            let level = nodes.last().map_or(0, |node| node.level());
            let alike = nodes.iter().rev().take_while(|node| node.level() == level).count();
            if alike < FAN_OUT {
                return;
            }
            let newer = nodes.split_off(nodes.len() - alike + FAN_OUT);
            let children = nodes.split_off(nodes.len() - FAN_OUT);
            let parent = self.inner(children);
            nodes.push(parent);
            if !newer.is_empty() {
                nodes.extend(newer);
                return;
            }
        }
    }

    /// Makes leaves of so many rows, or a few more where event times are equal. Returns the rows that are
    /// left.
    fn cut(
        &mut self,
        found: &RowSlices<'g>,
        rows: usize,
        made: &mut Vec<LevelNode>,
    ) -> LeafDraft<'g> {
        let (mut draft, first) = (LeafDraft::default(), made.len());
        for slice in &found.slices {
            let mut left = *slice;
            while !left.run.is_empty() {
                let Some(count) = draft.cut_before(&left.run, rows) else {
                    draft.push(left);
                    break;
                };
                let len = left.run.len();
                if count > 0 {
                    let run = left.run.slice(len - count..len);
                    draft.push(ChunkSlice { run, ..left });
                }
                made.push(self.leaf(std::mem::take(&mut draft)));
                left.run = left.run.slice(0..len - count);
            }
        }
        debug_assert_eq!(
            made[first..].iter().map(|leaf| leaf.rows()).sum::<u64>() + draft.rows as u64,
            found.rows as u64,
            "each row is in a leaf or left"
        );
        draft
    }

    fn leaf(&mut self, draft: LeafDraft<'g>) -> LevelNode {
        let LeafDraft { mut runs, rows, arrival_max } = draft;
        debug_assert_eq!(rows, runs.iter().map(ChunkRun::len).sum::<usize>(), "all are counted");
        let oldest = runs.first().expect("a leaf is over some rows");
        let oldest = oldest.event_time(oldest.len() - 1);
        let newest = runs.last().expect("a leaf is over some rows").event_time(0);
        runs.reverse();
        self.states.clear();
        self.fold.fold(&runs, &mut self.states);
        let rows = u64::try_from(rows).expect("a count of rows");
        self.folded += rows;
        let leaf = LevelNode::leaf(LeafRows { oldest, newest, rows, arrival_max }, &self.states);
        self.bytes += leaf.own_bytes();
        leaf
    }

    /// Makes an inner node. Where its rows have brought much to the dictionary, the nodes below it are made
    /// again: they had those values themselves, in more bytes, or no states at all.
    fn inner(&mut self, children: Vec<LevelNode>) -> LevelNode {
        let (node, has_grown) = self.inner_of(children);
        if !has_grown {
            return node;
        }
        let folded = self.folded;
        let node = self.remade(&node);
        self.folded = folded;
        node
    }

    /// Makes a node and those below it again.
    fn remade(&mut self, node: &LevelNode) -> LevelNode {
        if node.level() > 0 {
            self.give_back(node);
            let children = node.children().iter().map(|child| self.remade(child)).collect();
            return self.inner_of(children).0;
        }
        let end = node.newest().saturating_add(1);
        let found = self.rows.between(node.oldest(), end, usize::MAX);
        let mut draft = LeafDraft::default();
        found.slices.iter().for_each(|slice| draft.push(*slice));
        if draft.rows == 0 {
            // They were removed meanwhile, and the node goes, too.
            return node.clone();
        }
        self.give_back(node);
        self.leaf(draft)
    }

    /// Makes an inner node, and returns whether its rows have brought much to the dictionary.
    fn inner_of(&mut self, children: Vec<LevelNode>) -> (LevelNode, bool) {
        let _before = self.fold.has_grown();
        self.states.clear();
        let mut seen = None;
        if children.iter().all(|child| !child.states().is_empty()) {
            let mut newest_first = children.iter().rev();
            self.fold.merge(&mut newest_first, &mut self.states);
        } else if let (Some(first), Some(last)) = (children.first(), children.last()) {
            let end = last.newest().saturating_add(1);
            let found = self.rows.between(first.oldest(), end, R::ROWS_AT_ONCE);
            if !found.is_cut {
                let runs: Vec<_> = found.slices.iter().rev().map(|slice| slice.run).collect();
                self.fold.fold(&runs, &mut self.states);
                let arrival_max = found.slices.iter().map(|slice| slice.arrival_max).max();
                let rows = u64::try_from(found.rows).expect("a count of rows");
                seen = Some(SeenRows { rows, arrival_max: arrival_max.unwrap_or(u64::MAX) });
            }
        }
        let node = LevelNode::inner(children, &self.states, seen);
        self.bytes += node.own_bytes();
        (node, self.fold.has_grown())
    }
}

impl<'g> LeafDraft<'g> {
    /// Returns how many of the oldest rows of a run are the last ones of the leaf, if a row after them is
    /// newer than they.
    fn cut_before(&self, run: &ChunkRun<'g>, rows: usize) -> Option<usize> {
        let len = run.len();
        let wanted = rows.saturating_sub(self.rows);
        if wanted > len {
            return None;
        }
        // The row before the cut, and the first one after it with another event time.
        let last = match wanted.checked_sub(1) {
            Some(before) => run.event_time(len - 1 - before),
            None => self.runs.last()?.event_time(0),
        };
        let newer = run.partition_point(|event_time| event_time > last);
        (newer > 0).then(|| len - newer)
    }

    fn push(&mut self, slice: ChunkSlice<'g>) {
        debug_assert!(!slice.run.is_empty(), "rows are added");
        self.rows += slice.run.len();
        self.arrival_max = self.arrival_max.max(slice.arrival_max);
        self.runs.push(slice.run);
    }
}

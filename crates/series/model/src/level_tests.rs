//! Models of the marks of levels: a reader takes a node only if it has all rows that the reader sees, while
//! a late row is inserted and nodes are made.
//!
//! The key has rows at 0, 10 and 20; the nodes have those at 0 and 10. A writer inserts a late row at 5,
//! notes it, and shows it, in this order; maintenance makes the nodes again; a reader reads all rows.
//! With the writer's steps in another order, the model finds that a reader misses a row. Where the rows are in parts,
//! there are no nodes yet, and nobody but maintenance knows that the row is late.

use std::sync::{
    Arc,
    atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering},
};

use loom::thread;

use crate::{
    guard::pin,
    levels::{
        key_nodes::KeyForest,
        tree::{Forest, LeafRows, LevelNode, NodeSpan},
    },
    sync::{AtomicBool, AtomicU64, Ordering},
};

/// The arrival of the late row; those of the others are smaller.
const LATE: u64 = 3;

/// The order of the writer's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterOrder {
    /// As the protocol has it: insert, note, show.
    InsertNoteShow,
    /// The row is seen before its nodes are marked.
    InsertShowNote,
    /// The nodes are marked before the row is in the series.
    NoteInsertShow,
}

struct ModelKey {
    nodes: KeyForest,
    is_in_parts: bool,
    /// Whether the late row is in the series.
    is_inserted: AtomicBool,
    /// Rows with a smaller arrival are visible.
    visible: AtomicU64,
}

/// Makes the only leaf, over the rows of these arrivals.
fn forest(arrivals: &[u64]) -> Forest {
    let states: Vec<u8> = arrivals.iter().map(|arrival| u8::try_from(*arrival).unwrap()).collect();
    let rows = LeafRows {
        oldest: 0,
        newest: 10,
        rows: arrivals.len() as u64,
        arrival_max: arrivals.iter().copied().max().unwrap(),
    };
    let leaf = LevelNode::leaf(rows, &states);
    let bytes = leaf.own_bytes();
    Forest::new(vec![leaf], bytes, None)
}

impl ModelKey {
    fn new(is_in_parts: bool) -> Self {
        let nodes = KeyForest::new();
        if !is_in_parts {
            assert!(nodes.begin().is_some());
            nodes.end(forest(&[0, 1]), 0, &pin());
        }
        Self { nodes, is_in_parts, is_inserted: AtomicBool::new(false), visible: AtomicU64::new(LATE) }
    }

    /// Returns the arrivals of the rows up to the time 10 that are in the series.
    fn stored(&self) -> Vec<u64> {
        // Acquire: pairs with the Release in `insert`.
        if self.is_inserted.load(Ordering::Acquire) { vec![0, 1, LATE] } else { vec![0, 1] }
    }

    fn insert(&self) {
        // Release: pairs with the Acquire in `stored`.
        self.is_inserted.store(true, Ordering::Release);
    }

    fn note(&self) {
        if self.is_in_parts {
            self.nodes.note_rows([5].into_iter(), &pin());
        } else {
            self.nodes.note_late([5].into_iter(), &pin());
        }
    }

    fn show(&self) {
        // Release: pairs with the Acquire in `read`.
        self.visible.store(LATE + 1, Ordering::Release);
    }

    fn write(&self, order: WriterOrder) {
        let steps: [fn(&Self); 3] = match order {
            WriterOrder::InsertNoteShow => [Self::insert, Self::note, Self::show],
            WriterOrder::InsertShowNote => [Self::insert, Self::show, Self::note],
            WriterOrder::NoteInsertShow => [Self::note, Self::insert, Self::show],
        };
        steps.iter().for_each(|step| step(self));
    }

    /// What `KeyInWork` does. Returns whether there is more to do.
    fn maintain(&self) -> bool {
        let guard = pin();
        if self.nodes.begin().is_none() {
            return false;
        }
        if self.is_in_parts && !self.nodes.knows_newest() {
            self.nodes.know_newest(20);
        }
        self.nodes.end(forest(&self.stored()), 0, &guard).has_late_rows
    }

    /// Returns whether a reader reads the rows that it sees, and whether it took them from the node.
    fn read(&self) -> (bool, bool) {
        let guard = pin();
        // Acquire: pairs with the Release in `show`.
        let visible = self.visible.load(Ordering::Acquire);
        let span = NodeSpan { next: 10, below: 20, lowest: i64::MIN + 1, rows: u64::MAX, visible };
        let mut found = Vec::new();
        self.nodes.load(&guard).walk(span, &mut |node| {
            found.extend(node.states().iter().map(|arrival| u64::from(*arrival)));
            true
        });
        let is_from_node = !found.is_empty();
        if !is_from_node {
            found = self.stored();
            found.retain(|arrival| *arrival < visible);
        }
        let expected: &[u64] = if visible > LATE { &[0, 1, LATE] } else { &[0, 1] };
        (found == expected, is_from_node)
    }
}

/// Explores the executions, and returns whether a reader reads other rows than it sees in one of them.
fn finds_difference(order: WriterOrder, is_in_parts: bool) -> bool {
    let is_found = Arc::new(PlainBool::new(false));
    let noting = Arc::clone(&is_found);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let key: &'static ModelKey = Box::leak(Box::new(ModelKey::new(is_in_parts)));
        let writer = thread::spawn(move || key.write(order));
        let maintenance = thread::spawn(move || key.maintain());
        let is_right = key.read().0 && key.read().0;
        writer.join().unwrap();
        maintenance.join().unwrap();
        if order == WriterOrder::InsertNoteShow {
            while key.maintain() {}
            let (is_right, is_from_node) = key.read();
            assert!(is_right && is_from_node, "in the end, the node has the late row");
        }
        if !is_right || !key.read().0 {
            // Relaxed: one thread explores.
            noting.store(true, PlainOrdering::Relaxed);
        }
    });
    // Relaxed: as above.
    is_found.load(PlainOrdering::Relaxed)
}

#[test]
fn a_reader_takes_the_rows_that_it_sees_beside_a_late_row_and_maintenance() {
    for is_in_parts in [false, true] {
        assert!(!finds_difference(WriterOrder::InsertNoteShow, is_in_parts));
    }
}

#[test]
fn a_late_row_that_is_seen_before_its_nodes_are_marked_is_found() {
    for is_in_parts in [false, true] {
        assert!(finds_difference(WriterOrder::InsertShowNote, is_in_parts));
    }
}

#[test]
fn a_late_row_that_is_noted_before_it_is_inserted_is_found() {
    for is_in_parts in [false, true] {
        assert!(finds_difference(WriterOrder::NoteInsertShow, is_in_parts));
    }
}

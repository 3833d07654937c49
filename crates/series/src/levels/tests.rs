//! What readers take from nodes and read of rows together is what they would read of rows alone.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use lockstep_row::Retention;
use proptest::{collection::vec, prelude::*};

use super::{
    LevelKeys, LevelNode, LevelRows, Levels, NodeDictionary, NodeFold, NodeSpan,
    tree::{Forest, LeafRows},
};
use crate::{
    Bounds, ChunkRun, HashedKey, KeyRow, RowAction, RowBatch, RowLog, RowRef, Series, pin,
    set_leaf_rows,
};

const ID: u64 = 7;

/// Folds rows to a list of them: the number of the event time and the arrival of each, newest first.
#[derive(Default)]
struct ListFold {
    times: EventTimes,
    known: usize,
}

/// Event times, each with a number: the dictionary of the nodes of a key.
#[derive(Debug, Clone, Default)]
struct EventTimes(Vec<i64>);

impl EventTimes {
    fn number(&mut self, event_time: i64) -> u64 {
        let known = self.0.iter().position(|known| *known == event_time);
        known.unwrap_or_else(|| {
            self.0.push(event_time);
            self.0.len() - 1
        }) as u64
    }
}

impl NodeDictionary for EventTimes {
    fn memory_bytes(&self) -> usize {
        self.0.len() * 8
    }
}

impl NodeFold for ListFold {
    fn begin_key(&mut self, dictionary: Option<&Arc<dyn NodeDictionary>>) {
        let known = dictionary.map(|shared| {
            let shared: &dyn Any = &**shared;
            shared.downcast_ref::<EventTimes>().unwrap().clone()
        });
        self.times = known.unwrap_or_default();
        self.known = self.times.0.len();
    }

    fn has_grown(&mut self) -> bool {
        // As often as possible, so that nodes are made again beside writers and readers.
        self.times.0.len() % 3 == 1
    }

    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>> {
        assert!(self.known <= self.times.0.len(), "a dictionary grows");
        Some(Arc::new(self.times.clone()))
    }

    fn fold(&mut self, runs: &[ChunkRun<'_>], states: &mut Vec<u8>) {
        for run in runs {
            for at in 0..run.len() {
                states.extend(self.times.number(run.event_time(at)).to_le_bytes());
                states.extend(run.row(at).arrival().to_le_bytes());
            }
        }
    }

    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        nodes.for_each(|node| states.extend(node.states()));
    }
}

/// A row: event time and arrival.
type Row = (i64, u64);

fn decode<'n>(states: &'n [u8], times: &'n EventTimes) -> impl Iterator<Item = Row> + 'n {
    states.chunks_exact(16).map(|row| {
        let (time, arrival) = row.split_at(8);
        let number = usize::try_from(u64::from_le_bytes(time.try_into().unwrap())).unwrap();
        let time = times.0[number];
        (time, u64::from_le_bytes(arrival.try_into().unwrap()))
    })
}

/// A series with levels.
struct LevelsFixture {
    // Dropped first: it leads to the rows.
    series: Series,
    log: RowLog,
    levels: Arc<Levels>,
    next: AtomicU64,
    /// Rows with a smaller arrival are visible.
    visible: AtomicU64,
}

/// How many rows a reader took from nodes and read by themselves.
#[derive(Debug, Default, Clone, Copy)]
struct ReadRows {
    from_nodes: usize,
    by_themselves: usize,
}

impl LevelsFixture {
    fn new(keys: LevelKeys) -> Self {
        let series = Series::new();
        let levels = Arc::new(Levels::new(ID, keys, LevelRows::Series, Box::new(|| ())));
        series.add_levels(Arc::clone(&levels));
        let (next, visible) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { series, log: RowLog::new(), levels, next, visible }
    }

    /// Inserts rows of one key together, the late ones after the others, and then shows them.
    fn insert(&self, key: u8, event_times: &[i64]) {
        // Relaxed: one thread inserts.
        let first = self.next.fetch_add(event_times.len() as u64, Ordering::Relaxed);
        let mut batch = RowBatch::default();
        for at in 0..event_times.len() as u64 {
            let pushed: Result<(), ()> = batch.push(|out| {
                out.extend((first + at).to_le_bytes());
                Ok(())
            });
            pushed.unwrap();
        }
        let (position, _) = self.log.append(&batch, first, 0);
        {
            let guard = pin();
            let mut rows = self.log.rows_from(position, &guard);
            let mut late = Vec::new();
            let key = [key];
            let hashed = HashedKey { hash: self.series.hash(&key), key: &key };
            for event_time in event_times {
                let row = KeyRow { event_time: *event_time, row: rows.next_row().unwrap() };
                // SAFETY: the log keeps its rows until it is dropped, after the series.
                if unsafe { self.series.insert_newest(hashed, row, &guard) }.is_none() {
                    late.push(row);
                }
            }
            late.sort_by_key(KeyRow::position);
            // SAFETY: as above.
            unsafe { self.series.insert_late(hashed, &late, &guard) };
        }
        // Release: pairs with the Acquire in `check`.
        self.visible.store(first + event_times.len() as u64, Ordering::Release);
    }

    /// Makes nodes until there is nothing to do, or so many times.
    fn maintain(&self, steps: usize) {
        for _ in 0..steps {
            if self.series.maintain(&self.levels, &mut ListFold::default()).is_none() {
                return;
            }
        }
    }

    /// Reads rows of a key as a reader with nodes does, and compares them with the rows of one without.
    fn check(
        &self,
        key: u8,
        visible: Option<u64>,
        newest: i64,
        lowest: i64,
        limit: u64,
    ) -> ReadRows {
        // Acquire: pairs with the Release in `insert`.
        let visible = visible.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        let guard = pin();
        let key: &[u8] = &[[0_u8], [1], [2]][usize::from(key)];
        let rows = self.series.seek(key, Bounds::visible(visible), &guard);
        let rows: Vec<Row> = rows.map_or_else(Vec::new, |rows| {
            let rows = rows.map(|row| (row.event_time, row.row.arrival()));
            rows.filter(|(time, _)| (lowest..=newest).contains(time)).collect()
        });
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let expected = &rows[..rows.len().min(limit)];
        let mut found: Vec<Row> = Vec::new();
        let mut read = ReadRows::default();
        let nodes = self.series.nodes(ID, || key, &guard);
        let mut below = newest.saturating_add(1);
        while found.len() < expected.len() {
            let (next, before_all) = (rows[found.len()].0, found.len());
            let mut read_until = i64::MIN;
            if let Some(nodes) = nodes {
                let left = (limit - found.len()) as u64;
                let span = NodeSpan { next, below, lowest, rows: left, visible };
                let before = found.len();
                let times: &dyn Any = nodes.dictionary().unwrap();
                let times: &EventTimes = times.downcast_ref().unwrap();
                let taken = nodes.take(span, |node| {
                    found.extend(decode(node.states(), times));
                    assert_eq!(node.rows(), decode(node.states(), times).count() as u64);
                    true
                });
                assert_eq!(taken.rows, (found.len() - before) as u64);
                read.from_nodes += found.len() - before;
                (below, read_until) = (taken.below, taken.read_until);
                assert_eq!(&found[..], &expected[..found.len()], "nodes have the rows of the key");
            }
            while let Some(row) = expected.get(found.len()).filter(|row| row.0 >= read_until) {
                found.push(*row);
                read.by_themselves += 1;
                below = row.0;
            }
            assert!(found.len() > before_all, "a reader gets on");
        }
        assert_eq!(found, expected);
        read
    }

    fn check_all(&self) {
        for key in 0..3 {
            self.check(key, None, i64::MAX - 1, i64::MIN + 1, u64::MAX);
        }
    }

    fn remove(&self, is_removed: impl Fn(i64, u64) -> bool) {
        let action = |time: i64, row: RowRef<'_>| {
            if is_removed(time, row.arrival()) { RowAction::Remove } else { RowAction::Keep }
        };
        // SAFETY: no row moves.
        unsafe { self.series.retain(|| action) };
    }
}

/// A change of a series, or a read.
#[derive(Debug, Clone)]
enum Step {
    /// Rows in order: how much newer each is than the one before.
    Append(u8, Vec<u8>),
    /// Rows of any event time.
    Insert(u8, Vec<i64>),
    Maintain(usize),
    /// Removes what is older than this part of a hundred of the event times.
    Expire(i64),
    /// Keeps so many rows of each key.
    KeepLatest(u64),
    /// Removes one row in so many.
    RemoveSome(u64),
    GiveUp,
    /// Reads: key, how many of the newest arrivals are not visible, bounds, and number of rows.
    Read(u8, u64, i64, i64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0_u8..3;
    let time = prop_oneof![9 => 0_i64..600, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    let step = prop_oneof![
        4 => (key.clone(), vec(prop_oneof![3 => 0_u8..3, 1 => Just(9)], 1..40))
            .prop_map(|(key, steps)| Step::Append(key, steps)),
        4 => (key.clone(), vec(time.clone(), 1..6)).prop_map(|(key, times)| Step::Insert(key, times)),
        6 => (1_usize..4).prop_map(Step::Maintain),
        1 => (0_i64..100).prop_map(Step::Expire),
        1 => (1_u64..60).prop_map(Step::KeepLatest),
        1 => (2_u64..30).prop_map(Step::RemoveSome),
        1 => Just(Step::GiveUp),
        6 => (key, prop_oneof![3 => Just(0), 1 => 0_u64..20], time.clone(), time,
              prop_oneof![2 => Just(u64::MAX), 1 => 0_u64..80])
            .prop_map(|(key, hidden, newest, lowest, rows)| {
                Step::Read(key, hidden, newest, lowest, rows)
            }),
    ];
    vec(step, 1..60)
}

fn run(steps: Vec<Step>, keys: LevelKeys) {
    let fixture = LevelsFixture::new(keys);
    let mut newest = [0_i64; 3];
    for step in steps {
        match step {
            Step::Append(key, distances) => {
                let newest = &mut newest[usize::from(key)];
                let times = distances.iter().map(|distance| {
                    *newest += i64::from(*distance);
                    *newest
                });
                let times: Vec<i64> = times.collect();
                fixture.insert(key, &times);
            }
            Step::Insert(key, times) => fixture.insert(key, &times),
            Step::Maintain(times) => fixture.maintain(times),
            Step::Expire(part) => {
                let limit = newest.iter().max().unwrap() * part / 100;
                let retention = Retention::Absolute { ttl_ms: 1 };
                fixture.series.trim(Bounds::new(u64::MAX, retention, limit));
            }
            Step::KeepLatest(latest) => {
                let retention = Retention::Latest { latest };
                fixture.series.trim(Bounds::new(u64::MAX, retention, 0));
            }
            Step::RemoveSome(some) => fixture.remove(|_, arrival| arrival % some == 0),
            Step::GiveUp => {
                fixture.levels.give_up(&pin());
                fixture.levels.ask(&[0]);
            }
            Step::Read(key, hidden, newest, lowest, rows) => {
                let visible = fixture.next.load(Ordering::Relaxed).saturating_sub(hidden);
                let newest = newest.min(i64::MAX - 1);
                fixture.check(key, Some(visible), newest, lowest.max(i64::MIN + 1), rows);
            }
        }
        if keys == LevelKeys::OnDemand {
            (0..3).for_each(|key| fixture.levels.ask(&[key]));
        }
        fixture.check_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nodes_and_rows_are_the_rows_of_the_key(
        steps in steps(),
        leaf_rows in 1_usize..6,
        is_on_demand in any::<bool>(),
    ) {
        set_leaf_rows(leaf_rows);
        run(steps, if is_on_demand { LevelKeys::OnDemand } else { LevelKeys::All });
    }
}

#[test]
fn most_rows_of_a_long_key_are_taken_from_nodes() {
    let fixture = LevelsFixture::new(LevelKeys::All);
    set_leaf_rows(4);
    for part in 0..100 {
        let times: Vec<i64> = (0..100).map(|at| part * 100 + at).collect();
        fixture.insert(0, &times);
    }
    fixture.maintain(usize::MAX);
    let read = fixture.check(0, None, 9_990, 7, u64::MAX);
    assert!(read.by_themselves < 400, "{read:?}");
    assert!(read.from_nodes > 9_000, "{read:?}");
    // A late row takes the nodes away that it falls into, and no others.
    fixture.insert(0, &[5_000]);
    let before = fixture.check(0, None, 9_990, 7, u64::MAX);
    assert!(before.by_themselves < read.by_themselves + 300, "{before:?}");
    fixture.maintain(usize::MAX);
    let after = fixture.check(0, None, 9_990, 7, u64::MAX);
    assert!(after.by_themselves <= read.by_themselves + 1, "{after:?}");
    assert!(fixture.levels.size().bytes > 0);
    fixture.levels.give_up(&pin());
    assert_eq!(fixture.check(0, None, 9_990, 7, u64::MAX).from_nodes, 0);
}

#[test]
fn what_two_versions_of_nodes_share_weighs_nothing() {
    let dictionary = |numbers| -> Arc<dyn NodeDictionary> { Arc::new(EventTimes(numbers)) };
    let (old, new) = (dictionary(vec![1; 1_000]), dictionary(vec![1; 2_000]));
    let leaf = |oldest| {
        let rows = LeafRows { oldest, newest: oldest + 9, rows: 10, arrival_max: 5 };
        LevelNode::leaf(rows, &[7; 100])
    };
    let leaves: Vec<_> = (0..100).map(|number| leaf(number * 10)).collect();
    let bytes = leaves.iter().map(|leaf| leaf.own_bytes()).sum();
    let forest = Forest::new(leaves, bytes, Some(Arc::clone(&old)));
    let shared = forest.bytes_beside(Some(&old));
    assert!(shared < bytes / 10, "{shared} of {bytes}");
    assert_eq!(forest.bytes_beside(Some(&new)), shared + 8_000);
    assert_eq!(forest.bytes_beside(None), shared + 8_000);
}

#[test]
fn readers_are_exact_beside_a_writer_and_maintenance() {
    set_leaf_rows(4);
    let fixture = LevelsFixture::new(LevelKeys::All);
    let (is_done, from_nodes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (rounds, rounds_max) = if cfg!(miri) { (30, 30) } else { (3_000, 300_000) };
    // Rows are removed below the frames of readers, as retention does: a reader compares the rows with
    // nodes that it reads later.
    let lowest_kept = rounds / 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: it only ends the loop.
            while !is_done.load(Ordering::Relaxed) {
                fixture.maintain(usize::MAX);
            }
        });
        scope.spawn(|| {
            let mut at = 0;
            while !is_done.load(Ordering::Relaxed) {
                at += 1;
                let lowest = lowest_kept + at % 97;
                let read = fixture.check(0, None, i64::MAX - 1, lowest, u64::MAX);
                from_nodes.fetch_add(read.from_nodes, Ordering::Relaxed);
            }
        });
        for round in 0..rounds_max {
            // Goes on until a reader has met nodes: on a busy machine its thread may begin late.
            // Relaxed: it only ends the loop.
            if round >= rounds {
                if from_nodes.load(Ordering::Relaxed) > 0 {
                    break;
                }
                std::thread::yield_now();
            }
            let time = round / 10;
            fixture.insert(0, &[time, time * 7919 % (time + 1), time]);
            if round % 500 == 499 {
                let retention = Retention::Absolute { ttl_ms: 1 };
                let now = (time / 2).min(lowest_kept);
                fixture.series.trim(Bounds::new(u64::MAX, retention, now));
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    fixture.maintain(usize::MAX);
    let read = fixture.check(0, None, i64::MAX - 1, 0, u64::MAX);
    assert!(read.from_nodes > 0, "{read:?}");
    // Relaxed: the threads have ended.
    assert!(cfg!(miri) || from_nodes.load(Ordering::Relaxed) > 0, "readers took nodes");
}

/// Notes the least number of keys that wait while nodes are made.
struct WaitingFold<'l> {
    levels: &'l Levels,
    waiting_min: u64,
    list: ListFold,
}

impl NodeFold for WaitingFold<'_> {
    fn begin_key(&mut self, dictionary: Option<&Arc<dyn NodeDictionary>>) {
        self.list.begin_key(dictionary);
    }

    fn has_grown(&mut self) -> bool {
        self.list.has_grown()
    }

    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>> {
        self.list.end_key()
    }

    fn fold(&mut self, runs: &[ChunkRun<'_>], states: &mut Vec<u8>) {
        self.waiting_min = self.waiting_min.min(self.levels.size().waiting);
        self.list.fold(runs, states);
    }

    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        self.waiting_min = self.waiting_min.min(self.levels.size().waiting);
        self.list.merge(nodes, states);
    }
}

#[test]
fn the_key_whose_nodes_are_made_counts_as_waiting() {
    let fixture = LevelsFixture::new(LevelKeys::All);
    let times: Vec<i64> = (0..1_000).collect();
    fixture.insert(0, &times);
    assert!(fixture.levels.size().waiting > 0, "nobody has looked for keys");
    let levels = &*fixture.levels;
    let mut fold = WaitingFold { levels, waiting_min: u64::MAX, list: ListFold::default() };
    while fixture.series.maintain(levels, &mut fold).is_some() {}
    assert!(levels.size().bytes > 0, "nodes were made");
    assert!(fold.waiting_min > 0, "the key was made and did not wait");
    assert_eq!(levels.size().waiting, 0);
}

#[test]
fn all_keys_get_nodes_again_after_they_were_given_up() {
    let fixture = LevelsFixture::new(LevelKeys::All);
    let times: Vec<i64> = (0..1_000).collect();
    fixture.insert(0, &times);
    fixture.maintain(100);
    assert!(fixture.levels.give_up(&pin()) > 0);
    assert!(fixture.levels.size().waiting > 0, "the keys are to be looked for");
    fixture.maintain(100);
    assert!(fixture.levels.give_up(&pin()) > 0, "the nodes are there again");
    fixture.check_all();
}

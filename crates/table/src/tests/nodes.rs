//! A reader that takes nodes in place of rows has the rows that one without nodes reads: of tables in memory and on
//! a disk, whatever happened to them since the nodes were made.

use std::{collections::BTreeSet, sync::Arc};

use lockstep_row::{Datum, Retention};

use super::{K, T, V, index, key, rows, steps::directory_of, table};
use crate::{
    KeyNodes, KeyRows, KeyRun, LevelKeys, LevelNode, LevelsHold, NodeDictionary, NodeSpan, RunFold,
    Snapshot, Table,
};

/// Levels whose nodes list their rows.
pub(super) struct HeldLevels(LevelsHold);

/// A row: event time and number.
type Row = (i64, i64);

/// Folds rows to a list of them.
struct ListFold;

/// No dictionary.
#[derive(Debug)]
struct NoValues;

impl NodeDictionary for NoValues {
    fn memory_bytes(&self) -> usize {
        0
    }
}

impl RunFold for ListFold {
    fn begin_key(&mut self, _dictionary: Option<&Arc<dyn NodeDictionary>>) {}

    fn has_grown(&mut self) -> bool {
        false
    }

    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>> {
        Some(Arc::new(NoValues))
    }

    fn fold(&mut self, runs: &[KeyRun<'_>], states: &mut Vec<u8>) {
        for (event_time, number) in runs.iter().flat_map(of_run) {
            states.extend(event_time.to_le_bytes());
            states.extend(number.to_le_bytes());
        }
    }

    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        nodes.for_each(|node| states.extend(node.states()));
    }
}

fn of_run<'r>(run: &'r KeyRun<'_>) -> impl Iterator<Item = Row> + 'r {
    (0..run.len()).map(|at| (run.event_time(at), run.row(at).get(V).as_i64().unwrap()))
}

fn of_node(node: &LevelNode) -> Vec<Row> {
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
    let rows = node.states().chunks_exact(16);
    rows.map(|row| (number(&row[..8]), number(&row[8..]))).collect()
}

/// The rows that a reader wants: those of event times from `lowest` up to `newest`, the newest `limit`.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    newest: i64,
    lowest: i64,
    limit: usize,
}

const WANTED: [Wanted; 4] = [
    Wanted { newest: i64::MAX - 1, lowest: i64::MIN + 1, limit: usize::MAX },
    Wanted { newest: i64::MAX - 1, lowest: i64::MIN + 1, limit: 5 },
    Wanted { newest: 25, lowest: 3, limit: 5 },
    Wanted { newest: 12, lowest: 12, limit: usize::MAX },
];

impl HeldLevels {
    /// Gives an index levels.
    pub(super) fn of(table: &Arc<Table>, index: usize) -> Self {
        // Small, so that few rows have several nodes.
        lockstep_series::set_leaf_rows(1);
        let keys = [LevelKeys::OnDemand, LevelKeys::All][index % 2];
        Self(table.hold_levels(index, keys, Arc::new(|| ())))
    }

    /// Makes the nodes of all keys.
    pub(super) fn make(&self, keys: &[BTreeSet<Vec<u8>>]) {
        keys[self.0.index()].iter().for_each(|key| self.0.ask(key));
        while self.0.maintain(&mut ListFold).is_some() {}
    }

    /// Checks what readers take, of a snapshot that may be older than the nodes.
    pub(super) fn check(&self, snapshot: &Snapshot<'_>, keys: &[BTreeSet<Vec<u8>>]) {
        let index = self.0.index();
        let Some(spec) = snapshot.schema().indexes.get(index) else { return };
        for key in keys[index].iter().filter(|_| !spec.is_removed()) {
            for rows in [snapshot.rows(index, key), snapshot.rows_kept_by(index, key)] {
                let nodes = snapshot.nodes(index, self.0.id(), || key);
                for wanted in WANTED {
                    check_rows(snapshot, rows.clone(), nodes, wanted);
                }
            }
        }
    }
}

/// Compares the rows of a reader with nodes with those of one without.
fn check_rows(
    snapshot: &Snapshot<'_>,
    mut rows: KeyRows<'_>,
    nodes: Option<KeyNodes<'_>>,
    wanted: Wanted,
) {
    let Wanted { newest, lowest, limit } = wanted;
    rows.seek(newest);
    let expected = rows.clone().map(|row| {
        let row = row.unwrap();
        (row.event_time, row.row.get(V).as_i64().unwrap())
    });
    let expected: Vec<Row> = expected.take_while(|row| row.0 >= lowest).take(limit).collect();
    let (mut found, mut below) = (Vec::new(), newest.saturating_add(1));
    let mut read_until = if nodes.is_some() { i64::MAX } else { i64::MIN };
    let mut current: Option<KeyRun<'_>> = None;
    while found.len() < limit {
        let Some(run) = current.take().or_else(|| rows.next_run().unwrap()) else { break };
        let next = run.event_time(0);
        if next < lowest {
            break;
        }
        if let Some(nodes) = nodes.filter(|_| next < read_until) {
            let in_run = run.len() as u64;
            let visible = snapshot.visible_arrival();
            let left = (limit - found.len()) as u64;
            let span = NodeSpan { next, below, lowest, rows: left, visible };
            let mut seen = 0;
            let taken = nodes.take(span, |node| {
                let end = seen + node.rows();
                let is_kept = end <= in_run || rows.keeps_after(node.oldest(), end - in_run - 1);
                if is_kept {
                    seen = end;
                    found.extend(of_node(node));
                }
                is_kept
            });
            assert_eq!(taken.rows, seen);
            read_until = taken.read_until;
            if taken.rows > 0 {
                below = taken.below;
                let older = run.partition_point(|event_time| event_time >= below);
                if older < run.len() {
                    current = Some(run.slice(older..run.len()));
                } else {
                    rows.skip_to(below.saturating_sub(1), taken.rows - in_run);
                }
                continue;
            }
        }
        let until = lowest.max(read_until);
        let count = run.partition_point(|event_time| event_time >= until).max(1);
        let count = count.min(limit - found.len());
        found.extend(of_run(&run.slice(0..count)));
        below = run.event_time(count - 1);
        current = (count < run.len()).then(|| run.slice(count..run.len()));
    }
    assert_eq!(found, expected, "{wanted:?}");
}

#[test]
fn a_key_with_many_expired_rows_in_files_gets_nodes_of_the_others() {
    let by_key = index("i", &[K], Some(T), Retention::Absolute { ttl_ms: 1_000 });
    let (table, clock) = table(vec![by_key], 500);
    let table = Arc::new(table);
    let directory = directory_of(&table);
    table.move_to_disk().unwrap();
    table.append(rows(0..20_000)).unwrap();
    let flushed = table.freeze().flush(&mut || directory.create_data_file()).unwrap();
    table.install(&flushed);
    clock.set_ms(20_500);
    let levels = HeldLevels::of(&table, 0);
    let key = key(&[Datum::Int(1)]);
    levels.0.ask(&key);
    let is_done = (0..50).any(|_| levels.0.maintain(&mut ListFold).is_none());
    assert!(is_done, "each step makes nodes of other rows");
    let snapshot = table.snapshot();
    let nodes = snapshot.nodes(0, levels.0.id(), || &key).unwrap();
    assert!((400..500).contains(&nodes.rows()), "{}", nodes.rows());
    levels.check(&snapshot, &[BTreeSet::from([key.clone()])]);
}

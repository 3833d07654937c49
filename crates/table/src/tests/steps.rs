//! Steps that change a table and the list of its rows, drawn in any order: the property test of tables.

use std::{path::Path, sync::Arc};

use lockstep_host::ManualClock;
use lockstep_row::{IndexSpec, Retention};
use lockstep_sim::SimulatedDisk;
use lockstep_wal::{Access, DatabaseDirectory};
use proptest::{collection::vec, prelude::*};

use super::{
    K, Model, Plain, T, V, check, datums, held, hold, include, index, nodes, retention, table, tail,
};
use crate::{Appended, FrozenTable, IndexHold, IndexNeed, Snapshot, Table};

#[derive(Debug, Clone)]
pub(super) enum TableStep {
    Append(Vec<(Option<i32>, i64)>),
    Advance(u32),
    Collect,
    Ensure(Vec<usize>, bool),
    /// The same, with these steps while its runs are built.
    EnsureBeside(Vec<usize>, bool, Vec<Self>),
    /// Columns, with their values or without, for an index.
    Include(prop::sample::Index, Vec<(usize, bool)>),
    /// An index that is needed, with retention and columns.
    Hold(Vec<usize>, bool, Option<Retention>, Vec<(usize, bool)>),
    Release(prop::sample::Index),
    /// Removes every row whose number is a multiple.
    Delete(usize),
    Declare(bool, bool, Retention),
    /// Drops a declared index.
    Drop(prop::sample::Index),
    Truncate,
    /// Puts the table on the disk, or into memory.
    Store(bool),
    /// Takes the table as a checkpoint does.
    Freeze,
    /// Writes what was frozen, and installs it or not.
    Flush(bool),
    Compact,
    /// Opens the table from its files.
    Reopen,
    /// Puts a memory table that was opened into memory.
    Load,
    /// Holds the rows, which later steps are not to change; the next steps have an older reader.
    Keep,
    /// Makes the nodes of all keys of all levels.
    MakeNodes,
    /// Follows the table from now on.
    Follow,
    /// Reads so many rows of one who follows it.
    ReadTail(prop::sample::Index, usize),
}

pub(super) fn step() -> impl Strategy<Value = TableStep> {
    let row = (prop::option::weighted(0.9, 0_i32..3), 0_i64..40);
    let keys = || prop_oneof![Just(vec![]), Just(vec![V]), Just(vec![K]), Just(vec![K, V])];
    let columns = || vec((K..=V, any::<bool>()), 0..3);
    let held = (keys(), any::<bool>(), prop::option::of(retention(0..30, 0..4)), columns());
    let beside = prop_oneof![
        4 => vec(row.clone(), 0..6).prop_map(TableStep::Append),
        4 => Just(TableStep::Flush(true)),
        1 => (1_usize..7).prop_map(TableStep::Delete),
        1 => Just(TableStep::Truncate),
        1 => any::<bool>().prop_map(TableStep::Store),
    ];
    prop_oneof![
        5 => vec(row, 0..6).prop_map(TableStep::Append),
        2 => (0_u32..10).prop_map(TableStep::Advance),
        2 => Just(TableStep::Collect),
        1 => (keys(), any::<bool>()).prop_map(|(keys, timed)| TableStep::Ensure(keys, timed)),
        2 => (keys(), any::<bool>(), vec(beside, 0..5))
            .prop_map(|(keys, timed, steps)| TableStep::EnsureBeside(keys, timed, steps)),
        2 => (any::<prop::sample::Index>(), columns())
            .prop_map(|(index, columns)| TableStep::Include(index, columns)),
        3 => held.prop_map(|(keys, timed, retention, columns)| {
            TableStep::Hold(keys, timed, retention, columns)
        }),
        2 => any::<prop::sample::Index>().prop_map(TableStep::Release),
        2 => (1_usize..7).prop_map(TableStep::Delete),
        1 => (any::<bool>(), any::<bool>(), retention(0..30, 0..4))
            .prop_map(|(keyed, timed, retention)| TableStep::Declare(keyed, timed, retention)),
        1 => any::<prop::sample::Index>().prop_map(TableStep::Drop),
        1 => Just(TableStep::Truncate),
        2 => any::<bool>().prop_map(TableStep::Store),
        2 => Just(TableStep::Freeze),
        5 => prop::bool::weighted(0.9).prop_map(TableStep::Flush),
        3 => Just(TableStep::Compact),
        2 => Just(TableStep::Reopen),
        2 => Just(TableStep::Load),
        1 => Just(TableStep::Keep),
        4 => Just(TableStep::MakeNodes),
        2 => Just(TableStep::Follow),
        4 => (any::<prop::sample::Index>(), 1_usize..8)
            .prop_map(|(tail, rows)| TableStep::ReadTail(tail, rows)),
    ]
}

/// Draws steps about nodes of a disk table, the first of which are there to have some.
pub(super) fn node_steps(steps: usize) -> impl Strategy<Value = Vec<TableStep>> {
    let row = || (prop_oneof![4 => Just(Some(0)), 1 => Just(Some(1))], 0_i64..40);
    let step = prop_oneof![
        6 => vec(row(), 1..12).prop_map(TableStep::Append),
        4 => prop::bool::weighted(0.9).prop_map(TableStep::Flush),
        2 => Just(TableStep::Freeze),
        6 => Just(TableStep::MakeNodes),
        2 => Just(TableStep::Compact),
        1 => (2_usize..7).prop_map(TableStep::Delete),
        1 => Just(TableStep::Truncate),
        2 => Just(TableStep::Keep),
        1 => (0_u32..10).prop_map(TableStep::Advance),
        1 => Just(TableStep::Collect),
        1 => any::<bool>().prop_map(TableStep::Store),
    ];
    (any::<bool>(), vec(step, 4..steps)).prop_map(|(keyed, steps)| {
        let keys = if keyed { vec![K] } else { vec![] };
        let begin = [TableStep::Hold(keys, true, None, vec![]), TableStep::Store(true)];
        begin.into_iter().chain(steps).collect()
    })
}

/// Returns a case in which a flush leaves out one of two rows of one event time, and an older reader has both.
pub(super) fn divided_ties() -> (Vec<IndexSpec>, Vec<TableStep>) {
    let rows =
        |times: &[i64]| TableStep::Append(times.iter().map(|time| (Some(0), *time)).collect());
    let steps = vec![
        TableStep::Hold(vec![], true, None, vec![]),
        TableStep::Store(true),
        rows(&[10, 10, 20]),
        TableStep::MakeNodes,
        rows(&[10]),
        TableStep::Keep,
        rows(&[30]),
        TableStep::Flush(true),
        TableStep::MakeNodes,
    ];
    (vec![index("i", &[], Some(T), Retention::Latest { latest: 3 })], steps)
}

#[test]
fn a_reader_who_has_rows_that_a_merge_left_out_takes_no_nodes_without_them() {
    let (declared, steps) = divided_ties();
    run(declared, steps);
}

/// Draws the declared index of a table with nodes: one, which may keep several rows.
pub(super) fn declared_for_nodes() -> impl Strategy<Value = Vec<IndexSpec>> {
    let drawn = (any::<bool>(), prop::option::weighted(0.8, retention(20..60, 3..12)));
    drawn.prop_map(|(keyed, retention)| {
        let keys: &[usize] = if keyed { &[K] } else { &[] };
        retention.map(|retention| index("i", keys, Some(T), retention)).into_iter().collect()
    })
}

/// So many steps are taken beside an older reader.
const STEPS_WITH_OLDER: usize = 6;

/// A table and its model, and what is held of it.
pub(super) struct TableFixture {
    pub(super) table: Arc<Table>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) model: Model,
    has_times: bool,
    /// Levels of held indexes; dropped before the holds.
    pub(super) levels: Vec<nodes::HeldLevels>,
    pub(super) holds: Vec<IndexHold>,
    pub(super) directory: Arc<DatabaseDirectory>,
    pub(super) frozen: Option<FrozenTable>,
    kept: Vec<held::SnapshotRows>,
    pub(super) tails: Vec<tail::FollowedRows>,
}

impl TableFixture {
    fn step(&mut self, step: TableStep) {
        let now_ms = self.table.snapshot().now_ms();
        let before = self.table.schema();
        match step {
            TableStep::Append(rows) => self.append(rows, now_ms),
            TableStep::Advance(ms) => self.clock.advance_ms(ms),
            TableStep::Collect => {
                let before = self.table.row_count();
                assert_eq!(before - self.table.collect_expired(), self.table.row_count());
            }
            TableStep::Ensure(keys, timed) => {
                let position = self.table.ensure_index(&keys, timed.then_some(T));
                assert_eq!(self.table.ensure_index(&keys, timed.then_some(T)), position);
            }
            TableStep::Include(index, columns) => {
                let present = before.indexes.iter().enumerate();
                let present = present.filter(|(_, spec)| !spec.is_removed());
                let present: Vec<usize> = present.map(|(at, _)| at).collect();
                if !present.is_empty() {
                    include::included(&self.table, *index.get(&present), &columns);
                }
            }
            TableStep::Hold(keys, timed, retention, columns) => {
                self.model.forget(&before.indexes, now_ms, |_| false);
                self.hold(&hold::need(&keys, timed.then_some(T), retention, &columns));
            }
            TableStep::Release(index) => self.release(index),
            TableStep::Delete(multiple) => {
                let is_deleted = |at: usize| at.is_multiple_of(multiple);
                let expected = self.model.forget(&before.indexes, now_ms, is_deleted);
                let deleted = self.table.delete(|row| {
                    is_deleted(usize::try_from(row.get(V).as_i64().unwrap()).unwrap())
                });
                assert_eq!(deleted, Ok(expected));
            }
            TableStep::Declare(keyed, timed, retention) => {
                self.model.forget(&before.indexes, now_ms, |_| false);
                let keys: &[usize] = if keyed { &[K] } else { &[] };
                let name = format!("declared_{}", self.model.rows.len());
                let spec = index(&name, keys, timed.then_some(T), retention);
                // Refused where the name is taken.
                drop(self.table.add_declared_index(spec));
            }
            TableStep::Drop(index) => {
                let declared: Vec<&IndexSpec> =
                    before.indexes.iter().filter(|spec| spec.declared).collect();
                if !declared.is_empty() {
                    // Without a declared index nothing expires, and nothing comes back.
                    self.model.forget(&before.indexes, now_ms, |_| false);
                    drop(self.table.drop_declared_index(&index.get(&declared).name));
                }
            }
            TableStep::Truncate => {
                self.table.truncate().unwrap();
                self.model.gone.fill(true);
            }
            TableStep::Keep => {
                let (snapshot, model) = (self.table.snapshot(), &self.model);
                let live = |at: &usize| model.is_live(*at, &before.indexes, now_ms);
                let live: Vec<usize> = (0..model.rows.len()).filter(live).collect();
                self.kept.push(held::SnapshotRows::of(&snapshot, None, &live, model));
            }
            TableStep::MakeNodes => {
                let keys = self.model.keys(&before.indexes);
                self.levels.iter().for_each(|levels| levels.make(&keys));
            }
            TableStep::Follow => self.follow(),
            TableStep::ReadTail(at, rows) => self.read_tail(at, rows),
            of_disk => self.disk_step(&of_disk),
        }
        check(&self.table, &self.model);
        self.check_nodes(&self.table.snapshot());
        self.kept.iter().for_each(held::SnapshotRows::check);
    }

    /// Holds what is needed, with levels.
    fn hold(&mut self, need: &IndexNeed) {
        let hold = hold::checked(&self.table, need);
        self.levels.push(nodes::HeldLevels::of(&self.table, hold.index()));
        self.holds.push(hold);
    }

    fn follow(&mut self) {
        self.tails.push(tail::FollowedRows::begin(&self.table, self.model.rows.len()));
    }

    fn read_tail(&mut self, at: prop::sample::Index, rows: usize) {
        if !self.tails.is_empty() {
            let at = at.index(self.tails.len());
            self.tails[at].read(rows, self.model.rows.len());
        }
    }

    fn release(&mut self, index: prop::sample::Index) {
        if !self.holds.is_empty() {
            let at = index.index(self.holds.len());
            drop(self.levels.swap_remove(at));
            self.holds.swap_remove(at);
        }
    }

    /// Checks what a reader takes from nodes.
    fn check_nodes(&self, snapshot: &Snapshot<'_>) {
        let keys = self.model.keys(&snapshot.schema().indexes);
        self.levels.iter().for_each(|levels| levels.check(snapshot, &keys));
    }

    /// Takes a step that is about where rows are.
    fn disk_step(&mut self, step: &TableStep) {
        match step {
            TableStep::EnsureBeside(keys, timed, steps) => {
                let (table, time) = (Arc::clone(&self.table), timed.then_some(T));
                let ahead = table.runs_of_new_index(keys, time).unwrap();
                steps.iter().cloned().for_each(|step| self.step(step));
                table.ensure_index_after(ahead, keys, time);
            }
            TableStep::Store(true) => self.table.move_to_disk().unwrap(),
            TableStep::Store(false) => self.table.move_to_memory().unwrap(),
            TableStep::Freeze => self.frozen = Some(self.table.freeze()),
            TableStep::Flush(installs) => {
                let frozen = self.frozen.take().unwrap_or_else(|| self.table.freeze());
                let create = &mut || self.directory.create_data_file();
                let flushed = frozen.flush(create).unwrap();
                check(&self.table, &self.model);
                if *installs {
                    self.table.install(&flushed);
                }
            }
            TableStep::Reopen => {
                self.reopen();
                let rows = self.model.rows.len();
                let begin = |_| tail::FollowedRows::begin(&self.table, rows);
                self.tails = self.tails.drain(..).map(begin).collect();
            }
            TableStep::Load => self.table.load_files().unwrap(),
            TableStep::Compact => {
                while self.table.compact(&mut || Ok(())).unwrap() {
                    check(&self.table, &self.model);
                }
            }
            other => panic!("{other:?} is a step of any table"),
        }
    }

    fn append(&mut self, rows: Vec<(Option<i32>, i64)>, now_ms: i64) {
        let first = i64::try_from(self.model.rows.len()).unwrap();
        let timed = |t: i64| (self.has_times || t % 5 != 0).then_some(t);
        let rows: Vec<Plain> = (first..).zip(rows).map(|(v, (k, t))| (k, timed(t), v)).collect();
        let appended = self.table.append(rows.iter().map(|row| datums(*row)));
        let count = rows.len();
        let specs = &self.table.schema().indexes;
        let is_expired = |row| {
            self.model.push([(row, now_ms)]);
            !self.model.is_live(self.model.rows.len() - 1, specs, now_ms)
        };
        let expired = rows.into_iter().map(is_expired).filter(|expired| *expired).count();
        let [rows, expired] = [count, expired].map(|count| u64::try_from(count).unwrap());
        assert_eq!(appended, Ok(Appended { rows, expired, like_seconds: 0 }));
    }
}

/// Gives a table a directory on a simulated disk, which lasts as long as it is held.
pub(super) fn directory_of(table: &Table) -> Arc<DatabaseDirectory> {
    let access = Access::ReadWrite { new_id: *b"a database of ok" };
    let disk = Arc::new(SimulatedDisk::new());
    let directory = DatabaseDirectory::open(disk, Path::new("/table"), access).unwrap();
    let directory = Arc::new(directory);
    table.set_directory(&directory);
    directory
}

pub(super) fn run(declared: Vec<IndexSpec>, steps: Vec<TableStep>) {
    let has_times = declared.iter().any(|spec| spec.event_time.is_some());
    let (table, clock) = table(declared, 5);
    let (table, model) = (Arc::new(table), Model::default());
    let (directory, holds) = (directory_of(&table), Vec::new());
    let (frozen, kept, levels, tails) = (None, Vec::new(), Vec::new(), Vec::new());
    let mut fixture = TableFixture {
        table,
        clock,
        model,
        has_times,
        levels,
        holds,
        directory,
        frozen,
        kept,
        tails,
    };
    let mut steps = steps.into_iter();
    while let Some(step) = steps.next() {
        let table = Arc::clone(&fixture.table);
        let older = matches!(step, TableStep::Keep).then(|| table.snapshot());
        fixture.step(step);
        if let Some(older) = older {
            for step in steps.by_ref().take(STEPS_WITH_OLDER) {
                fixture.step(step);
                fixture.check_nodes(&older);
            }
        }
    }
    let rows = fixture.model.rows.len();
    fixture.tails.iter_mut().for_each(|tail| tail.read(usize::MAX, rows));
    // What nobody holds is gone.
    fixture.levels.clear();
    fixture.holds.clear();
    check(&fixture.table, &fixture.model);
    let schema = fixture.table.schema();
    for (at, spec) in schema.indexes.iter().enumerate() {
        assert!(fixture.table.holders(at).is_empty());
        assert_eq!(spec.declared, fixture.table.declared_retention(at).is_some(), "{spec:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_table_shows_what_a_list_of_its_rows_shows(
        declared in declared(),
        steps in vec(step(), 1..16),
    ) {
        run(declared, steps);
    }

    #[test]
    fn nodes_stand_for_rows_wherever_these_are(
        declared in declared_for_nodes(),
        steps in node_steps(20),
    ) {
        run(declared, steps);
    }
}

/// Draws the declared indexes of a table.
pub(super) fn declared() -> impl Strategy<Value = Vec<IndexSpec>> {
    let drawn = vec((any::<bool>(), any::<bool>(), retention(0..30, 0..4)), 0..4);
    drawn.prop_map(|drawn| {
        let named = |(number, (keyed, timed, retention)): (usize, (bool, bool, Retention))| {
            let keys: &[usize] = if keyed { &[K] } else { &[] };
            index(&format!("i{number}"), keys, timed.then_some(T), retention)
        };
        drawn.into_iter().enumerate().map(named).collect()
    })
}

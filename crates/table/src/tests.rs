//! A table shows what a plain list of its rows shows, by every index and in order of arrival, and
//! an append is visible in whole or not at all.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_host::{ManualClock, sync::Mutex};
use lockstep_row::{
    Column, DataType, Datum, IndexSpec, Projection, Retention, RowError, TableSchema,
    key::encode_key,
};
use proptest::prelude::*;

pub(crate) mod damage;
mod held;
mod hold;
mod include;
mod multi_table;
mod nodes;
mod reopen;
mod seeded;
mod steps;
mod tail;
mod writers;

use crate::{
    Arrivals, MemoryBudget, MemoryStatus, ReadError, ScanRows, Snapshot, StoredRow, Table,
    TableError, TableMemory, TableShape, estimate,
};

/// A row of the tests: `k INT, t TIMESTAMP, v BIGINT`, `v` being the row's number.
type Plain = (Option<i32>, Option<i64>, i64);

const K: usize = 0;
const T: usize = 1;
const V: usize = 2;

fn datums((k, t, v): Plain) -> [Datum<'static>; 3] {
    let k = k.map_or(Datum::Null, Datum::Int);
    [k, t.map_or(Datum::Null, Datum::Timestamp), Datum::BigInt(v)]
}

fn index(name: &str, keys: &[usize], event_time: Option<usize>, retention: Retention) -> IndexSpec {
    IndexSpec { name: name.to_owned(), keys: keys.to_vec(), event_time, retention, declared: true }
}

fn table(indexes: Vec<IndexSpec>, now_ms: i64) -> (Table, Arc<ManualClock>) {
    let columns = vec![
        Column::new("k", DataType::Int),
        Column::new("t", DataType::Timestamp),
        Column::new("v", DataType::BigInt),
    ];
    let clock = Arc::new(ManualClock::new(now_ms));
    let schema = TableSchema { columns, indexes };
    let shared: Arc<ManualClock> = Arc::clone(&clock);
    (Table::new(schema, shared, Arc::new(Arrivals::new(0))).unwrap(), clock)
}

fn key(values: &[Datum<'_>]) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key(values.iter().copied(), &mut key);
    key
}

/// The model: rows with the time they arrived, in order of arrival, and whether they are gone for
/// good.
#[derive(Debug, Default)]
struct Model {
    rows: Vec<(Plain, i64)>,
    gone: Vec<bool>,
}

impl Model {
    /// The row's event time in an index.
    fn event_time(&self, at: usize, spec: &IndexSpec) -> i64 {
        let ((_, t, _), arrival_ms) = self.rows[at];
        if spec.event_time.is_some() { t.unwrap_or(i64::MIN) } else { arrival_ms }
    }

    /// Rows of the same key, newest first.
    fn of_key(&self, at: usize, spec: &IndexSpec) -> Vec<usize> {
        let of = |row: usize| {
            let values = datums(self.rows[row].0);
            key(&spec.keys.iter().map(|column| values[*column]).collect::<Vec<_>>())
        };
        let mut rows: Vec<usize> =
            (0..self.rows.len()).filter(|other| of(*other) == of(at)).collect();
        rows.retain(|row| *row == at || !self.gone[*row]);
        rows.sort_by_key(|row| std::cmp::Reverse((self.event_time(*row, spec), *row)));
        rows
    }

    fn is_kept_by(&self, at: usize, spec: &IndexSpec, now_ms: i64) -> bool {
        let n = self.of_key(at, spec).iter().position(|row| *row == at).unwrap() + 1;
        let n = u64::try_from(n).unwrap();
        !spec.retention.is_expired(self.event_time(at, spec), n, now_ms)
    }

    fn is_live(&self, at: usize, all: &[IndexSpec], now_ms: i64) -> bool {
        let mut declared = all.iter().filter(|spec| spec.declared).peekable();
        !self.gone[at]
            && (declared.peek().is_none() || declared.any(|spec| self.is_kept_by(at, spec, now_ms)))
    }

    /// Returns the keys of the rows in each of these indexes.
    fn keys(&self, specs: &[IndexSpec]) -> Vec<BTreeSet<Vec<u8>>> {
        let of = |spec: &IndexSpec| {
            let rows = self.rows.iter().map(|(row, _)| datums(*row));
            rows.map(|row| key(&spec.keys.iter().map(|column| row[*column]).collect::<Vec<_>>()))
                .collect()
        };
        specs.iter().map(of).collect()
    }

    fn push(&mut self, rows: impl IntoIterator<Item = (Plain, i64)>) {
        self.rows.extend(rows);
        self.gone.resize(self.rows.len(), false);
    }

    /// Nothing brings back what has expired, or `is_deleted`; returns how many were deleted.
    fn forget(
        &mut self,
        specs: &[IndexSpec],
        now_ms: i64,
        is_deleted: impl Fn(usize) -> bool,
    ) -> u64 {
        let live: Vec<usize> =
            (0..self.rows.len()).filter(|at| self.is_live(*at, specs, now_ms)).collect();
        let mut deleted = 0;
        for at in 0..self.rows.len() {
            let goes = is_deleted(at);
            deleted += u64::from(goes && live.contains(&at));
            self.gone[at] |= goes || !live.contains(&at);
        }
        deleted
    }
}

fn numbers<'a>(rows: impl Iterator<Item = Result<StoredRow<'a>, ReadError>>) -> Vec<usize> {
    rows.map(|row| {
        let row = row.unwrap();
        let number = row.row.get(V).as_i64().unwrap();
        assert_eq!(i64::try_from(row.arrival).unwrap(), number);
        usize::try_from(number).unwrap()
    })
    .collect()
}

/// The numbers of the rows of a scan.
fn scanned(rows: ScanRows<'_>) -> Vec<usize> {
    let number = |row: StoredRow<'_>| {
        let number = row.row.get(V).as_i64().unwrap();
        assert_eq!(i64::try_from(row.arrival).unwrap(), number);
        usize::try_from(number).unwrap()
    };
    rows.map_rows(number).map(Result::unwrap).collect()
}

/// Compares all that a table shows with the model.
fn check(table: &Table, model: &Model) {
    let snapshot = table.snapshot();
    let specs = &snapshot.schema().indexes;
    let now_ms = snapshot.now_ms();
    let all = 0..model.rows.len();
    let live: Vec<usize> = all.clone().filter(|at| model.is_live(*at, specs, now_ms)).collect();
    assert_eq!(scanned(snapshot.scan()), live);
    assert_eq!(snapshot.count(None), Ok(u64::try_from(live.len()).unwrap()));
    held::SnapshotRows::of(&snapshot, None, &live, model);
    for (position, spec) in specs.iter().enumerate() {
        let is_own = |at: &usize| match spec.declared {
            true => !model.gone[*at] && model.is_kept_by(*at, spec, now_ms),
            false => live.contains(at),
        };
        if spec.is_removed() {
            continue;
        }
        let own: Vec<usize> = all.clone().filter(is_own).collect();
        assert_eq!(scanned(snapshot.scan_kept_by(position)), own, "{spec:?}");
        held::SnapshotRows::of(&snapshot, Some(position), &own, model);
        for at in all.clone() {
            let values = datums(model.rows[at].0);
            let key = key(&spec.keys.iter().map(|column| values[*column]).collect::<Vec<_>>());
            let shown = [
                (snapshot.rows(position, &key), &live),
                (snapshot.rows_kept_by(position, &key), &own),
            ];
            for (mut rows, visible) in shown {
                let mut expected = model.of_key(at, spec);
                expected.retain(|row| visible.contains(row));
                assert_eq!(numbers(rows.clone()), expected, "{spec:?}");
                include::check_runs(&snapshot, position, &rows);
                let event_time = model.event_time(at, spec);
                expected.retain(|row| model.event_time(*row, spec) <= event_time);
                rows.seek(event_time);
                assert!(rows.clone().all(|row| row.unwrap().event_time <= event_time));
                include::check_runs(&snapshot, position, &rows);
                assert_eq!(numbers(rows), expected, "{spec:?} from {event_time}");
            }
        }
    }
}

/// Draws a rule of any kind.
pub(crate) fn retention(
    ttl_ms: Range<i64>,
    latest: Range<u64>,
) -> impl Strategy<Value = Retention> {
    prop_oneof![
        1 => Just(Retention::Forever),
        3 => ttl_ms.clone().prop_map(|ttl_ms| Retention::Absolute { ttl_ms }),
        3 => latest.clone().prop_map(|latest| Retention::Latest { latest }),
        2 => (ttl_ms.clone(), latest.clone())
            .prop_map(|(ttl_ms, latest)| Retention::AbsOrLat { ttl_ms, latest }),
        2 => (ttl_ms, latest).prop_map(|(ttl_ms, latest)| Retention::AbsAndLat { ttl_ms, latest }),
    ]
}

fn rows(
    numbers: impl Iterator<Item = i64> + Clone,
) -> impl Iterator<Item = [Datum<'static>; 3]> + Clone {
    numbers.map(|v| datums((Some(1), Some(v), v)))
}

#[test]
fn a_refused_append_leaves_nothing_behind() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.append(rows(0..1)).unwrap();
    let null = table.append_timed([datums((None, Some(1), 1)), datums((None, None, 2))]);
    let (column, name) = ("t".to_owned(), "i".to_owned());
    let expected = TableError::NullEventTime { column, index: name, row_number: 2 };
    assert_eq!(null, Err(expected));
    let negative = table.append_timed([datums((None, Some(-1), 1))]).unwrap_err();
    assert_eq!(
        negative.to_string(),
        "event-time column `t` of index `i` must not be negative: -1 in row 1"
    );
    let narrow = table.append([vec![Datum::Null]]);
    let source = RowError::Width { expected: 3, found: 1 };
    assert_eq!(narrow, Err(TableError::Row { row_number: 1, source }));
    assert_eq!(scanned(table.snapshot().scan()), [0]);
    assert_eq!(table.row_count(), 1);
    table.append(rows(1..2)).unwrap();
    assert_eq!(scanned(table.snapshot().scan()), [0, 1]);
}

#[test]
fn a_row_without_event_time_stands_before_every_other() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.append([datums((Some(1), Some(-5), 0)), datums((Some(1), None, 1))]).unwrap();
    table.append(rows(2..3)).unwrap();
    let one = key(&[Datum::Int(1)]);
    assert_eq!(numbers(table.snapshot().rows(0, &one)), [2, 0, 1]);
}

#[test]
fn rows_that_are_stored_already_are_not_stored_again() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.append(rows(0..2)).unwrap();
    assert_eq!(table.append_absent(rows(0..4).chain(rows(2..3))).unwrap().rows, 2);
    assert_eq!(scanned(table.snapshot().scan()), [0, 1, 2, 3]);
}

#[test]
fn a_delete_is_not_seen_by_older_snapshots() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    let auto = table.ensure_index(&[V], None);
    table.append(rows(0..4)).unwrap();
    let before = table.snapshot();
    assert_eq!(table.delete(|row| row.get(V).as_i64() == Some(2)), Ok(1));
    let one = key(&[Datum::Int(1)]);
    assert_eq!(numbers(before.rows(0, &one)), [3, 2, 1, 0]);
    drop(before);
    let after = table.snapshot();
    assert_eq!(numbers(after.rows(0, &one)), [3, 1, 0]);
    assert_eq!(scanned(after.scan()), [0, 1, 3]);
    assert_eq!(after.rows(auto, &key(&[Datum::BigInt(2)])).count(), 0);
    drop(after);
    assert_eq!(table.delete(|_| false), Ok(0));
    table.append(rows(4..5)).unwrap();
    assert_eq!(numbers(table.snapshot().rows(0, &one)), [4, 3, 1, 0]);
}

#[test]
fn a_dropped_index_goes_on_serving_what_the_others_keep() {
    let latest = index("latest", &[K], Some(T), Retention::Latest { latest: 1 });
    let ranged = index("ranged", &[V], Some(T), Retention::Absolute { ttl_ms: 10 });
    let (table, clock) = table(vec![latest, ranged], 11);
    assert_eq!(table.ensure_index(&[K], Some(T)), 0, "somebody reads through it");
    table.append(rows(0..4)).unwrap();
    let one = key(&[Datum::Int(1)]);
    assert_eq!(numbers(table.snapshot().rows_kept_by(0, &one)), [3]);
    table.drop_declared_index("latest").unwrap();
    assert_eq!(numbers(table.snapshot().rows_kept_by(0, &one)), [3, 2]);
    let missing = table.drop_declared_index("latest").unwrap_err();
    assert_eq!(missing, TableError::IndexMissing { name: "latest".to_owned() });
    // Without a declared index every row stays, but none that has expired comes back.
    let before = scanned(table.snapshot().scan());
    table.drop_declared_index("ranged").unwrap();
    assert_eq!(scanned(table.snapshot().scan()), before);
    clock.set_ms(1_000);
    assert_eq!(scanned(table.snapshot().scan()), before);
    table.append(rows(4..5)).unwrap();
    assert_eq!(table.snapshot().scan().map_rows(|_| ()).count(), before.len() + 1);
}

#[test]
fn a_declared_index_may_have_the_name_of_an_automatic_one() {
    let (table, _clock) = table(Vec::new(), 0);
    table.append(rows(0..4)).unwrap();
    let at = table.ensure_index(&[K], Some(T));
    let name = table.schema().indexes[at].name.clone();
    let by_v = IndexSpec { name: name.clone(), ..index("x", &[V], None, Retention::Forever) };
    let declared = table.add_declared_index(by_v.clone()).unwrap();
    assert_eq!(table.schema().indexes[declared].name, name);
    assert_ne!(table.schema().indexes[at].name, name);
    let again = table.add_declared_index(by_v).unwrap_err();
    assert_eq!(again, TableError::IndexExists { name });
}

#[test]
fn an_index_over_no_such_column_is_refused() {
    let schema = |spec| TableSchema {
        columns: vec![Column::new("s", DataType::String)],
        indexes: vec![spec],
    };
    let refused = |spec| {
        let clock = Arc::new(ManualClock::new(0));
        Table::new(schema(spec), clock, Arc::default()).unwrap_err().to_string()
    };
    assert_eq!(
        refused(index("i", &[1], None, Retention::Forever)),
        "index `i` references column 1, but the table has 1 columns"
    );
    assert_eq!(
        refused(index("i", &[], Some(0), Retention::Forever)),
        "event-time column `s` must be of type BIGINT, TIMESTAMP, INT or SMALLINT, not STRING"
    );
}

#[test]
fn rows_that_expired_stay_away_when_an_index_that_would_keep_them_is_added() {
    let (table, clock) =
        table(vec![index("i", &[K], Some(T), Retention::Absolute { ttl_ms: 5 })], 4);
    table.append(rows(0..4)).unwrap();
    table.ensure_index(&[], None);
    clock.set_ms(7);
    let added = table.add_declared_index(index("j", &[], None, Retention::Forever));
    assert_eq!(added, Ok(2));
    let snapshot = table.snapshot();
    assert_eq!(scanned(snapshot.scan()), [3]);
    assert_eq!(numbers(snapshot.rows(1, &[])), [3]);
    assert_eq!(numbers(snapshot.rows(2, &[])), [3]);
    drop(snapshot);
    clock.set_ms(100);
    assert_eq!(scanned(table.snapshot().scan()), [3]);
    assert_eq!(table.row_count(), 1);
}

#[test]
fn a_widened_index_keeps_more_from_then_on() {
    let by_key = index("i", &[K], Some(T), Retention::Absolute { ttl_ms: 10 });
    let (table, clock) = table(vec![by_key], 0);
    table.append([datums((Some(1), Some(1), 0)), datums((Some(1), Some(8), 1))]).unwrap();
    clock.set_ms(15);
    assert_eq!(scanned(table.snapshot().scan()), [1]);
    table.widen_index(0, Retention::Forever).unwrap();
    clock.set_ms(100);
    assert_eq!(scanned(table.snapshot().scan()), [1], "what had expired stays away");
    assert_eq!(numbers(table.snapshot().rows(0, &key(&[Datum::Int(1)]))), [1]);
}

#[test]
fn an_index_over_rows_without_event_time_is_not_widened() {
    let by_value = index("i", &[V], None, Retention::Absolute { ttl_ms: 10 });
    let (table, _) = table(vec![by_value], 0);
    table.append([datums((Some(1), None, 0))]).unwrap();
    let at = table.ensure_index(&[K], Some(T));
    let error = table.widen_index(at, Retention::Forever).unwrap_err();
    assert!(matches!(error, TableError::NullEventTime { .. }), "{error}");
    assert!(!table.schema().indexes[at].declared);
}

#[test]
fn a_snapshot_does_not_change() {
    let (table, clock) = table(vec![index("i", &[K], Some(T), Retention::Latest { latest: 2 })], 0);
    table.append(rows(0..3)).unwrap();
    let snapshot = table.snapshot();
    table.append(rows(3..200)).unwrap();
    clock.set_ms(1_000);
    assert_eq!(table.collect_expired(), 0, "the snapshot still sees the rows");
    table.truncate().unwrap();
    assert_eq!(scanned(snapshot.scan()), [1, 2]);
    assert_eq!(numbers(snapshot.rows(0, &key(&[Datum::Int(1)]))), [2, 1]);
    assert_eq!(scanned(table.snapshot().scan()), Vec::<usize>::new());
    assert_eq!(table.row_count(), 0);
}

#[test]
fn collecting_frees_the_memory_of_expired_rows() {
    let retention = Retention::Absolute { ttl_ms: 10 };
    let (table, clock) = table(vec![index("i", &[K], Some(T), retention)], 0);
    table.ensure_index(&[V], Some(T));
    let empty = table.memory_bytes();
    for batch in 0..10 {
        table.append(rows(batch * 1_000..(batch + 1) * 1_000)).unwrap();
    }
    let full = table.memory_bytes();
    assert!(full > empty + 10_000 * 40, "{full}");
    clock.set_ms(1_000_000);
    assert_eq!(scanned(table.snapshot().scan()), Vec::<usize>::new());
    // Snapshots of other tests hold the collector up for a moment.
    let mut removed = 0;
    for _ in 0..100_000 {
        removed += table.collect_expired();
        if removed > 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!((removed, table.row_count()), (10_000, 0));
    assert_eq!(table.memory_bytes(), empty);
}

/// Whole batches are visible, and as many through every index.
fn check_batches(snapshot: &Snapshot<'_>, batch_rows: usize) {
    let count = snapshot.scan().map_rows(|_| ()).count();
    assert_eq!(count % batch_rows, 0);
    for (position, spec) in snapshot.schema().indexes.iter().enumerate() {
        let key = if spec.keys.is_empty() { Vec::new() } else { key(&[Datum::Int(1)]) };
        assert_eq!(snapshot.rows(position, &key).count(), count);
    }
}

#[test]
fn an_append_is_never_half_visible() {
    const BATCHES: i64 = 300;
    const BATCH_ROWS: usize = 7;
    let retention = Retention::Latest { latest: 1_000_000 };
    let (table, _clock) = table(vec![index("i", &[K], Some(T), retention)], 0);
    let table = Arc::new(table);
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (table, done) = (Arc::clone(&table), Arc::clone(&done));
            let body = move || {
                // Acquire: pairs with the Release at the end of the test.
                while !done.load(Ordering::Acquire) {
                    check_batches(&table.snapshot(), BATCH_ROWS);
                }
            };
            lockstep_host::spawn("reader", body).unwrap()
        })
        .collect();
    for batch in 0..BATCHES {
        // Half of the batches are late.
        let first = if batch % 2 == 0 { batch } else { BATCHES - batch } * 7;
        table.append(rows(first..).take(BATCH_ROWS)).unwrap();
        if batch == BATCHES / 2 {
            table.ensure_index(&[], Some(T));
        }
        if batch % 50 == 0 {
            assert_eq!(table.collect_expired(), 0);
        }
    }
    // Release: pairs with the Acquire in the readers.
    done.store(true, Ordering::Release);
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn appends_of_several_threads_are_visible_in_whole_and_in_order() {
    const BATCHES: i64 = 400;
    const BATCH_ROWS: i64 = 5;
    let (table, _clock) = table(
        vec![
            index("i", &[K], Some(T), Retention::Latest { latest: 1_000_000 }),
            index("j", &[], Some(T), Retention::Latest { latest: 1_000_000 }),
        ],
        0,
    );
    let table = Arc::new(table);
    let writers: Vec<_> = (0..3_i64)
        .map(|writer| {
            let table = Arc::clone(&table);
            let body = move || {
                for batch in 0..BATCHES {
                    let rows = (0..BATCH_ROWS).map(|row| {
                        let number = (writer * BATCHES + batch) * BATCH_ROWS + row;
                        datums((Some(1), Some(number * 7_919 % 1_000), number))
                    });
                    table.append(rows).unwrap();
                    let snapshot = table.snapshot();
                    let numbers = snapshot.scan().map_rows(|found| found.row.get(V).as_i64());
                    let own = numbers.filter(|number| {
                        number.clone().unwrap().unwrap() / (BATCHES * BATCH_ROWS) == writer
                    });
                    let expected = usize::try_from((batch + 1) * BATCH_ROWS).unwrap();
                    assert_eq!(own.count(), expected, "an append is visible when it returns");
                    if batch % 50 == 0 {
                        check_batches(&snapshot, usize::try_from(BATCH_ROWS).unwrap());
                    }
                }
            };
            lockstep_host::spawn("writer", body).unwrap()
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    check_batches(&table.snapshot(), usize::try_from(BATCH_ROWS).unwrap());
    assert_eq!(table.row_count(), u64::try_from(3 * BATCHES * BATCH_ROWS).unwrap());
}

#[test]
fn rows_of_a_few_survivors_are_copied_together() {
    let latest = index("i", &[K], Some(T), Retention::Latest { latest: 2 });
    let (table, _clock) = table(vec![latest], 0);
    table.ensure_index(&[V], None);
    let row = |k, v| datums((Some(k), Some(v), v));
    for v in 0..3_000_i64 {
        // A key of its own now and then, the others all of one key.
        let k = if v % 100 == 0 { i32::try_from(v).unwrap() } else { -1 };
        table.append([row(k, v)]).unwrap();
    }
    let full = table.memory().rows;
    let shown = scanned(table.snapshot().scan());
    assert_eq!(shown.len(), 32);
    let mut removed = 0;
    // Snapshots of other tests hold the collector up for a moment.
    for _ in 0..100_000 {
        removed += table.collect_expired();
        if removed > 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!((removed, table.row_count()), (2_968, 32));
    assert!(table.memory().rows * 10 < full, "{} of {full}", table.memory().rows);
    assert_eq!(scanned(table.snapshot().scan()), shown);
    for v in [0, 100, 2_900, 2_998, 2_999] {
        let expected = vec![usize::try_from(v).unwrap()];
        assert_eq!(numbers(table.snapshot().rows(1, &key(&[Datum::BigInt(v)]))), expected);
    }
    assert_eq!(table.collect_expired(), 0);
}

/// A table that charges a budget.
fn budgeted(indexes: Vec<IndexSpec>, now_ms: i64) -> (Table, Arc<MemoryBudget>, Arc<ManualClock>) {
    let (plain, clock) = table(indexes, now_ms);
    let budget = Arc::new(MemoryBudget::default());
    let schema = TableSchema::clone(&plain.schema());
    let shared: Arc<ManualClock> = Arc::clone(&clock);
    let table = Table::with_budget(schema, shared, Arc::default(), Arc::clone(&budget));
    (table.unwrap(), budget, clock)
}

/// Frees what was replaced, as soon as the snapshots of other tests are gone.
fn reclaim() {
    while !lockstep_series::reclaim() {
        std::thread::yield_now();
    }
}

#[test]
fn the_budget_is_charged_with_what_tables_hold() {
    let keep_two = index("i", &[K], Some(T), Retention::Latest { latest: 2 });
    let (table, budget, _clock) = budgeted(vec![keep_two], 0);
    let check = |what: &str| {
        reclaim();
        assert_eq!(budget.memory_use().used, table.memory_bytes(), "{what}");
    };
    check("empty");
    table.append(rows(0..2_000)).unwrap();
    check("appended");
    table.append([datums((Some(1), Some(5), 2_000))]).unwrap();
    check("a late row");
    assert_eq!(table.append_absent(rows(0..2_100)).unwrap().rows, 2_098);
    check("rows that were not live");
    table.ensure_index(&[V], Some(T));
    check("an index added");
    assert_eq!(table.delete(|row| row.get(V).as_i64() == Some(2_099)), Ok(1));
    check("a row deleted");
    for _ in 0..100 {
        table.collect_expired();
    }
    check("rows collected");
    table.append([[Datum::Null]]).unwrap_err();
    check("rows refused");
    table.truncate().unwrap();
    check("truncated");
    drop(table);
    reclaim();
    assert_eq!(budget.memory_use().used, 0);
}

#[test]
fn what_a_snapshot_still_shows_stays_charged() {
    let (table, budget, _clock) = budgeted(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.append(rows(0..2_000)).unwrap();
    reclaim();
    let held = budget.memory_use().used;
    let snapshot = table.snapshot();
    table.truncate().unwrap();
    assert!(!lockstep_series::reclaim(), "the snapshot keeps it");
    assert_eq!(budget.memory_use().used, held + table.memory_bytes());
    assert_eq!(scanned(snapshot.scan()).len(), 2_000);
    drop(snapshot);
    reclaim();
    assert_eq!(budget.memory_use().used, table.memory_bytes());
}

#[test]
fn late_rows_stay_charged_as_long_as_a_snapshot_shows_the_chunks_before() {
    let (table, budget, _clock) = budgeted(vec![index("i", &[], Some(T), Retention::Forever)], 0);
    table.append(rows(1_000..2_000)).unwrap();
    let snapshot = table.snapshot();
    for late in (0..1_000).rev() {
        table.append(rows(late..late + 1)).unwrap();
    }
    // What this thread keeps for itself, up to a megabyte.
    lockstep_series::pin().flush();
    let waiting = budget.memory_use().used - table.memory_bytes();
    assert!(waiting > 1_000 * 300, "{waiting} bytes were replaced, and are not free");
    assert_eq!(snapshot.scan().map_rows(|_| ()).count(), 1_000);
    drop(snapshot);
    reclaim();
    assert_eq!(budget.memory_use().used, table.memory_bytes());
}

#[test]
fn writes_are_refused_above_the_limit_and_reads_and_deletes_go_on() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    table.append(rows(0..1_000)).unwrap();
    reclaim();
    let held = budget.memory_use().used;
    budget.set_limit(Some(held + 10_000));
    let refused = table.append(rows(1_000..2_000)).unwrap_err();
    let TableError::OutOfMemory { needed, used, limit } = refused else {
        panic!("{refused}");
    };
    assert_eq!((used, limit), (held, held + 10_000));
    assert!(needed > 10_000);
    assert!(table.append_timed(rows(1_000..2_000)).is_err());
    assert!(table.append_absent(rows(0..2_000)).is_err());
    assert_eq!(budget.memory_use().refused, 3);
    assert_eq!(budget.memory_use().used, held, "nothing of a refused append stays");
    assert_eq!(scanned(table.snapshot().scan()).len(), 1_000);
    table.append(rows(1_000..1_010)).unwrap();
    reclaim();
    let nothing = table.append_absent(rows(0..1_000)).unwrap();
    assert_eq!(nothing.rows, 0, "nothing to store needs no space");
    assert_eq!(table.delete(|row| row.get(V).as_i64() >= Some(10)), Ok(1_000));
    reclaim();
    table.append(rows(1_010..1_500)).unwrap();
    budget.set_limit(None);
    table.append(rows(1_500..5_000)).unwrap();
}

#[test]
fn expired_rows_make_room_for_new_ones() {
    let retention = Retention::Absolute { ttl_ms: 1_000 };
    let (table, budget, clock) = budgeted(vec![index("i", &[K], Some(T), retention)], 0);
    let mut refused = 0;
    for batch in 0..200 {
        if batch == 10 {
            budget.set_limit(Some(budget.memory_use().used));
        }
        clock.set_ms(batch * 1_000);
        let batch = rows(batch * 1_000..(batch + 1) * 1_000);
        // Snapshots of other tests hold the collector up for a moment.
        let is_stored = (0..100_000).any(|_| {
            std::thread::yield_now();
            table.append(batch.clone()).is_ok()
        });
        refused += u32::from(!is_stored);
    }
    assert_eq!(refused, 0);
    assert!(table.row_count() < 20_000, "{}", table.row_count());
}

#[test]
fn an_alert_is_told_once_each_time_the_threshold_is_passed() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    budget.observe(move |now| telling.lock().push(now.status()));
    budget.set_limit(Some(200_000));
    budget.set_alert_ppm(500_000);
    assert_eq!(budget.memory_use().alert_at, Some(100_000));
    table.append(rows(0..1_000)).unwrap();
    assert_eq!((told.lock().len(), budget.memory_use().status()), (0, MemoryStatus::Ok));
    table.append(rows(1_000..2_500)).unwrap();
    table.append(rows(2_500..2_510)).unwrap();
    assert_eq!(*told.lock(), [MemoryStatus::Alert]);
    table.truncate().unwrap();
    reclaim();
    assert_eq!(budget.memory_use().status(), MemoryStatus::Ok);
    table.append(rows(0..2_500)).unwrap();
    assert_eq!(*told.lock(), [MemoryStatus::Alert; 2]);
    budget.set_limit(Some(1));
    assert_eq!(budget.memory_use().status(), MemoryStatus::Full);
}

/// ESTIMATE against what is taken, by rows, keys and bytes of text, without included columns and
/// with them.
fn check_estimate(count: i64, keys: i64, text_bytes: usize) {
    for includes in [false, true] {
        check_estimate_of((count, keys), text_bytes, includes);
    }
}

fn check_estimate_of((count, keys): (i64, i64), text_bytes: usize, includes: bool) {
    let columns = vec![
        Column::new("k", DataType::BigInt),
        Column::new("t", DataType::Timestamp),
        Column::new("s", DataType::String),
        Column::new("x", DataType::Double),
    ];
    let indexes = vec![
        index("by_k", &[0], Some(1), Retention::Forever),
        index("by_s", &[2], Some(1), Retention::Forever),
    ];
    let clock = Arc::new(ManualClock::new(0));
    let schema = TableSchema { columns, indexes };
    let table = Table::new(schema.clone(), clock, Arc::default()).unwrap();
    if includes {
        include::included(&table, 1, &[(3, true), (2, true), (0, false)]);
    }
    for first in (0..count).step_by(500) {
        let texts: Vec<String> = (first..(first + 500).min(count))
            .map(|row| format!("{:0text_bytes$}", row % keys))
            .collect();
        let rows = (first..).zip(&texts).map(|(row, text)| {
            let x = if row % 3 == 0 { Datum::Null } else { Datum::Double(0.5) };
            [Datum::BigInt(row % 40), Datum::Timestamp(row), Datum::String(text), x]
        });
        table.append(rows).unwrap();
    }
    let number = |count: i64| u64::try_from(count).unwrap();
    let keys = vec![40, number(keys)];
    let text_bytes = u64::try_from(text_bytes).unwrap();
    let sizes = vec![0, table.snapshot().projection(1).map_or(0, Projection::size)];
    let shape = TableShape { rows: number(count), keys, text_bytes, record_sizes: sizes };
    let (estimated, taken) = (estimate(&schema, &shape), table.memory());
    let parts = |memory: &TableMemory| [vec![memory.rows], memory.indexes.clone()].concat();
    for (estimated, taken) in parts(&estimated).into_iter().zip(parts(&taken)) {
        assert!(estimated.abs_diff(taken) * 10 <= taken, "{estimated} for {taken} in {shape:?}");
    }
}

#[test]
fn an_estimate_is_within_a_tenth_of_what_a_table_takes() {
    check_estimate(500, 500, 10);
    check_estimate(30_000, 30_000, 10);
    check_estimate(30_000, 3_000, 60);
    check_estimate(30_000, 40, 300);
    check_estimate(100_000, 20_000, 12);
}

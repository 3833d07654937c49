//! What is held is there, and goes with the last one who holds it.

use std::sync::Arc;

use lockstep_row::{Datum, IncludedColumn, Retention};

use super::{K, T, V, budgeted, datums, index, key, numbers, reclaim, rows, scanned, table};
use crate::{
    Inclusion, IndexHold, IndexNeed, MemoryBudget, Provision, Snapshot, Table, TableError, Widened,
};

pub(super) fn need(
    keys: &[usize],
    event_time: Option<usize>,
    retention: Option<Retention>,
    columns: &[(usize, bool)],
) -> IndexNeed {
    let column =
        |(column, values): &(usize, bool)| IncludedColumn { column: *column, values: *values };
    let columns = columns.iter().map(column).collect();
    IndexNeed { keys: keys.to_vec(), event_time, retention, columns }
}

/// Holds what is needed, and checks that it comes to what was foretold.
pub(super) fn checked(table: &Arc<Table>, need: &IndexNeed) -> IndexHold {
    let before = table.schema();
    let foretold = table.find_for(need);
    assert_eq!(*before, *table.schema(), "to ask changes nothing");
    let hold = table.hold(need, "owner").unwrap();
    let schema = table.schema();
    let spec = &schema.indexes[hold.index()];
    let mut keys = [spec.keys.clone(), need.keys.clone()];
    keys.iter_mut().for_each(|keys| keys.sort_unstable());
    assert_eq!((&keys[0], spec.event_time), (&keys[1], need.event_time));
    assert_eq!(table.holders(hold.index()), ["owner"]);
    assert_eq!(hold.inclusion(), Inclusion::Included);
    let widened = match foretold {
        Provision::Existing { index, widened, .. } => {
            assert_eq!(index, hold.index());
            widened
        }
        Provision::WouldBuild { name, widened, .. } => {
            assert_eq!(name, spec.name);
            widened
        }
    };
    if hold.refused().is_none() {
        assert_eq!(widened.as_ref(), hold.widened());
    }
    hold
}

fn names(table: &Table) -> Vec<String> {
    let schema = table.schema();
    let present = schema.indexes.iter().filter(|spec| !spec.is_removed());
    present.map(|spec| spec.name.clone()).collect()
}

fn arc(declared: Vec<lockstep_row::IndexSpec>) -> (Arc<Table>, Arc<lockstep_host::ManualClock>) {
    let (table, clock) = table(declared, 0);
    (Arc::new(table), clock)
}

#[test]
fn an_automatic_index_goes_with_its_last_holder() {
    let (table, _clock) = arc(vec![index("i", &[K], Some(T), Retention::Forever)]);
    table.append(rows(0..3)).unwrap();
    let by_v = need(&[V], Some(T), None, &[]);
    assert!(matches!(table.find_for(&by_v), Provision::WouldBuild { rows: 3, .. }));
    let first = table.hold(&by_v, "d1").unwrap();
    let second = table.hold(&by_v, "d2").unwrap();
    let again = table.hold(&by_v, "d2").unwrap();
    let position = first.index();
    assert_eq!([second.index(), again.index()], [position; 2]);
    assert_eq!(table.holders(position), ["d1", "d2"]);
    let one = key(&[Datum::BigInt(1)]);
    assert_eq!(numbers(table.snapshot().rows(position, &one)), [1]);
    drop((first, second));
    assert_eq!(table.holders(position), ["d2"]);
    table.append(rows(3..4)).unwrap();
    let before = table.snapshot();
    drop(again);
    assert_eq!(names(&table), ["i"]);
    assert_eq!(numbers(before.rows(position, &one)), [1], "an older snapshot goes on");
    drop(before);
    table.append(rows(4..6)).unwrap();
    // Another index takes the place of the one that went.
    let by_k_v = table.hold(&need(&[K, V], None, None, &[]), "d3").unwrap();
    assert_eq!(by_k_v.index(), position);
    let one = key(&[Datum::Int(1), Datum::BigInt(5)]);
    assert_eq!(numbers(table.snapshot().rows(position, &one)), [5]);
}

#[test]
fn the_places_of_other_indexes_stay() {
    let (table, _clock) = arc(vec![index("i", &[K], Some(T), Retention::Forever)]);
    table.append(rows(0..3)).unwrap();
    let first = table.hold(&need(&[V], None, None, &[]), "d1").unwrap();
    let second = table.hold(&need(&[V], Some(T), None, &[]), "d2").unwrap();
    let position = second.index();
    drop(first);
    table.append(rows(3..5)).unwrap();
    assert_eq!(table.delete(|row| row.get(V).as_i64() == Some(3)), Ok(1));
    let four = key(&[Datum::BigInt(4)]);
    assert_eq!(numbers(table.snapshot().rows(position, &four)), [4]);
    assert_eq!(table.memory().indexes[1], 0);
    assert_eq!(table.schema().find_index(&[], None), None, "a place is no index");
}

#[test]
fn a_widened_retention_returns_to_what_was_declared() {
    let ttl = |ttl_ms| Retention::Absolute { ttl_ms };
    let (table, clock) = arc(vec![index("i", &[K], Some(T), ttl(10))]);
    table.append([datums((Some(1), Some(1), 0)), datums((Some(1), Some(8), 1))]).unwrap();
    clock.set_ms(15);
    let long = need(&[K], Some(T), Some(ttl(100)), &[]);
    let widened = Widened { index: "i".to_owned(), from: Some(ttl(10)), to: ttl(100) };
    let expected =
        Provision::Existing { index: 0, includes_more: false, widened: Some(widened.clone()) };
    assert_eq!(table.find_for(&long), expected);
    let first = table.hold(&long, "d1").unwrap();
    assert_eq!(first.widened(), Some(&widened));
    let second = table.hold(&need(&[K], Some(T), Some(ttl(50)), &[]), "d2").unwrap();
    assert_eq!(second.widened(), None, "it is kept for as long already");
    assert_eq!(scanned(table.snapshot().scan()), [1], "what has expired does not come back");
    assert_eq!(table.declared_retention(0), Some(ttl(10)));
    clock.set_ms(40);
    assert_eq!(scanned(table.snapshot().scan()), [1]);
    drop(first);
    assert_eq!(table.schema().indexes[0].retention, ttl(50));
    assert_eq!(scanned(table.snapshot().scan()), [1]);
    drop(second);
    assert_eq!(table.schema().indexes[0].retention, ttl(10));
    assert_eq!(scanned(table.snapshot().scan()), Vec::<usize>::new());
}

#[test]
fn an_automatic_index_keeps_rows_by_a_rule_only_while_it_must() {
    let ttl = |ttl_ms| Retention::Absolute { ttl_ms };
    let (table, clock) = arc(vec![index("i", &[K], Some(T), ttl(10))]);
    table.append(rows(0..3)).unwrap();
    let short = table.hold(&need(&[V], Some(T), Some(ttl(5)), &[]), "d1").unwrap();
    assert!(!table.schema().indexes[1].declared, "the declared index keeps enough");
    let long = table.hold(&need(&[V], Some(T), Some(ttl(20)), &[]), "d2").unwrap();
    let widened = Widened { index: "auto_1".to_owned(), from: None, to: ttl(20) };
    assert_eq!(long.widened(), Some(&widened));
    assert_eq!(table.declared_retention(1), None);
    clock.set_ms(15);
    assert_eq!(scanned(table.snapshot().scan()), [0, 1, 2]);
    drop(long);
    assert!(!table.schema().indexes[1].declared);
    assert_eq!(scanned(table.snapshot().scan()), Vec::<usize>::new());
    drop(short);
    assert_eq!(names(&table), ["i"]);
}

#[test]
fn what_was_released_beside_a_change_is_gone_before_the_next_one() {
    let ttl = |ttl_ms| Retention::Absolute { ttl_ms };
    let (table, clock) = arc(vec![index("i", &[K], Some(T), ttl(10))]);
    table.append(rows(0..3)).unwrap();
    let hold = table.hold(&need(&[V], Some(T), Some(ttl(100)), &[]), "d").unwrap();
    clock.set_ms(40);
    assert_eq!(scanned(table.snapshot().scan()), [0, 1, 2]);
    // The change that goes on is to remove what the hold kept, and the next one begins before it does.
    table.change_alone(|_| drop(hold));
    let added = table.add_declared_index(index("j", &[], None, Retention::Forever));
    assert_eq!(numbers(table.snapshot().rows(added.unwrap(), &[])), Vec::<usize>::new());
    assert_eq!(scanned(table.snapshot().scan()), Vec::<usize>::new());
}

#[test]
fn rows_without_an_event_time_are_no_reason_to_fail() {
    let keep = Retention::Latest { latest: 5 };
    let (table, _clock) = arc(vec![index("i", &[K], None, keep)]);
    table.append([datums((Some(1), None, 0))]).unwrap();
    let long = need(&[V], Some(T), Some(Retention::Absolute { ttl_ms: 5 }), &[]);
    let hold = table.hold(&long, "d").unwrap();
    assert!(matches!(hold.refused(), Some(TableError::NullEventTime { .. })));
    assert_eq!(hold.widened(), None);
    assert!(!table.schema().indexes[hold.index()].declared);
}

/// The columns that an index includes.
fn included(snapshot: &Snapshot<'_>, index: usize) -> Vec<usize> {
    let projection = snapshot.projection(index);
    projection.into_iter().flat_map(|p| p.columns()).map(|included| included.column).collect()
}

#[test]
fn included_columns_go_when_nobody_holds_them() {
    let (table, _clock) = arc(vec![index("i", &[K], Some(T), Retention::Forever)]);
    table.append(rows(0..300)).unwrap();
    let plain = table.memory_bytes();
    let hold = |columns: &[(usize, bool)], owner| {
        table.hold(&need(&[K], Some(T), None, columns), owner).unwrap()
    };
    let first = hold(&[(V, true)], "d1");
    let second = hold(&[(T, true), (V, true)], "d2");
    let third = hold(&[(K, true)], "d3");
    assert_eq!(included(&table.snapshot(), 0), [V, T, K]);
    drop(second);
    assert_eq!(included(&table.snapshot(), 0), [V, T, K], "what is held keeps its place");
    drop(third);
    assert_eq!(included(&table.snapshot(), 0), [V]);
    drop(first);
    assert_eq!(included(&table.snapshot(), 0), Vec::<usize>::new());
    assert_eq!(table.memory_bytes(), plain);
    assert_eq!(numbers(table.snapshot().rows(0, &key(&[Datum::Int(1)]))).len(), 300);
}

#[test]
fn a_dropped_index_stays_for_who_holds_it() {
    let forever = Retention::Forever;
    let (table, _clock) =
        arc(vec![index("i", &[K], Some(T), forever), index("j", &[V], Some(T), forever)]);
    table.append(rows(0..3)).unwrap();
    let hold = table.hold(&need(&[V], Some(T), None, &[]), "d").unwrap();
    table.drop_declared_index("j").unwrap();
    assert_eq!(names(&table), ["i", "auto_2"]);
    let two = key(&[Datum::BigInt(2)]);
    assert_eq!(numbers(table.snapshot().rows(hold.index(), &two)), [2]);
    drop(hold);
    assert_eq!(names(&table), ["i"]);
    table.add_declared_index(index("j", &[V], Some(T), forever)).unwrap();
    assert_eq!(numbers(table.snapshot().rows(1, &two)), [2]);
}

#[test]
fn what_a_hold_keeps_stays_when_its_index_is_dropped() {
    let by = |name, retention| index(name, &[], None, retention);
    let declared = vec![by("all", Retention::Forever), by("one", Retention::Latest { latest: 1 })];
    let (table, _clock) = arc(declared);
    table.append(rows(0..2)).unwrap();
    let hold = checked(&table, &need(&[], None, Some(Retention::Forever), &[]));
    table.drop_declared_index("all").unwrap();
    assert_eq!(table.snapshot().scan().map_rows(|_| ()).count(), 2);
    drop(hold);
}

#[test]
fn a_hold_for_which_there_is_no_room_changes_nothing() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    let table = Arc::new(table);
    table.append(rows(0..2_000)).unwrap();
    reclaim();
    let held = budget.memory_use().used;
    let used = |budget: &MemoryBudget| {
        reclaim();
        budget.memory_use().used
    };
    budget.set_limit(Some(held + 10_000));
    let by_v = need(&[V], Some(T), None, &[]);
    let refused = table.hold(&by_v, "d").unwrap_err();
    assert!(matches!(refused, TableError::OutOfMemory { .. }), "{refused}");
    assert_eq!((names(&table), used(&budget)), (vec!["i".to_owned()], held));
    budget.set_limit(None);
    let hold = table.hold(&by_v, "d").unwrap();
    assert_eq!(used(&budget), table.memory_bytes());
    drop(hold);
    assert_eq!((used(&budget), table.memory_bytes()), (held, held));
}

#[test]
fn a_dropped_table_refuses_rows_and_gives_its_memory_back() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    let table = Arc::new(table);
    let empty = table.memory_bytes();
    table.append(rows(0..2_000)).unwrap();
    let hold = table.hold(&need(&[K], Some(T), None, &[]), "d").unwrap();
    table.close();
    assert!(table.is_closed());
    assert_eq!(table.append(rows(0..1)), Err(TableError::Dropped));
    assert_eq!(table.append_timed(rows(0..1)), Err(TableError::Dropped));
    assert_eq!(table.append_absent(rows(0..1)), Err(TableError::Dropped));
    let refused = table.hold(&need(&[V], None, None, &[]), "d").unwrap_err();
    assert_eq!(refused, TableError::Dropped);
    reclaim();
    assert_eq!((table.row_count(), budget.memory_use().used), (0, empty));
    drop(hold);
    drop(table);
    reclaim();
    assert_eq!(budget.memory_use().used, 0);
}

#[test]
fn rows_in_any_order_are_read_by_a_declared_index_where_there_is_one() {
    let ttl = Retention::Absolute { ttl_ms: 1_000 };
    let (by_rows, by_time) = (Retention::Latest { latest: 3 }, ttl);
    let two = |first| {
        let (table, _clock) =
            arc(vec![index("one", &[K, V], Some(T), first), index("two", &[K], None, by_rows)]);
        table
    };
    let table = two(by_time);
    assert_eq!(table.event_time_over(&[V, K]), Some(T), "whatever the order of the columns");
    assert_eq!(table.event_time_over(&[K]), None, "the index in order of arrival is declared");
    assert_eq!(table.event_time_over(&[V]), Some(T), "that of the first declared index");
    assert!(!table.snapshot().may_have_nodes(1), "the other index keeps rows, too");
    // An automatic index changes nothing.
    let _hold = table.hold(&need(&[V], None, None, &[]), "d").unwrap();
    assert_eq!(table.event_time_over(&[V]), Some(T));
    let (only, _clock) = arc(vec![index("one", &[K], Some(T), by_time)]);
    let by_v = only.hold(&need(&[V], only.event_time_over(&[V]), None, &[]), "d").unwrap();
    let snapshot = only.snapshot();
    assert!(snapshot.may_have_nodes(by_v.index()), "rows expire in the order of the index");
    let (none, _clock) = arc(vec![]);
    assert_eq!(none.event_time_over(&[K]), None);
}

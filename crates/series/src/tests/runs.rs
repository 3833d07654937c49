//! The runs of a key, one after the other, are its rows, and records are what was made of the rows.

use lockstep_row::Retention;
use proptest::prelude::*;

use super::{
    Insert, Keeps, World, counted, filled, inserts, model, retention, widths, write_record,
};
use crate::{Bounds, KeyRows, Run, Series, pin};

/// What the runs ahead have, newest first: (event time, arrival). Checks the records beside.
pub(super) fn shown(mut rows: KeyRows<'_>) -> Vec<(i64, u64)> {
    let mut shown = Vec::new();
    while let Some(run) = rows.next_run() {
        rows.prefetch_next_run(&[(0, 1), (1, 8)]);
        assert!(!run.is_empty());
        shown.extend(of_run(&run));
    }
    assert!(rows.next_run().is_none() && rows.next().is_none());
    shown
}

fn of_run(run: &Run<'_>) -> Vec<(i64, u64)> {
    check_records(run);
    let item = |at: usize| {
        run.prefetch_row(at + 5);
        assert_eq!(run.row(at).bytes(), run.row(at).arrival().to_le_bytes());
        (run.event_time(at), run.row(at).arrival())
    };
    (0..run.len()).map(item).collect()
}

fn check_records(run: &Run<'_>) {
    let Some(records) = run.records() else { return };
    assert_eq!(records.len(), run.len());
    let mut expected = vec![0; records.size()];
    let mut record = expected.clone();
    for at in 0..run.len() {
        write_record(run.row(at).bytes(), &mut expected);
        records.copy_to(at, &mut record);
        assert_eq!(record, expected);
        let mut place = 0;
        for width in widths(records.size()) {
            let mut values = records.field(place, width).rchunks_exact(width);
            assert_eq!(values.len(), run.len());
            assert_eq!(values.nth(at).unwrap(), &expected[place..place + width]);
            place += width;
        }
    }
}

/// How a reader goes on.
#[derive(Debug, Clone, Copy)]
enum Step {
    Next,
    Run,
    /// The run of rows whose arrival is no multiple of it.
    RunOf(u64),
    Seek(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Next),
        Just(Step::Run),
        (2_u64..9).prop_map(Step::RunOf),
        prop_oneof![0_i64..60, 0_i64..1_000].prop_map(Step::Seek),
    ]
}

/// Goes through a key's rows as the steps say, and beside it through the list of its rows.
fn check(world: &World, inserts: &[Insert], bounds: (u64, Keeps), steps: &[Step]) {
    let (visible, keeps) = bounds;
    let guard = pin();
    let bounds = Bounds::new(visible, keeps.retention, keeps.now_ms);
    for key in 0..3 {
        let Some(mut rows) = world.series.seek(&[key], bounds, &guard) else { continue };
        let mut expected = model(inserts, key, visible, keeps);
        for step in steps {
            match *step {
                Step::Next => {
                    let found = rows.next().map(|found| (found.event_time, found.row.arrival()));
                    assert_eq!(found, expected.first().copied());
                    expected.drain(..usize::from(found.is_some()));
                }
                Step::Run => {
                    let run = rows.next_run().map_or(Vec::new(), |run| of_run(&run));
                    assert_eq!(run.is_empty(), expected.is_empty());
                    assert_eq!(run, expected.drain(..run.len()).collect::<Vec<_>>());
                }
                Step::RunOf(divisor) => {
                    let is_shown = |arrival: u64| !arrival.is_multiple_of(divisor);
                    let run = rows.next_run_of(|row| is_shown(row.arrival()));
                    let run = run.map_or(Vec::new(), |run| of_run(&run));
                    let hidden =
                        expected.iter().take_while(|(_, arrival)| !is_shown(*arrival)).count();
                    expected.drain(..hidden);
                    assert_eq!(run.is_empty(), expected.is_empty());
                    assert_eq!(run, expected.drain(..run.len()).collect::<Vec<_>>());
                }
                Step::Seek(event_time_max) => {
                    rows.seek(event_time_max);
                    expected.retain(|(event_time, _)| *event_time <= event_time_max);
                }
            }
        }
        assert_eq!(shown(rows), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn runs_and_single_rows_may_be_read_in_turn(
        inserts in inserts(),
        cut in 0_u64..20,
        retention in retention(),
        now_ms in 0_i64..80,
        steps in proptest::collection::vec(step(), 0..8),
    ) {
        let world = filled(&inserts);
        prop_assert_eq!(world.series.memory_bytes(), counted(&world.series));
        let visible = u64::try_from(inserts.len()).unwrap().saturating_sub(cut);
        check(&world, &inserts, (visible, Keeps { retention, now_ms }), &steps);
    }
}

/// A key of so many rows, in order.
fn in_order(count: i64, record_size: usize) -> World {
    let world = World::with_records(record_size);
    for time in 0..count {
        world.insert(b"key", time);
    }
    world
}

#[test]
fn a_run_is_as_long_as_its_chunk_and_can_be_cut() {
    let world = in_order(200, 8);
    let guard = pin();
    let mut rows = world.series.seek(b"key", Bounds::everything(), &guard).unwrap();
    let (newest, oldest) = (rows.next_run().unwrap(), rows.next_run().unwrap());
    assert_eq!((newest.len(), oldest.len()), (72, 128));
    assert_eq!((oldest.event_time(0), oldest.event_time(127)), (127, 0));
    assert_eq!(oldest.partition_point(|time| time > 100), 27);
    assert_eq!(oldest.partition_point(|time| time >= 100), 28);
    assert_eq!(oldest.partition_point(|time| time > 500), 0);
    let part = oldest.slice(27..30);
    assert_eq!(of_run(&part), [(100, 100), (99, 99), (98, 98)]);
    assert_eq!(of_run(&part.slice(1..2)), [(99, 99)]);
    assert!(part.slice(3..3).is_empty());
    assert!(rows.next_run().is_none());
}

#[test]
fn the_only_row_of_a_key_has_no_record() {
    let world = in_order(1, 8);
    let has_records = || {
        let guard = pin();
        let mut rows = world.series.seek(b"key", Bounds::everything(), &guard).unwrap();
        rows.next_run().unwrap().records().is_some()
    };
    assert!(!has_records());
    world.insert(b"key", 1);
    assert!(has_records());
    assert_eq!(world.retain(|arrival| arrival == 0), 1);
    assert!(!has_records());
    world.insert(b"key", -1);
    assert!(has_records());
    let none = in_order(2, 0);
    let guard = pin();
    let mut rows = none.series.seek(b"key", Bounds::everything(), &guard).unwrap();
    assert!(rows.next_run().unwrap().records().is_none());
}

#[test]
#[should_panic(expected = "a record is read by its fields")]
fn a_field_is_read_as_it_was_written() {
    let world = in_order(2, 9);
    let guard = pin();
    let mut rows = world.series.seek(b"key", Bounds::everything(), &guard).unwrap();
    let _values = rows.next_run().unwrap().records().unwrap().field(1, 4);
}

/// A key that has many rows finds its expired ones without looking at the others.
#[test]
fn a_run_ends_where_retention_does() {
    let world = in_order(300, 8);
    let check = |retention: Retention, expected: std::ops::Range<i64>| {
        let guard = pin();
        let bounds = Bounds::new(u64::MAX, retention, 300);
        let rows = world.series.seek(b"key", bounds, &guard).unwrap();
        let times: Vec<i64> = shown(rows).into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, expected.rev().collect::<Vec<_>>(), "{retention:?}");
    };
    check(Retention::Absolute { ttl_ms: 100 }, 201..300);
    check(Retention::Latest { latest: 150 }, 150..300);
    check(Retention::AbsOrLat { ttl_ms: 100, latest: 10 }, 290..300);
    check(Retention::AbsAndLat { ttl_ms: 100, latest: 10 }, 201..300);
    check(Retention::Absolute { ttl_ms: 1 }, 300..300);
}

/// What an index takes for each slot beside the record itself.
#[test]
fn a_record_takes_little_more_than_its_bytes() {
    if cfg!(miri) {
        return;
    }
    for (rows, size) in [(2, 8), (10, 8), (100, 25), (1_000, 25), (10_000, 64)] {
        let keys = 20_000_u64.div_ceil(rows);
        let world = World::with_records(size);
        for row in 0..keys * rows {
            world.insert(&(row % keys).to_le_bytes(), i64::try_from(row).unwrap());
        }
        let taken = world.series.memory_bytes() - Series::default().memory_bytes();
        assert_eq!(world.series.memory_bytes(), counted(&world.series));
        let slot = 10 + u64::try_from(size).unwrap();
        let allowed = keys * (64 + 8 + 24) + keys * rows * (slot + slot / 3 + 2);
        assert!(taken <= allowed, "{rows} rows for each key: {taken} of {allowed}");
    }
}

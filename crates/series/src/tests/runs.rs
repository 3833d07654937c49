//! The runs of a key, one after the other, have its rows, and records are as they were made of the rows.

use lockstep_row::Retention;
use proptest::prelude::*;

use super::{
    Insert, Keeps, SeriesFixture, counted, filled, inserts, model, retention, widths, write_record,
};
use crate::{Bounds, ChunkRun, RecordField, Series, SeriesRows, pin};

/// Returns the rows of the runs ahead, newest first: (event time, arrival). Checks their records.
pub(super) fn shown(mut rows: SeriesRows<'_>) -> Vec<(i64, u64)> {
    let mut shown = Vec::new();
    while let Some(run) = rows.next_run() {
        let fields = [(0, 1), (1, 8)].map(|(offset, width)| RecordField { offset, width });
        rows.prefetch_next_run(&fields);
        assert!(!run.is_empty());
        shown.extend(of_run(&run));
    }
    assert!(rows.next_run().is_none() && rows.next().is_none());
    shown
}

fn of_run(run: &ChunkRun<'_>) -> Vec<(i64, u64)> {
    check_records(run);
    let item = |at: usize| {
        run.prefetch_row(at + 5);
        assert_eq!(run.row(at).bytes(), run.row(at).arrival().to_le_bytes());
        (run.event_time(at), run.row(at).arrival())
    };
    (0..run.len()).map(item).collect()
}

fn check_records(run: &ChunkRun<'_>) {
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

/// A step of a reader.
#[derive(Debug, Clone, Copy)]
enum ReadStep {
    Next,
    Run,
    /// The run of rows whose arrival is no multiple of it.
    RunOf(u64),
    Seek(i64),
}

fn step() -> impl Strategy<Value = ReadStep> {
    prop_oneof![
        Just(ReadStep::Next),
        Just(ReadStep::Run),
        (2_u64..9).prop_map(ReadStep::RunOf),
        prop_oneof![0_i64..60, 0_i64..1_000].prop_map(ReadStep::Seek),
    ]
}

/// Reads a key's rows by these steps, and beside it the list of its rows.
fn check(fixture: &SeriesFixture, inserts: &[Insert], bounds: (u64, Keeps), steps: &[ReadStep]) {
    let (visible, keeps) = bounds;
    let guard = pin();
    let bounds = Bounds::new(visible, keeps.retention, keeps.now_ms);
    for key in 0..3 {
        let Some(mut rows) = fixture.series.seek(&[key], bounds, &guard) else { continue };
        let mut expected = model(inserts, key, visible, keeps);
        for step in steps {
            match *step {
                ReadStep::Next => {
                    let found = rows.next().map(|found| (found.event_time, found.row.arrival()));
                    assert_eq!(found, expected.first().copied());
                    expected.drain(..usize::from(found.is_some()));
                }
                ReadStep::Run => {
                    let run = rows.next_run().map_or(Vec::new(), |run| of_run(&run));
                    assert_eq!(run.is_empty(), expected.is_empty());
                    assert_eq!(run, expected.drain(..run.len()).collect::<Vec<_>>());
                }
                ReadStep::RunOf(divisor) => {
                    let is_shown = |arrival: u64| !arrival.is_multiple_of(divisor);
                    let run = rows.next_run_of(|row| is_shown(row.arrival()));
                    let run = run.map_or(Vec::new(), |run| of_run(&run));
                    let hidden =
                        expected.iter().take_while(|(_, arrival)| !is_shown(*arrival)).count();
                    expected.drain(..hidden);
                    assert_eq!(run.is_empty(), expected.is_empty());
                    assert_eq!(run, expected.drain(..run.len()).collect::<Vec<_>>());
                }
                ReadStep::Seek(event_time_max) => {
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
        let fixture = filled(&inserts);
        prop_assert_eq!(fixture.series.memory_bytes(), counted(&fixture.series));
        let visible = u64::try_from(inserts.len()).unwrap().saturating_sub(cut);
        check(&fixture, &inserts, (visible, Keeps { retention, now_ms }), &steps);
    }
}

/// Makes a key of so many rows, in order.
fn in_order(count: i64, record_size: usize) -> SeriesFixture {
    let fixture = SeriesFixture::with_records(record_size);
    for time in 0..count {
        fixture.insert(b"key", time);
    }
    fixture
}

#[test]
fn a_run_is_as_long_as_its_chunk_and_can_be_cut() {
    let fixture = in_order(200, 8);
    let guard = pin();
    let mut rows = fixture.series.seek(b"key", Bounds::everything(), &guard).unwrap();
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
    let fixture = in_order(1, 8);
    let has_records = || {
        let guard = pin();
        let mut rows = fixture.series.seek(b"key", Bounds::everything(), &guard).unwrap();
        rows.next_run().unwrap().records().is_some()
    };
    assert!(!has_records());
    fixture.insert(b"key", 1);
    assert!(has_records());
    assert_eq!(fixture.retain(|arrival| arrival == 0), 1);
    assert!(!has_records());
    fixture.insert(b"key", -1);
    assert!(has_records());
    let none = in_order(2, 0);
    let guard = pin();
    let mut rows = none.series.seek(b"key", Bounds::everything(), &guard).unwrap();
    assert!(rows.next_run().unwrap().records().is_none());
}

#[test]
#[should_panic(expected = "a record is read by its fields")]
fn a_field_is_read_as_it_was_written() {
    let fixture = in_order(2, 9);
    let guard = pin();
    let mut rows = fixture.series.seek(b"key", Bounds::everything(), &guard).unwrap();
    let _values = rows.next_run().unwrap().records().unwrap().field(1, 4);
}

/// A key of many rows finds its expired ones without reading the others.
#[test]
fn a_run_ends_where_retention_does() {
    let fixture = in_order(300, 8);
    let check = |retention: Retention, expected: std::ops::Range<i64>| {
        let guard = pin();
        let bounds = Bounds::new(u64::MAX, retention, 300);
        let rows = fixture.series.seek(b"key", bounds, &guard).unwrap();
        let times: Vec<i64> = shown(rows).into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, expected.rev().collect::<Vec<_>>(), "{retention:?}");
    };
    check(Retention::Absolute { ttl_ms: 100 }, 201..300);
    check(Retention::Latest { latest: 150 }, 150..300);
    check(Retention::AbsOrLat { ttl_ms: 100, latest: 10 }, 290..300);
    check(Retention::AbsAndLat { ttl_ms: 100, latest: 10 }, 201..300);
    check(Retention::Absolute { ttl_ms: 1 }, 300..300);
}

/// The memory that an index takes for each slot beside the record itself.
#[test]
fn a_record_takes_little_more_than_its_bytes() {
    if cfg!(miri) {
        return;
    }
    for (rows, size) in [(2, 8), (10, 8), (100, 25), (1_000, 25), (10_000, 64)] {
        let keys = 20_000_u64.div_ceil(rows);
        let fixture = SeriesFixture::with_records(size);
        for row in 0..keys * rows {
            fixture.insert(&(row % keys).to_le_bytes(), i64::try_from(row).unwrap());
        }
        let taken = fixture.series.memory_bytes() - Series::default().memory_bytes();
        assert_eq!(fixture.series.memory_bytes(), counted(&fixture.series));
        let slot = 10 + u64::try_from(size).unwrap();
        let allowed = keys * (64 + 8 + 24) + keys * rows * (slot + slot / 3 + 2);
        assert!(taken <= allowed, "{rows} rows for each key: {taken} of {allowed}");
    }
}

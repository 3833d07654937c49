//! A stream gives what a naive evaluation of its windows gives over all rows that are not late.

mod draw;
mod naive;

use std::collections::BTreeMap;

use lockstep_row::{Datum, Value};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use self::draw::{Case, CaseRow, case};
use crate::{
    JoinCounts, Lateness, Pushed, StreamRow, WindowJoin,
    bug::{self, StreamBug},
};

/// What a stream gave: for each main row by its arrival its columns and results.
type Joined = BTreeMap<u64, (Vec<String>, Vec<String>)>;

/// Runs a case. Returns what was joined, the arrivals of late rows, and the counts at the end.
fn run(case: &Case) -> (Joined, Vec<u64>, JoinCounts) {
    let lateness = Lateness { lateness_ms: case.lateness_ms, idle_after_ms: None };
    let mut join = WindowJoin::new(case.spec(), draw::WIDTH, lateness, 0).unwrap();
    let (mut joined, mut late) = (Joined::new(), Vec::new());
    let text = |values: &[Value]| values.iter().map(|value| format!("{value:?}")).collect();
    let mut emit = |row: crate::WindowedRow<'_>| {
        let values = (text(row.columns), text(row.results));
        assert!(joined.insert(row.arrival, values).is_none(), "row {} twice", row.arrival);
    };
    for (at, row) in case.rows.iter().enumerate() {
        let arena = lockstep_row::Arena::new();
        let columns: Vec<Datum<'_>> = row.columns.iter().map(|v| v.as_datum(&arena)).collect();
        let arrival = draw::arrival(at);
        let row = StreamRow { source: row.source, arrival, columns: &columns };
        if join.push(row, 0, &mut emit) == Pushed::Late {
            late.push(arrival);
        }
        if at % case.step == 0 {
            join.advance(0, &mut emit);
        }
    }
    (0..case.sources).for_each(|source| join.end(source));
    join.advance(0, &mut emit);
    let counts = join.counts();
    (joined, late, counts)
}

/// Compares a stream with the naive evaluation.
fn check(case: &Case) {
    let (joined, late, counts) = run(case);
    let expected = naive::evaluate(case);
    assert_eq!(late, expected.late, "late rows of {case:#?}");
    for (arrival, (columns, results)) in &expected.joined {
        let found = joined.get(arrival);
        let found = found.unwrap_or_else(|| panic!("row {arrival} was not joined: {case:#?}"));
        assert_eq!((&found.0, &found.1), (columns, results), "row {arrival} of {case:#?}");
    }
    assert_eq!(joined.len(), expected.joined.len(), "{case:#?}");
    assert_eq!((counts.unsettled, counts.pending), (0, 0), "all rows were joined");
    assert_eq!(counts.joined, u64::try_from(joined.len()).unwrap());
    assert_eq!(counts.late, u64::try_from(late.len()).unwrap());
    assert_eq!(counts.taken + counts.late + counts.ignored, case.rows.len() as u64);
}

/// A runner that draws the same each time.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn streams_give_what_a_naive_evaluation_gives() {
    // `PROPTEST_CASES` draws more of the same sequence.
    let cases = 6 * Config::default().cases;
    let counts = std::cell::RefCell::new(draw::ConstructCounts::default());
    let outcome = runner(cases).run(&case(), |case| {
        counts.borrow_mut().add(&case);
        check(&case);
        Ok(())
    });
    println!("{}", counts.borrow());
    outcome.unwrap();
    assert_eq!(counts.borrow().missing(), Vec::<&str>::new());
}

#[test]
fn seeded_bugs_are_found() {
    const BUGS: [StreamBug; 10] = [
        StreamBug::WatermarkTooFar,
        StreamBug::DecidedTooEarly,
        StreamBug::DroppedRowInState,
        StreamBug::DroppedTooMuch,
        StreamBug::LateRowCounts,
        StreamBug::RowDropped,
        StreamBug::TiesByArrival,
        StreamBug::PositionsNotMoved,
        StreamBug::KeyDropped,
        StreamBug::StragglersLast,
    ];
    let mut runner = runner(1);
    let find = |bug: StreamBug| {
        (0..3_000).find(|_| {
            let case = case().new_tree(&mut runner).unwrap().current();
            bug::seed(Some(bug));
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&case)));
            bug::seed(None);
            checked.is_err()
        })
    };
    let found = BUGS.map(find);
    println!(
        "seeded bugs, each with the case that found it: {:?}",
        BUGS.iter().zip(found).collect::<Vec<_>>()
    );
    for (bug, found) in BUGS.iter().zip(found) {
        assert!(found.is_some(), "{bug:?} was not found");
    }
}

/// Pushes a row with a time of a source.
fn push(
    join: &mut WindowJoin,
    source: usize,
    arrival: u64,
    time: i64,
    now_ms: i64,
) -> (Pushed, usize) {
    let columns = CaseRow::of(source, Some(time)).columns;
    let arena = lockstep_row::Arena::new();
    let columns: Vec<Datum<'_>> = columns.iter().map(|value| value.as_datum(&arena)).collect();
    let mut joined = 0;
    let mut emit = |_: crate::WindowedRow<'_>| joined += 1;
    let row = StreamRow { source, arrival, columns: &columns };
    let pushed = join.push(row, now_ms, &mut emit);
    join.advance(now_ms, &mut emit);
    (pushed, joined)
}

#[test]
fn an_idle_source_does_not_hold_the_watermark_up() {
    let idle = Lateness { lateness_ms: 10, idle_after_ms: Some(1_000) };
    let check_return = |seeded: Option<StreamBug>| {
        let mut join = WindowJoin::new(draw::simple(2), draw::WIDTH, idle, 0).unwrap();
        bug::seed(seeded);
        // Both have rows: the watermark is that of the slower one.
        assert_eq!(push(&mut join, 0, 1, 100, 0), (Pushed::Taken, 0));
        assert_eq!(join.watermark(), None);
        assert_eq!(push(&mut join, 1, 2, 50, 0), (Pushed::Taken, 0));
        assert_eq!(join.watermark(), Some(40));
        assert_eq!(push(&mut join, 0, 3, 200, 500), (Pushed::Taken, 0));
        // The union source is idle.
        assert_eq!(push(&mut join, 0, 4, 300, 1_000), (Pushed::Taken, 2));
        assert_eq!(join.watermark(), Some(290));
        assert!(join.sources()[1].is_idle);
        // What it has before the watermark is late; then it holds it up again.
        assert_eq!(push(&mut join, 1, 5, 60, 1_001), (Pushed::Late, 0));
        assert_eq!(push(&mut join, 1, 6, 295, 1_001), (Pushed::Taken, 0));
        assert_eq!(push(&mut join, 0, 7, 900, 1_002).0, Pushed::Taken);
        let watermark = join.watermark();
        // All are idle: nothing says how far they are.
        join.advance(9_000, &mut |_| panic!("nothing is joined"));
        bug::seed(None);
        watermark
    };
    assert_eq!(check_return(None), Some(290));
    assert_eq!(check_return(Some(StreamBug::IdleForEver)), Some(890));
}

#[test]
fn memory_is_bounded_by_lateness_and_frames() {
    let lateness = Lateness { lateness_ms: 100, idle_after_ms: None };
    let mut join = WindowJoin::new(draw::simple(2), draw::WIDTH, lateness, 0).unwrap();
    let mut most = 0;
    for step in 0..20_000_u64 {
        let time = i64::try_from(step).unwrap();
        // Keys come and go; rows of the union source alone are dropped as well.
        push(&mut join, usize::from(step % 10 > 0), step, time, 0);
        let counts = join.counts();
        most = most.max(counts.candidates + counts.unsettled);
    }
    let counts = join.counts();
    assert!(
        most < 2 * (100 + 2 * usize::try_from(draw::SIMPLE_RANGE_MS).unwrap()),
        "{most} rows are kept"
    );
    assert!(counts.keys <= 3, "{counts:?}");
    assert!(counts.bytes < 1 << 20, "{counts:?}");
}

#[test]
fn a_window_that_is_never_final_is_refused() {
    let mut spec = draw::simple(1);
    let farthest = None;
    spec.scans[0].groups[0].window.ahead = Some(lockstep_plan::FrameAhead { nearest: 1, farthest });
    let lateness = Lateness { lateness_ms: 0, idle_after_ms: None };
    assert!(WindowJoin::new(spec, draw::WIDTH, lateness, 0).is_err());
}

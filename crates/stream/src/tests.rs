//! A stream gives what a naive evaluation of its windows gives over all rows that are not late.

mod draw;
mod naive;

use std::collections::BTreeMap;

use lockstep_row::{Arena, Datum, Value, key::encode_key};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use self::draw::{Case, CaseRow, case};
use crate::{
    JoinCounts, Lateness, MainProgram, Pushed, StreamRow, WindowJoin,
    bug::{self, StreamBug},
};

/// What a stream gave: for each main row by its arrival its columns and results.
type Joined = BTreeMap<u64, (Vec<String>, Vec<String>)>;

/// A source as those see it who read its rows again: for each row of the case whether it was read, and where.
struct ReadSource {
    /// The positions of its rows among those of the case, each with the newest event time before.
    rows: Vec<(usize, Option<i64>)>,
    newest: Option<i64>,
}

/// Ends a join behind so many rows of a case, and makes another one that has had the same.
fn replace(
    case: &Case,
    join: &WindowJoin,
    (sources, count): (&[ReadSource], usize),
    emit: &mut dyn FnMut(crate::WindowedRow<'_>),
) -> WindowJoin {
    let progress = join.progress();
    let from = |(number, source): (usize, &ReadSource)| {
        let needed_from = join.needed_from(number);
        // The last place before which no row counts any more.
        let is_over = |newest: &Option<i64>| match (newest, needed_from) {
            (Some(newest), Some(needed_from)) => *newest < needed_from,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let places = source.rows.iter().copied().chain([(count, source.newest)]);
        places.clone().rfind(|(_, newest)| is_over(newest)).or(places.clone().next())
    };
    let from: Vec<(usize, Option<i64>)> = sources.iter().enumerate().filter_map(from).collect();
    let newest: Vec<Option<i64>> = from.iter().map(|(_, newest)| *newest).collect();
    let reached = draw::arrival(count);
    let replay = |removed: &[usize], emit: &mut dyn FnMut(crate::WindowedRow<'_>)| {
        let mut again = new_join(case);
        again.begin_replay(&newest, reached, &progress);
        let is_read = |at: &usize| *at >= from[case.rows[*at].source].0 && !removed.contains(at);
        for at in (0..count).filter(is_read) {
            push_row(case, &mut again, at, emit);
            if at % case.step == 0 {
                again.advance(0, emit).unwrap();
            }
        }
        again.end_replay(0);
        again.advance(0, emit).unwrap();
        again
    };
    let (needed, replaced) = rows_of_lookups(case, sources, join.needed_from(0));
    for row in needed {
        let again = replay(&[row], &mut |_| {});
        let source = case.rows[row].source;
        assert_ne!(again.held(source), join.held(source), "row {row} is missed: {case:#?}");
    }
    let again = replay(&replaced, emit);
    assert_eq!(again.progress(), progress, "it is as far as the other one: {case:#?}");
    for source in 0..sources.len() {
        assert_eq!(again.held(source), join.held(source), "it holds the same rows: {case:#?}");
    }
    again
}

/// Returns the rows of LAST JOINs, by their positions: those that main rows need which are joined again, and those that
/// newer ones of their keys have replaced before all of these. Of the latter, without those that made others late.
fn rows_of_lookups(
    case: &Case,
    sources: &[ReadSource],
    needed_from: Option<i64>,
) -> (Vec<usize>, Vec<usize>) {
    let (mut needed, mut replaced) = (Vec::new(), Vec::new());
    for lookup in case.lookups.iter().chain(&case.output_lookups) {
        let key_of = |at: usize| {
            let (mut key, arena) = (Vec::new(), Arena::new());
            let columns = &case.rows[at].columns;
            encode_key(lookup.keys.iter().map(|key| columns[*key].as_datum(&arena)), &mut key);
            key
        };
        let timed = sources[lookup.source].rows.iter().filter_map(|(at, newest)| {
            let time = case.rows[*at].time()?;
            let is_late = newest.is_some_and(|newest| time < newest - case.lateness_ms);
            (!is_late).then_some((*at, time, *newest))
        });
        let timed: Vec<(usize, i64, Option<i64>)> = timed.collect();
        for (at, time, newest) in &timed {
            let replaces = |other: &(usize, i64, Option<i64>)| {
                (other.1, other.0) > (*time, *at)
                    && Some(other.1) < needed_from
                    && key_of(other.0) == key_of(*at)
            };
            match timed.iter().any(replaces) {
                true if Some(*time) <= *newest => replaced.push(*at),
                true => {}
                false => needed.push(*at),
            }
        }
    }
    (needed, replaced)
}

/// The program of drawn streams with LAST JOINs.
#[derive(Debug)]
struct DrawnProgram;

impl MainProgram for DrawnProgram {
    fn compute<'a>(
        &self,
        joined: &[Datum<'_>],
        _arrival: u64,
        arena: &'a Arena,
    ) -> lockstep_diagnostic::Result<Option<&'a [Datum<'a>]>> {
        let joined: Vec<Value> = joined.iter().map(Datum::to_value).collect();
        let Some(columns) = draw::window_row(&joined) else { return Ok(None) };
        let columns: &'a [Value] = arena.alloc_slice_fill_iter(columns);
        Ok(Some(arena.alloc_slice_fill_iter(columns.iter().map(|value| value.as_datum(arena)))))
    }
}

/// Makes the join of a case.
fn new_join(case: &Case) -> WindowJoin {
    let lateness = Lateness { lateness_ms: case.lateness_ms, idle_after_ms: None };
    let spec = case.spec();
    let has_program = !spec.lookups.is_empty();
    let program = has_program.then(|| Box::new(DrawnProgram) as Box<dyn MainProgram>);
    WindowJoin::new(spec, program, lateness, 0).unwrap()
}

fn push_row(
    case: &Case,
    join: &mut WindowJoin,
    at: usize,
    emit: &mut dyn FnMut(crate::WindowedRow<'_>),
) -> Pushed {
    let (row, arena) = (&case.rows[at], Arena::new());
    let columns: Vec<Datum<'_>> = row.columns.iter().map(|v| v.as_datum(&arena)).collect();
    let row = StreamRow { source: row.source, arrival: draw::arrival(at), columns: &columns };
    join.push(row, 0, emit).unwrap()
}

/// Runs a case; behind so many rows another join takes over. Returns what was joined, the arrivals of late rows, and
/// the counts at the end.
fn run(case: &Case, ends: &[usize]) -> (Joined, Vec<u64>, JoinCounts) {
    let mut join = new_join(case);
    let all_sources = case.spec().sources.len();
    let mut sources: Vec<ReadSource> =
        (0..all_sources).map(|_| ReadSource { rows: Vec::new(), newest: None }).collect();
    let (mut joined, mut late) = (Joined::new(), Vec::new());
    let text = |values: &[Value]| values.iter().map(|value| format!("{value:?}")).collect();
    let mut emit = |row: crate::WindowedRow<'_>| {
        let values = (text(row.columns), text(row.results));
        assert!(joined.insert(row.arrival, values).is_none(), "row {} twice", row.arrival);
    };
    for (at, row) in case.rows.iter().enumerate() {
        if ends.contains(&at) {
            // All that is final is given before the progress is taken.
            join.advance(0, &mut emit).unwrap();
            join = replace(case, &join, (&sources, at), &mut emit);
        }
        let source = &mut sources[row.source];
        source.rows.push((at, source.newest));
        if push_row(case, &mut join, at, &mut emit) == Pushed::Late {
            late.push(draw::arrival(at));
        }
        source.newest = join.sources()[row.source].newest;
        if at % case.step == 0 {
            join.advance(0, &mut emit).unwrap();
        }
    }
    (0..all_sources).for_each(|source| join.end(source));
    join.advance(0, &mut emit).unwrap();
    let counts = join.counts();
    (joined, late, counts)
}

/// Compares a stream with the naive evaluation.
fn check(case: &Case) {
    let counts = compare(case, &[]);
    assert_eq!(counts.taken + counts.late + counts.ignored, case.rows.len() as u64);
    let count = case.rows.len();
    compare(case, &[count / 2]);
    compare(case, &[count / 4, count / 2, count / 2 + 1, count - count / 4]);
}

/// Compares a stream that ended behind so many rows, and went on, with the naive evaluation.
fn compare(case: &Case, ends: &[usize]) -> JoinCounts {
    let (joined, late, counts) = run(case, ends);
    let expected = naive::evaluate(case);
    assert_eq!(late, expected.late, "late rows of {case:#?}");
    for (arrival, (columns, results)) in &expected.joined {
        let found = joined.get(arrival);
        let found = found.unwrap_or_else(|| panic!("row {arrival} was not joined: {case:#?}"));
        assert_eq!((&found.0, &found.1), (columns, results), "row {arrival} of {case:#?}");
    }
    assert_eq!(joined.len(), expected.joined.len(), "{case:#?}");
    assert_eq!((counts.unsettled, counts.pending), (0, 0), "all rows were joined");
    if ends.is_empty() {
        assert_eq!(counts.joined, u64::try_from(joined.len()).unwrap());
        assert_eq!(counts.late, u64::try_from(late.len()).unwrap());
    }
    counts
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
    const BUGS: [StreamBug; 16] = [
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
        StreamBug::GivenTwice,
        StreamBug::WaitingTakenForGiven,
        StreamBug::ReplayedTooLittle,
        StreamBug::JoinedTooEarly,
        StreamBug::ReplacedRowHeld,
        StreamBug::ReplacedRowReleased,
    ];
    let mut runner = runner(1);
    let find = |bug: StreamBug| {
        (0..20_000).find(|_| {
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
    let arena = Arena::new();
    let columns: Vec<Datum<'_>> = columns.iter().map(|value| value.as_datum(&arena)).collect();
    let mut joined = 0;
    let mut emit = |_: crate::WindowedRow<'_>| joined += 1;
    let row = StreamRow { source, arrival, columns: &columns };
    let pushed = join.push(row, now_ms, &mut emit).unwrap();
    join.advance(now_ms, &mut emit).unwrap();
    (pushed, joined)
}

#[test]
fn an_idle_source_does_not_hold_the_watermark_up() {
    let idle = Lateness { lateness_ms: 10, idle_after_ms: Some(1_000) };
    let check_return = |seeded: Option<StreamBug>| {
        let mut join = WindowJoin::new(draw::simple(2), None, idle, 0).unwrap();
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
        assert_eq!(push(&mut join, 1, 5, 60, 1_001), (Pushed::LateAfterIdle, 0));
        assert_eq!(push(&mut join, 1, 6, 295, 1_001), (Pushed::Taken, 0));
        assert_eq!(push(&mut join, 0, 7, 900, 1_002).0, Pushed::Taken);
        let watermark = join.watermark();
        // All are idle: nothing says how far they are.
        join.advance(9_000, &mut |_| panic!("nothing is joined")).unwrap();
        bug::seed(None);
        watermark
    };
    assert_eq!(check_return(None), Some(290));
    assert_eq!(check_return(Some(StreamBug::IdleForEver)), Some(890));
}

#[test]
fn what_an_idle_source_gave_too_late_is_late_after_a_replay() {
    let idle = Lateness { lateness_ms: 10, idle_after_ms: Some(1_000) };
    let mut join = WindowJoin::new(draw::simple(2), None, idle, 0).unwrap();
    let rows = [(0, 1, 100, 0), (1, 2, 50, 0), (0, 3, 200, 500), (0, 4, 300, 1_000)];
    for (source, arrival, time, now_ms) in rows {
        assert_eq!(push(&mut join, source, arrival, time, now_ms).0, Pushed::Taken);
    }
    let progress = join.progress();
    assert_eq!(progress.watermark, Some(290));
    let go_on = |seeded: Option<StreamBug>| {
        let mut again = WindowJoin::new(draw::simple(2), None, idle, 2_000).unwrap();
        again.begin_replay(&[None, None], 5, &progress);
        bug::seed(seeded);
        for (source, arrival, time, _) in rows {
            let now_ms = 9_000;
            assert_eq!(push(&mut again, source, arrival, time, now_ms), (Pushed::Taken, 0));
            assert!(again.watermark().is_none_or(|watermark| watermark < 290), "it waits");
        }
        again.end_replay(9_000);
        let pushed = push(&mut again, 1, 5, 60, 9_001).0;
        bug::seed(None);
        pushed
    };
    assert_eq!(go_on(None), Pushed::LateAfterIdle);
    assert_eq!(go_on(Some(StreamBug::WatermarkForgotten)), Pushed::Taken);
}

#[test]
fn memory_is_bounded_by_lateness_and_frames() {
    let lateness = Lateness { lateness_ms: 100, idle_after_ms: None };
    let mut join = WindowJoin::new(draw::simple(2), None, lateness, 0).unwrap();
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
    assert!(WindowJoin::new(spec, None, lateness, 0).is_err());
}

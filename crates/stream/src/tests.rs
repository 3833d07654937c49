//! A stream gives what a naive evaluation of its windows gives over all rows that are not late.

mod crew;
mod draw;
mod naive;
mod schedule;

use std::collections::BTreeMap;

use lockstep_host::Threads;
use lockstep_row::{Arena, Datum, Value, key::encode_key};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use self::{
    crew::SteppedJoiners,
    draw::{Case, CaseRow, case},
};
use crate::{
    JoinCounts, JoinProgress, JoinerOutput, JoinerParts, Lateness, MainProgram, Pushed, StreamRow,
    WindowJoin, WindowedRow,
    bug::{self, StreamBug},
};

/// What a stream gave: for each main row by its arrival its columns and results.
type Joined = BTreeMap<u64, (Vec<String>, Vec<String>)>;

/// Joined rows as texts: their arrivals, columns and results.
#[derive(Debug, Default)]
struct JoinedTexts(Vec<(u64, Vec<String>, Vec<String>)>);

impl JoinerOutput for JoinedTexts {
    type Rows = Vec<(u64, Vec<String>, Vec<String>)>;

    fn add(&mut self, row: WindowedRow<'_>) {
        let text = |values: &[Value]| values.iter().map(|value| format!("{value:?}")).collect();
        self.0.push((row.arrival, text(row.columns), text(row.results)));
    }

    fn take(&mut self) -> lockstep_diagnostic::Result<Self::Rows> {
        Ok(std::mem::take(&mut self.0))
    }
}

/// A join of a case, and what it has given.
struct TestedJoin {
    join: WindowJoin<JoinedTexts>,
    given: Vec<(u64, Vec<String>, Vec<String>)>,
    /// How far it was at the end of the last round, and what it held.
    progress: JoinProgress,
    held: Vec<Option<u64>>,
}

impl TestedJoin {
    /// Gives all that is final.
    fn finish(&mut self) {
        self.join.advance(0);
        self.join.end_round();
        while let Some(round) = self.join.take_round().unwrap() {
            self.given.extend(round.rows.into_iter().flatten());
            (self.progress, self.held) = (round.progress, round.held);
        }
    }
}

/// Who computes the windows of a case.
#[derive(Debug, Clone, Copy)]
enum TestedJoiners {
    /// One, on the thread of the test.
    One,
    /// Several, each on a thread.
    Threads(usize),
    /// Several, who do what they are told in an order that is drawn; teams change after each row.
    Stepped(usize, u64),
}

/// A source as those see it who read its rows again: for each row of the case whether it was read, and where.
struct ReadSource {
    /// The positions of its rows among those of the case, each with the newest event time before.
    rows: Vec<(usize, Option<i64>)>,
    newest: Option<i64>,
}

/// Ends a join behind so many rows of a case, and makes another one that has had the same.
fn replace(
    (case, joiners): (&Case, TestedJoiners),
    join: &TestedJoin,
    (sources, count): (&[ReadSource], usize),
) -> TestedJoin {
    let TestedJoin { join, progress, held, .. } = join;
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
    let replay = |removed: &[usize]| {
        let mut again = new_join(case, joiners);
        again.join.begin_replay(&newest, reached, progress);
        let is_read = |at: &usize| *at >= from[case.rows[*at].source].0 && !removed.contains(at);
        for at in (0..count).filter(is_read) {
            push_row(case, &mut again.join, at);
            if at % case.step == 0 {
                again.join.advance(0);
            }
        }
        again.join.end_replay(0);
        again.finish();
        again
    };
    let (needed, replaced) = rows_of_lookups(case, sources, join.needed_from(0));
    for row in needed {
        let again = replay(&[row]);
        let source = case.rows[row].source;
        assert_ne!(again.held[source], held[source], "row {row} is missed: {case:#?}");
    }
    let again = replay(&replaced);
    assert_eq!(again.progress, *progress, "it is as far as the other one: {case:#?}");
    assert_eq!(again.held, *held, "it holds the same rows: {case:#?}");
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
        &mut self,
        joined: &[Datum<'a>],
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
fn new_join(case: &Case, joiners: TestedJoiners) -> TestedJoin {
    let lateness = Lateness { lateness_ms: case.lateness_ms, idle_after_ms: None };
    let spec = case.spec();
    let has_program = !spec.lookups.is_empty();
    let program = || has_program.then(|| Box::new(DrawnProgram) as Box<dyn MainProgram>);
    let part = || JoinerParts { program: program(), output: JoinedTexts::default() };
    let parts = |count| (0..count).map(|_| part()).collect();
    let (sources, times) = (spec.sources.len(), (lateness, 0));
    let join = match joiners {
        TestedJoiners::One => WindowJoin::new(spec, parts(1), times, Threads::None).unwrap(),
        TestedJoiners::Threads(count) => {
            WindowJoin::new(spec, parts(count), times, Threads::System).unwrap()
        }
        TestedJoiners::Stepped(count, seed) => {
            WindowJoin::with_crew(spec, parts(count), times, |joiners, schedule| {
                SteppedJoiners::crew(joiners, schedule, seed)
            })
        }
    };
    let (progress, held) = (JoinProgress::default(), vec![None; sources]);
    TestedJoin { join, given: Vec::new(), progress, held }
}

fn push_row(case: &Case, join: &mut WindowJoin<JoinedTexts>, at: usize) -> Pushed {
    let (row, arena) = (&case.rows[at], Arena::new());
    let columns: Vec<Datum<'_>> = row.columns.iter().map(|v| v.as_datum(&arena)).collect();
    let row = StreamRow { source: row.source, arrival: draw::arrival(at), columns: &columns };
    join.push(row, 0)
}

/// Runs a case; behind so many rows another join takes over. Returns what was joined, the arrivals of late rows, and
/// the counts at the end.
fn run(case: &Case, joiners: TestedJoiners, ends: &[usize]) -> (Joined, Vec<u64>, JoinCounts) {
    let mut tested = new_join(case, joiners);
    let all_sources = case.spec().sources.len();
    let mut sources: Vec<ReadSource> =
        (0..all_sources).map(|_| ReadSource { rows: Vec::new(), newest: None }).collect();
    let (mut given, mut late) = (Vec::new(), Vec::new());
    for (at, row) in case.rows.iter().enumerate() {
        if ends.contains(&at) {
            // All that is final is given before the progress is taken.
            tested.finish();
            given.append(&mut tested.given);
            tested = replace((case, joiners), &tested, (&sources, at));
        }
        let source = &mut sources[row.source];
        source.rows.push((at, source.newest));
        if push_row(case, &mut tested.join, at) == Pushed::Late {
            late.push(draw::arrival(at));
        }
        source.newest = tested.join.sources()[row.source].newest;
        if at % case.step == 0 {
            tested.join.advance(0);
        }
    }
    (0..all_sources).for_each(|source| tested.join.end(source));
    tested.finish();
    given.append(&mut tested.given);
    let mut joined = Joined::new();
    for (arrival, columns, results) in given {
        let before = joined.insert(arrival, (columns, results));
        assert!(before.is_none(), "row {arrival} twice: {case:#?}");
    }
    (joined, late, tested.join.counts())
}

/// Compares a stream with the naive evaluation.
fn check(case: &Case, joiners: TestedJoiners) {
    let counts = compare(case, joiners, &[]);
    assert_eq!(counts.taken + counts.late + counts.ignored, case.rows.len() as u64);
    let count = case.rows.len();
    compare(case, joiners, &[count / 2]);
    compare(case, joiners, &[count / 4, count / 2, count / 2 + 1, count - count / 4]);
}

/// Compares a stream that ended behind so many rows, and went on, with the naive evaluation.
fn compare(case: &Case, joiners: TestedJoiners, ends: &[usize]) -> JoinCounts {
    let (joined, late, counts) = run(case, joiners, ends);
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

/// Draws who computes the windows.
fn joiners() -> impl Strategy<Value = TestedJoiners> {
    prop_oneof![
        2 => Just(TestedJoiners::One),
        6 => (2..5_usize, any::<u64>()).prop_map(|(of, seed)| TestedJoiners::Stepped(of, seed)),
        1 => (2..5_usize).prop_map(TestedJoiners::Threads),
    ]
}

#[test]
fn streams_give_what_a_naive_evaluation_gives() {
    // `PROPTEST_CASES` draws more of the same sequence.
    let cases = 6 * Config::default().cases;
    let counts = std::cell::RefCell::new(draw::ConstructCounts::default());
    let outcome = runner(cases).run(&(case(), joiners()), |(case, joiners)| {
        counts.borrow_mut().add(&case, joiners);
        check(&case, joiners);
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
    find_bugs(&BUGS, |_| TestedJoiners::One);
}

#[test]
fn seeded_bugs_of_teams_are_found() {
    const BUGS: [StreamBug; 7] = [
        StreamBug::TeamChangedWithRowsUnsent,
        StreamBug::LeftTooEarly,
        StreamBug::UnsettledNotCopied,
        StreamBug::CandidatesNotCopied,
        StreamBug::CopiedRowsComputed,
        StreamBug::PartitionNotForgotten,
        StreamBug::HeldTwice,
    ];
    find_bugs(&BUGS, |seed| TestedJoiners::Stepped(2 + usize::try_from(seed % 3).unwrap(), seed));
}

/// Draws cases until each bug is found.
fn find_bugs(bugs: &[StreamBug], joiners: impl Fn(u64) -> TestedJoiners) {
    let mut runner = runner(1);
    let mut find = |bug: StreamBug| {
        (0..20_000).find(|seed| {
            let case = case().new_tree(&mut runner).unwrap().current();
            bug::seed(Some(bug));
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check(&case, joiners(*seed));
            }));
            bug::seed(None);
            checked.is_err()
        })
    };
    let found: Vec<_> = bugs.iter().map(|bug| (bug, find(*bug))).collect();
    println!("seeded bugs, each with the case that found it: {found:?}");
    for (bug, found) in found {
        assert!(found.is_some(), "{bug:?} was not found");
    }
}

/// Pushes a row with a time of a source.
fn push(
    join: &mut WindowJoin<JoinedTexts>,
    source: usize,
    arrival: u64,
    time: i64,
    now_ms: i64,
) -> (Pushed, usize) {
    let columns = CaseRow::of(source, Some(time)).columns;
    let arena = Arena::new();
    let columns: Vec<Datum<'_>> = columns.iter().map(|value| value.as_datum(&arena)).collect();
    let row = StreamRow { source, arrival, columns: &columns };
    let pushed = join.push(row, now_ms);
    (pushed, advance(join, now_ms).0)
}

/// Advances a join, and returns how many rows it gives, and how far it is.
fn advance(join: &mut WindowJoin<JoinedTexts>, now_ms: i64) -> (usize, JoinProgress) {
    join.advance(now_ms);
    join.end_round();
    let round = join.take_round().unwrap().unwrap();
    (round.rows.iter().map(Vec::len).sum(), round.progress)
}

/// Makes a join of two sources, with one sum.
fn simple(lateness: Lateness, now_ms: i64) -> WindowJoin<JoinedTexts> {
    let part = JoinerParts { program: None, output: JoinedTexts::default() };
    WindowJoin::new(draw::simple(2), vec![part], (lateness, now_ms), Threads::None).unwrap()
}

#[test]
fn an_idle_source_does_not_hold_the_watermark_up() {
    let idle = Lateness { lateness_ms: 10, idle_after_ms: Some(1_000) };
    let check_return = |seeded: Option<StreamBug>| {
        let mut join = simple(idle, 0);
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
        assert_eq!(advance(&mut join, 9_000).0, 0);
        bug::seed(None);
        watermark
    };
    assert_eq!(check_return(None), Some(290));
    assert_eq!(check_return(Some(StreamBug::IdleForEver)), Some(890));
}

#[test]
fn what_an_idle_source_gave_too_late_is_late_after_a_replay() {
    let idle = Lateness { lateness_ms: 10, idle_after_ms: Some(1_000) };
    let mut join = simple(idle, 0);
    let rows = [(0, 1, 100, 0), (1, 2, 50, 0), (0, 3, 200, 500), (0, 4, 300, 1_000)];
    for (source, arrival, time, now_ms) in rows {
        assert_eq!(push(&mut join, source, arrival, time, now_ms).0, Pushed::Taken);
    }
    let (_, progress) = advance(&mut join, 1_000);
    assert_eq!(progress.watermark, Some(290));
    let go_on = |seeded: Option<StreamBug>| {
        let mut again = simple(idle, 2_000);
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
fn a_joiner_that_panics_is_an_error() {
    #[derive(Debug)]
    struct Panics;
    impl JoinerOutput for Panics {
        type Rows = ();

        fn add(&mut self, _row: WindowedRow<'_>) {
            panic!("the output of a test");
        }

        fn take(&mut self) -> lockstep_diagnostic::Result<()> {
            Ok(())
        }
    }
    let parts = || {
        vec![
            JoinerParts { program: None, output: Panics },
            JoinerParts { program: None, output: Panics },
        ]
    };
    let lateness = Lateness { lateness_ms: 0, idle_after_ms: None };
    let mut join =
        WindowJoin::new(draw::simple(1), parts(), (lateness, 0), Threads::System).unwrap();
    let columns = CaseRow::of(0, None).columns;
    let arena = Arena::new();
    let columns: Vec<Datum<'_>> = columns.iter().map(|value| value.as_datum(&arena)).collect();
    join.push(StreamRow { source: 0, arrival: 1, columns: &columns }, 0);
    join.end_round();
    let error = join.take_round().unwrap_err();
    assert_eq!(error.message, "a joiner of the stream has ended");
    assert!(WindowJoin::new(draw::simple(1), parts(), (lateness, 0), Threads::None).is_err());
}

#[test]
fn memory_is_bounded_by_lateness_and_frames() {
    let lateness = Lateness { lateness_ms: 100, idle_after_ms: None };
    let mut join = simple(lateness, 0);
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
    assert!(spec.check().is_err());
}

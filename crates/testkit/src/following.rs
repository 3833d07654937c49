//! Frames that extend past the current row (FOLLOWING), on drawn tables and queries.
//!
//! Batch mode is compared with the oracle, and bit by bit with itself where every row is on the disk and the rows of
//! a key are cut into time slices, on the disk and for threads. Request mode has to refuse the query.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use lockstep_engine::{SpillAlways, code, set_spill_always};
use lockstep_host::sync::Mutex;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

use crate::{
    oracle::{self, FrameEnd, OracleMode, OracleRow, OracleWindow},
    replay,
    scenario::{Scenario, draw, script},
};

/// Where rows are computed is global in the process.
static SPILLING: Mutex<()> = Mutex::new(());

/// The rows of a time slice.
const SLICE_ROWS: usize = 3;

/// The constructs of frames ahead.
const CONSTRUCTS: [&str; 17] = [
    "ROWS",
    "ROWS_RANGE",
    "n FOLLOWING",
    "n OPEN FOLLOWING",
    "UNBOUNDED FOLLOWING",
    "from PRECEDING",
    "from UNBOUNDED PRECEDING",
    "from CURRENT ROW",
    "from FOLLOWING",
    "MAXSIZE",
    "EXCLUDE CURRENT_ROW",
    "EXCLUDE CURRENT_TIME",
    "INSTANCE_NOT_IN_WINDOW",
    "UNION",
    "no UNION",
    "no ORDER BY",
    "beside a frame without",
];

/// How often each construct was drawn.
#[derive(Debug, Default)]
pub struct FollowingCounts(BTreeMap<&'static str, u64>);

impl FollowingCounts {
    /// Counts the constructs of a scenario.
    pub fn add(&mut self, scenario: &Scenario) {
        let windows = &scenario.query.windows;
        for window in windows.iter().filter(|window| is_ahead(window)) {
            let OracleWindow { start, end, excludes, .. } = window;
            let drawn = [
                !window.is_range,
                window.is_range,
                matches!(end, FrameEnd::Following(_)),
                matches!(end, FrameEnd::OpenFollowing(_)),
                *end == FrameEnd::UnboundedFollowing,
                matches!(start, FrameEnd::Preceding(_) | FrameEnd::OpenPreceding(_)),
                *start == FrameEnd::Unbounded,
                *start == FrameEnd::CurrentRow,
                start.is_ahead(),
                window.max_size.is_some(),
                excludes.current_row,
                excludes.current_time,
                excludes.main_rows,
                !window.unions.is_empty(),
                window.unions.is_empty(),
                window.order_by.is_none(),
                windows.iter().any(|window| !window.end.is_ahead()),
            ];
            for (construct, _) in CONSTRUCTS.iter().zip(drawn).filter(|(_, is_drawn)| *is_drawn) {
                *self.0.entry(*construct).or_default() += 1;
            }
        }
    }

    /// Returns the constructs that were never drawn.
    pub fn missing(&self) -> Vec<&'static str> {
        CONSTRUCTS.iter().copied().filter(|construct| !self.0.contains_key(construct)).collect()
    }
}

impl fmt::Display for FollowingCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for construct in CONSTRUCTS {
            writeln!(f, "{construct:30} {:>8}", self.0.get(construct).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

/// Draws a scenario of which some windows, one at least, cover rows after the current one.
pub fn scenario() -> impl Strategy<Value = Scenario> {
    let ends = vec((0..7_u8, 0..5_usize, 0..5_usize), 8);
    let drawn = (draw::scenario(), ends).prop_map(|(mut scenario, ends)| {
        scenario.query.mode = OracleMode::Standard;
        scenario.is_deployed = false;
        for (window, drawn) in scenario.query.windows.iter_mut().zip(ends) {
            extend(window, drawn);
        }
        scenario
    });
    drawn
        .prop_filter("some window is ahead", |scenario| scenario.query.windows.iter().any(is_ahead))
}

/// Returns whether a frame covers rows after the current one.
fn is_ahead(window: &OracleWindow) -> bool {
    let is_none = !window.is_range && window.end == FrameEnd::OpenFollowing(1);
    window.end.is_ahead() && !is_none
}

/// Lets a frame end after the current row, and maybe begin there.
fn extend(window: &mut OracleWindow, (form, near, far): (u8, usize, usize)) {
    let distances: [i64; 5] =
        if window.is_range { [1, 999, 1_000, 3_000, 1 << 40] } else { [1, 2, 3, 7, 1_000] };
    let (near, far) = (distances[near.min(far)], distances[near.max(far)]);
    assert!(near <= far, "a frame begins before it ends");
    if window.is_range && window.order_by.is_none() {
        // It takes no distances.
        window.end = FrameEnd::UnboundedFollowing;
        return;
    }
    // A start that is nearer than the end was stays one before the current row.
    (window.start, window.end) = match form {
        0 | 1 => (window.start, FrameEnd::Following(far)),
        2 => (window.start, FrameEnd::UnboundedFollowing),
        3 => (window.start, FrameEnd::OpenFollowing(far)),
        4 => (FrameEnd::CurrentRow, FrameEnd::Following(near)),
        5 => (FrameEnd::Following(near), FrameEnd::Following(far)),
        _ => (window.start, window.end),
    };
}

/// Draws and checks scenarios, as many as proptest draws. The error is a script, and what differs.
pub fn run() -> Result<FollowingCounts, String> {
    let config = Config { failure_persistence: None, ..Config::default() };
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let counts = RefCell::new(FollowingCounts::default());
    let outcome = TestRunner::new_with_rng(config, seed).run(&scenario(), |scenario| {
        counts.borrow_mut().add(&scenario);
        check(&scenario).map_err(TestCaseError::fail)
    });
    outcome.map_err(|failure| failure.to_string())?;
    Ok(counts.into_inner())
}

/// Checks a scenario. The error is a script, and what differs.
pub fn check(scenario: &Scenario) -> Result<(), String> {
    let _one = SPILLING.lock();
    let explain = |what: &str| format!("{}\n-- {what}", script::script(scenario));
    let expected = oracle::evaluate(&scenario.query, &scenario.tables);
    assert!(scenario.query.windows.iter().any(is_ahead), "the query is not one of request mode");
    let places = [SpillAlways::No, SpillAlways::Parts, SpillAlways::Slices(SLICE_ROWS)];
    let batch = |place: SpillAlways| -> Result<Vec<OracleRow>, String> {
        set_spill_always(place);
        let found = replay::batch(scenario);
        set_spill_always(SpillAlways::No);
        found.map_err(|error| explain(&format!("{place:?}: {error}")))
    };
    let in_memory = batch(SpillAlways::No)?;
    let mut differences = replay::compare(scenario, "oracle", &expected, "batch", &in_memory);
    for place in places {
        let found = batch(place)?;
        let name = format!("{place:?}");
        differences.extend(replay::compare(scenario, "batch", &in_memory, &name, &found));
    }
    if !differences.is_empty() {
        return Err(explain(&differences.join("\n-- ")));
    }
    let session = replay::open(scenario)?;
    let query = script::query(scenario);
    let deployed = session.execute(&format!("DEPLOY d AS {query}")).map(drop);
    let requested = replay::request(&session, scenario, &scenario.tables[0].rows[0]);
    match deployed {
        Err(error) if error.code == code::WINDOWING_ERROR && requested.is_err() => Ok(()),
        other => Err(explain(&format!("requests: {other:?}, {requested:?}"))),
    }
}

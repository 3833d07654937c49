//! Continuous queries on drawn tables: rows arrive one by one, and each result that is given has to be that of batch
//! mode over all rows that were not late, bit for bit.
//!
//! The rows of a scenario arrive in the order in which they were drawn, which has nothing to do with their event times;
//! a drawn lateness decides which of them are late. What is late is found here again, from the rows alone. Now and then
//! the query ends, and another one goes on from its progress.

use std::{cell::RefCell, collections::BTreeMap, fmt, num::NonZeroUsize};

use lockstep_engine::{ContinuousOptions, FinalRows};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

use crate::{
    following,
    oracle::{
        self, FrameEnd, Item, JoinBound, OracleJoin, OracleMode, OracleQuery, OracleRow,
        OracleTable, OracleWindow, integer,
    },
    replay,
    rows::of_batch,
    scenario::{EVENT_TIME, ID, Scenario, draw, script},
};

/// A scenario whose query runs continuously.
#[derive(Clone)]
pub struct StreamScenario {
    /// The tables, whose rows arrive in turns, and the query.
    pub scenario: Scenario,
    /// How late a row may come.
    pub lateness_ms: i64,
    /// Which table the next row is for, again and again.
    pub turns: Vec<usize>,
    /// How many rows arrive before the query is polled.
    pub rows_per_poll: usize,
    /// After how many polls the query ends, and another one goes on; `None` for never.
    pub polls_per_end: Option<usize>,
    /// How many joiners compute the windows.
    pub joiners: NonZeroUsize,
}

/// Proptest prints the shrunk scenario with this.
impl fmt::Debug for StreamScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lateness_ms, turns, rows_per_poll, polls_per_end, joiners, .. } = self;
        write!(f, "{:?}", self.scenario)?;
        write!(f, "-- lateness {lateness_ms} ms, turns {turns:?}, polled after {rows_per_poll}, ")?;
        write!(f, "ended after {polls_per_end:?}, {joiners} joiners")
    }
}

/// The constructs of continuous queries.
const CONSTRUCTS: [&str; 31] = [
    "ROWS",
    "ROWS_RANGE",
    "from UNBOUNDED PRECEDING",
    "n FOLLOWING",
    "from FOLLOWING",
    "frame that ends before its row",
    "MAXSIZE",
    "EXCLUDE CURRENT_ROW",
    "EXCLUDE CURRENT_TIME",
    "INSTANCE_NOT_IN_WINDOW",
    "UNION of 1",
    "UNION of 2",
    "no UNION",
    "several windows",
    "late rows",
    "no late row",
    "equal times",
    "NULL times",
    "a row for each poll",
    "ended and continued",
    "LAST JOIN",
    "LAST JOIN of two",
    "LAST JOIN of older rows only",
    "LAST JOIN on two columns",
    "LAST JOIN on a joined column",
    "window over a LAST JOIN with FOLLOWING",
    "LAST JOIN without windows",
    "one joiner",
    "several joiners",
    "several joiners, LAST JOIN",
    "several joiners, continued",
];

/// How often each construct was drawn, and how many values were compared.
#[derive(Debug, Default)]
pub struct StreamCounts {
    constructs: BTreeMap<&'static str, u64>,
    /// The values of results that were compared.
    pub values: u64,
}

impl StreamCounts {
    fn add(&mut self, drawn: &StreamScenario) {
        let StreamScenario { scenario, .. } = drawn;
        let OracleQuery { windows, joins, .. } = &scenario.query;
        let main_columns = scenario.tables[0].columns.len();
        let has_several = drawn.joiners.get() > 1;
        let is_joined = |join: &OracleJoin| join.keys.iter().any(|(left, _)| *left >= main_columns);
        let any = |test: &dyn Fn(&OracleWindow) -> bool| windows.iter().any(test);
        let times =
            || scenario.tables.iter().map(|table| table.rows.iter().map(|row| &row[EVENT_TIME]));
        let late = late_rows(drawn).iter().any(|late| late.contains(&true));
        let drawn = [
            any(&|window| !window.is_range),
            any(&|window| window.is_range),
            any(&|window| window.start == FrameEnd::Unbounded),
            any(&|window| window.end.is_ahead()),
            any(&|window| window.start.is_ahead()),
            any(&|window| {
                matches!(window.end, FrameEnd::Preceding(1..) | FrameEnd::OpenPreceding(_))
            }),
            any(&|window| window.max_size.is_some()),
            any(&|window| window.excludes.current_row),
            any(&|window| window.excludes.current_time),
            any(&|window| window.excludes.main_rows),
            any(&|window| window.unions.len() == 1),
            any(&|window| window.unions.len() == 2),
            any(&|window| window.unions.is_empty()),
            windows.len() > 1,
            late,
            !late,
            times().any(|times| {
                let mut times: Vec<_> = times.filter_map(integer).collect();
                times.sort_unstable();
                times.windows(2).any(|pair| pair[0] == pair[1])
            }),
            times().flatten().any(|time| integer(time).is_none()),
            drawn.rows_per_poll == 1,
            drawn.polls_per_end.is_some(),
            !joins.is_empty(),
            joins.len() > 1,
            joins.iter().any(|join| join.bound.is_some_and(|bound| !bound.is_inclusive)),
            joins.iter().any(|join| join.keys.len() > 1),
            joins.iter().any(is_joined),
            !joins.is_empty() && any(&|window| window.end.is_ahead()),
            windows.is_empty(),
            !has_several,
            has_several,
            has_several && !joins.is_empty(),
            has_several && drawn.polls_per_end.is_some(),
        ];
        for (construct, _) in CONSTRUCTS.iter().zip(drawn).filter(|(_, is_drawn)| *is_drawn) {
            *self.constructs.entry(*construct).or_default() += 1;
        }
    }

    /// Returns the constructs that were never drawn.
    pub fn missing(&self) -> Vec<&'static str> {
        let is_missing = |construct: &&str| !self.constructs.contains_key(construct);
        CONSTRUCTS.iter().copied().filter(is_missing).collect()
    }
}

impl fmt::Display for StreamCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for construct in CONSTRUCTS {
            let count = self.constructs.get(construct).copied().unwrap_or(0);
            writeln!(f, "{construct:32} {count:>8}")?;
        }
        writeln!(f, "{:32} {:>8}", "values compared", self.values)
    }
}

/// Draws a scenario.
pub fn scenario() -> impl Strategy<Value = StreamScenario> {
    let scenario = prop_oneof![1 => draw::scenario(), 1 => following::scenario()];
    let scenario = (scenario, any::<u8>()).prop_map(|(mut scenario, form)| {
        scenario.query.mode = OracleMode::Standard;
        make_final(&mut scenario.query, form);
        scenario
    });
    let is_continuous = |scenario: &Scenario| {
        let OracleQuery { windows, joins, .. } = &scenario.query;
        !(windows.is_empty() && joins.is_empty())
            && windows.iter().all(|window| {
                window.order_by.is_some() && window.end != FrameEnd::UnboundedFollowing
            })
    };
    let scenario = scenario.prop_filter("the query may run continuously", is_continuous);
    let lateness = prop_oneof![Just(0), Just(1), Just(1_000), Just(3_000), Just(1 << 40)];
    let turns = vec(0..3_usize, 1..9);
    let polls = (
        prop_oneof![Just(1), Just(3), Just(1_000)],
        prop_oneof![Just(None), Just(Some(1)), Just(Some(2)), Just(Some(5))],
        prop_oneof![3 => Just(1), 2 => 2..5_usize],
    );
    (scenario, lateness, turns, polls).prop_map(
        |(scenario, lateness_ms, turns, (rows_per_poll, polls_per_end, joiners))| StreamScenario {
            scenario,
            lateness_ms,
            turns,
            rows_per_poll,
            polls_per_end,
            joiners: NonZeroUsize::new(joiners).unwrap_or(NonZeroUsize::MIN),
        },
    )
}

/// Gives the LAST JOINs of a query an end in time, now and then one of its windows an end after its row, and now and
/// then takes its windows away.
fn make_final(query: &mut OracleQuery, form: u8) {
    for join in &mut query.joins {
        debug_assert!(join.table > 0, "table 0 has the main rows");
        let is_inclusive = join.less.take().is_some();
        join.order_by = Some(EVENT_TIME);
        join.bound.get_or_insert(JoinBound { left: EVENT_TIME, is_inclusive });
    }
    if query.joins.is_empty() {
        return;
    }
    match form % 4 {
        0 => {
            query.windows.clear();
            query.items.retain(|item| matches!(item, Item::Column(_)));
        }
        1 => {
            let ahead = FrameEnd::Following(1 + i64::from(form));
            let is_range = |window: &&mut OracleWindow| window.is_range && !window.start.is_ahead();
            query.windows.iter_mut().filter(is_range).for_each(|window| window.end = ahead);
        }
        _ => {}
    }
}

/// Draws and checks so many scenarios. The error is a script, and what differs.
pub fn run(cases: u32, seed: u64) -> Result<StreamCounts, String> {
    assert!(cases > 0, "something is drawn");
    let max_global_rejects = cases.saturating_mul(256);
    let config =
        Config { cases, failure_persistence: None, max_global_rejects, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let counts = RefCell::new(StreamCounts::default());
    let outcome = TestRunner::new_with_rng(config, random).run(&scenario(), |drawn| {
        counts.borrow_mut().add(&drawn);
        let values = check(&drawn).map_err(TestCaseError::fail)?;
        counts.borrow_mut().values += values;
        Ok(())
    });
    outcome.map_err(|failure| failure.to_string())?;
    Ok(counts.into_inner())
}

/// Checks a scenario, and returns how many values were compared. The error is a script, and what differs.
pub fn check(drawn: &StreamScenario) -> Result<u64, String> {
    let StreamScenario { scenario, .. } = drawn;
    let explain = |what: &str| format!("{drawn:?}\n-- {what}");
    let on_time = without_late(drawn);
    let expected = oracle::evaluate(&on_time.query, &on_time.tables);
    let batch = replay::batch(&on_time).map_err(|error| explain(&error))?;
    let found = stream(drawn).map_err(|error| explain(&error))?;
    let mut differences = replay::compare(scenario, "oracle", &expected, "stream", &found);
    differences.extend(replay::compare(scenario, "batch", &batch, "stream", &found));
    if !differences.is_empty() {
        return Err(explain(&differences.join("\n-- ")));
    }
    Ok(found.iter().map(|row| row.len() as u64).sum())
}

/// Runs the query while the rows arrive. Returns its results by the first column, the id.
fn stream(drawn: &StreamScenario) -> Result<Vec<OracleRow>, String> {
    let StreamScenario { scenario, turns, rows_per_poll, polls_per_end, .. } = drawn;
    let session = replay::open(scenario)?;
    let sql = script::query(scenario);
    let StreamScenario { lateness_ms, joiners, .. } = *drawn;
    let options = ContinuousOptions { lateness_ms, joiners, ..ContinuousOptions::default() };
    let render = |error: Box<lockstep_engine::Diagnostic>| error.render(Some(&sql));
    let mut query = session.continuous_query(&sql, options).map_err(render)?;
    let mut rows = Vec::new();
    let mut next = vec![0; scenario.tables.len()];
    let (mut appended, mut polls) = (0, 0);
    for turn in turns.iter().cycle() {
        let is_left = |table: &usize| next[*table] < scenario.tables[*table].rows.len();
        let preferred = Some(turn % scenario.tables.len()).filter(is_left);
        let Some(table) = preferred.or_else(|| (0..scenario.tables.len()).find(is_left)) else {
            break;
        };
        let OracleTable { rows: of_table, .. } = &scenario.tables[table];
        replay::append(&session, &scenario.tables[table], &of_table[next[table]..=next[table]])?;
        next[table] += 1;
        appended += 1;
        if appended % rows_per_poll == 0 {
            rows.extend(values(&query.poll().map_err(render)?));
            polls += 1;
            if polls_per_end.is_some_and(|per_end| polls % per_end == 0) {
                let progress = query.progress();
                query = session.continue_query(&sql, options, &progress).map_err(render)?;
            }
        }
    }
    rows.extend(values(&query.end().map_err(render)?));
    rows.sort_by_key(|row: &OracleRow| integer(&row[ID]));
    Ok(rows)
}

/// Returns the rows that a query gave.
fn values(FinalRows { batch, arrivals }: &FinalRows) -> Vec<OracleRow> {
    assert_eq!(batch.num_rows(), arrivals.len(), "each row has an arrival");
    of_batch(batch)
}

/// Returns for each row of each table whether it is late: more than the lateness before an earlier one.
fn late_rows(drawn: &StreamScenario) -> Vec<Vec<bool>> {
    let of_table = |table: &OracleTable| {
        let mut newest: Option<i128> = None;
        let is_late = |row: &OracleRow| {
            let Some(time) = integer(&row[EVENT_TIME]) else { return false };
            let is_late =
                newest.is_some_and(|newest| time < newest - i128::from(drawn.lateness_ms));
            newest = newest.max(Some(time));
            is_late
        };
        table.rows.iter().map(is_late).collect()
    };
    drawn.scenario.tables.iter().map(of_table).collect()
}

/// Returns the scenario without its late rows.
fn without_late(drawn: &StreamScenario) -> Scenario {
    let mut scenario = drawn.scenario.clone();
    for (table, late) in scenario.tables.iter_mut().zip(late_rows(drawn)) {
        let mut late = late.into_iter();
        table.rows.retain(|_| !late.next().unwrap_or(false));
    }
    scenario
}

//! Drawn streams: windows, and rows that arrive in some order.

use std::{collections::BTreeMap, fmt};

use lockstep_function::{BoundAggregate, CallArguments, Settings, aggregate};
use lockstep_plan::{Frame, FrameAhead, Window};
use lockstep_row::{DataType, Value};
use proptest::{collection::vec, prelude::*};

use super::TestedJoiners;
use crate::{CallSpec, GroupSpec, LeastTime, LookupSpec, ScanSpec, SourceShape, WindowJoinSpec};

/// The columns of a row.
pub(super) const WIDTH: usize = 7;
/// The column with the event time.
pub(super) const TIME: usize = 0;
const KEY: usize = 1;
const SECOND_KEY: usize = 2;
const INTEGER: usize = 3;
const DOUBLE: usize = 4;
const TEXT: usize = 5;
const CONDITION: usize = 6;

/// Their types.
const TYPES: [DataType; WIDTH] = [
    DataType::Timestamp,
    DataType::Int,
    DataType::String,
    DataType::BigInt,
    DataType::Double,
    DataType::String,
    DataType::Bool,
];

/// Functions with the columns of their arguments.
const CALLS: [(&str, &[usize]); 20] = [
    ("count", &[INTEGER]),
    ("sum", &[INTEGER]),
    ("sum", &[DOUBLE]),
    ("avg", &[DOUBLE]),
    ("min", &[DOUBLE]),
    ("max", &[TEXT]),
    ("distinct_count", &[TEXT]),
    ("var_samp", &[INTEGER]),
    ("stddev_pop", &[DOUBLE]),
    ("drawdown", &[DOUBLE]),
    ("median", &[INTEGER]),
    ("first_value", &[INTEGER]),
    ("count_where", &[INTEGER, CONDITION]),
    ("sum_where", &[DOUBLE, CONDITION]),
    ("avg_where", &[INTEGER, CONDITION]),
    ("min_where", &[INTEGER, CONDITION]),
    ("max_where", &[DOUBLE, CONDITION]),
    ("entropy", &[TEXT]),
    ("approx_distinct", &[INTEGER]),
    ("avg_cate_where", &[INTEGER, CONDITION, TEXT]),
];

/// A stream and its rows.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The number of sources of windows; those of LAST JOINs come after them.
    pub(super) sources: usize,
    pub(super) lookups: Vec<LookupSpec>,
    /// Those above the windows.
    pub(super) output_lookups: Vec<LookupSpec>,
    pub(super) lateness_ms: i64,
    /// After how many rows the stream is advanced.
    pub(super) step: usize,
    pub(super) scans: Vec<ScanSpec>,
    pub(super) rows: Vec<CaseRow>,
}

/// A row that arrives.
#[derive(Debug, Clone)]
pub(super) struct CaseRow {
    pub(super) source: usize,
    pub(super) columns: Vec<Value>,
}

impl Case {
    pub(super) fn spec(&self) -> WindowJoinSpec {
        let sources = self.sources + self.lookups.len() + self.output_lookups.len();
        WindowJoinSpec {
            lookups: self.lookups.clone(),
            output_lookups: self.output_lookups.clone(),
            scans: self.scans.clone(),
            ..spec(sources, Vec::new())
        }
    }
}

/// Computes a row of the windows from one that LAST JOINs have joined: leaves some out, and takes a value of what was
/// joined.
pub(super) fn window_row(joined: &[Value]) -> Option<Vec<Value>> {
    let mut columns = joined[..WIDTH].to_vec();
    for right in joined[WIDTH..].chunks(RIGHT_WIDTH) {
        if right[INTEGER] == Value::BigInt(3) {
            return None;
        }
        if right[DOUBLE] != Value::Null {
            columns[DOUBLE] = right[DOUBLE].clone();
        }
    }
    Some(columns)
}

impl CaseRow {
    /// Makes a row of a key.
    pub(super) fn of(source: usize, time: Option<i64>) -> Self {
        let key = time.map_or(0, |time| i32::try_from(time / 1_000).unwrap_or(0));
        let time = time.map_or(Value::Null, Value::Timestamp);
        let text = || Value::String("x".into());
        let columns = vec![
            time,
            Value::Int(key),
            text(),
            Value::BigInt(1),
            Value::Double(0.5),
            text(),
            Value::Bool(true),
        ];
        Self { source, columns }
    }
}

/// Returns the arrival of the row at a position.
pub(super) fn arrival(at: usize) -> u64 {
    at as u64 + 10
}

/// How many columns of a row a LAST JOIN joins.
pub(super) const RIGHT_WIDTH: usize = 5;

/// How far back the frame of [`simple`] goes.
pub(super) const SIMPLE_RANGE_MS: i64 = 50;

fn spec(sources: usize, scans: Vec<ScanSpec>) -> WindowJoinSpec {
    let source = SourceShape { width: WIDTH, order: TIME };
    let (sources, lookups, output_lookups) = (vec![source; sources], Vec::new(), Vec::new());
    let mut main_columns: Vec<Option<usize>> = (0..WIDTH).map(Some).collect();
    // A LAST JOIN may have given it ([`window_row`]).
    main_columns[DOUBLE] = None;
    WindowJoinSpec { sources, lookups, width: WIDTH, main_columns, output_lookups, scans }
}

/// Returns a sum over a range of time.
pub(super) fn simple(sources: usize) -> WindowJoinSpec {
    let frame = Frame::Range { from: Some(SIMPLE_RANGE_MS), to: 0 };
    let window = Window { frame, ..window() };
    let groups = vec![GroupSpec { window, calls: vec![call(1, 0)] }];
    let unions = (1..sources).collect();
    let scan = ScanSpec { keys: vec![KEY], unions, without_main: false, groups };
    spec(sources, vec![scan])
}

fn window() -> Window {
    Window {
        partition_by: Vec::new(),
        order_by: None,
        frame: Frame::Rows { from: None, to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    }
}

fn call(number: usize, output: usize) -> CallSpec {
    let (name, arguments) = CALLS[number];
    CallSpec { bound: bind(name, arguments), arguments: arguments.to_vec(), output }
}

fn bind(name: &str, arguments: &[usize]) -> BoundAggregate {
    let types: Vec<DataType> = arguments.iter().map(|column| TYPES[*column].clone()).collect();
    let constants = vec![None; types.len()];
    let settings = Settings::default();
    let call = CallArguments { types: &types, constants: &constants, settings: &settings };
    (aggregate::find(name).unwrap().bind)(&call).unwrap()
}

/// Draws a stream.
pub(super) fn case() -> impl Strategy<Value = Case> {
    let scans = vec((vec(group(), 1..3), any::<u8>(), 0..4_u8), 1..3);
    let rows = vec((any::<u8>(), any::<u8>(), any::<u8>(), values()), 1..70);
    let lateness = prop_oneof![Just(0), Just(1), Just(5), Just(40), Just(2_000)];
    let lookups = || prop_oneof![2 => Just(Vec::new()), 1 => vec(lookup(), 1..3)];
    let lookups = (lookups(), lookups());
    (1..5_usize, lateness, 1..9_usize, (scans, lookups), rows).prop_map(|drawn| {
        let (sources, lateness_ms, step, (scans, lookups), rows) = drawn;
        let (mut lookups, mut output_lookups) = lookups;
        place_lookups(&mut lookups, sources);
        place_lookups(&mut output_lookups, sources + lookups.len());
        let all_sources = sources + lookups.len() + output_lookups.len();
        let mut output = 0;
        let scans = scans
            .into_iter()
            .map(|(groups, unions, form)| scan((groups, unions, form), sources, &mut output));
        let scans = scans.collect();
        let mut clock = 1_000;
        let row = |(source, step, delay, mut columns): (u8, u8, u8, Vec<Value>)| {
            let steps = [0, 0, 1, 1, 2, 7, 30, 200];
            clock += steps[usize::from(step) % steps.len()];
            let delays = [0, 0, 0, 1, 3, lateness_ms / 2, lateness_ms, lateness_ms + 1];
            let time = clock - delays[usize::from(delay) % delays.len()];
            if step < 250 {
                columns[TIME] = Value::Timestamp(time);
            }
            CaseRow { source: usize::from(source) % all_sources, columns }
        };
        let rows = rows.into_iter().map(row).collect();
        Case { sources, lookups, output_lookups, lateness_ms, step, scans, rows }
    })
}

/// Draws a LAST JOIN; its place among the others is not known yet.
fn lookup() -> impl Strategy<Value = LookupSpec> {
    let keys = prop_oneof![2 => Just(vec![KEY]), 1 => Just(vec![KEY, SECOND_KEY])];
    let least = LeastTime { column: TIME, is_inclusive: true };
    let at_least = prop_oneof![3 => Just(None), 1 => Just(Some(least))];
    (keys, any::<bool>(), at_least).prop_map(|(keys, is_inclusive, at_least)| LookupSpec {
        source: 0,
        columns: RIGHT_WIDTH,
        main_keys: keys.clone(),
        keys,
        is_inclusive,
        at_least,
    })
}

/// Gives LAST JOINs their sources. The second one reads what the first one has joined.
fn place_lookups(lookups: &mut [LookupSpec], sources: usize) {
    for (at, lookup) in lookups.iter_mut().enumerate() {
        lookup.source = sources + at;
    }
    let [_, second] = lookups else { return };
    second.main_keys[0] += WIDTH;
    if let Some(least) = &mut second.at_least {
        *least = LeastTime { column: WIDTH + TIME, is_inclusive: second.is_inclusive };
    }
}

/// Draws the columns of a row but for its time.
fn values() -> impl Strategy<Value = Vec<Value>> {
    let key = prop_oneof![
        6 => (0..3_i32).prop_map(Value::Int),
        1 => Just(Value::Null),
    ];
    let text = |count: u8| {
        prop_oneof![
            6 => (0..count).prop_map(|text| match text {
                3 => Value::String("a text that is longer than short ones".into()),
                text => Value::String(format!("t{text}").into()),
            }),
            1 => Just(Value::Null),
        ]
    };
    let integer = prop_oneof![
        6 => (-9..9_i64).prop_map(Value::BigInt),
        1 => Just(Value::Null),
    ];
    let doubles = [0.1, -0.0, 0.0, 1e300, -1e300, f64::NAN, f64::INFINITY, 3.5, 1e-300];
    let double = prop_oneof![
        6 => (0..doubles.len()).prop_map(move |at| Value::Double(doubles[at])),
        1 => Just(Value::Null),
    ];
    let condition = prop_oneof![
        6 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Null),
    ];
    (key, text(2), integer, double, text(4), condition).prop_map(
        |(key, second, integer, double, text, condition)| {
            vec![Value::Null, key, second, integer, double, text, condition]
        },
    )
}

/// Draws a window with its calls; outputs and attributes of scans are not known yet.
fn group() -> impl Strategy<Value = GroupSpec> {
    let calls = vec(0..CALLS.len(), 1..4);
    let distance = prop_oneof![Just(0), Just(1), Just(2), Just(9), Just(60), Just(1_000)];
    let distances = (distance.clone(), distance.clone(), distance);
    let max_size = prop_oneof![3 => Just(None), 1 => (1..5_u64).prop_map(Some)];
    let form = (any::<bool>(), 0..8_u8, 0..6_u8, 0..4_u8);
    (calls, distances, max_size, form).prop_map(|(calls, distances, max_size, form)| {
        let (is_range, frame, excludes, ahead) = form;
        let (from, to) = (distances.0.max(distances.1), distances.0.min(distances.1));
        let (from, to) = match frame {
            0 => (None, 0),
            1 => (None, to),
            2 => (Some(from), to),
            // It begins after its row.
            3 if ahead > 1 => (Some(0), 1),
            _ => (Some(from), 0),
        };
        let frame = match is_range {
            true => Frame::Range { from, to },
            false => Frame::Rows { from: from.map(i64::unsigned_abs), to: to.unsigned_abs() },
        };
        let first = i64::from(!is_range);
        // What begins before its row goes on after it without a gap.
        let nearest = if (from, to) == (Some(0), 1) { distances.2.max(first) } else { first };
        let is_ahead = ahead > 1 && (to == 0 || (from, to) == (Some(0), 1));
        let ahead = is_ahead.then(|| FrameAhead {
            nearest,
            farthest: Some(nearest + if ahead == 2 { 0 } else { distances.1 }),
        });
        let window = Window {
            frame,
            ahead,
            max_size: max_size.filter(|_| is_range),
            exclude_current_time: matches!(excludes, 0 | 1),
            exclude_current_row: matches!(excludes, 1 | 2),
            ..window()
        };
        let calls = calls.into_iter().map(|number| call(number, 0)).collect();
        GroupSpec { window, calls }
    })
}

/// Makes a scan of some windows.
fn scan(
    (mut groups, unions, form): (Vec<GroupSpec>, u8, u8),
    sources: usize,
    output: &mut usize,
) -> ScanSpec {
    let without_main = form == 0;
    for group in &mut groups {
        group.window.instance_not_in_window = without_main;
        for call in &mut group.calls {
            call.output = *output;
            *output += 1;
        }
    }
    let mut unions: Vec<usize> = (1..sources).filter(|source| unions >> source & 1 > 0).collect();
    if form % 2 > 0 {
        unions.reverse();
    }
    let keys = if form == 3 { vec![KEY, SECOND_KEY] } else { vec![KEY] };
    ScanSpec { keys, unions, without_main, groups }
}

/// The constructs of streams.
const CONSTRUCTS: [&str; 36] = [
    "ROWS",
    "ROWS_RANGE",
    "UNBOUNDED PRECEDING",
    "frame that ends before its row",
    "n FOLLOWING",
    "frame that begins after its row",
    "MAXSIZE",
    "EXCLUDE CURRENT_ROW",
    "EXCLUDE CURRENT_TIME",
    "INSTANCE_NOT_IN_WINDOW",
    "no UNION",
    "UNION of one",
    "UNION of several",
    "UNION in another order",
    "two windows over one scan",
    "two scans",
    "lateness 0",
    "late rows",
    "equal times",
    "NULL times",
    "NULL keys",
    "advanced after each row",
    "LAST JOIN",
    "LAST JOIN of what was joined",
    "LAST JOIN of older rows only",
    "LAST JOIN from a time on",
    "LAST JOIN that leaves a row out",
    "LAST JOIN above windows",
    "LAST JOIN below and above windows",
    "one joiner",
    "joiners on threads",
    "two joiners",
    "four joiners",
    "rows divided by keys",
    "rows divided by keys, LAST JOIN",
    "rows that cannot be divided",
];

/// How often each construct was drawn.
#[derive(Debug, Default)]
pub(super) struct ConstructCounts(BTreeMap<&'static str, u64>);

impl ConstructCounts {
    pub(super) fn add(&mut self, case: &Case, joiners: TestedJoiners) {
        let count = match joiners {
            TestedJoiners::One => 1,
            TestedJoiners::Threads(count) | TestedJoiners::Stepped(count, _) => count,
        };
        let is_divided = case.spec().divided_by().is_some();
        let has_lookups = !(case.lookups.is_empty() && case.output_lookups.is_empty());
        let windows = || case.scans.iter().flat_map(|scan| &scan.groups).map(|group| &group.window);
        let is = |test: &dyn Fn(&Window) -> bool| windows().any(test);
        let unions = |test: &dyn Fn(&[usize]) -> bool| case.scans.iter().any(|s| test(&s.unions));
        let times: Vec<_> = case.rows.iter().map(CaseRow::time).collect();
        let expected = super::naive::evaluate(case);
        let lookups = |test: &dyn Fn(&LookupSpec) -> bool| {
            case.lookups.iter().chain(&case.output_lookups).any(test)
        };
        let drawn = [
            is(&|window| matches!(window.frame, Frame::Rows { .. })),
            is(&|window| matches!(window.frame, Frame::Range { .. })),
            is(&|window| {
                matches!(
                    window.frame,
                    Frame::Rows { from: None, .. } | Frame::Range { from: None, .. }
                )
            }),
            is(&|window| {
                window.ahead.is_none()
                    && !lockstep_plan::has_current_row(window)
                    && !window.exclude_current_row
            }),
            is(&|window| window.ahead.is_some()),
            is(&|window| {
                window.ahead.is_some()
                    && !lockstep_plan::has_current_row(window)
                    && !window.exclude_current_row
            }),
            is(&|window| window.max_size.is_some()),
            is(&|window| window.exclude_current_row),
            is(&|window| window.exclude_current_time),
            is(&|window| window.instance_not_in_window),
            unions(&|unions| unions.is_empty()),
            unions(&|unions| unions.len() == 1),
            unions(&|unions| unions.len() > 1),
            unions(&|unions| !unions.is_sorted()),
            case.scans.iter().any(|scan| scan.groups.len() > 1),
            case.scans.len() > 1,
            case.lateness_ms == 0,
            !expected.late.is_empty(),
            times.windows(2).any(|pair| pair[0].is_some() && pair[0] == pair[1]),
            times.contains(&None),
            case.rows.iter().any(|row| row.columns[KEY] == Value::Null),
            case.step == 1,
            !case.lookups.is_empty(),
            case.lookups.len() > 1,
            lookups(&|lookup| !lookup.is_inclusive),
            lookups(&|lookup| lookup.at_least.is_some()),
            expected.left_out > 0,
            !case.output_lookups.is_empty(),
            !case.lookups.is_empty() && !case.output_lookups.is_empty(),
            count == 1,
            matches!(joiners, TestedJoiners::Threads(_)),
            count == 2,
            count == 4,
            count > 1 && is_divided,
            count > 1 && is_divided && has_lookups,
            count > 1 && !is_divided,
        ];
        for (construct, _) in CONSTRUCTS.iter().zip(drawn).filter(|(_, is_drawn)| *is_drawn) {
            *self.0.entry(*construct).or_default() += 1;
        }
    }

    /// Returns the constructs that were never drawn.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        CONSTRUCTS.iter().copied().filter(|construct| !self.0.contains_key(construct)).collect()
    }
}

impl fmt::Display for ConstructCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for construct in CONSTRUCTS {
            writeln!(f, "{construct:34} {:>8}", self.0.get(construct).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

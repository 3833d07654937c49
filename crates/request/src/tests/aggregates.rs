//! Aggregates: what is folded block by block has the value, bit for bit, that states give when
//! they are updated row by row; with machine code and without.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, lit};
use lockstep_function::{CallArguments, Settings, aggregate, scalar, udf::scalar_call};
use lockstep_plan::{AggregateCall, Frame, Window, WindowGroup};
use lockstep_row::{Arena, DataType, Datum, Value};
use proptest::{prelude::*, strategy::ValueTree};

use super::window::{any_window, begin_alike, chunk_rows, currents, rows};
use crate::{
    CompileOptions, PreAggregation, Program,
    testing::{LaterRow, TestDatabase, TestRow, column, windows},
};

/// Makes a call of an aggregate over BIGINT columns; arguments that are literals are constants.
fn call(name: &str, arguments: Vec<Expr>, output: String) -> AggregateCall {
    let function = aggregate::find(name).unwrap();
    let typed = |argument: &Expr| match argument {
        Expr::Literal(..) => (DataType::BigInt, Some(Value::BigInt(2))),
        Expr::Column(_) | Expr::ScalarFunction(_) => (DataType::BigInt, None),
        _ => (DataType::Bool, None),
    };
    let (types, constants): (Vec<_>, Vec<_>) = arguments.iter().map(typed).unzip();
    let settings = Settings::default();
    let bound = (function.bind)(&CallArguments {
        types: &types,
        constants: &constants,
        settings: &settings,
    });
    AggregateCall { function, bound: bound.unwrap(), arguments, settings, output }
}

/// Makes the sum of two BIGINT columns, as the binder does.
fn plus(left: Expr, right: Expr) -> Expr {
    let types = [DataType::BigInt, DataType::BigInt];
    let settings = Settings::default();
    let bound_arguments =
        CallArguments { types: &types, constants: &[None, None], settings: &settings };
    let form = (scalar::find("op_add").unwrap().resolve)(&bound_arguments).unwrap();
    scalar_call("op_add", form, &[None, None], &settings, vec![left, right])
}

/// The calls that a window has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallSelection {
    All,
    /// All but one that is updated row by row.
    Folded,
    /// Those of the folded ones whose answer does not depend on the order of the rows.
    Unordered,
}

const ORDERED: [&str; 3] = ["first_value", "last_value", "lag"];

fn calls(window: usize, which: CallSelection) -> Vec<AggregateCall> {
    let id = || column(0, "id");
    let ts = || column(0, "ts");
    let condition = || id().gt(lit(9_i64));
    let lists = [
        ("count", vec![]),
        ("count", vec![ts()]),
        ("sum", vec![id()]),
        ("avg", vec![id()]),
        ("min", vec![ts()]),
        ("max", vec![id()]),
        ("distinct_count", vec![ts()]),
        ("topn_frequency", vec![ts(), lit(2_i64)]),
        ("entropy", vec![ts()]),
        ("first_value", vec![id()]),
        ("last_value", vec![ts()]),
        ("lag", vec![id(), lit(2_i64)]),
        ("median", vec![id()]),
        ("sum_where", vec![id(), condition()]),
        ("count_where", vec![ts(), condition()]),
        ("min_where", vec![ts(), condition()]),
        ("sum", vec![plus(id(), ts())]),
        ("count", vec![plus(id(), ts())]),
        ("max_where", vec![plus(ts(), ts()), condition()]),
        ("distinct_count", vec![plus(ts(), id())]),
    ];
    let is_wanted = |name: &str| match which {
        CallSelection::All => true,
        CallSelection::Folded => name != "median",
        CallSelection::Unordered => name != "median" && !ORDERED.contains(&name),
    };
    let calls = lists.into_iter().filter(|(name, _)| is_wanted(name)).enumerate();
    calls.map(|(at, (name, list))| call(name, list, format!("w{window}_{at}"))).collect()
}

/// Makes a window without attributes.
fn window(frame: Frame) -> Window {
    Window {
        partition_by: vec![column(0, "k")],
        order_by: Some(column(0, "ts")),
        frame,
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    }
}

/// Makes the window of a GROUP BY: all rows of the key, in order of arrival.
fn whole_window() -> Window {
    Window { order_by: None, ..window(Frame::Rows { from: None, to: 0 }) }
}

/// Compares a program with programs of one window each, which are computed row by row.
fn check(program: &Program, baselines: &[Program], database: &TestDatabase) {
    let (arena, other) = (Arena::new(), Arena::new());
    let same = |(left, right): (&Datum<'_>, &Datum<'_>)| left.is_bit_equal(right);
    for current in currents(database) {
        let row = current.values();
        // At its own position, and after every stored row.
        for arrival in [current.arrival, u64::MAX] {
            let found = program.answer_at(&row, arrival, &arena).unwrap().unwrap();
            let mut expected = found[..row.len()].to_vec();
            for baseline in baselines {
                let answer = baseline.answer_at(&row, arrival, &other).unwrap().unwrap();
                expected.extend(&answer[row.len()..]);
            }
            assert_eq!(found.len(), expected.len());
            let pairs = found.iter().zip(&expected).enumerate();
            let differences: Vec<_> = pairs.filter(|(_, pair)| !same(*pair)).collect();
            assert!(
                differences.is_empty(),
                "{current:?}: {differences:?} folded and row by row\n{}",
                program.explain()
            );
        }
    }
}

/// Checks that requests of a batch, which share results, have the answers of single requests.
fn check_batch(program: &Program, database: &TestDatabase) {
    let arena = Arena::new();
    let currents = currents(database);
    // Each of them again, at a distance, and as it is but for a value that windows read.
    let requests: Vec<Vec<Datum<'_>>> = (0..3)
        .flat_map(|id| currents.iter().map(move |row| TestRow { id: row.id.max(id), ..*row }))
        .map(|row| row.values().to_vec())
        .collect();
    let requests: Vec<&[Datum<'_>]> = requests.iter().map(Vec::as_slice).collect();
    let mut single = requests.iter().map(|request| program.answer(request, &arena).unwrap());
    let check = |answer: &[Datum<'_>]| {
        let expected = single.next().unwrap().unwrap();
        let mut pairs = answer.iter().zip(expected);
        assert!(pairs.all(|(left, right)| left.is_bit_equal(right)), "{answer:?}, {expected:?}");
    };
    program.batch().answer(&requests, check).unwrap();
    assert!(single.next().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn aggregates_agree_with_states_row_by_row(case in case()) {
        lockstep_table::set_chunk_rows(case.chunk_rows);
        let mut database = TestDatabase::new(&case.tables);
        let group = |(at, (window, unions)): (usize, &(Window, Vec<usize>))| {
            WindowGroup { window: window.clone(), unions: unions.clone(), calls: calls(at, case.which) }
        };
        let groups: Vec<WindowGroup> = case.windows_with_unions.iter().enumerate().map(group).collect();
        let compile_with = |groups: &[WindowGroup], options: CompileOptions| {
            let unions = vec![database.scan(1), database.scan(0)];
            let plan = windows(database.scan(0), unions, groups.to_vec());
            let batch = Arc::new(crate::testing::NoBatchMode);
            Program::compile_with(&plan, &database, batch, options).unwrap()
        };
        let compile = |groups: &[WindowGroup], folds: bool, machine_code: bool, includes: bool| {
            let options = CompileOptions { folds, machine_code, includes, ..CompileOptions::default() };
            compile_with(groups, options)
        };
        let single = |group| compile(std::slice::from_ref(group), false, false, false);
        let baselines: Vec<Program> = groups.iter().map(single).collect();
        check(&compile(&groups, false, false, false), &baselines, &database);
        check(&compile(&groups, true, false, false), &baselines, &database);
        check(&compile(&groups, true, true, false), &baselines, &database);
        let program = compile(&groups, true, true, true);
        check(&program, &baselines, &database);
        check_batch(&program, &database);

        lockstep_table::set_leaf_rows(case.leaf_rows);
        let pre_aggregated = [(false, false), (true, false), (true, true)].map(|(folds, includes)| {
            let pre_aggregation = PreAggregation::Always;
            let options = CompileOptions { folds, includes, pre_aggregation, ..CompileOptions::default() };
            compile_with(&groups, options)
        });
        for later in &case.later {
            pre_aggregated.iter().for_each(maintain);
            pre_aggregated.iter().for_each(|program| check(program, &baselines, &database));
            database.append(later);
            pre_aggregated.iter().for_each(|program| check(program, &baselines, &database));
        }
        pre_aggregated.iter().for_each(maintain);
        pre_aggregated.iter().for_each(|program| check(program, &baselines, &database));
        check_batch(&pre_aggregated[2], &database);
    }
}

/// Makes the nodes of all pre-aggregates of a program.
fn maintain(program: &Program) {
    for pre_aggregate in program.pre_aggregates() {
        while pre_aggregate.maintain().is_some() {}
    }
}

/// Rows are taken from nodes where a key has many, whatever the calls and the sources.
#[test]
fn long_windows_take_their_rows_from_nodes() {
    lockstep_table::set_leaf_rows(8);
    let rows = |first: i64| (0..1_000).map(|at| (Some(1), Some(first + at * 2))).collect();
    let database = TestDatabase::new(&[rows(0), rows(1)]);
    for unions in [vec![], vec![0]] {
        for which in [CallSelection::All, CallSelection::Folded, CallSelection::Unordered] {
            for frame in [
                Frame::Rows { from: Some(900), to: 0 },
                Frame::Range { from: Some(1_600), to: 0 },
                Frame::Range { from: None, to: 100 },
            ] {
                let group = WindowGroup {
                    window: window(frame),
                    unions: unions.clone(),
                    calls: calls(0, which),
                };
                let plan = windows(database.scan(0), vec![database.scan(1)], vec![group]);
                let batch = Arc::new(crate::testing::NoBatchMode);
                let pre_aggregation = PreAggregation::Always;
                let options = CompileOptions { pre_aggregation, ..CompileOptions::default() };
                let program = Program::compile_with(&plan, &database, batch, options).unwrap();
                maintain(&program);
                let request = TestRow { id: 9, k: Some(1), ts: Some(2_000), arrival: u64::MAX };
                program.answer(&request.values(), &Arena::new()).unwrap();
                let usage = program.pre_aggregates().iter().map(|one| one.usage());
                let usage: Vec<_> = usage.collect();
                assert_eq!(usage.len(), 1 + unions.len(), "{}", program.explain());
                // Rows of two sources in order alternate, so that nodes of neither lie by themselves.
                let alternates = !unions.is_empty()
                    && (which != CallSelection::Unordered || matches!(frame, Frame::Rows { .. }));
                let in_nodes: u64 = usage.iter().map(|one| one.rows_in_nodes).sum();
                assert!(in_nodes > 600 || alternates, "{usage:?} {frame:?} {which:?}");
            }
        }
    }
}

/// What [`aggregates_agree_with_states_row_by_row`] draws.
#[derive(Debug)]
struct FoldCase {
    tables: [Vec<(Option<i64>, Option<i64>)>; 2],
    which: CallSelection,
    /// Windows and their union sources: the other table, the window's own.
    windows_with_unions: Vec<(Window, Vec<usize>)>,
    are_alike: bool,
    chunk_rows: usize,
    leaf_rows: usize,
    /// Rows that are appended after nodes were made: table, key and time.
    later: Vec<Vec<LaterRow>>,
}

fn case() -> impl Strategy<Value = FoldCase> {
    let unions = prop::sample::select(vec![vec![], vec![0], vec![1], vec![0, 1], vec![1, 0]]);
    let which = prop::sample::select(vec![
        CallSelection::All,
        CallSelection::Folded,
        CallSelection::Unordered,
    ]);
    let whole = Just((whole_window(), Vec::new()));
    let window = prop_oneof![5 => (any_window(true), unions), 1 => whole];
    let windows_with_unions = proptest::collection::vec(window, 1..4);
    let tables = (rows(90), rows(60));
    let later = (0_usize..2, rows(3))
        .prop_map(|(table, rows)| rows.into_iter().map(|row| (table, row)).collect::<Vec<_>>());
    let later = proptest::collection::vec(later, 1..3);
    let parts = (any::<bool>(), chunk_rows(), 1_usize..6, later);
    (tables, which, windows_with_unions, parts).prop_map(
        |(tables, which, windows_with_unions, (are_alike, chunk_rows, leaf_rows, later))| {
            let alike = |(window, _): &(Window, Vec<usize>)| {
                (begin_alike(window, &windows_with_unions[0].0), windows_with_unions[0].1.clone())
            };
            let windows_with_unions = if are_alike {
                windows_with_unions.iter().map(alike).collect()
            } else {
                windows_with_unions
            };
            FoldCase {
                tables: tables.into(),
                which,
                windows_with_unions,
                are_alike,
                chunk_rows,
                leaf_rows,
                later,
            }
        },
    )
}

impl FoldCase {
    /// Names the constructs that it has.
    fn constructs(&self) -> Vec<&'static str> {
        let any = |has: fn(&(Window, Vec<usize>)) -> bool| self.windows_with_unions.iter().any(has);
        let has_time = |time: Option<i64>| {
            self.tables.iter().flatten().any(|(key, of_row)| key.is_some() && *of_row == time)
        };
        // Windows may hold 32 rows, no call is updated row by row.
        let is_long = |(window, _): &(Window, Vec<usize>)| {
            window.max_size.is_none_or(|most| most >= 32)
                && !matches!(window.frame, Frame::Rows { from: Some(0..32), .. })
        };
        let is_included = self.windows_with_unions.iter().any(is_long);
        let has_union = any(|(_, unions)| !unions.is_empty());
        let has_own = any(|(_, unions)| unions.contains(&1));
        let is_whole = |(window, _): &(Window, Vec<usize>)| *window == whole_window();
        let has_max_size = any(|(window, _)| window.max_size.is_some());
        let is_small = self.chunk_rows < 16;
        let facts = [
            ("several windows", self.windows_with_unions.len() > 1),
            ("windows that begin alike", self.windows_with_unions.len() > 1 && self.are_alike),
            ("union sources", has_union),
            ("the request's own table as a union source", has_own),
            ("included columns", is_included),
            ("chunks of few rows", is_small),
            ("NULL as an order value", has_time(None)),
            ("the least order value", has_time(Some(i64::MIN))),
            ("the greatest order value", has_time(Some(i64::MAX))),
            ("MAXSIZE", has_max_size),
            ("EXCLUDE CURRENT_TIME", any(|(window, _)| window.exclude_current_time)),
            ("EXCLUDE CURRENT_ROW", any(|(window, _)| window.exclude_current_row)),
            ("INSTANCE_NOT_IN_WINDOW", any(|(window, _)| window.instance_not_in_window)),
            ("calls that ask for the order of rows", self.which != CallSelection::Unordered),
            ("all rows, in order of arrival", any(is_whole)),
            ("all rows, in any order", any(is_whole) && self.which == CallSelection::Unordered),
            ("included + union + few rows in a chunk", is_included && has_union && is_small),
            (
                "included + union + NULL and the least order value + MAXSIZE",
                is_included
                    && has_union
                    && has_max_size
                    && has_time(None)
                    && has_time(Some(i64::MIN)),
            ),
            (
                "included + own table + several windows + few rows in a chunk",
                is_included && has_own && is_small && self.windows_with_unions.len() > 1,
            ),
            (
                "included + union, in order, MAXSIZE",
                is_included && has_union && self.which == CallSelection::Folded && has_max_size,
            ),
        ];
        facts.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
    }
}

/// Prints how often each construct is drawn; none may go missing.
#[test]
fn every_construct_is_drawn() {
    const CASES: usize = 960;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..CASES {
        let case = case().new_tree(&mut runner).unwrap().current();
        for construct in case.constructs() {
            *counts.entry(construct).or_insert(0_usize) += 1;
        }
    }
    for (construct, count) in &counts {
        println!("{construct:62} {count:4} of {CASES}");
    }
    assert_eq!(counts.len(), 20, "a construct is never drawn: {counts:?}");
    assert!(counts.values().all(|count| *count >= CASES / 50), "one is too rare: {counts:?}");
}

/// The runs of several sources are merged, and all of them are read from what the indexes include.
#[test]
fn union_sources_are_read_from_their_indexes() {
    let rows = |first: i64| (0..100).map(|at| (Some(1), Some(first + at * 2))).collect();
    let database = TestDatabase::new(&[rows(0), rows(1)]);
    let window = window(Frame::Rows { from: Some(150), to: 0 });
    let group = WindowGroup { window, unions: vec![0], calls: calls(0, CallSelection::Unordered) };
    let plan = windows(database.scan(0), vec![database.scan(1)], vec![group]);
    let compile = |includes: bool| {
        let options = CompileOptions { includes, ..CompileOptions::default() };
        let batch = Arc::new(crate::testing::NoBatchMode);
        Program::compile_with(&plan, &database, batch, options).unwrap()
    };
    let (without, with) = (compile(false), compile(true));
    let explain = with.explain();
    assert!(explain.contains("; from the included columns of the index"), "{explain}");
    check(&with, &[without], &database);
}

/// An index stores NULL as the least value, among whose rows it is in the order of arrival.
#[test]
fn a_row_of_the_least_order_value_is_found_beyond_one_of_null() {
    let database = TestDatabase::new(&[
        vec![(Some(1), Some(i64::MIN)), (Some(1), None), (Some(1), Some(i64::MIN))],
        vec![(Some(1), Some(0)), (Some(1), None)],
    ]);
    let frame = Frame::Rows { from: None, to: 0 };
    let group = WindowGroup {
        window: window(frame),
        unions: vec![0],
        calls: calls(0, CallSelection::Unordered),
    };
    let plan = windows(database.scan(0), vec![database.scan(1)], vec![group]);
    let compile = |folds: bool| {
        let options = CompileOptions { folds, ..CompileOptions::default() };
        let batch = Arc::new(crate::testing::NoBatchMode);
        Program::compile_with(&plan, &database, batch, options).unwrap()
    };
    let program = compile(true);
    check(&program, &[compile(false)], &database);
    let request = TestRow { id: 9, k: Some(1), ts: Some(5), arrival: u64::MAX };
    let arena = Arena::new();
    let answer = program.answer(&request.values(), &arena).unwrap().unwrap();
    assert_eq!(
        answer[3],
        Datum::BigInt(4),
        "the request row, that of 0 and two of the least value"
    );
}

/// A scan ends early however it reads its rows.
#[test]
fn a_long_window_ends_when_its_call_is_cancelled() {
    let rows = |first: i64| (0..1_000).map(|at| (Some(1), Some(first + at * 2))).collect();
    let database = TestDatabase::new(&[rows(0), rows(1)]);
    let request = TestRow { id: 9, k: Some(1), ts: Some(5_000), arrival: u64::MAX };
    let arena = Arena::new();
    // The other table; the window's own, with the request row; both.
    for unions in [vec![0], vec![1], vec![0, 1]] {
        for which in [CallSelection::All, CallSelection::Folded, CallSelection::Unordered] {
            for includes in [false, true] {
                let window = window(Frame::Rows { from: None, to: 0 });
                let group = WindowGroup { window, unions: unions.clone(), calls: calls(0, which) };
                let unions = vec![database.scan(1), database.scan(0)];
                let plan = windows(database.scan(0), unions, vec![group]);
                let options = CompileOptions { includes, ..CompileOptions::default() };
                let batch = Arc::new(crate::testing::NoBatchMode);
                let program = Program::compile_with(&plan, &database, batch, options).unwrap();
                assert!(program.answer(&request.values(), &arena).is_ok());
                let call = lockstep_host::query::QueryContext::new();
                call.cancel();
                let answer = call.run(|| program.answer(&request.values(), &arena));
                assert!(answer.is_err(), "{which:?}, {includes}: {}", program.explain());
            }
        }
    }
}

#[test]
fn states_are_shared_and_explained() {
    let database = TestDatabase::new(&[vec![(Some(1), Some(1))]]);
    let window = window(Frame::Rows { from: Some(9), to: 0 });
    let id = || vec![column(0, "id")];
    let names = ["sum", "avg", "count", "median"];
    let calls = names.iter().enumerate();
    let calls = calls.map(|(at, name)| call(name, id(), format!("c{at}")));
    let computed = vec![plus(column(0, "id"), column(0, "ts"))];
    let calls = calls.chain([call("max", computed, "c4".to_owned())]).collect();
    let groups = vec![WindowGroup { window, unions: vec![], calls }];
    let explain = database.compile(&windows(database.scan(0), vec![], groups)).explain();
    assert!(explain.contains("folds 4 calls in 3 states over 2 values"), "{explain}");
    assert!(explain.contains("1 value by machine code"), "{explain}");
    assert!(explain.contains("row by row: median"), "{explain}");
}

#[test]
fn windows_that_begin_at_the_same_row_share_states() {
    let database = TestDatabase::new(&[(0..9).map(|ts| (Some(1), Some(ts))).collect()]);
    let frames = [
        Frame::Rows { from: Some(2), to: 0 },
        Frame::Range { from: Some(5), to: 0 },
        Frame::Rows { from: Some(2), to: 1 },
    ];
    let groups = frames.into_iter().enumerate().map(|(at, frame)| {
        let sum = call("sum", vec![column(0, "id")], format!("sum{at}"));
        let median = call("median", vec![column(0, "id")], format!("median{at}"));
        WindowGroup { window: window(frame), unions: vec![], calls: vec![sum, median] }
    });
    let program = database.compile(&windows(database.scan(0), vec![], groups.collect()));
    let explain = program.explain();
    assert!(explain.contains("folds 3 calls in 2 states over 1 value"), "{explain}");
    assert!(explain.contains("row by row: median, median"), "{explain}");
}

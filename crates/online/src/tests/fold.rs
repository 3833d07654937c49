//! Folds: whatever is folded block by block has the value, bit for bit, that accumulators give
//! when they are fed row by row; with machine code and without.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, lit};
use lockstep_function::{Arguments, Settings, aggregate, scalar, udf::scalar_call};
use lockstep_plan::{AggregateCall, Frame, Window, WindowGroup};
use lockstep_row::{Arena, DataType, Datum, Value};
use proptest::prelude::*;

use super::window::{any_window, begin_alike, chunk_rows, currents, rows};
use crate::{
    Options, Program,
    testing::{TestRow, World, column, windows},
};

/// A call of a real aggregate over BIGINT columns; constants are the arguments that are literals.
fn call(name: &str, arguments: Vec<Expr>, output: String) -> AggregateCall {
    let function = aggregate::find(name).unwrap();
    let typed = |argument: &Expr| match argument {
        Expr::Literal(..) => (DataType::BigInt, Some(Value::BigInt(2))),
        Expr::Column(_) | Expr::ScalarFunction(_) => (DataType::BigInt, None),
        _ => (DataType::Bool, None),
    };
    let (types, constants): (Vec<_>, Vec<_>) = arguments.iter().map(typed).unzip();
    let settings = Settings::default();
    let bound =
        (function.bind)(&Arguments { types: &types, constants: &constants, settings: &settings });
    AggregateCall { function, bound: bound.unwrap(), arguments, settings, output }
}

/// The sum of two BIGINT columns, as the binder writes it.
fn plus(left: Expr, right: Expr) -> Expr {
    let types = [DataType::BigInt, DataType::BigInt];
    let settings = Settings::default();
    let asked = Arguments { types: &types, constants: &[None, None], settings: &settings };
    let form = (scalar::find("op_add").unwrap().resolve)(&asked).unwrap();
    scalar_call("op_add", form, &[None, None], &settings, vec![left, right])
}

/// Which calls a window has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// Those that have a fold: the rows need not be read.
    Folded,
    /// Those of them whose answer does not depend on the order of the rows.
    Unordered,
}

const ORDERED: [&str; 3] = ["first_value", "last_value", "lag"];

fn calls(window: usize, which: Which) -> Vec<AggregateCall> {
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
        Which::All => true,
        Which::Folded => name != "median",
        Which::Unordered => name != "median" && !ORDERED.contains(&name),
    };
    let calls = lists.into_iter().filter(|(name, _)| is_wanted(name)).enumerate();
    calls.map(|(at, (name, list))| call(name, list, format!("w{window}_{at}"))).collect()
}

/// A window without attributes.
fn window(frame: Frame) -> Window {
    Window {
        partition_by: vec![column(0, "k")],
        order_by: Some(column(0, "ts")),
        frame,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    }
}

/// `references` have one window each.
fn check(program: &Program, references: &[Program], world: &World) {
    let (arena, other) = (Arena::new(), Arena::new());
    let same = |(left, right): (&Datum<'_>, &Datum<'_>)| left.is_bit_equal(right);
    for current in currents(world) {
        let row = current.values();
        // In its own place, and after every stored row.
        for arrival in [current.arrival, u64::MAX] {
            let found = program.answer_at(&row, arrival, &arena).unwrap().unwrap();
            let mut expected = found[..row.len()].to_vec();
            for reference in references {
                let answer = reference.answer_at(&row, arrival, &other).unwrap().unwrap();
                expected.extend(&answer[row.len()..]);
            }
            assert_eq!(found.len(), expected.len());
            assert!(
                found.iter().zip(&expected).all(same),
                "{current:?}: {found:?} folded, {expected:?} row by row\n{}",
                program.explain()
            );
        }
    }
}

/// Requests of a batch share what they agree on, and have the answers of requests of their own.
fn check_batch(program: &Program, world: &World) {
    let arena = Arena::new();
    let currents = currents(world);
    // Each of them again, at a distance, and as it is but for a value that windows read.
    let requests: Vec<Vec<Datum<'_>>> = (0..3)
        .flat_map(|id| currents.iter().map(move |row| TestRow { id: row.id.max(id), ..*row }))
        .map(|row| row.values().to_vec())
        .collect();
    let requests: Vec<&[Datum<'_>]> = requests.iter().map(Vec::as_slice).collect();
    let mut alone = requests.iter().map(|request| program.answer(request, &arena).unwrap());
    let check = |answer: &[Datum<'_>]| {
        let expected = alone.next().unwrap().unwrap();
        let mut pairs = answer.iter().zip(expected);
        assert!(pairs.all(|(left, right)| left.is_bit_equal(right)), "{answer:?}, {expected:?}");
    };
    program.batch().answer(&requests, check).unwrap();
    assert!(alone.next().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn folded_together_and_fed_row_by_row_agree(
        tables in (rows(90), rows(60)),
        which in prop::sample::select(vec![Which::All, Which::Folded, Which::Unordered]),
        shapes in proptest::collection::vec((any_window(true), any::<bool>()), 1..4),
        are_alike in any::<bool>(),
        chunk_rows in chunk_rows(),
    ) {
        lockstep_table::set_chunk_rows(chunk_rows);
        let alike = |(window, _): &(Window, bool)| (begin_alike(window, &shapes[0].0), shapes[0].1);
        let shapes = if are_alike { shapes.iter().map(alike).collect() } else { shapes };
        let world = World::new(&[tables.0, tables.1]);
        let group = |(at, (window, is_union)): (usize, &(Window, bool))| {
            let unions = if *is_union { vec![0] } else { vec![] };
            WindowGroup { window: window.clone(), unions, calls: calls(at, which) }
        };
        let groups: Vec<WindowGroup> = shapes.iter().enumerate().map(group).collect();
        let compile = |groups: &[WindowGroup], folds: bool, machine_code: bool, includes: bool| {
            let plan = windows(world.scan(0), vec![world.scan(1)], groups.to_vec());
            let batch = Arc::new(crate::testing::NoBatch);
            let options = Options { folds, machine_code, includes, own_only: false };
            Program::compile_with(&plan, &world, batch, options).unwrap()
        };
        let alone = |group| compile(std::slice::from_ref(group), false, false, false);
        let references: Vec<Program> = groups.iter().map(alone).collect();
        check(&compile(&groups, false, false, false), &references, &world);
        check(&compile(&groups, true, false, false), &references, &world);
        check(&compile(&groups, true, true, false), &references, &world);
        let program = compile(&groups, true, true, true);
        check(&program, &references, &world);
        check_batch(&program, &world);
    }
}

/// The runs of several sources are merged, and all of them are read from what the indexes include.
#[test]
fn union_sources_are_read_from_their_indexes() {
    let rows = |first: i64| (0..100).map(|at| (Some(1), Some(first + at * 2))).collect();
    let world = World::new(&[rows(0), rows(1)]);
    let window = window(Frame::Rows { from: Some(150), to: 0 });
    let group = WindowGroup { window, unions: vec![0], calls: calls(0, Which::Unordered) };
    let plan = windows(world.scan(0), vec![world.scan(1)], vec![group]);
    let compile = |includes: bool| {
        let options = Options { includes, ..Options::default() };
        let batch = Arc::new(crate::testing::NoBatch);
        Program::compile_with(&plan, &world, batch, options).unwrap()
    };
    let (without, with) = (compile(false), compile(true));
    let explain = with.explain();
    assert!(explain.contains("; from the columns that the index includes"), "{explain}");
    check(&with, &[without], &world);
}

#[test]
fn states_are_shared_and_explained() {
    let world = World::new(&[vec![(Some(1), Some(1))]]);
    let window = window(Frame::Rows { from: Some(9), to: 0 });
    let id = || vec![column(0, "id")];
    let names = ["sum", "avg", "count", "median"];
    let calls = names.iter().enumerate();
    let calls = calls.map(|(at, name)| call(name, id(), format!("c{at}")));
    let computed = vec![plus(column(0, "id"), column(0, "ts"))];
    let calls = calls.chain([call("max", computed, "c4".to_owned())]).collect();
    let groups = vec![WindowGroup { window, unions: vec![], calls }];
    let explain = world.compile(&windows(world.scan(0), vec![], groups)).explain();
    assert!(explain.contains("folds 4 calls in 3 states over 2 values"), "{explain}");
    assert!(explain.contains("1 value by machine code"), "{explain}");
    assert!(explain.contains("row by row: median"), "{explain}");
}

#[test]
fn windows_that_begin_at_the_same_row_share_states() {
    let world = World::new(&[(0..9).map(|ts| (Some(1), Some(ts))).collect()]);
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
    let program = world.compile(&windows(world.scan(0), vec![], groups.collect()));
    let explain = program.explain();
    assert!(explain.contains("folds 3 calls in 2 states over 1 value"), "{explain}");
    assert!(explain.contains("row by row: median, median"), "{explain}");
}

//! Folds: whatever is folded block by block has the value, bit for bit, that accumulators give
//! when they are fed row by row.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, lit};
use lockstep_function::{Arguments, Settings, aggregate};
use lockstep_plan::{AggregateCall, Window, WindowGroup};
use lockstep_row::{Arena, DataType, Datum, Value};
use proptest::prelude::*;

use super::window::{any_window, currents, rows};
use crate::{
    Options, Program,
    testing::{World, column, windows},
};

/// A call of a real aggregate over BIGINT columns; constants are the arguments that are literals.
fn call(name: &str, arguments: Vec<Expr>, output: String) -> AggregateCall {
    let function = aggregate::find(name).unwrap();
    let typed = |argument: &Expr| match argument {
        Expr::Literal(..) => (DataType::BigInt, Some(Value::BigInt(2))),
        Expr::Column(_) => (DataType::BigInt, None),
        _ => (DataType::Bool, None),
    };
    let (types, constants): (Vec<_>, Vec<_>) = arguments.iter().map(typed).unzip();
    let settings = Settings::default();
    let bound =
        (function.bind)(&Arguments { types: &types, constants: &constants, settings: &settings });
    AggregateCall { function, bound: bound.unwrap(), arguments, settings, output }
}

fn calls(window: usize) -> Vec<AggregateCall> {
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
    ];
    let calls = lists.into_iter().enumerate();
    calls.map(|(at, (name, list))| call(name, list, format!("w{window}_{at}"))).collect()
}

fn check(program: &Program, reference: &Program, world: &World) {
    let (arena, other) = (Arena::new(), Arena::new());
    for current in currents(world) {
        let row = current.values();
        let found = program.answer_at(&row, current.arrival, &arena).unwrap().unwrap();
        let expected = reference.answer_at(&row, current.arrival, &other).unwrap().unwrap();
        let same = |(left, right): (&Datum<'_>, &Datum<'_>)| left.is_bit_equal(right);
        assert!(
            found.iter().zip(expected).all(same),
            "{current:?}: {found:?} folded, {expected:?} row by row\n{}",
            program.explain()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn folded_and_fed_row_by_row_agree(
        tables in (rows(90), rows(8)),
        shapes in proptest::collection::vec((any_window(true), any::<bool>()), 1..4),
    ) {
        let world = World::new(&[tables.0, tables.1]);
        let group = |(at, (window, is_union)): (usize, &(Window, bool))| {
            let unions = if *is_union { vec![0] } else { vec![] };
            WindowGroup { window: window.clone(), unions, calls: calls(at) }
        };
        let groups: Vec<WindowGroup> = shapes.iter().enumerate().map(group).collect();
        let plan = windows(world.scan(0), vec![world.scan(1)], groups);
        let compile = |folds: bool| {
            let batch = Arc::new(crate::testing::NoBatch);
            Program::compile_with(&plan, &world, batch, Options { folds }).unwrap()
        };
        check(&compile(true), &compile(false), &world);
    }
}

#[test]
fn states_are_shared_and_explained() {
    let world = World::new(&[vec![(Some(1), Some(1))]]);
    let window = || Window {
        partition_by: vec![column(0, "k")],
        order_by: Some(column(0, "ts")),
        frame: lockstep_plan::Frame::Rows { from: Some(9), to: 0 },
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    let id = || vec![column(0, "id")];
    let names = ["sum", "avg", "count", "median"];
    let calls = names.iter().enumerate();
    let calls = calls.map(|(at, name)| call(name, id(), format!("c{at}"))).collect();
    let groups = vec![WindowGroup { window: window(), unions: vec![], calls }];
    let explain = world.compile(&windows(world.scan(0), vec![], groups)).explain();
    assert!(explain.contains("folds 3 calls in 2 states over 1 value"), "{explain}");
    assert!(explain.contains("row by row: median"), "{explain}");
}

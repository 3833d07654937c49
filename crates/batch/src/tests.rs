//! Whole plans over stored tables.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::{
    common::{Column, DFSchema},
    logical_expr::{Expr, Extension, JoinType, LogicalPlan, LogicalPlanBuilder, col, lit},
};
use lockstep_diagnostic::code;
use lockstep_host::{CallStep, Clock, ManualClock, QueryContext, QueryLimits, SystemClock};
use lockstep_plan::{Frame, LastJoin, TimeBound, Window, WindowGroup};
use lockstep_row::{DataType, Datum, Value};
use proptest::{prelude::*, test_runner::Config};

use crate::{
    ExecuteOptions, ProgressListener, execute, explain,
    lower::lower,
    testing::{TestTables, rows_of, trace, window},
};

const COLUMNS: [(&str, DataType); 3] =
    [("k", DataType::Int), ("ts", DataType::BigInt), ("id", DataType::BigInt)];

fn row(key: i32, order: i64, id: i64) -> Vec<Datum<'static>> {
    vec![Datum::Int(key), Datum::BigInt(order), Datum::BigInt(id)]
}

fn unbounded(unions: Vec<usize>, argument: &str, output: &str) -> WindowGroup {
    WindowGroup {
        window: Window {
            partition_by: vec![col("t.k")],
            order_by: Some(col("t.ts")),
            frame: Frame::Rows { from: None, to: 0 },
            ahead: None,
            max_size: None,
            exclude_current_time: false,
            exclude_current_row: false,
            instance_not_in_window: false,
        },
        unions,
        calls: vec![trace(col(argument), output)],
    }
}

fn last_join(
    left: LogicalPlan,
    right: LogicalPlan,
    time_bound: Option<TimeBound>,
    filter: Option<Expr>,
) -> LogicalPlan {
    let fields = left.schema().iter().chain(right.schema().iter()).map(|(qualifier, field)| {
        let field = Field::new(field.name(), field.data_type().clone(), true);
        (qualifier.cloned(), Arc::new(field))
    });
    let schema =
        DFSchema::new_with_metadata(fields.collect(), std::collections::HashMap::new()).unwrap();
    let node = LastJoin {
        keys: vec![(col("t.k"), col("r.k"))],
        order_by: Some(col("r.ts")),
        time_bound,
        filter,
        left,
        right,
        schema: Arc::new(schema),
    };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

fn bigints(rows: &[Vec<Value>], column: usize) -> Vec<Option<i64>> {
    let value = |row: &Vec<Value>| row[column].as_scalar().and_then(|value| value.as_i64());
    rows.iter().map(value).collect()
}

#[test]
fn only_needed_columns_are_decoded() {
    let mut world = TestTables::default();
    let columns = [
        ("a", DataType::String),
        ("k", DataType::Int),
        ("b", DataType::String),
        ("ts", DataType::BigInt),
        ("id", DataType::BigInt),
    ];
    let text = |text: &'static str| Datum::String(text);
    let rows = [vec![text("x"), Datum::Int(1), text("y"), Datum::BigInt(5), Datum::BigInt(7)]];
    let scan = world.table("t", &columns, &rows);
    let plan = window(scan, vec![], vec![unbounded(vec![], "t.id", "w")]);
    let plan = LogicalPlanBuilder::from(plan).project(vec![col("w")]).unwrap().build().unwrap();
    assert_eq!(world.rows(&plan).unwrap(), [vec![Value::String("7 ".into())]]);
    let text = explain(&plan, &world, &ExecuteOptions::default()).unwrap();
    assert!(text.contains("projection=[k, ts, id]"), "{text}");
}

#[test]
fn a_union_all_keeps_the_order_of_its_inputs() {
    let mut world = TestTables::default();
    let first: Vec<_> = (0..20_000).map(|id| row(1, 5, id)).collect();
    let second: Vec<_> = (20_000..20_003).map(|id| row(1, 5, id)).collect();
    let first = world.table("t", &COLUMNS, &first);
    let second = world.table("s", &COLUMNS, &second);
    let both = LogicalPlanBuilder::from(first).union(second).unwrap().build().unwrap();
    let rows = world.rows(&both).unwrap();
    assert_eq!(bigints(&rows, 2), (0..20_003).map(Some).collect::<Vec<_>>());
    let limited = LogicalPlanBuilder::from(both).limit(19_999, Some(3)).unwrap().build().unwrap();
    let rows = world.rows(&limited).unwrap();
    assert_eq!(bigints(&rows, 2), [Some(19_999), Some(20_000), Some(20_001)]);
}

#[test]
fn a_filter_below_and_above_a_window_sees_its_own_rows() {
    let mut world = TestTables::default();
    let rows: Vec<_> = (0..6).map(|id| row(1, id, id)).collect();
    let scan = world.table("t", &COLUMNS, &rows);
    let even = LogicalPlanBuilder::from(scan).filter(col("t.id").gt(lit(1_i64))).unwrap();
    let plan = window(even.build().unwrap(), vec![], vec![unbounded(vec![], "t.id", "w")]);
    let plan = LogicalPlanBuilder::from(plan).filter(col("t.id").lt(lit(4_i64))).unwrap();
    let plan = plan.project(vec![col("w"), col("t.id")]).unwrap().build().unwrap();
    let texts: Vec<_> = world.rows(&plan).unwrap().into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(texts, [Value::String("2 ".into()), Value::String("2 3 ".into())]);
}

#[test]
fn a_chain_of_projections_has_boundaries() {
    let mut world = TestTables::default();
    let mut plan = world.table("t", &COLUMNS, &[row(1, 5, 7)]);
    plan = LogicalPlanBuilder::from(plan).project(vec![col("t.id")]).unwrap().build().unwrap();
    for level in 0..200 {
        let named = LogicalPlanBuilder::from(plan).alias(format!("c{level}")).unwrap();
        let next = (col("id") + lit(1_i64)).alias("id");
        plan = named.project(vec![next]).unwrap().build().unwrap();
    }
    assert_eq!(bigints(&world.rows(&plan).unwrap(), 0), [Some(207)]);
    let lowered = lower(plan).unwrap().display_indent().to_string();
    let between = lowered.split("Boundary").map(|part| part.matches("Int64(1)").count());
    assert_eq!(between.collect::<Vec<_>>(), [8, 32, 32, 32, 32, 32, 32]);
}

#[test]
fn a_self_join_decodes_its_table_once_and_works() {
    let mut world = TestTables::default();
    let scan = world.table("t", &COLUMNS, &[row(1, 5, 0), row(1, 6, 1), row(2, 6, 2)]);
    let right = LogicalPlanBuilder::from(scan.clone()).alias("r").unwrap().build().unwrap();
    let plan = last_join(scan, right, None, None);
    let rows = world.rows(&plan).unwrap();
    assert_eq!(bigints(&rows, 5), [Some(1), Some(1), Some(2)]);
}

/// Returns what LAST JOIN says: newest first by (order value, arrival), the first that fits.
fn naive_last_join(
    left: &[(i32, Option<i64>)],
    right: &[(i32, Option<i64>)],
    bound: Option<bool>,
    bound_id: Option<i64>,
) -> Vec<Option<i64>> {
    left.iter()
        .map(|(key, time)| {
            let mut newest: Vec<usize> =
                (0..right.len()).filter(|at| right[*at].0 == *key).collect();
            newest.sort_by_key(|at| std::cmp::Reverse((right[*at].1, *at)));
            let fits = |at: &usize| {
                let in_time = match (bound, right[*at].1, time) {
                    (None, ..) => true,
                    (Some(inclusive), Some(order), Some(time)) => {
                        order < *time || inclusive && order == *time
                    }
                    _ => false,
                };
                let id = i64::try_from(*at).unwrap();
                in_time && bound_id.is_none_or(|bound_id| id < bound_id)
            };
            newest.into_iter().find(fits).map(|at| i64::try_from(at).unwrap())
        })
        .collect()
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn last_join_finds_the_newest_row_that_fits(
        left in prop::collection::vec((0..3_i32, prop::option::weighted(0.9, 0..9_i64)), 0..20),
        right in prop::collection::vec((0..3_i32, prop::option::weighted(0.9, 0..9_i64)), 0..40),
        bound in prop::option::of(any::<bool>()),
        bound_id in prop::option::of(0..40_i64),
    ) {
        let mut world = TestTables::default();
        let store = |rows: &[(i32, Option<i64>)]| -> Vec<Vec<Datum<'static>>> {
            let order = |order: Option<i64>| order.map_or(Datum::Null, Datum::BigInt);
            let rows = rows.iter().zip(0..);
            rows.map(|((key, time), id)| vec![Datum::Int(*key), order(*time), Datum::BigInt(id)]).collect()
        };
        let t = world.table("t", &COLUMNS, &store(&left));
        let r = world.table("r", &COLUMNS, &store(&right));
        let time_bound = bound.map(|inclusive| TimeBound { left: col("t.ts"), inclusive });
        let filter = bound_id.map(|bound_id| col("r.id").lt(lit(bound_id)));
        let plan = last_join(t, r, time_bound, filter);
        let rows = world.rows(&plan).unwrap();
        prop_assert_eq!(bigints(&rows, 5), naive_last_join(&left, &right, bound, bound_id));
        let plan = LogicalPlanBuilder::from(plan).project(vec![col("r.id")]).unwrap().build().unwrap();
        prop_assert_eq!(bigints(&world.rows(&plan).unwrap(), 0), naive_last_join(&left, &right, bound, bound_id));
    }
}

/// The right rows of one key are read a part at a time where they do not fit.
#[test]
fn a_last_join_ends_whose_right_rows_of_one_key_do_not_fit() {
    let mut world = TestTables::default();
    const RIGHT: i64 = 60_000;
    let left: Vec<_> = (0..500).map(|id| row(1, (id * 7_919) % RIGHT, id)).collect();
    // In another order than that of their times, and each time twice.
    let order = |id: i64| (id * 31) % (RIGHT / 2) * 2;
    let right: Vec<_> = (0..RIGHT).map(|id| row(1, order(id), id)).collect();
    let t = world.table("t", &COLUMNS, &left);
    let r = world.table("r", &COLUMNS, &right);
    let time_bound = Some(TimeBound { left: col("t.ts"), inclusive: false });
    let plan = last_join(t, r, time_bound, None);
    let newest = |id: i64| {
        let time = (id * 7_919) % RIGHT;
        (0..RIGHT).filter(|id| order(*id) < time).max_by_key(|id| (order(*id), *id))
    };
    let expected: Vec<Option<i64>> = (0..500).map(newest).collect();
    for memory_bytes in [1_500_000, 3_000_000] {
        let memory_bytes = Some(memory_bytes);
        let options = ExecuteOptions { memory_bytes, ..ExecuteOptions::default() };
        let found = rows_of(&execute(&plan, &world, &options).unwrap());
        assert_eq!(bigints(&found, 5), expected);
    }
}

/// Cancels a query as soon as an operator reports anything.
struct Cancelling(QueryContext);

impl ProgressListener for Cancelling {
    fn report(&self, _: CallStep, _: u64, _: u64) {
        self.0.cancel();
    }
}

#[test]
fn a_query_ends_when_it_is_cancelled_or_short_of_memory() {
    let mut world = TestTables::default();
    let rows: Vec<_> = (0..1_000).map(|id| row(1, id, id)).collect();
    let scan = world.table("t", &COLUMNS, &rows);
    let plan = window(scan, vec![], vec![unbounded(vec![], "t.id", "w")]);
    let context = QueryContext::new();
    let progress = Some(Arc::new(Cancelling(context.clone())) as Arc<dyn ProgressListener>);
    let options = ExecuteOptions { progress, ..ExecuteOptions::default() };
    let outcome = context.run(|| execute(&plan, &world, &options));
    assert_eq!(outcome.unwrap_err().code, code::QUERY_CANCELED);
    let options = ExecuteOptions { memory_bytes: Some(1_000), ..ExecuteOptions::default() };
    assert_eq!(execute(&plan, &world, &options).unwrap_err().code, code::OUT_OF_MEMORY);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
    let limits = QueryLimits { memory_bytes: Some(1_000), timeout_ms: None };
    let limited = QueryContext::limited(&clock, limits);
    let outcome = limited.run(|| execute(&plan, &world, &ExecuteOptions::default()));
    assert_eq!(outcome.unwrap_err().code, code::OUT_OF_MEMORY);
}

/// The operators of DataFusion know nothing of a context: who waits for them does.
#[test]
fn a_join_of_datafusion_ends_when_its_time_is_over() {
    let mut world = TestTables::default();
    let rows: Vec<_> = (0..20_000).map(|id| row(1, id, id)).collect();
    let left = world.table("t", &COLUMNS, &rows);
    let right = world.table("r", &COLUMNS, &rows);
    let on = (vec![Column::from("t.k")], vec![Column::from("r.k")]);
    // 400 million pairs.
    let join = LogicalPlanBuilder::from(left.clone()).join(right, JoinType::Inner, on, None);
    let none = (col("t.id") + col("r.id")).lt(lit(0_i64));
    let plan = join.unwrap().filter(none).unwrap().build().unwrap();
    let threads = std::thread::available_parallelism().unwrap().get();
    // As many as there are threads, which have to be free afterwards.
    for _ in 0..threads {
        let context = QueryContext::polling(Arc::new(SystemClock::new()), 20, || true);
        let outcome = context.run(|| execute(&plan, &world, &ExecuteOptions::default()));
        assert_eq!(outcome.unwrap_err().code, code::QUERY_CANCELED);
    }
    assert_eq!(world.rows(&left).unwrap().len(), 20_000);
}

#[test]
fn many_threads_may_execute_at_once() {
    let mut world = TestTables::default();
    let scan = world.table("t", &COLUMNS, &[row(1, 5, 0), row(1, 6, 1)]);
    let plan = window(scan, vec![], vec![unbounded(vec![], "t.id", "w")]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(world.rows(&plan).unwrap().len(), 2));
        }
    });
}

/// Returns a table of rows with recurring keys, among them NULL, and its scan.
fn many_rows(world: &mut TestTables, count: i64) -> LogicalPlan {
    let rows = (0..count).map(|row| {
        let key = (row % 7 > 0).then(|| row * row % 5_003);
        vec![key.map_or(Datum::Null, Datum::BigInt), Datum::BigInt(row)]
    });
    let columns = [("k", DataType::BigInt), ("v", DataType::BigInt)];
    world.table("many", &columns, &rows.collect::<Vec<_>>())
}

#[test]
fn threads_share_a_scan_and_keep_the_order_of_the_rows() {
    let mut world = TestTables::default();
    let scan = many_rows(&mut world, 100_000);
    let rows = world.rows(&scan).unwrap();
    let numbers: Vec<_> = rows.iter().map(|row| row[1].clone()).collect();
    assert_eq!(numbers, (0..100_000).map(Value::BigInt).collect::<Vec<_>>());
}

#[test]
fn threads_share_groups_and_keep_the_order_of_the_first_rows() {
    let mut world = TestTables::default();
    let scan = many_rows(&mut world, 100_000);
    let sum = datafusion::functions_aggregate::sum::sum(col("many.v"));
    let groups = LogicalPlanBuilder::from(scan).aggregate([col("many.k")], [sum]).unwrap();
    let rows = world.rows(&groups.build().unwrap()).unwrap();
    let mut expected: Vec<(Value, i64)> = Vec::new();
    let mut found = std::collections::HashMap::new();
    for row in 0..100_000_i64 {
        let key = (row % 7 > 0).then(|| row * row % 5_003);
        let at = *found.entry(key).or_insert_with(|| {
            expected.push((key.map_or(Value::Null, Value::BigInt), 0));
            expected.len() - 1
        });
        expected[at].1 += row;
    }
    let expected: Vec<Vec<Value>> =
        expected.into_iter().map(|(key, sum)| vec![key, Value::BigInt(sum)]).collect();
    assert_eq!(rows, expected);
}

/// A node that two others read is computed once, by the first that wants its rows; its copies below a
/// filter are not, and it may be computed on disk.
#[test]
fn what_is_read_twice_is_computed_once() {
    let mut world = TestTables::default();
    let rows = (0..3_000).map(|id| row(id % 1_000, 0, i64::from(id))).collect::<Vec<_>>();
    let scan = world.table("t", &COLUMNS, &rows);
    let keys = LogicalPlanBuilder::from(scan).project(vec![col("t.k")]).unwrap();
    let keys = keys.distinct().unwrap().project(vec![col("t.k")]).unwrap().build().unwrap();
    let copy = |name: &str| LogicalPlanBuilder::from(keys.clone()).alias(name).unwrap();
    let joined = |left: LogicalPlanBuilder| {
        let on =
            (vec![Column::from_qualified_name("a.k")], vec![Column::from_qualified_name("b.k")]);
        let joined = left.join(copy("b").build().unwrap(), JoinType::Inner, on, None).unwrap();
        joined.project(vec![col("a.k"), col("b.k")]).unwrap().build().unwrap()
    };
    let twice = joined(copy("a"));
    let text = explain(&twice, &world, &ExecuteOptions::default()).unwrap();
    assert_eq!(text.matches("SharedExec").count(), 2, "{text}");
    assert_eq!(text.matches("Aggregate:").count(), 1, "{text}");
    assert_eq!(world.rows(&twice).unwrap().len(), 1_000);
    let on_disk = ExecuteOptions { on_disk: true, ..ExecuteOptions::default() };
    let found = rows_of(&execute(&twice, &world, &on_disk).unwrap());
    assert_eq!(found.len(), 1_000);
    let filtered = joined(copy("a").filter(col("a.k").lt(lit(2))).unwrap());
    let text = explain(&filtered, &world, &ExecuteOptions::default()).unwrap();
    assert_eq!(text.matches("SharedExec").count(), 0, "{text}");
    assert_eq!(world.rows(&filtered).unwrap().len(), 2);
}

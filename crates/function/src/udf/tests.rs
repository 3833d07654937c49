//! Claims about our functions inside DataFusion.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch},
    datatypes::{Float64Type, Int64Type},
};
use datafusion::{
    logical_expr::{Expr, ScalarUDF, col, lit},
    prelude::{SessionConfig, SessionContext},
};
use lockstep_row::{DataType, Datum, Value};

use super::{ScalarUdf, aggregate_call, as_scalar, scalar_call};
use crate::{CallArguments, NullHandling, ScalarImplementation, Settings, aggregate};

fn twice(nulls: NullHandling) -> ScalarImplementation {
    ScalarImplementation {
        parameters: vec![DataType::BigInt],
        returns: DataType::BigInt,
        nulls,
        row: Arc::new(|values, _arena| match values[0] {
            Datum::BigInt(value) => Datum::BigInt(value * 2),
            _ => Datum::BigInt(-1),
        }),
    }
}

fn seven() -> ScalarImplementation {
    ScalarImplementation {
        parameters: Vec::new(),
        returns: DataType::BigInt,
        nulls: NullHandling::Propagate,
        row: Arc::new(|_values, _arena| Datum::BigInt(7)),
    }
}

fn call(implementation: ScalarImplementation, arguments: Vec<Expr>) -> Expr {
    let constants = vec![None; arguments.len()];
    scalar_call("f", implementation, &constants, &Settings::default(), arguments)
}

fn context(partitions: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions))
}

fn rows() -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter((0..3000).map(|row| Some(row % 3))));
    let values: ArrayRef = Arc::new(Int64Array::from_iter(
        (0..3000).map(|row| if row % 5 == 0 { None } else { Some(row) }),
    ));
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..3000).map(|row| if row < 3 { 1e100 } else { 0.1 }),
    ));
    RecordBatch::try_from_iter([("k", keys), ("x", values), ("f", floats)]).unwrap()
}

async fn column(context: SessionContext, expr: Expr) -> Vec<Option<i64>> {
    let frame = context.read_batch(rows()).unwrap().select(vec![expr.alias("y")]).unwrap();
    let batches = frame.collect().await.unwrap();
    let values = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>());
    values.collect()
}

#[tokio::test]
async fn nulls_pass_or_propagate_over_columns_and_constants() {
    let propagated = column(context(1), call(twice(NullHandling::Propagate), vec![col("x")])).await;
    assert_eq!(propagated[..3], [None, Some(2), Some(4)]);
    assert_eq!(propagated.len(), 3000);
    let passed = column(context(1), call(twice(NullHandling::Passed), vec![col("x")])).await;
    assert_eq!(passed[..3], [Some(-1), Some(2), Some(4)]);
    let constant = column(context(1), call(twice(NullHandling::Passed), vec![lit(4_i64)])).await;
    assert_eq!(constant, vec![Some(8); 3000]);
    let none = column(context(1), call(seven(), Vec::new())).await;
    assert_eq!(none, vec![Some(7); 3000]);
}

#[test]
fn identity_is_name_types_constants_and_settings() {
    let settings = Settings::default();
    let udf = |constants: &[Option<Value>]| {
        ScalarUdf::new("f", twice(NullHandling::Passed), constants, &settings)
    };
    assert_eq!(udf(&[None]), udf(&[None]));
    assert_ne!(udf(&[None]), udf(&[Some(Value::Null)]));
    assert_ne!(udf(&[Some(Value::Double(0.0))]), udf(&[Some(Value::Double(-0.0))]));
    let other = Settings { compatibility: crate::Compatibility::OpenMldb, ..settings };
    assert_ne!(udf(&[None]), ScalarUdf::new("f", twice(NullHandling::Passed), &[None], &other));
    let wrapped = ScalarUDF::new_from_impl(udf(&[None]));
    assert!(as_scalar(&wrapped).is_some_and(|found| *found == udf(&[None])));
}

fn aggregate(name: &str, types: &[DataType], arguments: Vec<Expr>) -> Expr {
    let function = aggregate::find(name).unwrap();
    let settings = Settings::default();
    let constants = vec![None; types.len()];
    let bound =
        (function.bind)(&CallArguments { types, constants: &constants, settings: &settings })
            .unwrap();
    aggregate_call(function, bound, &constants, &settings, arguments).alias(name)
}

async fn check_group_by(partitions: usize) {
    let calls = vec![
        aggregate("count", &[], Vec::new()),
        aggregate("sum", &[DataType::BigInt], vec![col("x")]),
        aggregate("avg", &[DataType::Double], vec![col("f")]),
    ];
    let batches: Vec<RecordBatch> = (0..6).map(|part| rows().slice(part * 500, 500)).collect();
    let context = context(partitions);
    let table = datafusion::datasource::MemTable::try_new(
        batches[0].schema(),
        batches.into_iter().map(|batch| vec![batch]).collect(),
    );
    let frame = context.read_table(Arc::new(table.unwrap())).unwrap();
    let frame = frame.aggregate(vec![col("k")], calls).unwrap();
    let frame = frame.sort(vec![col("k").sort(true, true)]).unwrap();
    let batches = frame.collect().await.unwrap();
    let batch = arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
    let counts: Vec<i64> = batch.column(1).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(counts, [1000, 1000, 1000]);
    let sum = |key: i64| (0..3000).filter(|row| row % 3 == key && row % 5 != 0).sum::<i64>();
    let sums: Vec<i64> = batch.column(2).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(sums, [sum(0), sum(1), sum(2)]);
    let averages = batch.column(3).as_primitive::<Float64Type>();
    assert_eq!(averages.values(), &[1e97; 3]);
}

#[tokio::test]
async fn groups_are_the_same_in_one_phase_and_in_two() {
    check_group_by(1).await;
    check_group_by(4).await;
}

#[tokio::test]
async fn an_aggregate_without_groups_over_no_rows_has_its_empty_value() {
    let calls = vec![
        aggregate("count", &[], Vec::new()),
        aggregate("sum", &[DataType::BigInt], vec![col("x")]),
    ];
    let frame = context(2).read_batch(rows().slice(0, 0)).unwrap();
    let batches = frame.aggregate(Vec::new(), calls).unwrap().collect().await.unwrap();
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 0);
    assert_eq!(batches[0].column(1).null_count(), 1);
}

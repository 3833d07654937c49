//! Sources against the rows that were written: pruning leaves out only what no filter passes.

use std::{path::Path, sync::Arc};

use arrow::{
    array::{
        ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    },
    datatypes::SchemaRef,
};
use datafusion::{
    common::{DFSchema, ScalarValue},
    execution::context::ExecutionProps,
    logical_expr::{Expr, col, lit, physical_planning_context::PhysicalPlanningContext},
    physical_expr::{PhysicalExpr, create_physical_expr},
};
use lockstep_diagnostic::code;
use lockstep_function::Settings;
use lockstep_row::{DataType, Value};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use proptest::prelude::*;

use super::{ExternalRows, FileSourceOptions, SourceScan};
use crate::{
    load::{FileFormat, LoadOptions, UnknownColumns},
    testing::{TestDirectory, rows_of},
};

/// The rows of a row group of the written files.
const GROUP_ROWS: usize = 4;

fn options(format: FileFormat) -> FileSourceOptions {
    let unknown_columns = UnknownColumns::Ignore;
    let load = LoadOptions { format, unknown_columns, ..LoadOptions::default() };
    FileSourceOptions { load, union_by_name: false }
}

fn write_parquet(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP_ROWS));
    let file = lockstep_host::disk::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn open(path: &Path, format: FileFormat) -> Arc<ExternalRows> {
    let paths = [path.to_string_lossy().into_owned()];
    let opened = ExternalRows::of_files(&paths, options(format), Settings::default());
    Arc::new(opened.unwrap().0)
}

fn physical(filter: &Expr, schema: &SchemaRef) -> Arc<dyn PhysicalExpr> {
    let schema = DFSchema::try_from(Arc::clone(schema)).unwrap();
    let context = PhysicalPlanningContext::default();
    create_physical_expr(filter, &schema, &ExecutionProps::new(), &context).unwrap()
}

/// Reads all columns, left out by a filter or not.
fn read(source: &Arc<ExternalRows>, filter: Option<&Expr>) -> Vec<RecordBatch> {
    let filter = filter.map(|filter| physical(filter, source.arrow_schema()));
    let columns = (0..source.schema().columns.len()).collect();
    let scan = SourceScan { columns, filter, limit: None };
    source.open(&scan).unwrap().map(Result::unwrap).collect()
}

/// Returns the rows that pass a filter.
fn passing(batches: &[RecordBatch], filter: &Expr) -> Vec<Vec<Value>> {
    let pass = |batch: &RecordBatch| {
        let verdict = physical(filter, &batch.schema()).evaluate(batch).unwrap();
        let verdict = verdict.into_array(batch.num_rows()).unwrap();
        let verdict = arrow::array::AsArray::as_boolean(&verdict).clone();
        arrow::compute::filter_record_batch(batch, &verdict).unwrap()
    };
    rows_of(&batches.iter().map(pass).collect::<Vec<_>>())
}

type Drawn = (Option<i32>, Option<f64>, Option<String>, Option<i64>);

fn batch_of(rows: &[Drawn]) -> RecordBatch {
    let column = |array: ArrayRef| array;
    let numbers = column(Arc::new(rows.iter().map(|row| row.0).collect::<Int32Array>()));
    let floats = column(Arc::new(rows.iter().map(|row| row.1).collect::<Float64Array>()));
    let texts = column(Arc::new(rows.iter().map(|row| row.2.clone()).collect::<StringArray>()));
    let times = rows.iter().map(|row| row.3).collect::<TimestampMicrosecondArray>();
    let times = column(Arc::new(times));
    RecordBatch::try_from_iter_with_nullable([
        ("i", numbers, true),
        ("f", floats, true),
        ("s", texts, true),
        ("t", times, true),
    ])
    .unwrap()
}

fn row() -> impl Strategy<Value = Drawn> {
    let float = prop_oneof![-3.0..3.0, Just(f64::NAN), Just(-0.0), Just(f64::INFINITY)];
    (
        prop::option::weighted(0.8, -5..5_i32),
        prop::option::weighted(0.8, float),
        prop::option::weighted(0.8, "[a-c]{0,2}"),
        prop::option::weighted(0.8, -5_000..5_000_i64),
    )
}

fn comparison() -> impl Strategy<Value = Expr> {
    let time = |ms: i64| lit(ScalarValue::TimestampMillisecond(Some(ms), None));
    let side = prop_oneof![
        (-5..5_i32).prop_map(|value| (col("i"), lit(value))),
        (-3.0..3.0).prop_map(|value| (col("f"), lit(value))),
        "[a-c]{0,2}".prop_map(|value| (col("s"), lit(value))),
        (-5..5_i64).prop_map(move |value| (col("t"), time(value))),
    ];
    (side, 0..7).prop_map(|((column, value), operator)| match operator {
        0 => column.eq(value),
        1 => column.not_eq(value),
        2 => column.lt(value),
        3 => column.lt_eq(value),
        4 => column.gt(value),
        5 => column.gt_eq(value),
        _ => column.is_null(),
    })
}

fn condition() -> impl Strategy<Value = Expr> {
    (comparison(), comparison(), 0..3).prop_map(|(left, right, how)| match how {
        0 => left,
        1 => left.and(right),
        _ => left.or(right),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn pruning_loses_no_row_that_passes(
        rows in prop::collection::vec(row(), 1..30),
        filter in condition(),
    ) {
        let directory = TestDirectory::new();
        let path = directory.path().join("rows.parquet");
        write_parquet(&path, &batch_of(&rows));
        let source = open(&path, FileFormat::Parquet);
        let all = read(&source, None);
        prop_assert_eq!(all.iter().map(RecordBatch::num_rows).sum::<usize>(), rows.len());
        let pruned = read(&source, Some(&filter));
        let (expected, found) = (passing(&all, &filter), passing(&pruned, &filter));
        prop_assert_eq!(format!("{expected:?}"), format!("{found:?}"));
    }
}

#[test]
fn row_groups_without_a_wanted_row_are_not_read() {
    let directory = TestDirectory::new();
    let path = directory.path().join("rows.parquet");
    let rows: Vec<Drawn> = (0..40).map(|at| (Some(at), None, Some("x".to_owned()), None)).collect();
    write_parquet(&path, &batch_of(&rows));
    let source = open(&path, FileFormat::Parquet);
    let count = |filter: &Expr| {
        read(&source, Some(filter)).iter().map(RecordBatch::num_rows).sum::<usize>()
    };
    assert_eq!(count(&col("i").gt_eq(lit(37))), GROUP_ROWS);
    assert_eq!(count(&col("i").gt(lit(100))), 0);
    assert_eq!(count(&col("f").gt(lit(1.0))), 0, "a column of NULL passes nothing");
    assert_eq!(count(&col("s").eq(lit("y"))), 0);
}

#[test]
fn folders_give_columns_and_leave_files_out() {
    let directory = TestDirectory::new();
    for (day, text) in [("1", "a\n1\n"), ("2", "a\n2\n"), ("__HIVE_DEFAULT_PARTITION__", "a\n3\n")]
    {
        std::fs::create_dir_all(directory.path().join(format!("day={day}"))).unwrap();
        directory.write(&format!("day={day}/x.csv"), text);
    }
    // A file that is left out is not opened, so that it may be anything.
    let source = open(directory.path(), FileFormat::Csv);
    assert_eq!(source.schema().columns[1].data_type, DataType::BigInt);
    directory.write("day=1/x.csv", "b\n1\n");
    let filter = col("day").eq(lit(2_i64));
    let found = passing(&read(&source, Some(&filter)), &filter);
    assert_eq!(found, [[Value::BigInt(2), Value::BigInt(2)]]);
    let columns = vec![0, 1];
    let scan = SourceScan { columns, filter: None, limit: None };
    let error = source.open(&scan).unwrap().find_map(Result::err).unwrap();
    let error = crate::error::from_datafusion(&error);
    assert_eq!(error.code, code::NOT_NULL_VIOLATION);
    assert!(error.message.contains("day=1"), "{}", error.message);
}

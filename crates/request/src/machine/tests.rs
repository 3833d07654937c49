//! Compares machine code with interpreted expressions, bit for bit: random expressions, random rows.

use std::{cmp::Ordering, sync::Arc};

use arrow::array::RecordBatch;
use datafusion::{
    common::{DFSchema, ScalarValue},
    logical_expr::{Expr, ExprSchemable, Operator, binary_expr, col, lit, when},
    prelude::SessionContext,
};
use lockstep_function::{CallArguments, RowExpr, Settings, cast, scalar, udf::scalar_call};
use lockstep_host::ManualClock;
use lockstep_row::{
    Arena, Column, DataType, Datum, IncludedColumn, IndexSpec, Retention, RowCodec, TableSchema,
    Value,
    arrow::{ColumnBuilder, ColumnReader, arrow_schema, data_type},
    key::encode_key,
};
use lockstep_table::{Inclusion, Table};
use proptest::prelude::*;

use super::{
    LaneProgram, LaneProgramSpec, LaneSource, MachineCell, MachineKind, RowProgram, lower,
};

const TYPES: [DataType; 8] = [
    DataType::Bool,
    DataType::SmallInt,
    DataType::Int,
    DataType::BigInt,
    DataType::Float,
    DataType::Double,
    DataType::Timestamp,
    DataType::Date,
];

const FUNCTIONS: [(&str, usize); 20] = [
    ("op_add", 2),
    ("op_subtract", 2),
    ("op_multiply", 2),
    ("op_divide", 2),
    ("op_int_divide", 2),
    ("op_modulo", 2),
    ("op_eq", 2),
    ("op_ne", 2),
    ("op_lt", 2),
    ("op_le", 2),
    ("op_gt", 2),
    ("op_ge", 2),
    ("op_negate", 1),
    ("is_null", 1),
    ("coalesce", 3),
    ("if_null", 2),
    ("if", 3),
    ("nvl2", 3),
    ("to_bool", 1),
    ("op_plus", 1),
];

fn schema() -> TableSchema {
    let columns = TYPES.iter().enumerate();
    let columns = columns.map(|(at, data_type)| Column::new(format!("c{at}"), data_type.clone()));
    TableSchema { columns: columns.collect(), indexes: Vec::new() }
}

fn df_schema() -> DFSchema {
    DFSchema::try_from(arrow_schema(&schema()).as_ref().clone()).unwrap()
}

fn type_of(expr: &Expr) -> DataType {
    data_type(&expr.get_type(&df_schema()).unwrap()).unwrap()
}

/// Makes a call as the binder does, when the types fit.
fn call(name: &str, arguments: Vec<Expr>) -> Option<Expr> {
    let settings = Settings::default();
    let types: Vec<DataType> = arguments.iter().map(type_of).collect();
    let constants = vec![None; types.len()];
    let bound_arguments =
        CallArguments { types: &types, constants: &constants, settings: &settings };
    let form = (scalar::find(name)?.resolve)(&bound_arguments).ok()?;
    let cast_to = |(argument, to): (Expr, &DataType)| convert(argument, to);
    let arguments = arguments.into_iter().zip(&form.parameters).map(cast_to);
    let arguments = arguments.collect::<Option<Vec<_>>>()?;
    Some(scalar_call(name, form.clone(), &constants, &settings, arguments))
}

fn convert(argument: Expr, to: &DataType) -> Option<Expr> {
    let from = type_of(&argument);
    if from == *to {
        return Some(argument);
    }
    let settings = Settings::default();
    let form = cast::implementation(&from, to, &settings)?;
    let name = format!("cast_{}", to.to_string().to_lowercase());
    Some(scalar_call(&name, form, &[None], &settings, vec![argument]))
}

/// Makes an expression from choices, which it consumes.
fn expression(choices: &mut std::vec::IntoIter<u8>, depth: usize) -> Expr {
    let choice = usize::from(choices.next().unwrap_or(0));
    let column = || col(format!("c{}", choice % TYPES.len()));
    if depth == 0 {
        return match choice % 12 {
            0 => Expr::Literal(ScalarValue::Int32(Some(7)), None),
            1 => Expr::Literal(ScalarValue::Float64(Some(-0.5)), None),
            2 => Expr::Literal(ScalarValue::Int64(None), None),
            _ => column(),
        };
    }
    let mut next = || expression(choices, depth - 1);
    match choice % 28 {
        at @ 0..20 => {
            let (name, count) = FUNCTIONS[at];
            let arguments: Vec<Expr> = (0..count).map(|_| next()).collect();
            call(name, arguments).unwrap_or_else(column)
        }
        at @ 20..22 => match (call("to_bool", vec![next()]), call("to_bool", vec![next()])) {
            (Some(left), Some(right)) => {
                binary_expr(left, [Operator::And, Operator::Or][at - 20], right)
            }
            _ => column(),
        },
        22 => next().is_null(),
        23 => call("to_bool", vec![next()]).map_or_else(column, |truth| !truth),
        24 => {
            let (condition, then, otherwise) = (next(), next(), next());
            let otherwise = convert(otherwise, &type_of(&then));
            match (call("to_bool", vec![condition]), otherwise) {
                (Some(condition), Some(otherwise)) => {
                    when(condition, then).otherwise(otherwise).unwrap()
                }
                _ => column(),
            }
        }
        at => {
            let to = [DataType::Int, DataType::BigInt, DataType::Double][at % 3].clone();
            convert(next(), &to).unwrap_or_else(column)
        }
    }
}

fn value(data_type: &DataType, choice: u8) -> Value {
    let at = usize::from(choice % 8);
    if at == 0 {
        return Value::Null;
    }
    let integer = [0, 1, -1, 3, i64::MAX, i64::MIN, 40_000][at - 1];
    let float = [0.0, -0.0, 1.5, f64::NAN, f64::INFINITY, 1e300, -7.25][at - 1];
    #[expect(clippy::cast_possible_truncation, reason = "any value will do")]
    match data_type {
        DataType::Bool => Value::Bool(at > 3),
        DataType::SmallInt => Value::SmallInt(integer as i16),
        DataType::Int => Value::Int(integer as i32),
        DataType::Float => Value::Float(float as f32),
        DataType::Double => Value::Double(float),
        DataType::Timestamp => Value::Timestamp(integer),
        DataType::Date => Value::Date(integer as i32),
        _ => Value::BigInt(integer),
    }
}

fn row(choices: &[u8]) -> Vec<Value> {
    let at = |at: usize| choices[at % choices.len()];
    TYPES.iter().enumerate().map(|(column, data_type)| value(data_type, at(column))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn machine_code_agrees_with_the_interpreter(
        choices in proptest::collection::vec(any::<u8>(), 40..80),
        cells in proptest::collection::vec(any::<u8>(), 8..16),
    ) {
        let expr = expression(&mut choices.into_iter(), 3);
        let schema = df_schema();
        let Some(lowered) = lower(&expr, &schema) else { return Ok(()) };
        let values = row(&cells);
        let datums: Vec<Datum<'_>> = values.iter().map(|value| value.as_scalar().unwrap()).collect();
        let arena = Arena::new();
        let interpreted = RowExpr::compile(&expr, &schema).unwrap();
        let expected = interpreted.eval(&&datums[..], &arena);

        let program = RowProgram::compile(vec![lowered.clone()]).unwrap();
        let inputs: Vec<MachineCell> =
            program.columns.iter().map(|(column, _)| MachineCell::new(datums[*column])).collect();
        let mut outputs = [MachineCell::default()];
        program.run(&inputs, &mut outputs);
        let found = outputs[0].datum(program.outputs[0]);
        prop_assert!(found.is_bit_equal(&expected), "{expr}: {found:?}, expected {expected:?}");

        let codec = RowCodec::new(&self::schema());
        let mut bytes = Vec::new();
        codec.encode(&datums, &mut bytes).unwrap();
        let columns = program.columns.iter();
        let columns = columns.map(|(column, _)| (*column, codec.fixed_column(*column).unwrap()));
        let kind = lowered.kind();
        let spec = LaneProgramSpec {
            value: Some(lowered),
            condition: None,
            skips_zeros: false,
            keeps_values: true,
            columns: columns.collect(),
            source: LaneSource::Rows,
        };
        let check = |count: usize, out: [u64; 2]| {
            prop_assert_eq!(count, if expected.is_null() { 0 } else { 2 });
            let is_float = matches!(kind, MachineKind::Float | MachineKind::Double);
            if let (2, Some(float), true) = (count, expected.as_f64(), is_float) {
                prop_assert_eq!(out[1], float.to_bits());
            } else if let (2, Some(integer)) = (count, expected.as_i64()) {
                prop_assert_eq!(out[1], integer.cast_unsigned());
            }
            Ok(())
        };
        let lane = LaneProgram::compile(spec.clone()).unwrap();
        let mut out = [0_u64; 2];
        // SAFETY: both rows were encoded by a codec of the schema, and there is space for two.
        let count = unsafe { lane.run(&[bytes.as_ptr(), bytes.as_ptr()], out.as_mut_ptr()) };
        check(count, out)?;

        let table = twice_with_records(&datums);
        let snapshot = table.snapshot();
        let projection = snapshot.projection(0).unwrap();
        let columns = spec.columns.iter();
        let columns = columns.map(|(column, _)| (*column, projection.fixed_column(*column).unwrap()));
        let spec = LaneProgramSpec { columns: columns.collect(), source: LaneSource::Records, ..spec };
        let lane = LaneProgram::compile(spec).unwrap();
        let mut key = Vec::new();
        encode_key([datums[0]], &mut key);
        let records = snapshot.rows(0, &key).next_run().unwrap().unwrap().records().unwrap();
        let mut out = [0_u64; 2];
        // SAFETY: there is space for two.
        let count = unsafe { lane.run_records(records, out.as_mut_ptr()) };
        check(count, out)?;
    }
}

/// The order of two floats, case by case.
fn expected_order(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if left < right => Ordering::Less,
        (false, false) if left > right => Ordering::Greater,
        (false, false) => Ordering::Equal,
    }
}

/// An operator, and whether it is true for an order.
type Comparison = (&'static str, fn(Ordering) -> bool);

/// The comparison operators, each with the orders for which it is true.
const COMPARISONS: [Comparison; 6] = [
    ("op_eq", Ordering::is_eq),
    ("op_ne", Ordering::is_ne),
    ("op_lt", Ordering::is_lt),
    ("op_le", Ordering::is_le),
    ("op_gt", Ordering::is_gt),
    ("op_ge", Ordering::is_ge),
];

/// Columns and constants of floats, integers among them, that a comparison may have as its sides.
fn float_sides() -> Vec<Expr> {
    let floats = [f64::NAN, f64::INFINITY, 0.0, -0.0, 1.5];
    let constants = floats.map(|value| Expr::Literal(ScalarValue::Float64(Some(value)), None));
    let narrow = Expr::Literal(ScalarValue::Float32(Some(f32::NAN)), None);
    let columns = ["f", "x", "y", "i"].map(col);
    columns.into_iter().chain(constants).chain([narrow]).collect()
}

/// A row of the columns of [`float_sides`].
fn float_rows() -> Vec<[Value; 4]> {
    const FLOATS: [f64; 8] =
        [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -7.25];
    let pairs = FLOATS.iter().flat_map(|x| FLOATS.iter().map(move |y| (*x, *y)));
    #[expect(clippy::cast_possible_truncation, reason = "the values are FLOATs, too")]
    let rows = pairs.enumerate().map(|(at, (x, y))| {
        let integer = i32::try_from(at % 3).unwrap() - 1;
        [Value::Float(y as f32), Value::Double(x), Value::Double(y), Value::Int(integer)]
    });
    rows.collect()
}

/// The interpreter, a batch and machine code compare floats in one order, as it is written down here.
#[test]
fn floats_have_one_order_in_every_form() {
    let types = [DataType::Float, DataType::Double, DataType::Double, DataType::Int];
    let columns = ["f", "x", "y", "i"].into_iter().zip(types.clone());
    let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).collect();
    let arrow = arrow_schema(&TableSchema { columns, indexes: Vec::new() });
    let schema = DFSchema::try_from(arrow.as_ref().clone()).unwrap();
    let rows = float_rows();
    let arrays = types.iter().enumerate().map(|(at, data_type)| {
        let mut builder = ColumnBuilder::new(data_type, rows.len());
        rows.iter().for_each(|row| builder.push(row[at].as_scalar().unwrap()));
        builder.finish()
    });
    let batch = RecordBatch::try_new(Arc::clone(&arrow), arrays.collect()).unwrap();
    let settings = Settings::default();
    let context = SessionContext::new();
    let (sides, arena) = (float_sides(), Arena::new());
    let mut compared = 0;
    for (left, right) in sides.iter().flat_map(|l| sides.iter().map(move |r| (l, r))) {
        for (name, holds) in COMPARISONS {
            let of = |side: &Expr| data_type(&side.get_type(&schema).unwrap()).unwrap();
            let types = [of(left), of(right)];
            let with =
                CallArguments { types: &types, constants: &[None, None], settings: &settings };
            let form = (scalar::find(name).unwrap().resolve)(&with).unwrap();
            let arguments = vec![left.clone(), right.clone()];
            let expr = scalar_call(name, form, &[None, None], &settings, arguments);
            let value = |side: &Expr, row: &[Value; 4]| match side {
                Expr::Literal(ScalarValue::Float64(value), _) => value.unwrap(),
                Expr::Literal(_, _) => f64::NAN,
                column => {
                    let at = schema.index_of_column(column.try_as_col().unwrap()).unwrap();
                    row[at].as_scalar().unwrap().as_f64().unwrap()
                }
            };
            let physical = context.create_physical_expr(expr.clone(), &schema).unwrap();
            let array = physical.evaluate(&batch).unwrap().into_array(rows.len()).unwrap();
            let reader = ColumnReader::new(array.as_ref());
            let interpreted = RowExpr::compile(&expr, &schema).unwrap();
            let program = RowProgram::compile(vec![lower(&expr, &schema).unwrap()]).unwrap();
            for (at, row) in rows.iter().enumerate() {
                let expected =
                    Datum::Bool(holds(expected_order(value(left, row), value(right, row))));
                let datums = row.each_ref().map(|value| value.as_scalar().unwrap());
                let inputs = program.columns.iter().map(|(at, _)| MachineCell::new(datums[*at]));
                let mut outputs = [MachineCell::default()];
                program.run(&inputs.collect::<Vec<_>>(), &mut outputs);
                let found = [
                    interpreted.eval(&&datums[..], &arena),
                    reader.get(at, &arena),
                    outputs[0].datum(program.outputs[0]),
                ];
                assert_eq!(found, [expected; 3], "{expr} of {row:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

/// Makes a table with a row stored twice, in an index on its first column that includes all columns.
fn twice_with_records(row: &[Datum<'_>]) -> Table {
    let index = IndexSpec {
        name: "i".to_owned(),
        keys: vec![0],
        event_time: None,
        retention: Retention::Forever,
        declared: true,
    };
    let schema = TableSchema { indexes: vec![index], ..schema() };
    let table = Table::new(schema, Arc::new(ManualClock::new(0)), Arc::default()).unwrap();
    let all = (0..TYPES.len()).map(|column| IncludedColumn { column, values: true });
    assert_eq!(table.include(0, &all.collect::<Vec<_>>()), Inclusion::Included);
    table.append([row, row]).unwrap();
    table
}

/// Each level is lowered once: twice would be 2^64 times.
#[test]
fn a_deeply_nested_case_is_lowered() {
    let nest = |inner: Expr, _| when(col("c0"), inner).end().unwrap();
    let expr = (0..64).fold(lit(1_i64), nest);
    let lowered = lower(&expr, &df_schema()).unwrap();
    assert_eq!(lowered.kind(), MachineKind::BigInt);
    assert!(RowProgram::compile(vec![lowered]).is_some());
}

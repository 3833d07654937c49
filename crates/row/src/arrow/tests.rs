//! Claims about the images of types and values.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, Date64Array, DictionaryArray, Float16Array, Float64Array, Int8Array,
        Int64Array, ListArray, StringArray, StringViewArray, TimestampMicrosecondArray,
        TimestampNanosecondArray, UInt64Array,
    },
    buffer::{OffsetBuffer, ScalarBuffer},
    datatypes::Field,
};

use super::{
    ColumnBuilder, ColumnReader, ImportError, arrow_schema, arrow_type, data_type, import_array,
    importable,
};
use crate::{Arena, Column, DataType, Datum, TableSchema, Value};

fn types() -> Vec<DataType> {
    let scalars = [
        DataType::Null,
        DataType::Bool,
        DataType::SmallInt,
        DataType::Int,
        DataType::BigInt,
        DataType::Float,
        DataType::Double,
        DataType::String,
        DataType::Timestamp,
        DataType::Date,
    ];
    let mut types = scalars.to_vec();
    types.push(DataType::Array(Box::new(DataType::Array(Box::new(DataType::String)))));
    types.push(DataType::Map(Box::new(DataType::String), Box::new(DataType::Double)));
    types
}

fn check_round_trip(data_type: &DataType, values: &[Value]) {
    let arena = Arena::new();
    let mut builder = ColumnBuilder::new(data_type, values.len());
    values.iter().for_each(|value| builder.push(value.as_datum(&arena)));
    let array = builder.finish();
    assert_eq!(array.data_type(), &arrow_type(data_type));
    let reader = ColumnReader::new(array.as_ref());
    assert_eq!(reader.len(), values.len());
    for (row, value) in values.iter().enumerate() {
        assert_eq!(reader.get(row, &arena).to_value(), *value);
    }
    let sliced = array.slice(1, values.len() - 1);
    assert_eq!(ColumnReader::new(sliced.as_ref()).get(0, &arena).to_value(), values[1]);
}

#[test]
fn every_type_comes_back_from_its_image() {
    for each in types() {
        assert_eq!(data_type(&arrow_type(&each)), Some(each));
    }
}

#[test]
fn values_come_back_from_columns() {
    let text = |text: &str| Value::String(text.into());
    check_round_trip(&DataType::Null, &[Value::Null, Value::Null]);
    check_round_trip(&DataType::Bool, &[Value::Bool(true), Value::Null, Value::Bool(false)]);
    check_round_trip(&DataType::SmallInt, &[Value::Null, Value::SmallInt(-3)]);
    check_round_trip(&DataType::Int, &[Value::Int(i32::MIN), Value::Null]);
    check_round_trip(&DataType::BigInt, &[Value::BigInt(i64::MAX), Value::Null]);
    check_round_trip(&DataType::Float, &[Value::Float(-0.0), Value::Null]);
    check_round_trip(&DataType::Double, &[Value::Null, Value::Double(f64::INFINITY)]);
    check_round_trip(&DataType::String, &[text(""), Value::Null, text("žluť")]);
    check_round_trip(&DataType::Timestamp, &[Value::Timestamp(-1), Value::Null]);
    check_round_trip(&DataType::Date, &[Value::Date(18_000), Value::Null]);
}

#[test]
fn lists_and_maps_come_back_from_columns() {
    let text = |text: &str| Value::String(text.into());
    let list = DataType::Array(Box::new(DataType::String));
    let rows = [
        Value::Array(vec![text("a"), Value::Null]),
        Value::Null,
        Value::Array(Vec::new()),
        Value::Array(vec![text("b")]),
    ];
    check_round_trip(&list, &rows);
    check_round_trip(
        &DataType::Array(Box::new(list)),
        &[Value::Array(vec![Value::Null, Value::Array(vec![text("x")])]), Value::Null],
    );
    let map = DataType::Map(Box::new(DataType::Int), Box::new(DataType::String));
    let rows = [
        Value::Map(vec![(Value::Int(1), text("a")), (Value::Int(2), Value::Null)]),
        Value::Null,
        Value::Map(Vec::new()),
        Value::Map(vec![(Value::Int(3), text("c"))]),
    ];
    check_round_trip(&map, &rows);
}

#[test]
fn a_schema_keeps_names_and_nullability() {
    let mut key = Column::new("k", DataType::String);
    key.nullable = false;
    let schema = TableSchema {
        columns: vec![key, Column::new("t", DataType::Timestamp)],
        indexes: Vec::new(),
    };
    let arrow = arrow_schema(&schema);
    assert_eq!(arrow.field(0).name(), "k");
    assert!(!arrow.field(0).is_nullable());
    assert!(arrow.field(1).is_nullable());
}

#[expect(clippy::needless_pass_by_value, reason = "arrays are made in the call")]
fn check_import(array: ArrayRef, to: &DataType, expected: Result<&[Value], ImportError>) {
    let result = import_array(&array, to).map(|array| {
        let arena = Arena::new();
        let reader = ColumnReader::new(array.as_ref());
        (0..array.len()).map(|row| reader.get(row, &arena).to_value()).collect::<Vec<_>>()
    });
    assert_eq!(result, expected.map(<[Value]>::to_vec));
}

#[test]
fn an_import_keeps_values_or_names_the_row() {
    let inexact = |row, to: &DataType| ImportError::Inexact { row, to: to.clone() };
    let zoned = TimestampNanosecondArray::from(vec![Some(1_500_000_000), None])
        .with_timezone("Asia/Shanghai");
    assert_eq!(importable(zoned.data_type()), Some(DataType::Timestamp));
    let values = [Value::Timestamp(1500), Value::Null];
    check_import(Arc::new(zoned), &DataType::Timestamp, Ok(&values));
    let fine = TimestampMicrosecondArray::from(vec![1000, 1001]);
    check_import(Arc::new(fine), &DataType::Timestamp, Err(inexact(1, &DataType::Timestamp)));

    let wide = UInt64Array::from(vec![7, u64::MAX]);
    check_import(Arc::new(wide), &DataType::BigInt, Err(inexact(1, &DataType::BigInt)));
    let integers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
    check_import(Arc::clone(&integers), &DataType::Int, Ok(&[Value::Int(7), Value::Null]));
    check_import(Arc::clone(&integers), &DataType::Double, Ok(&[Value::Double(7.0), Value::Null]));
    let odd = Int64Array::from(vec![(1 << 53) + 1]);
    check_import(Arc::new(odd), &DataType::Double, Err(inexact(0, &DataType::Double)));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 0.1]));
    check_import(floats, &DataType::Float, Err(inexact(1, &DataType::Float)));
    let dates: ArrayRef = Arc::new(Date64Array::from(vec![86_400_000, 86_400_001]));
    check_import(dates, &DataType::Date, Err(inexact(1, &DataType::Date)));
    let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a"]));
    check_import(views, &DataType::String, Ok(&[Value::String("a".into())]));
    let unsupported =
        ImportError::Unsupported { from: integers.data_type().clone(), to: DataType::String };
    check_import(integers, &DataType::String, Err(unsupported));
}

/// Every bit pattern of a NaN is a NaN, whatever a conversion makes of its bits.
#[test]
fn a_signalling_nan_fits_a_wider_float() {
    let bits: ScalarBuffer<u16> = vec![0x3c00_u16, 0x7c01, 0xfe01, 0x8000].into();
    let halves = Float16Array::new(ScalarBuffer::from(bits.into_inner()), None);
    let halves: ArrayRef = Arc::new(halves);
    for to in [DataType::Float, DataType::Double] {
        let converted = import_array(&halves, &to).unwrap();
        let arena = Arena::new();
        let reader = ColumnReader::new(converted.as_ref());
        let values = (0..4).map(|row| match reader.get(row, &arena) {
            Datum::Float(value) => f64::from(value),
            Datum::Double(value) => value,
            other => panic!("{other:?} is not a float"),
        });
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        assert_eq!(values, ["1", "NaN", "NaN", "-0"], "{to}");
    }
    let item = Arc::new(Field::new("item", halves.data_type().clone(), true));
    let list = ListArray::new(item, OffsetBuffer::from_lengths([3, 1]), halves, None);
    let lists =
        import_array(&(Arc::new(list) as ArrayRef), &DataType::Array(Box::new(DataType::Float)));
    assert_eq!(lists.unwrap().len(), 2);
    let noise: ArrayRef =
        Arc::new(Float64Array::from(vec![f64::from_bits(0x7ff0_0000_0000_0001), 0.1]));
    let inexact = ImportError::Inexact { row: 1, to: DataType::Float };
    check_import(noise, &DataType::Float, Err(inexact));
}

#[test]
fn a_dictionary_has_null_as_a_key_and_as_a_value() {
    let text = |text: &str| Value::String(text.into());
    let keys = Int8Array::from(vec![Some(0), Some(1), None, Some(2)]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None, Some("y")]));
    let encoded: ArrayRef = Arc::new(DictionaryArray::new(keys.clone(), texts));
    let expected = [text("x"), Value::Null, Value::Null, text("y")];
    check_import(Arc::clone(&encoded), &DataType::String, Ok(&expected));

    let item = Arc::new(Field::new("item", encoded.data_type().clone(), true));
    let list = ListArray::new(item, OffsetBuffer::from_lengths([1, 3]), encoded, None);
    let lists = expected.split_at(1);
    let lists = [lists.0, lists.1].map(|items| Value::Array(items.to_vec()));
    check_import(Arc::new(list), &DataType::Array(Box::new(DataType::String)), Ok(&lists));

    let wide: ArrayRef = Arc::new(UInt64Array::from(vec![Some(7), None, Some(u64::MAX)]));
    let encoded = DictionaryArray::new(keys, wide);
    let inexact = ImportError::Inexact { row: 3, to: DataType::BigInt };
    check_import(Arc::new(encoded), &DataType::BigInt, Err(inexact));
}

#[test]
fn an_entry_without_a_key_is_left_out() {
    let arena = Arena::new();
    let map = DataType::Map(Box::new(DataType::Int), Box::new(DataType::Int));
    let mut builder = ColumnBuilder::new(&map, 1);
    builder.push(Datum::Map(&[(Datum::Null, Datum::Int(1)), (Datum::Int(2), Datum::Int(3))]));
    let array = builder.finish();
    let value = ColumnReader::new(array.as_ref()).get(0, &arena).to_value();
    assert_eq!(value, Value::Map(vec![(Value::Int(2), Value::Int(3))]));
}

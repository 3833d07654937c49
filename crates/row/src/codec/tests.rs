//! Rows out are the rows in, and rows that do not fit are refused.

use proptest::{collection::vec, prelude::*};

use super::{RowCodec, RowError};
use crate::{Arena, Column, DataType, Datum, TableSchema, Value};

fn schema(types: impl IntoIterator<Item = DataType>) -> TableSchema {
    let named = |(index, data_type)| Column::new(format!("c{index}"), data_type);
    TableSchema { columns: types.into_iter().enumerate().map(named).collect(), indexes: Vec::new() }
}

/// Encodes a row, checks that every column comes back bit for bit but for NaN, of which there is
/// one, and returns the row's size.
fn check(types: &[DataType], values: &[Value]) -> usize {
    let arena = Arena::new();
    let row: Vec<Datum<'_>> = values.iter().map(|value| value.as_datum(&arena)).collect();
    let codec = RowCodec::new(&schema(types.iter().cloned()));
    let mut bytes = b"before".to_vec();
    codec.encode(&row, &mut bytes).unwrap();
    let bytes = bytes.strip_prefix(b"before").unwrap();
    let view = codec.view(bytes);
    assert_eq!(view.width(), row.len());
    for (column, given) in row.iter().enumerate() {
        let expected = &given.with_one_nan();
        let found = view.get_in(column, &arena);
        assert!(found.is_bit_equal(expected), "column {column}: {found:?} for {expected:?}");
        assert_eq!(view.is_null(column), expected.is_null());
        if !matches!(expected, Datum::Map(_) | Datum::Array(_)) {
            assert!(view.get(column).is_bit_equal(expected));
        }
    }
    bytes.len()
}

fn check_refused(schema: &TableSchema, row: &[Datum<'_>], expected: &RowError) {
    let mut bytes = b"before".to_vec();
    let error = RowCodec::new(schema).encode(row, &mut bytes).unwrap_err();
    assert_eq!(&error, expected);
    assert_eq!(bytes, b"before");
}

/// The example in the module's documentation.
#[test]
fn a_row_is_these_bytes() {
    let types = [DataType::Int, DataType::String, DataType::BigInt, DataType::String];
    let row = [Datum::Int(7), Datum::String("ab"), Datum::Null, Datum::String("c")];
    let mut bytes = Vec::new();
    RowCodec::new(&schema(types)).encode(&row, &mut bytes).unwrap();
    let expected = b"\x01\x04\x07\0\0\0\0\0\0\0\0\0\0\0\x02\x03abc";
    assert_eq!(bytes, expected);
}

#[test]
fn sixty_five_small_columns_take_at_most_255_bytes() {
    let mut types = vec![DataType::Int; 20];
    types.extend(vec![DataType::Float; 20]);
    types.extend(vec![DataType::String; 20]);
    types.extend(vec![DataType::Timestamp; 5]);
    let mut values = vec![Value::Int(7); 20];
    values.extend(vec![Value::Float(0.5); 20]);
    values.extend(vec![Value::String("x".into()); 20]);
    values.extend(vec![Value::Timestamp(1_700_000_000_000); 5]);
    assert_eq!(check(&types, &values), 250);
}

#[test]
fn long_texts_widen_the_ends_of_their_row_only() {
    let types = [DataType::String, DataType::Int, DataType::String];
    for (length, width) in [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)] {
        let values = [Value::String("x".repeat(length).into()), Value::Int(1), Value::Null];
        assert_eq!(check(&types, &values), 1 + 1 + 4 + 2 * width + length);
    }
}

#[test]
fn a_row_without_columns_is_a_row() {
    assert_eq!(check(&[], &[]), 1);
}

#[test]
fn a_row_of_another_width_is_refused() {
    let schema = schema([DataType::Int]);
    check_refused(&schema, &[], &RowError::Width { expected: 1, found: 0 });
}

#[test]
fn null_is_refused_where_the_column_does_not_take_it() {
    let mut schema = schema([DataType::Int]);
    schema.columns[0].nullable = false;
    check_refused(&schema, &[Datum::Null], &RowError::Null { column: "c0".to_owned() });
}

#[test]
fn another_type_is_refused_even_if_it_is_narrower() {
    let expected = RowError::Type {
        column: "c0".to_owned(),
        expected: DataType::BigInt,
        found: DataType::Int,
    };
    check_refused(&schema([DataType::BigInt]), &[Datum::Int(1)], &expected);
}

#[test]
fn the_type_of_every_map_entry_counts() {
    let map_type = DataType::Map(Box::new(DataType::String), Box::new(DataType::Int));
    let entries = [(Datum::String("a"), Datum::Int(1)), (Datum::String("b"), Datum::BigInt(1))];
    let value = Datum::Map(&entries);
    let expected = RowError::Type {
        column: "c0".to_owned(),
        expected: map_type.clone(),
        found: value.data_type(),
    };
    check_refused(&schema([map_type]), &[value], &expected);
}

fn typed_value() -> impl Strategy<Value = (DataType, Value)> {
    let text = || prop_oneof![4 => ".{0,12}", 1 => "x{200,400}"];
    let map_type = || DataType::Map(Box::new(DataType::String), Box::new(DataType::Double));
    let entry = (text(), prop::option::of(any::<f64>())).prop_map(|(key, value)| {
        (Value::String(key.into()), value.map_or(Value::Null, Value::Double))
    });
    let typed = prop_oneof![
        any::<bool>().prop_map(|value| (DataType::Bool, Value::Bool(value))),
        any::<i16>().prop_map(|value| (DataType::SmallInt, Value::SmallInt(value))),
        any::<i32>().prop_map(|value| (DataType::Int, Value::Int(value))),
        any::<i64>().prop_map(|value| (DataType::BigInt, Value::BigInt(value))),
        any::<u32>().prop_map(|bits| (DataType::Float, Value::Float(f32::from_bits(bits)))),
        any::<u64>().prop_map(|bits| (DataType::Double, Value::Double(f64::from_bits(bits)))),
        text().prop_map(|text| (DataType::String, Value::String(text.into()))),
        any::<i64>().prop_map(|value| (DataType::Timestamp, Value::Timestamp(value))),
        any::<i32>().prop_map(|value| (DataType::Date, Value::Date(value))),
        vec(entry, 0..4).prop_map(move |entries| (map_type(), Value::Map(entries))),
        vec(any::<i64>(), 0..4).prop_map(|items| {
            let items = items.into_iter().map(Value::BigInt).collect();
            (DataType::Array(Box::new(DataType::BigInt)), Value::Array(items))
        }),
    ];
    (typed, prop::bool::weighted(0.2)).prop_map(|((data_type, value), is_null)| {
        (data_type, if is_null { Value::Null } else { value })
    })
}

proptest! {
    #[test]
    fn every_row_comes_back_bit_for_bit(columns in vec(typed_value(), 0..40)) {
        let (types, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        check(&types, &values);
    }
}

#[test]
fn a_null_in_a_not_null_column_is_no_row() {
    let nullable = schema([DataType::Int, DataType::String]);
    let mut strict = nullable.clone();
    strict.columns[1].nullable = false;
    let check = |text: Datum<'_>, expected: bool| {
        let mut bytes = Vec::new();
        RowCodec::new(&nullable).encode(&[Datum::Null, text], &mut bytes).unwrap();
        assert!(RowCodec::new(&nullable).is_row(&bytes));
        assert_eq!(RowCodec::new(&strict).is_row(&bytes), expected);
    };
    check(Datum::String("a"), true);
    check(Datum::Null, false);
}

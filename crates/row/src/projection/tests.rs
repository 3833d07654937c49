//! A record says of every column it includes what the row says.

use proptest::{collection::vec, prelude::*};

use super::{IncludedColumn, Projection, ShortText, TextCell};
use crate::{Arena, Column, DataType, Datum, FixedColumn, RowCodec, TableSchema, Value};

/// A value of a type, or NULL.
fn value(data_type: &DataType) -> BoxedStrategy<Value> {
    let some = match data_type {
        DataType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        DataType::SmallInt => any::<i16>().prop_map(Value::SmallInt).boxed(),
        DataType::Int => any::<i32>().prop_map(Value::Int).boxed(),
        DataType::BigInt => any::<i64>().prop_map(Value::BigInt).boxed(),
        DataType::Float => any::<u32>().prop_map(|x| Value::Float(f32::from_bits(x))).boxed(),
        DataType::Double => any::<u64>().prop_map(|x| Value::Double(f64::from_bits(x))).boxed(),
        DataType::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        DataType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        DataType::String => {
            let text = prop_oneof!["[a-z]{0,20}", "\\PC{0,9}", "[a-zé]{300}"];
            text.prop_map(|text| Value::String(text.into())).boxed()
        }
        DataType::Array(_) => Just(Value::Array(vec![Value::Int(1)])).boxed(),
        DataType::Map(_, _) => Just(Value::Map(vec![(Value::Int(1), Value::Null)])).boxed(),
        DataType::Null => Just(Value::Null).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 3 => some].boxed()
}

fn data_type() -> impl Strategy<Value = DataType> {
    let int = || Box::new(DataType::Int);
    prop::sample::select(vec![
        DataType::Bool,
        DataType::SmallInt,
        DataType::Int,
        DataType::BigInt,
        DataType::Float,
        DataType::Double,
        DataType::Timestamp,
        DataType::Date,
        DataType::String,
        DataType::String,
        DataType::Array(int()),
        DataType::Map(int(), int()),
        DataType::Null,
    ])
}

/// A schema, a row of it, and by which columns a projection grows, step by step.
type Case = (Vec<DataType>, Vec<Value>, Vec<Vec<(usize, bool)>>);

fn case() -> impl Strategy<Value = Case> {
    vec(data_type(), 1..24).prop_flat_map(|types| {
        let row: Vec<_> = types.iter().map(value).collect();
        let steps = vec(vec((0..types.len(), any::<bool>()), 0..8), 1..5);
        (Just(types), row, steps)
    })
}

/// The value of a column of fixed width, in a row or in a record.
fn fixed(column: FixedColumn, bytes: &[u8]) -> Option<Vec<u8>> {
    let value = || bytes[column.at()..column.at() + column.kind().size()].to_vec();
    (!column.is_null(bytes)).then(value)
}

/// Checks a record that `written` has written against what `read`, an earlier one, says of it.
fn check(codec: &RowCodec, row: &[u8], (read, written): (&Projection, &Projection)) {
    let mut record = vec![0xaa; written.size()];
    written.write(row, &mut record);
    let view = codec.view(row);
    for IncludedColumn { column, values } in read.columns() {
        let (byte, mask) = read.presence(column).unwrap();
        assert_eq!(record[byte] & mask != 0, view.is_null(column), "column {column}");
        assert_eq!(
            values,
            read.fixed_column(column).or(None).is_some() || { read.text_cell(column).is_some() }
        );
        if let Some(in_record) = read.fixed_column(column) {
            let in_row = codec.fixed_column(column).unwrap();
            assert_eq!(in_record.kind(), in_row.kind());
            assert_eq!(fixed(in_record, &record), fixed(in_row, row), "column {column}");
        }
        if let Some(cell) = read.text_cell(column) {
            let text = match view.get(column) {
                Datum::String(text) => text,
                _ => "",
            };
            let found = TextCell::texts(&record[cell.at()..cell.at() + TextCell::WIDTH]);
            let expected = ShortText::new(text);
            assert_eq!(found, expected.as_slice().first().map(std::slice::from_ref), "{column}");
            assert_eq!(cell.null_bit(), read.presence(column).unwrap());
        }
    }
}

fn codec(types: &[DataType]) -> RowCodec {
    let named =
        |(at, data_type): (usize, &DataType)| Column::new(format!("c{at}"), data_type.clone());
    let columns = types.iter().enumerate().map(named).collect();
    RowCodec::new(&TableSchema { columns, indexes: Vec::new() })
}

fn columns(wanted: &[(usize, bool)]) -> Vec<IncludedColumn> {
    wanted
        .iter()
        .map(|(column, values)| IncludedColumn { column: *column, values: *values })
        .collect()
}

proptest! {
    #[test]
    fn a_record_says_what_the_row_says((types, values, steps) in case()) {
        let arena = Arena::new();
        let codec = codec(&types);
        let mut row = Vec::new();
        let datums: Vec<Datum<'_>> = values.iter().map(|value| value.as_datum(&arena)).collect();
        codec.encode(&datums, &mut row).unwrap();
        let mut projections = vec![Projection::default()];
        for step in &steps {
            let last = projections.last().unwrap();
            let grown = last.with(&codec, &columns(step));
            prop_assert_eq!(&grown.with(&codec, &columns(step)), &grown, "it has them already");
            for (column, values) in step {
                prop_assert!(grown.presence(*column).is_some());
                let has_values = codec.fixed_column(*column).is_some()
                    || codec.text_column(*column).is_some();
                let is_there = grown.fixed_column(*column).is_some()
                    || grown.text_cell(*column).is_some();
                prop_assert!(is_there || !*values || !has_values);
            }
            projections.push(grown);
        }
        for (at, written) in projections.iter().enumerate() {
            prop_assert_eq!(written.widths().sum::<usize>(), written.size());
            for read in &projections[..=at] {
                check(&codec, &row, (read, written));
            }
        }
    }
}

#[test]
fn a_record_is_as_long_as_its_columns() {
    let types = [DataType::Double, DataType::Bool, DataType::String, DataType::Int];
    let codec = codec(&types);
    let none = Projection::default();
    assert_eq!(none.size(), 0);
    let first = none.with(&codec, &columns(&[(0, true), (2, false)]));
    assert_eq!(first.size(), 1 + 8);
    let second = first.with(&codec, &columns(&[(2, true), (1, true), (0, false)]));
    assert_eq!(second.size(), 1 + 8 + 16 + 1);
    assert_eq!(second.presence(2), first.presence(2));
    assert_eq!(second.presence(3), None);
    assert_eq!(second.widths().collect::<Vec<_>>(), [1, 8, 16, 1]);
}

#[test]
fn a_ninth_column_begins_another_byte_of_null_bits() {
    let codec = codec(&vec![DataType::SmallInt; 9]);
    let all: Vec<_> = (0..9).map(|column| (column, true)).collect();
    let projection = Projection::default().with(&codec, &columns(&all));
    assert_eq!(projection.size(), 9 * 2 + 2);
    assert_eq!(projection.presence(7), Some((0, 0x80)));
    assert_eq!(projection.presence(8), Some((17, 1)));
}

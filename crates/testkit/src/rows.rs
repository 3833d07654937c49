//! Rows of values as Arrow batches and back.
//!
//! Tests append and read rows through this. It does not use the conversions of `lockstep_row`,
//! which are under test.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array,
        Int32Array, Int64Array, LargeStringArray, ListArray, MapArray, RecordBatch,
        RecordBatchOptions, StringArray, StringViewArray, TimestampMillisecondArray,
    },
    datatypes::{DataType as ArrowType, Field, Schema, TimeUnit},
};
use lockstep_engine::Output;
use lockstep_row::{DataType, Value};

/// Returns the Arrow type of a storable type of the dialect. Panics for NULL, ARRAY and MAP.
pub fn arrow_type(data_type: &DataType) -> ArrowType {
    match data_type {
        DataType::Bool => ArrowType::Boolean,
        DataType::SmallInt => ArrowType::Int16,
        DataType::Int => ArrowType::Int32,
        DataType::BigInt => ArrowType::Int64,
        DataType::Float => ArrowType::Float32,
        DataType::Double => ArrowType::Float64,
        DataType::String => ArrowType::Utf8,
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Date => ArrowType::Date32,
        DataType::Null | DataType::Array(_) | DataType::Map(..) => {
            panic!("a column of type {data_type} cannot be stored")
        }
    }
}

/// Makes one batch of the rows. Panics when a value is not of its column's type.
pub fn to_batch(columns: &[(String, DataType)], rows: &[Vec<Value>]) -> RecordBatch {
    let width = columns.len();
    assert!(rows.iter().all(|row| row.len() == width), "every row has {width} values");
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, data_type)| Field::new(name, arrow_type(data_type), true))
        .collect();
    let arrays: Vec<ArrayRef> = columns
        .iter()
        .enumerate()
        .map(|(index, (_, data_type))| to_array(data_type, rows.iter().map(|row| &row[index])))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .expect("the arrays were made for these fields")
}

fn to_array<'a>(data_type: &DataType, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    /// Collects the values of one variant into an array; NULL becomes a null.
    macro_rules! collect {
        ($array:ty, $variant:ident, $read:expr) => {
            Arc::new(
                values
                    .map(|value| match value {
                        Value::Null => None,
                        Value::$variant(inner) => Some($read(inner)),
                        other => panic!("{other:?} in a column of type {data_type}"),
                    })
                    .collect::<$array>(),
            )
        };
    }
    match data_type {
        DataType::Bool => collect!(BooleanArray, Bool, |value: &bool| *value),
        DataType::SmallInt => collect!(Int16Array, SmallInt, |value: &i16| *value),
        DataType::Int => collect!(Int32Array, Int, |value: &i32| *value),
        DataType::BigInt => collect!(Int64Array, BigInt, |value: &i64| *value),
        DataType::Float => collect!(Float32Array, Float, |value: &f32| *value),
        DataType::Double => collect!(Float64Array, Double, |value: &f64| *value),
        DataType::String => collect!(StringArray, String, |value: &str| value.to_owned()),
        DataType::Timestamp => {
            collect!(TimestampMillisecondArray, Timestamp, |value: &i64| *value)
        }
        DataType::Date => collect!(Date32Array, Date, |value: &i32| *value),
        DataType::Null | DataType::Array(_) | DataType::Map(..) => {
            panic!("a column of type {data_type} cannot be stored")
        }
    }
}

/// Returns all rows of an output, in order.
pub fn of_output(output: &Output) -> Vec<Vec<Value>> {
    output.batches.iter().flat_map(of_batch).collect()
}

/// Returns the rows of a batch, in order.
pub fn of_batch(batch: &RecordBatch) -> Vec<Vec<Value>> {
    (0..batch.num_rows())
        .map(|row| batch.columns().iter().map(|array| value_at(array, row)).collect())
        .collect()
}

/// Reads one value. Panics for an Arrow type that the dialect has no type for.
fn value_at(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    /// Downcasts the array to the type that its Arrow type names.
    macro_rules! read {
        ($array:ty) => {
            array.as_any().downcast_ref::<$array>().expect("the Arrow type says so").value(row)
        };
    }
    match array.data_type() {
        ArrowType::Null => Value::Null,
        ArrowType::Boolean => Value::Bool(read!(BooleanArray)),
        ArrowType::Int16 => Value::SmallInt(read!(Int16Array)),
        ArrowType::Int32 => Value::Int(read!(Int32Array)),
        ArrowType::Int64 => Value::BigInt(read!(Int64Array)),
        ArrowType::Float32 => Value::Float(read!(Float32Array)),
        ArrowType::Float64 => Value::Double(read!(Float64Array)),
        ArrowType::Utf8 => Value::String(read!(StringArray).into()),
        ArrowType::LargeUtf8 => Value::String(read!(LargeStringArray).into()),
        ArrowType::Utf8View => Value::String(read!(StringViewArray).into()),
        ArrowType::Timestamp(TimeUnit::Millisecond, _) => {
            Value::Timestamp(read!(TimestampMillisecondArray))
        }
        ArrowType::Date32 => Value::Date(read!(Date32Array)),
        ArrowType::List(_) => {
            let items = read!(ListArray);
            Value::Array((0..items.len()).map(|item| value_at(&items, item)).collect())
        }
        ArrowType::Map(..) => {
            let entries = read!(MapArray);
            let entry =
                |index| (value_at(entries.column(0), index), value_at(entries.column(1), index));
            Value::Map((0..entries.len()).map(entry).collect())
        }
        other => panic!("the dialect has no type for Arrow type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::{DataType, Value};

    use super::{of_batch, to_batch};

    #[test]
    fn values_survive_the_way_through_arrow() {
        let columns = [
            ("a", DataType::Bool),
            ("b", DataType::SmallInt),
            ("c", DataType::Int),
            ("d", DataType::BigInt),
            ("e", DataType::Float),
            ("f", DataType::Double),
            ("g", DataType::String),
            ("h", DataType::Timestamp),
            ("i", DataType::Date),
        ]
        .map(|(name, data_type)| (name.to_owned(), data_type));
        let row = vec![
            Value::Bool(true),
            Value::SmallInt(-1),
            Value::Int(2),
            Value::BigInt(i64::MIN),
            Value::Float(-0.0),
            Value::Double(f64::INFINITY),
            Value::String("ü".into()),
            Value::Timestamp(1),
            Value::Date(-1),
        ];
        let nulls = vec![Value::Null; columns.len()];
        let rows = [row, nulls];
        assert_eq!(of_batch(&to_batch(&columns, &rows)), rows);
    }
}

//! Reading a column's values one at a time.
//!
//! The batch forms of functions and the encoder of loaded rows read columns through it. The column's
//! type is checked once, when the reader is made; `get` is then a match and a load.

use arrow::{
    array::{
        Array, AsArray, BooleanArray, LargeStringArray, ListArray, MapArray, PrimitiveArray,
        StringArray, StringViewArray,
    },
    buffer::NullBuffer,
    datatypes::{
        ArrowPrimitiveType, DataType as ArrowType, Date32Type, Float32Type, Float64Type, Int16Type,
        Int32Type, Int64Type, TimeUnit, TimestampMillisecondType,
    },
};

use crate::{Arena, Datum};

/// A reader of the values of one column.
#[derive(Debug)]
pub struct ColumnReader<'a> {
    length: usize,
    nulls: Option<&'a NullBuffer>,
    values: ColumnValues<'a>,
}

/// The values of a column, by type.
#[derive(Debug)]
enum ColumnValues<'a> {
    Null,
    Bool(&'a BooleanArray),
    SmallInt(&'a [i16]),
    Int(&'a [i32]),
    BigInt(&'a [i64]),
    Float(&'a [f32]),
    Double(&'a [f64]),
    String(&'a StringArray),
    LargeString(&'a LargeStringArray),
    StringView(&'a StringViewArray),
    Timestamp(&'a [i64]),
    Date(&'a [i32]),
    Array(&'a ListArray, Box<ColumnReader<'a>>),
    Map(&'a MapArray, Box<[ColumnReader<'a>; 2]>),
}

impl<'a> ColumnReader<'a> {
    /// Opens a column.
    ///
    /// # Panics
    ///
    /// If [`data_type`](super::data_type) returns `None` for the column's type. Plans have only types for
    /// which it does not, and columns of users are converted by
    /// [`import_array`](super::import_array) first.
    pub fn new(array: &'a dyn Array) -> Self {
        let values = match array.data_type() {
            ArrowType::Null => ColumnValues::Null,
            ArrowType::Boolean => ColumnValues::Bool(array.as_boolean()),
            ArrowType::Int16 => ColumnValues::SmallInt(slice::<Int16Type>(array)),
            ArrowType::Int32 => ColumnValues::Int(slice::<Int32Type>(array)),
            ArrowType::Int64 => ColumnValues::BigInt(slice::<Int64Type>(array)),
            ArrowType::Float32 => ColumnValues::Float(slice::<Float32Type>(array)),
            ArrowType::Float64 => ColumnValues::Double(slice::<Float64Type>(array)),
            ArrowType::Utf8 => ColumnValues::String(array.as_string()),
            ArrowType::LargeUtf8 => ColumnValues::LargeString(array.as_string()),
            ArrowType::Utf8View => ColumnValues::StringView(array.as_string_view()),
            ArrowType::Timestamp(TimeUnit::Millisecond, None) => {
                ColumnValues::Timestamp(slice::<TimestampMillisecondType>(array))
            }
            ArrowType::Date32 => ColumnValues::Date(slice::<Date32Type>(array)),
            ArrowType::List(_) => {
                let list: &ListArray = array.as_list();
                ColumnValues::Array(list, Box::new(Self::new(list.values().as_ref())))
            }
            ArrowType::Map(..) => {
                let map = array.as_map();
                let sides = [map.keys(), map.values()].map(|side| Self::new(side.as_ref()));
                ColumnValues::Map(map, Box::new(sides))
            }
            other => panic!("type {other} is not supported"),
        };
        Self { length: array.len(), nulls: array.nulls(), values }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the value of a row. Lists and maps are allocated in the arena; everything else borrows
    /// from the column. Panics when there is no such row.
    #[inline]
    pub fn get<'b>(&self, row: usize, arena: &'b Arena) -> Datum<'b>
    where
        'a: 'b,
    {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Datum::Null;
        }
        match &self.values {
            ColumnValues::Null => Datum::Null,
            ColumnValues::Bool(array) => Datum::Bool(array.value(row)),
            ColumnValues::SmallInt(values) => Datum::SmallInt(values[row]),
            ColumnValues::Int(values) => Datum::Int(values[row]),
            ColumnValues::BigInt(values) => Datum::BigInt(values[row]),
            ColumnValues::Float(values) => Datum::Float(values[row]),
            ColumnValues::Double(values) => Datum::Double(values[row]),
            ColumnValues::String(array) => Datum::String(array.value(row)),
            ColumnValues::LargeString(array) => Datum::String(array.value(row)),
            ColumnValues::StringView(array) => Datum::String(array.value(row)),
            ColumnValues::Timestamp(values) => Datum::Timestamp(values[row]),
            ColumnValues::Date(values) => Datum::Date(values[row]),
            ColumnValues::Array(list, items) => {
                let range = inner_range(list.value_offsets(), row);
                Datum::Array(
                    arena.alloc_slice_fill_iter(range.map(|index| items.get(index, arena))),
                )
            }
            ColumnValues::Map(map, sides) => {
                let range = inner_range(map.value_offsets(), row);
                let [keys, values] = sides.as_ref();
                Datum::Map(arena.alloc_slice_fill_iter(
                    range.map(|index| (keys.get(index, arena), values.get(index, arena))),
                ))
            }
        }
    }
}

/// Returns the values of a column of fixed width.
fn slice<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    let array: &PrimitiveArray<T> = array.as_primitive();
    array.values()
}

/// Returns the range of inner values that belong to a row.
fn inner_range(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    let end = |offset: i32| usize::try_from(offset).expect("Arrow checks that offsets only grow");
    end(offsets[row])..end(offsets[row + 1])
}

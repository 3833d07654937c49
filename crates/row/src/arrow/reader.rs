//! A column's values, one at a time.
//!
//! The batch forms of functions and the encoder of loaded rows read columns through it. It looks
//! at the column's type once, when it is made; `get` is then a match and a load.

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

/// Reads the values of one column.
#[derive(Debug)]
pub struct ColumnReader<'a> {
    length: usize,
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

#[derive(Debug)]
enum Values<'a> {
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
    /// If [`data_type`](super::data_type) does not know the column's type. Plans hold only types
    /// that it knows, and columns of users pass through
    /// [`import_array`](super::import_array) first.
    pub fn new(array: &'a dyn Array) -> Self {
        let values = match array.data_type() {
            ArrowType::Null => Values::Null,
            ArrowType::Boolean => Values::Bool(array.as_boolean()),
            ArrowType::Int16 => Values::SmallInt(slice::<Int16Type>(array)),
            ArrowType::Int32 => Values::Int(slice::<Int32Type>(array)),
            ArrowType::Int64 => Values::BigInt(slice::<Int64Type>(array)),
            ArrowType::Float32 => Values::Float(slice::<Float32Type>(array)),
            ArrowType::Float64 => Values::Double(slice::<Float64Type>(array)),
            ArrowType::Utf8 => Values::String(array.as_string()),
            ArrowType::LargeUtf8 => Values::LargeString(array.as_string()),
            ArrowType::Utf8View => Values::StringView(array.as_string_view()),
            ArrowType::Timestamp(TimeUnit::Millisecond, None) => {
                Values::Timestamp(slice::<TimestampMillisecondType>(array))
            }
            ArrowType::Date32 => Values::Date(slice::<Date32Type>(array)),
            ArrowType::List(_) => {
                let list: &ListArray = array.as_list();
                Values::Array(list, Box::new(Self::new(list.values().as_ref())))
            }
            ArrowType::Map(..) => {
                let map = array.as_map();
                let sides = [map.keys(), map.values()].map(|side| Self::new(side.as_ref()));
                Values::Map(map, Box::new(sides))
            }
            other => panic!("no value of the dialect is laid out as {other}"),
        };
        Self { length: array.len(), nulls: array.nulls(), values }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The value of a row. Lists and maps are laid out in the arena; everything else borrows from
    /// the column and leaves the arena alone. Panics when there is no such row.
    #[inline]
    pub fn get<'b>(&self, row: usize, arena: &'b Arena) -> Datum<'b>
    where
        'a: 'b,
    {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Datum::Null;
        }
        match &self.values {
            Values::Null => Datum::Null,
            Values::Bool(array) => Datum::Bool(array.value(row)),
            Values::SmallInt(values) => Datum::SmallInt(values[row]),
            Values::Int(values) => Datum::Int(values[row]),
            Values::BigInt(values) => Datum::BigInt(values[row]),
            Values::Float(values) => Datum::Float(values[row]),
            Values::Double(values) => Datum::Double(values[row]),
            Values::String(array) => Datum::String(array.value(row)),
            Values::LargeString(array) => Datum::String(array.value(row)),
            Values::StringView(array) => Datum::String(array.value(row)),
            Values::Timestamp(values) => Datum::Timestamp(values[row]),
            Values::Date(values) => Datum::Date(values[row]),
            Values::Array(list, items) => {
                let run = run(list.value_offsets(), row);
                Datum::Array(arena.alloc_slice_fill_iter(run.map(|index| items.get(index, arena))))
            }
            Values::Map(map, sides) => {
                let run = run(map.value_offsets(), row);
                let [keys, values] = sides.as_ref();
                Datum::Map(arena.alloc_slice_fill_iter(
                    run.map(|index| (keys.get(index, arena), values.get(index, arena))),
                ))
            }
        }
    }
}

fn slice<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    let array: &PrimitiveArray<T> = array.as_primitive();
    array.values()
}

/// The run of inner values that belongs to a row.
fn run(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    let end = |offset: i32| usize::try_from(offset).expect("Arrow checks that offsets only grow");
    end(offsets[row])..end(offsets[row + 1])
}

//! Building a column of values, one at a time.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayBuilder, ArrayRef, BooleanBuilder, ListArray, MapArray, NullArray, NullBufferBuilder,
        PrimitiveBuilder, StringBuilder, StructArray,
    },
    buffer::{NullBuffer, OffsetBuffer},
    datatypes::{
        ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        TimestampMillisecondType,
    },
};

use super::{entries_field, entry_fields, item_field};
use crate::{
    DataType, Datum,
    datum::{one_nan_f32, one_nan_f64},
};

/// A builder of a column of one type.
#[derive(Debug)]
pub struct ColumnBuilder(TypedBuilder);

/// The builder of a column, by type.
#[derive(Debug)]
enum TypedBuilder {
    Null(usize),
    Bool(BooleanBuilder),
    SmallInt(PrimitiveBuilder<Int16Type>),
    Int(PrimitiveBuilder<Int32Type>),
    BigInt(PrimitiveBuilder<Int64Type>),
    Float(PrimitiveBuilder<Float32Type>),
    Double(PrimitiveBuilder<Float64Type>),
    String(StringBuilder),
    Timestamp(PrimitiveBuilder<TimestampMillisecondType>),
    Date(PrimitiveBuilder<Date32Type>),
    Array { list_ends: ListEnds, element: DataType, items: Box<ColumnBuilder> },
    Map { list_ends: ListEnds, types: Box<[DataType; 2]>, sides: Box<[ColumnBuilder; 2]> },
}

/// Where each row's inner values end, and which rows are NULL.
#[derive(Debug)]
struct ListEnds {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder {
    /// Starts a column of this capacity.
    pub fn new(data_type: &DataType, capacity: usize) -> Self {
        Self(match data_type {
            DataType::Null => TypedBuilder::Null(0),
            DataType::Bool => TypedBuilder::Bool(BooleanBuilder::with_capacity(capacity)),
            DataType::SmallInt => TypedBuilder::SmallInt(primitive(capacity)),
            DataType::Int => TypedBuilder::Int(primitive(capacity)),
            DataType::BigInt => TypedBuilder::BigInt(primitive(capacity)),
            DataType::Float => TypedBuilder::Float(primitive(capacity)),
            DataType::Double => TypedBuilder::Double(primitive(capacity)),
            DataType::String => TypedBuilder::String(StringBuilder::with_capacity(capacity, 0)),
            DataType::Timestamp => TypedBuilder::Timestamp(primitive(capacity)),
            DataType::Date => TypedBuilder::Date(primitive(capacity)),
            DataType::Array(element) => TypedBuilder::Array {
                list_ends: ListEnds::new(capacity),
                element: element.as_ref().clone(),
                items: Box::new(Self::new(element, capacity)),
            },
            DataType::Map(key, value) => TypedBuilder::Map {
                list_ends: ListEnds::new(capacity),
                types: Box::new([key.as_ref().clone(), value.as_ref().clone()]),
                sides: Box::new([Self::new(key, capacity), Self::new(value, capacity)]),
            },
        })
    }

    /// Appends a value. An entry of a MAP whose key is NULL is left out: Arrow cannot
    /// represent it.
    ///
    /// # Panics
    ///
    /// If the value is neither NULL nor of the column's type, which would be a defect of the
    /// function that made it.
    #[inline]
    pub fn push(&mut self, value: Datum<'_>) {
        match (&mut self.0, value) {
            (TypedBuilder::Null(length), Datum::Null) => *length += 1,
            (TypedBuilder::Bool(builder), Datum::Bool(value)) => builder.append_value(value),
            (TypedBuilder::SmallInt(builder), Datum::SmallInt(value)) => {
                builder.append_value(value);
            }
            (TypedBuilder::Int(builder), Datum::Int(value)) => builder.append_value(value),
            (TypedBuilder::BigInt(builder), Datum::BigInt(value)) => builder.append_value(value),
            (TypedBuilder::Float(builder), Datum::Float(value)) => {
                builder.append_value(one_nan_f32(value));
            }
            (TypedBuilder::Double(builder), Datum::Double(value)) => {
                builder.append_value(one_nan_f64(value));
            }
            (TypedBuilder::String(builder), Datum::String(text)) => builder.append_value(text),
            (TypedBuilder::Timestamp(builder), Datum::Timestamp(value)) => {
                builder.append_value(value);
            }
            (TypedBuilder::Date(builder), Datum::Date(value)) => builder.append_value(value),
            (TypedBuilder::Array { list_ends, items, .. }, Datum::Array(values)) => {
                values.iter().for_each(|value| items.push(*value));
                list_ends.end(values.len());
            }
            (TypedBuilder::Map { list_ends, sides, .. }, Datum::Map(entries)) => {
                let [keys, values] = sides.as_mut();
                let mut count = 0;
                for (key, value) in entries.iter().filter(|(key, _)| !key.is_null()) {
                    keys.push(*key);
                    values.push(*value);
                    count += 1;
                }
                list_ends.end(count);
            }
            (_, Datum::Null) => self.push_null(),
            (builder, value) => {
                panic!("a value of type {} in a column of {builder:?}", value.data_type())
            }
        }
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match &mut self.0 {
            TypedBuilder::Null(length) => *length += 1,
            TypedBuilder::Bool(builder) => builder.append_null(),
            TypedBuilder::SmallInt(builder) => builder.append_null(),
            TypedBuilder::Int(builder) => builder.append_null(),
            TypedBuilder::BigInt(builder) => builder.append_null(),
            TypedBuilder::Float(builder) => builder.append_null(),
            TypedBuilder::Double(builder) => builder.append_null(),
            TypedBuilder::String(builder) => builder.append_null(),
            TypedBuilder::Timestamp(builder) => builder.append_null(),
            TypedBuilder::Date(builder) => builder.append_null(),
            TypedBuilder::Array { list_ends, .. } | TypedBuilder::Map { list_ends, .. } => {
                list_ends.end_null();
            }
        }
    }

    /// Returns the column. The builder is empty afterwards and may be used again.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.0 {
            TypedBuilder::Null(length) => Arc::new(NullArray::new(std::mem::take(length))),
            TypedBuilder::Bool(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::SmallInt(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::Int(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::BigInt(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::Float(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::Double(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::String(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::Timestamp(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::Date(builder) => ArrayBuilder::finish(builder),
            TypedBuilder::Array { list_ends, element, items } => {
                let (offsets, nulls) = list_ends.finish();
                let list = ListArray::new(item_field(element), offsets, items.finish(), nulls);
                Arc::new(list)
            }
            TypedBuilder::Map { list_ends, types, sides } => {
                let (offsets, nulls) = list_ends.finish();
                let [key, value] = types.as_ref();
                let sides = sides.each_mut().map(Self::finish);
                let entries = StructArray::new(entry_fields(key, value), sides.to_vec(), None);
                Arc::new(MapArray::new(entries_field(key, value), offsets, entries, nulls, false))
            }
        }
    }
}

/// Makes a builder of a column of fixed width.
fn primitive<T: ArrowPrimitiveType>(capacity: usize) -> PrimitiveBuilder<T> {
    PrimitiveBuilder::with_capacity(capacity)
}

impl ListEnds {
    /// Starts without rows.
    fn new(capacity: usize) -> Self {
        let mut ends = Vec::with_capacity(capacity + 1);
        ends.push(0);
        Self { ends, nulls: NullBufferBuilder::new(capacity) }
    }

    /// Ends a row of so many inner values.
    fn end(&mut self, count: usize) {
        self.push_end(count);
        self.nulls.append_non_null();
    }

    /// Ends a row that is NULL.
    fn end_null(&mut self) {
        self.push_end(0);
        self.nulls.append_null();
    }

    /// Appends an end.
    fn push_end(&mut self, count: usize) {
        let last = *self.ends.last().expect("the first end, 0, is always there");
        let end = i32::try_from(count).ok().and_then(|count| last.checked_add(count));
        self.ends.push(end.expect("a column holds fewer than 2^31 inner values"));
    }

    /// Returns the offsets and the NULLs, and starts again.
    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        (OffsetBuffer::new(ends.into()), self.nulls.finish())
    }
}

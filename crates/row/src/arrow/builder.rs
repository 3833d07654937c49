//! A column made of values, one at a time.

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

/// Builds a column of one type.
#[derive(Debug)]
pub struct ColumnBuilder(Builder);

#[derive(Debug)]
enum Builder {
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
    Array { runs: Runs, element: DataType, items: Box<ColumnBuilder> },
    Map { runs: Runs, types: Box<[DataType; 2]>, sides: Box<[ColumnBuilder; 2]> },
}

/// Where each row's inner values end, and which rows are NULL.
#[derive(Debug)]
struct Runs {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder {
    /// Starts a column with room for `capacity` values.
    pub fn new(data_type: &DataType, capacity: usize) -> Self {
        Self(match data_type {
            DataType::Null => Builder::Null(0),
            DataType::Bool => Builder::Bool(BooleanBuilder::with_capacity(capacity)),
            DataType::SmallInt => Builder::SmallInt(primitive(capacity)),
            DataType::Int => Builder::Int(primitive(capacity)),
            DataType::BigInt => Builder::BigInt(primitive(capacity)),
            DataType::Float => Builder::Float(primitive(capacity)),
            DataType::Double => Builder::Double(primitive(capacity)),
            DataType::String => Builder::String(StringBuilder::with_capacity(capacity, 0)),
            DataType::Timestamp => Builder::Timestamp(primitive(capacity)),
            DataType::Date => Builder::Date(primitive(capacity)),
            DataType::Array(element) => Builder::Array {
                runs: Runs::new(capacity),
                element: element.as_ref().clone(),
                items: Box::new(Self::new(element, capacity)),
            },
            DataType::Map(key, value) => Builder::Map {
                runs: Runs::new(capacity),
                types: Box::new([key.as_ref().clone(), value.as_ref().clone()]),
                sides: Box::new([Self::new(key, capacity), Self::new(value, capacity)]),
            },
        })
    }

    /// Appends a value. An entry of a MAP whose key is NULL is left out: Arrow has no place for
    /// it.
    ///
    /// # Panics
    ///
    /// If the value is neither NULL nor of the column's type, which would be a defect of the
    /// function that made it.
    #[inline]
    pub fn push(&mut self, value: Datum<'_>) {
        match (&mut self.0, value) {
            (Builder::Null(length), Datum::Null) => *length += 1,
            (Builder::Bool(builder), Datum::Bool(value)) => builder.append_value(value),
            (Builder::SmallInt(builder), Datum::SmallInt(value)) => builder.append_value(value),
            (Builder::Int(builder), Datum::Int(value)) => builder.append_value(value),
            (Builder::BigInt(builder), Datum::BigInt(value)) => builder.append_value(value),
            (Builder::Float(builder), Datum::Float(value)) => {
                builder.append_value(one_nan_f32(value));
            }
            (Builder::Double(builder), Datum::Double(value)) => {
                builder.append_value(one_nan_f64(value));
            }
            (Builder::String(builder), Datum::String(text)) => builder.append_value(text),
            (Builder::Timestamp(builder), Datum::Timestamp(value)) => builder.append_value(value),
            (Builder::Date(builder), Datum::Date(value)) => builder.append_value(value),
            (Builder::Array { runs, items, .. }, Datum::Array(values)) => {
                values.iter().for_each(|value| items.push(*value));
                runs.end(values.len());
            }
            (Builder::Map { runs, sides, .. }, Datum::Map(entries)) => {
                let [keys, values] = sides.as_mut();
                let mut count = 0;
                for (key, value) in entries.iter().filter(|(key, _)| !key.is_null()) {
                    keys.push(*key);
                    values.push(*value);
                    count += 1;
                }
                runs.end(count);
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
            Builder::Null(length) => *length += 1,
            Builder::Bool(builder) => builder.append_null(),
            Builder::SmallInt(builder) => builder.append_null(),
            Builder::Int(builder) => builder.append_null(),
            Builder::BigInt(builder) => builder.append_null(),
            Builder::Float(builder) => builder.append_null(),
            Builder::Double(builder) => builder.append_null(),
            Builder::String(builder) => builder.append_null(),
            Builder::Timestamp(builder) => builder.append_null(),
            Builder::Date(builder) => builder.append_null(),
            Builder::Array { runs, .. } | Builder::Map { runs, .. } => runs.end_null(),
        }
    }

    /// The column. The builder is empty afterwards and may be used again.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.0 {
            Builder::Null(length) => Arc::new(NullArray::new(std::mem::take(length))),
            Builder::Bool(builder) => ArrayBuilder::finish(builder),
            Builder::SmallInt(builder) => ArrayBuilder::finish(builder),
            Builder::Int(builder) => ArrayBuilder::finish(builder),
            Builder::BigInt(builder) => ArrayBuilder::finish(builder),
            Builder::Float(builder) => ArrayBuilder::finish(builder),
            Builder::Double(builder) => ArrayBuilder::finish(builder),
            Builder::String(builder) => ArrayBuilder::finish(builder),
            Builder::Timestamp(builder) => ArrayBuilder::finish(builder),
            Builder::Date(builder) => ArrayBuilder::finish(builder),
            Builder::Array { runs, element, items } => {
                let (offsets, nulls) = runs.finish();
                let list = ListArray::new(item_field(element), offsets, items.finish(), nulls);
                Arc::new(list)
            }
            Builder::Map { runs, types, sides } => {
                let (offsets, nulls) = runs.finish();
                let [key, value] = types.as_ref();
                let sides = sides.each_mut().map(Self::finish);
                let entries = StructArray::new(entry_fields(key, value), sides.to_vec(), None);
                Arc::new(MapArray::new(entries_field(key, value), offsets, entries, nulls, false))
            }
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(capacity: usize) -> PrimitiveBuilder<T> {
    PrimitiveBuilder::with_capacity(capacity)
}

impl Runs {
    fn new(capacity: usize) -> Self {
        let mut ends = Vec::with_capacity(capacity + 1);
        ends.push(0);
        Self { ends, nulls: NullBufferBuilder::new(capacity) }
    }

    fn end(&mut self, count: usize) {
        self.push_end(count);
        self.nulls.append_non_null();
    }

    fn end_null(&mut self) {
        self.push_end(0);
        self.nulls.append_null();
    }

    fn push_end(&mut self, count: usize) {
        let last = *self.ends.last().expect("the first end, 0, is always there");
        let end = i32::try_from(count).ok().and_then(|count| last.checked_add(count));
        self.ends.push(end.expect("a column holds fewer than 2^31 inner values"));
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        (OffsetBuffer::new(ends.into()), self.nulls.finish())
    }
}

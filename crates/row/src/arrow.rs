//! Types and values to and from Arrow.
//!
//! Everything that runs over columns uses it: each type of the dialect has one Arrow type
//! ([`arrow_type`]), a reader returns a column's values as [`Datum`](crate::Datum)s and a builder makes
//! columns of them. Columns of users, which have more types than the dialect, are converted by
//! [`import_array`], and those of other programs are checked before ([`check_batch`], [`check_message`]). Knows no
//! expression and no plan.

mod builder;
mod check;
mod import;
mod ipc;
mod reader;

use std::sync::Arc;

use arrow::datatypes::{
    DataType as ArrowType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit,
};

pub use builder::ColumnBuilder;
pub use check::{InvalidColumn, check_batch};
pub use import::{
    ImportError, import_array, importable, in_milliseconds, is_finer_than_milliseconds,
    with_one_nan,
};
pub use ipc::{
    MessageLimits, SplitHeader, SplitMessage, check_batch_message, check_byte_order, check_message,
    decoded, next_message, read_stream, split_header, too_large,
};
pub use reader::ColumnReader;

use crate::{DataType, TableSchema};

/// Returns the Arrow type of a type: TIMESTAMP is milliseconds without a zone, STRING is `Utf8`, the elements
/// of an ARRAY and the values of a MAP are nullable.
pub fn arrow_type(data_type: &DataType) -> ArrowType {
    match data_type {
        DataType::Null => ArrowType::Null,
        DataType::Bool => ArrowType::Boolean,
        DataType::SmallInt => ArrowType::Int16,
        DataType::Int => ArrowType::Int32,
        DataType::BigInt => ArrowType::Int64,
        DataType::Float => ArrowType::Float32,
        DataType::Double => ArrowType::Float64,
        DataType::String => ArrowType::Utf8,
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Date => ArrowType::Date32,
        DataType::Array(element) => ArrowType::List(item_field(element)),
        DataType::Map(key, value) => ArrowType::Map(entries_field(key, value), false),
    }
}

/// Returns the type that has this Arrow type; `None` when there is none. The names and the nullability
/// of inner fields do not matter, nor which of Arrow's three layouts a text has: [`ColumnReader`] reads
/// all of them.
pub fn data_type(arrow_type: &ArrowType) -> Option<DataType> {
    Some(match arrow_type {
        ArrowType::Null => DataType::Null,
        ArrowType::Boolean => DataType::Bool,
        ArrowType::Int16 => DataType::SmallInt,
        ArrowType::Int32 => DataType::Int,
        ArrowType::Int64 => DataType::BigInt,
        ArrowType::Float32 => DataType::Float,
        ArrowType::Float64 => DataType::Double,
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::String,
        ArrowType::Timestamp(TimeUnit::Millisecond, None) => DataType::Timestamp,
        ArrowType::Date32 => DataType::Date,
        ArrowType::List(item) => DataType::Array(Box::new(data_type(item.data_type())?)),
        ArrowType::Map(entries, _) => {
            let ArrowType::Struct(fields) = entries.data_type() else { return None };
            let [key, value] = fields.as_ref() else { return None };
            DataType::Map(
                Box::new(data_type(key.data_type())?),
                Box::new(data_type(value.data_type())?),
            )
        }
        _ => return None,
    })
}

/// Returns the columns of a table as an Arrow schema; a NOT NULL column is not nullable there either.
pub fn arrow_schema(schema: &TableSchema) -> SchemaRef {
    let fields: Fields = schema
        .columns
        .iter()
        .map(|column| Field::new(&column.name, arrow_type(&column.data_type), column.nullable))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Returns the field of an ARRAY's elements.
fn item_field(element: &DataType) -> FieldRef {
    Arc::new(Field::new("item", arrow_type(element), true))
}

/// Returns the field of a MAP's entries.
fn entries_field(key: &DataType, value: &DataType) -> FieldRef {
    let fields = ArrowType::Struct(entry_fields(key, value));
    Arc::new(Field::new("entries", fields, false))
}

/// Returns the fields of a MAP's entry.
fn entry_fields(key: &DataType, value: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("keys", arrow_type(key), false),
        Field::new("values", arrow_type(value), true),
    ])
}

#[cfg(test)]
mod tests;

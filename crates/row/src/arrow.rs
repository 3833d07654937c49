//! Types and values to and from Arrow.
//!
//! Everything that runs over columns goes through here: one image of each type of the dialect
//! ([`arrow_type`]), a reader that gives a column's values as [`Datum`](crate::Datum)s and a
//! builder that takes them back. Columns of users, which come in more types than the dialect has,
//! are brought into that image by [`import_array`]. Knows no expression and no plan.

mod builder;
mod import;
mod reader;

use std::sync::Arc;

use arrow::datatypes::{
    DataType as ArrowType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit,
};

pub use builder::ColumnBuilder;
pub use import::{
    ImportError, import_array, importable, in_milliseconds, is_finer_than_milliseconds,
    with_one_nan,
};
pub use reader::ColumnReader;

use crate::{DataType, TableSchema};

/// The image of a type: TIMESTAMP is milliseconds without a zone, STRING is `Utf8`, the elements
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

/// The type whose image this is; `None` for an Arrow type that is no image. The names and the
/// nullability of inner fields do not matter, and neither do the two other layouts of text that
/// Arrow has, which [`ColumnReader`] reads as well.
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

/// The columns of a table as an Arrow schema; a NOT NULL column is not nullable there either.
pub fn arrow_schema(schema: &TableSchema) -> SchemaRef {
    let fields: Fields = schema
        .columns
        .iter()
        .map(|column| Field::new(&column.name, arrow_type(&column.data_type), column.nullable))
        .collect();
    Arc::new(Schema::new(fields))
}

fn item_field(element: &DataType) -> FieldRef {
    Arc::new(Field::new("item", arrow_type(element), true))
}

fn entries_field(key: &DataType, value: &DataType) -> FieldRef {
    let fields = ArrowType::Struct(entry_fields(key, value));
    Arc::new(Field::new("entries", fields, false))
}

fn entry_fields(key: &DataType, value: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("keys", arrow_type(key), false),
        Field::new("values", arrow_type(value), true),
    ])
}

#[cfg(test)]
mod tests;

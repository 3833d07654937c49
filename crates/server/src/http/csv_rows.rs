//! Rows of a table from CSV with a header: RFC 4180, in the forms in which CSV is written.
//!
//! An empty field is NULL, in a STRING column too; a TIMESTAMP is a number of milliseconds or ISO 8601
//! text, a DATE ISO 8601 text.

use std::sync::Arc;

use arrow::{
    array::StringArray,
    csv::{ReaderBuilder, reader::Format},
    datatypes::{DataType as ArrowType, Field, Schema},
    error::ArrowError,
};
use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::Conversion;
use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    error::{HttpError, HttpResult},
    json_rows::JsonRow,
};

/// The rows that are read at once.
const ROWS_AT_ONCE: usize = 4_096;

/// The columns of a table, and how their values are converted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsvSchema<'s> {
    pub(crate) columns: &'s [(String, DataType)],
    pub(crate) conversion: Conversion,
}

impl CsvSchema<'_> {
    /// Reads the rows of a body, each passed to `give`.
    pub(crate) fn read(
        self,
        body: &[u8],
        mut give: impl FnMut(&JsonRow<'_>) -> HttpResult<()>,
    ) -> HttpResult<()> {
        let header = Format::default().with_header(true).infer_schema(body, Some(0));
        let (header, _) = header.map_err(|error| malformed(&error))?;
        let names: Vec<&str> = header.fields().iter().map(|field| field.name().trim()).collect();
        let positions: Vec<usize> =
            names.iter().map(|name| self.find(name)).collect::<HttpResult<_>>()?;
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(*name, ArrowType::Utf8, true)).collect();
        let builder = ReaderBuilder::new(Arc::new(Schema::new(fields)));
        let builder = builder.with_header(true).with_batch_size(ROWS_AT_ONCE);
        let reader = builder.build(body).map_err(|error| malformed(&error))?;
        let mut present = vec![false; self.columns.len()];
        for position in &positions {
            if std::mem::replace(&mut present[*position], true) {
                let message =
                    format!("the header has column `{}` twice", self.columns[*position].0);
                return Err(Diagnostic::new(code::AMBIGUOUS_COLUMN, message).into());
            }
        }
        let mut line = 1;
        for batch in reader {
            let batch = batch.map_err(|error| malformed(&error))?;
            let texts: Vec<&StringArray> = (0..names.len())
                .map(|at| batch.column(at).as_any().downcast_ref())
                .collect::<Option<_>>()
                .expect("the schema says that all columns are texts");
            for row in 0..batch.num_rows() {
                line += 1;
                let arena = Arena::new();
                let values = arena.alloc_slice_fill_copy(self.columns.len(), Datum::Null);
                for (column, position) in texts.iter().zip(&positions) {
                    // NULL is stored as an empty text.
                    values[*position] = self.value(column.value(row), *position, line, &arena)?;
                }
                give(&JsonRow { values, present: &present })?;
            }
        }
        Ok(())
    }

    /// Finds a column of the header.
    fn find(self, name: &str) -> HttpResult<usize> {
        let found = self.columns.iter().position(|(column, _)| column == name);
        found.ok_or_else(|| {
            let message = format!("the table has no column `{name}`");
            let names = self.columns.iter().map(|(name, _)| name.as_str());
            Diagnostic::new(code::UNDEFINED_COLUMN, message).with_nearest(name, names).into()
        })
    }

    /// Reads a field.
    fn value<'a>(
        self,
        text: &str,
        position: usize,
        line: usize,
        arena: &'a Arena,
    ) -> HttpResult<Datum<'a>> {
        if text.is_empty() {
            return Ok(Datum::Null);
        }
        let (name, data_type) = &self.columns[position];
        self.read_text(text, data_type, arena).ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            let message = format!("column `{name}` is {data_type}, '{shown}' is not");
            Diagnostic::new(code::INVALID_TEXT, message)
                .with_kind(Kind::FixData)
                .with_detail(format!(
                    "It is in row {line} of the body, the header being the first."
                ))
                .into()
        })
    }

    fn read_text<'a>(
        self,
        text: &str,
        data_type: &DataType,
        arena: &'a Arena,
    ) -> Option<Datum<'a>> {
        match data_type {
            DataType::String => Some(Datum::String(arena.alloc_str(text))),
            DataType::Bool => text.to_ascii_lowercase().parse().ok().map(Datum::Bool),
            DataType::SmallInt => text.parse().ok().map(Datum::SmallInt),
            DataType::Int => text.parse().ok().map(Datum::Int),
            DataType::BigInt => text.parse().ok().map(Datum::BigInt),
            DataType::Float => text.parse().ok().map(Datum::Float),
            DataType::Double => text.parse().ok().map(Datum::Double),
            DataType::Timestamp | DataType::Date => {
                match (text.parse().ok(), self.conversion.read_text(text, data_type)) {
                    (Some(ms), _) if *data_type == DataType::Timestamp => {
                        Some(Datum::Timestamp(ms))
                    }
                    (_, Some(Value::Timestamp(ms))) => Some(Datum::Timestamp(ms)),
                    (_, Some(Value::Date(days))) => Some(Datum::Date(days)),
                    _ => None,
                }
            }
            DataType::Null | DataType::Array(_) | DataType::Map(..) => None,
        }
    }
}

fn malformed(error: &ArrowError) -> HttpError {
    let message = format!("the body is not CSV with a header: {error}");
    Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).into()
}

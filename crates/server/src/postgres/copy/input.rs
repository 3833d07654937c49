//! The rows of a COPY FROM: from the bytes of the client to batches for the engine.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema},
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::{
    DataType, Datum, Value,
    arrow::{ColumnBuilder, arrow_type},
};

use super::{BinaryReader, CopyFormat, CopyHeader, CopyTarget, TextReader};
use crate::postgres::{types::oid_of, value_input::InputRules};

/// The bytes of the client from which a batch is stored.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// The reader of a format.
#[derive(Debug)]
pub(crate) enum CopyRowReader {
    Text(TextReader),
    Binary(BinaryReader),
}

/// Rows that are being read.
#[derive(Debug)]
pub(crate) struct CopyInput {
    reader: Option<CopyRowReader>,
    rows: PendingRows,
}

/// Rows that were read and not stored.
#[derive(Debug)]
struct PendingRows {
    table: String,
    columns: Vec<(String, DataType)>,
    rules: InputRules,
    builders: Vec<ColumnBuilder>,
    count: usize,
    bytes: usize,
    /// The number of the row, from 1, for messages.
    line: u64,
}

impl CopyInput {
    /// Begins a COPY into a table with these columns.
    pub(crate) fn new(
        target: &CopyTarget,
        table: &[(String, DataType)],
        rules: InputRules,
    ) -> Result<Self> {
        let columns = match &target.columns {
            None => table.to_vec(),
            Some(names) => names
                .iter()
                .map(|name| {
                    let found = table.iter().find(|(column, _)| column == name).cloned();
                    found.map_or_else(|| no_column(name, table, target), Ok)
                })
                .collect::<Result<Vec<_>>>()?,
        };
        let reader = match target.options.format {
            CopyFormat::Binary => CopyRowReader::Binary(BinaryReader::default()),
            CopyFormat::Text | CopyFormat::Csv => {
                let names = columns.iter().map(|(name, _)| name.clone()).collect();
                CopyRowReader::Text(TextReader::new(target.options.clone(), names))
            }
        };
        let rows = PendingRows {
            table: target.table.clone(),
            builders: builders(&columns),
            columns,
            rules,
            count: 0,
            bytes: 0,
            line: u64::from(target.options.header != CopyHeader::No),
        };
        Ok(Self { reader: Some(reader), rows })
    }

    /// Returns the number of columns of a row.
    pub(crate) fn column_count(&self) -> usize {
        self.rows.columns.len()
    }

    /// Takes bytes. A row of more than `row_bytes_max` is refused.
    pub(crate) fn push(&mut self, part: &[u8], row_bytes_max: u64) -> Result<()> {
        let Self { reader, rows } = self;
        rows.bytes += part.len();
        let buffered = match reader {
            Some(CopyRowReader::Text(reader)) => {
                reader.push(part, |fields| rows.push_text(&fields))?;
                reader.buffered()
            }
            Some(CopyRowReader::Binary(reader)) => {
                reader.push(part, |fields| {
                    let fields: Vec<Option<&[u8]>> = fields.iter().map(Option::as_deref).collect();
                    rows.push_binary(&fields)
                })?;
                reader.buffered()
            }
            None => 0,
        };
        if u64::try_from(buffered).is_ok_and(|bytes| bytes > row_bytes_max) {
            let message = "row exceeds limits.body_bytes_max";
            return Diagnostic::new(code::VALUE_TOO_LARGE, message).err();
        }
        Ok(())
    }

    /// Takes the last row.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.reader.take() {
            Some(CopyRowReader::Text(mut reader)) => {
                reader.finish(|fields| self.rows.push_text(&fields))
            }
            Some(CopyRowReader::Binary(reader)) => reader.finish(),
            None => Ok(()),
        }
    }

    /// Returns the rows that were read, if they fill a batch or everything was read.
    pub(crate) fn take_batch(&mut self) -> Result<Option<RecordBatch>> {
        let is_due = self.rows.bytes >= BATCH_BYTES || self.reader.is_none();
        if !is_due || self.rows.count == 0 {
            return Ok(None);
        }
        self.rows.take().map(Some)
    }
}

fn builders(columns: &[(String, DataType)]) -> Vec<ColumnBuilder> {
    columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 0)).collect()
}

fn no_column<T>(name: &str, table: &[(String, DataType)], target: &CopyTarget) -> Result<T> {
    let message = format!("column `{name}` of table `{}` does not exist", target.table);
    Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .at(target.span)
        .with_nearest(name, table.iter().map(|(name, _)| name.as_str()))
        .err()
}

impl PendingRows {
    fn push_text(&mut self, fields: &[Option<String>]) -> Result<()> {
        self.push_row(fields.len(), |at, data_type, rules| match &fields[at] {
            None => Ok(Value::Null),
            Some(text) => rules.read_text(text, data_type),
        })
    }

    fn push_binary(&mut self, fields: &[Option<&[u8]>]) -> Result<()> {
        self.push_row(fields.len(), |at, data_type, rules| match fields[at] {
            None => Ok(Value::Null),
            Some(bytes) => rules.read_binary(bytes, oid_of(data_type)),
        })
    }

    fn push_row(
        &mut self,
        count: usize,
        read: impl Fn(usize, &DataType, &InputRules) -> Result<Value>,
    ) -> Result<()> {
        self.line += 1;
        if count != self.columns.len() {
            let (message, code) = match self.columns.get(count) {
                Some((name, _)) => {
                    (format!("missing data for column `{name}`"), code::BAD_COPY_FORMAT)
                }
                None => ("extra data after last expected column".to_owned(), code::BAD_COPY_FORMAT),
            };
            let detail = format!("COPY {}, line {}", self.table, self.line);
            return Diagnostic::new(code, message)
                .with_kind(Kind::FixData)
                .with_detail(detail)
                .err();
        }
        let mut values = Vec::with_capacity(count);
        for (at, (name, data_type)) in self.columns.iter().enumerate() {
            let value = read(at, data_type, &self.rules).map_err(|error| {
                let (table, line) = (&self.table, self.line);
                let detail = format!("COPY {table}, line {line}, column `{name}`");
                Box::new(error.with_detail(detail))
            })?;
            values.push(value);
        }
        for (builder, value) in self.builders.iter_mut().zip(&values) {
            builder.push(value.as_scalar().unwrap_or(Datum::Null));
        }
        self.count += 1;
        Ok(())
    }

    fn take(&mut self) -> Result<RecordBatch> {
        let field =
            |(name, data_type): &(String, DataType)| Field::new(name, arrow_type(data_type), true);
        let schema = Schema::new(self.columns.iter().map(field).collect::<Vec<_>>());
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        (self.count, self.bytes) = (0, 0);
        RecordBatch::try_new(Arc::new(schema), arrays)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))
    }
}

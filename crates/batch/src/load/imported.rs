//! The columns of files that have types of Arrow, as columns of the dialect.
//!
//! `parquet` and `arrow_file` pass it the batches of a file. A value that the column's type cannot
//! hold exactly is an error (`lockstep_row::arrow::import_array`), except that times are truncated
//! to the millisecond.

use std::sync::Arc;

use ::arrow::{
    array::{Array, ArrayRef, RecordBatch},
    datatypes::SchemaRef,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::arrow::{
    ColumnBuilder, ImportError, import_array, importable, in_milliseconds,
    is_finer_than_milliseconds,
};

use super::{
    LoadTarget,
    columns::{ColumnMapping, Note, match_columns},
    location::InputFile,
};

/// Converts the batches of one file.
#[derive(Debug)]
pub(super) struct FileImport {
    target: Arc<LoadTarget>,
    file: InputFile,
    /// For each column of the table its column of the file, if there is one.
    of_file: Vec<Option<usize>>,
    /// The columns of the file that are read, in the order of the file.
    read: Vec<usize>,
    rows_read: usize,
    notes: Vec<Note>,
}

impl FileImport {
    /// Finds the table's columns in a file with this schema.
    pub(super) fn new(
        target: Arc<LoadTarget>,
        file: InputFile,
        file_schema: &SchemaRef,
    ) -> Result<Self> {
        let names: Vec<String> =
            file_schema.fields().iter().map(|field| field.name().clone()).collect();
        let mapping = match_columns(&target, &file, &names)?;
        Self::of_mapping(target, file, mapping)
    }

    /// Takes the columns that were found in a file.
    pub(super) fn of_mapping(
        target: Arc<LoadTarget>,
        file: InputFile,
        mapping: ColumnMapping,
    ) -> Result<Self> {
        let ColumnMapping { sources: mut of_file, notes } = mapping;
        // Metadata has the last word on the values that it gives.
        for (column, source) in target.schema.columns.iter().zip(&mut of_file) {
            if file.value(&column.name).is_some() {
                *source = None;
            }
        }
        target.check_defaults(&of_file, &file)?;
        let mut read: Vec<usize> =
            target.columns.iter().filter_map(|column| of_file[*column]).collect();
        read.sort_unstable();
        read.dedup();
        Ok(Self { target, file, of_file, read, rows_read: 0, notes })
    }

    /// Returns the positions of the file's columns that its batches shall have, ascending.
    pub(super) fn read(&self) -> &[usize] {
        &self.read
    }

    /// Returns the column of the file that a column of the table is.
    pub(super) fn of_file(&self, column: usize) -> Option<usize> {
        self.of_file[column]
    }

    /// Returns what is read of it.
    pub(super) fn target(&self) -> &LoadTarget {
        &self.target
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &InputFile {
        &self.file
    }

    /// Converts the next batch of the file, which has the columns of [`Self::read`].
    pub(super) fn batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        debug_assert_eq!(batch.num_columns(), self.read.len(), "a batch has the wanted columns");
        let target = Arc::clone(&self.target);
        let columns = target.columns.iter().map(|column| self.column(batch, *column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        self.rows_read += batch.num_rows();
        target.batch(columns, batch.num_rows())
    }

    /// Returns the notes about the file's columns since the last call.
    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn column(&mut self, batch: &RecordBatch, column: usize) -> Result<ArrayRef> {
        let target = &self.target.schema.columns[column];
        let of_file = self.of_file[column].and_then(|column| self.read.binary_search(&column).ok());
        let Some(position) = of_file else {
            let value = self.target.default_of(column, &self.file)?;
            let mut builder = ColumnBuilder::new(&target.data_type, batch.num_rows());
            (0..batch.num_rows()).for_each(|_| builder.push(value));
            return Ok(builder.finish());
        };
        let given = batch.column(position);
        if is_finer_than_milliseconds(given) {
            self.notes.push(Note::Cut(target.name.clone()));
        }
        let imported =
            import_array(&in_milliseconds(given), &target.data_type).map_err(|error| {
                let at = match &error {
                    ImportError::Inexact { row, .. } => {
                        format!(", row {}", self.rows_read + row + 1)
                    }
                    ImportError::Unsupported { .. } => String::new(),
                };
                self.error(code::BAD_COPY_FORMAT, &target.name, &at, &describe(&error))
            })?;
        if !target.nullable && imported.logical_null_count() > 0 {
            let nulls = imported.logical_nulls();
            let first = nulls.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row)));
            let at = format!(", row {}", self.rows_read + first.unwrap_or(0) + 1);
            let what = "null value violates not-null constraint";
            return Err(self.error(code::NOT_NULL_VIOLATION, &target.name, &at, what));
        }
        Ok(imported)
    }

    fn error(&self, code: &'static str, column: &str, at: &str, what: &str) -> Box<Diagnostic> {
        let message = format!("file `{}`{at}: column `{column}`: {what}", self.file);
        Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
    }
}

fn describe(error: &ImportError) -> String {
    match error {
        ImportError::Unsupported { from, to } => {
            let from = importable(from).map_or_else(|| from.to_string(), |known| known.to_string());
            format!("cannot convert values of type {from} to {to}")
        }
        ImportError::Inexact { to, .. } => format!("the value cannot be converted to {to} exactly"),
    }
}

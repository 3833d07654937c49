//! The reader of Parquet files.
//!
//! Columns of the file without a match are not read. A value that the column's type cannot hold
//! exactly is an error (`lockstep_row::arrow::import_array`), except that times are truncated to
//! the millisecond.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ::arrow::{
    array::{Array, ArrayRef, RecordBatch},
    datatypes::SchemaRef,
};
use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    errors::ParquetError,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::arrow::{
    ColumnBuilder, ImportError, import_array, in_milliseconds, is_finer_than_milliseconds,
};

use super::{
    FILE_BATCH_ROWS, FileReader, LoadTarget, Skipped,
    columns::{ColumnMapping, Note, match_columns},
};
use crate::error::{from_arrow, from_io};

/// An open Parquet file.
#[derive(Debug)]
pub(super) struct ParquetFile {
    target: Arc<LoadTarget>,
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    /// For each column of the table its position in the reader's batches, if it is there.
    sources: Vec<Option<usize>>,
    rows_read: usize,
    /// The notes about its columns.
    notes: Vec<Note>,
}

/// Opens a file and reads its schema.
pub(crate) fn open_file(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<std::fs::File>> {
    let file = lockstep_host::disk::open(path).map_err(|error| from_io(&error, "read", path))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| from_parquet(&error, path))
}

/// Returns the error of a file that is not Parquet, or is damaged.
pub(crate) fn from_parquet(error: &ParquetError, path: &Path) -> Box<Diagnostic> {
    let message = format!("file `{}` could not be read as Parquet", path.display());
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("The reader says: {error}."));
    Box::new(diagnostic)
}

impl ParquetFile {
    /// Opens a file and finds the table's columns in it.
    pub(super) fn open(target: Arc<LoadTarget>, path: PathBuf) -> Result<Self> {
        let builder = open_file(&path)?;
        let file_schema: SchemaRef = Arc::clone(builder.schema());
        let names: Vec<String> =
            file_schema.fields().iter().map(|field| field.name().clone()).collect();
        let ColumnMapping { sources: found, notes } = match_columns(&target, &path, &names)?;
        debug_assert_eq!(
            found.len(),
            target.schema.columns.len(),
            "each column has a source or a default"
        );
        for (column, source) in found.iter().enumerate() {
            if source.is_none() {
                target.default_of(column, &path)?;
            }
        }
        // The reader returns columns in the order of the file, whatever the order of the mask.
        let mut read: Vec<usize> = found.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();
        let position = |source: usize| read.binary_search(&source).ok();
        let sources = found.iter().map(|source| source.and_then(position)).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), read);
        let reader = builder
            .with_projection(mask)
            .with_batch_size(FILE_BATCH_ROWS)
            .build()
            .map_err(|error| from_parquet(&error, &path))?;
        Ok(Self { target, path, reader, sources, rows_read: 0, notes })
    }

    fn import(&mut self, batch: &RecordBatch, column: usize) -> Result<ArrayRef> {
        let target = &self.target.schema.columns[column];
        let Some(source) = self.sources[column] else {
            let value = self.target.default_of(column, &self.path)?;
            let mut builder = ColumnBuilder::new(&target.data_type, batch.num_rows());
            (0..batch.num_rows()).for_each(|_| builder.push(value));
            return Ok(builder.finish());
        };
        let given = batch.column(source);
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
            let what = "it does not take NULL";
            return Err(self.error(code::NOT_NULL_VIOLATION, &target.name, &at, what));
        }
        Ok(imported)
    }

    fn error(&self, code: &'static str, column: &str, at: &str, what: &str) -> Box<Diagnostic> {
        let message = format!("file `{}`{at}: column `{column}`: {what}", self.path.display());
        Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
    }
}

fn describe(error: &ImportError) -> String {
    match error {
        ImportError::Unsupported { from, to } => {
            let from = lockstep_row::arrow::importable(from)
                .map_or_else(|| from.to_string(), |known| known.to_string());
            format!("its values, which are {from}, cannot become {to}")
        }
        ImportError::Inexact { to, .. } => format!("the value does not fit {to} exactly"),
    }
}

impl FileReader for ParquetFile {
    fn next_batch(&mut self, _: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.reader.next() else { return Ok(None) };
        let batch = batch.map_err(|error| {
            from_parquet(&ParquetError::ArrowError(error.to_string()), &self.path)
        })?;
        let columns = 0..self.sources.len();
        let columns =
            columns.map(|column| self.import(&batch, column)).collect::<Result<Vec<_>>>()?;
        self.rows_read += batch.num_rows();
        let imported = RecordBatch::try_new(Arc::clone(&self.target.arrow_schema), columns);
        imported.map(Some).map_err(|error| from_arrow(&error))
    }

    fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

//! Loading of CSV and Parquet files: rows for a table, or the schema of a table for them.
//!
//! `engine` reads a file batch by batch and appends the rows; nothing here stores anything. A path
//! may name one file, a directory of files, or a pattern with `*` and `?`; several files are read
//! in the order of their names.

mod columns;
mod csv;
mod infer;
mod parquet;
mod paths;

use std::{
    collections::VecDeque,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::Settings;
use lockstep_row::{Datum, TableSchema, arrow::arrow_schema};

use serde::{Deserialize, Serialize};

use self::columns::Note;
pub use columns::{ColumnMatch, UnknownColumns};
pub use infer::infer_schema;
pub(crate) use parquet::{from_parquet as parquet_error, open_file as open_parquet};

/// The most rows in a batch of a file.
pub(crate) const FILE_BATCH_ROWS: usize = 8192;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum FileFormat {
    /// Comma separated values, UTF-8.
    #[default]
    Csv,
    /// Apache Parquet.
    Parquet,
}

impl FileFormat {
    /// Finds the format of a name (`csv`, `parquet`), in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// The handling of malformed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OnError {
    /// The load ends with an error.
    #[default]
    Fail,
    /// The row is counted and skipped.
    Skip,
}

/// The format options of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvOptions {
    /// The byte between fields.
    pub delimiter: u8,
    /// Whether the first line names the columns.
    pub header: bool,
    /// The text of NULL; in quotes, it is a STRING. An empty field of a column that is not STRING
    /// is NULL too.
    pub null_value: String,
    /// The quote character, doubled within a quoted field. `None`: fields are never quoted.
    pub quote: Option<u8>,
    /// The handling of malformed rows.
    pub on_error: OnError,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: b',',
            header: true,
            null_value: "null".to_owned(),
            quote: Some(b'"'),
            on_error: OnError::Fail,
        }
    }
}

/// The options of reading files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadOptions {
    /// Their format.
    pub format: FileFormat,
    /// The format options of CSV.
    pub csv: CsvOptions,
    /// How their columns are matched with those of the table.
    pub columns: ColumnMatch,
    /// The handling of columns that the table does not have.
    pub unknown_columns: UnknownColumns,
}

/// Opens files that hold rows of a table. The batches have the table's columns in its order; a
/// column that a file does not have takes its default, or NULL, and a warning says so.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
pub fn read_file(
    path: &str,
    options: &LoadOptions,
    schema: &TableSchema,
    settings: &Settings,
) -> Result<FileRows> {
    let target = LoadTarget {
        arrow_schema: arrow_schema(schema),
        schema: schema.clone(),
        options: options.clone(),
        settings: *settings,
    };
    Ok(FileRows {
        target: Arc::new(target),
        waiting: paths::expand(path)?.into(),
        open: None,
        skipped: Skipped::default(),
        notes: Vec::new(),
    })
}

/// The table that rows are read for, and the options of reading.
#[derive(Debug)]
struct LoadTarget {
    schema: TableSchema,
    arrow_schema: SchemaRef,
    options: LoadOptions,
    settings: Settings,
}

impl LoadTarget {
    /// Returns the value of a column that a file does not have: its default, or NULL; an error when
    /// the column has no default and does not take NULL.
    fn default_of(&self, column: usize, path: &Path) -> Result<Datum<'_>> {
        let column = &self.schema.columns[column];
        match column.default.as_ref().and_then(lockstep_row::Value::as_scalar) {
            Some(value) => Ok(value),
            None if column.nullable => Ok(Datum::Null),
            None => Diagnostic::new(
                lockstep_diagnostic::code::NOT_NULL_VIOLATION,
                format!("file `{}` has no column `{}`", path.display(), column.name),
            )
            .with_kind(lockstep_diagnostic::Kind::FixData)
            .with_detail("The column does not take NULL and has no default.")
            .err(),
        }
    }
}

/// The malformed rows that were skipped.
#[derive(Debug, Default)]
struct Skipped {
    count: u64,
    first: Option<Box<Diagnostic>>,
}

impl Skipped {
    fn add(&mut self, diagnostic: Box<Diagnostic>) {
        self.count += 1;
        self.first.get_or_insert(diagnostic);
    }
}

/// A reader of one open file.
trait FileReader: fmt::Debug + Send {
    /// Returns the next rows; `None` at the end. Counts skipped rows in `skipped`.
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>>;

    /// Returns the notes about its columns since the last call.
    fn take_notes(&mut self) -> Vec<Note>;
}

/// The rows of one or more files, batch by batch. After an error there are no more.
#[derive(Debug)]
pub struct FileRows {
    target: Arc<LoadTarget>,
    waiting: VecDeque<PathBuf>,
    open: Option<(PathBuf, Box<dyn FileReader>)>,
    skipped: Skipped,
    /// The notes about the files' columns, each with the first file that it is about.
    notes: Vec<(Note, PathBuf)>,
}

impl FileRows {
    /// Returns the schema of the batches: the Arrow image of the table's.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.target.arrow_schema)
    }

    /// Returns the number of malformed rows skipped so far.
    pub fn skipped_count(&self) -> u64 {
        self.skipped.count
    }

    /// Returns the error of the first row that was skipped.
    pub fn first_skipped(&self) -> Option<&Diagnostic> {
        self.skipped.first.as_deref()
    }

    /// Returns warnings about columns and parts of values that were ignored so far.
    pub fn warnings(&self) -> impl Iterator<Item = Diagnostic> {
        self.notes.iter().map(|(note, path)| note.warning(path))
    }

    /// Opens every file and checks its columns, without reading rows.
    pub fn check(mut self) -> Result<Vec<Diagnostic>> {
        while let Some(path) = self.waiting.pop_front() {
            self.open_file(path)?;
        }
        Ok(self.warnings().collect())
    }

    fn open_file(&mut self, path: PathBuf) -> Result<(PathBuf, Box<dyn FileReader>)> {
        let target = Arc::clone(&self.target);
        let mut reader: Box<dyn FileReader> = match self.target.options.format {
            FileFormat::Csv => Box::new(csv::CsvFile::open(target, path.clone())?),
            FileFormat::Parquet => Box::new(parquet::ParquetFile::open(target, path.clone())?),
        };
        self.note(reader.take_notes(), &path);
        Ok((path, reader))
    }

    /// Records the notes that are new.
    fn note(&mut self, notes: Vec<Note>, path: &Path) {
        for note in notes {
            if self.notes.iter().all(|(known, _)| *known != note) {
                self.notes.push((note, path.to_path_buf()));
            }
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some((path, mut reader)) = self.open.take() {
                let batch = reader.next_batch(&mut self.skipped)?;
                self.note(reader.take_notes(), &path);
                if batch.is_some() {
                    self.open = Some((path, reader));
                    return Ok(batch);
                }
            }
            let Some(path) = self.waiting.pop_front() else { return Ok(None) };
            self.open = Some(self.open_file(path)?);
        }
    }
}

impl Iterator for FileRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        if next.is_err() {
            self.open = None;
            self.waiting.clear();
        }
        next.transpose()
    }
}

#[cfg(test)]
mod tests;

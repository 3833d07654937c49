//! CSV and Parquet files in: rows for a table, or the columns that a table for them would have.
//!
//! `engine` reads a file batch by batch and appends what it gets; nothing here stores anything.
//! A path may name one file, a directory of files, or a pattern with `*` and `?`; several files
//! are read in the order of their names.

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

use self::columns::Note;
pub use columns::{ColumnMatch, UnknownColumns};
pub use infer::infer_schema;
pub(crate) use parquet::{from_parquet as parquet_error, open_file as open_parquet};

/// How many rows a batch of a file holds at most.
pub(crate) const FILE_BATCH_ROWS: usize = 8192;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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

/// What happens to a row of a file that is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The load ends with an error.
    #[default]
    Fail,
    /// The row is counted and left out.
    Skip,
}

/// How a CSV file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    /// Between the fields.
    pub delimiter: u8,
    /// Whether the first line names the columns.
    pub header: bool,
    /// The text that stands for NULL; in quotes, a STRING is that text. An empty field of a column that is not STRING is NULL too.
    pub null_value: String,
    /// Around a field; twice within it for itself. `None`: no character quotes.
    pub quote: Option<u8>,
    /// What to do with malformed rows.
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

/// How to read files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// What they hold.
    pub format: FileFormat,
    /// How they are written, if they are CSV.
    pub csv: CsvOptions,
    /// How their columns find those of the table.
    pub columns: ColumnMatch,
    /// What happens to columns that the table does not have.
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
    let target = Target {
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

/// What rows are read for.
#[derive(Debug)]
struct Target {
    schema: TableSchema,
    arrow_schema: SchemaRef,
    options: LoadOptions,
    settings: Settings,
}

impl Target {
    /// What a column that a file lacks is filled with; an error when it may not be missing.
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

/// The malformed rows that were left out.
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

/// One open file.
trait FileReader: fmt::Debug + Send {
    /// The next rows; `None` at the end. Skipped rows are told to `skipped`.
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>>;

    /// What there is to say of its columns.
    fn take_notes(&mut self) -> Vec<Note>;
}

/// The rows of one or more files, batch by batch. After an error there are no more.
#[derive(Debug)]
pub struct FileRows {
    target: Arc<Target>,
    waiting: VecDeque<PathBuf>,
    open: Option<(PathBuf, Box<dyn FileReader>)>,
    skipped: Skipped,
    /// What there was to say of the files' columns, each with the first file that gave rise to it.
    notes: Vec<(Note, PathBuf)>,
}

impl FileRows {
    /// The schema of the batches: the Arrow image of the table's.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.target.arrow_schema)
    }

    /// How many malformed rows were left out so far.
    pub fn skipped_count(&self) -> u64 {
        self.skipped.count
    }

    /// What was wrong with the first row that was left out.
    pub fn first_skipped(&self) -> Option<&Diagnostic> {
        self.skipped.first.as_deref()
    }

    /// What was left out so far, and nobody asked to leave out.
    pub fn warnings(&self) -> impl Iterator<Item = Diagnostic> {
        self.notes.iter().map(|(note, path)| note.warning(path))
    }

    /// Opens every file and looks at its columns, without reading rows.
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

    /// Keeps what is said for the first time.
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

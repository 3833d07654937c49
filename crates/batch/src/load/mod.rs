//! Reading of files: rows for a table, the schema of a table for them, or a source of a query.
//!
//! `engine` reads a file batch by batch and appends the rows, and `source` reads them for a query;
//! nothing here stores anything. A path may name one file, a directory of files, a pattern with `*`
//! and `?`, or either in an object store; several files are read in the order of their names.

mod arrow_file;
mod columns;
mod csv;
mod csv_records;
mod found;
mod imported;
mod infer;
mod json;
mod lake;
mod location;
mod parquet;
mod paths;
mod prune;
mod remote;

use std::{collections::VecDeque, fmt, sync::Arc};

use ::arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::Settings;
use lockstep_row::{
    Datum, TableSchema,
    arrow::{ColumnBuilder, arrow_schema},
};

use serde::{Deserialize, Serialize};

use self::columns::{ColumnIdentity, Note};
use crate::error::from_arrow;
pub use columns::{ColumnMatch, UnknownColumns};
pub use csv_records::{CsvCharacters, CsvError, CsvRecords, TEXT_AFTER_QUOTE, read_field};
pub use found::{FileMark, FoundFile, SkippedRow, find_files};
pub use infer::infer_schema;
pub(crate) use infer::{InferredFiles, infer_files};
pub(crate) use lake::find_lake_files;
pub use lake::{LakeVersion, PermitFile};
pub(crate) use location::{BytesRead, InputFile};
pub(crate) use parquet::open_file as open_parquet;
pub(crate) use paths::NULL_FOLDER;
pub(crate) use prune::Pruning;

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
    /// A JSON object on each line, UTF-8.
    Json,
    /// Arrow IPC, a file or a stream.
    Arrow,
}

impl FileFormat {
    /// Finds the format of a name (`csv`, `parquet`, `json`, `arrow`), in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            "json" => Some(Self::Json),
            "arrow" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Json => "json",
            Self::Arrow => "arrow",
        }
    }

    /// Finds the format that the end of a path or pattern names, also before `.gz` and `.zst`.
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst"));
        let plain = plain.unwrap_or(&name);
        Some(match plain.rsplit_once('.')?.1 {
            "csv" | "tsv" | "txt" => Self::Csv,
            "parquet" | "pq" => Self::Parquet,
            "json" | "jsonl" | "ndjson" => Self::Json,
            "arrow" | "feather" | "ipc" | "arrows" => Self::Arrow,
            _ => return None,
        })
    }

    /// Returns the byte between the fields of a CSV file, as its name says: a tab in `.tsv`, else a
    /// comma.
    pub fn delimiter_of_path(path: &str) -> u8 {
        let name = path.to_ascii_lowercase();
        let is_tsv = [".tsv", ".tsv.gz", ".tsv.zst"].iter().any(|end| name.ends_with(end));
        if is_tsv { b'\t' } else { b',' }
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
    /// A text that is NULL, as an empty field is; in quotes, either is a STRING.
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
    let target = LoadTarget::of_table(schema, options.clone(), *settings);
    Ok(FileRows::new(target, paths::expand(path)?))
}

/// Reads some columns of files whose columns were inferred, for a query. Files that have other
/// columns than the first are refused, unless their rows shall have NULL there.
pub(crate) fn read_inferred(files: &InferredFiles, wanted: WantedRows) -> Result<FileRows> {
    let WantedRows { columns, pruning } = wanted;
    let target = LoadTarget {
        arrow_schema: Arc::new(
            files.arrow_schema.project(&columns).map_err(|error| from_arrow(&error))?,
        ),
        columns,
        folder_columns: files.folder_columns.clone(),
        schema: files.schema.clone(),
        options: files.options.clone(),
        settings: files.settings,
        absent: files.absent,
        pruning,
        identity: files.identity.clone(),
    };
    debug_assert_eq!(target.arrow_schema.fields().len(), target.columns.len(), "as many fields");
    let pruned = target.pruning.as_ref().map(|pruning| pruning.files(&target, &files.files));
    let is_wanted = |at: &usize| pruned.as_ref().is_none_or(|wanted| wanted[*at]);
    let wanted = (0..files.files.len()).filter(is_wanted).map(|at| files.files[at].clone());
    let wanted = wanted.collect();
    Ok(FileRows::new(target, wanted))
}

/// What a query reads of files.
#[derive(Debug)]
pub(crate) struct WantedRows {
    /// The positions of the columns of its batches, in their order.
    pub(crate) columns: Vec<usize>,
    /// Leaves out parts of the files without a row that the query wants.
    pub(crate) pruning: Option<Pruning>,
}

/// What rows of a file get that does not have a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbsentColumns {
    /// The column's default, or NULL.
    Default,
    /// The file is refused.
    Refused,
}

/// The table that rows are read for, and the options of reading.
#[derive(Debug)]
struct LoadTarget {
    schema: TableSchema,
    /// The positions of the columns that are read.
    columns: Vec<usize>,
    /// The positions of the columns that only the names of folders give.
    folder_columns: Vec<usize>,
    /// The columns that are read.
    arrow_schema: SchemaRef,
    options: LoadOptions,
    settings: Settings,
    absent: AbsentColumns,
    pruning: Option<Pruning>,
    /// What the columns of files are known by.
    identity: ColumnIdentity,
}

impl LoadTarget {
    /// Makes the target of rows that have all columns of a table.
    fn of_table(schema: &TableSchema, options: LoadOptions, settings: Settings) -> Self {
        Self {
            columns: (0..schema.columns.len()).collect(),
            folder_columns: Vec::new(),
            arrow_schema: arrow_schema(schema),
            schema: schema.clone(),
            options,
            settings,
            absent: AbsentColumns::Default,
            pruning: None,
            identity: ColumnIdentity::Name,
        }
    }

    /// Returns the value of a column that a file does not have: what metadata or the name of a folder
    /// says, or its default, or NULL; an error when it has none of them and does not take NULL.
    fn default_of<'v>(&'v self, column: usize, file: &'v InputFile) -> Result<Datum<'v>> {
        let column = &self.schema.columns[column];
        if let Some(value) = file.value(&column.name).and_then(lockstep_row::Value::as_scalar) {
            return Ok(value);
        }
        if let Some(text) = file.folder_value(&column.name) {
            return self.folder_datum(column, text, file);
        }
        let missing = |detail: &str| {
            Diagnostic::new(
                lockstep_diagnostic::code::NOT_NULL_VIOLATION,
                format!("column `{}` does not exist in file `{file}`", column.name),
            )
            .with_kind(lockstep_diagnostic::Kind::FixData)
            .with_detail(detail)
        };
        if self.absent == AbsentColumns::Refused {
            return missing("The first file contains the column.")
                .with_hint("Set union_by_name = true to read NULL for missing columns.")
                .err();
        }
        match column.default.as_ref().and_then(lockstep_row::Value::as_scalar) {
            Some(value) => Ok(value),
            None if column.nullable => Ok(Datum::Null),
            None => missing("The column is NOT NULL and has no default.").err(),
        }
    }

    /// Reads the text that the name of a folder gives to a column.
    fn folder_datum<'v>(
        &self,
        column: &lockstep_row::Column,
        text: Option<&'v str>,
        file: &InputFile,
    ) -> Result<Datum<'v>> {
        let Some(text) = text else { return Ok(Datum::Null) };
        csv_records::read_text(text, &column.data_type, &self.settings).ok_or_else(|| {
            let (name, invalid) = (&column.name, csv::invalid_input(&column.data_type, text));
            let message = format!("file `{file}`: partition column `{name}`: {invalid}");
            let diagnostic = Diagnostic::new(lockstep_diagnostic::code::BAD_COPY_FORMAT, message);
            Box::new(diagnostic.with_kind(lockstep_diagnostic::Kind::FixData))
        })
    }

    /// Fails where a column that is read is neither in a file nor has another value.
    fn check_defaults(&self, sources: &[Option<usize>], file: &InputFile) -> Result<()> {
        debug_assert_eq!(
            sources.len(),
            self.schema.columns.len(),
            "each column has a source or a default"
        );
        let mut absent = self.columns.iter().filter(|column| sources[**column].is_none());
        absent.try_for_each(|column| self.default_of(*column, file).map(drop))
    }

    /// Makes a builder for each column that is read.
    fn builders(&self) -> Vec<ColumnBuilder> {
        let columns = self.columns.iter().map(|column| &self.schema.columns[*column]);
        columns.map(|column| ColumnBuilder::new(&column.data_type, FILE_BATCH_ROWS)).collect()
    }

    /// Makes a batch of the columns that are read.
    fn batch(&self, columns: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        RecordBatch::try_new_with_options(Arc::clone(&self.arrow_schema), columns, &options)
            .map_err(|error| from_arrow(&error))
    }
}

/// The malformed rows that were skipped.
#[derive(Debug, Default)]
struct Skipped {
    count: u64,
    first: Option<Box<Diagnostic>>,
    /// Those of the batch, where they are kept.
    kept: Option<Vec<SkippedRow>>,
}

/// The most characters of a row that are kept.
const KEPT_CHARS_MAX: usize = 1 << 20;

impl Skipped {
    /// Adds a row behind so many of the batch: its file, its line and its text.
    fn add(
        &mut self,
        diagnostic: Box<Diagnostic>,
        rows_before: usize,
        (file, line): (&InputFile, u64),
        text: impl FnOnce() -> String,
    ) {
        self.count += 1;
        if let Some(kept) = &mut self.kept {
            let mut text = text();
            if let Some((end, _)) = text.char_indices().nth(KEPT_CHARS_MAX) {
                text.truncate(end);
            }
            let place = format!("file `{file}`, line {line}: ");
            let reason = diagnostic.message.strip_prefix(&place).unwrap_or(&diagnostic.message);
            kept.push(SkippedRow { rows_before, line, text, reason: reason.to_owned() });
        }
        self.first.get_or_insert(diagnostic);
    }

    /// Returns whether no more rows are to be kept of a batch.
    fn is_full(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.len() >= FILE_BATCH_ROWS)
    }
}

/// A reader of one open file.
trait FileReader: fmt::Debug + Send {
    /// Returns the next rows; `None` at the end. Counts skipped rows in `skipped`.
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>>;

    /// Returns how many bytes of the file were read, or as many as the rows that were read are of all.
    fn bytes_read(&self) -> u64;

    /// Returns the notes about its columns since the last call.
    fn take_notes(&mut self) -> Vec<Note>;
}

/// The rows of one or more files, batch by batch. After an error there are no more.
#[derive(Debug)]
pub struct FileRows {
    target: Arc<LoadTarget>,
    waiting: VecDeque<InputFile>,
    open: Option<(InputFile, Box<dyn FileReader>)>,
    skipped: Skipped,
    /// The bytes of all files, and of those that were read to their end.
    bytes_total: u64,
    bytes_done: u64,
    /// The notes about the files' columns, each with the first file that it is about.
    notes: Vec<(Note, InputFile)>,
}

impl FileRows {
    fn new(target: LoadTarget, files: Vec<InputFile>) -> Self {
        Self {
            target: Arc::new(target),
            bytes_total: files.iter().map(InputFile::size).sum(),
            bytes_done: 0,
            waiting: files.into(),
            open: None,
            skipped: Skipped::default(),
            notes: Vec::new(),
        }
    }

    /// Returns the schema of the batches: the Arrow image of the table's.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.target.arrow_schema)
    }

    /// Returns the size of the files, in bytes.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    /// Returns how many bytes of the files were read so far.
    pub fn bytes_read(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |(_, reader)| reader.bytes_read());
        // A file may grow meanwhile.
        (self.bytes_done + open).min(self.bytes_total)
    }

    /// Returns the number of malformed rows skipped so far.
    pub fn skipped_count(&self) -> u64 {
        self.skipped.count
    }

    /// Returns the error of the first row that was skipped.
    pub fn first_skipped(&self) -> Option<&Diagnostic> {
        self.skipped.first.as_deref()
    }

    /// Takes the malformed rows that were kept of the last batch.
    pub fn take_skipped(&mut self) -> Vec<SkippedRow> {
        self.skipped.kept.as_mut().map(std::mem::take).unwrap_or_default()
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

    fn open_file(&mut self, path: InputFile) -> Result<(InputFile, Box<dyn FileReader>)> {
        let target = Arc::clone(&self.target);
        let mut reader: Box<dyn FileReader> = match self.target.options.format {
            FileFormat::Csv => Box::new(csv::CsvFile::open(target, path.clone())?),
            FileFormat::Parquet => Box::new(parquet::ParquetFile::open(target, path.clone())?),
            FileFormat::Json => Box::new(json::JsonFile::open(target, path.clone())?),
            FileFormat::Arrow => Box::new(arrow_file::ArrowFile::open(target, path.clone())?),
        };
        self.note(reader.take_notes(), &path);
        Ok((path, reader))
    }

    /// Records the notes that are new.
    fn note(&mut self, notes: Vec<Note>, path: &InputFile) {
        for note in notes {
            if self.notes.iter().all(|(known, _)| *known != note) {
                self.notes.push((note, path.clone()));
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
                self.bytes_done += path.size();
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

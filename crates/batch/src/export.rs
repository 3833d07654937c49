//! Export to files of CSV, Parquet, JSON, Arrow IPC, LibSVM and TFRecord, for SELECT … INTO OUTFILE and
//! training sets.
//!
//! `engine` makes an [`Exporter`] and passes it batches. An incomplete file is never visible: it is
//! written under a temporary name in the same directory, and renamed at the end or removed. A file that is
//! replaced keeps its mode, a link to it stays one, and what is no regular file is not replaced
//! ([`Destination`]).

mod csv;
mod destination;
mod folder;
mod format;
mod json;
mod libsvm;
mod parquet_file;
mod text_file;
mod tfrecord;
mod time_text;

use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, Read, Write},
    iter, mem,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
    ipc::{
        CompressionType,
        writer::{FileWriter as IpcWriter, IpcWriteOptions},
    },
    json::{WriterBuilder, writer::LineDelimited},
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::{Settings, scalar::feature_role::FeatureRole};
use lockstep_host::{disk, query};

use destination::{Destination, TEMPORARY_SUFFIX, TemporaryFile, not_created};
pub use folder::{FolderExporter, export_folder};
pub use format::ExportFormat;
use parquet_file::ParquetFileWriter;
use text_file::TextFile;

use crate::{
    error::{from_io, interrupted},
    execute::machine_threads,
    load::{BytesRead, FileFormat, InputFile, open_parquet},
    operator::memory_share,
};

/// The handling of a file that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WriteMode {
    /// The export is refused.
    #[default]
    ErrorIfExists,
    /// The file is replaced.
    Overwrite,
    /// The rows are added after those of the file, which is rewritten.
    Append,
}

impl WriteMode {
    /// Finds the mode of a name (`error_if_exists`, `overwrite`, `append`), in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "error_if_exists" => Some(Self::ErrorIfExists),
            "overwrite" => Some(Self::Overwrite),
            "append" => Some(Self::Append),
            _ => None,
        }
    }
}

/// Which fields of a CSV file are quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Quote {
    /// Fields that could not be read back without quotes, in `"`.
    #[default]
    WhereNeeded,
    /// Every STRING, in this character, which is doubled within a field.
    Texts(u8),
    /// No field: a line is its fields and the delimiters, whatever the fields contain.
    Never,
}

/// The options of writing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportOptions {
    /// The format of the file.
    pub format: ExportFormat,
    /// The handling of a file that exists already.
    pub mode: WriteMode,
    /// CSV: the byte between fields.
    pub delimiter: u8,
    /// CSV: whether the first line names the columns. `None`: only in a file that has no rows yet.
    pub header: Option<bool>,
    /// CSV: the text of NULL, without quotes.
    pub null_value: String,
    /// CSV: which fields are quoted.
    pub quote: Quote,
    /// LibSVM: what each column is to a model; empty for none.
    pub roles: Vec<Option<FeatureRole>>,
    /// How values are printed in CSV: numbers as CAST to STRING prints them; a TIMESTAMP, also in JSON
    /// and the names of folders, as ISO 8601 with milliseconds and the offset of the session's time
    /// zone. With `compatibility =
    /// 'openmldb'`: floats with six digits after the point, a TIMESTAMP as integer milliseconds.
    pub settings: Settings,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            format: ExportFormat::default(),
            mode: WriteMode::default(),
            delimiter: b',',
            header: None,
            null_value: String::new(),
            quote: Quote::default(),
            roles: Vec::new(),
            settings: Settings::default(),
        }
    }
}

/// A writer of one file. Dropped before [`Exporter::finish`], it removes the file.
#[derive(Debug)]
pub struct Exporter {
    path: PathBuf,
    /// The file that is replaced: where `path` is a link, what it leads to.
    target: PathBuf,
    temporary: TemporaryFile,
    mode: WriteMode,
    schema: SchemaRef,
    sink: Sink,
    row_count: u64,
}

/// A file that is complete, under its temporary name. Dropped before [`ClosedFile::publish`], it is
/// removed.
#[derive(Debug)]
struct ClosedFile {
    path: PathBuf,
    target: PathBuf,
    temporary: TemporaryFile,
    mode: WriteMode,
    row_count: u64,
}

enum Sink {
    Csv(csv::CsvWriter, TextFile),
    Parquet(Box<ParquetFileWriter>),
    /// An object on each line; NULL is `null`, NaN and the infinities are words in quotes.
    Json(JsonWriter),
    Arrow(Box<IpcWriter<BufWriter<File>>>),
    Libsvm(Box<libsvm::LibsvmWriter>, TextFile),
    TfRecord(Box<tfrecord::TfRecordWriter>, TextFile),
    Finished,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csv(..) => "Csv",
            Self::Parquet(_) => "Parquet",
            Self::Json(_) => "Json",
            Self::Arrow(_) => "Arrow",
            Self::Libsvm(..) => "Libsvm",
            Self::TfRecord(..) => "TfRecord",
            Self::Finished => "Finished",
        })
    }
}

type JsonWriter = ::arrow::json::Writer<TextFile, LineDelimited>;

impl Exporter {
    /// Starts a file. `names` are the columns' names, which may repeat in CSV; `schema` is that of
    /// the batches.
    pub fn new(
        path: &str,
        names: &[String],
        schema: &Schema,
        options: &ExportOptions,
    ) -> Result<Self> {
        let path = PathBuf::from(path.strip_prefix("file://").unwrap_or(path));
        let destination = Destination::of(&path)?;
        if options.mode == WriteMode::ErrorIfExists && disk::exists(&path) {
            return Err(exists(&path));
        }
        check_compression(&path, options.format)?;
        let created = destination.create();
        let (temporary, file) = created.map_err(|error| not_created(&error, &path))?;
        let mut exporter = Self {
            schema: named_schema(names, schema),
            path,
            target: destination.target,
            temporary,
            mode: options.mode,
            sink: Sink::Finished,
            row_count: 0,
        };
        let append = options.mode == WriteMode::Append && disk::exists(&exporter.path);
        exporter.sink = match options.format {
            ExportFormat::Table(FileFormat::Csv) => exporter.start_csv(file, append, options)?,
            ExportFormat::Table(FileFormat::Parquet) => exporter.start_parquet(file, append)?,
            ExportFormat::Table(FileFormat::Json) => exporter.start_json(file, append, options)?,
            ExportFormat::Table(FileFormat::Arrow) => exporter.start_arrow(file, append)?,
            ExportFormat::Libsvm => {
                let writer = libsvm::LibsvmWriter::new(&exporter.schema, options)?;
                let old = if append { read_lines(&exporter.path)? } else { Vec::new() };
                Sink::Libsvm(Box::new(writer), exporter.start_after(file, &old)?)
            }
            ExportFormat::TfRecord => {
                let writer = tfrecord::TfRecordWriter::new(&exporter.schema)?;
                let old = if append { read_bytes(&exporter.path)? } else { Vec::new() };
                Sink::TfRecord(Box::new(writer), exporter.start_after(file, &old)?)
            }
        };
        Ok(exporter)
    }

    fn start_csv(&self, file: File, append: bool, options: &ExportOptions) -> Result<Sink> {
        let failed = |error: io::Error| from_io(&error, "write", &self.path);
        let mut file = TextFile::new(file, &self.path).map_err(failed)?;
        let mut writer = csv::CsvWriter::new(options);
        let old = if append { read_lines(&self.path)? } else { Vec::new() };
        // The reader skips empty lines.
        let has_rows = !old.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if has_rows {
            self.check_first_line(&csv::first_record(&old, options))?;
        }
        let mut started = || {
            file.write_all(&old)?;
            if options.header.unwrap_or(!has_rows) {
                let names = self.schema.fields().iter().map(|field| field.name().as_str());
                writer.write_header(names, &mut file)?;
            }
            Ok(())
        };
        started().map_err(failed)?;
        Ok(Sink::Csv(writer, file))
    }

    /// Refuses rows with another number of fields than the file's first line, or with other names
    /// where that line has names: at least one of the query's.
    fn check_first_line(&self, found: &[String]) -> Result<()> {
        let fields = self.schema.fields().iter();
        let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let has_names = found.iter().any(|name| names.contains(name));
        let is_same = found == names || !has_names;
        if found.len() == names.len() && is_same {
            return Ok(());
        }
        let message =
            format!("the columns of file `{}` do not match the query", self.path.display());
        let is_permuted = found.iter().all(|name| names.contains(name));
        let detail = if found.len() != names.len() {
            let (found, written) = (found.len(), names.len());
            format!("The first line has {found} fields, but the query has {written} columns.")
        } else if is_permuted {
            "The first line has the names of the query's columns in a different order.".to_owned()
        } else {
            format!(
                "The file has the columns {}; the query has the columns {}.",
                found.join(", "),
                names.join(", ")
            )
        };
        Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .with_detail(detail)
            .with_hint("Select the columns of the file in the same order, and check the delimiter.")
            .err()
    }

    fn start_parquet(&self, file: File, append: bool) -> Result<Sink> {
        let failed = |error: &::parquet::errors::ParquetError| writer_failed(&self.path, error);
        let memory_max = memory_share().unwrap_or(usize::MAX);
        let mut writer = ParquetFileWriter::new(file, &self.schema, machine_threads(), memory_max)
            .map_err(|error| failed(&error))?;
        if append {
            let old = open_parquet(&InputFile::local(self.path.clone()))?;
            if !has_same_columns(old.schema(), &self.schema) {
                let path = self.path.display();
                let message = format!("the columns of file `{path}` do not match the query");
                return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .with_hint("Select columns with the names, types and order of the file.")
                    .err();
            }
            for batch in old.rows() {
                let batch = self.rename(&batch?)?;
                writer.write(&batch).map_err(|error| failed(&error))?;
            }
        }
        Ok(Sink::Parquet(Box::new(writer)))
    }

    fn start_json(&self, file: File, append: bool, options: &ExportOptions) -> Result<Sink> {
        let old = if append { read_lines(&self.path)? } else { Vec::new() };
        let file = self.start_after(file, &old)?;
        let writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .with_encoder_factory(Arc::new(json::ValueEncoders::new(&options.settings)));
        Ok(Sink::Json(writer.build(file)))
    }

    /// Starts a file with the bytes that it has already.
    fn start_after(&self, file: File, old: &[u8]) -> Result<TextFile> {
        let failed = |error: io::Error| from_io(&error, "write", &self.path);
        let mut file = TextFile::new(file, &self.path).map_err(failed)?;
        file.write_all(old).map_err(failed)?;
        Ok(file)
    }

    fn start_arrow(&self, file: File, append: bool) -> Result<Sink> {
        if append {
            let message = format!("cannot append to Arrow IPC file `{}`", self.path.display());
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Write to a separate file; a query can read several files together.")
                .err();
        }
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
        let writer = options.and_then(|options| {
            IpcWriter::try_new_with_options(BufWriter::new(file), &self.schema, options)
        });
        Ok(Sink::Arrow(Box::new(writer.map_err(|error| writer_failed(&self.path, &error))?)))
    }

    fn rename(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        RecordBatch::try_new(Arc::clone(&self.schema), batch.columns().to_vec())
            .map_err(|error| crate::error::from_arrow(&error))
    }

    /// Writes the rows of a batch, unless the thread's call was interrupted.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        query::checkpoint().map_err(interrupted)?;
        let rows = u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        self.row_count = self.row_count.saturating_add(rows);
        let renamed = self.rename(batch)?;
        match &mut self.sink {
            Sink::Csv(writer, file) => {
                writer.write(batch, file).map_err(|error| from_io(&error, "write", &self.path))
            }
            Sink::Parquet(writer) => {
                writer.write(&renamed).map_err(|error| writer_failed(&self.path, &error))
            }
            Sink::Json(writer) => {
                writer.write(&renamed).map_err(|error| writer_failed(&self.path, &error))
            }
            Sink::Arrow(writer) => {
                writer.write(&renamed).map_err(|error| writer_failed(&self.path, &error))
            }
            Sink::Libsvm(writer, file) => {
                let failed = |error: &io::Error| from_io(error, "write", &self.path);
                writer.write(batch, file, failed)
            }
            Sink::TfRecord(writer, file) => {
                writer.write(batch, file).map_err(|error| from_io(&error, "write", &self.path))
            }
            Sink::Finished => Diagnostic::internal("a finished file was written to").err(),
        }
    }

    /// Writes what is still in memory of a text file.
    fn finished(&self, file: TextFile) -> Result<File> {
        file.finish().map_err(|error| from_io(&error, "write", &self.path))
    }

    /// Writes what is still in memory.
    fn flushed(&self, file: BufWriter<File>) -> Result<File> {
        file.into_inner().map_err(|error| from_io(error.error(), "write", &self.path))
    }

    /// Returns the bytes that are held in memory until they are written as a group of rows.
    fn memory_bytes(&self) -> usize {
        match &self.sink {
            Sink::Parquet(writer) => writer.memory_bytes(),
            _ => 0,
        }
    }

    /// Writes a group of the rows that are held in memory.
    fn flush(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Parquet(writer) => {
                writer.flush().map_err(|error| writer_failed(&self.path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Completes the file under a temporary name in its folder, from which [`StagedFile::publish`] renames it: for who
    /// remembers both names between, so that a crash leaves the file under one of them.
    pub fn stage(self, path: &Path) -> Result<StagedFile> {
        let ClosedFile { temporary, .. } = self.close()?;
        debug_assert_eq!(temporary.path.parent(), path.parent(), "in the same folder");
        sync_folder_of(path)?;
        Ok(StagedFile { temporary: temporary.keep(), path: path.to_owned() })
    }

    /// Returns the number of rows that were written.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Completes the file under its final name and returns the number of rows written.
    pub fn finish(self) -> Result<u64> {
        let closed = self.close()?;
        let _commit = query::commit().map_err(interrupted)?;
        closed.publish()
    }

    /// Completes the file, still under its temporary name.
    fn close(mut self) -> Result<ClosedFile> {
        let file = match mem::replace(&mut self.sink, Sink::Finished) {
            Sink::Csv(_, file) | Sink::Libsvm(_, file) | Sink::TfRecord(_, file) => {
                self.finished(file)?
            }
            Sink::Parquet(writer) => {
                writer.finish().map_err(|error| writer_failed(&self.path, &error))?
            }
            Sink::Json(mut writer) => {
                writer.finish().map_err(|error| writer_failed(&self.path, &error))?;
                self.finished(writer.into_inner())?
            }
            Sink::Arrow(writer) => {
                let file = writer.into_inner();
                self.flushed(file.map_err(|error| writer_failed(&self.path, &error))?)?
            }
            Sink::Finished => return Diagnostic::internal("a file was finished twice").err(),
        };
        file.sync_all().map_err(|error| from_io(&error, "write", &self.path))?;
        let Self { path, target, temporary, mode, row_count, .. } = self;
        Ok(ClosedFile { path, target, temporary, mode, row_count })
    }
}

impl ClosedFile {
    /// Gives the file its final name, and returns the number of its rows.
    fn publish(self) -> Result<u64> {
        if self.mode == WriteMode::ErrorIfExists && disk::exists(&self.path) {
            return Err(exists(&self.path));
        }
        disk::rename(&self.temporary.path, &self.target)
            .map_err(|error| from_io(&error, "write", &self.path))?;
        Ok(self.row_count)
    }
}

/// A complete file with the name that it gets. It stays where it is until it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// Its temporary name.
    pub temporary: PathBuf,
    /// Its name in the end.
    pub path: PathBuf,
}

impl StagedFile {
    /// Gives the file its name. One that has it already stays as it is. Fails where another file has that name.
    pub fn publish(&self) -> Result<()> {
        if !disk::exists(&self.temporary) {
            return Ok(());
        }
        if disk::exists_or_links(&self.path) {
            return Err(from_io(&io::ErrorKind::AlreadyExists.into(), "write", &self.path));
        }
        disk::rename(&self.temporary, &self.path)
            .map_err(|error| from_io(&error, "write", &self.path))?;
        sync_folder_of(&self.path)
    }
}

fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    disk::sync_folder(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_created(&error, path),
        _ => from_io(&error, "write", folder),
    })
}

/// Returns whether the name of a file is that of an export which is not complete, and begins so.
pub fn is_temporary(name: &str, begin: &str) -> bool {
    let name = name.strip_prefix('.').and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX));
    name.is_some_and(|name| name.starts_with(begin))
}

/// Writes batches to a file; see [`Exporter`]. Returns the number of rows.
pub fn export(
    path: &str,
    names: &[String],
    schema: &Schema,
    batches: impl IntoIterator<Item = Result<RecordBatch>>,
    options: &ExportOptions,
) -> Result<u64> {
    let mut exporter = Exporter::new(path, names, schema, options)?;
    for batch in batches {
        exporter.write(&batch?)?;
    }
    exporter.finish()
}

fn exists(path: &Path) -> Box<Diagnostic> {
    let mut diagnostic = from_io(&io::ErrorKind::AlreadyExists.into(), "write", path);
    diagnostic.hint = Some("Use `mode = 'overwrite'` or `mode = 'append'`.".to_owned());
    diagnostic
}

fn named_schema(names: &[String], schema: &Schema) -> SchemaRef {
    debug_assert_eq!(names.len(), schema.fields().len(), "each column has a name");
    let fields = schema.fields().iter().zip(names);
    let fields: Vec<Field> =
        fields.map(|(field, name)| Field::new(name, field.data_type().clone(), true)).collect();
    Arc::new(Schema::new(fields))
}

fn has_same_columns(left: &Schema, right: &Schema) -> bool {
    left.fields().len() == right.fields().len()
        && left.fields().iter().zip(right.fields()).all(|(left, right)| {
            left.name() == right.name() && left.data_type() == right.data_type()
        })
}

/// Makes the error of a writer of a format: that of the system where it is one.
fn writer_failed(path: &Path, error: &(dyn std::error::Error + 'static)) -> Box<Diagnostic> {
    let mut chain = iter::successors(Some(error), |error| (**error).source());
    if let Some(error) = chain.find_map(|error| error.downcast_ref::<io::Error>()) {
        return from_io(error, "write", path);
    }
    let message = format!("could not write file `{}`", path.display());
    let diagnostic = Diagnostic::new(code::IO_ERROR, message)
        .with_kind(Kind::FreeResources)
        .with_detail(format!("The writer reported: {error}."));
    Box::new(diagnostic)
}

/// Refuses a name with the suffix of a compression, if the format compresses by itself or the
/// compression is not supported.
fn check_compression(path: &Path, format: ExportFormat) -> Result<()> {
    use FileFormat::{Arrow, Parquet};
    let is_text = !matches!(format, ExportFormat::Table(Parquet | Arrow));
    let supported = text_file::compression(path);
    let (message, hint) = match supported.or_else(|| text_file::unsupported_compression(path)) {
        Some(end) if !is_text => (
            format!(
                "file `{}` has a compression suffix, which Parquet and Arrow IPC do not support",
                path.display()
            ),
            format!("Remove `{end}` from the name; both formats compress their data internally."),
        ),
        Some(end) if supported.is_none() => (
            format!(
                "file `{}` has the compression suffix `{end}`, which is not supported",
                path.display()
            ),
            format!(
                "Replace `{end}` with `.gz` or `.zst`, or remove it to write an uncompressed file."
            ),
        ),
        _ => return Ok(()),
    };
    Diagnostic::new(code::INVALID_PARAMETER, message).with_hint(hint).err()
}

/// Reads a text file, with a line end added to a last line without one.
fn read_lines(path: &Path) -> Result<Vec<u8>> {
    let text = InputFile::local(path.to_owned()).text(&BytesRead::default())?;
    let mut bytes = read_all(text, path)?;
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Reads a file that is written as a text file is: plain, or compressed as its name says.
fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    read_all(InputFile::local(path.to_owned()).content()?, path)
}

fn read_all(mut content: impl Read, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes).map_err(|error| from_io(&error, "read", path))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

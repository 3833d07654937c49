//! Rows as files of a folder, as a sink writes them.
//!
//! # Exactly once
//!
//! The rows of a file are written under a temporary name. When it is complete, the sink stores that it is about to give
//! the file its name, gives it, and stores that the rows are written. After a crash between these, a file that still has
//! its temporary name gets the other one; one that has it no more was given it, whatever became of it since. What has a
//! temporary name and is not known is not complete: it is removed, and its rows are written again.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::array::{ArrayRef, RecordBatch};
use lockstep_batch::export::{ExportFormat, ExportOptions, Exporter, StagedFile, is_temporary};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::{disk, failpoint};
use lockstep_row::{
    Arena, TableSchema,
    arrow::{ColumnBuilder, arrow_schema},
};
use lockstep_table::{TableTail, TailRow, TailSignal};
use serde::{Deserialize, Serialize};

use super::{BYTES_AT_ONCE, ROWS_AT_ONCE, not_read, tail_of};
use crate::{
    Database,
    connector::{Connector, options::FileOptions},
    worker::{WorkFigures, WorkStep},
};

/// How many characters of the sink's id are in the names of its files.
const ID_CHARS: usize = 12;

/// How far a sink of files is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SinkFiles {
    /// Rows with a smaller arrival are in files.
    position: u64,
    /// How many rows are.
    rows: u64,
    /// A complete file that may have its temporary name still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staged: Option<StagedRows>,
}

/// A complete file, with the progress behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StagedRows {
    temporary: PathBuf,
    path: PathBuf,
    /// The position behind its rows.
    end: u64,
    rows: u64,
}

impl SinkFiles {
    /// Returns the progress of a sink that has written nothing.
    pub(crate) fn new(position: u64) -> Self {
        Self { position, ..Self::default() }
    }

    /// Gives the complete file its name, if there is one, and stores that its rows are written.
    fn publish(&mut self, sink: &Connector) -> Result<()> {
        let Some(StagedRows { temporary, path, end, rows }) = self.staged.clone() else {
            return Ok(());
        };
        StagedFile { temporary, path }.publish()?;
        failpoint::reach("sink.written");
        debug_assert!(end > self.position, "it goes on");
        self.staged = None;
        self.position = end;
        self.rows += rows;
        sink.progress.store(self)?;
        failpoint::reach("sink.stored");
        Ok(())
    }

    /// Notes how far a sink was when it ended.
    pub(crate) fn note(&self, sink: &Connector) {
        sink.worker.figures(|WorkFigures { own, .. }| own.messages = self.rows);
    }
}

/// A run of a sink.
pub(crate) struct FileSinkRun {
    options: Arc<FileOptions>,
    /// How its files are named.
    begin: String,
    tail: TableTail,
    signal: Arc<TailSignal>,
    stored: SinkFiles,
    open: Option<UnfinishedFile>,
}

/// A file that is written.
struct UnfinishedFile {
    exporter: Exporter,
    /// The arrivals of its first and its last row.
    first: u64,
    last: u64,
    /// When the first row arrived, in milliseconds since the epoch.
    first_ms: i64,
    opened_ns: u64,
}

/// Rows that were read together.
struct ReadBatch {
    rows: RecordBatch,
    first: u64,
    last: u64,
    first_ms: i64,
}

impl FileSinkRun {
    /// Goes on behind the last row that is in a file.
    pub(crate) fn new(
        sink: &Connector,
        options: &Arc<FileOptions>,
        database: &Database,
    ) -> Result<Self> {
        check_folder(&options.path)?;
        let mut stored: SinkFiles = sink.progress.read()?.unwrap_or_default();
        if !failpoint::is_seeded("sink_staged_file_forgotten") {
            stored.publish(sink)?;
        }
        let signal = TailSignal::new();
        let tail = tail_of(sink, database, stored.position, &signal)?.keeping_read();
        let begin = format!("part-{}-", sink.id.get(..ID_CHARS).unwrap_or(&sink.id));
        let options = Arc::clone(options);
        let run = Self { options, begin, tail, signal, stored, open: None };
        run.remove_temporaries()?;
        Ok(run)
    }

    /// Returns what is raised when there are rows to write.
    pub(crate) fn signal(&self) -> &Arc<TailSignal> {
        &self.signal
    }

    /// Writes some rows.
    pub(crate) fn step(&mut self, sink: &Connector, database: &Database) -> Result<WorkStep> {
        let stepped = self.write(sink, database);
        if stepped.is_err() {
            self.forget_file();
        }
        self.note(sink, database);
        stepped
    }

    /// Completes the file that is written.
    pub(crate) fn end(&mut self, sink: &Connector, database: &Database) -> Result<()> {
        let ended = self.publish(sink).and_then(|()| self.complete(sink));
        if ended.is_err() {
            self.forget_file();
        }
        self.note(sink, database);
        ended
    }

    fn write(&mut self, sink: &Connector, database: &Database) -> Result<WorkStep> {
        self.publish(sink)?;
        let schema = self.tail.table().schema();
        let now_ns = database.clock().monotonic_ns();
        let roll_ns = self.options.roll_ms.saturating_mul(1_000_000);
        let is_over = |file: &UnfinishedFile| now_ns - file.opened_ns >= roll_ns;
        if self.open.as_ref().is_some_and(is_over) {
            self.complete(sink)?;
        }
        let Some(read) = self.read(sink, &schema)? else { return Ok(WorkStep::CaughtUp) };
        if self.open.is_none() {
            self.open = Some(self.open_file(sink, &schema, &read, now_ns)?);
        }
        let file = self.open.as_mut().expect("it was opened");
        file.exporter.write(&read.rows)?;
        file.last = read.last;
        if file.exporter.row_count() >= self.options.rows_per_file {
            self.complete(sink)?;
        }
        Ok(WorkStep::Busy)
    }

    /// Reads the next rows, as many as the file may still have; `None` if there are none.
    fn read(&mut self, sink: &Connector, schema: &TableSchema) -> Result<Option<ReadBatch>> {
        let written = self.open.as_ref().map_or(0, |file| file.exporter.row_count());
        let left = usize::try_from(self.options.rows_per_file - written).unwrap_or(usize::MAX);
        let most = left.min(ROWS_AT_ONCE);
        debug_assert!(most > 0, "a full file is complete");
        let columns = schema.columns.iter();
        let mut builders: Vec<ColumnBuilder> =
            columns.map(|column| ColumnBuilder::new(&column.data_type, most)).collect();
        let (mut first, mut last, mut first_ms) = (None, 0, i64::MAX);
        let read =
            self.tail.read_some(most, BYTES_AT_ONCE, |TailRow { arrival, arrival_ms, row }| {
                let arena = Arena::new();
                for (column, builder) in builders.iter_mut().enumerate() {
                    builder.push(row.get_in(column, &arena));
                }
                first.get_or_insert(arrival);
                (last, first_ms) = (arrival, first_ms.min(arrival_ms));
            });
        read.map_err(|error| not_read(sink, &error))?;
        let Some(first) = first else { return Ok(None) };
        let columns: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let rows = RecordBatch::try_new(arrow_schema(schema), columns)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        Ok(Some(ReadBatch { rows, first, last, first_ms }))
    }

    fn open_file(
        &self,
        sink: &Connector,
        schema: &TableSchema,
        read: &ReadBatch,
        opened_ns: u64,
    ) -> Result<UnfinishedFile> {
        let csv = &self.options.load.csv;
        let options = ExportOptions {
            format: ExportFormat::Table(self.options.load.format),
            delimiter: csv.delimiter,
            header: Some(csv.header),
            null_value: csv.null_value.clone(),
            settings: sink.conversion.settings(),
            ..ExportOptions::default()
        };
        let names: Vec<String> = schema.columns.iter().map(|column| column.name.clone()).collect();
        let path = self.folder().join(self.file_name(&format!("{:016}", read.first)));
        let path = path.to_string_lossy();
        let exporter = Exporter::new(&path, &names, &read.rows.schema(), &options)?;
        let (first, last, first_ms) = (read.first, read.last, read.first_ms);
        Ok(UnfinishedFile { exporter, first, last, first_ms, opened_ns })
    }

    /// Completes the file that is written, if there is one, and gives it its name.
    fn complete(&mut self, sink: &Connector) -> Result<()> {
        let Some(UnfinishedFile { exporter, first, last, .. }) = self.open.take() else {
            return Ok(());
        };
        let rows = exporter.row_count();
        let path = self.folder().join(self.file_name(&format!("{first:016}-{last:016}")));
        let StagedFile { temporary, path } = exporter.stage(&path)?;
        let end = self.tail.position();
        debug_assert!(end > last, "its rows were read");
        self.stored.staged = Some(StagedRows { temporary, path, end, rows });
        // It waits for the disk, whatever the durability of the rows, which are in the log before.
        if !failpoint::is_seeded("sink_file_not_staged")
            && let Err(error) = sink.progress.store(&self.stored)
        {
            // Nobody would know after a crash that it has its name: it is written again.
            if let Some(staged) = self.stored.staged.take() {
                drop(disk::remove_file(&staged.temporary));
            }
            return Err(error);
        }
        failpoint::reach("sink.staged");
        self.publish(sink)
    }

    /// Gives the complete file its name, if there is one. Its rows are not read again.
    fn publish(&mut self, sink: &Connector) -> Result<()> {
        self.stored.publish(sink)?;
        if self.tail.position() >= self.stored.position {
            self.tail.release(self.stored.position);
        }
        Ok(())
    }

    /// Writes the rows of the file again that is not complete.
    fn forget_file(&mut self) {
        self.open = None;
        self.tail.rewind();
    }

    /// Removes what another process has begun and not completed.
    fn remove_temporaries(&self) -> Result<()> {
        let failed = |error: std::io::Error| folder_error(&self.options.path, &error);
        for path in disk::list(&self.folder()).map_err(failed)? {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            if name.is_some_and(|name| is_temporary(&name, &self.begin)) {
                disk::remove_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        folder_of(&self.options.path)
    }

    fn file_name(&self, rows: &str) -> String {
        format!("{}{rows}.{}", self.begin, self.options.extension)
    }

    /// Notes how far the sink is.
    fn note(&self, sink: &Connector, database: &Database) {
        self.stored.note(sink);
        let waits_ms = self.open.as_ref().map_or(0, |file| {
            u64::try_from(database.now_ms().saturating_sub(file.first_ms)).unwrap_or(0)
        });
        sink.worker.figures(|WorkFigures { own, .. }| own.lag = waits_ms);
    }
}

fn folder_of(path: &str) -> PathBuf {
    Path::new(path.strip_prefix("file://").unwrap_or(path)).to_path_buf()
}

/// Fails where there is no folder that files could be written to.
pub(crate) fn check_folder(path: &str) -> Result<()> {
    match disk::status(&folder_of(path)) {
        Ok(found) if found.is_folder => Ok(()),
        Ok(_) => {
            let message = format!("`{path}` is not a directory");
            Diagnostic::new(code::WRONG_OBJECT_TYPE, message).err()
        }
        Err(error) => Err(folder_error(path, &error)),
    }
}

fn folder_error(path: &str, error: &std::io::Error) -> Box<Diagnostic> {
    if error.kind() == std::io::ErrorKind::NotFound {
        let message = format!("directory `{path}` does not exist");
        let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
        return Box::new(diagnostic.with_hint("Create the directory."));
    }
    let message = format!("could not access directory `{path}`");
    Box::new(Diagnostic::new(code::IO_ERROR, message).with_detail(format!("{error}.")))
}

#[cfg(test)]
mod tests {
    use super::SinkFiles;

    #[test]
    fn what_a_directory_has_is_read() {
        let stored = r#"{"position":7,"rows":5,"staged":{"temporary":"out/.part.tmp","path":"out/part","end":9,"rows":2}}"#;
        let files: SinkFiles = serde_json::from_str(stored).unwrap();
        assert_eq!(serde_json::to_string(&files).unwrap(), stored);
        let begun: SinkFiles = serde_json::from_str(r#"{"position":7,"rows":0}"#).unwrap();
        assert_eq!(begun, SinkFiles::new(7));
    }
}

//! Lines of files, as a source reads them.
//!
//! # Exactly once
//!
//! The progress has the file that is read, with its mark and the number of its rows that are stored. A file whose rows
//! are all stored gets a row in the table of the progress, under its number. Both are appended together with the rows.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::RecordBatch;
use lockstep_batch::load::{FileMark, FileRows, FoundFile, SkippedRow, find_files};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::failpoint;
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema, arrow::ColumnReader};
use lockstep_table::BulkLoad;
use serde::{Deserialize, Serialize};

use super::{
    ConnectorProgress, InputTable, SourceInput,
    folder::{FIRST_NUMBER, FileWatch, KnownFile, changed},
    rows::{BadRow, ItemRow, ItemRows},
};
use crate::{
    connector::{
        Connector,
        options::{ChangeRule, FileOptions, FilePart, MessageErrorRule, NamedColumn},
    },
    json_text::write_json_object,
    progress::ProgressTable,
};

/// How long a read waits where there is no file to read, in milliseconds.
const WAIT_MS: u32 = 50;

/// How far a source of files is, beside the files that it has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFiles {
    /// The file that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<CurrentFile>,
    /// How many lines were read.
    lines: u64,
    /// How many of them were no rows.
    bad: u64,
}

/// A file that was read in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CurrentFile {
    number: i32,
    path: String,
    mark: FileMark,
    /// How many of its lines are stored.
    lines: u64,
}

impl ConnectorProgress for SourceFiles {
    fn counts(&self) -> [u64; 2] {
        [self.lines, self.bad]
    }

    fn count(&mut self, items: u64, bad: u64) {
        self.lines += items;
        self.bad += bad;
    }
}

/// A reader of files.
pub(crate) struct FileInput {
    options: Arc<FileOptions>,
    watch: FileWatch,
    /// The file that was read in part, until it is opened again.
    resumed: Option<CurrentFile>,
    open: Option<FileCursor>,
}

/// A file that is read.
struct FileCursor {
    file: CurrentFile,
    rows: FileRows,
    /// So many lines are left out: they are stored.
    to_skip: u64,
}

/// Lines that were read together.
pub(crate) struct FileBatch {
    /// The file as it was before them.
    file: CurrentFile,
    rows: Option<RecordBatch>,
    lines: Vec<FileLine>,
    /// Whether the file ends with them.
    is_end: bool,
}

/// A line of a file, or a row of one that has no lines.
enum FileLine {
    /// The row at this position of the batch.
    Row(usize),
    Bad(SkippedRow),
}

impl FileInput {
    /// Reads behind the last line that was stored.
    pub(crate) fn open(
        source: &Connector,
        options: &Arc<FileOptions>,
        stored: &SourceFiles,
    ) -> Result<Self> {
        let mut watch = FileWatch::new(&source.progress.read_all()?)?;
        if let Some(file) = &stored.current {
            watch.take_number(file.number);
        }
        let options = Arc::clone(options);
        Ok(Self { options, watch, resumed: stored.current.clone(), open: None })
    }

    /// Opens a file behind the lines of it that were stored.
    fn begin(
        &mut self,
        found: &FoundFile,
        file: CurrentFile,
        source: &Connector,
        schema: &TableSchema,
    ) {
        let of_file = without_parts(&self.options.columns, schema);
        let settings = source.conversion.settings();
        let rows = found.open(&self.options.load, &of_file, &settings);
        let to_skip = file.lines;
        debug_assert!(file.number >= FIRST_NUMBER, "the progress has the one before");
        self.open = Some(FileCursor { file, rows, to_skip });
    }

    /// Opens the file again that was read in part. Returns its end where it is not there any more, or not the same.
    fn resume(
        &mut self,
        file: CurrentFile,
        source: &Connector,
        schema: &TableSchema,
    ) -> Result<Option<FileBatch>> {
        if file.lines == 0 {
            // Nothing of it is stored: if it is still there, it is found again.
            self.watch.give_back(file.number);
            return Ok(None);
        }
        let found = find_files(&self.options.path);
        let found = found.inspect_err(|_| self.resumed = Some(file.clone()))?;
        let found = found.into_iter().find(|found| found.path() == file.path);
        match found {
            Some(found) if found.mark() == file.mark => self.begin(&found, file, source, schema),
            other if self.options.on_change == ChangeRule::Stop => {
                let what = match other {
                    Some(_) => "has changed before all of its rows were read",
                    None => "was removed before all of its rows were read",
                };
                let error = changed(&file.path, what);
                self.resumed = Some(file);
                return error.err();
            }
            Some(found) if self.options.on_change == ChangeRule::Read => {
                let file = CurrentFile { mark: found.mark(), lines: 0, ..file };
                self.begin(&found, file, source, schema);
            }
            other => {
                let mark = other.map_or(file.mark, |found| found.mark());
                let file = CurrentFile { mark, ..file };
                return Ok(Some(FileBatch::end_of(file)));
            }
        }
        Ok(None)
    }

    /// Reads lines of the open file.
    fn read_lines(&mut self, skips: bool) -> Result<Option<FileBatch>> {
        let Some(FileCursor { file, rows, to_skip }) = &mut self.open else {
            return Ok(None);
        };
        let read = rows.next();
        let skipped = rows.take_skipped();
        let (read, failed) = match read {
            Some(Ok(batch)) => (Some(batch), None),
            None => (None, None),
            Some(Err(error)) if skips && is_of_data(&error) => (None, Some(error)),
            Some(Err(error)) => {
                self.resumed = self.open.take().map(|open| open.file);
                return Err(error);
            }
        };
        let is_end = read.is_none();
        let mut lines = in_order(read.as_ref().map_or(0, RecordBatch::num_rows), skipped);
        if let Some(error) = failed {
            let Diagnostic { message, detail, .. } = *error;
            let reason = detail.map_or_else(|| message.clone(), |why| format!("{message}. {why}"));
            let text = String::new();
            lines.push(FileLine::Bad(SkippedRow { rows_before: 0, line: 0, text, reason }));
        }
        let known = usize::try_from(*to_skip).unwrap_or(usize::MAX).min(lines.len());
        lines.drain(..known);
        *to_skip -= known as u64;
        let batch = FileBatch { file: file.clone(), rows: read, lines, is_end };
        file.lines += batch.lines.len() as u64;
        if is_end {
            self.open = None;
        }
        Ok(Some(batch))
    }
}

impl SourceInput for FileInput {
    type Progress = SourceFiles;
    type Batch = FileBatch;

    fn next(&mut self, source: &Connector, table: InputTable<'_>) -> Result<Option<FileBatch>> {
        let InputTable { schema, clock } = table;
        if let Some(file) = self.resumed.take()
            && let Some(end) = self.resume(file, source, schema)?
        {
            return Ok(Some(end));
        }
        if self.open.is_none() {
            let Some(found) = self.watch.next(&self.options, &**clock)? else {
                lockstep_host::pause(WAIT_MS);
                return Ok(None);
            };
            let (path, mark) = (found.path(), found.mark());
            let file = CurrentFile { number: self.watch.number(&path), path, mark, lines: 0 };
            self.begin(&found, file, source, schema);
        }
        let skips = source.options.source.on_error == MessageErrorRule::Skip;
        self.read_lines(skips)
    }

    fn count(batch: &FileBatch) -> usize {
        batch.lines.len()
    }

    fn read<'a>(
        &mut self,
        _source: &Connector,
        schema: &Arc<TableSchema>,
        batch: &'a FileBatch,
        arena: &'a Arena,
    ) -> Result<ItemRows<'a>> {
        let parts = part_columns(&self.options.columns, schema)?;
        let arrays = batch.rows.iter().flat_map(RecordBatch::columns);
        let readers: Vec<ColumnReader<'a>> =
            arrays.map(|array| ColumnReader::new(array.as_ref())).collect();
        let mut read = ItemRows::default();
        read.rows.reserve(batch.lines.len());
        for (at, line) in batch.lines.iter().enumerate() {
            match line {
                FileLine::Row(row) => {
                    let mut fields = readers.iter();
                    let value = |column: usize| match parts.get(&column) {
                        Some(FilePart::File) => Datum::String(&batch.file.path),
                        Some(FilePart::Row) => Datum::BigInt(batch.number_of(at)),
                        None => fields.next().map_or(Datum::Null, |field| field.get(*row, arena)),
                    };
                    let values: Vec<Datum<'a>> = (0..schema.columns.len()).map(value).collect();
                    read.rows.push(ItemRow { at, values: arena.alloc_slice_copy(&values) });
                }
                FileLine::Bad(SkippedRow { reason, .. }) => {
                    read.bad.push(BadRow { at, reason: reason.clone() });
                }
            }
        }
        Ok(read)
    }

    fn advance(progress: &mut SourceFiles, batch: &FileBatch, end: usize) -> bool {
        let is_end = batch.ends_at(end);
        let lines = batch.file.lines + end as u64;
        progress.current = (!is_end).then(|| CurrentFile { lines, ..batch.file.clone() });
        is_end
    }

    fn push_more(load: &mut BulkLoad<'_>, batch: &FileBatch, end: usize) -> Result<()> {
        if !batch.ends_at(end) || failpoint::is_seeded("source_file_forgotten") {
            return Ok(());
        }
        ProgressTable::push_at(load, batch.file.number, &batch.file.known())
    }

    fn stored(&mut self, batch: &FileBatch, end: usize) {
        if batch.ends_at(end) {
            self.watch.know(&batch.file.known(), batch.file.number);
        }
    }

    fn drain(batch: &mut FileBatch, end: usize) {
        debug_assert!(end <= batch.lines.len(), "they are of the batch");
        batch.lines.drain(..end);
        batch.file.lines += end as u64;
    }

    fn bad_values<'a>(
        source: &'a Connector,
        batch: &'a FileBatch,
        bad: &'a BadRow,
        arena: &'a Arena,
    ) -> Vec<(&'static str, Datum<'a>)> {
        let (line, text) = match &batch.lines[bad.at] {
            FileLine::Bad(SkippedRow { line: 0, .. }) => (Datum::Null, Datum::Null),
            FileLine::Bad(SkippedRow { line, text, .. }) => {
                let line = i64::try_from(*line).map_or(Datum::Null, Datum::BigInt);
                (line, Datum::String(text))
            }
            FileLine::Row(row) => {
                let json = batch.json_of(*row, arena);
                (Datum::Null, Datum::String(arena.alloc_str(&json)))
            }
        };
        vec![
            ("source", Datum::String(&source.name().name)),
            ("file", Datum::String(&batch.file.path)),
            ("file_row", Datum::BigInt(batch.number_of(bad.at))),
            ("line", line),
            ("message", text),
            ("reason", Datum::String(&bad.reason)),
        ]
    }

    fn name_of(batch: &FileBatch, at: usize) -> String {
        let path = &batch.file.path;
        match &batch.lines[at] {
            FileLine::Bad(SkippedRow { line: line @ 1.., .. }) => {
                format!("line {line} of file `{path}`")
            }
            _ => format!("row {} of file `{path}`", batch.number_of(at)),
        }
    }

    fn lag(&self, unstored: u64) -> u64 {
        let begun = self.open.is_some() || self.resumed.is_some() || unstored > 0;
        self.watch.waiting() + u64::from(begun)
    }
}

impl CurrentFile {
    fn known(&self) -> KnownFile {
        KnownFile { path: self.path.clone(), mark: self.mark }
    }
}

impl FileBatch {
    /// Makes the end of a file of which nothing more is read.
    fn end_of(file: CurrentFile) -> Self {
        Self { file, rows: None, lines: Vec::new(), is_end: true }
    }

    /// Returns whether the file was read when so many of the lines are stored.
    fn ends_at(&self, end: usize) -> bool {
        self.is_end && end == self.lines.len()
    }

    /// Returns the number of a line within its file, from 1.
    fn number_of(&self, at: usize) -> i64 {
        debug_assert!(at < self.lines.len(), "it is of the batch");
        i64::try_from(self.file.lines + at as u64 + 1).unwrap_or(i64::MAX)
    }

    /// Writes a row as a JSON object.
    fn json_of(&self, row: usize, arena: &Arena) -> String {
        let mut out = Vec::new();
        if let Some(rows) = &self.rows {
            let schema = rows.schema();
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let readers = rows.columns().iter().map(|array| ColumnReader::new(array.as_ref()));
            let values = readers.map(|reader| reader.get(row, arena));
            write_json_object(&mut out, names.zip(values));
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Puts rows and what is no row into the order of the file.
fn in_order(row_count: usize, skipped: Vec<SkippedRow>) -> Vec<FileLine> {
    debug_assert!(skipped.is_sorted_by_key(|skipped| skipped.rows_before), "in the file's order");
    let mut lines = Vec::with_capacity(row_count + skipped.len());
    let mut next = 0;
    for skipped in skipped {
        lines.extend((next..skipped.rows_before).map(FileLine::Row));
        next = skipped.rows_before;
        lines.push(FileLine::Bad(skipped));
    }
    debug_assert!(next <= row_count, "they are of the batch");
    lines.extend((next..row_count).map(FileLine::Row));
    lines
}

/// Returns whether an error is one of what a file contains, rather than of the machine.
fn is_of_data(error: &Diagnostic) -> bool {
    let of_machine = [
        code::IO_ERROR,
        code::UNDEFINED_FILE,
        code::INSUFFICIENT_PRIVILEGE,
        code::OUT_OF_MEMORY,
        code::QUERY_CANCELED,
    ];
    error.kind == Kind::FixData || !of_machine.contains(&error.code)
}

/// Returns the columns of a table that files have.
fn without_parts(parts: &[(FilePart, NamedColumn)], schema: &TableSchema) -> TableSchema {
    let is_of_files = |column: &&Column| parts.iter().all(|(_, named)| named.name != column.name);
    let columns: Vec<Column> = schema.columns.iter().filter(is_of_files).cloned().collect();
    debug_assert!(columns.len() + parts.len() >= schema.columns.len(), "each part is one of them");
    TableSchema { columns, indexes: Vec::new() }
}

/// Finds the columns that take the place of a row.
pub(crate) fn part_columns(
    parts: &[(FilePart, NamedColumn)],
    schema: &TableSchema,
) -> Result<BTreeMap<usize, FilePart>> {
    let find = |(part, named): &(FilePart, NamedColumn)| {
        let expected = match part {
            FilePart::File => DataType::String,
            FilePart::Row => DataType::BigInt,
        };
        let at = named.find(schema, |found| *found == expected, &expected.to_string())?;
        Ok((at, *part))
    };
    parts.iter().map(find).collect()
}

/// Returns the files that are there, as those that a source has read: one that begins with the files to come.
pub(crate) fn files_before(path: &str) -> Result<BTreeMap<i32, String>> {
    let mut files = BTreeMap::new();
    for (number, found) in (FIRST_NUMBER..).zip(find_files(path)?) {
        let known = KnownFile { path: found.path(), mark: found.mark() };
        let text = serde_json::to_string(&known);
        files.insert(
            number,
            text.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?,
        );
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{FileWatch, SourceFiles};
    use crate::connector::source::folder::KnownFile;

    #[test]
    fn what_a_directory_has_is_read() {
        let stored = r#"{"current":{"number":4,"path":"in/b.csv","mark":{"bytes":7,"modified_ns":9},"lines":3},"lines":13,"bad":1}"#;
        let files: SourceFiles = serde_json::from_str(stored).unwrap();
        assert_eq!(serde_json::to_string(&files).unwrap(), stored);
        let known = r#"{"path":"in/a.csv","mark":{"bytes":7,"modified_ns":null}}"#;
        let file: KnownFile = serde_json::from_str(known).unwrap();
        assert_eq!(serde_json::to_string(&file).unwrap(), known);
        let mut watch = FileWatch::new(&[(3, known.to_owned())].into()).unwrap();
        assert_eq!((watch.number("in/a.csv"), watch.number("in/b.csv")), (3, 2));
        watch.take_number(6);
        assert_eq!([4, 5, 7].map(|_| watch.number("new")), [4, 5, 7]);
    }
}

//! The reader of Parquet files.
//!
//! Columns that are not wanted are not read, and neither are the row groups whose statistics say
//! that no row of them is wanted. A footer is checked before it is read (`footer`), pages before they
//! are decoded (`pages`), and the rows of each group are counted: a damaged file is an error with its
//! name, and neither wrong rows nor the end of the process.

mod footer;
mod pages;
mod schema;
mod thrift;

use std::{collections::VecDeque, fmt, fmt::Display, sync::Arc};

use ::arrow::{array::RecordBatch, datatypes::SchemaRef};
use ::parquet::{
    arrow::{
        ProjectionMask, arrow_reader::ParquetRecordBatchReader, parquet_to_arrow_field_levels,
    },
    errors::Result as ParquetResult,
    file::{
        metadata::{FileMetaData, ParquetMetaData},
        reader::FileReader as ParquetFileReader,
    },
    schema::types::SchemaDescriptor,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::arrow::decoded;

use self::{pages::GroupFile, schema::FileColumns};
use super::{
    FILE_BATCH_ROWS, FileReader, LoadTarget, Skipped,
    columns::{ColumnIdentity, Note, match_field_ids},
    imported::FileImport,
    location::{FileChunks, InputFile},
};

/// A Parquet file whose footer was read and checked.
#[derive(Debug)]
pub(crate) struct ParquetSource {
    file: InputFile,
    chunks: Arc<FileChunks>,
    metadata: Arc<ParquetMetaData>,
    columns: FileColumns,
}

/// Reads the footer of a file.
pub(crate) fn open_file(file: &InputFile) -> Result<ParquetSource> {
    let chunks = Arc::new(file.chunks()?);
    let opened = guarded(|| {
        let metadata = Arc::new(footer::read_footer(&chunks)?);
        let columns = FileColumns::of(&metadata)?;
        Ok((metadata, columns))
    });
    let (metadata, columns) = opened.map_err(|detail| damaged(file, &detail))?;
    Ok(ParquetSource { file: file.clone(), chunks, metadata, columns })
}

/// Runs Parquet's reader; a panic of it is an error of the file.
fn guarded<T>(read: impl FnOnce() -> ParquetResult<T>) -> std::result::Result<T, String> {
    decoded(|| read().map_err(|error| error.to_string()))
}

/// Returns the error of a file that is not Parquet, or is damaged.
fn damaged(file: &dyn Display, detail: &str) -> Box<Diagnostic> {
    let message = format!("could not read file `{file}` as Parquet");
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("The reader reported: {detail}."));
    Box::new(diagnostic)
}

impl ParquetSource {
    /// Returns the types of its columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// Returns its metadata.
    pub(super) fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    /// Returns the fields of the file and their leaves.
    pub(super) fn parquet_schema(&self) -> &SchemaDescriptor {
        self.metadata.file_metadata().schema_descr()
    }

    /// Returns the leaf that a column is; `None` for one that has several values in a row.
    pub(super) fn leaf(&self, column: usize) -> Option<usize> {
        self.columns.leaf(self.parquet_schema(), column)
    }

    /// Returns the number of its rows.
    fn row_count(&self) -> u64 {
        let rows = self.metadata.row_groups().iter().map(|group| group.num_rows());
        rows.map(|rows| u64::try_from(rows).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    /// Returns the names and field ids of its columns.
    fn ids(&self) -> Vec<(String, Option<i32>)> {
        let fields = self.parquet_schema().root_schema().get_fields();
        let ids = self.columns.roots.iter().map(|root| {
            let column = fields[*root].get_basic_info();
            (column.name().to_owned(), column.has_id().then(|| column.id()))
        });
        ids.collect()
    }

    /// Reads all of its rows.
    pub(crate) fn rows(self) -> ParquetRows {
        self.rows_of(ProjectionMask::all())
    }

    /// Reads some leaves of all of its rows.
    pub(super) fn rows_of(self, mask: ProjectionMask) -> ParquetRows {
        let groups = (0..self.metadata.num_row_groups()).collect();
        ParquetRows { file: self, mask, groups, open: None }
    }
}

/// The rows of a file, a row group after the other. After an error there are no more.
pub(crate) struct ParquetRows {
    file: ParquetSource,
    mask: ProjectionMask,
    /// The row groups that were not opened.
    groups: VecDeque<usize>,
    open: Option<OpenGroup>,
}

/// A row group that is read.
struct OpenGroup {
    number: usize,
    reader: ParquetRecordBatchReader,
    /// Rows that are still to come.
    left: usize,
}

impl fmt::Debug for ParquetRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetRows").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ParquetRows {
    fn open_group(&self, number: usize) -> ParquetResult<OpenGroup> {
        let ParquetSource { chunks, metadata, columns, .. } = &self.file;
        let group = metadata.row_group(number);
        let of_file = metadata.file_metadata();
        let alone = FileMetaData::new(
            of_file.version(),
            group.num_rows(),
            of_file.created_by().map(str::to_owned),
            None,
            of_file.schema_descr_ptr(),
            None,
        );
        let left = usize::try_from(group.num_rows())?;
        let alone = ParquetMetaData::new(alone, vec![group.clone()]);
        let pages: Arc<dyn ParquetFileReader> = Arc::new(GroupFile::new(Arc::clone(chunks), alone));
        let hint = columns.hint.as_ref();
        let mask = self.mask.clone();
        let levels = parquet_to_arrow_field_levels(of_file.schema_descr(), mask, hint)?;
        let batch_rows = FILE_BATCH_ROWS.min(left);
        let reader =
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &pages, batch_rows, None)?;
        Ok(OpenGroup { number, reader, left })
    }

    /// Returns the next rows. The error has no name of the file.
    fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        loop {
            let Some(mut open) = self.open.take() else {
                let Some(number) = self.groups.pop_front() else { return Ok(None) };
                let of_group = |error| format!("row group {}: {error}", number + 1);
                self.open = Some(guarded(|| self.open_group(number)).map_err(of_group)?);
                continue;
            };
            let number = open.number + 1;
            let of_group = |error: String| format!("row group {number}: {error}");
            let next =
                decoded(|| open.reader.next().transpose().map_err(|error| error.to_string()));
            let next = next.map_err(of_group)?;
            let rows = next.as_ref().map_or(0, RecordBatch::num_rows);
            match open.left.checked_sub(rows) {
                Some(left) if next.is_some() || left == 0 => open.left = left,
                _ => return Err(of_group("the number of rows differs from the footer".to_owned())),
            }
            if next.is_some() {
                self.open = Some(open);
                return Ok(next);
            }
        }
    }
}

impl Iterator for ParquetRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        if next.is_err() {
            (self.open, self.groups) = (None, VecDeque::new());
        }
        next.map_err(|detail| damaged(&self.file.file, &detail)).transpose()
    }
}

/// An open Parquet file with the table's columns.
#[derive(Debug)]
pub(super) struct ParquetFile {
    rows: ParquetRows,
    import: FileImport,
    /// The size of the file, and its rows.
    bytes: u64,
    row_count: u64,
    rows_read: u64,
}

impl ParquetFile {
    /// Opens a file and finds the table's columns in it.
    #[expect(clippy::needless_pass_by_value, reason = "the open file holds its target")]
    pub(super) fn open(target: Arc<LoadTarget>, file: InputFile) -> Result<Self> {
        let source = open_file(&file)?;
        let import = match &target.identity {
            ColumnIdentity::FieldIds(table) => {
                let mapping = match_field_ids(table, &file, &source.ids())?;
                FileImport::of_mapping(Arc::clone(&target), file, mapping)?
            }
            ColumnIdentity::Name | ColumnIdentity::AnyCase => {
                FileImport::new(Arc::clone(&target), file, source.schema())?
            }
        };
        let (bytes, row_count) = (import.file().size(), source.row_count());
        let mask = source.columns.mask(source.parquet_schema(), import.read());
        let pruning = target.pruning.as_ref();
        let wanted = pruning.map(|pruning| pruning.row_groups(&import, &source));
        let mut rows = source.rows_of(mask);
        if let Some(wanted) = wanted {
            rows.groups = wanted.into();
        }
        Ok(Self { rows, import, bytes, row_count, rows_read: 0 })
    }
}

impl FileReader for ParquetFile {
    fn next_batch(&mut self, _: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.rows.next().transpose()? else { return Ok(None) };
        self.rows_read += batch.num_rows() as u64;
        self.import.batch(&batch).map(Some)
    }

    fn bytes_read(&self) -> u64 {
        let part = u128::from(self.bytes) * u128::from(self.rows_read);
        let read = part / u128::from(self.row_count.max(1));
        u64::try_from(read).map_or(self.bytes, |read| read.min(self.bytes))
    }

    fn take_notes(&mut self) -> Vec<Note> {
        self.import.take_notes()
    }
}

#[cfg(test)]
mod tests;

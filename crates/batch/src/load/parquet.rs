//! The reader of Parquet files.
//!
//! Columns that are not wanted are not read, and neither are the row groups whose statistics say
//! that no row of them is wanted.

use std::{fmt::Display, sync::Arc};

use ::arrow::array::RecordBatch;
use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    errors::ParquetError,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};

use super::{
    FILE_BATCH_ROWS, FileReader, LoadTarget, Skipped,
    columns::{Note, match_field_ids},
    imported::FileImport,
    location::{FileChunks, InputFile},
};

/// An open Parquet file.
#[derive(Debug)]
pub(super) struct ParquetFile {
    reader: ParquetRecordBatchReader,
    import: FileImport,
    /// The size of the file, and its rows.
    bytes: u64,
    row_count: u64,
    rows_read: u64,
}

/// Opens a file and reads its schema.
pub(crate) fn open_file(file: &InputFile) -> Result<ParquetRecordBatchReaderBuilder<FileChunks>> {
    ParquetRecordBatchReaderBuilder::try_new(file.chunks()?)
        .map_err(|error| from_parquet(&error, file))
}

/// Returns the error of a file that is not Parquet, or is damaged.
pub(crate) fn from_parquet(error: &ParquetError, file: &dyn Display) -> Box<Diagnostic> {
    let message = format!("file `{file}` could not be read as Parquet");
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("The reader says: {error}."));
    Box::new(diagnostic)
}

/// Returns the names and field ids of a file's columns.
fn ids_of(builder: &ParquetRecordBatchReaderBuilder<FileChunks>) -> Vec<(String, Option<i32>)> {
    let columns = builder.parquet_schema().root_schema().get_fields().iter();
    let ids = columns.map(|column| {
        let column = column.get_basic_info();
        (column.name().to_owned(), column.has_id().then(|| column.id()))
    });
    ids.collect()
}

impl ParquetFile {
    /// Opens a file and finds the table's columns in it.
    pub(super) fn open(target: Arc<LoadTarget>, file: InputFile) -> Result<Self> {
        let builder = open_file(&file)?;
        let import = match target.field_ids.clone() {
            Some(table) => {
                let mapping = match_field_ids(&table, &file, &ids_of(&builder))?;
                FileImport::of_mapping(target, file, mapping)?
            }
            None => FileImport::new(target, file, builder.schema())?,
        };
        let row_count = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let mask = ProjectionMask::roots(builder.parquet_schema(), import.read().iter().copied());
        let wanted =
            import.target().pruning.as_ref().map(|pruning| pruning.row_groups(&import, &builder));
        let mut builder = builder.with_projection(mask).with_batch_size(FILE_BATCH_ROWS);
        if let Some(wanted) = wanted {
            builder = builder.with_row_groups(wanted);
        }
        let reader = builder.build().map_err(|error| from_parquet(&error, import.file()))?;
        let bytes = import.file().size();
        Ok(Self { reader, import, bytes, row_count, rows_read: 0 })
    }
}

impl FileReader for ParquetFile {
    fn next_batch(&mut self, _: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.reader.next() else { return Ok(None) };
        let batch = batch.map_err(|error| {
            from_parquet(&ParquetError::ArrowError(error.to_string()), self.import.file())
        })?;
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

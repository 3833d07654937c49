//! The reader of Arrow IPC: files (Feather is another name of them) and streams.
//!
//! Each message is read and checked before Arrow's reader sees it (`lockstep_row::arrow`): memory is
//! reserved for bytes that are there, and a damaged file is an error with its name. `messages` finds
//! the messages.

mod messages;

use std::{fmt, sync::Arc};

use ::arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};

use self::messages::{ArrowBlocks, ArrowMessages};
use super::{
    FILE_BATCH_ROWS, FileReader, LoadTarget, Skipped,
    columns::Note,
    imported::FileImport,
    location::{BytesRead, InputFile},
};

/// The bytes with which a file begins, and a stream does not.
const MAGIC: &[u8] = b"ARROW1";

/// The batches of a file or a stream.
enum ArrowBatches {
    File(ArrowBlocks),
    Stream(ArrowMessages),
}

impl ArrowBatches {
    fn open(file: &InputFile, read: &BytesRead) -> Result<Self> {
        let not_arrow = |detail: String| not_arrow(file, &detail);
        Ok(match is_stream(file)? {
            true => Self::Stream(ArrowMessages::open(file.text(read)?).map_err(not_arrow)?),
            false => Self::File(ArrowBlocks::open(file.chunks()?, read).map_err(not_arrow)?),
        })
    }

    fn schema(&self) -> &SchemaRef {
        match self {
            Self::File(blocks) => blocks.schema(),
            Self::Stream(messages) => messages.schema(),
        }
    }

    fn with_columns(self, columns: Vec<usize>) -> Self {
        match self {
            Self::File(blocks) => Self::File(blocks.with_columns(columns)),
            Self::Stream(messages) => Self::Stream(messages.with_columns(columns)),
        }
    }

    fn next(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        match self {
            Self::File(blocks) => blocks.next(),
            Self::Stream(messages) => messages.next(),
        }
    }
}

/// Reads the schema of a file.
pub(super) fn schema_of(file: &InputFile) -> Result<SchemaRef> {
    Ok(Arc::clone(ArrowBatches::open(file, &BytesRead::default())?.schema()))
}

fn is_stream(file: &InputFile) -> Result<bool> {
    let mut begin = [0; MAGIC.len()];
    let read = file.text(&BytesRead::default())?.read_exact(&mut begin);
    Ok(read.is_err() || begin != MAGIC)
}

fn not_arrow(file: &InputFile, detail: &str) -> Box<Diagnostic> {
    let message = format!("could not read file `{file}` as Arrow IPC");
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("The reader reported: {detail}."));
    Box::new(diagnostic)
}

/// An open file or stream.
pub(super) struct ArrowFile {
    batches: ArrowBatches,
    /// Rows of a batch that were not returned.
    rest: Option<RecordBatch>,
    import: FileImport,
    read: BytesRead,
}

impl fmt::Debug for ArrowFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrowFile").field("import", &self.import).finish_non_exhaustive()
    }
}

impl ArrowFile {
    /// Opens a file and finds the table's columns in it.
    pub(super) fn open(target: Arc<LoadTarget>, file: InputFile) -> Result<Self> {
        let read = BytesRead::default();
        let batches = ArrowBatches::open(&file, &read)?;
        let import = FileImport::new(target, file, batches.schema())?;
        let batches = batches.with_columns(import.read().to_vec());
        Ok(Self { batches, rest: None, import, read })
    }
}

impl FileReader for ArrowFile {
    fn next_batch(&mut self, _: &mut Skipped) -> Result<Option<RecordBatch>> {
        let next = match self.rest.take() {
            Some(rest) => Some(rest),
            None => {
                let next = self.batches.next();
                next.map_err(|detail| not_arrow(self.import.file(), &detail))?
            }
        };
        let Some(batch) = next else { return Ok(None) };
        // A batch may have rows without bytes: columns that it does not have are made in parts.
        let rows = batch.num_rows().min(FILE_BATCH_ROWS);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.import.batch(&batch.slice(0, rows)).map(Some)
    }

    fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    fn take_notes(&mut self) -> Vec<Note> {
        self.import.take_notes()
    }
}

//! The reader of Arrow IPC: files (Feather is another name of them) and streams.

use std::{
    fmt,
    io::{BufReader, Cursor, Read},
    sync::Arc,
};

use ::arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    error::ArrowError,
    ipc::reader::{FileReader as IpcFileReader, StreamReader},
};
use ::parquet::file::reader::{ChunkReader, Length};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};

use super::{
    FileReader, LoadTarget, Skipped,
    columns::Note,
    imported::FileImport,
    location::{BytesRead, FileChunks, InputFile},
};

/// The bytes with which a file begins, and a stream does not.
const MAGIC: &[u8] = b"ARROW1";

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send>;

/// An open file or stream.
pub(super) struct ArrowFile {
    batches: Batches,
    import: FileImport,
    read: BytesRead,
}

impl fmt::Debug for ArrowFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrowFile").field("import", &self.import).finish_non_exhaustive()
    }
}

/// Reads the schema of a file.
pub(super) fn schema_of(file: &InputFile) -> Result<SchemaRef> {
    let opened = match is_stream(file)? {
        true => StreamReader::try_new(file.text(&BytesRead::default())?, None)
            .map(|reader| reader.schema()),
        false => return Ok(open_ipc(file, None, &BytesRead::default())?.0),
    };
    opened.map_err(|error| not_arrow(&error, file))
}

fn is_stream(file: &InputFile) -> Result<bool> {
    let mut begin = [0; MAGIC.len()];
    let read = file.text(&BytesRead::default())?.read_exact(&mut begin);
    Ok(read.is_err() || begin != MAGIC)
}

/// Opens a file, whose footer is at its end; one in an object store is read as a whole.
fn open_ipc(
    file: &InputFile,
    columns: Option<Vec<usize>>,
    read: &BytesRead,
) -> Result<(SchemaRef, Batches)> {
    let failed = |error: &ArrowError| not_arrow(error, file);
    match file.chunks()? {
        FileChunks::Local(local) => {
            let reader = IpcFileReader::try_new(BufReader::new(read.of(local)), columns);
            let reader = reader.map_err(|error| failed(&error))?;
            Ok((reader.schema(), Box::new(reader)))
        }
        remote @ FileChunks::Remote(_) => {
            let length = usize::try_from(remote.len()).unwrap_or(usize::MAX);
            let bytes = remote.get_bytes(0, length);
            let bytes =
                bytes.map_err(|error| failed(&ArrowError::ExternalError(Box::new(error))))?;
            let reader = IpcFileReader::try_new(read.of(Cursor::new(bytes)), columns);
            let reader = reader.map_err(|error| failed(&error))?;
            Ok((reader.schema(), Box::new(reader)))
        }
    }
}

fn not_arrow(error: &ArrowError, file: &InputFile) -> Box<Diagnostic> {
    let message = format!("file `{file}` could not be read as Arrow IPC");
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("The reader says: {error}."));
    Box::new(diagnostic)
}

impl ArrowFile {
    /// Opens a file and finds the table's columns in it.
    pub(super) fn open(target: Arc<LoadTarget>, file: InputFile) -> Result<Self> {
        let schema = schema_of(&file)?;
        let import = FileImport::new(target, file, &schema)?;
        let columns = Some(import.read().to_vec());
        let file = import.file();
        let read = BytesRead::default();
        let batches: Batches = match is_stream(file)? {
            true => Box::new(
                StreamReader::try_new(BufReader::new(file.text(&read)?), columns)
                    .map_err(|error| not_arrow(&error, file))?,
            ),
            false => open_ipc(file, columns, &read)?.1,
        };
        Ok(Self { batches, import, read })
    }
}

impl FileReader for ArrowFile {
    fn next_batch(&mut self, _: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.batches.next() else { return Ok(None) };
        let batch = batch.map_err(|error| not_arrow(&error, self.import.file()))?;
        self.import.batch(&batch).map(Some)
    }

    fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    fn take_notes(&mut self) -> Vec<Note> {
        self.import.take_notes()
    }
}

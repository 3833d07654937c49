//! Where the bytes of a file are: on this machine, or in an object store.
//!
//! `paths` makes a [`InputFile`] for each file that a path names; the readers of the formats open it.
//! A text file that begins as gzip and Zstandard do, or whose name ends with `.gz` or `.zst`, is
//! decompressed while it is read.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Buf, Bytes};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{FileAccess, query::file_access};
use lockstep_row::Value;
use parquet::{
    errors::{ParquetError, Result as ParquetResult},
    file::reader::{ChunkReader, Length},
};

use super::{paths::partition_of, remote::RemoteFile};
use crate::error::from_io_at;

/// A file, and the columns that the names of its folders give it.
#[derive(Debug, Clone)]
pub(crate) struct InputFile {
    /// Its bytes.
    pub(crate) location: Location,
    /// The names and texts of its folders `name=text`, outermost first; `None` for NULL.
    pub(crate) partition: Vec<(String, Option<String>)>,
    /// The values that a lake table's metadata gives to columns of all its rows.
    pub(crate) values: Vec<(String, Value)>,
    /// What is known of its rows without opening it.
    pub(crate) statistics: Option<Arc<FileStatistics>>,
}

/// What is known of the rows of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileStatistics {
    pub(crate) row_count: Option<u64>,
    /// The columns of which something is known.
    pub(crate) columns: Vec<ColumnBounds>,
}

/// What is known of the values of a column in a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnBounds {
    pub(crate) name: String,
    /// No value is less.
    pub(crate) least: Option<Value>,
    /// No value is greater.
    pub(crate) greatest: Option<Value>,
    /// How many values are NULL.
    pub(crate) null_count: Option<u64>,
}

/// Where a file is.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// On this machine.
    Local(LocalFile),
    /// In an object store.
    Remote(RemoteFile),
}

/// A file of this machine, with the access of the call that named it: it may be opened later, by another
/// thread.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    path: PathBuf,
    access: FileAccess,
}

impl LocalFile {
    /// Makes a file that is opened as the thread's call may open it.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, access: file_access() }
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> io::Result<File> {
        self.access.open(&self.path)
    }
}

/// Writes the path or URL, for messages.
impl fmt::Display for InputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Local(file) => file.path.display().fmt(f),
            Location::Remote(file) => f.write_str(file.url()),
        }
    }
}

impl InputFile {
    /// Makes a file of this machine.
    pub(crate) fn local(path: PathBuf) -> Self {
        let folders = path.parent().map(Path::to_string_lossy).unwrap_or_default();
        let partition = partition_of(folders.split(['/', '\\']));
        let location = Location::Local(LocalFile::new(path));
        Self { location, partition, values: Vec::new(), statistics: None }
    }

    /// Returns the text of a folder `name=text`; an inner `None` is NULL.
    pub(crate) fn folder_value(&self, name: &str) -> Option<Option<&str>> {
        let found = self.partition.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_deref())
    }

    /// Returns the value that a lake table's metadata gives to a column of all its rows.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns whether a column of all its rows has its value from a folder or from metadata.
    pub(crate) fn has_value(&self, name: &str) -> bool {
        self.value(name).is_some() || self.folder_value(name).is_some()
    }

    /// Returns what is known of the values of a column.
    pub(crate) fn bounds(&self, name: &str) -> Option<&ColumnBounds> {
        self.statistics.as_ref()?.columns.iter().find(|column| column.name == name)
    }

    /// Returns its size in bytes; 0 where the machine does not say.
    pub(crate) fn size(&self) -> u64 {
        match &self.location {
            Location::Local(file) => file.access.status(&file.path).map_or(0, |found| found.len()),
            Location::Remote(file) => file.size(),
        }
    }

    /// Opens a text file from its beginning, without a byte order mark. Counts the bytes that are read of
    /// the file in `read`. Fails where the text is not UTF-8 by its mark.
    pub(crate) fn text(&self, read: &BytesRead) -> Result<TextInput> {
        let failed = |error: io::Error| from_io_at(&error, "read", self);
        let (begin, plain) = split_begin(self.plain(read).map_err(failed)?).map_err(failed)?;
        // No text of UTF-8 begins like a compressed file.
        let compression = Compression::of_bytes(&begin).or_else(|| self.named_compression());
        let text = decompressed(joined(begin, plain), compression).map_err(failed)?;
        let (mut begin, text) = split_begin(text).map_err(failed)?;
        if let Some(encoding) = other_encoding(&begin) {
            let message = format!("file `{self}` is encoded in {encoding}, expected UTF-8");
            return Diagnostic::new(code::BAD_COPY_FORMAT, message)
                .with_kind(Kind::FixData)
                .with_hint(format!("Convert the file: iconv -f {encoding} -t UTF-8."))
                .err();
        }
        if begin.starts_with(BYTE_ORDER_MARK) {
            begin.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(joined(begin, text))
    }

    /// Opens the bytes of a file that is compressed if its name says so, and that may be no text.
    pub(crate) fn content(&self) -> Result<TextInput> {
        let plain = self.plain(&BytesRead::default());
        let content = plain.and_then(|plain| decompressed(plain, self.named_compression()));
        content.map_err(|error| from_io_at(&error, "read", self))
    }

    fn plain(&self, read: &BytesRead) -> io::Result<TextInput> {
        Ok(match &self.location {
            Location::Local(file) => Box::new(read.of(file.open()?)),
            Location::Remote(file) => Box::new(read.of(file.reader(0))),
        })
    }

    /// Returns the compression that the end of the file's name says.
    fn named_compression(&self) -> Option<Compression> {
        let name = self.to_string().to_ascii_lowercase();
        match name.rsplit_once('.')?.1 {
            "gz" => Some(Compression::Gzip),
            "zst" => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Opens the bytes of a file that is read in parts.
    pub(crate) fn chunks(&self) -> Result<FileChunks> {
        match &self.location {
            Location::Local(file) => {
                file.open().map(FileChunks::Local).map_err(|error| from_io_at(&error, "read", self))
            }
            Location::Remote(file) => Ok(FileChunks::Remote(file.clone())),
        }
    }
}

/// A reader of a text.
pub(crate) type TextInput = Box<dyn Read + Send>;

/// The byte order mark that some programs write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The bytes that say how a text file is compressed or encoded.
const BEGIN_BYTES: u64 = 4;

/// The compression of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// Finds the compression of a file that begins with these bytes.
    fn of_bytes(begin: &[u8]) -> Option<Self> {
        match begin {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd] => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Returns the encoding other than UTF-8 that the mark at the start of a text names.
fn other_encoding(begin: &[u8]) -> Option<&'static str> {
    match begin {
        [0xff, 0xfe, 0, 0] | [0, 0, 0xfe, 0xff] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        _ => None,
    }
}

/// Splits the first bytes off a text.
fn split_begin(mut text: TextInput) -> io::Result<(Vec<u8>, TextInput)> {
    let mut begin = Vec::new();
    (&mut text).take(BEGIN_BYTES).read_to_end(&mut begin)?;
    debug_assert!(begin.len() as u64 <= BEGIN_BYTES, "{} bytes", begin.len());
    Ok((begin, text))
}

/// Puts the first bytes before a text again.
fn joined(begin: Vec<u8>, text: TextInput) -> TextInput {
    Box::new(Read::chain(io::Cursor::new(begin), text))
}

fn decompressed(content: TextInput, compression: Option<Compression>) -> io::Result<TextInput> {
    Ok(match compression {
        Some(Compression::Gzip) => {
            Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(content)))
        }
        Some(Compression::Zstd) => Box::new(ZstdText(zstd::Decoder::new(content)?)),
        None => content,
    })
}

/// A text in Zstandard, whose damage is an error of its data.
struct ZstdText(zstd::Decoder<'static, BufReader<TextInput>>);

impl Read for ZstdText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| {
            let is_of_store =
                error.get_ref().is_some_and(|cause| cause.is::<object_store::Error>());
            match error.kind() == io::ErrorKind::Other && !is_of_store {
                true => io::Error::new(io::ErrorKind::InvalidData, error),
                false => error,
            }
        })
    }
}

/// How many bytes of a file were read. A clone is the same number.
#[derive(Debug, Clone, Default)]
pub(crate) struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    /// Returns the number.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: a number for a reader.
        self.0.load(Relaxed)
    }

    /// Counts bytes that were read.
    pub(crate) fn add(&self, bytes: usize) {
        // Relaxed: as above.
        self.0.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts what is read of a file.
    pub(crate) fn of<R>(&self, reader: R) -> CountedReader<R> {
        let read = Arc::clone(&self.0);
        CountedReader { reader, read }
    }
}

/// A reader whose bytes are counted.
pub(crate) struct CountedReader<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        // Relaxed: as above.
        self.read.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

impl<R: Seek> Seek for CountedReader<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.reader.seek(position)
    }
}

/// A file of which any part can be read.
#[derive(Debug)]
pub(crate) enum FileChunks {
    /// On this machine.
    Local(File),
    /// In an object store.
    Remote(RemoteFile),
}

impl Length for FileChunks {
    fn len(&self) -> u64 {
        match self {
            Self::Local(file) => file.len(),
            Self::Remote(file) => file.size(),
        }
    }
}

impl ChunkReader for FileChunks {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(match self {
            Self::Local(file) => Box::new(file.get_read(start)?),
            Self::Remote(file) => Box::new(file.reader(start.min(file.size()))),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        // Memory is reserved for all of them.
        let end = u64::try_from(length).ok().and_then(|length| start.checked_add(length));
        if end.is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!(
                "could not read {length} bytes at offset {start}"
            )));
        }
        match self {
            Self::Local(file) => file.get_bytes(start, length),
            Self::Remote(file) => {
                let end = start + u64::try_from(length).unwrap_or(u64::MAX);
                let bytes = file.read(start..end);
                let bytes = bytes.map_err(|error| ParquetError::External(Box::new(error)))?;
                match bytes.remaining() == length {
                    true => Ok(bytes),
                    false => Err(ParquetError::EOF(format!(
                        "could not read {length} bytes at offset {start}"
                    ))),
                }
            }
        }
    }
}

//! The messages of a stream and of a file of Arrow IPC, which has their places in its footer.
//!
//! Errors say what is wrong, without the name of the file.

use std::{
    collections::HashMap,
    io::{BufReader, ErrorKind, Read},
    sync::Arc,
};

use ::arrow::{
    array::{ArrayRef, RecordBatch},
    buffer::Buffer,
    datatypes::SchemaRef,
    ipc::{
        Block, Message, Schema,
        convert::fb_to_schema,
        reader::{FileDecoder, read_dictionary, read_record_batch},
        root_as_footer, root_as_message,
    },
};
use ::parquet::file::reader::{ChunkReader, Length};
use lockstep_row::arrow::{MessageLimits, check_byte_order, check_message, decoded};

use crate::load::location::{BytesRead, FileChunks};

type Result<T> = std::result::Result<T, String>;

/// What a message begins with, before its length.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The bytes behind a footer: its length, and the mark of the format.
const TAIL_BYTES: usize = 10;
const MAGIC: &[u8] = b"ARROW1";

/// Bytes for which memory is reserved before they are read.
const RESERVED_BYTES_MAX: u64 = 1 << 20;

/// A stream of messages: a schema, then dictionaries and batches.
pub(super) struct ArrowMessages {
    bytes: BufReader<Box<dyn Read + Send>>,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    columns: Option<Vec<usize>>,
}

impl ArrowMessages {
    /// Reads the schema.
    pub(super) fn open(bytes: Box<dyn Read + Send>) -> Result<Self> {
        let mut bytes = BufReader::new(bytes);
        let Some((header, _)) = next_message(&mut bytes)? else {
            return Err("the stream has no schema".to_owned());
        };
        let message = parsed(&header)?;
        let Some(schema) = message.header_as_schema() else {
            return Err("the stream does not start with a schema".to_owned());
        };
        let schema = schema_of(schema)?;
        Ok(Self { bytes, schema, dictionaries: HashMap::new(), columns: None })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads only some columns.
    pub(super) fn with_columns(self, columns: Vec<usize>) -> Self {
        Self { columns: Some(columns), ..self }
    }

    /// Reads the next batch.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some((header, body)) = next_message(&mut self.bytes)? {
            check_message(&header, &body, MessageLimits::in_file(body.len()))?;
            let message = parsed(&header)?;
            let (body, version) = (Buffer::from_vec(body), message.version());
            if let Some(batch) = message.header_as_record_batch() {
                let (schema, columns) = (Arc::clone(&self.schema), self.columns.as_deref());
                let read = decoded(|| {
                    read_record_batch(&body, batch, schema, &self.dictionaries, columns, &version)
                        .map_err(|error| error.to_string())
                });
                return read.map(Some);
            }
            let Some(dictionary) = message.header_as_dictionary_batch() else {
                return Err(format!("unexpected message of type {:?}", message.header_type()));
            };
            decoded(|| {
                let known = &mut self.dictionaries;
                read_dictionary(&body, dictionary, &self.schema, known, &version)
                    .map_err(|error| error.to_string())
            })?;
        }
        Ok(None)
    }
}

fn parsed(header: &[u8]) -> Result<Message<'_>> {
    root_as_message(header).map_err(|error| error.to_string())
}

fn schema_of(schema: Schema<'_>) -> Result<SchemaRef> {
    check_byte_order(&schema)?;
    decoded(|| Ok(Arc::new(fb_to_schema(schema))))
}

/// Reads the header and the body of the next message; `None` at the end.
fn next_message(bytes: &mut impl Read) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut length = [0; 4];
    let begin = read_up_to(bytes, 4)?;
    match begin.len() {
        0 => return Ok(None),
        4 => length.copy_from_slice(&begin),
        _ => return Err("a message is truncated in its length field".to_owned()),
    }
    if length == CONTINUATION {
        let behind = read_up_to(bytes, 4)?;
        match behind.len() {
            4 => length.copy_from_slice(&behind),
            _ => return Err("a message is truncated in its length field".to_owned()),
        }
    }
    let length = u32::from_le_bytes(length);
    if length == 0 {
        return Ok(None);
    }
    let header = read_whole(bytes, length.into())?;
    let size = parsed(&header)?.bodyLength();
    if size < 0 {
        return Err(format!("a message has an invalid size of {size} bytes"));
    }
    let size = size.cast_unsigned();
    let body = read_whole(bytes, size)?;
    Ok(Some((header, body)))
}

/// Reads a number of bytes that a message claims to have.
fn read_whole(bytes: &mut impl Read, size: u64) -> Result<Vec<u8>> {
    let read = read_up_to(bytes, size)?;
    match u64::try_from(read.len()) == Ok(size) {
        true => Ok(read),
        false => Err(format!("a message of {size} bytes is truncated")),
    }
}

/// Reads a number of bytes, or those that are left.
fn read_up_to(bytes: &mut impl Read, size: u64) -> Result<Vec<u8>> {
    let reserved = usize::try_from(size.min(RESERVED_BYTES_MAX)).unwrap_or(0);
    let mut read = Vec::with_capacity(reserved);
    match bytes.by_ref().take(size).read_to_end(&mut read) {
        Ok(_) => Ok(read),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err("unexpected end of data".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A file, whose footer has the places of its messages.
pub(super) struct ArrowBlocks {
    chunks: FileChunks,
    read: BytesRead,
    schema: SchemaRef,
    decoder: FileDecoder,
    batches: std::vec::IntoIter<Block>,
}

impl ArrowBlocks {
    /// Reads the footer and the dictionaries.
    pub(super) fn open(chunks: FileChunks, read: &BytesRead) -> Result<Self> {
        let footer = read_footer(&chunks)?;
        let footer = root_as_footer(&footer).map_err(|error| format!("invalid footer: {error}"))?;
        let schema = footer.schema().ok_or("the footer has no schema")?;
        let schema = schema_of(schema)?;
        let decoder = FileDecoder::new(Arc::clone(&schema), footer.version());
        let batches = footer.recordBatches().ok_or("the footer has no list of record batches")?;
        let batches: Vec<Block> = batches.iter().copied().collect();
        let dictionaries: Vec<Block> =
            footer.dictionaries().into_iter().flatten().copied().collect();
        let batches = batches.into_iter();
        let mut blocks = Self { chunks, read: read.clone(), schema, decoder, batches };
        for block in dictionaries {
            let bytes = blocks.bytes_of(&block)?;
            decoded(|| {
                let read = blocks.decoder.read_dictionary(&block, &bytes);
                read.map_err(|error| error.to_string())
            })?;
        }
        Ok(blocks)
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads only some columns.
    pub(super) fn with_columns(self, columns: Vec<usize>) -> Self {
        Self { decoder: self.decoder.with_projection(columns), ..self }
    }

    /// Reads the next batch.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(block) = self.batches.next() {
            let bytes = self.bytes_of(&block)?;
            let read = decoded(|| {
                let read = self.decoder.read_record_batch(&block, &bytes);
                read.map_err(|error| error.to_string())
            })?;
            if read.is_some() {
                return Ok(read);
            }
        }
        Ok(None)
    }

    /// Reads a message, and checks it.
    fn bytes_of(&self, block: &Block) -> Result<Buffer> {
        let place = || {
            let start = u64::try_from(block.offset()).ok()?;
            let header = usize::try_from(block.metaDataLength()).ok()?;
            let size = header.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
            Some((start, header, size))
        };
        let Some((start, header_size, size)) = place() else {
            return Err("the footer contains an invalid offset or length".to_owned());
        };
        let bytes = self.chunks.get_bytes(start, size).map_err(|error| error.to_string())?;
        self.read.add(size);
        let (header, body) = bytes.split_at(header_size);
        let skipped = if header.starts_with(&CONTINUATION) { 8 } else { 4 };
        let header = header.get(skipped..).ok_or("a message is truncated in its length field")?;
        check_message(header, body, MessageLimits::in_file(body.len()))?;
        Ok(Buffer::from(bytes))
    }
}

fn read_footer(chunks: &FileChunks) -> Result<bytes::Bytes> {
    let size = chunks.len();
    let end = size.checked_sub(u64::try_from(TAIL_BYTES).unwrap_or(u64::MAX));
    let end = end.ok_or_else(|| format!("a file of {size} bytes is too short"))?;
    let read = |start, length| chunks.get_bytes(start, length).map_err(|error| error.to_string());
    let tail = read(end, TAIL_BYTES)?;
    let (length, magic) = tail.split_first_chunk().ok_or("the file has no footer")?;
    if magic != MAGIC {
        return Err("the file does not end with a footer".to_owned());
    }
    let length = u32::from_le_bytes(*length);
    let start = end.checked_sub(length.into());
    let start = start.ok_or_else(|| format!("a footer of {length} bytes is truncated"))?;
    read(start, usize::try_from(length).unwrap_or(usize::MAX))
}

//! Arrow's IPC messages from clients, checked before Arrow's readers see them.
//!
//! Those readers are written for files that one trusts: they allocate what a length says before they
//! look for the bytes, and panic where a message contradicts itself. [`check_message`] refuses lengths
//! that the bytes do not bear out; [`decoded`] makes what still panics an error of the client. A stream of
//! few rows is mostly its schema: [`KnownSchemas`] reads each only once. Used by HTTP and Flight; knows
//! neither.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::SchemaRef,
    ipc::{
        self,
        reader::{StreamReader, read_record_batch},
        root_as_message,
    },
};

use crate::bounded_map::BoundedMap;

/// The most bytes that compressed messages may decompress to: of a body, and of one message of Flight.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// The most rows of a message whose columns have no bytes, such as those of type NULL.
const ROWS_WITHOUT_BYTES_MAX: u64 = 65_536;

/// What a stream begins each message with, in the format of today.
const CONTINUATION: u32 = u32::MAX;

/// The length before a compressed buffer, in bytes.
const LENGTH_BYTES: usize = 8;

/// The length of a buffer that is not compressed.
const NOT_COMPRESSED: i64 = -1;

/// Reads a stream. The error says what is wrong with it.
pub(crate) fn read_stream(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    check_stream(bytes)?;
    decoded(|| {
        let reader = StreamReader::try_new(bytes, None).map_err(|error| error.to_string())?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        Ok((schema, batches))
    })
}

/// The most bytes of the messages of all schemas that are known, and of one; beyond the first all are read
/// again.
const KNOWN_BYTES_MAX: usize = 2 << 20;
const KNOWN_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Schemas that clients have sent.
#[derive(Debug)]
pub(crate) struct KnownSchemas {
    by_message: BoundedMap<Box<[u8]>, SchemaRef>,
}

impl Default for KnownSchemas {
    fn default() -> Self {
        Self { by_message: BoundedMap::new(KNOWN_BYTES_MAX, KNOWN_MESSAGE_BYTES_MAX) }
    }
}

impl KnownSchemas {
    /// Reads a stream as [`read_stream`] does.
    pub(crate) fn read_stream(
        &self,
        bytes: &[u8],
    ) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
        let first = split_header(bytes)?;
        let known = first
            .and_then(|(header, rest)| self.by_message.get(header).map(|schema| (schema, rest)));
        if let Some((schema, rest)) = known
            && let Some(batches) = read_batches(&schema, rest)?
        {
            return Ok((schema, batches));
        }
        let (schema, batches) = read_stream(bytes)?;
        if let Some((header, _)) = first {
            self.by_message.add(header, &schema, header.len());
        }
        Ok((schema, batches))
    }
}

/// Reads the batches behind a schema; `None` where there is more than batches, such as dictionaries.
fn read_batches(schema: &SchemaRef, mut bytes: &[u8]) -> Result<Option<Vec<RecordBatch>>, String> {
    let mut batches = Vec::new();
    let mut decompressed = 0;
    while let Some((message, body, rest)) = next_message(bytes)? {
        let Some(batch) = message.header_as_record_batch() else { return Ok(None) };
        decompressed += check_batch(&batch, body)?;
        if decompressed > DECOMPRESSED_BYTES_MAX {
            return Err(too_large(decompressed));
        }
        let schema = Arc::clone(schema);
        batches.push(decoded(|| {
            let (body, none) = (Buffer::from(body), HashMap::new());
            let read = read_record_batch(&body, batch, schema, &none, None, &message.version());
            read.map_err(|error| error.to_string())
        })?);
        bytes = rest;
    }
    Ok(Some(batches))
}

/// Runs a reader of Arrow on what a client has sent; a panic is the client's error.
pub(crate) fn decoded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Unwind safe: a reader that has panicked is not used again.
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_payload| Err("a message contradicts itself".to_owned()))
}

/// Checks the lengths of all messages of a stream.
fn check_stream(mut bytes: &[u8]) -> Result<(), String> {
    let mut decompressed = 0;
    while let Some((message, body, rest)) = next_message(bytes)? {
        decompressed += check(&message, body)?;
        if decompressed > DECOMPRESSED_BYTES_MAX {
            return Err(too_large(decompressed));
        }
        bytes = rest;
    }
    Ok(())
}

/// The header of a message, and the bytes behind it.
type SplitHeader<'b> = (&'b [u8], &'b [u8]);

/// A message, its body, and the bytes behind it.
type SplitMessage<'b> = (ipc::Message<'b>, &'b [u8], &'b [u8]);

/// Splits the next message off; `None` at the end.
fn next_message(bytes: &[u8]) -> Result<Option<SplitMessage<'_>>, String> {
    let Some((header, rest)) = split_header(bytes)? else { return Ok(None) };
    let message = root_as_message(header).map_err(|error| error.to_string())?;
    let size = usize::try_from(message.bodyLength()).map_err(|error| error.to_string())?;
    let (body, rest) = rest.split_at_checked(size).ok_or_else(|| cut(size))?;
    Ok(Some((message, body, rest)))
}

/// Splits the header of the next message off; `None` at the end.
fn split_header(bytes: &[u8]) -> Result<Option<SplitHeader<'_>>, String> {
    let Some((mut length, mut rest)) = split_u32(bytes) else { return Ok(None) };
    if length == CONTINUATION {
        (length, rest) = split_u32(rest).ok_or("a message ends in its length")?;
    }
    if length == 0 {
        return Ok(None);
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    rest.split_at_checked(size).ok_or_else(|| cut(size)).map(Some)
}

fn cut(size: usize) -> String {
    format!("a message of {size} bytes is cut")
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*first), rest))
}

/// Checks the lengths in a message. Returns the bytes that it decompresses to; 0 where it is not
/// compressed.
pub(crate) fn check_message(header: &[u8], body: &[u8]) -> Result<u64, String> {
    check(&root_as_message(header).map_err(|error| error.to_string())?, body)
}

/// Checks the lengths in a message, as [`check_message`] does.
fn check(message: &ipc::Message<'_>, body: &[u8]) -> Result<u64, String> {
    let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let batch = message.header_as_record_batch().or(dictionary);
    batch.map_or(Ok(0), |batch| check_batch(&batch, body))
}

fn check_batch(batch: &ipc::RecordBatch<'_>, body: &[u8]) -> Result<u64, String> {
    let mut decompressed = 0;
    for buffer in batch.buffers().into_iter().flatten() {
        let found = buffer_in(body, buffer).ok_or("a buffer is not within its message")?;
        if batch.compression().is_some() {
            decompressed += decompressed_length(found)?;
        }
    }
    if decompressed > DECOMPRESSED_BYTES_MAX {
        return Err(too_large(decompressed));
    }
    let bytes = decompressed.max(u64::try_from(body.len()).unwrap_or(u64::MAX));
    // A value has a bit at least.
    let rows_max = bytes.saturating_mul(8).max(ROWS_WITHOUT_BYTES_MAX);
    let nodes = batch.nodes().into_iter().flatten();
    let lengths = nodes.flat_map(|node| [node.length(), node.null_count()]);
    for count in lengths.chain([batch.length()]) {
        if !u64::try_from(count).is_ok_and(|count| count <= rows_max) {
            return Err(format!("{count} rows are more than {bytes} bytes have"));
        }
    }
    Ok(decompressed)
}

/// Returns the bytes of a buffer.
fn buffer_in<'b>(body: &'b [u8], buffer: &ipc::Buffer) -> Option<&'b [u8]> {
    let from = usize::try_from(buffer.offset()).ok()?;
    let length = usize::try_from(buffer.length()).ok()?;
    body.get(from..from.checked_add(length)?)
}

/// Reads the length of a compressed buffer.
fn decompressed_length(buffer: &[u8]) -> Result<u64, String> {
    if buffer.is_empty() {
        return Ok(0);
    }
    let Some(first) = buffer.first_chunk::<LENGTH_BYTES>() else {
        return Err("a compressed buffer has no length".to_owned());
    };
    match i64::from_le_bytes(*first) {
        NOT_COMPRESSED => Ok(u64::try_from(buffer.len()).unwrap_or(u64::MAX)),
        length => {
            let length = u64::try_from(length).ok();
            let length = length.ok_or("a compressed buffer has a negative length")?;
            if length > DECOMPRESSED_BYTES_MAX { Err(too_large(length)) } else { Ok(length) }
        }
    }
}

fn too_large(bytes: u64) -> String {
    format!("{bytes} bytes behind the compression are more than {DECOMPRESSED_BYTES_MAX}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{DictionaryArray, Int64Array, NullArray, RecordBatch, StringArray},
        buffer::{Buffer, OffsetBuffer},
        datatypes::Int32Type,
        ipc::{
            CompressionType,
            writer::{IpcWriteOptions, StreamWriter},
        },
    };

    use super::{KnownSchemas, decoded, read_stream, split_header};

    fn stream_of(batch: &RecordBatch, compression: Option<CompressionType>) -> Vec<u8> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut bytes = Vec::new();
        let mut writer =
            StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        drop(writer);
        bytes
    }

    fn rows() -> RecordBatch {
        let numbers = Int64Array::from_iter((0..1_000).map(|row| (row % 3 > 0).then_some(row)));
        let texts = StringArray::from_iter_values((0..1_000).map(|_| "the same text"));
        RecordBatch::try_from_iter_with_nullable([
            ("a", Arc::new(numbers) as _, true),
            ("b", Arc::new(texts) as _, false),
        ])
        .unwrap()
    }

    #[test]
    fn streams_are_read_compressed_or_not() {
        for compression in [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)] {
            let bytes = stream_of(&rows(), compression);
            assert_eq!(read_stream(&bytes).unwrap().1, [rows()], "{compression:?}");
        }
        let nulls = RecordBatch::try_from_iter([("n", Arc::new(NullArray::new(5)) as _)]).unwrap();
        assert_eq!(read_stream(&stream_of(&nulls, None)).unwrap().1[0].num_rows(), 5);
    }

    #[test]
    fn lengths_that_are_not_borne_out_are_refused() {
        let huge = [&u32::MAX.to_le_bytes()[..], &0x7fff_fff0_u32.to_le_bytes(), &[0; 64]].concat();
        assert!(read_stream(&huge).unwrap_err().ends_with("bytes is cut"));
        let many =
            RecordBatch::try_from_iter([("n", Arc::new(NullArray::new(1 << 40)) as _)]).unwrap();
        let error = read_stream(&stream_of(&many, None)).unwrap_err();
        assert!(error.starts_with("1099511627776 rows are more than"), "{error}");
        // The length of a compressed buffer stands before its bytes.
        let mut bytes = stream_of(&rows(), Some(CompressionType::ZSTD));
        let length = 8_000_u64.to_le_bytes();
        let at = bytes.windows(8).position(|part| part == length).unwrap();
        bytes[at..at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        let error = read_stream(&bytes).unwrap_err();
        assert!(error.contains("bytes behind the compression"), "{error}");
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused() {
        let (offsets, bytes) = (OffsetBuffer::from_lengths([4]), Buffer::from(b"caf\xe9"));
        // SAFETY: the text is written as bytes, and nothing else reads it.
        let texts = unsafe { StringArray::new_unchecked(offsets, bytes, None) };
        let rows = RecordBatch::try_from_iter([("a", Arc::new(texts) as _)]).unwrap();
        let error = read_stream(&stream_of(&rows, None)).unwrap_err();
        assert!(error.contains("Invalid UTF8 sequence at string index 0"), "{error}");
    }

    #[test]
    fn a_known_schema_reads_the_same_rows() {
        let known = KnownSchemas::default();
        for compression in [None, Some(CompressionType::ZSTD)] {
            for from in [0, 100, 200] {
                let part = rows().slice(from, 90);
                let (schema, found) = known.read_stream(&stream_of(&part, compression)).unwrap();
                assert_eq!((schema, found), (part.schema(), vec![part]));
            }
        }
        let message = split_header(&stream_of(&rows(), None)).unwrap().unwrap().0.to_vec();
        assert_eq!(known.by_message.get(&*message), Some(rows().schema()));
        // The values of a dictionary are in messages of their own.
        let words = vec!["a", "b", "a"].into_iter().collect::<DictionaryArray<Int32Type>>();
        let words = RecordBatch::try_from_iter([("w", Arc::new(words) as _)]).unwrap();
        for _ in 0..2 {
            let found = known.read_stream(&stream_of(&words, None)).unwrap().1;
            assert_eq!(found, std::slice::from_ref(&words));
        }
    }

    #[test]
    fn every_changed_byte_is_an_error_or_rows() {
        let bytes = stream_of(&rows().slice(0, 9), None);
        let known = KnownSchemas::default();
        known.read_stream(&bytes).unwrap();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                // It returns.
                let read = read_stream(&changed);
                // The same rows, or an error of the same bytes, where the schema is known.
                assert_eq!(known.read_stream(&changed).ok(), read.ok(), "byte {at} is {value}");
            }
        }
    }

    #[test]
    fn a_panic_of_a_reader_is_an_error() {
        assert_eq!(decoded::<()>(|| panic!("odd")).unwrap_err(), "a message contradicts itself");
        assert_eq!(decoded(|| Ok(7)), Ok(7));
    }
}

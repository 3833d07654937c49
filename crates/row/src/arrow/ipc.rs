//! Arrow's IPC messages of clients and in files, checked before Arrow's readers see them.
//!
//! Those readers are written for files that one trusts: they allocate what a length says before they
//! look for the bytes, panic where a message contradicts itself, and read the numbers of a machine with
//! another order of bytes as if they were this one's. [`check_message`] refuses what the bytes do not
//! bear out; [`decoded`] makes what still panics an error. Used by `batch` for files and by the server
//! for HTTP and Flight; knows neither.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    ipc::{self, reader::StreamReader, root_as_message},
};

/// What messages of others may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    /// Maximum bytes that compressed messages may decompress to: of a stream, and of one message.
    pub decompressed_bytes_max: u64,
    /// Maximum rows of a message whose columns have no bytes, such as those of type NULL.
    pub rows_without_bytes_max: u64,
}

impl MessageLimits {
    /// The limits of what clients send.
    pub const OF_CLIENTS: Self =
        Self { decompressed_bytes_max: 256 << 20, rows_without_bytes_max: 65_536 };

    /// The limits of a message in a file, which has a body of so many bytes. Maximum expansion of
    /// columns of one repeated value is about 1,000.
    pub fn in_file(body_bytes: usize) -> Self {
        let body_bytes = u64::try_from(body_bytes).unwrap_or(u64::MAX);
        let decompressed_bytes_max = body_bytes.saturating_mul(1_024).max(256 << 20);
        Self { decompressed_bytes_max, rows_without_bytes_max: u32::MAX.into() }
    }
}

/// What a stream begins each message with, in the format of today.
const CONTINUATION: u32 = u32::MAX;

/// The length before a compressed buffer, in bytes.
const LENGTH_BYTES: usize = 8;

/// The length of a buffer that is not compressed.
const NOT_COMPRESSED: i64 = -1;

/// Reads a stream of a client. The error says what is wrong with it.
pub fn read_stream(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    check_stream(bytes)?;
    decoded(|| {
        let reader = StreamReader::try_new(bytes, None).map_err(|error| error.to_string())?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        Ok((schema, batches))
    })
}

/// Runs a reader of Arrow or Parquet on bytes of others; a panic is an error of the bytes.
pub fn decoded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Unwind safe: a reader that has panicked is not used again.
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_payload| Err("a message is inconsistent".to_owned()))
}

/// Checks all messages of a stream of a client.
fn check_stream(mut bytes: &[u8]) -> Result<(), String> {
    let limits = MessageLimits::OF_CLIENTS;
    let mut decompressed = 0;
    while let Some((message, body, rest)) = next_message(bytes)? {
        decompressed += check(&message, body, limits)?;
        if decompressed > limits.decompressed_bytes_max {
            return Err(too_large(decompressed, limits));
        }
        bytes = rest;
    }
    Ok(())
}

/// The header of a message, and the bytes behind it.
pub type SplitHeader<'b> = (&'b [u8], &'b [u8]);

/// A message, its body, and the bytes behind it.
pub type SplitMessage<'b> = (ipc::Message<'b>, &'b [u8], &'b [u8]);

/// Splits the next message off; `None` at the end.
pub fn next_message(bytes: &[u8]) -> Result<Option<SplitMessage<'_>>, String> {
    let Some((header, rest)) = split_header(bytes)? else { return Ok(None) };
    let message = root_as_message(header).map_err(|error| error.to_string())?;
    let size = usize::try_from(message.bodyLength()).map_err(|error| error.to_string())?;
    let (body, rest) = rest.split_at_checked(size).ok_or_else(|| cut(size))?;
    debug_assert!(rest.len() < bytes.len(), "each message has a header");
    Ok(Some((message, body, rest)))
}

/// Splits the header of the next message off; `None` at the end.
pub fn split_header(bytes: &[u8]) -> Result<Option<SplitHeader<'_>>, String> {
    let Some((mut length, mut rest)) = split_u32(bytes) else { return Ok(None) };
    if length == CONTINUATION {
        (length, rest) = split_u32(rest).ok_or("a message is truncated in its length field")?;
    }
    if length == 0 {
        return Ok(None);
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    rest.split_at_checked(size).ok_or_else(|| cut(size)).map(Some)
}

fn cut(size: usize) -> String {
    format!("a message of {size} bytes is truncated")
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*first), rest))
}

/// Checks a message: the order of the bytes that a schema says, and the lengths of a batch. Returns the
/// bytes that it decompresses to; 0 where it is not compressed.
pub fn check_message(header: &[u8], body: &[u8], limits: MessageLimits) -> Result<u64, String> {
    check(&root_as_message(header).map_err(|error| error.to_string())?, body, limits)
}

/// Checks a message, as [`check_message`] does.
fn check(message: &ipc::Message<'_>, body: &[u8], limits: MessageLimits) -> Result<u64, String> {
    if let Some(schema) = message.header_as_schema() {
        check_byte_order(&schema)?;
    }
    let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let batch = message.header_as_record_batch().or(dictionary);
    batch.map_or(Ok(0), |batch| check_batch_message(&batch, body, limits))
}

/// Fails for a schema whose columns have the order of bytes of another kind of machine.
pub fn check_byte_order(schema: &ipc::Schema<'_>) -> Result<(), String> {
    match schema.endianness().equals_to_target_endianness() {
        true => Ok(()),
        false => Err("the byte order of the data differs from this machine's".to_owned()),
    }
}

/// Checks the lengths in a batch, as [`check_message`] does.
pub fn check_batch_message(
    batch: &ipc::RecordBatch<'_>,
    body: &[u8],
    limits: MessageLimits,
) -> Result<u64, String> {
    let mut decompressed = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let found = buffer_in(body, buffer).ok_or("a buffer extends past its message")?;
        if batch.compression().is_some() {
            decompressed = decompressed.saturating_add(decompressed_length(found)?);
        }
    }
    if decompressed > limits.decompressed_bytes_max {
        return Err(too_large(decompressed, limits));
    }
    let bytes = decompressed.max(u64::try_from(body.len()).unwrap_or(u64::MAX));
    // A value has a bit at least.
    let rows_max = bytes.saturating_mul(8).max(limits.rows_without_bytes_max);
    let nodes = batch.nodes().into_iter().flatten();
    let lengths = nodes.flat_map(|node| [node.length(), node.null_count()]);
    for count in lengths.chain([batch.length()]) {
        if !u64::try_from(count).is_ok_and(|count| count <= rows_max) {
            return Err(format!("{count} rows do not fit in {bytes} bytes"));
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
        length @ 0.. => Ok(length.cast_unsigned()),
        _ => Err("a compressed buffer has a negative length".to_owned()),
    }
}

/// Returns the error of a message or a stream that is too large when it is not compressed.
pub fn too_large(bytes: u64, limits: MessageLimits) -> String {
    let bytes_max = limits.decompressed_bytes_max;
    format!("decompressed size {bytes} exceeds the limit of {bytes_max} bytes")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{Int64Array, NullArray, RecordBatch, StringArray},
        buffer::{Buffer, OffsetBuffer},
        ipc::{
            CompressionType,
            writer::{IpcWriteOptions, StreamWriter},
        },
    };

    use super::{MessageLimits, check_message, decoded, read_stream, split_header};

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
        assert!(read_stream(&huge).unwrap_err().ends_with("bytes is truncated"));
        let many =
            RecordBatch::try_from_iter([("n", Arc::new(NullArray::new(1 << 40)) as _)]).unwrap();
        let error = read_stream(&stream_of(&many, None)).unwrap_err();
        assert!(error.starts_with("1099511627776 rows do not fit in"), "{error}");
        // The length of a compressed buffer stands before its bytes.
        let mut bytes = stream_of(&rows(), Some(CompressionType::ZSTD));
        let length = 8_000_u64.to_le_bytes();
        let at = bytes.windows(8).position(|part| part == length).unwrap();
        bytes[at..at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        let error = read_stream(&bytes).unwrap_err();
        assert!(error.starts_with("decompressed size"), "{error}");
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

    /// The schema `n INT` of a stream of a big-endian machine, as Arrow's integration tests have it.
    fn big_endian_schema() -> [u8; 128] {
        [
            16, 0, 0, 0, 0, 0, 10, 0, 12, 0, 10, 0, 9, 0, 4, 0, 10, 0, 0, 0, 16, 0, 0, 0, 0, 1, 4,
            0, 8, 0, 12, 0, 10, 0, 4, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 20, 0, 0,
            0, 16, 0, 20, 0, 16, 0, 15, 0, 14, 0, 8, 0, 0, 0, 4, 0, 16, 0, 0, 0, 16, 0, 0, 0, 24,
            0, 0, 0, 0, 0, 2, 1, 28, 0, 0, 0, 0, 0, 0, 0, 8, 0, 12, 0, 8, 0, 7, 0, 8, 0, 0, 0, 0,
            0, 0, 1, 32, 0, 0, 0, 1, 0, 0, 0, 110, 0, 0, 0, 0, 0, 0, 0,
        ]
    }

    #[test]
    fn numbers_of_another_kind_of_machine_are_refused() {
        let bytes = stream_of(&rows(), None);
        let (header, _) = split_header(&bytes).unwrap().unwrap();
        assert_eq!(check_message(header, &[], MessageLimits::OF_CLIENTS), Ok(0));
        let big_endian = big_endian_schema();
        let error = check_message(&big_endian, &[], MessageLimits::OF_CLIENTS).unwrap_err();
        assert!(error.starts_with("the byte order of the data"), "{error}");
        let size = u32::try_from(big_endian.len()).unwrap();
        let stream = [&u32::MAX.to_le_bytes(), &size.to_le_bytes(), &big_endian[..]].concat();
        assert_eq!(read_stream(&stream).unwrap_err(), error);
    }

    #[test]
    fn a_panic_of_a_reader_is_an_error() {
        assert_eq!(decoded::<()>(|| panic!("odd")).unwrap_err(), "a message is inconsistent");
        assert_eq!(decoded(|| Ok(7)), Ok(7));
    }
}

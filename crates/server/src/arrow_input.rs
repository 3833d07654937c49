//! Arrow's IPC messages from clients, checked before Arrow's readers see them.
//!
//! Those readers are written for files that one trusts: they allocate what a length says before they
//! look for the bytes, and panic where a message contradicts itself. [`check_message`] refuses lengths
//! that the bytes do not bear out; [`decoded`] makes what still panics an error of the client. Used by
//! HTTP and Flight; knows neither.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    ipc::{self, reader::StreamReader, root_as_message},
};

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

/// Runs a reader of Arrow on what a client has sent; a panic is the client's error.
pub(crate) fn decoded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Unwind safe: a reader that has panicked is not used again.
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_payload| Err("a message contradicts itself".to_owned()))
}

/// Checks the lengths of all messages of a stream.
fn check_stream(mut bytes: &[u8]) -> Result<(), String> {
    let mut decompressed = 0;
    while let Some((header, body, rest)) = next_message(bytes)? {
        decompressed += check_message(header, body)?;
        if decompressed > DECOMPRESSED_BYTES_MAX {
            return Err(too_large(decompressed));
        }
        bytes = rest;
    }
    Ok(())
}

/// The header and the body of a message, and the bytes behind it.
type SplitMessage<'b> = (&'b [u8], &'b [u8], &'b [u8]);

/// Splits the next message off; `None` at the end.
fn next_message(bytes: &[u8]) -> Result<Option<SplitMessage<'_>>, String> {
    let Some((mut length, mut rest)) = split_u32(bytes) else { return Ok(None) };
    if length == CONTINUATION {
        (length, rest) = split_u32(rest).ok_or("a message ends in its length")?;
    }
    if length == 0 {
        return Ok(None);
    }
    let cut = |length: u64| format!("a message of {length} bytes is cut");
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    let (header, rest) = rest.split_at_checked(size).ok_or_else(|| cut(length.into()))?;
    let message = root_as_message(header).map_err(|error| error.to_string())?;
    let size = usize::try_from(message.bodyLength()).map_err(|error| error.to_string())?;
    let (body, rest) =
        rest.split_at_checked(size).ok_or_else(|| cut(u64::try_from(size).unwrap_or(u64::MAX)))?;
    Ok(Some((header, body, rest)))
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*first), rest))
}

/// Checks the lengths in a message. Returns the bytes that it decompresses to; 0 where it is not
/// compressed.
pub(crate) fn check_message(header: &[u8], body: &[u8]) -> Result<u64, String> {
    let message = root_as_message(header).map_err(|error| error.to_string())?;
    let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else { return Ok(0) };
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
        array::{Int64Array, NullArray, RecordBatch, StringArray},
        buffer::{Buffer, OffsetBuffer},
        ipc::{
            CompressionType,
            writer::{IpcWriteOptions, StreamWriter},
        },
    };

    use super::{decoded, read_stream};

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
    fn every_changed_byte_is_an_error_or_rows() {
        let bytes = stream_of(&rows().slice(0, 9), None);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                // It returns.
                let _read = read_stream(&changed);
            }
        }
    }

    #[test]
    fn a_panic_of_a_reader_is_an_error() {
        assert_eq!(decoded::<()>(|| panic!("odd")).unwrap_err(), "a message contradicts itself");
        assert_eq!(decoded(|| Ok(7)), Ok(7));
    }
}

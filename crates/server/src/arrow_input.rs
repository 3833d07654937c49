//! Arrow's streams from clients, whose schemas are read only once.
//!
//! A stream of few rows is mostly its schema: [`KnownSchemas`] keeps those that clients have sent. What
//! is in a message is checked by `row` before it is read. Used by HTTP and Flight; knows neither.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::RecordBatch, buffer::Buffer, datatypes::SchemaRef, ipc::reader::read_record_batch,
};
use lockstep_row::arrow::{
    MessageLimits, check_batch_message, decoded, next_message, read_stream, split_header, too_large,
};

use crate::bounded_map::BoundedMap;

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
    let limits = MessageLimits::OF_CLIENTS;
    let mut batches = Vec::new();
    let mut decompressed = 0;
    while let Some((message, body, rest)) = next_message(bytes)? {
        let Some(batch) = message.header_as_record_batch() else { return Ok(None) };
        decompressed += check_batch_message(&batch, body, limits)?;
        if decompressed > limits.decompressed_bytes_max {
            return Err(too_large(decompressed, limits));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{DictionaryArray, Int64Array, RecordBatch, StringArray},
        datatypes::Int32Type,
        ipc::{
            CompressionType,
            writer::{IpcWriteOptions, StreamWriter},
        },
    };

    use super::{KnownSchemas, read_stream, split_header};

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
}

//! The pages of one row group, checked before Parquet's decoders see them.
//!
//! The decoders reserve memory for as many bytes and values as a page's header claims to have.
//! [`GroupFile`] is a row group as a file of its own, so that the rows of each group are counted and a
//! column that has too few of them does not shift those of the next group. Its pages do not claim more
//! bytes than their compression can hold, nor more values than their bytes.

use std::{
    io::{self, Cursor, Read},
    sync::Arc,
};

use ::parquet::{
    basic::Encoding,
    bloom_filter::Sbbf,
    column::page::{Page, PageMetadata, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
        reader::{ChunkReader, FileReader, Length, RowGroupReader},
        serialized_reader::SerializedPageReader,
    },
    record::reader::RowIter,
    schema::types::{ColumnDescPtr, Type as SchemaType},
};
use bytes::Bytes;

use super::thrift::{ThriftType, ThriftWalk, damage};
use crate::load::location::FileChunks;

/// Maximum bytes of the header of a page.
const HEADER_BYTES_MAX: u64 = 16 << 20;

/// Bytes that a page may always have when it is not compressed.
const PAGE_BYTES_MIN: i64 = 1 << 20;

/// Maximum bytes that one compressed byte stands for: Zstandard's blocks of one repeated byte.
const EXPANSION_MAX: i64 = 1 << 15;

/// Numbers of the fields of a page's header.
const UNCOMPRESSED_FIELD: i64 = 2;
const COMPRESSED_FIELD: i64 = 3;

/// A row group as a file of its own.
#[derive(Debug)]
pub(super) struct GroupFile {
    chunks: Arc<FileChunks>,
    /// That of the file, with this group alone.
    metadata: ParquetMetaData,
}

impl GroupFile {
    /// Takes the metadata of a file with one row group.
    pub(super) fn new(chunks: Arc<FileChunks>, metadata: ParquetMetaData) -> Self {
        debug_assert_eq!(metadata.num_row_groups(), 1, "one row group");
        Self { chunks, metadata }
    }

    /// Fails if the pages of a column are not in the file.
    fn check_place(&self, column: &ColumnChunkMetaData) -> ParquetResult<()> {
        let name = column.column_path().string();
        if column.file_path().is_some() {
            let message = format!("the pages of column `{name}` are in another file");
            return Err(ParquetError::NYI(message));
        }
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let [start, size] = [start, column.compressed_size()].map(|at| u64::try_from(at).ok());
        let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
        match end.is_some_and(|end| end <= self.chunks.len()) {
            true => Ok(()),
            false => {
                Err(ParquetError::EOF(format!("the pages of column `{name}` are outside the file")))
            }
        }
    }
}

impl FileReader for GroupFile {
    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    fn num_row_groups(&self) -> usize {
        1
    }

    fn get_row_group(&self, _: usize) -> ParquetResult<Box<dyn RowGroupReader + '_>> {
        Ok(Box::new(GroupPages { file: self }))
    }

    fn get_row_iter(&self, _: Option<SchemaType>) -> ParquetResult<RowIter<'_>> {
        Err(ParquetError::NYI("rows are read by columns".to_owned()))
    }
}

struct GroupPages<'f> {
    file: &'f GroupFile,
}

impl RowGroupReader for GroupPages<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.file.metadata.row_group(0)
    }

    fn num_columns(&self) -> usize {
        self.metadata().num_columns()
    }

    fn get_column_page_reader(&self, column: usize) -> ParquetResult<Box<dyn PageReader>> {
        let chunk = self.metadata().column(column);
        self.file.check_place(chunk)?;
        let rows = usize::try_from(self.metadata().num_rows())?;
        let chunks = Arc::new(PageChunks(Arc::clone(&self.file.chunks)));
        let pages = SerializedPageReader::new(chunks, chunk, rows, None)?;
        Ok(Box::new(CheckedPages { pages, column: chunk.column_descr_ptr() }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, _: Option<SchemaType>) -> ParquetResult<RowIter<'_>> {
        Err(ParquetError::NYI("rows are read by columns".to_owned()))
    }
}

/// The bytes of pages: what is read from a position is a header, which is checked.
struct PageChunks(Arc<FileChunks>);

impl Length for PageChunks {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for PageChunks {
    type T = HeaderBytes;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(HeaderBytes { unread: Some(self.0.get_read(start)?), header: Cursor::default() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.0.get_bytes(start, length)
    }
}

/// The header of a page; it is read as a whole when its first byte is wanted.
struct HeaderBytes {
    unread: Option<Box<dyn Read>>,
    header: Cursor<Vec<u8>>,
}

impl Read for HeaderBytes {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(bytes) = self.unread.take() {
            self.header = Cursor::new(read_header(bytes)?);
        }
        self.header.read(to)
    }
}

/// A reader that keeps what was read.
struct Recorded<R> {
    bytes: R,
    read: Vec<u8>,
}

impl<R: Read> Read for Recorded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(to)?;
        self.read.extend_from_slice(&to[..count]);
        Ok(count)
    }
}

/// Reads the header of a page, and checks its sizes.
fn read_header(bytes: impl Read) -> io::Result<Vec<u8>> {
    let mut recorded = Recorded { bytes, read: Vec::new() };
    let (mut uncompressed, mut compressed) = (0, 0);
    ThriftWalk::new(&mut recorded, HEADER_BYTES_MAX).fields(&mut |walk, number, of| {
        match (number, of) {
            (UNCOMPRESSED_FIELD, ThriftType::Integer) => uncompressed = walk.integer()?,
            (COMPRESSED_FIELD, ThriftType::Integer) => compressed = walk.integer()?,
            _ => walk.skip(of)?,
        }
        Ok(())
    })?;
    let possible = compressed.max(0).saturating_mul(EXPANSION_MAX).max(PAGE_BYTES_MIN);
    if uncompressed > possible {
        let message =
            format!("a page of {compressed} bytes cannot decompress to {uncompressed} bytes");
        return Err(damage(message));
    }
    Ok(recorded.read)
}

/// The pages of a column; their numbers of values are checked.
struct CheckedPages {
    pages: SerializedPageReader<PageChunks>,
    column: ColumnDescPtr,
}

impl Iterator for CheckedPages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            check_page(page, &self.column)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}

/// Checks the numbers of values for which a decoder reserves memory.
fn check_page(page: &Page, column: &ColumnDescPtr) -> ParquetResult<()> {
    let values = usize::try_from(page.num_values())?;
    let too_many = |what: &str| {
        let (name, bytes) = (column.path().string(), page.buffer().len());
        let message = format!("a page of column `{name}` has too few bytes ({bytes}) for {what}");
        Err(ParquetError::General(message))
    };
    match page {
        Page::DictionaryPage { buf, .. } => match values <= buf.len() {
            true => Ok(()),
            false => too_many(&format!("{values} values")),
        },
        Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => {
            let lists = match encoding {
                Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
                Encoding::DELTA_BYTE_ARRAY => 2,
                _ => return check_levels(page, column),
            };
            let Some(mut bytes) = values_of(page, column) else { return too_many("its levels") };
            for _ in 0..lists {
                match lengths(bytes) {
                    Some((count, rest)) if count <= values => bytes = rest,
                    _ => return too_many(&format!("the lengths of {values} values")),
                }
            }
            Ok(())
        }
    }
}

/// Checks that the levels of a page of the first version are within it: the decoder slices them off.
fn check_levels(page: &Page, column: &ColumnDescPtr) -> ParquetResult<()> {
    match values_of(page, column) {
        Some(_) => Ok(()),
        None => {
            let name = column.path().string();
            Err(ParquetError::EOF(format!("the levels of a page of column `{name}` are truncated")))
        }
    }
}

/// Returns the bytes of a page behind its levels; `None` where it is cut.
fn values_of<'p>(page: &'p Page, column: &ColumnDescPtr) -> Option<&'p [u8]> {
    match page {
        Page::DataPage { buf, rep_level_encoding, def_level_encoding, num_values, .. } => {
            let mut rest = buf.as_ref();
            let levels = [
                (column.max_rep_level(), rep_level_encoding),
                (column.max_def_level(), def_level_encoding),
            ];
            for (level_max, encoding) in levels {
                let size = match encoding {
                    _ if level_max == 0 => continue,
                    Encoding::RLE => {
                        let (size, behind) = rest.split_first_chunk()?;
                        rest = behind;
                        usize::try_from(u32::from_le_bytes(*size)).ok()?
                    }
                    // Packed bits, as the oldest writers wrote them.
                    _ => {
                        let bits = u64::from(i16::BITS - level_max.leading_zeros());
                        let bytes = (u64::from(*num_values) * bits).div_ceil(8);
                        usize::try_from(bytes).ok()?
                    }
                };
                rest = rest.get(size..)?;
            }
            Some(rest)
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let size = def_levels_byte_len.checked_add(*rep_levels_byte_len)?;
            buf.get(usize::try_from(size).ok()?..)
        }
        Page::DictionaryPage { buf, .. } => Some(buf),
    }
}

/// Returns how many numbers a list packed as deltas has, and the bytes behind it; `None` where it is
/// cut.
fn lengths(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut rest = bytes;
    let block = usize::try_from(varint(&mut rest)?).ok()?;
    let parts = usize::try_from(varint(&mut rest)?).ok()?;
    let count = usize::try_from(varint(&mut rest)?).ok()?;
    varint(&mut rest)?;
    let part = block.checked_div(parts)?;
    // The first number is in the header.
    let mut left = count.saturating_sub(1);
    while left > 0 {
        varint(&mut rest)?;
        let (widths, behind) = rest.split_at_checked(parts)?;
        rest = behind;
        for width in widths {
            if left > 0 {
                let size = part.checked_mul(usize::from(*width))? / 8;
                // The last part may be cut behind its last number.
                let needed = left.min(part).checked_mul(usize::from(*width))?.div_ceil(8);
                rest.get(..needed)?;
                rest = rest.get(size..).unwrap_or_default();
                left = left.saturating_sub(part);
            }
        }
        if part == 0 {
            return None;
        }
    }
    Some((count, rest))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

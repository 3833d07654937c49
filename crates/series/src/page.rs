//! A page: rows of some entity keys as bytes, and the same rows in the layout that readers take.
//!
//! `table` writes pages into files and reads them again, one at a time. Knows neither files nor
//! checksums: bytes go in, and [`SeriesRows`] come out, like those of a [`Series`](crate::Series). A
//! page never changes.
//!
//! # Layout of the bytes
//!
//! ```text
//! page        u32 keys | key group, ...: in the order of their bytes
//! key group   u32 bytes of the key | u32 rows | key
//!                 | event times, i64 each, newest row first | rows, as `row_ref` stores them
//! ```
//!
//! Numbers are little-endian. A key may have more rows in other pages. Records are not in the bytes:
//! which columns a series includes may change, and a record is made of its row.
//!
//! # Cost
//!
//! Reading a page checks each row, makes its record and copies its event time; the rows stay where
//! they are in the bytes. Memory: the bytes, and what the chunks of a series take.

use std::{fmt, ops::Range, ptr::NonNull, sync::Arc};

use lockstep_host::memory::footprint;

use crate::{
    Bounds, KeyRow, RecordFormat, RowRef, SeriesRows,
    chunk::{Chunk, ChunkBuilder, ChunkHeader, ChunkSpec, ChunkView, split_address},
    directory::{Directory, directory_footprint},
    entry::EntryRows,
    row_ref::{ADDRESS_BITS, ROW_HEADER_SIZE, stored_extent},
    sync::chunk_rows,
};

/// Bytes of the count of keys.
pub(crate) const PAGE_HEADER_BYTES: usize = size_of::<u32>();
/// Bytes of what precedes the key in its group.
pub(crate) const GROUP_HEADER_BYTES: usize = 2 * size_of::<u32>();
/// Bytes of an event time.
pub(crate) const TIME_BYTES: usize = size_of::<i64>();

/// Writes the bytes of pages, one after the other.
#[derive(Debug, Default)]
pub struct PageWriter {
    /// The keys that have ended; empty when none has.
    ended: Vec<u8>,
    ended_keys: u32,
    /// The key that has not ended, and its rows.
    open: UnfinishedGroup,
}

/// The key group that is being written.
#[derive(Debug, Default)]
struct UnfinishedGroup {
    key: Vec<u8>,
    times: Vec<u8>,
    rows: Vec<u8>,
}

/// The rows of a page in the order of its bytes, to be merged. No chunks are made.
#[derive(Debug)]
pub struct PageRows {
    bytes: Vec<u8>,
    rows: Vec<RowInPage>,
}

/// Where a row of a page is in the bytes.
#[derive(Debug, Clone)]
struct RowInPage {
    key: Range<usize>,
    event_time: i64,
    start: usize,
}

/// Rows that were read from bytes.
pub struct Page {
    // Freed before the rows, to which they lead.
    keys: PageKeys,
    format: Option<Arc<RecordFormat>>,
    /// The bytes of the page.
    bytes: Vec<u8>,
    memory_bytes: usize,
}

/// The keys of a page in the order of their bytes.
#[derive(Default)]
struct PageKeys {
    keys: Vec<PageKey>,
}

/// A key of a page.
struct PageKey {
    /// Where it is in the bytes.
    key: Range<usize>,
    head: PageHead,
}

/// The rows of a key of a page.
enum PageHead {
    /// One row, whose address is written in two parts.
    Single {
        event_time: i64,
        low: u32,
        high: u16,
    },
    Chunk(NonNull<ChunkHeader>),
    /// Of several chunks.
    Directory(NonNull<Directory<ChunkHeader>>),
}

// SAFETY: nothing of them changes after the page was made, and they own what they point to.
unsafe impl Send for PageKeys {}
// SAFETY: as above.
unsafe impl Sync for PageKeys {}

impl PageWriter {
    /// Begins the rows of a key, which is greater than those before it in the page; one without rows is
    /// not written.
    pub fn begin_key(&mut self, key: &[u8]) {
        self.end_key();
        self.open.key.clear();
        self.open.key.extend_from_slice(key);
    }

    /// Adds a row of the key, which is older than those before it.
    pub fn push(&mut self, event_time: i64, row: RowRef<'_>) {
        debug_assert!(row.stored_size() >= ROW_HEADER_SIZE, "a row has a header");
        self.open.times.extend_from_slice(&event_time.to_le_bytes());
        self.open.rows.extend_from_slice(row.stored_bytes());
    }

    /// Returns how many bytes the page has with the rows of the keys that have ended, and with all.
    pub fn byte_counts(&self) -> (usize, usize) {
        let UnfinishedGroup { key, times, rows } = &self.open;
        let open = match times.len() {
            0 => 0,
            times => GROUP_HEADER_BYTES + key.len() + times + rows.len(),
        };
        let header = if self.ended_keys == 0 { PAGE_HEADER_BYTES } else { 0 };
        (self.ended.len(), self.ended.len() + if open > 0 { header + open } else { 0 })
    }

    /// Returns the bytes of a page of the keys that have ended, at least one. The rows of the key that has
    /// not ended belong to the next page.
    pub fn finish_ended(&mut self) -> Vec<u8> {
        assert!(self.ended_keys > 0, "a page has a key");
        self.ended[..PAGE_HEADER_BYTES].copy_from_slice(&self.ended_keys.to_le_bytes());
        self.ended_keys = 0;
        std::mem::take(&mut self.ended)
    }

    /// Returns the bytes of a page of all rows, at least one. Further rows of the key belong to the next
    /// page.
    pub fn finish(&mut self) -> Vec<u8> {
        self.end_key();
        self.finish_ended()
    }

    fn end_key(&mut self) {
        let UnfinishedGroup { key, times, rows } = &mut self.open;
        let number = |length| u32::try_from(length).expect("a page is small").to_le_bytes();
        if times.is_empty() {
            return;
        }
        if self.ended_keys == 0 {
            self.ended.extend_from_slice(&[0; PAGE_HEADER_BYTES]);
        }
        self.ended_keys += 1;
        self.ended.extend_from_slice(&number(key.len()));
        self.ended.extend_from_slice(&number(times.len() / TIME_BYTES));
        self.ended.extend_from_slice(key);
        debug_assert_eq!(times.len() % TIME_BYTES, 0, "event times are whole");
        self.ended.append(times);
        self.ended.append(rows);
    }
}

impl PageRows {
    /// Reads the bytes of a page; `None` when they have another layout. Neither the contents of rows nor
    /// their order are checked.
    pub fn read(bytes: Vec<u8>) -> Option<Self> {
        let mut groups = GroupReader::new(&bytes)?;
        let mut rows = Vec::new();
        while let Some(KeyGroup { key, times, rows: starts }) = groups.next()? {
            let place = |(event_time, start)| RowInPage { key: key.clone(), event_time, start };
            rows.extend(event_times(&bytes[times]).zip(starts).map(place));
        }
        Some(Self { bytes, rows })
    }

    /// Returns a row, with its key and its event time: keys ascending, the rows of a key newest first.
    pub fn get(&self, at: usize) -> Option<(&[u8], KeyRow<'_>)> {
        let RowInPage { key, event_time, start } = self.rows.get(at)?;
        // SAFETY: the bytes of a stored row begin here, and are borrowed.
        let row = unsafe { RowRef::from_raw(self.bytes.as_ptr().add(*start).cast_mut()) };
        Some((&self.bytes[key.clone()], KeyRow { event_time: *event_time, row }))
    }
}

impl Page {
    /// Reads the bytes of a page; `None` when they have another layout, when rows are out of order, or
    /// when `is_row` does not accept a row. With a format, rows get records.
    pub fn read(
        bytes: Vec<u8>,
        format: Option<&Arc<RecordFormat>>,
        is_row: impl Fn(&[u8]) -> bool,
    ) -> Option<Self> {
        // Slots have the address alone.
        let end = bytes.as_ptr().expose_provenance() + bytes.len();
        assert!(end >> ADDRESS_BITS == 0, "addresses have 48 bits");
        let mut groups = GroupReader::new(&bytes)?;
        let mut builder = ChunkBuilder::default();
        let (mut keys, mut taken) = (PageKeys::default(), footprint(bytes.capacity()));
        while let Some(group) = groups.next()? {
            let key = &bytes[group.key.clone()];
            let is_less = |last: &PageKey| &bytes[last.key.clone()] < key;
            if !keys.keys.last().is_none_or(is_less) {
                return None;
            }
            let rows =
                group.rows(&bytes).filter(|rows| rows.iter().all(|row| is_row(row.row.bytes())))?;
            let (head, size) = head(&rows, &mut builder, format.map(|format| &**format));
            keys.keys.push(PageKey { key: group.key, head });
            taken += size;
        }
        taken += footprint(keys.keys.capacity() * size_of::<PageKey>());
        drop(builder);
        let format = format.cloned();
        Some(Self { keys, format, bytes, memory_bytes: taken })
    }

    /// Returns the rows of a key that are in the page.
    pub fn rows(&self, key: &[u8], bounds: Bounds) -> Option<SeriesRows<'_>> {
        let of = |found: &PageKey| self.bytes[found.key.clone()].cmp(key);
        let at = self.keys.keys.binary_search_by(of).ok()?;
        Some(self.rows_at(at, bounds))
    }

    /// Returns each key with its rows, in the order of the keys.
    pub fn keys(&self, bounds: Bounds) -> impl Iterator<Item = (&[u8], SeriesRows<'_>)> {
        let key = |at: usize| &self.bytes[self.keys.keys[at].key.clone()];
        (0..self.keys.keys.len()).map(move |at| (key(at), self.rows_at(at, bounds)))
    }

    /// Returns the bytes of memory that the page takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    fn rows_at(&self, at: usize, bounds: Bounds) -> SeriesRows<'_> {
        let rows = match &self.keys.keys[at].head {
            PageHead::Single { event_time, low, high } => {
                EntryRows::Single(ChunkView::single(*event_time, low, high))
            }
            // SAFETY: the chunk is freed with the page, which is borrowed.
            PageHead::Chunk(chunk) => EntryRows::Chunk(unsafe { Chunk::from_raw(chunk.as_ptr()) }),
            // SAFETY: as above.
            PageHead::Directory(directory) => EntryRows::Directory(unsafe { directory.as_ref() }),
        };
        SeriesRows::new(rows, bounds, self.format.as_deref())
    }
}

impl Drop for PageKeys {
    fn drop(&mut self) {
        for PageKey { head, .. } in &self.keys {
            // SAFETY: each was made for this page and is freed once; nobody borrows the page.
            unsafe {
                match head {
                    PageHead::Single { .. } => {}
                    PageHead::Chunk(chunk) => Chunk::free(chunk.as_ptr().cast()),
                    PageHead::Directory(directory) => {
                        let chunks = directory.as_ref();
                        (0..chunks.len()).for_each(|at| Chunk::free(chunks.get(at).cast()));
                        Directory::<ChunkHeader>::free(directory.as_ptr().cast());
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("keys", &self.keys.keys.len())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Finds the key groups in the bytes of a page.
struct GroupReader<'b> {
    bytes: &'b [u8],
    at: usize,
    left: u32,
}

/// Where the parts of a key group are in the bytes.
struct KeyGroup {
    key: Range<usize>,
    times: Range<usize>,
    rows: Vec<usize>,
}

impl<'b> GroupReader<'b> {
    fn new(bytes: &'b [u8]) -> Option<Self> {
        let left = u32::from_le_bytes(*bytes.first_chunk()?);
        Some(Self { bytes, at: PAGE_HEADER_BYTES, left })
    }

    /// Finds the next group. The outer `None`: the bytes are not those of a page.
    #[expect(clippy::option_option, reason = "the end of a page is not a defect of it")]
    fn next(&mut self) -> Option<Option<KeyGroup>> {
        if self.left == 0 {
            return (self.at == self.bytes.len()).then_some(None);
        }
        self.left -= 1;
        let header = self.take(GROUP_HEADER_BYTES)?;
        let number = |at: usize| -> Option<usize> {
            let bytes = self.bytes[header.start + at..].first_chunk()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        };
        let (length, count) = (number(0)?, number(size_of::<u32>())?);
        let key = self.take(length)?;
        let times = self.take(count.checked_mul(TIME_BYTES)?)?;
        if count == 0 {
            return None;
        }
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            debug_assert!(self.at <= self.bytes.len(), "a row begins within the bytes");
            rows.push(self.at);
            let (_, size) = stored_extent(self.bytes.get(self.at..)?)?;
            self.take(size)?;
        }
        Some(Some(KeyGroup { key, times, rows }))
    }

    fn take(&mut self, length: usize) -> Option<Range<usize>> {
        let range = self.at..self.at.checked_add(length)?;
        self.at = range.end;
        (range.end <= self.bytes.len()).then_some(range)
    }
}

impl KeyGroup {
    /// Returns the rows, oldest first; `None` when they are not in order.
    fn rows<'b>(&self, bytes: &'b [u8]) -> Option<Vec<KeyRow<'b>>> {
        let times = event_times(&bytes[self.times.clone()]);
        let row = |(event_time, start): (i64, &usize)| {
            // SAFETY: the bytes of a stored row begin here, and are borrowed.
            let row = unsafe { RowRef::from_raw(bytes.as_ptr().add(*start).cast_mut()) };
            KeyRow { event_time, row }
        };
        debug_assert_eq!(times.len(), self.rows.len(), "each row has its event time");
        let rows: Vec<KeyRow<'b>> = times.zip(&self.rows).map(row).rev().collect();
        let is_in_order = |one: &KeyRow<'_>, next: &KeyRow<'_>| one.position() < next.position();
        rows.is_sorted_by(is_in_order).then_some(rows)
    }
}

/// Returns the event times of a group.
fn event_times(bytes: &[u8]) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator {
    let times = bytes.chunks_exact(TIME_BYTES);
    times.map(|time| i64::from_le_bytes(time.try_into().expect("eight bytes")))
}

/// Makes the head of the rows of a key, and returns how many bytes it takes beside the key.
fn head<'b>(
    rows: &[KeyRow<'b>],
    builder: &mut ChunkBuilder<'b>,
    format: Option<&RecordFormat>,
) -> (PageHead, usize) {
    debug_assert!(!rows.is_empty(), "a key has a row");
    if let [KeyRow { event_time, row }] = rows {
        let (low, high) = split_address(row.address());
        return (PageHead::Single { event_time: *event_time, low, high }, 0);
    }
    let (mut chunks, mut taken) = (Vec::new(), 0);
    for rows in rows.chunks(chunk_rows()) {
        rows.iter().for_each(|row| builder.push(*row));
        let arrival_max = rows.iter().map(|row| row.row.arrival()).max().unwrap_or(0);
        let spec = ChunkSpec { capacity_min: rows.len(), arrival_max };
        let chunk = builder.build(spec, format);
        builder.clear();
        // SAFETY: it was made just now.
        taken += unsafe { Chunk::from_raw(chunk) }.memory_bytes();
        chunks.push(chunk);
    }
    let made = "what was allocated is not at null";
    if let [chunk] = *chunks {
        return (PageHead::Chunk(NonNull::new(chunk).expect(made)), taken);
    }
    let directory = Directory::make(&chunks, chunks.len());
    taken += directory_footprint(chunks.len());
    (PageHead::Directory(NonNull::new(directory).expect(made)), taken)
}

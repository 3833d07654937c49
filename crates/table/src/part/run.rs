//! A run: rows of an index in a data file, sorted by entity key.
//!
//! A flush writes one for each index, a merge makes one of several; a run never changes. Its blocks
//! are pages ([`lockstep_series::Page`]), and a last one that stays in memory: where each page is and
//! with which row it begins, and a filter of the keys.
//!
//! # Order
//!
//! Keys in the order of their bytes; the rows of a key from the newest to the oldest by (event time,
//! arrival), so that a reader that goes back in time reads forward. A key of which not all rows are in
//! one page begins a page: the first page with its rows is the first that begins with it.
//!
//! # Layout of the last block
//!
//! ```text
//!  0  u32  version: 1
//!  4  u32  count of pages
//!  8  u64  count of rows
//! 16  u64  count of keys
//! 24  u64  bytes of the keys
//! 32  i64  greatest event time
//! 40  pages, 36 bytes each:
//!           0  u64  offset of the block in the file
//!           8  u32  bytes of its payload
//!          12  i64  event time of the first row
//!          20  u64  arrival of the first row
//!          28  u64  where its key ends in the keys
//! ..  the keys of the first rows, one after the other
//! ..  filter
//! ```
//!
//! # Cost
//!
//! Finding a key: a hash, and where the filter does not deny it, a binary search over the pages and
//! the read of one page. Memory: 40 bytes and a key for each page of 32 KiB, 10 bits for each key.

use std::{
    fmt,
    ops::Range,
    path::Path,
    sync::{Arc, OnceLock},
};

use lockstep_row::RowCodec;
use lockstep_series::{Account, Page, PageRows, PageWriter, RecordFormat, RowRef};
use lockstep_wal::{BLOCK_HEADER_BYTES, BlockPlace, BlockReader, DataFile, DataFileWriter, Error};

use crate::{
    ReadError, ReadFailure,
    disk::{MemoryCharge, tuning},
    part::{
        BlockFootprint,
        block::{read_block, read_versioned},
        bug::{self, PartBug},
        key_filter::{self, KeyFilter},
    },
    table::number,
};

const VERSION: u32 = 1;
/// Bytes before the pages in the last block.
const HEADER_BYTES: usize = 40;
const FENCE_BYTES: usize = 36;

/// What a page takes beside its bytes, where its first key has so many.
pub(crate) fn fence_footprint(key_size: usize) -> BlockFootprint {
    BlockFootprint {
        files: number(BLOCK_HEADER_BYTES + FENCE_BYTES + key_size),
        memory: number(size_of::<Fence>() + key_size),
    }
}

/// The place of a row in the order of its key: event time and arrival.
pub(crate) type KeyPosition = (i64, u64);

/// The place of a page in the file, and the position of its first row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    offset: u64,
    length: u32,
    event_time: i64,
    arrival: u64,
    /// Where the key of the row ends in the keys.
    key_end: u64,
}

/// A run that is being written.
#[derive(Debug)]
pub struct RunWriter {
    file: DataFileWriter,
    page: PageWriter,
    /// The rows of the page whose keys have ended, and of the key that has not.
    ended: PageContent,
    open: PageContent,
    key: Vec<u8>,
    index: RunIndex,
    /// Whether the current key has a row.
    has_key: bool,
    page_bytes: usize,
}

/// Counts over all rows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCounts {
    /// The number of rows.
    pub rows: u64,
    /// The number of keys.
    pub keys: u64,
    /// The greatest event time.
    pub event_time_max: i64,
}

/// The number of rows of a page, and the first one.
#[derive(Debug, Clone, Default)]
struct PageContent {
    count: u32,
    key: Vec<u8>,
    event_time: i64,
    arrival: u64,
}

impl RunWriter {
    /// Begins a run of about `keys` keys; with many more, its filter denies fewer absent keys.
    pub fn new(file: DataFileWriter, keys: u64) -> Self {
        Self {
            file,
            page: PageWriter::default(),
            ended: PageContent::default(),
            open: PageContent::default(),
            key: Vec::new(),
            index: RunIndex {
                fences: Vec::new(),
                keys: Vec::new(),
                filter: KeyFilter::new(keys),
                counts: RunCounts { rows: 0, keys: 0, event_time_max: i64::MIN },
            },
            has_key: false,
            page_bytes: usize::try_from(tuning().page_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Sets the size of pages, in bytes.
    #[must_use]
    pub fn with_page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Begins the rows of a key, which is greater than those before it.
    pub fn begin_key(&mut self, key: &[u8]) {
        debug_assert!(
            self.index.counts.keys == 0 || self.key.as_slice() < key,
            "keys are in order"
        );
        self.end_key();
        self.has_key = false;
        self.page.begin_key(key);
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Adds a row of the key, which is older than those before it.
    pub fn push(&mut self, event_time: i64, row: RowRef<'_>) -> Result<(), Error> {
        if self.open.count == 0 {
            self.open.key.clone_from(&self.key);
            (self.open.event_time, self.open.arrival) = (event_time, row.arrival());
        }
        if !self.has_key {
            self.note_key();
        }
        self.page.push(event_time, row);
        self.open.count += 1;
        self.index.counts.rows += 1;
        self.index.counts.event_time_max = self.index.counts.event_time_max.max(event_time);
        let (_, bytes) = self.page.byte_counts();
        if bytes < self.page_bytes {
            return Ok(());
        }
        if self.ended.count > 0 {
            self.write_ended()?;
        }
        let (_, bytes) = self.page.byte_counts();
        if bytes < self.page_bytes {
            return Ok(());
        }
        let page = self.page.finish();
        let rows = std::mem::take(&mut self.open);
        self.write(&page, &rows)?;
        self.page.begin_key(&self.key);
        Ok(())
    }

    /// Puts the run on the disk, and opens it. Its file stays there as long as it is open.
    pub fn finish(mut self) -> Result<IndexRun, Error> {
        self.end_key();
        if self.ended.count > 0 {
            // The key that has not ended has no rows in the page.
            self.page.begin_key(&[]);
            self.write_ended()?;
        }
        let last_block = self.file.push_block(&self.index.write())?;
        let file = self.file.finish_to_read()?;
        Ok(IndexRun { file, last_block, index: self.index, charge: OnceLock::new() })
    }

    /// Notes that the key has a row.
    fn note_key(&mut self) {
        if bug::is_seeded(PartBug::FilterOfLastKey) {
            self.index.filter = KeyFilter::new(1);
        }
        self.index.filter.insert(key_filter::hash(&self.key));
        self.index.counts.keys += 1;
        self.has_key = true;
    }

    /// Counts the rows of the key among those of the keys that have ended.
    fn end_key(&mut self) {
        let open = std::mem::take(&mut self.open);
        if open.count == 0 {
            return;
        }
        if self.ended.count == 0 {
            self.ended = open;
        } else {
            self.ended.count += open.count;
        }
    }

    fn write_ended(&mut self) -> Result<(), Error> {
        let page = self.page.finish_ended();
        let rows = std::mem::take(&mut self.ended);
        self.write(&page, &rows)
    }

    fn write(&mut self, page: &[u8], rows: &PageContent) -> Result<(), Error> {
        debug_assert!(rows.count > 0, "a page has a row");
        let BlockPlace { offset, length, index } = self.file.push_block(page)?;
        debug_assert_eq!(index as usize, self.index.fences.len(), "blocks are pages");
        self.index.keys.extend_from_slice(&rows.key);
        let key_end = self.index.keys.len() as u64;
        let PageContent { event_time, arrival, .. } = *rows;
        self.index.fences.push(Fence { offset, length, event_time, arrival, key_end });
        Ok(())
    }
}

/// The contents of the last block of a run.
#[derive(Debug)]
struct RunIndex {
    fences: Vec<Fence>,
    /// The keys of the rows with which pages begin, one after the other.
    keys: Vec<u8>,
    filter: KeyFilter,
    counts: RunCounts,
}

impl RunIndex {
    fn write(&self) -> Vec<u8> {
        let pages = u32::try_from(self.fences.len()).expect("a file has fewer than 2^32 blocks");
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.fences.len() * FENCE_BYTES);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&pages.to_le_bytes());
        for number in [self.counts.rows, self.counts.keys, self.keys.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.counts.event_time_max.to_le_bytes());
        self.fences.iter().for_each(|fence| fence.write(&mut bytes));
        bytes.extend_from_slice(&self.keys);
        self.filter.write(&mut bytes);
        bytes
    }

    /// Reads the bytes of a last block of this version.
    fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
        let version = u32::from_le_bytes(*header.first_chunk()?);
        let pages = u32::from_le_bytes(header[4..8].try_into().ok()?);
        let (fences, rest) = bytes[HEADER_BYTES..]
            .split_at_checked(usize::try_from(pages).ok()?.checked_mul(FENCE_BYTES)?)?;
        let (keys, filter) = rest.split_at_checked(usize::try_from(u64_at(24)).ok()?)?;
        let fences: Vec<Fence> = fences.chunks_exact(FENCE_BYTES).map(Fence::read).collect();
        let are_in_order = fences.is_sorted_by_key(|fence| fence.key_end)
            && fences.last().is_none_or(|last| last.key_end == keys.len() as u64);
        (version == VERSION && are_in_order).then_some(())?;
        let event_time_max = u64_at(32).cast_signed();
        let counts = RunCounts { rows: u64_at(8), keys: u64_at(16), event_time_max };
        Some(Self { fences, keys: keys.to_vec(), filter: KeyFilter::read(filter)?, counts })
    }
}

impl Fence {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.event_time.to_le_bytes());
        bytes.extend_from_slice(&self.arrival.to_le_bytes());
        bytes.extend_from_slice(&self.key_end.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Self {
        debug_assert_eq!(bytes.len(), FENCE_BYTES, "one page");
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        Self {
            offset: u64_at(0),
            length: u32_at(8),
            event_time: u64_at(12).cast_signed(),
            arrival: u64_at(20),
            key_end: u64_at(28),
        }
    }
}

/// A run whose pages can be read.
pub struct IndexRun {
    file: BlockReader,
    last_block: BlockPlace,
    index: RunIndex,
    charge: OnceLock<MemoryCharge>,
}

impl IndexRun {
    /// Opens a run: reads its last block.
    pub fn open(file: BlockReader, last_block: BlockPlace) -> Result<Self, ReadError> {
        let read = |bytes: Vec<u8>| read_versioned(&bytes, VERSION, RunIndex::read);
        let index = read_block(&file, last_block, read)?;
        Ok(Self { file, last_block, index, charge: OnceLock::new() })
    }

    /// Returns the bytes of the last block.
    #[cfg(test)]
    pub(super) fn last_block_bytes(&self) -> Vec<u8> {
        self.index.write()
    }

    /// Returns the counts over all rows.
    pub fn counts(&self) -> RunCounts {
        self.index.counts
    }

    /// Returns an event time that no row of a page is newer than, of a key that the page was found for.
    pub fn event_time_max(&self, page: usize, key: &[u8]) -> i64 {
        match self.first_key(page) == key || bug::is_seeded(PartBug::BoundOfOtherKey) {
            true => self.index.fences[page].event_time,
            false => self.index.counts.event_time_max,
        }
    }

    /// Returns the bytes of memory that it takes without pages.
    pub fn memory_bytes(&self) -> usize {
        let RunIndex { fences, keys, filter, .. } = &self.index;
        fences.capacity() * size_of::<Fence>() + keys.capacity() + filter.memory_bytes()
    }

    /// Returns the number of pages.
    pub fn page_count(&self) -> usize {
        self.index.fences.len()
    }

    /// Charges an account with its memory, once.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) {
        MemoryCharge::once(&self.charge, account, self.memory_bytes());
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the place of a page in the file.
    pub fn place(&self, page: usize) -> BlockPlace {
        let Fence { offset, length, .. } = self.index.fences[page];
        let index = u32::try_from(page).expect("a file has fewer than 2^32 blocks");
        BlockPlace { offset, index, length }
    }

    /// Returns the data file.
    pub fn file(&self) -> DataFile {
        self.file.file()
    }

    /// Returns the place of the last block.
    pub fn last_block(&self) -> BlockPlace {
        self.last_block
    }

    /// Returns the pages that may have rows of a key; most often none where there is no such row.
    pub fn pages_of(&self, key: &[u8]) -> Range<usize> {
        if !self.index.filter.may_contain(key_filter::hash(key)) {
            return 0..0;
        }
        let (before, up_to) =
            (self.pages_until(|first| first < key), self.pages_until(|first| first <= key));
        // A key of several pages begins one; any other is in the page before the next key.
        match before < up_to {
            true if bug::is_seeded(PartBug::OnePageOfKey) => before..before + 1,
            true => before..up_to,
            false => before.saturating_sub(1)..before,
        }
    }

    /// Skips those of a key's pages, from [`Self::pages_of`], that have only rows behind a position.
    pub(crate) fn skip_newer(&self, pages: Range<usize>, last: KeyPosition) -> Range<usize> {
        let fences = &self.index.fences[pages.clone()];
        // The page before the first that begins with a row that is reached may have such rows as well.
        let newer = fences.partition_point(|fence| (fence.event_time, fence.arrival) > last);
        let back = usize::from(!bug::is_seeded(PartBug::PageOfSeekSkipped));
        pages.start + newer.saturating_sub(back)..pages.end
    }

    /// Returns the event times of the rows with which pages of a key begin, from the oldest on: those between two
    /// event times.
    pub(crate) fn page_times(
        &self,
        key: &[u8],
        after: i64,
        before: i64,
    ) -> impl Iterator<Item = i64> {
        let pages = self.pages_of(key);
        let begins = !pages.is_empty() && self.first_key(pages.start) == key;
        let fences = if begins { &self.index.fences[pages] } else { &[] };
        let newer = fences.partition_point(|fence| fence.event_time > after);
        let times = fences[..newer].iter().rev().map(|fence| fence.event_time);
        times.take_while(move |time| *time < before)
    }

    /// Returns the number of rows of a page, on average.
    pub(crate) fn rows_per_page(&self) -> usize {
        let pages = number(self.index.fences.len()).max(1);
        usize::try_from(self.index.counts.rows / pages).unwrap_or(usize::MAX)
    }

    /// Returns the keys of which not all rows fit into one page.
    pub(crate) fn long_keys(&self) -> impl Iterator<Item = &[u8]> {
        let pages = 1..self.index.fences.len();
        let goes_on = |page: &usize| self.first_key(*page) == self.first_key(page - 1);
        let begins =
            move |page: &usize| *page == 1 || self.first_key(page - 1) != self.first_key(page - 2);
        pages.filter(goes_on).filter(begins).map(|page| self.first_key(page))
    }

    /// Counts the first pages whose first keys fulfil a condition.
    fn pages_until(&self, fulfils: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.index.fences.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if fulfils(self.first_key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn first_key(&self, page: usize) -> &[u8] {
        let end = |fence: &Fence| usize::try_from(fence.key_end).expect("the keys are in memory");
        debug_assert!(page < self.index.fences.len(), "the run has the page");
        let begin = page.checked_sub(1).map_or(0, |before| end(&self.index.fences[before]));
        &self.index.keys[begin..end(&self.index.fences[page])]
    }

    /// Reads the rows of a page, to be merged.
    pub fn read_rows(&self, at: usize) -> Result<PageRows, ReadError> {
        self.read_as(at, PageRows::read)
    }

    /// Reads a page. Where there is a format, its rows get records.
    pub fn read_page(
        &self,
        at: usize,
        format: Option<&Arc<RecordFormat>>,
        codec: &RowCodec,
    ) -> Result<Page, ReadError> {
        self.read_as(at, |bytes| Page::read(bytes, format, |row| codec.is_row(row)))
    }

    /// Reads the bytes of a page, and makes something of them, unless they have another layout.
    fn read_as<T>(
        &self,
        at: usize,
        make: impl FnOnce(Vec<u8>) -> Option<T>,
    ) -> Result<T, ReadError> {
        read_block(&self.file, self.place(at), |bytes| make(bytes).ok_or(ReadFailure::Damaged))
    }
}

impl fmt::Debug for IndexRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexRun")
            .field("file", &self.file)
            .field("counts", &self.index.counts)
            .finish_non_exhaustive()
    }
}

//! An extent: rows of a table in order of arrival, in a data file.
//!
//! A flush writes one, a compaction makes one of several; an extent never changes. Who scans a disk table reads
//! extents, and an index that is added is built from them. Its blocks are those of a checkpoint
//! ([`crate::CheckpointBlock`]), and a last one that stays in memory: where each block is, and when its first
//! row arrived.
//!
//! # Layout of the last block
//!
//! ```text
//!  0  u32  version: 2
//!  4  u32  count of blocks
//!  8  u64  count of rows
//! 16  u64  arrival of the first row
//! 24  u64  arrival after that of the last row
//! 32  u32  count of time columns
//! 36  time columns, 4 bytes each: u32 the position of the column
//!     blocks, 20 bytes each, and 16 for each time column:
//!           0  u64  offset of the block in the file
//!           8  u32  bytes of its payload
//!          12  u64  arrival of the first row
//!          20  i64  the least value of the first time column, i64  its greatest; and so on
//! ```
//!
//! Time columns are the event times of the table's indexes when the extent was written. A block without a value
//! of one has a least value that is greater than its greatest. In version 1 blocks followed at 32, without any.
//!
//! # Cost
//!
//! Memory: 24 bytes for each block of 256 KiB, and 16 for each time column.

use std::{
    fmt,
    ops::{Range, RangeInclusive},
    sync::{Arc, OnceLock},
};

use lockstep_row::{RowCodec, TableSchema};
use lockstep_series::{Account, LogRow, RowBatch};
use lockstep_wal::{BLOCK_HEADER_BYTES, BlockPlace, BlockReader, DataFile, DataFileWriter, Error};

use super::{
    BlockFootprint,
    block::{read_block, read_versioned},
};
use crate::{
    CheckpointBlock, ColumnRange, ReadError, ReadFailure, checkpoint, disk::MemoryCharge,
    table::number,
};

const VERSION: u32 = 2;
/// The version without time columns.
const VERSION_WITHOUT_TIMES: u32 = 1;
/// Bytes before the time columns in the last block; in the first version, before the blocks.
const HEADER_BYTES: usize = 32;
const BLOCK_BYTES: usize = 20;
const TIMES_BYTES: usize = 16;

/// What a block takes beside its bytes, with so many time columns.
pub(crate) fn block_footprint(time_columns: usize) -> BlockFootprint {
    BlockFootprint {
        files: number(BLOCK_HEADER_BYTES + BLOCK_BYTES + time_columns * TIMES_BYTES),
        memory: number(size_of::<BlockEntry>() + time_columns * size_of::<TimeBounds>()),
    }
}

/// Returns the time columns of a table: the event times of its indexes.
pub(crate) fn time_columns(schema: &TableSchema) -> Vec<usize> {
    let present = schema.indexes.iter().filter(|spec| !spec.is_removed());
    let mut columns: Vec<usize> = present.filter_map(|spec| spec.event_time).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The least and the greatest value of a time column in a block; the least is greater where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeBounds {
    least: i64,
    greatest: i64,
}

impl TimeBounds {
    /// The bounds of no value.
    pub(crate) const NONE: Self = Self { least: i64::MAX, greatest: i64::MIN };

    /// Adds a value.
    pub(crate) fn add(&mut self, time: i64) {
        self.least = self.least.min(time);
        self.greatest = self.greatest.max(time);
    }

    /// Returns whether there may be a value within a range.
    fn meet(self, range: &RangeInclusive<i64>) -> bool {
        self.least <= *range.end() && *range.start() <= self.greatest
    }
}

/// The place of a block in the file, and the arrival of its first row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockEntry {
    offset: u64,
    length: u32,
    arrival: u64,
}

/// The contents of the last block of an extent.
#[derive(Debug, Default)]
struct ExtentIndex {
    blocks: Vec<BlockEntry>,
    rows: u64,
    arrivals: Range<u64>,
    /// The positions of the time columns.
    time_columns: Vec<usize>,
    /// For each block the bounds of each of them.
    times: Vec<TimeBounds>,
}

/// What is known of a block without reading it.
#[derive(Debug)]
pub(crate) struct BlockSummary<'e> {
    /// The arrival of the first row, and the one after the last.
    pub(crate) arrivals: Range<u64>,
    /// The bytes of the rows.
    pub(crate) bytes: u64,
    time_columns: &'e [usize],
    times: &'e [TimeBounds],
}

impl BlockSummary<'_> {
    /// Returns whether a row may have values within all ranges.
    pub(crate) fn may_have(&self, ranges: &[ColumnRange]) -> bool {
        self.time_columns.iter().zip(self.times).all(|(column, times)| {
            ranges.iter().all(|range| range.column != *column || times.meet(&range.values))
        })
    }
}

/// An extent that is being written.
#[derive(Debug)]
pub struct ExtentWriter {
    file: DataFileWriter,
    index: ExtentIndex,
}

/// An extent whose rows can be read.
pub struct RowExtent {
    file: BlockReader,
    last_block: BlockPlace,
    index: ExtentIndex,
    charge: OnceLock<MemoryCharge>,
}

/// The rows of a block.
#[derive(Debug)]
pub struct ExtentBlock {
    /// Rows that arrived at one time, with that time in milliseconds; each has a row.
    batches: Vec<(i64, RowBatch)>,
}

/// The place of a row in [`ExtentBlock`]: its batch, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArrivedPlace {
    batch: usize,
    row: usize,
}

impl ExtentWriter {
    /// Begins an extent, with these time columns.
    pub(crate) fn new(file: DataFileWriter, time_columns: &[usize]) -> Self {
        let index = ExtentIndex { time_columns: time_columns.to_vec(), ..ExtentIndex::default() };
        Self { file, index }
    }

    /// Adds a block that has rows, which arrived after those before, with the bounds of each time column.
    pub(crate) fn push(
        &mut self,
        block: &CheckpointBlock,
        times: &[TimeBounds],
    ) -> Result<(), Error> {
        debug_assert_eq!(times.len(), self.index.time_columns.len(), "each column has bounds");
        self.index.times.extend_from_slice(times);
        let arrivals = block.arrivals();
        debug_assert!(block.row_count() > 0, "a block has a row");
        debug_assert!(self.index.arrivals.end <= arrivals.start, "rows are in order of arrival");
        let BlockPlace { offset, length, index } = self.file.push_block(block.bytes())?;
        debug_assert_eq!(index as usize, self.index.blocks.len(), "blocks are numbered");
        if self.index.blocks.is_empty() {
            self.index.arrivals.start = arrivals.start;
        }
        self.index.blocks.push(BlockEntry { offset, length, arrival: arrivals.start });
        self.index.arrivals.end = arrivals.end;
        self.index.rows += block.row_count();
        Ok(())
    }

    /// Returns the bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Puts the extent on the disk, and opens it. Its file stays there as long as it is open.
    pub fn finish(mut self) -> Result<RowExtent, Error> {
        let last_block = self.file.push_block(&self.index.write())?;
        let file = self.file.finish_to_read()?;
        Ok(RowExtent { file, last_block, index: self.index, charge: OnceLock::new() })
    }
}

impl ExtentIndex {
    fn write(&self) -> Vec<u8> {
        let count = |count: usize| u32::try_from(count).expect("a file has fewer than 2^32 blocks");
        let width = self.time_columns.len();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.blocks.len() * BLOCK_BYTES);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&count(self.blocks.len()).to_le_bytes());
        for number in [self.rows, self.arrivals.start, self.arrivals.end] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in std::iter::once(width).chain(self.time_columns.iter().copied()) {
            bytes.extend_from_slice(&count(number).to_le_bytes());
        }
        for (at, BlockEntry { offset, length, arrival }) in self.blocks.iter().enumerate() {
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&arrival.to_le_bytes());
            for times in &self.times[at * width..(at + 1) * width] {
                bytes.extend_from_slice(&times.least.to_le_bytes());
                bytes.extend_from_slice(&times.greatest.to_le_bytes());
            }
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let (version, count) = (next_u32(&mut rest)?, next_u32(&mut rest)?);
        let rows = next_u64(&mut rest)?;
        let arrivals = next_u64(&mut rest)?..next_u64(&mut rest)?;
        let mut index = Self { rows, arrivals, ..Self::default() };
        match version {
            VERSION => {
                for _ in 0..next_u32(&mut rest)? {
                    index.time_columns.push(usize::try_from(next_u32(&mut rest)?).ok()?);
                }
            }
            VERSION_WITHOUT_TIMES => {}
            _ => return None,
        }
        for _ in 0..count {
            let (offset, length) = (next_u64(&mut rest)?, next_u32(&mut rest)?);
            index.blocks.push(BlockEntry { offset, length, arrival: next_u64(&mut rest)? });
            for _ in 0..index.time_columns.len() {
                let mut next = || Some(next_u64(&mut rest)?.cast_signed());
                index.times.push(TimeBounds { least: next()?, greatest: next()? });
            }
        }
        let Self { blocks, arrivals, .. } = &index;
        let are_in_order = blocks.is_sorted_by(|one, next| one.arrival < next.arrival)
            && blocks.first().is_some_and(|first| first.arrival == arrivals.start)
            && blocks.last().is_some_and(|last| last.arrival < arrivals.end);
        (rest.is_empty() && are_in_order).then_some(index)
    }
}

fn next_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn next_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

impl RowExtent {
    /// Opens an extent: reads its last block.
    pub fn open(file: BlockReader, last_block: BlockPlace) -> Result<Self, ReadError> {
        let read = |bytes: Vec<u8>| read_versioned(&bytes, VERSION, ExtentIndex::read);
        let index = read_block(&file, last_block, read)?;
        Ok(Self { file, last_block, index, charge: OnceLock::new() })
    }

    /// Returns the data file.
    pub fn file(&self) -> DataFile {
        self.file.file()
    }

    /// Charges an account with its memory, once.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) {
        MemoryCharge::once(&self.charge, account, self.memory_bytes());
    }

    /// Returns the place of the last block.
    pub fn last_block(&self) -> BlockPlace {
        self.last_block
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> u64 {
        self.index.rows
    }

    /// Returns the arrival of the first row, and the one after the last.
    pub fn arrivals(&self) -> Range<u64> {
        self.index.arrivals.clone()
    }

    /// Returns the bytes of memory that it takes without rows.
    pub fn memory_bytes(&self) -> usize {
        self.index.blocks.capacity() * size_of::<BlockEntry>()
            + self.index.times.capacity() * size_of::<TimeBounds>()
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.index.blocks.len()
    }

    /// Returns the block in which the rows with an arrival of at least `from` begin.
    pub fn block_of(&self, from: u64) -> usize {
        let begun = self.index.blocks.partition_point(|block| block.arrival <= from);
        begun.saturating_sub(1)
    }

    /// Returns what is known of the blocks, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockSummary<'_>> {
        let ExtentIndex { blocks, time_columns, times, .. } = &self.index;
        let width = time_columns.len();
        blocks.iter().enumerate().map(move |(at, block)| BlockSummary {
            arrivals: self.block_arrivals(at),
            bytes: u64::from(block.length),
            time_columns,
            times: &times[at * width..(at + 1) * width],
        })
    }

    /// Returns the arrival of the first row of a block.
    pub(crate) fn block_start(&self, at: usize) -> u64 {
        self.index.blocks[at].arrival
    }

    /// Returns the arrival of the first row of a block, and the one after the last.
    fn block_arrivals(&self, at: usize) -> Range<u64> {
        let next = self.index.blocks.get(at + 1);
        let end = next.map_or(self.index.arrivals.end, |next| next.arrival);
        self.index.blocks[at].arrival..end
    }

    /// Reads a block.
    pub fn read(&self, at: usize, codec: &RowCodec) -> Result<ExtentBlock, ReadError> {
        let arrivals = self.block_arrivals(at);
        read_block(&self.file, self.place(at), |bytes| {
            ExtentBlock::parse(&bytes, arrivals, codec).ok_or(ReadFailure::Damaged)
        })
    }

    /// Returns the time at which the row with this arrival arrived, in milliseconds since the epoch. Reads the
    /// block.
    pub fn arrival_ms(&self, arrival: u64, codec: &RowCodec) -> Result<Option<i64>, ReadError> {
        if !self.index.arrivals.contains(&arrival) {
            return Ok(None);
        }
        let rows = self.read(self.block_of(arrival), codec)?;
        let last_begun =
            rows.batches.iter().rev().find(|(_, batch)| {
                batch.rows().next().is_some_and(|first| first.arrival() <= arrival)
            });
        Ok(last_begun.map(|(arrival_ms, _)| *arrival_ms))
    }

    fn place(&self, at: usize) -> BlockPlace {
        let BlockEntry { offset, length, .. } = self.index.blocks[at];
        let index = u32::try_from(at).expect("a file has fewer than 2^32 blocks");
        BlockPlace { offset, index, length }
    }
}

impl ExtentBlock {
    /// Reads the rows of a block; `None` when the bytes are not rows of this codec with arrivals of a range, in
    /// order.
    fn parse(mut bytes: &[u8], arrivals: Range<u64>, codec: &RowCodec) -> Option<Self> {
        let (mut batches, mut next) = (Vec::new(), arrivals.start);
        while !bytes.is_empty() {
            let (arrival_ms, rows) = checkpoint::next_run(&mut bytes)?;
            let batch = RowBatch::from_arrived(rows.to_vec(), next)?;
            next = batch.rows().last()?.arrival() + 1;
            if next > arrivals.end || !batch.rows().all(|row| codec.is_row(row.bytes())) {
                return None;
            }
            batches.push((arrival_ms, batch));
        }
        Some(Self { batches })
    }

    /// Returns the rows: batches that arrived at one time, with that time in milliseconds.
    pub(crate) fn batches(&self) -> &[(i64, RowBatch)] {
        &self.batches
    }

    /// Returns the row at a place; `None` at the end.
    pub fn get(&self, place: ArrivedPlace) -> Option<LogRow<'_>> {
        let (arrival_ms, batch) = self.batches.get(place.batch)?;
        debug_assert!(place.row < batch.len(), "`after` goes to the next batch");
        Some(LogRow { row: batch.row(place.row), arrival_ms: *arrival_ms })
    }

    /// Returns the place after one that has a row.
    pub fn after(&self, ArrivedPlace { batch, row }: ArrivedPlace) -> ArrivedPlace {
        if row + 1 < self.batches[batch].1.len() {
            return ArrivedPlace { batch, row: row + 1 };
        }
        ArrivedPlace { batch: batch + 1, row: 0 }
    }
}

impl fmt::Debug for RowExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowExtent")
            .field("file", &self.file)
            .field("arrivals", &self.index.arrivals)
            .finish_non_exhaustive()
    }
}

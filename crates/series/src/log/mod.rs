//! The log of a table: all its rows in order of arrival, in blocks.
//!
//! `table` appends, and reads it where no index is of use. The log owns the rows; series point to
//! them. Rows are never changed: they are removed by compaction (`compaction`). See rule 7 of the
//! crate's protocol.

mod compaction;
mod rows;

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
    },
};

use lockstep_host::sync::Mutex;

pub use compaction::CompactionPlan;
pub use rows::{LogRow, LogRows};

use crate::{
    Account, Guard, RowBatch, RowRef,
    block::{ArrivalStamp, LogBlock, block_footprint, block_size},
    directory::{Directory, directory_capacity},
    guard::Retiring,
};

/// The rows of a table, oldest arrival first. Owns them.
pub struct RowLog {
    /// Never null. Replaced under the lock; the old one is retired. Each pointer is an `Arc`.
    directory: AtomicPtr<Directory<LogBlock>>,
    /// Held by whoever changes anything.
    writer: Mutex<()>,
    /// Bytes of blocks and the directory. Written under the lock.
    memory_bytes: AtomicUsize,
    /// The account that is charged with the memory.
    account: OnceLock<Arc<dyn Account>>,
    /// Whether nothing is appended to the newest block, even if it has space: it may belong to
    /// another log as well. Written under the lock.
    is_sealed: AtomicBool,
}

/// A position in a log, valid until rows are removed from it.
#[derive(Debug, Clone, Copy)]
pub struct LogPosition {
    /// The position of the block in the directory.
    block: usize,
    /// The offset within the block.
    offset: usize,
}

impl LogPosition {
    /// Before the first row.
    pub const START: Self = Self { block: 0, offset: 0 };
}

impl RowLog {
    /// Makes an empty log.
    pub fn new() -> Self {
        Self::of_blocks(&[])
    }

    /// Makes a log of blocks, which it may share with another one.
    fn of_blocks(blocks: &[Arc<LogBlock>]) -> Self {
        let bytes = blocks.iter().map(|block| block.memory_bytes()).sum::<usize>();
        let raw: Vec<*mut LogBlock> = blocks.iter().map(into_raw).collect();
        let directory = Directory::make(&raw, directory_capacity(raw.len()));
        // SAFETY: it was made just now.
        let directory_bytes = unsafe { &*directory }.memory_bytes();
        Self {
            directory: AtomicPtr::new(directory),
            writer: Mutex::new(()),
            memory_bytes: AtomicUsize::new(bytes + directory_bytes),
            account: OnceLock::new(),
            is_sealed: AtomicBool::new(!blocks.is_empty()),
        }
    }

    /// Charges an account with the memory that the log takes now, except blocks that it shares with
    /// another one; from here on also with what [`Self::install`] makes it take and with what waits to
    /// be freed, and discharges it as blocks and the log are dropped. What [`Self::append`] returns is
    /// charged by its caller. The first account stays.
    pub fn adopt(&self, account: &Arc<dyn Account>) {
        if self.account.set(Arc::clone(account)).is_ok() {
            let guard = crate::pin();
            let directory = self.directory(&guard);
            let blocks = (0..directory.len()).map(|at| block_at(directory, at));
            let fresh = blocks.filter(|block| block.adopt(account));
            let bytes = fresh.map(LogBlock::memory_bytes).sum::<usize>() + directory.memory_bytes();
            account.charge(signed(bytes));
        }
    }

    /// Appends rows, whose arrivals are `first`, `first + 1` and so on: greater than any before.
    /// Returns the position of the first of them, and how many bytes more the log takes. Readers that
    /// are limited to smaller arrivals do not see them.
    pub fn append(&self, batch: &RowBatch, first: u64, arrival_ms: i64) -> (LogPosition, i64) {
        let rows = (0..batch.len()).map(|at| batch.stored_row(at));
        self.append_stamped(rows.zip(first..), arrival_ms)
    }

    /// Appends rows that have their arrivals, as [`Self::append`] does: they ascend, and are greater than
    /// any before.
    pub fn append_arrived(&self, batch: &RowBatch, arrival_ms: i64) -> (LogPosition, i64) {
        let rows = batch.rows().map(|row| (row.stored_bytes(), row.arrival()));
        self.append_stamped(rows, arrival_ms)
    }

    fn append_stamped<'r>(
        &self,
        rows: impl Iterator<Item = (&'r [u8], u64)>,
        arrival_ms: i64,
    ) -> (LogPosition, i64) {
        let _writer = self.writer.lock();
        let guard = crate::pin();
        let before = self.memory_bytes_now();
        let (mut start, mut last) = (None, None);
        for (row, arrival) in rows {
            debug_assert!(last < Some(arrival), "arrivals ascend");
            last = Some(arrival);
            let stamp = ArrivalStamp { arrival, at_ms: arrival_ms };
            let pushed = self.newest(&guard).and_then(|(at, block)| {
                let offset = block.rows_end();
                block.push(row, stamp).map(|_| LogPosition { block: at, offset })
            });
            let position = pushed.unwrap_or_else(|| self.open_block(row, stamp, &guard));
            start.get_or_insert(position);
        }
        let start = start.unwrap_or(LogPosition::START);
        let after = self.memory_bytes_now();
        debug_assert!(after >= before, "an append frees nothing");
        (start, signed(after) - signed(before))
    }

    /// Appends a copy of a row of another log, which arrived after all rows of this one.
    pub fn push<'g>(&'g self, found: LogRow<'_>, guard: &'g Guard) -> RowRef<'g> {
        let _writer = self.writer.lock();
        let stamp = ArrivalStamp { arrival: found.row.arrival(), at_ms: found.arrival_ms };
        let row = found.row.stored_bytes();
        let pushed = self.newest(guard).and_then(|(_, block)| block.push(row, stamp));
        pushed.unwrap_or_else(|| {
            let LogPosition { block, offset } = self.open_block(row, stamp, guard);
            block_at(self.directory(guard), block).row(offset)
        })
    }

    /// Adds a block for a row, and returns the row's position. Under the lock.
    fn open_block(&self, row: &[u8], stamp: ArrivalStamp, guard: &Guard) -> LogPosition {
        let size = block_size(self.memory_bytes_now(), row.len());
        let block = Arc::new(LogBlock::new(size, stamp));
        assert!(block.push(row, stamp).is_some(), "the block was made for the row");
        if let Some(account) = self.account.get() {
            block.adopt(account);
        }
        let directory = self.directory(guard);
        let at = directory.len();
        let mut grown = block_footprint(size);
        let raw = into_raw(&block);
        if !directory.push(raw) {
            let mut blocks = directory.to_vec();
            blocks.push(raw);
            let longer = Directory::make(&blocks, directory_capacity(blocks.len()));
            // SAFETY: it was made just now.
            grown += unsafe { &*longer }.memory_bytes();
            grown -= directory.memory_bytes();
            self.replace_directory(longer, guard);
        }
        // Relaxed: a number to report, written under the lock; and what only its holder reads.
        self.memory_bytes.store(self.memory_bytes_now() + grown, Ordering::Relaxed);
        self.is_sealed.store(false, Ordering::Relaxed);
        LogPosition { block: at, offset: 0 }
    }

    /// Returns the rows with an arrival less than `visible`, in order of arrival.
    pub fn rows<'g>(&'g self, visible: u64, guard: &'g Guard) -> LogRows<'g> {
        LogRows::new(self.directory(guard), LogPosition::START, visible)
    }

    /// Returns the rows from a position on with an arrival less than `visible`, in order of arrival.
    /// When they have all been read, [`LogRows::position`] is where rows begin that are appended, or
    /// become visible, later.
    pub fn rows_between<'g>(
        &'g self,
        position: LogPosition,
        visible: u64,
        guard: &'g Guard,
    ) -> LogRows<'g> {
        LogRows::new(self.directory(guard), position, visible)
    }

    /// Returns the rows from a position on that [`Self::append`] returned.
    pub fn rows_from<'g>(&'g self, position: LogPosition, guard: &'g Guard) -> LogRows<'g> {
        LogRows::new(self.directory(guard), position, u64::MAX)
    }

    /// Returns the rows with an arrival of at least `from` and less than `visible`, in order of arrival.
    /// Other than a position, an arrival stays valid when rows are removed. Binary search, and linear
    /// in the rows of a block.
    pub fn rows_since<'g>(&'g self, from: u64, visible: u64, guard: &'g Guard) -> LogRows<'g> {
        let directory = self.directory(guard);
        let block = count_begun(directory, from).saturating_sub(1);
        let mut rows = LogRows::new(directory, LogPosition { block, offset: 0 }, visible);
        rows.skip_before(from);
        rows
    }

    /// Returns a log of the rows with an arrival less than `visible`, among them removed ones, which stay in it
    /// whatever is removed from this one: it shares the blocks. It may have rows from `visible` on, too.
    ///
    /// *Cost*: a pointer for each block.
    #[must_use]
    pub fn shared(&self, visible: u64, guard: &Guard) -> Self {
        let directory = self.directory(guard);
        let count = count_begun(directory, visible);
        debug_assert!(count <= directory.len(), "blocks of the directory");
        let blocks: Vec<Arc<LogBlock>> = (0..count)
            .map(|at| {
                // SAFETY: the directory's pointer is an `Arc` that was given away; the guard keeps it.
                unsafe { compaction::share(directory.get(at)) }
            })
            .collect();
        Self::of_blocks(&blocks)
    }

    /// Returns a log of rows with an arrival of a range, which shares blocks as [`Self::shared`] does, of about
    /// `bytes_max` bytes and of one block at least; and the arrival before which it has all of them.
    #[must_use]
    pub fn shared_between(
        &self,
        arrivals: Range<u64>,
        bytes_max: usize,
        guard: &Guard,
    ) -> (Self, u64) {
        let directory = self.directory(guard);
        let first = count_begun(directory, arrivals.start).saturating_sub(1);
        let end = count_begun(directory, arrivals.end);
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        for at in first..end {
            let block = block_at(directory, at);
            if bytes >= bytes_max {
                return (Self::of_blocks(&blocks), block.first_arrival());
            }
            bytes += block.memory_bytes();
            // SAFETY: as in `shared`.
            blocks.push(unsafe { compaction::share(directory.get(at)) });
        }
        (Self::of_blocks(&blocks), arrivals.end)
    }

    /// Returns the blocks in order: the arrival of the first row, and the bytes of the rows.
    pub fn blocks<'g>(&'g self, guard: &'g Guard) -> impl Iterator<Item = (u64, usize)> {
        let directory = self.directory(guard);
        let blocks = (0..directory.len()).map(|at| block_at(directory, at));
        blocks.map(|block| (block.first_arrival(), block.rows_end()))
    }

    /// Returns the number of rows with an arrival of at least `from`, among them removed ones that share
    /// the first block with others. Linear in the rows of that block.
    pub fn row_count_since(&self, from: u64, guard: &Guard) -> usize {
        let directory = self.directory(guard);
        let first = count_begun(directory, from).saturating_sub(1);
        if first >= directory.len() {
            return 0;
        }
        let rows = LogRows::of_block(directory, first).filter(|found| found.row.arrival() >= from);
        let later = (first + 1..directory.len()).map(|at| block_at(directory, at).live_rows());
        rows.count() + later.sum::<usize>()
    }

    /// Returns the time at which the row with this arrival arrived, in milliseconds since the epoch.
    /// The row is in the log. Binary search.
    pub fn arrival_ms(&self, arrival: u64, guard: &Guard) -> i64 {
        let directory = self.directory(guard);
        let at = count_begun(directory, arrival).checked_sub(1);
        block_at(directory, at.expect("the row is in the log")).arrived_ms(arrival)
    }

    /// Returns the number of rows, without removed ones that share a block with others.
    pub fn row_count(&self, guard: &Guard) -> usize {
        let directory = self.directory(guard);
        (0..directory.len()).map(|at| block_at(directory, at).live_rows()).sum()
    }

    /// Returns the bytes of memory, rows included, with the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        u64::try_from(self.memory_bytes_now()).expect("a size fits 64 bits")
    }

    /// Returns the bytes of memory.
    fn memory_bytes_now(&self) -> usize {
        // Relaxed: a number to report.
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns the newest block and its position, unless it is sealed. Under the lock.
    fn newest<'g>(&self, guard: &'g Guard) -> Option<(usize, &'g LogBlock)> {
        // Relaxed: only the holder of the lock reads and writes it.
        if self.is_sealed.load(Ordering::Relaxed) {
            return None;
        }
        let directory = self.directory(guard);
        let at = directory.len().checked_sub(1)?;
        Some((at, block_at(directory, at)))
    }

    /// Returns the current directory. The guard keeps it from being freed.
    #[inline]
    fn directory<'g>(&self, _guard: &'g Guard) -> &'g Directory<LogBlock> {
        // Acquire: pairs with the Release in `replace_directory`.
        // SAFETY: never null, and freed by way of the guards after it was replaced.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    /// Replaces the directory, and retires the old one without its blocks. Under the lock.
    fn replace_directory(&self, directory: *mut Directory<LogBlock>, guard: &Guard) {
        debug_assert!(!directory.is_null(), "a log has a directory");
        // AcqRel: pairs with the Acquire in `directory`.
        let old = self.directory.swap(directory, Ordering::AcqRel);
        // SAFETY: it was unlinked just now under the lock; the guard keeps it.
        let bytes = unsafe { &*old }.memory_bytes();
        let retiring = Retiring::new(guard, self.account.get());
        // SAFETY: as above; it is from `Directory::make`.
        unsafe { retiring.retire(old.cast(), Directory::<LogBlock>::free, bytes) };
    }
}

impl Default for RowLog {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RowLog {
    fn drop(&mut self) {
        // SAFETY: no other thread can reach the log, so its directory has one owner; each pointer is
        // an `Arc` that was given away to it.
        unsafe {
            let directory = Box::from_raw(*self.directory.get_mut());
            for block in directory.to_vec() {
                drop(Arc::from_raw(block.cast_const()));
            }
            if let Some(account) = self.account.get() {
                account.charge(-signed(directory.memory_bytes()));
            }
        }
    }
}

impl fmt::Debug for RowLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLog").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

/// Returns a reference to a block that a directory owns.
fn into_raw(block: &Arc<LogBlock>) -> *mut LogBlock {
    Arc::into_raw(Arc::clone(block)).cast_mut()
}

/// Returns a block of a directory that is borrowed under a guard or the lock.
#[inline]
fn block_at(directory: &Directory<LogBlock>, at: usize) -> &LogBlock {
    // SAFETY: what a directory points to is freed by way of the guard after it was replaced.
    unsafe { &*directory.get(at) }
}

/// Counts the blocks whose first row has this arrival or a smaller one. Binary search.
fn count_begun(directory: &Directory<LogBlock>, arrival: u64) -> usize {
    directory.partition_point(directory.len(), |block| {
        // SAFETY: a block of a directory that is borrowed under a guard.
        unsafe { &*block }.first_arrival() <= arrival
    })
}

/// Converts a size to a signed one.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}

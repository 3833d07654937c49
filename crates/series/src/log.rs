//! All rows of a table in order of arrival, in blocks.
//!
//! `table` appends, and walks it where no index is of use. The log owns the rows; a series leads
//! to them. Rows are never changed: to remove some of them is to leave out blocks, or to copy what
//! is left of a block into another one. See rule 7 of the crate's protocol.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
    },
};

use lockstep_host::sync::Mutex;

use crate::{
    Account, Guard, RowBatch, RowRef,
    block::{Arrived, Block, block_footprint, block_size},
    guard::Retiring,
    spine::{Spine, spine_capacity},
};

/// The rows of a table, oldest arrival first. Owns them.
pub struct RowLog {
    /// Never null. Replaced under the lock; what it led to is retired. Each part is an `Arc`.
    spine: AtomicPtr<Spine<Block>>,
    /// Held by whoever changes anything.
    writer: Mutex<()>,
    /// Bytes of blocks and the spine. Written under the lock.
    memory_bytes: AtomicUsize,
    /// Who is charged.
    account: OnceLock<Arc<dyn Account>>,
    /// Whether the newest block is full, whatever room it has: it may belong to another log as
    /// well. Written under the lock.
    is_sealed: AtomicBool,
}

/// A place in a log, good until rows are removed from it.
#[derive(Debug, Clone, Copy)]
pub struct LogPosition {
    part: usize,
    offset: usize,
}

impl LogPosition {
    /// Before the first row.
    pub const START: Self = Self { part: 0, offset: 0 };
}

/// A row of the log.
#[derive(Debug, Clone, Copy)]
pub struct LogRow<'g> {
    /// The row.
    pub row: RowRef<'g>,
    /// When it arrived, in milliseconds since the epoch.
    pub arrival_ms: i64,
}

/// A log's blocks as they will be: see [`RowLog::plan`].
pub struct LogPlan {
    parts: Vec<Arc<Block>>,
    /// How many blocks of the log it is about.
    planned: usize,
    /// Where rows lie that were copied, by the address at which they lie now.
    moved: BTreeMap<u64, u64>,
    removed: usize,
}

impl RowLog {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::of(&[])
    }

    fn of(parts: &[Arc<Block>]) -> Self {
        let bytes = parts.iter().map(|block| block.memory_bytes()).sum::<usize>();
        let raw: Vec<*mut Block> = parts.iter().map(into_raw).collect();
        let spine = Spine::make(&raw, spine_capacity(raw.len()));
        // SAFETY: it was made just now.
        let spine_bytes = unsafe { &*spine }.memory_bytes();
        Self {
            spine: AtomicPtr::new(spine),
            writer: Mutex::new(()),
            memory_bytes: AtomicUsize::new(bytes + spine_bytes),
            account: OnceLock::new(),
            is_sealed: AtomicBool::new(!parts.is_empty()),
        }
    }

    /// Charges an account with what the log takes now, but for blocks that it shares with another
    /// one; from here on also with what [`Self::install`] makes it take, with what waits to be freed,
    /// and, as blocks and the log are dropped, with as much less. What [`Self::append`] returns is
    /// charged by its caller. The first account stays.
    pub fn adopt(&self, account: &Arc<dyn Account>) {
        if self.account.set(Arc::clone(account)).is_ok() {
            let guard = crate::pin();
            let spine = self.spine(&guard);
            let blocks = (0..spine.len()).map(|part| block_at(spine, part));
            let fresh = blocks.filter(|block| block.adopt(account));
            let bytes = fresh.map(Block::memory_bytes).sum::<usize>() + spine.memory_bytes();
            account.charge(signed(bytes));
        }
    }

    /// Appends rows, whose arrivals are `first`, `first + 1` and so on: greater than any before.
    /// Returns where the first of them lies, and how many bytes more the log takes. Readers that
    /// look for smaller arrivals do not see them.
    pub fn append(&self, batch: &RowBatch, first: u64, arrival_ms: i64) -> (LogPosition, i64) {
        let _writer = self.writer.lock();
        let guard = crate::pin();
        let before = self.memory_bytes_now();
        let mut start = None;
        for (at, arrival) in (0..batch.len()).zip(first..) {
            let arrived = Arrived { arrival, at_ms: arrival_ms };
            let frame = batch.frame(at);
            let pushed = self.newest(&guard).and_then(|(part, block)| {
                let offset = block.rows_end();
                block.push(frame, arrived).map(|_| LogPosition { part, offset })
            });
            let position = pushed.unwrap_or_else(|| self.open_block(frame, arrived, &guard));
            start.get_or_insert(position);
        }
        let start = start.unwrap_or(LogPosition::START);
        (start, signed(self.memory_bytes_now()) - signed(before))
    }

    /// Appends a copy of a row of another log, which arrived after all rows of this one.
    pub fn push<'g>(&'g self, found: LogRow<'_>, guard: &'g Guard) -> RowRef<'g> {
        let _writer = self.writer.lock();
        let arrived = Arrived { arrival: found.row.arrival(), at_ms: found.arrival_ms };
        let frame = found.row.frame();
        let pushed = self.newest(guard).and_then(|(_, block)| block.push(frame, arrived));
        pushed.unwrap_or_else(|| {
            let LogPosition { part, offset } = self.open_block(frame, arrived, guard);
            block_at(self.spine(guard), part).row(offset)
        })
    }

    /// Opens a block for a row. Under the lock.
    fn open_block(&self, frame: &[u8], arrived: Arrived, guard: &Guard) -> LogPosition {
        let size = block_size(self.memory_bytes_now(), frame.len());
        let block = Arc::new(Block::new(size, arrived));
        assert!(block.push(frame, arrived).is_some(), "the block was made for the row");
        if let Some(account) = self.account.get() {
            block.adopt(account);
        }
        let spine = self.spine(guard);
        let part = spine.len();
        let mut grown = block_footprint(size);
        let raw = into_raw(&block);
        if !spine.push(raw) {
            let mut parts = spine.to_vec();
            parts.push(raw);
            let longer = Spine::make(&parts, spine_capacity(parts.len()));
            // SAFETY: it was made just now.
            grown += unsafe { &*longer }.memory_bytes();
            grown -= spine.memory_bytes();
            self.replace_spine(longer, guard);
        }
        // Relaxed: a number to report, written under the lock; and what only its holder reads.
        self.memory_bytes.store(self.memory_bytes_now() + grown, Ordering::Relaxed);
        self.is_sealed.store(false, Ordering::Relaxed);
        LogPosition { part, offset: 0 }
    }

    /// The rows with an arrival less than `visible`, in order of arrival.
    pub fn rows<'g>(&'g self, visible: u64, guard: &'g Guard) -> LogRows<'g> {
        LogRows::new(self.spine(guard), LogPosition::START, visible)
    }

    /// The rows from a place on with an arrival less than `visible`, in order of arrival. Where the
    /// rows end, [`LogRows::position`] is where those begin that are appended, or become visible,
    /// later.
    pub fn rows_between<'g>(
        &'g self,
        position: LogPosition,
        visible: u64,
        guard: &'g Guard,
    ) -> LogRows<'g> {
        LogRows::new(self.spine(guard), position, visible)
    }

    /// The rows from a place on that [`Self::append`] gave and that was not removed since.
    pub fn rows_from<'g>(&'g self, position: LogPosition, guard: &'g Guard) -> LogRows<'g> {
        LogRows::new(self.spine(guard), position, u64::MAX)
    }

    /// When the row with this arrival came, in milliseconds since the epoch. Binary search.
    /// The row is in the log.
    pub fn arrival_ms(&self, arrival: u64, guard: &Guard) -> i64 {
        let spine = self.spine(guard);
        let is_before = |part: *mut Block| {
            // SAFETY: a part of a spine that is borrowed under a guard.
            unsafe { &*part }.first_arrival() <= arrival
        };
        let part = spine.partition_point(spine.len(), is_before).checked_sub(1);
        block_at(spine, part.expect("the row is in the log")).arrived_ms(arrival)
    }

    /// Looks at every row and says which blocks to keep, which to leave out, and which to make
    /// of what is left of others. Changes nothing yet: lead the series to the moved rows, then
    /// [`Self::install`]. Nobody may append in between.
    ///
    /// A block is left out when none of its rows `is_kept`, and copied when fewer than half of
    /// its bytes are rows that are.
    pub fn plan(&self, is_kept: &mut dyn FnMut(LogRow<'_>) -> bool, guard: &Guard) -> LogPlan {
        let parts = self.spine(guard).len();
        self.plan_where(is_kept, is_sparse, (parts, guard))
    }

    /// Does so for the first blocks, as many as [`Self::seal`] said, while appends go on. For the
    /// others there is [`Self::plan_rest`].
    pub fn plan_full(
        &self,
        parts: usize,
        is_kept: &mut dyn FnMut(LogRow<'_>) -> bool,
        guard: &Guard,
    ) -> LogPlan {
        self.plan_where(is_kept, is_sparse, (parts, guard))
    }

    /// Says how many blocks are full: all but the newest, and that as well when so few of its
    /// rows are kept that they are better copied; nothing is added to it then. Nobody may append
    /// meanwhile.
    pub fn seal(&self, is_kept: &mut dyn FnMut(LogRow<'_>) -> bool, guard: &Guard) -> usize {
        let _writer = self.writer.lock();
        let spine = self.spine(guard);
        let Some((part, block)) = self.newest(guard) else { return spine.len() };
        let rows = LogRows::of_block(spine, part);
        let kept = rows.filter(|found| is_kept(*found)).map(|found| found.row.stored_size());
        if !is_sparse(kept.sum(), block.rows_end()) {
            return part;
        }
        // Relaxed: only the holder of the lock reads and writes it.
        self.is_sealed.store(true, Ordering::Relaxed);
        spine.len()
    }

    /// Adds the blocks to a plan that it does not have yet, but for those without a row that
    /// `is_kept`; none of their rows moves. Nobody may append until the plan is installed.
    pub fn plan_rest(
        &self,
        plan: &mut LogPlan,
        is_kept: &mut dyn FnMut(LogRow<'_>) -> bool,
        guard: &Guard,
    ) {
        let spine = self.spine(guard);
        for part in plan.planned..spine.len() {
            let block = block_at(spine, part);
            let kept = LogRows::of_block(spine, part).filter(|found| is_kept(*found)).count();
            plan.removed += block.live_rows().saturating_sub(kept);
            if kept > 0 {
                block.set_live_rows(kept);
                // SAFETY: the spine's part is an `Arc` that was given away.
                plan.parts.push(unsafe { share(spine.part(part)) });
            }
        }
        plan.planned = spine.len();
    }

    /// A log of the rows that `is_kept`, as far as they are in blocks to which nothing is added
    /// any more and all of whose rows have an arrival less than `visible`; and where the others
    /// begin, for [`Self::push`]. Blocks of which every row is kept are shared with it.
    #[must_use]
    pub fn filtered(
        &self,
        visible: u64,
        is_kept: &mut dyn FnMut(LogRow<'_>) -> bool,
        guard: &Guard,
    ) -> (Self, LogPosition) {
        let is_touched = |kept: usize, end: usize| kept < end;
        let full = self.full_parts(visible, guard);
        let plan = self.plan_where(is_kept, is_touched, (full, guard));
        (Self::of(&plan.parts), LogPosition { part: full, offset: 0 })
    }

    /// How many blocks are full and have only rows with an arrival less than `visible`.
    fn full_parts(&self, visible: u64, guard: &Guard) -> usize {
        let spine = self.spine(guard);
        let is_before = |part: *mut Block| {
            // SAFETY: a part of a spine that is borrowed under a guard.
            unsafe { &*part }.first_arrival() <= visible
        };
        spine.partition_point(spine.len(), is_before).saturating_sub(1)
    }

    fn plan_where(
        &self,
        is_kept: &mut dyn FnMut(LogRow<'_>) -> bool,
        is_copied: impl Fn(usize, usize) -> bool,
        (parts, guard): (usize, &Guard),
    ) -> LogPlan {
        let spine = self.spine(guard);
        let mut plan =
            LogPlan { parts: Vec::new(), planned: parts, moved: BTreeMap::new(), removed: 0 };
        // Copies go on in the last block that was made, as long as it follows what is copied.
        let mut open: Option<Arc<Block>> = None;
        for part in 0..parts {
            let block = block_at(spine, part);
            let rows = LogRows::of_block(spine, part);
            let mut kept = Vec::new();
            kept.extend(rows.filter(|found| is_kept(*found)));
            let kept_bytes: usize = kept.iter().map(|found| found.row.stored_size()).sum();
            let end = block.rows_end();
            plan.removed += block.live_rows().saturating_sub(kept.len());
            if !is_copied(kept_bytes, end) {
                block.set_live_rows(kept.len());
                plan.parts.extend(open.take());
                // SAFETY: the spine's part is an `Arc` that was given away.
                plan.parts.push(unsafe { share(spine.part(part)) });
                continue;
            }
            let mut left = kept_bytes;
            for found in kept {
                let row = plan.copy(&mut open, found, left);
                left -= found.row.stored_size();
                plan.moved.insert(found.row.address(), row);
            }
        }
        plan.parts.extend(open);
        plan
    }

    /// Makes the log what a plan says.
    ///
    /// # Safety
    ///
    /// The plan was made of this log, nothing was appended since, and no series leads to a row
    /// that is not kept, or to the old place of a moved one.
    pub unsafe fn install(&self, plan: &LogPlan, guard: &Guard) {
        let _writer = self.writer.lock();
        assert_eq!(plan.planned, self.spine(guard).len(), "the plan is about every block");
        let spine_now = self.spine(guard);
        let newest = spine_now.len().checked_sub(1).map(|part| spine_now.part(part).cast_const());
        if newest != plan.parts.last().map(Arc::as_ptr) {
            // Relaxed: only the holder of the lock reads it. The block may be of another log, too.
            self.is_sealed.store(!plan.parts.is_empty(), Ordering::Relaxed);
        }
        let made = Self::of(&plan.parts);
        // Relaxed: nobody else knows what was made; the number is to report.
        let bytes = made.memory_bytes.load(Ordering::Relaxed);
        let spine = made.spine.load(Ordering::Relaxed);
        // Only its spine is of use.
        let _unused = std::mem::ManuallyDrop::new(made);
        // Relaxed: a number to report, written under the lock.
        self.memory_bytes.store(bytes, Ordering::Relaxed);
        let old = self.spine(guard);
        if let Some(account) = self.account.get() {
            let fresh = plan.parts.iter().filter(|block| block.adopt(account));
            let blocks = fresh.map(|block| block.memory_bytes()).sum::<usize>();
            // SAFETY: it was made just now.
            let spines = signed(unsafe { &*spine }.memory_bytes()) - signed(old.memory_bytes());
            account.charge(signed(blocks) + spines);
        }
        let parts: Vec<Arc<Block>> = old
            .to_vec()
            .into_iter()
            .map(|part| {
                // SAFETY: the spine that it is a part of is unlinked below, and keeps the parts that it
                // was given no longer; each is an `Arc` that was given away to it.
                unsafe { Arc::from_raw(part.cast_const()) }
            })
            .collect();
        self.replace_spine(spine, guard);
        let parts = Box::into_raw(Box::new(parts));
        // SAFETY: the blocks were unlinked just now, and are retired once. Most of them are shared.
        unsafe { Retiring::new(guard, None).retire_whole(parts.cast(), drop_blocks, u64::MAX) };
    }

    /// How many rows there are, without removed ones that share a block with others.
    pub fn row_count(&self, guard: &Guard) -> usize {
        let spine = self.spine(guard);
        (0..spine.len()).map(|part| block_at(spine, part).live_rows()).sum()
    }

    /// Bytes of memory, rows included, with the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        u64::try_from(self.memory_bytes_now()).expect("a size fits 64 bits")
    }

    fn memory_bytes_now(&self) -> usize {
        // Relaxed: a number to report.
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The newest block, unless it is full. Under the lock.
    fn newest<'g>(&self, guard: &'g Guard) -> Option<(usize, &'g Block)> {
        // Relaxed: only the holder of the lock reads and writes it.
        if self.is_sealed.load(Ordering::Relaxed) {
            return None;
        }
        let spine = self.spine(guard);
        let part = spine.len().checked_sub(1)?;
        Some((part, block_at(spine, part)))
    }

    /// The spine as it is now. The guard is what keeps it from being freed.
    #[inline]
    fn spine<'g>(&self, _guard: &'g Guard) -> &'g Spine<Block> {
        // Acquire: pairs with the Release in `replace_spine`.
        // SAFETY: never null, and freed by the epoch collector after it was replaced.
        unsafe { &*self.spine.load(Ordering::Acquire) }
    }

    /// Puts another spine in place; what the parts lead to is not touched. Under the lock.
    fn replace_spine(&self, spine: *mut Spine<Block>, guard: &Guard) {
        // AcqRel: pairs with the Acquire in `spine`.
        let old = self.spine.swap(spine, Ordering::AcqRel);
        // SAFETY: it was unlinked just now under the lock; the guard keeps it.
        let bytes = unsafe { &*old }.memory_bytes();
        let by = Retiring::new(guard, self.account.get());
        // SAFETY: as above; it came out of `Spine::make`.
        unsafe { by.retire(old.cast(), Spine::<Block>::free, bytes) };
    }
}

impl LogPlan {
    /// Copies a row into the open block, or a new one, and returns its new address. So many bytes
    /// are left to copy.
    fn copy(&mut self, open: &mut Option<Arc<Block>>, found: LogRow<'_>, left: usize) -> u64 {
        let arrived = Arrived { arrival: found.row.arrival(), at_ms: found.arrival_ms };
        let frame = found.row.frame();
        if let Some(row) = open.as_ref().and_then(|block| block.push(frame, arrived)) {
            return row.address();
        }
        self.parts.extend(open.take());
        let block = Arc::new(Block::new(block_size(left * 16, frame.len()), arrived));
        let address = block.push(frame, arrived).expect("the block was made for it").address();
        *open = Some(block);
        address
    }

    /// How many rows are not kept that were not known to be removed before.
    pub fn removed_count(&self) -> usize {
        self.removed
    }

    /// Whether rows move.
    pub fn moves_rows(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Where a row lies after [`RowLog::install`], when it moves.
    pub fn moved(&self, row: RowRef<'_>) -> Option<RowRef<'_>> {
        let address = *self.moved.get(&row.address())?;
        // SAFETY: the row lies in a block that the plan holds.
        Some(unsafe { RowRef::from_address(address) })
    }
}

impl fmt::Debug for LogPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogPlan").field("moved", &self.moved.len()).finish_non_exhaustive()
    }
}

impl Default for RowLog {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RowLog {
    fn drop(&mut self) {
        // SAFETY: nobody else can reach the log, so its spine has one owner; each part is an
        // `Arc` that was given away to it.
        unsafe {
            let spine = Box::from_raw(*self.spine.get_mut());
            for part in spine.to_vec() {
                drop(Arc::from_raw(part.cast_const()));
            }
            if let Some(account) = self.account.get() {
                account.charge(-signed(spine.memory_bytes()));
            }
        }
    }
}

impl fmt::Debug for RowLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLog").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

/// Rows in order of arrival. See [`RowLog::rows`].
pub struct LogRows<'g> {
    spine: &'g Spine<Block>,
    position: LogPosition,
    /// The block at the position, where its rows end, and how many blocks there were.
    block: Option<&'g Block>,
    end: usize,
    parts: usize,
    visible: u64,
}

impl<'g> LogRows<'g> {
    fn new(spine: &'g Spine<Block>, position: LogPosition, visible: u64) -> Self {
        Self { spine, position, block: None, end: 0, parts: spine.len(), visible }
    }

    /// The rows of one block.
    fn of_block(spine: &'g Spine<Block>, part: usize) -> Self {
        let position = LogPosition { part, offset: 0 };
        Self { parts: part + 1, ..Self::new(spine, position, u64::MAX) }
    }

    /// Where the next row lies.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// The next row, without the time of its arrival.
    #[inline]
    pub fn next_row(&mut self) -> Option<RowRef<'g>> {
        self.next_in_block().map(|(row, _)| row)
    }

    #[inline]
    fn next_in_block(&mut self) -> Option<(RowRef<'g>, &'g Block)> {
        loop {
            if let Some(block) = self.block
                && self.position.offset < self.end
            {
                let row = block.row(self.position.offset);
                if row.arrival() >= self.visible {
                    // The position stays at the row.
                    self.parts = self.position.part;
                    self.end = 0;
                    return None;
                }
                self.position.offset += row.stored_size();
                return Some((row, block));
            }
            if self.block.is_some() {
                if self.position.part + 1 >= self.parts {
                    // The position stays at the end of the last block, which may still grow.
                    return None;
                }
                self.position = LogPosition { part: self.position.part + 1, offset: 0 };
            }
            if self.position.part >= self.parts {
                return None;
            }
            let block = block_at(self.spine, self.position.part);
            self.end = block.rows_end();
            self.block = Some(block);
        }
    }
}

impl<'g> Iterator for LogRows<'g> {
    type Item = LogRow<'g>;

    #[inline]
    fn next(&mut self) -> Option<LogRow<'g>> {
        let (row, block) = self.next_in_block()?;
        Some(LogRow { row, arrival_ms: block.arrived_ms(row.arrival()) })
    }
}

impl fmt::Debug for LogRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogRows").field("position", &self.position).finish_non_exhaustive()
    }
}

fn into_raw(block: &Arc<Block>) -> *mut Block {
    Arc::into_raw(Arc::clone(block)).cast_mut()
}

/// Drops blocks that a vector in a box shares.
///
/// # Safety
///
/// The pointer came out of a box of this type, and is not used again.
unsafe fn drop_blocks(blocks: *mut u8) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(blocks.cast::<Vec<Arc<Block>>>()) });
}

/// Shares a block that a spine leads to.
///
/// # Safety
///
/// It came out of `into_raw`, and was not dropped.
unsafe fn share(part: *mut Block) -> Arc<Block> {
    // SAFETY: the caller's promise.
    unsafe {
        Arc::increment_strong_count(part.cast_const());
        Arc::from_raw(part.cast_const())
    }
}

/// A block of a spine that is borrowed under a guard or the lock.
#[inline]
fn block_at(spine: &Spine<Block>, part: usize) -> &Block {
    // SAFETY: what a spine leads to is freed by way of the guard after it was replaced.
    unsafe { &*spine.part(part) }
}

/// Whether so few bytes of a block are rows that are kept that these are copied.
fn is_sparse(kept: usize, end: usize) -> bool {
    kept * 2 < end
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}

//! Compaction of a log: blocks without rows that are kept are left out, and blocks of which few are
//! kept are copied.
//!
//! `table` runs it: it makes a plan while appends go on, moves the rows in every series, completes
//! the plan while no append is in flight, and installs it. See rule 7 of the crate's protocol.

use std::{
    collections::BTreeMap,
    fmt,
    mem::ManuallyDrop,
    sync::{Arc, atomic::Ordering},
};

use super::{LogPosition, LogRow, LogRows, RowLog, block_at, count_begun, signed};
use crate::{
    Guard, RowRef,
    block::{ArrivalStamp, LogBlock, block_size},
    guard::Retiring,
};

/// Returns whether a row is kept.
type IsKept<'f> = &'f mut dyn FnMut(LogRow<'_>) -> bool;

/// The blocks of a log after compaction; see [`RowLog::plan`].
pub struct CompactionPlan {
    blocks: Vec<Arc<LogBlock>>,
    /// The number of blocks of the log that the plan covers.
    planned: usize,
    /// The new address of each row that is copied, by its present one.
    moved: BTreeMap<u64, u64>,
    /// The number of rows that are not kept.
    removed: usize,
}

impl RowLog {
    /// Plans the compaction of the log: each block is kept, left out, or copied as far as it is kept.
    /// Changes nothing yet: move the rows in every series, then [`Self::install`]. Nothing may be
    /// appended in between.
    ///
    /// A block is left out when none of its rows `is_kept`, and copied when fewer than half of its
    /// bytes are rows that are.
    pub fn plan(&self, is_kept: IsKept<'_>, guard: &Guard) -> CompactionPlan {
        let count = self.directory(guard).len();
        self.plan_where(is_kept, is_sparse, count, guard)
    }

    /// Plans the compaction of the first `count` blocks, as [`Self::seal`] returned it, while appends
    /// go on. [`Self::plan_rest`] adds the others.
    pub fn plan_full(&self, count: usize, is_kept: IsKept<'_>, guard: &Guard) -> CompactionPlan {
        self.plan_where(is_kept, is_sparse, count, guard)
    }

    /// Returns the number of blocks to which nothing is appended: all but the newest, and that one as
    /// well when so few of its rows are kept that it is better copied; it is sealed then. Nothing may
    /// be appended meanwhile.
    pub fn seal(&self, is_kept: IsKept<'_>, guard: &Guard) -> usize {
        let _writer = self.writer.lock();
        let directory = self.directory(guard);
        let Some((at, block)) = self.newest(guard) else { return directory.len() };
        let rows = LogRows::of_block(directory, at);
        let kept = rows.filter(|found| is_kept(*found)).map(|found| found.row.stored_size());
        if !is_sparse(kept.sum(), block.rows_end()) {
            return at;
        }
        // Relaxed: only the holder of the lock reads and writes it.
        self.is_sealed.store(true, Ordering::Relaxed);
        directory.len()
    }

    /// Adds the remaining blocks to a plan, except those without a row that `is_kept`; none of their
    /// rows is moved. Nothing may be appended until the plan is installed.
    pub fn plan_rest(&self, plan: &mut CompactionPlan, is_kept: IsKept<'_>, guard: &Guard) {
        let directory = self.directory(guard);
        assert!(plan.planned <= directory.len(), "the plan was made of this log");
        for at in plan.planned..directory.len() {
            let block = block_at(directory, at);
            let kept = LogRows::of_block(directory, at).filter(|found| is_kept(*found)).count();
            plan.removed += block.live_rows().saturating_sub(kept);
            if kept > 0 {
                block.set_live_rows(kept);
                // SAFETY: the directory's pointer is an `Arc` that was given away.
                plan.blocks.push(unsafe { share(directory.get(at)) });
            }
        }
        plan.planned = directory.len();
    }

    /// Makes a log of the rows that `is_kept`, as far as they are in blocks to which nothing is
    /// appended any more and all of whose rows have an arrival less than `visible`. Returns it and the
    /// position at which the other rows begin, for [`Self::push`]. Blocks of which every row is kept
    /// are shared with it.
    #[must_use]
    pub fn filtered(
        &self,
        visible: u64,
        is_kept: IsKept<'_>,
        guard: &Guard,
    ) -> (Self, LogPosition) {
        let is_touched = |kept: usize, end: usize| kept < end;
        // The last block that begins before `visible` may have rows from it on.
        let full = count_begun(self.directory(guard), visible).saturating_sub(1);
        let plan = self.plan_where(is_kept, is_touched, full, guard);
        (Self::of_blocks(&plan.blocks), LogPosition { block: full, offset: 0 })
    }

    /// Plans the compaction of the first `count` blocks. `is_copied` is called with the bytes of a
    /// block that are kept and all its bytes.
    fn plan_where(
        &self,
        is_kept: IsKept<'_>,
        is_copied: impl Fn(usize, usize) -> bool,
        count: usize,
        guard: &Guard,
    ) -> CompactionPlan {
        let directory = self.directory(guard);
        let (blocks, moved) = (Vec::new(), BTreeMap::new());
        let mut plan = CompactionPlan { blocks, planned: count, moved, removed: 0 };
        // Copies go to the last block that was made, as long as it precedes what is copied.
        let mut open: Option<Arc<LogBlock>> = None;
        for at in 0..count {
            let block = block_at(directory, at);
            let rows = LogRows::of_block(directory, at);
            let mut kept = Vec::new();
            kept.extend(rows.filter(|found| is_kept(*found)));
            let kept_bytes: usize = kept.iter().map(|found| found.row.stored_size()).sum();
            let end = block.rows_end();
            debug_assert!(kept_bytes <= end, "kept rows are rows of the block");
            plan.removed += block.live_rows().saturating_sub(kept.len());
            if !is_copied(kept_bytes, end) {
                block.set_live_rows(kept.len());
                plan.blocks.extend(open.take());
                // SAFETY: the directory's pointer is an `Arc` that was given away.
                plan.blocks.push(unsafe { share(directory.get(at)) });
                continue;
            }
            let mut left = kept_bytes;
            for found in kept {
                let address = plan.copy(&mut open, found, left);
                left -= found.row.stored_size();
                plan.moved.insert(found.row.address(), address);
            }
        }
        plan.blocks.extend(open);
        plan
    }

    /// Replaces the log's blocks by those of a plan.
    ///
    /// # Safety
    ///
    /// The plan was made of this log, nothing was appended since, and no series points to a row
    /// that is not kept, or to the old address of a moved one.
    pub unsafe fn install(&self, plan: &CompactionPlan, guard: &Guard) {
        let _writer = self.writer.lock();
        let old = self.directory(guard);
        assert_eq!(plan.planned, old.len(), "the plan covers every block");
        let newest = old.len().checked_sub(1).map(|at| old.get(at).cast_const());
        if newest != plan.blocks.last().map(Arc::as_ptr) {
            // Relaxed: only the holder of the lock reads it. The block may be of another log, too.
            self.is_sealed.store(!plan.blocks.is_empty(), Ordering::Relaxed);
        }
        let made = Self::of_blocks(&plan.blocks);
        // Relaxed: no other thread knows what was made; the number is to report.
        let bytes = made.memory_bytes.load(Ordering::Relaxed);
        let directory = made.directory.load(Ordering::Relaxed);
        // Only its directory is used.
        let _unused = ManuallyDrop::new(made);
        // Relaxed: a number to report, written under the lock.
        self.memory_bytes.store(bytes, Ordering::Relaxed);
        if let Some(account) = self.account.get() {
            let fresh = plan.blocks.iter().filter(|block| block.adopt(account));
            let blocks = fresh.map(|block| block.memory_bytes()).sum::<usize>();
            // SAFETY: it was made just now.
            let after = signed(unsafe { &*directory }.memory_bytes());
            account.charge(signed(blocks) + after - signed(old.memory_bytes()));
        }
        let blocks: Vec<Arc<LogBlock>> = old
            .to_vec()
            .into_iter()
            .map(|block| {
                // SAFETY: the directory is unlinked below, and owns its blocks no longer; each is
                // an `Arc` that was given away to it.
                unsafe { Arc::from_raw(block.cast_const()) }
            })
            .collect();
        self.replace_directory(directory, guard);
        let blocks = Box::into_raw(Box::new(blocks));
        // SAFETY: the blocks were unlinked just now, and are retired once. Most of them are shared.
        unsafe { Retiring::new(guard, None).retire_whole(blocks.cast(), drop_blocks, u64::MAX) };
    }
}

impl CompactionPlan {
    /// Copies a row to the open block, or to a new one, and returns its new address. `left` bytes
    /// are left to copy.
    fn copy(&mut self, open: &mut Option<Arc<LogBlock>>, found: LogRow<'_>, left: usize) -> u64 {
        debug_assert!(left >= found.row.stored_size(), "the row is left to copy");
        let stamp = ArrivalStamp { arrival: found.row.arrival(), at_ms: found.arrival_ms };
        let row = found.row.stored_bytes();
        if let Some(copy) = open.as_ref().and_then(|block| block.push(row, stamp)) {
            return copy.address();
        }
        self.blocks.extend(open.take());
        let block = Arc::new(LogBlock::new(block_size(left * 16, row.len()), stamp));
        let address = block.push(row, stamp).expect("the block was made for it").address();
        *open = Some(block);
        address
    }

    /// Returns the number of rows that are not kept and were not known to be removed before.
    pub fn removed_count(&self) -> usize {
        self.removed
    }

    /// Returns whether rows move.
    pub fn moves_rows(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Returns the copy of a row that moves.
    pub fn moved(&self, row: RowRef<'_>) -> Option<RowRef<'_>> {
        let address = *self.moved.get(&row.address())?;
        // SAFETY: the row is in a block that the plan holds.
        Some(unsafe { RowRef::from_address(address) })
    }
}

impl fmt::Debug for CompactionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionPlan").field("moved", &self.moved.len()).finish_non_exhaustive()
    }
}

/// Drops blocks that a vector in a box shares.
///
/// # Safety
///
/// The pointer is from a box of this type, and is not used again.
unsafe fn drop_blocks(blocks: *mut u8) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(blocks.cast::<Vec<Arc<LogBlock>>>()) });
}

/// Shares a block of a directory.
///
/// # Safety
///
/// It is from `into_raw`, and was not dropped.
pub(super) unsafe fn share(block: *mut LogBlock) -> Arc<LogBlock> {
    // SAFETY: the caller's promise.
    unsafe {
        Arc::increment_strong_count(block.cast_const());
        Arc::from_raw(block.cast_const())
    }
}

/// Returns whether so few bytes of a block are rows that are kept that these are copied.
fn is_sparse(kept: usize, end: usize) -> bool {
    kept * 2 < end
}

//! Reading the rows of one entity key, from the newest to the oldest: what windows and joins do.
//! Borrows a guard and allocates nothing.

use std::{fmt, ops::Range};

use crate::{
    Bounds, ChunkRun, RecordField, RecordFormat,
    chunk::{Chunk, ChunkHeader, ChunkView, KeyRow, Slots},
    chunk_run::prefetch_older,
    directory::Directory,
    entry::{EntryRows, chunk_at},
    row_ref::RowRef,
};

/// How many rows ahead of the reader rows are prefetched.
const PREFETCH_DISTANCE: usize = 12;

/// The rows of one key from the newest to the oldest by (event time, arrival), without those that
/// its [`Bounds`] hide.
#[derive(Clone)]
pub struct SeriesRows<'g> {
    directory: Option<&'g Directory<ChunkHeader>>,
    /// Chunks older than the current one.
    chunks_ahead: usize,
    /// The current chunk.
    slots: Slots<'g>,
    /// The number of its slots that were not reached yet.
    ahead: u8,
    /// Whether every row of the current chunk is visible, so that none has to be checked.
    all_visible: bool,
    /// The number of visible rows that were passed.
    passed: u64,
    bounds: Bounds,
    format: Option<&'g RecordFormat>,
}

impl<'g> SeriesRows<'g> {
    /// Makes a cursor before the rows of an entry; the caller holds a guard for `'g`.
    #[inline]
    pub(crate) fn new(
        entry: EntryRows<'g>,
        bounds: Bounds,
        format: Option<&'g RecordFormat>,
    ) -> Self {
        let mut rows = Self {
            directory: None,
            chunks_ahead: 0,
            slots: ChunkView::empty().slots(),
            ahead: 0,
            all_visible: false,
            passed: 0,
            bounds,
            format,
        };
        match entry {
            EntryRows::Single(single) => rows.enter(single),
            EntryRows::Chunk(chunk) => rows.enter(chunk.view()),
            EntryRows::Directory(directory) => {
                rows.directory = Some(directory);
                rows.chunks_ahead = directory.len();
            }
        }
        rows
    }

    /// Makes a cursor without rows.
    pub fn empty() -> Self {
        Self {
            directory: None,
            chunks_ahead: 0,
            slots: ChunkView::empty().slots(),
            ahead: 0,
            all_visible: false,
            passed: 0,
            bounds: Bounds::everything(),
            format: None,
        }
    }

    /// Skips the rows newer than `event_time_max`; never goes back. Binary search over the
    /// chunks, then within one. Rows skipped still count for retention by number.
    pub fn seek(&mut self, event_time_max: i64) {
        self.seek_to(|slots, at| slots.event_time(at) <= event_time_max);
    }

    /// Skips the rows that are not before a row of this event time and arrival; never goes back.
    /// Costs what [`Self::seek`] costs.
    pub fn seek_before(&mut self, event_time: i64, arrival: u64) {
        match (arrival.checked_sub(1), event_time.checked_sub(1)) {
            (Some(last), _) => {
                self.seek_to(|slots, at| slots.is_at_or_before(at, event_time, || last));
            }
            (None, Some(earlier)) => self.seek(earlier),
            // No row is before the least event time and arrival.
            (None, None) => *self = Self::empty(),
        }
    }

    /// Skips the rows newer than `event_time_max`, of which so many are visible; never goes back. Binary
    /// search, also where retention goes by number.
    pub fn skip_to(&mut self, event_time_max: i64, rows: u64) {
        let bounds = self.bounds;
        // Without a rule nothing is counted on the way.
        self.bounds = Bounds::visible(bounds.visible_end());
        self.seek(event_time_max);
        self.bounds = bounds;
        self.passed += rows;
    }

    /// Returns whether the row with this event time is kept if it comes after so many visible rows of those
    /// ahead, and with it all that are newer.
    #[inline]
    pub fn keeps_after(&self, event_time: i64, rows: u64) -> bool {
        !self.bounds.is_expired(event_time, self.passed + rows + 1)
    }

    /// Returns whether the row with this event time and arrival is among the rows ahead. Binary
    /// search.
    pub fn contains(mut self, event_time: i64, arrival: u64) -> bool {
        self.seek_to(|slots, at| slots.is_at_or_before(at, event_time, || arrival));
        self.next().is_some_and(|found| found.row.arrival() == arrival)
    }

    /// Returns the next rows that are stored in one chunk, as many as there are; the runs, one after
    /// the other, have the rows that the iterator returns. Where every row of the chunk is visible,
    /// none is touched. Binary search for the first one that is expired.
    #[inline]
    pub fn next_run(&mut self) -> Option<ChunkRun<'g>> {
        loop {
            self.reach_chunk()?;
            let newest = usize::from(self.ahead);
            if self.all_visible {
                return self.take_run(0..newest);
            }
            let is_visible =
                |rows: &Self, at: usize| rows.bounds.is_visible(rows.slots.row(at).arrival());
            if let Some(slots) = self.next_shown(is_visible) {
                return self.take_run(slots);
            }
        }
    }

    /// Returns what [`Self::next_run`] does, of the rows for which `is_shown` holds, which is called
    /// once or twice for each. The others count for retention by number all the same.
    pub fn next_run_of(
        &mut self,
        mut is_shown: impl FnMut(RowRef<'g>) -> bool,
    ) -> Option<ChunkRun<'g>> {
        loop {
            self.reach_chunk()?;
            let is_shown = |rows: &Self, at: usize| {
                let row = rows.slots.row(at);
                (rows.all_visible || rows.bounds.is_visible(row.arrival())) && is_shown(row)
            };
            if let Some(slots) = self.next_shown(is_shown) {
                return self.take_run(slots);
            }
        }
    }

    /// Prefetches the event times of the run after the current one, and some fields of its records,
    /// when it is stored in another chunk. To be called after [`Self::next_run`] and before its rows
    /// are read, by a reader that will read on: it costs some tens of nanoseconds, and saves the
    /// cache misses of the next run.
    #[inline]
    pub fn prefetch_next_run(&self, fields: &[RecordField]) {
        if let (Some(directory), 0) = (self.directory, self.ahead) {
            prefetch_older(directory, self.chunks_ahead, &self.slots, fields);
        }
    }

    /// Enters the chunk of the next row; `None` when there are no more.
    #[inline]
    fn reach_chunk(&mut self) -> Option<()> {
        while self.ahead == 0 {
            if self.chunks_ahead == 0 {
                return None;
            }
            self.enter_next(self.directory?);
        }
        Some(())
    }

    /// Skips the slots ahead that are not shown and returns those that follow and are; `None` when the
    /// chunk has no more.
    fn next_shown(
        &mut self,
        mut is_shown: impl FnMut(&Self, usize) -> bool,
    ) -> Option<Range<usize>> {
        let mut newest = usize::from(self.ahead);
        while newest > 0 && !is_shown(self, newest - 1) {
            newest -= 1;
        }
        self.pass(newest);
        let mut oldest = newest.checked_sub(1)?;
        while oldest > 0 && is_shown(self, oldest - 1) {
            oldest -= 1;
        }
        Some(oldest..newest)
    }

    /// Returns the run of slots that are the next ones and visible, as far as they are not expired,
    /// and passes them.
    #[inline]
    fn take_run(&mut self, slots: Range<usize>) -> Option<ChunkRun<'g>> {
        debug_assert_eq!(slots.end, usize::from(self.ahead), "the slots are the next ones");
        let run = ChunkRun::new(self.slots, slots.clone(), self.format);
        let kept = self.count_kept(&run);
        self.passed += u64::try_from(kept).expect("a count of slots fits 64 bits");
        if kept < run.len() {
            self.ahead = 0;
            self.chunks_ahead = 0;
            return (kept > 0).then(|| run.slice(0..kept));
        }
        self.ahead = small(slots.start);
        Some(run)
    }

    /// Counts the rows of a run, which are the next ones, that are not expired.
    #[inline]
    fn count_kept(&self, run: &ChunkRun<'_>) -> usize {
        let is_kept = |at: usize| {
            let count = u64::try_from(at + 1).expect("a count of slots fits 64 bits");
            !self.bounds.is_expired(run.event_time(at), self.passed + count)
        };
        let (mut low, mut high) = (0, run.len());
        if self.bounds.keeps_everything() || is_kept(high - 1) {
            return high;
        }
        // Expiry is monotone: see `Bounds`.
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_kept(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Skips the rows for which `is_reached` does not hold; it holds for a row and all older.
    fn seek_to(&mut self, is_reached: impl Fn(&Slots<'_>, usize) -> bool) {
        if self.ahead > 0 && (self.chunks_ahead == 0 || is_reached(&self.slots, 0)) {
            self.seek_in_chunk(is_reached);
            return;
        }
        self.pass(0);
        let Some(directory) = self.directory else { return };
        let is_oldest_reached = |chunk: *mut ChunkHeader| {
            // SAFETY: a chunk of a directory that is borrowed under a guard.
            let chunk = unsafe { Chunk::from_raw(chunk) };
            is_reached(&chunk.view(), 0)
        };
        let reached = directory.partition_point(self.chunks_ahead, is_oldest_reached);
        if self.bounds.counts_rows() {
            while self.chunks_ahead > reached {
                if self.bounds.is_exhausted(self.passed) {
                    self.chunks_ahead = 0;
                    return;
                }
                self.enter_next(directory);
                self.pass(0);
            }
        }
        self.chunks_ahead = reached;
        if reached > 0 {
            self.enter_next(directory);
            self.seek_in_chunk(is_reached);
        }
    }

    /// Skips the rows of the current chunk for which `is_reached` does not hold.
    fn seek_in_chunk(&mut self, is_reached: impl Fn(&Slots<'_>, usize) -> bool) {
        let ahead = usize::from(self.ahead);
        if !is_reached(&self.slots, ahead - 1) {
            let kept = self.slots.partition_point(ahead, is_reached);
            self.pass(kept);
        }
    }

    /// Passes all slots ahead in the chunk but the oldest `kept`, counting the visible ones where
    /// retention goes by number.
    fn pass(&mut self, kept: usize) {
        debug_assert!(kept <= usize::from(self.ahead), "the cursor never goes back");
        let skipped = kept..usize::from(self.ahead);
        self.ahead = small(kept);
        if !self.bounds.counts_rows() || skipped.is_empty() {
            return;
        }
        let count = if self.all_visible {
            skipped.len()
        } else {
            let is_visible = |at: &usize| self.bounds.is_visible(self.slots.row(*at).arrival());
            skipped.filter(is_visible).count()
        };
        self.passed += u64::try_from(count).expect("a count of slots fits 64 bits");
    }

    /// Enters the next older chunk; there is one.
    #[inline]
    fn enter_next(&mut self, directory: &'g Directory<ChunkHeader>) {
        self.chunks_ahead -= 1;
        self.enter(chunk_at(directory, self.chunks_ahead).view());
    }

    /// Puts the cursor before the newest row of a chunk.
    #[inline]
    fn enter(&mut self, view: ChunkView<'g>) {
        self.ahead = small(view.len());
        self.all_visible = self.bounds.is_visible(view.arrival_max());
        self.slots = view.slots();
    }

    /// Returns the next older slot whose row is visible.
    #[inline]
    fn next_visible(&mut self) -> Option<(usize, RowRef<'g>)> {
        loop {
            if self.ahead == 0 {
                if self.chunks_ahead == 0 {
                    return None;
                }
                self.enter_next(self.directory?);
                continue;
            }
            self.ahead -= 1;
            let at = usize::from(self.ahead);
            if let Some(later) = at.checked_sub(PREFETCH_DISTANCE) {
                self.slots.row(later).prefetch();
            }
            let row = self.slots.row(at);
            if self.all_visible || self.bounds.is_visible(row.arrival()) {
                return Some((at, row));
            }
        }
    }
}

impl<'g> Iterator for SeriesRows<'g> {
    type Item = KeyRow<'g>;

    #[inline]
    fn next(&mut self) -> Option<KeyRow<'g>> {
        let (at, row) = self.next_visible()?;
        let event_time = self.slots.event_time(at);
        self.passed += 1;
        if self.bounds.is_expired(event_time, self.passed) {
            self.ahead = 0;
            self.chunks_ahead = 0;
            return None;
        }
        Some(KeyRow { event_time, row })
    }
}

impl fmt::Debug for SeriesRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeriesRows").field("passed", &self.passed).finish_non_exhaustive()
    }
}

/// Converts a count of slots of one chunk.
#[inline]
fn small(count: usize) -> u8 {
    u8::try_from(count).expect("a chunk has 128 slots at most")
}

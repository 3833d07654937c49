//! Reading the rows of one entity key, from the newest to the oldest, which is what windows and
//! joins do. Borrows a guard and allocates nothing.

use std::{fmt, ops::Range};

use super::{
    Bounds, Included, Run,
    chunk::{Filled, Header, KeyRow, Slots},
    entry::{Parts, chunk_at},
    row_ref::RowRef,
    run::prefetch_older,
    spine::Spine,
};

/// How many rows ahead of the reader the rows are asked for.
const PREFETCH_DISTANCE: usize = 12;

/// The rows of one key from the newest to the oldest by (event time, arrival), without those that
/// its [`Bounds`] hide.
#[derive(Clone)]
pub struct KeyRows<'g> {
    spine: Option<&'g Spine<Header>>,
    /// Chunks older than the current one.
    chunks_ahead: usize,
    /// The current chunk.
    slots: Slots<'g>,
    /// Slots of it that were not reached yet.
    ahead: u8,
    /// Whether no row of the current chunk arrived too late, so that none has to be asked.
    all_visible: bool,
    /// How many visible rows were passed.
    passed: u64,
    bounds: Bounds,
    included: Option<&'g Included>,
}

impl<'g> KeyRows<'g> {
    /// The rows of an entry; the caller holds a guard for `'g`.
    #[inline]
    pub(crate) fn new(parts: Parts<'g>, bounds: Bounds, included: Option<&'g Included>) -> Self {
        let mut rows = Self {
            spine: None,
            chunks_ahead: 0,
            slots: Filled::none().slots(),
            ahead: 0,
            all_visible: false,
            passed: 0,
            bounds,
            included,
        };
        match parts {
            Parts::One(one) => rows.enter(one),
            Parts::Chunk(chunk) => rows.enter(chunk.filled()),
            Parts::Spine(spine) => {
                rows.spine = Some(spine);
                rows.chunks_ahead = spine.len();
            }
        }
        rows
    }

    /// No rows.
    pub fn empty() -> Self {
        Self {
            spine: None,
            chunks_ahead: 0,
            slots: Filled::none().slots(),
            ahead: 0,
            all_visible: false,
            passed: 0,
            bounds: Bounds::everything(),
            included: None,
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
            // Nothing is before the beginning.
            (None, None) => *self = Self::empty(),
        }
    }

    /// Whether the row with this event time and arrival is among the rows ahead. Binary search.
    pub fn contains(mut self, event_time: i64, arrival: u64) -> bool {
        self.seek_to(|slots, at| slots.is_at_or_before(at, event_time, || arrival));
        self.next().is_some_and(|found| found.row.arrival() == arrival)
    }

    /// The next rows that lie in one chunk, as many as there are; those of the runs, one after the
    /// other, are those that the iterator gives. Where no row of the chunk arrived too late, none is
    /// touched. Binary search for the first one that is expired.
    #[inline]
    pub fn next_run(&mut self) -> Option<Run<'g>> {
        loop {
            self.reach_chunk()?;
            let newest = usize::from(self.ahead);
            if self.all_visible {
                return self.take_run(0..newest);
            }
            let is_visible =
                |rows: &Self, at: usize| rows.bounds.is_visible(rows.slots.row(at).arrival());
            if let Some(filled) = self.stretch(is_visible) {
                return self.take_run(filled);
            }
        }
    }

    /// As [`Self::next_run`], of the rows for which `is_shown` holds, which is asked once or twice
    /// for each. The others count for retention by number all the same.
    pub fn next_run_of(&mut self, mut is_shown: impl FnMut(RowRef<'g>) -> bool) -> Option<Run<'g>> {
        loop {
            self.reach_chunk()?;
            let is_shown = |rows: &Self, at: usize| {
                let row = rows.slots.row(at);
                (rows.all_visible || rows.bounds.is_visible(row.arrival())) && is_shown(row)
            };
            if let Some(filled) = self.stretch(is_shown) {
                return self.take_run(filled);
            }
        }
    }

    /// Asks for the event times of the run after the current one, and for some fields of its
    /// records, each as the place where it begins and its width, when it lies in another chunk. To
    /// be called after [`Self::next_run`] and before its rows are read, by who will read on: it
    /// costs some tens of nanoseconds, and saves the waits of the next run.
    #[inline]
    pub fn prefetch_next_run(&self, fields: &[(usize, usize)]) {
        if let (Some(spine), 0) = (self.spine, self.ahead) {
            prefetch_older(spine, self.chunks_ahead, &self.slots, fields);
        }
    }

    /// Goes on to the chunk of the next row; `None` when there are no more.
    #[inline]
    fn reach_chunk(&mut self) -> Option<()> {
        while self.ahead == 0 {
            if self.chunks_ahead == 0 {
                return None;
            }
            self.enter_next(self.spine?);
        }
        Some(())
    }

    /// Skips the slots ahead that are not shown and says which ones follow that are; `None` when
    /// the chunk has no more.
    fn stretch(&mut self, mut is_shown: impl FnMut(&Self, usize) -> bool) -> Option<Range<usize>> {
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

    /// Hands out slots that are the next ones and visible, as far as they are not expired.
    #[inline]
    fn take_run(&mut self, filled: Range<usize>) -> Option<Run<'g>> {
        let run = Run::new(self.slots, filled.clone(), self.included);
        let kept = self.kept(&run);
        self.passed += u64::try_from(kept).expect("a count of slots fits 64 bits");
        if kept < run.len() {
            self.ahead = 0;
            self.chunks_ahead = 0;
            return (kept > 0).then(|| run.slice(0..kept));
        }
        self.ahead = small(filled.start);
        Some(run)
    }

    /// How many of the rows, which are the next ones, are not expired.
    #[inline]
    fn kept(&self, run: &Run<'_>) -> usize {
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
        let Some(spine) = self.spine else { return };
        let is_oldest_reached = |part: *mut Header| {
            // SAFETY: a part of a spine that is borrowed under a guard.
            let chunk = unsafe { super::chunk::Chunk::from_raw(part) };
            is_reached(&chunk.filled(), 0)
        };
        let reached = spine.partition_point(self.chunks_ahead, is_oldest_reached);
        if self.bounds.counts_rows() {
            while self.chunks_ahead > reached {
                if self.bounds.is_spent(self.passed) {
                    self.chunks_ahead = 0;
                    return;
                }
                self.enter_next(spine);
                self.pass(0);
            }
        }
        self.chunks_ahead = reached;
        if reached > 0 {
            self.enter_next(spine);
            self.seek_in_chunk(is_reached);
        }
    }

    fn seek_in_chunk(&mut self, is_reached: impl Fn(&Slots<'_>, usize) -> bool) {
        let ahead = usize::from(self.ahead);
        if !is_reached(&self.slots, ahead - 1) {
            let kept = self.slots.partition_point(ahead, is_reached);
            self.pass(kept);
        }
    }

    /// Passes all slots ahead in the chunk but the oldest `kept`, counting if that matters.
    fn pass(&mut self, kept: usize) {
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

    /// Goes on to the next older chunk; there is one.
    #[inline]
    fn enter_next(&mut self, spine: &'g Spine<Header>) {
        self.chunks_ahead -= 1;
        self.enter(chunk_at(spine, self.chunks_ahead).filled());
    }

    #[inline]
    fn enter(&mut self, filled: Filled<'g>) {
        self.ahead = small(filled.len());
        self.all_visible = self.bounds.is_visible(filled.arrival_max());
        self.slots = filled.slots();
    }

    /// The next older slot whose row is visible.
    #[inline]
    fn next_visible(&mut self) -> Option<(usize, RowRef<'g>)> {
        loop {
            if self.ahead == 0 {
                if self.chunks_ahead == 0 {
                    return None;
                }
                self.enter_next(self.spine?);
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

impl<'g> Iterator for KeyRows<'g> {
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

impl fmt::Debug for KeyRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRows").field("passed", &self.passed).finish_non_exhaustive()
    }
}

/// A count of slots of one chunk.
#[inline]
fn small(count: usize) -> u8 {
    u8::try_from(count).expect("a chunk has 128 slots at most")
}

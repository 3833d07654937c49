//! Reading an index as a whole: the rows of memory and of runs in the order of keys, those of a key from the
//! newest to the oldest.
//!
//! Flushes, merges and scans that need to know which rows are expired do it. *Cost*: each page is read once, from
//! the first to the last; memory for one page of each run, and for the keys of the rows in memory.

use std::sync::Arc;

use lockstep_series::{Bounds, Guard, KeyRow, PageRows, Series, SeriesRows, SortedKeys};

use crate::{ReadError, part::IndexRun};

/// The rows of one source, one after the other.
pub(crate) enum KeyScan<'s> {
    Memory(MemoryScan<'s>),
    Run(RunScan),
}

/// The rows of a series.
pub(crate) struct MemoryScan<'s> {
    series: &'s Series,
    guard: &'s Guard,
    bounds: Bounds,
    keys: SortedKeys,
    /// The position of the key after that of the next row.
    next_key: usize,
    rows: SeriesRows<'s>,
    next: Option<KeyRow<'s>>,
}

/// The rows of a run.
pub(crate) struct RunScan {
    run: Arc<IndexRun>,
    /// The page, and the next row in it.
    page: Option<(PageRows, usize)>,
    next_page: usize,
}

impl<'s> KeyScan<'s> {
    /// Starts before the first of the rows of a series that are within bounds.
    pub(crate) fn of_series(series: &'s Series, bounds: Bounds, guard: &'s Guard) -> Self {
        let keys = series.sorted_keys();
        let (rows, next) = (SeriesRows::empty(), None);
        let mut scan = MemoryScan { series, guard, bounds, keys, next_key: 0, rows, next };
        scan.advance();
        Self::Memory(scan)
    }

    /// Starts before the first row of a run.
    pub(crate) fn of_run(run: &Arc<IndexRun>) -> Result<Self, ReadError> {
        let mut scan = RunScan { run: Arc::clone(run), page: None, next_page: 0 };
        scan.reach_row()?;
        Ok(Self::Run(scan))
    }

    /// Returns the next row, with its key.
    pub(crate) fn next(&self) -> Option<(&[u8], KeyRow<'_>)> {
        match self {
            Self::Memory(scan) => {
                let key = scan.next_key.checked_sub(1).and_then(|at| scan.keys.get(at))?;
                Some((key, scan.next?))
            }
            Self::Run(scan) => {
                let (page, at) = scan.page.as_ref()?;
                page.get(*at)
            }
        }
    }

    /// Passes the next row.
    fn advance(&mut self) -> Result<(), ReadError> {
        debug_assert!(self.next().is_some(), "there is a row to pass");
        match self {
            Self::Memory(scan) => {
                scan.advance();
                Ok(())
            }
            Self::Run(scan) => {
                if let Some((_, at)) = &mut scan.page {
                    *at += 1;
                }
                scan.reach_row()
            }
        }
    }
}

impl MemoryScan<'_> {
    fn advance(&mut self) {
        loop {
            self.next = self.rows.next();
            if self.next.is_some() {
                return;
            }
            let Some(key) = self.keys.get(self.next_key) else { return };
            self.next_key += 1;
            let rows = self.series.seek(key, self.bounds, self.guard);
            self.rows = rows.unwrap_or_else(SeriesRows::empty);
        }
    }
}

impl RunScan {
    /// Reads pages until there is a row.
    fn reach_row(&mut self) -> Result<(), ReadError> {
        let has_row = |page: &Option<(PageRows, usize)>| {
            page.as_ref().is_some_and(|(page, at)| page.get(*at).is_some())
        };
        while !has_row(&self.page) && self.next_page < self.run.page_count() {
            self.page = Some((self.run.read_rows(self.next_page)?, 0));
            self.next_page += 1;
        }
        Ok(())
    }
}

/// A row that is visited.
pub(crate) struct VisitedRow<'v> {
    pub(crate) key: &'v [u8],
    /// Whether it is the first of its key, the newest one.
    pub(crate) is_first: bool,
    pub(crate) row: KeyRow<'v>,
    /// The place of its source among the scans.
    pub(crate) source: usize,
}

/// Visits all rows in the order of keys, those of a key from the newest to the oldest.
pub(crate) fn for_each_row<E: From<ReadError>>(
    scans: &mut [KeyScan<'_>],
    mut visit: impl FnMut(VisitedRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut key = Vec::new();
    while let Some(least) = scans.iter().filter_map(|scan| Some(scan.next()?.0)).min() {
        key.clear();
        key.extend_from_slice(least);
        let mut is_first = true;
        while let Some(source) = newest_of_key(scans, &key) {
            let Some((_, row)) = scans[source].next() else { break };
            visit(VisitedRow { key: &key, is_first, row, source })?;
            is_first = false;
            scans[source].advance()?;
        }
    }
    Ok(())
}

/// Returns the scan whose next row is the newest of those of a key.
fn newest_of_key(scans: &[KeyScan<'_>], key: &[u8]) -> Option<usize> {
    let of_key = scans.iter().enumerate().filter_map(|(at, scan)| {
        let (of, KeyRow { event_time, row }) = scan.next()?;
        (of == key).then(|| ((event_time, row.arrival()), at))
    });
    of_key.max().map(|(_, at)| at)
}

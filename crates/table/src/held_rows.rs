//! Rows of a snapshot that stay when it is dropped: what `batch` reads while a query runs.
//!
//! A snapshot holds up the freeing of all that is removed in the process, and cannot leave its thread.
//! [`HeldRows`] shares what has the rows instead: the blocks of the log, whose rows never change, and the parts of
//! a disk table. Which rows are shown is a matter of the row alone, but for indexes that count the rows of a key:
//! those are read once when the rows are taken, and leave a bit for each row.
//!
//! *Cost*: a pointer for each block of the log. What is removed meanwhile stays in memory, and charged, until the
//! last of them is dropped; files stay on the disk as long.

use std::{
    fmt,
    ops::{ControlFlow, Range, RangeInclusive},
    sync::Arc,
};

use lockstep_row::{IndexSpec, Retention, RowCodec, RowView};
use lockstep_series::{self as series, LogRow, RowLog, RowRef};

use crate::{
    ReadError, Snapshot, Table, TableParts,
    part::bug::{self, PartBug},
    scan::{ExtentScan, RetainedRows, RowFilter},
    table::number,
};

/// The rows of a table as a snapshot shows them, in order of arrival, for any thread and as long as wanted.
pub struct HeldRows {
    codec: Arc<RowCodec>,
    /// The rows that arrived first; of a memory table there are none.
    parts: Arc<TableParts>,
    /// The rows that arrived after those: frozen ones, and the newest.
    logs: Vec<RowLog>,
    /// The rules of which one has to keep a row; `None` where every row is shown.
    rules: Option<Vec<HeldRule>>,
    /// Rows with a smaller arrival are shown.
    visible: u64,
    now_ms: i64,
    stored_rows: u64,
}

/// How an index keeps rows.
enum HeldRule {
    /// By the time since the event time, which is that of arrival where there is no column of it.
    Absolute { event_time: Option<usize>, retention: Retention },
    /// The index with this position counts rows: those that it keeps are known.
    Counted(usize, Arc<RetainedRows>),
}

/// The values of an integer or time column that a condition lets pass; NULL is not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnRange {
    /// The position of the column.
    pub column: usize,
    /// The values.
    pub values: RangeInclusive<i64>,
}

impl ColumnRange {
    /// Returns whether the value of a row is in the range.
    #[inline]
    fn has_value_of(&self, row: RowView<'_>) -> bool {
        row.get(self.column).as_i64().is_some_and(|value| self.values.contains(&value))
    }
}

impl Snapshot<'_> {
    /// Takes the rows of [`Self::scan`], or of [`Self::scan_kept_by`] an index, so that they stay when the snapshot
    /// is dropped. Reads the indexes that count rows, and nothing else; `checkpoint` is called every few thousand of
    /// their rows.
    pub fn hold<E: From<ReadError>>(
        &self,
        kept_by: Option<usize>,
        checkpoint: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<HeldRows, E> {
        let (state, visible) = (self.state(), self.visible_arrival());
        let shared = |log: &Arc<RowLog>| log.shared(visible, self.guard());
        let (parts, mut logs) = match &state.disk {
            Some(disk) => {
                let frozen = disk.frozen.iter().map(|frozen| shared(&frozen.log));
                let frozen = frozen.filter(|_| !bug::is_seeded(PartBug::FrozenNotHeld));
                (Arc::clone(&disk.parts), frozen.collect())
            }
            None => (Arc::default(), Vec::new()),
        };
        logs.push(shared(&state.log));
        Ok(HeldRows {
            codec: Arc::clone(&self.table().codec),
            parts,
            logs,
            rules: self.held_rules(kept_by, checkpoint)?,
            visible,
            now_ms: self.now_ms(),
            stored_rows: self.stored_row_count(),
        })
    }

    /// Returns whether a scan depends on an index that counts rows ([`Self::scan_by`]).
    pub(crate) fn counts_rows_by(&self, kept_by: Option<usize>) -> bool {
        self.deciding_indexes(kept_by)
            .is_some_and(|indexes| indexes.into_iter().any(|index| self.counts_rows(index)))
    }

    /// Returns whether a scan looks each row up in an index, rather than reading the index once before.
    pub fn looks_rows_up(&self, kept_by: Option<usize>) -> bool {
        self.state().disk.is_none() && self.counts_rows_by(kept_by)
    }

    /// Returns the indexes one of which has to keep a row that a scan shows; `None` where it shows every row.
    fn deciding_indexes(&self, kept_by: Option<usize>) -> Option<Vec<usize>> {
        match self.filter_of(kept_by) {
            RowFilter::All => None,
            RowFilter::Live => Some(self.state().declared.clone()),
            RowFilter::Index(index) => Some(vec![index]),
        }
    }

    fn held_rules<E: From<ReadError>>(
        &self,
        kept_by: Option<usize>,
        checkpoint: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Option<Vec<HeldRule>>, E> {
        let Some(indexes) = self.deciding_indexes(kept_by) else { return Ok(None) };
        let spec = |index: usize| &self.state().schema.indexes[index];
        let counting: Vec<usize> =
            indexes.iter().copied().filter(|index| self.counts_rows(*index)).collect();
        let counted = Arc::new(self.kept_rows_of_indexes(&counting, checkpoint)?);
        let rule = |index: usize| {
            let IndexSpec { event_time, retention, .. } = *spec(index);
            match counting.contains(&index) {
                true => HeldRule::Counted(index, Arc::clone(&counted)),
                false => HeldRule::Absolute { event_time, retention },
            }
        };
        Ok(Some(indexes.into_iter().map(rule).collect()))
    }
}

impl HeldRows {
    /// Takes rows that lie in parts and logs, in this order, all with an arrival less than `visible`; none is hidden.
    pub(crate) fn unfiltered(
        table: &Table,
        parts: TableParts,
        logs: Vec<RowLog>,
        visible: u64,
    ) -> Self {
        let (codec, parts) = (Arc::clone(&table.codec), Arc::new(parts));
        Self { codec, parts, logs, rules: None, visible, now_ms: 0, stored_rows: 0 }
    }

    /// Returns the bytes of what has the rows, in memory and on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.file_bytes() + self.logs.iter().map(RowLog::memory_bytes).sum::<u64>()
    }

    /// Returns the number of stored rows, without those that were collected: at least as many as are shown.
    pub fn stored_row_count(&self) -> u64 {
        self.stored_rows
    }

    /// Returns whether no row is on a disk, so that nobody who reads them waits.
    pub fn are_in_memory(&self) -> bool {
        self.parts.extents().is_empty()
    }

    /// Returns the arrivals of the rows in ranges that follow each other, each of blocks of about `bytes` bytes, and of
    /// one at least. Blocks of files that have no row within all the ranges of values are left out.
    pub fn split(&self, bytes: u64, ranges: &[ColumnRange]) -> Vec<Range<u64>> {
        let mut parts = SplitRows { bytes, open: None, parts: Vec::new() };
        for extent in self.parts.extents() {
            for block in extent.blocks() {
                match block.may_have(ranges) {
                    true => parts.add(block.arrivals, block.bytes),
                    false => parts.end(),
                }
            }
        }
        let guard = series::pin();
        let blocks: Vec<(u64, usize)> =
            self.logs.iter().flat_map(|log| log.blocks(&guard)).collect();
        let ends = blocks.iter().skip(1).map(|(first, _)| *first).chain([self.visible]);
        for ((first, size), end) in blocks.iter().zip(ends) {
            parts.add(*first..end, number(*size));
        }
        parts.end();
        debug_assert!(
            parts.parts.is_sorted_by(|one, next| one.end <= next.start),
            "parts follow each other"
        );
        parts.parts
    }

    /// Visits the rows that have an arrival of a range, and values within all ranges of values, in order of arrival,
    /// until one fails or breaks.
    ///
    /// What is removed in the process meanwhile is freed afterwards, so that a range is to be a few milliseconds of
    /// work ([`Self::split`]).
    pub fn visit<E: From<ReadError>>(
        &self,
        arrivals: Range<u64>,
        ranges: &[ColumnRange],
        mut visit: impl FnMut(RowView<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        // When a row arrived is looked up for each.
        self.visit_stored(arrivals, self.rules.is_some(), |found| match self.shown(found, ranges) {
            Some(row) => visit(row),
            None => Ok(ControlFlow::Continue(())),
        })
    }

    /// Visits the rows that have an arrival of a range, in order of arrival, until one fails or breaks; also those
    /// that are not shown. The time of arrival is 0 unless `with_times` is set.
    pub(crate) fn visit_stored<E: From<ReadError>>(
        &self,
        arrivals: Range<u64>,
        with_times: bool,
        mut visit: impl FnMut(LogRow<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let arrivals = arrivals.start..arrivals.end.min(self.visible);
        let mut extents = ExtentScan::new(&self.parts, &self.codec, arrivals.clone());
        while extents.advance()? {
            if let Some(found) = extents.row()
                && visit(found)?.is_break()
            {
                return Ok(());
            }
        }
        let guard = series::pin();
        for log in &self.logs {
            let mut rows = log.rows_since(arrivals.start, arrivals.end, &guard);
            let mut next = || match with_times {
                false => rows.next_row().map(|row| LogRow { row, arrival_ms: 0 }),
                true => rows.next(),
            };
            while let Some(found) = next() {
                if visit(found)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the columns of a row, if it is shown and has values within all ranges of values.
    #[inline]
    fn shown<'r>(&'r self, found: LogRow<'r>, ranges: &[ColumnRange]) -> Option<RowView<'r>> {
        let row = self.view(found.row);
        let is_shown = ranges.iter().all(|range| range.has_value_of(row))
            && self
                .rules
                .as_ref()
                .is_none_or(|rules| rules.iter().any(|rule| self.is_kept_by(rule, row, found)));
        is_shown.then_some(row)
    }

    fn is_kept_by(&self, rule: &HeldRule, row: RowView<'_>, found: LogRow<'_>) -> bool {
        match rule {
            HeldRule::Absolute { event_time, retention } => {
                let event_time = match event_time {
                    Some(column) => row.get(*column).as_i64().unwrap_or(i64::MIN),
                    None => found.arrival_ms,
                };
                !retention.is_expired(event_time, 1, self.now_ms)
            }
            HeldRule::Counted(index, counted) => {
                counted.keeps(*index, found.row.arrival()).unwrap_or(false)
            }
        }
    }

    /// Returns a view of a row.
    #[inline]
    pub(crate) fn view<'r>(&'r self, row: RowRef<'r>) -> RowView<'r> {
        // SAFETY: as of `Table::view`: the rows are those of the table with this codec.
        unsafe { self.codec.view_trusted(row.bytes()) }
    }
}

/// Rows that are being split.
struct SplitRows {
    /// About how many bytes a part has.
    bytes: u64,
    /// The part to which blocks are added, and its bytes.
    open: Option<(Range<u64>, u64)>,
    parts: Vec<Range<u64>>,
}

impl SplitRows {
    /// Adds a block, which follows the one before where the part is not ended.
    fn add(&mut self, arrivals: Range<u64>, bytes: u64) {
        let (part, size) = self.open.get_or_insert((arrivals.start..arrivals.start, 0));
        debug_assert!(part.end <= arrivals.start, "blocks are in order of arrival");
        part.end = arrivals.end;
        *size += bytes;
        if *size >= self.bytes {
            self.end();
        }
    }

    /// Ends the part.
    fn end(&mut self) {
        self.parts.extend(self.open.take().map(|(part, _)| part));
    }
}

impl fmt::Debug for HeldRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRows")
            .field("visible", &self.visible)
            .field("stored_rows", &self.stored_rows)
            .finish_non_exhaustive()
    }
}

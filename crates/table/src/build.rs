//! Building an index, or rebuilding a whole table, while appends go on.
//!
//! `change` calls it. An index is built of the rows that are visible at the start, in order of event
//! time, so that none is late; then the rows that became visible meanwhile are added, until few are
//! left; and these are added while no append is in flight, which takes no longer than inserting
//! [`CATCH_UP_ROWS`] rows. Until then the call may be interrupted, and nothing has changed.
//!
//! No guard is held for longer than a step: a guard keeps everything that other threads replace from
//! being freed.

use std::sync::{Arc, atomic::Ordering};

use lockstep_host::{CallStep, query};
use lockstep_row::IndexSpec;
use lockstep_series::{LogPosition, LogRow, RowLog, RowRef};

use crate::{
    Table, TableError,
    append::{GROUP_ROWS, GroupKeys, InsertTarget},
    arrival_set::ArrivalSet,
    change::ChangeGuard,
    disk::{DiskRows, FrozenRows, TableParts, checkpoint},
    draft::{DraftedIndex, TableDraft},
    part::bug::{self, PartBug},
    scan::ExtentScan,
    state::{self, Index, Origin, TableState},
    table::{ExclusiveLock, number},
};

/// How many rows are scanned under one guard.
const STEP_ROWS: usize = 4096;
/// With so few rows left, appends may wait until they are added.
const CATCH_UP_ROWS: usize = 1024;
/// How often a build catches up with appends before they wait for it in any case.
const CATCH_UPS_MAX: usize = 32;
/// How many rows are inserted under one guard.
const GUARD_ROWS: usize = 256;

const UNINTERRUPTED: &str = "no interrupt ends what appends wait for";

/// A scan of the rows of a log in order of arrival, without removed ones. No row is removed from the
/// log meanwhile.
pub(crate) struct LogScan<'c> {
    table: &'c Table,
    log: &'c RowLog,
    removed_rows: Arc<ArrivalSet>,
    position: LogPosition,
    /// Whether the call may be interrupted; not while appends wait.
    may_end: bool,
}

/// The build of an index from the rows of a log, and of what a disk table has beside.
pub(crate) struct IndexBuild<'c> {
    scan: LogScan<'c>,
    fill: IndexFill,
    /// The index of the frozen rows.
    frozen: Option<Index>,
}

/// An index that was built.
pub(crate) struct BuiltIndex {
    pub(crate) index: Index,
    /// The same index of the frozen rows, if there are any.
    pub(crate) frozen: Option<Index>,
}

/// The rebuild of all indexes of a table, and of its log, from the rows that are kept.
pub(crate) struct TableRebuild<'c> {
    scan: LogScan<'c>,
    log: RowLog,
    fills: Vec<IndexFill>,
}

/// The rows of the parts of a disk table in memory, with indexes.
pub(crate) struct CopiedTable {
    /// The indexes as they were then.
    draft: TableDraft,
    log: RowLog,
    fills: Vec<IndexFill>,
    /// Rows with a smaller arrival are there.
    end: u64,
}

/// An index that is being filled.
pub(crate) struct IndexFill {
    spec: IndexSpec,
    pub(crate) index: Index,
    group_keys: GroupKeys,
}

/// Returns whether a row is kept.
pub(crate) type RowTest<'f> = &'f mut dyn FnMut(LogRow<'_>) -> Result<bool, TableError>;

impl<'c> LogScan<'c> {
    /// Starts before the first row of a log.
    pub(crate) fn new(table: &'c Table, log: &'c RowLog) -> Self {
        let removed_rows = Arc::clone(&table.removed_rows.lock());
        Self { table, log, removed_rows, position: LogPosition::START, may_end: true }
    }

    /// Starts before the first of the frozen rows of a table.
    fn of_frozen(table: &'c Table, frozen: &'c FrozenRows) -> Self {
        let removed_rows = Arc::clone(&frozen.removed_rows);
        Self { removed_rows, ..Self::whole(table, &frozen.log) }
    }

    /// Makes the scan ignore interrupts.
    pub(crate) fn uninterrupted(mut self) -> Self {
        self.may_end = false;
        self
    }

    /// Fails when the call was interrupted.
    fn checkpoint(&self) -> Result<(), TableError> {
        if self.may_end { query::checkpoint().map_err(TableError::Interrupted) } else { Ok(()) }
    }

    /// Visits the next rows with an arrival less than `visible`, and returns how many there were.
    pub(crate) fn rows_until(
        &mut self,
        visible: u64,
        visit: &mut dyn FnMut(LogRow<'_>),
    ) -> Result<usize, TableError> {
        let mut count = 0;
        loop {
            self.checkpoint()?;
            let guard = lockstep_series::pin();
            let mut rows = self.log.rows_between(self.position, visible, &guard);
            let mut step = 0;
            for found in rows.by_ref().take(STEP_ROWS) {
                step += 1;
                if !self.removed_rows.contains(found.row.arrival()) {
                    visit(found);
                }
            }
            self.position = rows.position();
            count += step;
            debug_assert!(step <= STEP_ROWS, "a step is limited");
            if step < STEP_ROWS {
                return Ok(count);
            }
        }
    }

    /// Visits the rows that become visible, until few are left.
    pub(crate) fn catch_up(&mut self, visit: &mut dyn FnMut(LogRow<'_>)) -> Result<(), TableError> {
        for _ in 0..CATCH_UPS_MAX {
            if self.rows_until(self.table.commit_queue.visible(), visit)? <= CATCH_UP_ROWS {
                break;
            }
        }
        Ok(())
    }
}

impl<'c> IndexBuild<'c> {
    /// Builds an index from the rows that are visible now. The change lock is held until it is
    /// finished.
    pub(crate) fn start(
        change: &'c ChangeGuard<'_>,
        state: &'c TableState,
        drafted: &DraftedIndex,
    ) -> Result<Self, TableError> {
        let table = change.table;
        let mut scan = LogScan::new(table, &state.log);
        let mut fill = IndexFill::new(drafted);
        let frozen = state.disk.as_ref().and_then(|disk| disk.frozen.as_deref());
        let frozen = frozen.map(|frozen| {
            let mut of_frozen =
                IndexFill { index: fill.index.emptied(), ..IndexFill::new(drafted) };
            if !bug::is_seeded(PartBug::FrozenNotIndexed) {
                of_frozen.fill(&mut LogScan::of_frozen(table, frozen), frozen.end)?;
            }
            Ok::<_, TableError>(of_frozen.index)
        });
        let frozen = frozen.transpose()?;
        fill.fill(&mut scan, table.commit_queue.visible())?;
        scan.catch_up(&mut |found| fill.insert(table, found))?;
        Ok(Self { scan: scan.uninterrupted(), fill, frozen })
    }

    /// Adds the rows that are left, and returns the index.
    pub(crate) fn finish(self, _exclusive: &ExclusiveLock<'_>) -> BuiltIndex {
        let Self { mut scan, mut fill, frozen } = self;
        let table = scan.table;
        let rest = scan.rows_until(u64::MAX, &mut |found| fill.insert(table, found));
        rest.expect(UNINTERRUPTED);
        BuiltIndex { index: fill.index, frozen }
    }
}

impl<'c> TableRebuild<'c> {
    /// Builds indexes from the rows that are visible now and kept. `is_kept` is called once for each
    /// row. The change lock is held until it is finished.
    pub(crate) fn start(
        change: &'c ChangeGuard<'_>,
        state: &'c TableState,
        draft: &TableDraft,
        is_kept: RowTest<'_>,
    ) -> Result<Self, TableError> {
        let table = change.table;
        let mut scan = LogScan::new(table, &state.log);
        let visible = table.commit_queue.visible();
        let (log, position) = if let Some(disk) = &state.disk {
            (copied_frozen(disk, is_kept)?, LogPosition::START)
        } else {
            let guard = lockstep_series::pin();
            let removed_rows = Arc::clone(&scan.removed_rows);
            let (mut seen, mut goes_on) = (0, Ok(true));
            let mut is_copied = |found: LogRow<'_>| {
                seen += 1;
                if seen % STEP_ROWS == 0 && goes_on.is_ok() {
                    goes_on = scan.checkpoint().map(|()| true);
                }
                if goes_on.is_ok() && !removed_rows.contains(found.row.arrival()) {
                    goes_on = is_kept(found);
                    return matches!(goes_on, Ok(true));
                }
                false
            };
            let filtered = state.log.filtered(visible, &mut is_copied, &guard);
            goes_on?;
            filtered
        };
        scan.position = position;
        let fills = filled(table, &log, draft)?;
        Self { scan, log, fills }.caught_up(is_kept)
    }

    /// Adds the rows that are visible now, but for few.
    fn caught_up(mut self, is_kept: RowTest<'_>) -> Result<Self, TableError> {
        self.follow(is_kept, |scan, visit| scan.catch_up(visit))?;
        self.scan = self.scan.uninterrupted();
        Ok(self)
    }

    /// Adds the rows that are left, and returns the indexes and the log.
    pub(crate) fn finish(
        mut self,
        is_kept: RowTest<'_>,
        _exclusive: &ExclusiveLock<'_>,
    ) -> Result<(Vec<Index>, RowLog), TableError> {
        let rest = self.follow(is_kept, |scan, visit| scan.rows_until(u64::MAX, visit));
        debug_assert!(!matches!(rest, Err(TableError::Interrupted(_))), "{UNINTERRUPTED}");
        rest?;
        Ok((self.fills.into_iter().map(|fill| fill.index).collect(), self.log))
    }

    /// Copies the rows that `advance` visits, as far as they are kept, and inserts them.
    fn follow<T>(
        &mut self,
        is_kept: RowTest<'_>,
        advance: impl FnOnce(&mut LogScan<'_>, &mut dyn FnMut(LogRow<'_>)) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        let Self { scan, log, fills } = self;
        let table = scan.table;
        let mut goes_on = Ok(true);
        let advanced = advance(scan, &mut |found| {
            if goes_on.is_ok() {
                goes_on = is_kept(found);
            }
            if !matches!(goes_on, Ok(true)) {
                return;
            }
            let guard = lockstep_series::pin();
            let copy = LogRow { row: log.push(found, &guard), arrival_ms: found.arrival_ms };
            fills.iter_mut().for_each(|fill| fill.insert(table, copy));
        });
        goes_on?;
        advanced
    }
}

/// Builds the indexes of a draft from the rows of a log.
fn filled(table: &Table, log: &RowLog, draft: &TableDraft) -> Result<Vec<IndexFill>, TableError> {
    let mut fills: Vec<IndexFill> = draft.indexes.iter().map(IndexFill::new).collect();
    for fill in &mut fills {
        fill.fill(&mut LogScan::whole(table, log), u64::MAX)?;
    }
    Ok(fills)
}

/// Copies those of the frozen rows of a disk table that are kept into a log.
fn copied_frozen(disk: &DiskRows, is_kept: RowTest<'_>) -> Result<RowLog, TableError> {
    let (log, mut rows) = (RowLog::new(), 0);
    if let Some(frozen) = &disk.frozen {
        frozen.for_each_row(|found| {
            rows += 1;
            if rows % STEP_ROWS == 0 {
                checkpoint()?;
            }
            if is_kept(found)? || bug::is_seeded(PartBug::FrozenNotDeleted) {
                log.push(found, &lockstep_series::pin());
            }
            Ok::<(), TableError>(())
        })?;
    }
    Ok(log)
}

impl CopiedTable {
    /// Copies the rows of parts, and builds the indexes of a draft. Nothing is locked.
    pub(crate) fn of_parts(
        table: &Table,
        parts: &TableParts,
        draft: &TableDraft,
    ) -> Result<Self, TableError> {
        let log = RowLog::new();
        // Relaxed, here and below: a number to report.
        table.loaded_rows.store(0, Ordering::Relaxed);
        for extent in parts.extents() {
            for block in 0..extent.block_count() {
                checkpoint()?;
                let block = extent.read(block, &table.codec)?;
                for (arrival_ms, batch) in block.batches() {
                    log.append_arrived(batch, *arrival_ms);
                    table.loaded_rows.fetch_add(number(batch.len()), Ordering::Relaxed);
                }
            }
        }
        let fills = filled(table, &log, draft)?;
        Ok(Self { draft: draft.clone(), log, fills, end: parts.end() })
    }

    /// Adds the rows of a state that are in the parts since, frozen or in memory. The change lock is held until the
    /// rebuild is finished.
    pub(crate) fn followed<'c>(
        self,
        change: &'c ChangeGuard<'_>,
        state: &'c TableState,
        disk: &DiskRows,
    ) -> Result<TableRebuild<'c>, TableError> {
        let Self { draft, log, mut fills, end } = self;
        let table = change.table;
        let now = TableDraft::of(state);
        let is_same = |(one, other): (&DraftedIndex, &DraftedIndex)| one.is_built_as(other);
        let mut pairs = draft.indexes.iter().zip(&now.indexes);
        if draft.indexes.len() != now.indexes.len() || !pairs.all(is_same) {
            // Indexes were added or removed meanwhile.
            fills = filled(table, &log, &now)?;
        }
        for (fill, drafted) in fills.iter_mut().zip(now.indexes) {
            fill.index.origin = drafted.origin;
        }
        let mut rows = 0;
        let mut copy = |found: LogRow<'_>| {
            rows += 1;
            if rows % STEP_ROWS == 0 {
                checkpoint()?;
            }
            let guard = lockstep_series::pin();
            let copy = LogRow { row: log.push(found, &guard), arrival_ms: found.arrival_ms };
            fills.iter_mut().for_each(|fill| fill.insert(table, copy));
            Ok::<(), TableError>(())
        };
        ExtentScan::new(&disk.parts, &table.codec, end..u64::MAX).for_each(&mut copy)?;
        let frozen = disk.frozen.as_ref().filter(|_| !bug::is_seeded(PartBug::FrozenNotLoaded));
        frozen.map_or(Ok(()), |frozen| frozen.for_each_row(copy))?;
        let scan = LogScan::new(table, &state.log);
        TableRebuild { scan, log, fills }.caught_up(&mut |_| Ok(true))
    }
}

impl<'c> LogScan<'c> {
    /// Scans a log without removed rows.
    fn whole(table: &'c Table, log: &'c RowLog) -> Self {
        Self {
            table,
            log,
            removed_rows: Arc::default(),
            position: LogPosition::START,
            may_end: true,
        }
    }
}

impl IndexFill {
    /// Starts with an empty index.
    fn new(drafted: &DraftedIndex) -> Self {
        let index = Index::empty(&drafted.projection, drafted.origin);
        Self { spec: drafted.spec.clone(), index, group_keys: GroupKeys::default() }
    }

    /// Starts with an empty index that includes no columns.
    pub(crate) fn without_records(spec: &IndexSpec) -> Self {
        let index = Index::empty(&Arc::default(), Origin::Automatic);
        Self { spec: spec.clone(), index, group_keys: GroupKeys::default() }
    }

    /// Inserts all rows of a scan up to an arrival, in order of event time.
    fn fill(&mut self, scan: &mut LogScan<'_>, visible: u64) -> Result<(), TableError> {
        let Self { spec, index, group_keys } = self;
        if index.origin == Origin::Removed {
            return Ok(());
        }
        let table = scan.table;
        let mut rows: Vec<(i64, RowRef<'_>)> = Vec::new();
        scan.rows_until(visible, &mut |found| {
            let event_time = state::event_time(spec, table.view(found.row), || found.arrival_ms);
            // SAFETY: no row is removed from the log until the build is finished.
            rows.push((event_time, unsafe { found.row.for_longer() }));
        })?;
        if !rows.is_sorted_by_key(|(event_time, _)| *event_time) {
            // Stable: equal event times stay in order of arrival.
            rows.sort_by_key(|(event_time, _)| *event_time);
        }
        let (mut done, total) = (0, number(rows.len()));
        for some in rows.chunks(GUARD_ROWS) {
            scan.checkpoint()?;
            query::report(CallStep::BuildIndex, done, total);
            done += number(some.len());
            let guard = lockstep_series::pin();
            for group in some.chunks(GROUP_ROWS) {
                let target = InsertTarget { spec, series: &index.series, late: None };
                table.insert_group(target, group.iter().copied(), group_keys, &guard);
            }
        }
        Ok(())
    }

    /// Inserts a row.
    pub(crate) fn insert(&mut self, table: &Table, found: LogRow<'_>) {
        let Self { spec, index, group_keys } = self;
        if index.origin == Origin::Removed {
            return;
        }
        let event_time = state::event_time(spec, table.view(found.row), || found.arrival_ms);
        let guard = lockstep_series::pin();
        let row = std::iter::once((event_time, found.row));
        let target = InsertTarget { spec, series: &index.series, late: None };
        table.insert_group(target, row, group_keys, &guard);
    }
}

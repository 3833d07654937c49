//! Writing all parts of a table again, without some of their rows; and building runs of an index that is added.
//!
//! DELETE does it, a rule that keeps rows for longer, and a compaction when about half of the rows may have
//! expired. *Cost*: reads and writes all files of the table, one after the other; memory for a page of each run,
//! and a bit for each row that is left out. Runs of an added index are sorted in parts of
//! [`DiskTuning::sorted_bytes`](super::DiskTuning), those of a large table before the change lock is taken.

use std::sync::Arc;

use lockstep_host::{in_background, query, sync::MutexGuard};
use lockstep_row::{IndexSpec, Retention};
use lockstep_series::{Account, Bounds, LogRow, RowLog};
use lockstep_wal::DataFileWriter;

use super::{
    TableParts,
    compaction::{count_merged, merge_runs},
    flush::ExtentsWriter,
    part_error, tuning,
};
use crate::{
    Horizon, Table, TableError,
    arrival_set::ArrivalSet,
    build::{IndexFill, RowTest},
    part::{
        IndexRun, KeyScan, MergeRule, RowExtent, RunWriter,
        bug::{self, PartBug},
        merge_scans,
    },
    scan::ExtentScan,
    table::number,
};

/// After how many rows the call checks whether it was interrupted.
const CHECKPOINT_ROWS: u64 = if cfg!(test) { 3 } else { 4_096 };
/// How often runs are built ahead of rows that were stored while those before were built.
const PASSES_AHEAD: usize = 4;
/// How often the call looks whether files are still being merged, in milliseconds.
const MERGE_LOOK_MS: u32 = 2;

/// Creates a data file.
pub(crate) type CreateFile<'c> = &'c mut dyn FnMut() -> Result<DataFileWriter, lockstep_wal::Error>;

/// Fails when the call was interrupted.
pub(crate) fn checkpoint() -> Result<(), TableError> {
    query::checkpoint().map_err(TableError::Interrupted)
}

impl Table {
    /// Writes parts again with the rows for which `is_kept` holds, which is called once for each, in order of
    /// arrival. The parts stay as they are where all are kept. `checkpoint` is called every few thousand rows.
    pub(crate) fn rewrite_parts(
        &self,
        parts: &Arc<TableParts>,
        is_kept: RowTest<'_>,
        checkpoint: &mut dyn FnMut() -> Result<(), TableError>,
    ) -> Result<Arc<TableParts>, TableError> {
        let mut left_out = ArrivalSet::default();
        let extents = self.write_extents(parts, checkpoint, &mut |found| {
            let is_kept = is_kept(found)?;
            if !is_kept {
                left_out.insert(found.row.arrival());
            }
            Ok(is_kept)
        })?;
        if left_out.is_empty() {
            return Ok(Arc::clone(parts));
        }
        if extents.is_empty() {
            let no_runs = vec![Vec::new(); parts.all_runs().len()];
            return Ok(Arc::new(TableParts::new(extents, no_runs)));
        }
        let mut runs = Vec::new();
        for of_index in parts.all_runs() {
            let is_kept = |arrival| !left_out.contains(arrival);
            runs.push(match of_index.is_empty() {
                true => Vec::new(),
                false => {
                    let file = self.create_part()?;
                    vec![merge_runs(file, of_index, KEEP_ALL, is_kept, &mut *checkpoint)?]
                }
            });
        }
        Ok(Arc::new(TableParts::new(extents, runs)))
    }

    /// Writes the rows of extents into others, those for which `is_kept` holds.
    pub(super) fn write_extents(
        &self,
        parts: &TableParts,
        checkpoint: &mut dyn FnMut() -> Result<(), TableError>,
        is_kept: RowTest<'_>,
    ) -> Result<Vec<Arc<RowExtent>>, TableError> {
        let mut create = || self.create_part_file();
        let schema = self.schema();
        let (mut extents, mut rows) = (ExtentsWriter::new(self, &schema, &mut create), 0_u64);
        ExtentScan::new(parts, &self.codec, 0..u64::MAX).for_each(|found| {
            if is_kept(found)? || bug::is_seeded(PartBug::FilesNotDeleted) {
                extents.push(found).map_err(part_error)?;
            }
            rows += 1;
            if rows.is_multiple_of(CHECKPOINT_ROWS) { checkpoint() } else { Ok(()) }
        })?;
        extents.finish().map_err(part_error)
    }
}

/// Runs of an index that is about to be added, built while the table goes on: a checkpoint takes rows from memory, so that
/// writers do not wait for the build. No files of the table are merged as long as this exists.
pub(crate) struct RunsAhead<'t> {
    /// Its keys and its event time are those of the index.
    spec: IndexSpec,
    /// The extents that they are of, the oldest one first.
    extents: Vec<Arc<RowExtent>>,
    /// The newest one first.
    runs: Vec<Arc<IndexRun>>,
    _compacting: MutexGuard<'t, ()>,
}

impl Table {
    /// Builds the runs of an index over these keys and this event time that has yet to be added; `None` unless there are
    /// many rows in files of a disk table.
    pub(crate) fn build_runs_ahead(
        &self,
        keys: &[usize],
        event_time: Option<usize>,
    ) -> Result<Option<RunsAhead<'_>>, TableError> {
        let parts = || self.snapshot().state().disk.as_ref().map(|disk| Arc::clone(&disk.parts));
        let is_long = |parts: &TableParts| parts.row_count() >= tuning().rewritten_rows_min;
        if !parts().is_some_and(|parts| is_long(&parts)) {
            return Ok(None);
        }
        let compacting = loop {
            match self.compacting.try_lock() {
                Some(compacting) => break compacting,
                None => lockstep_host::pause(MERGE_LOOK_MS),
            }
            checkpoint()?;
        };
        let spec = IndexSpec {
            name: String::new(),
            keys: keys.to_vec(),
            event_time,
            retention: Retention::Forever,
            declared: false,
        };
        let (extents, runs) = (Vec::new(), Vec::new());
        let mut ahead = RunsAhead { spec, extents, runs, _compacting: compacting };
        // Rows that come meanwhile are fewer each time.
        for _ in 0..PASSES_AHEAD {
            let Some(left) = parts().and_then(|parts| ahead.left_of(&parts)) else { break };
            if !is_long(&left) {
                break;
            }
            let create = &mut || self.create_part_file();
            let spec = &ahead.spec;
            let build = || build_runs(self, &left, spec, create);
            let runs = in_background("build index", build)?;
            ahead.extend(&left, runs);
        }
        Ok(Some(ahead))
    }
}

impl RunsAhead<'_> {
    /// Returns the extents of a table that they lack, without runs; `None` unless it has all that they are of.
    fn left_of(&self, parts: &TableParts) -> Option<TableParts> {
        let extents = parts.extents();
        let is_same = |(own, other): (&Arc<RowExtent>, &Arc<RowExtent>)| Arc::ptr_eq(own, other);
        let has_all =
            extents.len() >= self.extents.len() && self.extents.iter().zip(extents).all(is_same);
        if !has_all && !bug::is_seeded(PartBug::RunsOfOtherRows) {
            return None;
        }
        let left = extents.get(self.extents.len()..).unwrap_or_default();
        Some(TableParts::new(left.to_vec(), Vec::new()))
    }

    /// Takes runs of extents that it lacked.
    fn extend(&mut self, parts: &TableParts, runs: Vec<Arc<IndexRun>>) {
        debug_assert!(parts.all_runs().is_empty(), "they are extents alone");
        self.extents.extend_from_slice(parts.extents());
        self.runs.splice(..0, runs);
    }
}

/// Builds the runs of an index from the rows of extents, the newest one first; those that were built ahead are taken as they
/// are.
pub(crate) fn build_runs_after(
    ahead: Option<&RunsAhead<'_>>,
    table: &Table,
    parts: &TableParts,
    spec: &IndexSpec,
) -> Result<Vec<Arc<IndexRun>>, TableError> {
    let create = &mut || table.create_part_file();
    let of_index = |ahead: &&RunsAhead<'_>| {
        (&ahead.spec.keys, ahead.spec.event_time) == (&spec.keys, spec.event_time)
    };
    let ahead = ahead.filter(of_index);
    let Some((ahead, left)) = ahead.and_then(|ahead| Some((ahead, ahead.left_of(parts)?))) else {
        return build_runs(table, parts, spec, create);
    };
    let mut runs = build_runs(table, &left, spec, create)?;
    if bug::is_seeded(PartBug::RowsAfterRunsLost) {
        runs.clear();
    }
    runs.extend_from_slice(&ahead.runs);
    Ok(runs)
}

/// Builds the runs of an index from the rows of extents, the newest one first, in files that `create` creates.
pub(crate) fn build_runs(
    table: &Table,
    parts: &TableParts,
    spec: &IndexSpec,
    create: CreateFile<'_>,
) -> Result<Vec<Arc<IndexRun>>, TableError> {
    let mut runs: Vec<Arc<IndexRun>> = Vec::new();
    let mut sorting = Sorting::new(table, spec);
    let mut rows = 0_u64;
    ExtentScan::new(parts, &table.codec, 0..u64::MAX).for_each(|found| {
        sorting.add(found);
        rows += 1;
        if !rows.is_multiple_of(CHECKPOINT_ROWS) {
            return Ok(());
        }
        checkpoint()?;
        if sorting.log.memory_bytes() >= tuning().sorted_bytes {
            let sorted = std::mem::replace(&mut sorting, Sorting::new(table, spec));
            if bug::is_seeded(PartBug::OneRunOfIndex) {
                runs.clear();
            }
            runs.insert(0, Arc::new(sorted.write(create)?));
            merge_newest(&mut runs, create)?;
        }
        Ok::<(), TableError>(())
    })?;
    if sorting.rows > 0 {
        runs.insert(0, Arc::new(sorting.write(create)?));
    }
    Ok(runs)
}

/// Merges runs of an index that is being built, so that few files are open.
fn merge_newest(runs: &mut Vec<Arc<IndexRun>>, create: CreateFile<'_>) -> Result<(), TableError> {
    while let Some(count) = count_merged(runs) {
        let file = create().map_err(part_error)?;
        let merged = merge_runs(file, &runs[..count], KEEP_ALL, |_| true, checkpoint)?;
        runs.splice(..count, [merged]);
    }
    Ok(())
}

/// Leaves no row out.
const KEEP_ALL: MergeRule =
    MergeRule { retention: Retention::Forever, horizon: Horizon { visible_arrival: 0, now_ms: 0 } };

/// Rows that are sorted by an index in memory.
struct Sorting<'t> {
    table: &'t Table,
    // Dropped before the log, to whose rows it points.
    fill: IndexFill,
    log: RowLog,
    rows: u64,
}

impl<'t> Sorting<'t> {
    fn new(table: &'t Table, spec: &IndexSpec) -> Self {
        let (log, account) = (RowLog::new(), Arc::clone(&table.budget));
        let account: Arc<dyn Account> = account;
        log.adopt(&account);
        Self { table, fill: IndexFill::without_records(spec), log, rows: 0 }
    }

    fn add(&mut self, found: LogRow<'_>) {
        let guard = lockstep_series::pin();
        let row = self.log.push(found, &guard);
        self.fill.insert(self.table, LogRow { row, arrival_ms: found.arrival_ms });
        self.rows += 1;
    }

    fn write(self, create: CreateFile<'_>) -> Result<IndexRun, TableError> {
        let guard = lockstep_series::pin();
        let series = &self.fill.index.series;
        let scan = KeyScan::of_series(series, Bounds::everything(), &guard);
        let file = create().map_err(part_error)?;
        let writer = RunWriter::new(file, number(series.key_count()));
        merge_scans(vec![scan], KEEP_ALL, writer, |_| true, checkpoint)
    }
}

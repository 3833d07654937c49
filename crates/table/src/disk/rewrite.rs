//! Writing all parts of a table again, without some of their rows; and building runs of an index that is added.
//!
//! DELETE does it, a rule that keeps rows for longer, and a compaction when about half of the rows may have
//! expired. *Cost*: reads and writes all files of the table, one after the other; memory for a page of each run,
//! and a bit for each row that is left out. Runs of an added index are sorted in parts of
//! [`DiskTuning::sorted_bytes`](super::DiskTuning).

use std::sync::Arc;

use lockstep_host::query;
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

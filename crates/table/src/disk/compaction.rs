//! Compaction: runs of an index are merged, small extents as well, and expired rows leave the disk.
//!
//! A thread of the engine calls [`Table::compact`]. It writes files while readers and writers go on, and
//! replaces then what it has read, if it is still there: no manifest is needed for that, since the one before
//! lists files with the same rows; the next checkpoint lists the new ones. The files of a memory table are merged
//! as those of a disk table are; its expired rows leave them when a checkpoint writes them again.
//!
//! # Policy
//!
//! Tiered: of runs of about one size some ([`DiskTuning::runs_merged`]) are merged into one, as in the stepped
//! merge of Jagadish et al., *Incremental organization for data recording and warehousing* (VLDB 1997). So an
//! index has few runs for each power of that number in its size, and each row is written about once for each. When
//! the rows have doubled since they were all written last, and rows may expire, all files are written again.

use std::sync::Arc;

use lockstep_row::Retention;
use lockstep_wal::DataFileWriter;

use super::{DiskRows, DiskTuning, TableParts, merge_retention, tuning};
use crate::{
    Horizon, Snapshot, Table, TableError,
    build::RowTest,
    part::{IndexRun, MergeRule, RowExtent, RunWriter, merge},
    scan::RetainedRows,
    state::{Origin, TableState},
    table::number,
};

/// What is merged, by its place in the parts.
#[derive(Debug, Clone)]
enum MergeChoice {
    /// The newest runs of an index.
    Runs { index: usize, inputs: Vec<Arc<IndexRun>> },
    /// Extents that follow each other.
    Extents { inputs: Vec<Arc<RowExtent>> },
    /// Everything.
    All { inputs: Arc<TableParts> },
}

/// What a compaction has written.
enum MergeOutput {
    Run(Arc<IndexRun>),
    Extents(Vec<Arc<RowExtent>>),
    Parts(Arc<TableParts>),
}

impl Table {
    /// Merges some files of the table; `false` when nothing is to be merged. `checkpoint` is called every few
    /// thousand rows, and ends it when it fails; then nothing has changed.
    pub fn compact(
        &self,
        checkpoint: &mut dyn FnMut() -> Result<(), TableError>,
    ) -> Result<bool, TableError> {
        let _compacting = self.compacting.lock();
        let (state, horizon, merged, kept) = {
            let snapshot = self.snapshot();
            let state = snapshot.state().clone();
            let Some(merged) = self.next_merge(&state) else { return Ok(false) };
            let kept = match merged {
                MergeChoice::All { .. } => snapshot.kept_rows_by_count()?,
                MergeChoice::Runs { .. } | MergeChoice::Extents { .. } => RetainedRows::default(),
            };
            (state, snapshot.horizon(), merged, kept)
        };
        let output = match &merged {
            MergeChoice::Runs { index, inputs } => {
                let retention = match state.disk {
                    Some(_) => merge_retention(&state, *index),
                    None => Retention::Forever,
                };
                let rule = MergeRule { retention, horizon };
                let file = self.create_part()?;
                MergeOutput::Run(merge_runs(file, inputs, rule, |_| true, &mut *checkpoint)?)
            }
            MergeChoice::Extents { inputs } => {
                let parts = TableParts::new(inputs.clone(), Vec::new());
                let keep_all: RowTest<'_> = &mut |_| Ok(true);
                MergeOutput::Extents(self.write_extents(&parts, checkpoint, keep_all)?)
            }
            MergeChoice::All { inputs } => {
                let mut key = Vec::new();
                let is_kept: RowTest<'_> = &mut |found| {
                    let past = Snapshot::as_of(self, &state, horizon);
                    Ok(past.is_live_by(found, Some(&kept), &mut key)?)
                };
                MergeOutput::Parts(self.rewrite_parts(inputs, is_kept, checkpoint)?)
            }
        };
        self.install_merged(&merged, output, horizon);
        Ok(true)
    }

    /// Returns the number of bytes that are to be merged now.
    pub fn compaction_debt(&self) -> u64 {
        let snapshot = self.snapshot();
        match self.next_merge(snapshot.state()) {
            None => 0,
            Some(MergeChoice::Runs { inputs, .. }) => {
                inputs.iter().map(|run| run.file().bytes).sum()
            }
            Some(MergeChoice::Extents { inputs }) => {
                inputs.iter().map(|extent| extent.file().bytes).sum()
            }
            Some(MergeChoice::All { inputs }) => inputs.file_bytes(),
        }
    }

    /// Returns what is to be merged next of the files of a state.
    fn next_merge(&self, state: &TableState) -> Option<MergeChoice> {
        match &state.disk {
            Some(disk) => next_merge(state, &disk.parts),
            None => next_partial_merge(state, &*self.checkpointed()?),
        }
    }

    /// Replaces what was merged, unless it is gone.
    fn install_merged(&self, merged: &MergeChoice, output: MergeOutput, horizon: Horizon) {
        self.change_alone(|change| {
            let state = change.state();
            let Some(disk) = &state.disk else {
                let replace = |parts: &TableParts| replaced(parts, merged, output);
                return self.replace_checkpointed(replace);
            };
            let Some(parts) = replaced(&disk.parts, merged, output) else { return };
            if !state.keeps_everything {
                // Rows that had expired may be left out.
                self.note_removal(horizon);
            }
            if matches!(merged, MergeChoice::All { .. }) {
                self.hold_for_tails(&state);
            }
            let frozen = disk.frozen.clone();
            let exclusive = self.lock_exclusive();
            let disk = DiskRows { frozen, parts: Arc::new(parts) };
            self.replace_state(&exclusive, state.with_disk(Some(disk)));
        });
    }
}

/// Merges runs of an index, the newest one first, into one that has the rows for whose arrival `is_kept` holds.
pub(super) fn merge_runs(
    file: DataFileWriter,
    inputs: &[Arc<IndexRun>],
    rule: MergeRule,
    is_kept: impl Fn(u64) -> bool,
    checkpoint: impl FnMut() -> Result<(), TableError>,
) -> Result<Arc<IndexRun>, TableError> {
    let keys = inputs.iter().map(|run| run.counts().keys).max().unwrap_or(0);
    let writer = RunWriter::new(file, keys);
    let run = merge(inputs, rule, writer, |row| is_kept(row.arrival()), checkpoint)?;
    Ok(Arc::new(run))
}

/// Returns what is to be merged next of a disk table.
fn next_merge(state: &TableState, parts: &Arc<TableParts>) -> Option<MergeChoice> {
    let (tuning, rows) = (tuning(), parts.row_count());
    if !state.keeps_everything
        && rows >= 2 * parts.rewritten_rows.max(tuning.rewritten_rows_min / 2)
    {
        return Some(MergeChoice::All { inputs: Arc::clone(parts) });
    }
    next_partial_merge(state, parts)
}

/// Returns the runs or the extents that are to be merged next.
fn next_partial_merge(state: &TableState, parts: &TableParts) -> Option<MergeChoice> {
    let tuning = tuning();
    for (index, held) in state.indexes.iter().enumerate() {
        let runs = parts.runs(index);
        if held.origin != Origin::Removed
            && let Some(count) = count_merged(runs)
        {
            return Some(MergeChoice::Runs { index, inputs: runs[..count].to_vec() });
        }
    }
    let is_small = |extent: &&Arc<RowExtent>| extent.file().bytes < tuning.extent_bytes;
    let small: Vec<_> = parts.extents.iter().rev().take_while(is_small).cloned().collect();
    (number(small.len()) >= tuning.runs_merged)
        .then(|| MergeChoice::Extents { inputs: small.into_iter().rev().collect() })
}

/// Returns how many of the newest runs are to be merged.
pub(super) fn count_merged(runs: &[Arc<IndexRun>]) -> Option<usize> {
    let DiskTuning { runs_merged, first_tier_bytes: mut tier_bytes, .. } = tuning();
    let mut count = 0;
    while count < runs.len() {
        let of_tier = runs.iter().take_while(|run| run.file().bytes <= tier_bytes).count();
        count = count.max(of_tier);
        if number(count) >= runs_merged {
            // Not all of very many at once: each takes a page of memory.
            let most = usize::try_from(runs_merged.saturating_mul(2)).unwrap_or(usize::MAX);
            return Some(count.min(most));
        }
        tier_bytes = tier_bytes.saturating_mul(runs_merged);
    }
    None
}

/// Returns parts in which what was merged is replaced; `None` when it is not there any more.
fn replaced(parts: &TableParts, merged: &MergeChoice, output: MergeOutput) -> Option<TableParts> {
    match (merged, output) {
        (MergeChoice::Runs { index, inputs }, MergeOutput::Run(run)) => {
            let runs = replaced_in(parts.runs(*index), inputs, &[run])?;
            Some(parts.with_runs(*index, runs))
        }
        (MergeChoice::Extents { inputs }, MergeOutput::Extents(extents)) => {
            let extents = replaced_in(&parts.extents, inputs, &extents)?;
            Some(TableParts { extents, ..parts.clone() })
        }
        (MergeChoice::All { inputs }, MergeOutput::Parts(written)) => {
            // What was flushed meanwhile stays behind it.
            let extents = replaced_in(&parts.extents, &inputs.extents, &written.extents)?;
            let mut runs = parts.runs.clone();
            runs.resize_with(runs.len().max(inputs.runs.len()), Vec::new);
            for (at, of_index) in runs.iter_mut().enumerate() {
                let (before, after) = (inputs.runs(at), written.runs(at));
                let has_left_out = !Arc::ptr_eq(inputs, &written);
                if before.is_empty() && !of_index.is_empty() && has_left_out {
                    // An index that was added meanwhile has the rows as well that are left out.
                    return None;
                }
                *of_index = replaced_in(of_index, before, after)?;
            }
            Some(TableParts { extents, runs, rewritten_rows: written.row_count() })
        }
        _ => None,
    }
}

/// Returns a list in which items that follow each other are replaced; `None` when they are not there.
fn replaced_in<T>(list: &[Arc<T>], inputs: &[Arc<T>], outputs: &[Arc<T>]) -> Option<Vec<Arc<T>>> {
    let Some(first) = inputs.first() else { return Some(list.to_vec()) };
    let at = list.iter().position(|item| Arc::ptr_eq(item, first))?;
    let found = list.get(at..at + inputs.len())?;
    let is_there = found.iter().zip(inputs).all(|(one, other)| Arc::ptr_eq(one, other));
    is_there.then(|| [&list[..at], outputs, &list[at + inputs.len()..]].concat())
}

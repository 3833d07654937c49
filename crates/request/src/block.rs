//! A block: rows of one source that wait to be added to the same window groups together.
//!
//! [`crate::merge`] pushes rows; the block is flushed when it is full, and where the groups that take
//! the rows, or the source, change. [`crate::aggregates`] computes from it.

use std::sync::Arc;

use bumpalo::collections::Vec as ArenaVec;
use lockstep_row::{Arena, Datum};
use lockstep_table::{KeyRun, LevelNode, StoredRow};

use crate::{
    aggregates::{AggregateScratch, ScanAggregates},
    groups::GroupSet,
    inputs::{CurrentInputs, RecordRun},
    lane::{BLOCK_ROWS, LANE_ROWS, LaneBuffers},
    pre_aggregate::{NodeDictionaries, NodeLayout},
    row_context::{LeafRow, RowContext},
    window::ScanSource,
};

/// Rows of one source that the same window groups take.
pub(crate) struct RowBlock<'b, 's> {
    aggregates: &'s ScanAggregates,
    sources: &'s [Arc<ScanSource>],
    scratch: &'b mut AggregateScratch,
    /// Where results go.
    slots: &'b mut [Datum<'s>],
    rows: ArenaVec<'s, RowContext<'s, 's>>,
    buffers: LaneBuffers<'s>,
    source: usize,
    groups: GroupSet,
}

impl<'b, 's> RowBlock<'b, 's> {
    /// Makes an empty block of rows of some sources.
    pub(crate) fn new(
        aggregates: &'s ScanAggregates,
        sources: &'s [Arc<ScanSource>],
        scratch: &'b mut AggregateScratch,
        slots: &'b mut [Datum<'s>],
        arena: &'s Arena,
    ) -> Self {
        let rows = ArenaVec::with_capacity_in(BLOCK_ROWS, arena);
        let (buffers, groups) = (LaneBuffers::new(arena), GroupSet::NONE);
        Self { aggregates, sources, scratch, slots, rows, buffers, source: 0, groups }
    }

    /// Pushes a row of a source, which these groups take.
    #[inline(always)]
    pub(crate) fn push(&mut self, source: usize, groups: GroupSet, row: &RowContext<'s, 's>) {
        if groups.is_empty() {
            return;
        }
        let differs = groups != self.groups || source != self.source;
        if differs || self.rows.len() == BLOCK_ROWS {
            self.flush();
            (self.source, self.groups) = (source, groups);
        }
        self.sources[source].inputs.prefetch(row);
        self.rows.push(*row);
        debug_assert!(self.rows.len() <= BLOCK_ROWS, "a full block is flushed");
    }

    /// Adds the request row to these groups, through expressions, since it is not a stored row.
    pub(crate) fn push_request(
        &mut self,
        groups: GroupSet,
        inputs: &'s CurrentInputs,
        row: &RowContext<'s, 's>,
    ) {
        if groups.is_empty() {
            return;
        }
        self.flush();
        self.finalize_ended(groups);
        let arena = self.buffers.arena;
        self.aggregates.update_current(self.scratch, groups, inputs, row, arena);
    }

    /// Adds rows of a run of a source to these groups.
    pub(crate) fn push_run(&mut self, source: usize, groups: GroupSet, run: &KeyRun<'s>) {
        let inputs = &self.sources[source].inputs;
        for start in (0..run.len()).step_by(LANE_ROWS) {
            let part = run.slice(start..run.len().min(start + LANE_ROWS));
            let (Some(records), Some(of_records)) = (part.records(), &inputs.records) else {
                let rows = (0..part.len()).map(|row| stored_row(part.stored_row(row)));
                rows.for_each(|row| self.push(source, groups, &row));
                continue;
            };
            self.flush();
            self.finalize_ended(groups);
            let rows = RecordRun { run: &part, records };
            let buffers = &mut self.buffers;
            let inputs = (inputs, of_records);
            self.aggregates.update_from_records(self.scratch, groups, inputs, rows, buffers);
        }
    }

    /// Returns whether these groups can take nodes in place of rows: they have passed the newest rows whose
    /// values they return.
    pub(crate) fn takes_nodes(&self, groups: GroupSet) -> bool {
        self.aggregates.takes_nodes(self.scratch, groups)
    }

    /// Adds the rows of a node, which are older than those that were pushed, to these groups.
    pub(crate) fn push_node(&mut self, groups: GroupSet, layout: &NodeLayout, node: &LevelNode) {
        if groups.is_empty() {
            return;
        }
        self.flush();
        self.finalize_ended(groups);
        self.aggregates.merge_node(self.scratch, groups, layout, node);
    }

    /// Ends adding nodes of a key to these groups; the states of the nodes refer to its dictionaries.
    pub(crate) fn end_nodes(
        &mut self,
        groups: GroupSet,
        layout: &NodeLayout,
        dictionaries: &NodeDictionaries,
    ) {
        self.aggregates.resolve(self.scratch, groups, layout, dictionaries);
    }

    /// Adds the rows of the block to their groups and empties it.
    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let (groups, inputs) = (self.groups, &self.sources[self.source].inputs);
        self.finalize_ended(groups);
        let buffers = &mut self.buffers;
        self.aggregates.update(self.scratch, groups, inputs, &self.rows, buffers);
        self.rows.clear();
    }

    #[inline]
    fn finalize_ended(&mut self, groups: GroupSet) {
        let arena = self.buffers.arena;
        self.aggregates.finalize_ended(self.scratch, groups, self.slots, arena);
    }
}

/// Returns a row of a table as a row of a source whose chain has no steps.
pub(crate) fn stored_row<'s>(row: StoredRow<'s>) -> RowContext<'s, 's> {
    RowContext { leaf: LeafRow::Stored(row.row), slots: &[] }
}

//! What the aggregates of a scan read of a row: for the rows of each source, and for the current row.
//!
//! The compiler binds the expressions of a scan once for each source, because the columns of the
//! sources are at different locations. [`crate::aggregates`] reads through these.

use lockstep_row::TextColumn;
use lockstep_table::{KeyRun, RecordField, Records};

use crate::{
    lane::{RecordInput, RowInput},
    record_row::RecordColumns,
    row_context::{BoundExpr, LeafRow, RowContext},
};

/// What is read of the rows of one source. The lists are parallel to those of the scan's aggregates.
#[derive(Debug)]
pub(crate) struct SourceInputs {
    /// For each lane.
    pub(crate) lanes: Vec<RowInput>,
    /// What is read of the records of the index; `None` where rows are read.
    pub(crate) records: Option<RecordInputs>,
    pub(crate) conditions: Vec<BoundExpr>,
    pub(crate) picks: Vec<BoundExpr>,
    pub(crate) arguments: Vec<BoundExpr>,
    pub(crate) prefetch: PrefetchPlan,
}

/// What lanes and calls read of the records of an index that includes it all.
#[derive(Debug)]
pub(crate) struct RecordInputs {
    /// For each lane.
    pub(crate) lanes: Vec<RecordInput>,
    /// The columns that the arguments of calls are over.
    pub(crate) columns: RecordColumns,
    /// The fields of records that are read.
    pub(crate) fields: Vec<RecordField>,
}

impl RecordInputs {
    /// Pairs the inputs of all lanes with the columns of the calls.
    pub(crate) fn new(lanes: Vec<RecordInput>, columns: RecordColumns) -> Self {
        let of_lanes = lanes.iter().flat_map(RecordInput::fields);
        let mut fields: Vec<_> = of_lanes.chain(columns.fields()).collect();
        fields.sort_unstable_by_key(|field| (field.offset, field.width));
        fields.dedup();
        Self { lanes, columns, fields }
    }
}

/// What is prefetched of each stored row before its lanes are read.
#[derive(Debug, Default)]
pub(crate) struct PrefetchPlan {
    /// Offsets in the stored row.
    pub(crate) offsets: Vec<usize>,
    /// STRING columns, whose bytes are elsewhere in the row.
    pub(crate) texts: Vec<TextColumn>,
}

/// Some rows of a run, with the records that their index has of them.
#[derive(Clone, Copy)]
pub(crate) struct RecordRun<'r, 's> {
    pub(crate) run: &'r KeyRun<'s>,
    pub(crate) records: Records<'s>,
}

impl SourceInputs {
    /// Prefetches what will be read of the fixed-width section of a row.
    #[inline]
    pub(crate) fn prefetch(&self, row: &RowContext<'_, '_>) {
        let LeafRow::Stored(view) = row.leaf else { return };
        for offset in &self.prefetch.offsets {
            view.prefetch(*offset);
        }
    }

    /// Prefetches the texts of rows whose fixed-width sections have been prefetched: these hold the
    /// offsets of the texts.
    pub(crate) fn prefetch_texts(&self, rows: &[RowContext<'_, '_>]) {
        for column in &self.prefetch.texts {
            for row in rows {
                if let LeafRow::Stored(view) = row.leaf {
                    view.prefetch_text(*column);
                }
            }
        }
    }
}

/// What is read of the current row, which may not be stored: expressions for everything.
#[derive(Debug)]
pub(crate) struct CurrentInputs {
    /// For each lane; `None` where rows are counted.
    pub(crate) lanes: Vec<Option<BoundExpr>>,
    pub(crate) conditions: Vec<BoundExpr>,
    pub(crate) picks: Vec<BoundExpr>,
    pub(crate) arguments: Vec<BoundExpr>,
}

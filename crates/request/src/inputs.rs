//! What the aggregates of a scan read of a row: for the rows of each source, and for the current row.
//!
//! The compiler binds the expressions of a scan once for each source, because the columns of the
//! sources are at different locations. [`crate::aggregates`] reads through these.

use lockstep_row::TextColumn;
use lockstep_table::{KeyRun, RecordField, Records};

use crate::{
    lane::{RecordInput, RowInput},
    row_context::{BoundExpr, LeafRow, RowContext},
};

/// What is read of the rows of one source. The lists are parallel to those of the scan's aggregates.
#[derive(Debug)]
pub(crate) struct SourceInputs {
    /// For each lane.
    pub(crate) lanes: Vec<RowInput>,
    /// For each lane, where the index includes what it reads; empty unless the index includes what
    /// all of them read.
    pub(crate) records: Vec<RecordInput>,
    /// The fields of records that are read.
    pub(crate) fields: Vec<RecordField>,
    pub(crate) conditions: Vec<BoundExpr>,
    pub(crate) picks: Vec<BoundExpr>,
    pub(crate) arguments: Vec<BoundExpr>,
    pub(crate) prefetch: PrefetchPlan,
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
    /// Sets the records that the lanes read in place of rows, if there are any.
    pub(crate) fn set_records(&mut self, records: Vec<RecordInput>) {
        assert!(
            records.is_empty() || records.len() == self.lanes.len(),
            "records have what all lanes read, or are not used"
        );
        self.fields = records.iter().flat_map(RecordInput::fields).collect();
        self.fields.sort_unstable_by_key(|field| (field.offset, field.width));
        self.fields.dedup();
        self.records = records;
    }

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

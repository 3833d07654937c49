//! Sub-plans that cannot be computed row by row: batch mode runs them while a request waits.
//!
//! The rows are read once for an answer, over the same snapshots as the rest of it, and searched like those
//! of any other source; they arrive in the order in which batch mode gave them. Where the plan reads the table of the request, the
//! request row is the latest row of it.

use std::fmt;

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum, Value, arrow::ColumnReader};
use lockstep_table::Snapshot;

use crate::{all_rows::RequestTable, compile::ProgramTable};

/// Runs plans in batch mode. `engine` implements it.
pub trait PlanRunner {
    /// Runs the plan and waits for all of its rows. Their columns are those of the plan's schema. Tables
    /// that the answer sees as snapshots are read as those show them, others as they are.
    fn run(&self, plan: &LogicalPlan, seen: SeenSnapshots<'_>) -> Result<Vec<RecordBatch>>;
}

/// The tables of a program as an answer sees them.
#[derive(Clone, Copy, Default)]
pub struct SeenSnapshots<'s> {
    tables: &'s [ProgramTable],
    /// Parallel to `tables`.
    snapshots: &'s [Snapshot<'s>],
}

impl<'s> SeenSnapshots<'s> {
    pub(crate) fn new(tables: &'s [ProgramTable], snapshots: &'s [Snapshot<'s>]) -> Self {
        assert_eq!(tables.len(), snapshots.len(), "a snapshot of each table");
        Self { tables, snapshots }
    }

    /// Returns the snapshot of a table.
    pub fn of(&self, id: u64) -> Option<&'s Snapshot<'s>> {
        let at = self.tables.iter().position(|table| table.catalog.id == id)?;
        Some(&self.snapshots[at])
    }
}

impl fmt::Debug for SeenSnapshots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeenSnapshots").field("snapshots", &self.snapshots).finish_non_exhaustive()
    }
}

/// Runs plans in batch mode for the requests of all threads.
pub trait BatchFallback: PlanRunner + Send + Sync + fmt::Debug {}

impl<T: PlanRunner + Send + Sync + fmt::Debug> BatchFallback for T {}

/// A sub-plan that batch mode runs.
#[derive(Debug)]
pub(crate) struct Materialised {
    pub(crate) plan: LogicalPlan,
    /// Set when the plan reads the table of the request.
    pub(crate) request_table: Option<RequestTable>,
}

impl Materialised {
    /// Runs it over the tables, and over the request row unless that is stored.
    pub(crate) fn rows(
        &self,
        request: Option<&[Datum<'_>]>,
        batch: &dyn PlanRunner,
        seen: SeenSnapshots<'_>,
    ) -> Result<MaterialisedRows> {
        match (&self.request_table, request) {
            (Some(table), Some(request)) => {
                MaterialisedRows::run(&table.with_row(&self.plan, request)?, batch, seen)
            }
            _ => MaterialisedRows::run(&self.plan, batch, seen),
        }
    }
}

/// The rows of a materialised plan, in order.
#[derive(Debug)]
pub(crate) struct MaterialisedRows(Vec<Vec<Value>>);

impl MaterialisedRows {
    /// Runs a plan and reads all of its rows.
    pub(crate) fn run(
        plan: &LogicalPlan,
        batch: &dyn PlanRunner,
        seen: SeenSnapshots<'_>,
    ) -> Result<Self> {
        Ok(Self::from_batches(&batch.run(plan, seen)?))
    }

    /// Copies the rows out of record batches.
    pub(crate) fn from_batches(batches: &[RecordBatch]) -> Self {
        let mut rows = Vec::new();
        let mut read = Arena::new();
        for batch in batches {
            let columns: Vec<ColumnReader<'_>> =
                batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
            for row in 0..batch.num_rows() {
                rows.push(columns.iter().map(|column| column.get(row, &read).to_value()).collect());
                read.reset();
            }
        }
        Self(rows)
    }

    /// Borrows the rows; their texts and lists are referenced from the arena.
    pub(crate) fn iter<'s>(&'s self, arena: &'s Arena) -> impl Iterator<Item = &'s [Datum<'s>]> {
        self.0.iter().map(|row| {
            let values = row.iter().map(|value| value.as_datum(arena));
            &*arena.alloc_slice_fill_iter(values)
        })
    }
}

/// Copies a value, with everything that it points to, to a place in an arena. Most values are copied
/// as a whole: one that is put together anew is read in larger pieces than it was just written in,
/// which costs more than everything else here.
#[inline]
pub(crate) fn copy_to<'a>(value: &Datum<'_>, copy: &mut Datum<'a>, arena: &'a Arena) {
    match value.detached() {
        Some(value) if !value.is_nan() => *copy = *value,
        _ => *copy = copy_into(*value, arena),
    }
}

#[inline(never)]
fn copy_into<'a>(value: Datum<'_>, arena: &'a Arena) -> Datum<'a> {
    match value {
        Datum::Null => Datum::Null,
        Datum::Bool(value) => Datum::Bool(value),
        Datum::SmallInt(value) => Datum::SmallInt(value),
        Datum::Int(value) => Datum::Int(value),
        Datum::BigInt(value) => Datum::BigInt(value),
        Datum::Float(value) => Datum::Float(value).with_one_nan(),
        Datum::Double(value) => Datum::Double(value).with_one_nan(),
        Datum::String(text) => Datum::String(arena.alloc_str(text)),
        Datum::Timestamp(value) => Datum::Timestamp(value),
        Datum::Date(value) => Datum::Date(value),
        Datum::Array(items) => {
            let items = items.iter().map(|item| copy_into(*item, arena));
            Datum::Array(arena.alloc_slice_fill_iter(items))
        }
        Datum::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (copy_into(*key, arena), copy_into(*value, arena)));
            Datum::Map(arena.alloc_slice_fill_iter(entries))
        }
    }
}

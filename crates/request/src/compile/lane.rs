//! Compiles lanes: columns that are read in place, and machine code for an expression or a condition
//! over columns of fixed width; from stored rows, and from the records of an index that includes
//! columns.

use datafusion::logical_expr::Expr;
use lockstep_row::{FixedColumn, IncludedColumn, Projection, RowCodec};

use super::OPERATIONS_MAX;
use crate::{
    lane::{LaneClass, RecordInput, RowInput, ScanLane},
    machine::{self, LaneProgram, LaneProgramSpec, LaneSource, MachineExpr, MachineKind},
    row_context::ColumnLayout,
    trace,
};

/// Compiles one lane for the rows of one source.
#[derive(Clone, Copy)]
pub(super) struct LaneCompiler<'l> {
    pub(super) lane: &'l ScanLane,
    /// `None` where rows are counted.
    pub(super) value: Option<&'l Expr>,
    pub(super) condition: Option<&'l Expr>,
    /// The columns that value and condition are over.
    pub(super) layout: ColumnLayout<'l>,
}

impl LaneCompiler<'_> {
    /// Compiles machine code over stored rows. Returns `None` where reading in place is as fast, or
    /// where there is no machine code.
    pub(super) fn row_input(self, codec: &RowCodec) -> Option<RowInput> {
        if self.condition.is_none() && self.is_plain() {
            return None;
        }
        let condition = self.condition.and_then(|condition| self.lower(condition));
        if condition.is_none() && self.is_plain() {
            return None;
        }
        let tests_condition = condition.is_some();
        let fixed = |column: usize| codec.fixed_column(column);
        let program = self.compile(condition, LaneSource::Rows, fixed)?;
        Some(RowInput::Machine { program, tests_condition })
    }

    /// Lists the columns that an index has to include for the lane to read its records; `None` when
    /// the lane cannot read records.
    pub(super) fn included_columns(self) -> Option<Vec<IncludedColumn>> {
        if self.condition.is_none() {
            if self.value.is_none() {
                return Some(Vec::new());
            }
            if let Some(column) = self.leaf_column() {
                let values = self.lane.class != LaneClass::Rows;
                return Some(vec![IncludedColumn { column, values }]);
            }
        }
        let mut columns = Vec::new();
        for expr in [self.value, self.condition].into_iter().flatten() {
            self.lower(expr)?.columns(&mut columns);
        }
        let included = |(column, _): (usize, MachineKind)| {
            let column = self.layout.leaf_column(column)?;
            Some(IncludedColumn { column, values: true })
        };
        columns.into_iter().map(included).collect()
    }

    /// Compiles the lane for records. Returns `None` when the records do not have what it reads.
    pub(super) fn record_input(
        self,
        projection: &Projection,
        codec: &RowCodec,
    ) -> Option<RecordInput> {
        if self.condition.is_none() {
            if self.value.is_none() {
                return Some(RecordInput::Nothing);
            }
            if let Some(column) = self.leaf_column() {
                return match self.lane.class {
                    LaneClass::Rows => {
                        let (null_byte, null_mask) = projection.presence(column)?;
                        Some(RecordInput::Presence { null_byte, null_mask })
                    }
                    LaneClass::Integers | LaneClass::Floats => {
                        projection.fixed_column(column).map(RecordInput::Fixed)
                    }
                    LaneClass::Texts => {
                        let cell = projection.text_cell(column)?;
                        Some(RecordInput::Text { cell, column: codec.text_column(column)? })
                    }
                };
            }
        }
        let condition = match self.condition {
            Some(condition) => Some(self.lower(condition)?),
            None => None,
        };
        let fixed = |column: usize| projection.fixed_column(column);
        self.compile(condition, LaneSource::Records, fixed).map(RecordInput::Machine)
    }

    /// Returns whether there is no value, or one that is a column.
    fn is_plain(self) -> bool {
        self.value.is_none_or(|value| trace::column(value, self.layout.schema).is_some())
    }

    /// Returns the column of the stored row that is the value.
    fn leaf_column(self) -> Option<usize> {
        self.layout.leaf_column(trace::column(self.value?, self.layout.schema)?)
    }

    fn lower(self, expr: &Expr) -> Option<MachineExpr> {
        let lowered = machine::lower(expr, self.layout.schema);
        lowered.filter(|expr| expr.size() <= OPERATIONS_MAX)
    }

    fn compile(
        self,
        condition: Option<MachineExpr>,
        source: LaneSource,
        fixed: impl Fn(usize) -> Option<FixedColumn>,
    ) -> Option<std::sync::Arc<LaneProgram>> {
        let value = match self.value {
            Some(value) => Some(self.lower(value)?),
            None => None,
        };
        let has_class =
            value.as_ref().is_none_or(|value| is_of_class(value.kind(), self.lane.class));
        if !has_class {
            return None;
        }
        let mut read = Vec::new();
        for expr in [&value, &condition].into_iter().flatten() {
            expr.columns(&mut read);
        }
        let located = |(column, _): (usize, MachineKind)| {
            Some((column, fixed(self.layout.leaf_column(column)?)?))
        };
        LaneProgram::compile(LaneProgramSpec {
            value,
            condition,
            skips_zeros: self.lane.skips_zeros,
            keeps_values: self.lane.class != LaneClass::Rows,
            columns: read.into_iter().map(located).collect::<Option<_>>()?,
            source,
        })
    }
}

/// Returns whether values of a kind can be in a lane of a class.
fn is_of_class(kind: MachineKind, class: LaneClass) -> bool {
    match class {
        LaneClass::Rows => true,
        LaneClass::Floats => matches!(kind, MachineKind::Float | MachineKind::Double),
        LaneClass::Integers => kind.is_integer() || kind == MachineKind::Bool,
        LaneClass::Texts => false,
    }
}

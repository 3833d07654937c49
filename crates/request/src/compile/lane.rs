//! Compiles lanes: what is read in place, and machine code for an expression or a condition over
//! columns of fixed width; of stored rows, and of the records of an index that includes columns.

use datafusion::{common::DFSchema, logical_expr::Expr};
use lockstep_row::{FixedColumn, IncludedColumn, Projection, RowCodec};

use super::OPERATIONS_MAX;
use crate::{
    frame::Place,
    lane::{Class, Input, Lane, RecordInput},
    machine::{self, Form, Kind, LaneProgram, LaneSpec, Node},
    trace,
};

/// A lane to be compiled for the rows of one source.
#[derive(Clone, Copy)]
pub(super) struct Wish<'w> {
    pub(super) lane: &'w Lane,
    /// Over the columns of the schema, as the condition is.
    pub(super) value: Option<&'w Expr>,
    pub(super) condition: Option<&'w Expr>,
    pub(super) schema: &'w DFSchema,
    /// Where the columns of the schema are.
    pub(super) layout: &'w [Place],
}

impl Wish<'_> {
    /// Machine code over stored rows; `None` where a plain reader does as well, or where there is
    /// no machine code. Whether it tests the condition is said with it.
    pub(super) fn machine(self, codec: &RowCodec) -> Option<Input> {
        if self.condition.is_none() && self.is_plain() {
            return None;
        }
        let condition = self.condition.and_then(|condition| self.lower(condition));
        if condition.is_none() && self.is_plain() {
            return None;
        }
        let tests_condition = condition.is_some();
        let fixed = |column: usize| codec.fixed_column(column);
        let program = self.compile(condition, Form::Rows, fixed)?;
        Some(Input::Machine { program, tests_condition })
    }

    /// What an index has to include for the lane to be served by its records; `None` when that is
    /// not possible.
    pub(super) fn included(self) -> Option<Vec<IncludedColumn>> {
        if self.condition.is_none() {
            if self.value.is_none() {
                return Some(Vec::new());
            }
            if let Some(column) = self.leaf_column() {
                let values = self.lane.class != Class::Rows;
                return Some(vec![IncludedColumn { column, values }]);
            }
        }
        let mut columns = Vec::new();
        for expr in [self.value, self.condition].into_iter().flatten() {
            self.lower(expr)?.columns(&mut columns);
        }
        let leaf = |(column, _): (usize, Kind)| match self.layout[column] {
            Place::Leaf(column) => Some(IncludedColumn { column, values: true }),
            _ => None,
        };
        columns.into_iter().map(leaf).collect()
    }

    /// How the lane is served by records; `None` when they do not have what it needs.
    pub(super) fn records(self, projection: &Projection, codec: &RowCodec) -> Option<RecordInput> {
        if self.condition.is_none() {
            if self.value.is_none() {
                return Some(RecordInput::Nothing);
            }
            if let Some(column) = self.leaf_column() {
                return match self.lane.class {
                    Class::Rows => {
                        let (byte, mask) = projection.presence(column)?;
                        Some(RecordInput::Presence(byte, mask))
                    }
                    Class::Integers | Class::Floats => {
                        projection.fixed_column(column).map(RecordInput::Fixed)
                    }
                    Class::Texts => {
                        let cell = projection.text_cell(column)?;
                        Some(RecordInput::Text(cell, codec.text_column(column)?))
                    }
                };
            }
        }
        let condition = match self.condition {
            Some(condition) => Some(self.lower(condition)?),
            None => None,
        };
        let fixed = |column: usize| projection.fixed_column(column);
        self.compile(condition, Form::Records, fixed).map(RecordInput::Machine)
    }

    /// Whether there is no value, or one that is a column.
    fn is_plain(self) -> bool {
        self.value.is_none_or(|value| trace::column(value, self.schema).is_some())
    }

    /// The column of the stored row that is the value.
    fn leaf_column(self) -> Option<usize> {
        match self.layout[trace::column(self.value?, self.schema)?] {
            Place::Leaf(column) => Some(column),
            _ => None,
        }
    }

    fn lower(self, expr: &Expr) -> Option<Node> {
        machine::lower(expr, self.schema).filter(|node| node.size() <= OPERATIONS_MAX)
    }

    fn compile(
        self,
        condition: Option<Node>,
        form: Form,
        fixed: impl Fn(usize) -> Option<FixedColumn>,
    ) -> Option<std::sync::Arc<LaneProgram>> {
        let value = match self.value {
            Some(value) => Some(self.lower(value)?),
            None => None,
        };
        let is_right = value.as_ref().is_none_or(|node| is_of(self.lane.class, node.kind()));
        if !is_right {
            return None;
        }
        let mut read = Vec::new();
        for node in [&value, &condition].into_iter().flatten() {
            node.columns(&mut read);
        }
        let place = |(column, _): (usize, Kind)| match self.layout[column] {
            Place::Leaf(leaf) => Some((column, fixed(leaf)?)),
            _ => None,
        };
        LaneProgram::compile(LaneSpec {
            value,
            condition,
            passes_zero: self.lane.passes_zero,
            keeps_values: self.lane.class != Class::Rows,
            columns: read.into_iter().map(place).collect::<Option<_>>()?,
            form,
        })
    }
}

/// Whether a lane of a class takes values of a kind.
fn is_of(class: Class, kind: Kind) -> bool {
    match class {
        Class::Rows => true,
        Class::Floats => matches!(kind, Kind::Float | Kind::Double),
        Class::Integers => kind.is_integer() || kind == Kind::Bool,
        Class::Texts => false,
    }
}

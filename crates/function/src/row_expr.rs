//! Expressions compiled for single rows, without Arrow.
//!
//! Request mode and the windows of batch mode compile the plan's expressions with it. The forms
//! that the binder emits are evaluated natively and allocate only in the arena; every other form
//! runs DataFusion's evaluation over a batch of one row, which is slow but complete. Either way the
//! value is that of DataFusion's physical expression.

mod compile;
mod vectorised;

use std::cmp::Ordering;

use datafusion::{common::DFSchema, logical_expr::Expr};
use lockstep_diagnostic::Result;
use lockstep_row::{Arena, DataType, Datum, Value};

use self::vectorised::Vectorised;
use crate::{NullHandling, ScalarImplementation};

/// The most arguments of a call that are evaluated on the stack; more of them go to the arena.
const STACK_ARGUMENTS: usize = 6;

/// The columns of one row.
pub trait RowSource<'a> {
    /// Returns the value of a column of the schema that the expression was compiled for.
    fn column(&self, index: usize) -> Datum<'a>;
}

impl<'a> RowSource<'a> for &[Datum<'a>] {
    fn column(&self, index: usize) -> Datum<'a> {
        self[index]
    }
}

impl<'a> RowSource<'a> for Vec<Datum<'a>> {
    fn column(&self, index: usize) -> Datum<'a> {
        self[index]
    }
}

/// A compiled expression. Immutable; may be shared between threads.
#[derive(Debug)]
pub struct RowExpr {
    node: RowNode,
    data_type: DataType,
    columns: Vec<usize>,
}

#[derive(Debug)]
enum RowNode {
    Column(usize),
    Literal(Value),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Compare(ComparisonOperator, Box<[Self; 2]>),
    Not(Box<Self>),
    IsNull(Box<Self>),
    IsNotNull(Box<Self>),
    Case { branches: Vec<(Self, Self)>, otherwise: Option<Box<Self>> },
    Call { implementation: ScalarImplementation, arguments: Vec<Self> },
    Vectorised(Box<Vectorised>),
}

#[derive(Debug, Clone, Copy)]
enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl RowExpr {
    /// Compiles an expression over the columns of a schema. Fails when a column does not exist, or
    /// when DataFusion cannot evaluate the expression either.
    pub fn compile(expr: &Expr, schema: &DFSchema) -> Result<Self> {
        compile::compile(expr, schema)
    }

    /// Evaluates the expression for one row. Native forms follow Kleene's logic for NULL.
    /// Evaluation does not fail: an error of DataFusion for another form becomes NULL (the binder
    /// emits none that can fail).
    pub fn eval<'a>(&'a self, row: &dyn RowSource<'a>, arena: &'a Arena) -> Datum<'a> {
        self.node.eval(row, arena)
    }

    /// Returns the positions of the columns that it reads, ascending, each once.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the type of its value.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the value, if it is a constant.
    pub fn as_literal(&self) -> Option<&Value> {
        match &self.node {
            RowNode::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the position, if it is a column.
    pub fn as_column(&self) -> Option<usize> {
        match self.node {
            RowNode::Column(index) => Some(index),
            _ => None,
        }
    }
}

impl RowNode {
    fn eval<'a>(&'a self, row: &dyn RowSource<'a>, arena: &'a Arena) -> Datum<'a> {
        match self {
            Self::Column(index) => row.column(*index),
            Self::Literal(value) => value.as_datum(arena),
            Self::And(sides) => sides_until(sides, false, row, arena),
            Self::Or(sides) => sides_until(sides, true, row, arena),
            Self::Compare(comparison, sides) => {
                let [left, right] = sides.as_ref();
                compare(left.eval(row, arena), right.eval(row, arena))
                    .map_or(Datum::Null, |ordering| Datum::Bool(comparison.holds(ordering)))
            }
            Self::Not(operand) => {
                operand.eval(row, arena).as_bool().map_or(Datum::Null, |truth| Datum::Bool(!truth))
            }
            Self::IsNull(operand) => Datum::Bool(operand.eval(row, arena).is_null()),
            Self::IsNotNull(operand) => Datum::Bool(!operand.eval(row, arena).is_null()),
            Self::Case { branches, otherwise } => {
                let is_true = |when: &'a Self| when.eval(row, arena) == Datum::Bool(true);
                let branch = branches.iter().find(|(when, _)| is_true(when));
                branch
                    .map(|(_, then)| then)
                    .or(otherwise.as_deref())
                    .map_or(Datum::Null, |chosen| chosen.eval(row, arena))
            }
            Self::Call { implementation, arguments } => call(implementation, arguments, row, arena),
            Self::Vectorised(vectorised) => vectorised.eval(row, arena),
        }
    }
}

/// Evaluates AND (`decisive` false) or OR (`decisive` true): if one side is decisive, that is the
/// value; else NULL if a side is NULL.
fn sides_until<'a>(
    sides: &'a [RowNode; 2],
    decisive: bool,
    row: &dyn RowSource<'a>,
    arena: &'a Arena,
) -> Datum<'a> {
    let [left, right] = sides;
    let left = left.eval(row, arena);
    if left == Datum::Bool(decisive) {
        return left;
    }
    let right = right.eval(row, arena);
    if left.is_null() && right != Datum::Bool(decisive) { Datum::Null } else { right }
}

fn call<'a>(
    implementation: &'a ScalarImplementation,
    arguments: &'a [RowNode],
    row: &dyn RowSource<'a>,
    arena: &'a Arena,
) -> Datum<'a> {
    debug_assert_eq!(arguments.len(), implementation.parameters.len(), "as the binder resolved it");
    let mut stack = [Datum::Null; STACK_ARGUMENTS];
    let values = match stack.get_mut(..arguments.len()) {
        Some(values) => values,
        None => arena.alloc_slice_fill_copy(arguments.len(), Datum::Null),
    };
    for (value, argument) in values.iter_mut().zip(arguments) {
        *value = argument.eval(row, arena);
        if value.is_null() && implementation.nulls == NullHandling::Propagate {
            return Datum::Null;
        }
    }
    (implementation.row)(values, arena)
}

impl ComparisonOperator {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// Compares two values of one of the types that [`is_native`] names; texts by their bytes. `None`
/// when either is NULL.
fn compare(left: Datum<'_>, right: Datum<'_>) -> Option<Ordering> {
    match (left, right) {
        (Datum::Bool(left), Datum::Bool(right)) => Some(left.cmp(&right)),
        (Datum::SmallInt(left), Datum::SmallInt(right)) => Some(left.cmp(&right)),
        (Datum::Int(left), Datum::Int(right)) | (Datum::Date(left), Datum::Date(right)) => {
            Some(left.cmp(&right))
        }
        (Datum::BigInt(left), Datum::BigInt(right))
        | (Datum::Timestamp(left), Datum::Timestamp(right)) => Some(left.cmp(&right)),
        (Datum::String(left), Datum::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// Returns whether comparisons of the type are evaluated natively.
fn is_native(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Bool
            | DataType::SmallInt
            | DataType::Int
            | DataType::BigInt
            | DataType::String
            | DataType::Timestamp
            | DataType::Date
    )
}

#[cfg(test)]
mod tests;

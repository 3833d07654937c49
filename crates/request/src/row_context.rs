//! One row inside a chain: the leaf row that it began as, and the slots that were computed from it.
//!
//! A value stays where it first appeared, in the leaf row or in a slot, and every expression knows
//! the locations of its columns. So a projection that only passes columns on costs nothing, and a
//! stored row is decoded column by column, only where a column is read. Knows nothing of plans.

use datafusion::{common::DFSchema, logical_expr::Expr};
use lockstep_diagnostic::Result;
use lockstep_function::{RowExpr, RowSource};
use lockstep_row::{Arena, Datum, RowView};
use lockstep_table::StoredRow;

use crate::trace;

/// Where the value of a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueLocation {
    /// A column of the leaf row.
    Leaf(usize),
    /// A slot of the chain.
    Slot(usize),
    /// A column of the right leaf row, in the condition of a LAST JOIN.
    RightLeaf(usize),
    /// A slot of the right chain, in the condition of a LAST JOIN.
    RightSlot(usize),
    /// Not computed, because nothing reads it.
    Absent,
}

impl ValueLocation {
    /// Returns the same location as the condition of a LAST JOIN sees it from the left side.
    pub(crate) fn on_the_right(self) -> Self {
        match self {
            Self::Leaf(column) => Self::RightLeaf(column),
            Self::Slot(slot) => Self::RightSlot(slot),
            other => other,
        }
    }
}

/// The columns of a schema and the location of each of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnLayout<'l> {
    pub(crate) schema: &'l DFSchema,
    /// Parallel to the fields of the schema.
    pub(crate) locations: &'l [ValueLocation],
}

impl<'l> ColumnLayout<'l> {
    /// Pairs a schema with the locations of its columns.
    pub(crate) fn new(schema: &'l DFSchema, locations: &'l [ValueLocation]) -> Self {
        debug_assert!(schema.fields().len() <= locations.len(), "each column has a location");
        Self { schema, locations }
    }

    /// Binds each expression; see [`BoundExpr::bind`].
    pub(crate) fn bind_all<'e>(
        self,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<Vec<BoundExpr>> {
        exprs.into_iter().map(|expr| BoundExpr::bind(expr, self)).collect()
    }

    /// Returns the column of the leaf row that a column of the schema is, if it is one.
    pub(crate) fn leaf_column(self, column: usize) -> Option<usize> {
        match self.locations[column] {
            ValueLocation::Leaf(column) => Some(column),
            _ => None,
        }
    }
}

/// The row that a chain begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeafRow<'s> {
    /// A row of a table.
    Stored(RowView<'s>),
    /// A request row, or a row of a materialised plan.
    Values(&'s [Datum<'s>]),
}

/// A leaf row and its arrival among the rows of its table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivedRow<'s> {
    pub(crate) leaf: LeafRow<'s>,
    /// A request row that is not stored arrives after all stored rows: see
    /// [`crate::context::REQUEST_ARRIVAL`].
    pub(crate) arrival: u64,
}

impl<'s> ArrivedRow<'s> {
    /// Returns a row of a table.
    #[inline]
    pub(crate) fn stored(row: &StoredRow<'s>) -> Self {
        Self { leaf: LeafRow::Stored(row.row), arrival: row.arrival }
    }

    /// Returns a row that is given by its values.
    pub(crate) fn values(row: &'s [Datum<'s>], arrival: u64) -> Self {
        Self { leaf: LeafRow::Values(row), arrival }
    }
}

/// A leaf row and the slots that were computed from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowContext<'f, 's> {
    pub(crate) leaf: LeafRow<'s>,
    pub(crate) slots: &'f [Datum<'s>],
}

/// A leaf row whose slots are being filled.
#[derive(Debug)]
pub(crate) struct RowContextMut<'f, 's> {
    pub(crate) leaf: LeafRow<'s>,
    pub(crate) slots: &'f mut [Datum<'s>],
}

impl<'s> RowContextMut<'_, 's> {
    /// Borrows the row as it is now, for expressions to read.
    #[inline]
    pub(crate) fn as_row(&self) -> RowContext<'_, 's> {
        RowContext { leaf: self.leaf, slots: self.slots }
    }
}

/// Gives expressions the values of columns by location.
pub(crate) trait ColumnLookup<'s> {
    /// Returns the value at a location. Arrays and maps of stored rows are decoded into the arena.
    fn get(&self, location: ValueLocation, arena: &'s Arena) -> Datum<'s>;
}

impl<'s> RowContext<'_, 's> {
    #[inline]
    fn leaf_column(&self, column: usize, arena: &'s Arena) -> Datum<'s> {
        match self.leaf {
            LeafRow::Stored(row) => row.get_in(column, arena),
            LeafRow::Values(values) => values[column],
        }
    }
}

impl<'s> ColumnLookup<'s> for RowContext<'_, 's> {
    #[inline]
    fn get(&self, location: ValueLocation, arena: &'s Arena) -> Datum<'s> {
        match location {
            ValueLocation::Leaf(column) => self.leaf_column(column, arena),
            ValueLocation::Slot(slot) => self.slots[slot],
            ValueLocation::RightLeaf(_) | ValueLocation::RightSlot(_) | ValueLocation::Absent => {
                debug_assert!(false, "an expression over one row reads only that row");
                Datum::Null
            }
        }
    }
}

/// A left row and a candidate row of the right side of a LAST JOIN.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinPair<'f, 's> {
    pub(crate) left: RowContext<'f, 's>,
    pub(crate) right: RowContext<'f, 's>,
}

impl<'s> ColumnLookup<'s> for JoinPair<'_, 's> {
    #[inline]
    fn get(&self, location: ValueLocation, arena: &'s Arena) -> Datum<'s> {
        match location {
            ValueLocation::RightLeaf(column) => self.right.get(ValueLocation::Leaf(column), arena),
            ValueLocation::RightSlot(slot) => self.right.get(ValueLocation::Slot(slot), arena),
            left => self.left.get(left, arena),
        }
    }
}

/// An expression that knows the locations of its columns.
#[derive(Debug)]
pub(crate) enum BoundExpr {
    /// A column as it is.
    Column(ValueLocation),
    /// Anything else: columns of the expression are positions in `locations`.
    Computed { expr: RowExpr, locations: Box<[ValueLocation]> },
}

impl BoundExpr {
    /// Binds `expr`, which is over the columns of the layout's schema, to their locations.
    pub(crate) fn bind(expr: &Expr, layout: ColumnLayout<'_>) -> Result<Self> {
        if let Some(column) = trace::column(expr, layout.schema) {
            return Ok(Self::Column(layout.locations[column]));
        }
        let expr = RowExpr::compile(expr, layout.schema)?;
        Ok(Self::Computed { expr, locations: layout.locations.into() })
    }

    /// Computes the value for one row.
    #[inline]
    pub(crate) fn eval<'s, C: ColumnLookup<'s>>(&'s self, row: &C, arena: &'s Arena) -> Datum<'s> {
        match self {
            Self::Column(location) => row.get(*location, arena),
            Self::Computed { expr, locations } => {
                expr.eval(&LocatedColumns { row, locations, arena }, arena)
            }
        }
    }

    /// Evaluates a condition for one row; NULL is not true.
    pub(crate) fn is_true<'s, C: ColumnLookup<'s>>(&'s self, row: &C, arena: &'s Arena) -> bool {
        self.eval(row, arena).as_bool() == Some(true)
    }
}

/// The columns of an expression's schema, read through their locations.
struct LocatedColumns<'p, 's, C> {
    row: &'p C,
    locations: &'p [ValueLocation],
    arena: &'s Arena,
}

impl<'s, C: ColumnLookup<'s>> RowSource<'s> for LocatedColumns<'_, 's, C> {
    #[inline]
    fn column(&self, index: usize) -> Datum<'s> {
        self.row.get(self.locations[index], self.arena)
    }
}

//! One row on its way through a chain: the leaf row it began as, and what was computed since.
//!
//! A value stays where it first appeared, in the leaf row or in a slot, and every expression knows
//! its places; so projections that only pass columns on cost nothing, and a stored row is decoded
//! column by column, only where somebody looks. Knows nothing of tables and plans.

use datafusion::{common::DFSchema, logical_expr::Expr};
use lockstep_diagnostic::Result;
use lockstep_function::{RowExpr, RowSource};
use lockstep_row::{Arena, Datum, RowView};

use crate::trace;

/// Where the value of a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A column of the leaf row.
    Leaf(usize),
    /// A slot of the chain.
    Slot(usize),
    /// A column of the right leaf row, in the condition of a LAST JOIN.
    RightLeaf(usize),
    /// A slot of the right chain, in the condition of a LAST JOIN.
    RightSlot(usize),
    /// Nowhere: nothing reads it.
    Absent,
}

impl Place {
    /// The same place, seen from the condition of a LAST JOIN whose right side it belongs to.
    pub(crate) fn on_the_right(self) -> Self {
        match self {
            Self::Leaf(column) => Self::RightLeaf(column),
            Self::Slot(slot) => Self::RightSlot(slot),
            other => other,
        }
    }
}

/// The row that a chain begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Leaf<'s> {
    /// A row of a table.
    Stored(RowView<'s>),
    /// A request row, or a row of a materialised plan.
    Values(&'s [Datum<'s>]),
}

/// A leaf row and the slots that were computed from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'f, 's> {
    pub(crate) leaf: Leaf<'s>,
    pub(crate) slots: &'f [Datum<'s>],
}

/// What an expression reads from.
pub(crate) trait Cells<'s> {
    /// The value at a place. Arrays and maps of stored rows are laid out in the arena.
    fn get(&self, place: Place, arena: &'s Arena) -> Datum<'s>;
}

impl<'s> Frame<'_, 's> {
    #[inline]
    fn leaf_column(&self, column: usize, arena: &'s Arena) -> Datum<'s> {
        match self.leaf {
            Leaf::Stored(row) => row.get_in(column, arena),
            Leaf::Values(values) => values[column],
        }
    }
}

impl<'s> Cells<'s> for Frame<'_, 's> {
    #[inline]
    fn get(&self, place: Place, arena: &'s Arena) -> Datum<'s> {
        match place {
            Place::Leaf(column) => self.leaf_column(column, arena),
            Place::Slot(slot) => self.slots[slot],
            Place::RightLeaf(_) | Place::RightSlot(_) | Place::Absent => {
                debug_assert!(false, "an expression over one row reads only that row");
                Datum::Null
            }
        }
    }
}

/// A left row and a candidate of the right side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'f, 's> {
    pub(crate) left: Frame<'f, 's>,
    pub(crate) right: Frame<'f, 's>,
}

impl<'s> Cells<'s> for Pair<'_, 's> {
    #[inline]
    fn get(&self, place: Place, arena: &'s Arena) -> Datum<'s> {
        match place {
            Place::RightLeaf(column) => self.right.get(Place::Leaf(column), arena),
            Place::RightSlot(slot) => self.right.get(Place::Slot(slot), arena),
            own => self.left.get(own, arena),
        }
    }
}

/// An expression that knows the places of its columns.
#[derive(Debug)]
pub(crate) enum BoundExpr {
    /// A column.
    Place(Place),
    /// Anything else: columns of the expression are positions in `places`.
    Computed { expr: RowExpr, places: Box<[Place]> },
}

impl BoundExpr {
    /// Binds `expr`, which is over the columns of `schema`, to the places of those columns.
    pub(crate) fn bind(expr: &Expr, schema: &DFSchema, layout: &[Place]) -> Result<Self> {
        if let Some(column) = trace::column(expr, schema) {
            return Ok(Self::Place(layout[column]));
        }
        let expr = RowExpr::compile(expr, schema)?;
        Ok(Self::Computed { expr, places: layout.into() })
    }

    /// Computes the value for one row.
    #[inline]
    pub(crate) fn eval<'s, C: Cells<'s>>(&'s self, cells: &C, arena: &'s Arena) -> Datum<'s> {
        match self {
            Self::Place(place) => cells.get(*place, arena),
            Self::Computed { expr, places } => expr.eval(&Placed { cells, places, arena }, arena),
        }
    }

    /// Whether it is true of one row; NULL is not.
    pub(crate) fn is_true<'s, C: Cells<'s>>(&'s self, cells: &C, arena: &'s Arena) -> bool {
        self.eval(cells, arena).as_bool() == Some(true)
    }
}

/// The columns of an expression's schema, read through their places.
struct Placed<'p, 's, C> {
    cells: &'p C,
    places: &'p [Place],
    arena: &'s Arena,
}

impl<'s, C: Cells<'s>> RowSource<'s> for Placed<'_, 's, C> {
    #[inline]
    fn column(&self, index: usize) -> Datum<'s> {
        self.cells.get(self.places[index], self.arena)
    }
}

//! Machine code for expressions, made by Cranelift when a program is compiled.
//!
//! There are two kinds of code. A [`RowProgram`] computes expressions of one row. A [`LaneProgram`]
//! reads the stored rows of a block, or the fields of their records, in place (see
//! `lockstep_row::FixedColumn`), and collects the values of one expression where a condition is true.
//! Both give, bit for bit, what the interpreted expression gives: `tests` compare them.
//!
//! Code is freed when no program uses it. Programs that need the same code share it: a cache finds it
//! by the operations that it was made of, so that a second deployment of a query, or of one like it,
//! compiles little.

mod code;
mod emit;
mod expression;
mod lane_program;
mod row_program;

pub(crate) use self::{
    expression::{MachineExpr, MachineKind, lower},
    lane_program::{LaneProgram, LaneProgramSpec, LaneSource},
    row_program::{MachineCell, RowProgram},
};

#[cfg(test)]
mod tests;

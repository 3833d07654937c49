//! Expressions of one row that one piece of machine code computes together.
//!
//! The compiler makes a [`Computation`] of the expressions of a projection that can be machine code;
//! the others stay [`BoundExpr`](crate::row_context::BoundExpr)s. Both give the same values.

use std::sync::Arc;

use lockstep_row::Arena;

use crate::{
    machine::{MachineCell, MachineExpr, RowProgram},
    row_context::{ColumnLookup, RowContextMut, ValueLocation},
};

/// Expressions in machine code and the slots that they fill.
#[derive(Debug)]
pub(crate) struct Computation {
    program: Arc<RowProgram>,
    /// The locations of the columns that the program reads.
    inputs: Box<[ValueLocation]>,
    slots: Box<[usize]>,
}

impl Computation {
    /// Compiles one expression for each slot, over columns whose locations are given. Returns `None`
    /// where Cranelift does not support the machine.
    pub(crate) fn compile(
        exprs: Vec<MachineExpr>,
        slots: Box<[usize]>,
        locations: &[ValueLocation],
    ) -> Option<Self> {
        assert_eq!(exprs.len(), slots.len(), "a slot for each expression");
        let program = RowProgram::compile(exprs)?;
        let inputs = program.columns.iter().map(|(column, _)| locations[*column]).collect();
        Some(Self { program, inputs, slots })
    }

    /// Fills the slots of a row.
    pub(crate) fn run<'s>(&self, row: &mut RowContextMut<'_, 's>, arena: &'s Arena) {
        let inputs = self.inputs.iter().map(|input| row.as_row().get(*input, arena));
        let inputs = arena.alloc_slice_fill_iter(inputs.map(MachineCell::new));
        let outputs = arena.alloc_slice_fill_copy(self.slots.len(), MachineCell::default());
        self.program.run(inputs, outputs);
        let kinds = &self.program.outputs;
        for ((slot, cell), kind) in self.slots.iter().zip(outputs).zip(kinds) {
            row.slots[*slot] = cell.datum(*kind);
        }
    }
}

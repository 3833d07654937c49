//! Expressions of one row that are computed together, in machine code.
//!
//! The compiler makes one for the expressions of a projection that have a machine form; the rest
//! stay [`BoundExpr`](crate::frame::BoundExpr)s. What an expression is, is the same for both.

use std::sync::Arc;

use lockstep_row::{Arena, Datum};

use crate::{
    frame::{Cells, Frame, Leaf, Place},
    machine::{Cell, Node, RowProgram},
};

/// Expressions and the slots that they fill.
#[derive(Debug)]
pub(crate) struct Computation {
    program: Arc<RowProgram>,
    /// Where the columns are that the program reads.
    inputs: Box<[Place]>,
    slots: Box<[usize]>,
}

impl Computation {
    /// Compiles expressions over the columns of a schema, whose places are in `layout`, for these
    /// slots. `None` where there is no machine code for this machine.
    pub(crate) fn compile(nodes: Vec<Node>, slots: Box<[usize]>, layout: &[Place]) -> Option<Self> {
        assert_eq!(nodes.len(), slots.len(), "a slot for each expression");
        let program = RowProgram::compile(nodes)?;
        let inputs = program.columns.iter().map(|(column, _)| layout[*column]).collect();
        Some(Self { program, inputs, slots })
    }

    /// Fills the slots.
    pub(crate) fn run<'s>(&self, leaf: Leaf<'s>, slots: &mut [Datum<'s>], arena: &'s Arena) {
        let frame = Frame { leaf, slots };
        let inputs = self.inputs.iter().map(|place| Cell::new(frame.get(*place, arena)));
        let inputs = arena.alloc_slice_fill_iter(inputs);
        let outputs = arena.alloc_slice_fill_copy(self.slots.len(), Cell::default());
        self.program.run(inputs, outputs);
        let kinds = &self.program.outputs;
        for ((slot, cell), kind) in self.slots.iter().zip(outputs).zip(kinds) {
            slots[*slot] = cell.datum(*kind);
        }
    }
}

//! Programs that compute a row from one other row alone: the steps of streams before and after their windows.
//!
//! Such a program reads no stored rows, so that it needs no snapshots; and one thread uses it, so that it keeps its
//! scratch memory. Where each column of the result is a column of the row, nothing is computed.

use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum, TableSchema};

use crate::{
    chain::ChainStep,
    context::AnswerContext,
    materialise::copy_to,
    program::Program,
    row_context::{ArrivedRow, ValueLocation},
    scratch::AnswerScratch,
};

/// A program that computes a row from one other row.
pub struct SingleRowProgram {
    program: Program,
    scratch: AnswerScratch,
    /// Which columns of the row the result has, where all of its columns are such.
    columns: Option<Vec<usize>>,
}

impl SingleRowProgram {
    /// Returns a program that is one of a single row; `None` where it reads others.
    pub fn new(program: Program) -> Option<Self> {
        let is_of_row = |step: &ChainStep| !matches!(step, ChainStep::Scan(_) | ChainStep::Join(_));
        let (steps, locations) = program.steps()?;
        if !steps.iter().all(is_of_row) {
            return None;
        }
        let column = |location: &ValueLocation| match location {
            ValueLocation::Leaf(column) => Some(*column),
            _ => None,
        };
        let columns = locations.iter().map(column).collect::<Option<Vec<_>>>();
        let columns = columns.filter(|_| steps.is_empty());
        debug_assert_eq!(program.output().len(), locations.len(), "each column has a place");
        let scratch = program.new_scratch();
        Some(Self { program, scratch, columns })
    }

    /// Returns the schema of the rows that it is given; `None` where these have no columns.
    pub fn input(&self) -> Option<&TableSchema> {
        self.program.input()
    }

    /// Computes the result of a row that arrived as said, which refers to the row and to the arena; `None` where a
    /// condition leaves the row out.
    #[inline]
    pub fn compute<'a>(
        &mut self,
        row: &[Datum<'a>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        debug_assert_eq!(row.len(), self.input().map_or(0, |schema| schema.columns.len()));
        if let Some(columns) = &self.columns {
            let values = columns.iter().map(|column| row[*column].with_one_nan());
            return Ok(Some(arena.alloc_slice_fill_iter(values)));
        }
        self.program.check_width(row)?;
        self.scratch.arena.reset();
        let request = ArrivedRow::values(row, arrival);
        let ctx: AnswerContext<'_> = self.program.context_of_row(request, &self.scratch);
        let Some(answer) = self.program.answer_one(&ctx)? else { return Ok(None) };
        let result = arena.alloc_slice_fill_copy(answer.values().len(), Datum::Null);
        for (copy, (location, value)) in result.iter_mut().zip(answer.located()) {
            match location {
                ValueLocation::Leaf(column) => *copy = row[column].with_one_nan(),
                _ => copy_to(&value, copy, arena),
            }
        }
        Ok(Some(result))
    }
}

impl std::fmt::Debug for SingleRowProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleRowProgram").field("columns", &self.columns).finish_non_exhaustive()
    }
}

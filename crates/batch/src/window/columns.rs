//! The expressions of all groups as columns.
//!
//! The rows of all sources of a window have one numbering: the last written UNION source first, the
//! first written one after it, and the main rows at the end. That is the order, oldest first, of
//! rows of equal order value, so that (order value, row number) orders the rows of a key.

use std::{num::NonZeroUsize, ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, new_empty_array},
    compute::concat,
};
use datafusion::{
    error::Result,
    execution::memory_pool::MemoryReservation,
    physical_expr::{PhysicalExpr, expressions::Column},
};

use crate::{operator::array_bytes, parallel};

/// The columns of the main rows and of every UNION source.
#[derive(Debug)]
pub(super) struct WindowColumns {
    /// One for each expression.
    main: Vec<ArrayRef>,
    main_count: usize,
    /// For each UNION source one for each expression; `None` where no window reads it.
    unions: Vec<Vec<Option<ArrayRef>>>,
    union_counts: Vec<usize>,
}

impl WindowColumns {
    /// Evaluates every expression over the main rows, of which there is at least one batch, and
    /// concatenates the batches of each source. Counts the columns in `memory`.
    pub(super) fn new(
        exprs: &[Arc<dyn PhysicalExpr>],
        main: &[RecordBatch],
        unions: &[Vec<RecordBatch>],
        union_exprs: &[Vec<usize>],
        threads: NonZeroUsize,
        memory: &MemoryReservation,
    ) -> Result<Self> {
        let main_columns = evaluate(exprs, main, threads, memory)?;
        let union_columns = unions.iter().zip(union_exprs).map(|(batches, needed)| {
            let mut columns = vec![None; exprs.len()];
            for (position, expr) in needed.iter().enumerate() {
                columns[*expr] =
                    Some(concat_column(batches, position, &main_columns[*expr], memory)?);
            }
            Ok(columns)
        });
        Ok(Self {
            unions: union_columns.collect::<Result<_>>()?,
            main: main_columns,
            main_count: count_rows(main),
            union_counts: unions.iter().map(|batches| count_rows(batches)).collect(),
        })
    }

    /// Takes the columns of rows on which the expressions were evaluated before: those of the main
    /// rows, one for each expression, and of each UNION source `None` for what no window reads.
    pub(super) fn evaluated(
        main: Vec<ArrayRef>,
        main_count: usize,
        unions: Vec<Vec<Option<ArrayRef>>>,
        union_counts: Vec<usize>,
    ) -> Self {
        debug_assert_eq!(unions.len(), union_counts.len(), "each source has its count");
        Self { main, main_count, unions, union_counts }
    }

    /// Returns the number of bytes that [`Self::stacked`] copies.
    pub(super) fn stacked_bytes(&self, expr: usize, unions: &[usize]) -> usize {
        if unions.is_empty() {
            return 0;
        }
        let parts = unions.iter().filter_map(|union| self.unions[*union][expr].as_ref());
        parts.chain([&self.main[expr]]).map(|column| array_bytes(column.as_ref())).sum()
    }

    /// Returns the number of rows of all sources of a window.
    pub(super) fn row_count(&self, unions: &[usize]) -> usize {
        self.main_rows(unions).end
    }

    /// Returns the numbers of the main rows among the rows of a window.
    pub(super) fn main_rows(&self, unions: &[usize]) -> Range<usize> {
        let start: usize = unions.iter().map(|union| self.union_counts[*union]).sum();
        start..start + self.main_count
    }

    /// Returns the values of an expression for all rows of a window.
    pub(super) fn stacked(&self, expr: usize, unions: &[usize]) -> Result<ArrayRef> {
        if unions.is_empty() {
            return Ok(Arc::clone(&self.main[expr]));
        }
        let mut parts: Vec<&dyn Array> = Vec::with_capacity(unions.len() + 1);
        for union in unions.iter().rev() {
            let column = self.unions[*union][expr].as_ref();
            parts.push(column.expect("a UNION source has the expressions of its windows"));
        }
        parts.push(&self.main[expr]);
        Ok(concat(&parts)?)
    }
}

fn count_rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Evaluates expressions over batches, each as one column, which is counted in `memory`.
fn evaluate(
    exprs: &[Arc<dyn PhysicalExpr>],
    batches: &[RecordBatch],
    threads: NonZeroUsize,
    memory: &MemoryReservation,
) -> Result<Vec<ArrayRef>> {
    // What is computed is there twice until the columns are whole.
    let computed = memory.new_empty();
    let evaluated = parallel::run(threads, batches.len(), |at| {
        let batch = &batches[at];
        let one = |expr: &Arc<dyn PhysicalExpr>| {
            let column = expr.evaluate(batch)?.into_array(batch.num_rows())?;
            let bytes = array_bytes(column.as_ref());
            memory.try_grow(bytes)?;
            if expr.downcast_ref::<Column>().is_none() {
                computed.try_grow(bytes)?;
            }
            Ok(column)
        };
        exprs.iter().map(one).collect::<Result<Vec<_>>>()
    })?;
    parallel::run(threads, exprs.len(), |expr| {
        let parts: Vec<&dyn Array> =
            evaluated.iter().map(|columns| columns[expr].as_ref()).collect();
        Ok(concat(&parts)?)
    })
}

fn concat_column(
    batches: &[RecordBatch],
    position: usize,
    like: &ArrayRef,
    memory: &MemoryReservation,
) -> Result<ArrayRef> {
    let parts: Vec<&dyn Array> =
        batches.iter().map(|batch| batch.column(position).as_ref()).collect();
    memory.try_grow(parts.iter().map(|part| array_bytes(*part)).sum())?;
    match parts.as_slice() {
        [] => Ok(new_empty_array(like.data_type())),
        parts => Ok(concat(parts)?),
    }
}

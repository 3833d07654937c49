//! The limits of a statement's size after binding.
//!
//! The `sql` crate limits the text; the plan may still be much larger, since a common table counts
//! as often as it is used, and a chain of them is as tall as all of them together. Optimisers and
//! executors walk plans recursively, so both the size and the height are limited here: a statement
//! over a limit is refused instead of running for minutes or overflowing the stack.
//!
//! The counters belong to one statement and only grow, except for the height, which is measured
//! for each query from its own tables upwards. Since everything that is bound is counted, counting also
//! checks now and then whether the statement was interrupted.

use std::cell::Cell;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_host::query::checkpoint;

/// The most expressions and columns that a statement may have.
pub const EXPRESSIONS_MAX: usize = 500_000;

/// The most operators (scans, projections, joins, …) that the plan of a statement may have.
pub const PLAN_OPERATORS_MAX: usize = 8_000;

/// How many operators a join counts for: planning one takes as long as planning that many scans.
const JOIN_OPERATORS: usize = 6;

/// The most operators that a plan may have one above the other.
pub const PLAN_HEIGHT_MAX: usize = 1_000;

/// How many expressions and operators are bound between two checks for an interrupt.
const CHECK_INTERVAL: usize = 64;

/// The counters of one statement.
#[derive(Debug, Default)]
pub(crate) struct Size {
    expressions: Cell<usize>,
    operators: Cell<usize>,
    /// Of the tallest plan that was bound since the innermost [`Size::measured`] began.
    height: Cell<usize>,
    /// Expressions and operators since the last check for an interrupt.
    unchecked: Cell<usize>,
}

/// The size that a part of a statement adds to it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weight {
    expressions: usize,
    operators: usize,
    height: usize,
}

impl Weight {
    /// Returns the weight of the scan of a table.
    pub(crate) fn of_scan(columns: usize) -> Self {
        Self { expressions: columns, operators: 1, height: 1 }
    }
}

impl Size {
    /// Adds expressions, or columns of a plan.
    pub(crate) fn add_expressions(&self, count: usize, span: Span) -> Result<()> {
        self.check_interrupt(count)?;
        let total = self.expressions.get().saturating_add(count);
        self.expressions.set(total);
        if total <= EXPRESSIONS_MAX {
            return Ok(());
        }
        let detail = format!(
            "The limit is {EXPRESSIONS_MAX} expressions and columns; each use of a common table \
             counts separately."
        );
        too_complex("the statement has too many expressions", detail, span)
    }

    /// Puts operators on top of the plan that is being bound, one above the other.
    pub(crate) fn add_operators(&self, count: usize, span: Span) -> Result<()> {
        self.add_beside(count, span)?;
        self.reach(self.height.get().saturating_add(count), span)
    }

    /// Puts a join on top of the plan that is being bound.
    pub(crate) fn add_join(&self, span: Span) -> Result<()> {
        self.add_beside(JOIN_OPERATORS - 1, span)?;
        self.add_operators(1, span)
    }

    /// Adds operators that are not above each other.
    pub(crate) fn add_beside(&self, count: usize, span: Span) -> Result<()> {
        self.add(Weight { expressions: 0, operators: count, height: 0 }, span)
    }

    /// Adds a part that was weighed before, as another input of the operator above.
    pub(crate) fn add(&self, weight: Weight, span: Span) -> Result<()> {
        self.add_expressions(weight.expressions, span)?;
        self.check_interrupt(weight.operators)?;
        let total = self.operators.get().saturating_add(weight.operators);
        self.operators.set(total);
        if total > PLAN_OPERATORS_MAX {
            let detail = format!(
                "The limit is {PLAN_OPERATORS_MAX} tables, windows and other operators; a join \
                 counts as {JOIN_OPERATORS}, and each use of a common table counts separately."
            );
            return too_complex("the statement has too many tables and joins", detail, span);
        }
        self.reach(weight.height, span)
    }

    /// Fails if the statement was interrupted. Checks after so many expressions or operators.
    fn check_interrupt(&self, count: usize) -> Result<()> {
        let unchecked = self.unchecked.get().saturating_add(count);
        if unchecked < CHECK_INTERVAL {
            self.unchecked.set(unchecked);
            return Ok(());
        }
        self.unchecked.set(0);
        checkpoint().or_else(|interrupt| Diagnostic::interrupted(interrupt.limit_ms()).err())
    }

    fn reach(&self, height: usize, span: Span) -> Result<()> {
        self.height.set(self.height.get().max(height));
        if height <= PLAN_HEIGHT_MAX {
            return Ok(());
        }
        let detail = format!("The limit is {PLAN_HEIGHT_MAX} levels of operators.");
        too_complex("queries are nested too deeply", detail, span)
    }

    /// Binds a query without counting it, and returns its weight, which counts at each use.
    pub(crate) fn weighed<T>(&self, bind: impl FnOnce() -> Result<T>) -> Result<(T, Weight)> {
        let outer = self.height.take();
        let (expressions, operators) = (self.expressions.get(), self.operators.get());
        let bound = bind();
        let weight = Weight {
            expressions: self.expressions.replace(expressions) - expressions,
            operators: self.operators.replace(operators) - operators,
            height: self.height.replace(outer),
        };
        Ok((bound?, weight))
    }

    /// Binds one of several inputs of an operator: the tallest one counts for the height.
    pub(crate) fn beside<T>(&self, bind: impl FnOnce() -> Result<T>) -> Result<T> {
        let outer = self.height.take();
        let bound = bind();
        self.height.set(self.height.get().max(outer));
        bound
    }
}

fn too_complex<T>(message: &str, detail: String, span: Span) -> Result<T> {
    let error = Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message)
        .with_detail(detail)
        .with_hint("Split the statement, and store intermediate results in tables.");
    if span == Span::default() { error.err() } else { error.at(span).err() }
}

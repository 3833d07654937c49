//! The LAST JOINs of a continuous query: what is computed of their rows, and how main rows are joined with them.
//!
//! A main row is joined when the watermark has passed it, with the newest row of the key that is not newer: each LAST
//! JOIN is therefore over event times, `right.ts <= left.ts` or `<`, and what else it requires has to be a condition of
//! its own rows, or the least time (`right.ts >= left.ts - 1d`), so that the newest row alone decides.
//!
//! LAST JOINs are below the windows, which then read what they have joined, or above: there the binder puts those that
//! windows do not read.

use datafusion::{
    common::DFSchemaRef,
    logical_expr::{
        BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator,
        utils::{conjunction, split_conjunction},
    },
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_plan::{
    LastJoin,
    lineage::{column, last_join, leftmost_table},
};
use lockstep_request::SingleRowProgram;
use lockstep_row::{Arena, Datum};
use lockstep_stream::{LeastTime, LookupSpec, MainProgram, SourceShape};

use super::plan::{RowExprs, SourcePlan, planning};

/// LAST JOINs, each of what the one before it has joined.
pub(super) struct JoinChain<'q> {
    /// The rows that are joined.
    pub(super) base: &'q LogicalPlan,
    /// From the first one on.
    joins: Vec<JoinParts<'q>>,
}

/// The parts of a LAST JOIN over event times.
struct JoinParts<'q> {
    join: &'q LastJoin,
    /// The event time of its rows.
    order: &'q Expr,
    /// The event time of main rows.
    time: &'q Expr,
    is_inclusive: bool,
    at_least: Option<(&'q Expr, bool)>,
    /// What else is required of its rows.
    conditions: Vec<Expr>,
}

/// What is computed of the rows of LAST JOINs, and how main rows are joined with them.
#[derive(Default)]
pub(super) struct JoinPlans {
    pub(super) sources: Vec<(SourcePlan, SourceShape)>,
    pub(super) lookups: Vec<LookupSpec>,
}

/// Computes the rows of the windows from joined rows.
#[derive(Debug)]
pub(super) struct JoinedRowProgram {
    pub(super) program: SingleRowProgram,
    /// How many columns of a main row come first in a joined row, and how many then do not.
    pub(super) main_columns: (usize, usize),
}

impl MainProgram for JoinedRowProgram {
    fn compute<'a>(
        &mut self,
        joined: &[Datum<'a>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        let (stored, computed) = self.main_columns;
        let columns: Vec<Datum<'a>> = [&joined[..stored], &joined[stored + computed..]].concat();
        self.program.compute(&columns, arrival, arena)
    }
}

/// Returns the topmost LAST JOIN below filters and projections.
pub(super) fn topmost_join(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            topmost_join(plan.inputs()[0])
        }
        _ => last_join(plan).map(|_| plan),
    }
}

impl<'q> JoinChain<'q> {
    /// Takes LAST JOINs apart, of which there may be none. Fails where one is not over event times.
    pub(super) fn of(joined: &'q LogicalPlan) -> Result<Self> {
        let (mut base, mut joins) = (joined, Vec::new());
        while let Some(join) = last_join(base) {
            joins.push(JoinParts::of(join)?);
            base = &join.left;
        }
        joins.reverse();
        Ok(Self { base, joins })
    }

    /// Returns none.
    pub(super) const fn none(base: &'q LogicalPlan) -> Self {
        Self { base, joins: Vec::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.joins.is_empty()
    }

    /// Returns what is read of the rows that are joined.
    pub(super) fn exprs(&self, schema: &'q DFSchemaRef) -> impl Iterator<Item = &'q Expr> {
        let exprs = self.joins.iter().flat_map(JoinParts::main_exprs);
        exprs.filter(move |expr| is_over(expr, schema))
    }

    /// Returns the rows of each LAST JOIN, and up to when they are joined.
    pub(super) fn described(&self) -> impl Iterator<Item = (&'q LogicalPlan, &'static str)> {
        let described = |parts: &JoinParts<'q>| {
            let end =
                if parts.is_inclusive { "that is not newer than" } else { "that is older than" };
            (&parts.join.right, end)
        };
        self.joins.iter().map(described)
    }

    /// Returns the event time of the rows that are joined, whose columns are those of `row`: the position of a column.
    pub(super) fn event_time(&self, row: &RowExprs<'_>) -> Result<usize> {
        let mut times = self.joins.iter().map(|parts| row.position(parts.time));
        let first = times.next().flatten();
        match first.filter(|first| times.all(|time| time == Some(*first))) {
            Some(time) => Ok(time),
            None => several_times().err(),
        }
    }

    /// Makes the plans of the rows of the LAST JOINs, whose sources have numbers from this one on. The columns of the
    /// rows that are joined are those of `row`.
    pub(super) fn lookups(&self, row: &RowExprs<'_>, first_source: usize) -> Result<JoinPlans> {
        debug_assert!(first_source > 0, "source 0 has the main rows");
        let mut made = JoinPlans::default();
        // The columns that LAST JOINs have added, each with its position.
        let mut added: Vec<(&DFSchemaRef, usize)> = Vec::new();
        let mut width = row.width();
        for (number, parts) in self.joins.iter().enumerate() {
            let schema = parts.join.right.schema();
            let keys = parts.join.keys.iter().map(|(_, right)| right);
            let exprs = RowExprs::of(schema, keys.chain([parts.order]));
            let find = |expr: &Expr| {
                let of_added =
                    added.iter().find_map(|(schema, start)| Some(start + column(expr, schema)?));
                row.position(expr).or(of_added).ok_or_else(|| refused_key(expr))
            };
            let pairs = &parts.join.keys;
            let main_keys = pairs.iter().map(|(left, _)| find(left)).collect::<Result<_>>()?;
            let keys = pairs.iter().map(|(_, right)| exprs.column_of(right));
            let at_least = parts.at_least.map(|(expr, is_inclusive)| {
                Ok::<_, Box<Diagnostic>>(LeastTime { column: find(expr)?, is_inclusive })
            });
            made.lookups.push(LookupSpec {
                source: first_source + number,
                columns: schema.fields().len(),
                keys: keys.collect::<Result<_>>()?,
                main_keys,
                is_inclusive: parts.is_inclusive,
                at_least: at_least.transpose()?,
            });
            let source = SourceShape { width: exprs.width(), order: exprs.column_of(parts.order)? };
            made.sources.push((exprs.source(&parts.rows()?)?, source));
            added.push((schema, width));
            width += schema.fields().len();
        }
        Ok(made)
    }
}

impl<'q> JoinParts<'q> {
    fn of(join: &'q LastJoin) -> Result<Self> {
        let Some(order) = &join.order_by else { return without_end(join).err() };
        let (left, right) = (join.left.schema(), join.right.schema());
        let mut time = join.time_bound.as_ref().map(|bound| (&bound.left, bound.inclusive));
        let (mut at_least, mut conditions) = (None, Vec::new());
        for part in join.filter.iter().flat_map(split_conjunction) {
            let bound = TimeCondition::of(part, order).filter(|bound| is_over(bound.other, left));
            match bound {
                Some(TimeCondition { other, is_lower: false, is_inclusive }) if time.is_none() => {
                    time = Some((other, is_inclusive));
                }
                Some(TimeCondition { other, is_lower: true, is_inclusive })
                    if at_least.is_none() =>
                {
                    at_least = Some((other, is_inclusive));
                }
                None if is_over(part, right) && !part.column_refs().is_empty() => {
                    conditions.push(part.clone());
                }
                _ => return refused_condition(part).err(),
            }
        }
        let Some((time, is_inclusive)) = time else { return without_end(join).err() };
        Ok(Self { join, order, time, is_inclusive, at_least, conditions })
    }

    /// Returns what is read of main rows, and of those joined before.
    fn main_exprs(&self) -> impl Iterator<Item = &'q Expr> {
        let keys = self.join.keys.iter().map(|(left, _)| left);
        keys.chain([self.time]).chain(self.at_least.map(|(least, _)| least))
    }

    /// Returns the plan of its rows.
    fn rows(&self) -> Result<LogicalPlan> {
        let right = self.join.right.clone();
        let Some(condition) = conjunction(self.conditions.clone()) else { return Ok(right) };
        let builder = LogicalPlanBuilder::from(right).filter(condition).map_err(planning)?;
        builder.build().map_err(planning)
    }
}

/// A condition on the event time of the rows of a LAST JOIN.
struct TimeCondition<'q> {
    other: &'q Expr,
    /// Whether the event time is the greater one.
    is_lower: bool,
    is_inclusive: bool,
}

impl<'q> TimeCondition<'q> {
    fn of(part: &'q Expr, order: &Expr) -> Option<Self> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else { return None };
        let (is_greater, is_inclusive) = match op {
            Operator::Gt => (true, false),
            Operator::GtEq => (true, true),
            Operator::Lt => (false, false),
            Operator::LtEq => (false, true),
            _ => return None,
        };
        match (&**left == order, &**right == order) {
            (true, false) => Some(Self { other: right, is_lower: is_greater, is_inclusive }),
            (false, true) => Some(Self { other: left, is_lower: !is_greater, is_inclusive }),
            _ => None,
        }
    }
}

/// Returns whether an expression reads these columns only.
fn is_over(expr: &Expr, schema: &DFSchemaRef) -> bool {
    expr.column_refs().iter().all(|column| schema.maybe_index_of_column(column).is_some())
}

/// Returns the column of the rows below LAST JOINs that a column of a plan above them is a copy of.
pub(super) fn main_column(plan: &LogicalPlan, at: usize) -> Option<usize> {
    match plan {
        LogicalPlan::Projection(node) => {
            main_column(&node.input, column(node.expr.get(at)?, node.input.schema())?)
        }
        LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => main_column(plan.inputs()[0], at),
        _ => match last_join(plan) {
            Some(join) if at < join.left.schema().fields().len() => match last_join(&join.left) {
                Some(_) => main_column(&join.left, at),
                None => Some(at),
            },
            _ => None,
        },
    }
}

/// Makes the error for rows that are compared by several event times.
pub(super) fn several_times() -> Diagnostic {
    Diagnostic::unsupported(
        "the LAST JOINs and windows of a stream require one event time of the main rows",
    )
    .with_hint("Compare the same column in each LAST JOIN, and ORDER the windows BY it.")
}

/// Makes the error for a LAST JOIN that takes rows however new they are.
fn without_end(join: &LastJoin) -> Diagnostic {
    let table = leftmost_table(&join.right);
    let name = table.map_or("the right table", |table| table.name.as_str());
    Diagnostic::unsupported(format!(
        "the results of a stream with this LAST JOIN are never final: `{name}` may always get a \
         newer row"
    ))
    .with_hint(
        "Take rows that are not newer than the left row: ORDER BY their event time, and compare \
         it with that of the left row in ON (right.ts <= left.ts). Or use emit='arrival'.",
    )
}

/// Makes the error for a condition that the newest row does not decide.
fn refused_condition(condition: &Expr) -> Diagnostic {
    Diagnostic::unsupported("a LAST JOIN of a stream cannot have this condition")
        .with_detail(format!("The condition is {condition}."))
        .with_hint(
            "ON can have equalities, conditions on the right table alone, and comparisons of its \
             event time. Or use emit='arrival'.",
        )
}

/// Makes the error for a key that is computed of several tables, or of one that was joined.
fn refused_key(key: &Expr) -> Box<Diagnostic> {
    let message = "a LAST JOIN of a stream cannot compute its key from a joined table";
    Box::new(
        Diagnostic::unsupported(message)
            .with_detail(format!("The key is {key}."))
            .with_hint("Compare columns of the joined table as they are stored."),
    )
}

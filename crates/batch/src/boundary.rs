//! A plan node that keeps the optimiser from merging projections across it.
//!
//! DataFusion merges a projection into the one above it, so that a chain of projections becomes one
//! whose expressions are as deep as the chain is long; and it builds the name of each part of an
//! expression again at each step, which costs the third power of the depth. A boundary every
//! [`DEPTH_MAX`] levels limits the depth. It computes nothing and has no physical operator.

use std::{cmp::Ordering, fmt, sync::Arc};

use datafusion::{
    common::{
        DFSchemaRef, Result, internal_err,
        tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor},
    },
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
};

/// The most levels of expressions that projections above each other may have together.
const DEPTH_MAX: usize = 32;

/// Passes its input through; projections are not merged across it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Boundary {
    input: LogicalPlan,
}

/// The depth that expressions would have if projections were merged. The plan is visited from the
/// leaves upwards.
#[derive(Debug, Default)]
pub(crate) struct ProjectionDepth {
    below: usize,
}

impl ProjectionDepth {
    /// Visits a node, after those below it, and puts a boundary below it where the depth would
    /// exceed the limit.
    pub(crate) fn bound(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match &plan {
            LogicalPlan::Projection(projection) => {
                let depths = projection.expr.iter().map(expression_depth);
                let own = depths.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(0);
                let is_first = self.below == 0;
                self.below += own;
                if is_first || self.below <= DEPTH_MAX {
                    return Ok(plan);
                }
                self.below = own;
                let node = Arc::new(Boundary { input: LogicalPlan::clone(&projection.input) });
                let exprs = projection.expr.clone();
                plan.with_new_exprs(exprs, vec![LogicalPlan::Extension(Extension { node })])
            }
            // The optimiser moves projections through these.
            LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(_) => Ok(plan),
            _ => {
                self.below = 0;
                Ok(plan)
            }
        }
    }
}

impl UserDefinedLogicalNodeCore for Boundary {
    fn name(&self) -> &'static str {
        "Boundary"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Boundary")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match inputs.pop() {
            Some(input) if inputs.is_empty() => Ok(Self { input }),
            _ => internal_err!("a boundary has one input"),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

impl PartialOrd for Boundary {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

/// Returns the number of operators above each other in an expression; 0 for a column or a constant.
fn expression_depth(expr: &Expr) -> Result<usize> {
    let mut depth = Depth::default();
    expr.visit(&mut depth)?;
    Ok(depth.greatest)
}

#[derive(Default)]
struct Depth {
    now: usize,
    greatest: usize,
}

impl TreeNodeVisitor<'_> for Depth {
    type Node = Expr;

    fn f_down(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        if !matches!(expr, Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_)) {
            self.now += 1;
            self.greatest = self.greatest.max(self.now);
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        if !matches!(expr, Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_)) {
            self.now -= 1;
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

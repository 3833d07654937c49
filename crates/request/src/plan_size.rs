//! Estimates how large the program of a plan is.
//!
//! A window is computed from rows of its own input: of the request row, and of each row of its history,
//! whose chain is compiled too. A source is compiled once and used for all rows that read it; so a
//! chain of windows over windows is compiled once for each of its windows, from the table up to there.
//! Where a program would be too large, each request runs in batch mode, which computes each window
//! once.

use datafusion::logical_expr::LogicalPlan;
use lockstep_plan::{WindowAggregate, WindowGroup};

use crate::trace;

/// The most operators that a plan may be compiled to, each counted as often as it is compiled.
const OPERATORS_MAX: usize = 4_000;

/// Returns whether a plan is too large to be compiled.
pub(crate) fn is_too_large(plan: &LogicalPlan) -> bool {
    let OperatorCount { own, sources } = operators(plan);
    own + sources > OPERATORS_MAX
}

/// How many operators a plan is compiled to.
struct OperatorCount {
    /// Those in the chain of the plan's own rows.
    own: usize,
    /// Those in the chains of the rows that these read.
    sources: usize,
}

fn operators(plan: &LogicalPlan) -> OperatorCount {
    let mut inputs = plan.inputs().into_iter().map(operators);
    let Some(OperatorCount { own, sources }) = inputs.next() else {
        return OperatorCount { own: 1, sources: 0 };
    };
    // Each scan compiles the chains of its sources.
    let scans = trace::window(plan).map_or(0, count_scans);
    let (others, sources) =
        inputs.fold((0, sources), |sums, other| (sums.0 + other.own, sums.1 + other.sources));
    OperatorCount { own: own + 1, sources: sources + own * scans + others * scans.max(1) }
}

/// Counts the scans of a node: one for the groups that read the same rows in the same order.
fn count_scans(node: &WindowAggregate) -> usize {
    let mut scans: Vec<&WindowGroup> = Vec::new();
    for group in &node.groups {
        let is_same = |other: &&WindowGroup| {
            other.unions == group.unions
                && other.window.partition_by == group.window.partition_by
                && other.window.order_by == group.window.order_by
        };
        if !scans.iter().any(is_same) {
            scans.push(group);
        }
    }
    scans.len()
}

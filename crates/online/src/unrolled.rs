//! How large a program would become.
//!
//! A window is computed from rows of its own input: of the request row, and of each row of the
//! history, which is compiled beside it. So windows over windows double at each level, in the
//! program as in what a request does. Beyond a limit a request runs in batch mode, where each
//! window is computed once. Pure questions about plans.

use datafusion::logical_expr::LogicalPlan;
use lockstep_plan::{WindowAggregate, WindowGroup};

use crate::trace;

/// The most operators that a plan may be compiled to, each counted as often as it is compiled.
const OPERATORS_MAX: u64 = 4_000;

/// Whether a plan had better not be compiled.
pub(crate) fn is_too_large(plan: &LogicalPlan) -> bool {
    operators(plan) > OPERATORS_MAX
}

/// The operators that a plan is compiled to.
fn operators(plan: &LogicalPlan) -> u64 {
    let sum = |plans: &[&LogicalPlan]| {
        plans.iter().fold(1, |sum: u64, plan| sum.saturating_add(operators(plan)))
    };
    let Some(node) = trace::window(plan) else { return sum(&plan.inputs()) };
    let unions: Vec<&LogicalPlan> = node.unions.iter().collect();
    let (input, unions) = (operators(&node.input), sum(&unions));
    // Each scan compiles its sources; the row itself comes once.
    scans(node).saturating_mul(input.saturating_add(unions)).saturating_add(input)
}

/// How many groups of windows walk through different rows.
fn scans(node: &WindowAggregate) -> u64 {
    let mut walks: Vec<&WindowGroup> = Vec::new();
    for group in &node.groups {
        let is_same = |other: &&WindowGroup| {
            other.unions == group.unions
                && other.window.partition_by == group.window.partition_by
                && other.window.order_by == group.window.order_by
        };
        if !walks.iter().any(is_same) {
            walks.push(group);
        }
    }
    u64::try_from(walks.len()).unwrap_or(u64::MAX)
}

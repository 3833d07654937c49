//! How large a program would become.
//!
//! A window is computed from rows of its own input: of the request row, and of each row of the
//! history, which is compiled beside it. A source is compiled once, and serves all rows that look
//! through it; so a chain of windows over windows is compiled once for each of its windows, from the
//! table up to there. Beyond a limit a request runs in batch mode, where each window is computed
//! once. Pure questions about plans.

use datafusion::logical_expr::LogicalPlan;
use lockstep_plan::{WindowAggregate, WindowGroup};

use crate::trace;

/// The most operators that a plan may be compiled to, each counted as often as it is compiled.
const OPERATORS_MAX: usize = 4_000;

/// Whether a plan had better not be compiled.
pub(crate) fn is_too_large(plan: &LogicalPlan) -> bool {
    let Operators { chain, beside } = operators(plan);
    chain + beside > OPERATORS_MAX
}

/// The operators that a plan is compiled to.
struct Operators {
    /// Those that a row goes through.
    chain: usize,
    /// Those that the other rows go through which it looks at.
    beside: usize,
}

fn operators(plan: &LogicalPlan) -> Operators {
    let mut inputs = plan.inputs().into_iter().map(operators);
    let Some(Operators { chain, beside }) = inputs.next() else {
        return Operators { chain: 1, beside: 0 };
    };
    // Each scan compiles its sources; the row itself comes once.
    let scans = trace::window(plan).map_or(0, scans);
    let (others, beside) =
        inputs.fold((0, beside), |sums, other| (sums.0 + other.chain, sums.1 + other.beside));
    Operators { chain: chain + 1, beside: beside + chain * scans + others * scans.max(1) }
}

/// How many groups of windows walk through different rows.
fn scans(node: &WindowAggregate) -> usize {
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
    walks.len()
}

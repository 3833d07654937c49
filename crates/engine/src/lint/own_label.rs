//! A feature that is made of the label of its own row.

use std::collections::BTreeSet;

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_diagnostic::Span;
use lockstep_function::scalar::feature_role::FeatureRole;
use lockstep_plan::lineage;

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L15",
    name: "label-in-a-feature",
    fires: "A column reads, from its own row, a column that `binary_label`, `multiclass_label` or \
            `regression_label` marks: in its expression, or in an aggregate whose frame includes \
            the current row. The column that reads it is marked as a feature, or no column is \
            marked as a feature.",
    reason: "The model learns the label from the label itself, which a request does not have.",
    fix: "Exclude the row itself with EXCLUDE CURRENT_ROW, or omit the column.",
    example: "CREATE TABLE t (k STRING, paid BOOL, ts TIMESTAMP);\n\
              EXPLAIN SELECT binary_label(paid) AS label, continuous(count_where(*, paid) OVER w) AS n\n\
              FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW);",
    scope: LintScope::Queries,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let query = facts.query;
    let roles = query.roles();
    let is_label = |role: &Option<FeatureRole>| *role == Some(FeatureRole::Label);
    if !roles.iter().any(is_label) {
        return;
    }
    let of = |output: usize| lineage::current_row_columns(&query.plan, output);
    let labels: BTreeSet<usize> =
        (0..roles.len()).filter(|output| is_label(&roles[*output])).flat_map(of).collect();
    let is_marked = |role: &Option<FeatureRole>| {
        matches!(role, Some(FeatureRole::Continuous | FeatureRole::Discrete { .. }))
    };
    let are_marked = roles.iter().any(is_marked);
    let features = (0..roles.len())
        .filter(|output| is_marked(&roles[*output]) || (!are_marked && roles[*output].is_none()));
    let table = lineage::leaf_table(&query.plan);
    for output in features {
        let Some(column) = of(output).intersection(&labels).next().copied() else { continue };
        let Some(column_of) = table.and_then(|table| table.schema.columns.get(column)) else {
            continue;
        };
        let (feature, label) = (&query.columns[output].0, &column_of.name);
        let message =
            format!("column `{feature}` is computed from `{label}`, the label of its own row");
        findings.push(Finding::new(position(facts, column), message));
    }
}

/// Returns the position of the aggregate that reads a column; that of the query if none does.
fn position(facts: &Facts<'_>, column: usize) -> Span {
    let written = &facts.query.written;
    let reads = |expr: &Expr, base: &LogicalPlan| {
        let mut read = expr.column_refs().into_iter();
        read.any(|found| {
            let found = lineage::column(&Expr::Column(found.clone()), base.schema());
            found.and_then(|found| lineage::to_leaf(base, found)) == Some(column)
        })
    };
    let mut calls =
        written.windows.iter().flat_map(|w| w.calls.iter().map(move |call| (call, &w.base)));
    let found = calls.find(|(call, base)| call.arguments.iter().any(|expr| reads(expr, base)));
    found.map_or(written.span, |(call, _)| call.span)
}

//! A deployment without a table has no request row.

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L16",
    name: "request-without-a-table",
    fires: "A query that serves requests reads no table: it has no FROM.",
    reason: "A request is a row of the query's leftmost table; without a table, all requests have \
             the same result, and no values.",
    fix: "Add FROM with the table whose rows are the requests.",
    example: "DEPLOY d AS SELECT 1 AS one;",
    scope: LintScope::Serving,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    if facts.query.request_table.is_none() {
        let message = "the query reads no table, so requests have no row";
        findings.push(Finding::new(facts.query.written.span, message));
    }
}

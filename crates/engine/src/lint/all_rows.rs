//! A request costs what the query costs in batch mode.

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L06",
    name: "request-over-all-rows",
    fires: "The result of a request depends on more than the rows of a few keys: an aggregate over \
            a whole table, DISTINCT or UNION below a window, a join other than LAST JOIN, GROUP BY \
            over another GROUP BY, or many windows over other windows. Each request runs the query \
            in batch mode, over all rows. The result is still correct; `VERIFY` does not replay \
            such a deployment.",
    reason: "Request time grows with the tables, and is at best milliseconds.",
    fix: "Aggregate over a window, or GROUP BY a column of the request table, and join with LAST \
          JOIN.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              DEPLOY d AS SELECT sum(v) AS s FROM t;",
    scope: LintScope::Serving,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    if lockstep_request::reads_all_rows(&facts.query.plan) {
        let message = "each request runs the query in batch mode, over all rows";
        findings.push(Finding::new(facts.query.written.span, message));
    }
}

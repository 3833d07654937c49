//! A feature made of the time at which it is computed.

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L07",
    name: "feature-of-the-clock",
    fires: "A query that serves requests calls `now()`, `current_timestamp` or `current_date`.",
    reason: "Batch mode reads the clock when it computes the training set, and request mode when \
             it serves the request, so the values differ.",
    fix: "Use the event time of the row, which is the same in both.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              DEPLOY d AS SELECT k, bigint(now()) - bigint(ts) AS age FROM t;",
    scope: LintScope::Serving,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    findings.extend(facts.query.written.clock_reads.iter().map(|read| {
        let what = "has one value in the training set and another in a request";
        Finding::new(read.span, format!("`{}` {what}", read.name))
    }));
}

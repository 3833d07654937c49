//! A feature made of the time at which it is computed.

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L07",
    name: "feature-of-the-clock",
    fires: "A query that serves requests calls `now()`, `current_timestamp` or `current_date`.",
    reason: "Batch mode reads the clock when the training set is made and a request when it is \
             answered, so the two differ.",
    fix: "Use the event time of the row, which is the same in both.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              DEPLOY d AS SELECT k, bigint(now()) - bigint(ts) AS age FROM t;",
    scope: LintScope::Serving,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    findings.extend(facts.query.written.clock_reads.iter().map(|read| {
        let what = "has another value in a request than in the training set";
        Finding::new(read.span, format!("`{}` {what}", read.name))
    }));
}

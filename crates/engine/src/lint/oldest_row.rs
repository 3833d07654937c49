//! A LAST JOIN that sorts times descending takes the oldest row.

use lockstep_plan::WrittenJoin;

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L13",
    name: "oldest-row-of-a-join",
    fires: "ORDER BY of a LAST JOIN sorts a TIMESTAMP in descending order.",
    reason: "LAST JOIN uses the last row in the order, which is the oldest row here.",
    fix: "Omit DESC to join with the newest row.",
    example: "CREATE TABLE t (k STRING, ts TIMESTAMP);\n\
              CREATE TABLE u (k STRING, v INT, ts TIMESTAMP);\n\
              EXPLAIN SELECT t.k, u.v FROM t LAST JOIN u ORDER BY u.ts DESC ON t.k = u.k AND u.ts <= t.ts;",
    scope: LintScope::Queries,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    findings.extend(facts.query.written.joins.iter().filter_map(of_join));
}

fn of_join(join: &WrittenJoin) -> Option<Finding> {
    let message = "LAST JOIN with ORDER BY … DESC uses the oldest row";
    Some(Finding::new(join.descending_time?, message))
}

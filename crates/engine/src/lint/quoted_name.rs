//! A text in double quotes may be meant for the column of that name.

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L08",
    name: "quoted-name",
    fires: "With `compatibility = 'openmldb'`, a string in double quotes is also the name of a \
            column in scope. Without this setting, the name is an error.",
    reason: "The query uses the string, not the column; most other systems would use the column.",
    fix: "Use single quotes for the string, or backquotes for the column.",
    example: "CREATE TABLE t (user STRING, v INT);\n\
              SET compatibility = 'openmldb';\n\
              EXPLAIN SELECT v FROM t WHERE \"user\" = 'ann';",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    findings.extend(facts.query.written.quoted_names.iter().map(|quoted| {
        let message = format!("\"{}\" is a string, and also the name of a column", quoted.name);
        Finding::new(quoted.span, message)
    }));
}

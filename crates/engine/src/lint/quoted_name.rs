//! A text in double quotes may be meant for the column of that name.

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L08",
    name: "quoted-name",
    fires: "With compatibility = 'openmldb', a text in double quotes is also the name of a column in \
            scope. Without the setting it is refused.",
    reason: "The text is compared or computed with, not the column, which is what most other \
             systems would take it for.",
    fix: "Write single quotes for the text, or back-quotes for the column.",
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

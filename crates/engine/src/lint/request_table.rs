//! The rows of the request table decide what a request sees, and they are not what batch mode saw.

use lockstep_plan::{CatalogTable, lineage};

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L09",
    name: "empty-request-table",
    fires: "A query that serves requests reads the stored rows of its request table, in a window \
            or on the right side of a LAST JOIN, and the table is empty.",
    reason: "A request reads the rows that are stored when it arrives, with its own row as the \
             latest; batch mode reads the rows of the training set.",
    fix: "Store the history in the request table before the first request.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              DEPLOY d AS SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);",
    scope: LintScope::Serving,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let Some(table) = &facts.query.request_table else { return };
    let Some(stored) = facts.tables.by_id.get(&table.id) else { return };
    // Rows that cannot be read are rows.
    if matches!(stored.snapshot().scan().next_row(), Ok(None)) {
        findings.extend(empty(facts, table));
    }
}

/// The first place that looks at the rows of the request table, which has none.
fn empty(facts: &Facts<'_>, table: &CatalogTable) -> Option<Finding> {
    let is_it = |plan| lineage::leaf_table(plan).is_some_and(|leaf| leaf.id == table.id);
    let written = &facts.query.written;
    let windows = written.windows.iter().filter(|window| !window.calls.is_empty());
    let mut windows = windows.filter(|window| !window.window.instance_not_in_window);
    let window = windows.find(|window| is_it(&window.base)).map(|window| window.spec.span);
    let mut joins = written.joins.iter();
    let join = || joins.find(|join| is_it(&join.right)).map(|join| join.span);
    let span = window.or_else(join)?;
    let message = format!("table `{}` is empty, so a request reads only its own row", table.name);
    Some(Finding::new(span, message))
}

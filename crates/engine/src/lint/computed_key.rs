//! No index finds the rows of a key that is computed.

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_plan::{WrittenJoin, WrittenWindow, lineage};

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L17",
    name: "computed-key",
    fires: "PARTITION BY of a window, or the right side of ON of a LAST JOIN, contains no column \
            of a table, only expressions such as `upper(k)`. Indexes are over columns, so each \
            request computes the key of every stored row. If the key also contains a column, its \
            index finds the rows, and the expressions are compared.",
    reason: "Request time grows with the table.",
    fix: "Store the value in a column of the table, or add a column to the key.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              INSERT INTO t VALUES ('a', 1, 1000);\n\
              DEPLOY d AS SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY upper(k) ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);",
    scope: LintScope::Serving,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    if lockstep_request::reads_all_rows(&facts.query.plan) {
        // There is a lint of its own for it.
        return;
    }
    let written = &facts.query.written;
    findings.extend(written.windows.iter().filter_map(of_window));
    findings.extend(written.joins.iter().filter_map(of_join));
}

fn of_window(written: &WrittenWindow) -> Option<Finding> {
    let keys = &written.window.partition_by;
    let first = written.spec.partition_by.first()?;
    let stored = (!written.window.instance_not_in_window).then_some(&written.base);
    let plans = stored.into_iter().chain(&written.unions);
    let table = plans.filter_map(|plan| searched(plan, &written.base, keys)).next()?;
    let message = format!("each request reads every row of table `{table}` for a window");
    Some(Finding::new(first.span, message).about(written))
}

fn of_join(written: &WrittenJoin) -> Option<Finding> {
    let table = searched(&written.right, &written.right, &written.keys)?;
    let message = format!("each request reads every row of table `{table}` for a LAST JOIN");
    Some(Finding::new(written.span, message))
}

/// Returns the name of the table that a plan reads, where no index of it finds the rows with some keys.
/// `named`: the plan whose columns the keys name, which those of the plan follow.
fn searched<'p>(plan: &'p LogicalPlan, named: &LogicalPlan, keys: &[Expr]) -> Option<&'p str> {
    let table = lineage::leaf_table(plan)?;
    let is_stored = |key: &Expr| {
        let column = lineage::column(key, named.schema());
        column.and_then(|column| lineage::to_leaf(plan, column)).is_some()
    };
    (!keys.is_empty() && !keys.iter().any(is_stored)).then_some(table.name.as_str())
}

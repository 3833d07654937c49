//! The rows of the request table decide what a request sees, and they are not what batch mode saw.

use datafusion::logical_expr::Expr;
use lockstep_plan::{CatalogTable, WrittenJoin, lineage};

use super::{Alike, Facts, Finding, Lint, source};

pub(super) const LINT: Lint = Lint {
    code: "01L09",
    name: "request-table",
    fires: "A query that serves requests looks at the stored rows of its request table, in a window \
            or on the right side of a LAST JOIN, and the table is empty. Or a LAST JOIN looks up \
            rows of the request table by a key, without regard to time, and the table holds several \
            rows of one key. Looks at the first 65536 stored rows.",
    reason: "A request sees the rows that are stored when it comes, with its own as the latest of \
             them; batch mode sees the rows of the training set.",
    fix: "Store the history in the request table before requests come.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              DEPLOY d AS SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);",
    serving_only: true,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let Some(table) = &facts.query.request_table else { return };
    let Some(stored) = facts.tables.by_id.get(&table.id) else { return };
    if stored.snapshot().scan().next().is_none() {
        findings.extend(empty(facts, table));
        return;
    }
    let joins = facts.query.written.joins.iter().filter(|join| !join.is_bounded && !join.is_later);
    findings.extend(joins.filter_map(|join| repeated(facts, table, join)));
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
    let message = format!("table `{}` is empty, so a request sees no row but its own", table.name);
    Some(Finding::new(span, message))
}

/// A join that finds another row of the request table in batch mode than in a request.
fn repeated(facts: &Facts<'_>, table: &CatalogTable, join: &WrittenJoin) -> Option<Finding> {
    let at = |expr: &Expr| lineage::column(expr, join.right.schema());
    let keys = join.keys.iter().map(at).collect::<Option<Vec<_>>>()?;
    let right = source(&join.right, &keys, None)?;
    if right.table.id != table.id || facts.has_pair(&right, Alike::SameKey) != Some(true) {
        return None;
    }
    let name = &table.name;
    let message =
        format!("LAST JOIN with the request table `{name}`, which has several rows of a key");
    let fix =
        "Join by a key that each row has for itself, or add to ON that the right row is earlier.";
    Some(Finding::new(join.span, message).with_fix(fix))
}

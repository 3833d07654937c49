//! A LAST JOIN of the request table with itself finds another row in batch mode than in a request.

use datafusion::logical_expr::Expr;
use lockstep_plan::{CatalogTable, JoinForm, WrittenJoin, lineage};

use super::{Alike, Facts, Finding, Lint, LintScope, source};

pub(super) const LINT: Lint = Lint {
    code: "01L10",
    name: "repeated-key-of-the-request-table",
    fires: "The right side of a LAST JOIN without ORDER BY is the request table, which has several \
            rows with the same key. Checks the first 65536 stored rows.",
    reason: "Batch mode joins each row with the row of its key that arrived last; in request mode, \
             the request row itself arrived last.",
    fix: "Join by a key that is unique to each row, or add ORDER BY and compare the times of both \
          sides in ON.",
    example: "CREATE TABLE t (id STRING, v INT);\n\
              INSERT INTO t VALUES ('a', 1), ('a', 2);\n\
              EXPLAIN SELECT t.id, u.v FROM t LAST JOIN t AS u ON t.id = u.id;",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let Some(table) = &facts.query.request_table else { return };
    let joins = facts.query.written.joins.iter().filter(|join| join.order_by.is_none());
    findings.extend(joins.filter_map(|join| repeated(facts, table, join)));
}

fn repeated(facts: &Facts<'_>, table: &CatalogTable, join: &WrittenJoin) -> Option<Finding> {
    let at = |expr: &Expr| lineage::column(expr, join.right.schema());
    let keys = join.keys.iter().map(at).collect::<Option<Vec<_>>>()?;
    let right = source(&join.right, &keys, None)?;
    if right.table.id != table.id || facts.has_pair(&right, Alike::SameKey) != Some(true) {
        return None;
    }
    let name = &table.name;
    if join.form == JoinForm::In {
        // A row is equal to itself in both modes, whichever of its key is found.
        return None;
    }
    let message = format!(
        "LAST JOIN with the request table `{name}`, which has several rows with the same key"
    );
    Some(Finding::new(join.span, message))
}

//! A LAST JOIN takes the newest row of a table that changes, whenever the left row was.

use datafusion::logical_expr::Expr;
use lockstep_plan::{JoinForm, WrittenJoin, lineage};

use super::{Alike, Facts, Finding, Lint, LintScope, Purpose, source};

pub(super) const LINT: Lint = Lint {
    code: "01L05",
    name: "join-without-time",
    fires: "ON of a LAST JOIN does not compare the right side's order column with the left side, \
            and the right table changes: it has several rows with the same key, or it is empty and \
            the join has an order. Checks the first 65536 stored rows. Or ON requires that the \
            right row is not earlier than the left row, as in `left.ts < right.ts`. Or ON compares \
            the times of both sides and ORDER BY is missing, so that the join uses the row that \
            arrived last.",
    reason: "Batch mode joins each old row with the row that is newest today, which was not known \
             at the time of the old row; request mode joins with the row that is newest at the \
             time of the request.",
    fix: "Require in ON that the right row is not later, as in `right.ts <= left.ts`, and ORDER BY \
          its time.",
    example: "CREATE TABLE t (k STRING, ts TIMESTAMP);\n\
              CREATE TABLE u (k STRING, v INT, ts TIMESTAMP);\n\
              INSERT INTO u VALUES ('a', 1, 1000), ('a', 2, 2000);\n\
              EXPLAIN SELECT t.k, u.v FROM t LAST JOIN u ORDER BY u.ts ON t.k = u.k;",
    scope: LintScope::Queries,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for join in &facts.query.written.joins {
        if join.is_later {
            let message = "LAST JOIN uses rows that are not earlier than the left row";
            let fix = "Reverse the comparison in ON: only earlier rows are known at a row.";
            findings.push(Finding::new(join.span, message).with_fix(fix));
        } else if !join.is_bounded {
            findings.extend(find(facts, join));
        }
    }
}

fn find(facts: &Facts<'_>, join: &WrittenJoin) -> Option<Finding> {
    let at = |expr: &Expr| lineage::column(expr, join.right.schema());
    let keys = join.keys.iter().map(at).collect::<Option<Vec<_>>>()?;
    let order = join.order_by.as_ref().and_then(at);
    let right = source(&join.right, &keys, order)?;
    let changes = match facts.has_pair(&right, Alike::SameKey) {
        Some(has_history) => has_history,
        None => join.order_by.is_some() || join.compared_time.is_some(),
    };
    if !changes {
        return None;
    }
    // A row of the left table is a row of the right one too, and would find itself.
    let is_self_join =
        facts.query.request_table.as_ref().is_some_and(|left| left.id == right.table.id);
    if is_self_join && join.order_by.is_none() {
        // There is a lint of its own for it.
        return None;
    }
    let table = &right.table.name;
    if join.form == JoinForm::In {
        if facts.purpose == Purpose::Training {
            // A query may ask for what is there today.
            return None;
        }
        let message = format!("IN (SELECT …) over table `{table}`, which changes, ignores time");
        let fix =
            "Use LAST JOIN with the times of both sides in ON, and test whether it found a row.";
        return Some(Finding::new(join.span, message).with_fix(fix));
    }
    let message = format!("LAST JOIN with table `{table}`, which changes, ignores time");
    let name = join.name.as_ref().unwrap_or(table);
    if let Some(time) = &join.compared_time {
        let message = format!(
            "LAST JOIN with table `{table}`, which changes, uses the row that arrived last"
        );
        let fix = format!(
            "ON compares `{name}`.`{time}` with the left row; add ORDER BY `{name}`.`{time}` to \
             use the newest row."
        );
        return Some(Finding::new(join.span, message).with_fix(fix));
    }
    let finding = Finding::new(join.span, message);
    let Some(column) = right.event_time else { return Some(finding) };
    let column = &right.table.schema.columns[column].name;
    let (order, note) = match is_self_join {
        true => ("earlier than", "; at the same time, the row would match itself"),
        false => ("not later than", ""),
    };
    Some(finding.with_fix(format!(
        "Require in ON that `{name}`.`{column}` is {order} the event time of the left row{note}."
    )))
}

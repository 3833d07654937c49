//! Seconds in a TIMESTAMP, which counts milliseconds.

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_diagnostic::{Diagnostic, Span};
use lockstep_plan::{CatalogTable, lineage};
use lockstep_row::DataType;
use lockstep_table::{Appended, LIKE_SECONDS};

use super::{Facts, Finding, Lint, LintScope, ROWS_READ_MAX};

/// 1 January 1980, in milliseconds.
const LATER_MIN: i64 = 315_532_800_000;

pub(super) const LINT: Lint = Lint {
    code: "01L12",
    name: "seconds-in-a-timestamp",
    fires: "A window or a LAST JOIN orders by a TIMESTAMP whose stored values look like seconds: \
            times of January to April 1970, which are times of 1973 or later if read as seconds. \
            Or the TIMESTAMP has values both before 1980 and later. Checks the first 65536 stored \
            rows. An append, INSERT or LOAD DATA also warns if its rows have such an event time in \
            an index.",
    reason: "A TIMESTAMP counts milliseconds since 1970, so rows with seconds are decades older \
             than other rows, and windows of later rows do not reach them.",
    fix: "Multiply seconds by 1000, or write the time as a string such as '2024-01-01 10:00:00'.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              INSERT INTO t VALUES ('a', 1, 1704103200);\n\
              EXPLAIN SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);",
    scope: LintScope::Plans,
    check,
};

/// Returns the warning about appended rows whose event time looks like seconds, if there are any.
pub(crate) fn warning_of_append(appended: Appended) -> Option<Diagnostic> {
    let Appended { rows, like_seconds, .. } = appended;
    (like_seconds > 0).then(|| {
        let message =
            format!("{like_seconds} of {rows} rows have an event time that looks like seconds");
        Diagnostic::new(LINT.code, message).with_detail(LINT.reason).with_hint(LINT.fix)
    })
}

/// Returns the warning about a request row whose time looks like seconds.
pub(crate) fn warning_of_request(column: &str) -> Diagnostic {
    let message = format!("column `{column}` of the request has a time that looks like seconds");
    Diagnostic::new(LINT.code, message).with_detail(LINT.reason).with_hint(LINT.fix)
}

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let written = &facts.query.written;
    for window in &written.windows {
        let (Some(order), Some(item)) = (&window.window.order_by, window.spec.order_by.first())
        else {
            continue;
        };
        for plan in std::iter::once(&window.base).chain(&window.unions) {
            let found = find(facts, plan, &window.base, order, item.expr.span);
            findings.extend(found.map(|finding| finding.about(window)));
        }
    }
    for join in &written.joins {
        let order = join.order_by.as_ref();
        findings.extend(order.and_then(|o| find(facts, &join.right, &join.right, o, join.span)));
    }
}

/// Looks at the stored values of an order. `named` is the plan whose columns the order names, which
/// those of `plan` follow.
fn find(
    facts: &Facts<'_>,
    plan: &LogicalPlan,
    named: &LogicalPlan,
    order: &Expr,
    span: Span,
) -> Option<Finding> {
    let column = lineage::to_leaf(plan, lineage::column(order, named.schema())?)?;
    let table = lineage::leaf_table(plan)?;
    let stored = &table.schema.columns[column];
    if stored.data_type != DataType::Timestamp {
        return None;
    }
    let found = times(facts, table, column)?;
    let (name, table) = (&stored.name, &table.name);
    let message = match found {
        SuspectTimes::LikeSeconds => {
            format!("column `{name}` of table `{table}` has times that look like seconds")
        }
        SuspectTimes::Early => {
            format!("column `{name}` of table `{table}` has times both before 1980 and later")
        }
    };
    Some(Finding::new(span, message))
}

/// The kind of values that a column of times should not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SuspectTimes {
    /// In [`LIKE_SECONDS`].
    LikeSeconds,
    /// Before 1980, in a column that has later ones.
    Early,
}

fn times(facts: &Facts<'_>, table: &CatalogTable, column: usize) -> Option<SuspectTimes> {
    let snapshot = facts.tables.by_id.get(&table.id)?.snapshot();
    // Nothing is said about rows that cannot be read.
    let rows = snapshot.scan().map_rows(|stored| stored.row.get(column).as_i64());
    let (mut has_early, mut has_later) = (false, false);
    for time in rows.take(ROWS_READ_MAX).map_while(Result::ok).flatten() {
        if LIKE_SECONDS.contains(&time) {
            return Some(SuspectTimes::LikeSeconds);
        }
        has_later |= time >= LATER_MIN;
        has_early |= time < LATER_MIN;
    }
    (has_early && has_later).then_some(SuspectTimes::Early)
}

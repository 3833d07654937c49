//! A result that depends on which of several simultaneous rows arrived first.

use lockstep_plan::{Frame, FrameAhead, WrittenCall, WrittenWindow};
use lockstep_sql::ast::{ExprKind, Literal};

use super::{Alike, Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L04",
    name: "order-by-arrival",
    fires: "The result of a window depends on the order of its rows, because the frame counts rows \
            (ROWS, MAXSIZE) or a function depends on their order (such as `first_value` or `lag`), \
            and the order column does not distinguish the rows: there is no ORDER BY, or the table \
            has two rows with the same key and event time. Calls that read only the current row, \
            such as `lag(x, 0)`, do not count. Checks the first 65536 stored rows; without rows, \
            only a missing ORDER BY is reported.",
    reason: "Rows with the same key and event time are ordered by arrival, so loading the same \
             rows in another order changes the result.",
    fix: "Order by a column that distinguishes the rows, or use a frame and functions that process \
          simultaneous rows together.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              INSERT INTO t VALUES ('a', 1, 1000), ('a', 2, 1000);\n\
              EXPLAIN SELECT first_value(v) OVER w AS f FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for window in &facts.query.written.windows {
        let Some(what) = counts_order(window) else { continue };
        let Some(order) = window.spec.order_by.first() else {
            let message = format!("{what} without ORDER BY depends on the order of arrival");
            findings.push(Finding::new(window.spec.span, message).about(window));
            continue;
        };
        let sources = facts.sources(window);
        let is_tied = |source: &&super::TableSource<'_>| {
            facts.has_pair(source, Alike::SameTime) == Some(true)
        };
        if let Some(source) = sources.iter().find(is_tied) {
            let message = format!(
                "{what} depends on the order of arrival: rows of table `{}` have the same key and \
                 event time",
                source.table.name
            );
            findings.push(Finding::new(order.expr.span, message).about(window));
        }
    }
}

/// What the order of simultaneous rows matters to.
fn counts_order(window: &WrittenWindow) -> Option<String> {
    let is_cut = |call: &WrittenCall| match call.frame {
        Frame::Rows { from, to } => {
            let all_ahead = FrameAhead { nearest: 1, farthest: None };
            from.is_some() || to > 0 || call.ahead.is_some_and(|ahead| ahead != all_ahead)
        }
        Frame::Range { .. } => false,
    };
    let calls = || window.calls.iter().filter(|call| !is_of_current_row(call, window));
    if let Some(call) = calls().find(|call| call.function.is_ordered) {
        return Some(format!("`{}`", call.function.name));
    }
    if calls().any(is_cut) {
        return Some("a ROWS frame".to_owned());
    }
    let has_limit = window.window.max_size.is_some() && calls().next().is_some();
    has_limit.then(|| "MAXSIZE".to_owned())
}

/// Whether a call reads the current row and no other.
fn is_of_current_row(call: &WrittenCall, window: &WrittenWindow) -> bool {
    let has_current_row = match call.frame {
        _ if call.ahead.is_some() => return false,
        Frame::Rows { from: Some(0), to: 0 } => return true,
        Frame::Rows { to, .. } => to == 0,
        Frame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
    };
    let is_zero = |at: usize| {
        let argument = call.call.arguments.get(at).map(|argument| &argument.kind);
        matches!(argument, Some(ExprKind::Literal(Literal::Int(0) | Literal::BigInt(0))))
    };
    let takes_newest = match call.function.name {
        "lag" => call.call.arguments.len() == 2 && is_zero(1),
        "last_value" => call.call.arguments.len() == 1,
        _ => false,
    };
    takes_newest && has_current_row && !window.window.exclude_current_row
}

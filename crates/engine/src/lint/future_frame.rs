//! A frame names rows after the current one.

use lockstep_sql::ast::{FrameBound, FrameBoundKind};

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L02",
    name: "frame-in-the-future",
    fires: "A frame extends past the current row (FOLLOWING), so that no deployment can compute it; \
            or, with `compatibility = 'openmldb'`, a frame bound is a negative distance PRECEDING, \
            which is treated as CURRENT ROW.",
    reason: "A feature must use only data that is known at its row.",
    fix: "End the frame at CURRENT ROW, or at a non-negative distance PRECEDING.",
    example: "SET compatibility = 'openmldb';\n\
              CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              EXPLAIN SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND -5 PRECEDING);",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for window in &facts.query.written.windows {
        if window.window.ahead.is_some() {
            let end = window.spec.frame.as_ref().map_or(window.spec.span, |frame| frame.end.span);
            let message = "window frame extends past the current row; a request cannot compute it";
            findings.push(Finding::new(end, message).about(window));
            continue;
        }
        let ends = window.spec.frame.iter().flat_map(|frame| [&frame.start, &frame.end]);
        findings.extend(ends.filter(|end| is_after(end)).map(|end| {
            let message = "window frame extends past the current row; it is cut at the current row";
            Finding::new(end.span, message).about(window)
        }));
    }
}

fn is_after(end: &FrameBound) -> bool {
    match end.kind {
        FrameBoundKind::Preceding(distance) => distance < 0,
        FrameBoundKind::PrecedingInterval(interval) => interval.amount < 0,
        FrameBoundKind::UnboundedPreceding
        | FrameBoundKind::CurrentRow
        | FrameBoundKind::Following(_)
        | FrameBoundKind::FollowingInterval(_)
        | FrameBoundKind::UnboundedFollowing => false,
    }
}

//! A distance of a frame whose unit is another one than its writer meant.

use lockstep_plan::{WrittenWindow, lineage};
use lockstep_row::DataType;
use lockstep_sql::ast::{FrameBound, FrameBoundKind, FrameUnit, IntervalUnit};

use super::{Facts, Finding, Lint, LintScope};

pub(super) const LINT: Lint = Lint {
    code: "01L14",
    name: "unit-of-a-distance",
    fires: "A bound of a ROWS_RANGE frame is a number without a unit, and the window orders by a \
            TIMESTAMP; or the unit of a bound is an uppercase M.",
    reason: "A number without a unit is in milliseconds, and M means minutes, like m: durations \
             have no months, because months differ in length.",
    fix: "Write the unit: s, m, h or d, such as 1h or 30d.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);\n\
              EXPLAIN SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 3600 PRECEDING AND CURRENT ROW);",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for window in &facts.query.written.windows {
        let Some(frame) = &window.spec.frame else { continue };
        if frame.unit == FrameUnit::Rows {
            continue;
        }
        let is_timed = orders_by_timestamp(window);
        let ends = [&frame.start, &frame.end].into_iter();
        findings.extend(
            ends.filter_map(|end| of_end(facts, end, is_timed))
                .map(|finding| finding.about(window)),
        );
    }
}

fn of_end(facts: &Facts<'_>, end: &FrameBound, is_timed: bool) -> Option<Finding> {
    match end.kind {
        FrameBoundKind::Preceding(distance) if is_timed && distance > 0 => {
            let message = format!("{distance} PRECEDING means {distance} milliseconds");
            let fix = format!(
                "Write the unit: {distance}s for seconds. Other units are m (minutes), h (hours) \
                 and d (days)."
            );
            Some(Finding::new(end.span, message).with_fix(fix))
        }
        FrameBoundKind::PrecedingInterval(interval) if interval.unit == IntervalUnit::Minute => {
            let written = facts.script.get(end.span.start..end.span.end)?;
            let number = written.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
            let amount = interval.amount;
            let plural = if amount == 1 { "minute" } else { "minutes" };
            let message = format!("{amount}M means {amount} {plural}");
            let days = amount.saturating_mul(30);
            let fix = format!("Write {amount}m for minutes, or {days}d for months of 30 days.");
            number.starts_with('M').then(|| Finding::new(end.span, message).with_fix(fix))
        }
        _ => None,
    }
}

/// Returns whether a window orders by a TIMESTAMP.
fn orders_by_timestamp(window: &WrittenWindow) -> bool {
    let Some(order) = &window.window.order_by else { return false };
    let schema = window.base.schema();
    let column = lineage::column(order, schema);
    column.is_some_and(|column| {
        let stored = lineage::to_leaf(&window.base, column).zip(lineage::leaf_table(&window.base));
        stored.is_some_and(|(column, table)| {
            table.schema.columns[column].data_type == DataType::Timestamp
        })
    })
}

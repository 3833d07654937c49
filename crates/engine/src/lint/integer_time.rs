//! A frame in units of time over an order column that cannot hold milliseconds.

use lockstep_row::DataType;
use lockstep_sql::ast::BoundKind;

use super::{Facts, Finding, Lint};

pub(super) const LINT: Lint = Lint {
    code: "01L03",
    name: "time-units-over-integers",
    fires: "A ROWS_RANGE frame has a duration such as 10s, and the window orders by a SMALLINT or \
            INT column. A BIGINT column can hold milliseconds and is left alone.",
    reason: "Durations are counted in milliseconds, and integers are compared as plain numbers: \
             10s is 10000, whatever the unit of the column is.",
    fix: "Order by a TIMESTAMP column, or write the distance as a number in the unit of the column.",
    example: "CREATE TABLE t (k STRING, v INT, sec INT);\n\
              EXPLAIN SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY sec ROWS_RANGE BETWEEN 10s PRECEDING AND CURRENT ROW);",
    serving_only: false,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for window in &facts.query.written.windows {
        let Some(frame) = &window.spec.frame else { continue };
        let ends = [&frame.start, &frame.end].into_iter();
        let mut timed = ends.filter(|end| matches!(end.kind, BoundKind::PrecedingInterval(_)));
        let Some(end) = timed.next() else { continue };
        let sources = facts.sources(window);
        let order = sources.first().and_then(|source| {
            source.event_time.map(|column| &source.table.schema.columns[column])
        });
        let Some(column) = order else { continue };
        if matches!(column.data_type, DataType::SmallInt | DataType::Int) {
            let message = format!(
                "the frame is in units of time, but the window orders by `{}`, which is {}",
                column.name, column.data_type
            );
            findings.push(Finding { span: end.span, message, fix: None });
        }
    }
}

//! A frame in units of time over an order column that cannot hold milliseconds.

use lockstep_row::DataType;
use lockstep_sql::ast::FrameBoundKind;

use super::{Facts, Finding, Lint, LintScope, ROWS_READ_MAX, TableSource};

/// 1973-03-03 in seconds; about a day and four hours in milliseconds.
const SECONDS_MIN: i64 = 100_000_000;

/// The year 2242 in seconds; March 1970 in milliseconds.
const SECONDS_MAX: i64 = 8_600_000_000;

pub(super) const LINT: Lint = Lint {
    code: "01L03",
    name: "time-units-over-integers",
    fires: "A ROWS_RANGE frame has a duration such as 10s, and the window orders by a SMALLINT or \
            INT column, or by a BIGINT column whose stored values look like seconds: times of 1973 \
            or later if read as seconds, and of January to March 1970 if read as milliseconds. \
            Checks the first 65536 stored rows.",
    reason: "Durations are in milliseconds, and integers are compared as plain numbers: 10s is \
             10000, whatever the unit of the column.",
    fix: "Order by a TIMESTAMP column, or write the distance as a number in the unit of the column.",
    example: "CREATE TABLE t (k STRING, v INT, sec INT);\n\
              EXPLAIN SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY sec ROWS_RANGE BETWEEN 10s PRECEDING AND CURRENT ROW);",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for window in &facts.query.written.windows {
        let Some(frame) = &window.spec.frame else { continue };
        let ends = [&frame.start, &frame.end].into_iter();
        let mut timed = ends.filter(|end| matches!(end.kind, FrameBoundKind::PrecedingInterval(_)));
        let Some(end) = timed.next() else { continue };
        let sources = facts.sources(window);
        let found = sources.iter().find_map(|source| message(facts, source));
        findings.extend(found.map(|message| Finding::new(end.span, message).about(window)));
    }
}

/// What is wrong with the order column of a source.
fn message(facts: &Facts<'_>, source: &TableSource<'_>) -> Option<String> {
    let position = source.event_time?;
    let column = &source.table.schema.columns[position];
    let what = match column.data_type {
        DataType::SmallInt | DataType::Int => format!("which is {}", column.data_type),
        DataType::BigInt if holds_seconds(facts, source, position) => {
            "whose values look like seconds".to_owned()
        }
        _ => return None,
    };
    let name = &column.name;
    Some(format!("the frame is in units of time, but the window orders by `{name}`, {what}"))
}

/// Whether all stored values of a column are small for milliseconds, and one is as large as the
/// seconds of today.
fn holds_seconds(facts: &Facts<'_>, source: &TableSource<'_>, column: usize) -> bool {
    let Some(table) = facts.tables.by_id.get(&source.table.id) else { return false };
    let snapshot = table.snapshot();
    // Nothing is said about rows that cannot be read.
    let values = snapshot.scan().map_rows(|stored| stored.row.get(column).as_i64());
    let mut values = values.take(ROWS_READ_MAX).map_while(Result::ok).flatten();
    let mut greatest = 0;
    let are_small = values.all(|value| {
        greatest = greatest.max(value);
        (0..SECONDS_MAX).contains(&value)
    });
    are_small && greatest >= SECONDS_MIN
}

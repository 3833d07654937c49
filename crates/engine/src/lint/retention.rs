//! A window looks further back than its table keeps rows (promise L8).

use lockstep_function::Compatibility;
use lockstep_plan::{Frame, WrittenWindow};
use lockstep_row::{IndexSpec, Retention};

use super::{Facts, Finding, Lint, LintScope, TableSource};
use crate::statement::retention_text;

pub(super) const LINT: Lint = Lint {
    code: "01L01",
    name: "window-longer-than-retention",
    fires: "A window frame extends further back than the retention of every declared index of the \
            table. With `compatibility = 'openmldb'`, a request reads only the rows that its index \
            retains, so the frame is compared with the index over the key and the order column of \
            the window.",
    reason: "Expired rows are missing from the feature.",
    fix: "Raise the TTL of the index, or shorten the window.",
    example: "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1h));\n\
              EXPLAIN SELECT sum(v) OVER w AS s FROM t\n\
              WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 2h PRECEDING AND CURRENT ROW);",
    scope: LintScope::Plans,
    check,
};

fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for window in &facts.query.written.windows {
        let mut frames: Vec<Frame> = window.calls.iter().map(|call| call.frame).collect();
        frames.dedup();
        for source in facts.sources(window) {
            let found = frames.iter().find_map(|frame| find(facts, window, &source, *frame));
            findings.extend(found);
        }
    }
}

fn find(
    facts: &Facts<'_>,
    window: &WrittenWindow,
    source: &TableSource<'_>,
    frame: Frame,
) -> Option<Finding> {
    let indexes = keepers(facts, &source.table.schema.indexes, source);
    let is_short = |index: &&IndexSpec| is_too_short(frame, index.retention);
    let index = indexes.first().filter(|_| indexes.iter().all(is_short))?;
    let message = format!(
        "window frame ({frame}) exceeds the retention of index `{}` on table `{}`",
        index.name, source.table.name
    );
    let now = facts.tables.by_id.get(&source.table.id)?.schema();
    let widened = keepers(facts, &now.indexes, source);
    let enough = widened.iter().find(|index| !is_too_short(frame, index.retention));
    let fix = enough.map(|index| {
        format!(
            "Index `{}` retains enough rows from now on ({}); reload older rows if the feature \
             needs them.",
            index.name,
            retention_text(index.retention)
        )
    });
    let span = window.spec.frame.as_ref().map_or(window.spec.span, |frame| frame.span);
    let finding = Finding::new(span, message).about(window);
    Some(Finding { fix, ..finding })
}

/// The declared indexes that decide which rows a window sees: all of them, since a row is seen
/// that any of them keeps; in OpenMLDB, the one over its key and event time.
fn keepers<'i>(
    facts: &Facts<'_>,
    indexes: &'i [IndexSpec],
    source: &TableSource<'_>,
) -> Vec<&'i IndexSpec> {
    let declared = || indexes.iter().filter(|index| index.declared);
    let is_own = |index: &&IndexSpec| {
        index.event_time == source.event_time
            && index.keys.len() == source.keys.len()
            && index.keys.iter().all(|key| source.keys.contains(key))
    };
    let own = declared().find(is_own);
    match facts.query.settings.compatibility {
        Compatibility::OpenMldb if own.is_some() => own.into_iter().collect(),
        _ => own.into_iter().chain(declared().filter(|index| !is_own(index))).collect(),
    }
}

fn is_too_short(frame: Frame, retention: Retention) -> bool {
    match (frame, retention) {
        (_, Retention::Forever | Retention::AbsAndLat { ttl_ms: 0, .. })
        | (_, Retention::AbsAndLat { latest: 0, .. }) => false,
        (
            Frame::Range { from, .. },
            Retention::Absolute { ttl_ms }
            | Retention::AbsOrLat { ttl_ms, .. }
            | Retention::AbsAndLat { ttl_ms, .. },
        ) => ttl_ms > 0 && from.is_none_or(|from| from > ttl_ms),
        (
            Frame::Rows { from, .. },
            Retention::Latest { latest }
            | Retention::AbsOrLat { latest, .. }
            | Retention::AbsAndLat { latest, .. },
        ) => latest > 0 && from.is_none_or(|from| from > latest),
        (Frame::Range { .. }, Retention::Latest { .. })
        | (Frame::Rows { .. }, Retention::Absolute { .. }) => true,
    }
}

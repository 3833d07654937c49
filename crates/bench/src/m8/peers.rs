//! The SQL peers of M8: DuckDB over the rows, and PostgreSQL with partial tables that a careful user
//! keeps by hand.
//!
//! PostgreSQL has sums only: rows at both ends of the window, hourly partial sums up to the next
//! midnight, and daily ones between. The client computes these bounds, which are parameters.

use std::fmt::Write as _;

use super::{
    data::{CATEGORIES, DAY_MS, HOUR_MS, KeySet, LongRequest},
    family::Family,
};
use crate::{
    answer::AnswerValue,
    error::Result,
    m1::moment,
    peer::{SqlConnection, SqlPeer, prepared::PreparedSystem},
    statement::{Dialect, PeerStatement, PeerType, StatementParameter},
};

/// The parameters of all statements, in the order of [`values`].
const PARAMETERS: [(&str, PeerType); 7] = [
    ("k", PeerType::Text(24)),
    ("since", PeerType::Time),
    ("now", PeerType::Time),
    ("hours_start", PeerType::Time),
    ("days_start", PeerType::Time),
    ("days_end", PeerType::Time),
    ("hours_end", PeerType::Time),
];

/// The sums of a window from rows, hours and days.
const PARTIAL_SUMS: &str = "SELECT sum(s), sum(s) / sum(n), CAST(sum(n) AS BIGINT) FROM (\
     SELECT sum(amount) AS s, count(amount) AS n FROM events \
     WHERE k = {k} AND ts >= {since} AND ts < {hours_start} UNION ALL \
     SELECT sum(s), CAST(sum(n) AS BIGINT) FROM hours \
     WHERE k = {k} AND ts >= {hours_start} AND ts < {days_start} UNION ALL \
     SELECT sum(s), CAST(sum(n) AS BIGINT) FROM days \
     WHERE k = {k} AND ts >= {days_start} AND ts < {days_end} UNION ALL \
     SELECT sum(s), CAST(sum(n) AS BIGINT) FROM hours \
     WHERE k = {k} AND ts >= {days_end} AND ts < {hours_end} UNION ALL \
     SELECT sum(amount), count(amount) FROM events \
     WHERE k = {k} AND ts >= {hours_end} AND ts <= {now}) parts";

/// Fills a peer with the rows of all keys.
pub(super) fn load_peer(peer: &dyn SqlPeer, sets: &[KeySet]) -> Result<()> {
    let mut connection = peer.connect()?;
    let columns = [
        ("k", PeerType::Text(24)),
        ("ts", PeerType::Time),
        ("amount", PeerType::Double),
        ("units", PeerType::Int),
        ("item", PeerType::Int),
        ("category", PeerType::Text(10)),
    ];
    let rows = sets.iter().map(|set| set.rows()).sum();
    let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
    connection.create_table("events", &columns, rows)?;
    let keys = sets.iter().flat_map(|set| (0..set.keys).map(|key| (*set, key)));
    let mut stored = keys.flat_map(|(set, key)| {
        let name = set.key(key);
        (0..set.key_rows()).map(move |number| (name.clone(), set.row(key, number)))
    });
    connection.copy_in("events", "k, ts", &mut |lines: &mut String| {
        let mut count = 0;
        for (key, row) in stored.by_ref().take(1_000) {
            let (time, category) = (moment(row.time_ms), CATEGORIES[row.category]);
            writeln!(
                lines,
                "{key}\t{time}\t{}\t{}\t{}\t{category}",
                row.amount, row.units, row.item
            )
            .expect("a string takes it");
            count += 1;
        }
        count
    })?;
    if connection.dialect() == Dialect::Postgres {
        connection.create_time_index("events", "k", "ts", &["amount"])?;
        keep_partial_sums(connection.as_mut())?;
    }
    // DuckDB reads the rows of a key by their order; an index of few keys would help nobody.
    connection.settle("events")
}

/// Makes the partial tables.
fn keep_partial_sums(connection: &mut dyn SqlConnection) -> Result<()> {
    for (table, unit) in [("hours", "hour"), ("days", "day")] {
        connection.execute(&format!(
            "CREATE TABLE {table} AS SELECT k, date_trunc('{unit}', ts) AS ts, sum(amount) AS s, \
             count(amount) AS n FROM events GROUP BY 1, 2"
        ))?;
        connection.create_time_index(table, "k", "ts", &["s", "n"])?;
        connection.settle(table)?;
    }
    Ok(())
}

/// Returns a filled peer with the statement of a family and the values of requests.
pub(super) fn prepared<'a>(
    peer: &'a dyn SqlPeer,
    family: Family,
    requests: &[LongRequest],
) -> Result<PreparedSystem<'a>> {
    let dialect = peer.connect()?.dialect();
    let values = requests.iter().map(values).collect();
    Ok(PreparedSystem { peer, statement: statement(dialect, family), values, bytes_per_row: None })
}

/// Returns whether a peer takes part in a family: PostgreSQL's partial tables are of sums.
pub(super) fn answers(dialect: Dialect, family: Family) -> bool {
    dialect != Dialect::Postgres || family == Family::Totals
}

fn statement(dialect: Dialect, family: Family) -> PeerStatement {
    let parameters =
        PARAMETERS.map(|(name, kind)| StatementParameter { name: name.to_owned(), kind });
    match dialect {
        Dialect::Postgres => dialect.render(PARTIAL_SUMS, &parameters),
        _ => dialect.render(&family.peer_select(), &parameters),
    }
}

fn values(request: &LongRequest) -> Vec<AnswerValue> {
    let (since_ms, end_ms) = (request.since_ms(), request.time_ms + 1);
    let up = |ms: i64, unit_ms: i64| (ms + unit_ms - 1).div_euclid(unit_ms) * unit_ms;
    let down = |ms: i64, unit_ms: i64| ms.div_euclid(unit_ms) * unit_ms;
    let times = [
        since_ms,
        request.time_ms,
        up(since_ms, HOUR_MS),
        up(since_ms, DAY_MS),
        down(end_ms, DAY_MS),
        down(end_ms, HOUR_MS),
    ];
    let key = AnswerValue::Text(request.key.as_str().into());
    std::iter::once(key).chain(times.map(AnswerValue::Time)).collect()
}

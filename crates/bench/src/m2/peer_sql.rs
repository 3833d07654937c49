//! M2 for peers that speak SQL: one prepared statement.

use std::fmt::Write as _;

use super::{KEYS, M2Row, M2Shape, Number, REACH_MS, ROWS_PER_KEY};
use crate::{
    answer::AnswerValue,
    error::Result,
    m1::moment,
    peer::{SqlPeer, prepared::PreparedSystem},
    statement::{Dialect, PeerType, StatementParameter},
};

fn columns(shape: M2Shape) -> Vec<(String, PeerType)> {
    let kind =
        |column: usize| if column.is_multiple_of(2) { PeerType::Int } else { PeerType::Double };
    let values = (0..shape.columns).map(|column| (format!("c{column}"), kind(column)));
    [("k".to_owned(), PeerType::Text(8)), ("ts".to_owned(), PeerType::Time)]
        .into_iter()
        .chain(values)
        .collect()
}

/// Creates the table in a peer, fills it, and returns the peer with its query.
pub(crate) fn load<'a>(
    peer: &'a dyn SqlPeer,
    shape: M2Shape,
    requests: &[M2Row],
) -> Result<PreparedSystem<'a>> {
    let mut connection = peer.connect()?;
    let rows = KEYS * ROWS_PER_KEY;
    let columns = columns(shape);
    connection.create_table("wide", &columns, rows)?;
    connection.create_time_index("wide", "k", "ts", &[])?;
    let mut stored = shape.stored();
    connection.copy_in("wide", "k, ts", &mut |lines: &mut String| {
        let mut count = 0;
        for row in stored.by_ref().take(100) {
            write_line(lines, &row);
            count += 1;
        }
        count
    })?;
    connection.settle("wide")?;
    let bytes = connection.table_bytes(&["wide".to_owned()])?;
    let dialect = connection.dialect();
    let parameters = columns.into_iter().chain([("since".to_owned(), PeerType::Time)]);
    let parameters: Vec<StatementParameter> =
        parameters.map(|(name, kind)| StatementParameter { name, kind }).collect();
    Ok(PreparedSystem {
        peer,
        statement: dialect.render(&template(dialect, shape), &parameters),
        values: requests.iter().map(values).collect(),
        bytes_per_row: bytes.map(|bytes| bytes as f64 / rows as f64),
    })
}

fn write_line(lines: &mut String, row: &M2Row) {
    write!(lines, "{}\t{}", row.key_text, moment(row.time_ms)).expect("a string takes everything");
    for value in &row.values {
        match value {
            Number::Int(value) => write!(lines, "\t{value}"),
            Number::Double(value) => write!(lines, "\t{value}"),
        }
        .expect("a string takes everything");
    }
    lines.push('\n');
}

fn values(row: &M2Row) -> Vec<AnswerValue> {
    let own = row.values.iter().map(|value| match *value {
        Number::Int(value) => AnswerValue::Int(value),
        Number::Double(value) => AnswerValue::Double(value),
    });
    let head = [AnswerValue::Text(row.key_text.as_str().into()), AnswerValue::Time(row.time_ms)];
    head.into_iter().chain(own).chain([AnswerValue::Time(row.time_ms - REACH_MS)]).collect()
}

fn template(dialect: Dialect, shape: M2Shape) -> String {
    let mut outputs = vec!["{k}".to_owned()];
    for column in 0..shape.columns {
        let sum = format!("sum(c{column})");
        outputs.push(if column.is_multiple_of(2) { dialect.as_int(&sum) } else { sum });
        outputs.push(format!("max(c{column})"));
    }
    let pairs = shape.paired().map(|column| format!("{{c{column}}} + {{c{}}}", column + 2));
    outputs.extend(pairs);
    let own: Vec<String> = (0..shape.columns).map(|column| format!("{{c{column}}}")).collect();
    let names: Vec<String> = (0..shape.columns).map(|column| format!("c{column}")).collect();
    format!(
        "SELECT {} FROM (SELECT {} FROM wide WHERE k = {{k}} AND ts >= {{since}} AND ts <= {{ts}} \
         UNION ALL SELECT {}) u",
        outputs.join(", "),
        names.join(", "),
        own.join(", ")
    )
}

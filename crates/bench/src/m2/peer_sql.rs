//! M2 for peers that speak SQL: one prepared statement.

use std::fmt::Write as _;

use super::{KEYS, Number, REACH_MS, ROWS_PER_KEY, Row, Shape};
use crate::{
    cell::Cell,
    error::Result,
    m1::moment,
    peer::{SqlPeer, prepared::PreparedSystem},
    statement::{Dialect, Kind, Parameter},
};

fn columns(shape: Shape) -> Vec<(String, Kind)> {
    let kind = |column: usize| if column.is_multiple_of(2) { Kind::Int } else { Kind::Double };
    let values = (0..shape.columns).map(|column| (format!("c{column}"), kind(column)));
    [("k".to_owned(), Kind::Text(8)), ("ts".to_owned(), Kind::Time)]
        .into_iter()
        .chain(values)
        .collect()
}

/// Makes the table in a peer, fills it, and says what is asked.
pub(crate) fn load<'a>(
    peer: &'a dyn SqlPeer,
    shape: Shape,
    requests: &[Row],
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
    let parameters = columns.into_iter().chain([("since".to_owned(), Kind::Time)]);
    let parameters: Vec<Parameter> =
        parameters.map(|(name, kind)| Parameter { name, kind }).collect();
    Ok(PreparedSystem {
        peer,
        statement: dialect.render(&template(dialect, shape), &parameters),
        values: requests.iter().map(values).collect(),
        bytes_per_row: bytes.map(|bytes| bytes as f64 / rows as f64),
    })
}

fn write_line(lines: &mut String, row: &Row) {
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

fn values(row: &Row) -> Vec<Cell> {
    let own = row.values.iter().map(|value| match *value {
        Number::Int(value) => Cell::Int(value),
        Number::Double(value) => Cell::Double(value),
    });
    let head = [Cell::Text(row.key_text.as_str().into()), Cell::Time(row.time_ms)];
    head.into_iter().chain(own).chain([Cell::Time(row.time_ms - REACH_MS)]).collect()
}

fn template(dialect: Dialect, shape: Shape) -> String {
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

//! M1 for peers that speak SQL: one prepared statement gives the whole answer.
//!
//! The request's values go in as parameters: a window is the stored rows of the key, newest first
//! up to the limit, and the request beside them. Tables have the 30 columns and an index on (key,
//! event time) for each window.

use super::{
    Data, M1Shape,
    data::{self, M1Row, REACH_MS, TableName},
    query,
};
use crate::{
    answer::AnswerValue,
    error::Result,
    peer::SqlConnection,
    statement::{Dialect, PeerStatement, PeerType, StatementParameter},
};

/// Creates the tables in a peer, reserving space for `spare_rows` more rows, and fills them.
pub(crate) fn load(
    connection: &mut dyn SqlConnection,
    data: Data,
    spare_rows: usize,
) -> Result<()> {
    let dialect = connection.dialect();
    for table in data.tables() {
        let name = table.name();
        let columns: Vec<(String, PeerType)> = data::columns().collect();
        let rows = data.shape.rows() + spare_rows;
        connection.create_table(&name, &columns, rows)?;
        // MariaDB maintains an index while rows are loaded; the others build it faster afterwards.
        let before = dialect == Dialect::MariaDb;
        if before {
            create_indexes(connection, data, table)?;
        }
        let mut rows = data.rows(table);
        connection.copy_in(&name, "col_s0, col_t0", &mut |lines: &mut String| {
            let mut count = 0;
            for row in rows.by_ref().take(1_000) {
                row.write_line(lines);
                count += 1;
            }
            count
        })?;
        if !before {
            create_indexes(connection, data, table)?;
        }
        connection.settle(&name)?;
    }
    Ok(())
}

fn create_indexes(connection: &mut dyn SqlConnection, data: Data, table: TableName) -> Result<()> {
    for column in data.index_columns(table) {
        // The columns that a window reads, so that PostgreSQL reads the index only.
        let included: &[&str] = match table {
            TableName::Main => &["col_s13", "col_i1", "col_s11", "col_d4", "col_s12", "col_i3"],
            TableName::Side(_) => &[],
        };
        let key = format!("col_s{column}");
        connection.create_time_index(&table.name(), &key, "col_t0", included)?;
    }
    Ok(())
}

/// Returns the parameters of the statement: the request's columns that the query reads, and the
/// least event time of its windows.
fn parameters(shape: M1Shape) -> Vec<StatementParameter> {
    let read = |name: &str| {
        let key = name.strip_prefix("col_s").and_then(|number| number.parse::<usize>().ok());
        key.is_some_and(|number| number < shape.windows.max(4))
            || ["col_s11", "col_s12", "col_s13", "col_d0", "col_d4", "col_t0"].contains(&name)
            || ["col_i1", "col_i2", "col_i3"].contains(&name)
    };
    let own = data::columns().filter(|(name, _)| read(name));
    own.chain([("since".to_owned(), PeerType::Time)])
        .map(|(name, kind)| StatementParameter { name: name.replace("col_", ""), kind })
        .collect()
}

/// Returns the values of the parameters for a request.
fn values(shape: M1Shape, row: &M1Row) -> Vec<AnswerValue> {
    let datums = row.datums();
    let columns: Vec<String> = data::columns().map(|(name, _)| name.replace("col_", "")).collect();
    let value = |parameter: StatementParameter| match columns
        .iter()
        .position(|name| *name == parameter.name)
    {
        Some(position) => AnswerValue::from(&datums[position]),
        None => AnswerValue::Time(row.times_ms[0] - REACH_MS),
    };
    parameters(shape).into_iter().map(value).collect()
}

/// Returns the statement in a dialect, and the values of each request.
pub(crate) fn statement(
    dialect: Dialect,
    shape: M1Shape,
    requests: &[M1Row],
) -> (PeerStatement, Vec<Vec<AnswerValue>>) {
    let statement = dialect.render(&template(dialect, shape), &parameters(shape));
    (statement, requests.iter().map(|row| values(shape, row)).collect())
}

/// Returns the statement that inserts a row into the main table, its values being the row's.
pub(crate) fn insert_statement(dialect: Dialect) -> PeerStatement {
    let parameters: Vec<StatementParameter> =
        data::columns().map(|(name, kind)| StatementParameter { name, kind }).collect();
    let places: Vec<String> =
        parameters.iter().map(|parameter| format!("{{{}}}", parameter.name)).collect();
    dialect.render(&format!("INSERT INTO mt VALUES ({})", places.join(", ")), &parameters)
}

fn template(dialect: Dialect, shape: M1Shape) -> String {
    let mut outputs = vec![
        "{s0}".to_owned(),
        "concat({s1}, {d0})".to_owned(),
        "upper({s2})".to_owned(),
        "substr({s3}, 3)".to_owned(),
        dialect.year("{t0}"),
        dialect.as_text("{i2}"),
        "{i1} + {i3}".to_owned(),
    ];
    let mut from: Vec<String> = Vec::new();
    for window in 0..shape.windows {
        for aggregate in 0..query::AGGREGATES {
            let value = format!("w{window}.a{aggregate}");
            outputs.push(match aggregate {
                4 => format!("CASE WHEN {{s12}} IS NOT NULL THEN {value} END"),
                5 => format!("CASE WHEN {{i3}} IS NOT NULL THEN {value} END"),
                _ => value,
            });
        }
        let cross = if window == 0 { "" } else { "CROSS JOIN " };
        from.push(format!("{cross}({}) w{window}", window_select(dialect, window, shape)));
    }
    for join in 0..shape.joins {
        outputs.extend(side_outputs(dialect, join));
        from.push(format!(
            "LEFT JOIN (SELECT col_s1, col_s2, col_s3, col_t1, col_i1, col_i2, col_d0 FROM lt{join} \
             WHERE col_s0 = {{s0}} ORDER BY col_t0 DESC LIMIT 1) lt{join} ON TRUE"
        ));
    }
    let outputs: Vec<String> =
        outputs.iter().enumerate().map(|(n, output)| format!("{output} AS f{n}")).collect();
    format!("SELECT {} FROM {}", outputs.join(", "), from.join(" "))
}

fn window_select(dialect: Dialect, window: usize, shape: M1Shape) -> String {
    let sum = dialect.as_int("sum(i1)");
    format!(
        "SELECT count(DISTINCT s13) AS a0, {sum} AS a1, count(s11) AS a2, avg(d4) AS a3, \
         count(s12) AS a4, count(i3) AS a5 FROM (\
         (SELECT col_s13 AS s13, col_i1 AS i1, col_s11 AS s11, col_d4 AS d4, col_s12 AS s12, \
         col_i3 AS i3 FROM mt WHERE col_s{window} = {{s{window}}} AND col_t0 >= {{since}} \
         AND col_t0 <= {{t0}} ORDER BY col_t0 DESC LIMIT {}) \
         UNION ALL SELECT {{s13}}, {{i1}}, {{s11}}, {{d4}}, {{s12}}, {{i3}}) u",
        shape.window_rows - 1
    )
}

fn side_outputs(dialect: Dialect, join: usize) -> Vec<String> {
    if join == 0 {
        return vec![
            "lt0.col_s3".to_owned(),
            "concat(lt0.col_s1, {s2})".to_owned(),
            dialect.year("lt0.col_t1"),
            "lt0.col_i1 + {i1}".to_owned(),
        ];
    }
    vec![
        format!("upper(lt{join}.col_s2)"),
        format!("lt{join}.col_d0 * {}", dialect.as_double("2.0")),
        dialect.as_text(&format!("lt{join}.col_i2")),
    ]
}

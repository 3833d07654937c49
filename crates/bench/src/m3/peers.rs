//! M3 for peers that speak SQL: a prepared INSERT, then one prepared SELECT for all features.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{Event, M3Shape, TOP};
use crate::{
    answer::AnswerValue,
    error::Result,
    m1::moment,
    peer::{SqlConnection, SqlPeer},
    statement::{Dialect, PeerStatement, PeerType, StatementParameter},
    system::{Client, System},
};

/// A filled peer.
pub(crate) struct SqlEvents<'a> {
    peer: &'a dyn SqlPeer,
    shape: M3Shape,
    insert: PeerStatement,
    select: PeerStatement,
    next: AtomicUsize,
    bytes_per_row: Option<f64>,
}

impl<'a> SqlEvents<'a> {
    /// Creates the table and fills it.
    pub(crate) fn load(peer: &'a dyn SqlPeer, shape: M3Shape) -> Result<Self> {
        let mut connection = peer.connect()?;
        let rows = shape.keys * shape.rows_per_key;
        let columns = columns(shape);
        // Operations insert rows too.
        connection.create_table("events", &columns, 4 * rows + 1_000_000)?;
        let is_indexed_first = connection.dialect() == Dialect::MariaDb;
        let included: Vec<&str> = columns[2..].iter().map(|(name, _)| name.as_str()).collect();
        if is_indexed_first {
            connection.create_time_index("events", "k", "ts", &included)?;
        }
        let mut stored = shape.stored();
        connection.copy_in("events", "k, ts", &mut |lines: &mut String| {
            let mut count = 0;
            for event in stored.by_ref().take(1_000) {
                write_line(lines, &event, shape);
                count += 1;
            }
            count
        })?;
        if !is_indexed_first {
            connection.create_time_index("events", "k", "ts", &included)?;
        }
        connection.settle("events")?;
        let bytes = connection.table_bytes(&["events".to_owned()])?;
        let dialect = connection.dialect();
        let parameters = parameters(shape);
        Ok(Self {
            peer,
            shape,
            insert: dialect.render(&insert(shape), &parameters),
            select: dialect.render(&select(dialect, shape), &parameters),
            next: AtomicUsize::new(0),
            bytes_per_row: bytes.map(|bytes| bytes as f64 / rows as f64),
        })
    }
}

fn columns(shape: M3Shape) -> Vec<(String, PeerType)> {
    let values = (0..shape.columns).map(|column| (format!("c{column}"), PeerType::Text(8)));
    [("k".to_owned(), PeerType::Text(8)), ("ts".to_owned(), PeerType::Time)]
        .into_iter()
        .chain(values)
        .collect()
}

fn write_line(lines: &mut String, event: &Event, shape: M3Shape) {
    write!(lines, "{}\t{}", event.key_text(), moment(event.time_ms)).expect("a string takes it");
    for column in 0..shape.columns {
        lines.push('\t');
        lines.push_str(event.value(column));
    }
    lines.push('\n');
}

/// Returns the columns of the row, then where each window begins.
fn parameters(shape: M3Shape) -> Vec<StatementParameter> {
    let since = (0..shape.windows).map(|window| (format!("since{window}"), PeerType::Time));
    let all = columns(shape).into_iter().chain(since);
    all.map(|(name, kind)| StatementParameter { name, kind }).collect()
}

fn values(shape: M3Shape, event: &Event) -> Vec<AnswerValue> {
    let mut values =
        vec![AnswerValue::Text(event.key_text().into()), AnswerValue::Time(event.time_ms)];
    values.extend((0..shape.columns).map(|column| AnswerValue::Text(event.value(column).into())));
    values.extend(
        (0..shape.windows).map(|window| AnswerValue::Time(M3Shape::since_ms(window, event))),
    );
    values
}

fn insert(shape: M3Shape) -> String {
    let columns: Vec<String> =
        columns(shape).iter().map(|(name, _)| format!("{{{name}}}")).collect();
    format!("INSERT INTO events VALUES ({})", columns.join(", "))
}

fn select(dialect: Dialect, shape: M3Shape) -> String {
    let mut outputs = vec!["{k}".to_owned()];
    for window in 0..shape.windows {
        for column in 0..shape.columns {
            let list = match dialect {
                Dialect::MariaDb => "group_concat(c ORDER BY n DESC, c SEPARATOR ',')",
                _ => "string_agg(c, ',' ORDER BY n DESC, c)",
            };
            outputs.push(format!(
                "(SELECT {list} FROM (SELECT c{column} AS c, count(*) AS n FROM events \
                 WHERE k = {{k}} AND ts >= {{since{window}}} AND ts <= {{ts}} \
                 GROUP BY c{column} ORDER BY n DESC, c{column} LIMIT {TOP}) t)"
            ));
        }
    }
    format!("SELECT {}", outputs.join(", "))
}

impl System for SqlEvents<'_> {
    fn name(&self) -> &'static str {
        self.peer.name()
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let mut connection = self.peer.connect()?;
        let insert = connection.prepare(&self.insert)?;
        let select = connection.prepare(&self.select)?;
        Ok(Box::new(SqlClient { system: self, connection, insert, select }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        self.bytes_per_row
    }
}

struct SqlClient<'a> {
    system: &'a SqlEvents<'a>,
    connection: Box<dyn SqlConnection + 'a>,
    insert: usize,
    select: usize,
}

impl Client for SqlClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.answer(request).map(drop)
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        let SqlEvents { shape, insert, select, next, .. } = self.system;
        // Relaxed: only uniqueness matters.
        let event = shape.event(next.fetch_add(1, Ordering::Relaxed));
        let values = values(*shape, &event);
        self.connection.run(self.insert, &mut insert.values(&values))?;
        let rows = self.connection.run(self.select, &mut select.values(&values))?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }
}

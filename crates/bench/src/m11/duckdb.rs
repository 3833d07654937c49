//! DuckDB under M11: a database in a file whose log is never put into the file, and the first count
//! of the rows of a key.

use std::{io::Write as _, path::Path};

use lockstep_host::{Clock, SystemClock, disk};

use super::{
    rows::{RestartRow, RestartRows},
    step::RestartStepResult,
};
use crate::{
    answer::AnswerValue,
    error::{Result, Trying},
    m1::write_line,
    peer::{SqlConnection, SqlPeer as _, duckdb::DuckDb},
};

/// Rows of a transaction: so few that they go through the log, not directly into the file.
const TRANSACTION_ROWS: usize = 10_000;

fn open_file(directory: &Path) -> Result<DuckDb> {
    std::fs::create_dir_all(directory)
        .trying(|| format!("create directory {}", directory.display()))?;
    DuckDb::open_at(Some(&directory.join("rows.duckdb")))
}

/// Fills a database and leaves it open.
pub(super) fn load(directory: &Path, rows: RestartRows) -> Result<DuckDb> {
    let duckdb = open_file(directory)?;
    let mut connection = duckdb.connect()?;
    connection.execute("SET checkpoint_threshold = '1TB'")?;
    connection.create_table(rows.table(), &rows.columns(), rows.count)?;
    for column in rows.index_columns() {
        let (key, time) = rows.index_names(column);
        connection.create_time_index(rows.table(), &key, time, &[])?;
    }
    let path = directory.join("load.tsv");
    let copy = format!(
        "COPY {} FROM '{}' (FORMAT csv, DELIMITER '\t', NULL '\\N', HEADER false)",
        rows.table(),
        path.display()
    );
    let mut left = rows.rows();
    loop {
        let mut lines = String::new();
        for row in left.by_ref().take(TRANSACTION_ROWS) {
            write_line(&RestartRow::datums(&row), &mut lines);
        }
        if lines.is_empty() {
            break;
        }
        let file = disk::create(&path);
        let written = file.and_then(|mut file| file.write_all(lines.as_bytes()));
        written.trying(|| format!("write {}", path.display()))?;
        connection.execute(&copy)?;
    }
    std::fs::remove_file(&path).trying(|| format!("remove {}", path.display()))?;
    drop(connection);
    Ok(duckdb)
}

/// Opens a database and counts the rows of a key.
pub(super) fn open(directory: &Path, rows: RestartRows) -> Result<(RestartStepResult, DuckDb)> {
    let clock = SystemClock::new();
    let duckdb = open_file(directory)?;
    let open_ms = clock.monotonic_ns() as f64 / 1e6;
    let rows_of_a_key = count(&mut *duckdb.connect()?, rows)?;
    Ok((RestartStepResult { open_ms, rows_of_a_key }, duckdb))
}

/// Counts the rows of the last key.
pub(super) fn count(connection: &mut dyn SqlConnection, rows: RestartRows) -> Result<u64> {
    let statement = rows.count_statement(connection.dialect());
    let prepared = connection.prepare(&statement)?;
    let request = rows.request();
    let key = [AnswerValue::from(&request.datums()[0])];
    let found = connection.run(prepared, &mut statement.values(&key))?;
    Ok(match found.first().and_then(|row| row.first()) {
        Some(AnswerValue::Int(count)) => u64::try_from(*count).unwrap_or_default(),
        _ => 0,
    })
}

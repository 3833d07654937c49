//! Lockstep under M11: a directory with a log, a checkpoint, or both, and the first answer of a
//! deployment.

use std::path::Path;

use lockstep_engine::{Database, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::Arena;

use super::{
    RestartPart,
    rows::{RestartRow, RestartRows},
    step::RestartStepResult,
};
use crate::{
    engine_memory::memory_and_rows,
    error::{Error, Result},
};

/// Rows of one append.
const APPEND_ROWS: usize = 1_000;

/// Fills a directory and leaves the database open. Rows are in the page cache when they are
/// acknowledged: that is enough for a process that is killed.
pub(super) fn load(directory: &Path, rows: RestartRows, part: RestartPart) -> Result<Database> {
    let database = Database::open(directory)?;
    let session = database.session();
    // Checkpoints are written where this file says so.
    session.execute("SET GLOBAL checkpoint_log_size = 0; SET GLOBAL checkpoint_interval = 0")?;
    session.execute("SET durability = 'os'")?;
    session.execute(&rows.lockstep_script())?;
    let mut left = rows.rows();
    match part {
        RestartPart::Log => append(&session, rows, &mut left)?,
        RestartPart::Checkpoint => {
            append(&session, rows, &mut left)?;
            session.execute("CHECKPOINT")?;
        }
        RestartPart::Both => {
            append(&session, rows, &mut left.by_ref().take(rows.count / 2))?;
            session.execute("CHECKPOINT")?;
            append(&session, rows, &mut left)?;
        }
    }
    Ok(database)
}

fn append(
    session: &Session,
    rows: RestartRows,
    mut left: &mut dyn Iterator<Item = RestartRow>,
) -> Result<()> {
    let appender = session.appender(rows.table())?;
    loop {
        let some: Vec<RestartRow> = (&mut left).take(APPEND_ROWS).collect();
        if some.is_empty() {
            return Ok(());
        }
        appender.append(some.iter().map(RestartRow::datums))?;
    }
}

/// Opens a directory and requests its deployment. All rows must be there.
pub(super) fn open(directory: &Path, rows: RestartRows) -> Result<(RestartStepResult, Database)> {
    let clock = SystemClock::new();
    let database = Database::open(directory)?;
    let open_ms = clock.monotonic_ns() as f64 / 1e6;
    let session = database.session();
    let request = session.prepare_request("first")?;
    let row = rows.request();
    let arena = Arena::new();
    let answer = request.answer(&row.datums(), &arena)?;
    let count = memory_and_rows(&session, &[rows.table().to_owned()])?.1;
    if answer.is_none() || usize::try_from(count) != Ok(rows.count) {
        let system = "lockstep".to_owned();
        let difference = format!("{count} of {} rows are stored", rows.count);
        return Err(Error::Disagreement { system, request: 0, difference });
    }
    Ok((RestartStepResult { open_ms, rows_of_a_key: rows.rows_of_a_key() }, database))
}

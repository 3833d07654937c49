//! Requests while a writer appends rows and has nodes made.
//!
//! Two comparisons, none of which needs the writer to stop:
//!
//! * The same requests many times in one batch. A batch is answered over one view of the tables, so that
//!   the answers to a request are equal, whatever arrives and whichever nodes are made again meanwhile.
//! * Both deployments one after the other. They saw the same rows where no append was under way from the
//!   first to the last of them, which two counters of the writer say. The writer has nodes made meanwhile,
//!   and now and then waits for such a pair.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use lockstep_engine::{Database, Session};

use super::{
    case::{ALWAYS, Arrival, LongWindowCase, OFF, difference},
    constructs::OVERLAPPED,
    rows::{self, LongWindowColumns},
};
use crate::{disk_tables, oracle::OracleRow, panics, rows::to_batch};

/// Appends of the writer.
const APPENDS: usize = 120;
/// The requests of a batch.
const REPEATED: usize = 256;
/// How many of them differ: more than a batch keeps results of, so that each is computed again.
const DIFFERENT: usize = 16;

/// The progress of the writer and of the reader.
#[derive(Default)]
struct Progress {
    /// Appends that began, and those that ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Rounds of the reader.
    rounds: AtomicU64,
    is_written: AtomicBool,
    /// Whether the reader has stopped, after a failure.
    is_over: AtomicBool,
}

/// Rows for one of the tables.
struct Arriving {
    table: usize,
    name: String,
    rows: Vec<OracleRow>,
}

impl LongWindowCase<'_> {
    /// Compares answers while a writer appends drawn rows, most of them late.
    pub(super) fn answer_beside_writer(&mut self) -> Result<(), String> {
        self.story.push_str("-- a writer appends while requests are answered\n");
        let arriving: Vec<Arriving> = (0..APPENDS).map(|_| self.arriving()).collect();
        let progress = Progress::default();
        let (database, columns) = (self.database.clone(), self.columns.clone());
        let (session, is_on_disk) = (database.session(), self.files.is_some());
        let outcome = thread::scope(|scope| {
            let writer = thread::Builder::new().name("writer".to_owned());
            let write =
                || panics::caught(|| write(&database, is_on_disk, &columns, &arriving, &progress));
            let writer = writer.spawn_scoped(scope, write).expect("the system can start a thread");
            let read = panics::caught(|| self.read_beside(&session, &progress));
            // Release: pairs with the Acquire in `write`.
            progress.is_over.store(true, Ordering::Release);
            let written = writer.join().expect("panics are caught");
            read.and_then(|read| read).and(written.and_then(|written| written))
        });
        outcome?;
        for Arriving { table, rows, .. } in arriving {
            self.query.model.tables[table].rows.extend(rows);
        }
        Ok(())
    }

    fn arriving(&mut self) -> Arriving {
        let table = usize::from(self.random.chance(25));
        let arrival =
            *self.random.pick(&[Arrival::Late, Arrival::Late, Arrival::InOrder, Arrival::Tied]);
        let count = 1 + self.random.below(4);
        let rows = self.rows(count, arrival);
        Arriving { table, name: self.query.model.tables[table].name.clone(), rows }
    }

    fn read_beside(&mut self, session: &Session, progress: &Progress) -> Result<(), String> {
        // Acquire: pairs with the Release in `write`.
        while !progress.is_written.load(Ordering::Acquire) {
            self.answer_repeated(session, progress)?;
            self.answer_both(session, progress)?;
            // Release: pairs with the Acquire in `write`.
            progress.rounds.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Answers the same requests many times over one view.
    fn answer_repeated(&mut self, session: &Session, progress: &Progress) -> Result<(), String> {
        // Of the key with the most rows, and newer than they, so that windows see late ones.
        let different: Vec<OracleRow> = (1..)
            .take(DIFFERENT)
            .map(|later| rows::row(&self.columns, -1, 0, self.newest + later, self.random))
            .collect();
        let requests: Vec<OracleRow> = different.iter().cycle().take(REPEATED).cloned().collect();
        // Acquire, here and below: pairs with the Release in `write`.
        let begun = progress.begun.load(Ordering::Acquire);
        let answers = self.answers(session, ALWAYS, &requests)?;
        if progress.begun.load(Ordering::Acquire) != begun {
            self.report.constructs.add(OVERLAPPED, REPEATED as u64);
        }
        for (at, answer) in answers.iter().enumerate() {
            self.report.repeated += 1;
            let first = at % DIFFERENT;
            if let Some(what) = difference(&answers[first], answer) {
                return Err(format!("{:?}: twice over one view, {what}", requests[first]));
            }
        }
        Ok(())
    }

    /// Answers requests by both deployments, and compares the answers if no row arrived in between.
    fn answer_both(&mut self, session: &Session, progress: &Progress) -> Result<(), String> {
        let requests = self.requests(6);
        // Acquire, here and below: pairs with the Release in `write`. No append is under way where as
        // many have ended before as have begun after the answers.
        let ended = progress.ended.load(Ordering::Acquire);
        let one = self.answers(session, ALWAYS, &requests);
        let other = self.answers(session, OFF, &requests);
        if progress.begun.load(Ordering::Acquire) != ended {
            return Ok(());
        }
        self.compare_answers(&requests, &one, &other)
    }
}

/// Appends rows and has nodes made, until all rows are stored. Those of disk tables are flushed now and then.
fn write(
    database: &Database,
    is_on_disk: bool,
    columns: &LongWindowColumns,
    arriving: &[Arriving],
    progress: &Progress,
) -> Result<(), String> {
    let session = database.session();
    let mut outcome = Ok(());
    for (at, Arriving { name, rows, .. }) in arriving.iter().enumerate() {
        // Release, here and below: pairs with the Acquire of the reader.
        progress.begun.fetch_add(1, Ordering::Release);
        let appended = session.append(name, &[to_batch(columns, rows)]);
        progress.ended.fetch_add(1, Ordering::Release);
        if let Err(error) = appended {
            outcome = Err(error.render(None));
            break;
        }
        if is_on_disk && at % 5 == 4 {
            outcome = disk_tables::flush(database).map_err(|error| error.render(None));
        }
        database.make_pre_aggregates();
        if at % 8 == 0 {
            wait_for_rounds(database, progress);
        }
    }
    // Release: pairs with the Acquire in `read_beside`.
    progress.is_written.store(true, Ordering::Release);
    outcome
}

/// Has nodes made until the reader has made a round from its begin to its end.
fn wait_for_rounds(database: &Database, progress: &Progress) {
    // Acquire, here and below: pairs with the Release of the reader.
    let target = progress.rounds.load(Ordering::Acquire) + 2;
    while progress.rounds.load(Ordering::Acquire) < target
        && !progress.is_over.load(Ordering::Acquire)
    {
        database.make_pre_aggregates();
        thread::yield_now();
    }
}

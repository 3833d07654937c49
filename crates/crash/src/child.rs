//! The child: a process that opens a directory, does what the driver sends, and is killed.
//!
//! It reads a line for each operation and gives it to the writer's thread; a line is written when the
//! operation is acknowledged. When its input ends, so does the process, without closing anything.

use std::{
    io::{self, BufRead, Write},
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

use lockstep_engine::{
    Database, DiskTuning, OpenOptions, Session, StorageTuning, set_chunk_rows, set_disk_tuning,
    set_leaf_rows,
};
use lockstep_host::{Host, ManualClock, SystemClock, failpoint};

use crate::{
    observation::Observation,
    operation::{Action, ChildAnswer, ChildRequest},
};

/// With fewer rows of a chunk, files are small as well.
const SMALL_CHUNK_ROWS: usize = 100;

/// How a child is started.
#[derive(Debug, Clone, Default)]
pub struct ChildOptions {
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// From how many bytes on an append is logged in parts.
    pub part_bytes: usize,
    /// Rows of a chunk of an index.
    pub chunk_rows: usize,
    /// Rows of a leaf of a pre-aggregate.
    pub leaf_rows: usize,
    /// The number of writers.
    pub writers: usize,
    /// The failpoint that ends the process, and how often it is reached before.
    pub failpoint: Option<(String, u64)>,
    /// The bug that the process has.
    pub bug: Option<String>,
}

/// Runs the child. Returns when its input ends.
pub fn run(directory: &Path, options: &ChildOptions) {
    if let Some((name, count)) = &options.failpoint {
        failpoint::arm(name, *count);
    }
    if let Some(bug) = &options.bug {
        failpoint::seed(bug);
    }
    set_chunk_rows(options.chunk_rows);
    set_leaf_rows(options.leaf_rows);
    set_disk_tuning(disk_tuning(options.chunk_rows));
    let database = match open(directory, options) {
        Ok(database) => database,
        Err(error) => return answer(&ChildAnswer::Refused(error)),
    };
    let opened = database.opened().expect("it is a directory");
    answer(&ChildAnswer::Opened { rows: opened.rows, is_cut: opened.cut.is_some() });
    serve(&database, options);
    // The process ends here, without the ends of sessions and threads.
    std::process::abort();
}

/// Returns the sizes of files with chunks of so many rows.
pub(crate) fn disk_tuning(chunk_rows: usize) -> DiskTuning {
    if chunk_rows < SMALL_CHUNK_ROWS { DiskTuning::SMALL } else { DiskTuning::USUAL }
}

/// Opens a directory.
pub(crate) fn open(directory: &Path, options: &ChildOptions) -> Result<Database, String> {
    let clock = Arc::new(ChildClock {
        wall: ManualClock::new(options.now_ms),
        monotonic: SystemClock::new(),
    });
    let options = OpenOptions {
        tuning: StorageTuning {
            segment_bytes: options.segment_bytes,
            part_bytes: options.part_bytes,
            durability_window_ms: Some(20),
            ..StorageTuning::default()
        },
        host: Host { clock, ..Host::default() },
        ..OpenOptions::default()
    };
    let opened = Database::open_with(directory, &options);
    opened.map_err(|error| format!("{}: {}", error.code, error.message))
}

/// A clock whose wall time stands still, so that it is known which rows have expired.
#[derive(Debug)]
struct ChildClock {
    wall: ManualClock,
    monotonic: SystemClock,
}

impl lockstep_host::Clock for ChildClock {
    fn now_ms(&self) -> i64 {
        lockstep_host::Clock::now_ms(&self.wall)
    }

    fn monotonic_ns(&self) -> u64 {
        lockstep_host::Clock::monotonic_ns(&self.monotonic)
    }
}

/// Answers requests until there are no more.
fn serve(database: &Database, options: &ChildOptions) {
    let mut writers: Vec<Sender<(usize, Action)>> = Vec::new();
    for writer in 0..options.writers {
        let (sender, receiver) = channel();
        let session = database.session();
        let body = move || write(&session, &receiver);
        lockstep_host::spawn(&format!("writer {writer}"), body).expect("there are few threads");
        writers.push(sender);
    }
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line).expect("the driver writes requests") {
            ChildRequest::Run { id, writer, action } => {
                writers[writer].send((id, action)).expect("the writers run until the end");
            }
            ChildRequest::Observe => {
                let observed = Observation::of(database, options.writers, options.now_ms);
                answer(&ChildAnswer::Observed(observed));
            }
            ChildRequest::Close => {
                database.close().expect("a directory closes");
                answer(&ChildAnswer::Closed);
            }
        }
    }
}

/// Does the operations of a writer, one after the other.
fn write(session: &Session, operations: &Receiver<(usize, Action)>) {
    for (id, action) in operations {
        let outcome = action.run(session);
        answer(&ChildAnswer::Acknowledged { id, outcome });
    }
}

/// Writes a line to the driver. When the driver has ended, so does the process.
fn answer(answer: &ChildAnswer) {
    let mut line = serde_json::to_vec(answer).expect("names are text");
    line.push(b'\n');
    let mut output = io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::abort();
    }
}

//! The thread that writes a checkpoint when the log has grown, when disk tables have many rows in memory, or
//! from time to time.
//!
//! It keeps the engine alive only while it works, and ends with it. A checkpoint that fails is tried
//! again after the interval; writes do not depend on it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use lockstep_host::Threads;

use crate::{Database, compaction_thread, database::EngineState, store::OpenDirectory};

/// How often the thread looks at the log.
const LOOK_MS: u32 = 200;
/// How often it looks whether a write waits for memory.
const WAITING_LOOK_MS: u32 = 10;
/// After a checkpoint that failed, none is written for so long because disk tables have many rows in memory.
const RETRY_NS: u64 = 10_000_000_000;
/// A write waits for so long until rows of disk tables have left memory.
const FLUSH_WAIT_MS: u32 = 10_000;

/// When checkpoints are written automatically; zero: not for this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointRule {
    /// When the log has so many bytes.
    pub(crate) log_bytes: u64,
    /// After so long, if anything was logged since.
    pub(crate) interval_ms: u64,
}

/// Tells the thread to end.
#[derive(Debug, Default)]
pub(crate) struct CheckpointThread {
    is_over: Arc<AtomicBool>,
    flush: Arc<FlushRequest>,
}

/// What writes tell the thread that wait for memory.
#[derive(Debug, Default)]
pub(crate) struct FlushRequest {
    is_wanted: AtomicBool,
    /// The number of checkpoints that were written.
    written: AtomicU64,
    /// Whether the thread runs.
    has_thread: AtomicBool,
}

impl FlushRequest {
    /// Waits for a checkpoint that is yet to begin. Returns whether there was one.
    pub(crate) fn wait(&self) -> bool {
        // Relaxed, here and below: they guard no data. One that is being written may have begun before.
        if !self.has_thread.load(Ordering::Relaxed) {
            return false;
        }
        let before = self.written.load(Ordering::Relaxed);
        self.is_wanted.store(true, Ordering::Relaxed);
        for _ in 0..FLUSH_WAIT_MS / WAITING_LOOK_MS {
            lockstep_host::pause(WAITING_LOOK_MS);
            if self.written.load(Ordering::Relaxed) != before {
                return true;
            }
        }
        false
    }

    /// Lets a checkpoint begin soon. Does not wait.
    pub(crate) fn begin(&self) {
        // Relaxed: it guards no data.
        self.is_wanted.store(true, Ordering::Relaxed);
    }
}

impl CheckpointThread {
    /// Starts the thread. Without one, only CHECKPOINT writes them.
    pub(crate) fn start(&self, threads: Threads, engine: Weak<EngineState>) {
        let (is_over, flush) = (Arc::clone(&self.is_over), Arc::clone(&self.flush));
        compaction_thread::start(threads, Weak::clone(&engine), Arc::clone(&is_over));
        let started = threads.spawn_background("lockstep-checkpoint", move || {
            run(&engine, &is_over, &flush);
        });
        // Relaxed: see `FlushRequest::wait`.
        self.flush.has_thread.store(started.is_ok(), Ordering::Relaxed);
        if started.is_err() {
            lockstep_host::log::warn(
                "could not start the checkpoint thread; only CHECKPOINT writes checkpoints",
            );
        }
    }

    /// Returns what tells threads of the directory to end.
    pub(crate) fn is_over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_over)
    }

    /// Returns what writes tell the thread.
    pub(crate) fn flush_request(&self) -> &Arc<FlushRequest> {
        &self.flush
    }

    /// Ends the thread after its current work.
    pub(crate) fn end(&self) {
        self.flush.has_thread.store(false, Ordering::Relaxed);
        // Relaxed: it guards no data.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// What the thread knows of the last checkpoint.
#[derive(Debug, Default)]
struct CheckpointSchedule {
    /// When it was written; when the thread began, before there is one.
    written_at_ns: Option<u64>,
    /// The end of the log then.
    written_to: u64,
    /// What it has left of the log: a segment is removed as a whole.
    left_bytes: u64,
}

/// The log when the thread looks at it.
#[derive(Debug, Clone, Copy)]
struct LogState {
    now_ns: u64,
    end: u64,
    bytes: u64,
}

impl CheckpointSchedule {
    /// Returns whether a checkpoint is to be written.
    fn is_due(&mut self, log: LogState, rule: CheckpointRule) -> bool {
        let since_ns = log.now_ns - *self.written_at_ns.get_or_insert(log.now_ns);
        self.left_bytes = self.left_bytes.min(log.bytes);
        let is_long = rule.log_bytes > 0 && log.bytes - self.left_bytes > rule.log_bytes;
        let is_late = rule.interval_ms > 0 && since_ns / 1_000_000 >= rule.interval_ms;
        log.end != self.written_to && (is_long || is_late)
    }

    /// Notes a checkpoint: the log before it, and after it; `is_written` says whether it succeeded.
    fn note(&mut self, before: LogState, after: LogState, is_written: bool) {
        if is_written {
            self.written_to = before.end;
        }
        self.left_bytes = after.bytes;
        self.written_at_ns = Some(after.now_ns);
    }
}

/// Writes checkpoints until the engine is closed or dropped.
fn run(engine: &Weak<EngineState>, is_over: &AtomicBool, flush: &FlushRequest) {
    let mut schedule = CheckpointSchedule::default();
    // The end of the log when it was found to be mostly of rows that are gone.
    let mut gone_to = 0;
    let mut failed_ns: Option<u64> = None;
    // Whether rows may have been freed since the last look that readers had held when their files were installed.
    let mut has_freed = false;
    loop {
        for _ in 0..LOOK_MS / WAITING_LOOK_MS {
            lockstep_host::pause(WAITING_LOOK_MS);
            // Relaxed, here and below: it guards no data.
            if flush.is_wanted.load(Ordering::Relaxed) || is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        // Relaxed: it guards no data.
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Some(engine) = engine.upgrade() else { return };
        let database = Database::unowned(engine);
        let look = || LogState {
            now_ns: database.clock().monotonic_ns(),
            end: database.arrivals().next(),
            bytes: database.store().map_or(0, OpenDirectory::log_bytes),
        };
        let before = look();
        database.pace_writes();
        let rule = database.objects().variables().checkpoints();
        let is_gone = rule.log_bytes > 0 && before.end != gone_to && database.logs_what_is_gone();
        if is_gone {
            gone_to = before.end;
        }
        let is_wanted = flush.is_wanted.swap(false, Ordering::Relaxed);
        let has_failed = failed_ns.is_some_and(|at| before.now_ns - at < RETRY_NS);
        let is_full = is_wanted || (!has_failed && database.disk_tables_are_full());
        if !schedule.is_due(before, rule) && !is_gone && !is_full {
            if std::mem::take(&mut has_freed) {
                lockstep_table::reclaim();
                lockstep_host::memory::give_back();
            }
            continue;
        }
        has_freed = true;
        let written = database.checkpoint();
        if let Err(error) = &written {
            lockstep_host::log::warn(&format!("checkpoint failed: {}", error.message));
        }
        failed_ns = written.is_err().then_some(before.now_ns);
        schedule.note(before, look(), written.is_ok());
        // Relaxed: see `FlushRequest::wait`.
        flush.written.fetch_add(u64::from(written.is_ok()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckpointRule, CheckpointSchedule, LogState};

    /// Looks every 200 ms at a log that grows by so many bytes meanwhile, and of which a checkpoint
    /// leaves a segment of 64 MiB. Returns at which looks a checkpoint was written.
    fn check(rule: CheckpointRule, grown: u64, looks: u64) -> Vec<u64> {
        const SEGMENT_BYTES: u64 = 64 << 20;
        let mut schedule = CheckpointSchedule::default();
        let (mut bytes, mut end, mut written) = (SEGMENT_BYTES, 1, Vec::new());
        for look in 0..looks {
            bytes += grown;
            end += grown;
            let log = LogState { now_ns: look * 200_000_000, end, bytes };
            if schedule.is_due(log, rule) {
                bytes = bytes.min(SEGMENT_BYTES);
                schedule.note(log, LogState { bytes, ..log }, true);
                written.push(look);
            }
        }
        written
    }

    #[test]
    fn a_size_below_that_of_a_segment_is_counted_from_the_last_checkpoint() {
        let rule = CheckpointRule { log_bytes: 1 << 20, interval_ms: 0 };
        // What is left of the log is larger than the size, and yet nothing is written at each look.
        assert_eq!(check(rule, 0, 10), [0], "once for what is there");
        assert_eq!(check(rule, 1 << 18, 15), [0, 5, 10]);
        assert_eq!(check(CheckpointRule { log_bytes: 0, ..rule }, 1 << 30, 9), [0; 0]);
    }

    #[test]
    fn a_checkpoint_is_written_after_the_interval_if_anything_was_logged() {
        let rule = CheckpointRule { log_bytes: 0, interval_ms: 1_000 };
        assert_eq!(check(rule, 1, 12), [5, 10]);
        assert_eq!(check(rule, 0, 12), [5], "once for what is there");
    }

    #[test]
    fn a_checkpoint_that_failed_is_tried_again_when_the_log_has_grown() {
        let rule = CheckpointRule { log_bytes: 10, interval_ms: 0 };
        let mut schedule = CheckpointSchedule::default();
        let log = LogState { now_ns: 0, end: 1, bytes: 11 };
        assert!(schedule.is_due(log, rule));
        schedule.note(log, log, false);
        assert!(!schedule.is_due(log, rule), "writes do not depend on it");
        assert!(schedule.is_due(LogState { end: 2, bytes: 22, ..log }, rule));
    }
}

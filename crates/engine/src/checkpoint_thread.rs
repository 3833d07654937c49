//! The thread that writes a checkpoint when the log has grown, or from time to time.
//!
//! It keeps the engine alive only while it works, and ends with it. A checkpoint that fails is tried
//! again after the interval; writes do not depend on it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use crate::{Database, database::EngineState, store::OpenDirectory};

/// How often the thread looks at the log.
const LOOK_MS: u32 = 200;

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
}

impl CheckpointThread {
    /// Starts the thread. Without one, only CHECKPOINT writes them.
    pub(crate) fn start(&self, engine: Weak<EngineState>) {
        let is_over = Arc::clone(&self.is_over);
        let started = lockstep_host::spawn_background("lockstep-checkpoint", move || {
            run(&engine, &is_over);
        });
        if started.is_err() {
            lockstep_host::log::warn("no thread writes checkpoints: CHECKPOINT does");
        }
    }

    /// Ends the thread after its current work.
    pub(crate) fn end(&self) {
        // Relaxed: it guards no data.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Writes checkpoints until the engine is closed or dropped.
fn run(engine: &Weak<EngineState>, is_over: &AtomicBool) {
    // The end of the log when a checkpoint was written last.
    let (mut written_at_ns, mut written_to) = (None, 0);
    // What that checkpoint has left of the log.
    let mut left_bytes = 0;
    loop {
        lockstep_host::pause(LOOK_MS);
        // Relaxed: it guards no data.
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Some(engine) = engine.upgrade() else { return };
        let database = Database::unowned(engine);
        let (now_ns, end) = (database.clock().monotonic_ns(), database.arrivals().next());
        let begun_ns = *written_at_ns.get_or_insert(now_ns);
        let log_bytes = database.store().map_or(0, OpenDirectory::log_bytes);
        left_bytes = left_bytes.min(log_bytes);
        if end == written_to || !is_due(&database, log_bytes - left_bytes, now_ns - begun_ns) {
            continue;
        }
        match database.checkpoint() {
            Ok(_) => written_to = end,
            Err(error) => {
                lockstep_host::log::warn(&format!("a checkpoint failed: {}", error.message));
            }
        }
        left_bytes = database.store().map_or(0, OpenDirectory::log_bytes);
        written_at_ns = Some(database.clock().monotonic_ns());
    }
}

/// Whether a checkpoint is to be written.
fn is_due(database: &Database, grown_bytes: u64, since_ns: u64) -> bool {
    let CheckpointRule { log_bytes, interval_ms } = database.objects().variables().checkpoints();
    let is_long = log_bytes > 0 && grown_bytes > log_bytes;
    is_long || (interval_ms > 0 && since_ns / 1_000_000 >= interval_ms)
}

//! The thread that looks after a log: syncs what nobody waits for, creates the next segment, and
//! brings in the pages that will be written next.
//!
//! What fails here is not reported here: a failed sync has stopped the log, and a segment that could
//! not be created is tried again by the append that needs it.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use lockstep_host::{JoinHandle, OwnerProcess};

use crate::log::LogCore;

/// How far the log goes between two wakes, in bytes.
const STEP_BYTES: u64 = 1 << 20;

/// Wakes the thread.
#[derive(Debug)]
pub(crate) struct Wake(SyncSender<Request>);

/// Why the thread is woken.
#[derive(Debug)]
pub(crate) enum Request {
    LookAhead,
    Stop,
}

impl Wake {
    pub(crate) fn new() -> (Self, Receiver<Request>) {
        let (sender, receiver) = sync_channel(1);
        (Self(sender), receiver)
    }

    /// Wakes the thread when an append has gone on into another step.
    pub(crate) fn after_append(&self, before: u64, after: u64) {
        if before / STEP_BYTES != after / STEP_BYTES {
            self.now();
        }
    }

    pub(crate) fn now(&self) {
        // When it is woken already, or when there is no thread, nothing is to be done.
        let _woken = self.0.try_send(Request::LookAhead);
    }
}

/// The thread, which ends when this is dropped. A process that was forked has no such thread.
#[derive(Debug)]
pub(crate) struct Background {
    owner: OwnerProcess,
    wake: SyncSender<Request>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(inner: Arc<LogCore>, woken: Receiver<Request>) -> io::Result<Self> {
        let wake = inner.wake().0.clone();
        let thread = inner.threads().spawn("log", move || run(&inner, &woken))?;
        Ok(Self { owner: OwnerProcess::current(), wake, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // Neither joined nor detached: what the handle refers to is not there.
            let _handle = Box::leak(Box::new(self.thread.take()));
            return;
        }
        // Fails when the thread has panicked, and so does the join.
        let _stopped = self.wake.send(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn run(inner: &LogCore, woken: &Receiver<Request>) {
    let clock = inner.clock();
    let mut ticked_ns = clock.monotonic_ns();
    inner.look_ahead(STEP_BYTES);
    loop {
        // Anew each time: who changes the window wakes the thread.
        let tick_at_ns = ticked_ns + u64::from(inner.durability_window_ms()) * 1_000_000;
        let left_ns = tick_at_ns.saturating_sub(clock.monotonic_ns());
        match woken.recv_timeout(Duration::from_nanos(left_ns)) {
            Ok(Request::LookAhead) => inner.look_ahead(STEP_BYTES),
            Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if clock.monotonic_ns() >= tick_at_ns {
            let _stopped = inner.tick();
            ticked_ns = clock.monotonic_ns();
        }
    }
    let _stopped = inner.tick();
}

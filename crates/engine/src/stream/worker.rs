//! The thread of a stream, its state and its figures.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use lockstep_diagnostic::Result;
use lockstep_host::{QueryContext, Threads, sync::Mutex};
use lockstep_table::TailSignal;

use super::{
    Stream,
    run::{RunStep, StreamRun},
};
use crate::{Database, database::EngineState, guard::guarded};

/// How long a stream that has read all rows waits for more before it looks whether it is to end.
const WAIT: Duration = Duration::from_millis(50);
/// How long a stream waits before it tries again to store rows for which memory was lacking.
const RETRY_MS: u32 = 200;

/// The thread of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamWorker {
    is_over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Wakes the thread.
    signal: Mutex<Option<Arc<TailSignal>>>,
    /// Shared with the streams that take the place of this one.
    figures: Arc<Mutex<StreamFigures>>,
}

/// What a stream does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// STOP STREAM has stopped it, or the engine has no threads for streams.
    #[default]
    Stopped,
    /// It runs.
    Running,
    /// Its rows cannot be stored now; it tries again.
    Waiting,
    /// It cannot go on.
    Failed,
}

impl StreamState {
    /// Returns the state as SHOW STREAMS has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// How far a stream is, and what it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamFigures {
    pub(crate) state: StreamState,
    /// How often it has read all rows that there were.
    pub(crate) rounds: u64,
    /// Why it waits, or has failed.
    pub(crate) error: Option<String>,
    pub(crate) rows_read: u64,
    pub(crate) rows_written: u64,
    pub(crate) rows_late: u64,
    pub(crate) watermark: Option<i64>,
    /// The newest event time of all sources.
    pub(crate) newest: Option<i64>,
    /// The rows that are not final.
    pub(crate) rows_waiting: usize,
    /// The rows that frames may hold.
    pub(crate) rows_kept: usize,
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

impl StreamFigures {
    /// Returns the newest event time less the watermark.
    pub(crate) fn lag_ms(&self) -> Option<i64> {
        Some(self.newest?.saturating_sub(self.watermark?))
    }
}

impl StreamWorker {
    /// Returns a worker for the stream that takes the place of this one's.
    pub(crate) fn successor(&self) -> Self {
        Self { figures: Arc::clone(&self.figures), ..Self::default() }
    }

    /// Changes or reads the figures.
    pub(crate) fn figures<T>(&self, with: impl FnOnce(&mut StreamFigures) -> T) -> T {
        with(&mut self.figures.lock())
    }

    /// Starts the thread of a stream, unless it is stopped or the engine only reads. An engine without threads runs it
    /// in [`Self::run_here`].
    pub(crate) fn start(stream: &Arc<Stream>, database: &Database) {
        let is_read_only = database.store().is_some_and(|store| store.is_read_only());
        let state = match stream.is_stopped || is_read_only {
            true => StreamState::Stopped,
            false => StreamState::Running,
        };
        stream.worker.figures(|figures| (figures.state, figures.error) = (state, None));
        let threads = database.host().threads;
        if state == StreamState::Stopped || threads == Threads::None {
            return;
        }
        let (engine, of_thread) = (database.downgrade(), Arc::clone(stream));
        let is_over = Arc::clone(&stream.worker.is_over);
        let mut thread = stream.worker.thread.lock();
        // Relaxed: it guards no data.
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let started = threads.spawn("lockstep-stream", move || {
            run(&of_thread, &engine, &is_over);
        });
        match started {
            Ok(started) => *thread = Some(started),
            Err(error) => stream.worker.figures(|figures| {
                figures.state = StreamState::Failed;
                figures.error = Some(format!("could not start a thread: {error}"));
            }),
        }
    }

    /// Waits until the stream has read all rows that are stored now; or until it stops.
    pub(crate) fn settle(&self) {
        let look = || self.figures(|figures| (figures.state, figures.rounds));
        // The round that has begun already may have missed some.
        let enough = look().1 + 2;
        while let (StreamState::Running, rounds) = look()
            && rounds < enough
        {
            self.wake();
            lockstep_host::pause(1);
        }
    }

    /// Wakes the thread if it waits for rows.
    fn wake(&self) {
        if let Some(signal) = &*self.signal.lock() {
            signal.raise();
        }
    }

    /// Runs a stream on this thread until it has read all rows: for an engine without threads.
    pub(crate) fn run_here(stream: &Stream, database: &Database) {
        let is_running = stream.worker.figures(|figures| figures.state == StreamState::Running);
        let mut run = None;
        let mut last = if is_running { Ok(RunStep::Busy) } else { return };
        while last == Ok(RunStep::Busy) {
            last = step(stream, database, &mut run, false);
        }
        let ended = last.and_then(|_| step(stream, database, &mut run, true));
        if let Err(error) = ended {
            note_state(stream, StreamState::Failed, Some(&error.to_string()));
        }
    }

    /// Ends the thread after its current step.
    pub(crate) fn end(&self) {
        // Relaxed: it guards no data; joining the thread orders what it has done.
        self.is_over.store(true, Ordering::Relaxed);
        self.wake();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread is in the figures.
            let _ended = thread.join();
        }
    }
}

/// Runs a stream until it is to end, or cannot go on.
fn run(stream: &Stream, engine: &Weak<EngineState>, is_over: &AtomicBool) {
    let mut run: Option<StreamRun> = None;
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let database = Database::unowned(engine);
        // Relaxed: it guards no data.
        let is_last = is_over.load(Ordering::Relaxed);
        let step = step(stream, &database, &mut run, is_last);
        drop(database);
        match step {
            Ok(RunStep::Busy) => note_state(stream, StreamState::Running, None),
            Ok(RunStep::CaughtUp) if !is_last => {
                note_state(stream, StreamState::Running, None);
                stream.worker.figures(|figures| figures.rounds += 1);
                if let Some(run) = &run {
                    run.signal().wait(WAIT);
                }
            }
            Ok(RunStep::CaughtUp) => {}
            Err(error)
                if !is_last && run.as_ref().is_some_and(|run| run.is_tried_again(&error)) =>
            {
                note_state(stream, StreamState::Waiting, Some(error.message.as_str()));
                lockstep_host::pause(RETRY_MS);
            }
            Err(error) => {
                if !is_last {
                    let name = stream.name();
                    lockstep_host::log::warn(&format!("stream {name} failed: {}", error.message));
                }
                return note_state(stream, StreamState::Failed, Some(&error.to_string()));
            }
        }
        if is_last {
            return note_state(stream, StreamState::Stopped, None);
        }
    }
}

fn step(
    stream: &Stream,
    database: &Database,
    run: &mut Option<StreamRun>,
    is_last: bool,
) -> Result<RunStep> {
    QueryContext::new().run(|| {
        guarded(|| match run {
            Some(run) if is_last => run.end(stream, database).map(|()| RunStep::CaughtUp),
            Some(run) => run.step(stream, database),
            None if is_last => Ok(RunStep::CaughtUp),
            None => {
                let begun = StreamRun::new(stream, database)?;
                *stream.worker.signal.lock() = Some(Arc::clone(begun.signal()));
                *run = Some(begun);
                Ok(RunStep::Busy)
            }
        })
    })
}

fn note_state(stream: &Stream, state: StreamState, error: Option<&str>) {
    stream.worker.figures(|figures| {
        figures.state = state;
        if figures.error.as_deref() != error {
            figures.error = error.map(str::to_owned);
        }
    });
}

//! Work that goes on by itself: the thread of a stream, of a source or of a sink, its state and its figures.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::{QueryContext, Threads, sync::Mutex};
use lockstep_table::TailSignal;

use crate::{Database, database::EngineState, guard::guarded};

/// How long work that has read all rows waits for more before it looks whether it is to end.
const WAIT: Duration = Duration::from_millis(50);
/// How long work that has failed for a reason that may pass waits before it tries again, and how often that is doubled
/// while it fails.
const RETRY_MS: u32 = 200;
const DOUBLINGS_MAX: u32 = 3;

/// An object of the catalog that works by itself.
pub(crate) trait BackgroundWork: Send + Sync + Sized + 'static {
    /// What it has while it runs.
    type Run;
    /// Its figures.
    type Figures: std::fmt::Debug + Clone + Default + Send + 'static;
    /// Whether a step that waits for another system is interrupted where the work is to end.
    const IS_INTERRUPTED: bool;

    /// Returns its kind and its name, for messages.
    fn title(&self) -> String;
    /// Returns the name of its thread.
    fn thread_name(&self) -> &'static str;
    /// Whether a statement has stopped it.
    fn is_stopped(&self) -> bool;
    fn worker(&self) -> &Worker<Self::Figures>;
    /// Begins where the last run has ended.
    fn begin(&self, database: &Database) -> Result<Self::Run>;
    /// Reads some rows, and stores what follows from them.
    fn step(&self, run: &mut Self::Run, database: &Database) -> Result<WorkStep>;
    /// Stores what is to be known by the next run.
    fn end(&self, run: &mut Self::Run, database: &Database) -> Result<()>;
    /// Returns what is raised when there are rows to read; `None` where a step waits by itself.
    fn signal(run: &Self::Run) -> Option<&Arc<TailSignal>>;
    /// Returns how to go on after an error; `run` is `None` where it could not begin.
    fn after(&self, run: Option<&Self::Run>, error: &Diagnostic) -> Retry;
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkStep {
    /// There may be more to do at once.
    Busy,
    /// All rows were read.
    CaughtUp,
}

/// What follows an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It has failed.
    Never,
    /// The run goes on.
    SameRun,
    /// Another run begins where the last one has stored what it did.
    NewRun,
}

/// The thread of a stream, a source or a sink.
#[derive(Debug, Default)]
pub(crate) struct Worker<F> {
    is_over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Wakes the thread.
    signal: Mutex<Option<Arc<TailSignal>>>,
    /// The context of the step that runs.
    context: Mutex<Option<QueryContext>>,
    /// Shared with what takes the place of this one.
    shared: Arc<Mutex<WorkFigures<F>>>,
}

/// How far it is, and what it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkFigures<F> {
    pub(crate) state: WorkerState,
    /// How often it has read all rows that there were.
    rounds: u64,
    /// Why it waits, or has failed.
    pub(crate) error: Option<String>,
    pub(crate) own: F,
}

/// What it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// A statement has stopped it, or the engine has no threads for it.
    #[default]
    Stopped,
    /// It runs.
    Running,
    /// It cannot go on now, and tries again.
    Waiting,
    /// It cannot go on.
    Failed,
}

impl WorkerState {
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

impl<F: std::fmt::Debug + Clone + Default + Send + 'static> Worker<F> {
    /// Returns a worker for what takes the place of this one.
    pub(crate) fn successor(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..Self::default() }
    }

    /// Changes or reads the figures.
    pub(crate) fn figures<T>(&self, with: impl FnOnce(&mut WorkFigures<F>) -> T) -> T {
        with(&mut self.shared.lock())
    }

    /// Starts the thread of some work, unless it is stopped or the engine only reads. An engine without threads runs it
    /// in [`Self::run_here`].
    pub(crate) fn start<W: BackgroundWork<Figures = F>>(work: &Arc<W>, database: &Database) {
        let is_read_only = database.store().is_some_and(|store| store.is_read_only());
        let state = match work.is_stopped() || is_read_only {
            true => WorkerState::Stopped,
            false => WorkerState::Running,
        };
        let worker = work.worker();
        worker.figures(|figures| (figures.state, figures.error) = (state, None));
        let threads = database.host().threads;
        if state == WorkerState::Stopped || threads == Threads::None {
            return;
        }
        let (engine, of_thread) = (database.downgrade(), Arc::clone(work));
        let mut thread = worker.thread.lock();
        // Relaxed: it guards no data.
        if worker.is_over.load(Ordering::Relaxed) {
            return;
        }
        debug_assert!(thread.is_none(), "it is started once");
        let started = threads.spawn(work.thread_name(), move || run(&*of_thread, &engine));
        match started {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                let error = format!("could not start a thread: {error}");
                worker.note_state(WorkerState::Failed, Some(&error));
            }
        }
    }

    /// Waits until it has read all rows that are stored now; or until it stops.
    pub(crate) fn settle(&self) {
        let look = || self.figures(|figures| (figures.state, figures.rounds));
        debug_assert!(!self.is_over(), "what has ended reads no rows");
        // The round that has begun already may have missed some.
        let enough = look().1 + 2;
        while let (WorkerState::Running, rounds) = look()
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

    /// Runs some work on this thread until it has read all rows: for an engine without threads.
    pub(crate) fn run_here<W: BackgroundWork<Figures = F>>(work: &W, database: &Database) {
        let is_running = work.worker().figures(|figures| figures.state == WorkerState::Running);
        let mut run = None;
        let mut last = if is_running { Ok(WorkStep::Busy) } else { return };
        while last == Ok(WorkStep::Busy) {
            last = step(work, database, &mut run, false);
        }
        let ended = last.and_then(|_| step(work, database, &mut run, true));
        if let Err(error) = ended {
            work.worker().note_state(WorkerState::Failed, Some(&reason(&error)));
        }
    }

    /// Ends the thread after its current step.
    pub(crate) fn end<W: BackgroundWork<Figures = F>>(work: &W) {
        let worker = work.worker();
        // Relaxed: it guards no data; joining the thread orders what it has done.
        worker.is_over.store(true, Ordering::Relaxed);
        worker.wake();
        if W::IS_INTERRUPTED
            && let Some(context) = &*worker.context.lock()
        {
            context.cancel();
        }
        let thread = worker.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread is in the figures.
            let _ended = thread.join();
        }
    }

    fn note_state(&self, state: WorkerState, error: Option<&str>) {
        self.figures(|figures| {
            figures.state = state;
            if figures.error.as_deref() != error {
                figures.error = error.map(str::to_owned);
            }
        });
    }

    /// Waits after so many failures in a row; not after it is to end.
    fn wait_to_retry(&self, failures: u32) {
        for _ in 0..1_u32 << failures.min(DOUBLINGS_MAX) {
            if self.is_over() {
                return;
            }
            lockstep_host::pause(RETRY_MS);
        }
    }

    fn is_over(&self) -> bool {
        // Relaxed: it guards no data.
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Works until it is to end, or cannot go on.
fn run<W: BackgroundWork>(work: &W, engine: &Weak<EngineState>) {
    let worker = work.worker();
    let mut run: Option<W::Run> = None;
    let mut failures = 0;
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let database = Database::unowned(engine);
        let is_last = worker.is_over();
        let step = step(work, &database, &mut run, is_last);
        drop(database);
        if step.is_ok() {
            failures = 0;
        }
        match step {
            Ok(WorkStep::Busy) => worker.note_state(WorkerState::Running, None),
            Ok(WorkStep::CaughtUp) if !is_last => {
                worker.note_state(WorkerState::Running, None);
                worker.figures(|figures| figures.rounds += 1);
                if let Some(signal) = run.as_ref().and_then(W::signal) {
                    signal.wait(WAIT);
                }
            }
            Ok(WorkStep::CaughtUp) => {}
            Err(error) if !is_last && worker.is_over() && error.code == code::QUERY_CANCELED => {}
            Err(error) => {
                let retry = if is_last { Retry::Never } else { work.after(run.as_ref(), &error) };
                let (title, reason) = (work.title(), reason(&error));
                if retry == Retry::Never {
                    if !is_last {
                        lockstep_host::log::warn(&format!("{title} failed: {reason}"));
                    }
                    return worker.note_state(WorkerState::Failed, Some(&reason));
                }
                if retry == Retry::NewRun {
                    run = None;
                }
                if failures == 0 {
                    lockstep_host::log::warn(&format!("{title} waits: {reason}"));
                }
                worker.note_state(WorkerState::Waiting, Some(&reason));
                worker.wait_to_retry(failures);
                failures += 1;
            }
        }
        if is_last {
            return worker.note_state(WorkerState::Stopped, None);
        }
    }
}

/// Returns why work waits or has failed.
fn reason(error: &Diagnostic) -> String {
    match &error.detail {
        Some(detail) => format!("{}. {detail}", error.message),
        None => error.message.clone(),
    }
}

fn step<W: BackgroundWork>(
    work: &W,
    database: &Database,
    run: &mut Option<W::Run>,
    is_last: bool,
) -> Result<WorkStep> {
    let worker = work.worker();
    let context = QueryContext::new();
    *worker.context.lock() = (!is_last).then(|| context.clone());
    if W::IS_INTERRUPTED && !is_last && worker.is_over() {
        // It was to end after it looked, and before its context was known.
        context.cancel();
    }
    context.run(|| {
        guarded(|| match run {
            Some(run) if is_last => work.end(run, database).map(|()| WorkStep::CaughtUp),
            Some(run) => work.step(run, database),
            None if is_last => Ok(WorkStep::CaughtUp),
            None => {
                let begun = work.begin(database)?;
                *worker.signal.lock() = W::signal(&begun).map(Arc::clone);
                *run = Some(begun);
                Ok(WorkStep::Busy)
            }
        })
    })
}

//! Starting threads, which have names and may have a low priority.

use std::{
    cell::Cell,
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

pub use std::thread::JoinHandle;

use crate::query;

/// The nice value of a background thread. It gets a tenth of a processor that other threads need too,
/// and all of an idle one.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

/// How often a call that waits for its background thread checks whether it was cancelled.
const WAIT_MS: u64 = 5;

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
    static LEAVES_TASKS: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread; the name is what a debugger and a panic message show. Fails when the machine
/// gives no further thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    debug_assert!(!name.is_empty(), "a thread has a name");
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Starts a thread of low priority, which leaves the processor to other threads.
pub fn spawn_background<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn(name, || {
        lower_priority();
        body()
    })
}

/// Starts a thread that has a processor only while no other thread needs it, and so have the threads
/// that it starts. It must not hold a lock for which threads of a higher priority wait, since it may
/// not go on before they have ended their work.
pub fn spawn_idle<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn(name, || {
        become_idle();
        body()
    })
}

/// Has the current thread leave what it would compute together with others to idle threads: it may hold
/// locks for which threads of a higher priority wait, and those do not.
pub fn leave_tasks_to_idle_threads() {
    LEAVES_TASKS.set(true);
}

/// Returns whether the current thread leaves its tasks to idle threads.
pub fn leaves_tasks_to_idle_threads() -> bool {
    LEAVES_TASKS.get()
}

/// Gives the current thread a processor only while no other thread needs it, as those of [`spawn_idle`]
/// have. There is no way back.
///
/// A thread with the lowest of priorities is interrupted when another one has work, while one that is
/// only less important goes on until its slice of some milliseconds has passed.
#[cfg(target_os = "linux")]
pub fn become_idle() {
    lower_priority();
    // SAFETY: numbers only; the priority is 0, as the policy requires.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter is read while the call runs; 0 is the current thread.
    let _refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) };
}

/// Gives the current thread a low priority.
#[cfg(not(target_os = "linux"))]
pub fn become_idle() {
    lower_priority();
}

/// Runs long work of a call on a separate thread of low priority, which leaves the processor to other
/// threads, and waits for it. The call's context is set there too; its poll function is called on this
/// thread. Runs the work here when the machine gives no further thread.
pub fn in_background<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let context = query::current();
    let (caller, mut work) = (thread::current(), Some(work));
    let (slot, is_done) = (&mut work, AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        let worker_context = context.clone();
        let is_done = &is_done;
        let body = move || {
            let work = slot.take().expect("only the worker takes it");
            become_background();
            lower_priority();
            let _done = DoneSignal { is_done, caller };
            match worker_context {
                Some(context) => context.run(work),
                None => work(),
            }
        };
        let worker = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body).ok()?;
        // Acquire: what the worker did is read afterwards, though joining it orders that as well.
        while !is_done.load(Ordering::Acquire) {
            thread::park_timeout(Duration::from_millis(WAIT_MS));
            if let Some(context) = &context {
                // A poll that returns true cancels the context, which the worker sees.
                let _interrupt = context.poll();
            }
        }
        Some(worker.join())
    });
    match outcome {
        Some(Ok(done)) => done,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => work.take().expect("no thread took it")(),
    }
}

/// Has the current thread, which works for a call of another thread, only check whether the call was
/// cancelled.
pub(crate) fn become_background() {
    IS_BACKGROUND.set(true);
}

/// While it exists, the current thread only checks whether its call was cancelled.
pub(crate) struct BackgroundScope {
    was_background: bool,
}

impl BackgroundScope {
    pub(crate) fn begin() -> Self {
        Self { was_background: IS_BACKGROUND.replace(true) }
    }
}

impl Drop for BackgroundScope {
    fn drop(&mut self) {
        IS_BACKGROUND.set(self.was_background);
    }
}

/// Returns whether this thread only checks whether its call was cancelled: one of [`in_background`], one that
/// [`become_background`] was called on, or one in a [`BackgroundScope`].
pub(crate) fn is_background() -> bool {
    IS_BACKGROUND.get()
}

/// Notifies the waiting thread that the work is done, also when it panicked.
struct DoneSignal<'c> {
    is_done: &'c AtomicBool,
    caller: thread::Thread,
}

impl Drop for DoneSignal<'_> {
    fn drop(&mut self) {
        // Release: see the load.
        self.is_done.store(true, Ordering::Release);
        self.caller.unpark();
    }
}

/// Lowers the priority of the current thread.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // Linux sets the priority of each thread separately. Where it is not allowed, nothing is lost.
    let this = rustix::thread::gettid();
    let _refused = rustix::process::setpriority_process(Some(this), BACKGROUND_NICE);
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

/// Waits for so many milliseconds. For threads that poll from time to time.
#[expect(clippy::disallowed_methods, reason = "this is where threads wait")]
pub fn pause(ms: u32) {
    thread::sleep(Duration::from_millis(u64::from(ms)));
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use crate::{Clock, Interrupt, QueryContext, SystemClock, query::checkpoint};

    #[test]
    fn a_thread_has_its_name() {
        let thread = super::spawn("reader", || std::thread::current().name().map(str::to_owned));
        assert_eq!(thread.unwrap().join().unwrap().as_deref(), Some("reader"));
    }

    #[test]
    fn background_work_gives_its_value_and_its_panic() {
        let words = ["a".to_owned(), "b".to_owned()];
        let name = || std::thread::current().name().map(str::to_owned);
        let found = super::in_background("worker", || (words.join(" "), name()));
        assert_eq!(found, ("a b".to_owned(), Some("worker".to_owned())));
        let panic = std::panic::catch_unwind(|| super::in_background("worker", || panic!("oh")));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"oh"));
    }

    /// The nice value of this thread, where the system tells.
    #[cfg(target_os = "linux")]
    #[test]
    fn background_work_has_a_low_priority_and_who_waits_keeps_its_own() {
        let nice = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        let before = nice();
        let there = super::in_background("worker", nice);
        assert_eq!((there, nice()), (super::BACKGROUND_NICE.max(before), before));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_idle_thread_starts_idle_threads() {
        // SAFETY: it takes the number of a thread, and 0 is the current one.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let both = move || (policy(), super::spawn("child", policy).unwrap().join().unwrap());
        let idle = super::spawn_idle("idle", both).unwrap().join().unwrap();
        assert_eq!(idle, (libc::SCHED_IDLE, libc::SCHED_IDLE));
        let background = super::spawn_background("background", both).unwrap().join().unwrap();
        assert_eq!(background, (policy(), policy()));
    }

    #[test]
    fn background_work_ends_with_its_call() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&calls);
        let caller = std::thread::current().id();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let context = QueryContext::polling(clock, 1, move || {
            assert_eq!(std::thread::current().id(), caller);
            counts.fetch_add(1, Ordering::Relaxed) > 2
        });
        let ended = context.run(|| {
            let checks = std::iter::repeat_with(checkpoint);
            super::in_background("worker", || checks.into_iter().find_map(Result::err).unwrap())
        });
        assert_eq!(ended, Interrupt::Cancelled);
        assert!(calls.load(Ordering::Relaxed) > 2);
    }
}

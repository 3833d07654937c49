//! Failpoints: named places at which a test lets the process end, and bugs that a test seeds.
//!
//! Only a program that tests crashes arms a failpoint or seeds a bug, once, before it opens a
//! database. In every other process a place costs one relaxed load of a flag that never changes.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Whether anything was armed or seeded.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
/// The failpoint at which the process ends.
static ARMED: OnceLock<Armed> = OnceLock::new();
/// The bug that the process has.
static SEEDED: OnceLock<String> = OnceLock::new();

/// A failpoint that was armed.
struct Armed {
    name: String,
    /// How often it is still to be reached; the process ends when this becomes zero.
    left: AtomicU64,
}

/// Marks a place. The process ends here, as if it was killed, when the place was armed and is reached
/// as often as [`arm`] says.
#[inline]
pub fn reach(name: &str) {
    // Relaxed: what is armed is armed before other threads start.
    if IS_ACTIVE.load(Ordering::Relaxed) {
        count_down(name);
    }
}

/// Returns whether the process has a bug.
#[inline]
pub fn is_seeded(bug: &str) -> bool {
    // Relaxed: as above.
    IS_ACTIVE.load(Ordering::Relaxed) && SEEDED.get().is_some_and(|seeded| seeded == bug)
}

/// Lets the process end at the failpoint `name` when it is reached for the `count`th time from now on.
/// For programs that test crashes only. A second call changes nothing.
pub fn arm(name: &str, count: u64) {
    ARMED.get_or_init(|| Armed { name: name.to_owned(), left: AtomicU64::new(count) });
    // Relaxed: as above.
    IS_ACTIVE.store(true, Ordering::Relaxed);
}

/// Gives the process a bug. For programs that test crashes only. A second call changes nothing.
pub fn seed(bug: &str) {
    SEEDED.get_or_init(|| bug.to_owned());
    // Relaxed: as above.
    IS_ACTIVE.store(true, Ordering::Relaxed);
}

#[cold]
fn count_down(name: &str) {
    let Some(armed) = ARMED.get().filter(|armed| armed.name == name) else { return };
    // Relaxed: each thread that passes counts once, in any order.
    if armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        end();
    }
}

/// Ends the process as SIGKILL does: nothing is flushed, no destructor runs.
fn end() -> ! {
    #[cfg(target_os = "linux")]
    {
        let _sent =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    std::process::abort()
}

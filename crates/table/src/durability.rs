//! How durable a thread's writes are to be before they are acknowledged.
//!
//! `engine` sets it for a statement or a call, from what the call, the table or the session says.

use std::cell::Cell;

pub use lockstep_wal::Durability;

thread_local! {
    static DURABILITY: Cell<Durability> = const { Cell::new(Durability::Disk) };
}

/// Restores the thread's level when it is dropped.
struct DurabilityScope(Durability);

impl Drop for DurabilityScope {
    fn drop(&mut self) {
        DURABILITY.set(self.0);
    }
}

/// Runs `work` with writes of this thread waiting for this level. Without it they wait for the disk.
pub fn with_durability<T>(durability: Durability, work: impl FnOnce() -> T) -> T {
    let _restore = DurabilityScope(DURABILITY.replace(durability));
    work()
}

/// Returns the level that the thread's writes wait for.
pub fn durability() -> Durability {
    DURABILITY.get()
}

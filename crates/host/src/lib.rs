//! The machine: clock, threads, locks and files, in the one place that a simulator replaces.
//!
//! Everything above takes time, threads and files from here and never from `std`, which
//! `clippy.toml` enforces. This crate knows nothing of rows, tables or SQL.

mod clock;
pub mod disk;
pub mod failpoint;
pub mod file;
mod file_access;
mod handle;
pub mod log;
pub mod machine;
pub mod memory;
mod ordered;
mod process;
mod progress;
pub mod query;
pub mod random;
mod stack;
pub mod sync;
pub mod temporary;
mod thread;

pub use clock::{Clock, ManualClock, SystemClock};
pub use file_access::{FileAccess, RefusedFile};
pub use handle::{Host, RandomSource, SystemRandom, Threads};
pub use ordered::in_order;
pub use process::{OwnerProcess, PerProcess, fill_standard_streams};
pub use progress::{BlockReads, CallProgress, CallStep};
pub use query::{Interrupt, QueryContext, QueryLimits};
pub use stack::with_large_stack;
pub use thread::{
    JoinHandle, become_idle, in_background, leave_tasks_to_idle_threads,
    leaves_tasks_to_idle_threads, pause, spawn, spawn_background, spawn_idle,
};

//! Tests of the log on a simulated disk and on a real one.
//!
//! [`harness`] draws workloads, runs them and checks what a crash leaves; the others use it. What
//! fails says its seed.

mod bugs;
mod checkpoint;
mod concurrency;
mod crash;
mod damage;
mod faults;
mod harness;
mod plain;

//! Tests of the directory of a database and of its checkpoints, on a simulated disk and a real one.
//!
//! [`harness`] draws workloads, runs them and checks what a crash leaves; the others use it. What
//! fails says its seed.

mod bugs;
mod check;
mod copy;
mod crash;
mod damage;
mod faults;
mod harness;
mod opening;
mod plain;

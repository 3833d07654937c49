//! The durable engine on a simulated disk: crashes at every call, and calls that fail.
//!
//! A [`workload`] runs in a database on a [`lockstep_sim::SimulatedDisk`], and the same steps in one in
//! memory. What a crash leaves is opened again and has to answer as an engine in memory does that ran
//! the first so many steps ([`crash`]). When a call to the disk fails, the statement has to say so with
//! a stable code, and nobody may ever see what was refused ([`faults`]). Used by tests, with few steps,
//! and by `cargo xtask sim`, with many. A run is determined by its seed.
//!
//! | module | what |
//! |---|---|
//! | [`workload`] | steps: one of each kind, or drawn by a seed |
//! | [`run`] | steps run in a database on a disk, and what the database shows |
//! | [`model`] | what it has to show |
//! | [`crash`] | every state that a crash may leave |
//! | [`faults`] | the Nth call fails; no space |
//! | [`mutants`] | directories that nobody wrote: fuzzing of the readers |

pub mod crash;
pub mod faults;
pub mod model;
pub mod mutants;
pub mod run;
pub mod workload;

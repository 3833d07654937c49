//! The series' protocol under a model checker: every interleaving of a writer and a reader of one
//! key, and every value that the memory model lets an atomic load return, within a bound.
//!
//! The files checked are the crate's own (`row_ref`, `record`, `chunk`, `directory`, `entry`, `epoch`,
//! `swap`, and of `levels` the nodes of a key), compiled over loom's atomics. Chunks hold four rows at most here, so that few rows reach
//! every rule. Two parts are not the crate's: the bucket is one pointer, and a guard frees, in the models
//! of one key, when the execution is over, and in those of a value that is replaced, as soon as `epoch`
//! allows it. Run it with `cargo xtask model`.
#![cfg(test)]
#![allow(dead_code, unused_imports, reason = "the model uses a part of what these files offer")]

#[path = "../../src/chunk/mod.rs"]
mod chunk;
#[path = "../../src/directory.rs"]
mod directory;
#[path = "../../src/entry/mod.rs"]
mod entry;
#[path = "../../src/epoch.rs"]
mod epoch;
mod levels;
#[path = "../../src/record.rs"]
mod record;
#[path = "../../src/row_ref.rs"]
mod row_ref;
#[path = "../../src/swap.rs"]
mod swap;

use guard::Guard;
use swap::Swap;

mod guard;
mod swap_tests;
mod sync;
mod tests;

//! The series' protocol under a model checker: every interleaving of a writer and a reader of one
//! key, and every value that the memory model lets an atomic load return, within a bound.
//!
//! The files checked are the crate's own (`row_ref`, `record`, `chunk`, `spine`, `entry`), compiled over
//! loom's atomics. Chunks hold two rows at most here, so that few rows reach every rule. What is
//! not the crate's: the bucket is one pointer, and the epoch collector is a stand-in that frees
//! when the execution is over. Run it with `cargo xtask model`.
#![cfg(test)]
#![allow(dead_code, reason = "the model uses a part of what these files offer")]

#[path = "../../src/chunk.rs"]
mod chunk;
#[path = "../../src/entry.rs"]
mod entry;
#[path = "../../src/record.rs"]
mod record;
#[path = "../../src/row_ref.rs"]
mod row_ref;
#[path = "../../src/spine.rs"]
mod spine;

mod epoch;
mod sync;
mod tests;

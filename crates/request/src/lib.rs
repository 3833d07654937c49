//! Request mode: a logical plan compiled into a [`Program`], which computes the output row of one
//! request row from the stored rows.
//!
//! `engine` compiles a program per deployment. It runs in the caller's thread: no async runtime,
//! no socket, no wire format, and no lock while rows are read. What a window or a LAST JOIN means
//! is written down in `lockstep_plan`.
//!
//! | module | what |
//! |---|---|
//! | `program` | [`Program`]: compile, answer, explain |
//! | `compile` | plan to chains; which windows share a scan |
//! | `trace` | columns of a plan to columns of its leaf table |
//! | `chain` | the steps from a leaf row to an output row |
//! | `frame` | one row on its way, and expressions over it |
//! | `computation`, `machine` | expressions over it in machine code |
//! | `source` | the rows of a key, newest first, by index or otherwise |
//! | `kept` | rows of a source that have windows, each computed once for an answer |
//! | `window`, `progress` | one walk through them that serves several windows |
//! | `merge`, `block` | the rows of all sources in one order, and on their way to the windows |
//! | `fold`, `lane` | what the windows compute from blocks of rows |
//! | `join` | LAST JOIN |
//! | `materialise` | sub-plans that batch mode has to run |
//! | `whole` | requests that batch mode answers over all rows |
//! | `context` | what one answer works with |
//! | `batch`, `shared` | many requests over one view of the tables, and what they share |
//! | `replay`, `numbered` | stored rows as requests, each in its own place |
//! | `explain` | a program in words |

mod batch;
mod block;
mod chain;
mod compile;
mod computation;
mod context;
mod explain;
mod fold;
mod frame;
mod join;
mod kept;
mod lane;
mod machine;
mod materialise;
mod merge;
mod numbered;
mod program;
mod progress;
mod replay;
mod shared;
mod source;
mod trace;
mod unrolled;
mod whole;
mod window;

pub use batch::Batch;
pub use compile::Tables;
pub use materialise::BatchFallback;
pub use numbered::numbered;
pub use program::{Options, Program};
pub use replay::Replay;
pub use whole::reads_all_rows;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

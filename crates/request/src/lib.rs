//! Request mode: compiles a logical plan into a [`Program`], which computes the output row of one
//! request row from the stored rows.
//!
//! `engine` compiles a program for each deployment. It runs in the caller's thread: no async runtime,
//! no socket, no wire format, and no lock while rows are read. `lockstep_plan` defines what a window
//! and a LAST JOIN mean.
//!
//! | module | what |
//! |---|---|
//! | `program` | [`Program`]: compile, answer, explain |
//! | `compile` | plan to chains; which windows share a scan |
//! | `trace`, `plan_size` | questions about plans: where columns are stored, how large a program is |
//! | `chain` | the steps from a leaf row to an output row |
//! | `row_context` | one row inside a chain, and expressions over it |
//! | `computation`, `machine` | expressions in machine code |
//! | `source`, `row_cache` | the rows of a key, newest first, by index or otherwise |
//! | `window`, `progress`, `groups` | one scan for several windows, and their frames |
//! | `merge`, `block` | the rows of all sources of a scan in one order, and in blocks |
//! | `pre_aggregate`, `shadow_check` | partial results for windows of many rows, and their check |
//! | `aggregates`, `row_calls`, `inputs`, `lane` | what the windows compute from blocks of rows |
//! | `join` | LAST JOIN |
//! | `materialise` | sub-plans that batch mode runs |
//! | `all_rows` | queries that batch mode answers over all rows |
//! | `context`, `scratch` | the context and the memory of one answer |
//! | `batch`, `shared` | many requests over one view of the tables, and the results they share |
//! | `replay`, `row_numbers` | answers for stored rows, and which stored row a row comes from |
//! | `row_program` | programs of one row, for streams |
//! | `known` | answers for stored rows at the moments at which they arrived |
//! | `explain` | the text of EXPLAIN |

mod aggregates;
mod all_rows;
mod batch;
mod block;
mod chain;
mod compile;
mod computation;
mod context;
mod explain;
mod groups;
mod inputs;
mod join;
mod known;
mod lane;
mod machine;
mod materialise;
mod merge;
mod plan_size;
mod pre_aggregate;
mod program;
mod progress;
mod record_row;
mod replay;
mod row_cache;
mod row_calls;
mod row_context;
mod row_numbers;
mod row_program;
mod scratch;
mod shadow_check;
mod shared;
mod source;
mod trace;
mod window;

pub use all_rows::{answer_of_last_row, reads_all_rows};
pub use batch::RequestBatch;
pub use compile::TableResolver;
pub use known::{KnownAnswers, KnownMoment};
pub use materialise::{BatchFallback, PlanRunner, SeenSnapshots};
pub use pre_aggregate::{PreAggregate, PreAggregateName, PreAggregateUse, PreAggregation};
pub use program::{CompileOptions, Program};
pub use replay::{Replay, ReplayProgram};
pub use row_numbers::{gives_row_by_row, with_row_numbers};
pub use row_program::SingleRowProgram;
pub use shadow_check::{CheckOutcome, CheckShare};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

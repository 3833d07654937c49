//! Batch mode: a bound plan over the stored rows, and files in and out.
//!
//! `engine` calls it. A plan comes from `lockstep_plan`; DataFusion runs its native nodes, and
//! the operators here run windows and LAST JOIN. Every operator keeps the rows in order of arrival,
//! because arrival decides ties; parallelism is inside the operators. Nothing here knows a wire
//! protocol or changes a table.
//!
//! | file | what |
//! |---|---|
//! | `execute` | plan in, record batches out |
//! | `checked_rules` | rules of the optimizers that an interrupt ends |
//! | `lower` | rewrites of plan nodes for batch mode |
//! | `planner` | logical to physical plan |
//! | `table_reads` | which stored rows a query reads |
//! | `point_query` | queries that read a few rows by key |
//! | `scan` | stored rows as columns |
//! | `machine_memory` | the memory of the machine that a query may take |
//! | `shared_rows` | parts of a query that several others read |
//! | [`source`](ExternalRows) | files and Arrow objects as tables of a query |
//! | `spill` | rows of a query on disk |
//! | `temporary` | the files of these rows |
//! | `window` | the window operator |
//! | `last_join` | the LAST JOIN operator |
//! | `group_by` | the GROUP BY operator |
//! | `external_sort` | sorts of rows that do not fit into memory |
//! | `filter_pushdown` | the rule that moves filters towards the scans |
//! | `join_conditions` | conditions of WHERE as those of joins |
//! | `joins_on_disk` | joins over rows that do not fit into memory |
//! | [`load`] | files in: CSV, Parquet, JSON, Arrow IPC; tables of Delta and Iceberg |
//! | [`export`] | CSV and Parquet files out |

mod boundary;
mod checked_rules;
mod error;
mod execute;
pub mod export;
mod external_sort;
mod filter_pushdown;
mod group_by;
mod in_order;
mod interruptible;
mod join_conditions;
mod joins_on_disk;
mod key_index;
mod key_numbers;
mod last_join;
pub mod load;
mod lower;
mod machine_memory;
mod operator;
mod parallel;
mod planner;
mod point_query;
mod scan;
mod shared_rows;
mod sort_memory;
mod source;
mod spill;
mod table_reads;
mod temporary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod window;

pub use execute::{
    ExecuteOptions, ProgressListener, StoredTables, execute, execute_each, explain, index_reads,
    is_answered_by_key,
};
pub use operator::WindowSkew;
#[doc(hidden)]
pub use operator::set_parallel_rows_min;
pub use source::{ExternalRows, FileSourceOptions};
#[doc(hidden)]
pub use spill::{SpillAlways, set_spill_always};
pub use table_reads::IndexRead;

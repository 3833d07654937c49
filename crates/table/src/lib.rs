//! A table: its schema, its indexes and all of its rows in order of arrival.
//!
//! `engine` appends; `request` and `batch` read through a [`Snapshot`], which never waits for a
//! writer. Knows rows and indexes, not SQL.
//!
//! **Invariant:** an append is visible in all indexes or in none. **Invariant:** what a snapshot
//! shows by key is what it shows in order of arrival.

mod append;
mod arrival_set;
mod arrivals;
mod budget;
mod build;
mod change;
mod checkpoint;
mod commit_queue;
mod disk;
mod draft;
mod durability;
mod error;
mod estimate;
mod expired;
mod expiry_thread;
mod held_rows;
mod hold;
mod include;
mod index_counts;
mod key_rows;
mod levels;
mod load;
pub mod part;
mod publication;
mod read_error;
mod record;
mod replay;
mod rescue;
mod retention;
mod scan;
mod snapshot;
mod state;
mod table;
mod tail;
mod time_unit;

pub use append::Appended;
pub use arrivals::Arrivals;
pub use budget::{FlushCall, MemoryBudget, MemoryStatus, MemoryUse};
pub use checkpoint::{CheckpointBlock, FrozenTable};
#[doc(hidden)]
pub use disk::{DiskTuning, set_disk_tuning};
pub use disk::{FlushedTable, TableParts};
pub use durability::{Durability, durability, with_durability};
pub use error::TableError;
pub use estimate::{
    DiskEstimate, LevelsNeed, PartEstimate, TableShape, estimate, estimate_levels, estimate_on_disk,
};
pub use held_rows::{ColumnRange, HeldRows};
pub use hold::{IndexHold, IndexNeed, Provision, Widened};
pub use include::{INCLUDED_BYTES_MAX, Inclusion};
pub use index_counts::RowCounts;
pub use key_rows::{KeyRows, KeyRun};
pub use levels::{LevelsHold, LevelsWaker, RunFold};
pub use load::BulkLoad;
pub use lockstep_series::{
    KeyNodes, LevelKeys, LevelNode, LevelsSize, Maintained, NodeDictionary, NodeSpan, NodesTaken,
    RecordField, Records, reclaim,
};
#[doc(hidden)]
pub use lockstep_series::{set_chunk_rows, set_leaf_rows};
pub use read_error::{ReadError, ReadFailure};
pub use record::{LogFailure, LoggedIndexes, LoggedRows, RecordError, TableChange, TableRecord};
pub use replay::{InsertMemory, KeyShard, ReplayError, RowsToStore, StoredRows, TableReplay};
pub use rescue::{RescuedRows, visit_block};
pub use retention::Horizon;
pub use scan::{RowCopy, ScanRows, StoredRow};
pub use snapshot::{SharedSnapshot, Snapshot, SnapshotMoment};
pub use table::{Table, TableMemory};
pub use tail::{TableTail, TailError, TailOptions, TailRow, TailSignal};
pub use time_unit::LIKE_SECONDS;

#[cfg(test)]
mod tests;

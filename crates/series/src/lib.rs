//! The in-memory time series of one index: for each entity key, its rows from newest to oldest;
//! and the log that owns the rows of a table, in order of arrival.
//!
//! `table` writes and reads; through it, every executor reads. Readers never block, never wait for
//! a writer and never see half a row. Knows nothing of SQL, of schemas, of disks or of wall-clock
//! time: keys and rows are bytes, and retention is told what "now" is.
//!
//! # Protocol
//!
//! A [`RowLog`] is a directory of blocks; a block holds rows one after the other. A [`Series`] is
//! divided into shards by the hash of the key. Each shard has a lock for its writers and an
//! open-addressing table of pointers to entries; an entry has the key and its rows: one in the
//! entry itself, more in a chunk, many in a directory of chunks, oldest first. A chunk holds slots,
//! oldest first; a slot holds an event time and the address of a row. Where columns are included, a
//! chunk holds a record beside each slot: copies of these columns, each field of the records apart.
//!
//! ```text
//! shard -> buckets -> entry -> [directory] -> chunk -> slot, [record] -> row
//!            RCU       fixed       RCU        append     fixed         fixed
//! log   -> directory -> block -> row
//!             RCU       append  fixed
//! ```
//!
//! 1. Whoever changes anything of a shard, or of the log, holds its lock. Readers hold nothing but
//!    a [`Guard`], which keeps whatever they can reach from being freed.
//! 2. A slot with its record, and a row of a block, is written once, before the length that covers
//!    it is published. A length only grows. So what is below a length that a reader has loaded never
//!    changes. A chunk's length and its greatest arrival are one word, hence consistent.
//! 3. The first row of a key is in its entry. When the second is inserted, another entry replaces it
//!    in the bucket, and its head points to a chunk. A row that is newer than every other of its key
//!    is appended in place: slot, then length. When the newest chunk is full, it is replaced by a copy
//!    of one and a half times its capacity; when it has the greatest capacity, a new chunk is added to
//!    the directory: pointer, then length; when there is no directory yet, or it is full, a new one
//!    replaces what the entry's head points to.
//! 4. A late row never changes a chunk. Its chunk is copied with the row in it, and with the others
//!    that were inserted together and belong there, and the copy replaces the chunk in the directory,
//!    or in the head. When the copy would be too long it becomes several chunks, and a new directory
//!    replaces the old one; a reader of the old directory sees the old chunk. An event time that is
//!    too far from the base of its chunk is treated the same way: the copy is a wide one.
//! 5. Removing rows copies the chunks that keep some of their rows and makes a new directory. A key
//!    without rows is removed from the buckets; a key of which one row remains gets a new entry.
//! 6. What was replaced is unlinked first and then retired: it is freed when every guard that existed
//!    at that time is gone, by the thread that has retired it, or by a background thread (`guard`,
//!    `reclaim`; ADR 0019). Until then it stays charged.
//! 7. A series does not own rows. To remove rows, `table` removes them from every series, and then
//!    their blocks from the log; a block is freed as above. A block of which few rows are left is
//!    copied first, then each series is led to the copies (by rule 5), then the block is removed.
//!    Readers that hold a guard see the old rows, later ones the equal copies.
//! 8. A record is made of its row when the row is inserted, from then on copied with its slot: a
//!    row that moves is equal, and so is its record. The row in an entry has none; it is made when
//!    the entry's second row is inserted. All chunks of a series have records, of the same fields, or
//!    none has.
//! 9. A reader sees at least the rows that were inserted before it loaded the head, possibly some
//!    that are inserted later. It ignores rows that arrived too late for it ([`Bounds`]), so that
//!    what it sees is exact.
//!
//! 10. Levels, which a series may have, hold partial results over the rows of each key (`levels`, which
//!     has its own rules). Whoever inserts a late row or removes rows tells them under the shard's lock.
//!
//! 11. A [`Page`] owns the rows and the chunks that were made of its bytes, and never changes. Its readers
//!     borrow it and need no guard.
//!
//! `chunk`, `directory`, `entry`, `record`, `epoch`, `swap` and the marks of `levels` are model-checked:
//! `crates/series/model` compiles them a second time over loom's atomics and explores rules 2 to 6, and
//! 3 to 5 of the levels, with a writer and a reader. In the models of one key a guard frees only when the execution is
//! over; that no reader uses anything after that is checked by the stress tests and Miri.
//!
//! # Cost
//!
//! A slot is 10 bytes for each row and index (14 where the event times of a chunk are more than 49
//! days apart) and the record, if there is one; about a fifth more for empty slots; a key is an entry
//! of 15 bytes and the key (9 and the key when it has several rows), and a bucket of 8 bytes, of which
//! half to three quarters are used; a row is stored once, with 8 bytes before it and 8 for each
//! append. All allocations of a kind are counted with what the allocator takes for them. Insert in
//! order: O(1). Late insert: one copy of at most 64 slots, 0.7 KiB, 13 KiB with the largest records (of
//! twice as many among the newest rows of a key); for one in 32 also a copy of the key's directory, 8
//! bytes for each chunk. Seek: binary search over chunks, then within one.

mod block;
mod bounds;
mod buckets;
mod chunk;
mod chunk_run;
mod directory;
mod entry;
mod epoch;
pub mod estimate;
mod guard;
mod levels;
mod log;
mod page;
mod reclaim;
mod record;
mod row_ref;
mod series;
mod series_rows;
mod sorted_keys;
mod swap;
mod sync;

pub use bounds::Bounds;
pub use chunk::KeyRow;
pub use chunk_run::{ChunkRun, Records};
pub use entry::RowAction;
pub use guard::{Guard, pin};
pub use levels::{
    KeyInWork, KeyNodes, LevelKeys, LevelNode, LevelRows, Levels, LevelsSize, Maintained,
    NodeDictionary, NodeFold, NodeSpan, NodesTaken, RowSlices, RowsToFold, WantedKeys,
};
pub use log::{CompactionPlan, LogPosition, LogRow, LogRows, RowLog};
pub use page::{Page, PageRows, PageWriter};
pub use reclaim::{Account, reclaim, reclaim_small};
pub use record::{RECORD_SIZE_MAX, RecordField, RecordFormat};
pub use row_ref::{ARRIVAL_MAX, RowBatch, RowRef};
pub use series::{HashedKey, Series};
pub use series_rows::SeriesRows;
pub use sorted_keys::SortedKeys;
pub use swap::Swap;
pub use sync::{set_chunk_rows, set_leaf_rows};

#[cfg(test)]
mod tests;

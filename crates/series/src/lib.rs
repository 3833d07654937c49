//! The in-memory time series of one index: for each entity key, its rows from newest to oldest.
//!
//! `table` writes and reads; through it, every executor reads. Readers never block, never wait for
//! a writer and never see half a row. Knows nothing of SQL, of schemas, of disks or of wall-clock
//! time: keys and rows are bytes, and retention is told what "now" is.
//!
//! # Protocol
//!
//! A [`Series`] is cut into shards by the hash of the key. Each shard has a lock for its writers and
//! an open-addressing table of pointers to entries; an entry has the key and a spine; a spine
//! points to chunks, oldest first; a chunk holds slots, oldest first; a slot holds an event time
//! and a pointer to a row.
//!
//! ```text
//! shard -> buckets -> entry -> spine -> chunk -> slot -> row
//!            RCU       fixed    RCU     append    fixed   fixed
//! ```
//!
//! 1. Whoever changes anything of a shard holds the shard's lock. Readers hold nothing but a
//!    [`Guard`], which keeps whatever they can reach from being freed.
//! 2. A slot is written once, before the length that covers it is published. A length only grows.
//!    So the slots below a length that a reader has loaded never change.
//! 3. A row that is newer than every other of its key is appended in place: slot, then the
//!    chunk's length. When the newest chunk is full: a new chunk, then the spine's length; when
//!    the spine is full, a spine of twice the size takes its place in the entry.
//! 4. A late row never changes a chunk. Its chunk is copied with the row in it and the copy takes
//!    the chunk's place in the spine. When the copy would be too big it becomes two chunks, and a
//!    new spine takes the place of the spine; a reader of the old spine sees the old chunk.
//! 5. Removing rows copies the chunks that keep some of their rows and makes a new spine. A key
//!    that keeps none is taken out of the buckets.
//! 6. What was replaced is unlinked first and then handed to the epoch collector, which frees it
//!    when every guard that existed at that moment is gone. A chunk does not own its rows: a copy
//!    takes them over, and only rows that no copy took are released, by way of the collector.
//! 7. A reader sees at least the rows that were inserted before it loaded the spine, possibly some
//!    that are inserted later. It ignores rows that arrived too late for it ([`Bounds`]), which
//!    makes what it sees exact.
//!
//! # Cost
//!
//! A slot is 16 bytes per row and index; the row is stored once. Insert in order: O(1). Late
//! insert: one copy of at most 2 KiB. Seek: binary search over chunks, then within one.

mod bounds;
mod chunk;
mod entry;
mod key_rows;
mod row_handle;
mod series;

pub use bounds::Bounds;
pub use crossbeam_epoch::{Guard, pin};
pub use key_rows::{KeyRow, KeyRows, OldestRows};
pub use row_handle::{RowHandle, RowRef};
pub use series::Series;

#[cfg(test)]
mod tests;

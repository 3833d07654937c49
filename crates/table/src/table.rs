//! The table and its writers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use lockstep_host::Clock;
use lockstep_row::{Datum, IndexSpec, TableSchema};

use crate::{Snapshot, TableError};

/// Hands out arrival positions, consecutively, to all tables of an engine.
#[derive(Debug, Default)]
pub struct Arrivals {
    next: AtomicU64,
}

impl Arrivals {
    /// Starts at `next`, which is 0 in an empty engine.
    pub fn new(next: u64) -> Self {
        Self { next: AtomicU64::new(next) }
    }

    /// Takes `count` consecutive positions and returns the first.
    pub fn take(&self, count: u64) -> u64 {
        // Relaxed: the number itself is all that is shared.
        self.next.fetch_add(count, Ordering::Relaxed)
    }

    /// The position that the next row will get.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// A table. Shared by reference; every method takes `&self`.
#[derive(Debug)]
pub struct Table {}

impl Table {
    /// Makes an empty table with the schema's columns and indexes. Fails when an index is over a
    /// column that is missing or of the wrong type, or two indexes share a name.
    pub fn new(
        schema: TableSchema,
        clock: Arc<dyn Clock>,
        arrivals: Arc<Arrivals>,
    ) -> Result<Self, TableError> {
        let _ = (schema, clock, arrivals);
        todo!()
    }

    /// The schema as it is now. Indexes may be added, at the end; nothing else changes.
    pub fn schema(&self) -> Arc<TableSchema> {
        todo!()
    }

    /// Appends rows, all or none, and returns how many. They become visible at once, in every
    /// index. An empty append takes no arrival.
    pub fn append<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        let _ = rows;
        todo!()
    }

    /// The position of the index over exactly these key columns (in any order) and this event
    /// time; when there is none, builds one from the rows that some declared index keeps, which
    /// are also the rows it will show. No key columns: the whole table is one key.
    ///
    /// Readers go on while it builds, writers wait. Panics when a column is out of range or the
    /// event time is not a BIGINT, TIMESTAMP, INT or SMALLINT: the plan has checked that.
    pub fn ensure_index(&self, keys: &[usize], event_time: Option<usize>) -> usize {
        let _ = (keys, event_time);
        todo!()
    }

    /// Adds a declared index, built from the live rows, and returns its position.
    pub fn add_declared_index(&self, spec: IndexSpec) -> Result<usize, TableError> {
        let _ = spec;
        todo!()
    }

    /// Removes every row. Snapshots taken before go on seeing them.
    pub fn truncate(&self) {
        todo!()
    }

    /// A consistent view of the table as it is now.
    pub fn snapshot(&self) -> Snapshot<'_> {
        todo!()
    }

    /// Rows held in memory, among them expired rows that were not collected yet.
    pub fn row_count(&self) -> u64 {
        todo!()
    }

    /// Bytes of memory held by rows and indexes, without the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        todo!()
    }

    /// Frees the memory of expired rows that no snapshot can see any more, and returns how many
    /// rows were removed. A row that expired is removed by the second call after, at the
    /// earliest: the first one waits for the snapshots of its time to end.
    pub fn collect_expired(&self) -> u64 {
        todo!()
    }
}

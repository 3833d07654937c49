//! The engine lsm-tree, on which the database fjall is built.
//!
//! A row is stored under [`stored_key`]. The options are the defaults except the size of the cache, the
//! compression if it is disabled, and the filters: lsm-tree has filters of whole keys only, which a
//! search for a prefix cannot use, so that none are written.
//!
//! *Build*: lsm-tree has neither a log nor threads. Flushes, and the leveled compactions that are due
//! after them, run in the thread that writes.

use std::{error::Error, sync::Arc};

use lockstep_row::RowCodec;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, Guard, SeqNo, SequenceNumberCounter,
    compaction::Leveled,
    config::{CompressionPolicy, FilterPolicy},
};

use crate::{
    engine::{Compression, EngineSpec},
    workload::{RowEncoder, WindowSum, amount, codec, stored_key},
};

/// Number of levels of every tree.
const LEVELS: usize = 7;

/// An open tree.
pub(crate) struct Tree {
    tree: AnyTree,
    /// The sequence number of the next change.
    sequence: SequenceNumberCounter,
    codec: RowCodec,
}

impl Tree {
    /// Writes all rows, and runs all compactions.
    pub(crate) fn build(spec: &EngineSpec, compression: Compression) -> Result<(), Box<dyn Error>> {
        let built = Self::open(spec, compression)?;
        let write_buffer_bytes = u64::try_from(spec.write_buffer_bytes)?;
        let (mut encoder, mut encoded) = (RowEncoder::new(), Vec::new());
        for number in 0..spec.workload.rows() {
            let row = spec.workload.row(number);
            encoded.clear();
            encoder.encode(&row, &mut encoded)?;
            let sequence = built.sequence.next();
            let (_, bytes) = built.tree.insert(stored_key(&row), encoded.as_slice(), sequence);
            if bytes >= write_buffer_bytes {
                built.flush()?;
            }
        }
        built.flush()
    }

    /// Opens the tree, or creates it.
    pub(crate) fn open(
        spec: &EngineSpec,
        compression: Compression,
    ) -> Result<Self, Box<dyn Error>> {
        let sequence = SequenceNumberCounter::default();
        let visible = SequenceNumberCounter::default();
        let config = Config::new(&spec.directory, sequence.clone(), visible)
            .use_cache(Arc::new(Cache::with_capacity_bytes(spec.cache_bytes)))
            .filter_policy(FilterPolicy::disabled());
        let config = match compression {
            Compression::Disabled => {
                config.data_block_compression_policy(CompressionPolicy::disabled())
            }
            Compression::Default => config,
        };
        Ok(Self { tree: config.open()?, sequence, codec: codec() })
    }

    /// Writes the rows in memory to the disk, then compacts until no compaction is due.
    fn flush(&self) -> Result<(), Box<dyn Error>> {
        let lock = self.tree.get_flush_lock();
        self.tree.rotate_memtable();
        self.tree.flush(&lock, self.sequence.get())?;
        drop(lock);
        loop {
            let before = self.shape();
            self.tree.compact(Arc::new(Leveled::default()), self.sequence.get())?;
            if self.shape() == before {
                return Ok(());
            }
        }
    }

    /// Returns numbers that every compaction changes: the id of the next table, and the count of tables
    /// by level.
    fn shape(&self) -> (u64, [Option<usize>; LEVELS]) {
        let tables = std::array::from_fn(|level| self.tree.level_table_count(level));
        (self.tree.next_table_id(), tables)
    }

    /// Sums the amounts of the `newest` newest rows of a key.
    pub(crate) fn window(&self, key: u64, newest: usize) -> Result<WindowSum, Box<dyn Error>> {
        let mut sum = WindowSum::default();
        let rows = self.tree.prefix(key.to_be_bytes(), SeqNo::MAX, None);
        for row in rows.take(newest) {
            sum.add(amount(&self.codec, &row.value()?));
        }
        Ok(sum)
    }

    /// Returns the number of blocks that were not in the cache, those of indexes included.
    pub(crate) fn blocks_read(&self) -> u64 {
        u64::try_from(self.tree.metrics().block_load_io_count()).expect("a count fits in 64 bits")
    }
}

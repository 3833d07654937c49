//! The engine RocksDB.
//!
//! A row is stored under [`stored_key`]. The options are RocksDB's defaults except the sizes of cache
//! and write buffer, the filter, and the compression if it is disabled. The filter has the prefixes of
//! keys only, 10 bits each, since no whole key is searched for. Indexes and filters of files are in
//! memory outside the cache, as by default.
//!
//! *Build*: flushes and compactions run in RocksDB's threads, next to the thread that writes.

use std::error::Error;

use lockstep_row::RowCodec;
use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, SliceTransform,
    WaitForCompactOptions, WriteBatch, WriteOptions,
    statistics::{StatsLevel, Ticker},
};

use crate::{
    engine::{BATCH_ROWS, Compression, EngineSpec},
    workload::{RowEncoder, WindowSum, amount, codec, stored_key},
};

const FILTER_BITS: f64 = 10.0;
/// Bytes of the entity key in a stored key.
const PREFIX_BYTES: usize = 8;

/// An open database.
pub(crate) struct RocksDb {
    database: DB,
    /// Has the statistics of the database.
    options: Options,
    codec: RowCodec,
}

impl RocksDb {
    /// Writes all rows, and waits until the compactions have finished.
    pub(crate) fn build(spec: &EngineSpec, compression: Compression) -> Result<(), Box<dyn Error>> {
        let built = Self::open(spec, compression)?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let (mut encoder, mut encoded) = (RowEncoder::new(), Vec::new());
        let mut batch = WriteBatch::default();
        for first in (0..spec.workload.rows()).step_by(BATCH_ROWS) {
            batch.clear();
            for number in spec.workload.batch(first, BATCH_ROWS) {
                let row = spec.workload.row(number);
                encoded.clear();
                encoder.encode(&row, &mut encoded)?;
                batch.put(stored_key(&row), &encoded);
            }
            built.database.write_opt(&batch, &write)?;
        }
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        built.database.wait_for_compact(&wait)?;
        Ok(())
    }

    /// Opens the database, or creates it.
    pub(crate) fn open(
        spec: &EngineSpec,
        compression: Compression,
    ) -> Result<Self, Box<dyn Error>> {
        let options = options(spec, compression)?;
        let database = DB::open(&options, &spec.directory)?;
        Ok(Self { database, options, codec: codec() })
    }

    /// Sums the amounts of the `newest` newest rows of a key.
    pub(crate) fn window(&self, key: u64, newest: usize) -> Result<WindowSum, Box<dyn Error>> {
        let mut read = ReadOptions::default();
        read.set_prefix_same_as_start(true);
        read.set_iterate_upper_bound((key + 1).to_be_bytes());
        let mut rows = self.database.raw_iterator_opt(read);
        let mut sum = WindowSum::default();
        rows.seek(key.to_be_bytes());
        while let Some(row) = rows.value() {
            sum.add(amount(&self.codec, row));
            if sum.count == newest {
                break;
            }
            rows.next();
        }
        rows.status()?;
        Ok(sum)
    }

    /// Returns the number of blocks that were not in the cache.
    pub(crate) fn blocks_read(&self) -> u64 {
        self.options.get_ticker_count(Ticker::BlockCacheMiss)
    }
}

fn options(spec: &EngineSpec, compression: Compression) -> Result<Options, Box<dyn Error>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(usize::try_from(spec.cache_bytes)?));
    table.set_bloom_filter(FILTER_BITS, false);
    table.set_whole_key_filtering(false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(spec.write_buffer_bytes);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(PREFIX_BYTES));
    options.set_block_based_table_factory(&table);
    match compression {
        Compression::Disabled => options.set_compression_type(DBCompressionType::None),
        Compression::Default => {}
    }
    options.enable_statistics();
    // Counters only: they cost less than what is measured.
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    Ok(options)
}

//! The engine of Lockstep's own sorted runs, `lockstep_table::part`.
//!
//! Rows are inserted into a series in memory. When they have the bytes of a write buffer, they become a
//! run, and another series begins. Eight runs that were merged equally often become one. A query merges
//! the rows of its key from all runs that are left. The manifest of a database directory lists the files of the runs; its body has the place of
//! the last block of each.
//!
//! *Build*: everything runs in the thread that writes.

use std::{error::Error, mem, ops::Range, sync::Arc};

use lockstep_host::file::SystemDisk;
use lockstep_row::{Datum, IncludedColumn, Projection, Retention, RowCodec, key::encode_key};
use lockstep_series::{
    Bounds, ChunkRun, HashedKey, KeyRow, RecordFormat, RowBatch, RowLog, Series, pin,
};
use lockstep_table::{
    Horizon,
    part::{
        IndexRun, MergeError, MergeRule, MergedRows, PageCache, PageSource, Pins,
        RunWriter, merge,
    },
};
use lockstep_wal::{Access, BlockPlace, DatabaseDirectory};

use crate::{
    engine::{BATCH_ROWS, EngineSpec, RunContent},
    workload::{AMOUNT, Row, RowEncoder, WindowSum, Workload, amount, codec},
};

/// The id of the database, which is the same each time.
const DATABASE_ID: [u8; 16] = *b"engines compared";
/// Bytes of the place of a block in the manifest: u64 offset, u32 index, u32 length.
const PLACE_BYTES: usize = 16;
/// How many runs a merge takes.
const MERGED_RUNS: usize = 8;

/// Runs that are open for reading.
pub(crate) struct Runs {
    /// The oldest run first.
    runs: Vec<IndexRun>,
    cache: PageCache,
    codec: RowCodec,
    records: Option<AmountRecords>,
    /// Holds the lock of the directory.
    _directory: DatabaseDirectory,
}

/// Records that contain the amount of a row.
struct AmountRecords {
    format: Arc<RecordFormat>,
    /// Offset of the amount in a record.
    amount_at: usize,
}

/// Rows that are not in a run yet.
struct Memory {
    // Dropped first: it leads to the rows.
    series: Series,
    log: RowLog,
    bytes: usize,
}

impl Runs {
    /// Writes all rows into runs.
    pub(crate) fn build(spec: &EngineSpec) -> Result<(), Box<dyn Error>> {
        let access = Access::ReadWrite { new_id: DATABASE_ID };
        let directory = DatabaseDirectory::open(Arc::new(SystemDisk), &spec.directory, access)?;
        let mut encoder = RowEncoder::new();
        let (mut memory, mut written) = (Memory::new(), Vec::new());
        for first in (0..spec.workload.rows()).step_by(BATCH_ROWS) {
            let numbers = spec.workload.batch(first, BATCH_ROWS);
            memory.insert(spec.workload, numbers, &mut encoder)?;
            if memory.bytes >= spec.write_buffer_bytes {
                let run = mem::replace(&mut memory, Memory::new()).write(&directory)?;
                add(&directory, &mut written, run)?;
            }
        }
        if memory.bytes > 0 {
            add(&directory, &mut written, memory.write(&directory)?)?;
        }
        commit(&directory, written.iter().map(|(_, run)| run))
    }

    /// Opens the runs that were built.
    pub(crate) fn open(spec: &EngineSpec, content: RunContent) -> Result<Self, Box<dyn Error>> {
        let disk = Arc::new(SystemDisk);
        let directory = DatabaseDirectory::open(disk, &spec.directory, Access::ReadOnly)?;
        let manifest = directory.manifest();
        let (places, rest) = manifest.body.as_chunks::<PLACE_BYTES>();
        if places.len() != manifest.files.len() || !rest.is_empty() {
            return Err("the manifest is not that of runs".into());
        }
        let mut runs = Vec::with_capacity(places.len());
        for (file, place) in manifest.files.iter().zip(places) {
            runs.push(IndexRun::open(directory.open_blocks(*file)?, read_place(place))?);
        }
        let codec = codec();
        let records = match content {
            RunContent::Rows => None,
            RunContent::Records => Some(AmountRecords::new(&codec)),
        };
        let cache = PageCache::new(spec.cache_bytes);
        Ok(Self { runs, cache, codec, records, _directory: directory })
    }

    /// Sums the amounts of the `newest` newest rows of a key.
    pub(crate) fn window(&self, key: u64, newest: usize) -> Result<WindowSum, Box<dyn Error>> {
        let pins = Pins::default();
        let pages = PageSource {
            cache: &self.cache,
            codec: &self.codec,
            format: self.records.as_ref().map(|records| &records.format),
            pins: &pins,
        };
        let mut rows = MergedRows::new(&entity_key(key), Bounds::everything());
        for run in self.runs.iter().rev() {
            rows.add_run(run, u64::MAX);
        }
        let mut sum = WindowSum::default();
        while sum.count < newest {
            let Some(found) = rows.next_run(&pages)? else { break };
            let count = found.len().min(newest - sum.count);
            self.add(&found.slice(0..count), &mut sum);
        }
        Ok(sum)
    }

    /// Adds the amounts of rows that are stored together.
    fn add(&self, found: &ChunkRun<'_>, sum: &mut WindowSum) {
        // The only row of a key in a page has no record.
        if let Some(source) = &self.records
            && let Some(records) = found.records()
        {
            let (amounts, _) = records.field(source.amount_at, size_of::<f64>()).as_chunks();
            for amount in amounts {
                sum.add(f64::from_le_bytes(*amount));
            }
            return;
        }
        for at in 0..found.len() {
            sum.add(amount(&self.codec, found.row(at).bytes()));
        }
    }

    /// Returns the number of pages that were not in the cache.
    pub(crate) fn blocks_read(&self) -> u64 {
        self.cache.cache_use().reads
    }
}

/// Adds a run, and merges the last runs when there are as many as a merge takes that were merged
/// equally often.
fn add(
    directory: &DatabaseDirectory,
    written: &mut Vec<(u32, Arc<IndexRun>)>,
    run: IndexRun,
) -> Result<(), Box<dyn Error>> {
    written.push((0, Arc::new(run)));
    while let Some(merges) = written.last().map(|(merges, _)| *merges) {
        let alike = written.iter().rev().take_while(|(of_run, _)| *of_run == merges).count();
        if alike < MERGED_RUNS {
            break;
        }
        let runs: Vec<_> =
            written.drain(written.len() - alike..).map(|(_, run)| run).collect();
        let keys = runs.iter().map(|run| run.counts().keys).max().unwrap_or(0);
        let writer = RunWriter::new(directory.create_data_file()?, keys);
        let horizon = Horizon { visible_arrival: u64::MAX, now_ms: 0 };
        let rule = MergeRule { retention: Retention::Forever, horizon };
        let merged = merge::<MergeError>(&runs, rule, writer, |_| true, || Ok(()))?;
        written.push((merges + 1, Arc::new(merged)));
    }
    Ok(())
}

impl AmountRecords {
    fn new(codec: &RowCodec) -> Self {
        let included = IncludedColumn { column: AMOUNT, values: true };
        let projection = Projection::default().with(codec, &[included]);
        let column = projection.fixed_column(AMOUNT).expect("a DOUBLE has a fixed width");
        let widths: Vec<usize> = projection.widths().collect();
        let write = move |row: &[u8], record: &mut [u8]| projection.write(row, record);
        Self { format: Arc::new(RecordFormat::new(widths, write)), amount_at: column.at() }
    }
}

impl Memory {
    fn new() -> Self {
        Self { series: Series::new(), log: RowLog::new(), bytes: 0 }
    }

    /// Inserts the rows with these numbers, which follow those before.
    fn insert(
        &mut self,
        workload: Workload,
        numbers: Range<u64>,
        encoder: &mut RowEncoder,
    ) -> Result<(), Box<dyn Error>> {
        let rows: Vec<Row> = numbers.clone().map(|number| workload.row(number)).collect();
        let mut batch = RowBatch::default();
        for row in &rows {
            batch.push(|out| encoder.encode(row, out))?;
        }
        self.bytes += batch.stored_size();
        let (position, _) = self.log.append(&batch, numbers.start, 0);
        let guard = pin();
        for (row, stored) in rows.iter().zip(self.log.rows_from(position, &guard)) {
            let key = entity_key(row.key);
            let hashed = HashedKey { hash: self.series.hash(&key), key: &key };
            let stored = KeyRow { event_time: row.event_time, row: stored.row };
            // SAFETY: the log keeps its rows until it is dropped, after the series.
            unsafe { self.series.insert(hashed, stored, &guard) };
        }
        Ok(())
    }

    /// Writes the rows into a run.
    fn write(self, directory: &DatabaseDirectory) -> Result<IndexRun, Box<dyn Error>> {
        let keys = self.series.sorted_keys();
        let key_count = u64::try_from(keys.len())?;
        let mut writer = RunWriter::new(directory.create_data_file()?, key_count);
        let guard = pin();
        for key in keys.iter() {
            writer.begin_key(key);
            let rows = self.series.seek(key, Bounds::everything(), &guard);
            for found in rows.into_iter().flatten() {
                writer.push(found.event_time, found.row)?;
            }
        }
        Ok(writer.finish()?)
    }
}

/// Makes the runs the content of the directory.
fn commit<'r>(
    directory: &DatabaseDirectory,
    runs: impl Iterator<Item = &'r Arc<IndexRun>> + Clone,
) -> Result<(), Box<dyn Error>> {
    let files = runs.clone().map(|run| run.file()).collect();
    let body = runs.flat_map(|run| written_place(run.last_block())).collect();
    let manifest = directory.manifest();
    directory.commit(manifest.successor(manifest.position, files, body))?;
    Ok(())
}

fn written_place(place: BlockPlace) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    bytes[..8].copy_from_slice(&place.offset.to_le_bytes());
    bytes[8..12].copy_from_slice(&place.index.to_le_bytes());
    bytes[12..].copy_from_slice(&place.length.to_le_bytes());
    bytes
}

fn read_place(bytes: &[u8; PLACE_BYTES]) -> BlockPlace {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let offset = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    BlockPlace { offset, index: u32_at(8), length: u32_at(12) }
}

/// Encodes an entity key as a table does.
fn entity_key(key: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key([Datum::BigInt(key.cast_signed())], &mut bytes);
    bytes
}

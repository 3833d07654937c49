//! The writer of a Parquet file, whose columns are encoded and compressed by several threads.
//!
//! Batches wait until there are some ten thousand rows; then each thread takes one column after another
//! and encodes all of them. The bytes of a file depend on its rows, and on the memory limit where there is
//! one, not on the threads.

use std::{fs::File, mem, num::NonZeroUsize, sync::Arc};

use arrow::{
    array::{RecordBatch, new_empty_array},
    datatypes::SchemaRef,
};
use lockstep_host::sync::Mutex;
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves},
    },
    basic::Compression,
    errors::{ParquetError, Result},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
};

use crate::{operator::batch_bytes, parallel};

/// The rows that are encoded together.
const ROWS_AT_ONCE: usize = 1 << 16;
/// The rows of a row group, but for the last one of a file, and where memory is limited.
const GROUP_ROWS: usize = 1 << 20;
/// The least rows of a row group that is ended because memory is limited: a file may have 32,767 of them.
const LIMITED_GROUP_ROWS: usize = 1 << 14;

/// A Parquet file that is written.
pub(super) struct ParquetFileWriter {
    file: SerializedFileWriter<File>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// For each column the writers of its leaves, in the row group that is begun.
    group: Option<Vec<Mutex<Vec<ArrowColumnWriter>>>>,
    group_rows: usize,
    group_count: usize,
    /// Batches that are not encoded yet.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    /// The most bytes that are to be in memory.
    memory_max: usize,
    threads: NonZeroUsize,
}

impl ParquetFileWriter {
    /// Begins a file of batches with a schema. Its row groups are shorter where they would take more than
    /// `memory_max` bytes of memory.
    pub(super) fn new(
        file: File,
        schema: &SchemaRef,
        threads: NonZeroUsize,
        memory_max: usize,
    ) -> Result<Self> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties))?;
        let (file, factory) = writer.into_serialized_writer()?;
        Ok(Self {
            file,
            factory,
            schema: Arc::clone(schema),
            group: None,
            group_rows: 0,
            group_count: 0,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            memory_max,
            threads,
        })
    }

    /// Adds rows.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        debug_assert_eq!(batch.num_columns(), self.schema.fields().len(), "the file's columns");
        self.waiting_rows += batch.num_rows();
        self.waiting_bytes += batch_bytes(batch);
        self.waiting.push(batch.clone());
        if self.waiting_rows < ROWS_AT_ONCE && self.waiting_bytes < self.memory_max / 2 {
            return Ok(());
        }
        self.encode()?;
        let may_end = self.memory_max < usize::MAX && self.group_rows >= LIMITED_GROUP_ROWS;
        if self.group_rows >= GROUP_ROWS || may_end && self.memory_bytes() >= self.memory_max {
            self.end_group()?;
        }
        Ok(())
    }

    /// Returns the bytes that are in memory until they are written as a row group.
    pub(super) fn memory_bytes(&self) -> usize {
        let group = self.group.iter().flatten();
        let encoded: usize = group
            .map(|column| column.lock().iter().map(ArrowColumnWriter::memory_size).sum::<usize>())
            .sum();
        encoded + self.waiting_bytes
    }

    /// Writes the rows that are in memory as a row group.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.encode()?;
        self.end_group()
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<File> {
        self.flush()?;
        self.file.into_inner()
    }

    /// Encodes the batches that wait.
    fn encode(&mut self) -> Result<()> {
        let batches = mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        self.group_rows += mem::take(&mut self.waiting_rows);
        if batches.is_empty() {
            return Ok(());
        }
        let group = match &mut self.group {
            Some(group) => group,
            None => {
                let writers = self.factory.create_column_writers(self.group_count)?;
                self.group.insert(by_column(&self.schema, writers)?)
            }
        };
        let (group, schema) = (&*group, &self.schema);
        in_parallel(self.threads, group.len(), |column| {
            let mut writers = group[column].lock();
            for batch in &batches {
                let leaves = compute_leaves(schema.field(column), batch.column(column))?;
                debug_assert_eq!(leaves.len(), writers.len(), "each leaf has a writer");
                for (leaf, writer) in leaves.iter().zip(writers.iter_mut()) {
                    writer.write(leaf)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Writes the row group that is begun.
    fn end_group(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        self.group_rows = 0;
        self.group_count += 1;
        let chunks = in_parallel(self.threads, group.len(), |column| {
            let writers = mem::take(&mut *group[column].lock());
            writers.into_iter().map(ArrowColumnWriter::close).collect::<Result<Vec<_>>>()
        })?;
        let mut written = self.file.next_row_group()?;
        for chunk in chunks.into_iter().flatten() {
            chunk.append_to_row_group(&mut written)?;
        }
        written.close()?;
        Ok(())
    }
}

/// Returns the writers of the leaves of each column.
fn by_column(
    schema: &SchemaRef,
    writers: Vec<ArrowColumnWriter>,
) -> Result<Vec<Mutex<Vec<ArrowColumnWriter>>>> {
    let mut writers = writers.into_iter();
    let columns = schema.fields().iter().map(|field| {
        let count = compute_leaves(field, &new_empty_array(field.data_type()))?.len();
        Ok(Mutex::new(writers.by_ref().take(count).collect()))
    });
    let columns = columns.collect();
    debug_assert_eq!(writers.len(), 0, "each leaf is one of a column");
    columns
}

/// Runs tasks on up to `threads` threads.
fn in_parallel<T: Send>(
    threads: NonZeroUsize,
    count: usize,
    body: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let results = parallel::run(threads, count, |task| Ok(body(task)));
    let results = results.map_err(|error| ParquetError::External(Box::new(error)))?;
    results.into_iter().collect()
}

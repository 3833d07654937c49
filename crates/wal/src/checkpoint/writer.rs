//! Writes a data file: blocks one after the other, in large writes from a bounded buffer.
//!
//! [`crate::DatabaseDirectory`] makes writers; several of them may write at the same time, each in a
//! thread of its own. A file that is not finished is removed, here or when the database is opened.
//!
//! # Cost
//!
//! A copy of each block and two checksums. Memory: [`BUFFER_BYTES`]; a longer block is written
//! from where it is. What was written is synced every [`SYNC_BYTES`], so that a sync of the log never
//! waits behind a whole file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_host::file::{Disk, File, OpenMode};

use super::{
    BlockPlace, BlockReader, DataFile, DataFileHeader,
    data_file::{BLOCK_HEADER_BYTES, BlockHeader, file_name},
};
use crate::{
    Error,
    bug::{self, Bug},
    directory::NumberReservation,
    recovery::refused,
};

/// How much is written at once, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// After how many bytes a file that is being written is synced.
const SYNC_BYTES: u64 = 32 << 20;

/// A data file that is being written.
#[derive(Debug)]
pub struct DataFileWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn File>,
    header: DataFileHeader,
    reservation: Arc<NumberReservation>,
    buffer: Vec<u8>,
    /// Bytes that were written, without the buffer.
    written: u64,
    /// Bytes that were synced.
    synced: u64,
    blocks: u32,
    /// The checksum of the lengths and checksums of all blocks so far.
    checksum: u32,
    progress: WriterProgress,
}

/// What can still be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterProgress {
    Writing,
    /// A call failed: bytes are missing.
    Failed,
    Finished,
}

impl DataFileWriter {
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        header: DataFileHeader,
        reservation: NumberReservation,
    ) -> Result<Self, Error> {
        assert_eq!(header.number, reservation.number(), "the number is reserved");
        let path = directory.join(file_name(header.number));
        let mode =
            if bug::is_seeded(Bug::NumberReused) { OpenMode::Create } else { OpenMode::CreateNew };
        let file = disk.open(&path, mode).map_err(refused)?;
        Ok(Self {
            disk,
            path,
            file,
            header,
            reservation: Arc::new(reservation),
            buffer: header.encode().to_vec(),
            written: 0,
            synced: 0,
            blocks: 0,
            checksum: 0,
            progress: WriterProgress::Writing,
        })
    }

    /// Gives the number of the file.
    pub fn number(&self) -> u64 {
        self.reservation.number()
    }

    /// Gives the bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes the next block, of at most [`crate::BLOCK_BYTES_MAX`] bytes, and returns where it is.
    /// After an error the file cannot be finished.
    pub fn push_block(&mut self, payload: &[u8]) -> Result<BlockPlace, Error> {
        let header = BlockHeader::of(payload);
        let place = BlockPlace { offset: self.bytes(), index: self.blocks, length: header.length };
        let checksum = header.append_checksum(self.checksum);
        let header = header.encode(self.header.seed(), self.blocks);
        if self.buffer.len() + BLOCK_HEADER_BYTES + payload.len() > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(&header);
        if payload.len() > BUFFER_BYTES {
            self.flush()?;
            self.write(payload)?;
        } else {
            self.buffer.extend_from_slice(payload);
        }
        self.blocks = self.blocks.checked_add(1).expect("a file has fewer than 2^32 blocks");
        self.checksum = checksum;
        Ok(place)
    }

    /// Puts the file on the disk. Its name is there when a manifest that lists it is committed.
    pub fn finish(mut self) -> Result<DataFile, Error> {
        self.flush()?;
        if !bug::is_seeded(Bug::DataFileNotSynced) {
            self.file.sync_data().map_err(refused)?;
        }
        let file = DataFile {
            number: self.number(),
            blocks: self.blocks,
            bytes: self.written,
            checksum: self.checksum,
        };
        self.reservation.finished(file);
        self.progress = WriterProgress::Finished;
        Ok(file)
    }

    /// Puts the file on the disk as [`Self::finish`] does, and opens it. It is not removed before the
    /// reader is dropped, whether a manifest lists it or not.
    pub fn finish_to_read(self) -> Result<BlockReader, Error> {
        let (disk, header) = (Arc::clone(&self.disk), self.header);
        let held = Arc::clone(&self.reservation);
        let path = self.path.clone();
        let folder = self.path.parent().map(Path::to_path_buf).unwrap_or_default();
        let file = self.finish()?;
        held.remove_unlisted(&disk, &path);
        Ok(BlockReader::open(&*disk, &folder, header, file)?.holding(held))
    }

    fn flush(&mut self) -> Result<(), Error> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        assert_eq!(self.progress, WriterProgress::Writing, "a file is given up after an error");
        self.progress = WriterProgress::Failed;
        self.file.write_at(self.written, bytes).map_err(refused)?;
        self.written += bytes.len() as u64;
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync_data().map_err(refused)?;
            self.synced = self.written;
        }
        self.progress = WriterProgress::Writing;
        Ok(())
    }
}

impl Drop for DataFileWriter {
    fn drop(&mut self) {
        if self.progress != WriterProgress::Finished {
            // Gives its space back; when that fails, the next checkpoint or opening does.
            let _left = self.disk.remove(&self.path);
        }
    }
}

//! The speed of light of a durable write: 4 KiB into a file that has its space, and `fdatasync`.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use lockstep_host::disk;

use super::{WriteTarget, WrittenRows};
use crate::{
    answer::AnswerValue,
    error::{Result, Trying},
    peer::folder::TemporaryFolder,
    system::Client,
};

const BLOCK_BYTES: usize = 4_096;
/// Blocks of a file, which are written in turn.
const BLOCKS: u64 = 4_096;

/// Files of blocks, one for each writer.
#[derive(Debug)]
pub(super) struct SyncedBlocks {
    folder: TemporaryFolder,
    files: AtomicUsize,
    written: WrittenRows,
}

impl SyncedBlocks {
    /// Creates the folder of the files.
    pub(super) fn create() -> Result<Self> {
        let folder = TemporaryFolder::new("fdatasync")?;
        Ok(Self { folder, files: AtomicUsize::new(0), written: WrittenRows::default() })
    }
}

impl WriteTarget for SyncedBlocks {
    fn writer(&self, _batch: usize) -> Result<Box<dyn Client + '_>> {
        // Relaxed: each writer only needs a number that no other one has.
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(number.to_string());
        let prepare = || {
            let file = disk::create(&path)?;
            // Written before it is measured, so that a sync writes no metadata.
            let block = [1; BLOCK_BYTES];
            (0..BLOCKS).try_for_each(|number| write_block(&file, number, &block))?;
            file.sync_all()?;
            Ok(file)
        };
        let file = prepare().trying(|| format!("write {}", path.display()))?;
        Ok(Box::new(BlockWriter { file, next: 0 }))
    }

    fn written(&self) -> &WrittenRows {
        &self.written
    }

    fn stored(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

fn write_block(file: &File, number: u64, block: &[u8; BLOCK_BYTES]) -> std::io::Result<()> {
    debug_assert!(number < BLOCKS, "block {number}");
    let bytes = u64::try_from(BLOCK_BYTES).expect("a block's size fits");
    file.write_all_at(block, number * bytes)
}

struct BlockWriter {
    file: File,
    next: u64,
}

impl Client for BlockWriter {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.next += 1;
        let block = [u8::try_from(self.next % 251).expect("it is below 251"); BLOCK_BYTES];
        let written = write_block(&self.file, self.next % BLOCKS, &block);
        written.and_then(|()| self.file.sync_data()).trying(|| "sync a block".to_owned())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.serve(request).map(|()| Vec::new())
    }
}

//! A file as memory.
//!
//! The memory is read and written in words of eight bytes, each of them atomic and relaxed, so that
//! nothing that threads do to it at the same time is undefined, whichever bytes they find. Who needs
//! to find bytes whole orders its threads by other means. On x86-64 and aarch64 such an access is
//! one plain load or store.

use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use memmap2::{Advice, MmapRaw};

const WORD: usize = size_of::<u64>();

/// Memory that is a file's: what is written to it is in the page cache at once, and survives the
/// process; it survives the machine when the file was synced.
pub struct Mapping {
    words: NonNull<AtomicU64>,
    /// How many words there are.
    count: usize,
    /// Keeps the memory alive.
    owner: MappedMemory,
}

enum MappedMemory {
    File(MmapRaw),
    Memory { _shared: Arc<[AtomicU64]> },
}

// SAFETY: the memory belongs to `owner`, which may be sent and shared, and all access to it is
// atomic.
unsafe impl Send for Mapping {}
// SAFETY: see above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Takes memory that the machine has mapped; bytes after the last whole word are left out.
    pub(super) fn of_file(mapped: MmapRaw) -> Self {
        let words = NonNull::new(mapped.as_mut_ptr()).expect("a mapping is not at address zero");
        let words = words.cast::<AtomicU64>();
        assert!(words.is_aligned(), "a mapping begins at a page");
        Self { words, count: mapped.len() / WORD, owner: MappedMemory::File(mapped) }
    }

    /// Takes memory in place of a file, the first `count` words of it. For simulated disks.
    pub fn of_memory(memory: Arc<[AtomicU64]>, count: usize) -> Self {
        assert!(count <= memory.len(), "the file is as long as the mapping");
        let words = NonNull::from(&*memory).cast::<AtomicU64>();
        Self { words, count, owner: MappedMemory::Memory { _shared: memory } }
    }

    /// Gives the length of the mapping in bytes.
    pub fn length(&self) -> usize {
        self.count * WORD
    }

    /// Copies `bytes` to `offset`, a multiple of eight. The last word is filled up with zeros.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let words = &self.words()[offset / WORD..][..bytes.len().div_ceil(WORD)];
        assert!(offset.is_multiple_of(WORD), "words are written whole");
        let (whole, rest) = bytes.as_chunks::<WORD>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes).to_le(), Ordering::Relaxed);
        }
        if let ([.., last], false) = (words, rest.is_empty()) {
            let mut padded = [0; WORD];
            padded[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_le_bytes(padded).to_le(), Ordering::Relaxed);
        }
    }

    /// Copies bytes from `offset`, a multiple of eight, into `buffer`.
    pub fn read(&self, offset: usize, buffer: &mut [u8]) {
        assert!(offset.is_multiple_of(WORD), "words are read whole");
        let words = &self.words()[offset / WORD..][..buffer.len().div_ceil(WORD)];
        for (word, bytes) in words.iter().zip(buffer.chunks_mut(WORD)) {
            let value = u64::from_le(word.load(Ordering::Relaxed)).to_le_bytes();
            bytes.copy_from_slice(&value[..bytes.len()]);
        }
    }

    /// Brings the pages of a range in and makes them writable, so that a write to them does not wait
    /// for the machine. They count as changed afterwards: the next sync writes them. Does nothing
    /// where the machine cannot.
    pub fn prefault(&self, offset: usize, length: usize) {
        let offset = offset.min(self.length());
        let length = length.min(self.length() - offset);
        match &self.owner {
            MappedMemory::Memory { .. } => {}
            MappedMemory::File(mapped) => populate(mapped, offset, length),
        }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` points at `count` aligned words that live as long as `owner`, and nobody
        // reads or writes them but through atomics, or as a file.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

#[cfg(target_os = "linux")]
fn populate(mapped: &MmapRaw, offset: usize, length: usize) {
    // Kernels before 5.14 do not know it; then each page is brought in by its first write.
    let _unsupported = mapped.advise_range(Advice::PopulateWrite, offset, length);
}

#[cfg(not(target_os = "linux"))]
fn populate(_mapped: &MmapRaw, _offset: usize, _length: usize) {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("length", &self.length()).finish_non_exhaustive()
    }
}

//! What a simulated disk holds: files by number, and names that lead to them.
//!
//! [`crate::disk`] and [`crate::crash`] alone use it. Knows no faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// What moves to the disk at once, if the disk is kind.
pub(crate) const PAGE: usize = 4_096;
/// What moves to the disk at once, always.
pub(crate) const SECTOR: usize = 512;

/// A disk's content.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By number; files that no name leads to any more stay.
    pub(crate) files: Vec<Content>,
    /// The names as a program sees them.
    pub(crate) names: Names,
    /// The names that are surely on the disk.
    pub(crate) durable_names: Names,
    /// What was done to names since their directory was synced, oldest first.
    pub(crate) changes: Vec<NameChange>,
}

pub(crate) type Names = BTreeMap<PathBuf, Node>;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    /// The number of the file.
    File(usize),
}

/// A change of names that happens wholly or not at all.
#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    Create { path: PathBuf, node: Node },
    Rename { source: PathBuf, target: PathBuf, node: Node },
    Remove { path: PathBuf },
}

impl NameChange {
    /// The directory whose sync makes the change durable.
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Create { path, .. } | Self::Remove { path } => path.parent(),
            Self::Rename { target, .. } => target.parent(),
        }
    }

    pub(crate) fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { path, node } => {
                names.insert(path.clone(), *node);
            }
            Self::Rename { source, target, node } => {
                names.remove(source);
                names.insert(target.clone(), *node);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
        }
    }
}

/// The bytes of one file.
#[derive(Debug)]
pub(crate) struct Content {
    /// What a reader sees, and what mappings share; longer than the file.
    pub(crate) memory: Arc<[AtomicU64]>,
    pub(crate) length: usize,
    /// What is surely on the disk.
    pub(crate) durable: Vec<u8>,
    /// Pages that a failed sync counted as written, as they were then.
    forgotten: BTreeMap<usize, Vec<u8>>,
}

impl Content {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut content = Self {
            memory: memory(bytes.len()),
            length: 0,
            durable: Vec::new(),
            forgotten: BTreeMap::new(),
        };
        content.write(0, &bytes);
        content.durable = bytes;
        content
    }

    /// The bytes as a reader sees them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = self.memory.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed)));
        words.flat_map(u64::to_le_bytes).take(self.length).collect()
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.length);
        let count = buffer.len().min(self.length - offset);
        let words = &self.memory[offset / 8..(offset + count).div_ceil(8)];
        let words = words.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed)));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        buffer[..count].copy_from_slice(&bytes[offset % 8..][..count]);
        count
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.set_length(self.length.max(offset + bytes.len()));
        self.store(offset, bytes);
        // A page that is written is to be written back, whatever a failed sync thought of it.
        let written = offset / PAGE..(offset + bytes.len()).div_ceil(PAGE);
        self.forgotten.retain(|page, _| !written.contains(page));
    }

    pub(crate) fn set_length(&mut self, length: usize) {
        if length < self.length {
            self.store(length, &vec![0; self.length - length]);
        } else if length > self.memory.len() * 8 {
            let grown = memory(length);
            for (new, old) in grown.iter().zip(self.memory.iter()) {
                new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            let old = std::mem::replace(&mut self.memory, grown);
            assert_eq!(Arc::strong_count(&old), 1, "a file that is mapped cannot grow here");
        }
        self.length = length;
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        // Whole words at once, and single bytes before and after them.
        let before = bytes.len().min(offset.next_multiple_of(8) - offset);
        let (before, rest) = bytes.split_at(before);
        let (whole, after) = rest.as_chunks::<8>();
        let begin = offset + before.len();
        self.store_bytes(offset, before);
        for (word, bytes) in self.memory[begin / 8..].iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes).to_le(), Ordering::Relaxed);
        }
        self.store_bytes(begin + whole.len() * 8, after);
    }

    fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let word = &self.memory[at / 8];
            let mut value = u64::from_le(word.load(Ordering::Relaxed)).to_le_bytes();
            value[at % 8] = *byte;
            word.store(u64::from_le_bytes(value).to_le(), Ordering::Relaxed);
        }
    }

    /// The pages whose bytes are not surely on the disk.
    pub(crate) fn changed_pages(bytes: &[u8], durable: &[u8]) -> Vec<usize> {
        let pages = 0..bytes.len().div_ceil(PAGE);
        pages
            .filter(|page| part(bytes, page * PAGE, PAGE) != part(durable, page * PAGE, PAGE))
            .collect()
    }

    /// Puts everything on the disk, except what a failed sync counted as written.
    pub(crate) fn sync(&mut self) {
        let bytes = self.bytes();
        let changed = Self::changed_pages(&bytes, &self.durable);
        self.durable.resize(self.length, 0);
        for page in changed {
            self.write_back(&bytes, page);
        }
    }

    fn write_back(&mut self, bytes: &[u8], page: usize) {
        let now = part(bytes, page * PAGE, PAGE);
        if self.forgotten.get(&page).is_some_and(|then| *then == now) {
            return;
        }
        self.forgotten.remove(&page);
        let end = self.durable.len().min((page + 1) * PAGE);
        if let Some(target) = self.durable.get_mut(page * PAGE..end) {
            target.copy_from_slice(&now[..target.len()]);
        }
    }

    /// Puts one page on the disk before anybody asks for it, as machines do.
    pub(crate) fn write_back_early(&mut self, pick: impl FnOnce(usize) -> usize) {
        let bytes = self.bytes();
        let changed = Self::changed_pages(&bytes, &self.durable);
        if !changed.is_empty() {
            let page = changed[pick(changed.len())];
            let reach = self.length.min((page + 1) * PAGE);
            self.durable.resize(self.durable.len().max(reach), 0);
            self.write_back(&bytes, page);
        }
    }

    /// Counts everything as written although nothing was.
    pub(crate) fn fail_sync(&mut self) {
        let bytes = self.bytes();
        for page in Self::changed_pages(&bytes, &self.durable) {
            self.forgotten.insert(page, part(&bytes, page * PAGE, PAGE));
        }
    }
}

fn memory(length: usize) -> Arc<[AtomicU64]> {
    (0..length.next_multiple_of(PAGE) / 8).map(|_| AtomicU64::new(0)).collect()
}

/// `length` bytes from `offset` on; what is behind the end is zero.
pub(crate) fn part(bytes: &[u8], offset: usize, length: usize) -> Vec<u8> {
    let there = bytes.get(offset..).unwrap_or_default();
    let mut part = there[..length.min(there.len())].to_vec();
    part.resize(length, 0);
    part
}

impl State {
    /// The file that a name leads to.
    pub(crate) fn find(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(number)) => Ok(*number),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Creates an empty file; its directory exists.
    pub(crate) fn create(&mut self, path: &Path) -> io::Result<usize> {
        self.check_parent(path)?;
        self.files.push(Content::new(Vec::new()));
        let node = Node::File(self.files.len() - 1);
        self.change(NameChange::Create { path: path.to_owned(), node });
        Ok(self.files.len() - 1)
    }

    /// Fails when the directory that would hold `path` does not exist.
    pub(crate) fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|parent| self.names.get(parent)) {
            Some(Node::Directory) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(crate) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    pub(crate) fn sync_directory(&mut self, path: &Path) {
        let is_here = |change: &mut NameChange| change.directory() == Some(path);
        for change in self.changes.extract_if(.., is_here) {
            change.apply(&mut self.durable_names);
        }
    }

    /// Bytes that the files take which a name leads to.
    pub(crate) fn bytes_used(&self) -> usize {
        let linked: BTreeSet<usize> = self.names.values().filter_map(Node::file).collect();
        linked.into_iter().map(|number| self.files[number].length).sum()
    }
}

impl Node {
    pub(crate) fn file(&self) -> Option<usize> {
        match self {
            Self::File(number) => Some(*number),
            Self::Directory => None,
        }
    }
}

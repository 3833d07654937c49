//! Crashes: which disks the next process may find.

use std::collections::BTreeSet;

use crate::{
    Random, SimulatedDisk,
    state::{Content, NameChange, Names, Node, PAGE, SECTOR, State, part},
};

/// A disk at the moment of a crash: what is surely on it, and the changes that may be.
#[derive(Debug, Clone)]
pub struct CrashImage {
    files: Vec<FileImage>,
    durable_names: Names,
    name_changes: Vec<NameChange>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
struct FileImage {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

/// What may have reached the disk before the crash, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The bytes of one page of a file.
    Page { file: usize, page: usize },
    /// The length of a file.
    Length { file: usize },
    /// A change of names, by index.
    Name(usize),
}

/// Which of the changes that were not synced have reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPolicy {
    /// None.
    AllLost,
    /// All.
    AllKept,
    /// All but one.
    OneLost(usize),
    /// One only.
    OneKept(usize),
    /// The first so many, by file and offset: torn at a multiple of 4 KiB.
    FirstKept(usize),
    /// All, but of one page only the first so many sectors of 512 bytes.
    TornKept(usize, usize),
    /// Of one page the first so many sectors of 512 bytes, and nothing else but lengths and names.
    TornLost(usize, usize),
    /// Each sector, length and name by a coin of this seed.
    Random(u64),
}

impl CrashImage {
    pub(crate) fn of(state: &State) -> Self {
        let names = state.names.values().chain(state.durable_names.values());
        let linked: BTreeSet<usize> = names.filter_map(Node::file).collect();
        let copy = |(number, content): (usize, &Content)| {
            let is_linked = linked.contains(&number);
            let bytes = if is_linked { content.bytes() } else { Vec::new() };
            let durable = if is_linked { content.durable.clone() } else { Vec::new() };
            FileImage { bytes, durable }
        };
        let files: Vec<FileImage> = state.files.iter().enumerate().map(copy).collect();
        let mut changes = Vec::new();
        for (file, image) in files.iter().enumerate() {
            if image.bytes.len() != image.durable.len() {
                changes.push(Change::Length { file });
            }
            let pages = Content::changed_pages(&image.bytes, &image.durable);
            changes.extend(pages.into_iter().map(|page| Change::Page { file, page }));
        }
        changes.extend((0..state.changes.len()).map(Change::Name));
        Self {
            files,
            durable_names: state.durable_names.clone(),
            name_changes: state.changes.clone(),
            changes,
        }
    }

    /// Lists every crash that leaves another disk than the others of the list, [`CrashPolicy::Random`]
    /// apart: for small workloads.
    pub fn states(&self) -> Vec<CrashPolicy> {
        let mut states = vec![CrashPolicy::AllLost];
        if self.changes.is_empty() {
            return states;
        }
        states.push(CrashPolicy::AllKept);
        for (index, change) in self.changes.iter().enumerate() {
            if self.changes.len() > 1 {
                states.extend([CrashPolicy::OneLost(index), CrashPolicy::OneKept(index)]);
            }
            if index > 1 {
                states.push(CrashPolicy::FirstKept(index));
            }
            for sectors in self.tears(*change) {
                states.push(CrashPolicy::TornKept(index, sectors));
                states.push(CrashPolicy::TornLost(index, sectors));
            }
        }
        states
    }

    /// After how many sectors a page can be torn so that something of it is kept and something lost.
    fn tears(&self, change: Change) -> Vec<usize> {
        let Change::Page { file, page } = change else { return Vec::new() };
        let image = &self.files[file];
        let differs = |sector: &usize| {
            let at = page * PAGE + sector * SECTOR;
            part(&image.bytes, at, SECTOR) != part(&image.durable, at, SECTOR)
        };
        (0..PAGE / SECTOR).filter(differs).skip(1).collect()
    }

    /// Makes the disk that a crash leaves.
    pub fn disk(&self, policy: CrashPolicy) -> SimulatedDisk {
        let mut coins = match policy {
            CrashPolicy::Random(seed) => Random::new(seed),
            _ => Random::new(0),
        };
        let mut names = self.durable_names.clone();
        let mut contents: Vec<Vec<u8>> =
            self.files.iter().map(|image| image.durable.clone()).collect();
        // Lengths first: what is kept of a page lies in the length that is kept.
        let lengths = |change: &Change| matches!(change, Change::Length { .. });
        for wants_length in [true, false] {
            for (index, change) in self.changes.iter().enumerate() {
                if lengths(change) != wants_length {
                    continue;
                }
                let kept = kept_sectors(policy, index, *change, &mut coins);
                self.keep(*change, kept, &mut contents, &mut names);
            }
        }
        remove_unreachable(&mut names);
        let files = contents.into_iter().map(Content::new).collect();
        let durable_names = names.clone();
        SimulatedDisk::of(State { files, names, durable_names, changes: Vec::new() })
    }

    fn keep(&self, change: Change, kept: u64, contents: &mut [Vec<u8>], names: &mut Names) {
        match change {
            _ if kept == 0 => {}
            Change::Name(index) => self.name_changes[index].apply(names),
            Change::Length { file } => contents[file].resize(self.files[file].bytes.len(), 0),
            Change::Page { file, page } => {
                let target = &mut contents[file];
                for sector in (0..PAGE / SECTOR).filter(|sector| kept >> sector & 1 == 1) {
                    let at = page * PAGE + sector * SECTOR;
                    let end = target.len().min(at + SECTOR);
                    if let Some(target) = target.get_mut(at..end) {
                        let bytes = part(&self.files[file].bytes, at, SECTOR);
                        target.copy_from_slice(&bytes[..target.len()]);
                    }
                }
            }
        }
    }
}

/// Removes names whose directory is lost.
fn remove_unreachable(names: &mut Names) {
    let mut directories = BTreeSet::new();
    // A directory comes before what is in it.
    names.retain(|path, node| {
        let is_reachable = path.parent().is_none_or(|parent| directories.contains(parent));
        if is_reachable && *node == Node::Directory {
            directories.insert(path.clone());
        }
        is_reachable
    });
}

/// Which sectors of a change are kept, one bit each; for what is no page, any bit means that it is.
fn kept_sectors(policy: CrashPolicy, index: usize, change: Change, coins: &mut Random) -> u64 {
    const ALL: u64 = u64::MAX;
    let when = |is_kept: bool| if is_kept { ALL } else { 0 };
    let is_page = matches!(change, Change::Page { .. });
    match policy {
        CrashPolicy::AllLost => 0,
        CrashPolicy::AllKept => ALL,
        CrashPolicy::OneLost(lost) => when(index != lost),
        CrashPolicy::OneKept(kept) => when(index == kept),
        CrashPolicy::FirstKept(count) => when(index < count),
        CrashPolicy::TornKept(torn, sectors) | CrashPolicy::TornLost(torn, sectors)
            if index == torn =>
        {
            (1 << sectors) - 1
        }
        CrashPolicy::TornKept(..) => ALL,
        CrashPolicy::TornLost(..) => when(!is_page),
        // Whole pages half of the time, so that long runs are lost and kept as well.
        CrashPolicy::Random(_) => match coins.below(4) {
            0 => 0,
            1 => ALL,
            _ if is_page => coins.any(),
            _ => when(coins.once_in(2)),
        },
    }
}

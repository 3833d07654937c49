//! The numbers of data files: which are taken, which are being written, which are finished.
//!
//! Shared by the directory and the writers it has made. Numbers only grow.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use lockstep_host::{file::Disk, sync::Mutex};

use crate::{
    DataFile, Error,
    bug::{self, Bug},
    checkpoint::number_of,
};

/// The numbers at a moment: files from then on, and those that are being written, are not touched by
/// a commit that began at that moment.
#[derive(Debug)]
pub(crate) struct NumberSnapshot {
    /// No file had this number or a greater one.
    pub(crate) next: u64,
    writing: BTreeSet<u64>,
}

impl NumberSnapshot {
    /// Whether a file was finished, or left by another process.
    pub(crate) fn is_past(&self, number: u64) -> bool {
        number < self.next && !self.writing.contains(&number)
    }
}

/// What is known of the numbers of a database.
#[derive(Debug)]
pub(crate) struct FileNumbers {
    /// No file has this number or a greater one.
    next: u64,
    writing: BTreeSet<u64>,
    /// Files that are on the disk, and that no manifest listed when they were finished.
    finished: BTreeMap<u64, DataFile>,
    /// Files that a manifest lists which may be on the disk.
    listed: BTreeSet<u64>,
}

impl FileNumbers {
    /// Goes on behind what the manifest knows and what is in the directory of data files.
    pub(crate) fn new(disk: &dyn Disk, data: &Path, next: u64) -> Result<Self, Error> {
        let names = disk.list(data).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let what = "the directory is missing";
                Error::CheckpointDamaged { file: data.to_owned(), offset: 0, what }
            }
            _ => error.into(),
        })?;
        let numbers = names.iter().filter_map(|name| number_of(name));
        let next = if bug::is_seeded(Bug::NumberReused) {
            1
        } else {
            numbers.fold(next, |next, number| next.max(number.saturating_add(1)))
        };
        let (writing, finished, listed) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Ok(Self { next, writing, finished, listed })
    }

    pub(crate) fn snapshot(&self) -> NumberSnapshot {
        NumberSnapshot { next: self.next, writing: self.writing.clone() }
    }

    /// Whether a file was finished in this process, and is what it is said to be.
    pub(crate) fn is_finished(&self, file: &DataFile) -> bool {
        self.finished.get(&file.number) == Some(file)
    }

    /// Notes the files of a manifest that is about to be written: they are not removed, whatever comes of it.
    pub(crate) fn list_also(&mut self, files: &[DataFile]) {
        self.listed.extend(files.iter().map(|file| file.number));
    }

    /// Notes the files of the manifest that is on the disk.
    pub(crate) fn list(&mut self, files: &[DataFile]) {
        self.listed = files.iter().map(|file| file.number).collect();
    }

    /// Forgets files that were finished at a moment: they are listed now, or never.
    pub(crate) fn forget_past(&mut self, snapshot: &NumberSnapshot) {
        assert!(snapshot.next <= self.next, "numbers only grow");
        self.finished.retain(|number, _| !snapshot.is_past(*number));
    }
}

/// A number that a file is being written with.
#[derive(Debug)]
pub(crate) struct NumberReservation {
    numbers: Arc<Mutex<FileNumbers>>,
    number: u64,
    /// A finished file, which is removed when nobody has it open and no manifest lists it.
    leftover: OnceLock<(Arc<dyn Disk>, PathBuf)>,
}

impl NumberReservation {
    /// Takes the next number.
    pub(crate) fn new(numbers: &Arc<Mutex<FileNumbers>>) -> Self {
        let mut locked = numbers.lock();
        let number = locked.next;
        assert!(number < u64::MAX, "numbers are not used up");
        locked.next += 1;
        let is_new = locked.writing.insert(number);
        assert!(is_new, "a number is taken once");
        drop(locked);
        Self { numbers: Arc::clone(numbers), number, leftover: OnceLock::new() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Lets the file be removed at the end, unless a manifest lists it by then.
    pub(crate) fn remove_unlisted(&self, disk: &Arc<dyn Disk>, path: &Path) {
        self.leftover.get_or_init(|| (Arc::clone(disk), path.to_path_buf()));
    }

    /// Says that the file is on the disk.
    pub(crate) fn finished(&self, file: DataFile) {
        assert_eq!(file.number, self.number, "the file has the number that was reserved");
        self.numbers.lock().finished.insert(file.number, file);
    }
}

impl Drop for NumberReservation {
    fn drop(&mut self) {
        let mut numbers = self.numbers.lock();
        numbers.writing.remove(&self.number);
        if let Some((disk, path)) = self.leftover.get()
            && !numbers.listed.contains(&self.number)
        {
            numbers.finished.remove(&self.number);
            drop(numbers);
            // What cannot be removed is tried again by the next commit.
            let _left = disk.remove(path);
        }
    }
}

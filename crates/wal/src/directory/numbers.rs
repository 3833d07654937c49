//! The numbers of data files: which are taken, which are being written, which are finished.
//!
//! Shared by the directory and the writers it has made. Numbers only grow.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
};

use lockstep_host::{file::Disk, sync::Mutex};

use crate::{
    DataFile, Error,
    bug::{self, Bug},
    checkpoint::number_of,
};

/// What is known of the numbers of a database.
#[derive(Debug)]
pub(crate) struct FileNumbers {
    /// No file has this number or a greater one.
    next: u64,
    writing: BTreeSet<u64>,
    /// Files that are on the disk, and that no manifest lists so far.
    finished: BTreeMap<u64, DataFile>,
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
        Ok(Self { next, writing: BTreeSet::new(), finished: BTreeMap::new() })
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_writing(&self, number: u64) -> bool {
        self.writing.contains(&number)
    }

    /// Whether a file was finished in this process, and is what it is said to be.
    pub(crate) fn is_finished(&self, file: &DataFile) -> bool {
        self.finished.get(&file.number) == Some(file)
    }

    /// Forgets finished files: they are listed now, or never.
    pub(crate) fn forget_finished(&mut self) {
        self.finished.clear();
    }
}

/// A number that a file is being written with.
#[derive(Debug)]
pub(crate) struct NumberReservation {
    numbers: Arc<Mutex<FileNumbers>>,
    number: u64,
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
        Self { numbers: Arc::clone(numbers), number }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Says that the file is on the disk.
    pub(crate) fn finished(&self, file: DataFile) {
        assert_eq!(file.number, self.number, "the file has the number that was reserved");
        self.numbers.lock().finished.insert(file.number, file);
    }
}

impl Drop for NumberReservation {
    fn drop(&mut self) {
        self.numbers.lock().writing.remove(&self.number);
    }
}

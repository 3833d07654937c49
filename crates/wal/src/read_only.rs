//! The log of an engine that only reads: it refuses every append.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{Durability, Error, Group, Log, Reader};

/// A log that was read up to its end and takes nothing more.
#[derive(Debug)]
pub struct ReadOnlyLog {
    /// The directory of the database.
    path: PathBuf,
    end: u64,
}

impl ReadOnlyLog {
    /// Makes the log of the database at `path`, whose next position would be `end`.
    pub fn new(path: &Path, end: u64) -> Self {
        debug_assert!(!path.as_os_str().is_empty(), "errors name the directory");
        Self { path: path.to_owned(), end }
    }

    fn refuse<T>(&self) -> Result<T, Error> {
        Err(Error::ReadOnly { path: self.path.clone() })
    }
}

impl Log for ReadOnlyLog {
    fn append(&self, _group: &Group<'_>, _turn: &mut dyn FnMut(u64)) -> Result<Range<u64>, Error> {
        self.refuse()
    }

    fn wait(&self, end: u64, _durability: Durability) -> Result<(), Error> {
        debug_assert!(end <= self.end, "only what was appended can be waited for");
        Ok(())
    }

    fn read(&self, from: u64) -> Result<Reader, Error> {
        Err(Error::NotHere { position: from, first: self.end, end: self.end })
    }

    fn truncate(&self, _before: u64) -> Result<(), Error> {
        self.refuse()
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn durable_end(&self) -> u64 {
        self.end
    }
}

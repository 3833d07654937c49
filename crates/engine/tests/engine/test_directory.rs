//! A directory of a test.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use lockstep_engine::{Database, OpenOptions, Session};

/// A path at which there is nothing yet; removed when it is dropped.
pub(crate) struct TestDirectory(pub(crate) PathBuf);

impl TestDirectory {
    /// Makes a path of its own, also for tests of one name.
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number itself is all that is shared.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockstep-engine-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        Self(path)
    }

    /// Opens the database in it.
    pub(crate) fn open(&self) -> Session {
        Database::open(&self.0).expect("nobody else has it open").session()
    }

    /// Opens it so that nothing is written.
    pub(crate) fn open_to_read(&self) -> Session {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        Database::open_with(&self.0, &options).expect("it can be read").session()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

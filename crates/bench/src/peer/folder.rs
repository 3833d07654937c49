//! The folders of the peers on this machine, in the user's cache.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::error::{Result, Trying};

/// Returns the folder of all files of the benchmarks: `~/.cache/lockstep/bench`, or one in the
/// machine's temporary folder for a user without a home.
pub(crate) fn cache_folder() -> PathBuf {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    home.map_or_else(std::env::temp_dir, |home| home.join(".cache")).join("lockstep/bench")
}

/// A folder for the data of one run, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    folder: PathBuf,
}

impl TemporaryFolder {
    /// Creates an empty folder. The path is short: a socket's path may have 107 bytes.
    pub(crate) fn new(name: &str) -> Result<Self> {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: each folder only needs a number that no other one of this process has.
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let name = format!("lockstep-bench-{process}-{number}-{name}");
        Self::below(&std::env::temp_dir(), &name)
    }

    /// Creates an empty folder in another one.
    pub(crate) fn below(parent: &Path, name: &str) -> Result<Self> {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).trying(|| format!("create directory {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary folder, which the machine empties.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Finds a program of a peer in the folders of Debian, or, for PostgreSQL, in the folder of its
/// newest version.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let fixed = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"].map(PathBuf::from);
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<PathBuf> =
        versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    versions.sort();
    let folders = fixed.into_iter().chain(versions.into_iter().rev());
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

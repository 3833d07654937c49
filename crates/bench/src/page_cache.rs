//! Files of a folder in the page cache of the system, or out of it.
//!
//! Only these files are dropped, since the machine has other users; the machine below may still have
//! them.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::Path,
};

use lockstep_host::disk;

use crate::error::{Result, Trying};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a block in the metadata of a file.
const METADATA_BLOCK_BYTES: u64 = 512;

/// What the page cache holds when a system is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemPageCache {
    /// All files.
    Warm,
    /// None of them.
    Cold,
}

impl SystemPageCache {
    /// Returns its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }

    /// Syncs the files of a folder, and reads or drops them. A system that syncs its files when it
    /// starts, as PostgreSQL does after a crash, would otherwise wait for what others have written.
    pub(crate) fn prepare(self, folder: &Path) -> Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let each = &mut |file: &mut File| {
            file.sync_all()?;
            match self {
                Self::Warm => read(file, &mut buffer),
                Self::Cold => forget(file),
            }
        };
        visit(folder, each).trying(|| format!("read {}", folder.display()))
    }
}

/// Returns how many bytes the files of a folder take on the disk.
pub(crate) fn disk_bytes(folder: &Path) -> Result<u64> {
    let mut total = 0;
    let each = &mut |file: &mut File| {
        total += file.metadata()?.blocks() * METADATA_BLOCK_BYTES;
        Ok(())
    };
    visit(folder, each).trying(|| format!("read {}", folder.display()))?;
    Ok(total)
}

fn visit(folder: &Path, each: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            visit(&entry.path(), each)?;
        } else if kind.is_file() {
            each(&mut disk::open(&entry.path())?)?;
        }
    }
    Ok(())
}

fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<()> {
    while file.read(buffer)? > 0 {}
    Ok(())
}

/// Drops the pages of a file, all of which are on the disk.
fn forget(file: &File) -> io::Result<()> {
    // SAFETY: the file is open; the call changes no memory of this process.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

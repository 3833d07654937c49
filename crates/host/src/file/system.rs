//! The machine's disk.
#![expect(clippy::disallowed_methods, reason = "this is the real disk")]

use std::{
    fs, io,
    io::{Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use memmap2::MmapOptions;

use crate::fill_standard_streams;

use super::{Disk, Error, File, Lock, LockMode, Mapping, OpenMode, Operation};

/// What the owner of a new file or directory may do; others may do nothing.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// The machine's disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

/// Says which call on which path failed.
fn failed(operation: Operation, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::io(operation, path, source)
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, Error> {
        let mut options = fs::OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true).truncate(true),
            OpenMode::CreateNew => options.write(true).create_new(true),
        };
        // What is printed must never be written into a file of a database.
        fill_standard_streams().map_err(failed(Operation::Open, path))?;
        let file = options.open(path).map_err(failed(Operation::Open, path))?;
        Ok(Arc::new(SystemFile { file, path: path.to_owned() }))
    }

    fn create_directory(&self, path: &Path) -> Result<(), Error> {
        let created = fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path);
        created.map_err(failed(Operation::CreateDirectory, path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, Error> {
        let names = || -> io::Result<Vec<String>> {
            let entries = fs::read_dir(path)?;
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        let mut names = names().map_err(failed(Operation::List, path))?;
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<(), Error> {
        fs::rename(source, target).map_err(failed(Operation::Rename, source))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        fs::remove_file(path).map_err(failed(Operation::Remove, path))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        fs::remove_dir(path).map_err(failed(Operation::Remove, path))
    }

    fn sync_directory(&self, path: &Path) -> Result<(), Error> {
        let synced = fs::File::open(path).and_then(|directory| directory.sync_all());
        synced.map_err(failed(Operation::SyncDirectory, path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn Lock>, Error> {
        let is_exclusive = mode == LockMode::Exclusive;
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(is_exclusive).create(is_exclusive).truncate(false);
        let options = options.mode(FILE_MODE);
        fill_standard_streams().map_err(failed(Operation::Lock, path))?;
        let mut file = options.open(path).map_err(failed(Operation::Lock, path))?;
        let is_free = if is_exclusive {
            is_locked(file.try_lock())
        } else {
            is_locked(file.try_lock_shared())
        };
        if !is_free.map_err(failed(Operation::Lock, path))? {
            return Err(holder(path, &mut file));
        }
        if is_exclusive {
            write_process_id(&mut file).map_err(failed(Operation::Lock, path))?;
        }
        Ok(Box::new(SystemLock { file, process_id: process::id() }))
    }

    fn free_space(&self, path: &Path) -> Result<u64, Error> {
        free_space(path).map_err(failed(Operation::FreeSpace, path))
    }
}

/// Whether a lock was taken, and not held by somebody else.
fn is_locked(result: Result<(), fs::TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Says who holds the lock of a file that could not be locked.
fn holder(path: &Path, file: &mut fs::File) -> Error {
    // The id is that of the last process that held it alone: when a shared lock is to be had, the
    // holders are others, who wrote nothing.
    let is_shared = file.try_lock_shared().is_ok();
    let mode = if is_shared { LockMode::Shared } else { LockMode::Exclusive };
    let process_id = if is_shared { None } else { owner(file) };
    Error::Locked { path: path.to_owned(), process_id, mode }
}

/// Puts this process's id into a file in place of what it holds.
fn write_process_id(file: &mut fs::File) -> io::Result<()> {
    file.set_len(0)?;
    match writeln!(file, "{}", process::id()) {
        // A database is opened on a full disk as well; the next one is then not told who holds it.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        written => written,
    }
}

/// The process that a lock's file names.
fn owner(file: &mut fs::File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    // A process's id is short; what else is in the file is not read.
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// A lock of the machine. It would end with the open file, but a process that another thread is just
/// starting has that too for a moment; so it is given up.
#[derive(Debug)]
struct SystemLock {
    file: fs::File,
    /// The process that took it.
    process_id: u32,
}

impl Lock for SystemLock {}

impl Drop for SystemLock {
    fn drop(&mut self) {
        // A fork that closes its copy leaves the lock to the process that took it.
        if process::id() == self.process_id {
            // Fails where there are no locks; then none was taken.
            let _given_up = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::PermissionsExt,
        process,
    };

    use super::{Disk, LockMode, OpenMode, SystemDisk, SystemLock};

    #[test]
    fn what_is_created_is_its_user_s_alone() {
        let path = std::env::temp_dir().join(format!("lockstep-host-mode-of-{}", process::id()));
        SystemDisk.create_directory(&path).unwrap();
        let [created, new, lock] = ["created", "new", "lock"].map(|name| path.join(name));
        drop(SystemDisk.open(&created, OpenMode::Create).unwrap());
        drop(SystemDisk.open(&new, OpenMode::CreateNew).unwrap());
        drop(SystemDisk.lock(&lock, LockMode::Exclusive).unwrap());
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([&path, &created, &new, &lock].map(mode), [0o700, 0o600, 0o600, 0o600]);
        assert!(SystemDisk.remove_directory(&path).is_err(), "it is not empty");
        [created, new, lock].iter().for_each(|file| SystemDisk.remove(file).unwrap());
        SystemDisk.remove_directory(&path).unwrap();
    }

    #[test]
    fn a_lock_ends_although_its_file_is_open_elsewhere() {
        let path = std::env::temp_dir().join(format!("lockstep-host-lock-{}", process::id()));
        let file = File::create_new(&path).unwrap();
        file.try_lock().unwrap();
        let copy = file.try_clone().unwrap();
        drop(SystemLock { file, process_id: process::id() });
        File::open(&path).unwrap().try_lock().unwrap();
        // In a process that did not take it, it stays.
        let file = File::open(&path).unwrap();
        file.try_lock().unwrap();
        let other = file.try_clone().unwrap();
        drop(SystemLock { file, process_id: 0 });
        assert!(File::open(&path).unwrap().try_lock().is_err());
        drop((copy, other));
        fs::remove_file(&path).unwrap();
    }
}

#[derive(Debug)]
struct SystemFile {
    file: fs::File,
    path: PathBuf,
}

impl File for SystemFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length(&self) -> Result<u64, Error> {
        let metadata = self.file.metadata().map_err(failed(Operation::Length, &self.path))?;
        Ok(metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(failed(Operation::Read, &self.path)),
            }
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(failed(Operation::Write, &self.path))
    }

    fn set_length(&self, length: u64) -> Result<(), Error> {
        self.file.set_len(length).map_err(failed(Operation::SetLength, &self.path))
    }

    fn allocate(&self, length: u64) -> Result<(), Error> {
        allocate(&self.file, length).map_err(failed(Operation::Allocate, &self.path))
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(failed(Operation::SyncData, &self.path))
    }

    fn map(&self, length: usize) -> Result<Mapping, Error> {
        let mapped = MmapOptions::new().len(length).map_raw(&self.file);
        mapped.map(Mapping::of_file).map_err(failed(Operation::Map, &self.path))
    }
}

#[cfg(target_os = "linux")]
fn allocate(file: &fs::File, length: u64) -> io::Result<()> {
    use rustix::{
        fs::{FallocateFlags, fallocate},
        io::Errno,
    };
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, length) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            // A file system that reserves nothing gets zeros, which take the space as well.
            Err(Errno::OPNOTSUPP) => return append_zeros(file, length),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(file: &fs::File, length: u64) -> io::Result<()> {
    append_zeros(file, length)
}

/// Lengthens a file to `length` by zeros that are written.
fn append_zeros(file: &fs::File, length: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut offset = file.metadata()?.len();
    while offset < length {
        let count = usize::try_from(length - offset).map_or(ZEROS.len(), |n| n.min(ZEROS.len()));
        file.write_all_at(&ZEROS[..count], offset)?;
        offset += count as u64;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn free_space(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(target_os = "linux"))]
fn free_space(_path: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

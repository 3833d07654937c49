//! Creates the directory of a database, or goes on where a creation was interrupted.
//!
//! Called when a directory is opened for writing. The order of the calls is that of *Life of a
//! directory* in [`crate::directory`]. What is not ours is never touched.

use std::path::{Path, PathBuf};

use lockstep_host::file::{Disk, Lock, LockMode};

use super::{DATA, LOCK, LOG, MANIFEST, MANIFEST_NEW, commit, list, lock, not_writable};
use crate::{
    Error, LogId, Manifest,
    bug::{self, Bug},
    close_mark, recovery,
    segment::{self, NotCreated, Segment},
};

/// The length of the first segment of a log: the next one is as long as the log's options say.
const FIRST_SEGMENT_BYTES: u64 = 4 << 10;

/// The number of the first data file.
pub(super) const FIRST_NUMBER: u64 = 1;

/// Locks a directory for writing, in which there is a database afterwards.
pub(crate) fn lock_or_create(
    disk: &dyn Disk,
    path: &Path,
    new_id: LogId,
) -> Result<Box<dyn Lock>, Error> {
    let names = match list(disk, path)? {
        Some(names) => names,
        None => {
            create_directory(disk, path, path)?;
            Vec::new()
        }
    };
    let has_manifest = |names: &[String]| names.iter().any(|name| name == MANIFEST);
    // Before LOCK is created: nothing is put beside foreign files.
    if !has_manifest(&names) {
        check_names(disk, path, &names)?;
    }
    let lock = lock(disk, path, LockMode::Exclusive)?;
    // Somebody else may have created the database before it was locked.
    let names = disk.list(path)?;
    if !has_manifest(&names) {
        check_names(disk, path, &names)?;
        check_unused(disk, path, &names)?;
        create(disk, path, new_id)?;
    }
    Ok(lock)
}

/// Fails when a directory without a manifest has something in it that no creation leaves.
fn check_names(disk: &dyn Disk, path: &Path, names: &[String]) -> Result<(), Error> {
    let foreign = |file: PathBuf| Err(Error::ForeignFiles { path: path.to_owned(), file });
    for name in names {
        let is_own: fn(&str) -> bool = match name.as_str() {
            LOCK | MANIFEST_NEW => continue,
            LOG => |name| segment::is_name(name) || close_mark::is_name(name),
            DATA => |name| crate::checkpoint::number_of(name).is_some(),
            _ => return foreign(path.join(name)),
        };
        let inner = path.join(name);
        let found = match disk.list(&inner) {
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return foreign(inner);
            }
            found => found?,
        };
        if let Some(name) = found.iter().find(|name| !is_own(name)) {
            return foreign(inner.join(name));
        }
    }
    Ok(())
}

/// Fails when a directory without a manifest has held rows: a creation leaves no data file, and of
/// the log at most the first segment without a record.
fn check_unused(disk: &dyn Disk, path: &Path, names: &[String]) -> Result<(), Error> {
    let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
    let has_data = is_there(DATA) && !disk.list(&path.join(DATA))?.is_empty();
    let log = path.join(LOG);
    let numbers = if is_there(LOG) { segment::list(disk, &log)?.numbers } else { Vec::new() };
    let is_used = |recovered: recovery::Recovered| recovered.end > 0 || recovered.cut.is_some();
    let has_log = match numbers.as_slice() {
        [] => is_there(LOG) && disk.list(&log)?.iter().any(|name| close_mark::is_name(name)),
        [1] => match recovery::read_log(disk, &log, 0, &mut |_| ()) {
            Ok(recovered) => is_used(recovered),
            Err(Error::Damaged { .. }) => true,
            Err(error) => return Err(error),
        },
        _ => true,
    };
    if has_data || has_log {
        let what = "the file is missing, but log or data files exist";
        return Err(Error::CheckpointDamaged { file: path.join(MANIFEST), offset: 0, what });
    }
    Ok(())
}

/// Creates a directory, or takes an empty one, and everything in it but the manifest; the log begins at
/// a position. Returns the lock, and whether the directory was created. Where it fails, nothing is left.
pub(super) fn create_copy(
    disk: &dyn Disk,
    path: &Path,
    new_id: LogId,
    position: u64,
) -> Result<(Box<dyn Lock>, bool), Error> {
    let is_new = match list(disk, path)? {
        None => {
            disk.create_directory(path).map_err(|error| not_writable(path, error))?;
            true
        }
        Some(names) => {
            if let Some(name) = names.first() {
                return Err(Error::ForeignFiles { path: path.to_owned(), file: path.join(name) });
            }
            false
        }
    };
    // What is in the directory is another process's where this fails, or has locked it before.
    let remove_lock = || {
        let _missing = disk.remove(&path.join(LOCK));
        if is_new {
            let _left = disk.remove_directory(path);
        }
    };
    let lock = lock(disk, path, LockMode::Exclusive).inspect_err(|error| {
        if !matches!(error, Error::InUse { .. }) {
            remove_lock();
        }
    })?;
    let names = list(disk, path).inspect_err(|_| remove_lock())?;
    if let Some(name) = names.iter().flatten().find(|name| *name != LOCK) {
        return Err(Error::ForeignFiles { path: path.to_owned(), file: path.join(name) });
    }
    let created = create_content(disk, path, new_id, position);
    if created.is_err() {
        remove_copy(disk, path, is_new);
    }
    created.map(|()| (lock, is_new))
}

/// Removes what a copy has created that is not completed. What cannot be removed stays: without a
/// manifest it is no database.
pub(super) fn remove_copy(disk: &dyn Disk, path: &Path, is_new: bool) {
    // The manifest first: what is left of a copy must not look like a database.
    for name in [MANIFEST, MANIFEST_NEW] {
        let _missing = disk.remove(&path.join(name));
    }
    for directory in [LOG, DATA].map(|name| path.join(name)) {
        let names = disk.list(&directory).unwrap_or_default();
        names.iter().for_each(|name| drop(disk.remove(&directory.join(name))));
        let _missing = disk.remove_directory(&directory);
    }
    let _missing = disk.remove(&path.join(LOCK));
    if is_new {
        let _left = disk.remove_directory(path);
    }
}

/// Creates everything in a directory that is locked, the manifest last.
fn create(disk: &dyn Disk, path: &Path, new_id: LogId) -> Result<(), Error> {
    create_content(disk, path, new_id, 0)?;
    let bytes = Manifest::first(new_id).encode(FIRST_NUMBER)?;
    commit::write_manifest(disk, path, &bytes).map_err(|error| not_created(path, error))
}

/// Creates everything in a directory that is locked but the manifest.
fn create_content(disk: &dyn Disk, path: &Path, new_id: LogId, position: u64) -> Result<(), Error> {
    let log = path.join(LOG);
    create_directory(disk, path, &log)?;
    create_directory(disk, path, &path.join(DATA))?;
    let header = segment::header(new_id, 1, FIRST_SEGMENT_BYTES);
    let first = Segment::create(disk, &log, header, Some(position));
    first.map_err(|error| not_created(path, error))?;
    if !bug::is_seeded(Bug::CreationNotSynced) {
        disk.sync_directory(path)?;
        if let Some(parent) = parent(path) {
            disk.sync_directory(parent)?;
        }
    }
    Ok(())
}

/// Creates a directory at `target`, if there is none, for the database at `path`.
fn create_directory(disk: &dyn Disk, path: &Path, target: &Path) -> Result<(), Error> {
    match disk.create_directory(target) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map_err(|error| not_writable(path, error)),
    }
}

/// The directory that has a path's name in it.
fn parent(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

fn not_created(path: &Path, error: NotCreated) -> Error {
    let (NotCreated::Refused(error) | NotCreated::NotSynced(error)) = error;
    not_writable(path, error)
}

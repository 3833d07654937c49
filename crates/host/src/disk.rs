//! Files and folders that users name: reading, writing, listing and removing them.
//!
//! Which of them a call may open is in its context ([`crate::file_access`]); what it may not open is an
//! error that carries a [`RefusedFile`](crate::RefusedFile). An open file is `std`'s. Errors are
//! `std::io`'s and have no path: the caller adds it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use crate::{file_access::special_kind, query::file_access};

/// What of a file's mode is not its kind.
#[cfg(unix)]
const MODE_BITS: u32 = 0o7777;

/// Opens a file for reading. A pipe, a device or a socket is refused before it is opened.
pub fn open(path: &Path) -> io::Result<File> {
    file_access().open(path)
}

/// Creates a file for writing; an existing one is emptied.
pub fn create(path: &Path) -> io::Result<File> {
    file_access().create(path)
}

/// Creates a file for writing; fails with `AlreadyExists` when there is one.
pub fn create_new(path: &Path) -> io::Result<File> {
    file_access().create_new(path)
}

/// Gives a file the bits that say who may do what; no effect where the system has none.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode & MODE_BITS))
    }
    #[cfg(not(unix))]
    {
        let _unused = (file, mode);
        Ok(())
    }
}

/// Reads a whole file that the operator names.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Reads a whole file of UTF-8 text that the operator names.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

/// Gives a file another name; a file that has that name is replaced.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    debug_assert_ne!(from, to, "a file is renamed to another name");
    file_access().rename(from, to)
}

/// Removes a file.
pub fn remove_file(path: &Path) -> io::Result<()> {
    file_access().remove_file(path)
}

/// Creates a folder, with those above it that are missing.
pub fn create_folders(path: &Path) -> io::Result<()> {
    file_access().create_folders(path)
}

/// Removes a folder; fails when it is not empty.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    file_access().remove_folder(path)
}

/// What the system says of a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// The bytes of a file.
    pub bytes: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// What it is, if it is neither a file nor a folder: a pipe, a device or a socket.
    pub special: Option<&'static str>,
    /// The bits that say who may do what; `None` where the system has none.
    pub mode: Option<u32>,
    /// When it was changed, in nanoseconds since the epoch; `None` where the system does not say.
    pub modified_ns: Option<i64>,
}

/// Returns what the system says of a file or a folder.
pub fn status(path: &Path) -> io::Result<FileStatus> {
    let found = file_access().status(path)?;
    let (bytes, is_folder) = (found.len(), found.is_dir());
    debug_assert!(!(is_folder && found.is_file()), "a folder is no file");
    let special = special_kind(found.file_type());
    let modified = found.modified().ok();
    let since_epoch = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified_ns = since_epoch.and_then(|since| i64::try_from(since.as_nanos()).ok());
    Ok(FileStatus { bytes, is_folder, special, mode: mode_of(&found), modified_ns })
}

/// Makes sure that the names in a folder are on the disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    file_access().sync_folder(folder)
}

#[cfg(unix)]
fn mode_of(found: &fs::Metadata) -> Option<u32> {
    Some(std::os::unix::fs::MetadataExt::mode(found))
}

#[cfg(not(unix))]
fn mode_of(_found: &fs::Metadata) -> Option<u32> {
    None
}

/// Returns the paths of what is in a folder, in the order of their names.
pub fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names = file_access().list(folder)?;
    let mut paths: Vec<PathBuf> = names.into_iter().map(|name| folder.join(name)).collect();
    paths.sort();
    debug_assert!(paths.iter().all(|path| path.parent() == Some(folder)), "one level is listed");
    Ok(paths)
}

/// Returns whether there is a folder at a path, which may be a link to one.
pub fn is_folder(path: &Path) -> bool {
    file_access().status(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Returns whether there is a file at a path, which may be a link to one.
pub fn is_file(path: &Path) -> bool {
    file_access().status(path).is_ok_and(|metadata| metadata.is_file())
}

/// Returns whether there is anything at a path; a link that leads nowhere is nothing, nor is one that the
/// call may not follow.
pub fn exists(path: &Path) -> bool {
    file_access().status(path).is_ok()
}

/// Returns whether there is anything at a path; a link counts wherever it leads.
pub fn exists_or_links(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns the absolute path of what exists at a path, with all links followed.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let resolved = file_access().resolve(path)?;
    debug_assert!(resolved.is_absolute(), "a resolved path begins at the root");
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    #[test]
    fn a_created_file_can_be_read() {
        let name = format!("lockstep-host-disk-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        super::create(&path).unwrap().write_all(b"rows").unwrap();
        assert_eq!(super::read(&path).unwrap(), b"rows");
        assert_eq!(super::read_to_string(&path).unwrap(), "rows");
        assert!(super::create_new(&path).is_err());
        super::remove_file(&path).unwrap();
        assert!(super::open(&path).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_gets_the_mode_of_another() {
        let name = format!("lockstep-host-mode-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = super::create(&path).unwrap();
        super::set_mode(&file, 0o100_600).unwrap();
        assert_eq!(super::status(&path).unwrap().mode, Some(0o100_600));
        super::remove_file(&path).unwrap();
        assert!(super::status(&path).is_err());
    }

    #[test]
    fn a_folder_lists_what_is_in_it() {
        let name = format!("lockstep-host-folder-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        super::create_folders(&folder.join("b")).unwrap();
        super::create(&folder.join("c")).unwrap();
        super::rename(&folder.join("c"), &folder.join("a")).unwrap();
        assert_eq!(super::list(&folder).unwrap(), [folder.join("a"), folder.join("b")]);
        assert!(super::remove_folder(&folder).is_err(), "it is not empty");
        assert!(super::is_folder(&folder.join("b")) && !super::is_folder(&folder.join("a")));
        assert!(super::is_file(&folder.join("a")) && !super::is_file(&folder.join("b")));
        assert!(super::exists(&folder.join("b")) && !super::exists_or_links(&folder.join("d")));
        let roundabout = folder.join("b/../a");
        assert_eq!(
            super::resolve(&roundabout).unwrap(),
            super::resolve(&folder).unwrap().join("a"),
        );
        super::remove_file(&folder.join("a")).unwrap();
        super::remove_folder(&folder.join("b")).unwrap();
        super::remove_folder(&folder).unwrap();
        assert!(super::list(&folder).is_err());
    }
}

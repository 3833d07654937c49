//! The files that a call may open: all of the machine's, or those below some folders.
//!
//! [`crate::disk`] opens, lists, creates and removes files with the access of the thread's call
//! ([`crate::query::file_access`]), so that code that names a path needs to know nothing of it. What is
//! opened later, or on another thread, keeps the access with its path.
//!
//! # Below folders
//!
//! A path is resolved first, links included; what it leads to has to be below a folder. It is then opened
//! from that folder on, one name after the other, none of which may be a link: a name that became one
//! meanwhile is an error and is not followed. So links below a folder may lead anywhere below the folders,
//! and nowhere else. A path that leads elsewhere is refused whether or not anything is there.
//!
//! # Special files
//!
//! A pipe, a device or a socket is refused before it is opened, with any access: a pipe would keep its
//! reader waiting, and a device may do anything.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, FileType},
    io,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use crate::temporary::FOLDER_PREFIX;

/// The files that a call may open. A clone is the same access.
#[derive(Debug, Clone, Default)]
pub struct FileAccess {
    /// Resolved paths; `None`: every file.
    folders: Option<Arc<[PathBuf]>>,
    /// A resolved folder that is closed although it may be below another.
    closed: Option<Arc<Path>>,
}

/// The reason why a file is not opened although the system would open it. [`RefusedFile::of_io`] finds it
/// in the error of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedFile {
    /// It is not below a folder of the call.
    #[error("the file is outside the permitted directories")]
    Outside,
    /// It is neither a file nor a folder.
    #[error("the file is {0}")]
    Special(&'static str),
}

impl RefusedFile {
    /// Returns the reason that an error carries.
    pub fn of_io(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<RefusedFile> for io::Error {
    fn from(refused: RefusedFile) -> Self {
        let kind = match refused {
            RefusedFile::Outside => io::ErrorKind::PermissionDenied,
            RefusedFile::Special(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, refused)
    }
}

/// A place below a folder: the folder, and the names from there on.
struct Place<'a> {
    folder: &'a Path,
    rest: PathBuf,
}

impl FileAccess {
    /// Makes the access to what is below these folders, whose paths are resolved.
    pub fn below(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        let folders: Arc<[PathBuf]> = folders.into_iter().collect();
        debug_assert!(
            folders.iter().all(|folder| folder.is_absolute()),
            "the folders are resolved"
        );
        Self { folders: Some(folders), closed: None }
    }

    /// Returns the same access without a folder, whose path is resolved, and what is below it.
    #[must_use]
    pub fn without(self, folder: &Path) -> Self {
        debug_assert!(folder.is_absolute(), "the folder is resolved");
        Self { closed: Some(folder.into()), ..self }
    }

    /// Returns whether a resolved path is closed although it may be below a folder of the call.
    pub fn is_closed(&self, resolved: &Path) -> bool {
        self.closed.as_deref().is_some_and(|closed| resolved.starts_with(closed))
    }

    /// Opens a file for reading.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        match self.existing(path)? {
            Some(place) => imp::open(&place),
            None => open_regular(path, libc::O_NONBLOCK),
        }
    }

    /// Creates a file for writing; fails with `AlreadyExists` when there is one.
    pub fn create_new(&self, path: &Path) -> io::Result<File> {
        match self.new_place(path)? {
            Some(place) => imp::create(&place, libc::O_EXCL),
            None => File::create_new(path),
        }
    }

    /// Creates a file for writing; an existing one is emptied.
    #[expect(clippy::disallowed_methods, reason = "this is the real disk")]
    pub fn create(&self, path: &Path) -> io::Result<File> {
        match self.new_place(path)? {
            Some(place) => imp::create(&place, libc::O_TRUNC),
            None => File::create(path),
        }
    }

    /// Gives a file another name; a file that has that name is replaced.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.new_place(from)?, self.new_place(to)?) {
            (Some(from), Some(to)) => imp::rename(&from, &to),
            _ => fs::rename(from, to),
        }
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        match self.new_place(path)? {
            Some(place) => imp::remove_file(&place),
            None => fs::remove_file(path),
        }
    }

    /// Removes a folder; fails when it is not empty.
    pub fn remove_folder(&self, path: &Path) -> io::Result<()> {
        match self.new_place(path)? {
            Some(place) => imp::remove_folder(&place),
            None => fs::remove_dir(path),
        }
    }

    /// Creates a folder, with those above it that are missing.
    pub fn create_folders(&self, path: &Path) -> io::Result<()> {
        if self.folders.is_none() {
            return fs::create_dir_all(path);
        }
        let missing: Vec<&Path> =
            path.ancestors().take_while(|part| fs::symlink_metadata(part).is_err()).collect();
        for folder in missing.into_iter().rev() {
            let Some(place) = self.new_place(folder)? else { continue };
            match imp::create_folder(&place) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => created?,
            }
        }
        match self.status(path)?.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Makes sure that the names in a folder are on the disk.
    #[expect(clippy::disallowed_methods, reason = "this is the real disk")]
    pub fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let resolved = self.resolve(path)?;
        debug_assert!(resolved.is_absolute(), "links are followed");
        File::open(resolved)?.sync_all()
    }

    /// Returns the names in a folder, in no order.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        match self.existing(path)? {
            Some(place) => imp::list(&place),
            None => fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect(),
        }
    }

    /// Returns what the system says of what a path leads to.
    pub fn status(&self, path: &Path) -> io::Result<fs::Metadata> {
        match self.existing(path)? {
            // Without links: what was resolved is what was looked at.
            Some(place) => fs::symlink_metadata(place.folder.join(&place.rest)),
            None => fs::metadata(path),
        }
    }

    /// Returns whether a path leads to a folder that may be read.
    pub fn is_folder(&self, path: &Path) -> bool {
        self.status(path).is_ok_and(|found| found.is_dir())
    }

    /// Returns the path of what exists at a path, with all links followed.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        match self.existing(path)? {
            Some(place) => Ok(place.folder.join(&place.rest)),
            None => fs::canonicalize(path),
        }
    }

    /// Returns the place that a path leads to; `None` where every file may be opened.
    fn existing(&self, path: &Path) -> io::Result<Option<Place<'_>>> {
        let Some(folders) = &self.folders else { return Ok(None) };
        match fs::canonicalize(path) {
            Ok(resolved) if self.is_closed(&resolved) => Err(RefusedFile::Outside.into()),
            Ok(resolved) => place_in(folders, &resolved).map(Some),
            Err(error) => {
                // What is missing elsewhere is not to be told from what is there.
                let existing = path.ancestors().find(|part| fs::symlink_metadata(part).is_ok());
                let resolved = existing.and_then(|part| fs::canonicalize(part).ok());
                let resolved = resolved.unwrap_or_default();
                place_in(folders, &resolved)?;
                match self.is_closed(&resolved) {
                    true => Err(RefusedFile::Outside.into()),
                    false => Err(error),
                }
            }
        }
    }

    /// Returns the place of a name that may be free, and may be a link, which is not followed.
    fn new_place(&self, path: &Path) -> io::Result<Option<Place<'_>>> {
        let Some(parent) = self.existing(path.parent().unwrap_or(path))? else { return Ok(None) };
        let Some(Component::Normal(name)) = path.components().next_back() else {
            return Err(RefusedFile::Outside.into());
        };
        check_name(name)?;
        debug_assert_ne!(name, "..", "a normal component leads to no parent");
        let rest = parent.rest.join(name);
        match self.is_closed(&parent.folder.join(&rest)) {
            true => Err(RefusedFile::Outside.into()),
            false => Ok(Some(Place { folder: parent.folder, rest })),
        }
    }
}

/// Returns the place of a resolved path below one of the folders.
fn place_in<'f>(folders: &'f [PathBuf], resolved: &Path) -> io::Result<Place<'f>> {
    let place = folders.iter().find_map(|folder| {
        let rest = resolved.strip_prefix(folder).ok()?.to_owned();
        Some(Place { folder, rest })
    });
    let place = place.ok_or(RefusedFile::Outside)?;
    place.rest.iter().try_for_each(check_name)?;
    debug_assert!(place.rest.is_relative(), "the rest is below the folder");
    Ok(place)
}

/// Refuses a folder of temporary files: the rows of other queries.
fn check_name(name: &OsStr) -> io::Result<()> {
    match name.to_string_lossy().starts_with(FOLDER_PREFIX) {
        true => Err(RefusedFile::Outside.into()),
        false => Ok(()),
    }
}

/// Fails for what is neither a file nor a folder, and for a folder, which cannot be read as a file.
fn check_kind(kind: FileType) -> io::Result<()> {
    match special_kind(kind) {
        Some(special) => Err(RefusedFile::Special(special).into()),
        None if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        None => Ok(()),
    }
}

/// Names what is neither a file, a folder nor a link.
pub(crate) fn special_kind(kind: FileType) -> Option<&'static str> {
    let kinds = [
        (kind.is_fifo(), "a pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
    ];
    kinds.into_iter().find_map(|(is_it, name)| is_it.then_some(name))
}

/// Opens a file for reading. Looks at it before, and at what was opened.
fn open_regular(path: &Path, flags: i32) -> io::Result<File> {
    check_kind(fs::metadata(path)?.file_type())?;
    debug_assert_ne!(flags & libc::O_NONBLOCK, 0, "a pipe that replaced the file must not block");
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check_kind(file.metadata()?.file_type())?;
    Ok(file)
}

#[cfg(target_os = "linux")]
mod imp {
    //! Linux: from the folder on, by open folders.

    use std::{
        ffi::{OsStr, OsString},
        fs::File,
        io,
        os::{fd::OwnedFd, unix::ffi::OsStringExt},
        path::Path,
    };

    use rustix::fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat,
    };

    use super::{Place, RefusedFile, check_kind};

    /// What new files and folders may be to whom, less the process's mask.
    const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
    const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

    impl Place<'_> {
        /// Opens the folder that the place is in, and returns its name there; `.` for a folder of the
        /// call itself.
        fn parent(&self) -> io::Result<(OwnedFd, &OsStr)> {
            debug_assert!(self.rest.is_relative(), "an absolute path would leave the folder");
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let mut open = openat(CWD, self.folder, flags, Mode::empty())?;
            for name in self.rest.parent().unwrap_or(Path::new("")) {
                open = openat(&open, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            }
            Ok((open, self.rest.file_name().unwrap_or(OsStr::new("."))))
        }
    }

    pub(super) fn open(place: &Place<'_>) -> io::Result<File> {
        let (parent, name) = place.parent()?;
        check(&parent, name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        regular(openat(&parent, name, flags, Mode::empty())?)
    }

    pub(super) fn create(place: &Place<'_>, flag: i32) -> io::Result<File> {
        let (parent, name) = place.parent()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flag = OFlags::from_bits_retain(flag.cast_unsigned());
        if !flag.contains(OFlags::EXCL) {
            match check(&parent, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                checked => checked?,
            }
        }
        regular(openat(&parent, name, flags | flag | OFlags::CLOEXEC, FILE_MODE)?)
    }

    /// Fails for a special file, which is not opened.
    fn check(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let special = match FileType::from_raw_mode(found.st_mode) {
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => return Ok(()),
        };
        Err(RefusedFile::Special(special).into())
    }

    fn regular(file: OwnedFd) -> io::Result<File> {
        let file = File::from(file);
        check_kind(file.metadata()?.file_type())?;
        Ok(file)
    }

    pub(super) fn rename(from: &Place<'_>, to: &Place<'_>) -> io::Result<()> {
        let ((from, from_name), (to, to_name)) = (from.parent()?, to.parent()?);
        Ok(renameat(from, from_name, to, to_name)?)
    }

    pub(super) fn remove_file(place: &Place<'_>) -> io::Result<()> {
        let (parent, name) = place.parent()?;
        Ok(unlinkat(parent, name, AtFlags::empty())?)
    }

    pub(super) fn remove_folder(place: &Place<'_>) -> io::Result<()> {
        let (parent, name) = place.parent()?;
        Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    pub(super) fn create_folder(place: &Place<'_>) -> io::Result<()> {
        let (parent, name) = place.parent()?;
        Ok(mkdirat(parent, name, FOLDER_MODE)?)
    }

    pub(super) fn list(place: &Place<'_>) -> io::Result<Vec<OsString>> {
        let (parent, name) = place.parent()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&parent, name, flags, Mode::empty())?;
        let names = Dir::new(folder)?.map(|entry| {
            entry.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec()))
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        Ok(names.into_iter().filter(|name| name != "." && name != "..").collect())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    //! Other systems: by the resolved path, whose last name is not followed.

    use std::{
        ffi::OsString,
        fs::{self, File},
        io,
        os::unix::fs::OpenOptionsExt,
        path::PathBuf,
    };

    use super::{Place, check_kind, open_regular};

    impl Place<'_> {
        fn path(&self) -> PathBuf {
            self.folder.join(&self.rest)
        }
    }

    pub(super) fn open(place: &Place<'_>) -> io::Result<File> {
        open_regular(&place.path(), libc::O_NONBLOCK | libc::O_NOFOLLOW)
    }

    pub(super) fn create(place: &Place<'_>, flag: i32) -> io::Result<File> {
        let flags = flag | libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.custom_flags(flags).open(place.path())?;
        check_kind(file.metadata()?.file_type())?;
        Ok(file)
    }

    pub(super) fn rename(from: &Place<'_>, to: &Place<'_>) -> io::Result<()> {
        fs::rename(from.path(), to.path())
    }

    pub(super) fn remove_file(place: &Place<'_>) -> io::Result<()> {
        fs::remove_file(place.path())
    }

    pub(super) fn remove_folder(place: &Place<'_>) -> io::Result<()> {
        fs::remove_dir(place.path())
    }

    pub(super) fn create_folder(place: &Place<'_>) -> io::Result<()> {
        fs::create_dir(place.path())
    }

    pub(super) fn list(place: &Place<'_>) -> io::Result<Vec<OsString>> {
        fs::read_dir(place.path())?.map(|entry| Ok(entry?.file_name())).collect()
    }
}

#[cfg(test)]
mod tests;

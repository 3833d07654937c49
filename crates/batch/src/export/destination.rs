//! Where the file of an export is in the end, and its temporary file beside it.
//!
//! An export makes a [`Destination`] before it writes: a link is followed, a file that is replaced keeps
//! its mode, and what is no regular file is refused.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::disk;

use crate::error::from_io;

/// The end of the name of a file that is not complete.
pub(super) const TEMPORARY_SUFFIX: &str = ".tmp";

/// Where the file of an export is in the end.
#[derive(Debug)]
pub(super) struct Destination {
    /// Its path, with links followed.
    pub(super) target: PathBuf,
    /// The mode of the file that is there, if one is.
    mode: Option<u32>,
}

impl Destination {
    /// Finds where a path leads. Fails where a pipe, a device or a socket is there, or a link that leads
    /// nowhere.
    pub(super) fn of(path: &Path) -> Result<Self> {
        if !disk::exists_or_links(path) {
            return Ok(Self { target: path.to_owned(), mode: None });
        }
        let found = disk::status(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => leads_nowhere(path),
            _ => from_io(&error, "write", path),
        })?;
        if found.special.is_some() {
            let message = format!("file `{}` is not a regular file", path.display());
            return Diagnostic::new(code::WRONG_OBJECT_TYPE, message)
                .with_detail("An export would replace the pipe, device or socket.")
                .with_hint("Write to a regular file, or print the result in the shell.")
                .err();
        }
        let target = disk::resolve(path).map_err(|error| from_io(&error, "write", path))?;
        Ok(Self { target, mode: found.mode })
    }

    /// Makes the file under its temporary name, with the mode of the file that it replaces.
    pub(super) fn create(&self) -> io::Result<(TemporaryFile, File)> {
        let path = temporary_path(&self.target);
        let file = disk::create_new(&path)?;
        let temporary = TemporaryFile { path };
        if let Some(mode) = self.mode {
            disk::set_mode(&file, mode)?;
        }
        Ok((temporary, file))
    }
}

fn leads_nowhere(path: &Path) -> Box<Diagnostic> {
    let message = format!("file `{}` is a dangling symbolic link", path.display());
    let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
    Box::new(diagnostic.with_hint("Remove the link, or write to another file."))
}

/// A file under a temporary name, which is removed unless it was renamed.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    pub(super) path: PathBuf,
}

impl TemporaryFile {
    /// Leaves the file where it is, and returns its path.
    pub(super) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // Fails after a rename, when there is no temporary file.
            drop(disk::remove_file(&self.path));
        }
    }
}

/// Makes the error for a file that cannot be created.
pub(super) fn not_created(error: &io::Error, path: &Path) -> Box<Diagnostic> {
    let folder = path.parent().map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    match folder {
        // As in `/proc`.
        Some(folder) if error.kind() == io::ErrorKind::NotFound && disk::is_folder(folder) => {
            let message = format!("cannot create files in directory `{}`", folder.display());
            let diagnostic = Diagnostic::new(code::IO_ERROR, message);
            Box::new(diagnostic.with_hint("Write to another directory."))
        }
        Some(folder) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("directory `{}` does not exist", folder.display());
            let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
            Box::new(diagnostic.with_hint("Create the directory, or write to another directory."))
        }
        _ => from_io(error, "write", path),
    }
}

/// Returns a temporary name in the directory of the file, since a rename does not cross file
/// systems.
fn temporary_path(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the number has to be new.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}{TEMPORARY_SUFFIX}", std::process::id()))
}

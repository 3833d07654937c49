//! Errors of the log and of the directory as diagnostics.

use std::{io, path::Path};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_host::file;
use lockstep_wal::Error;

/// Returns the diagnostic of an error of the log.
pub(crate) fn log_error(error: &Error) -> Box<Diagnostic> {
    if let Some(folder) = missing_folder(error) {
        let message = format!("directory `{}` does not exist", folder.display());
        let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
        return Box::new(
            diagnostic.with_hint("Create it, or specify a path in an existing directory."),
        );
    }
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    let diagnostic = Diagnostic::new(code_of(error), message).with_kind(kind_of(error));
    Box::new(diagnostic.with_hint(hint_of(error)))
}

/// Returns the folder in which a directory was to be made, where it does not exist.
fn missing_folder(error: &Error) -> Option<&Path> {
    let Error::Disk { source: file::Error::Io { operation, path, source } } = error else {
        return None;
    };
    let is_missing =
        *operation == file::Operation::CreateDirectory && source.kind() == io::ErrorKind::NotFound;
    path.parent().filter(|_| is_missing)
}

fn code_of(error: &Error) -> &'static str {
    match error {
        Error::Stopped { .. } | Error::CheckpointsStopped { .. } => code::LOG_STOPPED,
        Error::Full { .. } => code::DISK_FULL,
        Error::TooLarge { .. } | Error::ManifestTooLarge { .. } => code::VALUE_TOO_LARGE,
        Error::ReadOnly { .. } => code::READ_ONLY,
        Error::Closed | Error::Forked { .. } => code::DATABASE_CLOSED,
        Error::NewerFormat { .. } | Error::ByteOrder { .. } => code::NEWER_FORMAT,
        Error::Damaged { .. }
        | Error::Foreign { .. }
        | Error::LogMissing { .. }
        | Error::CheckpointDamaged { .. } => code::DATA_CORRUPTED,
        Error::InUse { .. } => code::DATABASE_IN_USE,
        Error::NotADirectory { .. } | Error::ForeignFiles { .. } => code::DUPLICATE_FILE,
        Error::NoDatabase { .. } => code::UNDEFINED_FILE,
        Error::NotWritable { .. }
        | Error::NoLocks { .. }
        | Error::Disk { .. }
        | Error::Thread { .. }
        | Error::NotHere { .. } => code::IO_ERROR,
    }
}

fn kind_of(error: &Error) -> Kind {
    match error {
        Error::Stopped { .. }
        | Error::CheckpointsStopped { .. }
        | Error::Full { .. }
        | Error::ManifestTooLarge { .. }
        | Error::InUse { .. } => Kind::FreeResources,
        Error::Damaged { .. }
        | Error::Foreign { .. }
        | Error::LogMissing { .. }
        | Error::CheckpointDamaged { .. } => Kind::FixData,
        Error::Disk { .. } | Error::Thread { .. } | Error::NotHere { .. } => Kind::Retry,
        _ => Kind::FixRequest,
    }
}

fn hint_of(error: &Error) -> &'static str {
    match error {
        Error::Stopped { .. } => {
            "Reads still work. Check the disk, then reopen the directory; acknowledged writes are \
             preserved."
        }
        Error::CheckpointsStopped { .. } => {
            "Reads and writes still work. Check the disk, then reopen the directory."
        }
        Error::Full { .. } => {
            "The statement stored nothing. Reads still work, and writes resume when space is \
             available."
        }
        Error::TooLarge { .. } => "Write fewer rows at once.",
        Error::ManifestTooLarge { .. } => "Drop tables, and run CHECKPOINT again.",
        Error::ReadOnly { .. } => {
            "The directory was opened read-only; connect without read_only to write."
        }
        Error::Closed => "Connect to the directory again.",
        Error::Forked { .. } => {
            "A forked process cannot use its parent's databases. Use the start method `spawn`, \
             pass rows between the processes, or connect after the fork to a directory that no \
             other process has open."
        }
        Error::NewerFormat { .. } => {
            "Open the directory with the version of Lockstep that wrote it, or a newer version."
        }
        Error::ByteOrder { .. } => "Open the directory on a machine with the same byte order.",
        Error::Damaged { .. }
        | Error::Foreign { .. }
        | Error::LogMissing { .. }
        | Error::CheckpointDamaged { .. } => {
            "Run `lockstep check` to list the damage; with --salvage, it writes the readable data \
             to another directory."
        }
        Error::InUse { .. } => {
            "A directory that one process writes cannot be opened by another: stop the other \
             process, or connect to it."
        }
        Error::NotADirectory { .. } | Error::ForeignFiles { .. } => {
            "Specify a database directory, an empty directory, or a path that does not exist."
        }
        Error::NoDatabase { .. } => "Connect without read_only to create a database.",
        Error::NotWritable { .. } => {
            "Grant this user write access to the directory, or connect with read_only."
        }
        Error::NoLocks { .. } => {
            "Use a directory on a local disk: without locks, two processes could write to it."
        }
        Error::Disk { .. } | Error::Thread { .. } | Error::NotHere { .. } => {
            "Acknowledged writes are not affected."
        }
    }
}

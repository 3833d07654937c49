//! Errors of the log and of the directory as diagnostics.

use std::{io, path::Path};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_host::file;
use lockstep_wal::Error;

/// Returns the diagnostic of an error of the log.
pub(crate) fn log_error(error: &Error) -> Box<Diagnostic> {
    if let Some(folder) = missing_folder(error) {
        let message = format!("folder `{}` does not exist", folder.display());
        let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
        return Box::new(diagnostic.with_hint("Create it, or name a directory in another folder."));
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
            "Reads go on. Find out what the disk says, then open the directory again: what was \
             acknowledged is there."
        }
        Error::CheckpointsStopped { .. } => {
            "Reads and writes go on. Find out what the disk says, then open the directory again."
        }
        Error::Full { .. } => {
            "Nothing of the statement was stored. Reads go on, and writes as soon as there is space."
        }
        Error::TooLarge { .. } => "Write fewer rows at once.",
        Error::ManifestTooLarge { .. } => "Drop tables, and CHECKPOINT again.",
        Error::ReadOnly { .. } => {
            "The directory was opened to be read only; connect without read_only to write."
        }
        Error::Closed => "Connect to the directory again.",
        Error::Forked { .. } => {
            "A forked process has no part in the databases of its parent. Start it with the start \
             method `spawn`, pass rows between the processes, or connect after the fork, to a \
             directory that no other process has open."
        }
        Error::NewerFormat { .. } => {
            "Open it with the version of Lockstep that wrote it, or a newer one."
        }
        Error::ByteOrder { .. } => "Open it on a machine like the one that wrote it.",
        Error::Damaged { .. }
        | Error::Foreign { .. }
        | Error::LogMissing { .. }
        | Error::CheckpointDamaged { .. } => {
            "`lockstep check` lists what is damaged; with --salvage it writes what can be read to \
             another directory."
        }
        Error::InUse { .. } => {
            "One process at a time writes to a directory, and nobody reads it meanwhile: end the \
             other one, or connect to it."
        }
        Error::NotADirectory { .. } | Error::ForeignFiles { .. } => {
            "Name a directory of a database, an empty one, or one that does not exist yet."
        }
        Error::NoDatabase { .. } => "Connect without read_only to create one.",
        Error::NotWritable { .. } => {
            "Give this user the right to write there, or connect with read_only."
        }
        Error::NoLocks { .. } => {
            "Use a directory on a local disk: without locks two processes could write to it."
        }
        Error::Disk { .. } | Error::Thread { .. } | Error::NotHere { .. } => {
            "What was acknowledged is not affected."
        }
    }
}

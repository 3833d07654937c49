//! CHECKPOINT and BACKUP TO.

use std::{
    io,
    path::{Path, PathBuf},
};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_host::disk;
use lockstep_row::{DataType, Value};

use crate::{Checkpoint, Output, Session};

/// The columns of what both statements return.
const COLUMNS: &[(&str, DataType)] = &[
    ("position", DataType::BigInt),
    ("rows", DataType::BigInt),
    ("bytes", DataType::BigInt),
    ("files_kept", DataType::BigInt),
];

impl Session {
    /// Runs CHECKPOINT: puts what the log holds into files.
    pub(crate) fn checkpoint(&self) -> Result<Output> {
        done(self.database.checkpoint()?)
    }

    /// Runs BACKUP TO: writes a directory that holds what this one does now.
    pub(crate) fn backup(&self, path: &str, span: Span) -> Result<Output> {
        let path = self.backup_path(Path::new(path)).map_err(|_outside| {
            let message = "permission denied to write a backup to this directory";
            Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message).at(span).with_hint(
                "Specify a path whose parent is an existing directory that users may access.",
            )
        })?;
        let backup = self.database.backup(&path);
        done(backup.map_err(|error| Box::new(error.at(span)))?)
    }

    /// Returns where a path leads now, so that no link that is made meanwhile leads elsewhere.
    fn backup_path(&self, path: &Path) -> io::Result<PathBuf> {
        if self.caller().is_process() {
            return Ok(path.to_owned());
        }
        match (disk::exists_or_links(path), path.parent(), path.file_name()) {
            (false, Some(parent), Some(name)) => Ok(disk::resolve(parent)?.join(name)),
            _ => disk::resolve(path),
        }
    }
}

/// Returns the output of a checkpoint.
fn done(checkpoint: Checkpoint) -> Result<Output> {
    let Checkpoint { position, rows, bytes, kept_files } = checkpoint;
    let number = |number: u64| Value::BigInt(i64::try_from(number).unwrap_or(i64::MAX));
    Output::of_values(COLUMNS, &[[position, rows, bytes, kept_files].map(number).to_vec()])
}

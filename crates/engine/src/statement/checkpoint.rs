//! CHECKPOINT and BACKUP TO.

use std::path::Path;

use lockstep_diagnostic::{Result, Span};
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
        let backup = self.database.backup(Path::new(path));
        done(backup.map_err(|error| Box::new(error.at(span)))?)
    }
}

/// Returns the output of a checkpoint.
fn done(checkpoint: Checkpoint) -> Result<Output> {
    let Checkpoint { position, rows, bytes, kept_files } = checkpoint;
    let number = |number: u64| Value::BigInt(i64::try_from(number).unwrap_or(i64::MAX));
    Output::of_values(COLUMNS, &[[position, rows, bytes, kept_files].map(number).to_vec()])
}

//! Files that are found before they are read: for who reads each file once, row by row, whatever its rows are.
//!
//! A source of the engine looks for files, remembers their marks, and opens one after the other.

use lockstep_diagnostic::Result;
use lockstep_function::Settings;
use lockstep_row::TableSchema;
use serde::{Deserialize, Serialize};

use super::{
    FileRows, LoadOptions, LoadTarget, OnError,
    location::{InputFile, Location},
    paths,
};

/// A file that a path names.
#[derive(Debug, Clone)]
pub struct FoundFile {
    pub(super) mark: FileMark,
    pub(super) input: InputFile,
}

/// What differs where the content of a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Its size.
    pub bytes: u64,
    /// When it was changed, in nanoseconds since the epoch, if that is known.
    pub modified_ns: Option<i64>,
}

/// A row of a text file that is no row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRow {
    /// How many rows of the batch come before it.
    pub rows_before: usize,
    /// Its line in the file, from 1.
    pub line: u64,
    /// Its text, of which a long one is cut.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Finds the files that a path names, in the order of their names. There may be none, but the folder has to exist.
pub fn find_files(path: &str) -> Result<Vec<FoundFile>> {
    paths::find(path)
}

impl FoundFile {
    /// Returns its path or URL.
    pub fn path(&self) -> String {
        self.input.to_string()
    }

    /// Returns its mark when it was found.
    pub fn mark(&self) -> FileMark {
        self.mark
    }

    /// Returns whether it is as it was found. An object in a store cannot be changed, only replaced.
    pub fn is_as_found(&self) -> bool {
        match &self.input.location {
            Location::Local(file) => {
                paths::mark_of(file.path()).is_ok_and(|mark| mark == self.mark)
            }
            Location::Remote(_) => true,
        }
    }

    /// Whether it is in an object store, where a file appears when it is complete.
    pub fn is_object(&self) -> bool {
        matches!(self.input.location, Location::Remote(_))
    }

    /// Opens it for rows of a table. A line that is no row is no error: it is kept until [`FileRows::take_skipped`] takes
    /// it, and the rows end where so many are kept.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
    pub fn open(
        &self,
        options: &LoadOptions,
        schema: &TableSchema,
        settings: &Settings,
    ) -> FileRows {
        let mut options = options.clone();
        options.csv.on_error = OnError::Skip;
        let target = LoadTarget::of_table(schema, options, *settings);
        let mut rows = FileRows::new(target, vec![self.input.clone()]);
        rows.skipped.kept = Some(Vec::new());
        rows
    }
}

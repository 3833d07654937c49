//! The error of a read: rows of a table that are on a disk could not be read from it.
//!
//! What is in memory can always be read. Executors pass the error on; the call that needed the rows
//! fails, and other calls go on.

use std::{fmt, io, path::PathBuf};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_host::file;

/// Stored rows could not be read. One word, so that what reads rows returns little more than rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError(Box<FailedRead>);

/// A place that could not be read, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FailedRead {
    file: PathBuf,
    /// The offset in the file, in bytes.
    offset: u64,
    reason: ReadFailure,
}

/// The reason of a failed read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFailure {
    /// The disk returned an error.
    Io(io::ErrorKind, String),
    /// The bytes are not those that were written.
    Damaged,
    /// A later version wrote the file.
    NewerFormat {
        /// The version of its format.
        found: u32,
        /// The newest version that is supported.
        supported: u32,
    },
}

impl ReadError {
    /// Makes the error of a read at an offset of a file.
    #[cold]
    pub fn new(file: impl Into<PathBuf>, offset: u64, reason: ReadFailure) -> Self {
        Self(Box::new(FailedRead { file: file.into(), offset, reason }))
    }

    /// Returns why the rows could not be read.
    pub fn reason(&self) -> &ReadFailure {
        &self.0.reason
    }
}

impl ReadFailure {
    /// Makes the reason of an error of a data file.
    pub(crate) fn of(error: &lockstep_wal::Error) -> Self {
        match error {
            lockstep_wal::Error::Disk { source: file::Error::Io { source, .. } } => {
                Self::Io(source.kind(), source.to_string())
            }
            lockstep_wal::Error::NewerFormat { found, supported, .. } => {
                Self::NewerFormat { found: *found, supported: *supported }
            }
            _ => Self::Damaged,
        }
    }
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind(), error.to_string())
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedRead { file, offset, reason } = &*self.0;
        let file = file.display();
        match reason {
            ReadFailure::Io(_, error) => {
                write!(f, "could not read file `{file}` at offset {offset}: {error}")
            }
            ReadFailure::Damaged => {
                write!(f, "file `{file}` is damaged at offset {offset}")
            }
            ReadFailure::NewerFormat { found, supported } => {
                write!(f, "file `{file}` has format {found}; this version supports {supported}")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<ReadError> for Box<Diagnostic> {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        Self::new(match error.reason() {
            ReadFailure::Io(..) => Diagnostic::new(code::IO_ERROR, message)
                .with_kind(Kind::Retry)
                .with_hint("Check the disk. Statements that do not need these rows still run."),
            ReadFailure::Damaged => {
                Diagnostic::new(code::DATA_CORRUPTED, message).with_kind(Kind::FixData).with_hint(
                    "Restore a backup, or stop the server and run `lockstep check --salvage`, \
                     which keeps every row that can be read.",
                )
            }
            ReadFailure::NewerFormat { .. } => Diagnostic::new(code::NEWER_FORMAT, message)
                .with_kind(Kind::FixData)
                .with_hint("Open the database with the version that wrote the file."),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use lockstep_diagnostic::{Diagnostic, Kind, code};

    use super::{ReadError, ReadFailure};

    #[test]
    fn a_read_error_has_the_file_the_offset_and_the_remedy() {
        let failed = io::Error::other("the disk is gone");
        let errors = [
            (ReadFailure::from(failed), code::IO_ERROR, Kind::Retry, "could not read file"),
            (ReadFailure::Damaged, code::DATA_CORRUPTED, Kind::FixData, "file"),
            (
                ReadFailure::NewerFormat { found: 2, supported: 1 },
                code::NEWER_FORMAT,
                Kind::FixData,
                "file",
            ),
        ];
        for (reason, code, kind, begin) in errors {
            let error = ReadError::new("data/7.data", 4_096, reason);
            let diagnostic: Box<Diagnostic> = error.into();
            assert_eq!((diagnostic.code, diagnostic.kind), (code, kind));
            assert!(diagnostic.message.starts_with(begin), "{}", diagnostic.message);
            assert!(diagnostic.message.contains("`data/7.data`"));
            assert!(diagnostic.hint.is_some());
        }
    }

    #[test]
    fn a_read_error_is_one_word() {
        assert_eq!(size_of::<ReadError>(), size_of::<usize>());
        assert_eq!(size_of::<Result<(), ReadError>>(), size_of::<usize>());
    }
}

//! Conversion of errors of DataFusion, Arrow and the disk to a [`Diagnostic`].
//!
//! Every file of this crate that calls them uses these functions. A diagnostic that was wrapped in
//! an error of DataFusion is returned unchanged; an error that no statement should be able to cause
//! becomes an internal error.

use std::{fmt::Display, io, path::Path};

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_host::{Interrupt, RefusedFile};

use crate::{machine_memory::MACHINE_FULL, temporary};

/// Converts an error of DataFusion.
pub(crate) fn from_datafusion(error: &DataFusionError) -> Box<Diagnostic> {
    if let Some(error) = temporary::find_error(error) {
        return Box::new(temporary::diagnostic(error));
    }
    match error.find_root() {
        DataFusionError::External(cause) => match cause.downcast_ref::<Box<Diagnostic>>() {
            Some(diagnostic) => diagnostic.clone(),
            None => internal(cause),
        },
        DataFusionError::ResourcesExhausted(detail) => out_of_memory(detail),
        DataFusionError::ArrowError(cause, _) => from_arrow(cause),
        other => internal(other),
    }
}

/// Converts an error of Arrow.
pub(crate) fn from_arrow(error: &ArrowError) -> Box<Diagnostic> {
    match error {
        ArrowError::ExternalError(cause) => {
            if let Some(diagnostic) = cause.downcast_ref::<Box<Diagnostic>>() {
                return diagnostic.clone();
            }
            match cause.downcast_ref::<DataFusionError>() {
                Some(cause) => from_datafusion(cause),
                None => internal(cause),
            }
        }
        ArrowError::OffsetOverflowError(size) => {
            let message = "a string column of the result exceeds the limit of 2 GiB";
            let diagnostic = Diagnostic::new(code::OUT_OF_MEMORY, message)
                .with_kind(Kind::FreeResources)
                .with_detail(format!("The column would use {size} bytes."))
                .with_hint("Compute the training set in several parts.");
            Box::new(diagnostic)
        }
        other => internal(other),
    }
}

/// Wraps a diagnostic in an error of DataFusion.
pub(crate) fn into_datafusion(diagnostic: Box<Diagnostic>) -> DataFusionError {
    DataFusionError::External(Box::new(diagnostic))
}

/// Returns the diagnostic of a file that could not be opened, read or written; `doing` is e.g.
/// «read».
pub(crate) fn from_io(error: &io::Error, doing: &str, path: &Path) -> Box<Diagnostic> {
    from_io_at(error, doing, &path.display())
}

/// Returns the diagnostic of a file by its path or URL, as [`from_io`] does.
pub(crate) fn from_io_at(error: &io::Error, doing: &str, path: &dyn Display) -> Box<Diagnostic> {
    if let Some(refused) = RefusedFile::of_io(error) {
        return Box::new(refused_file(refused, path));
    }
    let diagnostic = match error.kind() {
        io::ErrorKind::NotFound => {
            Diagnostic::new(code::UNDEFINED_FILE, format!("file `{path}` does not exist"))
        }
        io::ErrorKind::AlreadyExists => {
            Diagnostic::new(code::DUPLICATE_FILE, format!("file `{path}` already exists"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(path),
        other => {
            let diagnostic =
                Diagnostic::new(code::IO_ERROR, format!("could not {doing} file `{path}`"))
                    .with_detail(format!("{error}."));
            // Said by a reader of a format, not by the system.
            match other {
                io::ErrorKind::InvalidData
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::UnexpectedEof
                    if error.raw_os_error().is_none() =>
                {
                    diagnostic.with_kind(Kind::FixData)
                }
                _ => diagnostic,
            }
        }
    };
    Box::new(diagnostic)
}

/// Makes the error of a file for which the disk has no space.
fn disk_full(path: &dyn Display) -> Diagnostic {
    let message = format!("could not write file `{path}`: no space left on device");
    Diagnostic::new(code::DISK_FULL, message)
        .with_kind(Kind::FreeResources)
        .with_hint("Free space on the disk, or write to another disk.")
}

/// Makes the error of a file that is not opened although the system would open it.
fn refused_file(refused: RefusedFile, path: &dyn Display) -> Diagnostic {
    match refused {
        RefusedFile::Outside => {
            let message = format!("file `{path}` is outside the directories that users may access");
            Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message)
                .with_hint("Replace the symbolic link with the file itself.")
        }
        RefusedFile::Special(kind) => {
            Diagnostic::new(code::WRONG_OBJECT_TYPE, format!("file `{path}` is {kind}"))
                .with_detail("Only regular files can be read and written.")
                .with_hint("Copy its contents to a regular file, or remove it from the directory.")
        }
    }
}

/// Returns the error of a query that was interrupted.
pub(crate) fn interrupted(interrupt: Interrupt) -> Box<Diagnostic> {
    Box::new(Diagnostic::interrupted(interrupt.limit_ms()))
}

fn out_of_memory(detail: &str) -> Box<Diagnostic> {
    let hint = match detail.contains(MACHINE_FULL) {
        true => "Allow the process more memory, or write the result with INTO OUTFILE.",
        false => "Raise memory_limit (0 means no limit), or write the result with INTO OUTFILE.",
    };
    let diagnostic = Diagnostic::new(code::OUT_OF_MEMORY, "the query exceeds its memory limit")
        .with_kind(Kind::FreeResources)
        .with_detail(first_sentence(detail))
        .with_hint(hint);
    Box::new(diagnostic)
}

/// Returns the part of DataFusion's message before its list of memory consumers.
fn first_sentence(detail: &str) -> String {
    let line = detail.lines().next().unwrap_or_default();
    let sentence = line.split(" with top memory consumers").next().unwrap_or_default();
    format!("{}.", sentence.trim_end_matches('.'))
}

fn internal(cause: &dyn ToString) -> Box<Diagnostic> {
    let text = cause.to_string();
    let detail = text.lines().next().unwrap_or_default();
    Box::new(Diagnostic::internal("batch execution failed").with_detail(detail))
}

#[cfg(test)]
mod tests {
    use datafusion::error::DataFusionError;
    use lockstep_diagnostic::{Diagnostic, Kind, code};

    use super::{from_datafusion, into_datafusion};

    #[test]
    fn a_diagnostic_comes_out_as_it_went_in() {
        let diagnostic = Box::new(Diagnostic::new(code::OUT_OF_RANGE, "too large"));
        let error = into_datafusion(diagnostic.clone()).context("while planning");
        assert_eq!(from_datafusion(&error), diagnostic);
    }

    #[test]
    fn an_unexpected_error_asks_for_a_report() {
        let error = DataFusionError::Internal("no such slot".to_owned());
        assert_eq!(from_datafusion(&error).kind, Kind::ReportBug);
    }
}

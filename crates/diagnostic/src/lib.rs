//! One user-facing error: what went wrong, where in the SQL text, and what to do about it.
//!
//! Every crate that reports an error to a user makes a [`Diagnostic`]; front ends only render it. Knows
//! no engine and no protocol: its fields map one to one onto a PostgreSQL `ErrorResponse`, an HTTP
//! body and a Python exception.

mod nearest;
mod render;
mod span;

pub use nearest::nearest;
pub use span::Span;

use std::fmt;

/// The action that a caller should take on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The statement or request is wrong: change it.
    FixRequest,
    /// The data is wrong (a malformed file, a value of another type): change the data.
    FixData,
    /// A limit was reached: free resources or raise the limit.
    FreeResources,
    /// Nothing is wrong with the request: send it again.
    Retry,
    /// An object of the prepared request has changed: prepare it again.
    PrepareAgain,
    /// A defect of Lockstep: report it.
    ReportBug,
}

/// The SQLSTATE codes in use, each with its standard meaning.
pub mod code {
    /// Successful completion, in records that contain a code.
    pub const SUCCESS: &str = "00000";
    /// A warning without a more specific code.
    pub const WARNING: &str = "01000";
    /// A syntax error.
    pub const SYNTAX_ERROR: &str = "42601";
    /// A column name that occurs twice in a result whose column names must be unique.
    pub const DUPLICATE_COLUMN: &str = "42701";
    /// A column that does not exist in any input.
    pub const UNDEFINED_COLUMN: &str = "42703";
    /// A position in ORDER BY or GROUP BY that is not in the select list, an ORDER BY without a
    /// column, or a list of column names that does not match the columns.
    pub const INVALID_COLUMN_REFERENCE: &str = "42P10";
    /// A column name that occurs in several inputs.
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    /// A function that does not exist, or does not exist for these argument types.
    pub const UNDEFINED_FUNCTION: &str = "42883";
    /// A table that does not exist.
    pub const UNDEFINED_TABLE: &str = "42P01";
    /// A view in a statement that requires a table.
    pub const WRONG_OBJECT_TYPE: &str = "42809";
    /// A table that already exists.
    pub const DUPLICATE_TABLE: &str = "42P07";
    /// A database that does not exist.
    pub const UNDEFINED_DATABASE: &str = "3D000";
    /// A database that already exists.
    pub const DUPLICATE_DATABASE: &str = "42P04";
    /// A deployment, index, window or setting that does not exist.
    pub const UNDEFINED_OBJECT: &str = "42704";
    /// A deployment, index, window or column that already exists.
    pub const DUPLICATE_OBJECT: &str = "42710";
    /// Incompatible types, or a value of an unexpected type.
    pub const DATATYPE_MISMATCH: &str = "42804";
    /// A column that is neither grouped nor aggregated, or an aggregate that is not allowed.
    pub const GROUPING_ERROR: &str = "42803";
    /// An invalid window definition.
    pub const WINDOWING_ERROR: &str = "42P20";
    /// An invalid table or index definition.
    pub const INVALID_TABLE_DEFINITION: &str = "42P16";
    /// An object on which other objects depend.
    pub const DEPENDENT_OBJECTS: &str = "2BP01";
    /// A prepared request or query whose table or deployment has been dropped or replaced.
    pub const STALE_DEFINITION: &str = "55000";
    /// A feature or syntax that is not supported.
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    /// An invalid value of a parameter or an option.
    pub const INVALID_PARAMETER: &str = "22023";
    /// A negative number of rows in LIMIT.
    pub const INVALID_LIMIT: &str = "2201W";
    /// A negative number of rows in OFFSET.
    pub const INVALID_OFFSET: &str = "2201X";
    /// A negative distance in a window frame.
    pub const INVALID_FRAME_DISTANCE: &str = "22013";
    /// A string that exceeds the length of its column.
    pub const STRING_TOO_LONG: &str = "22001";
    /// A string that is not a valid value of the required type.
    pub const INVALID_TEXT: &str = "22P02";
    /// Text that is not valid UTF-8.
    pub const INVALID_ENCODING: &str = "22021";
    /// A string that is not a valid date or time.
    pub const INVALID_DATETIME: &str = "22007";
    /// A malformed row in a file.
    pub const BAD_COPY_FORMAT: &str = "22P04";
    /// A number outside the range of its type.
    pub const OUT_OF_RANGE: &str = "22003";
    /// Several rows when only one was expected.
    pub const CARDINALITY_VIOLATION: &str = "21000";
    /// NULL that is not allowed.
    pub const NOT_NULL_VIOLATION: &str = "23502";
    /// A statement that is nested too deeply, or is too long.
    pub const STATEMENT_TOO_COMPLEX: &str = "54001";
    /// A value that exceeds the size limit.
    pub const VALUE_TOO_LARGE: &str = "54000";
    /// A memory limit was exceeded.
    pub const OUT_OF_MEMORY: &str = "53200";
    /// No space left on the disk.
    pub const DISK_FULL: &str = "53100";
    /// A write to a database that was opened read-only.
    pub const READ_ONLY: &str = "25006";
    /// The database is closed.
    pub const DATABASE_CLOSED: &str = "08003";
    /// A directory that another process has open, or a job that is running.
    pub const DATABASE_IN_USE: &str = "55006";
    /// The log accepts no writes because a disk sync failed.
    pub const LOG_STOPPED: &str = "58L01";
    /// A directory whose format is newer than this version supports.
    pub const NEWER_FORMAT: &str = "58L02";
    /// Stored data is corrupted.
    pub const DATA_CORRUPTED: &str = "XX001";
    /// A statement that was cancelled, or exceeded its time limit.
    pub const QUERY_CANCELED: &str = "57014";
    /// A file that does not exist.
    pub const UNDEFINED_FILE: &str = "58P01";
    /// A file that already exists.
    pub const DUPLICATE_FILE: &str = "58P02";
    /// A file could not be read or written.
    pub const IO_ERROR: &str = "58030";
    /// A warning: accepted rows had already expired.
    pub const ROWS_EXPIRED: &str = "01L11";
    /// A warning: rows that were known at the time of a training row may have been removed.
    pub const KNOWN_ROWS_REMOVED: &str = "01L18";
    /// The user lacks a required privilege.
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    /// An invalid password, token or other credential.
    pub const INVALID_PASSWORD: &str = "28P01";
    /// A user that was dropped, or a token that is no longer valid.
    pub const INVALID_AUTHORIZATION: &str = "28000";
    /// A privilege or a role that cannot be granted in this way.
    pub const INVALID_GRANT: &str = "0LP01";
    /// The session was ended by KILL.
    pub const SESSION_ENDED: &str = "57P01";
    /// Too many concurrent calls, sessions or other objects.
    pub const TOO_MANY: &str = "53300";
    /// An internal error: a bug in Lockstep.
    pub const INTERNAL_ERROR: &str = "XX000";
    /// NULL instead of a value that a call of the Python package requires.
    pub const NULL_NOT_ALLOWED: &str = "22004";
    /// A server that could not be reached.
    pub const NOT_CONNECTED: &str = "08001";
    /// A connection that was lost during a call.
    pub const CONNECTION_FAILURE: &str = "08006";
    /// A message that violates the protocol.
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    /// A date or time outside the range of its type, over PostgreSQL's protocol.
    pub const DATETIME_OVERFLOW: &str = "22008";
    /// An invalid binary value, over PostgreSQL's protocol.
    pub const INVALID_BINARY_VALUE: &str = "22P03";
    /// BEGIN within a transaction block, over PostgreSQL's protocol.
    pub const ACTIVE_TRANSACTION: &str = "25001";
    /// A statement that requires a transaction block, over PostgreSQL's protocol.
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    /// A statement in a transaction block that has failed, over PostgreSQL's protocol.
    pub const FAILED_TRANSACTION: &str = "25P02";
    /// A prepared statement that does not exist, over PostgreSQL's protocol.
    pub const UNDEFINED_STATEMENT: &str = "26000";
    /// A portal that does not exist, over PostgreSQL's protocol.
    pub const UNDEFINED_PORTAL: &str = "34000";
    /// A schema that does not exist in PostgreSQL's catalogs.
    pub const UNDEFINED_SCHEMA: &str = "3F000";
    /// An invalid name of an object in PostgreSQL's catalogs.
    pub const INVALID_NAME: &str = "42602";
    /// A parameter that does not exist, over PostgreSQL's protocol.
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    /// A portal that already exists, over PostgreSQL's protocol.
    pub const DUPLICATE_PORTAL: &str = "42P03";
    /// A prepared statement that already exists, over PostgreSQL's protocol.
    pub const DUPLICATE_STATEMENT: &str = "42P05";
    /// More prepared statements or portals than a connection may have.
    pub const TOO_MANY_OBJECTS: &str = "53400";
}

/// An error (or a warning) for a user.
///
/// `message` is short and factual; `detail` and `hint` are full sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// SQLSTATE, five characters; see [`code`].
    pub code: &'static str,
    /// The action to take.
    pub kind: Kind,
    /// One line, no trailing dot.
    pub message: String,
    /// Where in the statement's text, in bytes.
    pub span: Option<Span>,
    /// More about the error.
    pub detail: Option<String>,
    /// How to fix it, with the nearest valid name when a name was wrong.
    pub hint: Option<String>,
}

/// The result of a function that reports errors to a user.
pub type Result<T, E = Box<Diagnostic>> = std::result::Result<T, E>;

/// The most bytes of a message, a detail or a hint: a name that a file gives may be as long as the file.
const TEXT_BYTES_MAX: usize = 4_000;

/// The most names that a list of them has.
const NAMES_LISTED_MAX: usize = 12;

/// Lists names in back-quotes, each once; of many, the first and how many more there are.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    let more = distinct.len().saturating_sub(NAMES_LISTED_MAX);
    let shown = &distinct[..distinct.len() - more];
    debug_assert!(shown.len() <= NAMES_LISTED_MAX, "no more than a reader wants");
    let text = shown.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more == 0 { text } else { format!("{text} and {more} more") }
}

/// Cuts a text that nobody would read to its end.
fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let is_boundary = |at: &usize| text.is_char_boundary(*at);
        let cut = (0..=TEXT_BYTES_MAX).rev().find(is_boundary).unwrap_or(0);
        debug_assert!(cut + 4 > TEXT_BYTES_MAX, "a character has at most four bytes");
        let left_out = text.len() - cut;
        text.truncate(cut);
        text.push_str(&format!("… ({left_out} more bytes)"));
    }
    text
}

impl Diagnostic {
    /// Makes a diagnostic whose remedy is to fix the request.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        debug_assert_eq!(code.len(), 5, "an SQLSTATE has five characters");
        Self {
            code,
            kind: Kind::FixRequest,
            message: shortened(message.into()),
            span: None,
            detail: None,
            hint: None,
        }
    }

    /// Makes the diagnostic of a defect of Lockstep; the hint asks for a report.
    pub fn internal(message: impl Into<String>) -> Self {
        let hint = "This is a bug in Lockstep. Please report it with the statement that caused it.";
        Self::new(code::INTERNAL_ERROR, message).with_kind(Kind::ReportBug).with_hint(hint)
    }

    /// Makes the diagnostic of a form of the language that is not supported.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(code::FEATURE_NOT_SUPPORTED, message)
    }

    /// Makes the diagnostic of a call that was interrupted: cancelled, or after the time that
    /// `statement_timeout` allows it. It has changed nothing.
    pub fn interrupted(limit_ms: Option<u64>) -> Self {
        let Some(limit_ms) = limit_ms else {
            return Self::new(code::QUERY_CANCELED, "the statement was cancelled")
                .with_kind(Kind::Retry);
        };
        let message = format!("the statement ran longer than statement_timeout ({limit_ms} ms)");
        Self::new(code::QUERY_CANCELED, message)
            .with_kind(Kind::FreeResources)
            .with_hint("Raise statement_timeout (0 means no limit).")
    }

    /// Sets the action to take.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the position; one that is there already is kept, since the inner one is the closer.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }

    /// Sets the detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(shortened(detail.into()));
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(shortened(hint.into()));
        self
    }

    /// Adds the hint «Did you mean …?» when one of `names` is close to `wanted`.
    #[must_use]
    pub fn with_nearest<'a>(self, wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(wanted, names) {
            Some(name) => self.with_hint(format!("Did you mean `{name}`?")),
            None => self,
        }
    }

    /// Adds the hint «Did you mean …?» as [`Self::with_nearest`] does; where no name is close, one that
    /// lists the names: `what` they are, as "The columns are".
    #[must_use]
    pub fn with_nearest_or_all<'a>(
        self,
        wanted: &str,
        what: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let error = self.with_nearest(wanted, names.iter().copied());
        if error.hint.is_some() || names.is_empty() {
            return error;
        }
        error.with_hint(format!("{what} {}.", listed(names)))
    }

    /// Renders the error over several lines, with the offending line of `sql` and a caret under
    /// the position.
    pub fn render(&self, sql: Option<&str>) -> String {
        render::render(self, sql)
    }

    /// Boxes it into the error side of a [`Result`].
    pub fn err<T>(self) -> Result<T> {
        Err(Box::new(self))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::{Diagnostic, TEXT_BYTES_MAX, code, listed};

    #[test]
    fn names_are_listed_once_and_not_without_end() {
        assert_eq!(listed(["a", "b", "a"]), "`a`, `b`");
        let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
        let list = listed(names.iter().map(String::as_str));
        assert!(list.starts_with("`c0`, `c1`") && list.ends_with("`c11` and 8 more"), "{list}");
    }

    #[test]
    fn a_text_that_nobody_would_read_is_cut() {
        let long = "ü".repeat(1_000_000);
        let error = Diagnostic::new(code::SYNTAX_ERROR, &long).with_detail(&long).with_hint(&long);
        for text in [&error.message, error.detail.as_ref().unwrap(), error.hint.as_ref().unwrap()] {
            assert!(text.len() < TEXT_BYTES_MAX + 100 && text.starts_with("üü"));
            assert!(text.ends_with("ü… (1996000 more bytes)"), "{}", &text[text.len() - 40..]);
        }
        let short = "a".repeat(TEXT_BYTES_MAX);
        assert_eq!(Diagnostic::new(code::SYNTAX_ERROR, &short).message, short);
    }
}

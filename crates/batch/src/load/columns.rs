//! Which column of a file goes into which column of the table.
//!
//! CSV and Parquet share it, so that one rule holds for both: a name that means nothing is an
//! error unless the statement says otherwise, and what is left out on either side is told.

use std::path::Path;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};

use super::Target;

/// How the columns of a file find those of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ColumnMatch {
    /// By name, to the letter.
    #[default]
    Name,
    /// By order: a file has the columns of the table, whatever it calls them.
    Position,
    /// As OpenMLDB does: CSV by order, Parquet by name, and what has no match is left out.
    OpenMldb,
}

/// What happens to a column of a file that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnknownColumns {
    /// The load ends with an error.
    #[default]
    Fail,
    /// It is left out, which a warning says.
    Ignore,
}

/// How the columns of one file and of the table go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matched {
    /// For each column of the table the one of the file that it takes, if there is one.
    pub(super) sources: Vec<Option<usize>>,
    /// What nobody asked for.
    pub(super) notes: Vec<Note>,
}

/// Something that was left out or cut, or is likely to be an oversight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// Columns of the table that the file does not have.
    Missing(Vec<String>),
    /// Columns of the file that the table does not have.
    Unknown(Vec<String>),
    /// Names that the first line gives to other columns than those that took their values.
    OtherNames(Vec<String>),
    /// A column of times that were cut to the millisecond.
    Cut(String),
}

/// By order, without any names.
pub(super) fn in_order(target: &Target) -> Matched {
    let sources = (0..target.schema.columns.len()).map(Some).collect();
    Matched { sources, notes: Vec::new() }
}

/// Matches the names that a file gives to its columns.
pub(super) fn match_columns(target: &Target, path: &Path, names: &[String]) -> Result<Matched> {
    let is_csv = target.options.format == super::FileFormat::Csv;
    match target.options.columns {
        ColumnMatch::Name => by_name(target, path, names, target.options.unknown_columns),
        ColumnMatch::OpenMldb if !is_csv => by_name(target, path, names, UnknownColumns::Ignore),
        ColumnMatch::Position | ColumnMatch::OpenMldb => by_position(target, path, names),
    }
}

fn by_position(target: &Target, path: &Path, names: &[String]) -> Result<Matched> {
    let columns = &target.schema.columns;
    if names.len() != columns.len() {
        let (found, expected) = (names.len(), columns.len());
        let path = path.display();
        let message = format!("file `{path}` has {found} columns, the table has {expected}");
        return Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err();
    }
    let mut matched = in_order(target);
    // Names that were asked to be passed over are still told where they name another column.
    let differs = |(name, column): (&String, &lockstep_row::Column)| match target.options.columns {
        ColumnMatch::Position => {
            !name.eq_ignore_ascii_case(&column.name)
                && columns.iter().any(|other| name.eq_ignore_ascii_case(&other.name))
        }
        _ => *name != column.name,
    };
    if names.iter().zip(columns).any(differs) {
        matched.notes.push(Note::OtherNames(names.to_vec()));
    }
    Ok(matched)
}

fn by_name(
    target: &Target,
    path: &Path,
    names: &[String],
    unknown_columns: UnknownColumns,
) -> Result<Matched> {
    let columns = &target.schema.columns;
    let mut sources = vec![None; columns.len()];
    let mut unknown = Vec::new();
    for (at, name) in names.iter().enumerate() {
        match target.schema.find_column(name) {
            Some(column) if sources[column].is_some() => {
                let message = format!("file `{}` names column `{name}` twice", path.display());
                return Diagnostic::new(code::BAD_COPY_FORMAT, message)
                    .with_kind(Kind::FixData)
                    .with_hint("OPTIONS(match_by = 'position') takes the columns in their order.")
                    .err();
            }
            Some(column) => sources[column] = Some(at),
            None => unknown.push(name.clone()),
        }
    }
    if sources.iter().all(Option::is_none) && !names.is_empty() {
        return Err(nothing_in_common(target, path, names));
    }
    if let (Some(first), UnknownColumns::Fail) = (unknown.first(), unknown_columns) {
        return Err(unknown_column(target, path, first));
    }
    let without = |(at, column): (usize, &lockstep_row::Column)| {
        sources[at].is_none().then(|| column.name.clone())
    };
    let missing: Vec<String> = columns.iter().enumerate().filter_map(without).collect();
    let mut notes = Vec::new();
    if !missing.is_empty() {
        notes.push(Note::Missing(missing));
    }
    if !unknown.is_empty() {
        notes.push(Note::Unknown(unknown));
    }
    Ok(Matched { sources, notes })
}

fn unknown_column(target: &Target, path: &Path, name: &str) -> Box<Diagnostic> {
    let known = target.schema.columns.iter().map(|column| column.name.as_str());
    let message = format!("file `{}` has a column `{name}`, the table has none", path.display());
    let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_nearest(name, known)
        .with_detail(
            "OPTIONS(unknown_columns = 'ignore') leaves it out, match_by = 'position' goes by the \
             order of the columns.",
        );
    Box::new(diagnostic)
}

fn nothing_in_common(target: &Target, path: &Path, names: &[String]) -> Box<Diagnostic> {
    let message = format!("file `{}` names no column of the table", path.display());
    let mut diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("Its columns are {}.", list(names)));
    if let Some(column) = target.schema.columns.first() {
        diagnostic = diagnostic.with_nearest(&column.name, names.iter().map(String::as_str));
    }
    if diagnostic.hint.is_none() {
        diagnostic = diagnostic.with_hint(match target.options.format {
            super::FileFormat::Csv => {
                "Say OPTIONS(header = false) if the first line is a row, or \
                 OPTIONS(match_by = 'position') if it has other names for the same columns."
            }
            super::FileFormat::Parquet => {
                "Say OPTIONS(match_by = 'position') if it has other names for the same columns."
            }
        });
    }
    Box::new(diagnostic)
}

/// The most names that a message lists.
const NAMES_SHOWN_MAX: usize = 20;

fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN_MAX).map(|name| format!("`{name}`"));
    let mut shown: Vec<String> = shown.collect();
    if names.len() > NAMES_SHOWN_MAX {
        shown.push(format!("… ({} in all)", names.len()));
    }
    shown.join(", ")
}

impl Note {
    /// What it says of this file.
    pub(super) fn warning(&self, path: &Path) -> Diagnostic {
        let path = path.display();
        let (message, detail) = match self {
            Self::Missing(names) => (
                format!("file `{path}` does not have every column of the table"),
                format!("Their defaults, or NULL, are taken for {}.", list(names)),
            ),
            Self::Unknown(names) => (
                format!("file `{path}` has columns that the table does not have"),
                format!("Left out are {}.", list(names)),
            ),
            Self::OtherNames(names) => (
                format!("the first line of file `{path}` names other columns than the table"),
                format!("Its columns went by their order; it names {}.", list(names)),
            ),
            Self::Cut(name) => (
                format!("file `{path}` has times that are finer than a millisecond"),
                format!("Those of `{name}` were cut down to it."),
            ),
        };
        Diagnostic::new(code::UNDEFINED_COLUMN, message)
            .with_kind(Kind::FixData)
            .with_detail(detail)
    }
}

//! Matching of a file's columns with those of the table.
//!
//! CSV and Parquet share it: an unknown name is an error unless the statement says otherwise, and a
//! warning lists the columns that are ignored on either side.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use serde::{Deserialize, Serialize};

use super::{AbsentColumns, LoadTarget, location::InputFile};

/// How the columns of a file are matched with those of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ColumnMatch {
    /// By exact name.
    #[default]
    Name,
    /// By position: a file has the columns of the table in their order, whatever their names.
    Position,
    /// As OpenMLDB does: CSV by position, Parquet by name; columns without a match are ignored.
    OpenMldb,
}

/// The handling of a column of a file that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum UnknownColumns {
    /// The load ends with an error.
    #[default]
    Fail,
    /// It is ignored with a warning.
    Ignore,
}

/// The mapping from the columns of the table to those of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnMapping {
    /// For each column of the table its column of the file, if there is one.
    pub(super) sources: Vec<Option<usize>>,
    /// The notes about columns without a match.
    pub(super) notes: Vec<Note>,
}

/// The field ids of the columns of a table: in its Parquet files a column may have another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldIds {
    /// The id of each column of the table.
    pub(crate) of_columns: Vec<i32>,
    /// The ids of names, for files whose columns have no ids.
    pub(crate) of_names: Vec<(String, i32)>,
}

/// What a column of a file is known by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ColumnIdentity {
    /// Its name.
    #[default]
    Name,
    /// Its name, in any case where no other column has it exactly.
    AnyCase,
    /// Its field id, in a Parquet file.
    FieldIds(Arc<FieldIds>),
}

/// A note about columns that were ignored, truncated, or are likely to be mistaken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// Columns of the table that the file does not have.
    Missing(Vec<String>),
    /// Columns of the file that the table does not have.
    Unknown(Vec<String>),
    /// The names in the first line, some of which are those of other columns of the table.
    OtherNames(Vec<String>),
    /// A column of times that were truncated to the millisecond.
    Cut(String),
}

/// Returns the mapping by position, for a file without names.
pub(super) fn in_order(target: &LoadTarget) -> ColumnMapping {
    let of_file = |column: usize| (!target.folder_columns.contains(&column)).then_some(column);
    let sources = (0..target.schema.columns.len()).map(of_file).collect();
    ColumnMapping { sources, notes: Vec::new() }
}

/// Matches the names that a file gives to its columns.
pub(super) fn match_columns(
    target: &LoadTarget,
    path: &InputFile,
    names: &[String],
) -> Result<ColumnMapping> {
    let is_csv = target.options.format == super::FileFormat::Csv;
    match target.options.columns {
        ColumnMatch::Name => by_name(target, path, names, target.options.unknown_columns),
        ColumnMatch::OpenMldb if !is_csv => by_name(target, path, names, UnknownColumns::Ignore),
        ColumnMatch::Position | ColumnMatch::OpenMldb => by_position(target, path, names),
    }
}

/// Matches the ids that a file gives to its columns; where it gives none, those of their names.
pub(super) fn match_field_ids(
    table: &FieldIds,
    path: &InputFile,
    columns: &[(String, Option<i32>)],
) -> Result<ColumnMapping> {
    let is_without_ids = columns.iter().all(|(_, id)| id.is_none());
    if is_without_ids && !columns.is_empty() && table.of_names.is_empty() {
        let message = format!("file `{path}` has no field IDs to identify its columns");
        return Diagnostic::new(code::BAD_COPY_FORMAT, message)
            .with_kind(Kind::FixData)
            .with_hint(
                "Set the table property `schema.name-mapping.default`, which maps names to IDs.",
            )
            .err();
    }
    let id_of = |(name, id): &(String, Option<i32>)| match is_without_ids {
        true => table.of_names.iter().find(|(known, _)| known == name).map(|(_, id)| *id),
        false => *id,
    };
    let of_file: Vec<Option<i32>> = columns.iter().map(id_of).collect();
    let source = |id: &i32| of_file.iter().position(|known| *known == Some(*id));
    let sources = table.of_columns.iter().map(source).collect();
    Ok(ColumnMapping { sources, notes: Vec::new() })
}

fn by_position(target: &LoadTarget, path: &InputFile, names: &[String]) -> Result<ColumnMapping> {
    let columns = &target.schema.columns;
    let expected = columns.len() - target.folder_columns.len();
    if names.len() != expected {
        let found = names.len();
        let message = format!("file `{path}` has {found} columns, but the table has {expected}");
        return Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err();
    }
    let mut matched = in_order(target);
    // Names that the statement ignores are noted where they name another column.
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
    target: &LoadTarget,
    path: &InputFile,
    names: &[String],
    unknown_columns: UnknownColumns,
) -> Result<ColumnMapping> {
    let columns = &target.schema.columns;
    let mut sources = vec![None; columns.len()];
    let mut unknown = Vec::new();
    for (at, name) in names.iter().enumerate() {
        match find_column(target, names, name) {
            Some(column) if sources[column].is_some() => {
                let message = format!("column `{name}` occurs more than once in file `{path}`");
                return Diagnostic::new(code::BAD_COPY_FORMAT, message)
                    .with_kind(Kind::FixData)
                    .with_hint("Use OPTIONS(match_by = 'position') to match columns by position.")
                    .err();
            }
            Some(column) => sources[column] = Some(at),
            None => unknown.push(name.clone()),
        }
    }
    let is_load = target.absent == AbsentColumns::Default;
    if is_load && sources.iter().all(Option::is_none) && !names.is_empty() {
        return Err(nothing_in_common(target, path, names));
    }
    if let (Some(first), UnknownColumns::Fail) = (unknown.first(), unknown_columns) {
        return Err(unknown_column(target, path, first));
    }
    let without = |(at, column): (usize, &lockstep_row::Column)| {
        let is_missing = sources[at].is_none() && !path.has_value(&column.name);
        is_missing.then(|| column.name.clone())
    };
    let missing: Vec<String> = columns.iter().enumerate().filter_map(without).collect();
    let mut notes = Vec::new();
    if !missing.is_empty() {
        notes.push(Note::Missing(missing));
    }
    if !unknown.is_empty() {
        notes.push(Note::Unknown(unknown));
    }
    Ok(ColumnMapping { sources, notes })
}

/// Returns the column of the table with a name of a file.
fn find_column(target: &LoadTarget, names: &[String], name: &str) -> Option<usize> {
    let exact = target.schema.find_column(name);
    if exact.is_some() || target.identity != ColumnIdentity::AnyCase {
        return exact;
    }
    let lower = name.to_lowercase();
    let is_meant = |column: &lockstep_row::Column| {
        column.name.to_lowercase() == lower && !names.contains(&column.name)
    };
    target.schema.columns.iter().position(is_meant)
}

fn unknown_column(target: &LoadTarget, path: &InputFile, name: &str) -> Box<Diagnostic> {
    let known = target.schema.columns.iter().map(|column| column.name.as_str());
    let message = format!("column `{name}` of file `{path}` does not exist in the table");
    let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_nearest(name, known)
        .with_detail(
            "OPTIONS(unknown_columns = 'ignore') skips such columns; \
             OPTIONS(match_by = 'position') matches columns by position.",
        );
    Box::new(diagnostic)
}

fn nothing_in_common(target: &LoadTarget, path: &InputFile, names: &[String]) -> Box<Diagnostic> {
    let message = format!("file `{path}` has no columns in common with the table");
    let mut diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("The columns of the file are {}.", list(names)));
    if let Some(column) = target.schema.columns.first() {
        diagnostic = diagnostic.with_nearest(&column.name, names.iter().map(String::as_str));
    }
    if diagnostic.hint.is_none() {
        diagnostic = diagnostic.with_hint(match target.options.format {
            super::FileFormat::Csv => {
                "Use OPTIONS(header = false) if the first line is a row, or \
                 OPTIONS(match_by = 'position') if only the names of the columns differ."
            }
            super::FileFormat::Parquet | super::FileFormat::Json | super::FileFormat::Arrow => {
                "Use OPTIONS(match_by = 'position') if only the names of the columns differ."
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
    /// Returns the warning about a file.
    pub(super) fn warning(&self, path: &InputFile) -> Diagnostic {
        let (message, detail) = match self {
            Self::Missing(names) => (
                format!("file `{path}` does not have every column of the table"),
                format!("The defaults, or NULL, are used for {}.", list(names)),
            ),
            Self::Unknown(names) => (
                format!("file `{path}` has columns that the table does not have"),
                format!("Ignored columns: {}.", list(names)),
            ),
            Self::OtherNames(names) => (
                format!(
                    "the first line of file `{path}` does not match the column names of the table"
                ),
                format!(
                    "The columns were matched by position; the first line has the names {}.",
                    list(names)
                ),
            ),
            Self::Cut(name) => (
                format!("file `{path}` contains times with more than millisecond precision"),
                format!("The times of column `{name}` were truncated to milliseconds."),
            ),
        };
        Diagnostic::new(code::UNDEFINED_COLUMN, message)
            .with_kind(Kind::FixData)
            .with_detail(detail)
    }
}

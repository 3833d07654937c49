//! Tables of Delta Lake and Apache Iceberg, read where they lie.
//!
//! A log or a tree of metadata says which Parquet files a version of the table has, which columns,
//! and which values of its partition columns a file has. `delta` and `iceberg` read that; the rows
//! are read as those of Parquet files in folders `name=value` are: a column that a file does not
//! have is NULL, and files are not opened in which no row can be wanted: by the values of their
//! partition columns, and by the bounds of the others that the metadata has (`statistics`). What the rows
//! would be wrong without, as files of deleted rows, is refused by its name (docs/adr/0043).

mod avro;
mod delta;
mod delta_log;
mod folder;
mod iceberg;
mod manifest;
mod statistics;
#[cfg(test)]
mod tests;
mod values;

use std::{fmt::Display, sync::Arc};

use ::arrow::datatypes::DataType as ArrowType;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Settings;
use lockstep_row::{
    Column, TableSchema, Value,
    arrow::{arrow_schema, importable},
};

pub use self::folder::PermitFile;
use self::folder::TableFolder;
use super::{
    AbsentColumns, FileFormat, InputFile, LoadOptions, UnknownColumns,
    columns::{ColumnIdentity, FieldIds},
    infer::{InferredFiles, is_storable, unique},
};

/// The format of a lake table, and which of its states is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LakeVersion {
    /// Delta Lake: a version, or the latest.
    Delta(Option<u64>),
    /// Apache Iceberg: a snapshot, or the current one.
    Iceberg(Option<i64>),
}

/// A state of a lake table.
#[derive(Debug)]
struct LakeTable {
    columns: Vec<LakeColumn>,
    /// The files with the values of their partition columns.
    files: Vec<InputFile>,
    /// The ids of names in files without field ids; `None` where columns are matched by name, in any
    /// case.
    ids_of_names: Option<Vec<(String, i32)>>,
}

/// A column of a lake table.
#[derive(Debug)]
struct LakeColumn {
    name: String,
    /// Its field id; 0 where columns are matched by name.
    id: i32,
    /// Its type; `None` for one that Arrow has no single value for, as a struct.
    arrow_type: Option<ArrowType>,
    /// Its type as the table's metadata has it.
    written_type: String,
    /// The value in files from before it was added.
    default: Option<Value>,
}

/// Finds the files of a state of a lake table, and its columns. `permit` is called for each file
/// outside of the folder of the table before it is opened.
pub(crate) fn find_lake_files(
    path: &str,
    version: LakeVersion,
    settings: Settings,
    permit: PermitFile<'_>,
) -> Result<InferredFiles> {
    let table = match version {
        LakeVersion::Delta(version) => delta::read(&TableFolder::new(path, permit), version)?,
        LakeVersion::Iceberg(snapshot) => iceberg::read(path, snapshot, permit)?,
    };
    into_files(table, path, settings)
}

/// Returns the columns and files as a query reads them.
fn into_files(table: LakeTable, path: &str, settings: Settings) -> Result<InferredFiles> {
    let (mut columns, mut ids, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for column in table.columns {
        let data_type = column.arrow_type.as_ref().and_then(importable).filter(is_storable);
        match data_type {
            Some(data_type) => {
                let default = column.default;
                columns.push(Column { default, ..Column::new(column.name, data_type) });
                ids.push(column.id);
            }
            None => left_out.push((column.name, column.written_type)),
        }
    }
    let schema = unique(TableSchema { columns, indexes: Vec::new() }, &path)?;
    let is_of_all = |column: &usize| {
        let name = &schema.columns[*column].name;
        table.files.iter().all(|file| file.has_value(name))
    };
    let folder_columns = match table.files.is_empty() {
        true => Vec::new(),
        false => (0..schema.columns.len()).filter(is_of_all).collect(),
    };
    debug_assert_eq!(ids.len(), schema.columns.len(), "each column has an id");
    let identity = match table.ids_of_names {
        Some(of_names) => {
            ColumnIdentity::FieldIds(Arc::new(FieldIds { of_columns: ids, of_names }))
        }
        None => ColumnIdentity::AnyCase,
    };
    let options = LoadOptions {
        format: FileFormat::Parquet,
        unknown_columns: UnknownColumns::Ignore,
        ..LoadOptions::default()
    };
    Ok(InferredFiles {
        files: table.files,
        arrow_schema: arrow_schema(&schema),
        schema,
        folder_columns,
        options,
        settings,
        absent: AbsentColumns::Default,
        left_out,
        shown: path.to_owned(),
        missing_hint: Some(MISSING_HINT),
        identity,
    })
}

/// What to do where a file of rows does not exist.
const MISSING_HINT: &str = "Restore the file, which the table's metadata lists, or read a version \
    whose files still exist.";

/// Returns the error of a file of a table's metadata that is damaged.
fn damaged(file: &dyn Display, detail: impl Into<String>) -> Box<Diagnostic> {
    let message = format!("metadata file `{file}` of the table is damaged");
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message)
        .with_kind(Kind::FixData)
        .with_detail(detail)
        .with_hint(
            "Restore the file with the table's writer or from a copy, or read an earlier version.",
        );
    Box::new(diagnostic)
}

/// Returns the error of a table that uses what is not read.
fn refused(table: &dyn Display, feature: &str, hint: &str) -> Box<Diagnostic> {
    let message = format!("table `{table}` uses an unsupported feature: {feature}");
    Box::new(Diagnostic::unsupported(message).with_kind(Kind::FixData).with_hint(hint))
}

/// Returns the type of `decimal(digits, scale)`, with or without a space; `None` for other texts.
fn decimal_type(text: &str) -> Option<ArrowType> {
    let numbers = text.strip_prefix("decimal(")?.strip_suffix(')')?;
    let (digits, scale) = numbers.split_once(',')?;
    let (digits, scale) = (digits.trim().parse().ok()?, scale.trim().parse().ok()?);
    (1..=DECIMAL_DIGITS_MAX).contains(&digits).then_some(ArrowType::Decimal128(digits, scale))
}

/// The most digits of a decimal.
const DECIMAL_DIGITS_MAX: u8 = 38;

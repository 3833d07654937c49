//! Iceberg tables: from the metadata of a table to the columns and files of a snapshot.
//!
//! `manifest` reads the lists of files. A column is known by its field id, so that files from
//! before a renaming have its values. Without a catalog, the newest metadata is what
//! `version-hint.text` says, or the file with the greatest number; the path of a metadata file names
//! one state of the table.

use std::collections::BTreeMap;

use ::arrow::datatypes::{DataType, TimeUnit};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use serde::Deserialize;

use super::{
    LakeColumn, LakeTable, damaged,
    folder::{PermitFile, TableFolder},
    manifest, refused, values,
};

/// The newest format of tables.
const FORMAT_VERSION_MAX: u8 = 2;

/// The folder of the metadata.
const METADATA_FOLDER: &str = "metadata";

/// The property that has the field ids of names, for files without ids.
const NAME_MAPPING: &str = "schema.name-mapping.default";

/// The metadata of a table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct IcebergMetadata {
    location: String,
    #[serde(default)]
    current_schema_id: i32,
    /// The only schema of the oldest tables.
    #[serde(default)]
    schema: Option<Schema>,
    #[serde(default)]
    schemas: Vec<Schema>,
    #[serde(default)]
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<IcebergSnapshot>,
    #[serde(default)]
    properties: BTreeMap<String, String>,
}

/// What says whether the rest of the metadata can be read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FormatVersion {
    format_version: u8,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct IcebergSnapshot {
    snapshot_id: i64,
    #[serde(default)]
    manifest_list: Option<String>,
    #[serde(default)]
    schema_id: Option<i32>,
}

/// The columns of a table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Schema {
    #[serde(default)]
    schema_id: i32,
    fields: Vec<IcebergField>,
}

/// A column of a table.
#[derive(Debug, Deserialize)]
struct IcebergField {
    id: i32,
    name: String,
    #[serde(rename = "type")]
    data_type: serde_json::Value,
    /// The value in files from before the column was added.
    #[serde(rename = "initial-default", default)]
    initial_default: Option<serde_json::Value>,
}

/// The field id of some names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MappedField {
    #[serde(default)]
    field_id: Option<i32>,
    names: Vec<String>,
}

/// Reads a snapshot of a table, or its current one.
pub(super) fn read(path: &str, snapshot: Option<i64>, permit: PermitFile<'_>) -> Result<LakeTable> {
    let (folder, name) = find_metadata(path, permit)?;
    let bytes = folder.read(&name)?;
    let damage = |error: serde_json::Error| damaged(&folder.resolve(&name), format!("{error}."));
    let FormatVersion { format_version } = serde_json::from_slice(&bytes).map_err(damage)?;
    if !(1..=FORMAT_VERSION_MAX).contains(&format_version) {
        let feature = format!("Iceberg format version {format_version}");
        return Err(refused(&folder, &feature, "Supported versions are 1 and 2."));
    }
    let metadata: IcebergMetadata = serde_json::from_slice(&bytes).map_err(damage)?;
    let state = chosen_snapshot(&folder, &metadata, snapshot)?;
    let schema = schema_of(&metadata, state.filter(|_| snapshot.is_some()));
    let Some(schema) = schema else {
        let detail = "The metadata does not contain the schema that it references.";
        return Err(damaged(&folder.resolve(&name), detail));
    };
    let ids_of_names = ids_of_names(&metadata).map_err(damage)?;
    let columns = schema
        .fields
        .iter()
        .map(|field| column(field).map_err(|detail| damaged(&folder.resolve(&name), detail)));
    let columns = columns.collect::<Result<Vec<LakeColumn>>>()?;
    let folder = folder.written_at(&metadata.location);
    let files = match state.map(|state| (state.snapshot_id, &state.manifest_list)) {
        None => Vec::new(),
        Some((_, Some(list))) => manifest::files_of(&folder, list, &columns)?,
        Some((id, None)) => {
            let feature = format!("snapshot {id} without a manifest list");
            return Err(refused(&folder, &feature, "Rewrite the table with its engine."));
        }
    };
    Ok(LakeTable { columns, files, ids_of_names: Some(ids_of_names) })
}

/// Finds the folder of a table and, within it, its newest metadata, or the one that a path names.
fn find_metadata<'p>(path: &str, permit: PermitFile<'p>) -> Result<(TableFolder<'p>, String)> {
    let is_file = [".json", ".json.gz"].iter().any(|end| path.ends_with(end));
    if is_file {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        return Ok(match folder.strip_suffix(&format!("/{METADATA_FOLDER}")) {
            Some(table) => {
                // The statement names only a file in it.
                permit(table)?;
                (TableFolder::new(table, permit), format!("{METADATA_FOLDER}/{name}"))
            }
            None => (TableFolder::new(folder, permit), name.to_owned()),
        });
    }
    let folder = TableFolder::new(path, permit);
    let names = folder.list(METADATA_FOLDER)?;
    let name = match names.iter().any(|name| name == "version-hint.text") {
        true => hinted(&folder, &names)?,
        false => newest(&folder, &names)?,
    };
    Ok((folder, format!("{METADATA_FOLDER}/{name}")))
}

/// Returns the file that `version-hint.text` names.
fn hinted(folder: &TableFolder<'_>, names: &[String]) -> Result<String> {
    let hint = folder.read(&format!("{METADATA_FOLDER}/version-hint.text"))?;
    let hint = String::from_utf8_lossy(&hint).trim().to_owned();
    let is_hinted = |name: &&String| {
        let stem = name.split(".metadata.json").next().unwrap_or_default();
        let stem = stem.strip_suffix(".gz").unwrap_or(stem);
        name.contains(".metadata.json")
            && (**name == hint || stem == hint || stem.strip_prefix('v') == Some(hint.as_str()))
    };
    names.iter().find(is_hinted).cloned().ok_or_else(|| {
        let hint_file = folder.resolve(&format!("{METADATA_FOLDER}/version-hint.text"));
        damaged(&hint_file, format!("No metadata file of version `{hint}` exists."))
    })
}

/// Returns the file whose name has the greatest number.
fn newest(folder: &TableFolder<'_>, names: &[String]) -> Result<String> {
    let numbered = names.iter().filter(|name| name.contains(".metadata.json"));
    let numbered = numbered.filter_map(|name| Some((number_of(name)?, name)));
    let numbered: Vec<(u64, &String)> = numbered.collect();
    let Some(greatest) = numbered.iter().map(|(number, _)| *number).max() else {
        let message = format!("`{folder}` is not an Iceberg table");
        return Diagnostic::new(code::UNDEFINED_FILE, message)
            .with_detail(format!(
                "Directory `{folder}/{METADATA_FOLDER}` contains no metadata files."
            ))
            .with_hint("Pass the directory of an Iceberg table, or one of its metadata files.")
            .err();
    };
    let mut newest = numbered.iter().filter(|(number, _)| *number == greatest);
    match (newest.next(), newest.next()) {
        (Some((_, name)), None) => Ok((*name).clone()),
        (first, second) => {
            let both = [first, second].map(|found| found.map_or("", |(_, name)| name.as_str()));
            let message =
                format!("table `{folder}` has two metadata files with the highest version");
            Diagnostic::new(code::BAD_COPY_FORMAT, message)
                .with_kind(Kind::FixData)
                .with_detail(format!("The files are `{}` and `{}`.", both[0], both[1]))
                .with_hint(
                    "Pass the path of the current metadata file, as recorded in the catalog.",
                )
                .err()
        }
    }
}

/// Returns the number in `v3.metadata.json` or `00003-….metadata.json`.
fn number_of(name: &str) -> Option<u64> {
    let name = name.strip_prefix('v').unwrap_or(name);
    let end = name.find(|digit: char| !digit.is_ascii_digit())?;
    name[..end].parse().ok()
}

/// Returns the snapshot to read; `None` for a table without one.
fn chosen_snapshot<'m>(
    folder: &TableFolder<'_>,
    metadata: &'m IcebergMetadata,
    given: Option<i64>,
) -> Result<Option<&'m IcebergSnapshot>> {
    // The oldest writers write -1 where there is no snapshot.
    let current = metadata.current_snapshot_id.filter(|id| *id != -1);
    let Some(id) = given.or(current) else { return Ok(None) };
    let found = metadata.snapshots.iter().find(|snapshot| snapshot.snapshot_id == id);
    if found.is_some() {
        return Ok(found);
    }
    let last = metadata.snapshots.iter().rev().take(SNAPSHOTS_SHOWN_MAX);
    let last: Vec<String> = last.map(|snapshot| snapshot.snapshot_id.to_string()).collect();
    let message = format!("snapshot {id} of table `{folder}` does not exist");
    let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message);
    match last.is_empty() {
        true => diagnostic.with_hint("The table has no snapshots.").err(),
        false => {
            diagnostic.with_hint(format!("The latest snapshots are {}.", last.join(", "))).err()
        }
    }
}

/// The most snapshots that a message lists.
const SNAPSHOTS_SHOWN_MAX: usize = 5;

/// Returns the columns of a snapshot, or the current ones.
fn schema_of<'m>(
    metadata: &'m IcebergMetadata,
    snapshot: Option<&IcebergSnapshot>,
) -> Option<&'m Schema> {
    let id = snapshot.and_then(|snapshot| snapshot.schema_id);
    let id = id.unwrap_or(metadata.current_schema_id);
    let found = metadata.schemas.iter().find(|schema| schema.schema_id == id);
    found.or(metadata.schema.as_ref().filter(|_| metadata.schemas.is_empty()))
}

/// Returns the field ids of the names in files without ids.
fn ids_of_names(metadata: &IcebergMetadata) -> serde_json::Result<Vec<(String, i32)>> {
    let Some(written) = metadata.properties.get(NAME_MAPPING) else { return Ok(Vec::new()) };
    let fields: Vec<MappedField> = serde_json::from_str(written)?;
    let mut ids = Vec::new();
    for MappedField { field_id, names } in fields {
        ids.extend(
            field_id.into_iter().flat_map(|id| names.iter().map(move |name| (name.clone(), id))),
        );
    }
    Ok(ids)
}

/// Returns a column; the error is what is wrong with it.
fn column(field: &IcebergField) -> std::result::Result<LakeColumn, String> {
    let written_type = match &field.data_type {
        serde_json::Value::String(name) => name.clone(),
        nested => nested["type"].as_str().unwrap_or("a nested type").to_owned(),
    };
    let arrow_type = field.data_type.as_str().and_then(arrow_type);
    let default = match (&field.initial_default, &arrow_type) {
        (Some(json), Some(arrow_type)) => {
            let value = values::of_json(json, arrow_type);
            let name = &field.name;
            let wrong = || {
                format!("The initial default {json} of column `{name}` does not match its type.")
            };
            Some(value.ok_or_else(wrong)?)
        }
        _ => None,
    };
    Ok(LakeColumn { name: field.name.clone(), id: field.id, arrow_type, written_type, default })
}

/// Returns the type that the Parquet files have for a primitive type.
fn arrow_type(name: &str) -> Option<DataType> {
    Some(match name {
        "boolean" => DataType::Boolean,
        "int" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "string" => DataType::Utf8,
        decimal => return super::decimal_type(decimal),
    })
}

//! Iceberg's manifests: the lists of the files of a snapshot.
//!
//! A snapshot has a list of manifests, and a manifest has a list of files. Files that delete rows
//! are refused: without them the rows would be wrong.

use std::sync::Arc;

use lockstep_diagnostic::Result;
use lockstep_row::{Value, arrow::importable};
use serde::Deserialize;

use super::{
    LakeColumn,
    avro::{AvroFile, AvroValue},
    damaged,
    folder::TableFolder,
    refused, statistics, values,
};
use crate::load::InputFile;

/// The state of an entry whose file is no longer part of the table.
const STATUS_DELETED: i64 = 2;

/// The contents of files.
const FILE_OF_ROWS: i64 = 0;
const FILE_OF_POSITIONS: i64 = 1;

/// A partition column of the files of a manifest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PartitionField {
    source_id: i32,
    transform: String,
}

/// Reads the files of a list of manifests, in the order of their names.
pub(super) fn files_of(
    folder: &TableFolder<'_>,
    manifest_list: &str,
    columns: &[LakeColumn],
) -> Result<Vec<InputFile>> {
    let list = read_avro(folder, manifest_list)?;
    let mut files = Vec::new();
    for manifest in &list.rows {
        let Some(path) = manifest.text("manifest_path") else {
            let detail = "A manifest in the list has no path.";
            return Err(damaged(&folder.resolve(manifest_list), detail));
        };
        add_files(folder, path, columns, &mut files)?;
    }
    files.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn read_avro(folder: &TableFolder<'_>, name: &str) -> Result<AvroFile> {
    AvroFile::read(&folder.read(name)?)
        .map_err(|error| damaged(&folder.resolve(name), format!("{error}.")))
}

/// Adds the files of a manifest with their paths.
fn add_files(
    folder: &TableFolder<'_>,
    name: &str,
    columns: &[LakeColumn],
    files: &mut Vec<(String, InputFile)>,
) -> Result<()> {
    let manifest = read_avro(folder, name)?;
    let partition: Vec<PartitionField> = match manifest.header.get("partition-spec") {
        Some(written) => serde_json::from_str(written).map_err(|error| {
            damaged(&folder.resolve(name), format!("Invalid partition specification: {error}."))
        })?,
        None => Vec::new(),
    };
    for entry in &manifest.rows {
        if entry.integer("status") == Some(STATUS_DELETED) {
            continue;
        }
        let data_file = entry.field("data_file");
        let path = data_file.and_then(|file| file.text("file_path"));
        let (Some(data_file), Some(path)) = (data_file, path) else {
            return Err(damaged(
                &folder.resolve(name),
                "An entry of the manifest has no file path.",
            ));
        };
        check_content(folder, data_file, path)?;
        let size = data_file.integer("file_size_in_bytes");
        let mut file = folder.file(path, size.and_then(|size| u64::try_from(size).ok()))?;
        file.values = values_of(data_file, &partition, columns)
            .map_err(|detail| damaged(&folder.resolve(name), detail))?;
        file.statistics = Some(Arc::new(statistics::of_iceberg(data_file, columns)));
        files.push((path.to_owned(), file));
    }
    Ok(())
}

/// Fails for a file that is not one of rows in Parquet.
fn check_content(folder: &TableFolder<'_>, data_file: &AvroValue, path: &str) -> Result<()> {
    let content = data_file.integer("content").unwrap_or(FILE_OF_ROWS);
    if content != FILE_OF_ROWS {
        let feature = match content {
            FILE_OF_POSITIONS => "Iceberg position deletes",
            _ => "Iceberg equality deletes",
        };
        let hint =
            format!("Remove delete file `{path}` with rewrite_data_files, or copy the table.");
        return Err(refused(folder, feature, &hint));
    }
    let format = data_file.text("file_format").unwrap_or_default();
    if !format.eq_ignore_ascii_case("parquet") {
        let feature = format!("data files in format {format}");
        let hint = format!("Rewrite the table with Parquet files, including `{path}`.");
        return Err(refused(folder, &feature, &hint));
    }
    Ok(())
}

/// Returns the values of the columns that the files are partitioned by as they are. A file need not
/// have these columns. The error is what is wrong with a value.
fn values_of(
    data_file: &AvroValue,
    partition: &[PartitionField],
    columns: &[LakeColumn],
) -> std::result::Result<Vec<(String, Value)>, String> {
    let values = data_file.field("partition").map_or(&[][..], AvroValue::values);
    if values.len() != partition.len() {
        return Ok(Vec::new());
    }
    let mut known = Vec::new();
    for (field, value) in partition.iter().zip(values) {
        let column = columns.iter().find(|column| column.id == field.source_id);
        let column = column.filter(|_| field.transform == "identity");
        // A column without a type of the dialect is left out.
        let Some((name, arrow_type)) = column
            .and_then(|column| Some((&column.name, column.arrow_type.as_ref()?)))
            .filter(|(_, arrow_type)| importable(arrow_type).is_some())
        else {
            continue;
        };
        let Some(value) = values::of_avro(value, arrow_type) else {
            return Err(format!("The value of partition column `{name}` does not match its type."));
        };
        known.push((name.clone(), value));
    }
    Ok(known)
}

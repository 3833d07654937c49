//! Delta tables: the state that the actions of the log add up to.
//!
//! `delta_log` reads the actions. What a table's protocol says a reader has to support, and this
//! one does not, is refused by its name.

use std::{collections::BTreeMap, sync::Arc};

use ::arrow::datatypes::{DataType, TimeUnit};
use lockstep_diagnostic::Result;
use lockstep_row::{Value, arrow::importable};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::{
    LakeColumn, LakeTable, damaged,
    delta_log::{AddFile, DeletionVector, DeltaAction, DeltaLog, DeltaMetadata, DeltaProtocol},
    folder::TableFolder,
    refused, statistics, values,
};
use crate::load::InputFile;

/// The newest reader protocol.
const READER_VERSION_MAX: u32 = 3;

/// The features of readers that are supported, or of which a table may have the declaration: it is
/// looked at where they are used.
const READER_FEATURES: [&str; 6] = [
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "vacuumProtocolCheck",
    "columnMapping",
    "deletionVectors",
];

/// Reads a version of a table, or its latest.
pub(super) fn read(folder: &TableFolder<'_>, version: Option<u64>) -> Result<LakeTable> {
    let log = DeltaLog::list(folder)?;
    let version = log.version(folder, version)?;
    let mut state = DeltaState::default();
    log.replay(folder, version, &mut |action| state.apply(action))?;
    let DeltaState { protocol, metadata, files } = state;
    let metadata = metadata.filter(|metadata| metadata.schema_string.is_some());
    let (Some(protocol), Some(metadata)) = (protocol, metadata) else {
        let detail = format!("Version {version} lacks a protocol or a schema.");
        return Err(damaged(&folder.resolve("_delta_log"), detail));
    };
    check_protocol(folder, &protocol, &metadata)?;
    let columns = columns_of(folder, &metadata)?;
    let files = files.into_values().map(|file| input_file(folder, &file, &columns, &metadata));
    let files = files.collect::<Result<Vec<_>>>()?;
    Ok(LakeTable { columns, files, ids_of_names: None })
}

/// What the actions so far add up to.
#[derive(Debug, Default)]
struct DeltaState {
    protocol: Option<DeltaProtocol>,
    metadata: Option<DeltaMetadata>,
    /// By path and deleted rows: a file with other deleted rows is another file.
    files: BTreeMap<(String, Option<DeletionVector>), AddFile>,
}

impl DeltaState {
    fn apply(&mut self, action: DeltaAction) {
        if let Some(protocol) = action.protocol {
            self.protocol = Some(protocol);
        }
        if let Some(metadata) = action.meta_data {
            self.metadata = Some(metadata);
        }
        if let Some(file) = action.remove {
            self.files.remove(&(file.path, file.deletion_vector));
        }
        if let Some(file) = action.add {
            self.files.insert((file.path.clone(), file.deletion_vector.clone()), file);
        }
    }
}

/// Fails where the table needs more of a reader than there is.
fn check_protocol(
    folder: &TableFolder<'_>,
    protocol: &DeltaProtocol,
    metadata: &DeltaMetadata,
) -> Result<()> {
    let version = protocol.min_reader_version;
    if version > READER_VERSION_MAX {
        let feature = format!("Delta reader protocol version {version}");
        return Err(refused(folder, &feature, "Supported versions are 1 to 3."));
    }
    let features = protocol.reader_features.iter().flatten();
    let mut others = features.filter(|feature| !READER_FEATURES.contains(&feature.as_str()));
    if let Some(feature) = others.next() {
        let feature = format!("Delta reader feature `{feature}`");
        let hint = "Remove the feature with ALTER TABLE … DROP FEATURE, or copy the table with \
                    another writer.";
        return Err(refused(folder, &feature, hint));
    }
    let settings = metadata.configuration.as_ref();
    let mapping = settings.and_then(|settings| settings.get("delta.columnMapping.mode"));
    match mapping.and_then(Option::as_deref) {
        None | Some("none") => Ok(()),
        Some(mode) => {
            let feature = format!("Delta reader feature `columnMapping` (mode `{mode}`)");
            let hint =
                "Copy the table without column mapping, the feature that renames or drops columns.";
            Err(refused(folder, &feature, hint))
        }
    }
}

/// The schema of a table, or of a struct.
#[derive(Debug, Deserialize)]
struct StructType {
    fields: Vec<StructField>,
}

#[derive(Debug, Deserialize)]
struct StructField {
    name: String,
    #[serde(rename = "type")]
    data_type: serde_json::Value,
}

fn columns_of(folder: &TableFolder<'_>, metadata: &DeltaMetadata) -> Result<Vec<LakeColumn>> {
    let schema: StructType = serde_json::from_str(
        metadata.schema_string.as_deref().unwrap_or_default(),
    )
    .map_err(|error| {
        damaged(&folder.resolve("_delta_log"), format!("Invalid table schema: {error}."))
    })?;
    let column = |field: StructField| {
        let written_type = match &field.data_type {
            serde_json::Value::String(name) => name.clone(),
            nested => nested["type"].as_str().unwrap_or("a nested type").to_owned(),
        };
        let arrow_type = field.data_type.as_str().and_then(arrow_type);
        LakeColumn { name: field.name, id: 0, arrow_type, written_type, default: None }
    };
    Ok(schema.fields.into_iter().map(column).collect())
}

/// Returns the type that the Parquet files have for a primitive type.
fn arrow_type(name: &str) -> Option<DataType> {
    Some(match name {
        "string" => DataType::Utf8,
        "long" => DataType::Int64,
        "integer" => DataType::Int32,
        "short" => DataType::Int16,
        "byte" => DataType::Int8,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
        decimal => return super::decimal_type(decimal),
    })
}

/// Returns a file with the values of its partition columns.
fn input_file(
    folder: &TableFolder<'_>,
    added: &AddFile,
    columns: &[LakeColumn],
    metadata: &DeltaMetadata,
) -> Result<InputFile> {
    let path = percent_decode_str(&added.path).decode_utf8().map_err(|error| {
        let detail = format!("File name `{}` is not valid UTF-8: {error}.", added.path);
        damaged(&folder.resolve("_delta_log"), detail)
    })?;
    if added.deletion_vector.is_some() {
        let feature = "Delta reader feature `deletionVectors`";
        let hint = format!(
            "Rewrite file `{path}`, which has deleted rows, with REORG TABLE … APPLY (PURGE)."
        );
        return Err(refused(folder, feature, &hint));
    }
    let mut file = folder.file(&path, added.size)?;
    for name in &metadata.partition_columns {
        let column = columns.iter().find(|column| column.name == *name);
        let data_type = column.and_then(|column| column.arrow_type.as_ref());
        let Some(data_type) = data_type else { continue };
        let text = added.partition_values.get(name).and_then(Option::as_deref);
        // The protocol has no other way to write a NULL than a text without characters.
        let value = match text.filter(|text| !text.is_empty()) {
            None => Some(Value::Null),
            Some(text) => values::of_text(text, data_type),
        };
        match (value, importable(data_type)) {
            (Some(value), _) => file.values.push((name.clone(), value)),
            // The column is left out.
            (None, None) => {}
            (None, Some(expected)) => {
                let text = text.unwrap_or_default();
                let detail = format!(
                    "Partition column `{name}` of file `{path}` is of type {expected} but has the \
                     value '{text}'."
                );
                return Err(damaged(&folder.resolve("_delta_log"), detail));
            }
        }
    }
    let written = added.stats.as_deref();
    file.statistics = written.and_then(|stats| statistics::of_delta(stats, columns)).map(Arc::new);
    Ok(file)
}

//! Lake tables that are built by hand, damaged ones among them.

use std::{fs, path::Path, sync::Arc};

use arrow::array::{Int64Array, RecordBatch, StringArray, StructArray};
use datafusion::{
    logical_expr::Operator,
    physical_expr::expressions::{binary, col, lit},
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Settings;
use lockstep_row::Value;
use parquet::arrow::ArrowWriter;

use super::{LakeVersion, avro::AvroFile, find_lake_files};
use crate::{
    load::{Pruning, WantedRows, read_inferred},
    testing::{TestDirectory, rows_of},
};

const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;

/// The columns `a BIGINT, day DATE`, with folders by `day`.
const METADATA: &str = r#"{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"b\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}},{\"name\":\"day\",\"type\":\"date\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":["day"],"configuration":{}}}"#;

fn add(path: &str, day: &str) -> String {
    format!(r#"{{"add":{{"path":"{path}","partitionValues":{{"day":{day}}},"size":1}}}}"#)
}

fn write_rows(path: &Path, batch: &RecordBatch) {
    let file = lockstep_host::disk::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn numbers(values: &[i64]) -> RecordBatch {
    let values: Arc<Int64Array> = Arc::new(values.to_vec().into());
    RecordBatch::try_from_iter([("a", values as arrow::array::ArrayRef)]).unwrap()
}

/// Makes a table of two versions: the second removes a file of the first.
fn table() -> TestDirectory {
    let directory = TestDirectory::new();
    fs::create_dir_all(directory.path().join("_delta_log")).unwrap();
    for (name, value) in [("1.parquet", 1), ("2 .parquet", 2), ("3.parquet", 3)] {
        write_rows(&directory.path().join(name), &numbers(&[value]));
    }
    let first = [PROTOCOL, METADATA, &add("1.parquet", "\"2024-01-01\"")].join("\n");
    commit(&directory, 0, &[&first, "\n", &add("2%20.parquet", "null")].concat());
    let removed = r#"{"remove":{"path":"1.parquet","dataChange":true}}"#;
    let second = [removed, &add("3.parquet", "\"\"")].join("\n");
    commit(&directory, 1, &second);
    directory
}

fn commit(directory: &TestDirectory, version: u64, text: &str) {
    directory.write(&format!("_delta_log/{version:020}.json"), text);
}

fn read(directory: &TestDirectory, version: LakeVersion) -> Result<Vec<Vec<Value>>> {
    let path = directory.path().to_string_lossy().into_owned();
    let permit = |path: &str| -> Result<()> { panic!("{path} is outside of the table") };
    let files = find_lake_files(&path, version, Settings::default(), &permit)?;
    let columns = (0..files.schema.columns.len()).collect();
    let rows = read_inferred(&files, WantedRows { columns, pruning: None })?;
    Ok(rows_of(&rows.collect::<Result<Vec<_>>>()?))
}

fn firsts(rows: &[Vec<Value>]) -> Vec<&Value> {
    rows.iter().map(|row| &row[0]).collect()
}

fn error(directory: &TestDirectory, version: LakeVersion) -> Diagnostic {
    *read(directory, version).unwrap_err()
}

const LATEST: LakeVersion = LakeVersion::Delta(None);

#[test]
fn a_removed_file_is_in_the_version_before_only() {
    let directory = table();
    let latest = read(&directory, LATEST).unwrap();
    assert_eq!(firsts(&latest), [&Value::BigInt(2), &Value::BigInt(3)]);
    assert_eq!(latest[0][1..], [Value::Null, Value::Null], "a column that no file has");
    let before = read(&directory, LakeVersion::Delta(Some(0))).unwrap();
    assert_eq!(firsts(&before), [&Value::BigInt(1), &Value::BigInt(2)]);
    let error = error(&directory, LakeVersion::Delta(Some(7)));
    assert_eq!(error.code, code::INVALID_PARAMETER);
    assert_eq!(error.hint.as_deref(), Some("The latest version is 1."));
}

#[test]
fn damage_names_the_file() {
    let directory = table();
    commit(&directory, 1, "{\"add\":");
    let found = error(&directory, LATEST);
    assert_eq!(found.code, code::BAD_COPY_FORMAT);
    assert!(found.message.contains("00000000000000000001.json"), "{}", found.message);
    fs::remove_file(directory.path().join("_delta_log/00000000000000000000.json")).unwrap();
    let found = error(&directory, LATEST);
    assert_eq!(found.code, code::UNDEFINED_FILE);
    assert!(found.message.contains("00000000000000000000.json"), "{}", found.message);
    let empty = TestDirectory::new();
    assert_eq!(error(&empty, LATEST).code, code::UNDEFINED_FILE);
    assert_eq!(error(&empty, LakeVersion::Iceberg(None)).code, code::UNDEFINED_FILE);
}

#[test]
fn a_file_of_rows_that_does_not_exist_is_named() {
    let directory = table();
    fs::remove_file(directory.path().join("3.parquet")).unwrap();
    let found = error(&directory, LATEST);
    assert_eq!(found.code, code::UNDEFINED_FILE);
    assert!(found.message.contains("3.parquet"), "{}", found.message);
}

#[test]
fn what_is_not_supported_is_named() {
    let directory = table();
    let features = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["variantType"],"writerFeatures":[]}}"#;
    commit(&directory, 2, features);
    let found = error(&directory, LATEST);
    assert_eq!(found.code, code::FEATURE_NOT_SUPPORTED);
    assert!(found.message.contains("variantType"), "{}", found.message);
    let mapping = r#""configuration":{"delta.columnMapping.mode":"name"}"#;
    let mapped = METADATA.replace(r#""configuration":{}"#, mapping);
    commit(&directory, 2, &mapped);
    assert!(error(&directory, LATEST).message.contains("columnMapping"));
    let vector = r#""size":1,"deletionVector":{"storageType":"u","pathOrInlineDv":"x","offset":1,"sizeInBytes":1,"cardinality":1}"#;
    commit(&directory, 2, &add("4.parquet", "null").replace(r#""size":1"#, vector));
    assert!(error(&directory, LATEST).message.contains("deletionVectors"));
}

#[test]
fn a_checkpoint_stands_for_the_commits_before_it() {
    let directory = table();
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as arrow::array::ArrayRef;
    let integer = |value: i64| Arc::new(Int64Array::from(vec![value])) as arrow::array::ArrayRef;
    let metadata: serde_json::Value = serde_json::from_str(METADATA).unwrap();
    let schema = metadata["metaData"]["schemaString"].as_str().unwrap();
    let group = |fields: Vec<(&str, arrow::array::ArrayRef)>| {
        Arc::new(StructArray::try_from(fields).unwrap()) as arrow::array::ArrayRef
    };
    let size = i64::try_from(fs::metadata(directory.path().join("3.parquet")).unwrap().len());
    let checkpoint = RecordBatch::try_from_iter([
        ("protocol", group(vec![("minReaderVersion", integer(1))])),
        ("metaData", group(vec![("schemaString", text(schema))])),
        ("add", group(vec![("path", text("3.parquet")), ("size", integer(size.unwrap()))])),
    ]);
    let name = "_delta_log/00000000000000000001.checkpoint.parquet";
    write_rows(&directory.path().join(name), &checkpoint.unwrap());
    fs::remove_file(directory.path().join("_delta_log/00000000000000000000.json")).unwrap();
    assert_eq!(firsts(&read(&directory, LATEST).unwrap()), [&Value::BigInt(3)]);
    let found = error(&directory, LakeVersion::Delta(Some(0)));
    assert!(found.hint.unwrap().contains("Version 1 can be read"));
}

#[test]
fn a_file_without_a_wanted_row_is_not_opened() {
    let directory = table();
    let stats = |stats: &str| {
        let add = add("gone.parquet", "null");
        add.replace(r#""size":1"#, &format!(r#""size":1,"stats":{stats:?}"#))
    };
    let rows_above = |least: i64| -> Result<Vec<Value>> {
        let path = directory.path().to_string_lossy().into_owned();
        let files = find_lake_files(&path, LATEST, Settings::default(), &|_| Ok(()))?;
        let schema = &files.arrow_schema;
        let filter = binary(col("a", schema).unwrap(), Operator::Gt, lit(least), schema).unwrap();
        let pruning = Pruning::new(filter, schema);
        assert!(pruning.is_some(), "the filter decides");
        let rows = read_inferred(&files, WantedRows { columns: vec![0], pruning })?;
        let rows = rows_of(&rows.collect::<Result<Vec<_>>>()?);
        Ok(rows.into_iter().map(|mut row| row.swap_remove(0)).collect())
    };
    commit(&directory, 2, &stats(r#"{"numRecords":2,"minValues":{"a":-9},"maxValues":{"a":1}}"#));
    assert_eq!(rows_above(1).unwrap(), [Value::BigInt(2), Value::BigInt(3)]);
    assert_eq!(rows_above(0).unwrap_err().code, code::UNDEFINED_FILE, "it may have a row of 1");
    commit(&directory, 2, &stats(r#"{"numRecords":2,"nullCount":{"a":2}}"#));
    assert_eq!(rows_above(-7).unwrap().len(), 2, "all values are NULL");
    for unknown in [r#"{"numRecords":2}"#, "damaged", r#"{"maxValues":{"a":"1"}}"#] {
        commit(&directory, 2, &stats(unknown));
        assert_eq!(rows_above(1).unwrap_err().code, code::UNDEFINED_FILE, "{unknown}");
    }
}

#[test]
fn avro_is_read_by_its_own_schema() {
    let schema = r#"{"type":"record","name":"r","fields":[{"name":"s","type":["null","string"]},{"name":"i","type":"long"}]}"#;
    let mut bytes = b"Obj\x01\x02\x16avro.schema".to_vec();
    let size = schema.len() * 2;
    bytes.push(u8::try_from(size & 0x7f).unwrap() | 0x80);
    bytes.push(u8::try_from(size >> 7).unwrap());
    bytes.extend(schema.as_bytes());
    bytes.push(0);
    bytes.extend([7; 16]);
    // Two rows: ('ab', -3) and (NULL, 64).
    bytes.extend([4, 16, 2, 4, b'a', b'b', 5, 0, 0x80, 1]);
    bytes.extend([7; 16]);
    // The block above has eight bytes.
    let file = AvroFile::read(&bytes).unwrap();
    assert_eq!(file.rows[0].text("s"), Some("ab"));
    assert_eq!(file.rows[0].integer("i"), Some(-3));
    assert_eq!(file.rows[1].text("s"), None);
    assert_eq!(file.rows[1].integer("i"), Some(64));
    for end in 0..bytes.len() {
        let is_whole_header = end == bytes.len() - 26;
        assert_eq!(AvroFile::read(&bytes[..end]).is_ok(), is_whole_header, "{end} bytes");
    }
}

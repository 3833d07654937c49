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
    read_in(directory, version, Settings::default())
}

fn read_in(
    directory: &TestDirectory,
    version: LakeVersion,
    settings: Settings,
) -> Result<Vec<Vec<Value>>> {
    let path = directory.path().to_string_lossy().into_owned();
    let permit = |path: &str| -> Result<()> { panic!("{path} is outside of the table") };
    let files = find_lake_files(&path, version, settings, &permit)?;
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
    assert!(found.hint.unwrap().contains("Read version 1"));
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

/// Makes a Delta table with a file for each value of the partition column `p`, which is numbered in
/// the column `a`.
fn partitioned(data_type: &str, values: &[&str]) -> TestDirectory {
    let directory = TestDirectory::new();
    fs::create_dir_all(directory.path().join("_delta_log")).unwrap();
    let metadata = METADATA.replace(r#"\"day\""#, r#"\"p\""#).replace(r#""day""#, r#""p""#);
    let metadata = metadata.replace(r#"\"date\""#, &format!(r#"\"{data_type}\""#));
    let mut lines = vec![PROTOCOL.to_owned(), metadata];
    for (number, value) in values.iter().enumerate() {
        let name = format!("{number}.parquet");
        let rows = numbers(&[i64::try_from(number).unwrap()]);
        write_rows(&directory.path().join(&name), &rows);
        lines.push(add(&name, &format!("\"{value}\"")).replace(r#""day""#, r#""p""#));
    }
    commit(&directory, 0, &lines.join("\n"));
    directory
}

/// The session's zone does not matter, nor does what a file of text can hold.
#[test]
fn partition_values_are_those_of_the_log() {
    let settings = Settings { time_zone: chrono_tz::Asia::Tokyo.into(), ..Settings::default() };
    let time = |ms| Value::Timestamp(ms);
    for (data_type, values, expected) in [
        (
            "timestamp",
            &["2400-07-01 00:00:00", "1969-12-31 23:59:59.9999"][..],
            &[time(13_585_190_400_000), time(-1)][..],
        ),
        ("timestamp_ntz", &["2024-07-01 00:00:00"], &[time(1_719_792_000_000)]),
        ("date", &["1850-06-01", "9999-12-31"], &[Value::Date(-43_678), Value::Date(2_932_896)]),
        ("double", &["2.25", "NaN"], &[Value::Double(2.25), Value::Double(f64::NAN)]),
        ("decimal(9,2)", &["1.10"], &[Value::Double(1.1)]),
        ("boolean", &["true"], &[Value::Bool(true)]),
        ("string", &["a=b c"], &[Value::String("a=b c".into())]),
    ] {
        let directory = partitioned(data_type, values);
        let found = read_in(&directory, LATEST, settings).unwrap();
        let found: Vec<Value> = found.into_iter().map(|mut row| row.remove(2)).collect();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{data_type}");
    }
    let directory = partitioned("date", &["2024-01-01", "soon"]);
    let found = error(&directory, LATEST);
    assert_eq!(found.code, code::BAD_COPY_FORMAT);
    assert_eq!(
        found.detail.as_deref(),
        Some("Partition column `p` of file `1.parquet` is of type DATE but has the value 'soon'."),
    );
}

/// Some writers repeat the column in the file.
#[test]
fn the_log_has_the_last_word_on_a_partition_column() {
    let directory = partitioned("long", &["7"]);
    let column = |value: i64| Arc::new(Int64Array::from(vec![value])) as arrow::array::ArrayRef;
    let rows = RecordBatch::try_from_iter([("p", column(1)), ("a", column(2))]).unwrap();
    write_rows(&directory.path().join("0.parquet"), &rows);
    let expected = [Value::BigInt(2), Value::Null, Value::BigInt(7)];
    assert_eq!(read(&directory, LATEST).unwrap(), [expected]);
}

#[test]
fn columns_of_delta_are_known_in_any_case() {
    let directory = table();
    let column = |value: i64| Arc::new(Int64Array::from(vec![value])) as arrow::array::ArrayRef;
    let path = directory.path().join("3.parquet");
    write_rows(&path, &RecordBatch::try_from_iter([("A", column(8))]).unwrap());
    assert_eq!(firsts(&read(&directory, LATEST).unwrap()), [&Value::BigInt(2), &Value::BigInt(8)]);
    // The exact name is meant where both are there.
    let both = [("A", column(8)), ("a", column(9))];
    write_rows(&path, &RecordBatch::try_from_iter(both).unwrap());
    assert_eq!(firsts(&read(&directory, LATEST).unwrap()), [&Value::BigInt(2), &Value::BigInt(9)]);
}

#[test]
fn columns_may_be_added_after_the_first_metadata() {
    let directory = table();
    let without = r#"{"metaData":{"id":"x","partitionColumns":[],"configuration":{}}}"#;
    let first = fs::read_to_string(directory.path().join("_delta_log/00000000000000000000.json"));
    commit(&directory, 0, &[PROTOCOL, without].join("\n"));
    commit(&directory, 1, &first.unwrap());
    assert_eq!(read(&directory, LATEST).unwrap().len(), 2);
    assert_eq!(error(&directory, LakeVersion::Delta(Some(0))).code, code::BAD_COPY_FORMAT);
}

#[test]
fn bounds_of_the_log_the_wrong_way_round_are_not_used() {
    let directory = table();
    let stats = |stats: &str| {
        let add = add("3.parquet", "null");
        commit(
            &directory,
            2,
            &add.replace(r#""size":1"#, &format!(r#""size":1,"stats":{stats:?}"#)),
        );
    };
    let wanted = |is_null: bool| {
        let path = directory.path().to_string_lossy().into_owned();
        let files = find_lake_files(&path, LATEST, Settings::default(), &|_| Ok(())).unwrap();
        let schema = &files.arrow_schema;
        let column = col(if is_null { "b" } else { "a" }, schema).unwrap();
        let filter = match is_null {
            true => datafusion::physical_expr::expressions::is_null(column).unwrap(),
            false => binary(column, Operator::Eq, lit(3_i64), schema).unwrap(),
        };
        let pruning = Pruning::new(filter, schema);
        let rows = read_inferred(&files, WantedRows { columns: vec![0], pruning }).unwrap();
        rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
    };
    stats(r#"{"numRecords":1,"minValues":{"a":9},"maxValues":{"a":1}}"#);
    assert_eq!(wanted(false), 1);
    stats(r#"{"numRecords":1,"minValues":{"a":4},"maxValues":{"a":9}}"#);
    assert_eq!(wanted(false), 0, "right bounds leave out the file");
    stats(r#"{"numRecords":1,"nullCount":{"b":0}}"#);
    assert_eq!(wanted(true), 2, "the column is in no file");
    stats(r#"{"numRecords":1,"minValues":{"a":1},"maxValues":{"a":3},"nullCount":{"a":1}}"#);
    assert_eq!(wanted(false), 1, "a column with bounds has other values than NULL");
}

#[test]
fn a_damaged_file_of_rows_is_named() {
    let directory = table();
    let path = directory.path().join("3.parquet");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let found = error(&directory, LATEST);
    assert_eq!(found.code, code::BAD_COPY_FORMAT);
    assert!(found.message.contains("3.parquet"), "{}", found.message);
    let name = "_delta_log/00000000000000000001.checkpoint.parquet";
    fs::write(directory.path().join(name), &bytes[..40]).unwrap();
    assert!(error(&directory, LATEST).message.contains("checkpoint.parquet"));
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
    // Rows of lists of NULLs, which have no bytes.
    let of_nulls = schema.replace(r#"["null","string"]"#, r#"{"type":"array","items":"null"}"#);
    let mut many = b"Obj\x01\x02\x16avro.schema".to_vec();
    let size = of_nulls.len() * 2;
    many.push(u8::try_from(size & 0x7f).unwrap() | 0x80);
    many.push(u8::try_from(size >> 7).unwrap());
    many.extend(of_nulls.as_bytes());
    many.push(0);
    many.extend([7; 16]);
    // One row of 122 bytes: 120 blocks of 30 NULLs and the end of the list, then the integer 0.
    many.extend([2, 0xf4, 1]);
    many.extend([60; 120]);
    many.extend([0, 0]);
    many.extend([7; 16]);
    let error = AvroFile::read(&many).unwrap_err().to_string();
    assert_eq!(error, "A block contains more values than its size allows");
    for end in 0..bytes.len() {
        let is_whole_header = end == bytes.len() - 26;
        assert_eq!(AvroFile::read(&bytes[..end]).is_ok(), is_whole_header, "{end} bytes");
    }
}

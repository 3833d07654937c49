//! Files out, and in again.

use std::{fs, path::Path, slice::from_ref, sync::Arc};

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use lockstep_diagnostic::code;
use lockstep_function::Settings;
use lockstep_row::{Column, DataType, TableSchema};

use super::{ExportOptions, Exporter, Quote, WriteMode, export, export_folder};
use crate::{
    load::{FileFormat, LoadOptions, read_file},
    testing::{TestDirectory, rows_of},
};

fn batch() -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        ("name", Arc::new(StringArray::from(vec![Some("a,b"), Some("say \"x\"\n"), None]))),
        ("n", Arc::new(Int32Array::from(vec![Some(1), None, Some(-3)]))),
        ("x", Arc::new(Float64Array::from(vec![0.1, 1e300, 2.0]))),
        (
            "t",
            Arc::new(TimestampMillisecondArray::from(vec![Some(1), None, Some(1_590_738_990_000)])),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn names() -> Vec<String> {
    ["name", "n", "x", "t"].map(str::to_owned).to_vec()
}

fn schema() -> TableSchema {
    let types = [DataType::String, DataType::Int, DataType::Double, DataType::Timestamp];
    let columns = names().into_iter().zip(types).map(|(name, of)| Column::new(name, of));
    TableSchema { columns: columns.collect(), indexes: Vec::new() }
}

fn write(path: &Path, options: &ExportOptions) -> lockstep_diagnostic::Result<u64> {
    let batch = batch();
    let schema = batch.schema();
    export(&path.to_string_lossy(), &names(), &schema, [Ok(batch)], options)
}

fn read(path: &Path, format: FileFormat) -> Vec<Vec<lockstep_row::Value>> {
    let options = LoadOptions { format, ..LoadOptions::default() };
    let rows = read_file(&path.to_string_lossy(), &options, &schema(), &Settings::default());
    let batches: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    rows_of(&batches)
}

#[test]
fn what_is_written_is_read_back_and_appended_to() {
    for format in [FileFormat::Csv, FileFormat::Parquet] {
        let directory = TestDirectory::new();
        let path = directory.path().join("file");
        let options = ExportOptions { format, ..ExportOptions::default() };
        assert_eq!(write(&path, &options).unwrap(), 3);
        let expected = rows_of(&[batch()]);
        assert_eq!(read(&path, format), expected);
        assert_eq!(write(&path, &options).unwrap_err().code, code::DUPLICATE_FILE);
        let append = ExportOptions { mode: WriteMode::Append, ..options.clone() };
        write(&path, &append).unwrap();
        assert_eq!(read(&path, format), [expected.clone(), expected.clone()].concat());
        let overwrite = ExportOptions { mode: WriteMode::Overwrite, ..options };
        write(&path, &overwrite).unwrap();
        assert_eq!(read(&path, format), expected);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
    }
}

#[test]
fn csv_follows_its_options() {
    let directory = TestDirectory::new();
    let path = directory.path().join("file.csv");
    let options = ExportOptions {
        delimiter: b';',
        header: Some(false),
        null_value: "-".to_owned(),
        quote: Quote::Texts(b'\''),
        ..ExportOptions::default()
    };
    write(&path, &options).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let expected = "'a,b';1;0.1;1970-01-01T00:00:00.001Z\n'say \"x\"\n';-;1e+300;-\n\
                    -;-3;2;2020-05-29T07:56:30.000Z\n";
    assert_eq!(text, expected);
}

#[test]
fn an_export_that_stops_leaves_nothing_behind() {
    let directory = TestDirectory::new();
    let path = directory.path().join("file.csv").to_string_lossy().into_owned();
    let batch = batch();
    let mut exporter =
        Exporter::new(&path, &names(), &batch.schema(), &ExportOptions::default()).unwrap();
    exporter.write(&batch).unwrap();
    drop(exporter);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn without_quotes_a_line_is_its_fields() {
    let directory = TestDirectory::new();
    let path = directory.path().join("file.csv");
    let time_zone = chrono_tz::Tz::Asia__Kolkata.into();
    let settings = Settings { time_zone, ..Settings::default() };
    let options = ExportOptions { quote: Quote::Never, settings, ..ExportOptions::default() };
    write(&path, &options).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let expected = "name,n,x,t\na,b,1,0.1,1970-01-01T05:30:00.001+05:30\n\
                    say \"x\"\n,null,1e+300,null\nnull,-3,2,2020-05-29T13:26:30.000+05:30\n";
    assert_eq!(text, expected);
}

fn parts(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> =
        entries.map(name).map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_gets_parts_and_keeps_what_is_no_part() {
    let directory = TestDirectory::new();
    let folder = directory.path().join("result.csv");
    let batch = batch();
    let write = |mode: WriteMode, parts: usize| {
        let options = ExportOptions { mode, ..ExportOptions::default() };
        let path = folder.to_string_lossy();
        export_folder(&path, &names(), &batch.schema(), from_ref(&batch), &options, parts)
    };
    assert_eq!(write(WriteMode::ErrorIfExists, 2).unwrap(), 3);
    assert_eq!(parts(&folder), ["_SUCCESS", "part-00000.csv", "part-00001.csv"]);
    let expected = rows_of(from_ref(&batch));
    assert_eq!(read(&folder, FileFormat::Csv), expected);
    assert_eq!(write(WriteMode::ErrorIfExists, 1).unwrap_err().code, code::DUPLICATE_FILE);
    write(WriteMode::Append, 1).unwrap();
    assert_eq!(read(&folder, FileFormat::Csv), [expected.clone(), expected].concat());
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    write(WriteMode::Overwrite, 1).unwrap();
    assert_eq!(parts(&folder), ["_SUCCESS", "notes.txt", "part-00000.csv"]);
}

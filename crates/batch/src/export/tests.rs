//! Files out, and in again.

use std::{fs, path::Path, slice::from_ref, sync::Arc};

use arrow::array::{
    ArrayRef, Float32Array, Float64Array, Int32Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use lockstep_diagnostic::code;
use lockstep_function::Settings;
use lockstep_row::{Column, DataType, TableSchema, Value};

use super::{
    ExportFormat, ExportOptions, Exporter, FolderExporter, Quote, WriteMode, export, export_folder,
};
use crate::{
    load::{CsvOptions, FileFormat, LoadOptions, infer_schema, read_file},
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

fn read(path: &Path, format: FileFormat) -> Vec<Vec<Value>> {
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
        let options = ExportOptions { format: format.into(), ..ExportOptions::default() };
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

/// Writes the rows over what is at a path.
fn overwrite(path: &Path) -> lockstep_diagnostic::Result<u64> {
    let mode = WriteMode::Overwrite;
    write(path, &ExportOptions { mode, ..ExportOptions::default() })
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_mode_and_the_links_to_it() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let directory = TestDirectory::new();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other/rows.csv"), "old").unwrap();
    fs::set_permissions(path("other/rows.csv"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("other/rows.csv", path("link.csv")).unwrap();
    assert_eq!(overwrite(&path("link.csv")).unwrap(), 3);
    assert!(fs::symlink_metadata(path("link.csv")).unwrap().is_symlink());
    assert_eq!(read(&path("other/rows.csv"), FileFormat::Csv), rows_of(&[batch()]));
    let mode = fs::metadata(path("other/rows.csv")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(fs::read_dir(path("other")).unwrap().count(), 1, "nothing is left over");

    symlink("nowhere.csv", path("broken.csv")).unwrap();
    let error = overwrite(&path("broken.csv")).unwrap_err();
    assert_eq!(error.code, code::UNDEFINED_FILE);
    assert!(error.message.ends_with("is a dangling symbolic link"), "{}", error.message);
    assert!(!path("nowhere.csv").exists());
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_replaced() {
    use std::os::unix::{fs::FileTypeExt, net::UnixListener};

    let directory = TestDirectory::new();
    let path = directory.path().join("socket");
    let _socket = UnixListener::bind(&path).unwrap();
    for mode in [WriteMode::Overwrite, WriteMode::Append] {
        let error = write(&path, &ExportOptions { mode, ..ExportOptions::default() }).unwrap_err();
        assert_eq!(error.code, code::WRONG_OBJECT_TYPE);
        assert!(error.message.ends_with("is not a regular file"), "{}", error.message);
    }
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_takes_no_files_is_named() {
    let error = overwrite(Path::new("/proc/rows.csv")).unwrap_err();
    assert_eq!(error.message, "cannot create files in directory `/proc`");
    let error = overwrite(Path::new("/proc/missing/rows.csv")).unwrap_err();
    assert_eq!(error.message, "directory `/proc/missing` does not exist");
}

#[test]
fn json_has_words_for_the_floats_that_are_no_numbers() {
    let directory = TestDirectory::new();
    let path = directory.path().join("file.json");
    let wide = vec![Some(f64::NAN), None, Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(1e22)];
    let narrow: Vec<Option<f32>> =
        vec![Some(f32::INFINITY), Some(0.1), None, Some(f32::NAN), Some(-0.0)];
    let columns: [(&str, ArrayRef); 2] = [
        ("wide", Arc::new(Float64Array::from(wide.clone()))),
        ("narrow", Arc::new(Float32Array::from(narrow))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let names = ["wide", "narrow"].map(str::to_owned);
    let options = ExportOptions { format: FileFormat::Json.into(), ..ExportOptions::default() };
    let schema = batch.schema();
    export(&path.to_string_lossy(), &names, &schema, [Ok(batch)], &options).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let expected = "{\"wide\":\"NaN\",\"narrow\":\"Infinity\"}\n{\"wide\":null,\"narrow\":0.1}\n\
                    {\"wide\":\"Infinity\",\"narrow\":null}\n\
                    {\"wide\":\"-Infinity\",\"narrow\":\"NaN\"}\n\
                    {\"wide\":1.0e22,\"narrow\":-0.0}\n";
    assert_eq!(text, expected);

    let load = LoadOptions { format: FileFormat::Json, ..LoadOptions::default() };
    let inferred = infer_schema(&path.to_string_lossy(), &load, &Settings::default()).unwrap();
    let types = inferred.columns.iter().map(|column| column.data_type.clone());
    assert_eq!(types.collect::<Vec<_>>(), [DataType::Double, DataType::Double]);
    let rows = read_file(&path.to_string_lossy(), &load, &inferred, &Settings::default());
    let rows = rows_of(&rows.unwrap().map(Result::unwrap).collect::<Vec<_>>());
    let found: Vec<String> = rows.iter().map(|row| format!("{:?}", row[0])).collect();
    let wide = wide.iter().map(|value| value.map_or(Value::Null, Value::Double));
    assert_eq!(found, wide.map(|value| format!("{value:?}")).collect::<Vec<_>>());
}

#[test]
fn a_folder_without_rows_says_so_when_it_is_read() {
    let directory = TestDirectory::new();
    let folder = directory.path().join("empty");
    let options = ExportOptions::default();
    let (path, schema) = (folder.to_string_lossy().into_owned(), batch().schema());
    let exporter = FolderExporter::new(&path, &names(), &schema, &options, &[1]).unwrap();
    assert_eq!(exporter.finish().unwrap(), 0);
    let error = infer_schema(&path, &LoadOptions::default(), &Settings::default()).unwrap_err();
    assert_eq!(error.message, format!("directory `{path}` contains no files to read"));
    let detail = "The directory was written by a query that returned no rows.";
    assert_eq!(error.detail.as_deref(), Some(detail));
}

#[test]
fn a_compression_that_is_not_supported_is_refused() {
    let directory = TestDirectory::new();
    let refused = |name: &str| {
        let format = ExportFormat::of_path(name);
        let options = ExportOptions { format, ..ExportOptions::default() };
        let error = write(&directory.path().join(name), &options).unwrap_err();
        assert_eq!(error.code, code::INVALID_PARAMETER, "{name}");
        (error.message, error.hint.unwrap_or_default())
    };
    let names = ["rows.csv.bz2", "rows.json.XZ", "rows.lz4", "rows.tsv.br", "rows.libsvm.snappy"];
    for name in names {
        let (message, hint) = refused(name);
        assert!(message.ends_with("which is not supported"), "{message}");
        assert!(hint.contains("`.gz` or `.zst`"), "{hint}");
    }
    for name in ["rows.parquet.bz2", "rows.arrow.xz", "rows.parquet.gz"] {
        let (message, _) = refused(name);
        assert!(message.ends_with("which Parquet and Arrow IPC do not support"), "{message}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn the_format_is_named_before_the_compression() {
    let formats = [
        ("a.JSON.ZST", ExportFormat::Table(FileFormat::Json)),
        ("a.parquet.lz4", ExportFormat::Table(FileFormat::Parquet)),
        ("a.libsvm.gz", ExportFormat::Libsvm),
        ("a.tfrecord.bz2", ExportFormat::TfRecord),
        ("a.bz2", ExportFormat::Table(FileFormat::Csv)),
    ];
    for (name, format) in formats {
        assert_eq!(ExportFormat::of_path(name), format, "{name}");
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
fn null_is_nothing_and_a_text_that_would_be_null_is_quoted() {
    let directory = TestDirectory::new();
    let path = directory.path().join("file.csv");
    let texts = vec![Some(""), None, Some("null"), Some("-"), Some(" "), Some("\u{feff}")];
    let numbers = vec![Some(0), None, Some(1), Some(2), Some(3), Some(4)];
    let columns: [(&str, ArrayRef); 2] =
        [(" text", Arc::new(StringArray::from(texts))), ("n", Arc::new(Int32Array::from(numbers)))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let names = [" text", "n"].map(str::to_owned);
    let columns = [(" text", DataType::String), ("n", DataType::Int)];
    let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
    let schema = TableSchema { columns, indexes: Vec::new() };
    for (null_value, expected) in [
        ("", "\" text\",n\n\"\",0\n,\n\"null\",1\n-,2\n ,3\n\"\u{feff}\",4\n"),
        ("-", "\" text\",n\n\"\",0\n-,-\n\"null\",1\n\"-\",2\n ,3\n\"\u{feff}\",4\n"),
        ("0", "\" text\",n\n\"\",\"0\"\n0,0\n\"null\",1\n-,2\n ,3\n\"\u{feff}\",4\n"),
    ] {
        let options = ExportOptions {
            mode: WriteMode::Overwrite,
            null_value: null_value.to_owned(),
            ..ExportOptions::default()
        };
        let to = path.to_string_lossy();
        export(&to, &names, &batch.schema(), [Ok(batch.clone())], &options).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        let csv = CsvOptions { null_value: null_value.to_owned(), ..CsvOptions::default() };
        let load = LoadOptions { csv, ..LoadOptions::default() };
        let rows = read_file(&to, &load, &schema, &Settings::default()).unwrap();
        let rows = rows_of(&rows.map(Result::unwrap).collect::<Vec<_>>());
        assert_eq!(rows, rows_of(from_ref(&batch)), "{null_value:?}");
    }
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
                    say \"x\"\n,,1e+300,\n,-3,2,2020-05-29T13:26:30.000+05:30\n";
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

/// Returns every file of a folder and of its folders, by its path within it.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Writes batches of `name` and `n` into folders by `name`.
fn write_by_name(folder: &Path, batches: &[RecordBatch], options: &ExportOptions) -> u64 {
    let (names, schema) = (["name", "n"].map(str::to_owned), batches[0].schema());
    let path = folder.to_string_lossy();
    let mut exporter = FolderExporter::new(&path, &names, &schema, options, &[0]).unwrap();
    batches.iter().for_each(|batch| exporter.write(batch).unwrap());
    exporter.finish().unwrap()
}

fn named(rows: &[(Option<&str>, i32)]) -> RecordBatch {
    let names: StringArray = rows.iter().map(|(name, _)| *name).collect();
    let numbers: Int32Array = rows.iter().map(|(_, number)| Some(*number)).collect();
    let columns: [(&str, ArrayRef); 2] = [("name", Arc::new(names)), ("n", Arc::new(numbers))];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn rows_go_to_the_folders_of_their_values() {
    let directory = TestDirectory::new();
    let folder = directory.path().join("out");
    let batches = [
        named(&[(Some("a/b=%"), 1), (None, 2), (Some("a/b=%"), 3)]),
        named(&[(Some("ü x"), 4), (Some("a/b=%"), 5), (Some(""), 6)]),
    ];
    let options = ExportOptions::default();
    assert_eq!(write_by_name(&folder, &batches, &options), 6);
    let expected = [
        "_SUCCESS",
        "name=%C3%BC x/part-00000.csv",
        "name=/part-00000.csv",
        "name=__HIVE_DEFAULT_PARTITION__/part-00000.csv",
        "name=a%2Fb%3D%25/part-00000.csv",
    ];
    assert_eq!(tree(&folder), expected);
    let text = fs::read_to_string(folder.join(expected[4])).unwrap();
    assert_eq!(text, "n\n1\n3\n5\n", "in their order");
    let written = ExportOptions { mode: WriteMode::Append, ..options.clone() };
    write_by_name(&folder, &[named(&[(None, 7)])], &written);
    let added = folder.join("name=__HIVE_DEFAULT_PARTITION__/part-00001.csv");
    assert_eq!(fs::read_to_string(added).unwrap(), "n\n7\n");
    let written = ExportOptions { mode: WriteMode::Overwrite, ..options };
    write_by_name(&folder, &[named(&[(Some("z"), 8)])], &written);
    assert_eq!(tree(&folder), ["_SUCCESS", "name=z/part-00000.csv"], "the others are gone");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "and so are their folders");
}

#[test]
fn a_folder_with_more_values_than_open_files_has_every_row_once() {
    let directory = TestDirectory::new();
    let folder = directory.path().join("out");
    let names: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    let rows: Vec<(Option<&str>, i32)> =
        (0..4).flat_map(|_| &names).map(|name| (Some(name.as_str()), 1)).collect();
    for format in [FileFormat::Parquet, FileFormat::Json] {
        let mode = WriteMode::Overwrite;
        let options = ExportOptions { format: format.into(), mode, ..ExportOptions::default() };
        let batches: Vec<RecordBatch> = rows.chunks(70).map(named).collect();
        assert_eq!(write_by_name(&folder, &batches, &options), 800);
        let files = tree(&folder);
        assert!(files.len() > 201, "{} files: some have several", files.len());
        let load = LoadOptions { format, ..LoadOptions::default() };
        let columns = vec![Column::new("n".to_owned(), DataType::Int)];
        let schema = TableSchema { columns, indexes: Vec::new() };
        for name in &names {
            let path = folder.join(format!("name={name}"));
            let read = read_file(&path.to_string_lossy(), &load, &schema, &options.settings);
            let rows: usize = read.unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows, 4, "{name}");
        }
    }
}

#[test]
fn a_folder_that_is_not_finished_leaves_nothing() {
    let directory = TestDirectory::new();
    let folder = directory.path().join("new/out");
    let batch = named(&[(Some("a"), 1), (Some("b"), 2)]);
    let (names, path) = (["name", "n"].map(str::to_owned), folder.to_string_lossy().into_owned());
    let options = ExportOptions::default();
    let start = |by: &[usize]| FolderExporter::new(&path, &names, &batch.schema(), &options, by);
    let mut exporter = start(&[0]).unwrap();
    exporter.write(&batch).unwrap();
    assert!(folder.join("name=a").exists());
    drop(exporter);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(start(&[0, 1]).unwrap_err().code, code::INVALID_PARAMETER);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    start(&[]).unwrap().finish().unwrap();
    assert_eq!(
        tree(&folder),
        ["_SUCCESS", "part-00000.csv"],
        "a result without rows has its columns"
    );
}

#[test]
fn a_parquet_file_of_several_row_groups_has_its_rows_in_order() {
    let directory = TestDirectory::new();
    let path = directory.path().join("many.parquet");
    let batches = (0..130_i32).map(|batch| {
        let numbers = (0..9_000).map(|row| batch * 9_000 + row);
        let rows: Vec<(Option<&str>, i32)> =
            numbers.map(|number| ((number % 3 > 0).then_some("text"), number)).collect();
        Ok(named(&rows))
    });
    let schema = named(&[]).schema();
    let names = ["name", "n"].map(str::to_owned);
    let format = FileFormat::Parquet;
    let options = ExportOptions { format: format.into(), ..ExportOptions::default() };
    let written = export(&path.to_string_lossy(), &names, &schema, batches, &options);
    assert_eq!(written.unwrap(), 130 * 9_000);
    let load = LoadOptions { format, ..LoadOptions::default() };
    let columns = vec![
        Column::new("name".to_owned(), DataType::String),
        Column::new("n".to_owned(), DataType::Int),
    ];
    let schema = TableSchema { columns, indexes: Vec::new() };
    let read = read_file(&path.to_string_lossy(), &load, &schema, &options.settings).unwrap();
    let mut next = 0;
    for batch in read {
        for row in rows_of(&[batch.unwrap()]) {
            let name = if next % 3 > 0 { Value::String("text".into()) } else { Value::Null };
            assert_eq!(row, [name, Value::Int(next)]);
            next += 1;
        }
    }
    assert_eq!(next, 130 * 9_000);
}

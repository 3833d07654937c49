//! Files in, malformed ones among them.

mod damage;

use std::{fs, path::PathBuf, sync::Arc};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray},
    datatypes::Schema,
};
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_function::Settings;
use lockstep_row::{Column, DataType, TableSchema, Value};

use super::{
    ColumnMatch, CsvOptions, FILE_BATCH_ROWS, FileFormat, FoundFile, LoadOptions, OnError,
    UnknownColumns, find_files, infer_schema, read_file,
};
use crate::{
    export::{ExportOptions, export},
    testing::{TestDirectory, rows_of},
};

fn schema(columns: &[(&str, DataType)]) -> TableSchema {
    let columns = columns.iter().map(|(name, of)| Column::new(*name, of.clone()));
    TableSchema { columns: columns.collect(), indexes: Vec::new() }
}

fn people() -> TableSchema {
    schema(&[("name", DataType::String), ("age", DataType::Int), ("seen", DataType::Timestamp)])
}

fn load(
    path: &str,
    options: &LoadOptions,
    schema: &TableSchema,
) -> Result<(Vec<Vec<Value>>, u64), Diagnostic> {
    let mut file =
        read_file(path, options, schema, &Settings::default()).map_err(|error| *error)?;
    let mut batches = Vec::new();
    for batch in &mut file {
        batches.push(batch.map_err(|error| *error)?);
    }
    Ok((rows_of(&batches), file.skipped_count()))
}

fn person(name: &str, age: Option<i32>, seen: Option<i64>) -> Vec<Value> {
    vec![
        Value::String(name.into()),
        age.map_or(Value::Null, Value::Int),
        seen.map_or(Value::Null, Value::Timestamp),
    ]
}

#[test]
fn a_quoted_text_is_not_null() {
    let directory = TestDirectory::new();
    let path = directory.write(
        "people.csv",
        "\r\n\"name\",age,seen\r\n\"null\",\"null\",\"\"\r\n\r\nnull,null,\n\"a\nb\",1,2\n'null',2,3",
    );
    let nobody = [vec![Value::Null], person("", None, None)[1..].to_vec()].concat();
    let (rows, _) = load(&path, &LoadOptions::default(), &people()).unwrap();
    let expected = [
        person("null", None, None),
        nobody.clone(),
        person("a\nb", Some(1), Some(2)),
        person("'null'", Some(2), Some(3)),
    ];
    assert_eq!(rows, expected);

    let path = directory.write("empty.csv", "name,age,seen\n'',1,2\n,'',\n\"null\",2,3\n");
    let csv = CsvOptions { quote: Some(b'\''), null_value: String::new(), ..CsvOptions::default() };
    let (rows, _) = load(&path, &LoadOptions { csv, ..LoadOptions::default() }, &people()).unwrap();
    let expected = [person("", Some(1), Some(2)), nobody, person("\"null\"", Some(2), Some(3))];
    assert_eq!(rows, expected);
}

#[test]
fn csv_fields_are_typed_by_the_table() {
    let directory = TestDirectory::new();
    let path = directory.write(
        "people.csv",
        "\u{feff}seen,name,age\n1590738990000,\"Ann, \"\"A\"\"\",41\n2020-05-29 07:56:30,null,\n\
         2020-05-29T09:56:30.250+02:00,,7\n",
    );
    let (rows, _) = load(&path, &LoadOptions::default(), &people()).unwrap();
    assert_eq!(
        rows,
        [
            person("Ann, \"A\"", Some(41), Some(1_590_738_990_000)),
            vec![Value::Null, Value::Null, Value::Timestamp(1_590_738_990_000)],
            vec![Value::Null, Value::Int(7), Value::Timestamp(1_590_738_990_250)],
        ]
    );
}

fn ledger() -> TableSchema {
    let number = DataType::Int;
    schema(&[("user_id", DataType::String), ("credit", number.clone()), ("debit", number)])
}

/// Returns what a CSV file gives: the rows as text with the warnings, or the error.
fn outcome(text: &str, options: &LoadOptions) -> Result<(String, Vec<String>), String> {
    let directory = TestDirectory::new();
    let path = directory.write("ledger.csv", text);
    let said = |diagnostic: &Diagnostic| {
        let hint = diagnostic.hint.as_deref().or(diagnostic.detail.as_deref()).unwrap_or_default();
        format!("{} | {hint}", diagnostic.message).replace(&path, "ledger.csv")
    };
    let mut file = read_file(&path, options, &ledger(), &Settings::default()).unwrap();
    let mut batches = Vec::new();
    for batch in &mut file {
        batches.push(batch.map_err(|error| said(&error))?);
    }
    let row = |row: &Vec<Value>| row.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = rows_of(&batches).iter().map(row).collect();
    Ok((rows.join("; "), file.warnings().map(|warning| said(&warning)).collect()))
}

fn check_outcome(text: &str, options: &LoadOptions, rows: &str, warning: &str) {
    let (found, warnings) = outcome(text, options).unwrap();
    assert_eq!(found, rows);
    assert_eq!(warnings.join("; "), warning);
}

#[test]
fn a_name_that_the_table_does_not_have_is_an_error() {
    let options = LoadOptions::default();
    let check = |text: &str, expected: &str| {
        assert_eq!(outcome(text, &options).unwrap_err(), expected, "{text}");
    };
    check(
        "user_id,debit,credit_\na,1,2\n",
        "column `credit_` of file `ledger.csv` does not exist in the table | Did you mean \
         `credit`?",
    );
    check(
        "USER_ID,debit,credit\na,1,2\n",
        "column `USER_ID` of file `ledger.csv` does not exist in the table | Did you mean \
         `user_id`?",
    );
    check(
        "user_id,debit,debit\na,1,2\n",
        "column `debit` occurs more than once in file `ledger.csv` | \
         Use OPTIONS(match_by = 'position') to match columns by position.",
    );
    check(
        "a,1,2\nb,3,4\n",
        "file `ledger.csv` has no columns in common with the table | Use OPTIONS(header = false) \
         if the first line is a row, or OPTIONS(match_by = 'position') if only the names of the \
         columns differ.",
    );
}

#[test]
fn a_line_that_is_no_header_makes_a_short_message() {
    let long = "x".repeat(3_000_000);
    let error = outcome(&format!("{long},y\n1,2\n"), &LoadOptions::default()).unwrap_err();
    let expected = "file `ledger.csv`, line 1: a column name of 3000000 bytes exceeds the limit";
    assert!(error.starts_with(expected) && error.len() < 300, "{} bytes", error.len());
    // Many short names that are none of the table's.
    let many = vec!["column"; 100_000].join(",");
    let error = outcome(&format!("{many}\n"), &LoadOptions::default()).unwrap_err();
    assert!(error.len() < 5_000, "{} bytes", error.len());
}

#[test]
fn what_is_left_out_is_said() {
    let strict = LoadOptions::default();
    let ignoring =
        LoadOptions { unknown_columns: UnknownColumns::Ignore, ..LoadOptions::default() };
    check_outcome(
        "debit,user_id\n1,a\n",
        &strict,
        "String(\"a\") Null Int(1)",
        "file `ledger.csv` does not have every column of the table | \
         The defaults, or NULL, are used for `credit`.",
    );
    check_outcome(
        "debit,note,user_id,credit\n1,x,a,2\n",
        &ignoring,
        "String(\"a\") Int(2) Int(1)",
        "file `ledger.csv` has columns that the table does not have | Ignored columns: \
         `note`.",
    );
}

#[test]
fn columns_go_by_position_on_request() {
    let by_position = LoadOptions { columns: ColumnMatch::Position, ..LoadOptions::default() };
    check_outcome("who,in,out\na,1,2\n", &by_position, "String(\"a\") Int(1) Int(2)", "");
    let swapped = "the first line of file `ledger.csv` does not match the column names of the \
                   table | The columns were matched by position; the first line has the names \
                   `user_id`, `debit`, `credit`.";
    let text = "user_id,debit,credit\na,1,2\n";
    check_outcome(text, &by_position, "String(\"a\") Int(1) Int(2)", swapped);
    let openmldb = LoadOptions { columns: ColumnMatch::OpenMldb, ..LoadOptions::default() };
    check_outcome(text, &openmldb, "String(\"a\") Int(1) Int(2)", swapped);
    let error = outcome("who,in\na,1\n", &by_position).unwrap_err();
    assert_eq!(error, "file `ledger.csv` has 2 columns, but the table has 3 | ");
}

#[test]
fn numbers_out_of_range_and_times_that_are_too_fine_are_told() {
    let directory = TestDirectory::new();
    let floats = schema(&[("f", DataType::Float)]);
    let path = directory.write("f.csv", "f\n0.1\n1e300\n");
    let error = load(&path, &LoadOptions::default(), &floats).unwrap_err();
    let expected = "line 3: column `f`: invalid input syntax for type FLOAT: '1e300'";
    assert!(error.message.ends_with(expected), "{}", error.message);
    let times = schema(&[("t", DataType::Timestamp)]);
    let path = directory.write("t.csv", "t\n1970-01-01 00:00:00.0019\n");
    let mut file = read_file(&path, &LoadOptions::default(), &times, &Settings::default()).unwrap();
    let batch = file.next().unwrap().unwrap();
    assert_eq!(rows_of(&[batch]), [[Value::Timestamp(1)]]);
    let said: Vec<_> = file.warnings().filter_map(|warning| warning.detail).collect();
    assert_eq!(said, ["The times of column `t` were truncated to milliseconds."]);
}

#[test]
fn a_malformed_row_is_named_or_skipped() {
    let directory = TestDirectory::new();
    let path = directory.write("people.csv", "name,age,seen\nBo,1,0\nCy,forty,0\nDi,2\nEd,3,0\n");
    let error = load(&path, &LoadOptions::default(), &people()).unwrap_err();
    assert_eq!(error.code, code::BAD_COPY_FORMAT);
    let expected = "line 3: column `age`: invalid input syntax for type INT: 'forty' (expected an \
                    integer within the range of the type)";
    assert!(error.message.ends_with(expected), "{}", error.message);
    let mut options = LoadOptions::default();
    options.csv.on_error = OnError::Skip;
    let (rows, skipped) = load(&path, &options, &people()).unwrap();
    assert_eq!(rows, [person("Bo", Some(1), Some(0)), person("Ed", Some(3), Some(0))]);
    assert_eq!(skipped, 2);
}

#[test]
fn malformed_rows_are_kept_with_their_places_and_texts() {
    let directory = TestDirectory::new();
    let csv = "name,age,seen\nBo,1,0\nCy,forty,0\n\"D,i\",2\nEd,3,0\n\"Fy";
    let json = "{\"name\": \"Bo\", \"age\": 1, \"seen\": 0}\n{\"age\": \"forty\"}\n[2]\n\
                {\"name\": \"Ed\", \"age\": 3, \"seen\": 0}\n";
    let files = [
        ("people.csv", csv, ["Cy,forty,0", "\"D,i\",2"]),
        ("people.json", json, ["{\"age\": \"forty\"}", "[2]"]),
    ];
    for (name, content, texts) in files {
        let path = directory.write(name, content);
        let format = FileFormat::of_path(name).unwrap();
        let options = LoadOptions { format, ..LoadOptions::default() };
        let found = find_files(&path).unwrap().remove(0);
        let mut rows = found.open(&options, &people(), &Settings::default());
        let batch = rows.next().unwrap().unwrap();
        let expected = [person("Bo", Some(1), Some(0)), person("Ed", Some(3), Some(0))];
        assert_eq!(rows_of(&[batch]), expected);
        let skipped = rows.take_skipped();
        let places: Vec<_> = skipped.iter().map(|row| (row.rows_before, row.line)).collect();
        let first_line = if name == "people.csv" { 3 } else { 2 };
        assert_eq!(places, [(1, first_line), (1, first_line + 1)]);
        assert_eq!(skipped.iter().map(|row| &*row.text).collect::<Vec<_>>(), texts);
        assert!(skipped[0].reason.starts_with("column `age`: "), "{}", skipped[0].reason);
        // The rows before an error that ends the file are given first.
        let is_failed = rows.next().is_some_and(|next| next.is_err());
        assert_eq!(is_failed, name == "people.csv");
        assert!(rows.take_skipped().is_empty());
    }
}

#[test]
fn a_batch_keeps_a_limited_number_of_malformed_rows() {
    let directory = TestDirectory::new();
    let content = format!("n\n{}1\n", "x\n".repeat(2 * FILE_BATCH_ROWS + 10));
    let path = directory.write("a.csv", &content);
    let found = find_files(&path).unwrap().remove(0);
    let schema = schema(&[("n", DataType::BigInt)]);
    let mut rows = found.open(&LoadOptions::default(), &schema, &Settings::default());
    let mut counts = Vec::new();
    while let Some(batch) = rows.next() {
        counts.push((batch.unwrap().num_rows(), rows.take_skipped().len()));
    }
    assert_eq!(counts, [(0, FILE_BATCH_ROWS), (0, FILE_BATCH_ROWS), (1, 10)]);
    assert_eq!(rows.skipped_count(), 2 * FILE_BATCH_ROWS as u64 + 10);
}

#[test]
fn files_are_found_before_they_are_there() {
    let directory = TestDirectory::new();
    let folder = directory.path().join("in");
    fs::create_dir_all(&folder).unwrap();
    let name = directory.write("in/a.csv", "n\n1\n");
    let paths = |path: PathBuf| {
        let found = find_files(path.to_str().unwrap());
        found.map(|found| found.iter().map(FoundFile::path).collect::<Vec<_>>())
    };
    for path in [folder.clone(), folder.join("*.csv"), folder.join("../in/a.csv")] {
        assert_eq!(paths(path).unwrap().len(), 1);
    }
    assert_eq!(paths(folder.clone()).unwrap(), [name]);
    assert!(paths(folder.join("*.parquet")).unwrap().is_empty());
    for (path, expected) in [
        (folder.join("x/*.csv"), "directory `"),
        (folder.join("b.csv"), "file or directory `"),
        (folder.join("a.csv/*"), "directory `"),
    ] {
        let error = paths(path).unwrap_err();
        assert_eq!(error.code, code::UNDEFINED_FILE);
        assert!(error.message.starts_with(expected), "{}", error.message);
    }
    let mark = || find_files(folder.to_str().unwrap()).unwrap().remove(0).mark();
    let before = mark();
    assert_eq!(mark(), before);
    directory.write("in/a.csv", "n\n11\n");
    assert_ne!(mark(), before);
}

#[test]
fn not_null_is_checked_and_a_missing_column_takes_its_default() {
    let directory = TestDirectory::new();
    let path = directory.write("people.csv", "name,age\nBo,1\nnull,2\n");
    let mut schema = people();
    schema.columns[2].default = Some(Value::Timestamp(9));
    let (rows, _) = load(&path, &LoadOptions::default(), &schema).unwrap();
    assert_eq!(rows[0], person("Bo", Some(1), Some(9)));
    schema.columns[0].nullable = false;
    let error = load(&path, &LoadOptions::default(), &schema).unwrap_err();
    assert_eq!(error.code, code::NOT_NULL_VIOLATION);
    let expected = "line 3: null value in column `name` violates not-null constraint";
    assert!(error.message.ends_with(expected), "{}", error.message);
}

#[test]
fn patterns_and_directories_mean_their_files_in_order() {
    let directory = TestDirectory::new();
    for (name, text) in [("b.csv", "n\n2\n"), ("a.csv", "n\n1\n"), ("c.txt", "n\n3\n")] {
        directory.write(name, text);
    }
    directory.write("_SUCCESS", "");
    let schema = schema(&[("n", DataType::BigInt)]);
    let numbers = |path: PathBuf| {
        let (rows, _) = load(&path.to_string_lossy(), &LoadOptions::default(), &schema).unwrap();
        rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    let expected = [1, 2, 3].map(Value::BigInt);
    assert_eq!(numbers(directory.path().join("*.csv")), expected[..2]);
    assert_eq!(numbers(directory.path().to_path_buf()), expected);
    let missing = directory.path().join("*.parquet");
    let error = load(&missing.to_string_lossy(), &LoadOptions::default(), &schema).unwrap_err();
    assert_eq!(error.code, code::UNDEFINED_FILE);
}

fn write_parquet(directory: &TestDirectory, columns: &[(&str, ArrayRef)]) -> String {
    let batch = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
    let path = directory.path().join("file.parquet").to_string_lossy().into_owned();
    let names: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let options = ExportOptions { format: FileFormat::Parquet.into(), ..ExportOptions::default() };
    let schema: Arc<Schema> = batch.schema();
    export(&path, &names, &schema, [Ok(batch)], &options).unwrap();
    path
}

fn parquet() -> LoadOptions {
    LoadOptions { format: FileFormat::Parquet, ..LoadOptions::default() }
}

#[test]
fn parquet_columns_are_matched_by_name_and_taken_in_unchanged() {
    let directory = TestDirectory::new();
    let seen = TimestampMicrosecondArray::from(vec![Some(5_000), None]).with_timezone("UTC");
    let path = write_parquet(
        &directory,
        &[
            ("seen", Arc::new(seen)),
            ("extra", Arc::new(StringArray::from(vec!["x", "y"]))),
            ("age", Arc::new(Int64Array::from(vec![Some(3), Some(4)]))),
        ],
    );
    let error = load(&path, &parquet(), &people()).unwrap_err();
    assert!(error.message.starts_with("column `extra` of file"), "{}", error.message);
    let ignoring = LoadOptions { unknown_columns: UnknownColumns::Ignore, ..parquet() };
    let (rows, _) = load(&path, &ignoring, &people()).unwrap();
    assert_eq!(rows[0], [Value::Null, Value::Int(3), Value::Timestamp(5)]);
    assert_eq!(rows[1], [Value::Null, Value::Int(4), Value::Null]);
    let inferred = infer_schema(&path, &parquet(), &Settings::default()).unwrap();
    assert_eq!(
        inferred,
        schema(&[
            ("seen", DataType::Timestamp),
            ("extra", DataType::String),
            ("age", DataType::BigInt)
        ])
    );
}

#[test]
fn a_parquet_value_that_does_not_fit_is_named() {
    let directory = TestDirectory::new();
    let path =
        write_parquet(&directory, &[("age", Arc::new(Int64Array::from(vec![1, 5_000_000_000])))]);
    let error = load(&path, &parquet(), &people()).unwrap_err();
    let expected = "row 2: column `age`: the value cannot be converted to INT exactly";
    assert!(error.message.ends_with(expected), "{}", error.message);
    let text = directory.write("not.parquet", "hello");
    assert_eq!(load(&text, &parquet(), &people()).unwrap_err().code, code::BAD_COPY_FORMAT);
}

#[test]
fn csv_columns_get_the_type_of_their_values() {
    let directory = TestDirectory::new();
    let path = directory.write(
        "t.csv",
        "a,b,c,d,e,f,g\n1,1.5,true,2020-01-02,2020-01-02 03:04:05,007,\n-2,3,FALSE,null,2020-01-02,8,\n",
    );
    let inferred = infer_schema(&path, &LoadOptions::default(), &Settings::default()).unwrap();
    let types: Vec<_> = inferred.columns.into_iter().map(|column| column.data_type).collect();
    use DataType::{BigInt, Bool, Date, Double, String, Timestamp};
    assert_eq!(types, [BigInt, Double, Bool, Date, Timestamp, String, String]);
}

fn write_bytes(directory: &TestDirectory, name: &str, bytes: &[u8]) -> String {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path.to_string_lossy().into_owned()
}

fn in_utf_16(text: &str, mark: [u8; 2]) -> Vec<u8> {
    let is_little = mark == [0xff, 0xfe];
    let unit = |unit: u16| if is_little { unit.to_le_bytes() } else { unit.to_be_bytes() };
    mark.into_iter().chain(text.encode_utf16().flat_map(unit)).collect()
}

#[test]
fn a_text_in_another_encoding_is_named() {
    let directory = TestDirectory::new();
    for (name, format) in [("a.csv", FileFormat::Csv), ("a.json", FileFormat::Json)] {
        for mark in [[0xff, 0xfe], [0xfe, 0xff]] {
            let path = write_bytes(&directory, name, &in_utf_16("a,b\n1,2\n", mark));
            let options = LoadOptions { format, ..LoadOptions::default() };
            let error = infer_schema(&path, &options, &Settings::default()).unwrap_err();
            assert_eq!(
                error.message,
                format!("file `{path}` is encoded in UTF-16, expected UTF-8")
            );
        }
    }
    let latin = write_bytes(&directory, "l.csv", b"id,gr\xf6\xdfe\n1,2\n");
    let error = infer_schema(&latin, &LoadOptions::default(), &Settings::default()).unwrap_err();
    let expected = format!("file `{latin}`, line 1: the name of column 2 is not valid UTF-8");
    assert_eq!(error.message, expected);
}

#[test]
fn a_mark_before_utf_8_is_no_part_of_the_text() {
    let directory = TestDirectory::new();
    let json = write_bytes(&directory, "a.json", b"\xef\xbb\xbf{\"age\":1}\n{\"age\":2}\n");
    let array = write_bytes(&directory, "b.json", b"\xef\xbb\xbf[{\"age\":1},{\"age\":2}]");
    let ages = schema(&[("age", DataType::Int)]);
    let options = LoadOptions { format: FileFormat::Json, ..LoadOptions::default() };
    for path in [json, array] {
        let (rows, _) = load(&path, &options, &ages).unwrap();
        assert_eq!(rows, [[Value::Int(1)], [Value::Int(2)]]);
    }
}

#[test]
fn the_first_bytes_of_a_file_tell_its_compression() {
    use std::io::Write;

    let directory = TestDirectory::new();
    let text = b"age\n1\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(&text[..], 0).unwrap();
    let ages = schema(&[("age", DataType::Int)]);
    for (name, bytes) in [
        ("a.csv", &gzip),
        ("A.CSV.GZ", &gzip),
        ("b.csv.zst", &gzip),
        ("b.csv", &zstd),
        ("B.CSV.ZST", &zstd),
    ] {
        let path = write_bytes(&directory, name, bytes);
        let (rows, _) = load(&path, &LoadOptions::default(), &ages).unwrap();
        assert_eq!(rows, [[Value::Int(1)]], "{name}");
    }
    // What the name promises is not taken for a text.
    let path = write_bytes(&directory, "plain.csv.gz", text);
    let error = load(&path, &LoadOptions::default(), &ages).unwrap_err();
    assert_eq!(error.code, code::IO_ERROR);
}

#[test]
fn a_key_that_is_no_column_is_an_error_or_noted() {
    let directory = TestDirectory::new();
    let path = directory.write("a.json", "{\"age\":1,\"aeg\":2}\n{\"age\":3,\"x\":null}\n");
    let ages = schema(&[("age", DataType::Int)]);
    let strict = LoadOptions { format: FileFormat::Json, ..LoadOptions::default() };
    let error = load(&path, &strict, &ages).unwrap_err();
    let expected = format!("file `{path}`, line 1: key `aeg` is not a column of the table");
    assert_eq!((error.code, error.message), (code::UNDEFINED_COLUMN, expected));
    let ignoring = LoadOptions { unknown_columns: UnknownColumns::Ignore, ..strict };
    let mut file = read_file(&path, &ignoring, &ages, &Settings::default()).unwrap();
    let batches: Vec<_> = (&mut file).map(Result::unwrap).collect();
    assert_eq!(rows_of(&batches), [[Value::Int(1)], [Value::Int(3)]]);
    let said: Vec<_> = file.warnings().filter_map(|warning| warning.detail).collect();
    assert_eq!(said, ["Ignored columns: `aeg`, `x`."]);
}

#[test]
fn a_missing_file_is_named() {
    let error = load("/nowhere/at/all.csv", &LoadOptions::default(), &people()).unwrap_err();
    assert_eq!(error.code, code::UNDEFINED_FILE);
    assert!(error.message.contains("/nowhere/at/all.csv"));
    assert!(fs::metadata("/nowhere").is_err());
}

//! Parquet files whose footers are wrong: rewritten ones of right files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    datatypes::SchemaRef,
};
use ::parquet::{
    arrow::ArrowWriter,
    basic::Repetition,
    data_type::{Int96, Int96Type},
    file::{
        metadata::{
            ColumnChunkMetaDataBuilder, FileMetaData, ParquetMetaData, ParquetMetaDataReader,
            ParquetMetaDataWriter,
        },
        properties::WriterProperties,
        statistics::Statistics,
        writer::SerializedFileWriter,
    },
    schema::{
        parser::parse_message_type,
        types::{SchemaDescriptor, Type},
    },
};
use datafusion::{
    logical_expr::Operator,
    physical_expr::{
        PhysicalExpr,
        expressions::{binary, col, is_null, lit},
    },
};
use lockstep_diagnostic::{Result, code};
use lockstep_function::Settings;
use lockstep_row::Value;

use crate::{
    load::{
        AbsentColumns, FileFormat, InferredFiles, LoadOptions, Pruning, WantedRows, infer_files,
        read_inferred,
    },
    testing::{TestDirectory, rows_of},
};

/// Rows of a row group.
const GROUP_ROWS: usize = 2;

/// Writes a file of the columns `n` and `s`, whose last value is NULL.
fn written(directory: &TestDirectory) -> PathBuf {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![21, 22, 23, 24]));
    let texts: ArrayRef =
        Arc::new(StringArray::from(vec![Some("Zürich"), Some("Zug"), Some("Bern"), None]));
    let rows = RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("s", texts, true)]);
    let rows = rows.unwrap();
    let path = directory.path().join("rows.parquet");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP_ROWS));
    let file = lockstep_host::disk::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties.build())).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    path
}

/// Gives a file another footer.
fn rewrite(path: &PathBuf, change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) {
    let bytes = bytes::Bytes::from(fs::read(path).unwrap());
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
    let tail = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap());
    let mut other = bytes[..tail - usize::try_from(footer).unwrap()].to_vec();
    let start = other.len();
    let mut tail = Vec::new();
    ParquetMetaDataWriter::new(&mut tail, &change(metadata)).finish().unwrap();
    other.extend(tail);
    assert!(other.len() > start, "a footer was written");
    fs::write(path, other).unwrap();
}

/// Replaces what the footer says of the whole file; the function takes the number of rows.
fn with_file(
    metadata: &ParquetMetaData,
    row_count: i64,
    schema: Option<SchemaDescriptor>,
) -> ParquetMetaData {
    let file = metadata.file_metadata();
    let schema = schema.map_or_else(|| file.schema_descr_ptr(), Arc::new);
    let file = FileMetaData::new(
        file.version(),
        row_count,
        file.created_by().map(str::to_owned),
        None,
        schema,
        file.column_orders().cloned(),
    );
    ParquetMetaData::new(file, metadata.row_groups().to_vec())
}

/// Changes the metadata of a column in each row group.
fn with_column(
    metadata: &ParquetMetaData,
    column: usize,
    change: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
) -> ParquetMetaData {
    let groups = metadata.row_groups().iter().map(|group| {
        let mut columns = group.columns().to_vec();
        columns[column] = change(columns[column].clone().into_builder()).build().unwrap();
        group.clone().into_builder().set_column_metadata(columns).build().unwrap()
    });
    let groups = groups.collect();
    ParquetMetaData::new(metadata.file_metadata().clone(), groups)
}

fn inferred(path: &Path) -> Result<InferredFiles> {
    let options = LoadOptions { format: FileFormat::Parquet, ..LoadOptions::default() };
    let paths = [path.to_string_lossy().into_owned()];
    infer_files(&paths, options, Settings::default(), AbsentColumns::Refused)
}

type Filter = Arc<dyn PhysicalExpr>;

/// Reads some columns of the rows that a filter may pass.
fn read(
    path: &Path,
    columns: &[&str],
    filter: impl FnOnce(&SchemaRef) -> Option<Filter>,
) -> Result<Vec<Vec<Value>>> {
    let files = inferred(path)?;
    let columns = columns.iter().map(|name| files.schema.find_column(name).unwrap()).collect();
    let pruning = filter(&files.arrow_schema)
        .map(|filter| Pruning::new(filter, &files.arrow_schema).expect("the filter decides"));
    let rows = read_inferred(&files, WantedRows { columns, pruning })?;
    Ok(rows_of(&rows.collect::<Result<Vec<_>>>()?))
}

fn numbers(path: &Path) -> Vec<i64> {
    let rows = read(path, &["n"], |_| None).unwrap();
    let number = |row: Vec<Value>| match row[..] {
        [Value::BigInt(number)] => number,
        _ => panic!("{row:?} is one number"),
    };
    rows.into_iter().map(number).collect()
}

fn compared(
    name: &'static str,
    operator: Operator,
    value: Filter,
) -> impl FnOnce(&SchemaRef) -> Option<Filter> {
    move |schema| Some(binary(col(name, schema).unwrap(), operator, value, schema).unwrap())
}

#[test]
fn right_statistics_leave_out_row_groups() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    let found = read(&path, &["n"], compared("n", Operator::Gt, lit(22_i64))).unwrap();
    assert_eq!(found, [[Value::BigInt(23)], [Value::BigInt(24)]]);
    let found = read(&path, &["n"], compared("s", Operator::Lt, lit("C"))).unwrap();
    assert_eq!(found.len(), GROUP_ROWS, "one of two groups");
}

#[test]
fn rows_are_counted_by_row_groups() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    rewrite(&path, |metadata| with_file(&metadata, 0, None));
    assert_eq!(numbers(&path), [21, 22, 23, 24]);
    assert_eq!(read(&path, &[], |_| None).unwrap().len(), 4, "rows without columns");
}

#[test]
fn a_column_with_other_rows_than_its_group_is_named() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    rewrite(&path, |metadata| with_column(&metadata, 1, |column| column.set_num_values(3)));
    let error = inferred(&path).unwrap_err();
    assert_eq!(error.code, code::BAD_COPY_FORMAT);
    assert!(error.message.contains("rows.parquet"), "{}", error.message);
    let detail = error.detail.unwrap();
    assert!(detail.contains("row group 1 has 2 rows but 3 values of column `s`"), "{detail}");
}

/// All counts of the footer agree, and are wrong.
#[test]
fn a_row_group_with_other_rows_than_its_pages_is_an_error() {
    for (claimed, wanted) in [(3, "the number of rows differs from the footer"), (1, "")] {
        let directory = TestDirectory::new();
        let path = written(&directory);
        rewrite(&path, |metadata| {
            let groups = metadata.row_groups().iter().map(|group| {
                let columns = group.columns().iter().map(|column| {
                    column.clone().into_builder().set_num_values(claimed).build().unwrap()
                });
                let columns = columns.collect();
                let group = group.clone().into_builder().set_column_metadata(columns);
                group.set_num_rows(claimed).build().unwrap()
            });
            let groups = groups.collect();
            ParquetMetaData::new(metadata.file_metadata().clone(), groups)
        });
        let error = read(&path, &["n"], |_| None).unwrap_err();
        let detail = error.detail.unwrap();
        assert!(detail.contains("row group 1: ") && detail.contains(wanted), "{detail}");
    }
}

#[test]
fn pages_beyond_the_file_are_an_error_of_their_column() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    rewrite(&path, |metadata| {
        with_column(&metadata, 1, |column| column.set_total_compressed_size(1 << 40))
    });
    assert_eq!(numbers(&path).len(), 4, "another column can be read");
    let error = read(&path, &["s"], |_| None).unwrap_err();
    assert!(error.detail.unwrap().contains("the pages of column `s` are outside the file"));
    rewrite(&path, |metadata| {
        with_column(&metadata, 1, |column| column.set_file_path("other.parquet".to_owned()))
    });
    let error = read(&path, &["s"], |_| None).unwrap_err();
    assert!(error.detail.unwrap().contains("the pages of column `s` are in another file"));
}

#[test]
fn a_group_without_members_does_not_move_columns() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    rewrite(&path, |metadata| {
        let schema = metadata.file_metadata().schema_descr();
        let nothing = Type::group_type_builder("nothing");
        let nothing = nothing.with_repetition(Repetition::REQUIRED).build().unwrap();
        let mut fields = vec![Arc::new(nothing)];
        fields.extend(schema.root_schema().get_fields().iter().cloned());
        let root = Type::group_type_builder("schema").with_fields(fields).build().unwrap();
        with_file(&metadata, 4, Some(SchemaDescriptor::new(Arc::new(root))))
    });
    assert_eq!(numbers(&path), [21, 22, 23, 24]);
    let found = read(&path, &["s"], compared("n", Operator::Gt, lit(22_i64))).unwrap();
    assert_eq!(found, [[Value::String("Bern".into())], [Value::Null]]);
}

/// An old parquet-mr compared bytes with a sign, and ü begins with a byte above 127.
#[test]
fn bounds_in_another_order_are_not_used() {
    let texts = |least: &str, greatest: &str, is_deprecated| {
        let [least, greatest] = [least, greatest].map(|text| Some(text.as_bytes().into()));
        Statistics::byte_array(least, greatest, None, Some(0), is_deprecated)
    };
    let directory = TestDirectory::new();
    let path = written(&directory);
    let is_zurich = || compared("s", Operator::Eq, lit("Zürich"));
    rewrite(&path, |metadata| {
        with_column(&metadata, 1, |column| column.set_statistics(texts("Bern", "Zug", true)))
    });
    assert_eq!(read(&path, &["n"], is_zurich()).unwrap().len(), 4, "deprecated bounds");
}

#[test]
fn bounds_the_wrong_way_round_are_not_used() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    rewrite(&path, |metadata| {
        let wrong = Statistics::int64(Some(23), Some(21), None, Some(0), false);
        with_column(&metadata, 0, |column| column.set_statistics(wrong.clone()))
    });
    let found = read(&path, &["n"], compared("n", Operator::Eq, lit(22_i64))).unwrap();
    assert_eq!(found.len(), 4);
}

/// Arrow C++ 4 wrote no NULL for columns with a dictionary.
#[test]
fn no_null_is_not_believed_and_neither_are_only_nulls_beside_bounds() {
    let directory = TestDirectory::new();
    let path = written(&directory);
    for (nulls, expected) in [(0, 4), (1, 4)] {
        rewrite(&path, |metadata| {
            let wrong = Statistics::byte_array(None, None, None, Some(nulls), false);
            with_column(&metadata, 1, |column| column.set_statistics(wrong.clone()))
        });
        let is_null = |schema: &SchemaRef| Some(is_null(col("s", schema).unwrap()).unwrap());
        assert_eq!(read(&path, &["n"], is_null).unwrap().len(), expected, "{nulls} NULLs");
    }
    rewrite(&path, |metadata| {
        let wrong = Statistics::int64(Some(21), Some(24), None, Some(2), false);
        with_column(&metadata, 0, |column| column.set_statistics(wrong.clone()))
    });
    let found = read(&path, &["n"], compared("n", Operator::Gt, lit(0_i64))).unwrap();
    assert_eq!(found.len(), 4, "a column with bounds has values");
    rewrite(&path, |metadata| {
        let only_nulls = Statistics::int64(None, None, None, Some(2), false);
        with_column(&metadata, 0, |column| column.set_statistics(only_nulls.clone()))
    });
    let found = read(&path, &["n"], compared("n", Operator::Gt, lit(0_i64))).unwrap();
    assert_eq!(found.len(), 0, "only NULLs, and no bounds");
}

#[test]
fn times_of_96_bits_are_not_bound_to_nanoseconds() {
    let directory = TestDirectory::new();
    let path = directory.path().join("rows.parquet");
    let schema = parse_message_type("message m { required int96 t; }").unwrap();
    let file = lockstep_host::disk::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // Nanoseconds of the day in two words, then the Julian day.
    let time = |day: u32, nanos: u32| {
        let mut time = Int96::new();
        time.set_data(nanos, 0, day);
        time
    };
    let times = [time(5_373_484, 0), time(2_440_588, 1_500_000), time(2_268_992, 0)];
    column.typed::<Int96Type>().write_batch(&times, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    // 9999-12-31, the first millisecond and a half of 1970, and 1500-02-20.
    let days = |days: i64| Value::Timestamp(days * 86_400_000);
    let found = read(&path, &["t"], |_| None).unwrap();
    assert_eq!(found, [[days(2_932_896)], [Value::Timestamp(1)], [days(-171_596)]]);
}

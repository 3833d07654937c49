//! Damaged Parquet and Arrow files: each is read, or is an error that names it.
//!
//! The seed of a failure is in its message. An abort ends the test with the name of the file printed.

use std::{fs, sync::Arc};

use arrow::{
    array::{
        ArrayRef, DictionaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    },
    datatypes::{Int32Type, Int64Type},
    ipc::{
        CompressionType,
        writer::{FileWriter, IpcWriteOptions, StreamWriter},
    },
};
use lockstep_diagnostic::{Diagnostic, Kind, Result};
use lockstep_function::Settings;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding, ZstdLevel},
    file::properties::{WriterProperties, WriterVersion},
};

use crate::{
    load::{
        AbsentColumns, FileFormat, LoadOptions, UnknownColumns, WantedRows, infer_files,
        read_inferred,
    },
    testing::TestDirectory,
};

/// Damaged copies of each file.
const COPIES: u64 = 250;

const ROWS: i64 = 40;

/// The numbers of a seed, as `SplitMix64` draws them.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap();
        usize::try_from(self.next() % limit).unwrap()
    }
}

fn rows() -> RecordBatch {
    let numbers: ArrayRef =
        Arc::new(Int64Array::from_iter((0..ROWS).map(|row| (row % 7 > 0).then_some(row * row))));
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..ROWS).map(|row| if row % 2 == 0 { 0.5 } else { -1.25 }),
    ));
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("text {}", row / 2))));
    let words: DictionaryArray<Int32Type> =
        (0..ROWS).map(|row| if row % 3 == 0 { "a" } else { "bb" }).collect();
    let lists: ListArray = ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..ROWS).map(|row| (row % 5 > 0).then(|| (0..row % 4).map(Some).collect::<Vec<_>>())),
    );
    RecordBatch::try_from_iter_with_nullable([
        ("n", numbers, true),
        ("f", floats, false),
        ("t", texts, false),
        ("w", Arc::new(words) as ArrayRef, true),
        ("l", Arc::new(lists) as ArrayRef, true),
    ])
    .unwrap()
}

fn parquet_of(properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows().schema(), Some(properties)).unwrap();
    writer.write(&rows()).unwrap();
    writer.close().unwrap();
    bytes
}

fn stream_of(compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let (mut bytes, rows) = (Vec::new(), rows());
    let mut writer =
        StreamWriter::try_new_with_options(&mut bytes, &rows.schema(), options).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

fn file_of(compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let (mut bytes, rows) = (Vec::new(), rows());
    let mut writer = FileWriter::try_new_with_options(&mut bytes, &rows.schema(), options).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

/// Changes some bytes, or cuts the file.
fn damage(bytes: &mut Vec<u8>, draws: &mut Draws) {
    for _ in 0..=draws.below(2) {
        let at = draws.below(bytes.len());
        // The sizes of a file are near its end.
        let at = if draws.below(3) == 0 { bytes.len() - 1 - at / 8 } else { at };
        match draws.below(6) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes[at] = 0xff,
            2 => bytes[at] = 0,
            3 => bytes[at] = u8::try_from(draws.below(256)).unwrap(),
            4 => {
                let number = [i32::MAX, i32::MIN, -1, 0x4000_0000][draws.below(4)].to_le_bytes();
                let end = bytes.len().min(at + number.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            _ => bytes.truncate(at),
        }
        if bytes.is_empty() {
            return;
        }
    }
}

fn read(path: &str, format: FileFormat) -> Result<usize> {
    let unknown_columns = UnknownColumns::Ignore;
    let options = LoadOptions { format, unknown_columns, ..LoadOptions::default() };
    let paths = [path.to_owned()];
    let files = infer_files(&paths, options, Settings::default(), AbsentColumns::Refused)?;
    let columns = (0..files.schema.columns.len()).collect();
    let mut count = 0;
    for batch in read_inferred(&files, WantedRows { columns, pruning: None })? {
        count += batch?.num_rows();
    }
    Ok(count)
}

fn check(name: &str, format: FileFormat, bytes: &[u8]) {
    let directory = TestDirectory::new();
    let whole = directory.path().join(name).to_string_lossy().into_owned();
    fs::write(&whole, bytes).unwrap();
    assert_eq!(read(&whole, format).map_err(|error| *error), Ok(usize::try_from(ROWS).unwrap()));
    let mut refused = 0;
    for seed in 0..COPIES {
        let mut copy = bytes.to_vec();
        damage(&mut copy, &mut Draws(seed));
        fs::write(&whole, copy).unwrap();
        println!("{name}, seed {seed}");
        if let Err(error) = read(&whole, format) {
            let Diagnostic { message, kind, .. } = *error;
            assert_eq!(kind, Kind::FixData, "seed {seed}: {message}");
            assert!(message.contains(name), "seed {seed}: {message}");
            refused += 1;
        }
    }
    assert!(refused > COPIES / 4, "{name}: {refused} of {COPIES} are refused");
}

#[test]
fn damaged_parquet_is_named() {
    let plain = WriterProperties::builder().set_dictionary_enabled(false);
    let packed = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_column_encoding("n".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding("t".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_column_encoding("w".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_compression(Compression::ZSTD(ZstdLevel::default()));
    let loose = packed.clone().set_compression(Compression::UNCOMPRESSED);
    let snappy = WriterProperties::builder().set_compression(Compression::SNAPPY);
    check("plain.parquet", FileFormat::Parquet, &parquet_of(plain.build()));
    check("packed.parquet", FileFormat::Parquet, &parquet_of(packed.build()));
    check("loose.parquet", FileFormat::Parquet, &parquet_of(loose.build()));
    check("words.parquet", FileFormat::Parquet, &parquet_of(WriterProperties::default()));
    check("snappy.parquet", FileFormat::Parquet, &parquet_of(snappy.build()));
}

#[test]
fn damaged_arrow_is_named() {
    for (name, compression) in [
        ("plain", None),
        ("zstd", Some(CompressionType::ZSTD)),
        ("lz4", Some(CompressionType::LZ4_FRAME)),
    ] {
        check(&format!("{name}.arrow"), FileFormat::Arrow, &file_of(compression));
        check(&format!("{name}.arrows"), FileFormat::Arrow, &stream_of(compression));
    }
}

//! Values by known bytes, there and back, and damaged.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, AsArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array,
        Int32Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
    },
    datatypes::{DataType, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType},
    util::display::array_value_to_string,
};
use serde_json::{Value, json};

use crate::{
    AvroReader, AvroWriter, ProtobufReader, ProtobufWriter, avro_schema, protobuf_schema, schema_id,
};

/// Frames a value.
fn framed(id: u32, value: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), value].concat()
}

/// Makes two rows of all types, one of them of NULLs.
fn rows() -> RecordBatch {
    let columns: [(&str, ArrayRef); 9] = [
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("s", Arc::new(Int16Array::from(vec![Some(-7), None]))),
        ("i", Arc::new(Int32Array::from(vec![Some(i32::MIN), None]))),
        ("l", Arc::new(Int64Array::from(vec![Some(i64::MAX), None]))),
        ("f", Arc::new(Float32Array::from(vec![Some(0.1), None]))),
        ("d", Arc::new(Float64Array::from(vec![Some(-2.5), None]))),
        ("t", Arc::new(StringArray::from(vec![Some("ä\"\n"), None]))),
        ("day", Arc::new(Date32Array::from(vec![Some(-1), None]))),
        ("ts", Arc::new(TimestampMillisecondArray::from(vec![Some(-1_234), None]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Returns the values of a batch as text, row by row.
fn texts(batch: &RecordBatch) -> Vec<String> {
    let row = |row: usize| {
        let values =
            batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}

fn written_as_avro() -> (AvroReader, Vec<bytes::Bytes>) {
    let rows = rows();
    let schema = avro_schema("my-rows", &rows.schema()).unwrap();
    let messages = AvroWriter::new(7, &schema, &rows.schema()).unwrap().write(&rows).unwrap();
    (AvroReader::new(7, &schema, &[]).unwrap(), messages)
}

#[test]
fn rows_are_written_as_avro_and_read_again() {
    let (mut reader, messages) = written_as_avro();
    assert_eq!(
        messages.iter().map(|message| schema_id(message)).collect::<Vec<_>>(),
        [Some(7), Some(7)]
    );
    for _ in 0..2 {
        let read = reader.read(messages.iter().map(|message| &message[..])).unwrap();
        let expected = [
            "true|-7|-2147483648|9223372036854775807|0.1|-2.5|ä\"\n|1969-12-31|1969-12-31T23:59:58.766Z",
            "||||||||",
        ];
        assert_eq!(texts(&read), expected);
    }
    assert_eq!(reader.read([]).unwrap().num_rows(), 0);
}

#[test]
fn the_schema_of_rows_names_each_type() {
    let schema: Value =
        serde_json::from_str(&avro_schema("2 rows", &rows().schema()).unwrap()).unwrap();
    assert_eq!(schema["name"], "_2_rows");
    assert_eq!(schema["fields"][1], json!({"name": "s", "type": ["null", "int"], "default": null}));
    assert_eq!(schema["fields"][8]["type"][1]["logicalType"], "timestamp-millis");
    let named = |name: &str| {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
        [avro_schema("t", &batch.schema()), protobuf_schema("t", &batch.schema())]
    };
    assert!(named("a b").iter().all(Result::is_err));
    assert!(named("a_b").iter().all(Result::is_ok));
}

#[test]
fn values_of_avro_have_the_bytes_of_its_specification() {
    let schema = r#"{"type": "record", "name": "r", "fields": [
        {"name": "text", "type": "string"}, {"name": "number", "type": "long"},
        {"name": "maybe", "type": ["int", "null"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "color", "type": {"type": "enum", "name": "e", "symbols": ["RED", "BLUE"]}},
        {"name": "bytes", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}}]}"#;
    let mut reader = AvroReader::new(9, schema, &[]).unwrap();
    // "foo", 64, the first branch with -1, 2, BLUE, and 2.57.
    let value = [6, b'f', b'o', b'o', 0x80, 1, 0, 1, 4, 2, 4, 1, 1];
    let read = reader.read([&framed(9, &value)[..]]).unwrap();
    assert_eq!(read.column(1).as_primitive::<Int64Type>().value(0), 64);
    assert_eq!(read.column(2).as_primitive::<Int32Type>().value(0), -1);
    assert_eq!(read.column(3).as_primitive::<TimestampMicrosecondType>().value(0), 2);
    assert!(matches!(
        read.column(3).data_type(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_))
    ));
    assert_eq!(texts(&read)[0].split('|').collect::<Vec<_>>()[4..], ["BLUE", "2.57"]);
    let mut longer = framed(9, &value);
    longer.push(0);
    for wrong in
        [&framed(9, &value[..12])[..], &longer, &framed(8, &value), &[0, 0, 0, 0, 9], b"{}"]
    {
        assert!(reader.read([wrong]).is_err(), "{wrong:?}");
        assert_eq!(reader.read([&framed(9, &value)[..]]).unwrap().num_rows(), 1);
    }
}

#[test]
fn a_value_that_another_program_has_written_is_read() {
    let schema = r#"{"type": "record", "name": "r", "namespace": "shop", "fields": [
        {"name": "b", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "l", "type": ["null", "long"]},
        {"name": "f", "type": "float"}, {"name": "d", "type": "double"}, {"name": "t", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "a", "type": {"type": "array", "items":
            {"type": "record", "name": "s", "fields": [{"name": "x", "type": "int"}]}}},
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 3}}]}"#;
    // By fastavro 1.13.
    let value = "01f1c0010282808080808080200000003f9c7500883ce437fe147a61c5bcc3b3c582c487c90280c9d89de7d88b06\
                 0204cfc702026b0e0004020100616263";
    let byte = |at: usize| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
    let value: Vec<u8> = (0..value.len()).step_by(2).map(byte).collect();
    let read = AvroReader::new(1, schema, &[]).unwrap().read([&framed(1, &value)[..]]).unwrap();
    let expected = "true|-12345|9007199254740993|0.5|-1e300|zażółć|1969-07-20|2024-05-01T12:00:00.123456Z|B|-123.45|\
                    {k: 7}|[{x: 1}, {x: -1}]|616263";
    assert_eq!(texts(&read), [expected]);
}

#[test]
fn a_schema_of_avro_may_refer_to_others() {
    let user = r#"{"type": "record", "name": "User", "namespace": "a.b", "fields": [
        {"name": "id", "type": "int"}, {"name": "level", "type": "Level"}]}"#;
    let level = r#"{"type": "enum", "name": "a.b.Level", "symbols": ["LOW", "HIGH"]}"#;
    let schema = r#"{"type": "record", "name": "Order", "namespace": "a.b", "fields": [
        {"name": "by", "type": ["null", "User"]}, {"name": "for", "type": "User"},
        {"name": "level", "type": "a.b.Level"}]}"#;
    let references = [("a.b.User".to_owned(), user.to_owned()), ("x".to_owned(), level.to_owned())];
    let mut reader = AvroReader::new(1, schema, &references).unwrap();
    let read = reader.read([&framed(1, &[2, 6, 2, 8, 0, 2])[..]]).unwrap();
    assert_eq!(texts(&read), ["{id: 3, level: HIGH}|{id: 4, level: LOW}|HIGH"]);
    assert!(AvroReader::new(1, schema, &[]).is_err());
}

#[test]
fn wrong_schemas_of_avro_are_refused() {
    let recursive =
        r#"{"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}"#;
    let deep =
        format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(5_000), "}".repeat(5_000));
    let deep = format!(r#"{{"type":"record","name":"n","fields":[{{"name":"a","type":{deep}}}]}}"#);
    let unknown = r#"{"type": "record", "name": "n", "fields": [{"name": "a", "type": "b"}]}"#;
    for schema in
        ["", "\"int\"", "{", recursive, unknown, &deep, r#"{"type": "record", "name": "n"}"#]
    {
        assert!(AvroReader::new(1, schema, &[]).is_err(), "{schema}");
    }
}

#[test]
fn damaged_values_are_errors_and_leave_the_reader_whole() {
    let (mut reader, messages) = written_as_avro();
    let whole = texts(&reader.read([&messages[0][..]]).unwrap());
    for cut in 0..messages[0].len() {
        assert!(reader.read([&messages[0][..cut]]).is_err(), "{cut} bytes");
        assert_eq!(texts(&reader.read([&messages[0][..]]).unwrap()), whole);
    }
    let mut refused = 0;
    for at in 0..messages[0].len() {
        for bit in 0..8 {
            let mut damaged = messages[0].to_vec();
            damaged[at] ^= 1 << bit;
            refused += usize::from(reader.read([&damaged[..]]).is_err());
            assert_eq!(
                texts(&reader.read([&messages[0][..]]).unwrap()),
                whole,
                "byte {at}, bit {bit}"
            );
        }
    }
    assert!(refused > 50, "{refused} of {}", 8 * messages[0].len());
}

#[test]
fn rows_are_written_as_protobuf_and_read_again() {
    let rows = rows();
    let schema = protobuf_schema("my-rows", &rows.schema()).unwrap();
    assert!(
        schema.contains("message my_rows {") && schema.contains("optional int64 l = 4;"),
        "{schema}"
    );
    let messages = ProtobufWriter::new(3, &schema).unwrap().write(&rows).unwrap();
    let mut reader = ProtobufReader::new(&schema, &[]).unwrap();
    let mut read = |message: &[u8]| -> Value {
        serde_json::from_slice(&reader.read(message).unwrap()).unwrap()
    };
    let read: Vec<Value> = messages.iter().map(|message| read(message)).collect();
    let expected = json!({"b": true, "s": -7, "i": i32::MIN, "l": i64::MAX, "f": 0.1_f32, "d": -2.5,
        "t": "ä\"\n", "day": "1969-12-31", "ts": -1_234});
    assert_eq!(read, [expected, json!({})]);
    for cut in 0..messages[0].len() {
        if let (Some(3), Ok(value)) =
            (schema_id(&messages[0][..cut]), reader.read(&messages[0][..cut]))
        {
            assert!(serde_json::from_slice::<Value>(&value).is_ok());
        }
    }
}

#[test]
fn a_value_of_protobuf_is_of_the_message_at_its_path() {
    let schema = r#"
        syntax = "proto3";
        package shop;
        import "google/protobuf/timestamp.proto";
        import "google/protobuf/wrappers.proto";
        import "common/money.proto";
        message First { int32 a = 1; }
        message Second {
          message Inner { optional string name = 1; oneof of { int64 x = 2; bytes y = 3; } }
          enum Color { RED = 0; BLUE = 1; }
          Color color = 1; repeated int32 list = 2; map<string, int32> map = 3; Inner inner = 4;
          google.protobuf.Timestamp at = 5; google.protobuf.DoubleValue price = 6; double d = 7;
          common.Money money = 8; uint64 big = 9;
        }"#;
    let money = r#"syntax = "proto3"; package common; message Money { string currency = 1; }"#;
    let imports = [("common/money.proto".to_owned(), money.to_owned())];
    let mut reader = ProtobufReader::new(schema, &imports).unwrap();
    let mut read = |path: &[u8], value: &[u8]| -> Result<Value, String> {
        let read = reader.read(&framed(1, &[path, value].concat()))?;
        Ok(serde_json::from_slice(&read).unwrap())
    };
    // Of the first message; 150 is the example of the encoding's documentation.
    assert_eq!(read(&[0], &[8, 0x96, 1]).unwrap(), json!({"a": 150}));
    assert_eq!(read(&[0], &[]).unwrap(), json!({"a": 0}));
    // Of `Second.Inner`: two indexes, 1 and 0.
    assert_eq!(read(&[4, 2, 0], &[16, 5]).unwrap(), json!({"x": 5}));
    assert_eq!(
        read(&[4, 2, 0], &[10, 1, b'n', 26, 1, b'y']).unwrap(),
        json!({"name": "n", "y": "y"})
    );
    // Of `Second`.
    let value =
        [8, 1, 18, 2, 1, 2, 34, 2, 16, 9, 42, 2, 8, 3, 50, 9, 9, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f];
    let value = [&value[..], &[57, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f, 66, 3, 10, 1, b'E']].concat();
    let expected = json!({"color": "BLUE", "list": [1, 2], "map": {}, "inner": {"x": 9}, "at": 3_000,
        "price": 1.5, "d": "Infinity", "money": {"currency": "E"}, "big": 0});
    assert_eq!(read(&[2, 2], &value).unwrap(), expected);
    let wrong: [(&[u8], &[u8]); 6] = [
        (&[4, 2, 8], &[]),
        (&[2, 9], &[]),
        (&[1], &[]),
        (&[], &[]),
        (&[0], &[8]),
        (&[4, 2, 0], &[26, 1, 0xff]),
    ];
    for (path, value) in wrong {
        assert!(read(path, value).is_err(), "{path:?} {value:?}");
    }
    assert!(ProtobufReader::new(schema, &[]).unwrap_err().contains("common/money.proto"));
    for schema in ["", "message A {", "syntax = \"proto3\";"] {
        let made = ProtobufReader::new(schema, &[]);
        assert!(made.is_err() || made.unwrap().read(&framed(1, &[0])).is_err(), "{schema}");
    }
}

/// Returns drawn bytes: a generator of Marsaglia's family, which needs no crate.
fn drawn(state: &mut u64, count: usize) -> Vec<u8> {
    let mut next = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        // Small numbers are what lengths, counts and branches have.
        u8::try_from(*state % if *state >> 60 == 0 { 256 } else { 4 }).unwrap()
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn drawn_values_of_nested_schemas_are_read_or_refused() {
    let schema = r#"{"type": "record", "name": "r", "fields": [
        {"name": "a", "type": {"type": "array", "items": ["null", "string", "long"]}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "e", "type": ["null", {"type": "enum", "name": "e", "symbols": ["A", "B"]}]},
        {"name": "f", "type": {"type": "fixed", "name": "f", "size": 2}},
        {"name": "u", "type": ["int", "string", "boolean", {"type": "record", "name": "s", "fields": [
            {"name": "x", "type": ["null", "bytes"]}, {"name": "y", "type": "float"}]}]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}}]}"#;
    let mut avro = AvroReader::new(1, schema, &[]).unwrap();
    let proto = r#"syntax = "proto3"; message A { repeated A a = 1; map<int32, A> m = 2; bytes b = 3;
        oneof o { string s = 4; A c = 5; } repeated int64 p = 6; enum E { Z = 0; } E e = 7; }"#;
    let mut protobuf = ProtobufReader::new(proto, &[]).unwrap();
    let whole = [
        4, 2, 2, b'x', 4, 14, 0, 2, 2, b'k', 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 2, 0, 2, 2,
        1,
    ];
    assert!(avro.read([&framed(1, &whole)[..]]).is_ok());
    let (mut state, mut read) = (0x9e37_79b9_7f4a_7c15, [0, 0]);
    for at in 0..20_000 {
        let mut value = whole;
        for place in drawn(&mut state, 4) {
            let at = usize::from(place) * (at % 29) % whole.len();
            value[at] = drawn(&mut state, 1)[0];
        }
        read[0] += usize::from(avro.read([&framed(1, &value)[..]]).is_ok());
        read[1] += usize::from(protobuf.read(&framed(1, &drawn(&mut state, at % 40))).is_ok());
    }
    assert!(read.iter().all(|read| (50..19_000).contains(read)), "{read:?}");
}

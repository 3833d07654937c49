//! Protobuf: values as JSON objects, and rows as values.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{
        DataType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, Schema,
        TimeUnit, TimestampMillisecondType,
    },
    temporal_conversions::date32_to_datetime,
};
use bytes::Bytes;
use prost::{
    Message,
    encoding::{decode_varint, encode_varint},
};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, ReflectMessage,
    SerializeOptions, Value,
};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use serde_json::{Map, Value as Json, json};

use crate::{
    frame::{body, write_frame},
    name::{as_name, check_column},
};

/// The name of the schema's own file.
const MAIN_FILE: &str = "schema.proto";
/// The deepest path of a message within a schema.
const PATH_MAX: usize = 32;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Reads the values that were written with one schema.
#[derive(Debug)]
pub struct ProtobufReader {
    file: FileDescriptor,
    /// The message of each path that a value had.
    messages: BTreeMap<Vec<usize>, MessageDescriptor>,
}

impl ProtobufReader {
    /// Makes the reader of a schema from its text, and from the names and texts of the files that it imports.
    pub fn new(schema: &str, imports: &[(String, String)]) -> Result<Self, String> {
        Ok(Self { file: compile(schema, imports)?, messages: BTreeMap::new() })
    }

    /// Reads a message that has the id of the schema, and returns its value as a JSON object whose keys are the fields.
    ///
    /// A field without a value is left out if its schema says that it may have none (`optional`, or in a `oneof`), and has
    /// its default otherwise. An enum is its name, bytes are text, a `google.protobuf.Timestamp` is a number of
    /// milliseconds, one of the wrappers is its value; lists, maps and other messages are what Protobuf's JSON has for them.
    pub fn read(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut body = body(message)?;
        let path = read_path(&mut body)?;
        let descriptor = match self.messages.get(&path) {
            Some(descriptor) => descriptor.clone(),
            None => {
                let found = find_message(&self.file, &path)?;
                self.messages.insert(path, found.clone());
                found
            }
        };
        let value = DynamicMessage::decode(descriptor.clone(), body).map_err(|error| {
            format!("the value is not a message `{}`: {error}", descriptor.full_name())
        })?;
        let mut object = Map::new();
        for field in descriptor.fields() {
            if field.supports_presence() && !value.has_field(&field) {
                continue;
            }
            let json = field_json(&field, &value.get_field(&field))?;
            object.insert(field.name().to_owned(), json);
        }
        serde_json::to_vec(&object).map_err(|error| error.to_string())
    }
}

fn compile(schema: &str, imports: &[(String, String)]) -> Result<FileDescriptor, String> {
    let mut resolver = ChainFileResolver::new();
    let mut files: BTreeMap<String, String> = imports.iter().cloned().collect();
    files.insert(MAIN_FILE.to_owned(), schema.to_owned());
    resolver.add(SchemaFiles(files));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    let compiled = compiler.include_imports(true).open_file(MAIN_FILE);
    compiled.map_err(|error| format!("the schema is not valid: {error}"))?;
    let file = compiler.descriptor_pool().get_file_by_name(MAIN_FILE);
    file.ok_or_else(|| "the schema is empty".to_owned())
}

/// The files of a schema.
struct SchemaFiles(BTreeMap<String, String>);

impl FileResolver for SchemaFiles {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// Reads the path of a message within its schema: a number of indexes and the indexes; none stand for the first message.
fn read_path(bytes: &mut &[u8]) -> Result<Vec<usize>, String> {
    let cut = |_| "the value ends within the path of its message".to_owned();
    let mut next = || decode_varint(bytes).map_err(cut).map(zigzag);
    let count = usize::try_from(next()?).ok().filter(|count| *count <= PATH_MAX);
    let count = count.ok_or("the value has no path of its message")?;
    if count == 0 {
        return Ok(vec![0]);
    }
    let index = |index: i64| {
        usize::try_from(index).map_err(|_negative| "the path of the message has a negative index")
    };
    (0..count).map(|_| Ok(index(next()?)?)).collect()
}

fn zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn find_message(file: &FileDescriptor, path: &[usize]) -> Result<MessageDescriptor, String> {
    let missing = || format!("the schema has no message at the path {path:?} of the value");
    let (first, inner) = path.split_first().ok_or_else(missing)?;
    let mut found = file.messages().nth(*first).ok_or_else(missing)?;
    for index in inner {
        let next = found.child_messages().nth(*index).ok_or_else(missing)?;
        found = next;
    }
    Ok(found)
}

/// Returns the value of a field as JSON.
fn field_json(field: &FieldDescriptor, value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Bool(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::F32(value) => float_json(f64::from(*value), json!(value)),
        Value::F64(value) => float_json(*value, json!(value)),
        Value::String(text) => json!(text),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => return Err(format!("field `{}` is not valid UTF-8", field.name())),
        },
        Value::EnumNumber(number) => enum_json(field, *number),
        Value::Message(message) => message_json(field, message)?,
        Value::List(values) if values.is_empty() => json!([]),
        Value::Map(values) if values.is_empty() => json!({}),
        Value::List(_) | Value::Map(_) => {
            let parent = field.parent_message().clone();
            let mut only = DynamicMessage::new(parent);
            only.set_field(field, value.clone());
            let object = standard_json(&only)?;
            object.get(field.name()).cloned().unwrap_or(Json::Null)
        }
    })
}

fn float_json(value: f64, json: Json) -> Json {
    if value.is_finite() {
        return json;
    }
    let text = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    json!(text)
}

fn enum_json(field: &FieldDescriptor, number: i32) -> Json {
    let name = match field.kind() {
        Kind::Enum(of) => of.get_value(number).map(|value| value.name().to_owned()),
        _ => None,
    };
    name.map_or_else(|| json!(number.to_string()), |name| json!(name))
}

fn message_json(field: &FieldDescriptor, message: &DynamicMessage) -> Result<Json, String> {
    let descriptor = message.descriptor();
    match descriptor.full_name() {
        "google.protobuf.Timestamp" => {
            let seconds = message.get_field_by_name("seconds").and_then(|value| value.as_i64());
            let nanos = message.get_field_by_name("nanos").and_then(|value| value.as_i32());
            let millis = seconds.unwrap_or(0).checked_mul(1_000);
            let millis = millis.and_then(|ms| {
                ms.checked_add(i64::from(nanos.unwrap_or(0)).div_euclid(NANOS_PER_MILLI))
            });
            millis
                .map(|ms| json!(ms))
                .ok_or_else(|| format!("field `{}` is out of range", field.name()))
        }
        "google.protobuf.BoolValue"
        | "google.protobuf.Int32Value"
        | "google.protobuf.Int64Value"
        | "google.protobuf.UInt32Value"
        | "google.protobuf.UInt64Value"
        | "google.protobuf.FloatValue"
        | "google.protobuf.DoubleValue"
        | "google.protobuf.StringValue"
        | "google.protobuf.BytesValue" => {
            let inner = descriptor.get_field_by_name("value").ok_or("a wrapper has a value")?;
            field_json(&inner, &message.get_field(&inner))
        }
        _ => standard_json(message),
    }
}

/// Returns Protobuf's own JSON of a message, with the names of the schema.
fn standard_json(message: &DynamicMessage) -> Result<Json, String> {
    let options =
        SerializeOptions::new().stringify_64_bit_integers(false).use_proto_field_name(true);
    let json = message.serialize_with_options(serde_json::value::Serializer, &options);
    json.map_err(|error| error.to_string())
}

/// Writes values with one schema.
#[derive(Debug)]
pub struct ProtobufWriter {
    id: u32,
    message: MessageDescriptor,
    timestamp: Option<MessageDescriptor>,
}

impl ProtobufWriter {
    /// Makes the writer of a schema that [`protobuf_schema`] has made and the registry has given this id.
    pub fn new(id: u32, schema: &str) -> Result<Self, String> {
        let file = compile(schema, &[])?;
        let message = file.messages().next().ok_or("the schema has no message")?;
        let timestamp = file.parent_pool().get_message_by_name("google.protobuf.Timestamp");
        Ok(Self { id, message, timestamp })
    }

    /// Writes a message for each row. A NULL is a field without a value.
    pub fn write(&self, batch: &RecordBatch) -> Result<Vec<Bytes>, String> {
        let fields: Vec<FieldDescriptor> = self.message.fields().collect();
        debug_assert_eq!(fields.len(), batch.num_columns(), "a field for each column");
        let message = |row: usize| {
            let mut message = DynamicMessage::new(self.message.clone());
            for (field, column) in fields.iter().zip(batch.columns()) {
                if column.is_valid(row) {
                    message.set_field(field, self.value(column.as_ref(), row)?);
                }
            }
            let mut out = Vec::with_capacity(message.encoded_len() + 6);
            write_frame(self.id, &mut out);
            // The first message of the schema.
            encode_varint(0, &mut out);
            message.encode(&mut out).map_err(|error| error.to_string())?;
            Ok(Bytes::from(out))
        };
        (0..batch.num_rows()).map(message).collect()
    }

    fn value(&self, column: &dyn Array, row: usize) -> Result<Value, String> {
        Ok(match column.data_type() {
            DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
            DataType::Int16 => Value::I32(column.as_primitive::<Int16Type>().value(row).into()),
            DataType::Int32 => Value::I32(column.as_primitive::<Int32Type>().value(row)),
            DataType::Int64 => Value::I64(column.as_primitive::<Int64Type>().value(row)),
            DataType::Float32 => Value::F32(column.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => Value::F64(column.as_primitive::<Float64Type>().value(row)),
            DataType::Utf8 => Value::String(column.as_string::<i32>().value(row).to_owned()),
            DataType::Date32 => {
                let days = column.as_primitive::<Date32Type>().value(row);
                let date = date32_to_datetime(days).ok_or("a date is out of range")?;
                Value::String(date.format("%Y-%m-%d").to_string())
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                let millis = column.as_primitive::<TimestampMillisecondType>().value(row);
                let descriptor = self.timestamp.clone().ok_or("the schema has no times")?;
                let mut time = DynamicMessage::new(descriptor);
                let nanos = i32::try_from(millis.rem_euclid(1_000) * NANOS_PER_MILLI).unwrap_or(0);
                time.set_field_by_name("seconds", Value::I64(millis.div_euclid(1_000)));
                time.set_field_by_name("nanos", Value::I32(nanos));
                Value::Message(time)
            }
            other => return Err(format!("a column of type {other} cannot be written as Protobuf")),
        })
    }
}

/// Writes the schema of a message with these columns: each is an optional field, in their order; a DATE is text.
pub fn protobuf_schema(name: &str, columns: &Schema) -> Result<String, String> {
    let mut fields = String::new();
    let mut has_times = false;
    for (at, field) in columns.fields().iter().enumerate() {
        let name = field.name();
        check_column(name, "Protobuf")?;
        let of_type = match field.data_type() {
            DataType::Boolean => "bool",
            DataType::Int16 | DataType::Int32 => "int32",
            DataType::Int64 => "int64",
            DataType::Float32 => "float",
            DataType::Float64 => "double",
            DataType::Utf8 | DataType::Date32 => "string",
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                has_times = true;
                "google.protobuf.Timestamp"
            }
            other => {
                return Err(format!(
                    "column `{name}` is of type {other}, which cannot be written as Protobuf"
                ));
            }
        };
        fields.push_str(&format!("  optional {of_type} {name} = {};\n", at + 1));
    }
    let import = if has_times { "import \"google/protobuf/timestamp.proto\";\n\n" } else { "" };
    Ok(format!("syntax = \"proto3\";\n\n{import}message {} {{\n{fields}}}\n", as_name(name)))
}

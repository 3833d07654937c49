//! Avro: values as record batches, and record batches as values.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::RecordBatch,
    compute::cast,
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit},
};
use arrow_avro::{
    reader::{Decoder, ReaderBuilder},
    schema::{
        AvroSchema, Fingerprint, FingerprintAlgorithm, FingerprintStrategy, SCHEMA_METADATA_KEY,
        SchemaStore,
    },
    writer::{Encoder, WriterBuilder, format::AvroSoeFormat},
};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::name::{as_name, check_column};

/// Reads the values that were written with one schema.
#[derive(Debug)]
pub struct AvroReader {
    id: u32,
    schema: AvroSchema,
    /// `None` after an error: what it has read of a value would be taken for the next one's.
    decoder: Option<Decoder>,
}

impl AvroReader {
    /// Makes the reader of a schema, which is a record, from its JSON text, and from the names and texts of the schemas
    /// that it refers to.
    pub fn new(id: u32, schema: &str, references: &[(String, String)]) -> Result<Self, String> {
        let schema = AvroSchema::new(whole_schema(schema, references)?);
        let mut reader = Self { id, schema, decoder: None };
        reader.decoder = Some(reader.new_decoder()?);
        Ok(reader)
    }

    /// Reads messages that have the id of the schema: a column for each field, a row for each message. All of them, or
    /// none: a caller that is told of an error reads them one by one.
    pub fn read<'m>(
        &mut self,
        messages: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<RecordBatch, String> {
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => self.new_decoder()?,
        };
        let mut count = 0;
        for message in messages {
            let read = decoder.decode(message).map_err(|error| not_of_schema(&phrase(&error)))?;
            if read != message.len() {
                return Err(not_of_schema("it ends too early, or is followed by other bytes"));
            }
            count += 1;
        }
        let batch = match decoder.flush().map_err(|error| not_of_schema(&phrase(&error)))? {
            Some(batch) => batch,
            None => RecordBatch::new_empty(decoder.schema()),
        };
        if batch.num_rows() != count {
            return Err(not_of_schema("it ends too early"));
        }
        self.decoder = Some(decoder);
        Ok(batch)
    }

    fn new_decoder(&self) -> Result<Decoder, String> {
        let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
        let made = store.set(Fingerprint::Id(self.id), self.schema.clone()).and_then(|_| {
            ReaderBuilder::new()
                .with_writer_schema_store(store)
                .with_batch_size(usize::MAX)
                .build_decoder()
        });
        made.map_err(|error| phrase(&error))
    }
}

fn not_of_schema(why: &str) -> String {
    format!("the value does not fit its schema: {why}")
}

/// Returns a schema with those that it refers to in the places where each is named first.
fn whole_schema(schema: &str, references: &[(String, String)]) -> Result<String, String> {
    let parse = |text: &str| -> Result<Value, String> {
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
    };
    let mut schema = parse(schema)?;
    if schema.get("type").and_then(Value::as_str) != Some("record") {
        return Err("it is not a record".to_owned());
    }
    let mut definitions = BTreeMap::new();
    for (_, text) in references {
        let definition = parse(text)?;
        definitions.insert(full_name(&definition, ""), definition);
    }
    insert_references(&mut schema, "", &mut definitions);
    Ok(schema.to_string())
}

/// Replaces the first name of each definition within a type by the definition.
fn insert_references(of: &mut Value, namespace: &str, definitions: &mut BTreeMap<String, Value>) {
    match of {
        Value::String(name) => {
            let full =
                if name.contains('.') { name.clone() } else { in_namespace(namespace, name) };
            if let Some(mut definition) = definitions.remove(&full) {
                definition["name"] = json!(full);
                insert_references(&mut definition, namespace, definitions);
                *of = definition;
            }
        }
        Value::Array(branches) => {
            branches
                .iter_mut()
                .for_each(|branch| insert_references(branch, namespace, definitions));
        }
        Value::Object(_) => {
            let full = full_name(of, namespace);
            let is_named = of.get("name").is_some();
            let own = if is_named { namespace_of(&full) } else { namespace };
            if is_named && full.contains('.') {
                // The decoder does not take both from one text.
                (of["name"], of["namespace"]) = (json!(name_of(&full)), json!(own));
            }
            for part in ["type", "items", "values"] {
                if let Some(part) = of.get_mut(part) {
                    insert_references(part, own, definitions);
                }
            }
            let fields = of.get_mut("fields").and_then(Value::as_array_mut);
            for field in fields.into_iter().flatten() {
                if let Some(of_field) = field.get_mut("type") {
                    insert_references(of_field, own, definitions);
                }
            }
        }
        _ => {}
    }
}

/// Returns the name of a definition with its namespace.
fn full_name(definition: &Value, namespace: &str) -> String {
    let text = |key: &str| definition.get(key).and_then(Value::as_str);
    let name = text("name").unwrap_or_default();
    if name.contains('.') {
        name.to_owned()
    } else {
        in_namespace(text("namespace").unwrap_or(namespace), name)
    }
}

fn in_namespace(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn name_of(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or(full_name, |(_, name)| name)
}

fn namespace_of(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or("", |(namespace, _)| namespace)
}

/// Writes values with one schema.
#[derive(Debug)]
pub struct AvroWriter {
    encoder: Encoder,
    schema: SchemaRef,
}

impl AvroWriter {
    /// Makes the writer of a schema that [`avro_schema`] has made of these columns and the registry has given this id.
    pub fn new(id: u32, schema: &str, columns: &Schema) -> Result<Self, String> {
        let mut written = with_avro_types(columns);
        written.metadata.insert(SCHEMA_METADATA_KEY.to_owned(), schema.to_owned());
        let encoder = WriterBuilder::new(written)
            .with_fingerprint_strategy(FingerprintStrategy::Id(id))
            .build_encoder::<AvroSoeFormat>()
            .map_err(|error| phrase(&error))?;
        let schema = encoder.schema();
        Ok(Self { encoder, schema })
    }

    /// Writes a message for each row.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<Vec<Bytes>, String> {
        let fields = self.schema.fields().iter();
        let columns = batch.columns().iter().zip(fields);
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let batch = columns
            .collect::<Result<_, _>>()
            .and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns))
            .map_err(|error| phrase(&error))?;
        self.encoder.encode(&batch).map_err(|error| phrase(&error))?;
        let rows = self.encoder.flush();
        debug_assert_eq!(rows.len(), batch.num_rows(), "each row is a message");
        Ok(rows.iter().collect())
    }
}

/// Writes the schema of a record with these columns as JSON. Each field may be null, and is so by default: rows of an
/// earlier or a later schema can be read with it.
pub fn avro_schema(name: &str, columns: &Schema) -> Result<String, String> {
    let fields: Vec<Value> =
        columns.fields().iter().map(|field| field_schema(field)).collect::<Result<_, _>>()?;
    Ok(json!({ "type": "record", "name": as_name(name), "fields": fields }).to_string())
}

fn field_schema(field: &Field) -> Result<Value, String> {
    let name = field.name();
    check_column(name, "Avro")?;
    let of_type = match field.data_type() {
        DataType::Boolean => json!("boolean"),
        DataType::Int16 | DataType::Int32 => json!("int"),
        DataType::Int64 => json!("long"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Utf8 => json!("string"),
        DataType::Date32 => json!({ "type": "int", "logicalType": "date" }),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            json!({ "type": "long", "logicalType": "timestamp-millis" })
        }
        other => {
            return Err(format!(
                "column `{name}` is of type {other}, which cannot be written as Avro"
            ));
        }
    };
    Ok(json!({ "name": name, "type": ["null", of_type], "default": null }))
}

/// Returns columns of the types that Avro has: instants for times, which are `timestamp-millis`, and no SMALLINT.
fn with_avro_types(columns: &Schema) -> Schema {
    let field = |field: &Arc<Field>| {
        let data_type = match field.data_type() {
            DataType::Timestamp(unit, None) => DataType::Timestamp(*unit, Some("+00:00".into())),
            DataType::Int16 => DataType::Int32,
            other => other.clone(),
        };
        Field::new(field.name(), data_type, true)
    };
    Schema::new(columns.fields().iter().map(field).collect::<Vec<_>>())
}

/// Returns an error of the library as a phrase.
fn phrase(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    ["Parser error: ", "Avro error: ", "Schema error: ", "Compute error: ", "Arrow: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text))
        .trim_end_matches('.')
        .to_owned()
}

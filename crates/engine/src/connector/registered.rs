//! Messages with a schema of a registry, in Avro or Protobuf: as values of columns, and made of rows.

use std::collections::BTreeMap;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_kafka::{Bytes, RegistryClient, SchemaLanguage, SchemaRegistry, TopicMessage};
use lockstep_message::{
    AvroReader, AvroWriter, ProtobufReader, ProtobufWriter, avro_schema, protobuf_schema, schema_id,
};
use lockstep_row::{
    Arena, Datum, RowView, TableSchema,
    arrow::{ColumnBuilder, ColumnReader, arrow_schema},
};

use super::{
    Connector,
    message::{value_of, with_defaults},
    options::RegistryOptions,
    source::rows::{ItemRows, in_arena},
};
use crate::{
    Conversion,
    append::{MissingColumn, conform},
    text_rows::RowSchema,
};

/// Reads messages, each with the schema that it names.
#[derive(Debug)]
pub(super) struct RegisteredReader {
    language: SchemaLanguage,
    client: RegistryClient,
    /// The reader of each schema; or why there is none, until the next messages.
    readers: BTreeMap<u32, std::result::Result<SchemaReader, String>>,
    /// Reads Protobuf's values, which become JSON first.
    json: RowSchema,
    conversion: Conversion,
    ignores_unknown: bool,
}

/// The reader of a schema.
#[derive(Debug)]
enum SchemaReader {
    Avro(Box<AvroReader>),
    Protobuf(Box<ProtobufReader>),
}

/// The rows of messages: a value for each column.
type Values<'a> = Vec<&'a mut [Datum<'a>]>;

/// What values become.
struct RowTarget<'s, 'a> {
    schema: &'s TableSchema,
    defaults: &'s [Datum<'a>],
    arena: &'a Arena,
}

impl RegisteredReader {
    /// Makes the reader of a source's messages. It does not connect yet.
    pub(super) fn new(
        source: &Connector,
        language: SchemaLanguage,
        registry: &SchemaRegistry,
        json: RowSchema,
    ) -> Result<Self> {
        Ok(Self {
            language,
            client: registry.client()?,
            readers: BTreeMap::new(),
            json,
            conversion: source.conversion,
            ignores_unknown: source.options.source.ignores_unknown,
        })
    }

    /// Reads messages. Fails where the registry does not answer.
    pub(super) fn read<'a>(
        &mut self,
        messages: &'a [TopicMessage],
        schema: &TableSchema,
        defaults: &[Datum<'a>],
        (read, arena): (&mut ItemRows<'a>, &'a Arena),
    ) -> Result<()> {
        let target = RowTarget { schema, defaults, arena };
        // Messages with one schema are read together.
        let mut run: Vec<(usize, &'a [u8])> = Vec::new();
        let mut id_of_run = 0;
        for (at, message) in messages.iter().enumerate() {
            let found = self.find_schema(message)?;
            if found.as_ref().ok().is_none_or(|(id, _)| *id != id_of_run) {
                self.read_run(id_of_run, std::mem::take(&mut run), &target, read);
            }
            match found {
                Ok((id, value)) => {
                    id_of_run = id;
                    run.push((at, value));
                }
                Err(error) => read.push(at, Err(error)),
            }
        }
        self.read_run(id_of_run, run, &target, read);
        // The registry may have it next time.
        self.readers.retain(|_, reader| reader.is_ok());
        Ok(())
    }

    /// Returns the schema's id of a message with its value; or why it has none that can be read. Fails where the
    /// registry does not answer.
    #[expect(clippy::type_complexity, reason = "two kinds of failure")]
    fn find_schema<'a>(
        &mut self,
        message: &'a TopicMessage,
    ) -> Result<std::result::Result<(u32, &'a [u8]), Box<Diagnostic>>> {
        let value = match value_of(message) {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        };
        let Some(id) = schema_id(value) else {
            return Ok(Err(not_a_value("the value does not begin with the id of a schema")));
        };
        if !self.readers.contains_key(&id) {
            let reader = match self.client.schema(id) {
                Ok(found) if !found.is(self.language) => {
                    Err(format!("schema {id} is in {}, not in {}", found.language, self.language))
                }
                Ok(found) => SchemaReader::new(self.language, id, &found.text, &found.references)
                    .map_err(|why| format!("schema {id} of the registry cannot be used: {why}")),
                Err(error) if error.code == code::UNDEFINED_OBJECT => Err(error.message),
                Err(error) => return Err(error),
            };
            self.readers.insert(id, reader);
        }
        match &self.readers[&id] {
            Ok(_) => Ok(Ok((id, value))),
            Err(why) => Ok(Err(not_a_value(why))),
        }
    }

    /// Reads messages that have one schema.
    fn read_run<'a>(
        &mut self,
        id: u32,
        run: Vec<(usize, &'a [u8])>,
        target: &RowTarget<'_, 'a>,
        read: &mut ItemRows<'a>,
    ) {
        let Self { readers, json, conversion, ignores_unknown, .. } = self;
        let Some(Ok(reader)) = readers.get_mut(&id) else {
            debug_assert!(run.is_empty(), "its reader was found");
            return;
        };
        match reader {
            SchemaReader::Protobuf(reader) => {
                for (at, value) in run {
                    read.push(at, read_protobuf(reader, json, value, target));
                }
            }
            SchemaReader::Avro(reader) => {
                let mut avro = |values: &[&[u8]]| {
                    let batch = reader.read(values.iter().copied());
                    let batch = batch.map_err(|why: String| not_a_value(&why))?;
                    rows_of(&batch, *conversion, *ignores_unknown, target)
                };
                let values: Vec<&[u8]> = run.iter().map(|(_, value)| *value).collect();
                if let Ok(rows) = avro(&values) {
                    for ((at, _), row) in run.into_iter().zip(rows) {
                        read.push(at, Ok(row));
                    }
                    return;
                }
                for (at, value) in run {
                    let row = avro(&[value]);
                    read.push(at, row.map(|mut rows| rows.pop().expect("a message is a row")));
                }
            }
        }
    }
}

impl SchemaReader {
    fn new(
        language: SchemaLanguage,
        id: u32,
        schema: &str,
        references: &[(String, String)],
    ) -> std::result::Result<Self, String> {
        Ok(match language {
            SchemaLanguage::Avro => Self::Avro(Box::new(AvroReader::new(id, schema, references)?)),
            SchemaLanguage::Protobuf => {
                Self::Protobuf(Box::new(ProtobufReader::new(schema, references)?))
            }
        })
    }
}

fn read_protobuf<'a>(
    reader: &mut ProtobufReader,
    json: &RowSchema,
    value: &[u8],
    target: &RowTarget<'_, 'a>,
) -> Result<&'a mut [Datum<'a>]> {
    let object = reader.read(value).map_err(|why: String| not_a_value(&why))?;
    let object = target.arena.alloc_slice_copy(&object);
    let row = json.read_row(object, target.arena)?;
    Ok(with_defaults(&row, target.defaults, target.arena))
}

/// Makes rows of a batch whose columns are named as those of the table.
fn rows_of<'a>(
    batch: &RecordBatch,
    conversion: Conversion,
    ignores_unknown: bool,
    target: &RowTarget<'_, 'a>,
) -> Result<Values<'a>> {
    let RowTarget { schema, arena, .. } = target;
    let fields = batch.schema();
    let known: Vec<usize> = (0..batch.num_columns())
        .filter(|at| !ignores_unknown || schema.find_column(fields.field(*at).name()).is_some())
        .collect();
    let batch = batch.project(&known).map_err(|error| not_a_value(&error.to_string()))?;
    let columns = conform(&batch, &schema.columns, MissingColumn::Default, conversion)?;
    let readers: Vec<ColumnReader<'_>> =
        columns.iter().map(|column| ColumnReader::new(column.as_ref())).collect();
    let row = |row: usize| {
        let values: Vec<Datum<'a>> =
            readers.iter().map(|reader| in_arena(reader.get(row, arena), arena)).collect();
        arena.alloc_slice_copy(&values)
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

/// Makes the error of a value that cannot be read.
fn not_a_value(why: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(code::BAD_COPY_FORMAT, why).with_kind(Kind::FixData))
}

/// Makes messages of rows.
#[derive(Debug)]
pub(super) struct RegisteredWriter {
    columns: SchemaRef,
    table: TableSchema,
    builders: Vec<ColumnBuilder>,
    writer: SchemaWriter,
}

/// The writer of a schema.
#[derive(Debug)]
enum SchemaWriter {
    Avro(Box<AvroWriter>),
    Protobuf(Box<ProtobufWriter>),
}

impl RegisteredWriter {
    /// Makes the writer of a sink's messages, whose schema it registers.
    pub(super) fn new(
        sink: &Connector,
        language: SchemaLanguage,
        RegistryOptions { registry, subject }: &RegistryOptions,
        table: &TableSchema,
    ) -> Result<Self> {
        let columns = arrow_schema(table);
        let name = &sink.stream.as_ref().unwrap_or(&sink.table.name).name;
        let refused = |why: String| {
            let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, why);
            Box::new(diagnostic.with_kind(Kind::FixRequest))
        };
        let client = registry.client()?;
        let writer = match language {
            SchemaLanguage::Avro => {
                let schema = avro_schema(name, &columns).map_err(refused)?;
                let id = client.register(subject, language, &schema)?;
                let writer = AvroWriter::new(id, &schema, &columns).map_err(refused)?;
                SchemaWriter::Avro(Box::new(writer))
            }
            SchemaLanguage::Protobuf => {
                let schema = protobuf_schema(name, &columns).map_err(refused)?;
                let id = client.register(subject, language, &schema)?;
                let writer = ProtobufWriter::new(id, &schema).map_err(refused)?;
                SchemaWriter::Protobuf(Box::new(writer))
            }
        };
        Ok(Self { columns, table: table.clone(), builders: Vec::new(), writer })
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: RowView<'_>, arena: &Arena) {
        if self.builders.is_empty() {
            let columns = self.table.columns.iter();
            self.builders =
                columns.map(|column| ColumnBuilder::new(&column.data_type, 64)).collect();
        }
        for (column, builder) in self.builders.iter_mut().enumerate() {
            builder.push(row.get_in(column, arena));
        }
    }

    /// Returns a message for each row that was added.
    pub(super) fn take(&mut self) -> Result<Vec<Bytes>> {
        if self.builders.is_empty() {
            return Ok(Vec::new());
        }
        let columns = std::mem::take(&mut self.builders).into_iter();
        let columns = columns.map(|mut builder| builder.finish()).collect();
        // The schema is made of the same columns.
        let not_written = |why: String| Box::new(Diagnostic::internal(why));
        let batch = RecordBatch::try_new(SchemaRef::clone(&self.columns), columns);
        let batch = batch.map_err(|error| not_written(error.to_string()))?;
        match &mut self.writer {
            SchemaWriter::Avro(writer) => writer.write(&batch),
            SchemaWriter::Protobuf(writer) => writer.write(&batch),
        }
        .map_err(not_written)
    }
}

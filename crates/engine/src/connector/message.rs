//! Messages as rows: what a source appends to its table, and what it cannot.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_kafka::TopicMessage;
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema};

use super::{
    Connector,
    options::{MessageFormat, MessagePart, NamedColumn},
    registered::RegisteredReader,
};
use crate::{
    json_text::write_json_object,
    text_rows::{CsvSchema, JsonRow, KeyRule, RowSchema},
};

/// Makes rows of messages.
#[derive(Debug)]
pub(super) struct MessageReader {
    schema: TableSchema,
    values: MessageValueReader,
    columns: Vec<(String, DataType)>,
    /// The columns that take a part of the message beside its value.
    parts: Vec<(MessagePart, usize)>,
}

/// Makes values of columns of the value of a message.
#[derive(Debug)]
enum MessageValueReader {
    Json(RowSchema),
    Csv {
        /// The columns of the fields.
        fields: Vec<usize>,
        conversion: crate::Conversion,
    },
    Registered(Box<RegisteredReader>),
}

/// The rows of messages, and the messages that are no rows.
#[derive(Debug, Default)]
pub(super) struct ReadMessages<'a> {
    /// In the order of the messages.
    pub(super) rows: Vec<MessageRow<'a>>,
    pub(super) bad: Vec<BadMessage>,
}

/// The row of a message.
#[derive(Debug)]
pub(super) struct MessageRow<'a> {
    /// The position of the message.
    pub(super) at: usize,
    pub(super) values: &'a mut [Datum<'a>],
}

impl<'a> AsRef<[Datum<'a>]> for &MessageRow<'a> {
    fn as_ref(&self) -> &[Datum<'a>] {
        self.values
    }
}

/// A message that is no row.
#[derive(Debug)]
pub(super) struct BadMessage {
    /// The position of the message.
    pub(super) at: usize,
    pub(super) reason: String,
}

impl MessageReader {
    /// Makes the reader of a source. Fails where a column does not take what it is for.
    pub(super) fn new(source: &Connector, schema: &TableSchema) -> Result<Self> {
        let options = &source.options.source;
        let columns: Vec<(String, DataType)> =
            schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect();
        let mut parts = Vec::with_capacity(options.columns.len());
        for (part, NamedColumn { name, span }) in &options.columns {
            let column = part.column(name, schema).map_err(|error| Box::new(error.at(*span)))?;
            parts.push((*part, column));
        }
        let keys = match options.ignores_unknown {
            true => KeyRule::AllReadAndMore(vec![false; columns.len()]),
            false => KeyRule::Some,
        };
        let is_field = |at: &usize| parts.iter().all(|(_, column)| column != at);
        let conversion = source.conversion;
        let json = || RowSchema::new(&columns, conversion, keys).of_messages();
        let values = match (source.options.format, &source.options.registry) {
            (MessageFormat::Csv, _) => {
                let fields = (0..columns.len()).filter(is_field).collect();
                MessageValueReader::Csv { fields, conversion }
            }
            (MessageFormat::Registered(language), Some(registry)) => {
                let reader = RegisteredReader::new(source, language, &registry.registry, json())?;
                MessageValueReader::Registered(Box::new(reader))
            }
            _ => MessageValueReader::Json(json()),
        };
        Ok(Self { schema: schema.clone(), values, columns, parts })
    }

    /// Reads messages. Fails where what it takes to read them cannot be had now, a schema for example.
    pub(super) fn read<'a>(
        &mut self,
        messages: &'a [TopicMessage],
        arena: &'a Arena,
    ) -> Result<ReadMessages<'a>> {
        let defaults = default_row(&self.schema, arena);
        let mut read = ReadMessages::default();
        read.rows.reserve(messages.len());
        let Self { schema, values, columns, parts } = self;
        if let MessageValueReader::Registered(reader) = values {
            reader.read(messages, schema, &defaults, (&mut read, arena))?;
        } else {
            for (at, message) in messages.iter().enumerate() {
                let values = read_value(values, columns, message, &defaults, arena);
                read.push(at, values);
            }
        }
        add_parts(parts, columns, messages, &mut read, arena);
        Ok(read)
    }
}

/// Makes the values of the columns of a message in JSON or CSV.
fn read_value<'a>(
    reader: &MessageValueReader,
    columns: &[(String, DataType)],
    message: &'a TopicMessage,
    defaults: &[Datum<'a>],
    arena: &'a Arena,
) -> Result<&'a mut [Datum<'a>]> {
    let value = value_of(message)?;
    let row = match reader {
        MessageValueReader::Json(json) => json.read_row(value, arena)?,
        MessageValueReader::Csv { fields, conversion } => {
            let schema = CsvSchema { columns, conversion: *conversion };
            schema.read_record(value, fields, arena)?
        }
        MessageValueReader::Registered(_) => {
            return Diagnostic::internal("messages with a schema are read together").err();
        }
    };
    Ok(with_defaults(&row, defaults, arena))
}

/// Returns the value of a message, which has one.
pub(super) fn value_of(message: &TopicMessage) -> Result<&[u8]> {
    match &message.value {
        Some(value) => Ok(value),
        None => Diagnostic::new(code::NULL_NOT_ALLOWED, "the message has no value").err(),
    }
}

/// Copies the values of a row, with defaults for the columns that it lacks.
pub(super) fn with_defaults<'a>(
    row: &JsonRow<'a>,
    defaults: &[Datum<'a>],
    arena: &'a Arena,
) -> &'a mut [Datum<'a>] {
    debug_assert_eq!(row.values.len(), defaults.len(), "a value for each column");
    let values = arena.alloc_slice_copy(row.values);
    for (at, is_present) in row.present.iter().enumerate() {
        if !is_present {
            values[at] = defaults[at];
        }
    }
    values
}

/// Puts the parts of messages beside their values into the columns that take them.
fn add_parts<'a>(
    parts: &[(MessagePart, usize)],
    columns: &[(String, DataType)],
    messages: &'a [TopicMessage],
    read: &mut ReadMessages<'a>,
    arena: &'a Arena,
) {
    if parts.is_empty() {
        return;
    }
    let ReadMessages { rows, bad } = read;
    rows.retain_mut(|row| {
        for (part, column) in parts {
            match part.value(&messages[row.at], &columns[*column].1, arena) {
                Ok(value) => row.values[*column] = value,
                Err(error) => {
                    bad.push(BadMessage { at: row.at, reason: reason_of(&error) });
                    return false;
                }
            }
        }
        true
    });
    bad.sort_by_key(|bad| bad.at);
}

impl<'a> ReadMessages<'a> {
    /// Adds a message: its values, or why it is no row.
    pub(super) fn push(&mut self, at: usize, values: Result<&'a mut [Datum<'a>]>) {
        match values {
            Ok(values) => self.rows.push(MessageRow { at, values }),
            Err(error) => self.bad.push(BadMessage { at, reason: reason_of(&error) }),
        }
    }
}

/// Returns why a message is no row. It was read alone: which row of the data it was says nothing.
pub(super) fn reason_of(error: &Diagnostic) -> String {
    error.message.replacen("row 1: ", "", 1)
}

impl MessagePart {
    /// Finds the column that takes it.
    fn column(self, name: &str, schema: &TableSchema) -> Result<usize> {
        let Some(at) = schema.find_column(name) else {
            let message = format!("column `{name}` does not exist in the table");
            let names = schema.columns.iter().map(|column| column.name.as_str());
            let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
            return diagnostic.with_nearest(name, names).err();
        };
        let data_type = &schema.columns[at].data_type;
        let (takes, expected) = match self {
            Self::Key | Self::Headers => (*data_type == DataType::String, "STRING"),
            Self::Partition => {
                (matches!(data_type, DataType::Int | DataType::BigInt), "INT or BIGINT")
            }
            Self::Offset => (*data_type == DataType::BigInt, "BIGINT"),
            Self::Time => (*data_type == DataType::Timestamp, "TIMESTAMP"),
        };
        if takes {
            return Ok(at);
        }
        let message = format!("column `{name}` is of type {data_type} but must be {expected}");
        Diagnostic::new(code::DATATYPE_MISMATCH, message).err()
    }

    /// Returns its value.
    fn value<'a>(
        self,
        message: &'a TopicMessage,
        data_type: &DataType,
        arena: &'a Arena,
    ) -> Result<Datum<'a>> {
        Ok(match self {
            Self::Key => match &message.key {
                Some(key) => match std::str::from_utf8(key) {
                    Ok(text) => Datum::String(text),
                    Err(_not_text) => {
                        let what = "the key of the message is not valid UTF-8";
                        return Diagnostic::new(code::INVALID_ENCODING, what).err();
                    }
                },
                None => Datum::Null,
            },
            Self::Partition if *data_type == DataType::Int => Datum::Int(message.partition),
            Self::Partition => Datum::BigInt(message.partition.into()),
            Self::Offset => Datum::BigInt(message.offset),
            Self::Time => Datum::Timestamp(message.time_ms),
            Self::Headers => Datum::String(arena.alloc_str(&headers_json(message))),
        })
    }
}

/// Writes the headers as a JSON object. Of headers with one name the last one counts, as in most readers of JSON.
fn headers_json(message: &TopicMessage) -> String {
    let texts: Vec<_> = message
        .headers
        .iter()
        .map(|(_, value)| value.as_ref().map(|value| String::from_utf8_lossy(value)))
        .collect();
    let values = texts.iter().map(|text| text.as_deref().map_or(Datum::Null, Datum::String));
    let names = message.headers.iter().map(|(name, _)| name.as_str());
    let mut out = Vec::new();
    write_json_object(&mut out, names.zip(values));
    String::from_utf8_lossy(&out).into_owned()
}

/// Makes a row of the defaults of its columns.
pub(super) fn default_row<'a>(schema: &TableSchema, arena: &'a Arena) -> Vec<Datum<'a>> {
    let default = |column: &Column| match &column.default {
        Some(value) => in_arena(value.as_datum(arena), arena),
        None => Datum::Null,
    };
    schema.columns.iter().map(default).collect()
}

/// Copies a value without elements into an arena.
pub(super) fn in_arena<'a>(value: Datum<'_>, arena: &'a Arena) -> Datum<'a> {
    match value {
        Datum::String(text) => Datum::String(arena.alloc_str(text)),
        value => value.detached().copied().unwrap_or(Datum::Null),
    }
}

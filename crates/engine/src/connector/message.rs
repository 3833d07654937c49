//! Messages as rows: what a source appends to its table, and what it cannot.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_kafka::TopicMessage;
use lockstep_row::{Arena, DataType, Datum, TableSchema};

use super::{
    Connector,
    options::{KafkaOptions, MessageFormat, MessagePart, NamedColumn},
    registered::RegisteredReader,
    source::rows::{BadRow, ItemRows, default_row, reason_of},
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

impl MessageReader {
    /// Makes the reader of a source. Fails where a column does not take what it is for.
    pub(super) fn new(
        source: &Connector,
        options: &KafkaOptions,
        schema: &TableSchema,
    ) -> Result<Self> {
        let columns: Vec<(String, DataType)> =
            schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect();
        let mut parts = Vec::with_capacity(options.columns.len());
        for (part, named) in &options.columns {
            parts.push((*part, part.column(named, schema)?));
        }
        let keys = match source.options.source.ignores_unknown {
            true => KeyRule::AllReadAndMore(vec![false; columns.len()]),
            false => KeyRule::Some,
        };
        let is_field = |at: &usize| parts.iter().all(|(_, column)| column != at);
        let conversion = source.conversion;
        let json = || RowSchema::new(&columns, conversion, keys).of_messages();
        let values = match (options.format, &options.registry) {
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
    ) -> Result<ItemRows<'a>> {
        let defaults = default_row(&self.schema, arena);
        let mut read = ItemRows::default();
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
    read: &mut ItemRows<'a>,
    arena: &'a Arena,
) {
    if parts.is_empty() {
        return;
    }
    let ItemRows { rows, bad } = read;
    rows.retain_mut(|row| {
        for (part, column) in parts {
            match part.value(&messages[row.at], &columns[*column].1, arena) {
                Ok(value) => row.values[*column] = value,
                Err(error) => {
                    bad.push(BadRow { at: row.at, reason: reason_of(&error) });
                    return false;
                }
            }
        }
        true
    });
    bad.sort_by_key(|bad| bad.at);
}

impl MessagePart {
    /// Finds the column that takes it.
    fn column(self, named: &NamedColumn, schema: &TableSchema) -> Result<usize> {
        let takes = |data_type: &DataType| match self {
            Self::Key | Self::Headers => *data_type == DataType::String,
            Self::Partition => matches!(data_type, DataType::Int | DataType::BigInt),
            Self::Offset => *data_type == DataType::BigInt,
            Self::Time => *data_type == DataType::Timestamp,
        };
        let expected = match self {
            Self::Key | Self::Headers => "STRING",
            Self::Partition => "INT or BIGINT",
            Self::Offset => "BIGINT",
            Self::Time => "TIMESTAMP",
        };
        named.find(schema, takes, expected)
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

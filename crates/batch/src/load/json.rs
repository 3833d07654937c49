//! The reader of JSON: an object on each line, or one array of objects.
//!
//! A column is read from the member of its name. Numbers are read from their digits as CAST reads
//! them, a TIMESTAMP as integer milliseconds or as text; a STRING takes the text of any other value
//! as it was written. A member that is `null` or absent is NULL.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    io::{BufRead, BufReader, Read},
    sync::Arc,
};

use ::arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    FileReader, LoadTarget, OnError, Skipped,
    columns::Note,
    csv,
    location::{BytesRead, InputFile},
};
use crate::error::from_io_at;

/// The longest line, in bytes: a file of another format may have no line ends.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The members of an object, in the written order.
#[derive(Debug)]
pub(super) struct JsonMembers<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct MembersOfObject;
        impl<'de> Visitor<'de> for MembersOfObject {
            type Value = JsonMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(
                self,
                mut map: M,
            ) -> std::result::Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((Cow::Owned(name), value));
                }
                Ok(JsonMembers(members))
            }
        }
        deserializer.deserialize_map(MembersOfObject)
    }
}

/// A cursor over the objects of a file.
pub(super) struct JsonObjects {
    file: InputFile,
    input: BufReader<Box<dyn Read + Send>>,
    read: BytesRead,
    /// The objects of an array, the next one last.
    array: Option<Vec<Box<RawValue>>>,
    line: Vec<u8>,
    /// The number of the line, or of the object of an array, from 1.
    number: u64,
}

impl fmt::Debug for JsonObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonObjects").field("file", &self.file).finish_non_exhaustive()
    }
}

impl JsonObjects {
    /// Opens a file.
    pub(super) fn open(file: InputFile) -> Result<Self> {
        let read = BytesRead::default();
        let input = BufReader::new(file.text(&read)?);
        let mut objects = Self { file, input, read, array: None, line: Vec::new(), number: 0 };
        if objects.begins_array()? {
            let mut text = Vec::new();
            let read = objects.input.read_to_end(&mut text);
            read.map_err(|error| from_io_at(&error, "read", &objects.file))?;
            let mut array: Vec<Box<RawValue>> = serde_json::from_slice(&text)
                .map_err(|error| objects.error(&format!("the array ends early: {error}")))?;
            array.reverse();
            objects.array = Some(array);
        }
        Ok(objects)
    }

    fn begins_array(&mut self) -> Result<bool> {
        loop {
            let begin = self.input.fill_buf();
            let begin = begin.map_err(|error| from_io_at(&error, "read", &self.file))?;
            let blank = begin.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            match begin.get(blank) {
                Some(byte) => return Ok(*byte == b'['),
                None if begin.is_empty() => return Ok(false),
                None => self.input.consume(blank),
            }
        }
    }

    /// Moves to the next object; `false` at the end. Empty lines are skipped.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if let Some(array) = &mut self.array {
            self.number += 1;
            let Some(next) = array.pop() else { return Ok(false) };
            self.line.clear();
            self.line.extend_from_slice(next.get().as_bytes());
            return Ok(true);
        }
        loop {
            self.line.clear();
            self.number += 1;
            let mut limited = (&mut self.input).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| from_io_at(&error, "read", &self.file))?;
            if u64::try_from(read).unwrap_or(u64::MAX) >= LINE_BYTES_MAX {
                return Err(self.error("the line is too long for an object"));
            }
            if read == 0 || !self.line.trim_ascii().is_empty() {
                return Ok(read > 0);
            }
        }
    }

    /// Returns how many bytes of the file were read; of an array, its part up to this object.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number for a progress bar"
    )]
    fn bytes_read(&self) -> u64 {
        let read = self.read.get();
        let Some(left) = &self.array else { return read };
        let all = self.number + left.len() as u64;
        (read as f64 * self.number as f64 / all.max(1) as f64) as u64
    }

    /// Returns the members of the object.
    pub(super) fn members(&self) -> Result<JsonMembers<'_>> {
        serde_json::from_slice(&self.line).map_err(|error| {
            let what = error.to_string();
            let what = what.split(" at line").next().unwrap_or_default().to_owned();
            let mut diagnostic = self.error(&format!("not an object: {what}"));
            diagnostic.hint = Some("Each line is one JSON object.".to_owned());
            diagnostic
        })
    }

    fn error(&self, what: &str) -> Box<Diagnostic> {
        let unit = if self.array.is_some() { "object" } else { "line" };
        let message = format!("file `{}`, {unit} {}: {what}", self.file, self.number);
        Box::new(Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData))
    }
}

/// Returns the text of a JSON text; `None` for another value.
pub(super) fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let written = value.get();
    if !written.starts_with('"') {
        return None;
    }
    let inner = &written[1..written.len() - 1];
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(written).ok().map(Cow::Owned)
}

/// A value that may own its text.
enum JsonValue<'a> {
    Datum(Datum<'a>),
    Text(Cow<'a, str>),
}

/// An open JSON file.
#[derive(Debug)]
pub(super) struct JsonFile {
    target: Arc<LoadTarget>,
    objects: JsonObjects,
    /// The column of each name.
    names: HashMap<String, usize>,
    builders: Vec<ColumnBuilder>,
}

impl JsonFile {
    /// Opens a file.
    pub(super) fn open(target: Arc<LoadTarget>, file: InputFile) -> Result<Self> {
        let columns = target.schema.columns.iter().enumerate();
        let names = columns.map(|(at, column)| (column.name.clone(), at)).collect();
        let builders = target.builders();
        Ok(Self { objects: JsonObjects::open(file)?, target, names, builders })
    }

    /// Reads the values of the columns that are read.
    fn row(&self) -> Result<Vec<JsonValue<'_>>> {
        let members = self.objects.members()?;
        let mut found: Vec<Option<&RawValue>> = vec![None; self.target.schema.columns.len()];
        for (name, value) in members.0 {
            if let Some(column) = self.names.get(name.as_ref()) {
                found[*column] = Some(value);
            }
        }
        debug_assert!(
            self.target.columns.iter().all(|column| *column < found.len()),
            "of the table"
        );
        self.target.columns.iter().map(|column| self.value(*column, found[*column])).collect()
    }

    fn value<'v>(&'v self, column: usize, value: Option<&'v RawValue>) -> Result<JsonValue<'v>> {
        let declared = &self.target.schema.columns[column];
        let Some(value) = value else {
            // An object without a member has no value, whatever the other files have.
            let is_null = self.objects.file.folder_value(&declared.name).is_none()
                && declared.nullable
                && declared.default.is_none();
            let absent = match is_null {
                true => Datum::Null,
                false => self.target.default_of(column, &self.objects.file)?,
            };
            return Ok(JsonValue::Datum(absent));
        };
        let read = match value.get() {
            "null" => Some(JsonValue::Datum(Datum::Null)),
            _ => read(value, &declared.data_type, &self.target),
        };
        match read {
            Some(JsonValue::Datum(Datum::Null)) if !declared.nullable => {
                let what = format!("column `{}` does not take NULL", declared.name);
                let mut error = self.objects.error(&what);
                error.code = code::NOT_NULL_VIOLATION;
                Err(error)
            }
            Some(value) => Ok(value),
            None => {
                let shown = csv::shorten(value.get());
                let (name, data_type) = (&declared.name, &declared.data_type);
                Err(self.objects.error(&format!("column `{name}`: `{shown}` is no {data_type}")))
            }
        }
    }
}

/// Reads a value as one of a type; `None` when it is none.
fn read<'v>(
    value: &'v RawValue,
    data_type: &DataType,
    target: &LoadTarget,
) -> Option<JsonValue<'v>> {
    let text = text_of(value);
    if *data_type == DataType::String {
        return Some(JsonValue::Text(text.unwrap_or(Cow::Borrowed(value.get()))));
    }
    match text {
        Some(Cow::Borrowed(text)) => {
            csv::parse(text, data_type, target.settings).map(JsonValue::Datum)
        }
        // No number or time needs an escape.
        Some(Cow::Owned(_)) => None,
        None => csv::parse(value.get(), data_type, target.settings).map(JsonValue::Datum),
    }
}

impl FileReader for JsonFile {
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>> {
        let mut row_count = 0;
        let mut builders = std::mem::take(&mut self.builders);
        while row_count < super::FILE_BATCH_ROWS && self.objects.advance()? {
            match self.row() {
                Ok(row) => {
                    for (builder, value) in builders.iter_mut().zip(&row) {
                        match value {
                            JsonValue::Datum(datum) => builder.push(*datum),
                            JsonValue::Text(text) => builder.push(Datum::String(text)),
                        }
                    }
                    row_count += 1;
                }
                Err(error) => match self.target.options.csv.on_error {
                    OnError::Fail => return Err(error),
                    OnError::Skip => skipped.add(error),
                },
            }
        }
        let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
        self.builders = builders;
        match row_count {
            0 => Ok(None),
            _ => self.target.batch(columns, row_count).map(Some),
        }
    }

    fn bytes_read(&self) -> u64 {
        self.objects.bytes_read()
    }

    fn take_notes(&mut self) -> Vec<Note> {
        Vec::new()
    }
}

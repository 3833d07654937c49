//! The reader of JSON: an object on each line, or one array of objects.
//!
//! A column is read from the member of its name. Numbers are read from their digits as CAST reads
//! them, a TIMESTAMP as integer milliseconds or as text; a STRING takes the text of any other value
//! as it was written. A member that is `null` or absent is NULL.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
    io::{BufRead, BufReader, Read},
    sync::Arc,
};

use ::arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Settings;
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    ColumnMatch, FileReader, LoadTarget, OnError, Skipped, UnknownColumns,
    columns::Note,
    csv,
    csv_records::read_text,
    location::{BytesRead, InputFile, TextInput},
};
use crate::error::from_io_at;

/// Maximum size of the text of an object, in bytes: a file of another format may have no line ends.
const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// What is wrong with an escape that the parser refuses.
const ESCAPE_HINT: &str =
    "Write a character above U+FFFF as two escapes, for example \\ud83d\\ude00.";

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
    input: BufReader<TextInput>,
    read: BytesRead,
    layout: ObjectLayout,
    /// The text of the object.
    text: Vec<u8>,
    /// The line in which the object begins, from 1.
    line: u64,
    /// The number of line ends read so far.
    lines_read: u64,
}

/// How the objects follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectLayout {
    /// Each on a line of its own.
    Lines,
    /// In an array.
    Array(ArrayPart),
}

/// The position in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayPart {
    /// Before its first item, or its end.
    Start,
    /// After a comma.
    Item,
    /// After its end.
    End,
}

/// A search for the end of an item of an array, which continues over parts of the text.
#[derive(Debug, Default)]
struct ItemEnd {
    depth: usize,
    is_string: bool,
    is_escaped: bool,
}

impl ItemEnd {
    /// Finds the comma or the bracket after the item in the next part of the text.
    fn find(&mut self, part: &[u8]) -> Option<usize> {
        part.iter().position(|byte| {
            if self.is_string {
                self.is_string = *byte != b'"' || self.is_escaped;
                self.is_escaped = *byte == b'\\' && !self.is_escaped;
                return false;
            }
            match byte {
                b'"' => self.is_string = true,
                b'{' | b'[' => self.depth += 1,
                b',' | b']' if self.depth == 0 => return true,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            false
        })
    }
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
        let (layout, text) = (ObjectLayout::Lines, Vec::new());
        let mut objects = Self { file, input, read, layout, text, line: 1, lines_read: 0 };
        if objects.skip_blanks()? == Some(b'[') {
            objects.input.consume(1);
            objects.layout = ObjectLayout::Array(ArrayPart::Start);
        }
        Ok(objects)
    }

    /// Skips blanks and line ends, and returns the byte after them; `None` at the end of the file.
    fn skip_blanks(&mut self) -> Result<Option<u8>> {
        loop {
            let part = self.input.fill_buf();
            let part = part.map_err(|error| from_io_at(&error, "read", &self.file))?;
            let blanks = part.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let (next, is_end) = (part.get(blanks).copied(), part.is_empty());
            self.lines_read += line_ends(&part[..blanks]);
            self.input.consume(blanks);
            if next.is_some() || is_end {
                return Ok(next);
            }
        }
    }

    /// Moves to the next object; `false` at the end. Empty lines are skipped.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let next = self.skip_blanks()?;
        self.text.clear();
        self.line = self.lines_read + 1;
        match (self.layout, next) {
            (ObjectLayout::Lines, None) => Ok(false),
            (ObjectLayout::Lines, Some(_)) => self.read_line().map(|()| true),
            (ObjectLayout::Array(ArrayPart::End), None) => Ok(false),
            (ObjectLayout::Array(ArrayPart::End), Some(_)) => {
                Err(self.error("unexpected text after the array"))
            }
            (ObjectLayout::Array(ArrayPart::Start), Some(b']')) => {
                self.input.consume(1);
                self.layout = ObjectLayout::Array(ArrayPart::End);
                self.advance()
            }
            (ObjectLayout::Array(_), _) => self.read_item().map(|()| true),
        }
    }

    fn read_line(&mut self) -> Result<()> {
        let mut limited = (&mut self.input).take(OBJECT_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut self.text);
        let read = read.map_err(|error| from_io_at(&error, "read", &self.file))?;
        if u64::try_from(read).unwrap_or(u64::MAX) >= OBJECT_BYTES_MAX {
            return Err(self.too_long("line"));
        }
        self.lines_read += line_ends(&self.text);
        self.text.truncate(self.text.trim_ascii_end().len());
        Ok(())
    }

    /// Reads the text of an item of an array up to the comma or the bracket after it, which is consumed.
    fn read_item(&mut self) -> Result<()> {
        let mut item = ItemEnd::default();
        loop {
            let part = self.input.fill_buf();
            let part = part.map_err(|error| from_io_at(&error, "read", &self.file))?;
            if part.is_empty() {
                self.line = self.lines_read + 1;
                return Err(self.error("unterminated array"));
            }
            let end = item.find(part);
            let text = &part[..end.unwrap_or(part.len())];
            self.text.extend_from_slice(text);
            self.lines_read += line_ends(text);
            let last = end.and_then(|end| part.get(end)).copied();
            let consumed = text.len() + usize::from(last.is_some());
            self.input.consume(consumed);
            if let Some(last) = last {
                let is_end = last == b']';
                self.layout =
                    ObjectLayout::Array(if is_end { ArrayPart::End } else { ArrayPart::Item });
                return Ok(());
            }
            if u64::try_from(self.text.len()).unwrap_or(u64::MAX) >= OBJECT_BYTES_MAX {
                return Err(self.too_long("array element"));
            }
        }
    }

    /// Returns how many bytes of the file were read.
    fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    /// Returns the members of the object.
    pub(super) fn members(&self) -> Result<JsonMembers<'_>> {
        serde_json::from_slice(&self.text).map_err(|error| {
            let what = error.to_string();
            let what = what.split(" at line").next().unwrap_or_default().to_owned();
            let line = self.line + u64::try_from(error.line().saturating_sub(1)).unwrap_or(0);
            let mut diagnostic = self.error_in(line, &format!("invalid JSON object: {what}"));
            let hint = match self.layout {
                ObjectLayout::Lines => "Write one JSON object on each line.",
                ObjectLayout::Array(_) => "Write each array element as a JSON object.",
            };
            diagnostic.hint = Some(hint.to_owned());
            diagnostic
        })
    }

    /// Returns the text of a value that is a text; `None` for another value.
    pub(super) fn text_of<'v>(
        &self,
        name: &str,
        value: &'v RawValue,
    ) -> Result<Option<Cow<'v, str>>> {
        let written = value.get();
        let Some(inner) = written.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'))
        else {
            return Ok(None);
        };
        if !inner.contains('\\') {
            return Ok(Some(Cow::Borrowed(inner)));
        }
        // The parser of values does not examine the escapes.
        let text = serde_json::from_str::<String>(written).map_err(|_error| {
            let shown = csv::shorten(written);
            let mut diagnostic =
                self.error(&format!("column `{name}`: invalid JSON string {shown}"));
            diagnostic.hint = Some(ESCAPE_HINT.to_owned());
            diagnostic
        })?;
        Ok(Some(Cow::Owned(text)))
    }

    /// Makes an error about the object.
    fn error(&self, what: &str) -> Box<Diagnostic> {
        self.error_in(self.line, what)
    }

    /// Makes the error of an object whose text is too long.
    fn too_long(&self, what: &str) -> Box<Diagnostic> {
        self.error(&format!("{what} exceeds the limit of {} MiB", OBJECT_BYTES_MAX >> 20))
    }

    fn error_in(&self, line: u64, what: &str) -> Box<Diagnostic> {
        let message = format!("file `{}`, line {line}: {what}", self.file);
        Box::new(Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData))
    }
}

fn line_ends(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// A value that may own its text.
enum JsonValue<'a> {
    Datum(Datum<'a>),
    Text(Cow<'a, str>),
}

impl JsonValue<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Datum(Datum::String(text)) => Some(text),
            Self::Datum(_) => None,
            Self::Text(text) => Some(text),
        }
    }
}

/// An open JSON file.
#[derive(Debug)]
pub(super) struct JsonFile {
    objects: JsonObjects,
    rows: JsonRows,
    builders: Vec<ColumnBuilder>,
    /// The keys that are no columns and were not noted yet.
    ignored: IgnoredKeys,
    /// The error behind the rows of the last batch.
    failed: Option<Box<Diagnostic>>,
}

/// What makes rows of objects.
#[derive(Debug)]
struct JsonRows {
    target: Arc<LoadTarget>,
    /// The column of each name.
    names: HashMap<String, usize>,
}

/// The most keys that are no columns that are noted.
const IGNORED_KEYS_MAX: usize = 20;

/// The keys of a file that are no columns.
#[derive(Debug, Default)]
struct IgnoredKeys {
    known: HashSet<String>,
    new: Vec<String>,
}

impl IgnoredKeys {
    fn add(&mut self, name: &str) {
        if self.known.len() < IGNORED_KEYS_MAX && !self.known.contains(name) {
            self.known.insert(name.to_owned());
            self.new.push(name.to_owned());
        }
    }
}

impl JsonFile {
    /// Opens a file.
    pub(super) fn open(target: Arc<LoadTarget>, file: InputFile) -> Result<Self> {
        let columns = target.schema.columns.iter().enumerate();
        let names = columns.map(|(at, column)| (column.name.clone(), at)).collect();
        let builders = target.builders();
        let objects = JsonObjects::open(file)?;
        let ignored = IgnoredKeys::default();
        let rows = JsonRows { target, names };
        Ok(Self { objects, rows, builders, ignored, failed: None })
    }
}

impl JsonRows {
    /// Reads the values of the columns that are read.
    fn row<'o>(
        &'o self,
        objects: &'o JsonObjects,
        ignored: &mut IgnoredKeys,
    ) -> Result<Vec<JsonValue<'o>>> {
        let target = &self.target;
        let members = objects.members()?;
        let mut found: Vec<Option<&RawValue>> = vec![None; target.schema.columns.len()];
        let is_strict = target.options.unknown_columns == UnknownColumns::Fail
            && target.options.columns != ColumnMatch::OpenMldb;
        for (name, value) in members.0 {
            match self.names.get(name.as_ref()) {
                Some(column) if found[*column].is_some() => {
                    return Err(objects.error(&format!("duplicate key `{name}`")));
                }
                Some(column) => found[*column] = Some(value),
                None if is_strict => return Err(self.unknown_key(objects, &name)),
                None => ignored.add(&name),
            }
        }
        debug_assert!(target.columns.iter().all(|column| *column < found.len()), "of the table");
        let columns = target.columns.iter();
        columns.map(|column| self.value(objects, *column, found[*column])).collect()
    }

    fn unknown_key(&self, objects: &JsonObjects, name: &str) -> Box<Diagnostic> {
        let columns = &self.target.schema.columns;
        let known = columns.iter().map(|column| column.name.as_str());
        let mut error = objects.error(&format!("key `{name}` is not a column of the table"));
        error.code = code::UNDEFINED_COLUMN;
        let detail = "OPTIONS(unknown_columns = 'ignore') skips such keys.";
        Box::new(error.with_nearest(name, known).with_detail(detail))
    }

    fn value<'o>(
        &'o self,
        objects: &'o JsonObjects,
        column: usize,
        value: Option<&'o RawValue>,
    ) -> Result<JsonValue<'o>> {
        let declared = &self.target.schema.columns[column];
        let Some(value) = value else {
            // An object without a member has no value, whatever the other files have.
            let is_null = objects.file.folder_value(&declared.name).is_none()
                && declared.nullable
                && declared.default.is_none();
            let absent = match is_null {
                true => Datum::Null,
                false => self.target.default_of(column, &objects.file)?,
            };
            return Ok(JsonValue::Datum(absent));
        };
        let read = match value.get() {
            "null" => Some(JsonValue::Datum(Datum::Null)),
            _ => {
                let text = objects.text_of(&declared.name, value)?;
                read(value, text, &declared.data_type, &self.target.settings)
            }
        };
        match read {
            Some(JsonValue::Datum(Datum::Null)) if !declared.nullable => {
                let what = format!(
                    "null value in column `{}` violates not-null constraint",
                    declared.name
                );
                let mut error = objects.error(&what);
                error.code = code::NOT_NULL_VIOLATION;
                Err(error)
            }
            Some(value) => {
                let checked = value.text().map_or(Ok(()), |text| declared.check_length(text));
                checked.map_err(|too_long| {
                    let mut error = objects.error(&too_long.to_string());
                    error.code = code::STRING_TOO_LONG;
                    error
                })?;
                Ok(value)
            }
            None => {
                let invalid = csv::invalid_input(&declared.data_type, value.get());
                Err(objects.error(&format!("column `{}`: {invalid}", declared.name)))
            }
        }
    }
}

/// Reads a value, which is this text or none, as one of a type; `None` where it is not one.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
fn read<'v>(
    value: &'v RawValue,
    text: Option<Cow<'v, str>>,
    data_type: &DataType,
    settings: &Settings,
) -> Option<JsonValue<'v>> {
    if *data_type == DataType::String {
        return Some(JsonValue::Text(text.unwrap_or(Cow::Borrowed(value.get()))));
    }
    match text {
        Some(Cow::Borrowed(text)) => read_text(text, data_type, settings).map(JsonValue::Datum),
        // No number or time needs an escape.
        Some(Cow::Owned(_)) => None,
        None => read_text(value.get(), data_type, settings).map(JsonValue::Datum),
    }
}

impl FileReader for JsonFile {
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut row_count = 0;
        let mut builders = std::mem::take(&mut self.builders);
        while row_count < super::FILE_BATCH_ROWS && !skipped.is_full() {
            match self.objects.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if row_count == 0 => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            match self.rows.row(&self.objects, &mut self.ignored) {
                Ok(row) => {
                    for (builder, value) in builders.iter_mut().zip(&row) {
                        match value {
                            JsonValue::Datum(datum) => builder.push(*datum),
                            JsonValue::Text(text) => builder.push(Datum::String(text)),
                        }
                    }
                    row_count += 1;
                }
                Err(error) => match self.rows.target.options.csv.on_error {
                    OnError::Fail => return Err(error),
                    OnError::Skip => {
                        let JsonObjects { file, line, text, .. } = &self.objects;
                        let text = || String::from_utf8_lossy(text).into_owned();
                        skipped.add(error, row_count, (file, *line), text);
                    }
                },
            }
        }
        let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
        self.builders = builders;
        match row_count {
            0 if !skipped.is_full() => Ok(None),
            _ => self.rows.target.batch(columns, row_count).map(Some),
        }
    }

    fn bytes_read(&self) -> u64 {
        self.objects.bytes_read()
    }

    fn take_notes(&mut self) -> Vec<Note> {
        let new = std::mem::take(&mut self.ignored.new);
        if new.is_empty() { Vec::new() } else { vec![Note::Unknown(new)] }
    }
}

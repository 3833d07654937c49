//! Rows from JSON: straight from bytes into values of a schema's types, without a tree in between.
//!
//! A row is an object, whose keys are columns, or an array with a value for each column. Conversions
//! are those of Python values: no digit is lost and no text is read as a number, except the words for
//! numbers that JSON does not have (`"NaN"`, `"Infinity"`, `"-Infinity"`).
//!
//! # Cost
//!
//! Text without escapes is borrowed from the body. A key is compared with the column behind the last
//! one; only where it differs is it looked up.

use std::{cell::RefCell, collections::HashMap, fmt};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{Conversion, time_text_error};
use lockstep_row::{Arena, DataType, Datum, Value};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use serde_json::value::RawValue;

use super::error::HttpError;

/// The columns of rows, and how their values are converted.
#[derive(Debug)]
pub(crate) struct RowSchema {
    columns: Vec<(String, DataType)>,
    positions: HashMap<String, usize>,
    conversion: Conversion,
    keys: KeyRule,
}

/// What an object's keys may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRule {
    /// All columns, and others, which are ignored: request rows.
    AllAndMore,
    /// Some columns and nothing else: rows of a table, which has defaults.
    Some,
}

/// The form of rows, which an answer takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonRowForm {
    /// Objects by column.
    Objects,
    /// Arrays of values.
    Arrays,
}

/// The rows of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyForm {
    pub(crate) rows: JsonRowForm,
    /// Whether it is an array of rows; otherwise it is one row.
    pub(crate) is_array: bool,
}

impl BodyForm {
    /// Returns the form of a body by its first characters.
    pub(crate) fn of(body: &[u8]) -> Self {
        let mut marks = body.iter().filter(|byte| !byte.is_ascii_whitespace());
        match (marks.next(), marks.next()) {
            (Some(b'['), Some(b'{')) => Self { rows: JsonRowForm::Objects, is_array: true },
            (Some(b'['), Some(b'[' | b']')) => Self { rows: JsonRowForm::Arrays, is_array: true },
            (Some(b'['), _) => Self { rows: JsonRowForm::Arrays, is_array: false },
            _ => Self { rows: JsonRowForm::Objects, is_array: false },
        }
    }
}

/// One row: its values, and which columns it has.
#[derive(Debug)]
pub(crate) struct JsonRow<'a> {
    pub(crate) values: &'a [Datum<'a>],
    pub(crate) present: &'a [bool],
}

impl RowSchema {
    /// Makes a schema of columns.
    pub(crate) fn new(
        columns: &[(String, DataType)],
        conversion: Conversion,
        keys: KeyRule,
    ) -> Self {
        let named = columns.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
        Self { columns: columns.to_vec(), positions: named.collect(), conversion, keys }
    }

    /// Returns the columns.
    pub(crate) fn columns(&self) -> &[(String, DataType)] {
        &self.columns
    }

    /// Reads the one row of a body.
    pub(crate) fn read_row<'a>(
        &self,
        body: &'a [u8],
        arena: &'a Arena,
    ) -> Result<JsonRow<'a>, HttpError> {
        let failure = RefCell::default();
        let reader = RowReader { schema: self, arena, failure: &failure };
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let row = reader.deserialize(&mut deserializer);
        let row = row.and_then(|row| deserializer.end().map(|()| row));
        row.map_err(|error| cause_of(&failure, &error))
    }

    /// Reads the rows of a body that is an array of rows, each passed to `give`. They share the memory of
    /// one row.
    pub(crate) fn read_array(
        &self,
        body: &[u8],
        give: impl FnMut(&JsonRow<'_>) -> Result<(), HttpError>,
    ) -> Result<(), HttpError> {
        let failure = RefCell::default();
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let visitor = ArrayVisitor { schema: self, failure: &failure, give };
        let read = deserializer.deserialize_seq(visitor);
        let read = read.and_then(|()| deserializer.end());
        read.map_err(|error| cause_of(&failure, &error))
    }

    /// Reads rows that follow each other, as in NDJSON, each passed to `give`. They share the memory of
    /// one row.
    pub(crate) fn read_lines(
        &self,
        body: &[u8],
        mut give: impl FnMut(&JsonRow<'_>) -> Result<(), HttpError>,
    ) -> Result<(), HttpError> {
        let lines = body.split(|byte| *byte == b'\n');
        let mut arena = Arena::new();
        for (at, line) in lines.enumerate().filter(|(_, line)| !line.trim_ascii().is_empty()) {
            let row = self.read_row(line, &arena).map_err(|mut error| {
                let place = format!("It is in line {} of the body.", at + 1);
                error.diagnostic.detail.get_or_insert(place);
                error
            })?;
            give(&row)?;
            arena.reset();
        }
        Ok(())
    }

    /// Finds a column by its name; `expected` is where it is if the keys are in order.
    fn find(&self, name: &str, expected: usize) -> Option<usize> {
        let is_next = self.columns.get(expected).is_some_and(|(next, _)| next == name);
        if is_next { Some(expected) } else { self.positions.get(name).copied() }
    }
}

/// Reads one row.
#[derive(Clone, Copy)]
struct RowReader<'s, 'a> {
    schema: &'s RowSchema,
    arena: &'a Arena,
    /// What is wrong, where that is more than the parser says.
    failure: &'s RefCell<Option<HttpError>>,
}

impl RowReader<'_, '_> {
    /// Notes what is wrong, and returns the error that ends the parser.
    fn fail<E: Error>(&self, error: impl Into<HttpError>) -> E {
        let error = error.into();
        let ended = E::custom(&error.diagnostic.message);
        self.failure.borrow_mut().get_or_insert(error);
        ended
    }
}

/// Returns the error of a parser that has ended.
fn cause_of(failure: &RefCell<Option<HttpError>>, error: &serde_json::Error) -> HttpError {
    failure.take().unwrap_or_else(|| {
        let message = format!("the body is not as expected: {error}");
        Diagnostic::new(code::INVALID_TEXT, message)
            .with_hint("A row is a JSON object with the columns, or an array of their values.")
            .into()
    })
}

impl<'de: 'a, 'a> DeserializeSeed<'de> for RowReader<'_, 'a> {
    type Value = JsonRow<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for RowReader<'_, 'a> {
    type Value = JsonRow<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row, which is an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonRow<'a>, A::Error> {
        let Self { schema, arena, .. } = self;
        let values = arena.alloc_slice_fill_copy(schema.columns.len(), Datum::Null);
        let present = arena.alloc_slice_fill_copy(schema.columns.len(), false);
        let mut expected = 0;
        while let Some(at) = map.next_key_seed(KeyReader { row: self, expected })? {
            let Some(at) = at else {
                let _ignored: IgnoredAny = map.next_value()?;
                continue;
            };
            if std::mem::replace(&mut present[at], true) {
                let message = format!("the row has column `{}` twice", schema.columns[at].0);
                return Err(self.fail(Diagnostic::new(code::AMBIGUOUS_COLUMN, message)));
            }
            values[at] = map.next_value_seed(ValueReader { row: self, at })?;
            expected = at + 1;
        }
        if schema.keys == KeyRule::AllAndMore
            && let Some(at) = present.iter().position(|is_present| !is_present)
        {
            let (name, data_type) = &schema.columns[at];
            let message = format!("column `{name}` is missing; it is {data_type}");
            let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
            let hint = "Give null for NULL. Names are case sensitive.";
            return Err(self.fail(diagnostic.with_kind(Kind::FixData).with_hint(hint)));
        }
        Ok(JsonRow { values, present })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonRow<'a>, A::Error> {
        let Self { schema, arena, .. } = self;
        let values = arena.alloc_slice_fill_copy(schema.columns.len(), Datum::Null);
        let mut count = 0;
        while count < values.len() {
            match items.next_element_seed(ValueReader { row: self, at: count })? {
                Some(value) => values[count] = value,
                None => break,
            }
            count += 1;
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        if count != values.len() {
            let message = format!("the row has {count} values, found {} columns", values.len());
            let names: Vec<&str> = schema.columns.iter().map(|(name, _)| name.as_str()).collect();
            let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .with_detail(format!("The columns are {}.", names.join(", ")));
            return Err(self.fail(diagnostic));
        }
        let present = arena.alloc_slice_fill_copy(values.len(), true);
        Ok(JsonRow { values, present })
    }
}

/// Reads the rows of an array.
struct ArrayVisitor<'s, F> {
    schema: &'s RowSchema,
    failure: &'s RefCell<Option<HttpError>>,
    give: F,
}

impl<'de, F> Visitor<'de> for ArrayVisitor<'_, F>
where
    F: FnMut(&JsonRow<'_>) -> Result<(), HttpError>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut rows: A) -> Result<(), A::Error> {
        let Self { schema, failure, .. } = self;
        let mut arena = Arena::new();
        loop {
            let reader = RowReader { schema, arena: &arena, failure };
            let Some(row) = rows.next_element_seed(reader)? else { return Ok(()) };
            (self.give)(&row).map_err(|error| reader.fail(error))?;
            arena.reset();
        }
    }
}

/// Reads a key as the position of a column; `None` for another key that may be there.
struct KeyReader<'s, 'a> {
    row: RowReader<'s, 'a>,
    expected: usize,
}

impl<'de> DeserializeSeed<'de> for KeyReader<'_, '_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyReader<'_, '_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        let schema = self.row.schema;
        let found = schema.find(name, self.expected);
        if found.is_some() || schema.keys == KeyRule::AllAndMore {
            return Ok(found);
        }
        let message = format!("the table has no column `{name}`");
        let names = schema.columns.iter().map(|(name, _)| name.as_str());
        let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
        Err(self.row.fail(diagnostic.with_nearest(name, names)))
    }
}

/// Reads the value of a column.
#[derive(Clone, Copy)]
struct ValueReader<'s, 'a> {
    row: RowReader<'s, 'a>,
    at: usize,
}

impl ValueReader<'_, '_> {
    fn data_type(&self) -> &DataType {
        &self.row.schema.columns[self.at].1
    }

    /// Makes the error for a value of another type.
    fn mismatch<E: Error>(&self, found: &str) -> E {
        let (name, data_type) = &self.row.schema.columns[self.at];
        let message = format!("column `{name}` is {data_type}, {found} is not");
        let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message);
        self.row.fail(diagnostic.with_kind(Kind::FixData))
    }

    /// Makes the error for a number that the column does not hold.
    fn out_of_range<E: Error>(&self, found: &impl fmt::Display) -> E {
        let (name, data_type) = &self.row.schema.columns[self.at];
        let message = format!("column `{name}` is {data_type}, which does not hold {found}");
        self.row.fail(Diagnostic::new(code::OUT_OF_RANGE, message).with_kind(Kind::FixData))
    }

    /// Converts a whole number.
    #[expect(clippy::cast_precision_loss, reason = "a lost digit is detected")]
    #[expect(clippy::cast_possible_truncation, reason = "128 bits hold every such float")]
    fn whole<'a, E: Error>(&self, number: i128) -> Result<Datum<'a>, E> {
        let wrong = || self.out_of_range(&number);
        let big = || i64::try_from(number).map_err(|_error| wrong());
        let is_exact = |float: f64| (float as i128 == number).then_some(float);
        match self.data_type() {
            DataType::SmallInt => i16::try_from(number).ok().map(Datum::SmallInt),
            DataType::Int => i32::try_from(number).ok().map(Datum::Int),
            DataType::BigInt => return big().map(Datum::BigInt),
            DataType::Timestamp => return big().map(Datum::Timestamp),
            DataType::Double => is_exact(number as f64).map(Datum::Double),
            DataType::Float => {
                is_exact(f64::from(number as f32)).map(|_| Datum::Float(number as f32))
            }
            _ => return Err(self.mismatch(&format!("the number {number}"))),
        }
        .ok_or_else(wrong)
    }

    /// Converts a number with a point or an exponent.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    fn decimal<'a, E: Error>(&self, number: f64) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::Double => Ok(Datum::Double(number)),
            DataType::Float if (number as f32).is_infinite() => Err(self.out_of_range(&number)),
            _ if number.fract() == 0.0 && number.abs() < 1e18 => self.whole(number as i128),
            DataType::Float => Ok(Datum::Float(number as f32)),
            _ => Err(self.mismatch(&format!("the number {number}"))),
        }
    }

    /// Converts a text of a column that is no STRING.
    fn other_text<'a, E: Error>(&self, text: &str) -> Result<Datum<'a>, E> {
        let conversion = self.row.schema.conversion;
        let (name, data_type) = &self.row.schema.columns[self.at];
        match data_type {
            DataType::Date | DataType::Timestamp => match conversion.read_text(text, data_type) {
                Some(Value::Date(days)) => Ok(Datum::Date(days)),
                Some(Value::Timestamp(ms)) => Ok(Datum::Timestamp(ms)),
                _ => {
                    let place = format!("column `{name}`");
                    Err(self.row.fail(time_text_error(&place, text, data_type)))
                }
            },
            DataType::Float | DataType::Double => {
                let number = match text {
                    "NaN" if conversion.nan_is_null() => return Ok(Datum::Null),
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return Err(self.mismatch("a text")),
                };
                let is_double = *data_type == DataType::Double;
                #[expect(clippy::cast_possible_truncation, reason = "these have no digits")]
                let float = Datum::Float(number as f32);
                Ok(if is_double { Datum::Double(number) } else { float })
            }
            _ => Err(self.mismatch("a text")),
        }
    }
}

impl<'de: 'a, 'a> DeserializeSeed<'de> for ValueReader<'_, 'a> {
    type Value = Datum<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum<'a>, D::Error> {
        if !self.data_type().is_float() {
            return deserializer.deserialize_any(self);
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match number(text) {
            Some(number) if text.contains(['.', 'e', 'E']) => self.decimal(number),
            Some(number) => {
                text.parse().map_or_else(|_large| self.decimal(number), |n| self.whole(n))
            }
            None => {
                let mut inner = serde_json::Deserializer::from_str(text);
                inner.deserialize_any(self).map_err(D::Error::custom)
            }
        }
    }
}

/// Reads the text of a JSON number as the nearest DOUBLE, which the parser of JSON does not; `None` for
/// another value.
pub(crate) fn number(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

impl<'de: 'a, 'a> Visitor<'de> for ValueReader<'_, 'a> {
    type Value = Datum<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.data_type())
    }

    fn visit_unit<E: Error>(self) -> Result<Datum<'a>, E> {
        Ok(Datum::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::Bool => Ok(Datum::Bool(value)),
            _ => Err(self.mismatch(if value { "true" } else { "false" })),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Datum<'a>, E> {
        self.whole(i128::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Datum<'a>, E> {
        self.whole(i128::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Datum<'a>, E> {
        self.decimal(value)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::String => Ok(Datum::String(text)),
            _ => self.other_text(text),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::String => Ok(Datum::String(self.row.arena.alloc_str(text))),
            _ => self.other_text(text),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _items: A) -> Result<Datum<'a>, A::Error> {
        Err(self.mismatch("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _entries: A) -> Result<Datum<'a>, A::Error> {
        Err(self.mismatch("an object"))
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;
    use lockstep_row::{Arena, DataType, Datum};

    use super::{BodyForm, JsonRowForm, KeyRule, RowSchema};

    fn schema(keys: KeyRule) -> RowSchema {
        let types = [
            ("s", DataType::String),
            ("i", DataType::Int),
            ("b", DataType::BigInt),
            ("f", DataType::Float),
            ("d", DataType::Double),
            ("t", DataType::Timestamp),
            ("day", DataType::Date),
            ("is", DataType::Bool),
        ];
        let columns: Vec<_> = types.into_iter().map(|(name, t)| (name.to_owned(), t)).collect();
        let conversion = Database::in_memory().session().conversion();
        RowSchema::new(&columns, conversion, keys)
    }

    fn read(text: &str) -> Result<String, String> {
        let arena = Arena::new();
        let row = schema(KeyRule::AllAndMore);
        let row = row.read_row(text.as_bytes(), &arena);
        row.map(|row| format!("{:?}", row.values)).map_err(|error| error.diagnostic.message)
    }

    #[test]
    fn a_row_is_an_object_or_an_array() {
        let expected = [
            Datum::String("a\u{e9}"),
            Datum::Int(-1),
            Datum::BigInt(i64::MAX),
            Datum::Float(1.5),
            Datum::Double(0.1),
            Datum::Timestamp(90_000),
            Datum::Date(18_383),
            Datum::Bool(true),
        ];
        let expected = Ok(format!("{expected:?}"));
        let array = r#"["a\u00e9",-1,9223372036854775807,1.5,0.1,90000,"2020-05-01",true]"#;
        assert_eq!(read(array), expected);
        let object = r#" {"is":true,"more":[{}],"s":"aé","i":-1.0,"b":9223372036854775807,"f":1.5,
            "d":1e-1,"t":"1970-01-01T00:01:30Z","day":"2020-05-01"} "#;
        assert_eq!(read(object), expected);
    }

    #[test]
    fn numbers_are_read_with_all_digits() {
        let row = r#"[null,null,null,null,0.30000000000000004,null,null,null]"#;
        assert!(read(row).unwrap().contains("Double(0.30000000000000004)"));
        // The nearest double, which a parser that multiplies by powers of ten misses.
        for digits in ["2.2250738585072011e-308", "1.7976931348623157e308", "6.02214076e23", "1e23"]
        {
            let expected = format!("Double({:?})", digits.parse::<f64>().unwrap());
            let row = format!("[null,null,null,null,{digits},null,null,null]");
            assert!(read(&row).unwrap().contains(&expected), "{digits}");
        }
        let row = r#"[null,null,null,"NaN","-Infinity",null,null,null]"#;
        assert!(read(row).unwrap().contains("Float(NaN), Double(-inf)"));
    }

    #[test]
    fn what_is_no_value_of_its_column_is_refused() {
        for (text, message) in [
            (r#"{"s":1}"#, "column `s` is STRING, the number 1 is not"),
            (r#"{"i":"1"}"#, "column `i` is INT, a text is not"),
            (r#"{"i":1.5}"#, "column `i` is INT, the number 1.5 is not"),
            (r#"{"i":3000000000}"#, "column `i` is INT, which does not hold 3000000000"),
            (r#"{"b":18446744073709551615}"#, "does not hold 18446744073709551615"),
            (r#"{"d":9007199254740993}"#, "does not hold 9007199254740993"),
            (r#"{"f":1e300}"#, "column `f` is FLOAT, which does not hold"),
            (r#"{"day":"2020-13-01"}"#, "column `day` is DATE"),
            (r#"{"s":[]}"#, "an array is not"),
            (r#"{"s":"a","s":"b"}"#, "column `s` twice"),
            (r#"{"s":"a"}"#, "column `i` is missing; it is INT"),
            (r#"["a"]"#, "the row has 1 values, found 8 columns"),
            ("[1", "column `s`"),
            ("{", "the body is not as expected: EOF"),
            ("1", "expected a row"),
            ("", "EOF"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(message), "{text}: {found}");
        }
    }

    #[test]
    fn rows_of_a_table_may_lack_columns_but_have_no_others() {
        let table = schema(KeyRule::Some);
        let mut present = Vec::new();
        let rows = b"[{\"i\":1},\n {\"s\":\"a\",\"i\":2}]";
        let read = table.read_array(rows, |row| {
            present.push(row.present[..2].to_vec());
            Ok(())
        });
        assert_eq!((read, present), (Ok(()), vec![vec![false, true], vec![true, true]]));
        let error = table.read_lines(b"{\"i\":1}\n\n{\"ii\":2}\n", |_| Ok(()));
        let diagnostic = error.unwrap_err().diagnostic;
        assert_eq!(diagnostic.message, "the table has no column `ii`");
        assert_eq!(diagnostic.detail.as_deref(), Some("It is in line 3 of the body."));
    }

    #[test]
    fn a_body_has_one_row_or_many() {
        for (body, rows, is_array) in [
            ("{}", JsonRowForm::Objects, false),
            (" [ {", JsonRowForm::Objects, true),
            ("[[1]]", JsonRowForm::Arrays, true),
            ("[]", JsonRowForm::Arrays, true),
            ("[1,", JsonRowForm::Arrays, false),
            ("", JsonRowForm::Objects, false),
        ] {
            assert_eq!(BodyForm::of(body.as_bytes()), BodyForm { rows, is_array }, "{body}");
        }
    }
}

//! The readers of one row, of an array of rows, and of a key.
//!
//! Driven by the parser of JSON. What is wrong is noted as a diagnostic, since the parser's own error
//! is a text only.

use std::{cell::RefCell, fmt};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_host::failpoint;
use lockstep_row::{Arena, Datum};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{JsonRow, KeyRule, RowSchema, value_reader::ValueReader};
use crate::missing_columns;

/// Reads one row.
#[derive(Clone, Copy)]
pub(super) struct RowReader<'s, 'a> {
    pub(super) schema: &'s RowSchema,
    pub(super) arena: &'a Arena,
    /// What is wrong, where that is more than the parser says.
    pub(super) failure: &'s RefCell<Option<Box<Diagnostic>>>,
}

impl RowReader<'_, '_> {
    /// Notes what is wrong, and returns the error that ends the parser.
    pub(super) fn fail<E: Error>(&self, error: impl Into<Box<Diagnostic>>) -> E {
        let error = error.into();
        let ended = E::custom(&error.message);
        self.failure.borrow_mut().get_or_insert(error);
        ended
    }

    /// Makes the error for an object without columns that the answer depends on.
    #[cold]
    fn missing(&self, reads: &[bool], present: &[bool], others: OtherKeys<'_>) -> Diagnostic {
        let marks = reads.iter().zip(present);
        let columns = self.schema.columns.iter().zip(marks);
        let lacking = columns.filter(|(_, (is_read, is_present))| **is_read && !**is_present);
        let lacking: Vec<_> = lacking.map(|((name, t), _)| (name.as_str(), t)).collect();
        missing_columns(&lacking, others.names.into_iter().take(others.count))
    }
}

/// The first keys of a row that are no columns: an error of a missing column compares them.
#[derive(Debug, Clone, Copy, Default)]
struct OtherKeys<'a> {
    names: [&'a str; 8],
    count: usize,
}

impl<'a> OtherKeys<'a> {
    fn note(&mut self, name: &'a str) {
        if let Some(slot) = self.names.get_mut(self.count) {
            *slot = name;
            self.count += 1;
        }
    }
}

/// A key of a row.
enum RowKey<'a> {
    /// The position of a column.
    Column(usize),
    /// No column, which may be there.
    Other(&'a str),
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
        f.write_str("a row (an object or an array)")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonRow<'a>, A::Error> {
        let Self { schema, arena, .. } = self;
        let values = arena.alloc_slice_fill_copy(schema.columns.len(), Datum::Null);
        let present = arena.alloc_slice_fill_copy(schema.columns.len(), false);
        let mut expected = 0;
        let mut others = OtherKeys::default();
        while let Some(key) = map.next_key_seed(KeyReader { row: self, expected })? {
            let at = match key {
                RowKey::Column(at) => at,
                RowKey::Other(name) => {
                    others.note(name);
                    let _ignored: IgnoredAny = map.next_value()?;
                    continue;
                }
            };
            if std::mem::replace(&mut present[at], true) {
                let message = format!(
                    "column `{}` specified more than once in the row",
                    schema.columns[at].0
                );
                return Err(self.fail(Diagnostic::new(code::AMBIGUOUS_COLUMN, message)));
            }
            values[at] = map.next_value_seed(ValueReader { row: self, at })?;
            expected = at + 1;
        }
        if let KeyRule::AllReadAndMore(reads) = &schema.keys
            && reads.iter().zip(&*present).any(|(is_read, is_present)| *is_read && !is_present)
        {
            return Err(self.fail(self.missing(reads, present, others)));
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
            assert!(!failpoint::is_seeded("http_values_not_counted"), "a value without a column");
            count += 1;
        }
        if count != values.len() {
            let message =
                format!("the row has {count} values but {} columns are expected", values.len());
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
pub(super) struct ArrayVisitor<'s, F> {
    pub(super) schema: &'s RowSchema,
    pub(super) failure: &'s RefCell<Option<Box<Diagnostic>>>,
    pub(super) give: F,
}

impl<'de, F> Visitor<'de> for ArrayVisitor<'_, F>
where
    F: FnMut(&JsonRow<'_>) -> lockstep_diagnostic::Result<()>,
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

/// Reads a key.
struct KeyReader<'s, 'a> {
    row: RowReader<'s, 'a>,
    expected: usize,
}

impl<'de, 'a> DeserializeSeed<'de> for KeyReader<'_, 'a> {
    type Value = RowKey<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for KeyReader<'_, 'a> {
    type Value = RowKey<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<RowKey<'a>, E> {
        let schema = self.row.schema;
        if let Some(at) = schema.find(name, self.expected) {
            return Ok(RowKey::Column(at));
        }
        if matches!(schema.keys, KeyRule::AllReadAndMore(_)) {
            return Ok(RowKey::Other(self.row.arena.alloc_str(name)));
        }
        let message = format!("column `{name}` does not exist");
        let names = schema.columns.iter().map(|(name, _)| name.as_str());
        let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, message);
        Err(self.row.fail(diagnostic.with_nearest(name, names)))
    }
}

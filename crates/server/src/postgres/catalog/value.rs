//! The values of catalog queries: numbers, texts, arrays, records, and numbers of objects with a name.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_function::value_limit::LIST_BYTES_MAX;
use lockstep_row::Value;

use super::limits::check_items;
use crate::postgres::types::{Oid, array_of, element_oid, oid};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CatalogValue {
    Null,
    Bool(bool),
    Number(i64),
    Real(f64),
    Text(Arc<str>),
    Array(Arc<CatalogArray>),
    /// A row of fields with names.
    Record(Arc<[(&'static str, Self)]>),
    /// The number of an object, which is printed as its name: a `regclass`, a `regtype`.
    Object(i64, Arc<str>),
}

/// How many bytes of an array are counted: more than it may have.
const BYTES_COUNTED: usize = 2 * LIST_BYTES_MAX;

/// The elements of an array, and the number of the first: 0 in an `int2vector`, otherwise 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CatalogArray {
    pub(super) items: Vec<CatalogValue>,
    pub(super) first: i64,
}

impl CatalogValue {
    /// Makes a text.
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Makes a number of things.
    pub(super) fn count(count: usize) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Makes an array whose first element has the number 1.
    pub(super) fn array(items: Vec<Self>) -> Self {
        Self::Array(Arc::new(CatalogArray { items, first: 1 }))
    }

    /// Makes an `int2vector`.
    pub(super) fn vector(items: Vec<Self>) -> Self {
        Self::Array(Arc::new(CatalogArray { items, first: 0 }))
    }

    /// Makes it of a value of the engine.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Float(number) => Self::Real(f64::from(*number)),
            Value::Double(number) => Self::Real(*number),
            Value::String(text) => Self::text(text),
            Value::Array(items) => Self::array(items.iter().map(Self::of).collect()),
            other => match other.as_scalar().and_then(|scalar| scalar.as_i64()) {
                Some(number) => Self::Number(number),
                None => Self::text(&format!("{other:?}")),
            },
        }
    }

    /// Returns about how many bytes it has beside its own. Values may share texts, so an array can have
    /// more than the memory: from [`BYTES_COUNTED`] the rest is not counted.
    pub(super) fn heap_bytes(&self) -> usize {
        let mut bytes = 0;
        self.count_bytes(&mut bytes);
        bytes
    }

    fn count_bytes(&self, bytes: &mut usize) {
        let mut nested = |value: &Self| {
            *bytes += size_of::<Self>();
            value.count_bytes(bytes);
            *bytes < BYTES_COUNTED
        };
        match self {
            Self::Text(text) | Self::Object(_, text) => *bytes += text.len(),
            Self::Array(array) => {
                let _all = array.items.iter().all(nested);
            }
            Self::Record(fields) => {
                let _all = fields.iter().all(|(_, value)| nested(value));
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Real(_) => {}
        }
    }

    /// Returns whether it is NULL.
    pub(super) fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// Returns whether it is true.
    pub(super) fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }

    /// Returns a whole number, or the one that a text has.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) | Self::Object(number, _) => Some(*number),
            Self::Bool(value) => Some(i64::from(*value)),
            Self::Text(text) => text.trim().parse().ok(),
            #[expect(clippy::cast_possible_truncation, reason = "PostgreSQL rounds as well")]
            Self::Real(number) => Some(number.round() as i64),
            Self::Null | Self::Array(_) | Self::Record(_) => None,
        }
    }

    /// Returns a number with digits behind the point.
    pub(super) fn real(&self) -> Option<f64> {
        match self {
            Self::Real(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok(),
            #[expect(clippy::cast_precision_loss, reason = "PostgreSQL rounds as well")]
            other => other.number().map(|number| number as f64),
        }
    }

    /// Returns [`Self::display`] without a copy of a text.
    pub(super) fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Object(_, text) => Cow::Borrowed(text),
            other => Cow::Owned(other.display()),
        }
    }

    /// Returns the text of the value, as a cast to text gives it.
    pub(super) fn display(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(value) => if *value { "t" } else { "f" }.to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Text(name) | Self::Object(_, name) => name.to_string(),
            Self::Array(array) if array.first == 0 => {
                let items: Vec<String> = array.items.iter().map(Self::display).collect();
                items.join(" ")
            }
            Self::Array(array) => {
                let items: Vec<String> = array.items.iter().map(element_text).collect();
                format!("{{{}}}", items.join(","))
            }
            Self::Record(fields) => {
                let fields: Vec<String> = fields.iter().map(|(_, field)| field.display()).collect();
                format!("({})", fields.join(","))
            }
        }
    }

    /// Returns the elements of an array; a text that is written like one is one too.
    pub(super) fn elements(&self) -> Result<Option<Vec<Self>>> {
        match self {
            Self::Array(array) => Ok(Some(array.items.clone())),
            Self::Text(text) => array_elements(text),
            _ => Ok(None),
        }
    }

    /// Compares values, `None` where they cannot be. A number and a text compare as numbers.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Bool(a), Self::Text(b)) => Some(a.cmp(&is_true_text(b))),
            (Self::Text(a), Self::Bool(b)) => Some(is_true_text(a).cmp(b)),
            (Self::Array(a), Self::Array(b)) => {
                let mut pairs = a.items.iter().zip(&b.items).map(|(a, b)| a.compare(b));
                let unequal = pairs.find(|found| *found != Some(Ordering::Equal));
                unequal.unwrap_or_else(|| Some(a.items.len().cmp(&b.items.len())))
            }
            (Self::Object(_, name), Self::Text(text)) if text.parse::<i64>().is_err() => {
                Some(name.as_ref().cmp(text))
            }
            (Self::Real(_), _) | (_, Self::Real(_)) => self.real()?.partial_cmp(&other.real()?),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => Some(a.cmp(&b)),
                _ => Some(self.shown().cmp(&other.shown())),
            },
        }
    }

    /// Returns a text that is the same for values that are equal.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Null => "n".to_owned(),
            Self::Text(text) if self.number().is_none() => format!("t{text}"),
            Self::Bool(_) | Self::Number(_) | Self::Object(..) | Self::Text(_) => {
                format!("i{}", self.number().unwrap_or(0))
            }
            other => format!("o{}", other.display()),
        }
    }

    /// Returns the type of the value where nothing else tells.
    pub(super) fn oid(&self) -> Option<Oid> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => oid::BOOL,
            Self::Number(number) if i32::try_from(*number).is_ok() => oid::INT4,
            Self::Number(_) => oid::INT8,
            Self::Real(_) => oid::FLOAT8,
            Self::Array(array) if array.first == 1 => {
                let element = array.items.iter().find_map(Self::oid);
                array_of(element.unwrap_or(oid::TEXT))
            }
            Self::Text(_) | Self::Array(_) | Self::Record(_) | Self::Object(..) => oid::TEXT,
        })
    }

    /// Converts the value to the type in which it is sent.
    pub(super) fn sent_as(&self, number: Oid) -> Result<Value> {
        if let Some(element) = element_oid(number) {
            let Some(items) = self.elements()? else { return Ok(Value::Null) };
            let items = items.iter().map(|item| item.sent_as(element));
            return Ok(Value::Array(items.collect::<Result<_>>()?));
        }
        let whole = || self.number();
        let narrow = || whole().and_then(|number| i32::try_from(number).ok());
        Ok(match (number, self) {
            (_, Self::Null) => Value::Null,
            (oid::OID | oid::INT4, _) => narrow().map_or(Value::Null, Value::Int),
            (oid::INT2, _) => {
                whole().and_then(|n| i16::try_from(n).ok()).map_or(Value::Null, Value::SmallInt)
            }
            (oid::INT8, _) => whole().map_or(Value::Null, Value::BigInt),
            (oid::BOOL, Self::Text(text)) => Value::Bool(is_true_text(text)),
            (oid::BOOL, Self::Bool(value)) => Value::Bool(*value),
            #[expect(clippy::cast_possible_truncation, reason = "an estimate for people")]
            (oid::FLOAT4, _) => self.real().map_or(Value::Null, |n| Value::Float(n as f32)),
            (oid::FLOAT8 | oid::NUMERIC, _) => self.real().map_or(Value::Null, Value::Double),
            (oid::BOOL | oid::TIMESTAMPTZ | oid::TIMESTAMP | oid::DATE, _) => Value::Null,
            _ => Value::String(self.display().into()),
        })
    }
}

fn is_true_text(text: &str) -> bool {
    text.starts_with(['t', 'T', '1', 'y', 'Y'])
}

/// Returns an element as the text of an array has it.
fn element_text(item: &CatalogValue) -> String {
    let text = item.display();
    match item {
        CatalogValue::Null => "NULL".to_owned(),
        CatalogValue::Text(_)
            if text.is_empty() || text.contains(['{', '}', ',', '"', '\\', ' ']) =>
        {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        _ => text,
    }
}

/// Reads the text of an array, `{a,"b c",NULL}`.
fn array_elements(text: &str) -> Result<Option<Vec<CatalogValue>>> {
    let inner = text.trim().strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
    let Some(inner) = inner else { return Ok(None) };
    let (mut items, mut item) = (Vec::new(), String::new());
    let (mut is_quoted, mut was_quoted) = (false, false);
    let mut characters = inner.chars();
    let mut end = |item: &mut String, was_quoted: &mut bool| {
        let text = std::mem::take(item);
        let is_null = !std::mem::take(was_quoted) && text.eq_ignore_ascii_case("null");
        items.push(if is_null { CatalogValue::Null } else { CatalogValue::text(&text) });
        check_items(items.len())
    };
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                was_quoted = true;
            }
            '\\' => item.extend(characters.next()),
            ',' if !is_quoted => end(&mut item, &mut was_quoted)?,
            other => item.push(other),
        }
    }
    if !inner.is_empty() {
        end(&mut item, &mut was_quoted)?;
    }
    Ok(Some(items))
}

/// Returns about how many bytes the values of a row have.
pub(super) fn row_bytes(row: &[CatalogValue]) -> usize {
    row.iter().map(|value| size_of::<CatalogValue>() + value.heap_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::CatalogValue;

    #[test]
    fn arrays_are_read_and_written() {
        let text = CatalogValue::text("{a,\"b c\",NULL,\"x\\\"y\"}");
        let items = text.elements().unwrap().unwrap();
        assert_eq!(items.len(), 4);
        assert_eq!(CatalogValue::array(items.clone()).display(), text.display());
        assert_eq!(items[2], CatalogValue::Null);
        assert_eq!(CatalogValue::text("{}").elements().unwrap().unwrap(), []);
        assert_eq!(CatalogValue::text("a").elements().unwrap(), None);
        let long = format!("{{{}}}", ",".repeat(1 << 18));
        assert_eq!(CatalogValue::text(&long).elements().unwrap_err().code, "54000");
        let vector = CatalogValue::vector(vec![CatalogValue::Number(1), CatalogValue::Number(3)]);
        assert_eq!(vector.display(), "1 3");
    }

    #[test]
    fn numbers_and_texts_compare() {
        let (text, number) = (CatalogValue::text("023"), CatalogValue::Number(23));
        assert_eq!(text.compare(&number), Some(Ordering::Equal));
        assert_eq!(text.key(), number.key());
        let object = CatalogValue::Object(23, "int4".into());
        assert_eq!(object.compare(&number), Some(Ordering::Equal));
        assert_eq!(object.compare(&CatalogValue::text("int4")), Some(Ordering::Equal));
        assert_eq!(CatalogValue::Real(1.5).compare(&number), Some(Ordering::Less));
    }
}

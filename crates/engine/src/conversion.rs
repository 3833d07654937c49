//! Converts values of programs and files to the types of columns, by the same rules for rows, data
//! frames, requests and files.
//!
//! No value is silently rounded or dropped: a column is converted exactly, or refused with its name
//! and row. DATE and TIMESTAMP are read from ISO 8601 text too, times are truncated to the
//! millisecond, and NaN is NaN unless the session has `nan_as_null = true`. `docs/guide/values.md`
//! is the description for users.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray, new_null_array},
    compute::cast,
    datatypes::{ArrowPrimitiveType, DataType as ArrowType, Float16Type, Float32Type, Float64Type},
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::{
    Compatibility, Settings, TimeZone,
    cast::{parse_date, parse_timestamp},
};
use lockstep_row::{
    Column, DataType, Datum, Value,
    arrow::{ColumnBuilder, arrow_type, import_array, in_milliseconds},
};

use crate::deployment::compatibility_name;

/// The most characters of a value that a message shows.
const SHOWN_CHARS_MAX: usize = 60;

/// The settings of a session on which the conversion of values depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    settings: Settings,
    nan_is_null: bool,
}

impl Conversion {
    pub(crate) fn new(settings: Settings, nan_is_null: bool) -> Self {
        Self { settings, nan_is_null }
    }

    /// Makes the conversion of a session in another process, from what
    /// [`time_zone`](Self::time_zone), [`compatibility`](Self::compatibility) and
    /// [`nan_is_null`](Self::nan_is_null) have said of it. `None` where a name is not valid.
    ///
    /// ```
    /// use lockstep_engine::{Conversion, Database};
    ///
    /// let of = Database::in_memory().session().conversion();
    /// let (zone, compatibility) = (of.time_zone(), of.compatibility());
    /// assert_eq!(Conversion::of_names(&zone, compatibility, of.nan_is_null()), Some(of));
    /// ```
    pub fn of_names(time_zone: &str, compatibility: &str, nan_is_null: bool) -> Option<Self> {
        let time_zone = TimeZone::parse(time_zone)?;
        let both = [Compatibility::Standard, Compatibility::OpenMldb];
        let is_named = |found: &Compatibility| {
            compatibility_name(Settings { time_zone, compatibility: *found }) == compatibility
        };
        let compatibility = both.into_iter().find(is_named)?;
        Some(Self { settings: Settings { time_zone, compatibility }, nan_is_null })
    }

    /// Returns the settings by which values are printed ([`Output::settings`](crate::Output)).
    pub fn settings(self) -> Settings {
        self.settings
    }

    /// Returns the variable `time_zone`.
    pub fn time_zone(self) -> String {
        self.settings.time_zone.to_string()
    }

    /// Returns the variable `compatibility`.
    pub fn compatibility(self) -> &'static str {
        compatibility_name(self.settings)
    }

    /// Whether NaN is read as NULL.
    pub fn nan_is_null(self) -> bool {
        self.nan_is_null
    }

    /// Reads ISO 8601 text as a DATE or a TIMESTAMP, in the session's time zone where the text
    /// names none. `None` for another type, and for text that is no such value.
    pub fn read_text(self, text: &str, to: &DataType) -> Option<Value> {
        match to {
            DataType::Date => parse_date(text.trim(), &self.settings).map(Value::Date),
            DataType::Timestamp => {
                parse_timestamp(text.trim(), &self.settings).map(Value::Timestamp)
            }
            _ => None,
        }
    }

    /// Converts a column of a program or a file to the type of a column of a table.
    pub(crate) fn convert(self, array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
        let to = &column.data_type;
        if is_null(array.data_type()) {
            return Ok(new_null_array(&arrow_type(to), array.len()));
        }
        if matches!(to, DataType::Date | DataType::Timestamp) && is_text(array.data_type()) {
            return self.convert_text(array, column);
        }
        let array = if self.nan_is_null { without_nan(array) } else { ArrayRef::clone(array) };
        import_array(&in_milliseconds(&array), to).map_err(|error| {
            let message = format!("column `{}` is of type {to}: {error}", column.name);
            Box::new(Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixData))
        })
    }

    /// Converts a column of text to DATE or TIMESTAMP.
    fn convert_text(self, array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
        let texts = cast(array, &ArrowType::Utf8)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        let mut builder = ColumnBuilder::new(&column.data_type, texts.len());
        for (row, text) in texts.as_string::<i32>().iter().enumerate() {
            let Some(text) = text else {
                builder.push_null();
                continue;
            };
            let Some(value) = self.read_text(text, &column.data_type) else {
                let place = format!("row {}: column `{}`", row + 1, column.name);
                return Err(time_text_error(&place, text, &column.data_type));
            };
            builder.push(value.as_scalar().unwrap_or(Datum::Null));
        }
        let converted = builder.finish();
        debug_assert_eq!(converted.len(), array.len(), "each text has a value");
        Ok(converted)
    }
}

/// Makes the error for text that is not a DATE or a TIMESTAMP; `place` names the column.
pub fn time_text_error(place: &str, text: &str, data_type: &DataType) -> Box<Diagnostic> {
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let message = format!("{place}: invalid input syntax for type {data_type}: '{shown}'");
    let form = match data_type {
        DataType::Date => "yyyy-mm-dd",
        _ => "yyyy-mm-dd hh:mm:ss, with or without milliseconds and an offset such as +02:00",
    };
    let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixData);
    Box::new(diagnostic.with_hint(format!("Use the format {form}.")))
}

fn is_null(arrow_type: &ArrowType) -> bool {
    match arrow_type {
        ArrowType::Null => true,
        ArrowType::Dictionary(_, value) => is_null(value),
        _ => false,
    }
}

fn is_text(arrow_type: &ArrowType) -> bool {
    match arrow_type {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => true,
        ArrowType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

/// Replaces NaN by NULL in a column of floats.
fn without_nan(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        ArrowType::Float16 => floats_without_nan::<Float16Type>(array, |value| value.is_nan()),
        ArrowType::Float32 => floats_without_nan::<Float32Type>(array, f32::is_nan),
        ArrowType::Float64 => floats_without_nan::<Float64Type>(array, f64::is_nan),
        _ => ArrayRef::clone(array),
    }
}

fn floats_without_nan<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    is_nan: fn(T::Native) -> bool,
) -> ArrayRef {
    let floats: &PrimitiveArray<T> = array.as_primitive();
    if !floats.iter().flatten().any(is_nan) {
        return ArrayRef::clone(array);
    }
    Arc::new(
        floats
            .iter()
            .map(|value| value.filter(|value| !is_nan(*value)))
            .collect::<PrimitiveArray<T>>(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Float64Array, Int32Array, LargeStringArray, NullArray, StringArray,
        TimestampNanosecondArray,
    };
    use lockstep_function::Settings;
    use lockstep_row::{Arena, Column, DataType, Value, arrow::ColumnReader};

    use super::Conversion;

    #[expect(clippy::needless_pass_by_value, reason = "arrays are made in the call")]
    fn check(nan_is_null: bool, array: ArrayRef, to: DataType, expected: Result<Vec<Value>, &str>) {
        let settings =
            Settings { time_zone: chrono_tz::Tz::Asia__Shanghai.into(), ..Settings::default() };
        let found = Conversion::new(settings, nan_is_null).convert(&array, &Column::new("c", to));
        let found = found.map(|array| {
            let arena = Arena::new();
            let reader = ColumnReader::new(array.as_ref());
            (0..array.len()).map(|row| reader.get(row, &arena).to_value()).collect::<Vec<_>>()
        });
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(format!("{found:?}"), format!("{expected:?}")),
            (Err(error), Err(expected)) => assert_eq!(error.message, expected),
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn text_is_read_in_the_time_zone_of_the_session() {
        let texts = ["1970-01-01 08:00:00", "1970-01-01T00:00:00.250Z", "1970-01-02"];
        let expected = [0, 250, 16 * 3_600_000].map(Value::Timestamp).to_vec();
        let array = Arc::new(StringArray::from(texts.to_vec()));
        check(false, array, DataType::Timestamp, Ok(expected));
        let days = Arc::new(LargeStringArray::from(vec![Some("1970-01-02"), None]));
        check(false, days, DataType::Date, Ok(vec![Value::Date(1), Value::Null]));
        let wrong: ArrayRef = Arc::new(StringArray::from(vec!["1970-01-02", "yesterday"]));
        let message = "row 2: column `c`: invalid input syntax for type TIMESTAMP: 'yesterday'";
        check(false, wrong, DataType::Timestamp, Err(message));
        let number: ArrayRef = Arc::new(StringArray::from(vec!["7"]));
        let message =
            "column `c` is of type INT: cannot convert a column of Arrow type Utf8 to INT";
        check(false, number, DataType::Int, Err(message));
    }

    #[test]
    fn a_column_without_values_is_null_of_every_type() {
        for to in [DataType::Int, DataType::String, DataType::Timestamp] {
            check(false, Arc::new(NullArray::new(2)), to, Ok(vec![Value::Null, Value::Null]));
        }
    }

    #[test]
    fn nan_is_null_only_where_the_session_says_so() {
        let floats = || Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(1.0), None]));
        let rest = [Value::Double(1.0), Value::Null];
        let nan = [vec![Value::Double(f64::NAN)], rest.to_vec()].concat();
        check(false, floats(), DataType::Double, Ok(nan));
        check(true, floats(), DataType::Double, Ok([vec![Value::Null], rest.to_vec()].concat()));
        let refused =
            "column `c` is of type INT: row 1: the value cannot be converted to INT exactly";
        check(false, floats(), DataType::Int, Err(refused));
        check(true, floats(), DataType::Int, Ok(vec![Value::Null, Value::Int(1), Value::Null]));
    }

    #[test]
    fn times_are_truncated_to_the_millisecond_and_numbers_are_exact() {
        let fine = Arc::new(TimestampNanosecondArray::from(vec![1_999_999, -1]));
        let cut = [1, -1].map(Value::Timestamp).to_vec();
        check(false, fine, DataType::Timestamp, Ok(cut));
        let odd = Arc::new(Int32Array::from(vec![16_777_217]));
        let message =
            "column `c` is of type FLOAT: row 1: the value cannot be converted to FLOAT exactly";
        check(false, odd, DataType::Float, Err(message));
    }
}

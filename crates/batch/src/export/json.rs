//! The values of JSON files that JSON or Arrow's writer has no form for.
//!
//! Arrow's writer puts `null` in the place of the floats that are no numbers, which is read back as NULL.
//! Here they are the words `"NaN"`, `"Infinity"` and `"-Infinity"`, as the server and the shell write
//! them and the reader takes them. Its times have no zone; these have the offset of the session's, as in
//! CSV. Its dates have only the years that it can print.

use std::sync::LazyLock;

use arrow::{
    array::{Array, AsArray},
    datatypes::{
        DataType, Date32Type, FieldRef, Float32Type, Float64Type, TimeUnit,
        TimestampMillisecondType,
    },
    error::ArrowError,
    json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder},
};
use lockstep_function::Settings;
use lockstep_row::calendar::write_date;

use super::time_text::TimeText;

/// The options of Arrow's own encoders.
static DEFAULTS: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Makes the encoders of floats, times and dates, also of those within lists and maps.
#[derive(Debug)]
pub(super) struct ValueEncoders {
    times: TimeText,
}

impl ValueEncoders {
    /// Makes it with a session's settings.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
    pub(super) fn new(settings: &Settings) -> Self {
        Self { times: TimeText::new(settings) }
    }
}

impl EncoderFactory for ValueEncoders {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let is_finite = match array.data_type() {
            DataType::Float32 => {
                array.as_primitive::<Float32Type>().values().iter().all(|value| value.is_finite())
            }
            DataType::Float64 => {
                array.as_primitive::<Float64Type>().values().iter().all(|value| value.is_finite())
            }
            DataType::Date32 | DataType::Timestamp(TimeUnit::Millisecond, _) => {
                let encoder = TimeEncoder { array, times: self.times, text: String::new() };
                return Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())));
            }
            _ => true,
        };
        if is_finite {
            return Ok(None);
        }
        let finite = make_encoder(field, array, &DEFAULTS)?;
        let encoder = FloatEncoder { array, finite };
        Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())))
    }
}

/// An encoder of a column of times or dates.
struct TimeEncoder<'a> {
    array: &'a dyn Array,
    times: TimeText,
    text: String,
}

impl Encoder for TimeEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        self.text.clear();
        let is_date = *self.array.data_type() == DataType::Date32;
        let written = if is_date {
            let days = self.array.as_primitive::<Date32Type>().value(row);
            write_date(i64::from(days), &mut self.text)
        } else {
            let ms = self.array.as_primitive::<TimestampMillisecondType>().value(row);
            self.times.write(ms, &mut self.text)
        };
        written.expect("writing to memory does not fail");
        let quote: &[u8] = if self.times.is_integer && !is_date { b"" } else { b"\"" };
        out.extend_from_slice(quote);
        out.extend_from_slice(self.text.as_bytes());
        out.extend_from_slice(quote);
    }
}

/// An encoder of a column of floats.
struct FloatEncoder<'a> {
    array: &'a dyn Array,
    /// Writes the numbers.
    finite: NullableEncoder<'a>,
}

impl Encoder for FloatEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = match self.array.data_type() {
            DataType::Float32 => f64::from(self.array.as_primitive::<Float32Type>().value(row)),
            _ => self.array.as_primitive::<Float64Type>().value(row),
        };
        let word = match value {
            value if value.is_finite() => return self.finite.encode(row, out),
            value if value.is_nan() => "\"NaN\"",
            value if value > 0.0 => "\"Infinity\"",
            _ => "\"-Infinity\"",
        };
        out.extend_from_slice(word.as_bytes());
    }
}

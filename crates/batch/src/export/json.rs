//! The values of JSON files that JSON has no numbers for.
//!
//! Arrow's writer puts `null` in their place, which is read back as NULL. Here they are the words `"NaN"`,
//! `"Infinity"` and `"-Infinity"`, as the server and the shell write them and the reader takes them.

use std::sync::LazyLock;

use arrow::{
    array::{Array, AsArray},
    datatypes::{DataType, FieldRef, Float32Type, Float64Type},
    error::ArrowError,
    json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder},
};

/// The options of Arrow's own encoders.
static DEFAULTS: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Makes the encoders of floats, also of those within lists and maps.
#[derive(Debug)]
pub(super) struct FloatWords;

impl EncoderFactory for FloatWords {
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

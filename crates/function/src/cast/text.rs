//! Parsing and printing of values.
//!
//! Parsers read the whole text or return `None`. Printing goes to any [`fmt::Write`], so that row
//! forms print into the arena and front ends into their buffers.

use std::fmt;

use lockstep_row::{
    Datum,
    calendar::{self, DAY_MS, TimeOfDay, write_date},
};

use crate::{Compatibility, Settings, zone::Zone};

/// Parses `t true y yes 1` and `f false n no 0`, in any case.
pub fn parse_bool(text: &str) -> Option<bool> {
    let is_one_of = |words: [&str; 5]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(["t", "true", "y", "yes", "1"]) {
        Some(true)
    } else if is_one_of(["f", "false", "n", "no", "0"]) {
        Some(false)
    } else {
        None
    }
}

/// Parses an integer: blanks around it, a sign, then decimal digits or `0x` and hexadecimal ones.
pub fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim_ascii();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None => (10, digits),
    };
    if !digits.as_bytes().first()?.is_ascii_alphanumeric() {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Parses a DOUBLE in the grammar of C's `strtod`, with blanks around it; a number too large for
/// the type is `None`, one too small is zero.
pub fn parse_double(text: &str) -> Option<f64> {
    let text = text.trim_ascii();
    match text.parse::<f64>() {
        Ok(value) => (value.is_finite() || names_a_special(text)).then_some(value),
        Err(_) => parse_hexadecimal(text).filter(|value| value.is_finite()),
    }
}

/// Parses a FLOAT as [`parse_double`] does, rounded once.
pub fn parse_float(text: &str) -> Option<f32> {
    let text = text.trim_ascii();
    match text.parse::<f32>() {
        Ok(value) => (value.is_finite() || names_a_special(text)).then_some(value),
        Err(_) => {
            parse_hexadecimal(text).map(super::number::f64_to_f32).filter(|value| value.is_finite())
        }
    }
}

/// Returns whether a text names an infinity or NaN, rather than a number that is out of range.
fn names_a_special(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'n' | b'N'))
}

/// Parses `0x1.8p3`. Digits after the 53rd bit are rounded one by one.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let rest = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"))?;
    let (mantissa, exponent) = match rest.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let fraction_bits = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(sign * value * libm::scalbn(1.0, i32::from(exponent) - fraction_bits))
}

/// Parses a DATE: `YYYY-MM-DD`, `YYYYMMDD` or the day of a timestamp. With
/// `compatibility = 'openmldb'`, years before 1900 are `None`.
pub fn parse_date(text: &str, settings: &Settings) -> Option<i32> {
    let text = without_blanks(text, settings);
    let days = calendar::parse_date(text).or_else(|| {
        let local = parse_local(text, settings)?;
        Some(local.ms.div_euclid(DAY_MS))
    })?;
    i32::try_from(days).ok().filter(|days| !is_too_early(i64::from(*days), settings))
}

/// 1900-01-01, the first day that a text may name in OpenMLDB.
const DAYS_OF_1900: i64 = -25_567;

/// Returns whether a text may not name a day.
fn is_too_early(days: i64, settings: &Settings) -> bool {
    settings.compatibility == Compatibility::OpenMldb && days < DAYS_OF_1900
}

/// Returns a text without the blanks around it, which OpenMLDB does not take for times.
fn without_blanks<'t>(text: &'t str, settings: &Settings) -> &'t str {
    match settings.compatibility {
        Compatibility::Standard => text.trim_ascii(),
        Compatibility::OpenMldb => text,
    }
}

/// Parses a TIMESTAMP, in milliseconds: `YYYY-MM-DD HH:MM:SS`, `YYYY-MM-DD` or `YYYYMMDD` in the
/// session's time zone. Except with `compatibility = 'openmldb'`, there may be blanks around it, the
/// blank within may be a `T`, seconds may be left out, any digits of a second may follow (truncated to
/// milliseconds), and `Z`, `UTC` or `±HH:MM` may name another zone. With it, years before 1900 are
/// `None`.
pub fn parse_timestamp(text: &str, settings: &Settings) -> Option<i64> {
    let text = without_blanks(text, settings);
    let local = match calendar::parse_date(text) {
        Some(days) => Local { ms: days.checked_mul(DAY_MS)?, offset_ms: None },
        None => parse_local(text, settings)?,
    };
    if is_too_early(local.ms.div_euclid(DAY_MS), settings) {
        return None;
    }
    match local.offset_ms {
        Some(offset_ms) => local.ms.checked_sub(offset_ms),
        None => Some(Zone::new(settings.time_zone).to_utc(local.ms)),
    }
}

/// A local time, and the offset where the text has one.
struct Local {
    ms: i64,
    offset_ms: Option<i64>,
}

fn parse_local(text: &str, settings: &Settings) -> Option<Local> {
    let strict = settings.compatibility == Compatibility::OpenMldb;
    // A year may have more than four digits.
    let (date, rest) = text.split_at_checked(text.find([' ', 'T'])?)?;
    if strict && (date.len() != 10 || rest.len() != 9) {
        return None;
    }
    let rest = rest.strip_prefix(' ').or_else(|| rest.strip_prefix('T').filter(|_| !strict))?;
    let (time, offset_ms) = if strict { (rest, None) } else { split_offset(rest)? };
    // In 128 bits: the first day of a TIMESTAMP begins before its first millisecond.
    let day_ms = i128::from(calendar::parse_date(date)?) * i128::from(DAY_MS);
    let ms = i64::try_from(day_ms + i128::from(calendar::parse_time(time)?.to_ms())).ok()?;
    Some(Local { ms, offset_ms })
}

/// Splits `Z`, `UTC` or an offset off the end of a time, and a blank before it.
fn split_offset(text: &str) -> Option<(&str, Option<i64>)> {
    let in_utc = || {
        let (time, word) = text.split_at_checked(text.len().checked_sub(3)?)?;
        word.eq_ignore_ascii_case("UTC").then_some(time)
    };
    let (time, offset_ms) = match text.strip_suffix(['Z', 'z']).or_else(in_utc) {
        Some(time) => (time, 0),
        None => {
            let Some(position) = text.rfind(['+', '-']) else { return Some((text, None)) };
            let (time, offset) = text.split_at(position);
            let sign = if offset.starts_with('-') { -1 } else { 1 };
            (time, sign * parse_offset(&offset[1..])?)
        }
    };
    Some((time.strip_suffix(' ').unwrap_or(time), Some(offset_ms)))
}

/// Parses `HH:MM`, `HHMM`, `HH` or `HH:MM:SS` in milliseconds. PostgreSQL leaves out minutes that are
/// 0, and writes seconds for the local times of the nineteenth century.
fn parse_offset(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let part = |digits: &[u8], end: i64| {
        let [tens, ones] = digits else { return None };
        let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
        let number = i64::from(tens.wrapping_sub(b'0')) * 10 + i64::from(ones.wrapping_sub(b'0'));
        (is_number && number < end).then_some(number)
    };
    let (hours, minutes, seconds) = match bytes.len() {
        2 => (part(bytes, 24)?, 0, 0),
        4 => (part(&bytes[..2], 24)?, part(&bytes[2..], 60)?, 0),
        5 if bytes[2] == b':' => (part(&bytes[..2], 24)?, part(&bytes[3..], 60)?, 0),
        8 if bytes[2] == b':' && bytes[5] == b':' => {
            (part(&bytes[..2], 24)?, part(&bytes[3..5], 60)?, part(&bytes[6..], 60)?)
        }
        _ => return None,
    };
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000)
}

/// A printer of values with a session's settings. Made once per expression.
///
/// FLOAT and DOUBLE print with the fewest digits that read back as the same value, with an exponent
/// below 1e-4 and from 1e15 on; with `compatibility = 'openmldb'`, six significant digits.
/// TIMESTAMP prints in the session's time zone, with its milliseconds unless they are 0 or
/// `compatibility = 'openmldb'`. NULL prints as `NULL`, an array as `[1, 2]`, a map as `{k: v}`.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    zone: Zone,
    compatibility: Compatibility,
}

impl Printer {
    /// Makes a printer with a session's settings.
    pub fn new(settings: &Settings) -> Self {
        Self { zone: Zone::new(settings.time_zone), compatibility: settings.compatibility }
    }

    /// Writes the text of a value.
    pub fn write(&self, datum: Datum<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        match datum {
            Datum::Null => out.write_str("NULL"),
            Datum::Bool(value) => out.write_str(if value { "true" } else { "false" }),
            Datum::SmallInt(value) => write!(out, "{value}"),
            Datum::Int(value) => write!(out, "{value}"),
            Datum::BigInt(value) => write!(out, "{value}"),
            Datum::Float(value) => match self.compatibility {
                Compatibility::Standard => write_shortest(format_args!("{value:e}"), out),
                Compatibility::OpenMldb => write_six_digits(f64::from(value), out),
            },
            Datum::Double(value) => match self.compatibility {
                Compatibility::Standard => write_shortest(format_args!("{value:e}"), out),
                Compatibility::OpenMldb => write_six_digits(value, out),
            },
            Datum::String(text) => out.write_str(text),
            Datum::Timestamp(ms) => {
                let (days, time) = calendar::split_ms(self.zone.to_local(ms));
                write_date(days, out)?;
                let TimeOfDay { hour, minute, second, millisecond } = time;
                write!(out, " {hour:02}:{minute:02}:{second:02}")?;
                if millisecond == 0 || self.compatibility == Compatibility::OpenMldb {
                    return Ok(());
                }
                write!(out, ".{millisecond:03}")
            }
            Datum::Date(days) => write_date(i64::from(days), out),
            Datum::Array(items) => {
                out.write_char('[')?;
                for (position, item) in items.iter().enumerate() {
                    out.write_str(if position == 0 { "" } else { ", " })?;
                    self.write(*item, out)?;
                }
                out.write_char(']')
            }
            Datum::Map(entries) => {
                out.write_char('{')?;
                for (position, (key, value)) in entries.iter().enumerate() {
                    out.write_str(if position == 0 { "" } else { ", " })?;
                    self.write(*key, out)?;
                    out.write_str(": ")?;
                    self.write(*value, out)?;
                }
                out.write_char('}')
            }
        }
    }
}

/// Writes the text of a value; see [`Printer`], which is cheaper for more than one.
pub fn write_datum(datum: Datum<'_>, settings: &Settings, out: &mut dyn fmt::Write) -> fmt::Result {
    Printer::new(settings).write(datum, out)
}

/// Prints a value to a new string; see [`Printer`].
pub fn print_datum(datum: Datum<'_>, settings: &Settings) -> String {
    Printer::new(settings).print(datum)
}

/// A buffer on the stack for a number in scientific notation.
#[derive(Default)]
struct Scientific {
    bytes: [u8; 32],
    length: usize,
}

impl fmt::Write for Scientific {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// A number as sign, significant digits and the decimal exponent of the first digit.
struct Decimal<'a> {
    negative: bool,
    digits: &'a [u8],
    exponent: i32,
}

/// Splits `-1.25e-7` into its parts; `None` for `NaN` and `inf`. `scratch` receives the digits.
fn split_scientific<'a>(text: &str, scratch: &'a mut [u8; 32]) -> Option<Decimal<'a>> {
    let (mantissa, exponent) = text.split_once('e')?;
    let negative = mantissa.starts_with('-');
    let mut count = 0;
    for byte in mantissa.bytes().filter(u8::is_ascii_digit) {
        scratch[count] = byte;
        count += 1;
    }
    debug_assert!(count > 0, "a number in scientific notation has a digit");
    while count > 1 && scratch[count - 1] == b'0' {
        count -= 1;
    }
    Some(Decimal { negative, digits: &scratch[..count], exponent: exponent.parse().ok()? })
}

/// Writes the shortest text that reads back as the same value.
fn write_shortest(value: fmt::Arguments<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
    let mut buffer = Scientific::default();
    fmt::write(&mut buffer, value)?;
    let text = std::str::from_utf8(&buffer.bytes[..buffer.length]).map_err(|_error| fmt::Error)?;
    match split_scientific(text, &mut [0; 32]) {
        Some(decimal) => write_decimal(&decimal, 15, out),
        None => out.write_str(match text {
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            _ => "NaN",
        }),
    }
}

/// Writes six significant digits, as `%g` does.
fn write_six_digits(value: f64, out: &mut dyn fmt::Write) -> fmt::Result {
    let mut buffer = Scientific::default();
    fmt::write(&mut buffer, format_args!("{value:.5e}"))?;
    let text = std::str::from_utf8(&buffer.bytes[..buffer.length]).map_err(|_error| fmt::Error)?;
    match split_scientific(text, &mut [0; 32]) {
        Some(decimal) => write_decimal(&decimal, 6, out),
        None => out.write_str(match text {
            "inf" => "inf",
            "-inf" => "-inf",
            _ => "nan",
        }),
    }
}

/// Writes the digits in positional notation while the exponent is at least -4 and below
/// `exponent_end`, otherwise with an exponent of at least two digits.
fn write_decimal(
    decimal: &Decimal<'_>,
    exponent_end: i32,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    let Decimal { negative, digits, exponent } = *decimal;
    debug_assert!(!digits.is_empty(), "a number has a digit");
    debug_assert!(exponent_end > -4, "some exponents are written in positional notation");
    let digits = std::str::from_utf8(digits).map_err(|_error| fmt::Error)?;
    out.write_str(if negative { "-" } else { "" })?;
    if exponent < -4 || exponent >= exponent_end {
        let (first, rest) = digits.split_at(1);
        let sign = if exponent < 0 { '-' } else { '+' };
        let point = if rest.is_empty() { "" } else { "." };
        return write!(out, "{first}{point}{rest}e{sign}{:02}", exponent.unsigned_abs());
    }
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = usize::try_from(-exponent - 1).map_err(|_error| fmt::Error)?;
        return write!(out, "0.{:0<zeros$}{digits}", "");
    };
    match digits.split_at_checked(whole) {
        Some(("", fraction)) => write!(out, "0.{fraction}"),
        Some((whole, "")) => out.write_str(whole),
        Some((whole, fraction)) => write!(out, "{whole}.{fraction}"),
        None => write!(out, "{digits:0<whole$}"),
    }
}

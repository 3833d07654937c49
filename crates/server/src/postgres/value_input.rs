//! Values that clients send, of parameters and of COPY, in the text and the binary format.
//!
//! A time is an instant: of `timestamp`, which has no zone, the one that the session's zone gives it.
//! Times are truncated to the millisecond.

use std::net::IpAddr;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{Conversion, Parameter, time_text_error};
use lockstep_function::Zone;
use lockstep_row::{DataType, Value};

use super::{
    catalog::type_of_number,
    types::{Oid, element_oid, oid, type_name, type_of_oid},
    value_binary::{DAYS_TO_2000, MICROSECONDS_TO_2000},
};

/// The rules of a session by which values are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputRules {
    pub(crate) conversion: Conversion,
    pub(crate) zone: Zone,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireFormat {
    Text,
    Binary,
}

impl WireFormat {
    /// Returns the format that a message names.
    pub(crate) fn of_code(number: i16) -> Result<Self> {
        match number {
            0 => Ok(Self::Text),
            1 => Ok(Self::Binary),
            _ => {
                let message = format!("unsupported format code: {number}");
                Diagnostic::new(code::PROTOCOL_VIOLATION, message).err()
            }
        }
    }

    /// Returns the number of the format in messages.
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }
}

impl InputRules {
    /// Reads a parameter of a type that the client has named, or that was found for it.
    pub(crate) fn read_parameter(
        &self,
        bytes: Option<&[u8]>,
        format: WireFormat,
        number: Oid,
    ) -> Result<Parameter> {
        let data_type = type_of_oid(number).unwrap_or(DataType::String);
        let Some(bytes) = bytes else { return Ok((Value::Null, data_type)) };
        if format == WireFormat::Binary
            && let Some(element) = element_oid(number)
        {
            let element = type_of_oid(element).unwrap_or(DataType::String);
            return Ok((self.read_array(bytes, number)?, DataType::Array(Box::new(element))));
        }
        let value = match format {
            WireFormat::Text => self.read_text(text_of(bytes)?, &data_type)?,
            WireFormat::Binary => self.read_binary(bytes, number)?,
        };
        Ok((value, data_type))
    }

    /// Reads the text of a value.
    pub(crate) fn read_text(&self, text: &str, data_type: &DataType) -> Result<Value> {
        let word = text.trim();
        let value = match data_type {
            DataType::Null | DataType::String => Some(Value::String(text.into())),
            DataType::Bool => bool_of(word).map(Value::Bool),
            DataType::SmallInt => word.parse().ok().map(Value::SmallInt),
            DataType::Int => word.parse().ok().map(Value::Int),
            DataType::BigInt => word.parse().ok().map(Value::BigInt),
            DataType::Float => float_of(word).and_then(|number| {
                #[expect(clippy::cast_possible_truncation, reason = "it is rounded, and checked")]
                let narrow = number as f32;
                (narrow.is_finite() || !number.is_finite()).then_some(Value::Float(narrow))
            }),
            DataType::Double => float_of(word).map(Value::Double),
            DataType::Timestamp | DataType::Date => {
                if ["infinity", "-infinity", "+infinity"]
                    .iter()
                    .any(|infinite| word.eq_ignore_ascii_case(infinite))
                {
                    return infinite_time(data_type);
                }
                let text = with_signed_year(&with_minutes(word));
                let value = self.conversion.read_text(&text, data_type);
                return value.map_or_else(|| Err(time_text_error("value", word, data_type)), Ok);
            }
            DataType::Array(_) | DataType::Map(..) => None,
        };
        value.map_or_else(|| invalid_text(text, data_type), Ok)
    }

    /// Reads the bytes of an array of one dimension.
    fn read_array(&self, bytes: &[u8], number: Oid) -> Result<Value> {
        let mut rest = bytes;
        let [dimensions, _flags, element] = [(); 3].map(|()| next_number(&mut rest));
        if dimensions == Some(0) {
            return Ok(Value::Array(Vec::new()));
        }
        let [count, _first] = [(); 2].map(|()| next_number(&mut rest));
        let (Some(1), Some(element), Some(count)) = (dimensions, element, count) else {
            return invalid_bytes(bytes, number);
        };
        let mut items = Vec::new();
        for _ in 0..count {
            let Some(length) = next_number(&mut rest) else { return invalid_bytes(bytes, number) };
            // NULL has a length of -1.
            if length == u32::MAX {
                items.push(Value::Null);
                continue;
            }
            let split =
                usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
            let Some((item, behind)) = split else { return invalid_bytes(bytes, number) };
            items.push(self.read_binary(item, element)?);
            rest = behind;
        }
        if rest.is_empty() { Ok(Value::Array(items)) } else { invalid_bytes(bytes, number) }
    }

    /// Reads the bytes of a value of a type of PostgreSQL.
    pub(crate) fn read_binary(&self, bytes: &[u8], number: Oid) -> Result<Value> {
        let value = match number {
            oid::BOOL => array(bytes).map(|[byte]| Value::Bool(byte != 0)),
            oid::INT2 => array(bytes).map(|b| Value::SmallInt(i16::from_be_bytes(b))),
            oid::INT4 => array(bytes).map(|b| Value::Int(i32::from_be_bytes(b))),
            oid::INT8 => array(bytes).map(|b| Value::BigInt(i64::from_be_bytes(b))),
            oid::OID => array(bytes).map(|b| Value::BigInt(u32::from_be_bytes(b).into())),
            oid::FLOAT4 => array(bytes).map(|b| Value::Float(f32::from_be_bytes(b))),
            oid::FLOAT8 => array(bytes).map(|b| Value::Double(f64::from_be_bytes(b))),
            oid::NUMERIC => numeric(bytes).map(Value::Double),
            oid::DATE => {
                let days = array(bytes).map(i32::from_be_bytes);
                if matches!(days, Some(i32::MIN | i32::MAX)) {
                    return infinite_time(&DataType::Date);
                }
                days.and_then(|days| days.checked_add(DAYS_TO_2000)).map(Value::Date)
            }
            oid::TIMESTAMP | oid::TIMESTAMPTZ if is_infinite(bytes) => {
                return infinite_time(&DataType::Timestamp);
            }
            oid::TIMESTAMPTZ => milliseconds(bytes).map(Value::Timestamp),
            oid::TIMESTAMP => {
                milliseconds(bytes).map(|local| Value::Timestamp(self.zone.to_utc(local)))
            }
            _ => return text_of_binary(bytes, number),
        };
        value.map_or_else(|| invalid_bytes(bytes, number), Ok)
    }
}

/// Reads the bytes of a value whose type the engine has not, as the text that PostgreSQL prints.
fn text_of_binary(bytes: &[u8], number: Oid) -> Result<Value> {
    let text = match number {
        oid::TEXT
        | oid::VARCHAR
        | oid::BPCHAR
        | oid::NAME
        | oid::CHAR
        | oid::UNKNOWN
        | oid::XML
        | oid::JSON => return Ok(Value::String(text_of(bytes)?.into())),
        oid::JSONB => match bytes.split_first() {
            // The version of the format.
            Some((1, text)) => Some(text_of(text)?.to_owned()),
            _ => None,
        },
        oid::UUID => array(bytes).map(uuid_text),
        oid::TIME => array(bytes).map(i64::from_be_bytes).and_then(time_text),
        oid::INET => inet_text(bytes),
        _ => return no_binary(number),
    };
    text.map_or_else(|| invalid_bytes(bytes, number), |text| Ok(Value::String(text.into())))
}

fn no_binary<T>(number: Oid) -> Result<T> {
    let name = match type_of_number(number.into()).as_str() {
        "???" | "-" => format!("with OID {number}"),
        name => name.to_owned(),
    };
    let message = format!("the binary format is not supported for type {name}");
    Diagnostic::unsupported(message)
        .with_hint("Send the value in the text format, or cast it to text in the client.")
        .err()
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let [a, b, c, d, e] =
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("{a}-{b}-{c}-{d}-{e}")
}

/// Writes microseconds since midnight; 24:00:00 is the last.
fn time_text(us: i64) -> Option<String> {
    const DAY_US: i64 = 86_400_000_000;
    if !(0..=DAY_US).contains(&us) {
        return None;
    }
    let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction > 0 { format!(".{fraction:06}") } else { String::new() };
    let fraction = fraction.trim_end_matches('0');
    Some(format!("{hour:02}:{minute:02}:{second:02}{fraction}"))
}

/// Writes an address: its family, the bits of its network, whether it is one, its size, and its bytes.
fn inet_text(bytes: &[u8]) -> Option<String> {
    let ([family, bits, _is_network, size], address) = bytes.split_first_chunk()?;
    let address: IpAddr = match (family, size) {
        (2, 4) => IpAddr::from(array::<4>(address)?),
        (3, 16) => IpAddr::from(array::<16>(address)?),
        _ => return None,
    };
    let is_host = usize::from(*bits) == usize::from(*size) * 8;
    Some(if is_host { address.to_string() } else { format!("{address}/{bits}") })
}

fn is_infinite(bytes: &[u8]) -> bool {
    matches!(array(bytes).map(i64::from_be_bytes), Some(i64::MIN | i64::MAX))
}

/// Makes the error for infinity, which is no time of the engine.
fn infinite_time<T>(data_type: &DataType) -> Result<T> {
    let name = type_name(data_type);
    Diagnostic::new(
        code::DATETIME_OVERFLOW,
        format!("{name} out of range: infinity is not supported"),
    )
    .with_kind(Kind::FixData)
    .with_hint("Send NULL, or a time in the distant past or future.")
    .err()
}

fn invalid_bytes<T>(bytes: &[u8], number: Oid) -> Result<T> {
    let count = bytes.len();
    let message =
        format!("incorrect binary data format for type with OID {number} ({count} bytes)");
    Diagnostic::new(code::INVALID_BINARY_VALUE, message).with_kind(Kind::FixRequest).err()
}

/// Reads the next number of four bytes.
fn next_number(rest: &mut &[u8]) -> Option<u32> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_be_bytes(*first))
}

/// Returns the text of bytes, which are UTF-8 without a zero.
pub(crate) fn text_of(bytes: &[u8]) -> Result<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => {
            let message = "invalid byte sequence for encoding \"UTF8\"";
            Diagnostic::new(code::INVALID_ENCODING, message).with_kind(Kind::FixData).err()
        }
    }
}

fn invalid_text<T>(text: &str, data_type: &DataType) -> Result<T> {
    let shown: String = text.chars().take(60).collect();
    let name = type_name(data_type);
    let message = format!("invalid input syntax for type {name}: \"{shown}\"");
    Diagnostic::new(code::INVALID_TEXT, message).with_kind(Kind::FixData).err()
}

/// Reads the words that PostgreSQL takes for a boolean.
fn bool_of(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Reads a number; one beyond the range of a DOUBLE is none.
fn float_of(word: &str) -> Option<f64> {
    let number: f64 = word.parse().ok()?;
    let is_named = word.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    (number.is_finite() || is_named).then_some(number)
}

/// Writes the offset of a time with minutes: `+02` is `+02:00`.
fn with_minutes(word: &str) -> String {
    let offset = word.rfind(['+', '-']).filter(|at| *at > 10 && word.len() - at == 3);
    if offset.is_some() { format!("{word}:00") } else { word.to_owned() }
}

/// Writes a year before Christ as PostgreSQL does not: 1 BC is the year 0, and 2 BC -1.
fn with_signed_year(word: &str) -> String {
    let year = || {
        let (day, era) = word.split_at_checked(word.len().checked_sub(" BC".len())?)?;
        let (year, rest) = day.split_once('-').filter(|_| era.eq_ignore_ascii_case(" BC"))?;
        Some((year.parse::<u32>().ok().filter(|year| *year > 0)?, rest))
    };
    match year() {
        Some((1, rest)) => format!("0000-{rest}"),
        Some((year, rest)) => format!("-{:04}-{rest}", year - 1),
        None => word.to_owned(),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// Reads microseconds since 2000 as milliseconds since 1970.
fn milliseconds(bytes: &[u8]) -> Option<i64> {
    let us = i64::from_be_bytes(array(bytes)?).checked_add(MICROSECONDS_TO_2000)?;
    Some(us.div_euclid(1_000))
}

/// Reads a NUMERIC: its digits to the base 10,000, as the nearest DOUBLE.
fn numeric(bytes: &[u8]) -> Option<f64> {
    const NEGATIVE: u16 = 0x4000;
    const NAN: u16 = 0xc000;
    const INFINITY: u16 = 0xd000;
    const NEGATIVE_INFINITY: u16 = 0xf000;
    let (head, digits) = bytes.split_at_checked(8)?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (count, sign) = (usize::from(word(0)), word(4));
    let weight = i32::from(i16::from_be_bytes([head[2], head[3]]));
    if digits.len() != count * 2 {
        return None;
    }
    match sign {
        NAN => return Some(f64::NAN),
        INFINITY => return Some(f64::INFINITY),
        NEGATIVE_INFINITY => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let mut text = String::from(if sign == NEGATIVE { "-0" } else { "0" });
    for pair in digits.chunks_exact(2) {
        let digit = u16::from_be_bytes([pair[0], pair[1]]);
        text.push_str(&format!("{digit:04}"));
    }
    let last = i32::try_from(count).ok()?;
    text.push_str(&format!("e{}", (weight + 1 - last) * 4));
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;
    use lockstep_function::{TimeZone, Zone};
    use lockstep_row::{DataType, Value};

    use super::{InputRules, WireFormat, numeric, oid};

    fn rules() -> InputRules {
        let session = Database::in_memory().session();
        let zone = Zone::new(TimeZone::parse("+02:00").unwrap());
        InputRules { conversion: session.conversion(), zone }
    }

    #[test]
    fn arrays_are_read() {
        let rules = rules();
        let word = |number: i32| number.to_be_bytes().to_vec();
        let numbers = [1, 1, 26, 2, 1, 4, 7, -1].map(word).concat();
        let read = |bytes: &[u8]| rules.read_parameter(Some(bytes), WireFormat::Binary, 1028);
        let (value, data_type) = read(&numbers).unwrap();
        assert_eq!(value, Value::Array(vec![Value::BigInt(7), Value::Null]));
        assert_eq!(data_type, DataType::Array(Box::new(DataType::BigInt)));
        let empty = [0, 0, 26].map(word).concat();
        assert_eq!(read(&empty).unwrap().0, Value::Array(Vec::new()));
        for length in 0..numbers.len() {
            assert_eq!(read(&numbers[..length]).unwrap_err().code, "22P03", "{length} bytes");
        }
        let of_two_dimensions = [2, 0, 26, 1, 1, 1, 1, 4, 7].map(word).concat();
        assert!(read(&of_two_dimensions).is_err());
    }

    #[test]
    fn texts_are_read_by_their_type() {
        let rules = rules();
        for (text, data_type, expected) in [
            ("T", DataType::Bool, Value::Bool(true)),
            ("off", DataType::Bool, Value::Bool(false)),
            (" 7 ", DataType::SmallInt, Value::SmallInt(7)),
            ("1e3", DataType::Double, Value::Double(1000.0)),
            ("Infinity", DataType::Double, Value::Double(f64::INFINITY)),
            ("a", DataType::String, Value::String("a".into())),
            ("1970-01-02", DataType::Date, Value::Date(1)),
            ("1970-01-01 00:00:01.5+00", DataType::Timestamp, Value::Timestamp(1_500)),
            ("1970-01-01 02:00:00+02:00", DataType::Timestamp, Value::Timestamp(0)),
            ("1969-12-31 23:45:16-00:14:44", DataType::Timestamp, Value::Timestamp(0)),
            ("0001-12-31 BC", DataType::Date, Value::Date(-719_163)),
            ("0044-03-15 bc", DataType::Date, Value::Date(-735_160)),
        ] {
            assert_eq!(rules.read_text(text, &data_type).unwrap(), expected, "{text}");
        }
        for (text, data_type) in [
            ("maybe", DataType::Bool),
            ("70000", DataType::SmallInt),
            ("1e400", DataType::Double),
            ("1e39", DataType::Float),
            ("today", DataType::Date),
        ] {
            assert!(rules.read_text(text, &data_type).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_read_by_their_type() {
        let rules = rules();
        let read = |bytes: &[u8], number| rules.read_binary(bytes, number);
        assert_eq!(read(&[0, 7], oid::INT2).unwrap(), Value::SmallInt(7));
        assert_eq!(read(&[0, 0, 0, 1], oid::DATE).unwrap(), Value::Date(10_958));
        let us = 1_999_i64.to_be_bytes();
        let ms = 946_684_800_001;
        assert_eq!(read(&us, oid::TIMESTAMPTZ).unwrap(), Value::Timestamp(ms));
        assert_eq!(read(&us, oid::TIMESTAMP).unwrap(), Value::Timestamp(ms - 7_200_000));
        for number in [oid::BOOL, oid::INT4, oid::FLOAT8, oid::NUMERIC, oid::TIMESTAMP] {
            assert_eq!(read(&[0, 1, 2], number).unwrap_err().code, "22P03");
        }
        assert_eq!(read(&[0xff], oid::TEXT).unwrap_err().code, "22021");
        for number in [oid::TIMESTAMPTZ, oid::TIMESTAMP] {
            for infinite in [i64::MIN, i64::MAX] {
                assert_eq!(read(&infinite.to_be_bytes(), number).unwrap_err().code, "22008");
            }
        }
        for infinite in [i32::MIN, i32::MAX] {
            assert_eq!(read(&infinite.to_be_bytes(), oid::DATE).unwrap_err().code, "22008");
        }
        for text in ["infinity", "-Infinity"] {
            assert_eq!(rules.read_text(text, &DataType::Date).unwrap_err().code, "22008");
        }
        let most = (i64::MAX - 1).to_be_bytes();
        assert_eq!(read(&most, oid::TIMESTAMPTZ).unwrap_err().code, "22P03");
    }

    #[test]
    fn bytes_of_other_types_are_texts_or_refused() {
        let rules = rules();
        let read = |bytes: &[u8], number| rules.read_binary(bytes, number);
        let text = |text: &str| Value::String(text.into());
        let uuid: Vec<u8> = (0..16).collect();
        assert_eq!(read(&uuid, oid::UUID).unwrap(), text("00010203-0405-0607-0809-0a0b0c0d0e0f"));
        let noon = (43_200_i64 * 1_000_000 + 500_000).to_be_bytes();
        assert_eq!(read(&noon, oid::TIME).unwrap(), text("12:00:00.5"));
        assert_eq!(read(b"\x01{\"a\": 1}", oid::JSONB).unwrap(), text("{\"a\": 1}"));
        let (address, network) = ([2, 32, 0, 4, 10, 0, 0, 1], [2, 8, 0, 4, 10, 0, 0, 0]);
        assert_eq!(read(&address, oid::INET).unwrap(), text("10.0.0.1"));
        assert_eq!(read(&network, oid::INET).unwrap(), text("10.0.0.0/8"));
        for (bytes, number) in
            [(&uuid[1..], oid::UUID), (b"{}", oid::JSONB), (&[255; 8], oid::TIME), (b"", oid::INET)]
        {
            assert_eq!(read(bytes, number).unwrap_err().code, "22P03", "{number}");
        }
        for (number, name) in [
            (17, "bytea"),
            (1186, "interval"),
            (2951, "uuid[]"),
            (1185, "timestamp with time zone[]"),
            (9_999, "with OID 9999"),
        ] {
            let error = read(b"abcdefgh", number).unwrap_err();
            assert_eq!(error.code, "0A000", "{number}");
            let named = format!("the binary format is not supported for type {name}");
            assert_eq!(error.message, named);
        }
    }

    #[test]
    fn numerics_are_the_nearest_double() {
        let digits = |count: u16, weight: i16, sign: u16, digits: &[u16]| {
            let mut bytes = Vec::new();
            bytes.extend(count.to_be_bytes());
            bytes.extend(weight.to_be_bytes());
            bytes.extend(sign.to_be_bytes());
            bytes.extend([0, 2]);
            digits.iter().for_each(|digit| bytes.extend(digit.to_be_bytes()));
            numeric(&bytes)
        };
        assert_eq!(digits(2, 0, 0, &[12, 3400]), Some(12.34));
        assert_eq!(digits(1, -1, 0x4000, &[1]), Some(-0.0001));
        assert_eq!(digits(1, 1, 0, &[5]), Some(50_000.0));
        assert_eq!(digits(0, 0, 0, &[]), Some(0.0));
        assert!(digits(0, 0, 0xc000, &[]).is_some_and(f64::is_nan));
        assert_eq!(digits(2, 0, 0, &[1]), None);
    }
}

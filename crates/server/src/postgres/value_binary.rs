//! Values of the engine in PostgreSQL's binary format: big-endian numbers, times in microseconds since
//! 2000-01-01.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::Zone;
use lockstep_row::{DataType, Datum};

use super::{
    types::{array_oid, oid_of},
    value_text::write_typed_text,
};

/// The days from 1970-01-01 to 2000-01-01.
pub(super) const DAYS_TO_2000: i32 = 10_957;

/// The microseconds from 1970-01-01 to 2000-01-01.
pub(super) const MICROSECONDS_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;

/// Appends a value that is not NULL and is of this type.
pub(crate) fn write_binary(
    out: &mut Vec<u8>,
    value: &Datum<'_>,
    data_type: &DataType,
    zone: Zone,
) -> Result<()> {
    match *value {
        Datum::Null => {}
        Datum::Bool(value) => out.push(value.into()),
        Datum::SmallInt(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Int(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::BigInt(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Float(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Double(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::String(text) => out.extend_from_slice(text.as_bytes()),
        Datum::Timestamp(ms) => {
            let us = ms.checked_mul(1_000).and_then(|us| us.checked_sub(MICROSECONDS_TO_2000));
            let us = us.filter(|us| !matches!(*us, i64::MIN | i64::MAX));
            let us = us.map_or_else(|| out_of_range("timestamp"), Ok)?;
            out.extend_from_slice(&us.to_be_bytes());
        }
        Datum::Date(days) => {
            let days = days.checked_sub(DAYS_TO_2000).filter(|days| *days != i32::MIN);
            let days = days.map_or_else(|| out_of_range("date"), Ok)?;
            out.extend_from_slice(&days.to_be_bytes());
        }
        Datum::Array(items) => match data_type {
            DataType::Array(element) if array_oid(element).is_some() => {
                write_array(out, items, element, zone)?;
            }
            _ => write_typed_text(out, value, data_type, zone),
        },
        Datum::Map(_) => write_typed_text(out, value, data_type, zone),
    }
    Ok(())
}

fn out_of_range<T>(what: &str) -> Result<T> {
    let message = format!("{what} out of range for the binary format");
    Diagnostic::new(code::DATETIME_OVERFLOW, message).with_hint("Request the text format.").err()
}

/// Appends an array of one dimension.
fn write_array(
    out: &mut Vec<u8>,
    items: &[Datum<'_>],
    element: &DataType,
    zone: Zone,
) -> Result<()> {
    let has_null = items.iter().any(Datum::is_null);
    let count = i32::try_from(items.len()).unwrap_or(i32::MAX);
    out.extend_from_slice(&i32::from(count > 0).to_be_bytes());
    out.extend_from_slice(&i32::from(has_null).to_be_bytes());
    out.extend_from_slice(&oid_of(element).to_be_bytes());
    if count == 0 {
        return Ok(());
    }
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    for item in items {
        write_field(out, item, |out| write_binary(out, item, element, zone))?;
    }
    Ok(())
}

/// Appends a value with its length before it; NULL has the length -1.
pub(crate) fn write_field(
    out: &mut Vec<u8>,
    value: &Datum<'_>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    if value.is_null() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = i32::try_from(out.len() - start - 4).map_err(|_error| {
        Box::new(Diagnostic::new(code::VALUE_TOO_LARGE, "value exceeds the limit of 2 GiB"))
    })?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use lockstep_function::{TimeZone, Zone};
    use lockstep_row::{DataType, Datum};

    use super::write_binary;

    fn check(value: &Datum<'_>, data_type: &DataType, expected: &[u8]) {
        let mut out = Vec::new();
        let zone = Zone::new(TimeZone::parse("UTC").unwrap());
        write_binary(&mut out, value, data_type, zone).unwrap();
        assert_eq!(out, expected, "{value:?}");
    }

    #[test]
    fn numbers_are_big_endian_and_times_begin_in_2000() {
        check(&Datum::Bool(true), &DataType::Bool, &[1]);
        check(&Datum::SmallInt(-2), &DataType::SmallInt, &[255, 254]);
        check(&Datum::Int(1), &DataType::Int, &[0, 0, 0, 1]);
        check(&Datum::Double(1.0), &DataType::Double, &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
        check(&Datum::Date(10_958), &DataType::Date, &[0, 0, 0, 1]);
        check(
            &Datum::Timestamp(946_684_800_001),
            &DataType::Timestamp,
            &[0, 0, 0, 0, 0, 0, 3, 232],
        );
        let zone = Zone::new(TimeZone::parse("UTC").unwrap());
        let far = Datum::Timestamp(i64::MAX);
        assert!(write_binary(&mut Vec::new(), &far, &DataType::Timestamp, zone).is_err());
        let infinite = Datum::Date(i32::MIN + 10_957);
        let refused = write_binary(&mut Vec::new(), &infinite, &DataType::Date, zone);
        assert_eq!(refused.unwrap_err().code, "22008");
    }

    #[test]
    fn arrays_have_their_dimension() {
        let data_type = DataType::Array(Box::new(DataType::SmallInt));
        let items = [Datum::SmallInt(7), Datum::Null];
        let expected = [
            &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0, 1][..],
            &[0, 0, 0, 2, 0, 7, 255, 255, 255, 255],
        ];
        check(&Datum::Array(&items), &data_type, &expected.concat());
        check(&Datum::Array(&[]), &data_type, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 21]);
    }
}

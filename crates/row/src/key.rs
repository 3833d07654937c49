//! Entity keys as bytes: equal bytes exactly when the key values are equal, NULL equal to NULL.

use crate::Datum;

/// Appends the key of `values` to `out`. The integer types have the same encoding, so that INT 1 and
/// BIGINT 1 are one key; a text is preceded by its length, so that no two keys collide.
pub fn encode_key<'a>(values: impl IntoIterator<Item = Datum<'a>>, out: &mut Vec<u8>) {
    for value in values {
        encode_one(value, out);
    }
}

/// Appends one value with its tag.
fn encode_one(value: Datum<'_>, out: &mut Vec<u8>) {
    match value {
        Datum::Null => out.push(0),
        Datum::Bool(value) => out.extend([1, u8::from(value)]),
        Datum::SmallInt(_) | Datum::Int(_) | Datum::BigInt(_) => integer(2, value, out),
        Datum::Timestamp(_) => integer(3, value, out),
        Datum::Date(_) => integer(4, value, out),
        Datum::String(text) => {
            out.push(5);
            let length = u32::try_from(text.len()).expect("a text is shorter than 4 GiB");
            out.extend(length.to_le_bytes());
            out.extend(text.as_bytes());
        }
        Datum::Float(value) => {
            out.push(6);
            out.extend(canonical(f64::from(value)).to_le_bytes());
        }
        Datum::Double(value) => {
            out.push(6);
            out.extend(canonical(value).to_le_bytes());
        }
        Datum::Array(items) => {
            out.push(7);
            integer(2, Datum::BigInt(i64::try_from(items.len()).unwrap_or(i64::MAX)), out);
            encode_key(items.iter().copied(), out);
        }
        Datum::Map(entries) => {
            out.push(8);
            integer(2, Datum::BigInt(i64::try_from(entries.len()).unwrap_or(i64::MAX)), out);
            encode_key(entries.iter().flat_map(|(key, value)| [*key, *value]), out);
        }
    }
}

/// Appends an integer of any type.
fn integer(tag: u8, value: Datum<'_>, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend(value.as_i64().expect("the caller passes integers only").to_le_bytes());
}

/// Returns the value with one bit pattern for both zeros, and one for every NaN: they are one key.
fn canonical(value: f64) -> f64 {
    if value == 0.0 {
        0.0
    } else if value.is_nan() {
        f64::NAN
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::encode_key;
    use crate::Datum;

    fn key(values: &[Datum<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_key(values.iter().copied(), &mut out);
        out
    }

    #[test]
    fn integer_types_share_keys() {
        assert_eq!(key(&[Datum::Int(1)]), key(&[Datum::BigInt(1)]));
        assert_ne!(key(&[Datum::Int(1)]), key(&[Datum::Int(2)]));
    }

    #[test]
    fn texts_with_separators_do_not_collide() {
        let left = key(&[Datum::String("a|"), Datum::String("b")]);
        let right = key(&[Datum::String("a"), Datum::String("|b")]);
        assert_ne!(left, right);
    }

    #[test]
    fn null_is_a_separate_key() {
        assert_eq!(key(&[Datum::Null]), key(&[Datum::Null]));
        assert_ne!(key(&[Datum::Null]), key(&[Datum::String("")]));
    }
}

//! Drawn values: keys, event times, and what aggregates are computed of.
//!
//! Keys are few, so that each has many rows. Values have NULL, NaN, infinities, both zeros, the
//! greatest and the least doubles, and texts of many forms.

use lockstep_row::{DataType, Value};

use crate::{
    oracle::OracleRow,
    random::Random,
    scenario::{EVENT_TIME, ID, KEY, SECOND_KEY},
};

/// Keys with rows; one more has none.
pub const KEYS: usize = 3;

/// Names and types of the columns of every table.
pub type LongWindowColumns = Vec<(String, DataType)>;

/// Draws the columns. The examples of aggregates are computed over `v`, `x`, `f`, `s` and `k`.
pub fn columns(random: &mut Random) -> LongWindowColumns {
    let key = random.pick(&[
        DataType::Bool,
        DataType::SmallInt,
        DataType::Int,
        DataType::BigInt,
        DataType::String,
        DataType::String,
        DataType::Date,
        DataType::Timestamp,
    ]);
    let event_time = random.pick(&[DataType::BigInt, DataType::Timestamp]);
    let columns = [
        ("id", &DataType::BigInt),
        ("p", key),
        ("g", &DataType::Int),
        ("ts", event_time),
        ("v", &DataType::Int),
        ("x", &DataType::Double),
        ("f", &DataType::Bool),
        ("n", &DataType::SmallInt),
        ("b", &DataType::BigInt),
        ("e", &DataType::Float),
        ("d", &DataType::Date),
        ("s", &DataType::String),
        ("k", &DataType::String),
    ];
    columns.map(|(name, data_type)| (name.to_owned(), data_type.clone())).to_vec()
}

/// Draws a row of this id, key and event time.
pub fn row(
    columns: &[(String, DataType)],
    id: i64,
    key: usize,
    event_time: i64,
    random: &mut Random,
) -> OracleRow {
    let cell = |(column, (name, data_type)): (usize, &(String, DataType))| match column {
        ID => Value::BigInt(id),
        KEY => key_value(data_type, key),
        SECOND_KEY => Value::Int(if random.chance(70) { 0 } else { 1 }),
        EVENT_TIME => time_value(data_type, event_time),
        _ if random.chance(12) => Value::Null,
        _ if name == "s" => text(&["k1:v1,k2:v2", "k1:v2", "k3:v1 k2", "", "x y"], random),
        _ if name == "k" => text(&["a", "b", "B", "", "ü", "漢字", "it's"], random),
        _ => value(data_type, random),
    };
    columns.iter().enumerate().map(cell).collect()
}

/// Returns a key by its number; that after the last one is NULL where a key is stored.
pub fn key_value(data_type: &DataType, key: usize) -> Value {
    let number = i16::try_from(key).expect("few keys");
    match data_type {
        DataType::Bool if key > 1 => Value::Null,
        DataType::Bool => Value::Bool(key == 1),
        DataType::SmallInt => Value::SmallInt(number - 1),
        DataType::Int => Value::Int(i32::from(number) - 1),
        DataType::BigInt => Value::BigInt(i64::from(number) << 33),
        DataType::Date => Value::Date(18_000 + i32::from(number)),
        DataType::Timestamp => Value::Timestamp(i64::from(number)),
        _ => Value::String(["", "a", "a|b", "absent"][key].into()),
    }
}

/// Returns an event time as a value of its column.
pub fn time_value(data_type: &DataType, event_time: i64) -> Value {
    match data_type {
        DataType::BigInt => Value::BigInt(event_time),
        _ => Value::Timestamp(event_time),
    }
}

fn text(texts: &[&str], random: &mut Random) -> Value {
    if random.chance(5) {
        return Value::String("long ".repeat(1 + random.below(40)).into());
    }
    Value::String((*random.pick(texts)).into())
}

fn value(data_type: &DataType, random: &mut Random) -> Value {
    let small = i16::try_from(random.below(11)).expect("a small number") - 5;
    let is_special = random.chance(15);
    let bits = random.number();
    match data_type {
        DataType::Bool => Value::Bool(small > 0),
        DataType::SmallInt if is_special => Value::SmallInt(*random.pick(&[i16::MIN, i16::MAX])),
        DataType::SmallInt => Value::SmallInt(small),
        DataType::Int if is_special => Value::Int(*random.pick(&[i32::MIN, i32::MAX])),
        DataType::Int => Value::Int(i32::from(small)),
        DataType::BigInt if is_special => Value::BigInt(bits.cast_signed() >> 6),
        DataType::BigInt => Value::BigInt(i64::from(small)),
        DataType::Float if is_special => Value::Float(*random.pick(&[
            -0.0,
            0.0,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            1e-45,
        ])),
        DataType::Float => Value::Float(f32::from(small) / 10.0),
        DataType::Double if is_special => Value::Double(double(bits, random)),
        DataType::Double => Value::Double(f64::from(small) / 10.0),
        DataType::Date => Value::Date(17_000 + i32::from(small)),
        _ => Value::Null,
    }
}

/// Draws a double that is hard to add. NaN and infinities are few: they make the others unseen.
fn double(bits: u64, random: &mut Random) -> f64 {
    match random.below(12) {
        0 => *random.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
        1 => *random.pick(&[f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324]),
        2..=4 => *random.pick(&[-0.0, 0.0]),
        5..=8 => *random.pick(&[1e16, -1e16, 1e-16, 0.1, 1e300, -1e300]),
        _ => {
            let drawn = f64::from_bits(bits);
            if drawn.is_finite() { drawn } else { 0.3 }
        }
    }
}

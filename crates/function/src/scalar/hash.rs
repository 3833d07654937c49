//! Hashes and distances.

use std::f64::consts::PI;

use lockstep_row::{DataType, Datum, calendar};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation,
    signature::{NUMBER, PLAIN, expect},
};

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    ScalarFunction {
        name: "hash64",
        aliases: &["farm_fingerprint"],
        category: "hashing",
        signature: "hash64(value) → BIGINT",
        doc: "Returns the 64-bit FarmHash fingerprint of the bytes of `value`: UTF-8 for a STRING, little-endian for a number or TIMESTAMP (so the type matters), and OpenMLDB's 32-bit code for a DATE. The result never changes between versions.",
        examples: &[
            ("hash64(int(90))", "-3754664774081171349"),
            ("hash64(bigint(90))", "-6110541762027922508"),
            ("hash64('g1')", "3208330103598489124"),
        ],
        resolve: hash64,
    },
    ScalarFunction {
        name: "earth_distance",
        aliases: &[],
        category: "geography",
        signature: "earth_distance(latitude1, longitude1, latitude2, longitude2) → DOUBLE",
        doc: "Returns the great-circle distance between two points, in kilometers (haversine formula, radius 6372.8 km). Latitudes and longitudes are in degrees; NULL if a latitude is outside ±90 or a longitude is outside ±180.",
        examples: &[
            ("earth_distance(40.0, 73.0, 41.0, 74.0)", "139.72810080682342"),
            ("earth_distance(91.0, 0.0, 0.0, 0.0)", "NULL"),
        ],
        resolve: earth_distance,
    },
];

fn hash64(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[PLAIN])?;
    let parameters = arguments.types.to_vec();
    Ok(ScalarImplementation::new(parameters, DataType::BigInt, |arguments, _| {
        Some(Datum::BigInt(fingerprint(arguments[0])?.cast_signed()))
    }))
}

/// Returns the fingerprint of a value; `None` for NULL, arrays and maps.
pub(super) fn fingerprint(value: Datum<'_>) -> Option<u64> {
    Some(match value {
        Datum::Null | Datum::Array(_) | Datum::Map(_) => return None,
        Datum::Bool(value) => farmhash::fingerprint64(&[u8::from(value)]),
        Datum::SmallInt(value) => farmhash::fingerprint64(&value.to_le_bytes()),
        Datum::Int(value) => farmhash::fingerprint64(&value.to_le_bytes()),
        Datum::BigInt(value) | Datum::Timestamp(value) => {
            farmhash::fingerprint64(&value.to_le_bytes())
        }
        Datum::Float(value) => farmhash::fingerprint64(&value.to_le_bytes()),
        Datum::Double(value) => farmhash::fingerprint64(&value.to_le_bytes()),
        Datum::Date(days) => farmhash::fingerprint64(&calendar::date_code(days)?.to_le_bytes()),
        Datum::String(text) => farmhash::fingerprint64(text.as_bytes()),
    })
}

/// The radius of the earth, in kilometres.
const EARTH_RADIUS_KM: f64 = 6372.8;

fn earth_distance(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[NUMBER; 4])?;
    let parameters = vec![DataType::Double; 4];
    Ok(ScalarImplementation::new(parameters, DataType::Double, |arguments, _| {
        // This order of operations gives the same last bits as OpenMLDB.
        let radians = |degrees: f64| PI * degrees / 180.0;
        let angle = |index: usize, most: f64| {
            arguments[index].as_f64().filter(|angle| (-most..=most).contains(angle)).map(radians)
        };
        let (latitude1, longitude1) = (angle(0, 90.0)?, angle(1, 180.0)?);
        let (latitude2, longitude2) = (angle(2, 90.0)?, angle(3, 180.0)?);
        let half_height = core_math::sin((latitude2 - latitude1) / 2.0);
        let half_width = core_math::sin((longitude2 - longitude1) / 2.0);
        let chord = half_height * half_height
            + half_width * half_width * core_math::cos(latitude1) * core_math::cos(latitude2);
        Some(Datum::Double(2.0 * EARTH_RADIUS_KM * core_math::asin(chord.sqrt())))
    }))
}

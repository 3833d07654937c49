//! The types of PostgreSQL that values have on the wire, and the types of the engine.
//!
//! A TIMESTAMP of the engine is an instant, so it is a `timestamp with time zone` here.

use lockstep_row::DataType;

/// The number of a type of PostgreSQL.
pub(crate) type Oid = u32;

/// The numbers of PostgreSQL's types.
pub(crate) mod oid {
    use super::Oid;

    pub(crate) const BOOL: Oid = 16;
    pub(crate) const CHAR: Oid = 18;
    pub(crate) const NAME: Oid = 19;
    pub(crate) const INT8: Oid = 20;
    pub(crate) const INT2: Oid = 21;
    pub(crate) const INT4: Oid = 23;
    pub(crate) const TEXT: Oid = 25;
    pub(crate) const OID: Oid = 26;
    pub(crate) const JSON: Oid = 114;
    pub(crate) const XML: Oid = 142;
    pub(crate) const FLOAT4: Oid = 700;
    pub(crate) const FLOAT8: Oid = 701;
    pub(crate) const UNKNOWN: Oid = 705;
    pub(crate) const INET: Oid = 869;
    pub(crate) const BPCHAR: Oid = 1042;
    pub(crate) const VARCHAR: Oid = 1043;
    pub(crate) const DATE: Oid = 1082;
    pub(crate) const TIME: Oid = 1083;
    pub(crate) const TIMESTAMP: Oid = 1114;
    pub(crate) const TIMESTAMPTZ: Oid = 1184;
    pub(crate) const NUMERIC: Oid = 1700;
    pub(crate) const REGCLASS: Oid = 2205;
    pub(crate) const UUID: Oid = 2950;
    pub(crate) const JSONB: Oid = 3802;
    pub(crate) const BOOL_ARRAY: Oid = 1000;
    pub(crate) const CHAR_ARRAY: Oid = 1002;
    pub(crate) const NAME_ARRAY: Oid = 1003;
    pub(crate) const INT2_ARRAY: Oid = 1005;
    pub(crate) const INT4_ARRAY: Oid = 1007;
    pub(crate) const INT8_ARRAY: Oid = 1016;
    pub(crate) const FLOAT8_ARRAY: Oid = 1022;
    pub(crate) const TEXT_ARRAY: Oid = 1009;
    pub(crate) const OID_ARRAY: Oid = 1028;
}

/// Returns the type in which values of the engine are sent.
pub(crate) fn oid_of(data_type: &DataType) -> Oid {
    match data_type {
        DataType::Null | DataType::String => oid::TEXT,
        DataType::Bool => oid::BOOL,
        DataType::SmallInt => oid::INT2,
        DataType::Int => oid::INT4,
        DataType::BigInt => oid::INT8,
        DataType::Float => oid::FLOAT4,
        DataType::Double => oid::FLOAT8,
        DataType::Timestamp => oid::TIMESTAMPTZ,
        DataType::Date => oid::DATE,
        DataType::Array(element) => array_oid(element).unwrap_or(oid::JSON),
        DataType::Map(..) => oid::JSON,
    }
}

/// Returns the type of an array with elements of this type; `None` where PostgreSQL has none that fits.
pub(crate) fn array_oid(element: &DataType) -> Option<Oid> {
    Some(match element {
        DataType::Bool => 1000,
        DataType::SmallInt => 1005,
        DataType::Int => 1007,
        DataType::Null | DataType::String => 1009,
        DataType::BigInt => 1016,
        DataType::Float => 1021,
        DataType::Double => 1022,
        DataType::Date => 1182,
        DataType::Timestamp => 1185,
        DataType::Array(_) | DataType::Map(..) => return None,
    })
}

/// The types of arrays that catalogs have, with those of their elements.
const CATALOG_ARRAYS: [(Oid, Oid); 11] = [
    (oid::BOOL_ARRAY, oid::BOOL),
    (oid::CHAR_ARRAY, oid::CHAR),
    (oid::NAME_ARRAY, oid::NAME),
    (oid::INT2_ARRAY, oid::INT2),
    (oid::INT4_ARRAY, oid::INT4),
    (oid::TEXT_ARRAY, oid::TEXT),
    (1015, oid::VARCHAR),
    (oid::INT8_ARRAY, oid::INT8),
    (1021, oid::FLOAT4),
    (oid::FLOAT8_ARRAY, oid::FLOAT8),
    (oid::OID_ARRAY, oid::OID),
];

/// Returns the type of the elements of an array of the catalogs.
pub(crate) fn element_oid(array: Oid) -> Option<Oid> {
    CATALOG_ARRAYS.iter().find(|(known, _)| *known == array).map(|(_, element)| *element)
}

/// Returns the type of arrays of the catalogs with these elements; those of others are texts.
pub(crate) fn array_of(element: Oid) -> Oid {
    let found = CATALOG_ARRAYS.iter().find(|(_, known)| *known == element);
    found.map_or(oid::TEXT_ARRAY, |(array, _)| *array)
}

/// Returns the type of the engine for a parameter of this type; `None` where its values are text whose
/// type the statement decides.
pub(crate) fn type_of_oid(number: Oid) -> Option<DataType> {
    Some(match number {
        oid::BOOL => DataType::Bool,
        oid::INT2 => DataType::SmallInt,
        oid::INT4 => DataType::Int,
        oid::INT8 | oid::OID => DataType::BigInt,
        oid::FLOAT4 => DataType::Float,
        oid::FLOAT8 | oid::NUMERIC => DataType::Double,
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR | oid::JSON => {
            DataType::String
        }
        oid::TIMESTAMP | oid::TIMESTAMPTZ => DataType::Timestamp,
        oid::DATE => DataType::Date,
        _ => return None,
    })
}

/// Returns the bytes of a value in the binary format; -1 where they differ.
pub(crate) fn type_size(number: Oid) -> i16 {
    match number {
        oid::BOOL | oid::CHAR => 1,
        oid::INT2 => 2,
        oid::INT4 | oid::OID | oid::FLOAT4 | oid::DATE => 4,
        oid::INT8 | oid::FLOAT8 | oid::TIMESTAMP | oid::TIMESTAMPTZ => 8,
        oid::NAME => 64,
        _ => -1,
    }
}

/// Returns the name of a type of the engine in PostgreSQL.
pub(crate) fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Null | DataType::String => "text",
        DataType::Bool => "boolean",
        DataType::SmallInt => "smallint",
        DataType::Int => "integer",
        DataType::BigInt => "bigint",
        DataType::Float => "real",
        DataType::Double => "double precision",
        DataType::Timestamp => "timestamp with time zone",
        DataType::Date => "date",
        DataType::Array(_) | DataType::Map(..) => "json",
    }
}

/// Returns the type of the engine for a name of PostgreSQL, in lower case and with one blank between
/// its words.
pub(crate) fn type_of_name(name: &str) -> Option<DataType> {
    Some(match name {
        "bool" | "boolean" => DataType::Bool,
        "int2" | "smallint" => DataType::SmallInt,
        "int" | "int4" | "integer" => DataType::Int,
        "int8" | "bigint" | "oid" => DataType::BigInt,
        "float4" | "real" => DataType::Float,
        "float" | "float8" | "double precision" | "double" | "numeric" | "decimal" => {
            DataType::Double
        }
        "text" | "varchar" | "character varying" | "char varying" | "char" | "character"
        | "bpchar" | "name" | "string" | "unknown" => DataType::String,
        "timestamp" | "timestamptz" => DataType::Timestamp,
        "date" => DataType::Date,
        _ => return None,
    })
}

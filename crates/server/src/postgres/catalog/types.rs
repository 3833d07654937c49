//! The types of PostgreSQL that the catalogs list.

use super::{
    objects::{PG_CATALOG, ROOT_OID, number, text},
    relation::{CatalogField, CatalogRelation},
    value::CatalogValue,
};
use crate::postgres::types::{Oid, oid, type_size};

/// A type: its number, its name, that in SQL, its category, and the number of its array.
struct CatalogType {
    number: Oid,
    name: &'static str,
    sql_name: &'static str,
    category: &'static str,
    array: Oid,
}

const fn declared(
    number: Oid,
    [name, sql_name, category]: [&'static str; 3],
    array: Oid,
) -> CatalogType {
    CatalogType { number, name, sql_name, category, array }
}

/// All types. Those of category `P` are pseudo-types.
const TYPES: &[CatalogType] = &[
    declared(oid::BOOL, ["bool", "boolean", "B"], 1000),
    declared(17, ["bytea", "bytea", "U"], 1001),
    declared(oid::CHAR, ["char", "\"char\"", "Z"], 1002),
    declared(oid::NAME, ["name", "name", "S"], 1003),
    declared(oid::INT8, ["int8", "bigint", "N"], 1016),
    declared(oid::INT2, ["int2", "smallint", "N"], 1005),
    declared(22, ["int2vector", "int2vector", "A"], 1006),
    declared(oid::INT4, ["int4", "integer", "N"], 1007),
    declared(24, ["regproc", "regproc", "N"], 1008),
    declared(oid::TEXT, ["text", "text", "S"], 1009),
    declared(oid::OID, ["oid", "oid", "N"], 1028),
    declared(30, ["oidvector", "oidvector", "A"], 1013),
    declared(oid::JSON, ["json", "json", "U"], 199),
    declared(oid::XML, ["xml", "xml", "U"], 143),
    declared(oid::FLOAT4, ["float4", "real", "N"], 1021),
    declared(oid::FLOAT8, ["float8", "double precision", "N"], 1022),
    declared(oid::UNKNOWN, ["unknown", "unknown", "X"], 0),
    declared(oid::INET, ["inet", "inet", "I"], 1041),
    declared(oid::BPCHAR, ["bpchar", "character", "S"], 1014),
    declared(oid::VARCHAR, ["varchar", "character varying", "S"], 1015),
    declared(oid::DATE, ["date", "date", "D"], 1182),
    declared(oid::TIME, ["time", "time without time zone", "D"], 1183),
    declared(oid::TIMESTAMP, ["timestamp", "timestamp without time zone", "D"], 1115),
    declared(oid::TIMESTAMPTZ, ["timestamptz", "timestamp with time zone", "D"], 1185),
    declared(1186, ["interval", "interval", "T"], 1187),
    declared(oid::NUMERIC, ["numeric", "numeric", "N"], 1231),
    declared(oid::REGCLASS, ["regclass", "regclass", "N"], 2210),
    declared(2206, ["regtype", "regtype", "N"], 2211),
    declared(2249, ["record", "record", "P"], 2287),
    declared(2278, ["void", "void", "P"], 0),
    declared(oid::UUID, ["uuid", "uuid", "U"], 2951),
    declared(oid::JSONB, ["jsonb", "jsonb", "U"], 3807),
];

/// Returns the name of a type as PostgreSQL prints it.
pub(crate) fn type_of_number(found: i64) -> String {
    let has_number = |number: Oid| i64::from(number) == found;
    for known in TYPES {
        if has_number(known.number) {
            return known.sql_name.to_owned();
        }
        if known.array != 0 && has_number(known.array) {
            return format!("{}[]", known.sql_name);
        }
    }
    if found == 0 { "-".to_owned() } else { "???".to_owned() }
}

/// Returns the number of a type that has this word.
pub(super) fn type_of_word(word: &str) -> Option<Oid> {
    match word.strip_suffix("[]").or(word.strip_prefix('_')) {
        Some(element) => TYPES.iter().find(|t| t.name == element).map(|t| t.array),
        None => TYPES.iter().find(|t| t.name == word).map(|t| t.number),
    }
}

/// Returns the short name of a type: `int4`.
pub(super) fn short_name(number: Oid) -> String {
    let known = TYPES.iter().find(|t| t.number == number || t.array == number && number != 0);
    known.map_or_else(String::new, |t| {
        if t.number == number { t.name.to_owned() } else { format!("_{}", t.name) }
    })
}

/// A row of `pg_type`.
#[derive(Debug, Default)]
struct TypeRow {
    number: Oid,
    name: String,
    category: &'static str,
    element: Oid,
    array: Oid,
}

/// Makes `pg_type`.
pub(super) fn types() -> CatalogRelation {
    let mut rows = Vec::new();
    for known in TYPES {
        let element = if known.category == "A" { oid::INT2 } else { 0 };
        rows.push(TypeRow {
            number: known.number,
            name: known.name.to_owned(),
            category: known.category,
            element,
            array: known.array,
        });
        if known.array != 0 {
            let (name, element) = (format!("_{}", known.name), known.number);
            rows.push(TypeRow { number: known.array, name, category: "A", element, array: 0 });
        }
    }
    CatalogRelation::listing(&rows, type_fields)
}

fn type_fields(row: &TypeRow) -> Vec<CatalogField> {
    let size = if row.element == 0 { type_size(row.number) } else { -1 };
    let function = |suffix: &str| {
        let is_array = row.name.starts_with('_');
        let (of, between) = if is_array { ("array", "_") } else { (row.name.as_str(), "") };
        text(&format!("{of}{between}{suffix}"))
    };
    let kind = if row.category == "P" { "p" } else { "b" };
    vec![
        ("oid", oid::OID, number(row.number.into())),
        ("typname", oid::NAME, text(&row.name)),
        ("typnamespace", oid::OID, number(PG_CATALOG)),
        ("typowner", oid::OID, number(ROOT_OID)),
        ("typlen", oid::INT2, number(size.into())),
        ("typbyval", oid::BOOL, CatalogValue::Bool((1..=8).contains(&size))),
        ("typtype", oid::CHAR, text(kind)),
        ("typcategory", oid::CHAR, text(row.category)),
        ("typispreferred", oid::BOOL, CatalogValue::Bool(false)),
        ("typisdefined", oid::BOOL, CatalogValue::Bool(true)),
        ("typdelim", oid::CHAR, text(",")),
        ("typrelid", oid::OID, number(0)),
        ("typsubscript", oid::TEXT, text("-")),
        ("typelem", oid::OID, number(row.element.into())),
        ("typarray", oid::OID, number(row.array.into())),
        ("typinput", oid::TEXT, function("in")),
        ("typoutput", oid::TEXT, function("out")),
        ("typreceive", oid::TEXT, function("recv")),
        ("typsend", oid::TEXT, function("send")),
        ("typalign", oid::CHAR, text("i")),
        ("typstorage", oid::CHAR, text("p")),
        ("typnotnull", oid::BOOL, CatalogValue::Bool(false)),
        ("typbasetype", oid::OID, number(0)),
        ("typtypmod", oid::INT4, number(-1)),
        ("typndims", oid::INT4, number(0)),
        ("typcollation", oid::OID, number(0)),
        ("typdefault", oid::TEXT, CatalogValue::Null),
        ("typacl", oid::TEXT_ARRAY, CatalogValue::Null),
    ]
}

#[cfg(test)]
mod tests {
    use super::{short_name, type_of_number, type_of_word};

    #[test]
    fn types_have_names_and_numbers() {
        assert_eq!(type_of_number(1009), "text[]");
        assert_eq!(type_of_number(23), "integer");
        assert_eq!(type_of_number(99), "???");
        assert_eq!((type_of_word("int4"), type_of_word("text[]")), (Some(23), Some(1009)));
        assert_eq!(type_of_word("nothing"), None);
        assert_eq!((short_name(1007).as_str(), short_name(701).as_str()), ("_int4", "float8"));
    }
}

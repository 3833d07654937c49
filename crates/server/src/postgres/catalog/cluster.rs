//! What the catalogs say of the server: schemas, databases, roles, settings.

use lockstep_diagnostic::Result;
use lockstep_engine::Session;
use lockstep_row::Value;

use super::{
    objects::{
        ACCESS_METHOD, INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, ROOT_OID, number, query, text,
    },
    relation::{CatalogField, CatalogRelation},
    value::CatalogValue,
};
use crate::postgres::{client_settings::default_settings, types::oid};

/// The names of the schemas.
pub(super) const SCHEMAS: [&str; 3] = ["pg_catalog", "public", "information_schema"];

/// Makes `pg_namespace`.
pub(super) fn namespaces() -> CatalogRelation {
    let schemas: Vec<(i64, &str)> =
        [PG_CATALOG, PUBLIC, INFORMATION_SCHEMA].into_iter().zip(SCHEMAS).collect();
    let fields = |(found, name): &(i64, &str)| -> Vec<CatalogField> {
        vec![
            ("oid", oid::OID, number(*found)),
            ("nspname", oid::NAME, text(name)),
            ("nspowner", oid::OID, number(ROOT_OID)),
            ("nspacl", oid::TEXT_ARRAY, CatalogValue::Null),
        ]
    };
    CatalogRelation::listing(&schemas, fields)
}

/// Makes `pg_database`.
pub(super) fn databases(session: &Session) -> Result<CatalogRelation> {
    let names = query(session, "SHOW DATABASES")?;
    let names: Vec<(i64, String)> = (1_i64..)
        .zip(names.iter().filter_map(|row| row.first()))
        .map(|(at, name)| (at, CatalogValue::of(name).display()))
        .collect();
    let fields = |(found, name): &(i64, String)| -> Vec<CatalogField> {
        vec![
            ("oid", oid::OID, number(*found)),
            ("datname", oid::NAME, text(name)),
            ("datdba", oid::OID, number(ROOT_OID)),
            ("encoding", oid::INT4, number(6)),
            ("datlocprovider", oid::CHAR, text("c")),
            ("datistemplate", oid::BOOL, CatalogValue::Bool(false)),
            ("datallowconn", oid::BOOL, CatalogValue::Bool(true)),
            ("datconnlimit", oid::INT4, number(-1)),
            ("dattablespace", oid::OID, number(DEFAULT_TABLESPACE)),
            ("datcollate", oid::TEXT, text("C")),
            ("datctype", oid::TEXT, text("C.UTF-8")),
            ("daticulocale", oid::TEXT, CatalogValue::Null),
            ("datcollversion", oid::TEXT, CatalogValue::Null),
            ("datacl", oid::TEXT_ARRAY, CatalogValue::Null),
        ]
    };
    Ok(CatalogRelation::listing(&names, fields))
}

/// The number of the one tablespace.
const DEFAULT_TABLESPACE: i64 = 1_663;

/// Makes `pg_tablespace`.
pub(super) fn tablespaces() -> CatalogRelation {
    let fields = |name: &&str| -> Vec<CatalogField> {
        vec![
            ("oid", oid::OID, number(DEFAULT_TABLESPACE)),
            ("spcname", oid::NAME, text(name)),
            ("spcowner", oid::OID, number(ROOT_OID)),
            ("spcacl", oid::TEXT_ARRAY, CatalogValue::Null),
            ("spcoptions", oid::TEXT_ARRAY, CatalogValue::Null),
        ]
    };
    CatalogRelation::listing(&["pg_default"], fields)
}

/// Makes `pg_am`.
pub(super) fn access_methods() -> CatalogRelation {
    let fields = |name: &&str| -> Vec<CatalogField> {
        vec![
            ("oid", oid::OID, number(ACCESS_METHOD)),
            ("amname", oid::NAME, text(name)),
            ("amhandler", oid::TEXT, text("-")),
            ("amtype", oid::CHAR, text("t")),
        ]
    };
    CatalogRelation::listing(&["memory"], fields)
}

/// Makes `pg_settings`: the settings of PostgreSQL with their defaults.
pub(super) fn settings() -> CatalogRelation {
    let settings: Vec<(&str, &str)> = default_settings().collect();
    let fields = |(name, value): &(&str, &str)| -> Vec<CatalogField> {
        vec![
            ("name", oid::TEXT, text(&name.to_lowercase())),
            ("setting", oid::TEXT, text(value)),
            ("unit", oid::TEXT, CatalogValue::Null),
            ("category", oid::TEXT, text("Client Connection Defaults")),
            ("short_desc", oid::TEXT, CatalogValue::Null),
            ("context", oid::TEXT, text("user")),
            ("vartype", oid::TEXT, text("string")),
            ("source", oid::TEXT, text("default")),
            ("boot_val", oid::TEXT, text(value)),
            ("reset_val", oid::TEXT, text(value)),
        ]
    };
    CatalogRelation::listing(&settings, fields)
}

/// A user or a role.
#[derive(Debug, Default)]
struct Role {
    number: i64,
    name: String,
    is_root: bool,
    is_user: bool,
}

/// Makes `pg_roles` and the views of it.
pub(super) fn roles(session: &Session) -> Result<CatalogRelation> {
    let mut roles = Vec::new();
    let found = query(session, "SELECT name, is_role FROM lockstep.users")?;
    for (at, row) in (100_i64..).zip(&found) {
        let [Value::String(name), Value::Bool(is_role)] = row.as_slice() else { continue };
        let is_root = &**name == "root";
        let number = if is_root { ROOT_OID } else { at };
        roles.push(Role { number, name: name.to_string(), is_root, is_user: !is_role });
    }
    Ok(CatalogRelation::listing(&roles, role_fields))
}

fn role_fields(role: &Role) -> Vec<CatalogField> {
    let flag = CatalogValue::Bool;
    vec![
        ("oid", oid::OID, number(role.number)),
        ("rolname", oid::NAME, text(&role.name)),
        ("rolsuper", oid::BOOL, flag(role.is_root)),
        ("rolinherit", oid::BOOL, flag(true)),
        ("rolcreaterole", oid::BOOL, flag(role.is_root)),
        ("rolcreatedb", oid::BOOL, flag(role.is_root)),
        ("rolcanlogin", oid::BOOL, flag(role.is_user)),
        ("rolreplication", oid::BOOL, flag(false)),
        ("rolconnlimit", oid::INT4, number(-1)),
        ("rolpassword", oid::TEXT, text("********")),
        ("rolvaliduntil", oid::TIMESTAMPTZ, CatalogValue::Null),
        ("rolbypassrls", oid::BOOL, flag(role.is_root)),
        ("rolconfig", oid::TEXT_ARRAY, CatalogValue::Null),
        ("usename", oid::NAME, text(&role.name)),
        ("usesysid", oid::OID, number(role.number)),
        ("usecreatedb", oid::BOOL, flag(role.is_root)),
        ("usesuper", oid::BOOL, flag(role.is_root)),
        ("groname", oid::NAME, text(&role.name)),
        ("grosysid", oid::OID, number(role.number)),
    ]
}

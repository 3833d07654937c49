//! The views of `information_schema`.

use lockstep_diagnostic::Result;
use lockstep_engine::Session;
use lockstep_row::DataType;

use super::{
    objects::{VisibleColumn, number, tables, text},
    relation::{CatalogField, CatalogRelation},
    routines::routines,
    types::short_name,
    value::CatalogValue,
    views::views,
};
use crate::postgres::types::{oid, oid_of, type_name};

/// Makes `information_schema.schemata`.
pub(super) fn schemata(session: &Session) -> CatalogRelation {
    let database = session.current_database();
    let fields = |name: &&str| -> Vec<CatalogField> {
        vec![
            ("catalog_name", oid::NAME, text(&database)),
            ("schema_name", oid::NAME, text(name)),
            ("schema_owner", oid::NAME, text("root")),
        ]
    };
    CatalogRelation::listing(&["public", "pg_catalog", "information_schema"], fields)
}

/// Makes `information_schema.tables`.
pub(super) fn table_views(session: &Session) -> Result<CatalogRelation> {
    let database = session.current_database();
    let mut rows: Vec<TableRow> = Vec::new();
    rows.extend(tables(session)?.into_iter().map(|table| TableRow::new(table.name, false)));
    rows.extend(views(session)?.into_iter().map(|view| TableRow::new(view.name, true)));
    let fields = |row: &TableRow| -> Vec<CatalogField> {
        let (kind, takes_rows) = if row.is_view { ("VIEW", "NO") } else { ("BASE TABLE", "YES") };
        vec![
            ("table_catalog", oid::NAME, text(&database)),
            ("table_schema", oid::NAME, text("public")),
            ("table_name", oid::NAME, text(&row.name)),
            ("table_type", oid::TEXT, text(kind)),
            ("self_referencing_column_name", oid::NAME, CatalogValue::Null),
            ("is_insertable_into", oid::TEXT, text(takes_rows)),
            ("is_typed", oid::TEXT, text("NO")),
        ]
    };
    Ok(CatalogRelation::listing(&rows, fields))
}

/// A row of `information_schema.tables`.
#[derive(Debug, Default)]
struct TableRow {
    name: String,
    is_view: bool,
}

impl TableRow {
    fn new(name: String, is_view: bool) -> Self {
        Self { name, is_view }
    }
}

/// A row of `information_schema.columns`.
#[derive(Debug, Default)]
struct ColumnRow {
    table: String,
    position: i64,
    column: VisibleColumn,
    is_of_view: bool,
}

/// Makes `information_schema.columns`.
pub(super) fn columns(session: &Session) -> Result<CatalogRelation> {
    let database = session.current_database();
    let mut rows = Vec::new();
    let relations = tables(session)?.into_iter().map(|table| (table.name, table.columns, false));
    let of_views = views(session)?.into_iter().map(|view| (view.name, view.columns, true));
    for (table, columns, is_of_view) in relations.chain(of_views) {
        for (position, column) in (1..).zip(columns) {
            rows.push(ColumnRow { table: table.clone(), position, column, is_of_view });
        }
    }
    Ok(CatalogRelation::listing(&rows, |row| column_fields(row, &database)))
}

fn column_fields(row: &ColumnRow, database: &str) -> Vec<CatalogField> {
    let data_type = &row.column.data_type;
    let yes_or_no = |is_yes: bool| text(if is_yes { "YES" } else { "NO" });
    let (bits, scale) = match data_type {
        DataType::SmallInt => (number(16), number(0)),
        DataType::Int => (number(32), number(0)),
        DataType::BigInt => (number(64), number(0)),
        DataType::Float => (number(24), CatalogValue::Null),
        DataType::Double => (number(53), CatalogValue::Null),
        _ => (CatalogValue::Null, CatalogValue::Null),
    };
    let radix = if bits.is_null() { CatalogValue::Null } else { number(2) };
    let digits = match data_type {
        DataType::Timestamp => number(6),
        DataType::Date => number(0),
        _ => CatalogValue::Null,
    };
    vec![
        ("table_catalog", oid::NAME, text(database)),
        ("table_schema", oid::NAME, text("public")),
        ("table_name", oid::NAME, text(&row.table)),
        ("column_name", oid::NAME, text(&row.column.name)),
        ("ordinal_position", oid::INT4, number(row.position)),
        ("column_default", oid::TEXT, CatalogValue::Null),
        ("is_nullable", oid::TEXT, yes_or_no(row.column.is_nullable)),
        ("data_type", oid::TEXT, text(type_name(data_type))),
        ("character_maximum_length", oid::INT4, CatalogValue::Null),
        ("character_octet_length", oid::INT4, CatalogValue::Null),
        ("numeric_precision", oid::INT4, bits),
        ("numeric_precision_radix", oid::INT4, radix),
        ("numeric_scale", oid::INT4, scale),
        ("datetime_precision", oid::INT4, digits),
        ("interval_type", oid::TEXT, CatalogValue::Null),
        ("character_set_name", oid::NAME, CatalogValue::Null),
        ("collation_name", oid::NAME, CatalogValue::Null),
        ("domain_name", oid::NAME, CatalogValue::Null),
        ("udt_catalog", oid::NAME, text(database)),
        ("udt_schema", oid::NAME, text("pg_catalog")),
        ("udt_name", oid::NAME, text(&short_name(oid_of(data_type)))),
        ("is_identity", oid::TEXT, yes_or_no(false)),
        ("identity_generation", oid::TEXT, CatalogValue::Null),
        ("is_generated", oid::TEXT, text("NEVER")),
        ("generation_expression", oid::TEXT, CatalogValue::Null),
        ("is_updatable", oid::TEXT, yes_or_no(!row.is_of_view)),
    ]
}

/// Makes `information_schema.routines`: the deployments.
pub(super) fn routine_views(session: &Session) -> Result<CatalogRelation> {
    let database = session.current_database();
    let routines: Vec<(String, String)> =
        routines(session)?.into_iter().map(|routine| (routine.name, routine.sql)).collect();
    let fields = |(name, sql): &(String, String)| -> Vec<CatalogField> {
        vec![
            ("specific_catalog", oid::NAME, text(&database)),
            ("specific_schema", oid::NAME, text("public")),
            ("specific_name", oid::NAME, text(name)),
            ("routine_catalog", oid::NAME, text(&database)),
            ("routine_schema", oid::NAME, text("public")),
            ("routine_name", oid::NAME, text(name)),
            ("routine_type", oid::TEXT, text("FUNCTION")),
            ("data_type", oid::TEXT, text("record")),
            ("routine_body", oid::TEXT, text("SQL")),
            ("routine_definition", oid::TEXT, text(sql)),
            ("external_language", oid::TEXT, text("SQL")),
        ]
    };
    Ok(CatalogRelation::listing(&routines, fields))
}

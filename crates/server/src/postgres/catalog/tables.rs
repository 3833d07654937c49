//! The tables of the catalogs, made of what a session sees.
//!
//! A table is a relation of kind `r`, an index one of kind `i`, a deployment a function; all are in the
//! schema `public` of the session's database. Tables of what there is nothing of (triggers, comments,
//! inheritance) are empty, and have every column.

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::Session;
use lockstep_row::{Arena, DataType, Value, arrow::ColumnReader};

use crate::postgres::types::{Oid, oid, oid_of, type_name, type_size};

/// The number of the user `root`.
pub(super) const ROOT_OID: i64 = 10;

/// The numbers of the schemas.
const PG_CATALOG: i64 = 11;
const PUBLIC: i64 = 2_200;
const INFORMATION_SCHEMA: i64 = 13_000;

/// The first number of tables, of indexes, and of deployments.
const FIRST_TABLE: i64 = 16_384;
const FIRST_INDEX: i64 = 1 << 29;
const FIRST_ROUTINE: i64 = 1 << 30;

/// The number of the one access method.
const ACCESS_METHOD: i64 = 2;

/// A table.
#[derive(Debug, Clone)]
pub(super) struct CatalogRelation {
    pub(super) columns: Vec<(String, Oid)>,
    pub(super) rows: Vec<Vec<Value>>,
    /// Whether columns that are not listed are NULL.
    pub(super) has_any_column: bool,
}

impl CatalogRelation {
    fn new(columns: &[(&str, Oid)], rows: Vec<Vec<Value>>) -> Self {
        debug_assert!(rows.iter().all(|row| row.len() == columns.len()), "{columns:?}");
        let columns = columns.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        Self { columns, rows, has_any_column: true }
    }

    /// Returns the position of a column.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|(column, _)| column.eq_ignore_ascii_case(name))
    }
}

/// Tables without rows.
const EMPTY: &[&str] = &[
    "information_schema.check_constraints",
    "information_schema.constraint_column_usage",
    "information_schema.key_column_usage",
    "information_schema.referential_constraints",
    "information_schema.routines",
    "information_schema.sequences",
    "information_schema.table_constraints",
    "information_schema.triggers",
    "information_schema.views",
    "pg_attrdef",
    "pg_auth_members",
    "pg_available_extensions",
    "pg_collation",
    "pg_constraint",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_indexes",
    "pg_inherits",
    "pg_language",
    "pg_locks",
    "pg_matviews",
    "pg_opclass",
    "pg_operator",
    "pg_partitioned_table",
    "pg_policies",
    "pg_policy",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_range",
    "pg_rewrite",
    "pg_rules",
    "pg_sequence",
    "pg_sequences",
    "pg_shdescription",
    "pg_stat_activity",
    "pg_stat_user_tables",
    "pg_statio_user_tables",
    "pg_statistic_ext",
    "pg_subscription",
    "pg_trigger",
    "pg_ts_config",
    "pg_views",
];

/// Makes a table of the catalogs.
pub(super) fn make_table(session: &Session, name: &str) -> Result<CatalogRelation> {
    if EMPTY.contains(&name) {
        return Ok(CatalogRelation::new(&[("oid", oid::OID), ("name", oid::NAME)], Vec::new()));
    }
    Ok(match name {
        "pg_namespace" => namespaces(),
        "pg_class" => classes(session)?,
        "pg_attribute" => attributes(session)?,
        "pg_type" => types(),
        "pg_index" => indexes(session)?,
        "pg_proc" | "lockstep_routines" => routines(session)?,
        "lockstep_indexes" => index_texts(session)?,
        "pg_database" => databases(session)?,
        "pg_roles" | "pg_user" | "pg_authid" => roles(session)?,
        "pg_am" => CatalogRelation::new(
            &[("oid", oid::OID), ("amname", oid::NAME), ("amtype", oid::CHAR)],
            vec![vec![number(ACCESS_METHOD), text("memory"), text("t")]],
        ),
        "pg_tablespace" => CatalogRelation::new(
            &[("oid", oid::OID), ("spcname", oid::NAME), ("spcowner", oid::OID)],
            vec![vec![number(1_663), text("pg_default"), number(ROOT_OID)]],
        ),
        "pg_settings" => CatalogRelation::new(
            &[("name", oid::TEXT), ("setting", oid::TEXT)],
            vec![vec![text("server_version"), text("16.0")]],
        ),
        "pg_tables" => table_list(session)?,
        "information_schema.schemata" => CatalogRelation::new(
            &[("catalog_name", oid::NAME), ("schema_name", oid::NAME), ("schema_owner", oid::NAME)],
            vec![vec![text(&session.current_database()), text("public"), text("root")]],
        ),
        "information_schema.tables" => information_tables(session)?,
        "information_schema.columns" => information_columns(session)?,
        _ => {
            let message = format!("relation {name} of the catalogs is not served");
            return Diagnostic::unsupported(message)
                .with_hint(
                    "DESC, SHOW and the tables of the database `lockstep` say what there is.",
                )
                .err();
        }
    })
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn number(number: i64) -> Value {
    Value::BigInt(number)
}

fn count(count: usize) -> Value {
    number(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Runs a query of the engine and returns its rows.
fn query(session: &Session, sql: &str) -> Result<Vec<Vec<Value>>> {
    let output = session.execute(sql)?;
    let mut rows = Vec::new();
    for batch in &output.batches {
        let arena = Arena::new();
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        rows.extend((0..batch.num_rows()).map(|at| -> Vec<Value> {
            readers.iter().map(|reader| reader.get(at, &arena).to_value()).collect()
        }));
    }
    Ok(rows)
}

/// A table that the session sees.
struct VisibleTable {
    number: i64,
    name: String,
    columns: Vec<(String, DataType)>,
    rows: i64,
}

/// Returns the tables of the session's database.
fn tables(session: &Session) -> Result<Vec<VisibleTable>> {
    let database = session.current_database();
    let mut seen = Vec::new();
    for row in query(session, "SELECT database_name, name, id, rows FROM lockstep.tables")? {
        let [Value::String(of), Value::String(name), Value::BigInt(id), Value::BigInt(rows)] =
            row.as_slice()
        else {
            continue;
        };
        if **of != *database {
            continue;
        }
        // A table that was dropped meanwhile is not there any more.
        let Ok(columns) = session.table_columns(name) else { continue };
        let number = FIRST_TABLE + (id & 0x007f_ffff);
        seen.push(VisibleTable { number, name: name.to_string(), columns, rows: *rows });
    }
    Ok(seen)
}

/// An index that the session sees.
struct SeenIndex {
    number: i64,
    name: String,
    table: i64,
    /// The positions of its columns, from 1.
    columns: Vec<i64>,
    text: String,
    names: String,
}

fn seen_indexes(session: &Session) -> Result<Vec<SeenIndex>> {
    let mut seen = Vec::new();
    for table in tables(session)? {
        let Ok(indexes) = session.indexes(&table.name) else { continue };
        for (at, index) in indexes.into_iter().enumerate() {
            let names: Vec<String> = index.keys.iter().chain(&index.event_time).cloned().collect();
            let position = |name: &String| {
                let found = table.columns.iter().position(|(column, _)| column == name);
                found.and_then(|at| i64::try_from(at + 1).ok()).unwrap_or(0)
            };
            let columns = names.iter().map(position).collect();
            let at = i64::try_from(at).unwrap_or(0);
            let names = names.join(", ");
            seen.push(SeenIndex {
                number: FIRST_INDEX + (table.number - FIRST_TABLE) * 64 + at.min(63),
                text: format!(
                    "CREATE INDEX {} ON public.{} USING memory ({names})",
                    index.name, table.name
                ),
                name: index.name,
                table: table.number,
                columns,
                names,
            });
        }
    }
    Ok(seen)
}

fn namespaces() -> CatalogRelation {
    let row =
        |(found, name): (i64, &str)| vec![number(found), text(name), number(ROOT_OID), Value::Null];
    let schemas = [
        (PG_CATALOG, "pg_catalog"),
        (PUBLIC, "public"),
        (INFORMATION_SCHEMA, "information_schema"),
    ];
    CatalogRelation::new(
        &[("oid", oid::OID), ("nspname", oid::NAME), ("nspowner", oid::OID), ("nspacl", oid::TEXT)],
        schemas.map(row).to_vec(),
    )
}

fn classes(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("oid", oid::OID),
        ("relname", oid::NAME),
        ("relnamespace", oid::OID),
        ("relkind", oid::CHAR),
        ("relowner", oid::OID),
        ("relnatts", oid::INT2),
        ("reltuples", oid::FLOAT4),
        ("relam", oid::OID),
        ("relhasindex", oid::BOOL),
        ("relchecks", oid::INT2),
        ("relhasrules", oid::BOOL),
        ("relhastriggers", oid::BOOL),
        ("relrowsecurity", oid::BOOL),
        ("relforcerowsecurity", oid::BOOL),
        ("relispartition", oid::BOOL),
        ("relpersistence", oid::CHAR),
        ("relreplident", oid::CHAR),
        ("reltablespace", oid::OID),
        ("reltoastrelid", oid::OID),
        ("reloftype", oid::OID),
        ("relpages", oid::INT4),
    ];
    let row = |found: i64, name: &str, kind: &str, attributes: usize, rows: i64| {
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let rows = Value::Float(rows as f32);
        let flag = Value::Bool(false);
        vec![
            number(found),
            text(name),
            number(PUBLIC),
            text(kind),
            number(ROOT_OID),
            count(attributes),
            rows,
            number(ACCESS_METHOD),
            Value::Bool(kind == "r"),
            number(0),
            flag.clone(),
            flag.clone(),
            flag.clone(),
            flag.clone(),
            flag,
            text("p"),
            text("d"),
            number(0),
            number(0),
            number(0),
            number(0),
        ]
    };
    let tables = tables(session)?;
    let mut rows: Vec<Vec<Value>> =
        tables.iter().map(|t| row(t.number, &t.name, "r", t.columns.len(), t.rows)).collect();
    let indexes = seen_indexes(session)?;
    rows.extend(indexes.iter().map(|i| row(i.number, &i.name, "i", i.columns.len(), 0)));
    Ok(CatalogRelation::new(&columns, rows))
}

fn attributes(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("attrelid", oid::OID),
        ("attname", oid::NAME),
        ("atttypid", oid::OID),
        ("attnum", oid::INT2),
        ("attlen", oid::INT2),
        ("atttypmod", oid::INT4),
        ("attnotnull", oid::BOOL),
        ("atthasdef", oid::BOOL),
        ("attisdropped", oid::BOOL),
        ("attidentity", oid::CHAR),
        ("attgenerated", oid::CHAR),
        ("attcollation", oid::OID),
        ("attstorage", oid::CHAR),
        ("attcompression", oid::CHAR),
        ("attndims", oid::INT4),
        ("attstattarget", oid::INT4),
    ];
    let row = |table: i64, at: usize, (name, data_type): &(String, DataType)| {
        let found = oid_of(data_type);
        vec![
            number(table),
            text(name),
            number(found.into()),
            count(at + 1),
            number(type_size(found).into()),
            number(-1),
            Value::Bool(false),
            Value::Bool(false),
            Value::Bool(false),
            text(""),
            text(""),
            number(0),
            text("p"),
            text(""),
            number(0),
            number(-1),
        ]
    };
    let tables = tables(session)?;
    let rows = tables.iter().flat_map(|table| {
        table.columns.iter().enumerate().map(|(at, column)| row(table.number, at, column))
    });
    Ok(CatalogRelation::new(&columns, rows.collect()))
}

/// The types: number, name, category, and the number of the array.
const TYPES: &[(Oid, &str, &str, Oid)] = &[
    (oid::BOOL, "bool", "B", 1000),
    (oid::CHAR, "char", "Z", 1002),
    (oid::NAME, "name", "S", 1003),
    (oid::INT8, "int8", "N", 1016),
    (oid::INT2, "int2", "N", 1005),
    (oid::INT4, "int4", "N", 1007),
    (oid::TEXT, "text", "S", 1009),
    (oid::OID, "oid", "N", 1028),
    (oid::JSON, "json", "U", 199),
    (oid::FLOAT4, "float4", "N", 1021),
    (oid::FLOAT8, "float8", "N", 1022),
    (oid::UNKNOWN, "unknown", "X", 0),
    (oid::BPCHAR, "bpchar", "S", 1014),
    (oid::VARCHAR, "varchar", "S", 1015),
    (oid::DATE, "date", "D", 1182),
    (oid::TIMESTAMP, "timestamp", "D", 1115),
    (oid::TIMESTAMPTZ, "timestamptz", "D", 1185),
    (oid::NUMERIC, "numeric", "N", 1231),
    (oid::REGCLASS, "regclass", "N", 2210),
];

/// Returns the name of a type as PostgreSQL prints it.
pub(super) fn type_of_number(found: i64) -> &'static str {
    let Some((number, name, ..)) = TYPES.iter().find(|(number, ..)| i64::from(*number) == found)
    else {
        return "???";
    };
    match crate::postgres::types::type_of_oid(*number) {
        Some(DataType::String) | None => match *number {
            oid::VARCHAR => "character varying",
            oid::BPCHAR => "character",
            _ => name,
        },
        Some(_) if [oid::OID, oid::NUMERIC].contains(number) => name,
        Some(DataType::Timestamp) if *number == oid::TIMESTAMP => "timestamp without time zone",
        Some(data_type) => type_name(&data_type),
    }
}

fn types() -> CatalogRelation {
    let columns = [
        ("oid", oid::OID),
        ("typname", oid::NAME),
        ("typnamespace", oid::OID),
        ("typlen", oid::INT2),
        ("typtype", oid::CHAR),
        ("typcategory", oid::CHAR),
        ("typrelid", oid::OID),
        ("typelem", oid::OID),
        ("typarray", oid::OID),
        ("typbasetype", oid::OID),
        ("typtypmod", oid::INT4),
        ("typnotnull", oid::BOOL),
        ("typdelim", oid::CHAR),
        ("typcollation", oid::OID),
        ("typinput", oid::TEXT),
        ("typoutput", oid::TEXT),
        ("typreceive", oid::TEXT),
        ("typowner", oid::OID),
        ("typisdefined", oid::BOOL),
        ("typbyval", oid::BOOL),
    ];
    let row = |found: Oid, name: &str, category: &str, element: Oid, array: Oid| {
        let size = if element == 0 { type_size(found) } else { -1 };
        let function = |suffix: &str| {
            let of = if element == 0 { name } else { "array" };
            text(&format!("{of}{}{suffix}", if element == 0 { "" } else { "_" }))
        };
        vec![
            number(found.into()),
            text(name),
            number(PG_CATALOG),
            number(size.into()),
            text("b"),
            text(category),
            number(0),
            number(element.into()),
            number(array.into()),
            number(0),
            number(-1),
            Value::Bool(false),
            text(","),
            number(0),
            function("in"),
            function("out"),
            function("recv"),
            number(ROOT_OID),
            Value::Bool(true),
            Value::Bool((1..=8).contains(&size)),
        ]
    };
    let mut rows = Vec::new();
    for (found, name, category, array) in TYPES {
        rows.push(row(*found, name, category, 0, *array));
        if *array != 0 {
            rows.push(row(*array, &format!("_{name}"), "A", *found, 0));
        }
    }
    CatalogRelation::new(&columns, rows)
}

fn indexes(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("indexrelid", oid::OID),
        ("indrelid", oid::OID),
        ("indkey", oid::TEXT),
        ("indisprimary", oid::BOOL),
        ("indisunique", oid::BOOL),
        ("indisclustered", oid::BOOL),
        ("indisvalid", oid::BOOL),
        ("indisreplident", oid::BOOL),
        ("indnatts", oid::INT2),
        ("indnkeyatts", oid::INT2),
        ("indoption", oid::TEXT),
    ];
    let row = |index: &SeenIndex| {
        let flag = Value::Bool(false);
        let keys: Vec<Value> = index.columns.iter().copied().map(Value::BigInt).collect();
        vec![
            number(index.number),
            number(index.table),
            Value::Array(keys),
            flag.clone(),
            flag.clone(),
            flag.clone(),
            Value::Bool(true),
            flag,
            count(index.columns.len()),
            count(index.columns.len()),
            Value::Array(vec![number(0); index.columns.len()]),
        ]
    };
    Ok(CatalogRelation::new(&columns, seen_indexes(session)?.iter().map(row).collect()))
}

/// Makes the table of which `pg_get_indexdef` takes its texts.
fn index_texts(session: &Session) -> Result<CatalogRelation> {
    let row = |index: &SeenIndex| vec![number(index.number), text(&index.text), text(&index.names)];
    let rows = seen_indexes(session)?.iter().map(row).collect();
    let columns = [("oid", oid::OID), ("text", oid::TEXT), ("columns", oid::TEXT)];
    Ok(CatalogRelation::new(&columns, rows))
}

/// Deployments as functions.
fn routines(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("oid", oid::OID),
        ("proname", oid::NAME),
        ("pronamespace", oid::OID),
        ("prokind", oid::CHAR),
        ("result", oid::TEXT),
        ("arguments", oid::TEXT),
        ("proowner", oid::OID),
        ("prosrc", oid::TEXT),
        ("provolatile", oid::CHAR),
        ("proretset", oid::BOOL),
        ("pronargs", oid::INT2),
    ];
    let database = session.current_database();
    let list = |columns: &[(String, DataType)]| {
        let column =
            |(name, data_type): &(String, DataType)| format!("{name} {}", type_name(data_type));
        columns.iter().map(column).collect::<Vec<_>>().join(", ")
    };
    let mut rows = Vec::new();
    for (at, row) in
        query(session, "SELECT database_name, name FROM lockstep.deployments")?.iter().enumerate()
    {
        let [Value::String(of), Value::String(name)] = row.as_slice() else { continue };
        let Ok(found) = session.deployment(&format!("{of}.{name}")) else { continue };
        if **of != *database {
            continue;
        }
        rows.push(vec![
            number(FIRST_ROUTINE + i64::try_from(at).unwrap_or(0)),
            text(name),
            number(PUBLIC),
            text("f"),
            text(&format!("TABLE({})", list(&found.output))),
            text(&list(&found.input)),
            number(ROOT_OID),
            text(&found.sql),
            text("s"),
            Value::Bool(true),
            count(found.input.len()),
        ]);
    }
    Ok(CatalogRelation::new(&columns, rows))
}

fn databases(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("oid", oid::OID),
        ("datname", oid::NAME),
        ("datdba", oid::OID),
        ("encoding", oid::INT4),
        ("datcollate", oid::TEXT),
        ("datctype", oid::TEXT),
        ("datistemplate", oid::BOOL),
        ("datallowconn", oid::BOOL),
        ("datlocprovider", oid::CHAR),
        ("datconnlimit", oid::INT4),
        ("dattablespace", oid::OID),
    ];
    let row = |(at, row): (usize, &Vec<Value>)| {
        vec![
            count(at + 1),
            row.first().cloned().unwrap_or_default(),
            number(ROOT_OID),
            number(6),
            text("C"),
            text("C.UTF-8"),
            Value::Bool(false),
            Value::Bool(true),
            text("c"),
            number(-1),
            number(1_663),
        ]
    };
    let found = query(session, "SHOW DATABASES")?;
    Ok(CatalogRelation::new(&columns, found.iter().enumerate().map(row).collect()))
}

fn roles(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("oid", oid::OID),
        ("rolname", oid::NAME),
        ("rolsuper", oid::BOOL),
        ("rolinherit", oid::BOOL),
        ("rolcreaterole", oid::BOOL),
        ("rolcreatedb", oid::BOOL),
        ("rolcanlogin", oid::BOOL),
        ("rolreplication", oid::BOOL),
        ("rolbypassrls", oid::BOOL),
        ("rolconnlimit", oid::INT4),
        ("rolvaliduntil", oid::TIMESTAMPTZ),
        ("usename", oid::NAME),
        ("usesysid", oid::OID),
    ];
    let mut rows = Vec::new();
    let found = query(session, "SELECT name, is_role FROM lockstep.users")?;
    for (at, row) in found.iter().enumerate() {
        let [Value::String(name), Value::Bool(is_role)] = row.as_slice() else { continue };
        let is_root = &**name == "root";
        let number_of = if is_root { ROOT_OID } else { 100 + i64::try_from(at).unwrap_or(0) };
        let root = Value::Bool(is_root);
        rows.push(vec![
            number(number_of),
            text(name),
            root.clone(),
            Value::Bool(true),
            root.clone(),
            root.clone(),
            Value::Bool(!is_role),
            Value::Bool(false),
            root,
            number(-1),
            Value::Null,
            text(name),
            number(number_of),
        ]);
    }
    Ok(CatalogRelation::new(&columns, rows))
}

fn table_list(session: &Session) -> Result<CatalogRelation> {
    let columns = [("schemaname", oid::NAME), ("tablename", oid::NAME), ("tableowner", oid::NAME)];
    let tables = tables(session)?;
    let row = |table: &VisibleTable| vec![text("public"), text(&table.name), text("root")];
    Ok(CatalogRelation::new(&columns, tables.iter().map(row).collect()))
}

fn information_tables(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("table_catalog", oid::NAME),
        ("table_schema", oid::NAME),
        ("table_name", oid::NAME),
        ("table_type", oid::TEXT),
    ];
    let database = session.current_database();
    let row = |table: &VisibleTable| {
        vec![text(&database), text("public"), text(&table.name), text("BASE TABLE")]
    };
    Ok(CatalogRelation::new(&columns, tables(session)?.iter().map(row).collect()))
}

fn information_columns(session: &Session) -> Result<CatalogRelation> {
    let columns = [
        ("table_catalog", oid::NAME),
        ("table_schema", oid::NAME),
        ("table_name", oid::NAME),
        ("column_name", oid::NAME),
        ("ordinal_position", oid::INT4),
        ("column_default", oid::TEXT),
        ("is_nullable", oid::TEXT),
        ("data_type", oid::TEXT),
        ("udt_name", oid::NAME),
    ];
    let database = session.current_database();
    let mut rows = Vec::new();
    for table in tables(session)? {
        for (at, (name, data_type)) in table.columns.iter().enumerate() {
            let found = oid_of(data_type);
            let udt = TYPES.iter().find(|(number, ..)| *number == found).map_or("json", |t| t.1);
            rows.push(vec![
                text(&database),
                text("public"),
                text(&table.name),
                text(name),
                count(at + 1),
                Value::Null,
                text("YES"),
                text(type_name(data_type)),
                text(udt),
            ]);
        }
    }
    Ok(CatalogRelation::new(&columns, rows))
}

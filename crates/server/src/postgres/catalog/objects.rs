//! The relations, columns, indexes and deployments that a session sees, as PostgreSQL's catalogs have them.
//!
//! A table is a relation of kind `r`, an index one of kind `i`, a view one of kind `v`, a deployment a
//! function; all are in the schema `public` of the session's database.

use lockstep_diagnostic::Result;
use lockstep_engine::Session;
use lockstep_row::{Arena, DataType, Value, arrow::ColumnReader};

use super::{
    relation::{CatalogField, CatalogRelation},
    value::CatalogValue,
    views::{VisibleView, views},
};
use crate::postgres::types::{oid, oid_of, type_size};

/// The number of the user `root`.
pub(super) const ROOT_OID: i64 = 10;

/// The numbers of the schemas.
pub(super) const PG_CATALOG: i64 = 11;
pub(super) const PUBLIC: i64 = 2_200;
pub(super) const INFORMATION_SCHEMA: i64 = 13_000;

/// The first number of tables, of indexes, and of deployments.
const FIRST_TABLE: i64 = 16_384;
const FIRST_INDEX: i64 = 1 << 29;
pub(super) const FIRST_ROUTINE: i64 = 1 << 30;

/// The number of the one access method.
pub(super) const ACCESS_METHOD: i64 = 2;

/// Makes a text.
pub(super) fn text(text: &str) -> CatalogValue {
    CatalogValue::text(text)
}

/// Makes a number.
pub(super) fn number(number: i64) -> CatalogValue {
    CatalogValue::Number(number)
}

/// Runs a query of the engine and returns its rows.
pub(super) fn query(session: &Session, sql: &str) -> Result<Vec<Vec<Value>>> {
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
#[derive(Debug, Default)]
pub(super) struct VisibleTable {
    pub(super) number: i64,
    pub(super) name: String,
    pub(super) columns: Vec<VisibleColumn>,
    rows: i64,
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct VisibleColumn {
    pub(super) name: String,
    pub(super) data_type: DataType,
    pub(super) is_nullable: bool,
    pub(super) has_default: bool,
}

impl Default for VisibleColumn {
    fn default() -> Self {
        let (is_nullable, has_default) = (true, false);
        Self { name: String::new(), data_type: DataType::Null, is_nullable, has_default }
    }
}

/// An index that the session sees.
#[derive(Debug, Default)]
struct VisibleIndex {
    number: i64,
    name: String,
    table: i64,
    table_name: String,
    /// The positions of its columns, from 1, and their names.
    columns: Vec<i64>,
    names: Vec<String>,
}

impl VisibleIndex {
    /// Returns the statement that PostgreSQL would have made it with.
    fn definition(&self) -> String {
        let names = self.names.join(", ");
        format!("CREATE INDEX {} ON public.{} USING memory ({names})", self.name, self.table_name)
    }
}

/// Returns the tables of the session's database.
pub(super) fn tables(session: &Session) -> Result<Vec<VisibleTable>> {
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
        let Ok(schema) = session.table_schema(name) else { continue };
        let column = |column: lockstep_row::Column| VisibleColumn {
            name: column.name,
            data_type: column.data_type,
            is_nullable: column.nullable,
            has_default: column.default.is_some(),
        };
        let columns = schema.columns.into_iter().map(column).collect();
        let number = FIRST_TABLE + (id & 0x007f_ffff);
        seen.push(VisibleTable { number, name: name.to_string(), columns, rows: *rows });
    }
    Ok(seen)
}

fn indexes_of(session: &Session, tables: &[VisibleTable]) -> Vec<VisibleIndex> {
    let mut seen = Vec::new();
    for table in tables {
        let Ok(indexes) = session.indexes(&table.name) else { continue };
        for (at, index) in (0_i64..).zip(indexes) {
            let names: Vec<String> = index.keys.iter().chain(&index.event_time).cloned().collect();
            let position = |name: &String| {
                let found = table.columns.iter().position(|column| column.name == *name);
                found.and_then(|at| i64::try_from(at + 1).ok()).unwrap_or(0)
            };
            seen.push(VisibleIndex {
                number: FIRST_INDEX + (table.number - FIRST_TABLE) * 64 + at.min(63),
                name: index.name,
                table: table.number,
                table_name: table.name.clone(),
                columns: names.iter().map(position).collect(),
                names,
            });
        }
    }
    seen
}

/// A row of `pg_class`.
#[derive(Debug, Default)]
struct Class {
    number: i64,
    name: String,
    kind: &'static str,
    columns: usize,
    rows: i64,
}

/// Makes `pg_class`.
pub(super) fn classes(session: &Session) -> Result<CatalogRelation> {
    let tables = tables(session)?;
    let indexes = indexes_of(session, &tables);
    let of_table = |table: &VisibleTable| Class {
        number: table.number,
        name: table.name.clone(),
        kind: "r",
        columns: table.columns.len(),
        rows: table.rows,
    };
    let of_index = |index: &VisibleIndex| Class {
        number: index.number,
        name: index.name.clone(),
        kind: "i",
        columns: index.columns.len(),
        rows: 0,
    };
    let mut classes: Vec<Class> = tables.iter().map(of_table).collect();
    classes.extend(indexes.iter().map(of_index));
    let of_view = |view: VisibleView| Class {
        number: view.number,
        name: view.name,
        kind: "v",
        columns: view.columns.len(),
        rows: 0,
    };
    classes.extend(views(session)?.into_iter().map(of_view));
    Ok(CatalogRelation::listing(&classes, class_fields))
}

fn class_fields(class: &Class) -> Vec<CatalogField> {
    let no = || CatalogValue::Bool(false);
    #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
    let rows = CatalogValue::Real(class.rows as f64);
    let is_view = class.kind == "v";
    vec![
        ("oid", oid::OID, number(class.number)),
        ("relname", oid::NAME, text(&class.name)),
        ("relnamespace", oid::OID, number(PUBLIC)),
        ("reltype", oid::OID, number(0)),
        ("reloftype", oid::OID, number(0)),
        ("relowner", oid::OID, number(ROOT_OID)),
        ("relam", oid::OID, number(if is_view { 0 } else { ACCESS_METHOD })),
        ("relfilenode", oid::OID, number(if is_view { 0 } else { class.number })),
        ("reltablespace", oid::OID, number(0)),
        ("relpages", oid::INT4, number(0)),
        ("reltuples", oid::FLOAT4, rows),
        ("relallvisible", oid::INT4, number(0)),
        ("reltoastrelid", oid::OID, number(0)),
        ("relhasindex", oid::BOOL, CatalogValue::Bool(class.kind == "r")),
        ("relisshared", oid::BOOL, no()),
        ("relpersistence", oid::CHAR, text("p")),
        ("relkind", oid::CHAR, text(class.kind)),
        ("relnatts", oid::INT2, CatalogValue::count(class.columns)),
        ("relchecks", oid::INT2, number(0)),
        ("relhasrules", oid::BOOL, CatalogValue::Bool(is_view)),
        ("relhastriggers", oid::BOOL, no()),
        ("relhassubclass", oid::BOOL, no()),
        ("relrowsecurity", oid::BOOL, no()),
        ("relforcerowsecurity", oid::BOOL, no()),
        ("relispopulated", oid::BOOL, CatalogValue::Bool(true)),
        ("relreplident", oid::CHAR, text("d")),
        ("relispartition", oid::BOOL, no()),
        ("relrewrite", oid::OID, number(0)),
        ("relfrozenxid", oid::INT8, number(0)),
        ("relminmxid", oid::INT8, number(0)),
        ("relacl", oid::TEXT_ARRAY, CatalogValue::Null),
        ("reloptions", oid::TEXT_ARRAY, CatalogValue::Null),
        ("relpartbound", oid::TEXT, CatalogValue::Null),
    ]
}

/// Makes `pg_attribute`.
pub(super) fn attributes(session: &Session) -> Result<CatalogRelation> {
    let tables = tables(session)?;
    let indexes = indexes_of(session, &tables);
    let mut attributes = Vec::new();
    for table in &tables {
        for (at, column) in (1_i64..).zip(&table.columns) {
            attributes.push(attribute(table.number, at, column));
        }
        for index in indexes.iter().filter(|index| index.table == table.number) {
            for (at, name) in (1_i64..).zip(&index.names) {
                let column = table.columns.iter().find(|column| column.name == *name);
                attributes.extend(column.map(|column| attribute(index.number, at, column)));
            }
        }
    }
    for view in views(session)? {
        let columns = (1_i64..).zip(&view.columns);
        attributes.extend(columns.map(|(at, column)| attribute(view.number, at, column)));
    }
    Ok(CatalogRelation::listing(&attributes, attribute_fields))
}

/// A row of `pg_attribute`.
#[derive(Debug, Default)]
struct Attribute {
    relation: i64,
    position: i64,
    name: String,
    type_number: i64,
    size: i64,
    is_nullable: bool,
    has_default: bool,
}

fn attribute(relation: i64, position: i64, column: &VisibleColumn) -> Attribute {
    let found = oid_of(&column.data_type);
    Attribute {
        relation,
        position,
        name: column.name.clone(),
        type_number: found.into(),
        size: type_size(found).into(),
        is_nullable: column.is_nullable,
        has_default: column.has_default,
    }
}

fn attribute_fields(attribute: &Attribute) -> Vec<CatalogField> {
    let no = || CatalogValue::Bool(false);
    let is_aligned = if attribute.size == 8 { "d" } else { "i" };
    vec![
        ("attrelid", oid::OID, number(attribute.relation)),
        ("attname", oid::NAME, text(&attribute.name)),
        ("atttypid", oid::OID, number(attribute.type_number)),
        ("attstattarget", oid::INT4, number(-1)),
        ("attlen", oid::INT2, number(attribute.size)),
        ("attnum", oid::INT2, number(attribute.position)),
        ("attndims", oid::INT4, number(0)),
        ("attcacheoff", oid::INT4, number(-1)),
        ("atttypmod", oid::INT4, number(-1)),
        ("attbyval", oid::BOOL, CatalogValue::Bool((1..=8).contains(&attribute.size))),
        ("attstorage", oid::CHAR, text("p")),
        ("attalign", oid::CHAR, text(is_aligned)),
        ("attcompression", oid::CHAR, text("")),
        ("attnotnull", oid::BOOL, CatalogValue::Bool(!attribute.is_nullable)),
        // The values of defaults are not in the catalogs: pg_attrdef is empty.
        ("atthasdef", oid::BOOL, CatalogValue::Bool(attribute.has_default)),
        ("atthasmissing", oid::BOOL, no()),
        ("attidentity", oid::CHAR, text("")),
        ("attgenerated", oid::CHAR, text("")),
        ("attisdropped", oid::BOOL, no()),
        ("attislocal", oid::BOOL, CatalogValue::Bool(true)),
        ("attinhcount", oid::INT4, number(0)),
        ("attcollation", oid::OID, number(0)),
        ("attacl", oid::TEXT_ARRAY, CatalogValue::Null),
        ("attoptions", oid::TEXT_ARRAY, CatalogValue::Null),
        ("attfdwoptions", oid::TEXT_ARRAY, CatalogValue::Null),
        ("attmissingval", oid::TEXT, CatalogValue::Null),
    ]
}

/// Returns the indexes of the session's database.
fn seen_indexes(session: &Session) -> Result<Vec<VisibleIndex>> {
    Ok(indexes_of(session, &tables(session)?))
}

/// Makes `pg_index`.
pub(super) fn indexes(session: &Session) -> Result<CatalogRelation> {
    Ok(CatalogRelation::listing(&seen_indexes(session)?, index_fields))
}

fn index_fields(index: &VisibleIndex) -> Vec<CatalogField> {
    let (no, yes) = (|| CatalogValue::Bool(false), || CatalogValue::Bool(true));
    let width = index.columns.len();
    let zeros = || CatalogValue::vector(vec![number(0); width]);
    let keys = index.columns.iter().copied().map(CatalogValue::Number).collect();
    vec![
        ("indexrelid", oid::OID, number(index.number)),
        ("indrelid", oid::OID, number(index.table)),
        ("indnatts", oid::INT2, CatalogValue::count(width)),
        ("indnkeyatts", oid::INT2, CatalogValue::count(width)),
        ("indisunique", oid::BOOL, no()),
        ("indnullsnotdistinct", oid::BOOL, no()),
        ("indisprimary", oid::BOOL, no()),
        ("indisexclusion", oid::BOOL, no()),
        ("indimmediate", oid::BOOL, yes()),
        ("indisclustered", oid::BOOL, no()),
        ("indisvalid", oid::BOOL, yes()),
        ("indcheckxmin", oid::BOOL, no()),
        ("indisready", oid::BOOL, yes()),
        ("indislive", oid::BOOL, yes()),
        ("indisreplident", oid::BOOL, no()),
        ("indkey", oid::TEXT, CatalogValue::vector(keys)),
        ("indcollation", oid::TEXT, zeros()),
        ("indclass", oid::TEXT, zeros()),
        ("indoption", oid::TEXT, zeros()),
        ("indexprs", oid::TEXT, CatalogValue::Null),
        ("indpred", oid::TEXT, CatalogValue::Null),
    ]
}

/// Makes the table of which `pg_get_indexdef` takes its texts.
pub(super) fn index_texts(session: &Session) -> Result<CatalogRelation> {
    let fields = |index: &VisibleIndex| -> Vec<CatalogField> {
        let names = index.names.iter().map(|name| text(name)).collect();
        vec![
            ("oid", oid::OID, number(index.number)),
            ("text", oid::TEXT, text(&index.definition())),
            ("columns", oid::TEXT_ARRAY, CatalogValue::array(names)),
        ]
    };
    Ok(CatalogRelation::listing(&seen_indexes(session)?, fields))
}

/// Makes `pg_indexes`.
pub(super) fn index_list(session: &Session) -> Result<CatalogRelation> {
    let fields = |index: &VisibleIndex| -> Vec<CatalogField> {
        vec![
            ("schemaname", oid::NAME, text("public")),
            ("tablename", oid::NAME, text(&index.table_name)),
            ("indexname", oid::NAME, text(&index.name)),
            ("tablespace", oid::NAME, CatalogValue::Null),
            ("indexdef", oid::TEXT, text(&index.definition())),
        ]
    };
    Ok(CatalogRelation::listing(&seen_indexes(session)?, fields))
}

/// Makes `pg_tables`.
pub(super) fn table_list(session: &Session) -> Result<CatalogRelation> {
    let fields = |table: &VisibleTable| -> Vec<CatalogField> {
        vec![
            ("schemaname", oid::NAME, text("public")),
            ("tablename", oid::NAME, text(&table.name)),
            ("tableowner", oid::NAME, text("root")),
            ("tablespace", oid::NAME, CatalogValue::Null),
            ("hasindexes", oid::BOOL, CatalogValue::Bool(true)),
            ("hasrules", oid::BOOL, CatalogValue::Bool(false)),
            ("hastriggers", oid::BOOL, CatalogValue::Bool(false)),
            ("rowsecurity", oid::BOOL, CatalogValue::Bool(false)),
        ]
    };
    Ok(CatalogRelation::listing(&tables(session)?, fields))
}

/// Makes `pg_stat_user_tables`: the numbers of rows.
pub(super) fn table_statistics(session: &Session) -> Result<CatalogRelation> {
    let fields = |table: &VisibleTable| -> Vec<CatalogField> {
        vec![
            ("relid", oid::OID, number(table.number)),
            ("schemaname", oid::NAME, text("public")),
            ("relname", oid::NAME, text(&table.name)),
            ("n_live_tup", oid::INT8, number(table.rows)),
            ("n_dead_tup", oid::INT8, number(0)),
        ]
    };
    Ok(CatalogRelation::listing(&tables(session)?, fields))
}

//! What SHOW and DESC say of a table: its definition, its indexes and its status.

use lockstep_diagnostic::Result;
use lockstep_function::{
    Settings,
    cast::print_datum,
    scalar::{CaseSensitivity, is_like},
};
use lockstep_row::{Column, DataType, IndexSpec, Retention, TableSchema, Value};
use lockstep_sql::ast::ObjectName;
use lockstep_table::Table;

use crate::{
    Output, Session, catalog::TableEntry, inspect::declared_schema, statement::TableOptions, system,
};

impl Session {
    /// Runs DESC: the columns, each with the indexes that it is part of.
    pub(crate) fn describe(&self, name: &ObjectName) -> Result<Output> {
        let wanted = self.qualified(name);
        if self.database.objects().shows_system(&wanted.database)
            && let Some(found) = system::find(&wanted.name)
        {
            return describe(&found.schema);
        }
        if let Some(view) = self.database.objects().find_view(&wanted) {
            let column =
                |(name, data_type): &(String, DataType)| Column::new(name, data_type.clone());
            let columns = view.columns.iter().map(column).collect();
            return describe(&TableSchema { columns, indexes: Vec::new() });
        }
        describe(&self.find_table(name)?.schema())
    }

    /// Runs SHOW CREATE TABLE.
    pub(super) fn show_create_table(&self, name: &ObjectName) -> Result<Output> {
        let external = self.database.objects().find_view(&self.qualified(name)).cloned();
        if let Some(view) = external.filter(|view| view.is_external_table()) {
            let row = vec![Some(name.name.text.clone()), Some(view.script())];
            return Output::of_texts(&["table", "create_table"], &[row]);
        }
        let entry = self.find_entry(name)?;
        let text = create_table(&name.name.text, &declared_schema(&entry.table), &entry.options);
        let row = vec![Some(name.name.text.clone()), Some(text)];
        Output::of_texts(&["table", "create_table"], &[row])
    }

    /// Runs SHOW INDEXES. A view has none.
    pub(super) fn show_indexes(&self, name: &ObjectName) -> Result<Output> {
        if self.database.objects().find_view(&self.qualified(name)).is_some() {
            return index_list(&[]);
        }
        indexes(&*self.find_table(name)?)
    }

    /// Runs SHOW TABLE STATUS: the tables of the current database, or with LIKE those of every
    /// database whose names match the pattern.
    pub(super) fn show_table_status(&self, like: Option<&str>) -> Result<Output> {
        let current = self.current_database();
        let objects = self.database.objects();
        let mut rows = Vec::new();
        for (database, found) in objects.databases() {
            for (name, entry) in &found.tables {
                let is_shown = match like {
                    None => *database == current,
                    Some(pattern) => is_like(name, pattern, "", CaseSensitivity::Sensitive),
                };
                if is_shown && self.caller().sees_table(&objects, database, name) {
                    rows.push(status_row(database, name, entry));
                }
            }
        }
        Output::of_values(STATUS, &rows)
    }
}

/// The columns of SHOW TABLE STATUS.
const STATUS: &[(&str, DataType)] = &[
    ("Table_id", DataType::BigInt),
    ("Table_name", DataType::String),
    ("Database_name", DataType::String),
    ("Storage_type", DataType::String),
    ("Rows", DataType::BigInt),
    ("Memory_data_size", DataType::BigInt),
    ("Disk_data_size", DataType::BigInt),
    ("Partition", DataType::Int),
    ("Partition_unalive", DataType::Int),
    ("Replica", DataType::Int),
    ("Offline_path", DataType::String),
    ("Offline_format", DataType::String),
    ("Offline_deep_copy", DataType::String),
];

fn status_row(database: &str, name: &str, entry: &TableEntry) -> Vec<Value> {
    let text = |text: &str| Value::String(text.into());
    let number = |count: u64| Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX));
    let offline = &entry.offline;
    // A table whose rows cannot be read is listed all the same.
    let rows = entry.table.snapshot().count(None).map_or(Value::Null, number);
    vec![
        number(entry.id),
        text(name),
        text(database),
        text(entry.options.storage_mode.as_deref().unwrap_or("memory")),
        rows,
        number(entry.table.memory_bytes()),
        Value::BigInt(0),
        Value::Int(entry.options.partition_num()),
        Value::Int(0),
        Value::Int(entry.options.replica_num()),
        text(&offline.paths().join(", ")),
        text(offline.format().unwrap_or("NULL")),
        text(match (offline.has_rows(), offline.paths().is_empty()) {
            (false, true) => "NULL",
            (true, _) => "true",
            (false, false) => "false",
        }),
    ]
}

/// Lists the indexes in the terms of OpenMLDB, each with the retention that is in effect, whether
/// it was declared, and which deployments and requests read through it.
fn indexes(table: &Table) -> Result<Output> {
    let schema = table.schema();
    let name = |column: &usize| schema.columns[*column].name.clone();
    let present = schema.indexes.iter().enumerate().filter(|(_, index)| !index.is_removed());
    let rows: Vec<_> = present
        .map(|(at, index)| {
            let keys = index.keys.iter().map(name).collect::<Vec<String>>().join("|");
            let ts = index.event_time.as_ref().map_or_else(|| "-".to_owned(), name);
            // An automatic index has no retention of its own: a row is kept as the others say.
            let (ttl, ttl_type) =
                if index.declared { openmldb_ttl(index.retention) } else { ("-".to_owned(), "-") };
            let declared = if table.declared_retention(at).is_some() { "yes" } else { "no" };
            let users = table.holders(at).join(", ");
            let row: [&str; 7] = [&index.name, &keys, &ts, &ttl, ttl_type, declared, &users];
            row.map(|text| Some(text.to_owned())).to_vec()
        })
        .collect();
    index_list(&rows)
}

fn index_list(rows: &[Vec<Option<String>>]) -> Result<Output> {
    Output::of_texts(&["name", "keys", "ts", "ttl", "ttl_type", "declared", "used_by"], rows)
}

/// Writes a retention as OpenMLDB does: the TTL, and its type.
fn openmldb_ttl(retention: Retention) -> (String, &'static str) {
    let minutes = |ttl_ms: i64| format!("{}min", ttl_ms / 60_000);
    match retention {
        Retention::Forever => (minutes(0), "kAbsoluteTime"),
        Retention::Absolute { ttl_ms } => (minutes(ttl_ms), "kAbsoluteTime"),
        Retention::Latest { latest } => (latest.to_string(), "kLatestTime"),
        Retention::AbsOrLat { ttl_ms, latest } => {
            (format!("{}||{latest}", minutes(ttl_ms)), "kAbsOrLat")
        }
        Retention::AbsAndLat { ttl_ms, latest } => {
            (format!("{}&&{latest}", minutes(ttl_ms)), "kAbsAndLat")
        }
    }
}

/// Lists the columns, each with the indexes that it is part of.
fn describe(schema: &TableSchema) -> Result<Output> {
    let rows: Vec<_> = schema
        .columns
        .iter()
        .enumerate()
        .map(|(position, column)| {
            let role = |index: &IndexSpec| {
                if index.keys.contains(&position) {
                    let has_rule = index.event_time.is_none() && index.declared;
                    Some(match index.retention {
                        rule if has_rule && rule != Retention::Forever => {
                            format!("{} key, {}", index.name, retention_text(rule))
                        }
                        _ => format!("{} key", index.name),
                    })
                } else if index.event_time == Some(position) {
                    Some(format!("{} event time, {}", index.name, retention_text(index.retention)))
                } else {
                    None
                }
            };
            let roles: Vec<String> = schema.indexes.iter().filter_map(role).collect();
            vec![
                Some(column.name.clone()),
                Some(column.data_type.to_string()),
                Some(if column.nullable { "YES" } else { "NO" }.to_owned()),
                column.default.as_ref().map(literal),
                Some(roles.join("; ")),
            ]
        })
        .collect();
    Output::of_texts(&["column", "type", "null", "default", "indexes"], &rows)
}

/// Writes the CREATE TABLE of a table.
fn create_table(name: &str, schema: &TableSchema, options: &TableOptions) -> String {
    let mut items: Vec<String> = schema
        .columns
        .iter()
        .map(|column| {
            let not_null = if column.nullable { "" } else { " NOT NULL" };
            let default = match &column.default {
                Some(value) => format!(" DEFAULT {}", literal(value)),
                None => String::new(),
            };
            format!("`{}` {}{not_null}{default}", column.name, column.declared_type())
        })
        .collect();
    items.extend(schema.indexes.iter().enumerate().map(|(at, index)| {
        let name = |position: &usize| format!("`{}`", schema.columns[*position].name);
        let keys: Vec<String> = index.keys.iter().map(name).collect();
        let keys = keys.join(", ");
        let mut options: Vec<String> = Vec::new();
        options.extend(index.event_time.as_ref().map(|at| format!("TS={}", name(at))));
        if index.retention != Retention::Forever {
            options.push(retention_text(index.retention));
        }
        // The name that CREATE TABLE generates for an index without one.
        if index.name == format!("index{at}") {
            options.insert(0, format!("KEY=({keys})"));
            return format!("INDEX({})", options.join(", "));
        }
        let options = match options.as_slice() {
            [] => String::new(),
            options => format!(" OPTIONS({})", options.join(", ")),
        };
        format!("INDEX `{}` ({keys}){options}", index.name)
    }));
    let options = options.written();
    format!("CREATE TABLE `{name}` (\n    {}\n){options};", items.join(",\n    "))
}

/// Writes a value as a constant of SQL.
fn literal(value: &Value) -> String {
    let settings = Settings::default();
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Timestamp(value) => value.to_string(),
        Value::Date(_) => {
            let datum = value.as_scalar().unwrap_or_default();
            format!("'{}'", print_datum(datum, &settings))
        }
        other => {
            let datum = other.as_scalar().unwrap_or_default();
            print_datum(datum, &settings)
        }
    }
}

/// Writes a retention as the options of an INDEX.
pub(crate) fn retention_text(retention: Retention) -> String {
    let minutes = |ttl_ms: i64| ttl_ms / 60_000;
    match retention {
        Retention::Forever => "no TTL".to_owned(),
        Retention::Absolute { ttl_ms } => format!("TTL={}m, TTL_TYPE=absolute", minutes(ttl_ms)),
        Retention::Latest { latest } => format!("TTL={latest}, TTL_TYPE=latest"),
        Retention::AbsOrLat { ttl_ms, latest } => {
            format!("TTL=({}m, {latest}), TTL_TYPE=absorlat", minutes(ttl_ms))
        }
        Retention::AbsAndLat { ttl_ms, latest } => {
            format!("TTL=({}m, {latest}), TTL_TYPE=absandlat", minutes(ttl_ms))
        }
    }
}

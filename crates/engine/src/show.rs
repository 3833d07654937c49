//! SHOW, DESC and EXPLAIN: answers that are made, not computed.

use lockstep_diagnostic::Result;
use lockstep_row::{
    DataType, Datum, IndexSpec, Retention, TableSchema, Value, arrow::ColumnBuilder,
};
use lockstep_sql::ast::{ObjectName, Show};
use lockstep_table::Table;

use crate::{
    DeploymentInfo, Output, Session, catalog::TableEntry, inspect::declared_schema,
    request::output_batch, table_options::TableOptions, user::ROOT,
};

impl Session {
    pub(crate) fn show(&self, show: &Show) -> Result<Output> {
        let current = self.current_database();
        match show {
            Show::Databases => {
                let objects = self.database.objects();
                list("database", objects.databases().keys().map(String::as_str))
            }
            Show::Tables => {
                let objects = self.database.objects();
                let tables = objects.databases().get(&current);
                let names = tables.into_iter().flat_map(|found| found.tables.keys());
                list("table", names.map(String::as_str))
            }
            Show::CreateTable(name) => {
                let entry = self.find_entry(name)?;
                let text =
                    create_table(&name.name.text, &declared_schema(&entry.table), &entry.options);
                texts(&["table", "create_table"], &[vec![Some(name.name.text.clone()), Some(text)]])
            }
            Show::Indexes(name) => indexes(&*self.find_table(name)?),
            Show::TableStatus(like) => self.table_status(&current, like.as_deref()),
            Show::Deployments => self.show_deployments(),
            Show::Deployment(name) => self.show_deployment(name),
            Show::Functions => functions(),
            Show::Variables => variables(self.variables().list_of_session()),
            Show::GlobalVariables => variables(self.database.objects().variables().list()),
            Show::Components => self.components(),
            Show::Memory => self.memory(),
            Show::Procedures => self.show_procedures(),
            Show::CreateProcedure(name) => self.show_create_procedure(name),
            Show::Jobs { like, .. } => self.show_jobs(like.as_deref()),
            Show::Job(id) => self.show_job(id),
            Show::JobLog(id) => self.show_job_log(id),
            Show::CurrentUser => list("user", std::iter::once(ROOT)),
            Show::Users => self.show_users(),
            Show::Grants(user) => self.show_grants(user.as_ref()),
        }
    }

    /// DESC: the columns, with the indexes that each takes part in, and the offline data.
    pub(crate) fn describe(&self, name: &ObjectName) -> Result<Output> {
        describe(&self.find_table(name)?.schema())
    }

    /// SHOW TABLE STATUS: the tables of the current database, or those of every database whose
    /// name fits the pattern.
    fn table_status(&self, current: &str, like: Option<&str>) -> Result<Output> {
        let objects = self.database.objects();
        let mut rows = Vec::new();
        for (database, found) in objects.databases() {
            for (name, entry) in &found.tables {
                let is_shown = match like {
                    None => database == current,
                    Some(pattern) => is_like(name, pattern),
                };
                if is_shown {
                    rows.push(status_row(database, name, entry));
                }
            }
        }
        values(STATUS, &rows)
    }

    /// SHOW COMPONENTS: the engine within the process is all there is.
    fn components(&self) -> Result<Output> {
        let row =
            ["in-process", "engine", &self.database.started_ms().to_string(), "online", "NULL"];
        texts(
            &["Endpoint", "Role", "Connect_time", "Status", "Ns_role"],
            &[row.map(|text| Some(text.to_owned())).to_vec()],
        )
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
    let offline = entry.offline.read();
    let rows = entry.table.snapshot().scan().count();
    vec![
        number(entry.id),
        text(name),
        text(database),
        text(entry.options.storage_mode.as_deref().unwrap_or("memory")),
        number(u64::try_from(rows).unwrap_or(u64::MAX)),
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

/// SHOW VARIABLES.
fn variables<'a>(variables: impl Iterator<Item = (&'static str, &'a str)>) -> Result<Output> {
    let rows: Vec<_> = variables
        .map(|(name, value)| vec![Some(name.to_owned()), Some(value.to_owned())])
        .collect();
    texts(&["Variable_name", "Value"], &rows)
}

/// SHOW INDEXES: the indexes, in the words of the dialect, with the rule by which each keeps rows
/// in fact; whether it was declared, and which deployments and requests read through it.
fn indexes(table: &Table) -> Result<Output> {
    let schema = table.schema();
    let name = |column: &usize| schema.columns[*column].name.clone();
    let present = schema.indexes.iter().enumerate().filter(|(_, index)| !index.is_removed());
    let rows: Vec<_> = present
        .map(|(at, index)| {
            let keys = index.keys.iter().map(name).collect::<Vec<String>>().join("|");
            let ts = index.event_time.as_ref().map_or_else(|| "-".to_owned(), name);
            // An automatic index without a rule shows what the others keep.
            let (ttl, ttl_type) =
                if index.declared { ttl(index.retention) } else { ("-".to_owned(), "-") };
            let declared = if table.declared_retention(at).is_some() { "yes" } else { "no" };
            let users = table.holders(at).join(", ");
            let row: [&str; 7] = [&index.name, &keys, &ts, &ttl, ttl_type, declared, &users];
            row.map(|text| Some(text.to_owned())).to_vec()
        })
        .collect();
    texts(&["name", "keys", "ts", "ttl", "ttl_type", "declared", "used_by"], &rows)
}

/// A retention as DESC of the dialect prints it.
fn ttl(retention: Retention) -> (String, &'static str) {
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

/// Whether a text fits a pattern of LIKE: `%` is any text, `_` one character.
pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
    lockstep_function::scalar::is_like(text, pattern)
}

/// A table of texts; `None` is NULL.
pub(crate) fn texts(names: &[&str], rows: &[Vec<Option<String>>]) -> Result<Output> {
    let columns: Vec<(String, DataType)> =
        names.iter().map(|name| ((*name).to_owned(), DataType::String)).collect();
    let mut builders: Vec<ColumnBuilder> =
        columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, rows.len())).collect();
    for row in rows {
        for (builder, value) in builders.iter_mut().zip(row) {
            builder.push(value.as_deref().map_or(Datum::Null, Datum::String));
        }
    }
    let batch = output_batch(&columns, builders, rows.len())?;
    Ok(Output { columns, batches: vec![batch], ..Output::default() })
}

/// A table of values, which are of the columns' types or NULL.
pub(crate) fn values(names: &[(&str, DataType)], rows: &[Vec<Value>]) -> Result<Output> {
    let columns: Vec<(String, DataType)> =
        names.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone())).collect();
    let mut builders: Vec<ColumnBuilder> =
        columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, rows.len())).collect();
    for row in rows {
        for (builder, value) in builders.iter_mut().zip(row) {
            builder.push(value.as_scalar().unwrap_or_default());
        }
    }
    let batch = output_batch(&columns, builders, rows.len())?;
    Ok(Output { columns, batches: vec![batch], ..Output::default() })
}

/// One column of texts.
pub(crate) fn list<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Result<Output> {
    let rows: Vec<_> = values.map(|value| vec![Some(value.to_owned())]).collect();
    texts(&[name], &rows)
}

/// DESC: the columns, with the indexes that each takes part in.
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
                            format!("{} key, {}", index.name, retention(rule))
                        }
                        _ => format!("{} key", index.name),
                    })
                } else if index.event_time == Some(position) {
                    Some(format!("{} event time, {}", index.name, retention(index.retention)))
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
    texts(&["column", "type", "null", "default", "indexes"], &rows)
}

/// SHOW CREATE TABLE.
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
            format!("`{}` {}{not_null}{default}", column.name, column.data_type)
        })
        .collect();
    items.extend(schema.indexes.iter().enumerate().map(|(at, index)| {
        let name = |position: &usize| format!("`{}`", schema.columns[*position].name);
        let keys: Vec<String> = index.keys.iter().map(name).collect();
        let keys = keys.join(", ");
        let mut options: Vec<String> = Vec::new();
        options.extend(index.event_time.as_ref().map(|at| format!("TS={}", name(at))));
        if index.retention != Retention::Forever {
            options.push(retention(index.retention));
        }
        // The name that an index without one gets.
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

fn literal(value: &Value) -> String {
    let settings = lockstep_function::Settings::default();
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Timestamp(value) => value.to_string(),
        Value::Date(_) => {
            let datum = value.as_scalar().unwrap_or_default();
            format!("'{}'", lockstep_function::cast::print_datum(datum, &settings))
        }
        other => {
            let datum = other.as_scalar().unwrap_or_default();
            lockstep_function::cast::print_datum(datum, &settings)
        }
    }
}

/// A retention as its INDEX options.
pub(crate) fn retention(retention: Retention) -> String {
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

/// SHOW DEPLOYMENT: the text, the request row and the answer, what they are under, and a script
/// that makes the same deployment.
pub(crate) fn deployment(found: &DeploymentInfo) -> Result<Output> {
    let shape = |columns: &[(String, DataType)]| {
        let columns: Vec<String> =
            columns.iter().map(|(name, data_type)| format!("`{name}` {data_type}")).collect();
        columns.join(", ")
    };
    let option = |(name, value): &(String, String)| {
        // Durations and numbers are no texts.
        let is_bare = name.ends_with("_bias") && value.starts_with(|c: char| c.is_ascii_digit());
        if is_bare { format!("{name}={value}") } else { format!("{name}='{value}'") }
    };
    let options: Vec<String> = found.options.iter().map(option).collect();
    let options = options.join(", ");
    let written = match options.as_str() {
        "" => String::new(),
        options => format!("OPTIONS({options}) "),
    };
    let script = format!(
        "USE `{}`; SET compatibility = '{}'; SET time_zone = '{}'; DEPLOY `{}`.`{}` {written}{};",
        found.current_database,
        found.compatibility,
        found.time_zone,
        found.database,
        found.name,
        found.sql
    );
    let row = [
        found.database.clone(),
        found.name.clone(),
        found.sql.clone(),
        shape(&found.input),
        shape(&found.output),
        found.compatibility.to_owned(),
        found.time_zone.clone(),
        options,
        found.current_database.clone(),
        script,
    ];
    let names = [
        "database",
        "deployment",
        "sql",
        "input",
        "output",
        "compatibility",
        "time_zone",
        "options",
        "current_database",
        "script",
    ];
    texts(&names, &[row.map(Some).to_vec()])
}

/// SHOW FUNCTIONS: the library, from its declarations.
pub(crate) fn functions() -> Result<Output> {
    let scalars = lockstep_function::scalar::all()
        .filter(|function| !function.name.starts_with("op_"))
        .map(|function| (function.name, function.signature, "scalar", function.doc));
    let aggregates = lockstep_function::aggregate::all()
        .map(|function| (function.name, function.signature, "aggregate", function.doc));
    let mut rows: Vec<_> = scalars.chain(aggregates).collect();
    rows.sort_unstable();
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, signature, kind, doc)| {
            [name, signature, kind, doc].map(|text| Some(text.to_owned())).to_vec()
        })
        .collect();
    texts(&["name", "signature", "kind", "description"], &rows)
}

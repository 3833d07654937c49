//! The system tables about what exists: tables, indexes, deployments, memory, settings, users.

use std::sync::Arc;

use lockstep_row::{DataType, IndexSpec, Value};
use lockstep_sql::ast::ConnectorKind;
use lockstep_table::{TableParts, part::PageCacheUse};

use super::{SystemTable, number, optional, text};
use crate::{
    ConnectorInfo, Database, IndexFigures, StreamInfo, TableFigures,
    access::Caller,
    catalog::TableEntry,
    connector::{Connector, Passwords},
    statement::retention_text,
    worker::WorkFigures,
};

pub(super) const DEPLOYMENTS: SystemTable = SystemTable {
    name: "deployments",
    columns: &[
        ("database_name", DataType::String),
        ("name", DataType::String),
        ("statement", DataType::String),
        ("inputs", DataType::Int),
        ("outputs", DataType::Int),
        ("compiled", DataType::Bool),
        ("compatibility", DataType::String),
        ("time_zone", DataType::String),
        ("options", DataType::String),
        ("answers_not_logged", DataType::BigInt),
    ],
    rows: deployments,
};

pub(super) const INDEXES: SystemTable = SystemTable {
    name: "indexes",
    columns: &[
        ("database_name", DataType::String),
        ("table_name", DataType::String),
        ("name", DataType::String),
        ("key_columns", DataType::String),
        ("event_time", DataType::String),
        ("retention", DataType::String),
        ("declared", DataType::Bool),
        ("used_by", DataType::String),
        ("memory_bytes", DataType::BigInt),
    ],
    rows: indexes,
};

pub(super) const MEMORY: SystemTable = SystemTable {
    name: "memory",
    columns: &[
        ("used_bytes", DataType::BigInt),
        ("max_bytes", DataType::BigInt),
        ("alert_bytes", DataType::BigInt),
        ("status", DataType::String),
        ("writes_refused", DataType::BigInt),
        ("query_bytes_reserved", DataType::BigInt),
        ("query_bytes_max", DataType::BigInt),
    ],
    rows: memory,
};

pub(super) const PRE_AGGREGATES: SystemTable = SystemTable {
    name: "pre_aggregates",
    columns: &[
        ("database_name", DataType::String),
        ("deployment", DataType::String),
        ("table_name", DataType::String),
        ("index_name", DataType::String),
        ("windows", DataType::String),
        ("keys", DataType::BigInt),
        ("memory_bytes", DataType::BigInt),
        ("rows_folded", DataType::BigInt),
        ("keys_waiting", DataType::BigInt),
        ("rows_from_nodes", DataType::BigInt),
        ("rows_read", DataType::BigInt),
        ("answers_checked", DataType::BigInt),
        ("differences", DataType::BigInt),
        ("first_difference", DataType::String),
    ],
    rows: pre_aggregates,
};

pub(super) const SETTINGS: SystemTable = SystemTable {
    name: "settings",
    columns: &[("name", DataType::String), ("value", DataType::String)],
    rows: settings,
};

pub(super) const STORAGE: SystemTable = SystemTable {
    name: "storage",
    columns: &[
        ("database_name", DataType::String),
        ("table_name", DataType::String),
        ("storage_mode", DataType::String),
        ("rows", DataType::BigInt),
        ("rows_on_disk", DataType::BigInt),
        ("files", DataType::BigInt),
        ("file_bytes", DataType::BigInt),
        ("memory_bytes", DataType::BigInt),
        ("unflushed_bytes", DataType::BigInt),
        ("bytes_to_merge", DataType::BigInt),
        ("rows_to_load", DataType::BigInt),
    ],
    rows: storage,
};

pub(super) const STREAMS: SystemTable = SystemTable {
    name: "streams",
    columns: &[
        ("database_name", DataType::String),
        ("name", DataType::String),
        ("state", DataType::String),
        ("target", DataType::String),
        ("rows_read", DataType::BigInt),
        ("rows_written", DataType::BigInt),
        ("rows_late", DataType::BigInt),
        ("watermark", DataType::Timestamp),
        ("lag_ms", DataType::BigInt),
        ("rows_waiting", DataType::BigInt),
        ("rows_kept", DataType::BigInt),
        ("keys", DataType::BigInt),
        ("memory_bytes", DataType::BigInt),
        ("joiners", DataType::BigInt),
        ("teams", DataType::BigInt),
        ("imbalance", DataType::Double),
        ("error", DataType::String),
        ("statement", DataType::String),
    ],
    rows: streams,
};

pub(super) const SOURCES: SystemTable = SystemTable {
    name: "sources",
    columns: &[
        ("database_name", DataType::String),
        ("name", DataType::String),
        ("state", DataType::String),
        ("target", DataType::String),
        ("topic", DataType::String),
        ("path", DataType::String),
        ("partitions", DataType::String),
        ("messages_read", DataType::BigInt),
        ("messages_bad", DataType::BigInt),
        ("lag", DataType::BigInt),
        ("error", DataType::String),
        ("statement", DataType::String),
    ],
    rows: |database, caller| connector_rows(database, caller, ConnectorKind::Source, None),
};

pub(super) const SINKS: SystemTable = SystemTable {
    name: "sinks",
    columns: &[
        ("database_name", DataType::String),
        ("name", DataType::String),
        ("state", DataType::String),
        ("source", DataType::String),
        ("topic", DataType::String),
        ("path", DataType::String),
        ("messages_written", DataType::BigInt),
        ("lag_ms", DataType::BigInt),
        ("error", DataType::String),
        ("statement", DataType::String),
    ],
    rows: |database, caller| connector_rows(database, caller, ConnectorKind::Sink, None),
};

/// The columns of `sources` and `sinks`, which SHOW SOURCES and SHOW SINKS have as well.
pub(crate) const SOURCE_COLUMNS: &[(&str, DataType)] = SOURCES.columns;
pub(crate) const SINK_COLUMNS: &[(&str, DataType)] = SINKS.columns;

/// The columns of `streams`, which SHOW STREAMS has as well.
pub(crate) const STREAM_COLUMNS: &[(&str, DataType)] = STREAMS.columns;

pub(super) const PAGE_CACHE: SystemTable = SystemTable {
    name: "page_cache",
    columns: &[
        ("bytes", DataType::BigInt),
        ("max_bytes", DataType::BigInt),
        ("hits", DataType::BigInt),
        ("reads", DataType::BigInt),
    ],
    rows: page_cache,
};

pub(super) const TABLES: SystemTable = SystemTable {
    name: "tables",
    columns: &[
        ("database_name", DataType::String),
        ("name", DataType::String),
        ("id", DataType::BigInt),
        ("columns", DataType::Int),
        ("indexes", DataType::Int),
        ("rows", DataType::BigInt),
        ("memory_bytes", DataType::BigInt),
    ],
    rows: tables,
};

pub(super) const USERS: SystemTable = SystemTable {
    name: "users",
    columns: &[
        ("name", DataType::String),
        ("is_role", DataType::Bool),
        ("has_password", DataType::Bool),
        ("tokens", DataType::Int),
        ("roles", DataType::String),
    ],
    rows: users,
};

pub(super) const VIEWS: SystemTable = SystemTable {
    name: "views",
    columns: &[
        ("database_name", DataType::String),
        ("name", DataType::String),
        ("statement", DataType::String),
        ("columns", DataType::Int),
    ],
    rows: views,
};

fn views(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let objects = database.objects();
    let found = objects.databases().values().flat_map(|found| found.views.values());
    let seen =
        found.filter(|view| caller.sees_table(&objects, &view.name().database, &view.name().name));
    let row = |view: &Arc<crate::view::View>| {
        let columns = i32::try_from(view.columns.len()).unwrap_or(i32::MAX);
        let name = view.name();
        let statement = if view.is_external_table() { view.script() } else { view.sql.clone() };
        vec![text(&name.database), text(&name.name), text(&statement), Value::Int(columns)]
    };
    seen.map(row).collect()
}

fn streams(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let objects = database.objects();
    let is_seen = |stream: &&Arc<crate::stream::Stream>| {
        caller.sees_table(&objects, &stream.name().database, &stream.name().name)
    };
    objects.streams().filter(is_seen).map(|stream| stream_row(stream)).collect()
}

/// Makes the row of a stream.
pub(crate) fn stream_row(stream: &crate::stream::Stream) -> Vec<Value> {
    let WorkFigures { state, error, own: figures, .. } =
        stream.worker.figures(|figures| figures.clone());
    let (name, state) = (stream.name(), state.name());
    let size = |count: usize| number(u64::try_from(count).unwrap_or(u64::MAX));
    vec![
        text(&name.database),
        text(&name.name),
        text(state),
        text(&stream.target.name.to_string()),
        number(figures.rows_read),
        number(figures.rows_written),
        number(figures.rows_late),
        figures.watermark.map_or(Value::Null, Value::Timestamp),
        figures.lag_ms().map_or(Value::Null, Value::BigInt),
        size(figures.rows_waiting),
        size(figures.rows_kept),
        size(figures.keys),
        size(figures.bytes),
        size(figures.teams.joiners),
        size(figures.teams.shared_partitions),
        figures.teams.imbalance.map_or(Value::Null, Value::Double),
        optional(error.as_deref()),
        text(&stream.script()),
    ]
}

/// Makes the rows of the sources or sinks that a caller sees, of one database or of all.
pub(crate) fn connector_rows(
    database: &Database,
    caller: &Caller,
    kind: ConnectorKind,
    of_database: Option<&str>,
) -> Vec<Vec<Value>> {
    let row = |connector: &Connector| {
        let WorkFigures { state, error, own, .. } =
            connector.worker.figures(|figures| figures.clone());
        let (name, table) = (connector.name(), connector.table.name.to_string());
        let rows = connector.stream.as_ref().map_or(table, ToString::to_string);
        let (topic, path) = connector.topic_and_path();
        let mut row = vec![
            text(&name.database),
            text(&name.name),
            text(state.name()),
            text(&rows),
            optional(topic),
            optional(path),
        ];
        if kind == ConnectorKind::Source {
            row.push(optional(partitions_of(database, connector).as_deref()));
        }
        row.push(number(own.messages));
        if kind == ConnectorKind::Source {
            row.push(number(own.bad));
        }
        let statement = text(&connector.script(Passwords::Masked));
        row.extend([number(own.lag), optional(error.as_deref()), statement]);
        row
    };
    let objects = database.objects();
    let is_seen = |connector: &&Arc<Connector>| {
        let name = connector.name();
        connector.kind == kind
            && of_database.is_none_or(|of| of == name.database)
            && caller.sees_table(&objects, &name.database, &name.name)
    };
    objects.connectors().filter(is_seen).map(|connector| row(connector)).collect()
}

/// Returns the numbers of the partitions that a source with a group reads.
fn partitions_of(database: &Database, connector: &Connector) -> Option<String> {
    let (options, group) = connector.options.group()?;
    let group = database.groups().joined(&options.brokers, &group.name);
    let partitions = group.map(|group| group.partitions()).unwrap_or_default();
    Some(partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// Returns what the sources and sinks have done that a caller sees.
pub(crate) fn connector_figures(database: &Database, caller: &Caller) -> Vec<ConnectorInfo> {
    let objects = database.objects();
    let is_seen = |connector: &&Arc<Connector>| {
        caller.sees_table(&objects, &connector.name().database, &connector.name().name)
    };
    let info = |connector: &Arc<Connector>| {
        let WorkFigures { state, own, .. } = connector.worker.figures(|figures| figures.clone());
        ConnectorInfo {
            database: connector.name().database.clone(),
            name: connector.name().name.clone(),
            is_source: connector.kind == ConnectorKind::Source,
            state: state.name(),
            messages: own.messages,
            bad: own.bad,
            lag: own.lag,
        }
    };
    objects.connectors().filter(is_seen).map(info).collect()
}

fn deployments(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let objects = database.objects();
    let found = objects.databases().values().flat_map(|found| found.deployments.values());
    let seen = found.filter(|found| {
        caller.sees_deployment(&objects, &found.name().database, &found.name().name)
    });
    let row = |found: &Arc<crate::deployment::Deployment>| {
        let info = found.info();
        let options = info.options.iter().map(|(name, value)| format!("{name}='{value}'"));
        vec![
            text(&info.database),
            text(&info.name),
            text(&info.sql),
            count(info.input.len()),
            count(info.output.len()),
            Value::Bool(found.request.is_compiled()),
            text(info.compatibility),
            text(&info.time_zone),
            text(&options.collect::<Vec<_>>().join(", ")),
            found.request.answer_log().map_or(Value::Null, |log| number(log.not_logged())),
        ]
    };
    seen.map(row).collect()
}

fn pre_aggregates(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let objects = database.objects();
    let found = objects.databases().values().flat_map(|found| found.deployments.values());
    let seen = found.filter(|found| {
        caller.sees_deployment(&objects, &found.name().database, &found.name().name)
    });
    let rows = seen.flat_map(|found| {
        let outcome = found.request.check_outcome();
        found.request.pre_aggregates().iter().map(move |pre_aggregate| {
            let (name, usage) = (pre_aggregate.name(), pre_aggregate.usage());
            vec![
                text(&found.name().database),
                text(&found.name().name),
                text(&name.table),
                text(&name.index),
                text(&name.windows),
                number(usage.size.keys),
                number(usage.size.bytes),
                number(usage.size.folded),
                number(usage.size.waiting),
                number(usage.rows_in_nodes),
                number(usage.rows_read),
                number(outcome.checked),
                number(outcome.differences),
                optional(outcome.first.as_deref()),
            ]
        })
    });
    rows.collect()
}

/// A table of the catalog that a caller sees.
struct SeenTable {
    database: String,
    name: String,
    entry: TableEntry,
}

fn seen_tables(database: &Database, caller: &Caller) -> Vec<SeenTable> {
    let objects = database.objects();
    let mut seen = Vec::new();
    for (database, found) in objects.databases() {
        for (name, entry) in &found.tables {
            if caller.sees_table(&objects, database, name) {
                let (database, name) = (database.clone(), name.clone());
                seen.push(SeenTable { database, name, entry: entry.clone() });
            }
        }
    }
    seen
}

fn tables(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let row = |found: &SeenTable| {
        let table = &found.entry.table;
        let schema = table.schema();
        let present = schema.indexes.iter().filter(|index| !index.is_removed());
        vec![
            text(&found.database),
            text(&found.name),
            number(found.entry.id),
            count(schema.columns.len()),
            count(present.count()),
            number(table.row_count()),
            number(table.memory_bytes()),
        ]
    };
    seen_tables(database, caller).iter().map(row).collect()
}

fn storage(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let row = |found: &SeenTable| {
        let table = &found.entry.table;
        let parts = table.parts();
        let of_parts = |value: fn(&TableParts) -> u64| parts.as_deref().map_or(0, value);
        vec![
            text(&found.database),
            text(&found.name),
            text(if table.is_of_memory() { "memory" } else { "disk" }),
            number(table.row_count()),
            number(of_parts(TableParts::row_count)),
            number(of_parts(|parts| parts.file_count() as u64)),
            number(of_parts(TableParts::file_bytes)),
            number(table.memory_bytes()),
            number(table.unflushed_bytes()),
            number(table.compaction_debt()),
            number(table.rows_to_load()),
        ]
    };
    seen_tables(database, caller).iter().map(row).collect()
}

fn page_cache(database: &Database, _: &Caller) -> Vec<Vec<Value>> {
    let PageCacheUse { bytes, limit, hits, reads } = database.page_cache();
    vec![vec![number(bytes), number(limit), number(hits), number(reads)]]
}

fn indexes(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for found in seen_tables(database, caller) {
        let table = &found.entry.table;
        let (schema, memory) = (table.schema(), table.memory());
        let name = |column: &usize| schema.columns[*column].name.as_str();
        let present = schema.indexes.iter().enumerate().filter(|(_, index)| !index.is_removed());
        for (at, index) in present {
            let keys: Vec<&str> = index.keys.iter().map(name).collect();
            rows.push(vec![
                text(&found.database),
                text(&found.name),
                text(&index.name),
                text(&keys.join(", ")),
                optional(index.event_time.as_ref().map(name)),
                text(&retention_text(index.retention)),
                Value::Bool(table.declared_retention(at).is_some()),
                text(&table.holders(at).join(", ")),
                memory.indexes.get(at).map_or(Value::Null, |bytes| number(*bytes)),
            ]);
        }
    }
    rows
}

/// Returns what the streams have done that a caller sees.
pub(crate) fn stream_figures(database: &Database, caller: &Caller) -> Vec<StreamInfo> {
    let objects = database.objects();
    let is_seen = |stream: &&Arc<crate::stream::Stream>| {
        caller.sees_table(&objects, &stream.name().database, &stream.name().name)
    };
    let info = |stream: &Arc<crate::stream::Stream>| {
        let WorkFigures { state, own: figures, .. } =
            stream.worker.figures(|figures| figures.clone());
        StreamInfo {
            database: stream.name().database.clone(),
            name: stream.name().name.clone(),
            state: state.name(),
            rows_read: figures.rows_read,
            rows_written: figures.rows_written,
            rows_late: figures.rows_late,
            lag_ms: figures.lag_ms(),
            memory_bytes: u64::try_from(figures.bytes).unwrap_or(u64::MAX),
        }
    };
    objects.streams().filter(is_seen).map(info).collect()
}

/// Returns the sizes of the tables that a caller sees.
pub(crate) fn table_figures(database: &Database, caller: &Caller) -> Vec<TableFigures> {
    let figures = |found: SeenTable| {
        let table = &found.entry.table;
        let (schema, memory) = (table.schema(), table.memory());
        let present = schema.indexes.iter().enumerate().filter(|(_, index)| !index.is_removed());
        let index = |(at, index): (usize, &IndexSpec)| IndexFigures {
            name: index.name.clone(),
            memory_bytes: memory.indexes.get(at).copied(),
        };
        TableFigures {
            rows: table.row_count(),
            memory_bytes: table.memory_bytes(),
            indexes: present.map(index).collect(),
            database: found.database,
            name: found.name,
        }
    };
    seen_tables(database, caller).into_iter().map(figures).collect()
}

/// One row: the engine as a whole. What each table holds is in `tables` and `indexes`.
fn memory(database: &Database, _: &Caller) -> Vec<Vec<Value>> {
    let now = database.memory_use();
    let (reserved, most) = database.query_memory().state();
    vec![vec![
        number(now.used),
        now.limit.map_or(Value::Null, number),
        now.alert_at.map_or(Value::Null, number),
        text(&now.status().to_string()),
        number(now.refused),
        number(reserved),
        most.map_or(Value::Null, number),
    ]]
}

fn settings(database: &Database, _: &Caller) -> Vec<Vec<Value>> {
    let objects = database.objects();
    objects.variables().all().map(|(name, value)| vec![text(name), text(value)]).collect()
}

fn users(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let objects = database.objects();
    let is_admin = caller.is_admin(&objects);
    let seen =
        objects.users().by_name().iter().filter(|(name, _)| is_admin || caller.is_user(name));
    let row = |(name, user): (&String, &crate::user::User)| {
        vec![
            text(name),
            Value::Bool(user.is_role()),
            Value::Bool(user.has_password()),
            count(user.tokens().len()),
            text(&user.roles().collect::<Vec<_>>().join(", ")),
        ]
    };
    seen.map(row).collect()
}

/// Makes an INT.
fn count(count: usize) -> Value {
    Value::Int(i32::try_from(count).unwrap_or(i32::MAX))
}

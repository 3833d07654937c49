//! Streams: the continuous queries of the catalog.
//!
//! CREATE STREAM makes them (`statement/stream.rs`). Each has a thread ([`Worker`]) which computes its query
//! (`continuous`) and appends the rows to its table. What changes a stream makes another object, with a thread of its
//! own, that goes on from the stored progress.
//!
//! # Exactly once
//!
//! Result rows, late rows and the progress of the query ([`ProgressTable`]) are appended together, to three tables: a crash
//! leaves all of them or none (`lockstep_table::BulkLoad::finish_all`). Whoever opens the directory goes on from the
//! progress, so that each main row has one result.

mod grouped;
mod options;
mod query;
mod run;
mod work;

use std::sync::Arc;

use lockstep_diagnostic::Result;
use lockstep_function::Settings;
use lockstep_plan::BoundQuery;
use lockstep_row::{Column, DataType, TableSchema};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    options::{StreamOptions, WrittenOptions},
    query::{GoingOn, StreamQuery},
    run::StreamFigures,
};
use crate::{
    Database,
    access::OwnedReads,
    catalog::{CatalogRecord, Definition, ObjectKind, QualifiedName, TableEntry, TableReference},
    deployment::QuerySource,
    progress::ProgressTable,
    view::View,
    worker::Worker,
};

/// A query that runs.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) definition: Arc<Definition>,
    /// The query as it was written.
    pub(crate) sql: String,
    pub(crate) query: BoundQuery,
    /// The table that takes its rows.
    pub(crate) target: TableReference,
    /// The table that takes late rows.
    pub(crate) late_rows: Option<TableReference>,
    /// The tables that it reads, which cannot be dropped while it exists.
    pub(crate) tables: Vec<TableReference>,
    /// The views that it reads, which cannot be dropped or replaced while it exists.
    pub(crate) views: Vec<Arc<View>>,
    pub(crate) options: StreamOptions,
    /// Whether the sources of its tables have a group.
    pub(crate) is_grouped: bool,
    /// Whether STOP STREAM has stopped it.
    pub(crate) is_stopped: bool,
    /// The session's settings at CREATE STREAM.
    pub(crate) settings: Settings,
    /// The session's database at CREATE STREAM.
    pub(crate) current_database: String,
    /// What it reads with the privileges of its owner, if it has one.
    pub(crate) owned: Option<OwnedReads>,
    pub(crate) progress: ProgressTable,
    pub(crate) worker: Worker<StreamFigures>,
}

/// What the log has of a stream beside its query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamRecord {
    target: QualifiedName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    late_rows: Option<QualifiedName>,
    options: StreamOptions,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_grouped: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_stopped: bool,
    /// The id of the table of its progress.
    pub(crate) progress: u64,
}

impl Stream {
    pub(crate) fn name(&self) -> &QualifiedName {
        self.definition.name()
    }

    /// Returns the tables that it writes to.
    pub(crate) fn written_tables(&self) -> impl Iterator<Item = &TableReference> {
        std::iter::once(&self.target).chain(&self.late_rows)
    }

    /// Returns the entries of its table, and of that of late rows.
    fn written_entries(&self, database: &Database) -> Result<(TableEntry, Option<TableEntry>)> {
        let objects = database.objects();
        let late_rows = self.late_rows.as_ref().map(|table| objects.entry(table).cloned());
        Ok((objects.entry(&self.target)?.clone(), late_rows.transpose()?))
    }

    /// Returns the stream with other options, stopped or not; it goes on from where this one is.
    pub(crate) fn changed(
        &self,
        options: StreamOptions,
        late_rows: Option<TableReference>,
        is_stopped: bool,
    ) -> Self {
        let definition = Definition::new(ObjectKind::Stream, self.name().clone());
        Self {
            definition,
            sql: self.sql.clone(),
            query: self.query.clone(),
            target: self.target.clone(),
            late_rows,
            tables: self.tables.clone(),
            views: self.views.clone(),
            options,
            is_grouped: self.is_grouped,
            is_stopped,
            settings: self.settings,
            current_database: self.current_database.clone(),
            owned: self.owned.clone(),
            progress: self.progress.clone(),
            worker: self.worker.successor(),
        }
    }

    /// Describes the stream as the log has it.
    pub(crate) fn record(&self) -> CatalogRecord {
        let source = QuerySource::new(&self.sql, &self.current_database, self.settings);
        CatalogRecord::CreateStream {
            name: self.name().clone(),
            source: source.owned_by(self.owned.as_ref()),
            stream: StreamRecord {
                target: self.target.name.clone(),
                late_rows: self.late_rows.as_ref().map(|table| table.name.clone()),
                options: self.options,
                is_grouped: self.is_grouped,
                is_stopped: self.is_stopped,
                progress: self.progress.id(),
            },
        }
    }

    /// Writes the statement that makes it.
    pub(crate) fn script(&self) -> String {
        let late_rows = self.late_rows.as_ref().map(|table| &table.name);
        stream_script(self.name(), &self.target.name, &self.options.script(late_rows), &self.sql)
    }
}

impl StreamRecord {
    /// Writes the statement that makes the stream again.
    pub(crate) fn script(&self, name: &QualifiedName, sql: &str) -> String {
        stream_script(name, &self.target, &self.options.script(self.late_rows.as_ref()), sql)
    }

    /// Whether STOP STREAM has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

fn stream_script(name: &QualifiedName, target: &QualifiedName, options: &str, sql: &str) -> String {
    let (name, target) = (name.script(), target.script());
    format!("CREATE STREAM {name} INTO TABLE {target} OPTIONS({options}) AS {sql}")
}

/// Returns the columns of a table of late rows.
pub(crate) fn schema_of_late_rows() -> TableSchema {
    let columns = [
        ("stream", DataType::String),
        ("source", DataType::String),
        ("event_time", DataType::Timestamp),
        ("arrival", DataType::BigInt),
        ("arrived", DataType::Timestamp),
        ("source_row", DataType::String),
    ];
    let columns = columns.into_iter().map(|(name, data_type)| Column::new(name, data_type));
    TableSchema { columns: columns.collect(), indexes: Vec::new() }
}

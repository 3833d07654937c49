//! The catalog's records in the log: the commands as data.
//!
//! A record says everything that a command decides, so that the same records in the same order give
//! the same catalog: a query with the database and the settings in which its names were looked up, the
//! users as they are after a change, the offline data of a table as a whole. A checkpoint holds the
//! catalog as a list of the records that make it. The form is JSON; a field may be added with a
//! default, none changed.

use std::collections::BTreeMap;

use lockstep_row::TableSchema;
use lockstep_sql::ast::Ident;
use lockstep_table::Table;
use lockstep_wal::RecordKind;
use serde::{Deserialize, Serialize};

use super::{CatalogCommand, DroppedObject, Objects, QualifiedName};
use crate::{
    connector::ConnectorRecord,
    deployment::QuerySource,
    job::Job,
    offline_data::OfflineRecord,
    progress::ProgressTable,
    statement::TableOptions,
    stream::StreamRecord,
    user::{User, UserCommand},
    view::FileViewRecord,
};

/// The kind of a record of the catalog in the log.
pub(crate) const CATALOG: RecordKind = 16;

/// A change of the catalog, as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum CatalogRecord {
    CreateDatabase {
        name: String,
    },
    DropDatabase {
        name: String,
    },
    CreateTable {
        id: u64,
        name: QualifiedName,
        schema: TableSchema,
        options: TableOptions,
        /// Also removes a table of this name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        or_replace: bool,
    },
    DropTable {
        id: u64,
        name: QualifiedName,
        /// What was dropped with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<DroppedObject>,
    },
    /// Also replaces one of this name.
    CreateView {
        name: QualifiedName,
        source: QuerySource,
        /// Of a view that reads files. Earlier versions had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<FileViewRecord>,
    },
    DropView {
        name: QualifiedName,
        /// What was dropped with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<DroppedObject>,
    },
    /// A table of rows which nobody sees until `ChangeOffline` gives it to a table of the catalog,
    /// `CreateStream` to a stream, `CreateConnector` to a source or a sink, or `CreateTable` makes it one.
    CreateOfflineRows {
        id: u64,
        schema: TableSchema,
    },
    ChangeOffline {
        table: u64,
        data: OfflineRecord,
    },
    SetTableOptions {
        table: u64,
        options: TableOptions,
    },
    /// Also replaces one of this name.
    CreateStream {
        name: QualifiedName,
        source: QuerySource,
        stream: StreamRecord,
    },
    DropStream {
        name: QualifiedName,
    },
    /// A source or a sink. Also replaces one of this name.
    CreateConnector {
        name: QualifiedName,
        source: QuerySource,
        connector: ConnectorRecord,
    },
    DropConnector {
        name: QualifiedName,
    },
    /// Also replaces one of this name.
    CreateDeployment {
        name: QualifiedName,
        source: QuerySource,
        options: Vec<(String, String)>,
    },
    DropDeployment {
        name: QualifiedName,
    },
    /// Also replaces one of this name.
    CreateProcedure {
        name: QualifiedName,
        source: QuerySource,
    },
    DropProcedure {
        name: QualifiedName,
    },
    SetVariable {
        name: String,
        value: String,
    },
    /// These users are now so; `None`: there is no such user.
    SetUsers {
        users: BTreeMap<String, Option<User>>,
    },
    /// A job has begun. Older versions log only the end.
    StartJob {
        job: Job,
    },
    EndJob {
        job: Job,
    },
    DeleteJob {
        id: String,
    },
}

impl CatalogRecord {
    /// Describes a command that was applied; `after` is the catalog after it.
    pub(crate) fn of(command: &CatalogCommand, after: &Objects) -> Self {
        match command {
            CatalogCommand::CreateDatabase { name } => Self::CreateDatabase { name: name.clone() },
            CatalogCommand::DropDatabase { name } => Self::DropDatabase { name: name.clone() },
            CatalogCommand::CreateTable { name, table, options, or_replace } => Self::CreateTable {
                id: table.log_id().expect("a table of the catalog has an id"),
                name: name.clone(),
                schema: TableSchema::clone(&table.schema()),
                options: options.clone(),
                or_replace: *or_replace,
            },
            CatalogCommand::ReplaceTable { entry, .. } => Self::CreateTable {
                id: entry.id,
                name: entry.definition.name().clone(),
                schema: TableSchema::clone(&entry.table.schema()),
                options: entry.options.clone(),
                or_replace: true,
            },
            CatalogCommand::DropTable { name, id, with } => {
                Self::DropTable { id: *id, name: name.clone(), with: with.dropped.clone() }
            }
            CatalogCommand::CreateView { view, .. } => view.record(),
            CatalogCommand::DropView { name, with } => {
                Self::DropView { name: name.clone(), with: with.dropped.clone() }
            }
            CatalogCommand::ChangeOffline { table, .. } => {
                let entry = after.entry(table).expect("the command was applied to it");
                Self::ChangeOffline { table: table.id, data: entry.offline.record() }
            }
            CatalogCommand::SetTableOptions { table, options } => {
                Self::SetTableOptions { table: table.id, options: options.clone() }
            }
            CatalogCommand::CreateStream { stream, .. }
            | CatalogCommand::ReplaceStream { stream, .. } => stream.record(),
            CatalogCommand::DropStream { name } => Self::DropStream { name: name.clone() },
            CatalogCommand::CreateConnector { connector }
            | CatalogCommand::ReplaceConnector { connector, .. } => connector.record(),
            CatalogCommand::DropConnector { name, .. } => {
                Self::DropConnector { name: name.clone() }
            }
            CatalogCommand::CreateDeployment { deployment, .. } => deployment.record(),
            CatalogCommand::DropDeployment { name } => Self::DropDeployment { name: name.clone() },
            CatalogCommand::CreateProcedure { procedure, .. } => procedure.record(),
            CatalogCommand::DropProcedure { name } => Self::DropProcedure { name: name.clone() },
            CatalogCommand::SetVariable { name, .. } => {
                let name = name.text.to_ascii_lowercase();
                let value = after.variables().value(&name).to_owned();
                Self::SetVariable { name, value }
            }
            CatalogCommand::ChangeUsers(command) => {
                let names = command.names(after).into_iter();
                let users = names.map(|name| {
                    let user = after.users().by_name().get(&name).cloned();
                    (name, user)
                });
                Self::SetUsers { users: users.collect() }
            }
        }
    }

    /// Reads a record.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(payload)
    }

    /// Writes the record.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names are text")
    }
}

impl UserCommand {
    /// Returns the names of the users that it may change; `after` is the catalog after it.
    fn names(&self, after: &Objects) -> Vec<String> {
        let texts = |names: &[Ident]| names.iter().map(|name| name.text.clone()).collect();
        match self {
            Self::Create(change) | Self::Alter(change) => vec![change.name.text.clone()],
            Self::Drop { name, .. } => vec![name.text.clone()],
            Self::Privileges { change, .. } => texts(&change.users),
            Self::CreateRole { name, .. } => vec![name.text.clone()],
            // Its members lose it.
            Self::DropRole { name, .. } => {
                let others = after.users().by_name().keys().cloned();
                others.chain([name.text.clone()]).collect()
            }
            Self::Membership(change) => texts(&change.members),
            Self::CreateToken(token) => vec![token.user.text.clone()],
            Self::DropToken { user, .. } => vec![user.text.clone()],
        }
    }
}

/// Returns the schema of a table without its indexes.
pub(crate) fn columns_of(table: &Table) -> TableSchema {
    TableSchema { columns: table.schema().columns.clone(), indexes: Vec::new() }
}

impl Objects {
    /// Returns the ids of the tables, of those of their offline rows, and of those of the progress of streams.
    pub(crate) fn table_ids(&self) -> impl Iterator<Item = u64> {
        let entries = self.databases.values().flat_map(|found| found.tables.values());
        let of_tables = entries.flat_map(|entry| {
            let offline = entry.offline.logged_rows().map(|(id, _)| id);
            std::iter::once(entry.id).chain(offline)
        });
        of_tables.chain(self.progress_tables().map(|(_, progress)| progress.id()))
    }

    /// Returns the tables of the progress of streams, sources and sinks, with the names of these.
    pub(crate) fn progress_tables(&self) -> impl Iterator<Item = (&QualifiedName, &ProgressTable)> {
        let of_streams = self.streams().map(|stream| (stream.name(), &stream.progress));
        of_streams.chain(self.connectors().map(|found| (found.name(), &found.progress)))
    }

    /// Returns whether a change of offline data would leave everything as it is.
    pub(crate) fn says(&self, record: &CatalogRecord) -> bool {
        let CatalogRecord::ChangeOffline { table, data } = record else { return false };
        let mut entries = self.databases.values().flat_map(|found| found.tables.values());
        entries.any(|entry| entry.id == *table && entry.offline.record() == *data)
    }

    /// Describes the catalog as records that make it, in an order in which they can be applied. Tables
    /// have their columns only: the indexes are said with the rows.
    pub(crate) fn records(&self) -> Vec<CatalogRecord> {
        let mut records = Vec::new();
        let defaults = Self::new(false);
        for (name, value) in self.variables.all() {
            if defaults.variables.value(name) != value {
                let (name, value) = (name.to_owned(), value.to_owned());
                records.push(CatalogRecord::SetVariable { name, value });
            }
        }
        let users = self.users.by_name().iter();
        let users = users.map(|(name, user)| (name.clone(), Some(user.clone())));
        records.push(CatalogRecord::SetUsers { users: users.collect() });
        let mut tables = Vec::new();
        for (database, found) in &self.databases {
            if !defaults.databases.contains_key(database) {
                records.push(CatalogRecord::CreateDatabase { name: database.clone() });
            }
            tables.extend(found.tables.values());
        }
        // In the order in which they were created.
        tables.sort_by_key(|entry| entry.id);
        for entry in &tables {
            records.push(CatalogRecord::CreateTable {
                id: entry.id,
                name: entry.definition.name().clone(),
                schema: columns_of(&entry.table),
                options: entry.options.clone(),
                or_replace: false,
            });
            if let Some((id, rows)) = entry.offline.logged_rows() {
                records.push(CatalogRecord::CreateOfflineRows { id, schema: columns_of(rows) });
            }
            let data = entry.offline.record();
            if data != OfflineRecord::default() {
                records.push(CatalogRecord::ChangeOffline { table: entry.id, data });
            }
        }
        let mut views: Vec<_> =
            self.databases.values().flat_map(|found| found.views.values()).collect();
        // What a view reads comes before it.
        views.sort_by_key(|view| view.height());
        records.extend(views.iter().map(|view| view.record()));
        for (_, progress) in self.progress_tables() {
            let schema = columns_of(progress.table());
            records.push(CatalogRecord::CreateOfflineRows { id: progress.id(), schema });
        }
        records.extend(self.streams().map(|stream| stream.record()));
        records.extend(self.connectors().map(|connector| connector.record()));
        for found in self.databases.values() {
            records.extend(found.deployments.values().map(|deployment| deployment.record()));
            records.extend(found.procedures.values().map(|procedure| procedure.record()));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path, sync::Arc};

    use lockstep_host::file::SystemDisk;
    use lockstep_table::TableRecord;
    use lockstep_wal::{Access, DatabaseDirectory, KIND_RESERVED};

    use super::{CATALOG, CatalogRecord};

    /// The names of all records, as the error about another one lists them.
    fn commands() -> BTreeSet<String> {
        let error = CatalogRecord::read(br#"{"command": "none of them"}"#).unwrap_err();
        let text = error.to_string();
        let (_, names) = text.split_once("expected one of ").unwrap();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_golden_directories_have_every_kind_of_record() {
        let (mut found, mut kinds, mut of_users) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut note = |entry: &lockstep_wal::Entry<'_>| {
            kinds.insert(entry.kind);
            if entry.kind == CATALOG {
                let record: serde_json::Value = serde_json::from_slice(entry.payload).unwrap();
                found.insert(record["command"].as_str().unwrap().to_owned());
                let users =
                    record["users"].as_object().into_iter().flat_map(|users| users.values());
                let fields = users.filter_map(|user| user.as_object()).flat_map(|user| user.keys());
                of_users.extend(fields.cloned());
            }
        };
        for name in [
            "format-1",
            "format-1-views",
            "format-1-jobs",
            "format-1-users",
            "format-1-disk",
            "format-1-streams",
            "format-1-connectors",
        ] {
            let (disk, path) = (Arc::new(SystemDisk), Path::new("tests/golden").join(name));
            let directory = DatabaseDirectory::open(disk, &path, Access::ReadOnly).unwrap();
            let read = directory.read_log(&mut |entries| {
                for entry in entries {
                    note(&entry);
                }
            });
            read.unwrap();
            assert!(directory.manifest().files.len() > 1, "a checkpoint with several files");
        }
        assert!(commands().len() > 10);
        assert_eq!(found, commands());
        let fields = ["grants", "id", "is_role", "password", "roles", "tokens"];
        assert_eq!(of_users, fields.map(str::to_owned).into(), "users have all fields");
        let is_of_table = |kind: &u8| !matches!(TableRecord::read(*kind, &[]), Ok(None));
        let mut all: BTreeSet<u8> = (0..KIND_RESERVED).filter(is_of_table).collect();
        assert!(all.len() > 5);
        all.insert(CATALOG);
        assert_eq!(kinds, all);
    }
}

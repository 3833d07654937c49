//! Opening a directory: the log is applied to an empty engine, record by record.
//!
//! The catalog and the tables are made by what makes them when statements run. Queries are compiled at
//! the end, when the tables that they read have all their rows and indexes: nobody is answered before.

mod progress;
mod rescue;
mod writers;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{Host, QueryContext, Threads, failpoint};
use lockstep_row::{Column, TableSchema};
use lockstep_sql::{
    Parsed,
    ast::{Ident, Literal, OptionValue, Statement},
    parse,
};
use lockstep_table::{ReplayError, RowsToStore, Table, TableChange, TableParts, TableRecord};
use lockstep_wal::{
    Access, Cut, DataFile, DatabaseDirectory, Entries, Entry, Options, ReadOnlyLog,
};

pub use self::progress::{OpenListener, OpenProgress};
use self::{
    progress::ProgressReport,
    writers::{ReplayedTable, RowWork, RowWriters},
};
use crate::{
    Database, Session,
    append::table_error,
    audit::AuditFiles,
    catalog::{
        CATALOG, Cascade, CatalogCommand, CatalogRecord, DroppedObject, ObjectKind, QualifiedName,
    },
    checkpoint::{CheckpointBody, Extent, TableCheckpoint, parts},
    connector::ConnectorRecord,
    deployment::QuerySource,
    log_error::log_error,
    offline_data::{OfflineData, OfflineRecord},
    progress::ProgressTable,
    statement::{LoggedCondition, TableOptions, deploy_script},
    store::{DirectoryLog, OpenDirectory},
    stream::StreamRecord,
    view::{FileViewRecord, view_script},
};

pub(crate) use rescue::{Rescue, Rescued};

/// Ids of tables are less: there are always more.
const TABLE_ID_END: u64 = 1 << 62;

/// How a directory is opened.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Whether nothing is written: every change is refused.
    pub read_only: bool,
    /// The machine: the clock by which rows expire, the disk, random bytes and threads.
    pub host: Host,
    /// Is told how far opening is.
    pub listener: Option<OpenListener>,
    /// What tests set to other values.
    #[doc(hidden)]
    pub tuning: StorageTuning,
}

/// The sizes of what is in a directory: tests use small files.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct StorageTuning {
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes of an append that is logged in one part.
    pub part_bytes: usize,
    /// After how many milliseconds what no write waits for is on the disk; `None`: as the variable
    /// `durability_window` says.
    pub durability_window_ms: Option<u32>,
    /// Whether every table is a disk table.
    pub all_on_disk: bool,
}

impl Default for StorageTuning {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            part_bytes: 64 << 20,
            durability_window_ms: None,
            all_on_disk: false,
        }
    }
}

/// What opening a directory has done.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// Rows that were read, or are in files that are read when they are needed.
    pub rows: u64,
    /// How long it took.
    pub milliseconds: u64,
    /// The last part of the log, which was not written completely and not acknowledged: it was cut.
    pub cut: Option<Cut>,
}

impl Database {
    /// Opens the database in a directory, which is made when there is none. What was acknowledged before
    /// is there, after any end of the process that wrote it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), &OpenOptions::default())
    }

    /// Opens the database in a directory, as the options say.
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self> {
        let host = &options.host;
        let progress = ProgressReport::new(options.listener.clone(), &host.clock);
        let database = Self::empty(host.clone(), false);
        let access = match options.read_only {
            true => Access::ReadOnly,
            false => Access::ReadWrite { new_id: host.random.id() },
        };
        let directory = DatabaseDirectory::open(Arc::clone(&host.disk), path, access);
        let directory = Arc::new(directory.map_err(|error| log_error(&error))?);
        database.set_directory(&directory, options.tuning.all_on_disk);
        let mut recovery = EngineRecovery::new(&database, progress);
        recovery.progress.expect_files(&*host.disk, path, &directory.manifest());
        recovery.read_checkpoint(&directory)?;
        let log_options = Options {
            segment_bytes: options.tuning.segment_bytes,
            threads: host.threads,
            clock: Arc::clone(&host.clock),
            ..Options::new(directory.database_id())
        };
        let visit = &mut |entries: Entries<'_>| recovery.visit(entries);
        let (log, recovered) = if options.read_only {
            let recovered = directory.read_log(visit).map_err(|error| log_error(&error))?;
            (DirectoryLog::ReadOnly(Arc::new(ReadOnlyLog::new(path, recovered.end))), recovered)
        } else {
            let opened = directory.open_log(log_options, visit);
            let (log, recovered) = opened.map_err(|error| log_error(&error))?;
            (DirectoryLog::Writable(Arc::new(log)), recovered)
        };
        let replayed_bytes = recovery.progress.log_bytes();
        let OpenProgress { rows, milliseconds, .. } = recovery.finish(recovered.end, &mut Err)?;
        let opened = Opened { rows, milliseconds, cut: recovered.cut };
        database.arrivals().set_part_bytes(options.tuning.part_bytes);
        let audit = AuditFiles::new(Arc::clone(&host.disk), path);
        database.restore_audit(audit.read());
        let store = OpenDirectory::new(log, directory, audit);
        store.note_replayed(replayed_bytes);
        let store = store.with_durability_window_ms(options.tuning.durability_window_ms);
        database.continue_in(store, opened);
        if host.threads == Threads::System {
            database.start_checkpoints();
            database.start_loading();
            database.start_work();
        }
        Ok(database)
    }
}

/// The state of an engine that is being opened.
struct EngineRecovery<'d> {
    database: &'d Database,
    /// Tables by id, those of copied rows included, with what is to be done for each at the end.
    tables: BTreeMap<u64, RecoveredTable>,
    /// The views, in an order in which they can be created.
    views: Vec<(QualifiedName, StoredQuery)>,
    /// Deployments and procedures, which are compiled at the end, in the order of their names.
    queries: BTreeMap<(QueryKind, QualifiedName), StoredQuery>,
    /// Streams, sources and sinks, each with the table of its progress.
    work: BTreeMap<QualifiedName, RecoveredWork>,
    variables: BTreeMap<String, String>,
    next_table_id: u64,
    /// Records of the catalog before this position are in the checkpoint.
    catalog_position: u64,
    progress: ProgressReport,
    writers: RowWriters,
    /// Rows of the last records of the log, which rows of the next one may join.
    pending: Option<(ReplayedTable, RowsToStore)>,
    failure: Option<Box<Diagnostic>>,
}

struct RecoveredTable {
    replayed: ReplayedTable,
    /// Records of the table before this position are in the checkpoint.
    position: u64,
    owner: RowsOwner,
}

/// A stream, a source or a sink, which is made again at the end.
struct RecoveredWork {
    source: QuerySource,
    record: WorkRecord,
    progress: Arc<Table>,
}

enum WorkRecord {
    Stream(StreamRecord),
    Connector(ConnectorRecord),
}

impl WorkRecord {
    /// Returns the id of the table of its progress.
    fn progress(&self) -> u64 {
        match self {
            Self::Stream(record) => record.progress,
            Self::Connector(record) => record.progress,
        }
    }
}

/// What the catalog has rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowsOwner {
    /// Nothing yet, and nobody sees them.
    None,
    /// The table of the same id.
    Table,
    /// The offline data of the table with this id.
    OfflineDataOf(u64),
    /// A stream, a source or a sink, of whose progress they are.
    Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueryKind {
    View,
    Deployment,
    Procedure,
}

/// A view, a deployment or a procedure.
struct StoredQuery {
    source: QuerySource,
    options: Vec<(String, String)>,
    /// Of a view that reads files.
    files: Option<FileViewRecord>,
}

impl StoredQuery {
    fn new(source: QuerySource) -> Self {
        Self { source, options: Vec::new(), files: None }
    }
}

impl<'d> EngineRecovery<'d> {
    fn new(database: &'d Database, progress: ProgressReport) -> Self {
        Self {
            database,
            tables: BTreeMap::new(),
            views: Vec::new(),
            queries: BTreeMap::new(),
            work: BTreeMap::new(),
            variables: BTreeMap::new(),
            next_table_id: 1,
            catalog_position: 0,
            progress,
            writers: RowWriters::start(database.host().threads),
            pending: None,
            failure: None,
        }
    }

    /// Reads the checkpoint of a directory.
    fn read_checkpoint(&mut self, directory: &DatabaseDirectory) -> Result<()> {
        let manifest = directory.manifest();
        if manifest.body.is_empty() {
            return Ok(());
        }
        let wrong = |what: &str| {
            let file = directory.path().join("MANIFEST");
            let message = format!("could not read {}: {what}", file.display());
            Diagnostic::new(code::DATA_CORRUPTED, message).with_kind(Kind::FixData)
        };
        let body: CheckpointBody =
            serde_json::from_slice(&manifest.body).map_err(|error| wrong(&error.to_string()))?;
        for record in body.catalog {
            self.apply_catalog(record, manifest.position)?;
        }
        for job in body.jobs {
            if !self.database.jobs().restore(job) {
                return Err(Box::new(wrong("jobs are out of order")));
            }
        }
        self.catalog_position = body.catalog_position;
        if body.next_table_id > TABLE_ID_END {
            return wrong("the next table id is out of range").err();
        }
        self.next_table_id = self.next_table_id.max(body.next_table_id);
        let mut ids = BTreeSet::new();
        for checkpoint in body.tables {
            if !ids.insert(checkpoint.id) {
                return wrong("a table is listed more than once").err();
            }
            let find = |number: u64| manifest.files.iter().find(|file| file.number == number);
            if let Some(runs) = &checkpoint.runs {
                let found = |number: u64| find(number).copied();
                let parts = parts::open(directory, &checkpoint.extents, runs, found)?;
                let Some(parts) = parts.filter(|_| checkpoint.is_in_order()) else {
                    return wrong("the files of a table are not those that are listed").err();
                };
                self.open_table(&checkpoint, parts)?;
                continue;
            }
            let extents = checkpoint.extents.iter();
            let extents = extents.map(|extent| find(extent.file).map(|file| (*extent, *file)));
            let extents: Vec<(Extent, DataFile)> =
                extents.collect::<Option<_>>().ok_or_else(|| wrong("a data file is not listed"))?;
            if !checkpoint.is_in_order() {
                return wrong("the files of a table are not in order of arrival").err();
            }
            self.read_table(directory, &checkpoint, &extents)?;
        }
        Ok(())
    }

    /// Gives a table the files of a checkpoint. Reads no rows.
    fn open_table(&mut self, checkpoint: &TableCheckpoint, parts: TableParts) -> Result<()> {
        debug_assert!(checkpoint.runs.is_some(), "a manifest of an older version lists no runs");
        let ReplayedTable { table, replay } = self.begin_table(checkpoint)?;
        debug_assert_eq!(table.row_count(), 0, "the log comes after the checkpoint");
        self.progress.add_bytes(parts.file_bytes());
        self.progress.add(parts.row_count())?;
        // The catalog may say already that it is a disk table.
        let is_of_memory = checkpoint.in_memory && !table.is_on_disk();
        let given = replay.lock().parts(&table, parts, is_of_memory);
        given.map_err(|error| replay_error(&error))
    }

    /// Gives a table the indexes of a checkpoint. Its rows follow.
    fn begin_table(&mut self, checkpoint: &TableCheckpoint) -> Result<ReplayedTable> {
        let TableCheckpoint { id, position, indexes, now_ms, .. } = checkpoint;
        let Some(found) = self.tables.get_mut(id) else {
            return Err(damaged(*position, &format!("table {id} does not exist")));
        };
        found.position = *position;
        let ReplayedTable { table, replay } = &found.replayed;
        let mut locked = replay.lock();
        let applied = locked.indexes(table, *position, indexes);
        applied.map_err(|error| replay_error(&error))?;
        locked.note_time(*now_ms);
        drop(locked);
        Ok(found.replayed.clone())
    }

    /// Reads the rows of a table from the files of a checkpoint of an older version.
    fn read_table(
        &mut self,
        directory: &DatabaseDirectory,
        checkpoint: &TableCheckpoint,
        extents: &[(Extent, DataFile)],
    ) -> Result<()> {
        let replayed = self.begin_table(checkpoint)?;
        for (extent, file) in extents {
            let reader = directory.read_data_file(*file);
            let mut reader = reader.map_err(|error| log_error(&error))?;
            let mut rows = 0;
            while let Some(block) = reader.next_block().map_err(|error| log_error(&error))? {
                let work = RowWork::Block(block, extent.from..extent.to);
                let stored = self.writers.store(&replayed, work);
                rows += stored.map_err(|error| replay_error(&error))?;
            }
            let end = replayed.table.snapshot().visible_arrival();
            if (rows, end) != (extent.rows, extent.to) {
                let Extent { file, rows: listed, .. } = extent;
                let what = format!("file {file} has {rows} rows up to {end}, not {listed}");
                return Err(damaged(extent.from, &what));
            }
            self.progress.add_bytes(file.bytes);
            self.progress.add(extent.rows)?;
        }
        Ok(())
    }

    /// Applies the records of a group. After a failure nothing more is applied.
    fn visit(&mut self, entries: Entries<'_>) {
        for entry in entries {
            if self.failure.is_none() {
                self.progress.add_record(entry.payload);
                self.failure = self.apply(&entry).err();
            }
        }
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Result<()> {
        failpoint::reach("recovery.record");
        if entry.kind == CATALOG {
            let record = CatalogRecord::read(entry.payload);
            let record = record.map_err(|error| damaged(entry.position, &error.to_string()))?;
            if entry.position < self.catalog_position {
                return Ok(());
            }
            self.finish_rows()?;
            return self.apply_catalog(record, entry.position);
        }
        match TableRecord::read(entry.kind, entry.payload) {
            Ok(Some(record)) => self.apply_table(&record, entry),
            Ok(None) => {
                let what = format!("unknown record kind {}", entry.kind);
                Err(damaged(entry.position, &what))
            }
            Err(error) => Err(damaged(entry.position, &error.to_string())),
        }
    }

    /// Applies a record of a table. One of a table that was dropped by then was not acknowledged.
    fn apply_table(&mut self, record: &TableRecord<'_>, entry: &Entry<'_>) -> Result<()> {
        let position = entry.position;
        let Some(RecoveredTable { replayed, position: from, .. }) = self.tables.get(&record.table)
        else {
            if record.table < self.next_table_id {
                return Ok(());
            }
            return Err(damaged(position, &format!("table {} does not exist", record.table)));
        };
        if position < *from {
            return Ok(());
        }
        let replayed = replayed.clone();
        if let TableChange::Rows(rows) = &record.change {
            self.progress.add(u64::from(entry.rows))?;
            let rows = RowsToStore::read(position, entry.rows, rows);
            return self.store_rows(replayed, rows.map_err(|error| replay_error(&error))?);
        }
        self.finish_rows()?;
        let ReplayedTable { table, replay } = &replayed;
        let mut replay = replay.lock();
        let applied = match &record.change {
            TableChange::Rows(_) => Ok(()),
            TableChange::Indexes(indexes) => replay.indexes(table, position, indexes),
            TableChange::Delete { horizon, condition } => {
                let condition = LoggedCondition::read(condition);
                let condition = condition.map_err(|error| damaged(position, &error.to_string()))?;
                if !condition.is_of(&table.schema()) {
                    return Err(damaged(position, "its condition belongs to another table"));
                }
                replay.delete(table, position, *horizon, |row| condition.holds(row))
            }
            TableChange::Truncate => replay.truncate(table, position),
        };
        applied.map_err(|error| replay_error(&error))
    }

    /// Stores rows of the log, together with those of the records before where they follow them.
    fn store_rows(&mut self, table: ReplayedTable, rows: RowsToStore) -> Result<()> {
        let rest = match &mut self.pending {
            Some((pending, before)) if Arc::ptr_eq(&pending.table, &table.table) => {
                before.merge(rows)
            }
            _ => Some(rows),
        };
        if let Some(rows) = rest {
            self.store_pending()?;
            self.pending = Some((table, rows));
        }
        Ok(())
    }

    fn store_pending(&mut self) -> Result<()> {
        let Some((table, rows)) = self.pending.take() else { return Ok(()) };
        let stored = self.writers.store(&table, RowWork::Logged(rows));
        stored.map(|_| ()).map_err(|error| replay_error(&error))
    }

    /// Waits until all rows are stored that were read.
    fn finish_rows(&mut self) -> Result<()> {
        let stored = self.store_pending();
        self.writers.finish_all();
        stored
    }

    fn apply_catalog(&mut self, record: CatalogRecord, position: u64) -> Result<()> {
        match record {
            CatalogRecord::CreateDatabase { name } => {
                self.run(&CatalogCommand::CreateDatabase { name })
            }
            CatalogRecord::DropDatabase { name } => {
                self.run(&CatalogCommand::DropDatabase { name })
            }
            CatalogRecord::CreateTable { id, name, schema, options, or_replace } => {
                // Its rows may have come before it.
                if !self.tables.contains_key(&id) {
                    self.make_table(id, &schema, position)?;
                }
                let table = self.take_rows(id, RowsOwner::Table, &schema.columns, position)?;
                if options.is_on_disk() {
                    table.move_to_disk().map_err(|error| table_error(&error))?;
                }
                let replaced = self.id_of(&name);
                self.run(&CatalogCommand::CreateTable { name, table, options, or_replace })?;
                replaced.map(|replaced| self.tables.remove(&replaced));
                Ok(())
            }
            CatalogRecord::DropTable { id, name, with } => {
                if self.id_of(&name) != Some(id) {
                    return Err(damaged(position, &format!("table {id} is not `{name}`")));
                }
                self.tables.remove(&id);
                with.iter().for_each(|object| self.forget_query(object));
                self.run(&CatalogCommand::DropTable { name, id, with: Cascade::default() })
            }
            CatalogRecord::CreateOfflineRows { id, schema } => {
                self.make_table(id, &schema, position)
            }
            CatalogRecord::CreateStream { name, source, stream } => {
                self.note_work(name, source, WorkRecord::Stream(stream), position)
            }
            CatalogRecord::CreateConnector { name, source, connector } => {
                self.note_work(name, source, WorkRecord::Connector(connector), position)
            }
            CatalogRecord::DropStream { name } | CatalogRecord::DropConnector { name } => {
                self.forget_work(&name);
                Ok(())
            }
            CatalogRecord::ChangeOffline { table, data } => {
                self.change_offline(table, data, position)
            }
            CatalogRecord::SetTableOptions { table, options } => {
                self.set_table_options(table, &options, position)
            }
            CatalogRecord::SetVariable { name, value } => {
                self.variables.insert(name, value);
                Ok(())
            }
            CatalogRecord::SetUsers { users } => {
                self.database.restore_users(users);
                Ok(())
            }
            CatalogRecord::StartJob { job } => {
                require(self.database.jobs().restore(job), position, "jobs are out of order")
            }
            CatalogRecord::EndJob { job } => {
                require(self.database.jobs().restore_end(job), position, "a job ends twice")
            }
            CatalogRecord::DeleteJob { id } => {
                self.database.jobs().remove(&id);
                Ok(())
            }
            record => {
                self.note_query(record);
                Ok(())
            }
        }
    }

    /// Replaces the offline data of a table.
    fn change_offline(&mut self, of: u64, data: OfflineRecord, position: u64) -> Result<()> {
        let Some(RecoveredTable { replayed, owner: RowsOwner::Table, .. }) = self.tables.get(&of)
        else {
            return Err(damaged(position, &format!("table {of} does not exist")));
        };
        let schema = replayed.table.schema();
        let owner = RowsOwner::OfflineDataOf(of);
        let take = |id| self.take_rows(id, owner, &schema.columns, position);
        let rows = data.rows().map(take).transpose()?;
        self.database.restore_offline(of, OfflineData::of_record(data, rows));
        Ok(())
    }

    /// Gives a table other options, and moves its rows where these say.
    fn set_table_options(&self, of: u64, options: &TableOptions, position: u64) -> Result<()> {
        let found = self.tables.get(&of).filter(|found| found.owner == RowsOwner::Table);
        let Some(RecoveredTable { replayed, .. }) = found else {
            return Err(damaged(position, &format!("table {of} does not exist")));
        };
        let table = &replayed.table;
        let moved = match options.is_on_disk() {
            true => table.move_to_disk(),
            false => {
                table.load_later();
                Ok(())
            }
        };
        moved.map_err(|error| table_error(&error))?;
        self.database.restore_options(of, options);
        Ok(())
    }

    /// Notes the record of a view, a deployment or a procedure, which are compiled at the end.
    fn note_query(&mut self, record: CatalogRecord) {
        match record {
            CatalogRecord::CreateView { name, source, files } => {
                self.views.retain(|(known, _)| *known != name);
                self.views.push((name, StoredQuery { files, ..StoredQuery::new(source) }));
            }
            CatalogRecord::DropView { name, with } => {
                self.views.retain(|(known, _)| *known != name);
                with.iter().for_each(|object| self.forget_query(object));
            }
            CatalogRecord::CreateDeployment { name, source, options } => {
                let query = StoredQuery { options, ..StoredQuery::new(source) };
                self.queries.insert((QueryKind::Deployment, name), query);
            }
            CatalogRecord::DropDeployment { name } => {
                self.queries.remove(&(QueryKind::Deployment, name));
            }
            CatalogRecord::CreateProcedure { name, source } => {
                self.queries.insert((QueryKind::Procedure, name), StoredQuery::new(source));
            }
            CatalogRecord::DropProcedure { name } => {
                self.queries.remove(&(QueryKind::Procedure, name));
            }
            other => debug_assert!(false, "{other:?} is applied at once"),
        }
    }

    /// Forgets a view, a deployment or a procedure that was dropped with what it reads.
    fn forget_query(&mut self, object: &DroppedObject) {
        let DroppedObject { kind, name } = object;
        match kind {
            ObjectKind::Deployment => {
                self.queries.remove(&(QueryKind::Deployment, name.clone()));
            }
            ObjectKind::Procedure => {
                self.queries.remove(&(QueryKind::Procedure, name.clone()));
            }
            ObjectKind::Stream | ObjectKind::Source | ObjectKind::Sink => self.forget_work(name),
            ObjectKind::View | ObjectKind::Table => self.views.retain(|(known, _)| known != name),
        }
    }

    /// Notes a stream, a source or a sink, which is made again at the end.
    fn note_work(
        &mut self,
        name: QualifiedName,
        source: QuerySource,
        record: WorkRecord,
        position: u64,
    ) -> Result<()> {
        let columns = ProgressTable::schema().columns;
        let progress = self.take_rows(record.progress(), RowsOwner::Work, &columns, position)?;
        self.work.insert(name, RecoveredWork { source, record, progress });
        Ok(())
    }

    /// Forgets a stream, a source or a sink that was dropped, with its progress.
    fn forget_work(&mut self, name: &QualifiedName) {
        if let Some(dropped) = self.work.remove(name) {
            self.tables.remove(&dropped.record.progress());
        }
    }

    /// Returns the id of the table of the catalog that has this name.
    fn id_of(&self, name: &QualifiedName) -> Option<u64> {
        let objects = self.database.objects();
        objects.find_table(&name.database, &name.name).map(|entry| entry.id)
    }

    /// Applies a command as a statement does. No statement runs, and nothing is logged yet.
    fn run(&self, command: &CatalogCommand) -> Result<()> {
        QueryContext::new().run(|| self.database.commit(command))
    }

    /// Makes a table that has no name and no rows yet.
    fn make_table(&mut self, id: u64, schema: &TableSchema, position: u64) -> Result<()> {
        if self.tables.contains_key(&id) {
            return Err(damaged(position, &format!("table {id} already exists")));
        }
        if id >= TABLE_ID_END {
            return Err(damaged(position, &format!("table id {id} is out of range")));
        }
        let mut names = HashSet::new();
        if !schema.columns.iter().all(|column| names.insert(column.name.as_str())) {
            return Err(damaged(position, &format!("table {id} has two columns of the same name")));
        }
        let made = self.database.make_unlogged_table(schema.clone());
        let table = made.map_err(|error| table_error(&error))?;
        let table = table.logged_as(id).shared(self.database.host().threads);
        table.defer_removal();
        self.next_table_id = self.next_table_id.max(id + 1);
        let replayed = ReplayedTable { table, replay: Arc::default() };
        let recovered = RecoveredTable { replayed, position: 0, owner: RowsOwner::None };
        self.tables.insert(id, recovered);
        Ok(())
    }

    /// Gives the rows with this id an owner, which has these columns, and returns them. Fails when they
    /// are another's.
    fn take_rows(
        &mut self,
        id: u64,
        owner: RowsOwner,
        columns: &[Column],
        position: u64,
    ) -> Result<Arc<Table>> {
        let Some(found) = self.tables.get_mut(&id) else {
            return Err(damaged(position, &format!("table {id} does not exist")));
        };
        let keeps =
            matches!(owner, RowsOwner::OfflineDataOf(_) | RowsOwner::Work) && found.owner == owner;
        if found.owner != RowsOwner::None && !keeps {
            return Err(damaged(position, &format!("table {id} already exists")));
        }
        let table = &found.replayed.table;
        if table.schema().columns != columns {
            return Err(damaged(position, &format!("table {id} has different columns")));
        }
        found.owner = owner;
        Ok(Arc::clone(table))
    }

    /// Compiles the queries and sets the variables. Returns how many rows were read, and how long it
    /// took. Goes on behind what cannot be compiled or set as long as `refuse`, which is given the
    /// error, returns none.
    fn finish(
        mut self,
        end: u64,
        refuse: &mut dyn FnMut(Box<Diagnostic>) -> Result<()>,
    ) -> Result<OpenProgress> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.finish_rows()?;
        for (id, found) in &self.tables {
            if found.replayed.table.snapshot().visible_arrival() > end {
                return Err(damaged(end, &format!("table {id} has rows after the end of the log")));
            }
        }
        for RecoveredTable { replayed: ReplayedTable { table, replay }, .. } in
            self.tables.into_values()
        {
            replay.lock().finish(&table);
        }
        self.database.set_next_table_id(self.next_table_id);
        self.database.jobs().mark_lost();
        failpoint::reach("recovery.compile");
        // What a query or a view reads comes before it.
        let mut note = |of: &str, name: &QualifiedName, compiled: Result<()>| {
            let Err(error) = compiled else { return Ok(()) };
            let message = format!("could not compile {of} `{name}`: {}", error.message);
            refuse(Box::new(Diagnostic { message, span: None, ..*error }))
        };
        let views = self.views.into_iter().map(|(name, query)| ((QueryKind::View, name), query));
        for ((kind, name), query) in views.chain(self.queries) {
            let of = match kind {
                QueryKind::View => "view",
                QueryKind::Deployment => "deployment",
                QueryKind::Procedure => "procedure",
            };
            note(of, &name, compile(self.database, kind, &name, &query))?;
        }
        // A sink may write what a stream gives.
        let is_stream = |work: &RecoveredWork| matches!(work.record, WorkRecord::Stream(_));
        let (streams, connectors): (Vec<_>, Vec<_>) =
            self.work.into_iter().partition(|(_, work)| is_stream(work));
        for (name, work) in streams.into_iter().chain(connectors) {
            let what = if is_stream(&work) { "stream" } else { "source or sink" };
            note(what, &name, work.restore(self.database, &name))?;
        }
        for (name, value) in self.variables {
            let name = Ident { text: name, span: lockstep_diagnostic::Span::default() };
            let value = OptionValue::Literal(Literal::String(value));
            let command = CatalogCommand::SetVariable { name, value };
            let set = QueryContext::new().run(|| self.database.commit(&command));
            set.or_else(&mut *refuse)?;
        }
        Ok(self.progress.progress())
    }
}

impl RecoveredWork {
    /// Makes it again. Its thread is not started.
    fn restore(self, database: &Database, name: &QualifiedName) -> Result<()> {
        let Self { source, record, progress } = self;
        let session = session_like(database, &source)?;
        let progress = ProgressTable::of_table(progress);
        QueryContext::new().run(|| match record {
            WorkRecord::Stream(record) => session.restore_stream(name, &source, &record, progress),
            WorkRecord::Connector(record) => {
                session.restore_connector(name, &source, record, progress)
            }
        })
    }
}

/// Fails where something is not so.
fn require(is_so: bool, position: u64, otherwise: &str) -> Result<()> {
    if is_so { Ok(()) } else { Err(damaged(position, otherwise)) }
}

/// Opens a session like the one that made an object.
fn session_like(database: &Database, source: &QuerySource) -> Result<Session> {
    let session = database.session();
    if !failpoint::is_seeded("query_database_forgotten") {
        session.set_current_database(&source.current_database);
    }
    session.set_bound_indexes(&source.indexes);
    session.restore_for(source.owner.clone());
    for (variable, value) in
        [("compatibility", &source.compatibility), ("time_zone", &source.time_zone)]
    {
        let variable =
            Ident { text: variable.to_owned(), span: lockstep_diagnostic::Span::default() };
        session.set_variable(&variable, &OptionValue::Literal(Literal::String(value.clone())))?;
    }
    Ok(session)
}

/// Makes a view, a deployment or a procedure again, in a session like the one that made it.
fn compile(
    database: &Database,
    kind: QueryKind,
    name: &QualifiedName,
    query: &StoredQuery,
) -> Result<()> {
    let StoredQuery { source, options, files } = query;
    let session = session_like(database, source)?;
    let statement = match kind {
        QueryKind::View => {
            if let Some(known) = files {
                return QueryContext::new().run(|| session.restore_file_view(name, source, known));
            }
            view_script(name, &source.sql, false)
        }
        QueryKind::Deployment => deploy_script(name, options, &source.sql),
        QueryKind::Procedure => source.sql.clone(),
    };
    // The session may do anything: it runs the statement that was logged, and no further one.
    let parsed = parse(&statement)?;
    let is_expected = match parsed.as_slice() {
        [Parsed { statement: Statement::CreateView(_), .. }] => kind == QueryKind::View,
        [Parsed { statement: Statement::Deploy(_), .. }] => kind == QueryKind::Deployment,
        [Parsed { statement: Statement::CreateProcedure(_), .. }] => kind == QueryKind::Procedure,
        _ => false,
    };
    if !is_expected {
        return Diagnostic::internal("the record holds another statement").err();
    }
    QueryContext::new().run(|| session.run_statements(&parsed, &statement)).map(|_| ())
}

/// Makes the error of a record that cannot be applied.
fn damaged(position: u64, what: &str) -> Box<Diagnostic> {
    let message = format!("could not apply the log record at position {position}: {what}");
    let hint = "Run `lockstep check` to list all damage in the directory.";
    let diagnostic = Diagnostic::new(code::DATA_CORRUPTED, message).with_hint(hint);
    Box::new(diagnostic.with_kind(Kind::FixData))
}

fn replay_error(error: &ReplayError) -> Box<Diagnostic> {
    let (ReplayError::Rows { position } | ReplayError::Refused { position, .. }) = error;
    let what = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    damaged(*position, &what)
}

//! Reads the catalog as values: columns and indexes of a table, deployments, completions.
//!
//! For front ends and tests, which would otherwise parse the output of DESC and SHOW.

use std::collections::BTreeSet;

use lockstep_diagnostic::Result;
use lockstep_row::{DataType, IndexSpec, Retention, TableSchema};
use lockstep_table::Table;

use crate::{
    Session,
    access::Needs,
    catalog::QualifiedName,
    entrance::CallDescription,
    session::object_name,
    system::{connector_figures, stream_figures, table_figures},
    user::{Privilege, Securable},
};

/// An index of a table, columns by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableIndex {
    /// Its name, unique within the table.
    pub name: String,
    /// The key columns, in the written order.
    pub keys: Vec<String>,
    /// The event-time column; `None` where rows are in order of arrival.
    pub event_time: Option<String>,
    /// How long it keeps a row.
    pub retention: Retention,
    /// Whether its retention counts for which rows are kept: it was declared, or a deployment
    /// widened it. Other indexes show the rows that these keep.
    pub declared: bool,
}

/// A deployment: the columns of its requests and answers, and the settings of its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentInfo {
    /// Its name, unique within the database.
    pub name: String,
    /// The database.
    pub database: String,
    /// The query as it was written.
    pub sql: String,
    /// The columns of the request row; empty for a query without a table.
    pub input: Vec<(String, DataType)>,
    /// For each of them, whether an answer depends on it: the others may be NULL or left out.
    pub reads: Vec<bool>,
    /// The columns of the answer.
    pub output: Vec<(String, DataType)>,
    /// The value of `compatibility` that the query was deployed under.
    pub compatibility: &'static str,
    /// The value of `time_zone` that the query was deployed under.
    pub time_zone: String,
    /// The database in which the tables of the query were looked up: the session's at DEPLOY.
    pub current_database: String,
    /// The options that DEPLOY was given, as (name, value).
    pub options: Vec<(String, String)>,
    /// The tables that the query reads, as (database, name).
    pub tables: Vec<(String, String)>,
}

/// A procedure: the columns of its requests and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcedureInfo {
    /// Its name, unique within the database.
    pub name: String,
    /// The database.
    pub database: String,
    /// The statement that created it, without the semicolon at its end.
    pub sql: String,
    /// The columns of the request row.
    pub input: Vec<(String, DataType)>,
    /// The columns of the answer.
    pub output: Vec<(String, DataType)>,
    /// Which columns of the request row are CONST: equal for all rows of a batch of requests.
    pub common_input: Vec<bool>,
    /// Which columns of the answer are copies of such columns.
    pub common_output: Vec<bool>,
    /// The tables that the query reads, as (database, name).
    pub tables: Vec<(String, String)>,
}

/// A database, and the names of what the caller sees of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Its name.
    pub name: String,
    /// The tables.
    pub tables: Vec<String>,
    /// The deployments.
    pub deployments: Vec<String>,
    /// The procedures.
    pub procedures: Vec<String>,
}

/// The size of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFigures {
    /// The database.
    pub database: String,
    /// The table.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// The memory of the table with its indexes, in bytes.
    pub memory_bytes: u64,
    /// The indexes that are not removed.
    pub indexes: Vec<IndexFigures>,
}

/// The size of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFigures {
    /// Its name, unique within the table.
    pub name: String,
    /// Its memory in bytes; `None` where that is not known.
    pub memory_bytes: Option<u64>,
}

/// What a stream has done, and has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// The database.
    pub database: String,
    /// The stream.
    pub name: String,
    /// `running`, `stopped`, `waiting` or `failed`.
    pub state: &'static str,
    /// The rows that it has read.
    pub rows_read: u64,
    /// The rows that it has written.
    pub rows_written: u64,
    /// The rows that were late.
    pub rows_late: u64,
    /// The newest event time less the watermark, in milliseconds; `None` as long as one is not known.
    pub lag_ms: Option<i64>,
    /// The memory of its rows, in bytes.
    pub memory_bytes: u64,
}

/// What a source or a sink has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorInfo {
    /// The database.
    pub database: String,
    /// The source or the sink.
    pub name: String,
    /// Whether it is a source.
    pub is_source: bool,
    /// `running`, `stopped`, `waiting` or `failed`.
    pub state: &'static str,
    /// The messages that it has read or written.
    pub messages: u64,
    /// The messages that were not rows.
    pub bad: u64,
    /// Of a source: the messages that it has not read yet. Of a sink: for how many milliseconds the oldest row waits that
    /// it has not written yet.
    pub lag: u64,
}

impl TableIndex {
    fn of(spec: &IndexSpec, schema: &TableSchema) -> Self {
        let name = |position: &usize| schema.columns[*position].name.clone();
        Self {
            name: spec.name.clone(),
            keys: spec.keys.iter().map(name).collect(),
            event_time: spec.event_time.as_ref().map(name),
            retention: spec.retention,
            declared: spec.declared,
        }
    }
}

impl Session {
    /// Returns the names and types of a table's columns.
    pub fn table_columns(&self, table: &str) -> Result<Vec<(String, DataType)>> {
        let schema = self.look_at_table(table, |found| found.schema())?;
        Ok(schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect())
    }

    /// Returns the names and types of a view's columns; of one over files those that it had at CREATE VIEW,
    /// so that no file is opened.
    pub fn view_columns(&self, database: &str, name: &str) -> Result<Vec<(String, DataType)>> {
        let wanted = QualifiedName { database: database.to_owned(), name: name.to_owned() };
        let operation = || CallDescription::look_at(name, Securable::Table(wanted.clone()));
        let of_files = self.enter(operation, || {
            let objects = self.database.objects();
            let found = objects.find_view(&wanted).filter(|view| view.reads_files());
            Ok(found.map(|view| view.columns.clone()))
        })?;
        match of_files {
            Some(columns) => Ok(columns),
            None => {
                let bound = self.query(&format!("SELECT * FROM `{database}`.`{name}`"))?;
                Ok(bound.columns().to_vec())
            }
        }
    }

    /// Returns the schema of a table as its statements declared it: without automatic indexes.
    pub fn table_schema(&self, table: &str) -> Result<TableSchema> {
        self.look_at_table(table, declared_schema)
    }

    /// Returns the databases that the caller sees, by name, with the objects that it sees of each. The
    /// database of the system tables is not one of them.
    pub fn databases(&self) -> Result<Vec<DatabaseInfo>> {
        let operation = || CallDescription::look_at_all("SHOW DATABASES");
        self.enter(operation, || {
            let (objects, caller) = (self.database.objects(), self.caller());
            let is_seen = |name: &&String| {
                caller.is_process() || caller.sees(&objects, Securable::Database((*name).clone()))
            };
            let info = |name: &String| {
                let found = &objects.databases()[name];
                let deployment = |object: &&String| caller.sees_deployment(&objects, name, object);
                let table = |object: &&String| caller.sees_table(&objects, name, object);
                DatabaseInfo {
                    name: name.clone(),
                    tables: found.tables.keys().filter(table).cloned().collect(),
                    deployments: found.deployments.keys().filter(deployment).cloned().collect(),
                    procedures: found.procedures.keys().filter(deployment).cloned().collect(),
                }
            };
            Ok(objects.databases().keys().filter(is_seen).map(info).collect())
        })
    }

    /// Returns the sizes of the tables that the caller sees. It is not recorded in the audit record, so
    /// that a monitor that asks often does not fill it.
    pub fn table_figures(&self) -> Result<Vec<TableFigures>> {
        let operation = || CallDescription::look_at_all("TABLE FIGURES");
        self.enter(operation, || Ok(table_figures(&self.database, self.caller())))
    }

    /// Returns what the streams have done that the caller sees. It is not recorded in the audit record either.
    pub fn stream_figures(&self) -> Result<Vec<StreamInfo>> {
        let operation = || CallDescription::look_at_all("STREAM FIGURES");
        self.enter(operation, || Ok(stream_figures(&self.database, self.caller())))
    }

    /// Returns what the sources and sinks have done that the caller sees. It is not recorded in the audit record either.
    pub fn connector_figures(&self) -> Result<Vec<ConnectorInfo>> {
        let operation = || CallDescription::look_at_all("CONNECTOR FIGURES");
        self.enter(operation, || Ok(connector_figures(&self.database, self.caller())))
    }

    /// Whether a database exists, also one that the caller does not see.
    pub fn has_database(&self, database: &str) -> bool {
        self.database.objects().databases().contains_key(database)
    }

    /// Whether a table exists.
    pub fn has_table(&self, table: &str) -> bool {
        self.look_at_table(table, |_| ()).is_ok()
    }

    fn look_at_table<T>(&self, table: &str, look: impl FnOnce(&Table) -> T) -> Result<T> {
        let name = object_name(table);
        let object = Securable::Table(self.qualified(&name));
        let operation = || CallDescription::look_at(table, object);
        self.enter(operation, || self.find_table(&name).map(|found| look(&found)))
    }

    /// Returns the arrival of each live row of a table, in the order in which SELECT returns them.
    pub fn arrivals(&self, table: &str) -> Result<Vec<u64>> {
        let name = object_name(table);
        let object = Securable::Table(self.qualified(&name));
        let needs = Needs::one(Privilege::Select, object, name.name.span);
        let operation =
            || CallDescription { needs, ..CallDescription::look_at(table, Securable::Everything) };
        self.enter(operation, || {
            let found = self.find_table(&name)?;
            let snapshot = found.snapshot();
            let arrivals = snapshot.scan().map_rows(|stored| stored.arrival);
            Ok(arrivals.collect::<std::result::Result<_, _>>()?)
        })
    }

    /// Returns the completions of a word, sorted: keywords and functions, in the case of its first
    /// letter, and tables, their columns, deployments and databases.
    pub fn complete(&self, start: &str) -> Vec<String> {
        let is_upper = start.starts_with(|first: char| first.is_ascii_uppercase());
        let fits = |word: &str| {
            word.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
        };
        let functions = lockstep_function::entries().into_iter().map(|entry| entry.name);
        let words = lockstep_sql::keywords().chain(functions).filter(|word| fits(word));
        let mut found: BTreeSet<String> = words
            .map(
                |word| if is_upper { word.to_ascii_uppercase() } else { word.to_ascii_lowercase() },
            )
            .collect();
        let objects = self.database.objects();
        let (caller, current) = (self.caller(), self.current_database());
        let sees_database = |name: &&String| {
            caller.is_process() || caller.sees(&objects, Securable::Database((*name).clone()))
        };
        let databases = objects.databases().keys().filter(|name| fits(name));
        found.extend(databases.filter(sees_database).cloned());
        if let Some(objects_here) = objects.databases().get(&current) {
            let sees = |name: &&String| caller.sees_deployment(&objects, &current, name);
            let deployments = objects_here.deployments.keys().filter(|name| fits(name));
            found.extend(deployments.filter(sees).cloned());
            for (name, entry) in &objects_here.tables {
                if !caller.sees_table(&objects, &current, name) {
                    continue;
                }
                let schema = entry.table.schema();
                let columns = schema.columns.iter().map(|column| &column.name);
                found.extend(
                    std::iter::once(name).chain(columns).filter(|name| fits(name)).cloned(),
                );
            }
        }
        found.into_iter().collect()
    }

    /// Returns the indexes of a table (`table` or `database.table`), in the order of creation.
    pub fn indexes(&self, table: &str) -> Result<Vec<TableIndex>> {
        let schema = self.look_at_table(table, |found| found.schema())?;
        let present = schema.indexes.iter().filter(|spec| !spec.is_removed());
        Ok(present.map(|spec| TableIndex::of(spec, &schema)).collect())
    }
}

/// Returns the schema of a table as its statements declared it: without automatic indexes, and with
/// the declared retention of each index, which deployments may have widened.
pub(crate) fn declared_schema(table: &Table) -> TableSchema {
    let mut schema = TableSchema::clone(&table.schema());
    let mut position = 0..;
    schema.indexes.retain_mut(|index| {
        let declared = position.next().and_then(|at| table.declared_retention(at));
        declared.inspect(|retention| index.retention = *retention).is_some()
    });
    schema
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::code;

    use crate::{Database, catalog::CatalogCommand};

    #[test]
    fn a_word_is_completed_to_keywords_and_names() {
        let session = Database::in_memory().session();
        session.execute("CREATE TABLE selections (seller STRING, v INT)").unwrap();
        assert_eq!(session.complete("sel"), ["select", "selections", "seller"]);
        assert_eq!(session.complete("SEL"), ["SELECT", "selections", "seller"]);
        assert_eq!(session.complete("topn_f"), ["topn_frequency"]);
        assert!(session.complete("é").is_empty());
    }

    /// Directories of earlier versions may have a database that hides the system tables.
    #[test]
    fn figures_need_no_system_tables() {
        let database = Database::in_memory();
        let command = CatalogCommand::CreateDatabase { name: "lockstep".to_owned() };
        database.commit(&command).unwrap();
        let session = database.session();
        session.execute("CREATE TABLE lockstep.tables (k STRING, INDEX(KEY=k))").unwrap();
        session.execute("INSERT INTO lockstep.tables VALUES ('a')").unwrap();
        let figures = session.table_figures().unwrap();
        let [found] = figures.as_slice() else { panic!("{figures:?}") };
        assert_eq!((found.database.as_str(), found.name.as_str()), ("lockstep", "tables"));
        assert_eq!((found.rows, found.indexes.len()), (1, 1));
        assert!(found.memory_bytes > 0);
        let names: Vec<String> =
            session.databases().unwrap().into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["default", "lockstep"]);
    }

    #[test]
    fn a_procedure_says_which_columns_its_rows_share() {
        let session = Database::in_memory().session();
        let script = "CREATE TABLE t (k STRING, v INT);
            CREATE PROCEDURE p (CONST k STRING, v INT) BEGIN SELECT v, k, k AS again FROM t; END;
            CREATE PROCEDURE w (CONST k STRING, v INT)
                BEGIN SELECT k, count(v) OVER w AS n FROM t
                WINDOW w AS (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW);
                END;";
        session.execute(script).unwrap();
        let found = session.procedure("default.p").unwrap();
        assert_eq!(found.common_input, [true, false]);
        assert_eq!(found.common_output, [false, true, true]);
        assert_eq!(found.tables, [("default".to_owned(), "t".to_owned())]);
        assert!(found.sql.starts_with("CREATE PROCEDURE p"), "{}", found.sql);
        assert_eq!(session.procedure("w").unwrap().common_output, [false, false]);
        assert_eq!(session.procedure("none").unwrap_err().code, code::UNDEFINED_OBJECT);
    }
}

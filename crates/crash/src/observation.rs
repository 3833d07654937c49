//! What a database has, as text: every SHOW, every row, and the answers of every deployment.
//!
//! The child describes the database of a directory, and the driver one in memory; both descriptions
//! are to be equal. Numbers are written so that different bits are different text.

use std::collections::BTreeMap;

use lockstep_engine::{Database, Output, Session};
use lockstep_row::Value;
use lockstep_testkit::rows::of_output;
use serde::{Deserialize, Serialize};

use crate::{objects::SHARED, rows::RowRange};

/// The description of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Lines by the name of what shows them.
    pub texts: BTreeMap<String, Vec<String>>,
    /// The arrival of each row of a table, in the order of its rows.
    pub arrivals: BTreeMap<String, Vec<u64>>,
    /// How many rows the answers of the process have taken from pre-aggregates; this is not compared.
    pub rows_from_nodes: u64,
}

impl Observation {
    /// Describes a database with so many writers.
    pub fn of(database: &Database, writers: usize, now_ms: i64) -> Self {
        let mut observer = DatabaseObserver {
            database: database.clone(),
            session: database.session(),
            observed: Self::default(),
            writers,
            now_ms,
        };
        observer.observe();
        observer.observed
    }

    /// Returns the lines of a text, none where there is no such text.
    pub fn lines(&self, name: &str) -> &[String] {
        self.texts.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the tables whose rows were observed.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().filter_map(|name| name.strip_prefix("rows "))
    }

    /// Returns the numbers of a table's rows, in their order.
    pub fn numbers(&self, table: &str) -> Vec<u64> {
        self.lines(&format!("rows {table}")).iter().map(|line| number_of(line)).collect()
    }
}

/// Returns the number of an observed row.
pub fn number_of(line: &str) -> u64 {
    line.split(", ").nth(1).and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

/// A database while it is described.
struct DatabaseObserver {
    database: Database,
    session: Session,
    observed: Observation,
    writers: usize,
    now_ms: i64,
}

impl DatabaseObserver {
    fn observe(&mut self) {
        for database in self.names("SHOW DATABASES") {
            self.session.execute(&format!("USE `{database}`")).expect("it is listed");
            self.show_as(&format!("SHOW TABLES of {database}"), "SHOW TABLES");
            for table in self.names("SHOW TABLES") {
                let name = match database.as_str() {
                    "default" => table,
                    _ => format!("{database}.{table}"),
                };
                self.observe_table(&name);
            }
        }
        self.session.execute("USE `default`").expect("it is always there");
        self.show("SHOW VIEWS");
        for view in self.names("SHOW VIEWS") {
            self.show(&format!("SHOW CREATE VIEW {view}"));
            self.show_as(&format!("rows of view {view}"), &format!("SELECT * FROM {view}"));
        }
        for show in ["SHOW DATABASES", "SHOW PROCEDURES", "SHOW USERS", "SHOW DEPLOYMENTS"] {
            self.show(show);
        }
        self.observe_variables();
        for user in self.names("SHOW USERS") {
            self.show(&format!("SHOW GRANTS FOR {user}"));
        }
        let deployments = self.column("SHOW DEPLOYMENTS", 1);
        for deployment in &deployments {
            self.observe_deployment(deployment);
        }
        // With the nodes that there are, and then with all.
        self.database.make_pre_aggregates();
        for deployment in &deployments {
            self.observe_answers(deployment, "from nodes");
        }
        self.count_rows_from_nodes();
        for procedure in self.column("SHOW PROCEDURES", 1) {
            self.show(&format!("SHOW CREATE PROCEDURE {procedure}"));
        }
        self.observe_jobs();
    }

    fn observe_table(&mut self, table: &str) {
        self.show_as(&format!("rows {table}"), &format!("SELECT * FROM {table}"));
        let arrivals = self.session.arrivals(table).unwrap_or_default();
        self.observed.arrivals.insert(table.to_owned(), arrivals);
        self.show(&format!("SHOW CREATE TABLE {table}"));
        let name = format!("SHOW INDEXES FROM {table}");
        self.show(&name);
        if SHARED.iter().any(|(shared, ..)| *shared == table) {
            // Which writer's deployment made an index first decides about its name and place.
            let lines = self.observed.texts.get_mut(&name).expect("it was shown above");
            lines.retain(|line| !line.contains("\"no\""));
            lines.sort_unstable();
        }
        self.session.execute("SET @@execute_mode = 'offline'").expect("it is a mode");
        self.show_as(&format!("offline rows {table}"), &format!("SELECT * FROM {table}"));
        self.session.execute("SET @@execute_mode = 'online'").expect("it is a mode");
    }

    fn observe_deployment(&mut self, name: &str) {
        self.show(&format!("SHOW DEPLOYMENT {name}"));
        let Ok(found) = self.session.deployment(name) else { return };
        self.observe_answers(name, "as it is");
        self.session.execute(&format!("USE `{}`", found.current_database)).expect("it is there");
        self.show_as(&format!("batch answer of {name}"), &found.sql);
        self.session.execute("USE `default`").expect("it is always there");
    }

    /// Answers requests with the keys of each writer.
    fn observe_answers(&mut self, name: &str, how: &str) {
        let writers = 0..u64::try_from(self.writers).expect("there are few writers");
        for writer in writers {
            let rows = RowRange { writer, first: 1 << 40, count: 6, now_ms: self.now_ms };
            let answered = self.session.request(name, &[rows.to_batch()]);
            let lines = lines(answered.map_err(|error| error.message));
            self.observed.texts.insert(format!("answers of {name} to {writer}, {how}"), lines);
        }
    }

    fn count_rows_from_nodes(&mut self) {
        let sql = "SELECT rows_from_nodes FROM lockstep.pre_aggregates";
        let rows = self.session.execute(sql).map(|output| of_output(&output)).unwrap_or_default();
        let number = |row: &Vec<Value>| match row.first() {
            Some(Value::BigInt(rows)) => rows.unsigned_abs(),
            _ => 0,
        };
        self.observed.rows_from_nodes = rows.iter().map(number).sum();
    }

    /// Lists the variables, without the one that a database in memory has otherwise.
    fn observe_variables(&mut self) {
        let name = "SHOW GLOBAL VARIABLES";
        self.show(name);
        let lines = self.observed.texts.get_mut(name).expect("it was shown above");
        lines.retain(|line| !line.starts_with("\"durability\""));
    }

    /// Lists the jobs without their numbers: a load that was not acknowledged may have none.
    fn observe_jobs(&mut self) {
        let name = "SHOW JOBS";
        self.show(name);
        let lines = self.observed.texts.get_mut(name).expect("it was shown above");
        lines.retain(|line| line.contains("LOAD DATA"));
        for line in lines {
            *line = line.split_once(", ").map_or("", |(_, rest)| rest).to_owned();
        }
    }

    fn show(&mut self, sql: &str) {
        self.show_as(sql, sql);
    }

    fn show_as(&mut self, name: &str, sql: &str) {
        let shown = self.session.execute(sql).map_err(|error| error.message);
        self.observed.texts.insert(name.to_owned(), lines(shown));
    }

    /// Returns the first column of a SHOW.
    fn names(&self, sql: &str) -> Vec<String> {
        self.column(sql, 0)
    }

    fn column(&self, sql: &str, column: usize) -> Vec<String> {
        let rows = self.session.execute(sql).map(|output| of_output(&output)).unwrap_or_default();
        let name = |row: &Vec<Value>| match row.get(column) {
            Some(Value::String(name)) => name.to_string(),
            other => panic!("{sql} gives {other:?} for a name"),
        };
        rows.iter().map(name).collect()
    }
}

/// Writes the rows of an output.
fn lines(output: Result<Output, String>) -> Vec<String> {
    match output {
        Ok(output) => of_output(&output).iter().map(|row| line(row)).collect(),
        Err(message) => vec![format!("error: {message}")],
    }
}

/// Writes a row.
fn line(row: &[Value]) -> String {
    let values: Vec<String> = row.iter().map(text).collect();
    values.join(", ")
}

/// Writes a value with all of its bits.
fn text(value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::BigInt(value) => value.to_string(),
        Value::String(value) => format!("{value:?}"),
        Value::Float(value) => format!("{value:?}f:{:08x}", value.to_bits()),
        Value::Double(value) => format!("{value:?}:{:016x}", value.to_bits()),
        other => format!("{other:?}"),
    }
}

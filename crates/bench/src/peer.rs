//! Peers: the systems a user would take instead, each tuned as its own users would.
//!
//! Workloads use the SQL peers through [`SqlConnection`] and need not know which one it is.
//! `duckdb` and `sqlite` run in this process; servers run on this machine, behind a socket in the file system,
//! with data folders of their own that are removed with them.

pub(crate) mod duckdb;
pub(crate) mod folder;
pub(crate) mod install;
pub(crate) mod mariadb;
pub(crate) mod postgres;
pub(crate) mod prepared;
pub(crate) mod redis;
mod server;
mod shared_library;
pub(crate) mod sqlite;

pub(crate) use server::finish;

use crate::{
    answer::AnswerValue,
    arguments::{BenchOptions, PeerName},
    error::Result,
    statement::{Dialect, PeerStatement, PeerType},
    suite::wanted,
};

/// The peers of a run. Servers stop when this is dropped.
#[derive(Default)]
pub(crate) struct Peers {
    /// The SQL peers.
    pub(crate) sql: Vec<Box<dyn SqlPeer>>,
    /// Redis, which has no SQL.
    pub(crate) redis: Option<redis::Redis>,
}

impl Peers {
    /// Starts the peers that are wanted.
    pub(crate) fn open(options: &BenchOptions) -> Result<Self> {
        let mut sql: Vec<Box<dyn SqlPeer>> = Vec::new();
        // One thread: a second one makes requests of this size slower.
        if let Some(peer) = wanted(options, PeerName::Duckdb, || duckdb::DuckDb::open(1))? {
            sql.push(Box::new(peer));
        }
        if let Some(peer) = wanted(options, PeerName::Mariadb, mariadb::MariaDb::start)? {
            sql.push(Box::new(peer));
        }
        if let Some(peer) = wanted(options, PeerName::Postgres, postgres::Postgres::start)? {
            sql.push(Box::new(peer));
        }
        Ok(Self { sql, redis: wanted(options, PeerName::Redis, redis::Redis::start)? })
    }
}

/// A running peer with SQL.
pub(crate) trait SqlPeer: Sync {
    /// Returns its name in results.
    fn name(&self) -> &'static str;

    /// Returns a connection, for the thread that makes it.
    fn connect(&self) -> Result<Box<dyn SqlConnection + '_>>;
}

/// Appends the next lines of a table to load, and returns their number; 0 at the end.
pub(crate) type NextLines<'a> = dyn FnMut(&mut String) -> usize + 'a;

/// A connection to a peer.
pub(crate) trait SqlConnection {
    /// Returns the dialect of its SQL.
    fn dialect(&self) -> Dialect;

    /// Runs a statement and returns its rows.
    fn execute(&mut self, sql: &str) -> Result<Vec<Vec<AnswerValue>>>;

    /// Prepares a statement and returns its number on this connection.
    fn prepare(&mut self, statement: &PeerStatement) -> Result<usize>;

    /// Runs a prepared statement with these values, in the order of its text.
    fn run(
        &mut self,
        prepared: usize,
        values: &mut dyn Iterator<Item = &AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>>;

    /// Creates a table that will hold about `_rows` rows.
    fn create_table(
        &mut self,
        name: &str,
        columns: &[(String, PeerType)],
        _rows: usize,
    ) -> Result<()> {
        let dialect = self.dialect();
        let columns: Vec<String> = columns
            .iter()
            .map(|(name, kind)| format!("{name} {}", dialect.type_name(*kind)))
            .collect();
        self.execute(&format!("CREATE TABLE {name} ({})", columns.join(", ")))?;
        Ok(())
    }

    /// Creates the index by which a window finds the rows of a key, newest first; it may include
    /// the columns that are read.
    fn create_time_index(
        &mut self,
        table: &str,
        key: &str,
        time: &str,
        included: &[&str],
    ) -> Result<()>;

    /// Loads lines of tab-separated text; NULL is `\N`.
    ///
    /// `order` are the columns by which a peer may sort the rows.
    fn copy_in(&mut self, table: &str, order: &str, next: &mut NextLines<'_>) -> Result<()>;

    /// Does what its users do after a load: updates statistics, and whatever makes reads fast.
    fn settle(&mut self, table: &str) -> Result<()>;

    /// Returns memory of these tables and their indexes, by the peer's own account, in bytes.
    fn table_bytes(&mut self, tables: &[String]) -> Result<Option<u64>>;
}

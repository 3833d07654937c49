//! SQLite under M13: a prepared INSERT; several rows in a transaction.

use super::{SHAPE, WriteTarget, WrittenRows};
use crate::{
    answer::AnswerValue,
    error::Result,
    m6::OwnPuts,
    peer::sqlite::{Sqlite, SqliteConnection, SqliteSynchronous},
    system::Client,
};

/// A database with an empty table.
#[derive(Debug)]
pub(super) struct SqliteWrites {
    sqlite: Sqlite,
    written: WrittenRows,
}

impl SqliteWrites {
    /// Creates the table and its index.
    pub(super) fn create(synchronous: SqliteSynchronous) -> Result<Self> {
        let sqlite = Sqlite::create(synchronous)?;
        sqlite.connect()?.execute(
            "CREATE TABLE puts (k0 TEXT, k1 TEXT, k2 TEXT, ts INTEGER, d0 REAL, d1 REAL, \
             i0 INTEGER, i1 INTEGER); CREATE INDEX puts_k0 ON puts (k0, ts)",
        )?;
        Ok(Self { sqlite, written: WrittenRows::default() })
    }
}

impl WriteTarget for SqliteWrites {
    fn writer(&self, batch: usize) -> Result<Box<dyn Client + '_>> {
        assert!(batch > 0, "an operation has rows");
        let mut connection = self.sqlite.connect()?;
        let insert = connection.prepare("INSERT INTO puts VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
        // It takes the lock at once: a transaction that reads before it writes may be refused.
        let begin = connection.prepare("BEGIN IMMEDIATE")?;
        let commit = connection.prepare("COMMIT")?;
        let own = self.written.numbers.begin(SHAPE);
        Ok(Box::new(SqliteWriter { system: self, connection, insert, begin, commit, own, batch }))
    }

    fn written(&self) -> &WrittenRows {
        &self.written
    }

    fn stored(&self) -> Result<Option<u64>> {
        let mut connection = self.sqlite.connect()?;
        let count = connection.prepare("SELECT count(*) FROM puts")?;
        Ok(connection.run(count, &[])?.and_then(|rows| u64::try_from(rows).ok()))
    }
}

struct SqliteWriter<'a> {
    system: &'a SqliteWrites,
    connection: SqliteConnection<'a>,
    insert: usize,
    begin: usize,
    commit: usize,
    own: OwnPuts<'a>,
    batch: usize,
}

impl SqliteWriter<'_> {
    fn insert(&mut self) -> Result<()> {
        let (_, put) = self.own.take();
        let values: Vec<AnswerValue> = put.datums().iter().map(AnswerValue::from).collect();
        self.connection.run(self.insert, &values).map(drop)
    }
}

impl Client for SqliteWriter<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        if self.batch == 1 {
            self.insert()?;
        } else {
            self.connection.run(self.begin, &[])?;
            (0..self.batch).try_for_each(|_| self.insert())?;
            self.connection.run(self.commit, &[])?;
        }
        self.system.written.acknowledge(self.batch);
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.serve(request).map(|()| Vec::new())
    }
}

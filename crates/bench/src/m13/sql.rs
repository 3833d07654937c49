//! PostgreSQL and MariaDB under M13: a prepared INSERT, of as many rows as an operation has.

use super::{SHAPE, WriteTarget, WrittenRows};
use crate::{
    answer::AnswerValue,
    error::{Error, Result},
    m6::{M6_COLUMNS, OwnPuts},
    peer::{SqlConnection, SqlPeer},
    statement::{Dialect, PeerStatement, PeerType, StatementParameter},
    system::Client,
};

/// A peer with an empty table.
pub(super) struct SqlWrites {
    peer: Box<dyn SqlPeer>,
    written: WrittenRows,
}

impl SqlWrites {
    /// Creates the table and its index.
    pub(super) fn create(peer: Box<dyn SqlPeer>) -> Result<Self> {
        let mut connection = peer.connect()?;
        let columns = M6_COLUMNS.map(|(name, kind)| (name.to_owned(), kind));
        connection.create_table("puts", &columns, 0)?;
        connection.create_time_index("puts", "k0", "ts", &[])?;
        drop(connection);
        Ok(Self { peer, written: WrittenRows::default() })
    }
}

/// Returns an INSERT of several rows.
pub(super) fn insert_statement(dialect: Dialect, batch: usize) -> PeerStatement {
    assert!(batch > 0, "an operation has rows");
    let parameter = |row: usize, (name, kind): (&str, PeerType)| StatementParameter {
        name: format!("{name}_{row}"),
        kind,
    };
    let parameters: Vec<StatementParameter> =
        (0..batch).flat_map(|row| M6_COLUMNS.map(|column| parameter(row, column))).collect();
    let rows: Vec<String> = parameters
        .chunks(M6_COLUMNS.len())
        .map(|row| {
            let names: Vec<String> =
                row.iter().map(|value| format!("{{{}}}", value.name)).collect();
            format!("({})", names.join(", "))
        })
        .collect();
    dialect.render(&format!("INSERT INTO puts VALUES {}", rows.join(", ")), &parameters)
}

impl WriteTarget for SqlWrites {
    fn writer(&self, batch: usize) -> Result<Box<dyn Client + '_>> {
        let mut connection = self.peer.connect()?;
        let insert = insert_statement(connection.dialect(), batch);
        let prepared = connection.prepare(&insert)?;
        let own = self.written.numbers.begin(SHAPE);
        let values = Vec::new();
        Ok(Box::new(BatchWriter { system: self, connection, insert, prepared, own, batch, values }))
    }

    fn written(&self) -> &WrittenRows {
        &self.written
    }

    fn stored(&self) -> Result<Option<u64>> {
        let rows = self.peer.connect()?.execute("SELECT count(*) FROM puts")?;
        match rows.first().and_then(|row| row.first()) {
            Some(AnswerValue::Int(rows)) => Ok(u64::try_from(*rows).ok()),
            _ => Err(Error::peer(self.peer.name(), "count(*) did not return a number")),
        }
    }
}

struct BatchWriter<'a> {
    system: &'a SqlWrites,
    connection: Box<dyn SqlConnection + 'a>,
    insert: PeerStatement,
    prepared: usize,
    own: OwnPuts<'a>,
    batch: usize,
    values: Vec<AnswerValue>,
}

impl Client for BatchWriter<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.values.clear();
        for _ in 0..self.batch {
            let (_, put) = self.own.take();
            self.values.extend(put.datums().iter().map(AnswerValue::from));
        }
        self.connection.run(self.prepared, &mut self.insert.values(&self.values))?;
        self.system.written.acknowledge(self.batch);
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.serve(request).map(|()| Vec::new())
    }
}

//! A peer for a workload of one prepared statement, with values for each request.

use crate::{
    answer::AnswerValue,
    error::Result,
    peer::{SqlConnection, SqlPeer},
    statement::PeerStatement,
    system::{Client, System},
};

/// A loaded peer, a statement, and the values of every request.
pub(crate) struct PreparedSystem<'a> {
    /// The peer.
    pub(crate) peer: &'a dyn SqlPeer,
    /// The query.
    pub(crate) statement: PeerStatement,
    /// The values of each request.
    pub(crate) values: Vec<Vec<AnswerValue>>,
    /// Memory of a row in bytes, as the peer states it.
    pub(crate) bytes_per_row: Option<f64>,
}

impl System for PreparedSystem<'_> {
    fn name(&self) -> &'static str {
        self.peer.name()
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let mut connection = self.peer.connect()?;
        let prepared = connection.prepare(&self.statement)?;
        Ok(Box::new(PreparedClient { system: self, connection, prepared }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        self.bytes_per_row
    }
}

struct PreparedClient<'a> {
    system: &'a PreparedSystem<'a>,
    connection: Box<dyn SqlConnection + 'a>,
    prepared: usize,
}

impl PreparedClient<'_> {
    fn rows(&mut self, request: usize) -> Result<Vec<Vec<AnswerValue>>> {
        let PreparedSystem { statement, values, .. } = self.system;
        self.connection.run(self.prepared, &mut statement.values(&values[request]))
    }
}

impl Client for PreparedClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.rows(request).map(drop)
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        Ok(self.rows(request)?.into_iter().next().unwrap_or_default())
    }
}

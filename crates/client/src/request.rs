//! Request rows and their answers.

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::Result;
use lockstep_protocol::{
    Answers, CLOSE_REQUEST, DeploymentRequest, PREPARE_REQUEST, PrepareRequest, REQUEST,
    RequestHandle,
};

use crate::{
    RemoteClient,
    arrow_stream::{read_rows, write_rows},
    catalog::ColumnSet,
};

/// The answers to request rows.
#[derive(Debug, Clone)]
pub struct ClientAnswers {
    /// The columns, with unique names.
    pub schema: SchemaRef,
    /// The names of the columns, which may repeat.
    pub names: Vec<String>,
    /// The rows; those that a WHERE drops are left out.
    pub batches: Vec<RecordBatch>,
}

/// A deployment or a query, compiled on the server: it answers for the definition of that time, and no
/// other.
#[derive(Debug)]
pub struct ClientRequest {
    client: RemoteClient,
    handle: Vec<u8>,
    input: ColumnSet,
    reads: Vec<bool>,
    output: ColumnSet,
}

impl RemoteClient {
    /// Compiles a deployment or a query for request mode.
    pub fn prepare_request(&self, target: &str) -> Result<ClientRequest> {
        let body = PrepareRequest { target: target.to_owned() };
        let found: RequestHandle = self.action(PREPARE_REQUEST, &body)?;
        let input = ColumnSet::of(found.input.unwrap_or_default())?;
        let mut reads = found.reads;
        reads.resize(input.names.len(), true);
        Ok(ClientRequest {
            client: self.clone(),
            handle: found.handle,
            input,
            reads,
            output: ColumnSet::of(found.output.unwrap_or_default())?,
        })
    }

    /// Answers request rows of a deployment or a query. Columns are matched by name.
    pub fn request(&self, target: &str, rows: &[RecordBatch]) -> Result<ClientAnswers> {
        self.answer(target, Vec::new(), rows)
    }

    fn answer(&self, target: &str, handle: Vec<u8>, rows: &[RecordBatch]) -> Result<ClientAnswers> {
        let schema = rows
            .first()
            .map(RecordBatch::schema)
            .unwrap_or_else(|| std::sync::Arc::new(arrow::datatypes::Schema::empty()));
        let rows = write_rows(&schema, rows)?;
        let body = DeploymentRequest { target: target.to_owned(), handle, rows };
        let answers: Answers = self.action(REQUEST, &body)?;
        self.state.note_session(answers.session);
        let (schema, batches) = read_rows(&answers.rows)?;
        Ok(ClientAnswers { schema, names: answers.names, batches })
    }
}

impl ClientRequest {
    /// Returns the columns of a request row.
    pub fn input(&self) -> &ColumnSet {
        &self.input
    }

    /// Returns for each column of a request row whether an answer depends on it; the others may be
    /// left out.
    pub fn reads(&self) -> &[bool] {
        &self.reads
    }

    /// Returns the columns of an answer.
    pub fn output(&self) -> &ColumnSet {
        &self.output
    }

    /// Answers request rows.
    pub fn answer(&self, rows: &[RecordBatch]) -> Result<ClientAnswers> {
        self.client.answer("", self.handle.clone(), rows)
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        let body = RequestHandle { handle: self.handle.clone(), ..RequestHandle::default() };
        self.client.forget(CLOSE_REQUEST, &body);
    }
}

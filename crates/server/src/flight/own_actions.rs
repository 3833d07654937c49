//! The actions of Lockstep's own: what SQL and Flight SQL have not, such as request rows.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use lockstep_diagnostic::Result;
use lockstep_engine::{ProgressCallback, Session, Verification, VerifyOptions};
use lockstep_protocol::{
    CANCEL, CLOSE_REQUEST, COMPLETE, CREATE_TABLE, Cancel, DEPLOYMENT, DESCRIBE,
    DESCRIBE_TRAINING_SET, DeploymentMessage, Describe, ObjectRef, PREPARE_REQUEST, PrepareRequest,
    REQUEST, RequestHandle, SESSION, TABLE_COLUMNS, TableCreation, TrainingSet, VERIFY,
    ValueDifference, Verify, VerifyEvent, VerifyResult, Words,
};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use super::{
    actions::{ActionStream, single_stream},
    arrow_bytes::{columns_message, parameters_in, read_rows, relation_message},
    call::{CallDeadline, FlightCall},
    prepared::FlightStatement,
    statements::{training_set, view_of},
    status::malformed,
};
use crate::work_pool::WorkClass;

/// The events of a verification that wait for the client; more are dropped.
const EVENTS_AHEAD: usize = 64;

impl FlightCall {
    /// Answers an action of Lockstep's own; `None` where there is none of this name.
    pub(crate) async fn own_action(
        &self,
        name: &str,
        body: &Bytes,
    ) -> Result<Option<ActionStream>, Status> {
        let result = match name {
            DESCRIBE => self.describe(self.decode(body)?).await?,
            TABLE_COLUMNS => self.table_columns(self.decode(body)?).await?,
            CREATE_TABLE => self.create_table(self.decode(body)?).await?,
            PREPARE_REQUEST => self.prepare_request(self.decode(body)?).await?,
            CLOSE_REQUEST => {
                let handle: RequestHandle = self.decode(body)?;
                self.server.prepared.close(self.session.user(), &handle.handle);
                Vec::new()
            }
            REQUEST => self.request(self.decode(body)?).await?,
            DEPLOYMENT => self.deployment(self.decode(body)?).await?,
            DESCRIBE_TRAINING_SET => self.describe_training_set(self.decode(body)?).await?,
            VERIFY => return self.verify(self.decode(body)?).map(Some),
            CANCEL => {
                let cancel: Cancel = self.decode(body)?;
                self.server.running.cancel(self.session.user(), &cancel.request_id);
                Vec::new()
            }
            COMPLETE => {
                let start: ObjectRef = self.decode(body)?;
                let complete = move |session: &Session| Ok(session.complete(&start.name));
                let words = self.quick(complete).await?;
                Words { words }.encode_to_vec()
            }
            SESSION => self.quick(|session| Ok(view_of(session))).await?.encode_to_vec(),
            _ => return Ok(None),
        };
        Ok(Some(single_stream(result)))
    }

    fn decode<M: Message + Default>(&self, body: &Bytes) -> Result<M, Status> {
        M::decode(&**body).map_err(|error| self.status(&malformed(error)))
    }

    async fn quick<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        self.run(WorkClass::Writes, CallDeadline::Request, work).await
    }

    async fn describe(&self, describe: Describe) -> Result<Vec<u8>, Status> {
        self.quick(move |session| {
            let parameters = parameters_in(&describe.parameters)?;
            let relation = session.query_with(&describe.sql, &parameters)?;
            Ok(relation_message(&relation)?.encode_to_vec())
        })
        .await
    }

    async fn describe_training_set(&self, set: TrainingSet) -> Result<Vec<u8>, Status> {
        self.quick(move |session| {
            let relation = training_set(session, set)?;
            Ok(relation_message(&relation)?.encode_to_vec())
        })
        .await
    }

    async fn table_columns(&self, table: ObjectRef) -> Result<Vec<u8>, Status> {
        self.quick(move |session| {
            Ok(columns_message(&session.table_columns(&table.name)?)?.encode_to_vec())
        })
        .await
    }

    async fn create_table(&self, create: TableCreation) -> Result<Vec<u8>, Status> {
        self.quick(move |session| {
            let (schema, _) = read_rows(&create.schema)?;
            session.create_table(&create.table, &schema)?;
            Ok(Vec::new())
        })
        .await
    }

    async fn prepare_request(&self, prepare: PrepareRequest) -> Result<Vec<u8>, Status> {
        let call = self.clone();
        self.quick(move |session| {
            let request = session.prepare_request(&prepare.target)?;
            let input = Some(columns_message(request.input())?);
            let output = Some(columns_message(request.output())?);
            let reads = request.reads().to_vec();
            let prepared = FlightStatement::Request { target: prepare.target.into(), request };
            let (server, user) = (&call.server, call.session.user());
            let handle = server.prepared.keep(&server.state, user, prepared)?;
            Ok(RequestHandle { handle, input, output, reads }.encode_to_vec())
        })
        .await
    }

    async fn deployment(&self, deployment: ObjectRef) -> Result<Vec<u8>, Status> {
        self.quick(move |session| {
            let info = session.deployment(&deployment.name)?;
            let message = DeploymentMessage {
                input: Some(columns_message(&info.input)?),
                output: Some(columns_message(&info.output)?),
                reads: info.reads,
                name: info.name,
                database: info.database,
                sql: info.sql,
                compatibility: info.compatibility.to_owned(),
                time_zone: info.time_zone,
            };
            Ok(message.encode_to_vec())
        })
        .await
    }

    /// Verifies a deployment, and sends how far that is.
    fn verify(&self, verify: Verify) -> Result<ActionStream, Status> {
        let (sender, receiver) = mpsc::channel(EVENTS_AHEAD);
        let events = sender.clone();
        let progress: ProgressCallback = Arc::new(move |fraction| {
            let event = VerifyEvent { fraction, result: None };
            // Where the client is slow, it does not see every fraction.
            let _sent = events.try_send(Ok(event));
        });
        let call = self.clone();
        tokio::spawn(async move {
            let work = move |session: &Session| {
                let options = VerifyOptions { sample: verify.sample, progress: Some(progress) };
                session.verify_with(&verify.deployment, &options)
            };
            let cancelled = sender.closed();
            let done = call.run(WorkClass::Analytics, CallDeadline::Statement, work);
            let result = tokio::select! {
                done = done => done,
                () = cancelled => return,
            };
            let event =
                result.map(|found| VerifyEvent { fraction: 1.0, result: Some(result_of(found)) });
            let _sent = sender.send(event).await;
        });
        Ok(Box::pin(stream::unfold(receiver, |mut receiver| async {
            let event: Result<VerifyEvent, Status> = receiver.recv().await?;
            let item = event.map(|event| arrow_flight::Result::new(event.encode_to_vec()));
            Some((item, receiver))
        })))
    }
}

fn result_of(found: Verification) -> VerifyResult {
    let rows_per_second = found.rows_per_second();
    let difference = |one: lockstep_engine::Difference| ValueDifference {
        row: one.row,
        column: one.column,
        batch: one.batch,
        request: one.request,
    };
    VerifyResult {
        requests: found.requests,
        values: found.values,
        differing: found.differing,
        differences: found.differences.into_iter().map(difference).collect(),
        rows_per_second,
    }
}

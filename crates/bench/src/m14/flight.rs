//! A deployment called over Arrow Flight: the action that answers request rows, with one row as Arrow's
//! stream format, in gRPC over HTTP/2.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::SchemaRef,
    error::ArrowError,
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use arrow_flight::{Action, HandshakeRequest, HandshakeResponse};
use lockstep_protocol::{Answers, DeploymentRequest, REQUEST};
use lockstep_row::{
    Arena, DataType, Datum,
    arrow::{ColumnBuilder, ColumnReader},
};
use prost::Message;

use super::{connection::Endpoint, features::FeatureSet, http2};
use crate::{
    answer::AnswerValue,
    error::{Error, Result},
};

/// The bytes before a message of gRPC: whether it is compressed, and its length.
const MESSAGE_HEAD: usize = 5;
/// The path of the call that answers request rows.
pub(super) const ACTION_PATH: &str = "/arrow.flight.protocol.FlightService/DoAction";
const HANDSHAKE_PATH: &str = "/arrow.flight.protocol.FlightService/Handshake";

/// Who calls, and where.
#[derive(Debug, Clone)]
pub(super) struct FlightUser {
    /// The host and the port.
    pub(super) authority: String,
    /// The header `authorization`.
    pub(super) authorization: String,
}

impl FlightUser {
    /// Logs in, and returns the caller of the session.
    pub(super) fn in_session(self, endpoint: &Endpoint) -> Result<Self> {
        let answer = endpoint.exchange(&self.call(HANDSHAKE_PATH, &HandshakeRequest::default()))?;
        let answer: HandshakeResponse = read_message(&answer)?;
        let token = String::from_utf8_lossy(&answer.payload).into_owned();
        if token.is_empty() {
            return Err(wrong("the handshake has no token"));
        }
        Ok(Self { authorization: format!("Bearer {token}"), ..self })
    }

    /// Returns the requests of a set.
    pub(super) fn requests(&self, set: FeatureSet) -> Result<Vec<Vec<u8>>> {
        let (names, types) = (set.column_names(), set.column_types());
        let request = |row: &[Datum<'_>]| {
            let rows = write_row(&names, &types, row).map_err(|error| wrong(&error.to_string()))?;
            let body =
                DeploymentRequest { target: set.name().to_owned(), handle: Vec::new(), rows };
            Ok(self.call(ACTION_PATH, &Action::new(REQUEST, body.encode_to_vec())))
        };
        set.write_rows(request).into_iter().collect()
    }

    fn call(&self, path: &str, message: &impl Message) -> Vec<u8> {
        let headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", &self.authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("authorization", &self.authorization),
        ];
        let content = message.encode_to_vec();
        let length = u32::try_from(content.len()).expect("a message is short");
        let mut body = vec![0];
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&content);
        http2::request(&headers, &body)
    }
}

/// Writes a row as a stream of one batch.
fn write_row(
    names: &[String],
    types: &[DataType],
    row: &[Datum<'_>],
) -> std::result::Result<Vec<u8>, ArrowError> {
    assert_eq!(
        (names.len(), types.len()),
        (row.len(), row.len()),
        "each value has a name and a type"
    );
    let column = |(data_type, value): (&DataType, &Datum<'_>)| -> ArrayRef {
        let mut builder = ColumnBuilder::new(data_type, 1);
        builder.push(*value);
        builder.finish()
    };
    let columns = types.iter().zip(row).map(column);
    let batch = RecordBatch::try_from_iter_with_nullable(
        names.iter().zip(columns).map(|(name, column)| (name, column, true)),
    )?;
    let mut bytes = Vec::new();
    let schema: SchemaRef = Arc::clone(batch.schema_ref());
    let mut writer = StreamWriter::try_new(&mut bytes, &schema)?;
    writer.write(&batch)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

fn read_message<M: Message + Default>(answer: &[u8]) -> Result<M> {
    let body = http2::body(answer);
    let message = body.get(MESSAGE_HEAD..).ok_or_else(|| wrong("the response has no message"))?;
    M::decode(message).map_err(|error| wrong(&error.to_string()))
}

/// Reads the row of an answer.
pub(super) fn read_answer(answer: &[u8]) -> Result<Vec<AnswerValue>> {
    let answer = read_message::<arrow_flight::Result>(answer)?;
    let answers = Answers::decode(answer.body).map_err(|error| wrong(&error.to_string()))?;
    let read = || -> std::result::Result<Vec<RecordBatch>, ArrowError> {
        StreamReader::try_new(answers.rows.as_slice(), None)?.collect()
    };
    let batches = read().map_err(|error| wrong(&error.to_string()))?;
    let [batch] = batches.as_slice() else {
        return Err(wrong("the response is not a single batch"));
    };
    let arena = Arena::new();
    let value =
        |column: &ArrayRef| AnswerValue::from(&ColumnReader::new(column.as_ref()).get(0, &arena));
    Ok(batch.columns().iter().map(value).collect())
}

fn wrong(message: &str) -> Error {
    Error::peer("lockstep", message.to_owned())
}

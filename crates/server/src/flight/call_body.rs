//! The body of a gRPC answer, which counts its call until the last message is sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper::{
    HeaderMap, Response,
    body::{Body, Bytes, Frame, SizeHint},
};
use tonic::Status;

use super::FlightServer;
use crate::{
    call_id::CallId, connections::ActiveCall, http_connection::UnfinishedCall, metrics::Refusal,
};

/// The header with the status of a call.
const STATUS_HEADER: &str = "grpc-status";

/// The status code of a call that was given up before it had one: CANCELLED.
const CANCELLED: u16 = 1;

/// The status code of a call that a limit has refused: `RESOURCE_EXHAUSTED`.
const EXHAUSTED: u16 = 8;

/// What the log says of a call.
#[derive(Debug)]
pub(crate) struct CallRecord {
    pub(crate) id: CallId,
    pub(crate) method: String,
    pub(crate) begun_ns: u64,
}

/// The body of an answer.
pub(crate) struct CallBody {
    body: tonic::body::Body,
    server: Arc<FlightServer>,
    record: CallRecord,
    status: Option<u16>,
    _call: ActiveCall,
    unfinished: Option<UnfinishedCall>,
}

impl CallBody {
    /// Takes the body of a response.
    pub(crate) fn wrap(
        response: Response<tonic::body::Body>,
        server: Arc<FlightServer>,
        call: ActiveCall,
        unfinished: UnfinishedCall,
        record: CallRecord,
    ) -> Response<Self> {
        let status = status_in(response.headers());
        let unfinished = Some(unfinished);
        response.map(|body| Self { body, server, record, status, _call: call, unfinished })
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            self.status = status_in(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for CallBody {
    fn drop(&mut self) {
        let state = &self.server.state;
        let took_ns = state.clock.monotonic_ns().saturating_sub(self.record.begun_ns);
        let status = self.status.unwrap_or(CANCELLED);
        state.metrics.record_flight_call(status, took_ns);
        if status == EXHAUSTED {
            state.metrics.add_refused(Refusal::Overload);
        }
        if self.status.is_some()
            && let Some(unfinished) = self.unfinished.take()
        {
            unfinished.finish();
        }
        let CallRecord { id, method, .. } = &self.record;
        if let Some(trace) = id.trace() {
            trace.set_number("rpc.grpc.status_code", status.into());
            trace.finish(method.clone(), (status != 0).then(|| format!("gRPC status {status}")));
        }
        let (request_id, us) = (id.text(), took_ns / 1_000);
        let slow_ms = state.settings().slow_request_ms;
        if slow_ms > 0 && took_ns / 1_000_000 >= slow_ms {
            tracing::warn!(request_id, method, status, us, "slow request");
        } else {
            tracing::debug!(request_id, method, status, us, "request");
        }
    }
}

/// Reads the status of headers or trailers.
fn status_in(headers: &HeaderMap) -> Option<u16> {
    headers.get(STATUS_HEADER)?.to_str().ok()?.parse().ok()
}

//! `GET /v1/subscriptions/{name}`: the rows of a stream or a table as they are appended, as server-sent events.
//!
//! Each event has some rows as a JSON array of objects, and as its id the place behind them. A client that connects
//! again with `Last-Event-ID`, as browsers do, goes on there. While nothing is appended a comment is sent now and then,
//! so that proxies keep the connection. The call ends with its client, or after `timeout_ms`. A thread of the pool reads
//! the rows, and leaves its place to others while it waits.

use std::{sync::Arc, time::Duration};

use arrow::array::RecordBatch;
use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, header},
    response::Response,
};
use futures::stream;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{Subscription, SubscriptionStart, json_text::write_json_object};
use lockstep_host::query::checkpoint;
use lockstep_row::{Arena, DataType, arrow::ColumnReader};
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    call::{HttpCall, run_in_pool},
    error::HttpResult,
    path_names::PathNames,
};
use crate::{server_state::ServerState, work_pool::WorkClass};

/// How many events wait for the client.
const EVENTS_AHEAD: usize = 4;
/// How long the thread waits for rows before it looks whether the client is gone.
const WAIT: Duration = Duration::from_millis(50);
/// After how many waits without a row a comment is sent: 15 seconds.
const WAITS_PER_COMMENT: u32 = 300;
/// An event has so many rows at most.
const ROWS_PER_EVENT: usize = 512;

/// Answers a call.
pub(crate) async fn follow(
    State(state): State<Arc<ServerState>>,
    PathNames([name]): PathNames<1>,
    request: Request,
) -> HttpResult<Response> {
    let call = HttpCall::begin(Arc::clone(&state), request).await?;
    call.refuse_durability()?;
    let start = start_of(&call)?;
    let name = call.qualified(name);
    let engine_call = call.endless_call()?;
    let (events, mut received) = mpsc::channel::<Bytes>(EVENTS_AHEAD);
    let runtime = Handle::current();
    // What fails before the first event has a status of its own.
    let (begin, begun) = tokio::sync::oneshot::channel::<()>();
    let shared = Arc::clone(&state);
    let work = tokio::spawn(async move {
        run_in_pool(&shared, WorkClass::Analytics, engine_call, move |state, session| {
            let mut rows = session.subscribe(&name, start)?;
            // The client may be gone.
            let _sent = begin.send(());
            let mut sender = EventSender { events, runtime, state };
            match sender.run(&mut rows) {
                // Its deadline has passed, or its client is gone.
                Err(error) if error.code != code::QUERY_CANCELED => {
                    Ok(sender.send(error_event(&error))?)
                }
                _ => Ok(()),
            }
        })
        .await
    });
    if begun.await.is_err() {
        // The work has failed, or its thread has.
        let done = work.await;
        done.map_err(|error| Diagnostic::internal(error.to_string()))??;
        return Err(Diagnostic::internal("the subscription has ended").into());
    }
    let cancel = AbortOnDrop(work);
    let body = stream::poll_fn(move |context| {
        let _cancels_at_end = &cancel;
        received.poll_recv(context).map(|event| event.map(Ok::<Bytes, std::convert::Infallible>))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// Cancels the work when the body is dropped.
struct AbortOnDrop(tokio::task::JoinHandle<HttpResult<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads where the rows begin: behind the last event of an earlier call, or as the parameter says.
fn start_of(call: &HttpCall) -> HttpResult<SubscriptionStart> {
    let last = call.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let start = match last.or(call.parameters.start.as_deref()) {
        None | Some("latest") => SubscriptionStart::Latest,
        Some("earliest") => SubscriptionStart::Earliest,
        Some(position) => match position.trim().parse() {
            Ok(position) => SubscriptionStart::Position(position),
            Err(_) => {
                let message = format!("invalid start of a subscription: '{position}'");
                return Err(Diagnostic::new(code::INVALID_PARAMETER, message)
                    .with_hint("Use earliest, latest, or the id of an event.")
                    .into());
            }
        },
    };
    Ok(start)
}

/// The end of the thread that reads the rows.
struct EventSender<'s> {
    events: mpsc::Sender<Bytes>,
    runtime: Handle,
    state: &'s ServerState,
}

impl EventSender<'_> {
    /// Sends rows until the client is gone.
    fn run(&mut self, rows: &mut Subscription) -> Result<()> {
        let columns: Vec<(String, DataType)> = rows.columns().to_vec();
        debug_assert!(!columns.is_empty(), "a table has columns");
        // Headers are sent with the first bytes.
        self.send(Bytes::from_static(b": subscribed\n\n"))?;
        let mut waits = 0;
        loop {
            checkpoint().map_err(|reason| Diagnostic::interrupted(reason.limit_ms()))?;
            match rows.next_batch()? {
                Some(batch) => {
                    waits = 0;
                    let last = batch.num_rows().div_ceil(ROWS_PER_EVENT);
                    for at in 0..last {
                        let first = at * ROWS_PER_EVENT;
                        let count = ROWS_PER_EVENT.min(batch.num_rows() - first);
                        // Who goes on behind an event has had all rows up to there.
                        let id = (at + 1 == last).then(|| rows.position());
                        self.send(rows_event(&columns, &batch.slice(first, count), id))?;
                    }
                }
                None => {
                    waits += 1;
                    if waits % WAITS_PER_COMMENT == 0 {
                        self.send(Bytes::from_static(b": waiting\n\n"))?;
                    }
                    self.state.pools.parked(WorkClass::Analytics, || rows.wait(WAIT));
                }
            }
        }
    }

    /// Sends an event when there is space for it. Fails if the client is gone.
    fn send(&self, event: Bytes) -> Result<()> {
        let wait = || self.runtime.block_on(self.events.send(event));
        let sent = self.state.pools.parked(WorkClass::Analytics, wait);
        sent.map_err(|_gone| Box::new(Diagnostic::interrupted(None)))
    }
}

/// Makes the event of some rows.
fn rows_event(columns: &[(String, DataType)], rows: &RecordBatch, id: Option<u64>) -> Bytes {
    let mut out = Vec::new();
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(b"event: rows\ndata: [");
    let readers: Vec<ColumnReader<'_>> =
        rows.columns().iter().map(|array| ColumnReader::new(array.as_ref())).collect();
    let arena = Arena::new();
    for row in 0..rows.num_rows() {
        if row > 0 {
            out.push(b',');
        }
        let names = columns.iter().map(|(name, _)| name.as_str());
        let values = readers.iter().map(|reader| reader.get(row, &arena));
        write_json_object(&mut out, names.zip(values));
    }
    out.extend_from_slice(b"]\n\n");
    out.into()
}

/// Makes the event of an error, which is the last one.
fn error_event(error: &Diagnostic) -> Bytes {
    let body = serde_json::json!({ "code": error.code, "message": error.message });
    format!("event: error\ndata: {body}\n\n").into()
}

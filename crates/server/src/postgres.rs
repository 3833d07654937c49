//! PostgreSQL's protocol, version 3: the connection from its first byte to its end.
//!
//! | file | what it has |
//! |---|---|
//! | `frame`, `message`, `response` | bytes: frames, messages in, messages out |
//! | `startup`, `session_start`, `login`, `cancel` | the begin of a connection, who the client is, cancel requests |
//! | `connection`, `extended`, `portal` | the session: scripts, prepared statements, portals |
//! | `execution`, `transaction` | what runs a statement, and the block that it is in |
//! | `statement_trace` | the id and the trace of a statement, which a comment of the client names |
//! | `token`, `script`, `schema`, `command`, `translation`, `written_type`, `inference` | what a statement is, and how the engine writes it |
//! | `information`, `catalog`, `client_settings` | what clients ask about the server |
//! | `function_call`, `deployment_call` | a deployment called as a function: the call, and what runs it |
//! | `copy`, `copying` | COPY: its formats, and how its rows flow |
//! | `types`, `value_text`, `value_binary`, `value_input`, `rows` | values and rows |
//!
//! A request of one row is answered in the task of its connection; what may take longer runs in the
//! pools (`work_pool`).

mod cancel;
mod catalog;
mod client_settings;
mod command;
mod connection;
mod copy;
mod copying;
mod deployment_call;
mod execution;
mod extended;
mod frame;
mod function_call;
mod inference;
mod information;
mod login;
mod message;
mod portal;
mod response;
mod rows;
mod schema;
mod script;
mod session_start;
mod startup;
mod statement_trace;
mod subscription;
mod token;
mod transaction;
mod translation;
mod types;
mod value_binary;
mod value_input;
mod value_text;
mod written_type;

use std::{net::IpAddr, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use tokio::net::TcpStream;

use crate::{
    connections::{Activity, WatchedStream},
    metrics::Refusal,
    phase::{LAST_ANSWERS, Phase},
    server_state::ServerState,
};
pub(crate) use cancel::CancelKeys;
use connection::Connection;
use frame::{ClientStream, FrameError};
use response::{Severity, report};
use startup::{ConnectionOpener, Opening};
pub(crate) use types::type_name;

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum ClientFailure {
    /// The connection has ended, or cannot go on.
    Connection(FrameError),
    /// An error for the client.
    Error(Box<Diagnostic>),
}

impl From<FrameError> for ClientFailure {
    fn from(error: FrameError) -> Self {
        Self::Connection(error)
    }
}

impl From<Box<Diagnostic>> for ClientFailure {
    fn from(error: Box<Diagnostic>) -> Self {
        Self::Error(error)
    }
}

/// Serves a connection until it ends, the client is too slow, or the server drains.
pub(crate) async fn serve_postgres(state: Arc<ServerState>, stream: TcpStream, address: IpAddr) {
    let activity = Activity::new(Arc::clone(&state.clock));
    let stream = Box::new(WatchedStream::new(stream, Arc::clone(&activity)));
    let conversation = converse(Arc::clone(&state), stream, address, Arc::clone(&activity));
    let mut conversation = Box::pin(conversation);
    loop {
        let check = tokio::time::sleep(state.check_interval());
        tokio::select! {
            () = conversation.as_mut() => return,
            () = state.phase.reached(Phase::Stopping) => {
                if activity.is_busy() {
                    state.note_cancelled();
                    // What it runs ends with an error for the client.
                    let _ended = tokio::time::timeout(LAST_ANSWERS, conversation.as_mut()).await;
                }
                return;
            }
            () = check => {
                if state.is_over(&activity) {
                    return;
                }
            }
        }
    }
}

/// Speaks with a client from the first byte.
async fn converse(
    state: Arc<ServerState>,
    stream: Box<dyn ClientStream>,
    address: IpAddr,
    activity: Arc<Activity>,
) {
    let mut opener = ConnectionOpener::new(&state, stream);
    let call = activity.begin_call();
    let begun = begin(&state, &mut opener, address).await;
    drop(call);
    match begun {
        Ok(Some(begun)) => {
            let frames = opener.frames;
            Connection::new(Arc::clone(&state), frames, activity, *begun).run().await;
        }
        Ok(None) => {}
        Err(failure) => {
            let error = match failure {
                ClientFailure::Error(error) => Some(error),
                ClientFailure::Connection(error) => fatal_error(&state, &error),
            };
            if let Some(error) = error {
                if error.code == code::INVALID_PASSWORD || error.code == code::INVALID_AUTHORIZATION
                {
                    state.metrics.add_refused(Refusal::Login);
                }
                report(&mut opener.frames.output, Severity::Fatal, &error, None);
                opener.frames.close().await;
            }
        }
    }
}

/// Returns what a client is told of an error of its connection; `None` where it is gone.
fn fatal_error(state: &ServerState, error: &FrameError) -> Option<Box<Diagnostic>> {
    match error {
        FrameError::Closed => None,
        FrameError::Length(length) => {
            let message = format!("invalid message length {length}");
            let error = Diagnostic::new(code::PROTOCOL_VIOLATION, message).with_hint(
                "A message may have at most limits.body_bytes_max bytes, and fewer before the \
                 login ends.",
            );
            Some(Box::new(error))
        }
        FrameError::TimedOut => {
            state.metrics.add_refused(Refusal::Timeout);
            let message = "the next message did not arrive in time";
            Some(Box::new(
                Diagnostic::new(code::PROTOCOL_VIOLATION, message).with_kind(Kind::Retry),
            ))
        }
    }
}

/// Reads how a connection begins, and logs its client in.
async fn begin(
    state: &Arc<ServerState>,
    opener: &mut ConnectionOpener<'_>,
    address: IpAddr,
) -> Result<Option<Box<session_start::SessionStart>>, ClientFailure> {
    let parameters = match opener.open(address).await? {
        Opening::Session(parameters) => parameters,
        Opening::Cancel(key) => {
            state.cancel_keys.cancel(key);
            return Ok(None);
        }
    };
    let start = session_start::SessionStart::new(state, opener, &parameters, address).await?;
    Ok(Some(Box::new(start)))
}

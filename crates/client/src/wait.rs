//! Waiting for an answer: on the caller's thread, until it arrives or the call is interrupted.
//!
//! A call that is interrupted is cancelled on the server, whose answer is then waited for: it says
//! whether a write was done. Where none arrives within [`CANCEL_TIMEOUT`], the call ends without it.

use std::{pin::pin, sync::Arc, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{PerProcess, query};
use tokio::runtime::{Builder, Runtime};

use crate::connection::ClientState;

/// How often a waiting call looks whether it was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a call that was cancelled waits for the answer to it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the runtime of all clients of the process, which the first one starts. It moves bytes; the
/// calls themselves run on the threads that make them.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    let make = || {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("client")
            .enable_io()
            .enable_time()
            .build()
    };
    RUNTIME.get_or_make(make).map_err(|error| {
        let message = format!("could not start a thread for the connection: {error}");
        let diagnostic = Diagnostic::new(code::OUT_OF_MEMORY, message);
        Box::new(diagnostic.with_kind(Kind::FreeResources))
    })
}

/// A call on its way.
#[derive(Debug, Clone)]
pub(crate) struct PendingCall {
    pub(crate) client: Arc<ClientState>,
    pub(crate) id: Arc<str>,
}

impl PendingCall {
    /// Waits for a part of the call's answer.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        runtime()?.block_on(async {
            let mut answer = pin!(answer);
            loop {
                tokio::select! {
                    biased;
                    answer = answer.as_mut() => return answer,
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
                let Err(interrupt) = query::checkpoint() else { continue };
                self.client.cancel_call(&self.id).await;
                let answered = tokio::time::timeout(CANCEL_TIMEOUT, answer.as_mut()).await;
                let interrupted = || Diagnostic::interrupted(interrupt.limit_ms());
                return answered.unwrap_or_else(|_elapsed| interrupted().err());
            }
        })
    }
}

//! A connection that speaks HTTP: its limits, its timeouts and its end, for all protocols over HTTP.
//!
//! Each protocol has a handler of requests; HTTP itself and Flight, which is gRPC, share the rest.

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use hyper::{
    Request, Response,
    body::{Body, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    connections::{ActiveCall, Activity, WatchedStream},
    phase::{LAST_ANSWERS, Phase},
    server_state::ServerState,
};

/// The streams of an HTTP/2 connection that are open at the same time.
const STREAMS_MAX: u32 = 128;

/// The versions of HTTP that a connection may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersions {
    /// HTTP/1.1 and HTTP/2.
    All,
    /// HTTP/2, as gRPC needs it.
    Two,
}

/// A connection that is about to be served.
#[derive(Clone, Copy)]
pub(crate) struct HttpConnection<'s> {
    pub(crate) state: &'s Arc<ServerState>,
    pub(crate) versions: HttpVersions,
}

impl HttpConnection<'_> {
    /// Serves the connection until it ends, the client is too slow, or the server drains. The handler
    /// gets each request, and keeps the call until its answer is complete.
    pub(crate) async fn serve<S, H, F, B>(self, stream: S, handle: H)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        H: Fn(Request<Incoming>, ActiveCall) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let state = self.state;
        let activity = Activity::new(Arc::clone(&state.clock));
        let stream = TokioIo::new(WatchedStream::new(stream, Arc::clone(&activity)));
        let of_calls = Arc::clone(&activity);
        let service = service_fn(move |request: Request<Incoming>| {
            let call = of_calls.begin_call();
            let response = handle(request, call);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let builder = self.builder();
        let connection = builder.serve_connection(stream, service);
        tokio::pin!(connection);
        let draining = state.phase.reached(Phase::Draining);
        tokio::pin!(draining);
        let mut is_ending = false;
        loop {
            let check = tokio::time::sleep(state.check_interval());
            tokio::select! {
                // An error is the client's: a broken connection or a broken protocol.
                _ended = connection.as_mut() => return,
                () = draining.as_mut(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = state.phase.reached(Phase::Stopping), if is_ending => {
                    if activity.is_busy() {
                        state.note_cancelled();
                        // Its calls answer that they were cancelled.
                        let _ended = tokio::time::timeout(LAST_ANSWERS, connection.as_mut()).await;
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

    /// Makes the reader of the connection with the limits of the settings.
    fn builder(self) -> auto::Builder<TokioExecutor> {
        let settings = self.state.settings();
        let header_bytes = usize::try_from(settings.header_bytes_max).unwrap_or(usize::MAX);
        let header_list = u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX);
        let header_timeout = Duration::from_millis(settings.header_timeout_ms);
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            // Hyper's own timeout for headers counts from the end of the call before. `serve` counts from
            // their first byte.
            .header_read_timeout(None)
            .max_buf_size(header_bytes);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(header_list)
            .keep_alive_interval(Duration::from_millis(settings.idle_timeout_ms))
            .keep_alive_timeout(header_timeout);
        match self.versions {
            HttpVersions::All => builder,
            HttpVersions::Two => builder.http2_only(),
        }
    }
}

/// A call that may be dropped before its answer: where the server has ended, that is noted.
pub(crate) struct UnfinishedCall {
    state: Arc<ServerState>,
    is_finished: bool,
}

impl UnfinishedCall {
    /// Begins a call.
    pub(crate) fn begin(state: &Arc<ServerState>) -> Self {
        Self { state: Arc::clone(state), is_finished: false }
    }

    /// Ends it with an answer.
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for UnfinishedCall {
    fn drop(&mut self) {
        if !self.is_finished && self.state.phase.get() == Phase::Stopping {
            self.state.note_cancelled();
        }
    }
}

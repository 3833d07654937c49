//! The id of a call, and the trace that it is a part of: one place for all protocols.
//!
//! Each protocol says what the client has given ([`CallContext`]): headers of HTTP, metadata of gRPC, or
//! the comment of a statement. Knows no protocol.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{server_state::ServerState, traces::CallTrace};

/// The longest id that a client may give.
const ID_CHARS_MAX: usize = 128;

/// What a client says of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallContext<'c> {
    /// The id by which the client knows the call.
    pub(crate) request_id: Option<&'c str>,
    /// The trace that the call is a part of: `traceparent` of W3C Trace Context.
    pub(crate) trace_parent: Option<&'c str>,
}

/// The id of a call and when it began.
#[derive(Debug, Clone)]
pub(crate) struct CallId {
    text: Arc<str>,
    begun_ns: u64,
    trace: Option<Arc<CallTrace>>,
}

impl CallId {
    /// Takes the client's id, or makes one; begins a trace where the call is traced.
    pub(crate) fn begin(state: &ServerState, context: CallContext<'_>, begun_ns: u64) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let is_usable = |text: &&str| !text.is_empty() && text.len() <= ID_CHARS_MAX;
        let text: Arc<str> = context.request_id.filter(is_usable).map_or_else(
            // Relaxed: the number itself is all that is shared.
            || format!("{:016x}", COUNT.fetch_add(1, Ordering::Relaxed)).into(),
            Into::into,
        );
        let tracer = state.tracer.as_ref();
        let trace = tracer.and_then(|tracer| tracer.begin(context.trace_parent, begun_ns));
        if let Some(trace) = &trace {
            trace.set_text("lockstep.request_id", &text);
        }
        Self { text, begun_ns, trace }
    }

    /// Returns the trace of the call; `None` where it is not traced.
    pub(crate) fn trace(&self) -> Option<&Arc<CallTrace>> {
        self.trace.as_ref()
    }

    /// Returns the id.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns when the call began, on the monotonic clock.
    pub(crate) fn begun_ns(&self) -> u64 {
        self.begun_ns
    }
}

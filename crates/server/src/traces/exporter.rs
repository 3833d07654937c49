//! The way to the collector: OTLP as Protocol Buffers over HTTP/1.1, batch by batch.
//!
//! A batch that the collector does not take is counted and not sent again: traces are for people who
//! look at a part of the calls, and a collector that is away must not cost the server memory.

use std::{io, sync::Arc, time::Duration};

use lockstep_host::Clock;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use super::{FinishedTrace, TraceCounts, Tracer, message::ExportRequest};

/// The most calls of a batch.
const BATCH_CALLS_MAX: usize = 512;

/// How long calls are collected before they are sent.
const BATCH_DELAY: Duration = Duration::from_millis(500);

/// How long the collector may take for a batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of the collector's answer that are read: enough for its status.
const ANSWER_BYTES_MAX: usize = 64;

/// The port of collectors for OTLP over HTTP, and their path.
const DEFAULT_PORT: u16 = 4318;
const DEFAULT_PATH: &str = "/v1/traces";

/// Where the collector is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceEndpoint {
    host: String,
    port: u16,
    path: String,
}

impl TraceEndpoint {
    /// Reads `http://host[:port][/path]`; `None` where it is something else.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            // An address of IPv6 has colons inside of its brackets.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, DEFAULT_PORT),
        };
        let is_usable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_usable(host) || !is_usable(path) {
            return None;
        }
        let path = if path.is_empty() { DEFAULT_PATH } else { path };
        Some(Self { host: host.to_owned(), port, path: path.to_owned() })
    }

    /// Sends a body. Fails where the collector does not answer that it took it.
    async fn send(&self, body: &[u8]) -> io::Result<()> {
        let Self { host, port, path } = self;
        let address = (host.trim_matches(['[', ']']), *port);
        let mut stream = TcpStream::connect(address).await?;
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\
             Content-Type: application/x-protobuf\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = Vec::with_capacity(ANSWER_BYTES_MAX);
        while answer.len() < ANSWER_BYTES_MAX && !answer.contains(&b'\n') {
            if stream.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        let status = answer.split(|byte| *byte == b' ').nth(1);
        let is_taken = status.is_some_and(|status| status.first() == Some(&b'2'));
        if is_taken { Ok(()) } else { Err(io::Error::other("the collector rejected the traces")) }
    }
}

/// Sends calls to the collector until `end` is there, and then those that are left.
pub(crate) async fn export(tracer: &Tracer, clock: Arc<dyn Clock>, end: impl Future<Output = ()>) {
    let Some(mut receiver) = tracer.take_receiver() else { return };
    let now_ns = u64::try_from(clock.now_ms()).unwrap_or(0).saturating_mul(1_000_000);
    let epoch_ns = now_ns.saturating_sub(clock.monotonic_ns());
    tokio::pin!(end);
    loop {
        let mut calls = Vec::new();
        let is_end = tokio::select! {
            () = collect(&mut receiver, &mut calls) => false,
            () = end.as_mut() => true,
        };
        if is_end {
            while let Ok(call) = receiver.try_recv() {
                calls.push(call);
            }
        }
        for batch in calls.chunks(BATCH_CALLS_MAX) {
            send_batch(tracer, batch, epoch_ns).await;
        }
        if is_end {
            return;
        }
    }
}

/// Waits for calls, and some time for more of them.
async fn collect(receiver: &mut mpsc::Receiver<FinishedTrace>, calls: &mut Vec<FinishedTrace>) {
    if receiver.recv_many(calls, BATCH_CALLS_MAX).await == 0 {
        // Nobody sends any more; the end comes.
        std::future::pending::<()>().await;
    }
    let more = async {
        while calls.len() < BATCH_CALLS_MAX {
            let left = BATCH_CALLS_MAX - calls.len();
            if receiver.recv_many(calls, left).await == 0 {
                break;
            }
        }
    };
    // The time is over, or there are enough.
    let _elapsed = tokio::time::timeout(BATCH_DELAY, more).await;
}

async fn send_batch(tracer: &Tracer, batch: &[FinishedTrace], epoch_ns: u64) {
    debug_assert!(!batch.is_empty(), "a batch has a call");
    let body = ExportRequest::of(batch, epoch_ns).encode_to_vec();
    let sent = tokio::time::timeout(SEND_TIMEOUT, tracer.endpoint.send(&body)).await;
    let is_sent = matches!(sent, Ok(Ok(())));
    let counts = &tracer.counts;
    TraceCounts::add(if is_sent { &counts.sent } else { &counts.failed }, batch.len());
}

#[cfg(test)]
mod tests {
    use super::TraceEndpoint;

    #[test]
    fn an_endpoint_has_a_host_a_port_and_a_path() {
        let read = |text: &str| {
            TraceEndpoint::read(text).map(|found| (found.host, found.port, found.path))
        };
        let expected =
            |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(read("http://otel"), expected("otel", 4318, "/v1/traces"));
        assert_eq!(read("http://otel:80/x/y"), expected("otel", 80, "/x/y"));
        assert_eq!(read("http://[::1]"), expected("[::1]", 4318, "/v1/traces"));
        assert_eq!(read("http://[::1]:9/"), expected("[::1]", 9, "/"));
        for wrong in [
            "",
            "otel:4318",
            "https://otel",
            "http://",
            "http://a:b",
            "http://a b",
            "http://a/\r\n",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

//! Traces of calls, which a collector of the tests' own receives and reads.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use prost::Message;

use crate::support::{TestServer, get, post};

const SETUP: &str = "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
    DEPLOY d AS SELECT k, v FROM t;";

pub(crate) const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The messages of OTLP as a collector has them, written down a second time.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<Resource>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<Scope>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

impl Span {
    pub(crate) fn text(&self, key: &str) -> &str {
        let found = self.attributes.iter().find(|attribute| attribute.key == key);
        found.and_then(|found| found.value.as_ref()?.text.as_deref()).unwrap_or_default()
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.number
    }
}

/// Receives a request, answers it with a status, and returns its spans.
fn receive(stream: TcpStream, status: &str) -> Vec<Span> {
    let mut stream = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while stream.read_line(&mut line).unwrap() > 2 {
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    stream.get_mut().write_all(answer.as_bytes()).unwrap();
    let export = Export::decode(&*body).unwrap();
    let scopes = export.resources.into_iter().flat_map(|resource| resource.scopes);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// A collector that answers with a status.
pub(crate) struct Collector {
    address: SocketAddr,
    exports: Receiver<Vec<Span>>,
}

impl Collector {
    pub(crate) fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, exports) = channel();
        lockstep_host::spawn("collector", move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if sender.send(receive(stream, status)).is_err() {
                    return;
                }
            }
        })
        .unwrap();
        Self { address, exports }
    }

    fn endpoint(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }

    /// Waits for the spans of so many calls.
    pub(crate) fn spans(&self, calls: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        while spans.iter().filter(|span: &&Span| span.kind == 2).count() < calls {
            spans.extend(self.exports.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        spans
    }
}

/// Starts a server that sends a part of its calls to the collector.
pub(crate) fn server(collector: &Collector, sample: &str) -> TestServer {
    let endpoint = collector.endpoint();
    let settings = [("traces.endpoint", endpoint.as_str()), ("traces.sample_per_million", sample)];
    TestServer::start(&settings, SETUP)
}

#[test]
fn a_call_is_traced_with_its_phases() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "0");
    let headers = [("traceparent", PARENT), ("X-Request-Id", "request-9")];
    let reply = server.send(post("/v1/deployments/d", r#"["a",1,1]"#).with(&headers));
    let answered = reply.header("traceparent").unwrap().to_owned();
    assert_eq!(&answered[..36], &PARENT[..36], "the same trace");
    let spans = collector.spans(1);
    let call = spans.iter().find(|span| span.kind == 2).unwrap();
    let hexadecimal =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hexadecimal(&call.trace), PARENT[3..35]);
    assert_eq!(hexadecimal(&call.parent), PARENT[36..52]);
    assert_eq!(hexadecimal(&call.id), answered[36..52]);
    assert_eq!(call.name, "POST /v1/deployments/d");
    assert_eq!(call.text("lockstep.deployment"), "d");
    assert_eq!(call.text("lockstep.request_id"), "request-9");
    assert_eq!(call.text("enduser.id"), "root");
    assert_eq!(call.number("lockstep.rows"), Some(1));
    assert_eq!(call.number("http.response.status_code"), Some(200));
    assert_eq!(call.status, None);
    assert!(call.start > 1_600_000_000_000_000_000, "nanoseconds since 1970: {}", call.start);
    let phases: Vec<&Span> = spans.iter().filter(|span| span.kind == 1).collect();
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["read", "parse", "execute", "render"]);
    for phase in phases {
        assert_eq!((&phase.trace, &phase.parent), (&call.trace, &call.id));
        assert!(phase.start <= phase.end && phase.start >= call.start && phase.end <= call.end);
    }
    let figures = server.send(get("/metrics"));
    assert!(figures.text().contains("lockstep_traced_calls_total{outcome=\"sent\"} 1\n"));
}

#[test]
fn statements_are_traced_with_their_errors() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "1000000");
    let sql =
        |text: &str| server.send(post("/v1/sql", &serde_json::json!({"sql": text}).to_string()));
    assert_eq!(sql("SELECT 1 AS a").status, 200);
    assert_eq!(sql("SELECT nothing").status, 400);
    let spans = collector.spans(2);
    let calls: Vec<&Span> = spans.iter().filter(|span| span.kind == 2).collect();
    assert!(calls.iter().all(|call| call.parent.is_empty() && call.name == "POST /v1/sql"));
    assert_ne!(calls[0].trace, calls[1].trace);
    let failed = calls.iter().find(|call| call.status.is_some()).unwrap();
    assert_eq!(failed.status.as_ref().unwrap().code, 2);
    let of = |call: &Span| {
        let phases = spans.iter().filter(|span| span.kind == 1 && span.parent == call.id);
        phases.map(|phase| phase.name.clone()).collect::<Vec<_>>()
    };
    let answered = calls.iter().find(|call| call.status.is_none()).unwrap();
    assert_eq!(of(answered), ["read", "parse", "wait", "render", "execute"]);
    assert_eq!(of(failed), ["read", "parse", "wait", "execute"]);
}

#[test]
fn what_the_client_does_not_want_is_not_traced() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "1000000");
    let refused = PARENT.replace("-01", "-00");
    let headers = [("traceparent", refused.as_str())];
    assert_eq!(server.send(get("/healthz").with(&headers)).header("traceparent"), None);
    // The next one is the first that arrives.
    assert!(server.send(get("/readyz")).header("traceparent").is_some());
    assert_eq!(collector.spans(1)[0].name, "GET /readyz");
    let off = TestServer::start(&[], SETUP);
    let headers = [("traceparent", PARENT)];
    assert_eq!(off.send(get("/healthz").with(&headers)).header("traceparent"), None);
    let figures = off.send(get("/metrics"));
    assert!(figures.text().contains("lockstep_traced_calls_total{outcome=\"sent\"} 0\n"));
}

#[test]
fn what_was_traced_is_sent_at_the_end() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "1000000");
    assert_eq!(server.send(get("/healthz")).status, 200);
    server.handle.drain();
    server.wait();
    assert_eq!(collector.spans(1)[0].name, "GET /healthz");
}

#[test]
fn a_collector_that_refuses_costs_its_batch_only() {
    let collector = Collector::start("503 Service Unavailable");
    let server = server(&collector, "1000000");
    assert_eq!(server.send(get("/healthz")).status, 200);
    assert_eq!(collector.spans(1).len(), 1);
    let mut settings = lockstep_server::ServerSettings::default();
    settings.set("traces.endpoint", "https://collector").unwrap();
    let error = settings.validate().unwrap_err().to_string();
    assert!(error.contains("expected http://host:port/path"), "{error}");
}

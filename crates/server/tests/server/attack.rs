//! What a client may do to a server that it wants to harm: bytes that are no HTTP, lengths that are not
//! true, paths and names that are more than they seem, and thousands of connections.
//!
//! After each the server answers others as before. What is drawn has a seed, which a failure names.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::support::{Client, Reply, Request, TestServer, get, post};
use serde_json::json;

const SETUP: &str = "
    CREATE TABLE t (k STRING NOT NULL, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
    INSERT INTO t VALUES ('a', 1, 1000);
    DEPLOY d AS SELECT k, v FROM t;
    CREATE USER ann OPTIONS(password='secret');";

/// Runs of what is drawn.
const RUNS: u64 = 300;

/// Random numbers (xorshift64*).
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(drawn).unwrap() % count
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}

/// Fails where the server does not answer as before.
fn check_alive(server: &TestServer) {
    let row = post("/v1/deployments/d", r#"["a",1,1]"#);
    assert_eq!(server.send(row).text(), r#"["a",1]"#);
    let rows = server.database.session().execute("SELECT * FROM t").unwrap();
    assert_eq!(rows.row_count(), 1, "the table is as it was");
}

/// Sends bytes, says that no more come, and reads what the server answers: maybe nothing, since a client
/// that has ended its side may be gone.
fn exchange(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The server may close the connection before it has read everything.
    let _sent = stream.write_all(bytes);
    let _ended = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    answer
}

/// Sends bytes and reads all that the server answers, which is told to close the connection.
fn last_exchange(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let _sent = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    answer
}

/// Returns the statuses of an answer over HTTP/1.1.
fn statuses(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let lines = text.split("HTTP/1.1 ").skip(1);
    lines.filter_map(|line| line.get(..3)?.parse().ok()).collect()
}

/// Makes a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Makes a conversation over HTTP/2: the preface, settings, and a call of `/healthz` by
/// `:method GET`, `:scheme http`, `:path /healthz` and `:authority x`.
fn framed_call(settings: &[u8]) -> Vec<u8> {
    let headers = [&b"\x82\x86\x44\x08/healthz\x41\x01x"[..]].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, settings), frame(1, 5, 1, &headers)].concat()
}

#[test]
fn bytes_that_are_no_http_harm_nobody() {
    let server = TestServer::start(&[], SETUP);
    let valid = [
        post("/v1/deployments/d", r#"["a",1,1]"#).bytes(),
        post("/v1/sql", r#"{"sql":"SELECT 1"}"#).bytes(),
        framed_call(&[]),
    ];
    for seed in 0..RUNS {
        let mut draw = Draw::new(seed);
        let mut bytes = match draw.below(4) {
            0 => {
                let count = draw.below(400);
                draw.bytes(count)
            }
            _ => valid[draw.below(valid.len())].clone(),
        };
        for _ in 0..draw.below(6) {
            if bytes.is_empty() {
                break;
            }
            let at = draw.below(bytes.len());
            match draw.below(3) {
                0 => bytes[at] ^= 1 << draw.below(8),
                1 => bytes.truncate(at),
                _ => {
                    let count = draw.below(20);
                    let more = draw.bytes(count);
                    bytes.splice(at..at, more);
                }
            }
        }
        let answer = exchange(&server, &bytes);
        assert!(statuses(&answer).iter().all(|status| *status < 500), "seed {seed}: {bytes:?}");
    }
    check_alive(&server);
}

#[test]
fn a_request_that_is_cut_at_any_byte_harms_nobody() {
    let server = TestServer::start(&[], SETUP);
    let row = post("/v1/tables/t", r#"["b",2,2000]"#).bytes();
    for end in 0..row.len() {
        let answer = exchange(&server, &row[..end]);
        assert!(statuses(&answer).iter().all(|status| (400..500).contains(status)), "{end}");
    }
    let framed = framed_call(&[]);
    for end in 0..framed.len() {
        exchange(&server, &framed[..end]);
    }
    check_alive(&server);
}

/// Requests whose parts arrive in turns over many connections are answered, each its own.
#[test]
fn requests_that_are_interleaved_are_told_apart() {
    let server = TestServer::start(&[], SETUP);
    let mut clients: Vec<(Client, Vec<u8>)> = (0..40)
        .map(|number| {
            let body = json!(["a", number, 1]).to_string();
            (server.connect(), post("/v1/deployments/d", &body).bytes())
        })
        .collect();
    let mut draw = Draw::new(7);
    while clients.iter().any(|(_, rest)| !rest.is_empty()) {
        for (client, rest) in &mut clients {
            let count = draw.below(20).min(rest.len());
            let part: Vec<u8> = rest.drain(..count).collect();
            client.stream.get_mut().write_all(&part).unwrap();
        }
    }
    for (number, (client, _)) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply().unwrap().text(), format!(r#"["a",{number}]"#));
    }
}

/// Lengths and encodings that two readers may understand differently are refused, so that nothing of a
/// body is taken for a request.
#[test]
fn lengths_that_are_ambiguous_are_refused() {
    let server = TestServer::start(&[], SETUP);
    let smuggled = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    for headers in [
        "Content-Length: 0\r\nContent-Length: 5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 1e3\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
    ] {
        let head = format!("POST /v1/deployments/d HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        let answer = exchange(&server, format!("{head}{smuggled}").as_bytes());
        let found = statuses(&answer);
        assert!(!found.contains(&200) && found.len() <= 1, "{headers}: {found:?}");
        assert!(found.iter().all(|status| *status < 500), "{headers}: {found:?}");
    }
    check_alive(&server);
}

/// A call with two hosts, or none, may be taken for one to another host by a server in front.
#[test]
fn a_call_over_http_1_1_has_one_host() {
    let server = TestServer::start(&[], SETUP);
    let ask = |head: &str| {
        statuses(&last_exchange(&server, format!("{head}Connection: close\r\n\r\n").as_bytes()))
    };
    assert_eq!(ask("GET /healthz HTTP/1.1\r\nHost: x\r\n"), [200]);
    assert_eq!(ask("GET /healthz HTTP/1.0\r\n").len(), 0, "an answer of HTTP/1.0");
    for head in [
        "GET /healthz HTTP/1.1\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\nHost: x\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\nhost: y\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x y\r\n",
        "GET http://x/healthz HTTP/1.1\r\n",
    ] {
        assert_eq!(ask(head), [400], "{head:?}");
    }
    check_alive(&server);
}

#[test]
fn what_is_oversized_is_refused() {
    let server = TestServer::start(&[("limits.body_bytes_max", "1000")], SETUP);
    let long = "x".repeat(100_000);
    let many = (0..5_000).map(|number| format!("X-{number}: y\r\n")).collect::<String>();
    for request in [
        format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET /?{long} HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
        format!("{long} / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        let found = statuses(&exchange(&server, request.as_bytes()));
        assert!(found.iter().all(|status| (400..500).contains(status)), "{found:?}");
    }
    // The length is not known before: the limit holds for what arrives.
    let chunk = format!("{:x}\r\n{}\r\n", 800, "y".repeat(800));
    let chunked = format!(
        "POST /v1/sql HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         {chunk}{chunk}0\r\n\r\n"
    );
    assert_eq!(statuses(&last_exchange(&server, chunked.as_bytes())), [413]);
    // Nested so deep that a reader by recursion would run out of stack.
    let deep = "[".repeat(900);
    for path in ["/v1/sql", "/v1/deployments/d", "/v1/tables/t", "/dbs/default/deployments/d"] {
        let reply = server.send(post(path, &deep));
        assert!(reply.status == 400 || reply.json()["code"] == -1, "{path}: {reply:?}");
    }
    check_alive(&server);
}

/// A server that has as many connections as it may answers those that call.
#[test]
fn ten_thousand_idle_connections_leave_others_alone() {
    let limit = lockstep_host::machine::raise_open_file_limit();
    let files = limit.and_then(|limit| limit.soft).unwrap_or(20_000);
    // Both ends of a connection are in this process, and other tests have some.
    let count = usize::try_from(files.saturating_sub(1_500) / 2).unwrap().min(9_900);
    let server = TestServer::start(&[("limits.connections_max", "10000")], SETUP);
    let mut idle: Vec<Client> = Vec::new();
    let mut caller = server.connect();
    while idle.len() < count {
        idle.push(server.connect());
        if idle.len() % 1_000 == 0 {
            assert_eq!(caller.send(get("/readyz")).status, 200);
        }
    }
    println!("{count} idle connections");
    assert_eq!(caller.send(post("/v1/deployments/d", r#"["a",1,1]"#)).status, 200);
    let last = idle.last_mut().unwrap();
    assert_eq!(last.send(get("/healthz")).status, 200, "none was closed for another");
    drop(idle);
    check_alive(&server);
}

/// A client that opens the window of no stream is dropped, though it goes on sending frames.
#[test]
fn a_client_that_takes_no_frames_is_dropped() {
    let server = TestServer::start(&[("limits.write_timeout_ms", "50")], SETUP);
    // INITIAL_WINDOW_SIZE is 0: the headers of the answer arrive, and nothing of its body.
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&framed_call(&[0, 4, 0, 0, 0, 0])).unwrap();
    let mut pinger = stream.try_clone().unwrap();
    let ping = lockstep_host::spawn("pings", move || {
        while pinger.write_all(&frame(6, 0, 0, &[0; 8])).is_ok() {
            lockstep_host::pause(5);
        }
    });
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    drop(stream);
    ping.unwrap().join().unwrap();
    assert!(!answer.windows(3).any(|part| part == b"ok\n"), "{answer:?}");
    check_alive(&server);
}

/// A client that begins a frame, or the headers of a stream, and does not go on is dropped.
#[test]
fn frames_that_never_end_are_given_up() {
    let settings = [("limits.header_timeout_ms", "20"), ("limits.idle_timeout_ms", "3600000")];
    let server = TestServer::start(&settings, SETUP);
    let begin = framed_call(&[]);
    let preface_and_settings = 24 + 9;
    let headers = frame(1, 1, 1, b"\x82\x86\x84");
    for part in [
        begin[..10].to_vec(),
        begin[..begin.len() - 3].to_vec(),
        [&begin[..preface_and_settings], &headers].concat(),
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(&part).unwrap();
        let mut answer = Vec::new();
        let _closed = stream.read_to_end(&mut answer);
    }
    check_alive(&server);
}

/// The parts of a body that never ends arrive in time, each alone; the deadline of the call ends it.
#[test]
fn a_body_that_never_ends_is_given_up() {
    let settings = [("limits.request_timeout_ms", "60"), ("limits.body_timeout_ms", "60000")];
    let server = TestServer::start(&settings, SETUP);
    let mut client = server.connect();
    let head = "POST /v1/deployments/d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.stream.get_mut().write_all(head.as_bytes()).unwrap();
    let mut parts = client.stream.get_mut().try_clone().unwrap();
    let sending = lockstep_host::spawn("sends", move || {
        while parts.write_all(b"1\r\n \r\n").is_ok() {
            lockstep_host::pause(2);
        }
    });
    assert_eq!(client.reply().unwrap().status, 504);
    drop(client);
    sending.unwrap().join().unwrap();
    check_alive(&server);
}

/// Returns the reply to a request line as it is.
fn ask(server: &TestServer, line: &str) -> Vec<u16> {
    let bytes = format!("{line}\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    statuses(&last_exchange(server, bytes.as_bytes()))
}

#[test]
fn paths_lead_nowhere_else() {
    let server = TestServer::start(&[], SETUP);
    for path in [
        "//healthz",
        "/./healthz",
        "/v1/../healthz",
        "/v1/..%2fhealthz",
        "/healthz/",
        "/healthz%00",
        "/HEALTHZ",
        "/v1/deployments/",
        "/v1/deployments/d/..",
        "/v1/deployments/..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "/..",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/dbs/default/../../healthz",
        "/apiserver/apiserver/dbs",
        "/apiserver/v1/sql",
        "/%c0%ae%c0%ae/",
        "/\\..\\",
    ] {
        let found = ask(&server, &format!("GET {path} HTTP/1.1"));
        assert!(matches!(found.as_slice(), [400 | 404 | 405]), "{path}: {found:?}");
    }
    for line in
        ["OPTIONS * HTTP/1.1", "CONNECT x:80 HTTP/1.1", "TRACE / HTTP/1.1", "PRI * HTTP/2.0"]
    {
        assert!(ask(&server, line).iter().all(|status| (400..500).contains(status)), "{line}");
    }
    // The absolute form names a host, which is not looked up.
    assert_eq!(ask(&server, "GET http://elsewhere.example/healthz HTTP/1.1"), [200]);
    check_alive(&server);
}

/// Texts that would be SQL if they were put into a statement.
const INJECTIONS: [&str; 9] = [
    "'; DROP TABLE t; --",
    "t; DROP TABLE t",
    "t` ; DROP TABLE t; --",
    "\"; DROP TABLE t; --",
    "t/**/UNION/**/SELECT",
    "default.t WHERE 1=1; DROP TABLE t",
    "\\'; DROP TABLE t; --",
    "d\0; DROP TABLE t",
    "SELECT * FROM t",
];

#[test]
fn sql_in_a_parameter_is_a_name_or_a_value() {
    let server = TestServer::start(&[], SETUP);
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    for text in INJECTIONS {
        let name = encoded(text);
        let refused = |reply: &Reply| reply.status >= 400 || reply.json()["code"] == -1;
        for path in [
            format!("/v1/deployments/{name}"),
            format!("/v1/deployments/d?database={name}"),
            format!("/v1/tables/{name}"),
            format!("/v1/tables/t?database={name}"),
            format!("/v1/tables/t?durability={name}"),
            format!("/v1/sql?database={name}"),
            format!("/dbs/{name}/deployments/d"),
            format!("/dbs/default/deployments/{name}"),
            format!("/dbs/default/procedures/{name}"),
            format!("/dbs/{name}"),
        ] {
            for body in [
                r#"["a",1,1]"#,
                r#"{"sql":"SELECT 1"}"#,
                r#"{"input":[["a",1,1]]}"#,
                r#"{"mode":"online","sql":"SELECT 1"}"#,
            ] {
                let reply = server.send(post(&path, body));
                assert!(refused(&reply) && reply.status < 500, "{path} {body}: {reply:?}");
            }
        }
        for path in [format!("/dbs/{name}/tables/t"), format!("/dbs/default/tables/{name}")] {
            let value = Request {
                method: "PUT",
                path: &path,
                headers: &[],
                body: br#"{"value":[["a",1,1]]}"#,
            };
            assert!(refused(&server.send(value)), "{path}");
            assert!(refused(&server.send(get(&path))), "{path}");
        }
        // A value is a value, and is returned as it was sent.
        let row = json!([text, 1, 1]).to_string();
        let reply = server.send(post("/v1/deployments/d", &row));
        assert_eq!(reply.json()[0], *text);
        let sql = json!({"sql": "SELECT ? AS a", "parameters": [text]}).to_string();
        assert_eq!(server.send(post("/v1/sql", &sql)).json()["rows"][0][0], *text);
        let key = json!({text: 1, "k": "a", "v": 1, "ts": 1}).to_string();
        assert_eq!(server.send(post("/v1/deployments/d", &key)).status, 200, "it is ignored");
        assert_eq!(server.send(post("/v1/tables/t", &key)).status, 400);
    }
    check_alive(&server);
}

/// The same through what says who calls.
#[test]
fn sql_in_a_header_is_no_statement() {
    let server = TestServer::start(&[("server.authentication", "users")], SETUP);
    // `ann'; DROP TABLE t; --:secret`, and `ann:' OR '1'='1`.
    let basic = ["Basic YW5uJzsgRFJPUCBUQUJMRSB0OyAtLTpzZWNyZXQ=", "Basic YW5uOicgT1IgJzEnPScx"];
    for authorization in [basic[0], basic[1], "Bearer lockstep_' OR '1'='1"] {
        let headers = [("Authorization", authorization), ("X-Request-Id", "'; DROP TABLE t; --")];
        let reply = server.send(post("/v1/deployments/d", r#"["a",1,1]"#).with(&headers));
        assert_eq!((reply.status, reply.code().as_str()), (401, "28P01"));
    }
    let rows = server.database.session().execute("SELECT * FROM t").unwrap();
    assert_eq!(rows.row_count(), 1);
}

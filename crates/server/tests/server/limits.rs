//! The limits of the server: what is too many, too large, too slow or too long is refused or ended.

use std::{io::Write, net::TcpStream};

use crate::{
    postgres_client::{frame, texts},
    support::{Client, Request, TestServer, get, post},
};
use lockstep_engine::Database;
use lockstep_server::DrainOutcome;
use serde_json::json;

const SETUP: &str = "
    CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
    DEPLOY d AS SELECT k, v FROM t;";

/// A query that runs for many seconds: every pair of many rows, none of which is in the answer.
const ENDLESS: &str =
    "SELECT count(*) AS n FROM big AS a JOIN big AS b ON a.k = b.k AND a.v + b.v < 0";

/// How often [`BIG_PART`] rows are in the table.
const BIG_PARTS: usize = 8;

/// Rows of a statement that fills the table.
const BIG_PART: usize = 5_000;

/// Makes a server with a table for [`ENDLESS`].
fn server_with_big_table(settings: &[(&str, &str)]) -> TestServer {
    let database = Database::in_memory();
    let session = database.session();
    session.execute(SETUP).unwrap();
    session.execute("CREATE TABLE big (k STRING, v BIGINT)").unwrap();
    let rows: Vec<String> = (0..BIG_PART).map(|v| format!("('a', {v})")).collect();
    for _ in 0..BIG_PARTS {
        session.execute(&format!("INSERT INTO big VALUES {}", rows.join(","))).unwrap();
    }
    TestServer::of(database, settings)
}

fn sql_body(sql: &str) -> String {
    json!({"sql": sql}).to_string()
}

/// Reads a figure of `/metrics`.
fn figure(server: &TestServer, name: &str) -> u64 {
    let metrics = server.send(get("/metrics"));
    let line = metrics.text().lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until a condition holds; the condition, not the time, is what is tested.
fn wait_until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        lockstep_host::pause(1);
    }
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let server = TestServer::start(&[("limits.connections_max", "3")], SETUP);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.send(get("/healthz")).status, 200);
    }
    assert!(server.connect().is_closed());
    drop(clients.pop());
    wait_until(|| {
        let mut client = server.connect();
        let sent = client.stream.get_mut().write_all(&get("/healthz").bytes());
        sent.is_ok() && client.reply().is_some()
    });
    let metrics = clients[0].send(get("/metrics")).text().to_owned();
    assert!(!metrics.contains("lockstep_refused_total{reason=\"connections\"} 0\n"));
}

#[test]
fn many_idle_connections_leave_others_alone() {
    let server = TestServer::start(&[], SETUP);
    let idle: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(server.send(post("/v1/deployments/d", r#"["a",1,1]"#)).text(), r#"["a",1]"#);
    wait_until(|| figure(&server, "lockstep_connections ") > 300);
    drop(idle);
    wait_until(|| figure(&server, "lockstep_connections ") == 1);
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = TestServer::start(&[("limits.body_bytes_max", "100")], SETUP);
    let fits = format!("{:100}", r#"["a",1,1]"#);
    assert_eq!(server.send(post("/v1/deployments/d", &fits)).status, 200);
    let reply = server.send(post("/v1/deployments/d", &format!("{fits} ")));
    assert_eq!((reply.status, reply.code().as_str()), (413, "54000"));
}

#[test]
fn headers_that_are_too_large_are_refused() {
    let server = TestServer::start(&[("limits.header_bytes_max", "8192")], SETUP);
    let long = "x".repeat(9_000);
    let mut client = server.connect();
    client.stream.get_mut().write_all(&get("/healthz").with(&[("X-A", &long)]).bytes()).unwrap();
    assert!(client.reply().is_none_or(|reply| reply.status == 431));
    assert!(client.is_closed());
}

#[test]
fn what_is_no_http_ends_the_connection() {
    let server = TestServer::start(&[], SETUP);
    for bytes in [&b"\x00\x01\x02\r\n\r\n"[..], b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"] {
        let mut client = server.connect();
        client.stream.get_mut().write_all(bytes).unwrap();
        assert!(client.reply().is_none_or(|reply| reply.status >= 400));
        assert!(client.is_closed());
    }
    let early = b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    let mut client = server.connect();
    client.stream.get_mut().write_all(early).unwrap();
    drop(client);
    assert_eq!(server.send(get("/readyz")).status, 200);
}

#[test]
fn a_slow_body_is_given_up() {
    let server = TestServer::start(&[("limits.body_timeout_ms", "20")], SETUP);
    let mut client = server.connect();
    let request = post("/v1/deployments/d", r#"["a",1,1]"#).bytes();
    client.stream.get_mut().write_all(&request[..request.len() - 1]).unwrap();
    assert_eq!(client.reply().unwrap().status, 408);
}

#[test]
fn an_idle_connection_is_closed() {
    let server = TestServer::start(&[("limits.idle_timeout_ms", "20")], SETUP);
    assert!(server.connect().is_closed());
    let mut client = server.connect();
    let used = client.stream.get_mut().write_all(&get("/healthz").bytes());
    assert!(used.is_err() || client.reply().is_none_or(|reply| reply.status == 200));
    assert!(client.is_closed());
}

/// A client that reads nothing of large answers is dropped, and its memory with it.
#[test]
fn a_client_that_never_reads_is_dropped() {
    let server = server_with_big_table(&[("limits.write_timeout_ms", "50")]);
    let mut client = server.connect();
    let body = sql_body("SELECT * FROM big");
    let request = post("/v1/sql", &body).bytes();
    // The answers of these do not fit what the system buffers.
    for _ in 0..500 {
        if client.stream.get_mut().write_all(&request).is_err() {
            break;
        }
        if figure(&server, "lockstep_refused_total{reason=\"timeout\"}") > 0 {
            break;
        }
    }
    wait_until(|| figure(&server, "lockstep_refused_total{reason=\"timeout\"}") > 0);
    wait_until(|| figure(&server, "lockstep_connections ") == 1);
}

#[test]
fn an_answer_that_is_too_large_is_refused() {
    let server = server_with_big_table(&[("limits.answer_bytes_max", "1024")]);
    let reply = server.send(post("/v1/sql", &sql_body("SELECT * FROM big")));
    assert_eq!((reply.status, reply.code().as_str()), (413, "54000"));
    let reply = server.send(post("/v1/sql", &sql_body("SELECT * FROM big LIMIT 3")));
    assert_eq!(reply.json()["row_count"], 3);
}

#[test]
fn a_deadline_ends_a_statement() {
    let server = server_with_big_table(&[]);
    let body = sql_body(ENDLESS);
    for (path, headers) in
        [("/v1/sql", &[("Lockstep-Timeout-Ms", "30")][..]), ("/v1/sql?timeout_ms=30", &[][..])]
    {
        let reply = server.send(post(path, &body).with(headers));
        assert_eq!((reply.status, reply.code().as_str()), (504, "57014"));
        let error = &reply.json()["error"];
        assert_eq!(error["message"], "the call exceeded its deadline of 30 ms");
        assert!(error["hint"].as_str().unwrap().contains("timeout_ms or"), "{error}");
    }
    let none = post("/v1/deployments/d", r#"["a",1,1]"#);
    assert_eq!(server.send(none.with(&[("Lockstep-Timeout-Ms", "0")])).status, 504);
    assert_eq!(server.send(none.with(&[("Lockstep-Timeout-Ms", "soon")])).status, 400);
    assert_eq!(server.send(none.with(&[("Lockstep-Timeout-Ms", "60000")])).status, 200);
    let limited = server_with_big_table(&[("limits.statement_timeout_ms", "30")]);
    let reply = limited.send(post("/v1/sql?timeout_ms=1000000", &body));
    assert_eq!(reply.status, 504, "the configuration's limit is the longest");
}

#[test]
fn analytics_are_answered_whatever_their_priority() {
    for priority in ["idle", "low"] {
        let server = server_with_big_table(&[("admission.analytics_priority", priority)]);
        let reply = server.send(post("/v1/sql", &sql_body("SELECT count(*) > 0 AS has FROM big")));
        assert_eq!(reply.status, 200, "{priority}");
        assert!(reply.text().contains("[[true]]"), "{}", reply.text());
    }
}

#[test]
fn overload_is_refused_at_once_and_requests_go_on() {
    let server = server_with_big_table(&[
        ("admission.analytics_threads", "1"),
        ("admission.analytics_queue", "1"),
    ]);
    let body = sql_body(ENDLESS);
    let analytics = "lockstep_calls_in_progress{class=\"analytics\"}";
    let overload = "lockstep_refused_total{reason=\"overload\"}";
    let mut busy: Vec<Client> = Vec::new();
    let refused = loop {
        let mut client = server.connect();
        client.stream.get_mut().write_all(&post("/v1/sql", &body).bytes()).unwrap();
        let count = u64::try_from(busy.len()).unwrap() + 1;
        wait_until(|| figure(&server, analytics) == count || figure(&server, overload) > 0);
        if figure(&server, overload) > 0 {
            break client.reply().unwrap();
        }
        busy.push(client);
    };
    assert!((1..=2).contains(&busy.len()), "one runs and one waits");
    assert_eq!((refused.status, refused.code().as_str()), (429, "53300"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.send(post("/v1/deployments/d", r#"["a",1,1]"#)).text(), r#"["a",1]"#);
    let insert = sql_body("INSERT INTO t VALUES ('a', 1, 1)");
    assert_eq!(server.send(post("/v1/sql", &insert)).status, 200);
    // Clients that go away cancel their statements.
    drop(busy);
    wait_until(|| figure(&server, analytics) == 0);
    assert_eq!(server.send(post("/v1/sql", &sql_body("SELECT 1"))).status, 200);
}

#[test]
fn draining_cancels_what_does_not_end() {
    let server = server_with_big_table(&[("server.drain_timeout_ms", "30")]);
    let mut client = server.connect();
    client.stream.get_mut().write_all(&post("/v1/sql", &sql_body(ENDLESS)).bytes()).unwrap();
    wait_until(|| figure(&server, "lockstep_calls_in_progress{class=\"analytics\"}") == 1);
    let mut postgres = server.session_postgres(&[]);
    postgres.send(&frame(b'Q', &texts(&[ENDLESS])));
    wait_until(|| figure(&server, "lockstep_calls_in_progress{class=\"analytics\"}") == 2);
    server.handle.drain();
    assert_eq!(server.wait(), DrainOutcome::Cancelled);
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (503, "57P01"));
    assert_eq!(postgres.reply().code(), "57P01");
}

#[test]
fn limits_are_changed_by_a_reload() {
    let server = TestServer::start(&[], SETUP);
    let request = Request { method: "POST", path: "/v1/deployments/d", headers: &[], body: b"[1]" };
    assert_eq!(server.send(request).status, 400);
    let mut settings = lockstep_server::ServerSettings::default();
    settings.set("http.listen", "127.0.0.1:0").unwrap();
    settings.set("postgres.listen", "127.0.0.1:0").unwrap();
    settings.set("flight.listen", "127.0.0.1:0").unwrap();
    settings.set("server.authentication", "none").unwrap();
    settings.set("limits.body_bytes_max", "2").unwrap();
    assert_eq!(server.handle.reload(settings), Ok(Vec::new()));
    assert_eq!(server.send(request).status, 413);
}

/// The headers of a request have a limit of their own, which is not that of an idle connection.
#[test]
fn slow_headers_are_given_up_and_idle_connections_are_not() {
    let settings = [("limits.header_timeout_ms", "20"), ("limits.idle_timeout_ms", "3600000")];
    let server = TestServer::start(&settings, SETUP);
    let mut idle = server.connect();
    assert_eq!(idle.send(get("/healthz")).status, 200);
    let mut slow = server.connect();
    assert_eq!(slow.send(get("/healthz")).status, 200);
    slow.stream.get_mut().write_all(b"GET /healthz HT").unwrap();
    assert!(slow.is_closed());
    let mut first = server.connect();
    first.stream.get_mut().write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").unwrap();
    assert!(first.is_closed());
    assert!(figure(&server, "lockstep_refused_total{reason=\"timeout\"}") >= 2);
    assert_eq!(idle.send(get("/healthz")).status, 200);
}

#[test]
fn a_second_signal_without_calls_has_cancelled_nothing() {
    let server = TestServer::start(&[("server.drain_delay_ms", "3600000")], SETUP);
    let mut client = server.connect();
    assert_eq!(client.send(get("/healthz")).status, 200);
    assert!(server.handle.drain());
    server.handle.stop();
    assert_eq!(server.wait(), DrainOutcome::Finished);
    assert!(client.is_closed());
}

#[test]
fn a_query_has_at_most_so_many_rows_and_so_much_memory() {
    let server = server_with_big_table(&[("limits.answer_rows_max", "3")]);
    let reply = server.send(post("/v1/sql", &sql_body("SELECT * FROM big LIMIT 4")));
    assert_eq!((reply.status, reply.code().as_str()), (413, "54000"));
    let reply = server.send(post("/v1/sql", &sql_body("SELECT * FROM big LIMIT 3")));
    assert_eq!(reply.json()["row_count"], 3);
    let server = server_with_big_table(&[
        ("limits.query_memory_bytes_max", "2000"),
        ("limits.queries_memory_bytes_max", "1999"),
    ]);
    let reply = server.send(post("/v1/sql", &sql_body("SELECT 1")));
    assert_eq!((reply.status, reply.code().as_str()), (507, "53200"));
    let one = post("/v1/deployments/d", r#"["a",1,1]"#);
    assert_eq!(server.send(one).status, 200, "a request of one row reserves nothing");
}

/// A script is of the class of all its statements, whatever it begins with.
#[test]
fn a_script_that_only_writes_is_no_analytics() {
    let server = server_with_big_table(&[
        ("admission.analytics_threads", "1"),
        ("admission.analytics_queue", "1"),
    ]);
    let analytics = "lockstep_calls_in_progress{class=\"analytics\"}";
    let body = sql_body(&format!("INSERT INTO t VALUES ('a', 1, 1); {ENDLESS}"));
    let mut client = server.connect();
    client.stream.get_mut().write_all(&post("/v1/sql", &body).bytes()).unwrap();
    wait_until(|| figure(&server, analytics) == 1);
    let values = vec!["('b', 1, 1)"; 1_000].join(",");
    for sql in
        ["/* all */ INSERT INTO t VALUES ('b', 1, 1)", &format!("INSERT INTO t VALUES {values}")]
    {
        assert_eq!(server.send(post("/v1/sql", &sql_body(sql))).status, 200);
    }
    drop(client);
    wait_until(|| figure(&server, analytics) == 0);
}

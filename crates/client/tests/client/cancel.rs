//! Calls that end early: cancelled, timed out, dropped, at the end of the server.

use lockstep_client::RemoteClient;
use lockstep_engine::{QueryContext, QueryLimits};
use lockstep_host::{Clock, SystemClock};
use lockstep_server::DrainOutcome;
use std::{
    io::{Read, Write},
    sync::Arc,
};

use crate::support::{TestServer, row_of, rows};

/// A query that runs for minutes.
const LONG: &str =
    "SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.a <> b.a JOIN t AS c ON b.a <> c.a";

fn server(settings: &[(&str, &str)]) -> TestServer {
    let server = TestServer::start(settings, "CREATE TABLE t (a BIGINT)");
    let one = row_of("SELECT cast(1 AS BIGINT) AS a");
    let numbers: Vec<_> = (0..4_000_i64)
        .map(|number| {
            let column: arrow::array::ArrayRef =
                Arc::new(arrow::array::Int64Array::from(vec![number]));
            arrow::array::RecordBatch::try_new(one.schema(), vec![column]).unwrap()
        })
        .collect();
    server.database.session().append("t", &numbers).unwrap();
    server
}

/// Waits until the server runs as many statements.
fn wait_for_running(server: &TestServer, count: usize) {
    let is_running = || {
        let sessions = server.database.sessions();
        sessions.iter().filter(|info| info.running.is_some()).count() == count
    };
    let clock = SystemClock::new();
    let begun_ns = clock.monotonic_ns();
    while !is_running() {
        assert!(
            clock.monotonic_ns() - begun_ns < 60_000_000_000,
            "{:?}",
            server.database.sessions()
        );
        lockstep_host::pause(2);
    }
}

#[test]
fn a_call_is_cancelled_from_another_thread() {
    let server = server(&[]);
    let client = server.connect();
    let running = client.clone();
    let call = lockstep_host::spawn("runs", move || {
        running.execute(LONG, None).and_then(|rows| rows.collect()).map(|_| ())
    });
    wait_for_running(&server, 1);
    client.cancel();
    let error = call.unwrap().join().unwrap().unwrap_err();
    assert_eq!((error.code, error.message.as_str()), ("57014", "the statement was cancelled"));
    wait_for_running(&server, 0);
    assert_eq!(rows(&client, "SELECT 1 AS a"), "1");
}

#[test]
fn an_interrupted_context_cancels_on_the_server() {
    let server = server(&[]);
    let client = server.connect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let limits = QueryLimits { timeout_ms: Some(100), ..QueryLimits::default() };
    let context = QueryContext::limited(&clock, limits);
    let run = || client.execute(LONG, None).and_then(|rows| rows.collect()).map(|_| ());
    assert_eq!(context.run(run).unwrap_err().code, "57014");
    wait_for_running(&server, 0);
}

#[test]
fn rows_that_are_dropped_cancel_their_query() {
    let server = server(&[]);
    let client = server.connect();
    let wide = "SELECT a.a, b.a AS b FROM t AS a JOIN t AS b ON a.a <> b.a";
    let mut result = client.query(wide, None).unwrap();
    assert!(result.next_batch().unwrap().is_some());
    wait_for_running(&server, 1);
    drop(result);
    wait_for_running(&server, 0);
}

#[test]
fn a_client_that_reads_nothing_loses_its_result() {
    let server = server(&[("limits.write_timeout_ms", "200")]);
    let client = server.connect();
    let wide = "SELECT a.a, b.a AS b FROM t AS a JOIN t AS b ON a.a <> b.a";
    let mut result = client.query(wide, None).unwrap();
    wait_for_running(&server, 1);
    // Nobody reads: the windows of the connection fill, and then the server's patience ends.
    wait_for_running(&server, 0);
    let mut last = result.next_batch();
    while let Ok(Some(_)) = last {
        last = result.next_batch();
    }
    assert_eq!(last.unwrap_err().code, "57014");
    assert_eq!(rows(&client, "SELECT 1 AS a"), "1");
}

/// Runs a statement over HTTP, and returns the answer.
fn answer_over_http(server: &TestServer, sql: &str) -> String {
    let mut stream = std::net::TcpStream::connect(server.http).unwrap();
    let (body, mut answer) = (format!("{{\"sql\": \"{sql}\"}}"), String::new());
    let head = "POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ";
    stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn clients_that_read_nothing_leave_the_threads_to_others() {
    let server = server(&[
        ("admission.analytics_threads", "2"),
        ("limits.write_timeout_ms", "3600000"),
        ("limits.statement_timeout_ms", "3600000"),
    ]);
    let wide = "SELECT a.a, b.a AS b FROM t AS a JOIN t AS b ON a.a <> b.a";
    // One more than there are threads: each has begun when its columns are there.
    let clients: Vec<RemoteClient> = (0..3).map(|_| server.connect()).collect();
    let mut results: Vec<_> =
        clients.iter().map(|client| client.query(wide, None).unwrap()).collect();
    wait_for_running(&server, 3);
    assert_eq!(rows(&server.connect(), "SELECT count(*) AS n FROM t"), "4000");
    let answer = answer_over_http(&server, "SELECT count(*) AS n FROM t");
    assert!(answer.contains("[[4000]]"), "{answer}");
    // They were not cancelled, and go on where they are read.
    wait_for_running(&server, 3);
    for result in &mut results {
        // More than the windows of the connection and the channel have.
        for _ in 0..60 {
            assert!(result.next_batch().unwrap().is_some());
        }
    }
    drop(results);
    wait_for_running(&server, 0);
}

#[test]
fn a_query_whose_rows_nobody_reads_ends_at_its_deadline() {
    let server = server(&[("limits.statement_timeout_ms", "300")]);
    let client = server.connect();
    let wide = "SELECT a.a, b.a AS b FROM t AS a JOIN t AS b ON a.a <> b.a";
    let mut result = client.query(wide, None).unwrap();
    wait_for_running(&server, 0);
    let mut last = result.next_batch();
    while let Ok(Some(_)) = last {
        last = result.next_batch();
    }
    assert_eq!(last.unwrap_err().code, "57014");
}

#[test]
fn a_statement_ends_at_its_deadline() {
    let server = server(&[("limits.statement_timeout_ms", "150")]);
    let client = server.connect();
    let error = client.execute(LONG, None).and_then(|rows| rows.collect()).unwrap_err();
    assert_eq!(error.code, "57014");
    assert!(error.message.contains("ms"), "{error:?}");
}

#[test]
fn what_does_not_fit_is_refused_at_once() {
    let settings = [("admission.analytics_threads", "1"), ("admission.analytics_queue", "1")];
    let server = server(&settings);
    let client = server.connect();
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let running = client.clone();
            lockstep_host::spawn("runs", move || {
                running.execute(LONG, None).and_then(|rows| rows.collect()).map(|_| ())
            })
            .unwrap()
        })
        .collect();
    wait_for_running(&server, 1);
    let begun_ns = SystemClock::new().monotonic_ns();
    // A call of a short deadline either waits in the queue, or is refused: once both long ones are
    // there, each is refused.
    loop {
        let third = server.connect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let limits = QueryLimits { timeout_ms: Some(50), ..QueryLimits::default() };
        let refused = QueryContext::limited(&clock, limits)
            .run(|| third.execute("SELECT 1 AS a", None).map(|_| ()));
        match refused {
            Err(error) if error.code == "53300" => break,
            other => assert!(clock.monotonic_ns() < 60_000_000_000, "{begun_ns} {other:?}"),
        }
    }
    for call in calls {
        while !call.is_finished() {
            client.cancel();
            lockstep_host::pause(5);
        }
        let code = call.join().unwrap().unwrap_err().code;
        // The probe may have had the place in the queue for a moment.
        assert!(["57014", "53300"].contains(&code), "{code}");
    }
}

#[test]
fn the_server_finishes_what_runs_and_cancels_the_rest() {
    let idle = server(&[]);
    let client = idle.connect();
    idle.handle.drain();
    assert_eq!(idle.wait(), DrainOutcome::Finished);
    assert!(client.execute("SELECT 1", None).is_err());
    let busy = server(&[("server.drain_timeout_ms", "100")]);
    let client = busy.connect();
    let call = lockstep_host::spawn("runs", move || {
        client.execute(LONG, None).and_then(|rows| rows.collect()).map(|_| ())
    });
    wait_for_running(&busy, 1);
    busy.handle.drain();
    assert_eq!(busy.wait(), DrainOutcome::Cancelled);
    assert!(call.unwrap().join().unwrap().is_err());
}

#[test]
fn many_clients_call_at_once() {
    let server = server(&[("admission.analytics_queue", "1000")]);
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let url = server.url("", "");
            lockstep_host::spawn("client", move || {
                let client = RemoteClient::connect(&url).unwrap();
                for round in 0..20 {
                    let sql = format!("SELECT a FROM t WHERE a = {}", number * 20 + round);
                    assert_eq!(rows(&client, &sql), (number * 20 + round).to_string());
                }
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

//! Calls that end early: cancelled, timed out, dropped, at the end of the server.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow_flight::{
    FlightData, FlightDescriptor, PutResult, encode::FlightDataEncoderBuilder,
    flight_service_client::FlightServiceClient, sql::Any,
};
use futures::{StreamExt, stream};
use lockstep_client::RemoteClient;
use lockstep_engine::{QueryContext, QueryLimits};
use lockstep_host::{Clock, SystemClock};
use lockstep_protocol::{Append, AppendCreates, NamedMessage};
use lockstep_server::DrainOutcome;
use prost::Message;
use std::{
    io::{Read, Write},
    sync::Arc,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::JoinHandle,
};
use tonic::{Status, transport::Endpoint};

use crate::support::{TestServer, rows, text_of};

/// A query that runs for minutes.
const LONG: &str =
    "SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.a <> b.a JOIN t AS c ON b.a <> c.a";

fn server(settings: &[(&str, &str)]) -> TestServer {
    let server = TestServer::start(settings, "CREATE TABLE t (a BIGINT)");
    let numbers: Vec<_> = (0..4_000).map(row).collect();
    server.database.session().append("t", &numbers).unwrap();
    server
}

/// Makes a batch of one row of the table.
fn row(number: i64) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![number]));
    RecordBatch::try_from_iter([("a", column)]).unwrap()
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

/// An append to the table over a connection of its own, which has the rows that are sent so far.
struct SlowAppend {
    rows: mpsc::UnboundedSender<RecordBatch>,
    outcome: JoinHandle<Result<Option<PutResult>, Status>>,
    runtime: Runtime,
}

impl SlowAppend {
    /// Begins it with a row.
    fn begin(server: &TestServer, number: i64) -> Self {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_io().enable_time().build().unwrap();
        let (rows, mut receiver) = mpsc::unbounded_channel();
        let batches = stream::poll_fn(move |cx| receiver.poll_recv(cx)).map(Ok);
        let schema = row(number).schema();
        let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
        let (tables, creates) = (vec!["t".to_owned()], AppendCreates::No.into());
        let append = Append { tables, creates, ..Append::default() };
        let command = Any { type_url: Append::type_url(), value: append.encode_to_vec().into() };
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let first = FlightData::new().with_descriptor(descriptor);
        let messages = stream::iter([first]).chain(encoded.map(|message| message.unwrap()));
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
        let outcome = runtime.spawn(async move {
            let mut flight = FlightServiceClient::new(endpoint.connect().await.unwrap());
            let mut results = flight.do_put(messages).await?.into_inner();
            results.message().await
        });
        let append = Self { rows, outcome, runtime };
        append.send(number);
        append
    }

    fn send(&self, number: i64) {
        self.rows.send(row(number)).unwrap();
    }

    /// Ends the rows, and waits until they are stored.
    fn finish(self) {
        drop(self.rows);
        let outcome = self.runtime.block_on(self.outcome).unwrap();
        assert!(outcome.unwrap().is_some());
    }

    /// Waits for the end of an append whose rows do not end.
    fn fail(self) -> Status {
        self.runtime.block_on(self.outcome).unwrap().unwrap_err()
    }

    /// Closes the connection before the rows end.
    fn disconnect(self) {
        drop(self.runtime);
        drop(self.rows);
    }
}

#[test]
fn clients_that_send_nothing_leave_the_threads_to_others() {
    let server = server(&[
        ("admission.write_threads", "2"),
        ("limits.body_timeout_ms", "3600000"),
        ("limits.statement_timeout_ms", "3600000"),
    ]);
    // One more than there are threads.
    let [more, same, none] =
        [10_000, 10_001, 10_002].map(|number| SlowAppend::begin(&server, number));
    wait_for_running(&server, 3);
    let client = server.connect();
    assert_eq!(client.append("t", &[row(20_000)], None).unwrap().rows, 1);
    assert_eq!(rows(&client, "SELECT count(*) AS n FROM t"), "4001");
    let answer = answer_over_http(&server, "INSERT INTO t VALUES (20001)");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = answer_over_http(&server, "SELECT count(*) AS n FROM t");
    assert!(answer.contains("[[4002]]"), "{answer}");
    // They were not cancelled, and go on where there are rows.
    wait_for_running(&server, 3);
    more.send(11_000);
    more.finish();
    same.finish();
    none.disconnect();
    wait_for_running(&server, 0);
    let stored = rows(&client, "SELECT a FROM t WHERE a >= 10000 ORDER BY a");
    assert_eq!(stored, "10000; 10001; 11000; 20000; 20001");
}

/// The table is locked by an append that waits for its client, ALTER TABLE waits for the append, and
/// the appends that have the threads wait for ALTER TABLE.
#[test]
fn a_slow_append_goes_on_where_the_others_wait_for_its_table() {
    let server = server(&[
        ("admission.write_threads", "2"),
        ("limits.body_timeout_ms", "3600000"),
        ("limits.statement_timeout_ms", "3600000"),
    ]);
    let slow = SlowAppend::begin(&server, 10_000);
    wait_for_running(&server, 1);
    let client = server.connect();
    let alter = lockstep_host::spawn("alters", move || {
        let done = client.execute("ALTER TABLE t ADD COLUMN b BIGINT", None);
        done.and_then(|rows| rows.collect()).map(|_| ())
    });
    wait_for_running(&server, 2);
    let appends = [server.connect(), server.connect()].map(|client| {
        let append = move || client.append("t", &[row(20_000)], None).map(|_| ());
        lockstep_host::spawn("appends", append).unwrap()
    });
    // They wait, unless they were before ALTER TABLE.
    let running =
        || server.database.sessions().iter().filter(|info| info.running.is_some()).count();
    while running() + appends.iter().filter(|append| append.is_finished()).count() < 4 {
        lockstep_host::pause(2);
    }
    slow.send(11_000);
    slow.finish();
    alter.unwrap().join().unwrap().unwrap();
    for append in appends {
        // One that waited for ALTER TABLE may find that its table was replaced.
        let _outcome = append.join().unwrap();
    }
    let client = server.connect();
    let stored = rows(&client, "SELECT count(*) AS n FROM t WHERE a = 10000 OR a = 11000");
    assert_eq!(stored, "2");
}

#[test]
fn an_append_whose_rows_do_not_arrive_ends_at_its_limits() {
    for limit in ["limits.body_timeout_ms", "limits.statement_timeout_ms"] {
        let server = server(&[(limit, "300")]);
        let status = SlowAppend::begin(&server, 10_000).fail();
        assert!(status.message().starts_with("[57014]"), "{status}");
        wait_for_running(&server, 0);
        let count = server.database.session().execute("SELECT count(*) AS n FROM t").unwrap();
        assert_eq!(text_of(&count.batches), "4000");
    }
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

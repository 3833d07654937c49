//! The calls over HTTP, against a server that listens: deployments, SQL, tables, health, and its end.

use std::io::Write;

use crate::support::{Client, Request, TestServer, get, post};
use arrow::{
    array::{Array, Float64Array, Int64Array, RecordBatch, StringArray},
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use lockstep_engine::Database;
use lockstep_server::{DrainOutcome, RunningServer, ServerSettings};
use serde_json::json;

const ARROW: &str = "application/vnd.apache.arrow.stream";

/// The table and the deployment of these tests: the sum of a user's last minute.
const SETUP: &str = "
    CREATE TABLE orders (user STRING NOT NULL, price DOUBLE, ts TIMESTAMP, INDEX(KEY=user, TS=ts));
    INSERT INTO orders VALUES ('ann', 0.1, 1000), ('ann', 0.2, 2000), ('bob', 5.0, 3000);
    DEPLOY total AS SELECT user, sum(price) OVER w AS s, count(price) OVER w AS n FROM orders
        WINDOW w AS (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1m PRECEDING AND CURRENT ROW);
    DEPLOY dear AS SELECT user, price FROM orders WHERE price > 10.0;";

const TOTAL: &str = "/v1/deployments/total";

fn server() -> TestServer {
    TestServer::start(&[], SETUP)
}

#[test]
fn a_request_row_is_answered_in_its_own_form() {
    let server = server();
    let mut client = server.connect();
    for (body, answer) in [
        (r#"{"user":"ann","price":0.3,"ts":3000}"#, r#"{"user":"ann","s":0.6,"n":3}"#),
        (r#"["ann",0.3,3000]"#, r#"["ann",0.6,3]"#),
        (
            r#"[{"ts":3000,"user":"bob","price":null,"more":1},{"user":"eve","price":1,"ts":0}]"#,
            r#"[{"user":"bob","s":5.0,"n":1},{"user":"eve","s":1.0,"n":1}]"#,
        ),
        (r#"[["ann","NaN",9999999]]"#, r#"[["ann","NaN",1]]"#),
        (r#"[["ann",1.0,"1970-01-01 00:00:02"]]"#, r#"[["ann",1.3,3]]"#),
        ("[]", "[]"),
    ] {
        let reply = client.send(post(TOTAL, body));
        assert_eq!((reply.status, reply.text()), (200, answer), "{body}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
}

/// The engine answers in the process what the server answers over HTTP, for many values.
#[test]
fn answers_have_the_bits_of_the_engine() {
    let server = server();
    let mut client = server.connect();
    let session = server.database.session();
    let request = session.prepare_request("total").unwrap();
    for step in 0..300_i32 {
        let price = f64::from(step) * 0.1 + 1.0 / f64::from(step + 3);
        let body = serde_json::to_string(&json!(["ann", price, 2_000 + step])).unwrap();
        let arena = lockstep_row::Arena::new();
        let row = [
            lockstep_row::Datum::String("ann"),
            lockstep_row::Datum::Double(price),
            lockstep_row::Datum::Timestamp(2_000 + i64::from(step)),
        ];
        let expected = request.answer(&row, &arena).unwrap().unwrap()[1].as_f64().unwrap();
        let text = client.send(post(TOTAL, &body)).text().to_owned();
        let digits = text.split(',').nth(1).unwrap();
        assert_eq!(digits.parse::<f64>().unwrap(), expected, "{body}: {text}");
    }
}

#[test]
fn a_row_that_a_filter_drops_has_no_answer() {
    let server = server();
    let dear = "/v1/deployments/dear";
    let row = |price: f64| json!({"user": "a", "price": price, "ts": 0});
    assert_eq!(server.send(post(dear, &row(1.0).to_string())).text(), "null");
    let kept = server.send(post(dear, &row(11.0).to_string()));
    assert_eq!(kept.text(), r#"{"user":"a","price":11.0}"#);
    let both = json!([row(1.0), row(11.0)]).to_string();
    assert_eq!(server.send(post(dear, &both)).text(), r#"[{"user":"a","price":11.0}]"#);
}

#[test]
fn answers_have_the_format_that_is_accepted() {
    let server = server();
    let rows = r#"[["ann",0.3,3000],["bob",1.5,3000]]"#;
    let answer = |accept| server.send(post(TOTAL, rows).with(&[("Accept", accept)]));
    let lines = answer("application/x-ndjson");
    assert_eq!(lines.text(), "[\"ann\",0.6,3]\n[\"bob\",6.5,2]\n");
    let csv = answer("text/csv");
    assert_eq!(csv.text(), "user,s,n\r\nann,0.6,3\r\nbob,6.5,2\r\n");
    assert_eq!(csv.header("content-type"), Some("text/csv"));
    let arrow = answer(ARROW);
    let batches: Vec<RecordBatch> =
        StreamReader::try_new(arrow.body.as_slice(), None).unwrap().map(Result::unwrap).collect();
    let sums: &Float64Array = batches[0].column(1).as_any().downcast_ref().unwrap();
    assert_eq!((sums.value(0), sums.value(1)), (0.6, 6.5));
    let one = server.send(post(TOTAL, r#"["bob",1.5,3000]"#).with(&[("Accept", "text/csv")]));
    assert_eq!(one.text(), "user,s,n\r\nbob,6.5,2\r\n");
    assert_eq!(answer("image/png").status, 406);
}

#[test]
fn request_rows_may_be_lines_or_arrow() {
    let server = server();
    let lines =
        "{\"user\":\"bob\",\"price\":1.5,\"ts\":3000}\n\n{\"user\":\"x\",\"price\":2,\"ts\":0}\n";
    let request = post(TOTAL, lines).with(&[("Content-Type", "application/x-ndjson")]);
    let expected = r#"[{"user":"bob","s":6.5,"n":2},{"user":"x","s":2.0,"n":1}]"#;
    assert_eq!(server.send(request).text(), expected);
    let body = arrow_rows(&["bob", "x"], &[1.5, 2.0], &[3_000, 0]);
    let reply = server.send(post(TOTAL, &body).with(&[("Content-Type", ARROW)]));
    assert_eq!(reply.text(), expected);
    let wrong = server.send(post(TOTAL, &body[..40]).with(&[("Content-Type", ARROW)]));
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "22P04"));
    let csv = server.send(post(TOTAL, "user").with(&[("Content-Type", "text/csv")]));
    assert_eq!(csv.status, 400);
    let image = server.send(post(TOTAL, "user").with(&[("Content-Type", "image/png")]));
    assert_eq!(image.status, 415);
}

/// Makes a body of Arrow with rows of the table `orders`; the times are integers.
fn arrow_rows(users: &[&str], prices: &[f64], times: &[i64]) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter([
        ("user", std::sync::Arc::new(StringArray::from(users.to_vec())) as _),
        ("price", std::sync::Arc::new(Float64Array::from(prices.to_vec())) as _),
        ("ts", std::sync::Arc::new(Int64Array::from(times.to_vec())) as std::sync::Arc<dyn Array>),
    ])
    .unwrap();
    let mut body = Vec::new();
    let mut writer = StreamWriter::try_new(&mut body, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    body
}

#[test]
fn errors_say_what_and_where() {
    let server = server();
    for (path, body, status, code) in [
        ("/v1/deployments/totl", "{}", 404, "42704"),
        ("/v1/deployments/total?database=none", "{}", 404, "42704"),
        ("/v1/deployments/SELECT%20user%20FROM%20orders", "{}", 404, "42704"),
        (TOTAL, "{", 400, "22P02"),
        (TOTAL, "{}", 400, "42703"),
        (TOTAL, r#"{"user":null,"price":1,"ts":1}"#, 400, "23502"),
        (TOTAL, r#"{"user":1,"price":1,"ts":1}"#, 400, "42804"),
        (TOTAL, r#"[["a",1]]"#, 400, "42804"),
        ("/v1/deployments/total?durable=1", "{}", 400, "22023"),
        ("/v1/sql", "{}", 400, "22023"),
        ("/v1/sql", r#"{"sql":"SELECT 1","x":1}"#, 400, "22023"),
        ("/v1/sql", r#"{"sql":"SELECT 1","database":"none"}"#, 404, "3D000"),
        ("/v1/sql", r#"{"sql":"SELECT 1","database":"a`b"}"#, 404, "3D000"),
        ("/v1/sql", r#"{"sql":"SELECT ?","parameters":[[1]]}"#, 400, "22023"),
        ("/v1/sql", r#"{"sql":"SELECT * FROM none"}"#, 404, "42P01"),
        ("/v1/tables/none", "{}", 404, "42P01"),
        ("/v1/tables/orders", r#"{"usr":"a"}"#, 400, "42703"),
        ("/v1/tables/orders?durability=x", "{}", 400, "22023"),
    ] {
        let reply = server.send(post(path, body));
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{path} {body}");
    }
    let sql = r#"{"sql":"SELECT pric FROM orders"}"#;
    let reply = server.send(post("/v1/sql", sql).with(&[("X-Request-Id", "mine-1")]));
    let error = &reply.json()["error"];
    assert_eq!(error["code"], "42703");
    assert_eq!(error["position"], json!({"start": 7, "end": 11}));
    assert_eq!(error["hint"], "Did you mean `price`?");
    assert_eq!(error["request_id"], "mine-1");
    assert_eq!(reply.header("x-request-id"), Some("mine-1"));
}

#[test]
fn what_a_call_does_not_take_is_refused() {
    let server = server();
    let sql = r#"{"sql": "SELECT 1 AS a"}"#;
    for path in ["/v1/sql?durability=bogus", "/v1/sql?durability=disk"] {
        let reply = server.send(post(path, sql));
        assert_eq!((reply.status, reply.code().as_str()), (400, "22023"), "{path}");
    }
    let reply = server.send(post("/v1/deployments/total?durability=bogus", "[]"));
    assert_eq!((reply.status, reply.code().as_str()), (400, "22023"));
    for (body, message) in [
        ("[]", "invalid request body: not a JSON object"),
        (r#"["SELECT 1 AS a"]"#, "invalid request body: not a JSON object"),
        (" ", "invalid request body: the body is empty"),
    ] {
        let reply = server.send(post("/v1/sql", body));
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.json()["error"]["message"], message, "{body}");
    }
    for path in ["/v1/sql", "/v1/deployments/total", "/v1/tables/orders"] {
        let compressed = post(path, b"\x1f\x8b");
        let reply = server.send(compressed.with(&[("Content-Encoding", "gzip")]));
        assert_eq!(reply.status, 415, "{path}: {}", reply.text());
        let plain = [("Content-Encoding", "identity")];
        assert_ne!(server.send(post(path, sql).with(&plain)).status, 415, "{path}");
    }
}

#[test]
fn a_replaced_deployment_answers_and_a_dropped_one_does_not() {
    let server = server();
    let mut client = server.connect();
    let row = r#"["bob",1.5,3000]"#;
    assert_eq!(client.send(post(TOTAL, row)).text(), r#"["bob",6.5,2]"#);
    let session = server.database.session();
    session.execute("DROP DEPLOYMENT total").unwrap();
    assert_eq!(client.send(post(TOTAL, row)).status, 404);
    session.execute("DEPLOY total AS SELECT price FROM orders").unwrap();
    assert_eq!(client.send(post(TOTAL, row)).text(), "[1.5]");
}

#[test]
fn sql_returns_rows_of_the_last_statement() {
    let server = server();
    let sql = |body: serde_json::Value| server.send(post("/v1/sql", &body.to_string())).json();
    let found = sql(json!({
        "sql": "SELECT user, price, ts FROM orders WHERE user = ? AND price > ?",
        "parameters": ["ann", 0.15],
    }));
    assert_eq!(found["rows"], json!([["ann", 0.2, 2_000]]));
    let columns = json!([{"name": "user", "type": "STRING"}, {"name": "price", "type": "DOUBLE"},
        {"name": "ts", "type": "TIMESTAMP"}]);
    assert_eq!((&found["columns"], &found["row_count"]), (&columns, &json!(1)));
    let written = sql(json!({"sql": "INSERT INTO orders VALUES ('eve', 1.0, 1)"}));
    assert_eq!((&written["rows_affected"], &written["rows"]), (&json!(1), &json!([])));
    let several = sql(json!({"sql": "CREATE DATABASE other; USE other;
        CREATE TABLE t (d DATE, f FLOAT, b BIGINT);
        INSERT INTO t VALUES ('2020-05-01', 1.1, 9007199254740993);"}));
    assert_eq!(several["message"], "INSERT");
    let other = sql(json!({"sql": "SELECT * FROM t", "database": "other"}));
    assert_eq!(other["rows"].to_string(), r#"[["2020-05-01",1.1,9007199254740993]]"#);
    let body = json!({"sql": "SELECT user, price FROM orders ORDER BY ts LIMIT 2"}).to_string();
    let csv = server.send(post("/v1/sql", &body).with(&[("Accept", "text/csv")]));
    assert_eq!(csv.text(), "user,price\r\neve,1.0\r\nann,0.1\r\n");
    let lines = server.send(post("/v1/sql", &body).with(&[("Accept", "application/x-ndjson")]));
    assert_eq!(
        lines.text(),
        "{\"user\":\"eve\",\"price\":1.0}\n{\"user\":\"ann\",\"price\":0.1}\n"
    );
    let arrow = server.send(post("/v1/sql", &body).with(&[("Accept", ARROW)]));
    let rows: usize = StreamReader::try_new(arrow.body.as_slice(), None)
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(rows, 2);
}

#[test]
fn rows_are_appended_in_every_format() {
    let server = server();
    let table = "/v1/tables/orders";
    let append = |body: &[u8], content_type| {
        let headers = [("Content-Type", content_type)];
        let reply = server.send(post(table, body).with(&headers));
        (reply.status, reply.json()["rows"].as_u64())
    };
    let json = br#"[{"user":"x","price":1.5,"ts":1},{"user":"x","ts":2}]"#;
    assert_eq!(append(json, "application/json"), (200, Some(2)));
    assert_eq!(append(br#"["x",0.25,3]"#, "application/json"), (200, Some(1)));
    let lines = b"{\"user\":\"x\",\"price\":4,\"ts\":4}\n[\"x\",5,5]\n";
    assert_eq!(append(lines, "application/x-ndjson"), (200, Some(2)));
    let csv = b"ts,user,price\n6,x,6.5\n1970-01-01T00:00:00.007Z,\"x\",\n";
    assert_eq!(append(csv, "text/csv"), (200, Some(2)));
    assert_eq!(append(&arrow_rows(&["x"], &[8.0], &[8]), ARROW), (200, Some(1)));
    let sql = json!({"sql": "SELECT price, ts FROM orders WHERE user = 'x' ORDER BY ts"});
    let rows = server.send(post("/v1/sql", &sql.to_string())).json()["rows"].to_string();
    assert_eq!(rows, "[[1.5,1],[null,2],[0.25,3],[4.0,4],[5.0,5],[6.5,6],[null,7],[8.0,8]]");
    for wrong in [&b"user,price\nx,1\nx,one\n"[..], b"user,usr\n", b"user,user\n", b"user\nx,1\n"] {
        assert_eq!(append(wrong, "text/csv"), (400, None));
    }
    let all_or_none = br#"[{"user":"y","price":1,"ts":1},{"user":null,"price":1,"ts":1}]"#;
    assert_eq!(append(all_or_none, "application/json").0, 400);
    let sql = json!({"sql": "SELECT * FROM orders WHERE user = 'y'"});
    assert_eq!(server.send(post("/v1/sql", &sql.to_string())).json()["row_count"], 0);
}

#[test]
fn csv_of_an_append_is_read_as_that_of_a_file() {
    let server = server();
    server
        .database
        .session()
        .execute("CREATE TABLE c (id INT, t STRING, v DOUBLE, f FLOAT)")
        .unwrap();
    let append = |body: &str, content_type| {
        let headers = [("Content-Type", content_type)];
        let reply = server.send(post("/v1/tables/c", body).with(&headers));
        (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let csv = "\u{feff}id,\"t\", v\r\n1,,0.5\r\n\r\n2,\"\",\"\"\r\n3,\"a\n\"\"b\"\"\", 1e3 \r\n4,null,\r\n";
    assert_eq!(append(csv, "text/csv").0, 200);
    assert_eq!(append("\u{feff}{\"id\":5}\n{\"id\":6}\n", "application/x-ndjson").0, 200);
    assert_eq!(append("\u{feff}[{\"id\":7}]", "application/json").0, 200);
    let sql = json!({"sql": "SELECT id, t, v FROM c ORDER BY id"}).to_string();
    let rows = server.send(post("/v1/sql", &sql)).json()["rows"].to_string();
    let expected = "[[1,null,0.5],[2,\"\",null],[3,\"a\\n\\\"b\\\"\",1000.0],[4,\"null\",null],\
                    [5,null,null],[6,null,null],[7,null,null]]";
    assert_eq!(rows, expected);
    for (body, message) in [
        ("id,v\n1,1e400\n", "column `v`: invalid input syntax for type DOUBLE: '1e400'"),
        ("id,f\n1,3e39\n", "column `f`: invalid input syntax for type FLOAT: '3e39'"),
        ("id,t\n1,\"a\n", "line 2 of the body: unterminated quoted field"),
        (
            "id,t\n1,\"a\"b\n",
            "line 2 of the body: unexpected text after the closing quote of a field",
        ),
        ("id,t\n1\n", "line 2 of the body: expected 2 fields, found 1"),
        ("\n\n", "line 1 of the body: missing header"),
    ] {
        assert_eq!(append(body, "text/csv"), (400, message.to_owned()), "{body}");
    }
    let wide = append("{\"id\":1,\"v\":-1e400}", "application/json");
    assert_eq!(
        wide,
        (400, "column `v`: value -1e400 cannot be represented in type DOUBLE".to_owned())
    );
    for (body, message) in [
        (&b"id,t\n1,\xf6\n"[..], "line 2 of the body: column `t`: the value is not valid UTF-8"),
        (b"id,\xf6\n1,2\n", "line 1 of the body: the header is not valid CSV in UTF-8"),
    ] {
        let csv = post("/v1/tables/c", body);
        assert_eq!(
            server.send(csv.with(&[("Content-Type", "text/csv")])).json()["error"]["message"],
            message
        );
    }
    for (number, data_type) in [("18446744073709551615", "BIGINT"), ("1e400", "DOUBLE")] {
        let sql = format!("{{\"sql\":\"SELECT ? AS x\",\"parameters\":[{number}]}}");
        let message = format!("parameter value {number} is out of range for type {data_type}");
        assert_eq!(server.send(post("/v1/sql", &sql)).json()["error"]["message"], message);
    }
}

#[test]
fn rows_are_in_the_directory_after_the_server_has_ended() {
    let path = std::env::temp_dir().join(format!("lockstep-server-{}", std::process::id()));
    let database = Database::open(&path).unwrap();
    database.session().execute("CREATE TABLE t (k STRING, v INT)").unwrap();
    let server = TestServer::of(database, &[]);
    for durability in ["memory", "os", "disk"] {
        let table = format!("/v1/tables/t?durability={durability}");
        assert_eq!(server.send(post(&table, r#"{"k":"a","v":1}"#)).status, 200);
    }
    server.handle.drain();
    assert_eq!(server.wait(), DrainOutcome::Finished);
    let again = Database::open(&path).unwrap();
    assert_eq!(again.session().execute("SELECT * FROM t").unwrap().row_count(), 3);
    drop(again);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn monitors_are_answered() {
    let server = server();
    assert_eq!(server.send(get("/healthz")).text(), "ok\n");
    assert_eq!(server.send(get("/readyz")).text(), "ready\n");
    server.send(post(TOTAL, r#"["bob",1.5,3000]"#));
    server.send(post(TOTAL, "{}"));
    let metrics = server.send(get("/metrics"));
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for expected in [
        "lockstep_deployment_seconds_count{deployment=\"total\",phase=\"answer\"} 1\n",
        "lockstep_deployment_rows_total{deployment=\"total\"} 1\n",
        "lockstep_deployment_errors_total{deployment=\"total\"} 1\n",
        "lockstep_http_responses_total{status=\"4xx\"} 1\n",
        "lockstep_connections ",
        "lockstep_table_rows{table=\"default.orders\"} 3\n",
        "lockstep_table_bytes{table=\"default.orders\"} ",
        "lockstep_index_bytes{table=\"default.orders\",index=\"",
        "lockstep_calls_in_progress{class=\"analytics\"} 0\n",
    ] {
        assert!(metrics.text().contains(expected), "{expected}: {}", metrics.text());
    }
    assert_eq!(server.send(get("/nothing")).status, 404);
    let wrong = server.send(get(TOTAL));
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
}

#[test]
fn a_server_that_drains_says_so_and_finishes() {
    let server = TestServer::start(&[("server.drain_delay_ms", "3600000")], SETUP);
    let mut client = server.connect();
    assert_eq!(client.send(get("/readyz")).status, 200);
    assert!(server.handle.drain());
    assert!(!server.handle.drain());
    assert_eq!(client.send(get("/readyz")).text(), "draining\n");
    assert_eq!(server.send(post(TOTAL, r#"["bob",1.5,3000]"#)).status, 200);
    // The second signal: nobody waits for the connection that is open.
    server.handle.stop();
    let address = server.address;
    assert_eq!(server.wait(), DrainOutcome::Finished);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_server_that_drains_waits_for_the_body_of_a_call() {
    let server = server();
    let mut client = server.connect();
    let row = post(TOTAL, r#"["bob",1.5,3000]"#).with(&[("Expect", "100-continue")]).bytes();
    let (head, body) = row.split_at(row.len() - 5);
    client.stream.get_mut().write_all(head).unwrap();
    // The server waits for the body.
    assert_eq!(client.reply().unwrap().status, 100);
    server.handle.drain();
    client.stream.get_mut().write_all(body).unwrap();
    assert_eq!(client.reply().unwrap().text(), r#"["bob",6.5,2]"#);
    assert!(client.is_closed());
    assert_eq!(server.wait(), DrainOutcome::Finished);
}

#[test]
fn a_web_page_of_another_site_is_refused() {
    let server = server();
    let page = [("Origin", "http://evil.example"), ("Content-Type", "text/plain")];
    let reply = server.send(post("/v1/sql", r#"{"sql":"DROP DEPLOYMENT total"}"#).with(&page));
    assert_eq!(reply.status, 403);
    assert_eq!(server.send(post(TOTAL, r#"["bob",1.5,3000]"#)).status, 200);
    // The host of a request of HTTP/2 is `:authority`, not `Host`.
    let url = format!("http://localhost:{}{TOTAL}", server.address.port());
    for (origin, expected) in
        [("http://evil.example", false), (url.strip_suffix(TOTAL).unwrap(), true)]
    {
        let header = format!("Origin: {origin}");
        let body = r#"["bob",1.5,3000]"#;
        let arguments = ["-s", "-4", "--http2-prior-knowledge", "-H", &header, "-d", body, &url];
        let Ok(output) = std::process::Command::new("curl").args(arguments).output() else {
            println!("curl is not installed: skipped");
            return;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text == r#"["bob",6.5,2]"#, expected, "{origin}: {text}");
    }
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let mut settings = ServerSettings::default();
    settings.set("http.listen", "0.0.0.0:0").unwrap();
    settings.set("postgres.listen", "off").unwrap();
    let error = RunningServer::start(Database::in_memory(), settings).unwrap_err();
    assert!(error.to_string().contains("TLS (tls.certificate and tls.key)"), "{error}");
    let mut settings = ServerSettings::default();
    settings.set("http.listen", "127.0.0.1:0").unwrap();
    settings.set("postgres.listen", "off").unwrap();
    settings.set("flight.listen", "0.0.0.0:0").unwrap();
    let error = RunningServer::start(Database::in_memory(), settings).unwrap_err();
    let expected = "flight.listen 0.0.0.0:0 can be reached from other machines";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn an_address_in_use_is_named() {
    let server = server();
    let mut settings = ServerSettings::default();
    settings.set("http.listen", &server.address.to_string()).unwrap();
    settings.set("postgres.listen", "off").unwrap();
    let error = RunningServer::start(Database::in_memory(), settings).unwrap_err();
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
}

/// Connects with TLS, trusting the certificate of the tests and nothing else.
fn connect_with_tls(server: &TestServer) -> Client<impl std::io::Read + Write> {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    let certificate = include_bytes!("certificate/certificate.pem");
    roots.add(CertificateDer::from_pem_slice(certificate).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let stream = std::net::TcpStream::connect(server.address).unwrap();
    Client::new(rustls::StreamOwned::new(connection, stream))
}

#[test]
fn a_connection_is_encrypted_where_there_is_a_certificate() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/certificate");
    let (certificate, key) = (format!("{folder}/certificate.pem"), format!("{folder}/key.pem"));
    let settings = [("tls.certificate", certificate.as_str()), ("tls.key", key.as_str())];
    let public = || {
        let mut public = ServerSettings::default();
        public.set("http.listen", "0.0.0.0:0").unwrap();
        public.set("postgres.listen", "off").unwrap();
        public.set("flight.listen", "off").unwrap();
        settings.iter().for_each(|(key, value)| public.set(key, value).unwrap());
        public
    };
    let database = Database::in_memory();
    let error = RunningServer::start(database.clone(), public()).unwrap_err();
    assert!(error.to_string().contains("a user who can log in"), "{error}");
    database.session().execute("CREATE USER ann OPTIONS(password='secret')").unwrap();
    let served = RunningServer::start(database, public()).unwrap();
    assert!(!served.http_address().ip().is_loopback());
    served.handle().stop();
    served.wait();
    let server = TestServer::start(&settings, SETUP);
    let mut client = connect_with_tls(&server);
    let reply = client.send(post(TOTAL, r#"["bob",1.5,3000]"#));
    assert_eq!(reply.text(), r#"["bob",6.5,2]"#);
    let mut plain = server.connect();
    plain.stream.get_mut().write_all(&get("/healthz").bytes()).unwrap();
    assert!(plain.reply().is_none_or(|reply| reply.status != 200));
    // A reload that fails changes nothing, one without TLS is refused.
    let mut broken = ServerSettings::default();
    broken.set("tls.certificate", "/nowhere.pem").unwrap();
    broken.set("tls.key", &key).unwrap();
    assert!(server.handle.reload(broken).unwrap_err().contains("/nowhere.pem"));
    assert!(server.handle.reload(ServerSettings::default()).is_err());
    let mut same = ServerSettings::default();
    same.set("tls.certificate", &certificate).unwrap();
    same.set("tls.key", &key).unwrap();
    same.set("server.authentication", "none").unwrap();
    let fixed = vec!["http.listen", "postgres.listen", "flight.listen"];
    assert_eq!(server.handle.reload(same), Ok(fixed));
    assert_eq!(connect_with_tls(&server).send(get("/healthz")).status, 200);
}

/// curl is another implementation, and speaks HTTP/2. Without it the test has nothing to do.
#[test]
fn curl_calls_over_both_versions_of_http() {
    let server = server();
    let url = format!("http://{}{TOTAL}", server.address);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let body = r#"{"user":"bob","price":1.5,"ts":3000}"#;
        let arguments = ["-s", version, "-d", body, &url];
        let Ok(output) = std::process::Command::new("curl").args(arguments).output() else {
            println!("curl is not installed: skipped");
            return;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, r#"{"user":"bob","s":6.5,"n":2}"#, "{version}");
    }
}

/// An answer over HTTP/2 is given out in parts.
#[test]
fn large_answers_are_the_same_over_both_versions_of_http() {
    let server = server();
    let values: Vec<String> = (0..20_000).map(|at| format!("('u{at}', {at}.5, {at})")).collect();
    let session = server.database.session();
    session.execute(&format!("INSERT INTO orders VALUES {}", values.join(","))).unwrap();
    let url = format!("http://{}/v1/sql", server.address);
    let body = json!({"sql": "SELECT * FROM orders ORDER BY ts"}).to_string();
    let expected = server.send(post("/v1/sql", &body)).body;
    assert!(expected.len() > 400_000, "{}", expected.len());
    let arguments = ["-s", "--http2-prior-knowledge", "-d", &body, &url];
    let Ok(output) = std::process::Command::new("curl").args(arguments).output() else {
        println!("curl is not installed: skipped");
        return;
    };
    assert!(output.stdout == expected, "{} bytes", output.stdout.len());
}

#[test]
fn requests_follow_each_other_on_a_connection() {
    let server = server();
    let mut client = server.connect();
    let request =
        Request { method: "POST", path: TOTAL, headers: &[], body: br#"["bob",1.5,3000]"# };
    let pipelined = [request.bytes(), request.bytes(), get("/healthz").bytes()].concat();
    client.stream.get_mut().write_all(&pipelined).unwrap();
    for expected in [r#"["bob",6.5,2]"#, r#"["bob",6.5,2]"#, "ok\n"] {
        assert_eq!(client.reply().unwrap().text(), expected);
    }
}

#[test]
fn rows_are_sent_as_they_are_appended() {
    let setup = "CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (1, 'x')";
    let server = TestServer::start(&[], setup);
    let mut client = server.connect();
    let head = client.begin(get("/v1/subscriptions/t?start=earliest"));
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    let mut event = || String::from_utf8(client.chunk().unwrap()).unwrap();
    assert_eq!(event(), ": subscribed\n\n");
    let first = event();
    assert!(first.ends_with("event: rows\ndata: [{\"a\":1,\"b\":\"x\"}]\n\n"), "{first}");
    let session = server.database.session();
    session.execute("INSERT INTO t VALUES (2, NULL), (3, 'z')").unwrap();
    let second = event();
    assert!(second.contains("[{\"a\":2,\"b\":null},{\"a\":3,\"b\":\"z\"}]"), "{second}");
    // Another call goes on behind the first event.
    let id = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let headers = [("Last-Event-ID", id)];
    let again = server.send(get("/v1/subscriptions/t?timeout_ms=50").with(&headers));
    assert_eq!(again.text().matches("event: rows").count(), 1, "{again:?}");
    assert!(again.text().contains("\"a\":2"), "{again:?}");
    session.execute("DROP TABLE t").unwrap();
    assert!(event().starts_with("event: error\ndata: {"));
    let missing = server.send(get("/v1/subscriptions/t"));
    assert_eq!((missing.status, missing.code().as_str()), (404, "42P01"));
}

//! What a client can ask: statements, rows in and out, requests, deployments.

use std::{
    io::{Read, Write},
    slice::from_ref,
};

use lockstep_client::TrainingSet;
use lockstep_engine::{Database, TrainingSetOptions};

use crate::support::{TestServer, row_of, rows, text_of};

const SETUP: &str = "
    CREATE TABLE t (k STRING, v INT, ts TIMESTAMP);
    INSERT INTO t VALUES ('a', 1, 1000), ('a', 2, 2000), ('b', 5, 3000);
    DEPLOY total AS SELECT k, sum(v) OVER w AS s, count(v) OVER w AS n FROM t
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 10 PRECEDING AND CURRENT ROW);
";

#[test]
fn a_statement_returns_what_it_returns_in_the_process() {
    let server = TestServer::start(&[], SETUP);
    let client = server.connect();
    let session = server.database.session();
    for sql in [
        "SELECT * FROM t ORDER BY v",
        "SELECT 1 AS a, 2 AS a, 'x' AS b",
        "SELECT v FROM t WHERE v > 100",
        "SELECT cast(NULL AS INT) AS n, 1.5 AS d, true AS b, date('2020-05-01') AS day",
        "SHOW TABLES",
        "DESC t",
        "CREATE TABLE u (a INT)",
        "INSERT INTO u VALUES (1), (2)",
        "DELETE FROM u WHERE a = 1",
        "DROP TABLE u",
        "SELECT split('a,b', ',') AS items",
    ] {
        let here = session.execute(sql).unwrap();
        // What changes something is run once on each side.
        let undo = match sql {
            "CREATE TABLE u (a INT)" => Some("DROP TABLE u"),
            "INSERT INTO u VALUES (1), (2)" => Some("DELETE FROM u WHERE a > 0"),
            "DELETE FROM u WHERE a = 1" => Some("INSERT INTO u VALUES (1)"),
            "DROP TABLE u" => Some("CREATE TABLE u (a INT)"),
            _ => None,
        };
        undo.into_iter().for_each(|undo| drop(session.execute(undo).unwrap()));
        let there = client.execute(sql, None).unwrap().collect().unwrap();
        let names: Vec<String> = here.columns.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(there.names, names, "{sql}");
        assert_eq!(there.rows_affected, here.rows_affected, "{sql}");
        assert_eq!(there.message, here.message, "{sql}");
        let types = |schema: &arrow::datatypes::Schema| -> Vec<_> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        assert_eq!(types(&there.schema), types(&here.schema()), "{sql}");
        let of = |batches: &[arrow::array::RecordBatch]| {
            let columns = batches.iter().map(|batch| format!("{:?}", batch.columns()));
            columns.collect::<Vec<_>>()
        };
        assert_eq!(of(&there.batches), of(&here.batches), "{sql}");
    }
}

#[test]
fn an_error_is_the_diagnostic_of_the_engine() {
    let server = TestServer::start(&[], SETUP);
    let client = server.connect();
    let session = server.database.session();
    for sql in [
        "SELECT nothing FROM t",
        "SELECT v FROM tt",
        "SELEC 1",
        "SELECT 1; SELECT 'é', w FROM t",
        "CREATE TABLE t (a INT)",
        "INSERT INTO t VALUES ('x')",
        "SELECT cast('x' AS INT) FROM missing.t",
        "USE nowhere",
        "",
    ] {
        let here = session.execute(sql).map(|_| ());
        let there = client.execute(sql, None).and_then(|rows| rows.collect()).map(|_| ());
        assert_eq!(there, here, "{sql}");
    }
    let here = session.query("CREATE TABLE u (a INT)").map(|_| ());
    assert_eq!(client.query("CREATE TABLE u (a INT)", None).map(|_| ()), here);
    assert_eq!(
        client.describe("SELECT x", None).unwrap_err(),
        session.query("SELECT x").unwrap_err()
    );
}

#[test]
fn parameters_have_the_types_of_their_columns() {
    let server = TestServer::start(&[], SETUP);
    let client = server.connect();
    let sql = "SELECT k, v FROM t WHERE k = ? AND v > ?";
    let row = row_of("SELECT 'a' AS p1, 1 AS p2");
    let found = client.query(sql, Some(&row)).unwrap().collect().unwrap();
    assert_eq!(text_of(&found.batches), "a 2");
    let columns = client.describe(sql, Some(&row)).unwrap();
    assert_eq!(columns.names, ["k", "v"]);
    let error = client.query(sql, None).unwrap_err();
    assert_eq!(error.code, "22023");
    let insert = client.execute("INSERT INTO t VALUES (?, ?, 9000)", Some(&row)).unwrap();
    assert_eq!(insert.collect().unwrap().rows_affected, Some(1));
    assert_eq!(rows(&client, "SELECT v FROM t WHERE ts = timestamp(9000)"), "1");
}

#[test]
fn a_session_lasts_from_call_to_call_and_is_its_own() {
    let server = TestServer::start(&[], "CREATE DATABASE shop; CREATE TABLE shop.s (a INT)");
    let (client, other) = (server.connect(), server.connect());
    assert_eq!(client.session().database, "default");
    rows(&client, "USE shop");
    rows(&client, "SET time_zone = '+08:00'");
    assert_eq!(rows(&client, "SELECT * FROM s"), "");
    assert_eq!(
        (client.session().database.as_str(), client.session().time_zone.as_str()),
        ("shop", "+08:00")
    );
    assert_eq!(other.execute("SELECT * FROM s", None).unwrap_err().code, "42P01");
    assert_eq!(other.session().time_zone, "UTC");
    let named = lockstep_client::RemoteClient::connect(&server.url("", "/shop")).unwrap();
    assert_eq!(rows(&named, "SELECT * FROM s"), "");
    let missing = lockstep_client::RemoteClient::connect(&server.url("", "/none")).unwrap_err();
    assert_eq!(missing.code, "3D000");
}

#[test]
fn rows_are_appended_all_or_none() {
    let server = TestServer::start(&[], "CREATE TABLE t (a INT, b STRING); CREATE TABLE u (a INT)");
    let client = server.connect();
    let batch = row_of("SELECT 1 AS a, 'x' AS b");
    let many = vec![batch.clone(); 1_000];
    let appended = client.append("t", &many, Some("memory")).unwrap();
    assert_eq!((appended.rows, appended.warnings.len()), (1_000, 0));
    assert_eq!(client.append("t", &[], None).unwrap().rows, 0);
    let stray = row_of("SELECT 1 AS a, 2 AS c");
    let error = client.append("t", &[batch.clone(), stray.clone()], None).unwrap_err();
    assert_eq!(error.code, "42703", "{error:?}");
    assert_eq!(client.append("t", &[stray], None).unwrap_err().code, "42703");
    assert_eq!(client.append("t", from_ref(&batch), Some("soon")).unwrap_err().code, "22023");
    assert_eq!(client.append("none", from_ref(&batch), None).unwrap_err().code, "42P01");
    let wrong = row_of("SELECT 'x' AS a");
    let both = client.append_tables(&[("t", from_ref(&batch)), ("u", &[wrong])], None);
    assert_eq!(both.unwrap_err().code, "42804");
    assert_eq!(rows(&client, "SELECT count(*) AS n FROM t"), "1000");
    let number = row_of("SELECT 7 AS a");
    let both = client.append_tables(&[("t", &[batch]), ("u", &[number.clone(), number])], None);
    assert_eq!(both.unwrap().rows, 3);
    assert_eq!(rows(&client, "SELECT count(*) AS n FROM u"), "2");
}

#[test]
fn rows_of_several_tables_that_are_too_large_are_refused() {
    let setup = "CREATE TABLE t (a STRING); CREATE TABLE u (a STRING)";
    let server = TestServer::start(&[("limits.body_bytes_max", "100000")], setup);
    let client = server.connect();
    let batch = row_of(&format!("SELECT '{}' AS a", "x".repeat(10_000)));
    let many = vec![batch; 100];
    let both = client.append_tables(&[("t", &many), ("u", &many)], None);
    assert_eq!(both.unwrap_err().code, "54000");
    // Those of one table are not collected.
    assert_eq!(client.append("t", &many, None).unwrap().rows, 100);
}

#[test]
fn request_rows_are_answered_as_in_the_process() {
    let server = TestServer::start(&[], SETUP);
    let client = server.connect();
    let row = row_of("SELECT 'a' AS k, 7 AS v, timestamp(9000) AS ts");
    let target = "SELECT k, v FROM t WHERE v > 3";
    for (name, expected) in [("total", "a 10 3"), (target, "a 7")] {
        let answers = client.request(name, from_ref(&row)).unwrap();
        assert_eq!(text_of(&answers.batches), expected, "{name}");
    }
    let dropped = row_of("SELECT 'a' AS k, 1 AS v, timestamp(9000) AS ts");
    assert_eq!(text_of(&client.request(target, &[dropped]).unwrap().batches), "");
    let request = client.prepare_request("total").unwrap();
    assert_eq!(request.input().names, ["k", "v", "ts"]);
    assert_eq!(request.output().names, ["k", "s", "n"]);
    let answers = request.answer(&[row.clone(), row.clone()]).unwrap();
    assert_eq!(text_of(&answers.batches), "a 10 3; a 10 3");
    let info = client.deployment("total").unwrap();
    assert_eq!((info.name.as_str(), info.database.as_str()), ("total", "default"));
    assert!(info.sql.contains("sum(v)"), "{info:?}");
    assert_eq!(client.deployment("none").unwrap_err().code, "42704");
    // A request belongs to the definition of its time.
    rows(&client, "DROP DEPLOYMENT total");
    assert_eq!(request.answer(&[row]).unwrap_err().code, "55000");
}

#[test]
fn a_request_of_one_row_waits_in_no_queue() {
    let server = TestServer::start(
        &[("admission.request_threads", "1"), ("admission.request_queue", "1")],
        SETUP,
    );
    let row = row_of("SELECT 'a' AS k, 7 AS v, timestamp(9000) AS ts");
    let clients = (0..16).map(|_| {
        let (client, row) = (server.connect(), row.clone());
        let body = move || {
            let prepared = client.prepare_request("total").unwrap();
            for _ in 0..50 {
                let answers = client.request("total", from_ref(&row)).unwrap();
                assert_eq!(text_of(&answers.batches), "a 10 3");
                assert_eq!(answers.names, ["k", "s", "n"]);
                let answers = prepared.answer(from_ref(&row)).unwrap();
                assert_eq!(text_of(&answers.batches), "a 10 3");
            }
        };
        lockstep_host::spawn("client", body).unwrap()
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn a_request_by_name_is_for_the_newest_deployment_and_has_its_schema() {
    let server = TestServer::start(&[], SETUP);
    let (client, session) = (server.connect(), server.database.session());
    let row = row_of("SELECT 'a' AS k, 7 AS v, timestamp(9000) AS ts");
    let prepared = client.prepare_request("total").unwrap();
    for (query, expected, names) in [
        ("SELECT v, k AS v FROM t", "7 a", ["v", "v"]),
        ("SELECT k, double(v) AS d FROM t", "a 7.0", ["k", "d"]),
    ] {
        session.execute(&format!("DEPLOY OR REPLACE total AS {query}")).unwrap();
        for _ in 0..2 {
            let answers = client.request("total", from_ref(&row)).unwrap();
            assert_eq!(
                (text_of(&answers.batches).as_str(), answers.names),
                (expected, names.map(str::to_owned).into())
            );
        }
    }
    let stale = prepared.answer(from_ref(&row)).unwrap_err();
    assert_eq!(stale.code, lockstep_diagnostic::code::STALE_DEFINITION);
    session.execute("DROP DEPLOYMENT total").unwrap();
    let missing = client.request("total", from_ref(&row)).unwrap_err();
    assert_eq!(missing.code, lockstep_diagnostic::code::UNDEFINED_OBJECT);
}

#[test]
fn a_training_set_is_that_of_the_process() {
    let server = TestServer::start(&[], SETUP);
    let (client, session) = (server.connect(), server.database.session());
    session
        .execute(
            "CREATE TABLE labels (v INT, k STRING, ts TIMESTAMP);
             INSERT INTO labels VALUES (4, 'a', 2500), (5, 'b', 500);
             INSERT INTO t VALUES ('a', 9, 500);
             DEPLOY signed AS SELECT binary_label(v > 1) AS late, discrete(k, 8) AS k, v FROM t",
        )
        .unwrap();
    let label = || Some("labels".to_owned());
    for (deployment, main_table, as_known) in [
        ("total", None, false),
        ("total", None, true),
        ("total", label(), true),
        ("signed", None, false),
    ] {
        let options = TrainingSetOptions { main_table: main_table.clone(), as_known };
        let here = session.training_set(deployment, &options).unwrap();
        let set = TrainingSet { deployment: deployment.to_owned(), main_table, as_known };
        let columns = client.describe_training_set(&set).unwrap();
        let names: Vec<String> = here.columns().iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(columns.names, names);
        let roles = match deployment {
            "signed" => vec!["feature[label]", "feature[discrete 8]", ""],
            _ => Vec::new(),
        };
        assert_eq!(columns.roles, roles);
        let there = client.training_set(&set).unwrap().collect().unwrap();
        assert_eq!((there.schema, there.names), (columns.schema, columns.names));
        let expected = text_of(&here.collect(None).unwrap().batches);
        assert!(!expected.is_empty());
        assert_eq!(text_of(&there.batches), expected);
    }
    let set = TrainingSet { deployment: "total".to_owned(), main_table: label(), as_known: false };
    let refused = client.describe_training_set(&set).unwrap_err();
    assert_eq!(refused.code, lockstep_diagnostic::code::FEATURE_NOT_SUPPORTED);
    let refused = client.training_set(&set).unwrap_err();
    assert_eq!(refused.code, lockstep_diagnostic::code::FEATURE_NOT_SUPPORTED);
}

#[test]
fn a_deployment_is_verified_over_the_wire() {
    let server = TestServer::start(&[], SETUP);
    let client = server.connect();
    let here = server.database.session().verify("total").unwrap();
    let mut fractions = Vec::new();
    let there =
        client.verify("total", None, Some(&mut |fraction| fractions.push(fraction))).unwrap();
    assert_eq!((there.requests, there.values), (here.requests, here.values));
    assert_eq!((there.differing, there.differences.len()), (0, 0));
    assert!(fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction)), "{fractions:?}");
    assert_eq!(client.verify("none", None, None).unwrap_err().code, "42704");
}

#[test]
fn columns_tables_and_words() {
    let server = TestServer::start(&[], SETUP);
    let client = server.connect();
    assert_eq!(client.table_columns("t").unwrap().names, ["k", "v", "ts"]);
    assert_eq!(client.table_columns("none").unwrap_err().code, "42P01");
    let batch = row_of("SELECT 1 AS a, 'x' AS b");
    client.create_table("made", &batch.schema()).unwrap();
    assert_eq!(client.table_columns("made").unwrap().names, ["a", "b"]);
    assert_eq!(client.create_table("made", &batch.schema()).unwrap_err().code, "42P07");
    let words = client.complete("mad").unwrap();
    assert_eq!(words, Database::clone(&server.database).session().complete("mad"));
}

#[test]
fn a_large_result_arrives_batch_by_batch() {
    let server = TestServer::start(&[], "CREATE TABLE t (a BIGINT)");
    let client = server.connect();
    let one = row_of("SELECT cast(1 AS BIGINT) AS a");
    let schema = one.schema();
    let batch = arrow::compute::concat_batches(&schema, &vec![one; 10_000]).unwrap();
    client.append("t", &vec![batch; 30], None).unwrap();
    let mut result = client.query("SELECT a FROM t", None).unwrap();
    let (mut batches, mut count) = (0, 0);
    while let Some(batch) = result.next_batch().unwrap() {
        batches += 1;
        count += batch.num_rows();
    }
    assert_eq!(count, 300_000);
    assert!(batches > 10, "{batches}");
    assert_eq!(result.collect().unwrap().names, ["a"]);
    let server = TestServer::start(&[("limits.answer_rows_max", "2")], "CREATE TABLE t (a INT)");
    let client = server.connect();
    client.append("t", &vec![row_of("SELECT 1 AS a"); 3], None).unwrap();
    let refused = client.query("SELECT a FROM t", None).and_then(|rows| rows.collect());
    assert_eq!(refused.unwrap_err().code, "54000");
}

/// Reads the figures of a server over HTTP.
fn figures(server: &TestServer) -> String {
    let mut stream = std::net::TcpStream::connect(server.http).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn calls_of_a_deployment_are_counted() {
    let setup = "CREATE TABLE t (k STRING, v BIGINT); DEPLOY d AS SELECT k, v + 1 AS w FROM t";
    let server = TestServer::start(&[], setup);
    let client = server.connect();
    let row = row_of("SELECT 'a' AS k, bigint(1) AS v");
    let rows = [row.clone(), row];
    client.request("d", &rows).unwrap();
    client.prepare_request("d").unwrap().answer(&rows).unwrap();
    assert!(client.request("d", &[row_of("SELECT 'a' AS v, 1 AS k")]).is_err());
    assert!(client.request("missing", &rows).is_err());
    client.request("SELECT k FROM t", &rows).unwrap();
    let text = figures(&server);
    for expected in [
        "lockstep_deployment_rows_total{deployment=\"d\"} 4\n",
        "lockstep_deployment_errors_total{deployment=\"d\"} 1\n",
        "lockstep_deployment_seconds_count{deployment=\"d\",phase=\"answer\"} 2\n",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(!text.contains("missing") && !text.contains("SELECT k"), "{text}");
}

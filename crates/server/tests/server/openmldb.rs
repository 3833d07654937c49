//! What OpenMLDB's HTTP API has and its public cases do not try: statements with parameters, rows as
//! objects, numbers that are not finite, requests of a query.

use crate::support::{Reply, Request, TestServer, get, post};
use serde_json::{Value, json};

const SETUP: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE t (k STRING, i INT, b BIGINT, f FLOAT, d DOUBLE, ts TIMESTAMP, day DATE, yes BOOL,
        INDEX(KEY=k, TS=ts));
    INSERT INTO t VALUES ('a', 1, 2, 1.1, 0.5, 1000, '2020-05-01', true);
    DEPLOY d AS SELECT k, f, d, day, yes FROM t;
    DEPLOY total AS SELECT k, sum(b) OVER w AS s FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW);
    CREATE PROCEDURE p (CONST k STRING, i INT, b BIGINT, f FLOAT, d DOUBLE, ts TIMESTAMP, day DATE,
        yes BOOL) BEGIN SELECT k, i FROM t; END;";

fn server() -> TestServer {
    TestServer::start(&[], SETUP)
}

/// Runs a statement in the database `shop`.
fn run(server: &TestServer, body: &Value) -> Value {
    server.send(post("/dbs/shop", &body.to_string())).json()
}

fn put(server: &TestServer, body: &str) -> Reply {
    let path = "/dbs/shop/tables/t";
    server.send(Request { method: "PUT", path, headers: &[], body: body.as_bytes() })
}

#[test]
fn a_statement_has_a_value_of_a_type_for_each_parameter() {
    let server = server();
    let sql = "SELECT i, b, f, d, ts, day, yes FROM t WHERE k = ? AND i = ? AND b = ? AND d = ?
        AND ts = ? AND day = ? AND yes = ?";
    let schema = ["String", "Int32", "BIGINT", "double", "Timestamp", "Date", "Bool"];
    let data = json!(["a", 1, 2, 0.5, 1000, "2020-5-1", true]);
    let input = json!({"schema": schema, "data": data});
    let found = run(&server, &json!({"mode": "online", "sql": sql, "input": input}));
    let types = json!(["Int32", "Int64", "Float", "Double", "Timestamp", "Date", "Bool"]);
    assert_eq!((&found["code"], &found["data"]["schema"]), (&json!(0), &types), "{found}");
    let row = json!([[1, 2, 1.100_000_023_841_858, 0.5, 1000, "2020-5-1", true]]);
    assert_eq!(found["data"]["data"], row);
    for (input, message) in [
        (json!({"schema": ["Int32"], "data": ["x"]}), "INT"),
        (json!({"schema": ["Blob"], "data": [1]}), "has the unrecognized type Blob"),
        (json!({"schema": ["Int32"], "data": []}), "different numbers"),
        (json!([]), "is not an object"),
        (json!({"schema": ["Timestamp"], "data": ["2020-01-01"]}), "milliseconds"),
    ] {
        let sql = json!({"mode": "online", "sql": "SELECT ? AS a", "input": input});
        let refused = run(&server, &sql);
        let found = refused["msg"].as_str().unwrap();
        assert!(refused["code"] == -1 && found.contains(message), "{refused}");
    }
}

#[test]
fn statements_run_in_their_mode_and_database() {
    let server = server();
    let mode = |mode: &str, sql: &str| run(&server, &json!({"mode": mode, "sql": sql}));
    assert_eq!(
        mode("Online", "INSERT INTO t (k, ts) VALUES ('b', 1)"),
        json!({"code": 0, "msg": "ok"})
    );
    assert_eq!(mode("online", "SELECT count(*) AS n FROM t")["data"]["data"], json!([[2]]));
    assert_eq!(mode("offsync", "SELECT count(*) AS n FROM t")["data"]["data"], json!([[0]]));
    assert_eq!(mode("later", "SELECT 1 AS a")["msg"], "Invalid mode later");
    let wrong = mode("online", "SELECT none FROM t");
    assert_eq!((&wrong["code"], &wrong["error"]["code"]), (&json!(-1), &json!("42703")));
    let body = json!({"mode": "online", "sql": "CREATE DATABASE other"}).to_string();
    assert_eq!(server.send(post("/dbs/other", &body)).json()["code"], 0);
    let body = json!({"mode": "online", "sql": "SELECT 1 AS a"}).to_string();
    let missing = server.send(post("/dbs/none", &body));
    assert_eq!((missing.status, missing.json()["error"]["code"].as_str()), (200, Some("3D000")));
    assert_eq!(server.send(get("/dbs")).json()["dbs"], json!(["other", "shop"]));
}

#[test]
fn a_query_is_a_request_of_one_row() {
    let server = server();
    let sql = "SELECT k, sum(b) OVER w AS s FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)";
    let schema = ["string", "int", "bigint", "float", "double", "timestamp", "date", "bool"];
    let data = json!(["a", 1, 40, 1.5, 1, 2000, null, null]);
    let input = json!({"schema": schema, "data": data});
    let found = run(&server, &json!({"mode": "request", "sql": sql, "input": input}));
    assert_eq!(found["data"]["data"], json!([["a", 42]]), "{found}");
}

#[test]
fn rows_are_objects_or_arrays_and_so_are_answers() {
    let server = server();
    let ask = |name: &str, body: Value| {
        server.send(post(&format!("/dbs/shop/{name}"), &body.to_string())).json()
    };
    let row = json!({"k": "a", "i": 1, "b": 40, "f": 1, "d": 2, "ts": 2000, "day": "2020-05-02",
        "yes": false, "more": [1]});
    let found = ask("deployments/total", json!({"input": [row]}));
    assert_eq!(found["data"]["data"], json!([{"k": "a", "s": 42}]), "{found}");
    let lacks = ask("deployments/total", json!({"input": [{"k": "a"}]}));
    assert_eq!(lacks["msg"], "Translate to request row failed");
    assert_eq!(lacks["error"]["detail"], "can't find i");
    let rows = json!([[1, 40, 1, 2, 2000, null, false], [2, 41, 1, 2, 2001, null, false]]);
    let found = ask("procedures/p", json!({"common_cols": ["a"], "input": rows}));
    assert_eq!(found["data"]["common_cols_data"], json!(["a"]), "{found}");
    assert_eq!(found["data"]["data"], json!([[1], [2]]));
    let quoted = json!(["a", "1", 40, 1, 2, 2000, null, false]);
    assert_eq!(ask("deployments/total", json!({"input": [quoted]}))["code"], -1);
}

#[test]
fn numbers_that_are_not_finite_are_bare_words() {
    let server = server();
    let row = r#"["a", 1, 2, NaN, -Infinity, 5, "2020-12-3", true]"#;
    assert_eq!(put(&server, &format!("{{\"value\": [{row}]}}")).json()["code"], 0);
    let ask = |more: &str| {
        let body = format!("{{\"input\": [{row}]{more}}}");
        server.send(post("/dbs/shop/deployments/d", &body)).text().to_owned()
    };
    let words = ask("");
    assert!(words.contains(r#"["a",NaN,-Infinity,"2020-12-3",true]"#), "{words}");
    let nulls = ask(", \"write_nan_and_inf_null\": true");
    assert!(nulls.contains(r#"["a",null,null,"2020-12-3",true]"#), "{nulls}");
    let stored = "SELECT count(*) AS n FROM t WHERE d < -1e300";
    let found = run(&server, &json!({"mode": "online", "sql": stored}));
    assert_eq!(found["data"]["data"], json!([[1]]), "{found}");
}

#[test]
fn users_and_limits_keep_their_statuses() {
    let database = server().database.clone();
    database.session().execute("CREATE USER ann OPTIONS(password='secret')").unwrap();
    let server = TestServer::of(
        database,
        &[("server.authentication", "users"), ("limits.body_bytes_max", "100")],
    );
    let path = "/dbs/shop/deployments/d";
    let nobody = server.send(post(path, "{}"));
    assert_eq!((nobody.status, &nobody.json()["code"]), (401, &json!(-1)));
    // `ann:secret`.
    let ann = [("Authorization", "Basic YW5uOnNlY3JldA==")];
    let body = r#"{"input":[["a",1,2,1,1,1,null,true]]}"#;
    let refused = server.send(post(path, body).with(&ann));
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (403, Some("42501")));
    let large = server.send(post(path, &" ".repeat(101)).with(&ann));
    assert_eq!((large.status, &large.json()["code"]), (413, &json!(-1)));
    assert_eq!(server.send(get("/dbs").with(&ann)).json()["dbs"], json!([]), "it sees none");
    assert_eq!(server.send(get("/health")).text(), "OK\n");
}

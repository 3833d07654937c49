//! `/openapi.json` against the answers of a server: every path that it has is called in many ways, and
//! each answer has a status, a format and a body that it describes.

use std::collections::BTreeSet;

use crate::support::{Reply, Request, TestServer, get};
use serde_json::{Value, json};

const SETUP: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE t (k STRING NOT NULL, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
    INSERT INTO t VALUES ('a', 1, 1000);
    DEPLOY d AS SELECT k, v FROM t;
    CREATE PROCEDURE p (k STRING, v BIGINT, ts TIMESTAMP) BEGIN SELECT k, v FROM t; END;
    USE default;
    CREATE TABLE t (k STRING NOT NULL, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
    DEPLOY d AS SELECT k, v FROM t;
    CREATE USER weak OPTIONS(password='secret');";

/// `weak:secret`, who may do nothing.
const WEAK: (&str, &str) = ("Authorization", "Basic d2VhazpzZWNyZXQ=");

/// The statuses that the description has and a test of this kind does not reach, each with where it is
/// tested, or why it cannot be.
const ELSEWHERE: [(&str, &str); 8] = [
    ("401", "the next test: nobody"),
    ("408", "limits.rs: a slow body"),
    ("409", "limits and deployments.rs: a deployment that is replaced meanwhile"),
    ("413", "limits.rs: large bodies and answers"),
    ("429", "limits.rs: overload"),
    ("500", "a defect, or the disk"),
    ("503", "access.rs and limits.rs: a session that was ended, a server that drains"),
    ("507", "limits.rs: memory"),
];

/// Names that a client may send in a path.
const NAMES: [&str; 7] = ["t", "d", "p", "none", "a%60b", "%ff", "..%2f..%2fetc"];

/// Bodies: right ones for some call, and wrong ones for all.
const BODIES: [&str; 17] = [
    "",
    "{",
    "[]",
    "{}",
    "null",
    "[[]]",
    r#"{"k":"a","v":1,"ts":2000}"#,
    r#"[["a",1,2000]]"#,
    r#"[{"k":"a","v":"x"}]"#,
    r#"{"sql":"SELECT k, v FROM shop.t"}"#,
    r#"{"sql":"SELECT k FROM none"}"#,
    r#"{"sql":"CREATE TABLE t (k STRING)"}"#,
    r#"{"mode":"online","sql":"SELECT NULL AS a"}"#,
    r#"{"mode":"online","sql":"SELECT none"}"#,
    r#"{"value":[["b",2,3000]]}"#,
    r#"{"input":[["a",1,2000]],"need_schema":true}"#,
    r#"{"input":[{"k":"a","v":1,"ts":2000}],"common_cols":[1]}"#,
];

const HEADERS: [&[(&str, &str)]; 6] = [
    &[],
    &[("Accept", "text/csv")],
    &[("Accept", "image/png")],
    &[("Content-Type", "image/png")],
    &[("Lockstep-Timeout-Ms", "0")],
    &[WEAK],
];

const QUERIES: [&str; 4] = ["", "?timeout_ms=x", "?database=shop", "?unknown=1"];

/// A server that asks for users, and the headers of its root.
struct DescribedServer {
    server: TestServer,
    root: String,
    description: Value,
    /// The statuses that were answered.
    seen: BTreeSet<String>,
}

impl DescribedServer {
    fn start() -> Self {
        let server = TestServer::start(&[("server.authentication", "users")], SETUP);
        server.database.session().execute("ALTER USER root SET OPTIONS(password='x')").unwrap();
        let description = server.send(get("/openapi.json")).json();
        // `root:x`.
        let root = "Basic cm9vdDp4".to_owned();
        Self { server, root, description, seen: BTreeSet::new() }
    }

    /// Follows a reference of the description.
    fn resolved<'v>(&'v self, value: &'v Value) -> &'v Value {
        let Some(reference) = value["$ref"].as_str() else { return value };
        let pointer = reference.strip_prefix('#').unwrap();
        self.description.pointer(pointer).unwrap_or_else(|| panic!("{reference} is nowhere"))
    }

    /// Fails where an answer is not as an operation of the description says.
    fn check(&mut self, operation: &Value, request: Request<'_>, reply: &Reply) {
        let shown = format!("{request:?}: {reply:?}");
        let status = reply.status.to_string();
        let response = &operation["responses"][&status];
        assert!(response.is_object(), "the status is not described: {shown}");
        let found = reply.header("content-type").unwrap_or_default();
        let found = found.split(';').next().unwrap();
        let content = &self.resolved(response)["content"];
        let media = content.get(found).unwrap_or_else(|| panic!("the format is not: {shown}"));
        if found == "application/json"
            && let Some(schema) = media.get("schema")
        {
            let wrong = self.mismatch(schema, &reply.json());
            assert_eq!(wrong, None, "{shown}");
        }
        self.seen.insert(status);
    }

    /// Returns what is wrong with a value by a schema; of JSON Schema the words that are used.
    fn mismatch(&self, schema: &Value, value: &Value) -> Option<String> {
        let schema = self.resolved(schema);
        let types = match &schema["type"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|name| is_of_type(value, name)) {
            return Some(format!("{value} is none of {types:?}"));
        }
        let one_of = schema["enum"].as_array();
        if one_of.is_some_and(|known| !known.contains(value)) {
            return Some(format!("{value} is none of {one_of:?}"));
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if value.is_object() && value.get(name).is_none() {
                return Some(format!("{value} lacks {name}"));
            }
        }
        for (name, member) in value.as_object().into_iter().flatten() {
            if let Some(wrong) = self.mismatch(&schema["properties"][name], member) {
                return Some(format!("{name}: {wrong}"));
            }
        }
        let mut items = value.as_array().into_iter().flatten();
        items.find_map(|item| self.mismatch(&schema["items"], item))
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("the description has no type {name}"),
    }
}

/// Returns the paths of an endpoint with names for its parameters: those that exist, and others.
fn paths_of(endpoint: &str) -> Vec<String> {
    let names = |path: String, parameter: &str| -> Vec<String> {
        if !path.contains(parameter) {
            return vec![path];
        }
        NAMES.iter().map(|name| path.replace(parameter, name)).collect()
    };
    let databases = |path: String| match path.contains("{db}") {
        true => ["shop", "none"].map(|name| path.replace("{db}", name)).to_vec(),
        false => vec![path],
    };
    let named = names(endpoint.to_owned(), "{name}");
    let tables = named.into_iter().flat_map(|path| names(path, "{table}"));
    tables.flat_map(databases).collect()
}

/// A call of the description, and its requests but for the bodies.
struct DescribedCall {
    operation: Value,
    method: String,
    paths: Vec<String>,
    bodies: &'static [&'static str],
}

/// Returns all calls of a description.
fn calls_of(description: &Value) -> Vec<DescribedCall> {
    let mut calls = Vec::new();
    for (endpoint, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let has_body = operation.get("requestBody").is_some();
            let paths = paths_of(endpoint).into_iter();
            // What has no end of its own is given one.
            let is_endless =
                operation.pointer("/responses/200/content/text~1event-stream").is_some();
            let with_query = |path: String| {
                QUERIES.map(|query| match (is_endless, query) {
                    (false, query) => format!("{path}{query}"),
                    (true, "") => format!("{path}?timeout_ms=5"),
                    (true, query) => format!("{path}{query}&start=earliest&timeout_ms=5"),
                })
            };
            calls.push(DescribedCall {
                operation: operation.clone(),
                method: method.to_uppercase(),
                paths: paths.flat_map(with_query).collect(),
                bodies: if has_body { &BODIES } else { &[""] },
            });
        }
    }
    calls
}

#[test]
fn every_answer_is_described() {
    let mut served = DescribedServer::start();
    let root = served.root.clone();
    let mut client = served.server.connect();
    let calls = calls_of(&served.description);
    let mut count = 0;
    for DescribedCall { operation, method, paths, bodies } in &calls {
        for (path, headers) in paths.iter().flat_map(|path| HEADERS.map(|headers| (path, headers)))
        {
            let mut headers = headers.to_vec();
            if !headers.contains(&WEAK) {
                headers.push(("Authorization", &root));
            }
            for body in *bodies {
                let sent = Request { method, path, headers: &headers, body: body.as_bytes() };
                let reply = client.send(sent);
                served.check(operation, sent, &reply);
                count += 1;
            }
        }
    }
    println!("{count} answers were as described; statuses {:?}", served.seen);
    let responses = calls.iter().map(|call| call.operation["responses"].as_object().unwrap());
    let described: BTreeSet<String> = responses.flat_map(|found| found.keys().cloned()).collect();
    let elsewhere = ELSEWHERE.iter().map(|(status, _)| (*status).to_owned()).collect();
    let missing: BTreeSet<_> = &(&described - &served.seen) - &elsewhere;
    assert!(missing.is_empty(), "no answer has a status that is described: {missing:?}");
}

/// Whoever shows nothing, or calls from another site, is refused as described.
#[test]
fn refusals_are_described() {
    let mut served = DescribedServer::start();
    let paths = served.description["paths"].clone();
    for (endpoint, operations) in paths.as_object().unwrap() {
        let path = endpoint.replace("{name}", "d").replace("{table}", "t").replace("{db}", "shop");
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            for headers in [&[][..], &[("Origin", "http://evil.example")]] {
                let sent = Request { method: &method, path: &path, headers, body: b"{}" };
                let reply = served.server.send(sent);
                served.check(operation, sent, &reply);
                let needs_user = operation["responses"].get("401").is_some();
                let expected = match (headers.is_empty(), needs_user) {
                    (false, _) => 403,
                    (true, true) => 401,
                    (true, false) => 200,
                };
                assert_eq!(reply.status, expected, "{sent:?}");
            }
        }
        let wrong = Request { method: "DELETE", path: &path, headers: &[], body: b"" };
        let reply = served.server.send(wrong);
        assert_eq!((reply.status, reply.json()["msg"].as_str()), (405, Some("no match method")));
        let allowed = reply.header("allow").unwrap().to_owned();
        for method in operations.as_object().unwrap().keys() {
            assert!(allowed.contains(&method.to_uppercase()), "{path}: {allowed}");
        }
    }
    assert_eq!(served.server.send(get("/db")).json()["code"], json!(-1));
}

/// A path of the server that the description lacks would be found by nobody.
#[test]
fn every_route_is_described() {
    let served = DescribedServer::start();
    let paths = served.description["paths"].as_object().unwrap();
    let sources = [include_str!("../../src/http.rs"), include_str!("../../src/http/openmldb.rs")];
    let routes = sources.iter().flat_map(|source| source.split(".route(\"").skip(1));
    let mut count = 0;
    for route in routes.map(|rest| rest.split('"').next().unwrap()) {
        assert!(paths.contains_key(route), "{route}");
        count += 1;
    }
    assert!(count > 14, "the routes are found in the source: {count}");
    let page = served.server.send(get("/")).text().to_owned();
    assert!(paths.keys().all(|path| page.contains(path)), "{page}");
}

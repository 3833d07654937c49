//! The public test cases of OpenMLDB's HTTP API, run against a served port.
//!
//! They are in `../shared/conformance` beside the checkout; without it there is nothing to do.

use std::path::{Path, PathBuf};

use crate::support::{Client, Request, TestServer};
use lockstep_engine::Database;
use serde_json::Value;

/// Returns the file of the cases, beside the checkout or beside the folder that holds it.
fn cases_file() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    let beside = |folder: &Path| folder.join("../shared/conformance/restful.jsonl");
    root.ancestors().take(2).map(beside).find(|file| file.is_file())
}

#[test]
fn openmldb_s_cases_pass() {
    let Some(file) = cases_file() else {
        println!("there is no ../shared/conformance: skipped");
        return;
    };
    let text = std::fs::read_to_string(file).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failure = |case: &Value| run(case).err().map(|reason| format!("{}: {reason}", case["id"]));
    let failed: Vec<String> = cases.iter().filter_map(failure).collect();
    println!("{} of {} cases pass", cases.len() - failed.len(), cases.len());
    assert!(!cases.is_empty() && failed.is_empty(), "{failed:#?}");
}

/// Runs a case against a server of its own.
fn run(case: &Value) -> Result<(), String> {
    let database = Database::in_memory();
    let session = database.session();
    let execute = |sql: &str| {
        session.execute(sql).map(|_output| ()).map_err(|error| format!("{sql}: {error:?}"))
    };
    let name = case["db"].as_str().unwrap();
    execute(&format!("SET compatibility = 'openmldb'; CREATE DATABASE {name}; USE {name}"))?;
    for input in case["inputs"].as_array().unwrap() {
        execute(input["create_sql"].as_str().unwrap())?;
        for row in input["rows"].as_array().into_iter().flatten() {
            execute(&insert(input, row.as_array().unwrap()))?;
        }
    }
    for sql in case["sqls"].as_array().unwrap() {
        execute(sql.as_str().unwrap())?;
    }
    let server = TestServer::of(database, &[]);
    let answer = call(&server, case)?;
    let expected = case["expect"]["json"].as_object().unwrap();
    for (path, expected) in expected {
        compare(path, expected, &answer).map_err(|found| format!("{path}: {found}: {answer}"))?;
    }
    let after = case["after"]["sqls"].as_array().into_iter().flatten();
    for sql in after {
        let sql = serde_json::json!({"mode": "online", "sql": sql}).to_string();
        let path = format!("/dbs/{name}");
        let rows = server.send(crate::support::post(&path, &sql)).json();
        let expected = &case["after"]["expect"]["rows"];
        if !is_equal(&rows["data"]["data"], expected) {
            return Err(format!("afterwards the rows are {rows}"));
        }
    }
    Ok(())
}

/// Writes the INSERT of a row.
fn insert(input: &Value, row: &[Value]) -> String {
    let values: Vec<String> = row
        .iter()
        .map(|value| match value {
            Value::Null => "NULL".to_owned(),
            Value::String(text) => format!("'{text}'"),
            other => other.to_string(),
        })
        .collect();
    let table = input["name"].as_str().unwrap();
    format!("INSERT INTO {table} VALUES ({})", values.join(", "))
}

/// Makes the call of a case. The data lacks the names that upstream puts into some paths; that they are
/// those of the case's own objects follows from the expectations.
fn call(server: &TestServer, case: &Value) -> Result<Value, String> {
    let request = &case["request"];
    let table = case["inputs"][0]["name"].as_str().unwrap_or_default();
    let procedure = case["sqls"][0].as_str().and_then(|sql| sql.split([' ', '(']).nth(2));
    let path = request["uri"].as_str().unwrap();
    let path = path
        .replace("<db_name>", case["db"].as_str().unwrap())
        .replace("<db>", case["db"].as_str().unwrap())
        .replace("<table_name>", table)
        .replace("<procedure_name>", procedure.unwrap_or_default());
    let body = match &request["body"] {
        Value::Object(body) if body.contains_key("json") => Some(body["json"].to_string()),
        Value::Object(body) => Some(body["text"].as_str().unwrap().to_owned()),
        Value::Array(_) => Some(String::new()),
        _ => None,
    };
    let method = request["method"].as_str().unwrap();
    let sent = Request {
        method,
        path: &path,
        headers: &[],
        body: body.as_deref().unwrap_or("").as_bytes(),
    };
    let bytes = match &body {
        Some(_) => sent.bytes(),
        None => format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes(),
    };
    let mut client: Client = server.connect();
    std::io::Write::write_all(client.stream.get_mut(), &bytes).unwrap();
    let reply = client.reply().ok_or("the server does not reply")?;
    let is_ok = matches!(reply.status, 200 | 404 | 405);
    if is_ok { Ok(reply.json()) } else { Err(format!("{reply:?}")) }
}

/// Compares a part of an answer; the error is what was found.
fn compare(path: &str, expected: &Value, answer: &Value) -> Result<(), String> {
    if path == "msg-contains" {
        let found = answer["msg"].as_str().unwrap_or_default();
        let contains = found.contains(expected.as_str().unwrap());
        return if contains { Ok(()) } else { Err(found.to_owned()) };
    }
    let pointer = path.trim_start_matches("$.").replace(['.', '['], "/").replace(']', "");
    match answer.pointer(&format!("/{pointer}")) {
        Some(found) if is_equal(found, expected) => Ok(()),
        found => Err(format!("found {found:?} instead of {expected}")),
    }
}

/// Returns whether two values are equal: numbers by value, texts without the blanks at their end.
fn is_equal(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(found), Value::Number(expected)) => found.as_f64() == expected.as_f64(),
        (Value::String(found), Value::String(expected)) => found.trim_end() == expected.trim_end(),
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| is_equal(found, expected))
        }
        _ => found == expected,
    }
}

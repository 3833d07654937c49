//! `/openapi.json` and the page at `/`: what the server can be called with.

use axum::{
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
};
use serde_json::{Value, json};

/// Returns the description of all endpoints, in version 3.1 of `OpenAPI`.
pub(crate) async fn document() -> Response {
    let mut response = description().to_string().into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns a page with the endpoints, for a person with a browser.
pub(crate) async fn page() -> Html<String> {
    let mut rows = String::new();
    let description = description();
    let paths = description["paths"].as_object().expect("the description has paths");
    for (path, methods) in paths {
        for (method, call) in methods.as_object().into_iter().flatten() {
            let summary = call["summary"].as_str().unwrap_or_default();
            let method = method.to_uppercase();
            rows.push_str(&format!(
                "<tr><td>{method}</td><td><code>{path}</code></td><td>{summary}</td></tr>\n"
            ));
        }
    }
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Lockstep</title>\n\
         <h1>Lockstep {}</h1>\n<p>A feature database. The calls are described in \
         <a href=\"/openapi.json\">openapi.json</a>.</p>\n<table>\n{rows}</table></html>\n",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Describes a call that runs in the engine: its errors are the same everywhere.
fn call(summary: &str, parameters: &[Value], body: &Value, answers: &Value) -> Value {
    let error = json!({
        "description": "An error, with its SQLSTATE.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    });
    let mut responses = json!({"200": {"description": "The answer.", "content": answers}});
    let statuses = [400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 429, 500, 503, 504, 507];
    for status in statuses {
        responses[status.to_string()] = error.clone();
    }
    let timeout = json!({"name": "timeout_ms", "in": "query",
        "description": "The deadline in milliseconds; also the header Lockstep-Timeout-Ms.",
        "schema": {"type": "integer", "minimum": 0}});
    let database = json!({"name": "database", "in": "query",
        "description": "The database; `default` without it.", "schema": {"type": "string"}});
    let all: Vec<&Value> = parameters.iter().chain([&timeout, &database]).collect();
    json!({
        "summary": summary,
        "parameters": all,
        "security": [{"password": []}, {"token": []}],
        "requestBody": {"required": true, "content": body},
        "responses": responses,
    })
}

fn plain(summary: &str, media_type: &str, may_be_unavailable: bool) -> Value {
    let mut found = json!({
        "summary": summary,
        "responses": {"200": {"description": "The answer.", "content": {media_type: {}}}},
    });
    if may_be_unavailable {
        found["responses"]["503"] = json!({"description": "Not now."});
    }
    found
}

fn name_parameter(what: &str) -> Value {
    json!({"name": "name", "in": "path", "required": true,
        "description": format!("The name of the {what}, or database.{what}."),
        "schema": {"type": "string"}})
}

/// Returns the description of all endpoints.
fn description() -> Value {
    const ARROW: &str = "application/vnd.apache.arrow.stream";
    let rows = json!({"description": "A row as an object or an array, or an array of rows.",
        "type": ["object", "array"]});
    let row_answers = json!({"application/json": {"schema": {"type": ["object", "array", "null"]}},
        "application/x-ndjson": {}, "text/csv": {}, ARROW: {}});
    let request_body =
        json!({"application/json": {"schema": rows}, "application/x-ndjson": {}, ARROW: {}});
    let append_body = json!({"application/json": {"schema": rows}, "application/x-ndjson": {},
        "text/csv": {}, ARROW: {}});
    let append_answer = json!({"application/json": {"schema": {"type": "object", "properties": {
        "rows": {"type": "integer"}, "warnings": {"type": "array"}}}}});
    let sql_body = json!({"application/json": {"schema": {"type": "object", "required": ["sql"],
        "additionalProperties": false, "properties": {"sql": {"type": "string"},
            "parameters": {"type": "array"}, "database": {"type": ["string", "null"]}}}}});
    let durability = json!({"name": "durability", "in": "query",
        "schema": {"type": "string", "enum": ["memory", "os", "disk"]}});
    let deployment = [name_parameter("deployment")];
    let table = [name_parameter("table"), durability];
    let json_type = "application/json";
    let call_deployment = call("Answers request rows", &deployment, &request_body, &row_answers);
    let append = call("Appends rows to a table", &table, &append_body, &append_answer);
    let run = call("Runs statements", &[], &sql_body, &row_answers);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Lockstep", "version": env!("CARGO_PKG_VERSION")},
        "paths": {
            "/v1/deployments/{name}": {"post": call_deployment},
            "/v1/sql": {"post": run},
            "/v1/tables/{name}": {"post": append},
            "/healthz": {"get": plain("Says that the process runs", "text/plain", false)},
            "/readyz": {"get": plain("Says whether calls should be sent", "text/plain", true)},
            "/metrics": {"get": plain("Figures for Prometheus", "text/plain", true)},
            "/openapi.json": {"get": plain("This description", json_type, false)},
            "/": {"get": plain("A page with the endpoints", "text/html", false)},
        },
        "components": {"securitySchemes": {
            "password": {"type": "http", "scheme": "basic"},
            "token": {"type": "http", "scheme": "bearer"},
        }, "schemas": {"Error": {"type": "object", "properties": {"error": {
            "type": "object", "properties": {
                "code": {"type": "string", "description": "The SQLSTATE."},
                "kind": {"type": "string"},
                "message": {"type": "string"},
                "position": {"type": ["object", "null"]},
                "detail": {"type": ["string", "null"]},
                "hint": {"type": ["string", "null"]},
                "request_id": {"type": "string"}}}}}}},
    })
}

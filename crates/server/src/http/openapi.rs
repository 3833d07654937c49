//! `/openapi.json` and the page at `/`: what the server can be called with.
//!
//! The description is `openapi.json` beside this file. A test calls every path that it has and compares
//! statuses, formats and bodies with it; another compares its paths with the routes.

use axum::{
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
};
use serde_json::Value;

use super::openmldb;

/// The description, without the version.
const DOCUMENT: &str = include_str!("openapi.json");

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
         <h1>Lockstep {}</h1>\n<p>A feature database. The endpoints are described in \
         <a href=\"/openapi.json\">openapi.json</a>.</p>\n<table>\n{rows}</table></html>\n",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Returns the description of all endpoints.
fn description() -> Value {
    let mut found: Value =
        serde_json::from_str(DOCUMENT).expect("the description is JSON, as a test sees");
    found["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let paths = found["paths"].as_object_mut().expect("the description has paths");
    let of_openmldb: Vec<(String, Value)> =
        paths.iter().filter(|(path, _)| openmldb::has_path(path)).map(below_apiserver).collect();
    paths.extend(of_openmldb);
    found
}

/// Returns a path of OpenMLDB's API as it is below `/apiserver`: the same calls under other names.
fn below_apiserver((path, calls): (&String, &Value)) -> (String, Value) {
    let mut calls = calls.clone();
    for call in calls.as_object_mut().into_iter().flat_map(|calls| calls.values_mut()) {
        let name = call["operationId"].as_str().unwrap_or_default();
        call["operationId"] = format!("{name}BelowApiserver").into();
    }
    (format!("/apiserver{path}"), calls)
}

//! OpenMLDB's own HTTP API, for programs that were written for it: `/dbs/…`, `/refresh`, `/health`, and
//! the same below `/apiserver`.
//!
//! An answer is `{"code": 0, "msg": "ok", …}`, an error `{"code": -1, "msg": "…"}` with the status 200,
//! as there. What OpenMLDB does not have (logins, limits, overload, shutdown, wrong methods) keeps its
//! status. Beside `msg`, an error has the object `error` of the other calls.
//!
//! | file | calls |
//! |---|---|
//! | `requests` | deployments and procedures: request rows, descriptions |
//! | `statements` | statements with parameters |
//! | `tables` | databases, tables, one row into a table |
//! | `body` | bodies: JSON that may have NaN, rows of values |
//! | `values` | the text forms of values and types |

mod body;
mod requests;
mod statements;
mod tables;
mod values;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    response::Response,
    routing::{get, post},
};
use lockstep_diagnostic::{Diagnostic, code};

use super::{
    answer_format::BodyFormat,
    call::HttpCall,
    error::{HttpError, HttpResult},
};
use crate::server_state::ServerState;

/// What an error says of a path or a method that nothing has.
pub(crate) const NO_MATCH: &str = "no match method";

/// The paths of the API, each with what is below it.
const PATHS: [&str; 3] = ["/dbs", "/refresh", "/apiserver"];

/// Makes the routes.
pub(crate) fn routes() -> Router<Arc<ServerState>> {
    let api = Router::new()
        .route("/dbs", get(tables::databases))
        .route("/dbs/{db}", post(statements::run))
        .route("/dbs/{db}/tables", get(tables::list))
        .route("/dbs/{db}/tables/{table}", get(tables::describe).put(tables::put))
        .route("/dbs/{db}/deployments/{name}", get(requests::deployment).post(requests::deployed))
        .route("/dbs/{db}/procedures/{name}", get(requests::procedure).post(requests::called))
        .route("/refresh", post(refresh));
    Router::new().route("/health", get(health)).nest("/apiserver", api.clone()).merge(api)
}

/// Returns whether a path is one of the API, so that its errors have the form of OpenMLDB's.
pub(crate) fn has_path(path: &str) -> bool {
    PATHS.iter().any(|own| {
        let rest = path.strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Says that the process runs.
async fn health() -> &'static str {
    "OK\n"
}

/// Answers a call that lets OpenMLDB read its catalog again, which is never out of date here.
async fn refresh(
    State(state): State<Arc<ServerState>>,
    request: axum::extract::Request,
) -> HttpResult<Response> {
    HttpCall::begin(state, request).await?;
    Ok(ok(b""))
}

/// Makes an answer with these members, each with a comma before it.
fn ok(members: &[u8]) -> Response {
    let body = [&b"{\"code\":0,\"msg\":\"ok\""[..], members, b"}"].concat();
    BodyFormat::Json.response(body)
}

/// Makes an error that OpenMLDB has, in its words.
fn refusal(message: impl Into<String>) -> HttpError {
    Diagnostic::new(code::INVALID_PARAMETER, message).into()
}

/// Makes an error that OpenMLDB has, in its words, of one that says more.
fn refusal_of(message: impl Into<String>, error: &HttpError) -> HttpError {
    let Diagnostic { code, kind, message: detail, hint, .. } = &*error.diagnostic;
    let found = Diagnostic::new(code, message).with_kind(*kind).with_detail(detail.clone());
    match hint {
        Some(hint) => found.with_hint(hint.clone()).into(),
        None => found.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::has_path;

    #[test]
    fn the_paths_of_the_api_are_known() {
        for path in ["/dbs", "/dbs/", "/dbs/a/tables/b", "/refresh", "/apiserver/dbs"] {
            assert!(has_path(path), "{path}");
        }
        for path in ["/", "/v1/sql", "/dbsx", "/db/a", "/health", "/v1/dbs"] {
            assert!(!has_path(path), "{path}");
        }
    }
}

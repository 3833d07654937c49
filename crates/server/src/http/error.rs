//! Errors over HTTP: the status of each SQLSTATE, and the body with all that a diagnostic has.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lockstep_diagnostic::{Diagnostic, Kind, code};
use serde_json::json;

use crate::work_pool::{NoResult, stuck};

/// How a client may log in.
const LOGIN_SCHEMES: [&str; 2] =
    ["Basic realm=\"lockstep\", charset=\"UTF-8\"", "Bearer realm=\"lockstep\""];

/// The status of each SQLSTATE; the first prefix that fits.
const STATUSES: &[(&str, StatusCode)] = &[
    (code::TOO_MANY, StatusCode::TOO_MANY_REQUESTS),
    (code::SESSION_ENDED, StatusCode::SERVICE_UNAVAILABLE),
    (code::DATABASE_CLOSED, StatusCode::SERVICE_UNAVAILABLE),
    (code::LOG_STOPPED, StatusCode::SERVICE_UNAVAILABLE),
    (code::OUT_OF_MEMORY, StatusCode::INSUFFICIENT_STORAGE),
    (code::DISK_FULL, StatusCode::INSUFFICIENT_STORAGE),
    (code::QUERY_CANCELED, StatusCode::GATEWAY_TIMEOUT),
    (code::VALUE_TOO_LARGE, StatusCode::PAYLOAD_TOO_LARGE),
    (code::READ_ONLY, StatusCode::FORBIDDEN),
    (code::INSUFFICIENT_PRIVILEGE, StatusCode::FORBIDDEN),
    ("28", StatusCode::UNAUTHORIZED),
    (code::UNDEFINED_TABLE, StatusCode::NOT_FOUND),
    (code::UNDEFINED_DATABASE, StatusCode::NOT_FOUND),
    (code::UNDEFINED_OBJECT, StatusCode::NOT_FOUND),
    (code::DUPLICATE_TABLE, StatusCode::CONFLICT),
    (code::DUPLICATE_DATABASE, StatusCode::CONFLICT),
    (code::DUPLICATE_OBJECT, StatusCode::CONFLICT),
    (code::DEPENDENT_OBJECTS, StatusCode::CONFLICT),
    (code::STALE_DEFINITION, StatusCode::CONFLICT),
    ("55", StatusCode::CONFLICT),
    ("58P", StatusCode::BAD_REQUEST),
    ("58", StatusCode::INTERNAL_SERVER_ERROR),
    ("XX", StatusCode::INTERNAL_SERVER_ERROR),
];

/// Returns the status of an SQLSTATE: 400 where the table has no other.
pub(crate) fn status_of(code: &str) -> StatusCode {
    let found = STATUSES.iter().find(|(prefix, _)| code.starts_with(prefix));
    found.map_or(StatusCode::BAD_REQUEST, |(_, status)| *status)
}

/// An error of a call, before it has its request id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpError {
    pub(crate) diagnostic: Box<Diagnostic>,
    /// None: that of the code.
    status: Option<StatusCode>,
    /// What OpenMLDB says, where the body has its members, too.
    openmldb: Option<String>,
}

/// The result of a call over HTTP.
pub(crate) type HttpResult<T> = Result<T, HttpError>;

impl HttpError {
    /// Makes an error of the protocol itself, with the status that HTTP has for it.
    pub(crate) fn protocol(status: StatusCode, message: impl Into<String>) -> Self {
        let diagnostic = Box::new(Diagnostic::new(code::PROTOCOL_VIOLATION, message));
        Self { diagnostic, status: Some(status), openmldb: None }
    }

    /// Adds a hint.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { diagnostic: Box::new((*self.diagnostic).with_hint(hint)), ..self }
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| status_of(self.diagnostic.code))
    }

    /// Lets the body have the members of OpenMLDB's errors, too.
    pub(crate) fn with_openmldb(self, message: &str) -> Self {
        Self { openmldb: Some(message.to_owned()), ..self }
    }

    /// Makes the error one of OpenMLDB's API: what it has for a wrong call, or a name that is not
    /// there, has the status 200.
    pub(crate) fn for_openmldb(self) -> Self {
        let found = status_of(self.diagnostic.code);
        let is_ok = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::CONFLICT];
        let status = self.status.or(is_ok.contains(&found).then_some(StatusCode::OK));
        let openmldb = self.openmldb.or_else(|| Some(self.diagnostic.message.clone()));
        Self { status, openmldb, ..self }
    }

    /// Makes the response, with the id of the request.
    pub(crate) fn response(&self, request_id: &str) -> Response {
        let Diagnostic { code, kind, message, span, detail, hint } = &*self.diagnostic;
        let mut body = json!({
            "error": {
                "code": code,
                "kind": kind_name(*kind),
                "message": message,
                "position": span.map(|span| json!({"start": span.start, "end": span.end})),
                "detail": detail,
                "hint": hint,
                "request_id": request_id,
            }
        });
        if let Some(message) = &self.openmldb {
            body["code"] = (-1).into();
            body["msg"] = message.as_str().into();
        }
        let mut response = (self.status(), body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status() == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            for scheme in LOGIN_SCHEMES {
                headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
            }
        }
        response
    }
}

impl From<Box<Diagnostic>> for HttpError {
    fn from(diagnostic: Box<Diagnostic>) -> Self {
        Self { diagnostic, status: None, openmldb: None }
    }
}

impl From<Diagnostic> for HttpError {
    fn from(diagnostic: Diagnostic) -> Self {
        Box::new(diagnostic).into()
    }
}

impl From<NoResult> for HttpError {
    fn from(reason: NoResult) -> Self {
        match reason {
            NoResult::Overloaded => Diagnostic::new(code::TOO_MANY, "the server is overloaded")
                .with_kind(Kind::Retry)
                .with_hint("Retry later, or raise the queue limits in the settings admission.*.")
                .into(),
            NoResult::Closed => Diagnostic::new(code::SESSION_ENDED, "the server is shutting down")
                .with_kind(Kind::Retry)
                .into(),
            NoResult::Stuck => stuck().into(),
        }
    }
}

impl IntoResponse for HttpError {
    /// Makes a response without a body, which gets it where the request's id is known.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the name of what a caller should do.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::FixRequest => "fix_request",
        Kind::FixData => "fix_data",
        Kind::FreeResources => "free_resources",
        Kind::Retry => "retry",
        Kind::PrepareAgain => "prepare_again",
        Kind::ReportBug => "report_bug",
    }
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::code;

    use super::status_of;

    #[test]
    fn the_status_follows_from_the_code() {
        for (code, status) in [
            (code::SYNTAX_ERROR, 400),
            (code::DATATYPE_MISMATCH, 400),
            (code::UNDEFINED_COLUMN, 400),
            (code::UNDEFINED_TABLE, 404),
            (code::UNDEFINED_OBJECT, 404),
            (code::DUPLICATE_TABLE, 409),
            (code::DATABASE_IN_USE, 409),
            (code::UNDEFINED_FILE, 400),
            (code::IO_ERROR, 500),
            (code::INTERNAL_ERROR, 500),
            (code::DATA_CORRUPTED, 500),
            (code::QUERY_CANCELED, 504),
            (code::TOO_MANY, 429),
            ("28P01", 401),
            ("42501", 403),
        ] {
            assert_eq!(status_of(code).as_u16(), status, "{code}");
        }
    }
}

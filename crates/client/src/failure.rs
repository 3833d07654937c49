//! Errors of calls as diagnostics: those of the engine as they were, and those of the connection.

use arrow_flight::error::FlightError;
use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_protocol::{DiagnosticMessage, ERROR_HEADER};
use prost::Message;
use tonic::{Code, Status};

/// Returns the diagnostic of a status.
pub(crate) fn of_status(status: &Status) -> Box<Diagnostic> {
    let bytes = status.metadata().get_bin(ERROR_HEADER).and_then(|value| value.to_bytes().ok());
    if let Some(message) = bytes.and_then(|bytes| DiagnosticMessage::decode(bytes).ok()) {
        return Box::new(message.into());
    }
    let text = status.message();
    Box::new(match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled => Diagnostic::new(
            code::CONNECTION_FAILURE,
            format!("the connection to the server was lost: {text}"),
        )
        .with_kind(Kind::Retry)
        .with_hint("Reconnect. A write in progress may have been applied."),
        Code::Unauthenticated => Diagnostic::new(code::INVALID_AUTHORIZATION, text),
        _ => Diagnostic::new(code::PROTOCOL_VIOLATION, text),
    })
}

/// Returns the diagnostic of an error of rows.
pub(crate) fn of_flight(error: &FlightError) -> Box<Diagnostic> {
    match error {
        FlightError::Tonic(status) => of_status(status),
        other => malformed(other),
    }
}

/// Makes the error for an answer that is not as expected.
pub(crate) fn malformed(error: impl std::fmt::Display) -> Box<Diagnostic> {
    let message = format!("invalid response from the server: {error}");
    Box::new(Diagnostic::new(code::PROTOCOL_VIOLATION, message))
}

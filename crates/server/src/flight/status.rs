//! Errors over gRPC: the status of each SQLSTATE, and headers with all that a diagnostic has.

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_protocol::{DiagnosticMessage, ERROR_HEADER, REQUEST_ID_HEADER, SQLSTATE_HEADER};
use prost::Message;
use tonic::{
    Code, Status,
    metadata::{MetadataMap, MetadataValue},
};

use crate::work_pool::{NoResult, stuck};

/// The most bytes of a text of an error: all headers together have to be small.
const TEXT_BYTES_MAX: usize = 2_048;

/// The status of each SQLSTATE; the first prefix that fits.
const STATUSES: &[(&str, Code)] = &[
    ("28", Code::Unauthenticated),
    (code::INSUFFICIENT_PRIVILEGE, Code::PermissionDenied),
    (code::READ_ONLY, Code::PermissionDenied),
    (code::UNDEFINED_TABLE, Code::NotFound),
    (code::UNDEFINED_DATABASE, Code::NotFound),
    (code::UNDEFINED_OBJECT, Code::NotFound),
    (code::DUPLICATE_TABLE, Code::AlreadyExists),
    (code::DUPLICATE_DATABASE, Code::AlreadyExists),
    (code::DUPLICATE_OBJECT, Code::AlreadyExists),
    (code::DEPENDENT_OBJECTS, Code::FailedPrecondition),
    (code::SESSION_ENDED, Code::Unavailable),
    (code::DATABASE_CLOSED, Code::Unavailable),
    (code::LOG_STOPPED, Code::Unavailable),
    (code::FEATURE_NOT_SUPPORTED, Code::Unimplemented),
    (code::DATA_CORRUPTED, Code::DataLoss),
    ("53", Code::ResourceExhausted),
    ("54", Code::ResourceExhausted),
    ("55", Code::FailedPrecondition),
    ("58P", Code::InvalidArgument),
    ("58", Code::Internal),
    ("XX", Code::Internal),
];

/// Returns the status code of an error. What was cancelled and what has exceeded its time have the same
/// SQLSTATE.
pub(crate) fn code_of(diagnostic: &Diagnostic) -> Code {
    if diagnostic.code == code::QUERY_CANCELED {
        let was_cancelled = diagnostic.kind == Kind::Retry;
        return if was_cancelled { Code::Cancelled } else { Code::DeadlineExceeded };
    }
    let found = STATUSES.iter().find(|(prefix, _)| diagnostic.code.starts_with(prefix));
    found.map_or(Code::InvalidArgument, |(_, status)| *status)
}

/// Makes the status of an error of a call.
pub(crate) fn to_status(diagnostic: &Diagnostic, request_id: &str) -> Status {
    let mut message = DiagnosticMessage::from(diagnostic);
    request_id.clone_into(&mut message.request_id);
    let texts = [Some(&mut message.message), message.detail.as_mut(), message.hint.as_mut()];
    for text in texts.into_iter().flatten() {
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    let mut headers = MetadataMap::new();
    let bytes = MetadataValue::from_bytes(&message.encode_to_vec());
    headers.insert_bin(ERROR_HEADER, bytes);
    headers.insert(SQLSTATE_HEADER, MetadataValue::from_static(diagnostic.code));
    if let Ok(id) = MetadataValue::try_from(request_id) {
        headers.insert(REQUEST_ID_HEADER, id);
    }
    let mut text = format!("[{}] {}", diagnostic.code, message.message);
    for more in [&message.detail, &message.hint].into_iter().flatten() {
        text.push('\n');
        text.push_str(more);
    }
    Status::with_metadata(code_of(diagnostic), text, headers)
}

/// Makes the error for a message that is not as the protocol says.
pub(crate) fn malformed(message: impl std::fmt::Display) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(code::PROTOCOL_VIOLATION, format!("invalid call: {message}")))
}

/// Makes the error for a call that arrives at the end of the server.
pub(crate) fn shutting_down() -> Diagnostic {
    Diagnostic::new(code::SESSION_ENDED, "the server is shutting down").with_kind(Kind::Retry)
}

/// Makes the error for a call without a result.
pub(crate) fn no_result(reason: NoResult) -> Box<Diagnostic> {
    Box::new(match reason {
        NoResult::Overloaded => Diagnostic::new(code::TOO_MANY, "the server is overloaded")
            .with_kind(Kind::Retry)
            .with_hint("Retry later, or raise the queue limits in the settings admission.*."),
        NoResult::Closed => shutting_down(),
        NoResult::Stuck => stuck(),
    })
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::{Diagnostic, Kind, Span, code};
    use lockstep_protocol::{DiagnosticMessage, ERROR_HEADER};
    use prost::Message;
    use tonic::Code;

    use super::{code_of, to_status};

    #[test]
    fn the_status_follows_from_the_code() {
        for (sqlstate, status) in [
            (code::SYNTAX_ERROR, Code::InvalidArgument),
            (code::UNDEFINED_TABLE, Code::NotFound),
            (code::DUPLICATE_TABLE, Code::AlreadyExists),
            (code::INVALID_PASSWORD, Code::Unauthenticated),
            (code::INSUFFICIENT_PRIVILEGE, Code::PermissionDenied),
            (code::TOO_MANY, Code::ResourceExhausted),
            (code::STALE_DEFINITION, Code::FailedPrecondition),
            (code::INTERNAL_ERROR, Code::Internal),
            (code::DATA_CORRUPTED, Code::DataLoss),
        ] {
            assert_eq!(code_of(&Diagnostic::new(sqlstate, "x")), status, "{sqlstate}");
        }
        assert_eq!(code_of(&Diagnostic::interrupted(None)), Code::Cancelled);
        assert_eq!(code_of(&Diagnostic::interrupted(Some(7))), Code::DeadlineExceeded);
    }

    #[test]
    fn a_client_can_rebuild_the_diagnostic() {
        let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, "no column `é`")
            .with_kind(Kind::FixData)
            .at(Span::new(3, 5))
            .with_hint("x".repeat(5_000));
        let status = to_status(&diagnostic, "id");
        let bytes = status.metadata().get_bin(ERROR_HEADER).unwrap().to_bytes().unwrap();
        let message = DiagnosticMessage::decode(bytes).unwrap();
        assert_eq!(message.request_id, "id");
        let rebuilt = Diagnostic::from(message);
        assert_eq!(rebuilt.hint.map(|hint| hint.len()), Some(super::TEXT_BYTES_MAX));
        assert_eq!((rebuilt.code, rebuilt.span), (diagnostic.code, diagnostic.span));
    }
}

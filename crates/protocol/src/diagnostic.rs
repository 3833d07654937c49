//! A diagnostic as a message, so that a client has the same error as a caller in the process.

use std::collections::BTreeSet;

use lockstep_diagnostic::{Diagnostic, Kind, Span, code};
use lockstep_host::sync::Mutex;
use prost::Message;

/// The most SQLSTATEs that a client keeps; a server has some dozens.
const CODES_MAX: usize = 1_024;

/// A diagnostic.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiagnosticMessage {
    /// SQLSTATE.
    #[prost(string, tag = "1")]
    pub code: String,
    /// The position of the kind in [`KINDS`].
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// One line.
    #[prost(string, tag = "3")]
    pub message: String,
    /// The first byte of the position in the statement.
    #[prost(uint64, optional, tag = "4")]
    pub start: Option<u64>,
    /// One past its last byte.
    #[prost(uint64, optional, tag = "5")]
    pub end: Option<u64>,
    /// More about the error.
    #[prost(string, optional, tag = "6")]
    pub detail: Option<String>,
    /// How to fix it.
    #[prost(string, optional, tag = "7")]
    pub hint: Option<String>,
    /// The id of the request, where the server says it.
    #[prost(string, tag = "8")]
    pub request_id: String,
}

/// The kinds, by their number in a message.
const KINDS: [Kind; 6] = [
    Kind::FixRequest,
    Kind::FixData,
    Kind::FreeResources,
    Kind::Retry,
    Kind::PrepareAgain,
    Kind::ReportBug,
];

impl From<&Diagnostic> for DiagnosticMessage {
    fn from(diagnostic: &Diagnostic) -> Self {
        let Diagnostic { code, kind, message, span, detail, hint } = diagnostic;
        let number = KINDS.iter().position(|known| known == kind).unwrap_or(0);
        let at = |byte: usize| u64::try_from(byte).unwrap_or(u64::MAX);
        Self {
            code: (*code).to_owned(),
            kind: u32::try_from(number).unwrap_or(0),
            message: message.clone(),
            start: span.map(|span| at(span.start)),
            end: span.map(|span| at(span.end)),
            detail: detail.clone(),
            hint: hint.clone(),
            request_id: String::new(),
        }
    }
}

impl From<DiagnosticMessage> for Diagnostic {
    fn from(message: DiagnosticMessage) -> Self {
        let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        let kind = usize::try_from(message.kind).ok().and_then(|at| KINDS.get(at).copied());
        Self {
            code: code_of(&message.code),
            kind: kind.unwrap_or(Kind::FixRequest),
            message: message.message,
            span: message.start.zip(message.end).map(|(start, end)| Span::new(at(start), at(end))),
            detail: message.detail,
            hint: message.hint,
        }
    }
}

/// Returns the SQLSTATE of a text, which lives as long as the process; what is none is
/// [`code::INTERNAL_ERROR`].
fn code_of(text: &str) -> &'static str {
    static CODES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if text.len() != 5 || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return code::INTERNAL_ERROR;
    }
    let mut codes = CODES.lock();
    if let Some(known) = codes.get(text) {
        return known;
    }
    if codes.len() >= CODES_MAX {
        return code::INTERNAL_ERROR;
    }
    let interned: &'static str = Box::leak(text.to_owned().into_boxed_str());
    codes.insert(interned);
    interned
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::{Diagnostic, Kind, Span, code};
    use prost::Message;

    use super::DiagnosticMessage;

    #[test]
    fn a_diagnostic_arrives_as_it_was() {
        for kind in super::KINDS {
            let diagnostic = Diagnostic::new(code::UNDEFINED_COLUMN, "no column `ä`")
                .with_kind(kind)
                .at(Span::new(7, 9))
                .with_detail("A detail.")
                .with_hint("Did you mean `a`?");
            let bytes = DiagnosticMessage::from(&diagnostic).encode_to_vec();
            let message = DiagnosticMessage::decode(&*bytes).unwrap();
            assert_eq!(Diagnostic::from(message), diagnostic);
        }
        let plain = Diagnostic::new(code::SYNTAX_ERROR, "x");
        assert_eq!(Diagnostic::from(DiagnosticMessage::from(&plain)), plain);
    }

    #[test]
    fn what_is_no_sqlstate_is_an_internal_error() {
        for text in ["", "4270", "427033", "42 03", "4270é"] {
            let message = DiagnosticMessage { code: text.to_owned(), kind: 99, ..message() };
            let diagnostic = Diagnostic::from(message);
            assert_eq!((diagnostic.code, diagnostic.kind), ("XX000", Kind::FixRequest), "{text}");
        }
        assert_eq!(
            Diagnostic::from(DiagnosticMessage { code: "42Z99".into(), ..message() }).code,
            "42Z99"
        );
    }

    fn message() -> DiagnosticMessage {
        DiagnosticMessage::from(&Diagnostic::new(code::SYNTAX_ERROR, "x"))
    }
}

//! The id and the trace of a statement: what the comment of a client says of them, and the span.
//!
//! PostgreSQL's protocol has no headers. Clients and the libraries of OpenTelemetry put a comment behind
//! the statement instead, in the form of `SQLCommenter`: `/*key='value',key='value'*/` with values as in a
//! URL. A statement of the extended protocol is one call when it is executed; one that cannot be prepared
//! is one as well. Where calls are not traced and a statement has no comment, it costs one comparison.

use std::sync::Arc;

use lockstep_diagnostic::code;

use super::{ClientFailure, connection::Connection};
use crate::{
    call_id::{CallContext, CallId},
    traces::{CallTrace, TRACE_PARENT},
};

/// The key of a comment with the id of the call.
const REQUEST_ID: &str = "request_id";

/// The longest first word of a statement that names its span.
const NAME_BYTES_MAX: usize = 32;

/// What the comment of a statement says of its call.
#[derive(Debug, Default, PartialEq, Eq)]
struct StatementComment {
    request_id: Option<String>,
    trace_parent: Option<String>,
}

impl StatementComment {
    /// Reads the comment that ends a text, before or behind a semicolon. What is not as `SQLCommenter`
    /// writes it is left out.
    fn read(text: &str) -> Self {
        let mut comment = Self::default();
        let text = text.trim_end_matches(|c: char| c.is_ascii_whitespace() || c == ';');
        let Some(rest) = text.strip_suffix("*/") else { return comment };
        let Some((_, content)) = rest.rsplit_once("/*") else { return comment };
        for (key, value) in content.split(',').filter_map(|pair| pair.split_once('=')) {
            let value = value.trim().strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            let value = value.and_then(decoded);
            match key.trim() {
                TRACE_PARENT => comment.trace_parent = value,
                REQUEST_ID => comment.request_id = value,
                _ => {}
            }
        }
        comment
    }

    fn context(&self) -> CallContext<'_> {
        CallContext {
            request_id: self.request_id.as_deref(),
            trace_parent: self.trace_parent.as_deref(),
        }
    }
}

/// Decodes a value that is written as in a URL; `None` where it is not, or has characters that no header
/// would have.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let is_escape = *first == b'%';
        rest = after;
        if is_escape {
            let (digits, after) = rest.split_first_chunk::<2>()?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    let is_usable = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    String::from_utf8(bytes).ok().filter(|_| is_usable)
}

/// Returns the name of the span of a statement: its first word, in upper case.
fn name_of(sql: &str) -> String {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '(');
        // Comments before the statement; those that have no end are errors elsewhere.
        let after = match rest.as_bytes() {
            [b'/', b'*', ..] => rest.split_once("*/"),
            [b'-', b'-', ..] => rest.split_once('\n'),
            _ => break,
        };
        let Some((_, after)) = after else { break };
        rest = after;
    }
    let end = rest.bytes().take(NAME_BYTES_MAX).take_while(u8::is_ascii_alphabetic).count();
    if end == 0 { "statement".to_owned() } else { rest[..end].to_ascii_uppercase() }
}

impl Connection {
    /// Begins a statement, and returns when that is. `text` ends with the statement's comment.
    pub(crate) fn begin_statement(&mut self, text: &str) -> u64 {
        let begun_ns = self.state.clock.monotonic_ns();
        let comment = StatementComment::read(text);
        let has_id = self.state.tracer.is_some() || comment.request_id.is_some();
        self.call = has_id.then(|| CallId::begin(&self.state, comment.context(), begun_ns));
        if let Some(trace) = self.trace() {
            trace.set_text("enduser.id", self.session.user());
        }
        begun_ns
    }

    /// Ends a statement that has run: counts it, and ends its trace.
    pub(crate) fn end_statement(
        &mut self,
        begun_ns: u64,
        sql: &str,
        done: &Result<(), ClientFailure>,
    ) {
        self.record(begun_ns, sql, done.is_err());
        self.end_trace(sql, done.as_ref().err());
    }

    /// Ends the trace of a statement, if it is traced, with why it has failed if it has.
    pub(crate) fn end_trace(&mut self, sql: &str, failure: Option<&ClientFailure>) {
        let Some(call) = self.call.take() else { return };
        let Some(trace) = call.trace() else { return };
        let code = match failure {
            None => code::SUCCESS,
            Some(ClientFailure::Error(error)) => error.code,
            Some(ClientFailure::Connection(_)) => code::CONNECTION_FAILURE,
        };
        trace.set_text("db.response.status_code", code);
        trace.finish(name_of(sql), failure.map(|_| format!("SQLSTATE {code}")));
    }

    /// Returns the trace of the statement that runs; `None` where it is not traced.
    pub(crate) fn trace(&self) -> Option<&Arc<CallTrace>> {
        self.call.as_ref().and_then(CallId::trace)
    }

    /// Notes rows that a statement has sent since a time: the phase of its answer.
    pub(crate) fn trace_rows(&self, begun_ns: u64, rows: u64) {
        if let Some(trace) = self.trace() {
            trace.phase_since("render", begun_ns);
            trace.set_number("lockstep.rows", rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StatementComment, name_of};

    fn check(text: &str, request_id: Option<&str>, trace_parent: Option<&str>) {
        let expected = StatementComment {
            request_id: request_id.map(str::to_owned),
            trace_parent: trace_parent.map(str::to_owned),
        };
        assert_eq!(StatementComment::read(text), expected, "{text}");
    }

    #[test]
    fn the_comment_behind_a_statement_is_read() {
        check("SELECT 1 /*traceparent='00-a-b-01'*/", None, Some("00-a-b-01"));
        check("SELECT 1 /*request_id='a%20b',traceparent='x'*/ ;\n", Some("a b"), Some("x"));
        check("SELECT 1; /* db='x' , request_id = 'y' */", Some("y"), None);
        check("SELECT 1 /* text */ /*request_id='z'*/", Some("z"), None);
        check("/*request_id='z'*/", Some("z"), None);
    }

    #[test]
    fn what_is_no_comment_of_a_client_says_nothing() {
        for text in [
            "",
            "SELECT 1",
            "SELECT '/*request_id=''z''*/'",
            "SELECT 1 /* request_id */",
            "SELECT 1 /*request_id=z*/",
            "SELECT 1 /*request_id='%'*/",
            "SELECT 1 /*request_id='%zz'*/",
            "SELECT 1 /*request_id='%0a'*/",
            "SELECT 1 /*request_id='é'*/",
            "SELECT 1 /*request_id='*/",
            "/*/",
            "*/",
            "SELECT /*request_id='z'*/ 1",
        ] {
            check(text, None, None);
        }
    }

    #[test]
    fn a_span_has_the_first_word_as_its_name() {
        for (sql, expected) in [
            ("select 1", "SELECT"),
            (" \n( With a AS", "WITH"),
            ("-- x\n/* y */ copy t", "COPY"),
            ("/* y", "statement"),
            ("", "statement"),
            ("é", "statement"),
        ] {
            assert_eq!(name_of(sql), expected, "{sql}");
        }
    }
}

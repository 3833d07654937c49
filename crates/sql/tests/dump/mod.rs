//! Syntax trees as s-expressions, short enough to be read in a golden file.
//!
//! The golden tests call it. Spans are left out: errors show theirs, and a property test checks
//! that those of the trees hold their parts.

mod expression;
mod statement;

use lockstep_diagnostic::Diagnostic;
use lockstep_sql::parse;

/// Returns the statements of `sql` line by line, or its error with the text that it points at.
pub(crate) fn script(sql: &str) -> String {
    match parse(sql) {
        Ok(parsed) => {
            let lines: Vec<String> =
                parsed.iter().map(|parsed| statement::statement(&parsed.statement)).collect();
            lines.join("\n")
        }
        Err(error) => diagnostic(sql, &error),
    }
}

fn diagnostic(sql: &str, error: &Diagnostic) -> String {
    let mut text = format!("error[{}]: {}", error.code, error.message);
    if let Some(span) = error.span {
        text.push_str(&format!(
            "\n  at {}..{} {:?}",
            span.start,
            span.end,
            &sql[span.start..span.end]
        ));
    }
    for (label, value) in [("detail", &error.detail), ("hint", &error.hint)] {
        if let Some(value) = value {
            text.push_str(&format!("\n  {label}: {value}"));
        }
    }
    text
}

/// Returns `(head part part …)`; empty parts are left out.
fn list(head: &str, parts: impl IntoIterator<Item = String>) -> String {
    let mut text = format!("({head}");
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        text.push(' ');
        text.push_str(&part);
    }
    text.push(')');
    text
}

/// Returns `(head …)`, or nothing at all for an empty list.
fn clause(head: &str, parts: impl IntoIterator<Item = String>) -> String {
    let parts: Vec<String> = parts.into_iter().collect();
    if parts.is_empty() { String::new() } else { list(head, parts) }
}

/// Returns the word when the condition holds.
fn flag(condition: bool, word: &str) -> String {
    if condition { word.to_owned() } else { String::new() }
}

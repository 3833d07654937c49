//! Rendering a diagnostic as text for a terminal: message, the offending line, a caret, hints.

use crate::{Diagnostic, Span};

/// Longer lines are cut around the position, so that one line of output stays readable.
const LINE_CHARS_MAX: usize = 160;

/// Renders a diagnostic about a statement.
pub(crate) fn render(diagnostic: &Diagnostic, sql: Option<&str>) -> String {
    let mut text = format!("error[{}]: {}", diagnostic.code, diagnostic.message);
    if let (Some(span), Some(sql)) = (diagnostic.span, sql) {
        text.push('\n');
        text.push_str(&excerpt(sql, span));
    }
    for (label, value) in [("detail", &diagnostic.detail), ("hint", &diagnostic.hint)] {
        if let Some(value) = value {
            text.push_str(&format!("\n{label}: {value}"));
        }
    }
    text
}

/// Returns the line with the start of `span`, and carets under the part that the span covers.
fn excerpt(sql: &str, span: Span) -> String {
    let start = floor_char_boundary(sql, span.start);
    let line_start = sql[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = sql[start..].find('\n').map_or(sql.len(), |at| start + at);
    let line_number = sql[..line_start].matches('\n').count() + 1;
    let line: Vec<char> = sql[line_start..line_end].chars().collect();
    let column = sql[line_start..start].chars().count();
    let end = floor_char_boundary(sql, span.end).clamp(start, line_end);
    let width = sql[start..end].chars().count().max(1);

    let cut =
        if line.len() > LINE_CHARS_MAX { column.saturating_sub(LINE_CHARS_MAX / 2) } else { 0 };
    let shown: String = line.iter().skip(cut).take(LINE_CHARS_MAX).collect();
    let shown = shown.replace('\t', " ");
    debug_assert!(cut <= column, "the position is shown");
    let width_max = LINE_CHARS_MAX.saturating_sub(column - cut).max(1);
    let gutter = format!("line {line_number}: ");
    let indent = " ".repeat(gutter.chars().count() + column - cut);
    format!("{gutter}{}\n{indent}{}", shown.trim_end(), "^".repeat(width.min(width_max)))
}

/// Returns the last character boundary at or before a position.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use crate::{Diagnostic, Span, code};

    #[test]
    fn the_caret_stands_under_the_name() {
        let sql = "SELECT a,\n  cuont(b)\nFROM t";
        let error = Diagnostic::new(code::UNDEFINED_FUNCTION, "function `cuont` does not exist")
            .at(Span::new(12, 17))
            .with_nearest("cuont", ["count"]);
        let expected = "error[42883]: function `cuont` does not exist\n\
                        line 2:   cuont(b)\n          ^^^^^\n\
                        hint: Did you mean `count`?";
        assert_eq!(error.render(Some(sql)), expected);
    }

    #[test]
    fn a_position_past_the_end_points_at_the_end() {
        let error =
            Diagnostic::new(code::SYNTAX_ERROR, "statement ends early").at(Span::new(99, 99));
        assert_eq!(
            error.render(Some("SELECT é")),
            "error[42601]: statement ends early\nline 1: SELECT é\n                ^"
        );
    }
}

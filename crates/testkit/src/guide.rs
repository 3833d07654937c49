//! Documents whose examples are tests: each `sql` block runs, and its output is the `text` block.
//!
//! The blocks of a file run in order, in a database of their own. A block may hold several
//! statements; the output is that of the last one. A `text` block right after a `sql` block is its
//! output: a table, a message with its warnings, or a rendered error. A block without one must
//! succeed and give no rows.

use std::{fs, path::Path};

use lockstep_engine::{Database, Diagnostic, Output, Session};
use lockstep_row::{DataType, Value};

use crate::{
    rows,
    slt::{self, files_with},
};

const SQL_FENCE: &str = "```sql";
const TEXT_FENCE: &str = "```text";
const FENCE: &str = "```";

/// Lists the documents at or below a path, sorted.
pub fn files_below(path: &Path) -> Vec<std::path::PathBuf> {
    files_with(path, "md")
}

/// Runs a document; the error shows the first difference. Returns the number of blocks.
pub fn run(file: &Path) -> Result<usize, String> {
    let text = read(file)?;
    let (actual, count) = played(&text);
    if actual == text {
        return Ok(count);
    }
    let lines = text.lines().zip(actual.lines()).enumerate();
    let first = lines.into_iter().find(|(_, (expected, actual))| expected != actual);
    let (line, (expected, actual)) = first.unwrap_or((text.lines().count(), ("the end", "more")));
    Err(format!("{}:{}\nexpected: {expected}\n  actual: {actual}\n", file.display(), line + 1))
}

/// Runs a document and writes the outputs into it, to be read before they are committed.
pub fn complete(file: &Path) -> Result<(), String> {
    let (actual, _) = played(&read(file)?);
    fs::write(file, actual).map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Runs the blocks of a document; returns it with their outputs, and the number of blocks.
fn played(text: &str) -> (String, usize) {
    let session = Database::in_memory().session();
    let mut lines = text.lines().peekable();
    let mut played: Vec<String> = Vec::new();
    let mut count = 0;
    while let Some(line) = lines.next() {
        played.push(line.to_owned());
        if line != SQL_FENCE {
            continue;
        }
        let sql: Vec<&str> = lines.by_ref().take_while(|line| *line != FENCE).collect();
        played.extend(sql.iter().map(|line| (*line).to_owned()));
        played.push(FENCE.to_owned());
        count += 1;
        while lines.next_if(|line| line.is_empty()).is_some() {}
        if lines.next_if(|line| *line == TEXT_FENCE).is_some() {
            lines.by_ref().find(|line| *line == FENCE);
            while lines.next_if(|line| line.is_empty()).is_some() {}
        }
        let output = output_of(&session, &sql.join("\n"));
        if !output.is_empty() {
            played.extend([String::new(), TEXT_FENCE.to_owned()]);
            played.extend(output.lines().map(|line| line.trim_end().to_owned()));
            played.push(FENCE.to_owned());
        }
        if lines.peek().is_some() {
            played.push(String::new());
        }
    }
    (played.join("\n") + "\n", count)
}

/// Formats the output of a block as a user would see it.
fn output_of(session: &Session, sql: &str) -> String {
    let executed = session.execute(sql);
    session.database().settle_streams();
    match executed {
        Err(error) => error.render(Some(sql)),
        Ok(output) => {
            let warning =
                |warning: &Diagnostic| warning.render(Some(sql)).replacen("error[", "warning[", 1);
            let mut parts: Vec<String> = output.warnings.iter().map(warning).collect();
            if !output.columns.is_empty() {
                parts.push(table(&output));
            }
            parts.join("\n")
        }
    }
}

/// Formats columns under their names, numbers to the right.
fn table(output: &Output) -> String {
    let mut lines: Vec<Vec<String>> = vec![output.columns.iter().map(|c| c.0.clone()).collect()];
    for row in rows::of_output(output) {
        lines.push(row.iter().map(cell).collect());
    }
    let widths: Vec<usize> = (0..output.columns.len())
        .map(|index| lines.iter().map(|line| line[index].chars().count()).max().unwrap_or(0))
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    lines.insert(1, rule);
    let drawn = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths).zip(&output.columns);
        cells
            .map(|((cell, width), (_, data_type))| match is_number(data_type) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect::<Vec<_>>()
            .join("  ")
    });
    drawn.collect::<Vec<_>>().join("\n")
}

fn is_number(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Float | DataType::Double
    )
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('\n', "\\n"),
        Value::Timestamp(ms) => time_of_day(*ms),
        _ => slt::text(value),
    }
}

/// Formats a timestamp as `2024-03-01 09:00:00`, with milliseconds if it has any.
fn time_of_day(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let days = i32::try_from(ms.div_euclid(DAY_MS)).expect("a document shows ordinary times");
    let of_day = ms.rem_euclid(DAY_MS);
    let (seconds, ms) = (of_day / 1_000, of_day % 1_000);
    let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let date = slt::text(&Value::Date(days));
    format!("{date} {hour:02}:{minute:02}:{second:02}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::played;

    #[test]
    fn outputs_follow_their_blocks() {
        let text = "# T\n\n```sql\nSELECT 1 AS a, 'x' AS bc\n```\n\n```text\nold\n```\n\nEnd.\n";
        let actual = "# T\n\n```sql\nSELECT 1 AS a, 'x' AS bc\n```\n\n```text\na  bc\n-  --\n1  x\n```\n\nEnd.\n";
        assert_eq!(played(text), (actual.to_owned(), 1));
        assert_eq!(played(actual), (actual.to_owned(), 1));
    }
}

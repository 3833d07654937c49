//! The prompt: reads lines until a statement is complete, or a command.

use std::io::{self, BufRead, Write};

use crate::{
    editor::LineEditor,
    script::{is_complete, is_open, without_mark},
};

/// The input of a user at the prompt.
#[derive(Debug)]
pub(crate) enum PromptLine {
    /// A line with its end.
    Text(String),
    /// Ctrl-C: the statement so far is dropped.
    Dropped,
    /// The end of input.
    End,
}

/// What a user has typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PromptEntry {
    /// Whole statements and commands.
    Script(String),
    /// A command before the statement that has begun is complete.
    CommandWithin(String),
    /// The end of input.
    End,
}

/// Where the lines are from.
pub(crate) enum PromptInput<'a> {
    /// Without editing.
    Lines(&'a mut dyn BufRead),
    /// The terminal.
    Terminal(Box<LineEditor>),
}

/// The lines of a user.
pub(crate) struct Prompt<'a> {
    input: PromptInput<'a>,
    /// The lines of the statement that has begun.
    begun: String,
    is_first: bool,
}

impl<'a> Prompt<'a> {
    pub(crate) fn new(input: PromptInput<'a>) -> Self {
        Self { input, begun: String::new(), is_first: true }
    }

    /// Reads what the user types next. Where the terminal does not edit lines, the text before one goes to
    /// `err`, since the output has results only.
    pub(crate) fn next(&mut self, err: &mut dyn Write) -> io::Result<PromptEntry> {
        loop {
            let line = match self.line(err)? {
                PromptLine::Text(line) => line,
                PromptLine::Dropped => {
                    self.begun.clear();
                    continue;
                }
                PromptLine::End => return Ok(PromptEntry::End),
            };
            debug_assert!(!line.is_empty(), "without a line it is the end");
            if is_command_within(&self.begun, &line) {
                self.remember(&line)?;
                return Ok(PromptEntry::CommandWithin(line.trim().to_owned()));
            }
            self.begun.push_str(&line);
            if self.begun.trim().is_empty() {
                self.begun.clear();
            } else if is_complete(&self.begun) {
                let text = std::mem::take(&mut self.begun);
                debug_assert!(!is_open(&text), "quotes are closed");
                self.remember(&text)?;
                return Ok(PromptEntry::Script(text));
            }
        }
    }

    fn line(&mut self, err: &mut dyn Write) -> io::Result<PromptLine> {
        let prompt = if self.begun.is_empty() { "lockstep> " } else { "     ...> " };
        match &mut self.input {
            PromptInput::Terminal(editor) => editor.line(prompt, &self.begun),
            PromptInput::Lines(input) => {
                write!(err, "{prompt}")?;
                err.flush()?;
                let mut line = String::new();
                let count = input.read_line(&mut line)?;
                if std::mem::take(&mut self.is_first) {
                    line = without_mark(&line).to_owned();
                }
                Ok(if count == 0 { PromptLine::End } else { PromptLine::Text(line) })
            }
        }
    }

    fn remember(&mut self, text: &str) -> io::Result<()> {
        debug_assert!(!text.trim().is_empty(), "something was typed");
        match &mut self.input {
            PromptInput::Terminal(editor) => editor.remember(text),
            PromptInput::Lines(_) => Ok(()),
        }
    }
}

/// Whether a line is a command while a statement has begun. Those that end a statement are part of it.
fn is_command_within(begun: &str, line: &str) -> bool {
    debug_assert!(begun.is_empty() || begun.ends_with('\n'), "lines are whole");
    let is_statement = !begun.trim().is_empty() && !is_open(begun);
    let ends_it = || is_complete(&format!("{begun}{line}"));
    is_statement && line.trim_start().starts_with('\\') && !ends_it()
}

#[cfg(test)]
mod tests {
    use super::{Prompt, PromptEntry, PromptInput};

    fn check(lines: &str, expected: &[PromptEntry]) {
        let mut input = lines.as_bytes();
        let mut prompt = Prompt::new(PromptInput::Lines(&mut input));
        let mut found = Vec::new();
        while found.last() != Some(&PromptEntry::End) {
            found.push(prompt.next(&mut Vec::new()).unwrap());
        }
        assert_eq!(found, expected, "{lines}");
    }

    #[test]
    fn a_statement_may_have_several_lines_and_a_command_has_one() {
        let script = |text: &str| PromptEntry::Script(text.to_owned());
        let first = script("SELECT\r\n1;\r\n");
        check("\u{feff}SELECT\r\n1;\r\n\\dt\n", &[first, script("\\dt\n"), PromptEntry::End]);
        check("\n\nhelp\n", &[script("help\n"), PromptEntry::End]);
        check("SELECT 1\n\\g\n", &[script("SELECT 1\n\\g\n"), PromptEntry::End]);
    }

    #[test]
    fn a_command_within_a_statement_leaves_it() {
        let within = PromptEntry::CommandWithin("\\x".to_owned());
        let whole = PromptEntry::Script("SELECT\n1;\n".to_owned());
        check("SELECT\n\\x\n1;\n", &[within, whole, PromptEntry::End]);
        let quoted = PromptEntry::Script("SELECT '\n\\x\n';\n".to_owned());
        check("SELECT '\n\\x\n';\n", &[quoted, PromptEntry::End]);
    }
}

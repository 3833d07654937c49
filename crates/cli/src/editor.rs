//! The line editor of the prompt: editing, history and completion.
//!
//! The session gives the completions. The history is in the file `.lockstep_history` of the home
//! folder, if that can be written.

use std::{borrow::Cow, env, fmt, io, path::PathBuf};

use lockstep_engine::may_have_secret;
use rustyline::{
    Config, Context, Helper, completion::Completer, error::ReadlineError, highlight::Highlighter,
    hint::Hinter, history::FileHistory, validate::Validator,
};

use crate::{shell::PromptLine, shell_session::ShellSession};

/// The most lines of the history.
const HISTORY_LINES_MAX: usize = 10_000;

/// Reads lines from the terminal.
pub(crate) struct LineEditor {
    lines: rustyline::Editor<WordCompleter, FileHistory>,
    history: Option<PathBuf>,
}

impl fmt::Debug for LineEditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineEditor").field("history", &self.history).finish_non_exhaustive()
    }
}

impl LineEditor {
    /// Opens the terminal; words are completed with the names that the session knows.
    pub(crate) fn open(session: ShellSession) -> io::Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(io_error)?
            .build();
        let mut lines = rustyline::Editor::with_config(config).map_err(io_error)?;
        lines.set_helper(Some(WordCompleter { session }));
        let history = env::home_dir().map(|home| home.join(".lockstep_history"));
        if let Some(path) = &history {
            // There is none before the first run.
            drop(lines.load_history(path));
        }
        Ok(Self { lines, history })
    }

    /// Reads a line that follows the lines of a statement that has begun. The history gets it, unless
    /// the statement may have a password.
    pub(crate) fn line(&mut self, prompt: &str, begun: &str) -> io::Result<PromptLine> {
        debug_assert!(begun.is_empty() || begun.ends_with('\n'), "lines are whole");
        match self.lines.readline(prompt) {
            Ok(line) => {
                if !may_have_secret(&format!("{begun}{line}")) {
                    self.lines.add_history_entry(line.as_str()).map_err(io_error)?;
                    self.save_history();
                }
                Ok(PromptLine::Text(line + "\n"))
            }
            Err(ReadlineError::Interrupted) => Ok(PromptLine::Dropped),
            Err(ReadlineError::Eof) => Ok(PromptLine::End),
            Err(error) => Err(io_error(error)),
        }
    }

    /// Appends new lines to the history file, so that they are there however the shell ends.
    fn save_history(&mut self) {
        if let Some(path) = &self.history {
            // A history that cannot be written is not an error.
            drop(self.lines.append_history(path));
        }
    }
}

fn io_error(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Completes words with keywords and the names of the catalog.
struct WordCompleter {
    session: ShellSession,
}

impl Completer for WordCompleter {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let start = word_start(&line[..position]);
        if start == position {
            return Ok((position, Vec::new()));
        }
        Ok((start, self.session.complete(&line[start..position])))
    }
}

/// Returns the position at which the last word of a text begins.
fn word_start(text: &str) -> usize {
    let is_of_word = |character: char| character.is_alphanumeric() || character == '_';
    text.len()
        - text.chars().rev().take_while(|c| is_of_word(*c)).map(char::len_utf8).sum::<usize>()
}

impl Hinter for WordCompleter {
    type Hint = String;
}

impl Highlighter for WordCompleter {
    fn highlight_candidate<'c>(
        &self,
        candidate: &'c str,
        _completion: rustyline::CompletionType,
    ) -> Cow<'c, str> {
        Cow::Borrowed(candidate)
    }
}

impl Validator for WordCompleter {}

impl Helper for WordCompleter {}

#[cfg(test)]
mod tests {
    use super::word_start;

    #[test]
    fn a_word_ends_at_what_is_no_letter_digit_or_underscore() {
        assert_eq!(word_start("SELECT top_n"), 7);
        assert_eq!(word_start("SELECT t.é1"), 9);
        assert_eq!(word_start("SELECT ("), 8);
        assert_eq!(word_start(""), 0);
    }
}

//! Lines at the prompt: editing, history and completion.
//!
//! The shell asks for a line; what may stand at a place the session says. The history is kept in
//! the file `.lockstep_history` of the home folder, when there is one that can be written.

use std::{borrow::Cow, env, fmt, io, path::PathBuf, sync::Arc};

use lockstep_engine::Session;
use rustyline::{
    Config, Context, Helper, completion::Completer, error::ReadlineError, highlight::Highlighter,
    hint::Hinter, history::FileHistory, validate::Validator,
};

use crate::shell::Line;

/// Lines that the history keeps at most.
const HISTORY_LINES_MAX: usize = 10_000;

/// The terminal as a place where lines are edited.
pub(crate) struct Editor {
    lines: rustyline::Editor<Words, FileHistory>,
    history: Option<PathBuf>,
}

impl fmt::Debug for Editor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Editor").field("history", &self.history).finish_non_exhaustive()
    }
}

impl Editor {
    /// Takes the terminal; words are completed with what the session knows.
    pub(crate) fn open(session: Arc<Session>) -> io::Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(failed)?
            .build();
        let mut lines = rustyline::Editor::with_config(config).map_err(failed)?;
        lines.set_helper(Some(Words { session }));
        let history = env::home_dir().map(|home| home.join(".lockstep_history"));
        if let Some(path) = &history {
            // A first session has none.
            drop(lines.load_history(path));
        }
        Ok(Self { lines, history })
    }

    /// Waits for a line.
    pub(crate) fn line(&mut self, prompt: &str) -> io::Result<Line> {
        match self.lines.readline(prompt) {
            Ok(line) => {
                self.lines.add_history_entry(line.as_str()).map_err(failed)?;
                self.keep_history();
                Ok(Line::Text(line + "\n"))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Dropped),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes what is new of the history, so that it is there however the shell ends.
    fn keep_history(&mut self) {
        if let Some(path) = &self.history {
            // A history that cannot be written is no reason to complain.
            drop(self.lines.append_history(path));
        }
    }
}

fn failed(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Completes words.
struct Words {
    session: Arc<Session>,
}

impl Completer for Words {
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

/// Where the last word of a text begins.
fn word_start(text: &str) -> usize {
    let is_of_word = |character: char| character.is_alphanumeric() || character == '_';
    text.len()
        - text.chars().rev().take_while(|c| is_of_word(*c)).map(char::len_utf8).sum::<usize>()
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {
    fn highlight_candidate<'c>(
        &self,
        candidate: &'c str,
        _completion: rustyline::CompletionType,
    ) -> Cow<'c, str> {
        Cow::Borrowed(candidate)
    }
}

impl Validator for Words {}

impl Helper for Words {}

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

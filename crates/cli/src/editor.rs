//! The line editor of the prompt: editing, history and completion.

use std::{borrow::Cow, fmt, io};

use rustyline::{
    CompletionType, Config, Context, Helper,
    completion::{Completer, FilenameCompleter},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::Validator,
};

use crate::{
    completion::{self, CompletionPlace},
    history::{HISTORY_ENTRIES_MAX, StatementHistory},
    prompt::PromptLine,
    shell_session::ShellSession,
};

/// Reads lines from the terminal.
pub(crate) struct LineEditor {
    lines: rustyline::Editor<WordCompleter, FileHistory>,
    history: StatementHistory,
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
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_ENTRIES_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(io_error)?
            .build();
        let mut lines = rustyline::Editor::with_config(config).map_err(io_error)?;
        lines.set_helper(Some(WordCompleter { session, begun: String::new() }));
        let history = StatementHistory::load(&mut lines);
        Ok(Self { lines, history })
    }

    /// Reads a line that follows the lines of a statement that has begun.
    pub(crate) fn line(&mut self, prompt: &str, begun: &str) -> io::Result<PromptLine> {
        debug_assert!(begun.is_empty() || begun.ends_with('\n'), "lines are whole");
        if let Some(helper) = self.lines.helper_mut() {
            begun.clone_into(&mut helper.begun);
        }
        match self.lines.readline(prompt) {
            Ok(line) => Ok(PromptLine::Text(line + "\n")),
            Err(ReadlineError::Interrupted) => Ok(PromptLine::Dropped),
            Err(ReadlineError::Eof) => Ok(PromptLine::End),
            Err(error) => Err(io_error(error)),
        }
    }

    /// Adds what was typed to the history: a statement, or a command.
    pub(crate) fn remember(&mut self, text: &str) -> io::Result<()> {
        self.history.add(text, &mut self.lines)
    }
}

pub(crate) fn io_error(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Completes words with keywords and the names of the catalog.
struct WordCompleter {
    session: ShellSession,
    /// The lines of the statement before the one that is edited.
    begun: String,
}

impl Completer for WordCompleter {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let text = format!("{}{line}", self.begun);
        let (start, place) = completion::place_at(&text, self.begun.len() + position);
        // A word does not extend over lines.
        let start = start.saturating_sub(self.begun.len());
        if place == CompletionPlace::File {
            let (start, found) = FilenameCompleter::new().complete_path(line, position)?;
            return Ok((start, found.into_iter().map(|pair| pair.replacement).collect()));
        }
        Ok((start, completion::names(&place, &line[start..position], &self.session)))
    }
}

impl Hinter for WordCompleter {
    type Hint = String;
}

impl Highlighter for WordCompleter {
    fn highlight_candidate<'c>(
        &self,
        candidate: &'c str,
        _completion: CompletionType,
    ) -> Cow<'c, str> {
        Cow::Borrowed(candidate)
    }
}

impl Validator for WordCompleter {}

impl Helper for WordCompleter {}

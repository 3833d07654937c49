//! The history of statements, between the sessions of the shell too.
//!
//! A statement is one entry, however many lines it has. One that may have a password is left out. The file
//! is `.lockstep_history` of the home folder, if that can be written.

use std::{env, io, path::PathBuf};

use lockstep_engine::may_have_secret;
use rustyline::{Helper, history::FileHistory};

use crate::editor::io_error;

/// The most entries of the history.
pub(crate) const HISTORY_ENTRIES_MAX: usize = 10_000;

/// Where the entries of an editor are stored.
#[derive(Debug)]
pub(crate) struct StatementHistory {
    file: Option<PathBuf>,
}

impl StatementHistory {
    /// Reads the entries of earlier sessions.
    pub(crate) fn load<H: Helper>(lines: &mut rustyline::Editor<H, FileHistory>) -> Self {
        let file = env::home_dir().map(|home| home.join(".lockstep_history"));
        if let Some(path) = &file {
            // There is none before the first run.
            drop(lines.load_history(path));
        }
        Self { file }
    }

    /// Adds what was typed, and appends it to the file at once, so that it is there however the shell
    /// ends.
    pub(crate) fn add<H: Helper>(
        &self,
        text: &str,
        lines: &mut rustyline::Editor<H, FileHistory>,
    ) -> io::Result<()> {
        let Some(entry) = entry_of(text) else { return Ok(()) };
        debug_assert!(!may_have_secret(entry), "no password is stored");
        lines.add_history_entry(entry).map_err(io_error)?;
        if let Some(path) = &self.file {
            // A history that cannot be written is not an error.
            drop(lines.append_history(path));
        }
        Ok(())
    }
}

/// Returns the entry of a text; `None` where it has none.
fn entry_of(text: &str) -> Option<&str> {
    let entry = text.trim();
    (!entry.is_empty() && !may_have_secret(entry)).then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::entry_of;

    #[test]
    fn a_statement_is_an_entry_unless_it_may_have_a_password() {
        assert_eq!(entry_of("SELECT\n1;\n"), Some("SELECT\n1;"));
        assert_eq!(entry_of("\\dt\n"), Some("\\dt"));
        assert_eq!(entry_of(" \n"), None);
        assert_eq!(entry_of("CREATE USER ann\nOPTIONS(password='hush');\n"), None);
        assert_eq!(entry_of("SELECT 1; ALTER USER ann SET OPTIONS(password='hush');"), None);
    }
}

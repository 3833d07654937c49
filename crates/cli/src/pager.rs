//! The pager: a program that shows a text longer than the screen.
//!
//! It is `$PAGER`, or `less` where that is installed. Called by the printer, which decides what is long.

use std::{
    io::{self, Write},
    process::{Child, Command, Stdio},
};

/// The pager where `$PAGER` is not set: it ends at once where the text fits, passes colours on, does not
/// break lines and leaves the text on the screen.
const LESS: &[&str] = &["less", "-SFRX"];

/// The exit code of a system's shell for a command that does not exist.
const NOT_FOUND: i32 = 127;

/// Shows a text in the pager until the user leaves it. Returns whether there is one.
pub(crate) fn show(text: &str) -> io::Result<bool> {
    debug_assert!(!text.is_empty(), "only what is long is shown");
    let Some(mut child) = start() else { return Ok(false) };
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(text.as_bytes()) {
            // The user has left before the end.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            done => done?,
        }
    }
    let status = child.wait()?;
    Ok(status.code() != Some(NOT_FOUND))
}

fn start() -> Option<Child> {
    #[expect(clippy::disallowed_methods, reason = "the user's own way to name the pager")]
    let named = std::env::var("PAGER").ok().filter(|command| !command.trim().is_empty());
    let mut command = match named {
        Some(named) => of_shell(&named),
        None => {
            let mut command = Command::new(LESS[0]);
            command.args(&LESS[1..]);
            command
        }
    };
    command.stdin(Stdio::piped()).spawn().ok()
}

/// Makes a command that the system's shell reads.
fn of_shell(line: &str) -> Command {
    debug_assert!(!line.trim().is_empty(), "a program is named");
    let (shell, option) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut command = Command::new(shell);
    command.args([option, line]);
    command
}

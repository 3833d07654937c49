//! Runs statements and prints their results.

use std::{
    fmt,
    io::{self, BufRead, Write},
    ops::Range,
    path::Path,
    process::Command,
    sync::Arc,
};

use lockstep_client::RemoteClient;
use lockstep_diagnostic::{Diagnostic, Kind, Span, code};
use lockstep_engine::{Database, Output, guarded, masked};
use lockstep_host::{Clock, SystemClock, disk};

use crate::{
    arguments::{Arguments, Task},
    editor::LineEditor,
    interrupt::{self, CtrlCEffect, Interrupts},
    opening::{DatabaseTarget, banner_text},
    script::{is_complete, statements},
    shell_session::ShellSession,
    table_text::table_text,
};

/// The most rows of a result that are printed.
const ROWS_SHOWN_MAX: usize = 1_000;

const HELP: &str = "\
Statements end with `;` and may take several lines. Ctrl-C cancels the one that runs.
  .help    shows this
  .tables  lists the tables
  \\q       ends the session, as do .quit and the end of input
";

/// The input that the shell reads statements from.
pub(crate) enum ShellInput<'a> {
    /// A script to its end.
    Script(&'a mut dyn BufRead),
    /// Lines of a user, without editing.
    Lines(&'a mut dyn BufRead),
    /// The terminal.
    Terminal,
}

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

/// One run of the shell: a session with a database, and the streams it prints to.
pub(crate) struct Shell {
    session: ShellSession,
    /// The directory of the database; `None` for one in memory or on a server.
    target: Option<DatabaseTarget>,
    clock: SystemClock,
    interrupts: Interrupts,
    /// Whether the shell handles Ctrl-C: it is a process of its own.
    handles_signals: bool,
    out: Box<dyn Write>,
    err: Box<dyn Write>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Shell {
    pub(crate) fn new(out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        let session = ShellSession::Engine(Arc::new(Database::in_memory().session()));
        let (clock, interrupts) = (SystemClock::new(), Interrupts::default());
        Self { session, target: None, clock, interrupts, handles_signals: false, out, err }
    }

    /// Handles Ctrl-C, for a shell that is a process of its own.
    pub(crate) fn with_signals(self) -> Self {
        Self { handles_signals: true, ..self }
    }

    /// Runs the task that the arguments describe, and returns the exit code.
    pub(crate) fn run(&mut self, args: Vec<String>, input: ShellInput<'_>) -> i32 {
        let Arguments { task, database } = Arguments::parse(args);
        let done = match database {
            None => self.task(task, input),
            Some(target) => self.task_in(target, task, input),
        };
        // The reader of a pipe may go away early, as in `lockstep -c … | head`.
        let done = done.and_then(|code| self.out.flush().map(|()| code));
        done.unwrap_or_else(|error| i32::from(error.kind() != io::ErrorKind::BrokenPipe))
    }

    /// Runs a task with the database in a directory, or with that of a server.
    fn task_in(
        &mut self,
        target: DatabaseTarget,
        task: Task,
        input: ShellInput<'_>,
    ) -> io::Result<i32> {
        debug_assert!(self.target.is_none(), "a run has one database");
        if let Some(url) = target.server() {
            return self.task_with(url, task, input);
        }
        let database = match target.open(&mut *self.err)? {
            Ok(database) => database,
            Err(error) => return writeln!(self.err, "{}", error.render(None)).map(|()| 1),
        };
        debug_assert!(database.opened().is_some(), "it is a directory");
        self.session = ShellSession::Engine(Arc::new(database.session()));
        self.target = Some(target);
        let done = self.task(task, input);
        match guarded(|| database.close()) {
            Ok(()) => done,
            Err(error) => writeln!(self.err, "{}", error.render(None)).map(|()| 1),
        }
    }

    /// Runs a task with the database of a server.
    fn task_with(&mut self, url: &str, task: Task, input: ShellInput<'_>) -> io::Result<i32> {
        let client = match guarded(|| RemoteClient::connect(url)) {
            Ok(client) => client,
            Err(error) => return writeln!(self.err, "{}", error.render(None)).map(|()| 1),
        };
        self.session = ShellSession::Server(client.clone());
        let done = self.task(task, input);
        match guarded(|| client.close()) {
            Ok(()) => done,
            Err(error) => writeln!(self.err, "{}", error.render(None)).map(|()| 1),
        }
    }

    fn task(&mut self, task: Task, input: ShellInput<'_>) -> io::Result<i32> {
        match task {
            Task::Print(text) => self.out.write_all(text.as_bytes()).map(|()| 0),
            Task::Refuse(text) => self.err.write_all(text.as_bytes()).map(|()| 2),
            Task::Check(command) => command.run(&mut *self.out, &mut *self.err),
            Task::Serve(command) => command.run(&mut *self.out, &mut *self.err),
            Task::User(command) => command.run(&mut *self.out, &mut *self.err),
            Task::Doctor(command) => command.run(&mut *self.out, &mut *self.err),
            Task::Demo(args) => self.demo(&args),
            Task::Script(script) => {
                self.listen(CtrlCEffect::CancelThenExit).and_then(|()| self.script(&script))
            }
            Task::File(path) => {
                self.listen(CtrlCEffect::CancelThenExit).and_then(|()| self.file(&path))
            }
            Task::Input => self.input(input),
        }
    }

    fn listen(&self, effect: CtrlCEffect) -> io::Result<()> {
        if self.handles_signals { self.interrupts.listen(effect) } else { Ok(()) }
    }

    fn input(&mut self, input: ShellInput<'_>) -> io::Result<i32> {
        self.listen(match input {
            ShellInput::Script(_) => CtrlCEffect::CancelThenExit,
            ShellInput::Lines(_) | ShellInput::Terminal => CtrlCEffect::Cancel,
        })?;
        match input {
            ShellInput::Script(input) => {
                let mut script = String::new();
                input.read_to_string(&mut script).and_then(|_| self.script(&script))
            }
            ShellInput::Lines(input) => {
                self.prompt(|shell, begun| shell.plain_line(input, begun)).map(|()| 0)
            }
            ShellInput::Terminal => {
                let mut editor = LineEditor::open(self.session.clone())?;
                self.prompt(|shell, begun| {
                    shell.out.flush()?;
                    editor.line(prompt_of(begun), begun)
                })
                .map(|()| 0)
            }
        }
    }

    fn plain_line(&mut self, input: &mut dyn BufRead, begun: &str) -> io::Result<PromptLine> {
        write!(self.out, "{}", prompt_of(begun))?;
        self.out.flush()?;
        let mut line = String::new();
        let count = input.read_line(&mut line)?;
        Ok(if count == 0 { PromptLine::End } else { PromptLine::Text(line) })
    }

    fn file(&mut self, path: &str) -> io::Result<i32> {
        match disk::read_to_string(Path::new(path)) {
            Ok(script) => self.script(&script),
            Err(error) => {
                let missing = error.kind() == io::ErrorKind::NotFound;
                let code = if missing { code::UNDEFINED_FILE } else { code::IO_ERROR };
                let diagnostic = Diagnostic::new(code, format!("file `{path}`: {error}"));
                writeln!(self.err, "{}", diagnostic.render(None)).map(|()| 1)
            }
        }
    }

    /// Runs statements one after another; the first that fails, or Ctrl-C, ends the script.
    fn script(&mut self, script: &str) -> io::Result<i32> {
        for range in statements(script) {
            let succeeded = self.statement(script, range)?;
            if self.interrupts.is_pressed() {
                return Ok(interrupt::EXIT_CODE);
            }
            if !succeeded {
                return Ok(1);
            }
        }
        Ok(0)
    }

    /// Runs the statement at `range` of a text and prints its output or its diagnostic. Returns
    /// whether it succeeded.
    fn statement(&mut self, text: &str, range: Range<usize>) -> io::Result<bool> {
        let start_ns = self.clock.monotonic_ns();
        let offset = range.start;
        let statement = &text[range];
        let context = self.interrupts.context();
        match context.run(|| guarded(|| self.session.execute(statement))) {
            Ok(output) => {
                let elapsed_ns = self.clock.monotonic_ns() - start_ns;
                self.print(text, offset, &output, elapsed_ns).map(|()| true)
            }
            Err(diagnostic) => {
                self.out.flush()?;
                writeln!(self.err, "{}", moved(&diagnostic, offset).render(Some(&masked(text))))?;
                Ok(false)
            }
        }
    }

    fn print(
        &mut self,
        text: &str,
        offset: usize,
        output: &Output,
        elapsed_ns: u64,
    ) -> io::Result<()> {
        for warning in &output.warnings {
            let rendered = moved(warning, offset).render(Some(&masked(text)));
            writeln!(self.err, "{}", rendered.replacen("error[", "warning[", 1))?;
        }
        let elapsed = duration_text(elapsed_ns);
        if !output.columns.is_empty() {
            writeln!(self.out, "{}", table_text(output, ROWS_SHOWN_MAX).draw(None))?;
            let rows = output.row_count();
            let noun = if rows == 1 { "row" } else { "rows" };
            return writeln!(self.out, "({rows} {noun}, {elapsed})\n");
        }
        let message = output.message.as_deref().unwrap_or("OK");
        match output.rows_affected {
            Some(rows) => writeln!(self.out, "{message} (rows: {rows}, {elapsed})"),
            None => writeln!(self.out, "{message} ({elapsed})"),
        }
    }

    /// Reads lines and runs the statements in them. `next` gets the lines of a statement that has
    /// begun.
    fn prompt(
        &mut self,
        mut next: impl FnMut(&mut Self, &str) -> io::Result<PromptLine>,
    ) -> io::Result<()> {
        let database = match &self.session {
            ShellSession::Engine(session) => banner_text(self.target.as_ref(), session.database()),
            ShellSession::Server(client) => client.address().to_string(),
        };
        let version = env!("CARGO_PKG_VERSION");
        writeln!(self.out, "Lockstep {version}, {database}. `.help` for help.")?;
        let mut text = String::new();
        loop {
            let start = text.len();
            match next(self, &text)? {
                PromptLine::Text(line) => text.push_str(&line),
                PromptLine::Dropped => text.clear(),
                PromptLine::End => return writeln!(self.out),
            }
            if start == 0 && self.is_command(text.trim())? {
                if matches!(text.trim(), "\\q" | ".quit" | ".exit") {
                    return Ok(());
                }
                text.clear();
            } else if text.trim().is_empty() {
                text.clear();
            } else if is_complete(&text) {
                self.interrupts.reset();
                self.script(&text)?;
                text.clear();
            }
        }
    }

    /// Whether a line is a command of the shell; runs it unless it ends the session.
    fn is_command(&mut self, line: &str) -> io::Result<bool> {
        match line {
            "\\q" | ".quit" | ".exit" => {}
            ".help" | "\\h" | "\\?" => self.out.write_all(HELP.as_bytes())?,
            ".tables" | "\\dt" => {
                self.script("SHOW TABLES;")?;
            }
            other if other.starts_with(['.', '\\']) => {
                writeln!(self.err, "`{other}` is no command of the shell; `.help` lists them")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs a demonstration, which is a program of the Python package. That package's own console
    /// script runs it directly, not through this shell.
    fn demo(&mut self, args: &[String]) -> io::Result<i32> {
        let python = Command::new("python3").args(["-m", "lockstep", "demo"]).args(args).status();
        match python {
            Ok(status) if status.success() => Ok(0),
            _ => {
                let diagnostic = Diagnostic::new(
                    code::FEATURE_NOT_SUPPORTED,
                    "the demonstrations come with the Python package",
                )
                .with_kind(Kind::FixRequest)
                .with_hint("Install the wheel of `lockstep`, then run `python3 -m lockstep demo`.");
                writeln!(self.err, "{}", diagnostic.render(None)).map(|()| 1)
            }
        }
    }
}

/// Returns the prompt after the lines of a statement that has begun.
fn prompt_of(begun: &str) -> &'static str {
    if begun.is_empty() { "lockstep> " } else { "     ...> " }
}

/// Moves the position of a diagnostic from the statement to the text that has it at `offset`.
fn moved(diagnostic: &Diagnostic, offset: usize) -> Diagnostic {
    let span = diagnostic.span.map(|span| Span::new(span.start + offset, span.end + offset));
    Diagnostic { span, ..diagnostic.clone() }
}

fn duration_text(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10),
        _ => format!("{}.{:02} s", ns / 1_000_000_000, ns / 10_000_000 % 100),
    }
}

#[cfg(test)]
mod tests;

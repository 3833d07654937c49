//! Runs the task of the command line: scripts, or a prompt, with a database.
//!
//! The commands of the shell are run in [`commands`].

mod commands;

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
    arguments::{Arguments, ScriptSource, Task},
    editor::LineEditor,
    interrupt::{self, CtrlCEffect, Interrupts},
    opening::{DatabaseTarget, banner_text},
    progress_line::{ProgressLine, ProgressTerminal},
    prompt::{Prompt, PromptEntry, PromptInput},
    result_printer::ResultPrinter,
    script::{ScriptPart, parts, without_mark},
    shell_session::ShellSession,
    switch::Switch,
};

/// The input that the shell reads statements from.
pub(crate) enum ShellInput<'a> {
    /// A script to its end.
    Script(&'a mut dyn BufRead),
    /// Lines of a user, without editing.
    Lines(&'a mut dyn BufRead),
    /// The terminal.
    Terminal,
}

/// How a script has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptEnd {
    Done,
    /// A statement or a command has failed.
    Failed,
    /// Ctrl-C was pressed.
    Interrupted,
    /// A command ends the session.
    Quit,
}

impl ScriptEnd {
    /// Returns the exit code of a run that ends with the script.
    fn exit_code(self) -> i32 {
        match self {
            Self::Done | Self::Quit => 0,
            Self::Failed => 1,
            Self::Interrupted => interrupt::EXIT_CODE,
        }
    }
}

impl ShellInput<'_> {
    /// Calls `read` with the input. The caller of the shell may hold the lock of the standard input,
    /// so that a second lock of it would wait for ever.
    fn with_reader<T>(&mut self, read: impl FnOnce(&mut dyn BufRead) -> T) -> T {
        match self {
            Self::Script(input) | Self::Lines(input) => read(&mut **input),
            Self::Terminal => read(&mut io::stdin().lock()),
        }
    }

    /// Reads a script to its end.
    fn read_to_end(&mut self) -> io::Result<String> {
        let mut script = String::new();
        self.with_reader(|input| input.read_to_string(&mut script))?;
        Ok(script)
    }
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
    /// Where a statement that takes long says how far it is; `None`: nowhere.
    progress: Option<ProgressTerminal>,
    printer: ResultPrinter,
    /// The last statement, which `\watch` runs again.
    last_statement: Option<String>,
    /// How many scripts run one inside another.
    depth: usize,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Shell {
    pub(crate) fn new(printer: ResultPrinter) -> Self {
        Self {
            session: ShellSession::Engine(Arc::new(Database::in_memory().session())),
            target: None,
            clock: SystemClock::new(),
            interrupts: Interrupts::default(),
            handles_signals: false,
            progress: None,
            printer,
            last_statement: None,
            depth: 0,
        }
    }

    /// Handles Ctrl-C, for a shell that is a process of its own.
    pub(crate) fn with_signals(self) -> Self {
        Self { handles_signals: true, ..self }
    }

    /// Says on a terminal how far a statement is.
    pub(crate) fn with_progress(self, progress: Option<ProgressTerminal>) -> Self {
        Self { progress, ..self }
    }

    /// Runs the task that the arguments describe, and returns the exit code.
    pub(crate) fn run(&mut self, args: Vec<String>, input: ShellInput<'_>) -> i32 {
        let Arguments { task, database, printing } = Arguments::parse(args);
        self.printer.format = printing.format;
        self.printer.quiet = printing.quiet;
        let done = match database {
            None => self.task(task, input),
            Some(target) => self.task_in(target, task, input),
        };
        // The reader of a pipe may go away early, as in `lockstep -c … | head`.
        let done = done.and_then(|code| self.printer.out.flush().map(|()| code));
        done.unwrap_or_else(|error| self.stream_failure(&error))
    }

    /// Says that a stream of the shell has failed, and returns the exit code. Silent where nobody reads
    /// the output any more.
    fn stream_failure(&mut self, error: &io::Error) -> i32 {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return 0;
        }
        let (code, message) = match error.kind() {
            io::ErrorKind::InvalidData => (code::INVALID_ENCODING, "the input is not valid UTF-8"),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (code::DISK_FULL, "could not write the output")
            }
            _ => (code::IO_ERROR, "could not read the input or write the output"),
        };
        let diagnostic = Diagnostic::new(code, message).with_detail(format!("{error}."));
        // Where the standard error fails, too, the exit code is all there is.
        drop(writeln!(self.printer.err, "{}", diagnostic.render(None)));
        1
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
        let database = match target.open(&mut *self.printer.err)? {
            Ok(database) => database,
            Err(error) => return self.failure(&error),
        };
        debug_assert!(database.opened().is_some(), "it is a directory");
        self.session = ShellSession::Engine(Arc::new(database.session()));
        self.target = Some(target);
        let done = self.task(task, input);
        match guarded(|| database.close()) {
            Ok(()) => done,
            Err(error) => self.failure(&error),
        }
    }

    /// Runs a task with the database of a server.
    fn task_with(&mut self, url: &str, task: Task, input: ShellInput<'_>) -> io::Result<i32> {
        let client = match guarded(|| RemoteClient::connect(url)) {
            Ok(client) => client,
            Err(error) => return self.failure(&error),
        };
        self.session = ShellSession::Server(client.clone());
        let done = self.task(task, input);
        match guarded(|| client.close()) {
            Ok(()) => done,
            Err(error) => self.failure(&error),
        }
    }

    /// Prints an error that ends the run, and returns the exit code.
    fn failure(&mut self, error: &Diagnostic) -> io::Result<i32> {
        self.printer.error(&error.render(None)).map(|()| 1)
    }

    fn task(&mut self, task: Task, mut input: ShellInput<'_>) -> io::Result<i32> {
        let ResultPrinter { out, err, .. } = &mut self.printer;
        match task {
            Task::Print(text) => out.write_all(text.as_bytes()).map(|()| 0),
            Task::Refuse(text) => err.write_all(text.as_bytes()).map(|()| 2),
            Task::Check(command) => command.run(out, err),
            Task::Serve(command) => command.run(out, err),
            Task::User(command) => input.with_reader(|input| command.run(input, out, err)),
            Task::Doctor(command) => command.run(out, err),
            Task::Demo(args) => self.demo(&args),
            Task::Scripts(scripts) => self.scripts(&scripts, input),
            Task::Input => self.input(input),
        }
    }

    fn listen(&self, effect: CtrlCEffect) -> io::Result<()> {
        if self.handles_signals { self.interrupts.listen(effect) } else { Ok(()) }
    }

    /// Runs the scripts of the command line; the first that fails or quits ends the run.
    fn scripts(&mut self, scripts: &[ScriptSource], mut input: ShellInput<'_>) -> io::Result<i32> {
        self.listen(CtrlCEffect::CancelThenExit)?;
        debug_assert!(!scripts.is_empty(), "without a script there is a prompt");
        for script in scripts {
            let end = match script {
                ScriptSource::Text(text) => self.script(text)?,
                ScriptSource::File(path) => self.file(path)?,
                ScriptSource::Input => {
                    let text = input.read_to_end()?;
                    self.script(without_mark(&text))?
                }
            };
            if end != ScriptEnd::Done {
                return Ok(end.exit_code());
            }
        }
        Ok(0)
    }

    fn input(&mut self, mut input: ShellInput<'_>) -> io::Result<i32> {
        let prompt = match input {
            ShellInput::Script(_) => {
                self.listen(CtrlCEffect::CancelThenExit)?;
                let script = input.read_to_end()?;
                return Ok(self.script(without_mark(&script))?.exit_code());
            }
            ShellInput::Lines(input) => Prompt::new(PromptInput::Lines(input)),
            ShellInput::Terminal => {
                let editor = Box::new(LineEditor::open(self.session.clone())?);
                Prompt::new(PromptInput::Terminal(editor))
            }
        };
        self.listen(CtrlCEffect::Cancel)?;
        self.prompt(prompt).map(|()| 0)
    }

    /// Runs the script in a file.
    fn file(&mut self, path: &str) -> io::Result<ScriptEnd> {
        match disk::read_to_string(Path::new(path)) {
            Ok(script) => self.script(without_mark(&script)),
            Err(error) => {
                let diagnostic = of_file(path, "read", &error);
                self.failure(&diagnostic).map(|_| ScriptEnd::Failed)
            }
        }
    }

    /// Runs statements and commands one after another; the first that fails, or Ctrl-C, ends the script.
    fn script(&mut self, script: &str) -> io::Result<ScriptEnd> {
        for part in parts(script) {
            let end = match part {
                ScriptPart::Statement(range) => {
                    self.last_statement = Some(script[range.clone()].to_owned());
                    let succeeded = self.statement(script, range)?;
                    if succeeded { ScriptEnd::Done } else { ScriptEnd::Failed }
                }
                ScriptPart::Command(range) => self.command(&script[range])?,
            };
            if self.interrupts.is_pressed() {
                return Ok(ScriptEnd::Interrupted);
            }
            if end != ScriptEnd::Done {
                return Ok(end);
            }
        }
        Ok(ScriptEnd::Done)
    }

    /// Runs the statement at `range` of a text and prints its output or its diagnostic. Returns
    /// whether it succeeded.
    fn statement(&mut self, text: &str, range: Range<usize>) -> io::Result<bool> {
        self.statement_with(text, range, |output| output)
    }

    /// Runs a statement as [`Self::statement`] does, and prints what `change` makes of its output.
    fn statement_with(
        &mut self,
        text: &str,
        range: Range<usize>,
        change: impl FnOnce(Output) -> Output,
    ) -> io::Result<bool> {
        debug_assert!(!range.is_empty(), "a statement has a word");
        let start_ns = self.clock.monotonic_ns();
        let offset = range.start;
        let statement = &text[range];
        let terminal = self.progress.clone();
        let line = terminal.map(|terminal| Arc::new(ProgressLine::new(terminal, statement)));
        let context = self.interrupts.context(line.as_ref());
        let outcome = context.run(|| guarded(|| self.session.execute(statement)));
        if let Some(line) = line {
            line.end();
        }
        match outcome {
            Ok(output) => {
                let elapsed_ns = self.clock.monotonic_ns() - start_ns;
                for warning in &output.warnings {
                    let rendered = moved(warning, offset).render(Some(&masked(text)));
                    self.printer.error(&rendered.replacen("error[", "warning[", 1))?;
                }
                self.printer.output(&change(output))?;
                self.printer.time(elapsed_ns)?;
                Ok(true)
            }
            Err(diagnostic) => {
                let rendered = moved(&diagnostic, offset).render(Some(&masked(text)));
                self.printer.error(&rendered)?;
                Ok(false)
            }
        }
    }

    /// Reads and runs statements and commands until the end of input.
    fn prompt(&mut self, mut prompt: Prompt<'_>) -> io::Result<()> {
        let database = match &self.session {
            ShellSession::Engine(session) => banner_text(self.target.as_ref(), session.database()),
            ShellSession::Server(client) => client.address().to_string(),
        };
        let version = env!("CARGO_PKG_VERSION");
        self.printer.note(&format!("Lockstep {version}, {database}. `\\?` for help."))?;
        self.printer.timing = Switch::On;
        loop {
            self.printer.out.flush()?;
            let entry = prompt.next(&mut *self.printer.err)?;
            self.interrupts.reset();
            let end = match entry {
                PromptEntry::Script(text) => self.script(&text)?,
                PromptEntry::CommandWithin(line) => self.command(&line)?,
                PromptEntry::End => return writeln!(self.printer.err),
            };
            if end == ScriptEnd::Quit {
                return Ok(());
            }
        }
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
                    "the demonstrations require the Python package",
                )
                .with_kind(Kind::FixRequest)
                .with_hint(
                    "Install the Python package `lockstep-db`, then run `python3 -m lockstep demo`.",
                );
                self.failure(&diagnostic)
            }
        }
    }
}

/// Returns the error of a file that the shell could not read or write: `verb`.
fn of_file(path: &str, verb: &str, error: &io::Error) -> Diagnostic {
    let missing = error.kind() == io::ErrorKind::NotFound;
    let code = if missing { code::UNDEFINED_FILE } else { code::IO_ERROR };
    Diagnostic::new(code, format!("could not {verb} file `{path}`: {error}"))
}

/// Moves the position of a diagnostic from the statement to the text that has it at `offset`.
fn moved(diagnostic: &Diagnostic, offset: usize) -> Diagnostic {
    let span = diagnostic.span.map(|span| Span::new(span.start + offset, span.end + offset));
    Diagnostic { span, ..diagnostic.clone() }
}

#[cfg(test)]
mod tests;

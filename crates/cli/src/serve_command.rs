//! `lockstep serve`: serves a database until a signal ends it.
//!
//! Reads the configuration, opens the database, starts the server, and tells it what signals say:
//! SIGTERM and SIGINT drain it, a second one ends it at once, SIGHUP reads the configuration and the
//! certificate again.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use clap::Parser;
use lockstep_engine::{Database, Diagnostic};
use lockstep_host::disk;
use lockstep_server::{
    DrainOutcome, RunningServer, ServerHandle, ServerSettings, ServiceState, SettingError,
    log_to_stderr,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{opening::DatabaseTarget, user_command::databases_in};

/// The exit code of a server that cancelled calls when it ended.
const EXIT_CANCELLED: i32 = 3;

/// How long closing the database may take where calls may not have ended, and may hold its locks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// What is said where it takes longer.
const NOT_CLOSED: &str = "warning: the database could not be closed because a call did not end: the \
                          next start recovers from the log, as after a crash";

/// The name of a database in memory.
const IN_MEMORY: &str = ":memory:";

/// Serves a database over HTTP, PostgreSQL's protocol and Arrow Flight SQL: to this machine only, unless
/// TLS is configured and a user can log in.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of a command line")]
#[command(
    name = "lockstep serve",
    after_help = "SIGTERM or SIGINT stops the server after running calls finish, a second one \
                  immediately; SIGHUP reloads the configuration and the certificates.\n\
                  Exit codes: 0 if all running calls finished, 3 if calls were cancelled, 1 if the \
                  server could not start or the database could not be closed, and 2 if arguments or \
                  settings are invalid."
)]
pub(crate) struct ServeCommand {
    /// Database directory, or `:memory:`. A directory that does not exist is created if its name ends
    /// in `.lockstep` and its parent directory contains no other `.lockstep` directory; see `--create`.
    #[arg(value_name = "DIR", required_unless_present = "print_config")]
    database: Option<String>,

    /// Reads settings from this TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Prints all settings with their values and descriptions, as TOML, then exits.
    #[arg(long)]
    print_config: bool,

    /// Serves HTTP on this address, such as `127.0.0.1:7431`. Overrides the setting `http.listen`.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,

    /// Serves PostgreSQL's protocol on this address; `off` disables it. Overrides the setting
    /// `postgres.listen`.
    #[arg(long, value_name = "ADDRESS")]
    postgres: Option<String>,

    /// Serves Arrow Flight SQL on this address; `off` disables it. Overrides the setting
    /// `flight.listen`.
    #[arg(long, value_name = "ADDRESS")]
    flight: Option<String>,

    /// Opens the database read-only. Same as the setting `server.read_only = true`.
    #[arg(long)]
    read_only: bool,

    /// Creates the database directory if it does not exist, whatever its name.
    #[arg(long)]
    create: bool,

    /// Overrides a setting, such as `limits.connections_max=100`. A list is written as values separated
    /// by commas, without brackets or quotes: `server.file_folders=/data/in,/data/out`; an empty value
    /// is an empty list. May be repeated; the last value of a setting applies.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Closes a database on a thread of its own; `None` where that does not end in time.
fn close_in_time(database: Database) -> Option<Result<(), Box<Diagnostic>>> {
    let (sender, receiver) = mpsc::channel();
    let close = move || drop(sender.send(database.close()));
    // Where the machine gives no thread, the channel is closed and the log is read again.
    let _thread = lockstep_host::spawn("close", close).ok();
    receiver.recv_timeout(CLOSE_TIMEOUT).ok()
}

impl ServeCommand {
    /// Parses the arguments behind `serve`.
    pub(crate) fn from_arguments(args: &[String]) -> Result<Self, clap::Error> {
        let name = std::iter::once("lockstep serve".to_owned());
        Self::try_parse_from(name.chain(args.iter().cloned()))
    }

    /// Serves until a signal ends it, and returns the exit code.
    pub(crate) fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<i32> {
        let settings = match self.settings() {
            Ok(settings) => settings,
            Err(text) => return writeln!(err, "error: {text}").map(|()| 2),
        };
        if self.print_config {
            return out.write_all(settings.to_toml().as_bytes()).map(|()| 0);
        }
        debug_assert!(self.database.is_some(), "the parser requires a directory");
        let is_new = match self.check_directory() {
            Ok(is_new) => is_new,
            Err(text) => return writeln!(err, "error: {text}").map(|()| 2),
        };
        // Opening may take minutes.
        if let Err(error) = RunningServer::check(&settings) {
            return writeln!(err, "error: {error}").map(|()| 1);
        }
        let database = match self.open(&settings, err)? {
            Ok(database) => database,
            Err(error) => return writeln!(err, "{}", error.render(None)).map(|()| 1),
        };
        if is_new {
            let path = self.database.as_deref().unwrap_or_default();
            writeln!(err, "created database `{path}`")?;
        }
        log_to_stderr(&settings);
        // Each connection is an open file.
        let _limit = lockstep_host::machine::raise_open_file_limit();
        let server = match RunningServer::start(database.clone(), settings) {
            Ok(server) => server,
            Err(error) => return writeln!(err, "error: {error}").map(|()| 1),
        };
        self.listen_to_signals(server.handle())?;
        if let Some(token) = server.start_token() {
            write_token(err, token)?;
        }
        // In one write: who waits for the first line may read no further.
        let mut lines = format!("listening on {}\n", server.http_address());
        if let Some(address) = server.postgres_address() {
            lines.push_str(&format!("listening on {address} for PostgreSQL's protocol\n"));
        }
        if let Some(address) = server.flight_address() {
            lines.push_str(&format!("listening on {address} for Flight SQL\n"));
        }
        if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
            // The server serves all the same; the log has the addresses.
            lockstep_host::log::warn(&format!("could not write the output: {error}"));
            lines.lines().for_each(lockstep_server::log_line);
        }
        report_failure(ServiceState::Ready.notify());
        let outcome = server.wait();
        let closed = match outcome {
            DrainOutcome::Finished => database.close(),
            DrainOutcome::Cancelled => match close_in_time(database) {
                Some(closed) => closed,
                None => return writeln!(err, "{NOT_CLOSED}").map(|()| EXIT_CANCELLED),
            },
        };
        if let Err(error) = closed {
            return writeln!(err, "{}", error.render(None)).map(|()| 1);
        }
        Ok(if outcome == DrainOutcome::Finished { 0 } else { EXIT_CANCELLED })
    }

    /// Checks that the directory exists, or may be created. Returns whether it will be.
    fn check_directory(&self) -> Result<bool, String> {
        let Some(path) = self.database.as_deref().filter(|path| *path != IN_MEMORY) else {
            return Ok(false);
        };
        let path = Path::new(path);
        if disk::exists(path) {
            return Ok(false);
        }
        if self.create || self.read_only {
            return Ok(self.create);
        }
        debug_assert!(!self.create, "a directory that --create names needs no other rule");
        let shown = path.display();
        if path.extension().is_none_or(|end| end != "lockstep") {
            return Err(format!(
                "database `{shown}` does not exist\nhint: Use --create to create it; without \
                 --create, only a directory whose name ends in .lockstep is created."
            ));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let others = databases_in(folder.unwrap_or_else(|| Path::new(".")));
        match others.first() {
            None => Ok(true),
            Some(other) => Err(format!(
                "database `{shown}` does not exist, but `{}` does\nhint: Use --create to \
                 create `{shown}`.",
                other.display()
            )),
        }
    }

    /// Reads the configuration file and what the arguments set over it.
    fn settings(&self) -> Result<ServerSettings, String> {
        let in_file = |error: &dyn std::fmt::Display| {
            let path = self.config.as_deref().unwrap_or_else(|| "".as_ref());
            format!("{}: {error}", path.display())
        };
        let mut settings = match &self.config {
            None => ServerSettings::default(),
            Some(path) => {
                let text = disk::read_to_string(path).map_err(|error| in_file(&error))?;
                ServerSettings::from_toml(&text).map_err(|error| in_file(&error))?
            }
        };
        let text = |error: SettingError| error.to_string();
        if let Some(address) = &self.http {
            settings.set("http.listen", address).map_err(text)?;
        }
        if let Some(address) = &self.postgres {
            settings.set("postgres.listen", address).map_err(text)?;
        }
        if let Some(address) = &self.flight {
            settings.set("flight.listen", address).map_err(text)?;
        }
        if self.read_only {
            settings.set("server.read_only", "true").map_err(text)?;
        }
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("invalid argument for --set: `{pair}` (expected KEY=VALUE)"));
            };
            settings.set(key.trim(), value.trim()).map_err(text)?;
        }
        settings.validate().map_err(text)?;
        Ok(settings)
    }

    /// Opens the database.
    fn open(
        &self,
        settings: &ServerSettings,
        err: &mut dyn Write,
    ) -> io::Result<lockstep_diagnostic::Result<Database>> {
        match self.database.as_deref() {
            None | Some(IN_MEMORY) => Ok(Ok(Database::in_memory())),
            Some(path) => {
                let read_only = settings.is_read_only();
                DatabaseTarget { path: path.into(), read_only }.open(err)
            }
        }
    }

    /// Starts the thread that tells the server what signals say.
    fn listen_to_signals(&self, server: ServerHandle) -> io::Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let command = self.clone();
        lockstep_host::spawn("signals", move || {
            for signal in signals.forever() {
                debug_assert!(
                    [SIGTERM, SIGINT, SIGHUP].contains(&signal),
                    "no other is waited for"
                );
                if signal == SIGHUP {
                    report_reload(command.settings().and_then(|new| server.reload(new)));
                } else if server.drain() {
                    lockstep_server::log_line("draining");
                    report_failure(ServiceState::Stopping.notify());
                } else {
                    server.stop();
                }
            }
        })?;
        Ok(())
    }
}

/// Writes how to log in where no user can.
fn write_token(err: &mut dyn Write, token: &str) -> io::Result<()> {
    debug_assert!(!token.contains(char::is_whitespace), "a token is one word");
    writeln!(
        err,
        "No user of the database can log in. Until the server stops, this token authenticates as \
         root, from this machine only:\n\n    Authorization: Bearer {token}\n\n(psql: user root, the token as \
         password, and PGOPTIONS='-c lockstep.authentication=token'.) To set a password for root, run \
         ALTER USER root SET OPTIONS(password='…')."
    )
}

/// Logs what a reload has done.
fn report_reload(reloaded: Result<Vec<&'static str>, String>) {
    match reloaded {
        Ok(fixed) if fixed.is_empty() => {
            lockstep_server::log_line("configuration reloaded");
        }
        Ok(fixed) => {
            let keys = fixed.join(", ");
            debug_assert!(!keys.is_empty(), "a setting has a key");
            lockstep_host::log::warn(&format!(
                "{keys} cannot be changed without restarting the server"
            ));
        }
        Err(text) => {
            lockstep_host::log::warn(&format!("configuration not changed: {text}"));
        }
    }
}

/// Logs that the service manager could not be told.
fn report_failure(told: io::Result<()>) {
    if let Err(error) = told {
        lockstep_host::log::warn(&format!("could not notify the service manager: {error}"));
    }
}

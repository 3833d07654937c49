//! The arguments of the program `lockstep`.

use std::path::Path;

use clap::{ArgGroup, ArgMatches, CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use lockstep_client::ServerAddress;
use lockstep_host::disk;

use crate::{
    check_command::CheckCommand, doctor_command::DoctorCommand, opening::DatabaseTarget,
    output_format::OutputFormat, serve_command::ServeCommand, switch::Switch,
    user_command::UserTool,
};

/// Lockstep, a feature database: one SQL definition for training and for serving.
#[derive(Debug, Parser)]
#[command(
    name = "lockstep",
    version,
    group = ArgGroup::new("output").args(["format", "csv", "json", "markdown"]),
    after_help = "Without arguments, starts a prompt with an in-memory database, or runs the script \
                  from standard input if that is not a terminal.\n\
                  A path is a database if it ends in `.lockstep`, is a directory, or does not exist \
                  and has no extension; other paths are scripts.\n\
                  `lockstep check DIR` verifies the database in a directory; see `lockstep check --help`.\n\
                  `lockstep serve DIR` serves a database over HTTP, PostgreSQL's protocol and Flight \
                  SQL; see `lockstep serve --help`.\n\
                  `lockstep user add NAME` creates a user; see `lockstep user --help`.\n\
                  `lockstep doctor DIR` checks this machine and a database directory; see `lockstep \
                  doctor --help`.\n\
                  `lockstep demo flights` runs the demonstration in the Python package."
)]
struct CommandLine {
    /// Runs SQL statements and shell commands, then exits. May be repeated; `-c` and `-f` run in the
    /// order given, and the first failure ends the run.
    #[arg(short = 'c', long = "command", value_name = "SQL", allow_hyphen_values = true)]
    command: Vec<String>,

    /// Runs the script in this file, then exits; `-` is standard input. May be repeated.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Vec<String>,

    /// Sets the output format: `table`, `expanded`, `csv`, `json` or `markdown`.
    #[arg(long, value_name = "NAME", value_parser = format_of)]
    format: Option<OutputFormat>,

    /// Writes results as CSV, and nothing else to standard output.
    #[arg(long, num_args = 0, default_missing_value = "csv", value_parser = format_of)]
    csv: Option<OutputFormat>,

    /// Writes results as JSON: one array of objects per statement.
    #[arg(long, num_args = 0, default_missing_value = "json", value_parser = format_of)]
    json: Option<OutputFormat>,

    /// Writes results as Markdown tables.
    #[arg(long, num_args = 0, default_missing_value = "markdown", value_parser = format_of)]
    markdown: Option<OutputFormat>,

    /// Omits the greeting, and the status of statements that return no rows.
    #[arg(short, long)]
    quiet: bool,

    /// Opens the database read-only: statements that change it fail.
    #[arg(long)]
    read_only: bool,

    /// Database directory, created if it does not exist; server address,
    /// `lockstep://user:password@host:port/database`; script file to run with an in-memory database, `-`
    /// for standard input; or `demo`.
    #[arg(value_name = "DATABASE|FILE")]
    target: Option<String>,

    /// Arguments of `demo`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

/// The task of one run of the shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Read statements from the input.
    Input,
    /// Run scripts, one after another.
    Scripts(Vec<ScriptSource>),
    /// Run a demonstration of the Python package, with these arguments.
    Demo(Vec<String>),
    /// Verify a directory.
    Check(CheckCommand),
    /// Serve a database.
    Serve(ServeCommand),
    /// Make or remove users.
    User(UserTool),
    /// Look at the machine.
    Doctor(DoctorCommand),
    /// Print this and end with 0 (help and version).
    Print(String),
    /// Print this and end with 2.
    Refuse(String),
}

impl Task {
    /// Parses the arguments of a command that has its own.
    fn of_command(name: &str, rest: &[String]) -> Option<Self> {
        let parsed = match name {
            "check" => CheckCommand::from_arguments(rest).map(Self::Check),
            "serve" => ServeCommand::from_arguments(rest).map(Self::Serve),
            "user" => UserTool::from_arguments(rest).map(Self::User),
            "doctor" => DoctorCommand::from_arguments(rest).map(Self::Doctor),
            _ => return None,
        };
        Some(parsed.unwrap_or_else(|error| Self::print(&error)))
    }

    /// Prints the help, or what is wrong with the arguments.
    fn print(error: &clap::Error) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Self::Print(text),
            _ => Self::Refuse(text),
        }
    }
}

/// A script of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScriptSource {
    /// These statements.
    Text(String),
    /// The statements of this file.
    File(String),
    /// The standard input to its end.
    Input,
}

impl ScriptSource {
    fn of_path(path: String) -> Self {
        if path == "-" { Self::Input } else { Self::File(path) }
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PrintOptions {
    pub(crate) format: OutputFormat,
    pub(crate) quiet: Switch,
}

/// The arguments of one run of the shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) task: Task,
    /// The directory of the database; `None` for one in memory.
    pub(crate) database: Option<DatabaseTarget>,
    pub(crate) printing: PrintOptions,
}

/// Meaning of a path on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Database,
    Script,
    /// It may be either.
    Ambiguous,
}

impl Target {
    /// Tells by its name and by what there is what a path names.
    fn of(path: &str) -> Self {
        if ServerAddress::is_address(path) {
            return Self::Database;
        }
        let extension = Path::new(path).extension().map(|text| text.to_ascii_lowercase());
        let extension = extension.as_ref().and_then(|text| text.to_str());
        let (exists, is_directory) = (disk::exists(path.as_ref()), disk::is_folder(path.as_ref()));
        match (extension, is_directory, exists) {
            (Some("sql"), true, _) => Self::Ambiguous,
            (Some("lockstep"), ..) | (_, true, _) => Self::Database,
            _ if path.ends_with('/') => Self::Database,
            (Some("sql"), ..) | (_, _, true) => Self::Script,
            (None, ..) => Self::Database,
            (Some(_), ..) => Self::Ambiguous,
        }
    }
}

impl Arguments {
    /// Parses the arguments, which do not include the program's name.
    pub(crate) fn parse(args: Vec<String>) -> Self {
        if let Some((first, rest)) = args.split_first()
            && let Some(task) = Task::of_command(first, rest)
        {
            return Self::in_memory(task);
        }
        let args = std::iter::once("lockstep".to_owned()).chain(args);
        let parsed = CommandLine::command().try_get_matches_from(args).and_then(|matches| {
            let line = CommandLine::from_arg_matches(&matches)?;
            Ok(Self { printing: printing_of(&line), ..Self::of(line, scripts_of(&matches)) })
        });
        parsed.unwrap_or_else(|error| Self::in_memory(Task::print(&error)))
    }

    fn in_memory(task: Task) -> Self {
        Self { task, database: None, printing: PrintOptions::default() }
    }

    fn of(line: CommandLine, scripts: Vec<ScriptSource>) -> Self {
        let CommandLine { read_only, target, rest, .. } = line;
        let is_alone = scripts.is_empty() && !read_only;
        let task = if scripts.is_empty() { Task::Input } else { Task::Scripts(scripts) };
        let Some(path) = target else {
            if read_only {
                return Self::in_memory(refuse("--read-only requires a database directory"));
            }
            return Self::in_memory(task);
        };
        if path == "demo" && is_alone {
            return Self::in_memory(Task::Demo(rest));
        }
        if path.is_empty() {
            return Self::in_memory(refuse("path must not be empty"));
        }
        if read_only && ServerAddress::is_address(&path) {
            return Self::in_memory(refuse("--read-only applies only to a database directory"));
        }
        if let Some(other) = rest.first() {
            return Self::in_memory(refuse(&format!(
                "unexpected argument `{other}`: only one path is allowed"
            )));
        }
        if path == "-" {
            let input = Task::Scripts(vec![ScriptSource::Input]);
            let more =
                "`-` cannot be combined with other options: use `-f -` to run standard input";
            return Self::in_memory(if is_alone { input } else { refuse(more) });
        }
        // A script runs in memory: with `-c`, `-f` or `--read-only` the path is a database.
        match if is_alone { Target::of(&path) } else { Target::Database } {
            Target::Script => Self::in_memory(Task::Scripts(vec![ScriptSource::File(path)])),
            Target::Database => {
                let database = Some(DatabaseTarget { path: path.into(), read_only });
                Self { database, ..Self::in_memory(task) }
            }
            Target::Ambiguous => Self::in_memory(refuse(&format!(
                "`{path}` may be a script or a database; name a script `*.sql`, and a database \
                 `*.lockstep` or with `/` at the end"
            ))),
        }
    }
}

/// Returns the scripts of `-c` and `-f` in the order of the command line.
fn scripts_of(matches: &ArgMatches) -> Vec<ScriptSource> {
    let of = |name: &str, make: fn(String) -> ScriptSource| {
        let values = matches.get_many::<String>(name).into_iter().flatten().cloned().map(make);
        matches.indices_of(name).into_iter().flatten().zip(values).collect::<Vec<_>>()
    };
    let mut found = of("command", ScriptSource::Text);
    found.extend(of("file", ScriptSource::of_path));
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, script)| script).collect()
}

fn printing_of(line: &CommandLine) -> PrintOptions {
    let CommandLine { format, csv, json, markdown, .. } = line;
    let format = format.or(*csv).or(*json).or(*markdown).unwrap_or_default();
    PrintOptions { format, quiet: if line.quiet { Switch::On } else { Switch::Off } }
}

fn format_of(word: &str) -> Result<OutputFormat, String> {
    let known = "the output format must be table, expanded, csv, json or markdown";
    OutputFormat::of_word(word).ok_or_else(|| known.to_owned())
}

fn refuse(message: &str) -> Task {
    debug_assert!(!message.contains('\n'), "a message is a line");
    Task::Refuse(format!("error: {message}\n"))
}

#[cfg(test)]
mod tests {
    use super::{Arguments, DatabaseTarget, PrintOptions, ScriptSource, Target, Task};
    use crate::{output_format::OutputFormat, switch::Switch};

    fn parse(args: &[&str]) -> Arguments {
        Arguments::parse(args.iter().map(ToString::to_string).collect())
    }

    /// Parses arguments that name no database.
    fn task(args: &[&str]) -> Task {
        let Arguments { task, database, .. } = parse(args);
        assert_eq!(database, None);
        task
    }

    #[test]
    fn a_directory_is_a_database_and_a_file_a_script() {
        let temporary = std::env::temp_dir();
        let here = |name: &str| {
            let path = temporary.join(format!("lockstep-arguments-{}-{name}", std::process::id()));
            path.into_os_string().into_string().unwrap()
        };
        let (file, directory) = (here("file"), here("directory"));
        let wrong = here("directory.sql");
        std::fs::write(&file, "SELECT 1").unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::create_dir_all(&wrong).unwrap();
        for (path, expected) in [
            (file.as_str(), Target::Script),
            (&directory, Target::Database),
            (&wrong, Target::Ambiguous),
            (&here("none.sql"), Target::Script),
            (&here("none.SQL"), Target::Script),
            (&here("none"), Target::Database),
            (&here("none.lockstep"), Target::Database),
            (&here("none.txt"), Target::Ambiguous),
            (&here("none.txt/"), Target::Database),
        ] {
            assert_eq!(Target::of(path), expected, "{path}");
        }
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_dir(&directory).unwrap();
        std::fs::remove_dir(&wrong).unwrap();
        assert!(
            matches!(task(&[&here("none.txt")]), Task::Refuse(text) if text.contains("may be"))
        );
    }

    #[test]
    fn statements_for_a_database() {
        let database = |read_only| Some(DatabaseTarget { path: "x.lockstep".into(), read_only });
        let printing = PrintOptions::default();
        let input = Arguments { task: Task::Input, database: database(false), printing };
        assert_eq!(parse(&["x.lockstep"]), input);
        let script = Task::Scripts(vec![ScriptSource::Text("SELECT 1".into())]);
        let read_only = Arguments { task: script, database: database(true), printing };
        assert_eq!(parse(&["-c", "SELECT 1", "--read-only", "x.lockstep"]), read_only);
        let server = DatabaseTarget { path: "lockstep://app@h".into(), read_only: false };
        let remote = Arguments { task: Task::Input, database: Some(server), printing };
        assert_eq!(parse(&["lockstep://app@h"]), remote);
        assert!(matches!(task(&["--read-only", "lockstep://app@h"]), Task::Refuse(_)));
        assert!(matches!(task(&["--read-only"]), Task::Refuse(_)));
        assert!(matches!(task(&[""]), Task::Refuse(_)));
    }

    #[test]
    fn the_forms_of_the_command_line() {
        assert_eq!(task(&[]), Task::Input);
        let text = |sql: &str| ScriptSource::Text(sql.into());
        let file = |path: &str| ScriptSource::File(path.into());
        assert_eq!(task(&["-c", "SELECT 1"]), Task::Scripts(vec![text("SELECT 1")]));
        assert_eq!(task(&["a.sql"]), Task::Scripts(vec![file("a.sql")]));
        assert_eq!(task(&["-"]), Task::Scripts(vec![ScriptSource::Input]));
        let mixed = ["-c", "A", "-f", "b.sql", "-f", "-", "--command", "D", "-fe.sql"];
        let order = [text("A"), file("b.sql"), ScriptSource::Input, text("D"), file("e.sql")];
        assert_eq!(task(&mixed), Task::Scripts(order.to_vec()));
        assert_eq!(
            task(&["demo", "flights", "--x"]),
            Task::Demo(vec!["flights".into(), "--x".into()])
        );
        assert!(matches!(task(&["doctor", "--json"]), Task::Doctor(_)));
        assert!(matches!(task(&["user", "add", "app", "--can", "ALL ON *.*"]), Task::User(_)));
        assert!(matches!(task(&["user"]), Task::Refuse(_)));
        assert!(matches!(task(&["serve", "x.lockstep", "--http", "[::1]:1"]), Task::Serve(_)));
        assert!(matches!(task(&["serve", "--print-config"]), Task::Serve(_)));
        assert!(matches!(task(&["serve"]), Task::Refuse(_)));
        assert!(matches!(task(&["check", "dir", "--json"]), Task::Check(_)));
        assert!(matches!(task(&["check", "dir", "--salvage", "--to", "other"]), Task::Check(_)));
    }

    #[test]
    fn formats_are_named_or_have_a_flag() {
        let printing = |args: &[&str]| parse(args).printing;
        let plain = PrintOptions::default();
        assert_eq!(printing(&["-c", "x"]), plain);
        for args in [["--csv", "-c", "x"], ["--format=csv", "-c", "x"]] {
            assert_eq!(printing(&args), PrintOptions { format: OutputFormat::Csv, ..plain });
        }
        assert_eq!(printing(&["--json"]).format, OutputFormat::Json);
        assert_eq!(printing(&["--markdown", "a.sql"]).format, OutputFormat::Markdown);
        assert_eq!(printing(&["-q"]).quiet, Switch::On);
        assert!(matches!(task(&["--csv", "--json"]), Task::Refuse(_)));
        let refused = task(&["--format", "xml"]);
        assert!(matches!(refused, Task::Refuse(text) if text.contains("csv, json or markdown")));
        assert!(matches!(task(&["-", "-c", "x"]), Task::Refuse(_)));
    }

    #[test]
    fn help_is_printed_and_nonsense_refused() {
        assert!(matches!(task(&["--help"]), Task::Print(text) if text.contains("Usage")));
        let version = concat!("lockstep ", env!("CARGO_PKG_VERSION"));
        assert!(matches!(task(&["--version"]), Task::Print(text) if text.trim() == version));
        assert!(matches!(task(&["--nonsense"]), Task::Refuse(_)));
        assert!(matches!(task(&["a.sql", "b.sql"]), Task::Refuse(_)));
        for wrong in [&["check"][..], &["check", "a", "--salvage"], &["check", "a", "--to", "b"]] {
            assert!(matches!(task(wrong), Task::Refuse(_)), "{wrong:?}");
        }
        assert!(
            matches!(task(&["check", "--help"]), Task::Print(text) if text.contains("--salvage"))
        );
    }
}

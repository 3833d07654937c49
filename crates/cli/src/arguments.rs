//! The arguments of the program `lockstep`.

use std::path::Path;

use clap::{Parser, error::ErrorKind};
use lockstep_client::ServerAddress;
use lockstep_host::disk;

use crate::{
    check_command::CheckCommand, doctor_command::DoctorCommand, opening::DatabaseTarget,
    serve_command::ServeCommand, user_command::UserTool,
};

/// Lockstep, a feature database: one SQL definition for training and for serving.
#[derive(Debug, Parser)]
#[command(
    name = "lockstep",
    version,
    after_help = "Without arguments it starts a prompt, or runs the script on its input, with a \
                  database in memory.\n\
                  A path that ends in `.lockstep`, or is a directory, or does not exist and has no \
                  extension is a database; other paths are scripts.\n\
                  `lockstep check DIR` verifies the database in a directory; see `lockstep check --help`.\n\
                  `lockstep serve DIR` serves it over HTTP and Flight SQL; see `lockstep serve --help`.\n\
                  `lockstep user add NAME` makes a user of it; see `lockstep user --help`.\n\
                  `lockstep doctor DIR` says what of this machine is not as it should be.\n\
                  `lockstep demo flights` runs the demonstration that comes with the Python package."
)]
struct CommandLine {
    /// Runs these statements and ends.
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    command: Option<String>,

    /// Opens the database without changing it: every change is refused.
    #[arg(long)]
    read_only: bool,

    /// The directory of a database, which is created when there is none; or the address of a server,
    /// `lockstep://user:password@host:port/database`; or a file of statements to run in memory; or
    /// `demo`.
    #[arg(value_name = "DATABASE|FILE")]
    target: Option<String>,

    /// The arguments of `demo`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

/// The task of one run of the shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Read statements from the input.
    Input,
    /// Run these statements.
    Script(String),
    /// Run the statements of this file.
    File(String),
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

/// The arguments of one run of the shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) task: Task,
    /// The directory of the database; `None` for one in memory.
    pub(crate) database: Option<DatabaseTarget>,
}

/// What a path on the command line names.
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
            return Self { task, database: None };
        }
        let args = std::iter::once("lockstep".to_owned()).chain(args);
        match CommandLine::try_parse_from(args) {
            Ok(line) => Self::of(line),
            Err(error) => Self { task: Task::print(&error), database: None },
        }
    }

    fn of(line: CommandLine) -> Self {
        let CommandLine { command, read_only, target, rest } = line;
        let in_memory = |task| Self { task, database: None };
        let Some(path) = target else {
            if read_only {
                return in_memory(refuse("--read-only needs the directory of a database"));
            }
            return in_memory(command.map_or(Task::Input, Task::Script));
        };
        let is_alone = command.is_none() && !read_only;
        if path == "demo" && is_alone {
            return in_memory(Task::Demo(rest));
        }
        if path.is_empty() {
            return in_memory(refuse("the path is empty"));
        }
        if read_only && ServerAddress::is_address(&path) {
            return in_memory(refuse("--read-only is for the directory of a database"));
        }
        if let Some(other) = rest.first() {
            return in_memory(refuse(&format!("one path at a time, found also `{other}`")));
        }
        // A script runs in memory: with `-c` or `--read-only` the path is a database.
        match if is_alone { Target::of(&path) } else { Target::Database } {
            Target::Script => in_memory(Task::File(path)),
            Target::Database => {
                let task = command.map_or(Task::Input, Task::Script);
                Self { task, database: Some(DatabaseTarget { path: path.into(), read_only }) }
            }
            Target::Ambiguous => in_memory(refuse(&format!(
                "`{path}` may be a script or a database; a script is a file, `.sql` by custom, and \
                 a database a directory, `.lockstep` by custom, or with `/` at the end"
            ))),
        }
    }
}

fn refuse(message: &str) -> Task {
    debug_assert!(!message.contains('\n'), "a message is a line");
    Task::Refuse(format!("error: {message}\n"))
}

#[cfg(test)]
mod tests {
    use super::{Arguments, DatabaseTarget, Target, Task};

    fn parse(args: &[&str]) -> Arguments {
        Arguments::parse(args.iter().map(ToString::to_string).collect())
    }

    /// Parses arguments that name no database.
    fn task(args: &[&str]) -> Task {
        let Arguments { task, database } = parse(args);
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
        let input = Arguments { task: Task::Input, database: database(false) };
        assert_eq!(parse(&["x.lockstep"]), input);
        let script = Task::Script("SELECT 1".into());
        let read_only = Arguments { task: script, database: database(true) };
        assert_eq!(parse(&["-c", "SELECT 1", "--read-only", "x.lockstep"]), read_only);
        let server = DatabaseTarget { path: "lockstep://app@h".into(), read_only: false };
        let remote = Arguments { task: Task::Input, database: Some(server) };
        assert_eq!(parse(&["lockstep://app@h"]), remote);
        assert!(matches!(task(&["--read-only", "lockstep://app@h"]), Task::Refuse(_)));
        assert!(matches!(task(&["--read-only"]), Task::Refuse(_)));
        assert!(matches!(task(&[""]), Task::Refuse(_)));
    }

    #[test]
    fn the_forms_of_the_command_line() {
        assert_eq!(task(&[]), Task::Input);
        assert_eq!(task(&["-c", "SELECT 1"]), Task::Script("SELECT 1".into()));
        assert_eq!(task(&["a.sql"]), Task::File("a.sql".into()));
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

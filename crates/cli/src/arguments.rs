//! The arguments of the program `lockstep`.

use clap::{Parser, error::ErrorKind};

use crate::check_command::CheckCommand;

/// Lockstep, a feature database: one SQL definition for training and for serving.
#[derive(Debug, Parser)]
#[command(
    name = "lockstep",
    version,
    after_help = "Without arguments it starts a prompt, or runs the script on its input.\n\
                  `lockstep check DIR` verifies the database in a directory; see `lockstep check --help`.\n\
                  `lockstep demo flights` runs the demonstration that comes with the Python package."
)]
struct CommandLine {
    /// Runs these statements and ends.
    #[arg(short = 'c', long = "command", value_name = "SQL", conflicts_with = "target")]
    command: Option<String>,

    /// A file of statements to run, or `demo`.
    #[arg(value_name = "FILE")]
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
    /// A command that this version does not have.
    NotYet(String),
    /// Print this and end with 0 (help and version).
    Print(String),
    /// Print this and end with 2.
    Refuse(String),
}

impl Task {
    /// Parses the arguments, which do not include the program's name.
    pub(crate) fn from_arguments(args: Vec<String>) -> Self {
        if let Some((first, rest)) = args.split_first()
            && first == "check"
        {
            return match CheckCommand::from_arguments(rest) {
                Ok(command) => Self::Check(command),
                Err(error) => Self::print(&error),
            };
        }
        let name = std::iter::once("lockstep".to_owned());
        let line = match CommandLine::try_parse_from(name.chain(args)) {
            Ok(line) => line,
            Err(error) => return Self::print(&error),
        };
        match (line.command, line.target) {
            (Some(script), _) => Self::Script(script),
            (None, None) => Self::Input,
            (None, Some(target)) => match target.as_str() {
                "demo" => Self::Demo(line.rest),
                "serve" | "doctor" => Self::NotYet(target),
                _ if line.rest.is_empty() => Self::File(target),
                _ => Self::Refuse(format!(
                    "error: one file at a time, found also `{}`\n",
                    line.rest[0]
                )),
            },
        }
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

#[cfg(test)]
mod tests {
    use super::Task;

    fn task(args: &[&str]) -> Task {
        Task::from_arguments(args.iter().map(ToString::to_string).collect())
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
        assert_eq!(task(&["serve"]), Task::NotYet("serve".into()));
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

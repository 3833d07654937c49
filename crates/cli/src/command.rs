//! The commands of the shell: what they are called, what follows them, and what they say of themselves.
//!
//! The table of commands is the one definition: reading a line, the help and the completion of commands
//! are made from it. A command is psql's (`\dt`), DuckDB's (`.tables`) or a word (`exit`). Runs nothing.

use lockstep_diagnostic::nearest;

use crate::{output_format::OutputFormat, switch::Switch};

/// A command of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShellCommand {
    Quit,
    Help,
    /// Ends a statement, which has run by then.
    Go,
    List(ObjectListing),
    /// Shows the columns and the indexes of a table.
    Describe(String),
    /// Shows a deployment.
    Deployment(String),
    /// Prints the statement that creates a table, or those of all tables.
    Schema(Option<String>),
    /// Sets the format of results; `None`: says which it is.
    Mode(Option<OutputFormat>),
    /// Shows a row as lines, always, never, or where a table is too wide: the format for it; `None`:
    /// changes it.
    Expanded(Option<OutputFormat>),
    /// Says how long a statement took; `None`: changes it.
    Timing(Option<Switch>),
    /// Uses the pager; `None`: changes it.
    Pager(Option<Switch>),
    /// Writes results to a file; `None`: to the output again.
    Output(Option<String>),
    /// Runs the script in a file.
    Read(String),
    Watch(WatchPlan),
}

/// A list of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectListing {
    /// The statement that returns it.
    pub(crate) sql: &'static str,
    /// The column with the names.
    pub(crate) column: usize,
    /// The pattern of the names, with `*` and `?`.
    pub(crate) pattern: Option<String>,
}

/// How often a statement is run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchPlan {
    pub(crate) interval_ms: u64,
    /// How many times it is run in all; `None`: until Ctrl-C.
    pub(crate) count: Option<u64>,
}

/// How long `\watch` waits unless it is told.
const WATCH_MS: u64 = 2_000;

/// The longest that it waits: a day.
const WATCH_MS_MAX: u64 = 86_400_000;

/// What follows a command, for completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandArgument {
    Other,
    Table,
    Deployment,
    File,
}

/// Reads what follows the name; the error is the form that was expected.
type ReadArgument = fn(Option<&str>) -> Option<ShellCommand>;

/// The definition of a command.
pub(crate) struct CommandSpec {
    /// Its names, the first of which the help has first.
    pub(crate) names: &'static [&'static str],
    /// What may follow.
    pub(crate) argument: &'static str,
    pub(crate) kind: CommandArgument,
    summary: &'static str,
    read: ReadArgument,
}

const INDEXES: &str = "SELECT database_name AS `database`, table_name AS `table`, name, key_columns, \
                       event_time, retention, memory_bytes FROM lockstep.indexes";

/// All commands.
pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        names: &["\\?", "\\h", "help", ".help"],
        argument: "",
        kind: CommandArgument::Other,
        summary: "shows this help",
        read: |_| Some(ShellCommand::Help),
    },
    CommandSpec {
        names: &["\\q", "exit", "quit", ".exit", ".quit"],
        argument: "",
        kind: CommandArgument::Other,
        summary: "ends the session, as does Ctrl-D",
        read: |argument| argument.is_none().then_some(ShellCommand::Quit),
    },
    CommandSpec {
        names: &["\\d"],
        argument: "[TABLE]",
        kind: CommandArgument::Table,
        summary: "lists tables, or the columns and indexes of a table",
        read: |argument| match argument {
            Some(table) => name_of(table).map(ShellCommand::Describe),
            None => listing("SHOW TABLES", 0, None),
        },
    },
    CommandSpec {
        names: &["\\dt", ".tables"],
        argument: "[PATTERN]",
        kind: CommandArgument::Table,
        summary: "lists tables",
        read: |argument| listing("SHOW TABLES", 0, argument),
    },
    CommandSpec {
        names: &["\\di"],
        argument: "[PATTERN]",
        kind: CommandArgument::Table,
        summary: "lists indexes",
        read: |argument| listing(INDEXES, 1, argument),
    },
    CommandSpec {
        names: &["\\df"],
        argument: "[PATTERN]",
        kind: CommandArgument::Other,
        summary: "lists functions",
        read: |argument| listing("SHOW FUNCTIONS", 0, argument),
    },
    CommandSpec {
        names: &["\\dd"],
        argument: "[DEPLOYMENT]",
        kind: CommandArgument::Deployment,
        summary: "lists deployments, or shows a deployment",
        read: |argument| match argument {
            Some(name) if !name.contains(['*', '?']) => name_of(name).map(ShellCommand::Deployment),
            pattern => listing("SHOW DEPLOYMENTS", 1, pattern),
        },
    },
    CommandSpec {
        names: &["\\l", ".databases"],
        argument: "[PATTERN]",
        kind: CommandArgument::Other,
        summary: "lists databases",
        read: |argument| listing("SHOW DATABASES", 0, argument),
    },
    CommandSpec {
        names: &[".schema"],
        argument: "[TABLE]",
        kind: CommandArgument::Table,
        summary: "prints the CREATE statements of all tables, or of a table",
        read: |argument| optional(argument, name_of).map(ShellCommand::Schema),
    },
    CommandSpec {
        names: &["\\x"],
        argument: "[on|off|auto]",
        kind: CommandArgument::Other,
        summary: "shows each column on its own line; auto: only if a table is too wide",
        read: |argument| optional(argument, expanded_of).map(ShellCommand::Expanded),
    },
    CommandSpec {
        names: &[".mode"],
        argument: "[table|expanded|auto|csv|json|markdown]",
        kind: CommandArgument::Other,
        summary: "sets the format of results",
        read: |argument| optional(argument, OutputFormat::of_word).map(ShellCommand::Mode),
    },
    CommandSpec {
        names: &["\\timing", ".timer"],
        argument: "[on|off]",
        kind: CommandArgument::Other,
        summary: "shows how long each statement took",
        read: |argument| optional(argument, Switch::of_word).map(ShellCommand::Timing),
    },
    CommandSpec {
        names: &["\\pager"],
        argument: "[on|off]",
        kind: CommandArgument::Other,
        summary: "shows results longer than the screen in $PAGER (default: less)",
        read: |argument| optional(argument, Switch::of_word).map(ShellCommand::Pager),
    },
    CommandSpec {
        names: &["\\o", ".output"],
        argument: "[FILE]",
        kind: CommandArgument::File,
        summary: "sends results to a file, or back to standard output",
        read: |argument| Some(ShellCommand::Output(argument.map(str::to_owned))),
    },
    CommandSpec {
        names: &["\\i", ".read"],
        argument: "FILE",
        kind: CommandArgument::File,
        summary: "runs the script in a file",
        read: |argument| argument.map(|path| ShellCommand::Read(path.to_owned())),
    },
    CommandSpec {
        names: &["\\g"],
        argument: "",
        kind: CommandArgument::Other,
        summary: "ends a statement, as a semicolon does",
        read: |argument| argument.is_none().then_some(ShellCommand::Go),
    },
    CommandSpec {
        names: &["\\watch"],
        argument: "[SECONDS] [c=COUNT]",
        kind: CommandArgument::Other,
        summary: "repeats the last statement (default: every 2 seconds until Ctrl-C)",
        read: |argument| WatchPlan::of_words(argument.unwrap_or("")).map(ShellCommand::Watch),
    },
];

impl ShellCommand {
    /// Reads the line of a command, which has its end of line and semicolon perhaps. The error is a
    /// message.
    pub(crate) fn of_line(line: &str) -> Result<Self, String> {
        let line = line.trim_end_matches(|c: char| c == ';' || c.is_whitespace()).trim_start();
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (name, argument) = (&line[..end], unquoted(line[end..].trim()));
        let Some(spec) = spec_of(name) else {
            let names = COMMANDS.iter().flat_map(|spec| spec.names).copied();
            let nearest = nearest(name, names)
                .map_or_else(String::new, |found| format!(" did you mean `{found}`?"));
            return Err(format!("invalid command `{name}`;{nearest} `\\?` lists the commands"));
        };
        debug_assert!(spec.names.iter().any(|known| known.eq_ignore_ascii_case(name)));
        let argument = (!argument.is_empty()).then_some(argument);
        (spec.read)(argument).ok_or_else(|| {
            format!(
                "invalid arguments for `{name}`; expected `{}`",
                format!("{name} {}", spec.argument).trim_end()
            )
        })
    }
}

/// Finds a command by its name. Words may have capital letters.
pub(crate) fn spec_of(name: &str) -> Option<&'static CommandSpec> {
    let is_it = |known: &&'static str| {
        *known == name || (!known.starts_with('\\') && known.eq_ignore_ascii_case(name))
    };
    COMMANDS.iter().find(|spec| spec.names.iter().any(is_it))
}

/// Returns the help: the commands and what they do.
pub(crate) fn help_text() -> String {
    let forms: Vec<String> = COMMANDS
        .iter()
        .map(|spec| format!("{} {}", spec.names.join(", "), spec.argument).trim_end().to_owned())
        .collect();
    let width = forms.iter().map(String::len).filter(|width| *width <= 32).max().unwrap_or(0);
    let mut text =
        "Statements end with `;` and may span several lines. Ctrl-C cancels the running \
                    statement.\nTab completes names, the arrow keys recall earlier statements.\n"
            .to_owned();
    debug_assert_eq!(forms.len(), COMMANDS.len(), "each command has a form");
    for (form, spec) in forms.iter().zip(COMMANDS) {
        let summary = spec.summary;
        if form.len() > width {
            text.push_str(&format!("  {form}\n  {:width$}  {summary}\n", ""));
        } else {
            text.push_str(&format!("  {form:width$}  {summary}\n"));
        }
    }
    text
}

/// Whether a name fits a pattern: `*` and `%` stand for any text, `?` for a character. Capital letters
/// do not matter.
pub(crate) fn fits(name: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('*' | '%') => {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| fits(&name[at..], rest.as_str()))
        }
        Some(wanted) => name.chars().next().is_some_and(|first| {
            let is_same = wanted == '?' || first.to_lowercase().eq(wanted.to_lowercase());
            is_same && fits(&name[first.len_utf8()..], rest.as_str())
        }),
    }
}

fn listing(sql: &'static str, column: usize, pattern: Option<&str>) -> Option<ShellCommand> {
    debug_assert!(pattern.is_none_or(|pattern| !pattern.is_empty()), "absent, or not empty");
    let pattern = pattern.map(str::to_owned);
    Some(ShellCommand::List(ObjectListing { sql, column, pattern }))
}

/// Reads the name of an object, of which a statement is made: it has no other statement behind it.
fn name_of(text: &str) -> Option<String> {
    (!text.contains(';')).then(|| text.to_owned())
}

/// Reads `on`, `off` or `auto` as the format for it.
fn expanded_of(word: &str) -> Option<OutputFormat> {
    if word.eq_ignore_ascii_case("auto") {
        return Some(OutputFormat::Auto);
    }
    let switch = Switch::of_word(word)?;
    Some(if switch.is_on() { OutputFormat::Expanded } else { OutputFormat::Table })
}

/// Reads an argument that may be absent; `None` where it is wrong.
fn optional<T>(argument: Option<&str>, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    argument.map_or(Some(None), |word| read(word).map(Some))
}

/// Returns a text without the quotes around it.
fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"')).unwrap_or(text)
}

impl WatchPlan {
    fn of_words(text: &str) -> Option<Self> {
        let mut plan = Self { interval_ms: WATCH_MS, count: None };
        for word in text.split_whitespace() {
            if let Some(count) = word.strip_prefix("c=") {
                plan.count = Some(count.parse().ok()?);
            } else {
                let seconds: f64 = word.strip_prefix("i=").unwrap_or(word).parse().ok()?;
                let interval = std::time::Duration::try_from_secs_f64(seconds).ok()?;
                let interval_ms = u64::try_from(interval.as_millis()).ok()?;
                plan.interval_ms = Some(interval_ms).filter(|ms| *ms <= WATCH_MS_MAX)?;
            }
        }
        debug_assert!(plan.interval_ms <= WATCH_MS_MAX, "it waits a day at most");
        Some(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, ShellCommand, WatchPlan, fits, help_text};
    use crate::{output_format::OutputFormat, switch::Switch};

    fn check(line: &str, expected: ShellCommand) {
        assert_eq!(ShellCommand::of_line(line), Ok(expected), "{line}");
    }

    #[test]
    fn a_command_has_its_names() {
        for line in ["\\q", "exit", "QUIT;", ".quit", ".exit\r\n"] {
            check(line, ShellCommand::Quit);
        }
        for line in ["help", "Help;", "\\?", "\\h", ".help", ".help mode"] {
            check(line, ShellCommand::Help);
        }
        check("\\d t;", ShellCommand::Describe("t".into()));
        check(".schema", ShellCommand::Schema(None));
        check("\\i 'a file.sql'", ShellCommand::Read("a file.sql".into()));
        check("\\o", ShellCommand::Output(None));
        check("\\dd d", ShellCommand::Deployment("d".into()));
        let is_listing = |line| matches!(ShellCommand::of_line(line), Ok(ShellCommand::List(_)));
        for line in ["\\d", "\\dt", "\\di", "\\df sum*", "\\dd", "\\l", ".tables", "\\dd d*"] {
            assert!(is_listing(line), "{line}");
        }
    }

    #[test]
    fn arguments_are_read() {
        check("\\timing", ShellCommand::Timing(None));
        check(".timer OFF", ShellCommand::Timing(Some(Switch::Off)));
        check("\\x", ShellCommand::Expanded(None));
        for (word, format) in [
            ("on", OutputFormat::Expanded),
            ("off", OutputFormat::Table),
            ("AUTO", OutputFormat::Auto),
        ] {
            check(&format!("\\x {word}"), ShellCommand::Expanded(Some(format)));
        }
        check("\\pager off", ShellCommand::Pager(Some(Switch::Off)));
        check(".mode json", ShellCommand::Mode(Some(OutputFormat::Json)));
        check("\\watch", ShellCommand::Watch(WatchPlan { interval_ms: 2_000, count: None }));
        let plan = WatchPlan { interval_ms: 100, count: Some(3) };
        check("\\watch 0.1 c=3", ShellCommand::Watch(plan));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |line| ShellCommand::of_line(line).unwrap_err();
        assert_eq!(
            error("\\timign on"),
            "invalid command `\\timign`; did you mean `\\timing`? `\\?` lists the commands"
        );
        assert_eq!(error(".tabels"), error(".tabels;"));
        assert!(error(".tabels").contains("did you mean `.tables`?"));
        assert_eq!(error("\\zebra"), "invalid command `\\zebra`; `\\?` lists the commands");
        assert_eq!(error("\\x maybe"), "invalid arguments for `\\x`; expected `\\x [on|off|auto]`");
        assert_eq!(
            error("\\d t; DROP TABLE t"),
            "invalid arguments for `\\d`; expected `\\d [TABLE]`"
        );
        assert_eq!(error("\\i"), "invalid arguments for `\\i`; expected `\\i FILE`");
        assert_eq!(error("\\watch 1e9"), error("\\watch 1 2 x"));
        assert_eq!(
            error("\\watch -1"),
            "invalid arguments for `\\watch`; expected `\\watch [SECONDS] [c=COUNT]`"
        );
    }

    #[test]
    fn the_help_has_every_name() {
        let help = help_text();
        for name in COMMANDS.iter().flat_map(|spec| spec.names) {
            assert!(help.contains(name), "{name}");
        }
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }

    #[test]
    fn patterns_stand_for_names() {
        for (name, pattern) in [("sum", "sum"), ("sum_where", "SUM*"), ("topn", "t?p%"), ("", "*")]
        {
            assert!(fits(name, pattern), "{name} {pattern}");
        }
        for (name, pattern) in [("sums", "sum"), ("su", "su?"), ("é", "e")] {
            assert!(!fits(name, pattern), "{name} {pattern}");
        }
    }
}

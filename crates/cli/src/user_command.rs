//! `lockstep user`: users, passwords and tokens of a directory that nobody has open.
//!
//! Each task is some statements of `docs/guide/users.md`. A server that has the directory open takes
//! these statements from a user with ADMIN instead.

use std::{
    fmt::Write as _,
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
};

use clap::{Parser, Subcommand};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{Output, Session, guarded};
use lockstep_host::disk;
use lockstep_row::{Arena, arrow::ColumnReader};

use crate::{opening::DatabaseTarget, table_text};

/// The most users that are listed.
const LISTED_MAX: usize = 10_000;

/// Bytes of a password that is made: 24 letters.
const PASSWORD_BYTES: usize = 18;

/// The letters of such a password: URLs and headers take them as they are.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Manages the users, passwords and tokens of a database, which must not be open in another process.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "lockstep user",
    after_help = "Without --database, uses the only *.lockstep directory in the current directory.\n\
                  Exit codes: 0 on success, 1 on failure, and 2 if arguments are invalid or the \
                  database does not exist."
)]
pub(crate) struct UserTool {
    #[command(subcommand)]
    task: UserTask,

    /// Database directory.
    #[arg(long, value_name = "DIR", global = true)]
    database: Option<PathBuf>,
}

/// A task of `lockstep user`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
enum UserTask {
    /// Creates a user. Without `--password-stdin`, generates a password and prints it.
    Add {
        /// Name of the user.
        name: String,
        /// Grants privileges, in the syntax of GRANT: 'EXECUTE ON DEPLOYMENT *'. May be repeated.
        #[arg(long, value_name = "PRIVILEGES")]
        can: Vec<String>,
        /// Grants a role. May be repeated.
        #[arg(long, value_name = "ROLE")]
        role: Vec<String>,
        /// Reads the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Lists the users, or the privileges of one user.
    List {
        /// Name of the user.
        name: Option<String>,
    },
    /// Removes a user and its tokens.
    Remove {
        /// Name of the user.
        name: String,
    },
    /// Sets the password of a user. Without `--password-stdin`, generates a password and prints it.
    Password {
        /// Name of the user.
        name: String,
        /// Reads the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Creates a token for a user and prints it.
    Token {
        /// Name of the user.
        name: String,
        /// Name of the token.
        #[arg(long = "as", value_name = "TOKEN", default_value = "cli")]
        token: String,
        /// Validity of the token, such as `30d`, or `never`.
        #[arg(long, value_name = "DURATION", default_value = "90d")]
        expires_in: String,
    },
}

impl UserTool {
    /// Parses the arguments behind `user`.
    pub(crate) fn from_arguments(args: &[String]) -> Result<Self, clap::Error> {
        let name = std::iter::once("lockstep user".to_owned());
        Self::try_parse_from(name.chain(args.iter().cloned()))
    }

    /// Does the task, prints its result, and returns the exit code. A password is read from `input`.
    pub(crate) fn run(
        &self,
        input: &mut dyn BufRead,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<i32> {
        let path = match self.directory() {
            Ok(path) => path,
            Err(text) => return writeln!(err, "error: {text}").map(|()| 2),
        };
        let password = match self.task.reads_password() {
            true => Some(first_line(input)?),
            false => None,
        };
        let read_only = matches!(self.task, UserTask::List { .. });
        let database = match (DatabaseTarget { path, read_only }).open(err)? {
            Ok(database) => database,
            Err(error) => return writeln!(err, "{}", error.render(None)).map(|()| 1),
        };
        let done = guarded(|| self.task.run(&database.session(), password));
        match done.and_then(|text| guarded(|| database.close()).map(|()| text)) {
            Ok(text) => out.write_all(text.as_bytes()).map(|()| 0),
            Err(error) => writeln!(err, "{}", error.render(None)).map(|()| 1),
        }
    }

    /// Returns the directory of the database, which exists.
    fn directory(&self) -> Result<PathBuf, String> {
        let path = match &self.database {
            Some(path) => path.clone(),
            None => only_database(Path::new("."))?,
        };
        match disk::is_folder(&path) {
            true => Ok(path),
            false => Err(format!("database `{}` does not exist", path.display())),
        }
    }
}

/// Returns the directories of a folder that are databases by their names; none if it cannot be read.
pub(crate) fn databases_in(folder: &Path) -> Vec<PathBuf> {
    let is_database = |path: &PathBuf| {
        disk::is_folder(path) && path.extension().is_some_and(|end| end == "lockstep")
    };
    disk::list(folder).into_iter().flatten().filter(is_database).collect()
}

/// Finds the one directory of a folder that is a database by its name.
fn only_database(folder: &Path) -> Result<PathBuf, String> {
    let mut found = databases_in(folder);
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => {
            Err("the current directory contains no *.lockstep directory: use --database DIR"
                .to_owned())
        }
        (Some(_), false) => {
            Err("the current directory contains several *.lockstep directories: use --database DIR"
                .to_owned())
        }
    }
}

/// Reads the first line of the input, without its end.
fn first_line(input: &mut dyn BufRead) -> io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    debug_assert!(!line.ends_with('\n'), "the end is cut");
    Ok(line)
}

impl UserTask {
    fn reads_password(&self) -> bool {
        match self {
            Self::Add { password_stdin, .. } | Self::Password { password_stdin, .. } => {
                *password_stdin
            }
            _ => false,
        }
    }

    /// Does the task and returns what it prints.
    fn run(&self, session: &Session, password: Option<String>) -> Result<String> {
        match self {
            Self::Add { name, can, role, .. } => {
                let grants = grants_of(name, can, role)?;
                add(session, name, &grants, password)
            }
            Self::List { name: Some(name) } => {
                list(&session.execute(&format!("SHOW GRANTS FOR {}", name_text(name)?))?)
            }
            Self::List { name: None } => list(&session.execute("SHOW USERS")?),
            Self::Remove { name } => {
                session.execute(&format!("DROP USER {}", name_text(name)?))?;
                Ok(format!("removed {name}\n"))
            }
            Self::Password { name, .. } => {
                let secret = Secret::new(password)?;
                let (name_sql, text) = (name_text(name)?, string_text(&secret.text));
                session
                    .execute(&format!("ALTER USER {name_sql} SET OPTIONS(password={text})"))
                    .map_err(without_position)?;
                Ok(secret.report(&format!("set the password of {name}")))
            }
            Self::Token { name, token, expires_in } => {
                let (token, name) = (name_text(token)?, name_text(name)?);
                let expires = string_text(expires_in);
                let made = session.execute(&format!(
                    "CREATE TOKEN {token} FOR {name} OPTIONS(expires_in={expires})"
                ))?;
                Ok(format!("{}\n", token_of(&made)?))
            }
        }
    }
}

/// Makes a user with what it may do, or nothing.
fn add(
    session: &Session,
    name: &str,
    grants: &[String],
    password: Option<String>,
) -> Result<String> {
    let secret = Secret::new(password)?;
    let (name_sql, text) = (name_text(name)?, string_text(&secret.text));
    // Parsed before anything is done: each is one statement.
    let prepared = grants.iter().map(|grant| session.prepare(grant)).collect::<Result<Vec<_>>>()?;
    session
        .execute(&format!("CREATE USER {name_sql} OPTIONS(password={text})"))
        .map_err(without_position)?;
    for grant in &prepared {
        if let Err(error) = session.execute_prepared(grant, &[]) {
            session.execute(&format!("DROP USER {name_sql}"))?;
            return Err(error);
        }
    }
    debug_assert_eq!(prepared.len(), grants.len(), "all were given");
    Ok(secret.report(&format!("added {name}")))
}

/// Returns the statements that give a user privileges and roles.
fn grants_of(name: &str, can: &[String], roles: &[String]) -> Result<Vec<String>> {
    let name = name_text(name)?;
    let mut grants: Vec<String> =
        can.iter().map(|what| format!("GRANT {} TO {name}", what.trim())).collect();
    for role in roles {
        grants.push(format!("GRANT {} TO {name}", name_text(role)?));
    }
    debug_assert_eq!(grants.len(), can.len() + roles.len(), "each is a statement");
    Ok(grants)
}

/// A password that was given, or made.
struct Secret {
    text: String,
    is_made: bool,
}

impl Secret {
    /// Takes a password, or makes one.
    fn new(given: Option<String>) -> Result<Self> {
        match given {
            Some(text) if text.is_empty() => {
                Diagnostic::new(code::INVALID_PARAMETER, "the password must not be empty").err()
            }
            Some(text) => Ok(Self { text, is_made: false }),
            None => Ok(Self { text: made_password(), is_made: true }),
        }
    }

    /// Says what was done, and a password that was made.
    fn report(&self, done: &str) -> String {
        debug_assert!(!self.text.is_empty(), "an empty one is refused");
        match self.is_made {
            true => format!("{done}\npassword: {}\n", self.text),
            false => format!("{done}\n"),
        }
    }
}

/// Makes a password that nobody can guess.
fn made_password() -> String {
    let random = [lockstep_host::random::id(), lockstep_host::random::id()].concat();
    let mut text = String::new();
    for part in random[..PASSWORD_BYTES].chunks(3) {
        let bits = part.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        for shift in [18, 12, 6, 0] {
            text.push(char::from(LETTERS[bits >> shift & 63]));
        }
    }
    debug_assert_eq!(text.len(), PASSWORD_BYTES / 3 * 4, "each letter has six bits");
    text
}

/// Writes a name as SQL takes any.
fn name_text(name: &str) -> Result<String> {
    if name.is_empty() || name.contains('`') {
        let message = "a name must not be empty or contain a backtick";
        return Diagnostic::new(code::INVALID_PARAMETER, message).err();
    }
    Ok(format!("`{name}`"))
}

/// Writes a text as SQL takes it.
fn string_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Takes the position off an error: it is of a statement that nobody has seen, and that has a password.
fn without_position(mut error: Box<Diagnostic>) -> Box<Diagnostic> {
    error.span = None;
    error
}

/// Prints rows as a table.
fn list(output: &Output) -> Result<String> {
    debug_assert!(!output.columns.is_empty(), "SHOW has columns");
    let mut text = table_text(output, LISTED_MAX).draw(None);
    // Writing to a string does not fail.
    let _written = writeln!(text);
    Ok(text)
}

/// Returns the text of a token: the value of CREATE TOKEN that begins as all tokens do.
fn token_of(output: &Output) -> Result<String> {
    let arena = Arena::new();
    for column in output.batches.iter().flat_map(|batch| batch.columns()) {
        let value = ColumnReader::new(column.as_ref()).get(0, &arena);
        if let Some(text) = value.as_str().filter(|text| text.starts_with("lockstep_")) {
            return Ok(text.to_owned());
        }
    }
    Diagnostic::internal("CREATE TOKEN returned no token").err()
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{ClientInfo, Database, Proof};

    use super::{UserTool, made_password, string_text};

    /// Runs a task over a directory; the exit code and what was printed.
    fn run(directory: &std::path::Path, args: &[&str], input: &str) -> (i32, String) {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let directory = directory.to_str().unwrap().to_owned();
        let args = [args, vec!["--database".to_owned(), directory]].concat();
        let command = UserTool::from_arguments(&args).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = command.run(&mut input.as_bytes(), &mut out, &mut err).unwrap();
        let text = String::from_utf8([out, err].concat()).unwrap();
        // A busy machine says how long opening took.
        let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("open"));
        (code, lines.collect())
    }

    #[test]
    fn users_are_made_and_removed() {
        let path = std::env::temp_dir().join(format!("lockstep-user-{}", std::process::id()));
        let database = Database::open(&path).unwrap();
        database.session().execute("CREATE TABLE t (v INT); CREATE ROLE reader").unwrap();
        database.close().unwrap();
        drop(database);
        let can = ["--can", "EXECUTE ON DEPLOYMENT *", "--can", "SELECT ON default.t"];
        let add = [&["add", "app", "--password-stdin", "--role", "reader"][..], &can].concat();
        assert_eq!(run(&path, &add, "it's \\ secret\n"), (0, "added app\n".to_owned()));
        assert_eq!(run(&path, &add, "again").0, 1, "there is one");
        let (code, text) = run(&path, &["add", "eve", "--can", "NOTHING ON *.*"], "");
        assert_eq!(code, 1, "{text}");
        let (code, text) =
            run(&path, &["add", "eve", "--can", "SELECT ON *.* TO eve; SELECT 1"], "");
        assert_eq!(code, 1, "one statement: {text}");
        let (_, users) = run(&path, &["list"], "");
        assert!(users.contains("app") && !users.contains("eve"), "{users}");
        let (_, grants) = run(&path, &["list", "app"], "");
        assert!(grants.contains("EXECUTE") && grants.contains("SELECT"), "{grants}");
        let (code, token) = run(&path, &["token", "app", "--as", "ci", "--expires-in", "1h"], "");
        assert!(code == 0 && token.starts_with("lockstep_"), "{token}");
        let (code, made) = run(&path, &["add", "bob"], "");
        let bob = made.trim_end().rsplit(' ').next().unwrap().to_owned();
        assert_eq!((code, bob.len()), (0, 24), "{made}");
        {
            let database = Database::open(&path).unwrap();
            let authenticate = |user: &str, password: &str| {
                database.authenticate(user, Proof::Password(password), ClientInfo::default())
            };
            let app = authenticate("app", "it's \\ secret").unwrap();
            assert!(app.execute("SELECT * FROM t").is_ok());
            assert!(app.execute("INSERT INTO t VALUES (1)").is_err());
            assert!(authenticate("bob", &bob).is_ok());
            assert!(database.authenticate_token(token.trim_end(), ClientInfo::default()).is_ok());
            assert_eq!(run(&path, &["remove", "app"], "").0, 1, "it is open");
        }
        assert_eq!(run(&path, &["password", "bob", "--password-stdin"], "other\n").0, 0);
        assert_eq!(run(&path, &["password", "bob", "--password-stdin"], "\n").0, 1);
        assert_eq!(run(&path, &["remove", "app"], "").0, 0);
        assert_eq!(run(&path, &["remove", "app"], "").0, 1);
        let database = Database::open(&path).unwrap();
        let client = ClientInfo::default();
        assert!(database.authenticate("bob", Proof::Password("other"), client.clone()).is_ok());
        assert!(database.authenticate("app", Proof::Password("it's \\ secret"), client).is_err());
        drop(database);
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(run(&path, &["list"], "").0, 2, "there is none");
    }

    #[test]
    fn what_is_made_and_written_is_text_of_sql() {
        assert_ne!(made_password(), made_password());
        assert_eq!(string_text("a'b\\"), "'a''b\\\\'");
    }
}

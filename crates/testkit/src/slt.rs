//! Golden SQL files in sqllogictest syntax.
//!
//! Records are separated by empty lines; lines that begin with `#` before one are its comment. Each
//! file runs in a database of its own.
//!
//! ```text
//! statement ok
//! CREATE TABLE t (a INT)
//!
//! statement error
//! SELECT b FROM t
//! ----
//! error[42703]: … the rendered diagnostic, line for line
//!
//! query IT rowsort
//! SELECT a, 'x' FROM t
//! ----
//! 1 x
//! ```
//!
//! A column's letter is its type: `B` BOOL, `S` SMALLINT, `I` INT, `L` BIGINT, `F` FLOAT, `R`
//! DOUBLE, `T` STRING, `M` TIMESTAMP, `D` DATE, `A` ARRAY or MAP, `N` NULL. Values are separated by
//! one space; an empty text is `(empty)`, a TIMESTAMP is in milliseconds. `rowsort` sorts the lines
//! of both sides. The warnings of a `statement ok` follow it like an error, in full.
//!
//! `{folder}` is a temporary folder of the file; a record `file NAME` writes a file there, or
//! in a folder in it, whose lines follow; `link NAME TARGET` makes a link there, `socket NAME` a socket. Every file runs under each of [`CONFIGURATIONS`], with the same results. A comment
//! `# not under NAME: why` excludes it from one. After each statement, streams read all rows that there are.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use lockstep_engine::{Database, Diagnostic, DiskTuning, Output, Session, SpillAlways};
use lockstep_row::{DataType, Value};

use crate::{disk_tables, rows, scenario::script::date};

/// A configuration in which a file runs; none changes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// The name in `# not under`.
    pub name: &'static str,
    /// Statements that run before the file.
    prelude: &'static str,
    way: Way,
    /// The capacity of a chunk in rows.
    chunk_rows: usize,
    /// The rows of a partial result of a long window. After each statement those that wait are made,
    /// unless it is the usual number.
    leaf_rows: usize,
    /// Whether the operators of batch mode take their rows to disk.
    on_disk: bool,
    /// Whether every table is a disk table, of which rows are flushed after each statement.
    has_disk_tables: bool,
}

impl Configuration {
    /// Sets what is the same for all engines of the process.
    fn set_process(&self) {
        lockstep_engine::set_chunk_rows(self.chunk_rows);
        lockstep_engine::set_leaf_rows(self.leaf_rows);
        lockstep_engine::set_spill_always(match self.on_disk {
            true => SpillAlways::Parts,
            false => SpillAlways::No,
        });
        lockstep_engine::set_disk_tuning(match self.has_disk_tables {
            true => DiskTuning::SMALL,
            false => DiskTuning::USUAL,
        });
    }
}

/// How the statements of a file are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Each statement runs as a script.
    Script,
    /// Each text of one statement is prepared and then run.
    Prepared,
    /// Queries run in offline mode, over files that the tables were exported to.
    Offline,
    /// The file runs again in the same engine, after its objects were dropped.
    Again,
}

/// Every configuration; `--complete` uses the first.
pub const CONFIGURATIONS: &[Configuration] = &[
    DEFAULT,
    Configuration { name: "prepared", way: Way::Prepared, ..DEFAULT },
    Configuration { name: "offline", way: Way::Offline, ..DEFAULT },
    Configuration { name: "again", way: Way::Again, ..DEFAULT },
    Configuration { name: "memory limit", prelude: "SET GLOBAL max_memory = '64MB'", ..DEFAULT },
    Configuration { name: "small chunks", chunk_rows: 2, ..DEFAULT },
    Configuration { name: "on disk", on_disk: true, ..DEFAULT },
    Configuration { name: "disk tables", has_disk_tables: true, chunk_rows: 2, ..DEFAULT },
    Configuration {
        name: "pre-aggregates",
        prelude: "SET pre_aggregation = 'always'",
        chunk_rows: 2,
        leaf_rows: 1,
        ..DEFAULT
    },
];

const DEFAULT: Configuration = Configuration {
    name: "default",
    prelude: "",
    way: Way::Script,
    chunk_rows: 128,
    leaf_rows: 128,
    on_disk: false,
    has_disk_tables: false,
};

/// The beginning of the comment that excludes a file from a configuration.
const NOT_UNDER: &str = "# not under ";

/// The line between a statement and its expected result.
const SEPARATOR: &str = "----";

/// One record of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    /// The comment lines before the record.
    comments: Vec<String>,
    /// The first line's number, from 1.
    line: usize,
    /// `statement ok`, `query IT`, …; empty when there are only comments.
    header: String,
    sql: String,
    expected: Vec<String>,
}

/// The result of a record: its header with the actual types, and its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordOutcome {
    header: String,
    lines: Vec<String>,
}

/// Lists the `.slt` files at or below a path, sorted.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    files_with(path, "slt")
}

/// Lists the files with an extension at or below a path, sorted.
pub(crate) fn files_with(path: &Path, extension: &str) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let is_wanted =
        |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|e| e == extension);
    paths.into_iter().filter(is_wanted).flat_map(|path| files_with(&path, extension)).collect()
}

/// Runs a file under every configuration; the error names every record with another result.
pub fn run(file: &Path) -> Result<(), String> {
    let records = read(file)?;
    let exceptions = exceptions(&records);
    let reports = CONFIGURATIONS
        .iter()
        .filter(|configuration| !exceptions.contains(&configuration.name))
        .filter_map(|configuration| run_under(configuration, file, &records).err());
    let reports: Vec<String> = reports.collect();
    if reports.is_empty() { Ok(()) } else { Err(reports.join("\n")) }
}

/// Returns the configurations that a file excludes.
fn exceptions(records: &[Record]) -> Vec<&str> {
    let comments = records.iter().flat_map(|record| &record.comments);
    let named = comments.filter_map(|comment| comment.strip_prefix(NOT_UNDER)?.split_once(':'));
    named.map(|(name, _)| name).collect()
}

fn run_under(configuration: &Configuration, file: &Path, records: &[Record]) -> Result<(), String> {
    let mut player = Player::open(configuration)?;
    if configuration.way == Way::Again {
        for record in records.iter().filter(|record| !record.header.is_empty()) {
            player.play(record);
        }
        player.start_again()?;
    }
    let mut failures = Vec::new();
    for record in records.iter().filter(|record| !record.header.is_empty()) {
        let outcome = player.play(record);
        let expected =
            RecordOutcome { header: record.header.clone(), lines: record.expected.clone() };
        if sorted(&outcome) != sorted(&expected) {
            failures.push(format!(
                "{}:{} (configuration `{}`)\n{}\nexpected: {}\n  {}\nactual: {}\n  {}\n",
                file.display(),
                record.line,
                configuration.name,
                record.sql,
                expected.header,
                expected.lines.join("\n  "),
                outcome.header,
                outcome.lines.join("\n  ")
            ));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs a file and writes the results into it, to be read before they are committed.
pub fn complete(file: &Path) -> Result<(), String> {
    let mut player = Player::open(&CONFIGURATIONS[0])?;
    let mut blocks = Vec::new();
    for record in read(file)? {
        let mut lines = record.comments.clone();
        if !record.header.is_empty() {
            let outcome = player.play(&record);
            lines.push(outcome.header);
            if !record.sql.is_empty() {
                lines.push(record.sql);
            }
            if !outcome.lines.is_empty() {
                lines.push(SEPARATOR.to_owned());
                lines.extend(outcome.lines);
            }
        }
        blocks.push(lines.join("\n"));
    }
    let text = blocks.join("\n\n") + "\n";
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<Vec<Record>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map_err(|(line, error)| format!("{}:{line}: {error}", file.display()))
}

fn parse(text: &str) -> Result<Vec<Record>, (usize, String)> {
    let mut records = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut start = 0;
    for block in lines.split(|line| line.trim().is_empty()) {
        if !block.is_empty() {
            records.push(parse_block(block, start + 1)?);
        }
        start += block.len() + 1;
    }
    Ok(records)
}

fn parse_block(block: &[&str], first_line: usize) -> Result<Record, (usize, String)> {
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    let comment_count = block.iter().take_while(|line| line.starts_with('#')).count();
    let (comments, rest) = block.split_at(comment_count);
    let line = first_line + comment_count;
    let Some((header, rest)) = rest.split_first() else {
        let sql = String::new();
        let header = String::new();
        return Ok(Record { comments: owned(comments), line, header, sql, expected: Vec::new() });
    };
    let words: Vec<&str> = header.split_whitespace().collect();
    if !matches!(
        words[..],
        ["statement", "ok" | "error"]
            | ["query", _]
            | ["query", _, "rowsort"]
            | ["file" | "socket", _]
            | ["link", _, _]
    ) {
        return Err((line, format!("`{header}` begins no record")));
    }
    let at = rest.iter().position(|line| *line == SEPARATOR).unwrap_or(rest.len());
    let (sql, expected) = rest.split_at(at);
    Ok(Record {
        comments: owned(comments),
        line,
        header: words.join(" "),
        sql: sql.join("\n"),
        expected: owned(expected.get(1..).unwrap_or_default()),
    })
}

/// Runs the records of a file in a session.
struct Player {
    database: Database,
    session: Session,
    way: Way,
    /// Whether partial results of long windows are made after each statement.
    makes_nodes: bool,
    /// Whether rows are flushed after each statement.
    flushes: bool,
    /// The folder of its files; created when one is written, and removed at the end.
    folder: PathBuf,
}

/// Numbers the folders of this process.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);

impl Player {
    fn open(configuration: &Configuration) -> Result<Self, String> {
        configuration.set_process();
        let flushes = configuration.has_disk_tables;
        let database = match flushes {
            true => disk_tables::open().map_err(|error| error.render(None))?,
            false => Database::in_memory(),
        };
        let session = database.session();
        session.execute(configuration.prelude).map_err(|error| error.render(None))?;
        // Relaxed: only uniqueness matters.
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockstep-slt-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let makes_nodes = configuration.leaf_rows != DEFAULT.leaf_rows;
        Ok(Self { database, session, way: configuration.way, makes_nodes, flushes, folder })
    }

    /// Runs a record. A query that fails gives a `statement error`, and the other way round.
    fn play(&mut self, record: &Record) -> RecordOutcome {
        if let Some(name) = record.header.strip_prefix("file ") {
            let path = self.folder.join(name);
            let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
            let written = folder.and_then(|()| fs::write(&path, format!("{}\n", record.sql)));
            let lines = written.err().map(|error| error.to_string()).into_iter().collect();
            return RecordOutcome { header: record.header.clone(), lines };
        }
        if let Some(made) = self.make_special_file(&record.header) {
            let lines = made.err().map(|error| error.to_string()).into_iter().collect();
            return RecordOutcome { header: record.header.clone(), lines };
        }
        let folder = self.folder.to_string_lossy().into_owned();
        let sql = record.sql.replace("{folder}", &folder);
        let mut outcome = outcome_of_statement(self.execute(&sql), &sql, &record.header);
        name_folder(&mut outcome.lines, &folder);
        self.database.settle_streams();
        if self.makes_nodes {
            self.database.make_pre_aggregates();
        }
        if self.flushes
            && !record.header.starts_with("query")
            && let Err(error) = disk_tables::flush(&self.database)
        {
            outcome.lines.push(format!("not flushed: {}", error.render(None)));
        }
        outcome
    }

    /// Makes the link or the socket of a record; `None` for other records.
    fn make_special_file(&self, header: &str) -> Option<std::io::Result<()>> {
        let words: Vec<&str> = header.split_whitespace().collect();
        match words[..] {
            ["link", name, target] => {
                Some(std::os::unix::fs::symlink(self.folder.join(target), self.folder.join(name)))
            }
            // The file of a socket stays when the socket is closed.
            ["socket", name] => {
                let socket = std::os::unix::net::UnixListener::bind(self.folder.join(name));
                Some(socket.map(drop))
            }
            _ => None,
        }
    }

    fn execute(&self, sql: &str) -> Result<Output, Box<Diagnostic>> {
        match self.way {
            Way::Script | Way::Again => self.session.execute(sql),
            Way::Prepared => match self.session.prepare(sql) {
                Ok(prepared) => self.session.execute_prepared(&prepared, &[]),
                Err(_) => self.session.execute(sql),
            },
            Way::Offline => {
                let lower = sql.trim_start().to_ascii_lowercase();
                let is_query = ["select", "with"].iter().any(|word| lower.starts_with(word));
                if !is_query || lower.contains("execute_mode") || !self.copy_to_offline() {
                    return self.session.execute(sql);
                }
                self.session.execute("SET @@execute_mode = 'offline'")?;
                let outcome = self.session.execute(sql);
                self.session.execute("SET @@execute_mode = 'online'")?;
                outcome
            }
        }
    }

    /// Copies the rows of the current database's tables to their offline data; returns whether that
    /// worked.
    fn copy_to_offline(&self) -> bool {
        let is_online = self.texts("SHOW VARIABLES LIKE 'execute_mode'", 1) == ["online"];
        is_online
            && self.texts("SHOW TABLES", 0).iter().all(|table| {
                let file = self.folder.join("offline.parquet");
                let file = file.to_string_lossy();
                let script = format!(
                    "SELECT * FROM `{table}` INTO OUTFILE '{file}' \
                     OPTIONS(format='parquet', mode='overwrite'); \
                     SET @@execute_mode = 'offline'; \
                     LOAD DATA INFILE '{file}' INTO TABLE `{table}` \
                     OPTIONS(format='parquet', mode='overwrite')"
                );
                let copied = self.session.execute(&script).is_ok();
                self.session.execute("SET @@execute_mode = 'online'").is_ok() && copied
            })
    }

    /// Drops the objects of the file and opens a new session.
    fn start_again(&mut self) -> Result<(), String> {
        for (list, drop) in [
            ("SHOW DEPLOYMENTS", "DROP DEPLOYMENT"),
            ("SHOW PROCEDURE STATUS", "DROP PROCEDURE"),
            ("SHOW TABLES", "DROP TABLE"),
        ] {
            let column = usize::from(drop != "DROP TABLE");
            for name in self.texts(list, column) {
                let sql = format!("{drop} `{name}`");
                self.session.execute(&sql).map_err(|error| error.render(Some(&sql)))?;
            }
        }
        self.session = self.database.session();
        Ok(())
    }

    /// Returns one column of a statement's result as texts.
    fn texts(&self, sql: &str, column: usize) -> Vec<String> {
        let rows = self.session.execute(sql).map(|output| rows::of_output(&output));
        rows.unwrap_or_default().iter().filter_map(|row| row.get(column)).map(text).collect()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        DEFAULT.set_process();
        // A file that cannot be removed stays in the temporary folder.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Replaces a path by `{folder}`, and shortens the line of carets below accordingly.
fn name_folder(lines: &mut [String], folder: &str) {
    const NAME: &str = "{folder}";
    for index in 0..lines.len() {
        while let Some(at) = lines[index].find(folder) {
            lines[index].replace_range(at..at + folder.len(), NAME);
            let surplus = at + NAME.len()..at + folder.len();
            if let Some(carets) = lines.get_mut(index + 1)
                && carets.chars().all(|c| matches!(c, ' ' | '^'))
                && carets.len() > surplus.start
            {
                carets.replace_range(surplus.start..surplus.end.min(carets.len()), "");
            }
        }
    }
}

fn outcome_of_statement(
    outcome: Result<Output, Box<Diagnostic>>,
    sql: &str,
    header: &str,
) -> RecordOutcome {
    match outcome {
        Err(diagnostic) => RecordOutcome {
            header: "statement error".to_owned(),
            lines: diagnostic.render(Some(sql)).lines().map(str::to_owned).collect(),
        },
        Ok(output) if header == "statement ok" => {
            let render =
                |warning: &Diagnostic| warning.render(Some(sql)).replacen("error[", "warning[", 1);
            let warnings: Vec<String> = output.warnings.iter().map(render).collect();
            let lines = warnings.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
            RecordOutcome { header: header.to_owned(), lines }
        }
        Ok(output) => outcome_of(&output, header.ends_with("rowsort")),
    }
}

fn outcome_of(output: &Output, is_sorted: bool) -> RecordOutcome {
    if output.columns.is_empty() {
        return RecordOutcome { header: "statement ok".to_owned(), lines: Vec::new() };
    }
    let types: String = output.columns.iter().map(|(_, data_type)| letter(data_type)).collect();
    let mode = if is_sorted { " rowsort" } else { "" };
    let line = |row: Vec<Value>| row.iter().map(text).collect::<Vec<_>>().join(" ");
    let outcome = RecordOutcome {
        header: format!("query {types}{mode}"),
        lines: rows::of_output(output).into_iter().map(line).collect(),
    };
    sorted(&outcome)
}

fn sorted(outcome: &RecordOutcome) -> RecordOutcome {
    let mut outcome = outcome.clone();
    if outcome.header.ends_with("rowsort") {
        outcome.lines.sort();
    }
    outcome
}

fn letter(data_type: &DataType) -> char {
    match data_type {
        DataType::Null => 'N',
        DataType::Bool => 'B',
        DataType::SmallInt => 'S',
        DataType::Int => 'I',
        DataType::BigInt => 'L',
        DataType::Float => 'F',
        DataType::Double => 'R',
        DataType::String => 'T',
        DataType::Timestamp => 'M',
        DataType::Date => 'D',
        DataType::Array(_) | DataType::Map(..) => 'A',
    }
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::SmallInt(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::BigInt(value) | Value::Timestamp(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Double(value) => format!("{value:?}"),
        Value::String(text) if text.is_empty() => "(empty)".to_owned(),
        Value::String(text) => text.replace('\n', "\\n"),
        Value::Date(days) => date(*days),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) => {
            let entry = |(key, value): &(Value, Value)| format!("{}: {}", text(key), text(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, parse};

    #[test]
    fn a_file_is_read_record_by_record() {
        let text = "# Why.\nstatement ok\nCREATE TABLE t\n  (a INT)\n\n# Alone.\n\n\
                    query I rowsort\nSELECT a\n----\n1\n2\n";
        let record = |comments: &[&str], line, header: &str, sql: &str, expected: &[&str]| Record {
            comments: comments.iter().map(|line| (*line).to_owned()).collect(),
            line,
            header: header.to_owned(),
            sql: sql.to_owned(),
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(
            parse(text),
            Ok(vec![
                record(&["# Why."], 2, "statement ok", "CREATE TABLE t\n  (a INT)", &[]),
                record(&["# Alone."], 7, "", "", &[]),
                record(&[], 8, "query I rowsort", "SELECT a", &["1", "2"]),
            ])
        );
    }

    #[test]
    fn a_folder_has_one_name() {
        let mut lines =
            ["line 1: x '/tmp/slt-0000/y' z", "          ^^^^^^^^^^^^^^^^^", "/tmp/slt-0000"]
                .map(str::to_owned);
        super::name_folder(&mut lines, "/tmp/slt-0000");
        assert_eq!(lines, ["line 1: x '{folder}/y' z", "          ^^^^^^^^^^^^", "{folder}"]);
    }

    #[test]
    fn a_word_out_of_place_is_noticed() {
        assert_eq!(parse("statement good\nSELECT 1").map_err(|(line, _)| line), Err(1));
    }
}

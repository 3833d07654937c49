//! The shell's output, without durations.

use std::{
    io::{self, Write},
    sync::Arc,
};

use lockstep_host::sync::Mutex;

use super::{Shell, ShellInput};
use crate::{result_printer::ResultPrinter, screen::Screen};

#[derive(Clone, Default)]
struct OutputCapture(Arc<Mutex<Vec<u8>>>);

impl Write for OutputCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputCapture {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

/// Runs the shell; returns the exit code, the output and the errors.
fn run(args: &[&str], input: &str, interactive: bool) -> (i32, String, String) {
    run_on(|| None, args, input, interactive)
}

/// Runs the shell with an output of this size.
fn run_on(
    screen: fn() -> Option<Screen>,
    args: &[&str],
    input: &str,
    interactive: bool,
) -> (i32, String, String) {
    let (out, err) = (OutputCapture::default(), OutputCapture::default());
    let printer = ResultPrinter::new(Box::new(out.clone()), Box::new(err.clone()));
    let mut shell = Shell::new(printer.with_screen(screen));
    let args = args.iter().map(ToString::to_string).collect();
    let mut input = input.as_bytes();
    let input =
        if interactive { ShellInput::Lines(&mut input) } else { ShellInput::Script(&mut input) };
    let code = shell.run(args, input);
    // A busy machine opens a directory slowly, which is said.
    let errors = err.text();
    let lines = errors.split_inclusive('\n').filter(|line| !line.starts_with("open"));
    (code, out.text(), lines.collect())
}

/// An output that takes nothing.
struct FailingOutput(io::ErrorKind);

impl Write for FailingOutput {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_fails_is_reported_unless_nobody_reads_it() {
    let run = |kind: io::ErrorKind, args: &[&str], mut input: &[u8]| {
        let err = OutputCapture::default();
        let printer = ResultPrinter::new(Box::new(FailingOutput(kind)), Box::new(err.clone()));
        let args = args.iter().map(ToString::to_string).collect();
        let code = Shell::new(printer).run(args, ShellInput::Script(&mut input));
        (code, err.text())
    };
    let (code, err) = run(io::ErrorKind::StorageFull, &["-c", "SELECT 1"], b"");
    assert_eq!(code, 1);
    assert!(err.starts_with("error[53100]: could not write the output\ndetail: "), "{err}");
    let (code, err) = run(io::ErrorKind::PermissionDenied, &["-c", "SELECT 1"], b"");
    assert_eq!(code, 1);
    assert!(err.starts_with("error[58030]: could not read the input or write the"), "{err}");
    let quiet = run(io::ErrorKind::BrokenPipe, &["-c", "SELECT 1"], b"");
    assert_eq!(quiet, (0, String::new()));
    let (code, err) = run(io::ErrorKind::BrokenPipe, &[], b"SELECT '\xff'");
    assert_eq!(code, 1);
    assert!(err.starts_with("error[22021]: the input is not valid UTF-8"), "{err}");
}

#[test]
fn a_comment_that_does_not_end_is_an_error() {
    for script in ["/* x", "SELECT 1 /* x", "-- first\n/* SELECT 1;"] {
        let (code, out, err) = run(&["-c", script], "", false);
        assert_eq!((code, out.as_str()), (1, ""), "{script}");
        assert!(err.starts_with("error[42601]: unterminated comment\n"), "{err}");
    }
    let (code, out, err) = run(&[], "SELECT 1; /* SELECT 2;", false);
    assert_eq!((code, out.as_str()), (1, "1\n-\n1\n(1 row)\n\n"));
    assert!(err.starts_with("error[42601]: unterminated comment\n"), "{err}");
}

#[test]
fn each_statement_of_a_script_prints_its_result() {
    let script = "CREATE TABLE t (k STRING, v INT); INSERT INTO t VALUES ('a', 1), (NULL, 20);
                  SELECT k, v FROM t ORDER BY v;";
    let (code, out, err) = run(&["-c", script], "", false);
    assert_eq!((code, err.as_str()), (0, "CREATE TABLE\nINSERT (2 rows)\n"));
    assert_eq!(out, "k    |  v\n-----+---\na    |  1\nNULL | 20\n(2 rows)\n\n");
}

#[test]
fn an_error_shows_the_line_of_the_script_and_ends_it() {
    let (code, out, err) = run(&[], "SELECT 1;\nSELECT\n  nonsense(2);\nSELECT 3 AS never;", false);
    assert_eq!(code, 1);
    assert!(out.contains("(1 row)") && !out.contains("never"), "{out}");
    assert!(err.starts_with("error[42883]: "), "{err}");
    assert!(err.contains("line 3:   nonsense(2);\n          ^"), "{err}");
}

#[test]
fn the_prompt_waits_for_the_semicolon_and_goes_on_after_an_error() {
    let (code, out, err) =
        run(&[], "SELECT\n1 AS one;\nnonsense;\n.nope\n\\q\nSELECT 9 AS never;\n", true);
    assert_eq!(code, 0);
    assert_eq!(out, "one\n---\n  1\n(1 row)\n\n");
    assert!(err.contains("lockstep>      ...> Time: "), "{err}");
    assert!(err.contains("error[42601]") && err.contains("invalid command `.nope`"), "{err}");
}

/// Runs a script that succeeds, with this before it; returns the output.
fn output_of(script: &str) -> String {
    let setup = "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
                 CREATE TABLE users (name STRING); INSERT INTO users VALUES ('ann');
                 DEPLOY d AS SELECT k FROM t;";
    let (code, out, err) = run(&["-q", "-c", setup, "-c", script], "", false);
    assert_eq!((code, err.as_str()), (0, ""), "{script}");
    out
}

#[test]
fn commands_list_what_there_is() {
    let tables = "table\n-----\nt\nusers\n(2 rows)\n\n";
    for command in ["\\d", "\\dt", ".tables", "\\dt;"] {
        assert_eq!(output_of(command), tables, "{command}");
    }
    assert_eq!(output_of("\\dt u*"), "table\n-----\nusers\n(1 row)\n\n");
    let described = output_of("\\d t");
    assert!(
        described.contains("k      | STRING") && described.contains("index0 | k "),
        "{described}"
    );
    let indexes = output_of("\\di t");
    assert!(indexes.contains("key_columns") && indexes.ends_with("(1 row)\n\n"), "{indexes}");
    let functions = output_of("\\df topn_f*");
    assert!(
        functions.contains("topn_frequency(") && functions.ends_with("(1 row)\n\n"),
        "{functions}"
    );
    assert!(output_of("\\df").contains("\nsum "));
    assert!(output_of("\\dd").contains("default  | d "));
    assert!(output_of("\\dd d").contains("SELECT k FROM t"));
    assert!(output_of("\\l").contains("database\n--------\ndefault\n"));
    assert!(output_of(".schema users").starts_with("CREATE TABLE `users` ("));
    assert_eq!(output_of(".schema").matches("CREATE TABLE").count(), 2);
    assert!(output_of("help").contains("\\watch [SECONDS]"));
    let (code, _, err) = run(&["-c", "\\d nowhere"], "", false);
    assert!(code == 1 && err.starts_with("error[42P01]"), "{err}");
}

#[test]
fn a_command_may_change_how_results_are_printed() {
    assert_eq!(output_of("\\x\nSELECT * FROM users"), "-[ ROW 1 ]\nname | ann\n(1 row)\n\n");
    assert_eq!(output_of(".mode csv\nSELECT * FROM users"), "name\r\nann\r\n");
    assert!(output_of("\\x on\n\\x\nSELECT * FROM users").starts_with("name\n----\n"));
    let (code, out, err) = run(&["-c", ".timer on\nSELECT 1 AS a"], "", false);
    assert_eq!((code, out.as_str()), (0, "a\n-\n1\n(1 row)\n\n"));
    assert!(err.starts_with("Timing is on.\nTime: "), "{err}");
}

#[test]
fn results_go_to_a_file_and_scripts_are_read_from_one() {
    let directory = TestDirectory::new("files");
    std::fs::create_dir(&directory.0).unwrap();
    let [results, script] =
        ["results", "it self.sql"].map(|name| format!("{}/{name}", directory.0));
    std::fs::write(&script, "\u{feff}SELECT 2 AS b;\r\n\\dt\r\nSELECT 3 AS c;\r\n").unwrap();
    let text = format!("\\o {results}\nSELECT 1 AS a;\n\\o\n\\i '{script}'\n");
    let out = output_of(&text);
    assert!(
        out.starts_with("b\n-\n2\n(1 row)\n\ntable\n") && out.ends_with("c\n-\n3\n(1 row)\n\n")
    );
    assert_eq!(std::fs::read_to_string(&results).unwrap(), "a\n-\n1\n(1 row)\n\n");
    assert_eq!(run(&["-f", &script], "", false).1, run(&[&script], "", false).1);
    std::fs::write(&script, format!(".read \"{script}\"")).unwrap();
    let (code, _, err) = run(&[&script], "", false);
    assert_eq!(code, 1);
    assert!(err.contains("scripts are nested more than 16 levels deep"), "{err}");
    let (code, _, err) = run(&["-c", "\\o /nowhere/a"], "", false);
    assert!(
        code == 1 && err.starts_with("error[58P01]: could not write file `/nowhere/a`: "),
        "{err}"
    );
}

#[test]
fn scripts_run_in_their_order_until_one_fails_or_quits() {
    let args = ["--csv", "-c", "SELECT 1 AS a", "-f", "-", "-c", "SELECT 3 AS c"];
    let (code, out, err) = run(&args, "\u{feff}SELECT 2 AS b;\r\n", false);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "a\r\n1\r\nb\r\n2\r\nc\r\n3\r\n", ""));
    let (code, out, _) = run(&args, "SELECT 2 AS b;\nexit\nSELECT 4 AS d;", false);
    assert_eq!((code, out.as_str()), (0, "a\r\n1\r\nb\r\n2\r\n"));
    let (code, out, err) = run(&args, "\\nope\n", false);
    assert_eq!((code, out.as_str()), (1, "a\r\n1\r\n"));
    assert!(err.contains("invalid command `\\nope`"), "{err}");
}

#[test]
fn formats_for_programs_have_nothing_but_results_and_all_of_them() {
    let script = "CREATE TABLE t (v INT); SELECT 1 AS a; INSERT INTO t VALUES (2); SELECT v FROM t";
    for (flag, expected) in [
        ("--csv", "a\r\n1\r\nv\r\n2\r\n"),
        ("--json", "[{\"a\":1}]\n[{\"v\":2}]\n"),
        ("--markdown", "| a |\n|---:|\n| 1 |\n| v |\n|---:|\n| 2 |\n"),
    ] {
        let (code, out, err) = run(&[flag, "-c", script, "-c", "\\timing on"], "", false);
        assert_eq!((code, out.as_str()), (0, expected), "{flag}");
        assert_eq!(err, "CREATE TABLE\nINSERT (1 row)\nTiming is on.\n");
    }
}

#[test]
fn a_terminal_gets_the_first_rows_and_everything_else_all() {
    let values: Vec<String> = (0..1_500).map(|value| format!("({value})")).collect();
    let insert = format!("CREATE TABLE t (v INT); INSERT INTO t VALUES {}", values.join(", "));
    let insert = insert.as_str();
    let args = |flag: &'static str| [flag, "-c", insert, "-c", "SELECT v FROM t"];
    // A header and its rule, or a line before each row; the count and an empty line.
    for (flag, lines) in [("--csv", 1_501), ("--format=table", 1_504), ("--format=expanded", 3_002)]
    {
        let (code, out, _) = run(&args(flag), "", false);
        assert_eq!((code, out.lines().count()), (0, lines), "{flag}");
        assert!(!out.contains('…'), "{flag}");
    }
    // Higher than the result, so that there is no pager.
    let terminal = || Some(Screen { columns: 80, rows: 5_000 });
    for flag in ["--format=table", "--format=expanded", "--format=auto"] {
        let (_, out, _) = run_on(terminal, &args(flag), "", false);
        let end = "… 500 more rows\n(1500 rows; 500 not shown, `\\o FILE` writes all rows)\n\n";
        assert!(out.ends_with(end), "{flag}");
    }
    let directory = TestDirectory::new("all-rows");
    std::fs::create_dir(&directory.0).unwrap();
    let results = format!("{}/results", directory.0);
    let script = format!("\\o {results}\nSELECT v FROM t");
    let (code, out, _) = run_on(terminal, &["-c", insert, "-c", &script], "", false);
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(&results).unwrap().lines().count(), 1_504);
}

#[test]
fn a_row_is_lines_where_a_table_is_too_wide() {
    let narrow = || Some(Screen { columns: 20, rows: 100 });
    let sql = "SELECT 'aaaaaaaaaa' AS a, 'bbbbbbb' AS b, 3 AS c";
    let args = ["-c", "\\x auto", "-c", sql, "-c", "SELECT 1 AS a"];
    let (_, out, err) = run_on(narrow, &args, "", false);
    assert_eq!(err, "Expanded output is on for tables wider than the screen.\n");
    let expanded = "-[ ROW 1 ]\na | aaaaaaaaaa\nb | bbbbbbb\nc | 3\n(1 row)\n\n";
    assert_eq!(out, format!("{expanded}a\n-\n1\n(1 row)\n\n"));
    let (_, out, _) = run(&args, "", false);
    assert!(out.starts_with("a          | b       | c\n"), "{out}");
    let (_, _, err) = run(&["-c", "\\x auto\n\\x\n\\x"], "", false);
    let notes: Vec<&str> = err.lines().skip(1).collect();
    assert_eq!(notes, ["Expanded output is on.", "Expanded output is off."]);
}

#[test]
fn a_statement_is_watched_as_often_as_wanted() {
    assert_eq!(output_of("SELECT 1 AS a \\watch 0.01 c=3"), "a\n-\n1\n(1 row)\n\n".repeat(3));
    let (code, _, err) = run(&["-c", "\\watch"], "", false);
    assert!(code == 1 && err.contains("without a previous statement"), "{err}");
}

#[test]
fn a_terminal_gets_the_columns_that_fit() {
    let wide = || Some(Screen { columns: 20, rows: 100 });
    let sql = "SELECT 'aaaaaaaaaa' AS a, 'bbbbbbb' AS b, 3 AS c";
    let (_, out, _) = run_on(wide, &["-c", sql], "", false);
    assert!(out.starts_with("a          | b\n"), "{out}");
    assert!(out.ends_with("(1 row; 1 of 3 columns hidden, `\\x` shows them)\n\n"), "{out}");
    let (_, out, _) = run_on(wide, &["--csv", "-c", sql], "", false);
    assert_eq!(out, "a,b,c\r\naaaaaaaaaa,bbbbbbb,3\r\n");
}

#[test]
fn a_missing_file_is_an_error() {
    let (code, _, err) = run(&["/nowhere/a.sql"], "", false);
    assert_eq!(code, 1);
    assert!(err.starts_with("error[58P01]: could not read file `/nowhere/a.sql`: "), "{err}");
}

#[test]
fn a_server_needs_a_directory() {
    let (code, _, err) = run(&["serve"], "", false);
    assert_eq!(code, 2);
    assert!(err.contains("required") && err.contains("lockstep serve <DIR>"), "{err}");
}

/// A path for a database, removed when it is dropped.
struct TestDirectory(String);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-shell-{name}-{}.lockstep", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&path));
        Self(path.into_os_string().into_string().unwrap())
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_directory_keeps_what_a_run_has_stored() {
    let directory = TestDirectory::new("keeps");
    let path = directory.0.as_str();
    let create = "CREATE TABLE t (a INT); INSERT INTO t VALUES (7), (8)";
    let (code, out, err) = run(&["-q", "-c", create, path], "", false);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let (code, out, err) = run(&["-c", "SELECT a FROM t ORDER BY a", path], "", false);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("a\n-\n7\n8\n(2 rows)"), "{out}");
    let (code, _, err) = run(&[path], "INSERT INTO t VALUES (9);", false);
    assert_eq!((code, err.as_str()), (0, "INSERT (1 row)\n"));
    let (code, out, err) = run(&[path], "SELECT count(a) AS n FROM t;\n", true);
    assert_eq!(code, 0);
    assert!(err.contains(&format!(", {path}: 3 rows in ")), "{err}");
    assert!(out.contains("n\n-\n3\n"), "{out}");
}

#[test]
fn a_directory_that_is_only_read_refuses_changes() {
    let directory = TestDirectory::new("read-only");
    let path = directory.0.as_str();
    let (code, _, err) = run(&["--read-only", path], "", false);
    assert_eq!(code, 1);
    assert!(err.starts_with("error[58P01]: "), "{err}");
    assert_eq!(run(&["-c", "CREATE TABLE t (a INT)", path], "", false).0, 0);
    let input = "INSERT INTO t VALUES (1);\nSELECT a FROM t;\n";
    let (code, out, err) = run(&["--read-only", path], input, true);
    assert_eq!(code, 0);
    assert!(err.contains(&format!("{path}, read only: 0 rows in ")), "{err}");
    assert!(out.contains("(0 rows)") && err.contains("error[25006]: "), "{out}{err}");
}

#[test]
fn a_directory_that_is_open_is_refused() {
    let directory = TestDirectory::new("in-use");
    let database = lockstep_engine::Database::open(&directory.0).unwrap();
    let (code, out, err) = run(&["-c", "SELECT 1", &directory.0], "", false);
    assert_eq!((code, out.as_str()), (1, ""));
    let pid = std::process::id().to_string();
    assert!(err.starts_with("error[55006]: ") && err.contains(&pid), "{err}");
    database.close().unwrap();
    assert_eq!(run(&["-c", "SELECT 1", &directory.0], "", false).0, 0);
}

#[test]
fn an_error_shows_no_password() {
    let script = "SELECT 1; CREATE USER a OPTIONS(pasword='hush')";
    let (code, _, err) = run(&["-c", script], "", false);
    assert_eq!(code, 1);
    assert!(err.contains("OPTIONS(pasword='****')") && !err.contains("hush"), "{err}");
}

#[test]
fn check_says_what_is_wrong_and_salvage_saves_the_rest() {
    let [directory, target] = ["checked", "salvaged"].map(TestDirectory::new);
    let (dir, other) = (directory.0.clone(), target.0.clone());
    let database = lockstep_engine::Database::open(&directory.0).unwrap();
    let session = database.session();
    for sql in ["CREATE TABLE t (n INT)", "INSERT INTO t VALUES (1), (2)", "CHECKPOINT"] {
        session.execute(sql).unwrap();
    }
    let (code, out, err) = run(&["check", &dir], "", false);
    assert_eq!((code, out.as_str()), (2, ""));
    let owner = format!("by process {}", std::process::id());
    assert!(err.starts_with("error[") && err.contains(&owner), "{err}");
    drop((session, database));

    let (code, out, err) = run(&["check", &dir], "", false);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let counts = format!("{dir}: 1 tables, 1 intact data files with 2 blocks, 2 log records; ");
    assert!(out.starts_with(&counts), "{out}");
    assert!(out.ends_with("No problems found.\n"), "{out}");

    let file = std::path::Path::new(&dir).join("data/00000000000000000001.data");
    let mut bytes = std::fs::read(&file).unwrap();
    // In a row, behind the headers of the file, of the block and of what arrived together.
    bytes[48 + 12 + 12] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, out, _) = run(&["check", &dir], "", false);
    let finding = format!(
        "damage: {}, byte 48: the payload of a block is invalid\n  at risk: default.t, \
         positions 1 to 3\n1 problem found.\n",
        file.display()
    );
    assert_eq!(code, 1);
    assert!(out.ends_with(&finding), "{out}");
    let (code, out, _) = run(&["check", &dir, "--json"], "", false);
    assert_eq!(code, 1);
    assert!(out.contains(r#""byte":48,"#) && out.contains(r#""tables":["default.t"]"#), "{out}");

    let (code, out, err) = run(&["check", "--salvage", &dir, "--to", &other], "", false);
    assert_eq!((code, err.as_str()), (1, ""));
    // The log has the rows as well.
    assert!(out.ends_with(&format!("{other}: 2 rows saved\n  default.t: 2 rows\n")), "{out}");
    let (code, out, _) = run(&["check", "--json", &other], "", false);
    assert_eq!(code, 0);
    assert!(out.contains(r#""findings":[]"#), "{out}");
    let again = run(&["check", "--salvage", &dir, "--to", &other], "", false);
    assert_eq!(again.0, 2);
    assert!(again.2.contains("is not empty"), "{}", again.2);
    let (code, _, err) = run(&["check", "/nowhere"], "", false);
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere does not contain a database"), "{err}");
}

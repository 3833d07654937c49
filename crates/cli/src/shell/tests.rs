//! The shell's output, without durations.

use std::{
    io::{self, Write},
    sync::Arc,
};

use lockstep_host::sync::Mutex;

use super::{Shell, ShellInput, duration_text};

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
    let (out, err) = (OutputCapture::default(), OutputCapture::default());
    let mut shell = Shell::new(Box::new(out.clone()), Box::new(err.clone()));
    let args = args.iter().map(ToString::to_string).collect();
    let mut input = input.as_bytes();
    let input =
        if interactive { ShellInput::Lines(&mut input) } else { ShellInput::Script(&mut input) };
    let code = shell.run(args, input);
    (code, out.text(), err.text())
}

#[test]
fn each_statement_of_a_script_prints_its_result() {
    let script = "CREATE TABLE t (k STRING, v INT); INSERT INTO t VALUES ('a', 1), (NULL, 20);
                  SELECT k, v FROM t ORDER BY v;";
    let (code, out, err) = run(&["-c", script], "", false);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("k    |  v\n-----+---\na    |  1\nNULL | 20\n(2 rows, "), "{out}");
}

#[test]
fn an_error_shows_the_line_of_the_script_and_ends_it() {
    let (code, out, err) = run(&[], "SELECT 1;\nSELECT\n  nonsense(2);\nSELECT 3 AS never;", false);
    assert_eq!(code, 1);
    assert!(out.contains("(1 row, ") && !out.contains("never"), "{out}");
    assert!(err.starts_with("error[42883]: "), "{err}");
    assert!(err.contains("line 3:   nonsense(2);\n          ^"), "{err}");
}

#[test]
fn the_prompt_waits_for_the_semicolon_and_goes_on_after_an_error() {
    let (code, out, err) =
        run(&[], "SELECT\n1 AS one;\nnonsense;\n.nope\n\\q\nSELECT 9 AS never;\n", true);
    assert_eq!(code, 0);
    assert!(out.contains("lockstep>      ...> one\n"), "{out}");
    assert!(!out.contains("never"), "{out}");
    assert!(err.contains("error[42601]") && err.contains("`.nope` is no command"), "{err}");
}

#[test]
fn a_missing_file_is_an_error() {
    let (code, _, err) = run(&["/nowhere/a.sql"], "", false);
    assert_eq!(code, 1);
    assert!(err.starts_with("error[58P01]: file `/nowhere/a.sql`: "), "{err}");
}

#[test]
fn a_server_needs_a_directory() {
    let (code, _, err) = run(&["serve"], "", false);
    assert_eq!(code, 2);
    assert!(err.contains("required") && err.contains("lockstep serve <DIR>"), "{err}");
}

#[test]
fn durations_are_short() {
    assert_eq!(duration_text(12_345), "12 µs");
    assert_eq!(duration_text(12_345_678), "12.3 ms");
    assert_eq!(duration_text(12_345_678_901), "12.34 s");
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
    let (code, _, err) = run(&["-c", create, path], "", false);
    assert_eq!((code, err.as_str()), (0, ""));
    let (code, out, err) = run(&["-c", "SELECT a FROM t ORDER BY a", path], "", false);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("a\n-\n7\n8\n(2 rows, "), "{out}");
    let (code, _, err) = run(&[path], "INSERT INTO t VALUES (9);", false);
    assert_eq!((code, err.as_str()), (0, ""));
    let (code, out, _) = run(&[path], "SELECT count(a) AS n FROM t;\n", true);
    assert_eq!(code, 0);
    assert!(out.contains(&format!(", {path}: 3 rows in ")), "{out}");
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
    assert!(out.contains(&format!("{path}, read only: 0 rows in ")), "{out}");
    assert!(out.contains("(0 rows, ") && err.starts_with("error[25006]: "), "{out}{err}");
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
    let counts =
        format!("{dir}: 1 tables, 1 whole data files with 1 blocks, 2 records of the log; ");
    assert!(out.starts_with(&counts), "{out}");
    assert!(out.ends_with("Nothing is wrong with it.\n"), "{out}");

    let file = std::path::Path::new(&dir).join("data/00000000000000000001.data");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, out, _) = run(&["check", &dir], "", false);
    let finding = format!(
        "damage: {}, byte 48: the payload of a block is not whole\n  in danger: default.t, \
         positions 1 to 3\nOne thing is wrong with it.\n",
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
    assert!(out.ends_with(&format!("{other}: 2 rows were saved\n  default.t: 2 rows\n")), "{out}");
    let (code, out, _) = run(&["check", "--json", &other], "", false);
    assert_eq!(code, 0);
    assert!(out.contains(r#""findings":[]"#), "{out}");
    let again = run(&["check", "--salvage", &dir, "--to", &other], "", false);
    assert_eq!(again.0, 2);
    assert!(again.2.contains("is not empty"), "{}", again.2);
    let (code, _, err) = run(&["check", "/nowhere"], "", false);
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere holds no database"), "{err}");
}

//! Runs the test programs of the workspace, several at a time, and lists how long each took.
//!
//! `cargo test` runs one program after the other; many of them wait or have one long test, so that
//! processors are idle meanwhile. The programs are the same, and so are their working directories
//! and variables.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use lockstep_host::{Clock, SystemClock, sync::Mutex};

use crate::{gates::outside_package, workspace_dir};

/// Programs whose tests take longest: they start first, so that none is left at the end.
const LONGEST: &[&str] = &["known", "l3", "golden_sql", "parity", "engine", "crash", "durability"];

/// Programs that are listed with their times.
const LISTED: usize = 15;

/// A program with tests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TestProgram {
    name: String,
    executable: PathBuf,
    /// The directory of its crate, in which it runs.
    directory: PathBuf,
}

/// What a program printed, and how long it ran.
struct TestRun {
    program: TestProgram,
    output: String,
    has_passed: bool,
    duration: Duration,
}

/// Builds every test program without examples, and runs them. Returns whether all passed.
pub fn run() -> bool {
    let Some(programs) = build() else { return false };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runs = run_all(programs, threads);
    for run in runs.iter().filter(|run| !run.has_passed) {
        println!("== {}\n{}", run.program.name, run.output);
    }
    let mut slowest: Vec<&TestRun> = runs.iter().collect();
    slowest.sort_by_key(|run| std::cmp::Reverse(run.duration));
    for run in slowest.iter().take(LISTED) {
        println!("{:6.1} s  {}", run.duration.as_secs_f64(), run.program.name);
    }
    let failed: Vec<&str> =
        runs.iter().filter(|run| !run.has_passed).map(|run| run.program.name.as_str()).collect();
    let tests: usize = runs.iter().map(|run| passed_tests(&run.output)).sum();
    println!(
        "test programs: {} of {} passed, {tests} tests",
        runs.len() - failed.len(),
        runs.len()
    );
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    failed.is_empty() && !runs.is_empty()
}

/// Builds the programs and returns them; `None` after an error, which cargo has printed.
fn build() -> Option<Vec<TestProgram>> {
    let output = outside_package(&mut Command::new(env!("CARGO")))
        .args(["test", "--locked", "--workspace", "--tests", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace_dir())
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| lines.lines().filter_map(program_of).collect())
}

/// Reads a message of cargo; `None` unless it is about a test program.
fn program_of(line: &str) -> Option<TestProgram> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != serde_json::Value::Bool(true) {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let name = message["target"]["name"].as_str()?.to_owned();
    Some(TestProgram { name, executable, directory })
}

/// Runs the programs, so many at a time; the longest first.
fn run_all(mut programs: Vec<TestProgram>, threads: usize) -> Vec<TestRun> {
    let rank = |program: &TestProgram| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    };
    programs.sort_by_key(rank);
    programs.reverse();
    let (waiting, runs) = (Mutex::new(programs), Mutex::new(Vec::new()));
    let next = || waiting.lock().pop();
    let work = || {
        while let Some(program) = next() {
            let run = run_one(program);
            runs.lock().push(run);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    runs.into_inner()
}

fn run_one(program: TestProgram) -> TestRun {
    let clock = SystemClock::new();
    let output = Command::new(&program.executable)
        .current_dir(&program.directory)
        .env("CARGO_MANIFEST_DIR", &program.directory)
        .output();
    let duration = Duration::from_nanos(clock.monotonic_ns());
    let (has_passed, output) = match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&text).into_owned())
        }
        Err(error) => (false, error.to_string()),
    };
    TestRun { program, output, has_passed, duration }
}

/// Returns the number of tests that passed by the closing line of a program.
fn passed_tests(output: &str) -> usize {
    let results = output.lines().filter(|line| line.starts_with("test result:"));
    let counts = results.filter_map(|line| line.split(" passed").next()?.rsplit(' ').next());
    counts.filter_map(|count| count.parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{TestProgram, passed_tests, program_of, run_all};

    fn program(executable: &str) -> TestProgram {
        TestProgram {
            name: executable.to_owned(),
            executable: executable.into(),
            directory: Path::new("/").to_owned(),
        }
    }

    #[test]
    fn programs_are_read_from_the_messages_of_cargo() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/b/Cargo.toml",
            "target":{"name":"c"},"profile":{"test":true},"executable":"/t/c-1"}"#;
        let found = program_of(line).expect("it is a test program");
        assert_eq!((found.name.as_str(), found.directory), ("c", "/a/crates/b".into()));
        assert_eq!(program_of(&line.replace("true", "false")), None, "a library");
        assert_eq!(program_of("   Compiling b"), None);
    }

    #[test]
    fn a_program_that_fails_or_does_not_exist_has_not_passed() {
        let programs = ["/bin/true", "/bin/false", "/does/not/exist"].map(program).to_vec();
        let mut runs = run_all(programs, 2);
        runs.sort_by(|one, other| one.program.name.cmp(&other.program.name));
        let passed: Vec<bool> = runs.iter().map(|run| run.has_passed).collect();
        assert_eq!(passed, [false, true, false]);
    }

    #[test]
    fn passed_tests_are_counted() {
        let output = "running 3 tests\ntest a ... ok\n\
                      test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured";
        assert_eq!(passed_tests(output), 12);
        assert_eq!(passed_tests("no result"), 0);
    }
}

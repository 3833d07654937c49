//! Format, lint, test: cargo with the right arguments, the same here and in CI.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use lockstep_host::failpoint;
use lockstep_testkit::{guide, l3, long_windows, slt, streams};

use crate::{
    conformance::{self, ConformanceOptions},
    reference, test_programs, tidy, workspace_dir,
};

/// Formats every crate. Returns whether it worked, as all gates do.
pub fn format() -> bool {
    cargo(&["fmt", "--all"], &[])
}

/// Checks the format and the generated pages, then runs clippy with every warning an error.
pub fn lint() -> bool {
    cargo(&["fmt", "--all", "--check"], &[])
        && reference::is_current()
        && cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

/// Runs the tests; `arguments` go to `cargo test`.
pub fn test(arguments: &[String]) -> bool {
    let mut all = vec!["test"];
    if !arguments.iter().any(|argument| argument == "-p" || argument.starts_with("--package")) {
        all.push("--workspace");
    }
    all.extend(arguments.iter().map(String::as_str));
    cargo(&all, &[])
}

/// Checks the protocol of the series under every interleaving, within a bound.
pub fn model() -> bool {
    cargo(&["test", "--manifest-path", "crates/series/model/Cargo.toml"], &[])
}

/// Runs the tests of the series under Miri, which a nightly toolchain brings: `rustup +nightly
/// component add miri`. Takes minutes. Tree borrows, as the standard library's
/// collections need; addresses of rows are integers in slots, hence exposed.
pub fn miri() -> bool {
    let flags = "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-tree-borrows \
                 -Zmiri-ignore-leaks";
    let version = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!(
            "miri: SKIPPED, there is no nightly toolchain with it: \
             rustup toolchain install nightly --component miri,rust-src"
        );
        return true;
    }
    let manifest = workspace_dir().join("crates/series/model/whole/Cargo.toml");
    let status = outside_package(&mut Command::new("cargo"))
        .args(["+nightly", "miri", "test", "--manifest-path"])
        .arg(manifest)
        .env("MIRIFLAGS", flags)
        .env("PROPTEST_CASES", "3")
        .status();
    status.is_ok_and(|status| status.success())
}

/// Compares batch mode, request mode and the oracle on `cases` drawn scenarios.
pub fn parity(cases: u32) -> bool {
    drawn_scenarios("parity", cases)
}

/// Compares frames that extend past the current row with the oracle on so many scenarios.
pub fn following(cases: u32) -> bool {
    drawn_scenarios("following", cases)
}

/// Compares continuous queries with the oracle and batch mode on so many scenarios.
pub fn streams(cases: u32, seed: u64) -> bool {
    let outcome = streams::run(cases, seed);
    match &outcome {
        Ok(counts) => println!("seed {seed}\n{counts}"),
        Err(failure) => println!("seed {seed}: {failure}"),
    }
    outcome.is_ok()
}

fn drawn_scenarios(test: &str, cases: u32) -> bool {
    assert!(cases > 0, "something is drawn");
    let cases = cases.to_string();
    cargo(
        &["test", "-p", "lockstep-testkit", "--test", test, "--", "--nocapture"],
        &[("PROPTEST_CASES", &cases)],
    )
}

/// Compares requests with batch mode on drawn queries, and prints the constructs of the queries.
pub fn deployable(cases: u64, seed: u64) -> bool {
    let report = l3::run(seed, cases);
    report.failures.iter().for_each(|failure| println!("{failure}\n"));
    println!("seed {seed}: {report}");
    report.failures.is_empty()
}

/// Compares the answers of drawn long windows with and without pre-aggregates. With a bug, it is good
/// to find a difference.
pub fn long_windows(cases: u64, seed: u64, bug: Option<&str>) -> bool {
    if let Some(bug) = bug {
        failpoint::seed(bug);
    }
    let report = long_windows::run(seed, cases);
    report.failures.iter().for_each(|failure| println!("{failure}\n"));
    println!("seed {seed}: {report}");
    if let Some(bug) = bug {
        let is_found = !report.failures.is_empty();
        println!("{bug}: {}", if is_found { "found" } else { "NOT FOUND" });
        return is_found;
    }
    let blindness = report.blindness();
    blindness.iter().for_each(|why| println!("the run shows nothing: {why}"));
    report.failures.is_empty() && blindness.is_none()
}

/// Runs golden SQL files and the examples of the guide; with `complete`, writes the results into
/// them.
pub fn golden_sql(path: Option<PathBuf>, complete: bool) -> bool {
    let folders = ["tests/sql", "docs/guide", "docs/concepts", "docs/capacity.md"]
        .map(|folder| workspace_dir().join(folder));
    let roots = path.map_or_else(|| folders.to_vec(), |path| vec![path]);
    let mut is_good = true;
    for root in roots {
        let golden = slt::files_below(&root).into_iter().filter(|file| !is_document(file));
        let outcomes = golden.map(|file| match complete {
            true => slt::complete(&file),
            false => slt::run(&file),
        });
        let documents = guide::files_below(&root).into_iter().filter(|file| is_document(file));
        let shown = documents.map(|file| match complete {
            true => guide::complete(&file),
            false => guide::run(&file).map(drop),
        });
        for report in outcomes.chain(shown).filter_map(Result::err) {
            println!("{report}");
            is_good = false;
        }
    }
    is_good
}

fn is_document(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// Runs everything a change must pass, the cheapest first.
pub fn ci() -> bool {
    tidy::run()
        && lint()
        && test_programs::run()
        && model()
        && conformance::run(&ConformanceOptions::default())
}

/// Takes away the variables by which `cargo run` describes this package to its program. The build script
/// of `ring` runs again when one of them differs, so that DataFusion, above it, would be compiled anew
/// whenever this program and somebody's shell call cargo in turn.
pub(crate) fn outside_package(command: &mut Command) -> &mut Command {
    let describes = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
            || ["CARGO_CRATE_NAME", "CARGO_BIN_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"]
                .contains(&name)
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes) {
            command.env_remove(name);
        }
    }
    command
}

fn cargo(arguments: &[&str], variables: &[(&str, &str)]) -> bool {
    println!("$ cargo {}", arguments.join(" "));
    let status = outside_package(&mut Command::new(env!("CARGO")))
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(workspace_dir())
        .status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            println!("cargo did not start: {error}");
            false
        }
    }
}

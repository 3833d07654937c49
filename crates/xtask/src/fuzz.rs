//! `cargo xtask fuzz`: texts that are not SQL, for as long as one likes.
//!
//! The corpus is the workspace's and, where it lies beside the checkout, the conformance cases'.
//! The input being tried is in a file, for when the process dies of it.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use lockstep_testkit::fuzz::{self, Options, Report, corpus::Corpus};
use serde_json::Value as Json;

use crate::{conformance, workspace_dir};

/// Fuzzes for some seconds; whether nothing was found.
pub fn run(seconds: u64, seed: u64, cases: Option<PathBuf>) -> bool {
    let root = workspace_dir();
    let mut corpus = Corpus::of_workspace(&root);
    add_conformance(&mut corpus, &cases.unwrap_or_else(conformance::default_folder));
    let current = std::env::temp_dir().join("lockstep-fuzz-current.sql");
    println!("{} seeds; the input being tried is in {}", corpus.seeds.len(), current.display());
    let options = Options {
        seed,
        executions_max: u64::MAX,
        time_ms_max: seconds.saturating_mul(1_000),
        current: Some(current),
    };
    let report = fuzz::run(&corpus, &options);
    print(&report, seed);
    report.findings.is_empty()
}

/// Adds each case's statements with its tables in front.
fn add_conformance(corpus: &mut Corpus, folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    for file in files.iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")) {
        let text = fs::read_to_string(file).unwrap_or_default();
        for record in text.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok()) {
            let texts = |json: &Json| json.as_str().map(str::to_owned);
            let inputs = record["inputs"].as_array().into_iter().flatten();
            let tables: Vec<String> =
                inputs.filter_map(|input| texts(&input["create_sql"])).collect();
            for sql in record["sqls"].as_array().into_iter().flatten().filter_map(texts) {
                corpus.add(&tables.join("\n"), &sql);
            }
        }
    }
}

fn print(report: &Report, seed: u64) {
    for finding in &report.findings {
        println!("{}\n{}\n", finding.what, finding.input);
    }
    let reached: Vec<String> =
        report.reached.iter().map(|(stage, count)| format!("{count} {stage:?}")).collect();
    println!(
        "seed {seed}: {} inputs ({}), {} findings; slowest {} ms, most memory {} KiB",
        report.executions,
        reached.join(", ").to_lowercase(),
        report.findings.len(),
        report.slowest_ms,
        report.memory_bytes_max / 1024
    );
}

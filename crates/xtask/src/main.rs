//! The command line of `cargo xtask`; every command is a module of the library.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use lockstep_testkit::fuzz::memory::Counting;
use lockstep_xtask::{
    conformance::{self, ConformanceOptions},
    fuzz, gates, messages, reference, sim, test_programs, tidy,
};

/// Counts memory, so that the memory of a fuzzed input is known.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct XtaskArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the rules about the source that no lint checks.
    Tidy {
        /// Write better counts and ratios into crates/xtask/ratchet.txt first.
        #[arg(long)]
        ratchet: bool,
        /// Print the sizes of files and functions and the measures of the ratchet instead.
        #[arg(long, conflicts_with = "ratchet")]
        report: bool,
    },
    /// List the messages that no golden test sees.
    Messages,
    /// Format the code.
    Fmt,
    /// Check the format and the generated pages, then run clippy with every warning an error.
    Lint,
    /// Run every test program, several at a time; with arguments, `cargo test` with these.
    Test {
        /// What `cargo test` gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the golden SQL files of tests/sql and the examples of docs/guide.
    Slt {
        /// One file or folder instead of all.
        path: Option<PathBuf>,
        /// Write the results into the files, to be read before they are committed.
        #[arg(long)]
        complete: bool,
    },
    /// Check the protocol of the in-memory series under every interleaving, within a bound.
    Model,
    /// Run the tests of the in-memory series under Miri; takes minutes.
    Miri,
    /// Compare batch mode, request mode and the oracle on drawn databases and queries.
    Parity {
        /// Number of cases.
        #[arg(long, default_value_t = 300)]
        cases: u32,
    },
    /// Compare windows over rows after the current one with the oracle on drawn databases and queries.
    Following {
        /// Number of cases.
        #[arg(long, default_value_t = 300)]
        cases: u32,
    },
    /// Compare continuous queries, whose rows arrive in disorder, with the oracle and batch mode.
    Streams {
        /// Number of cases.
        #[arg(long, default_value_t = 300)]
        cases: u32,
        /// Seed of the cases.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Deploy drawn queries and compare a request's answer with batch mode (promise L3).
    L3 {
        /// Number of cases.
        #[arg(long, default_value_t = 3_000)]
        cases: u64,
        /// The seed, which determines the run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Compare the answers of drawn long windows with and without pre-aggregates.
    LongWindows {
        /// Number of cases.
        #[arg(long, default_value_t = 400)]
        cases: u64,
        /// The seed, which determines the run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Give this process a bug, which must be found.
        #[arg(long, value_parser = lockstep_testkit::long_windows::BUGS)]
        bug: Option<String>,
    },
    /// Fuzz every entry point that takes text with malformed SQL, the readers of a directory, or the
    /// listeners of the server.
    Fuzz {
        /// What is fuzzed.
        #[arg(long, value_enum, default_value = "sql")]
        target: fuzz::FuzzTarget,
        /// Seconds to run.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The seed, which determines the run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Conformance cases for the corpus, instead of ../shared/conformance.
        #[arg(long)]
        cases: Option<PathBuf>,
        /// Simulate a defect, which must be found: panic, stack, memory or hang of SQL, bug of a listener.
        #[arg(long, value_parser = ["panic", "stack", "memory", "hang", "bug"])]
        canary: Option<String>,
        /// Run inputs in this process, from this number on.
        #[arg(long, hide = true, requires = "current")]
        first: Option<u64>,
        /// The file for the current input.
        #[arg(long, hide = true)]
        current: Option<PathBuf>,
    },
    /// Run the durable engine on a simulated disk: crashes at every call, and calls that fail.
    Sim {
        /// Workloads that are drawn, after the one with each kind of statement.
        #[arg(long, default_value_t = 20)]
        workloads: u64,
        /// The seed of the first one, which determines the run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run the conformance cases.
    Conformance(ConformanceArguments),
    /// Write the reference pages of functions, statements, types, lints and metrics, and docs/compatibility.md.
    Reference {
        /// Only check whether they are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Run everything a change must pass, the cheapest first.
    Ci,
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct ConformanceArguments {
    /// Only this area.
    area: Option<String>,
    /// A folder of the same format instead of ../shared/conformance.
    #[arg(long)]
    cases: Option<PathBuf>,
    /// Print the counts as JSON in the last line.
    #[arg(long)]
    json: bool,
    /// Show one case: its SQL, inputs, expected and actual result.
    #[arg(long)]
    case: Option<String>,
    /// Print a line for every failure.
    #[arg(long)]
    failures: bool,
    /// Remove the cases that pass from the lists.
    #[arg(long)]
    bless: bool,
}

fn main() -> ExitCode {
    let is_good = match XtaskArguments::parse().command {
        Command::Tidy { report: true, .. } => tidy::report(),
        Command::Tidy { ratchet: true, .. } => tidy::tighten(),
        Command::Tidy { .. } => tidy::run(),
        Command::Messages => messages::run(),
        Command::Fmt => gates::format(),
        Command::Lint => gates::lint(),
        Command::Test { arguments } if arguments.is_empty() => test_programs::run(),
        Command::Test { arguments } => gates::test(&arguments),
        Command::Slt { path, complete } => gates::golden_sql(path, complete),
        Command::Model => gates::model(),
        Command::Miri => gates::miri(),
        Command::Parity { cases } => gates::parity(cases),
        Command::Following { cases } => gates::following(cases),
        Command::Streams { cases, seed } => gates::streams(cases, seed),
        Command::L3 { cases, seed } => gates::deployable(cases, seed),
        Command::LongWindows { cases, seed, bug } => {
            gates::long_windows(cases, seed, bug.as_deref())
        }
        Command::Fuzz { target, seconds, seed, cases, canary, first, current } => {
            let trial = first.zip(current);
            fuzz::run(&fuzz::FuzzRun { target, seconds, seed, cases, canary, trial })
        }
        Command::Sim { workloads, seed } => sim::run(workloads, seed),
        Command::Conformance(arguments) => conformance::run(&ConformanceOptions {
            area: arguments.area,
            cases: arguments.cases,
            case: arguments.case,
            json: arguments.json,
            failures: arguments.failures,
            bless: arguments.bless,
        }),
        Command::Reference { check: true } => reference::is_current(),
        Command::Reference { check: false } => reference::write(),
        Command::Ci => gates::ci(),
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

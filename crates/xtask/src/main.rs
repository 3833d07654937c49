//! The command line of `cargo xtask`; every command is a module of the library.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use lockstep_testkit::fuzz::memory::Counting;
use lockstep_xtask::{
    conformance::{self, Options},
    fuzz, gates, messages, reference, tidy,
};

/// So that a fuzzed input's memory is known.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The project's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
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
    /// Run the tests; arguments go to `cargo test`.
    Test {
        /// What `cargo test` gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the golden SQL files of tests/sql and the examples of docs/guide.
    Slt {
        /// One file or folder instead of all.
        path: Option<PathBuf>,
        /// Write what came into the files, for a person to read and check in.
        #[arg(long)]
        complete: bool,
    },
    /// Check the protocol of the in-memory series under every interleaving, within a bound.
    Model,
    /// Run the tests of the in-memory series under Miri; takes minutes.
    Miri,
    /// Compare batch mode, request mode and the oracle on drawn databases and queries.
    Parity {
        /// How many.
        #[arg(long, default_value_t = 300)]
        cases: u32,
    },
    /// Deploy drawn queries and compare a request's answer with batch mode (promise L3).
    L3 {
        /// How many.
        #[arg(long, default_value_t = 3_000)]
        cases: u64,
        /// A seed is a run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Throw texts that are not quite SQL at every entry point that takes text.
    Fuzz {
        /// For how long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// A seed is a run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Conformance cases for the corpus, instead of ../shared/conformance.
        #[arg(long)]
        cases: Option<PathBuf>,
        /// Put a defect in, which has to be found: panic, stack, memory or hang.
        #[arg(long, value_parser = ["panic", "stack", "memory", "hang"])]
        canary: Option<String>,
        /// Try inputs in this process, from this number on.
        #[arg(long, hide = true, requires = "current")]
        first: Option<u64>,
        /// Where the input being tried is kept.
        #[arg(long, hide = true)]
        current: Option<PathBuf>,
    },
    /// Run the conformance cases.
    Conformance(ConformanceArguments),
    /// Write docs/reference/functions.md and docs/compatibility.md from the declarations.
    Reference {
        /// Only say whether they are what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Everything a change must pass, the cheapest first.
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
    /// Show one case: its SQL, inputs, what was expected and what came.
    #[arg(long)]
    case: Option<String>,
    /// Print a line for every failure.
    #[arg(long)]
    failures: bool,
    /// Take what passes now off the lists.
    #[arg(long)]
    bless: bool,
}

fn main() -> ExitCode {
    let is_good = match Arguments::parse().command {
        Command::Tidy { report: true, .. } => tidy::report(),
        Command::Tidy { ratchet: true, .. } => tidy::tighten(),
        Command::Tidy { .. } => tidy::run(),
        Command::Messages => messages::run(),
        Command::Fmt => gates::format(),
        Command::Lint => gates::lint(),
        Command::Test { arguments } => gates::test(&arguments),
        Command::Slt { path, complete } => gates::golden_sql(path, complete),
        Command::Model => gates::model(),
        Command::Miri => gates::miri(),
        Command::Parity { cases } => gates::parity(cases),
        Command::L3 { cases, seed } => gates::deployable(cases, seed),
        Command::Fuzz { seconds, seed, cases, canary, first, current } => {
            fuzz::run(&fuzz::Run { seconds, seed, cases, canary, trial: first.zip(current) })
        }
        Command::Conformance(arguments) => conformance::run(&Options {
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

//! The command line of the crash harness. Prints a report; exits with 1 when a violation was found.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use lockstep_crash::{
    bugs,
    child::{self, ChildOptions},
    failpoints,
    files::{self, FILE_FAILPOINTS},
    group::{self, GROUP_FAILPOINTS},
    kafka::{self, KAFKA_FAILPOINTS},
    kill::{self, KillOptions},
    replay::{self, ReplayOptions},
    report::Report,
    soak::{self, SoakOptions},
    streams::{self, STREAM_FAILPOINTS},
    work::WorkKillOptions,
};

/// Tries to make a database in a directory lose or invent something.
#[derive(Debug, Parser)]
#[command(name = "lockstep-crash")]
struct CrashArguments {
    #[command(subcommand)]
    command: CrashCommand,
}

#[derive(Debug, Subcommand)]
enum CrashCommand {
    /// Kill a process at random moments.
    Kill {
        /// The number of cycles.
        #[arg(long, default_value_t = 50)]
        cycles: u64,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Let a process end at every failpoint.
    Failpoints {
        /// How often a failpoint is reached until the process ends, each once.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 5, 17, 60])]
        counts: Vec<u64>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Run drawn statements in one process and open the directory again.
    Replay {
        /// The number of cases.
        #[arg(long, default_value_t = 300)]
        cases: u64,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Serve a directory under mixed load, with disconnects and kills.
    Soak {
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The longest time between kills, in milliseconds.
        #[arg(long, default_value_t = 20_000)]
        kill_ms_max: u64,
        /// A bug that is to be found.
        #[arg(long)]
        bug: Option<String>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Kill a process whose streams run, at random moments and at failpoints.
    Streams {
        /// The number of kills.
        #[arg(long, default_value_t = 100)]
        cycles: u64,
        /// A bug that is to be found.
        #[arg(long)]
        bug: Option<String>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Kill a process with sources and sinks of files, at random moments and at failpoints.
    Files {
        /// The number of kills.
        #[arg(long, default_value_t = 100)]
        cycles: u64,
        /// A bug that is to be found.
        #[arg(long)]
        bug: Option<String>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Kill a process with sources and sinks of Kafka, at random moments and at failpoints.
    Kafka {
        /// The number of kills.
        #[arg(long, default_value_t = 100)]
        cycles: u64,
        /// A bug that is to be found.
        #[arg(long)]
        bug: Option<String>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Kill processes with one group, at random moments and at failpoints.
    Group {
        /// The number of kills.
        #[arg(long, default_value_t = 100)]
        cycles: u64,
        /// A bug that is to be found.
        #[arg(long)]
        bug: Option<String>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Give processes a bug and look for it.
    Bug {
        /// Its name.
        name: String,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Open a directory and do what the standard input says.
    #[command(hide = true)]
    Child(ChildArguments),
    /// Open a directory and let streams work on it.
    #[command(hide = true)]
    StreamChild {
        directory: PathBuf,
        #[command(flatten)]
        work: WorkArguments,
    },
    /// Open a directory and let a source, a stream and a sink work on it.
    #[command(hide = true)]
    KafkaChild {
        directory: PathBuf,
        brokers: String,
        #[command(flatten)]
        work: WorkArguments,
    },
    /// Open a directory and let sources with a group, a stream and a sink work on it.
    #[command(hide = true)]
    GroupChild {
        directory: PathBuf,
        brokers: String,
        #[command(flatten)]
        work: WorkArguments,
    },
    /// Open a directory and let a source, a stream and a sink work on it and on a folder.
    #[command(hide = true)]
    FilesChild {
        directory: PathBuf,
        folder: PathBuf,
        #[command(flatten)]
        work: WorkArguments,
    },
    /// Serve a directory until the standard input ends.
    #[command(hide = true)]
    Serve {
        directory: PathBuf,
        #[arg(long)]
        bug: Option<String>,
    },
}

#[derive(Debug, Args)]
struct RunArguments {
    /// What everything is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where directories are made; on a disk, not in memory.
    #[arg(long, default_value = "target/crash")]
    directory: PathBuf,
    /// Go on after a violation.
    #[arg(long)]
    go_on: bool,
}

#[derive(Debug, Args)]
struct WorkArguments {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    failpoint: Option<String>,
    #[arg(long, default_value_t = 1)]
    count: u64,
    #[arg(long)]
    bug: Option<String>,
}

impl WorkArguments {
    /// Returns the failpoint at which the child ends, and how often it is reached until then.
    fn failpoint(&self) -> Option<(&str, u64)> {
        self.failpoint.as_deref().map(|name| (name, self.count))
    }
}

#[derive(Debug, Args)]
struct ChildArguments {
    directory: PathBuf,
    #[arg(long)]
    now_ms: i64,
    #[arg(long)]
    segment_bytes: u64,
    #[arg(long)]
    part_bytes: usize,
    #[arg(long)]
    chunk_rows: usize,
    #[arg(long)]
    leaf_rows: usize,
    #[arg(long)]
    writers: usize,
    #[arg(long)]
    failpoint: Option<String>,
    #[arg(long, default_value_t = 1)]
    count: u64,
    #[arg(long)]
    bug: Option<String>,
}

impl RunArguments {
    /// Makes the options of a run of so many cycles.
    fn options(&self, cycles: u64) -> KillOptions {
        KillOptions {
            program: std::env::current_exe().expect("the program has a path"),
            directory: self.directory.clone(),
            cycles,
            seed: self.seed,
            bug: None,
            stops_early: !self.go_on,
        }
    }

    /// Makes the options of a run whose children work until they are killed.
    fn work_options(
        self,
        cycles: u64,
        failpoints: &'static [&'static str],
        bug: Option<String>,
    ) -> WorkKillOptions {
        let Self { seed, directory, .. } = self;
        let program = std::env::current_exe().expect("the program has a path");
        WorkKillOptions { program, directory, cycles, seed, failpoints, bug }
    }
}

fn main() -> ExitCode {
    match CrashArguments::parse().command {
        CrashCommand::Kill { cycles, run } => finish(&kill::run(&run.options(cycles)), &run),
        CrashCommand::Failpoints { counts, run } => {
            let (report, unreached) = failpoints::run(&run.options(0), &counts);
            let ended = finish(&report, &run);
            if unreached.is_empty() { ended } else { report_unreached(&unreached) }
        }
        CrashCommand::Replay { cases, run } => {
            let stops_early = !run.go_on;
            let directory = run.directory.clone();
            let options = ReplayOptions { directory, cases, seed: run.seed, stops_early };
            finish(&replay::run(&options), &run)
        }
        CrashCommand::Soak { seconds, kill_ms_max, bug, run } => {
            let RunArguments { seed, directory, .. } = run;
            let program = std::env::current_exe().expect("the program has a path");
            let options = SoakOptions { program, directory, seconds, kill_ms_max, seed, bug };
            finish_soak(&options)
        }
        CrashCommand::Streams { cycles, bug, run } => {
            let report = streams::run(&run.work_options(cycles, STREAM_FAILPOINTS, bug));
            finish_work(&report, report.violations.is_empty())
        }
        CrashCommand::Kafka { cycles, bug, run } => {
            let report = kafka::run(&run.work_options(cycles, KAFKA_FAILPOINTS, bug));
            finish_work(&report, report.violations.is_empty())
        }
        CrashCommand::Group { cycles, bug, run } => {
            let report = group::run(&run.work_options(cycles, GROUP_FAILPOINTS, bug));
            finish_work(&report, report.violations.is_empty())
        }
        CrashCommand::Files { cycles, bug, run } => {
            let report = files::run(&run.work_options(cycles, FILE_FAILPOINTS, bug));
            finish_work(&report, report.violations.is_empty())
        }
        command @ (CrashCommand::StreamChild { .. }
        | CrashCommand::KafkaChild { .. }
        | CrashCommand::GroupChild { .. }
        | CrashCommand::FilesChild { .. }) => work_until_killed(command),
        CrashCommand::Serve { directory, bug } => {
            match soak::server::serve(&directory, bug.as_deref()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&error),
            }
        }
        CrashCommand::Bug { name, run } => {
            let found = bugs::BUGS.iter().find(|(bug, _)| *bug == name);
            let (_, found_by) = found.expect("it is one of lockstep_crash::bugs::BUGS");
            finish(&bugs::find(&run.options(0), &name, *found_by), &run)
        }
        CrashCommand::Child(arguments) => {
            let ChildArguments { failpoint, count, .. } = arguments;
            let options = ChildOptions {
                now_ms: arguments.now_ms,
                segment_bytes: arguments.segment_bytes,
                part_bytes: arguments.part_bytes,
                chunk_rows: arguments.chunk_rows,
                leaf_rows: arguments.leaf_rows,
                writers: arguments.writers,
                failpoint: failpoint.map(|name| (name, count)),
                bug: arguments.bug,
            };
            child::run(&arguments.directory, &options);
            ExitCode::SUCCESS
        }
    }
}

/// Runs a child of a cycle, which works until it is killed or cannot go on.
fn work_until_killed(command: CrashCommand) -> ExitCode {
    match command {
        CrashCommand::StreamChild { directory, work } => {
            streams::child(&directory, work.seed, work.failpoint(), work.bug.as_deref());
        }
        CrashCommand::KafkaChild { directory, brokers, work } => {
            kafka::child(&directory, &brokers, work.seed, work.failpoint(), work.bug.as_deref());
        }
        CrashCommand::GroupChild { directory, brokers, work } => {
            group::child(&directory, &brokers, work.seed, work.failpoint(), work.bug.as_deref());
        }
        CrashCommand::FilesChild { directory, folder, work } => {
            files::child(&directory, &folder, work.seed, work.failpoint(), work.bug.as_deref());
        }
        _ => {}
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stdout, reason = "a command speaks on its output")]
fn finish(report: &Report, run: &RunArguments) -> ExitCode {
    print!("{report}");
    if report.violation_count() == 0 {
        return ExitCode::SUCCESS;
    }
    println!("seed {}: the directories are in {}", run.seed, run.directory.display());
    ExitCode::FAILURE
}

#[expect(clippy::print_stdout, reason = "a command speaks on its output")]
fn finish_work(report: &impl std::fmt::Display, is_right: bool) -> ExitCode {
    print!("{report}");
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "a command speaks on its output")]
fn finish_soak(options: &SoakOptions) -> ExitCode {
    match soak::run(options) {
        Ok(report) => {
            print!("{report}");
            if report.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&error),
    }
}

/// Reports what a run could not do.
#[expect(clippy::print_stdout, reason = "a command speaks on its output")]
fn fail(error: &str) -> ExitCode {
    println!("{error}");
    ExitCode::from(2)
}

#[expect(clippy::print_stdout, reason = "a command speaks on its output")]
fn report_unreached(unreached: &[&str]) -> ExitCode {
    println!("no process has ended at {}", unreached.join(", "));
    ExitCode::FAILURE
}

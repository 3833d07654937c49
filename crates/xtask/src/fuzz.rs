//! `cargo xtask fuzz`: fuzzing for a given time.
//!
//! The corpus has the texts of the workspace and, if they are beside the checkout, the conformance
//! cases. The inputs run in a process of their own, with limits of memory ([`ADDRESS_SPACE_KIB`]
//! and the limit of the allocator of `xtask`), of stack and of time: a process that dies or hangs
//! is a finding, and the next process continues with the next input.
//!
//! | module | what |
//! |---|---|
//! | [`listener`] | the protocols of a server |
//! | `sessions`, `recording` | the conversations of real clients |
//! | `mutation`, `wire_part` | their changes |
//! | `exchange`, `internal_errors` | one conversation, and what is found in it |
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

mod exchange;
mod internal_errors;
pub mod listener;
mod mutation;
mod recording;
mod sessions;
mod wire_part;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

use lockstep_host::{Clock, SystemClock};
use lockstep_testkit::{
    durability::mutants::{self, Base, Part},
    fuzz::{self, Canary, FuzzOptions, FuzzReport, FuzzStage, constructs, corpus::Corpus, entry},
};
use serde_json::{Value as Json, json};

use self::listener::{FuzzedProtocol, ListenerInputs};
use crate::{conformance, workspace_dir};

/// The address space of the process that tries inputs, in KiB: 8 GiB, of which its allocator grants
/// at most `PROCESS_BYTES_MAX`.
const ADDRESS_SPACE_KIB: u64 = 8 * 1024 * 1024;

/// An input that takes longer is killed with its process, in milliseconds.
const HANG_MS: u64 = 60_000;

/// The same for a canary that hangs on purpose.
const CANARY_HANG_MS: u64 = 5_000;

/// Inputs between two reports of the process that runs them.
const INPUTS_PER_REPORT: u64 = 50;

/// Processes that may die before a run is given up.
const DEATHS_MAX: usize = 30;

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FuzzTarget {
    /// Every entry point that takes SQL.
    Sql,
    /// The reader of the log.
    Log,
    /// The reader of data files.
    Checkpoint,
    /// The reader of the manifest.
    Manifest,
    /// The server's listener for HTTP.
    Http,
    /// The server's listener for the protocol of PostgreSQL.
    Postgres,
    /// The server's listener for Flight SQL.
    Flight,
}

impl FuzzTarget {
    fn name(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Log => "log",
            Self::Checkpoint => "checkpoint",
            Self::Manifest => "manifest",
            Self::Http => "http",
            Self::Postgres => "postgres",
            Self::Flight => "flight",
        }
    }

    /// Returns the protocol of a listener; `None` for other targets.
    fn protocol(self) -> Option<FuzzedProtocol> {
        match self {
            Self::Http => Some(FuzzedProtocol::Http),
            Self::Postgres => Some(FuzzedProtocol::Postgres),
            Self::Flight => Some(FuzzedProtocol::Flight),
            Self::Sql | Self::Log | Self::Checkpoint | Self::Manifest => None,
        }
    }

    /// Returns the part of a directory that is changed; `None` for other targets.
    fn part(self) -> Option<Part> {
        match self {
            Self::Sql | Self::Http | Self::Postgres | Self::Flight => None,
            Self::Log => Some(Part::Log),
            Self::Checkpoint => Some(Part::Checkpoint),
            Self::Manifest => Some(Part::Manifest),
        }
    }
}

/// The options of a run.
#[derive(Debug, Clone)]
pub struct FuzzRun {
    /// What is fuzzed.
    pub target: FuzzTarget,
    /// Stops after so many seconds.
    pub seconds: u64,
    /// The seed, which determines the run.
    pub seed: u64,
    /// Conformance cases for the corpus, instead of those beside the checkout.
    pub cases: Option<PathBuf>,
    /// A simulated defect, by name; the run succeeds when it is found. `bug` is one of a listener.
    pub canary: Option<String>,
    /// For the process that runs inputs: the number of the first, and the file for the current one.
    pub trial: Option<(u64, PathBuf)>,
}

/// Fuzzes for some seconds; returns whether nothing was found, or the canary was.
pub fn run(options: &FuzzRun) -> bool {
    match &options.trial {
        Some((first, current)) => try_inputs(options, *first, current),
        None => watch(options),
    }
}

fn canary(name: &str) -> Option<Canary> {
    match name {
        "panic" => Some(Canary::Panic),
        "stack" => Some(Canary::Stack),
        "memory" => Some(Canary::Memory),
        "hang" => Some(Canary::Hang),
        _ => None,
    }
}

// The process that runs inputs

/// Runs inputs until the time is over, and prints the reports as lines of JSON.
fn try_inputs(options: &FuzzRun, first: u64, current: &Path) -> bool {
    let inputs = match FuzzInputs::new(options) {
        Ok(inputs) => inputs,
        Err(error) => {
            println!("{error}");
            return false;
        }
    };
    let clock = SystemClock::new();
    let elapsed_ms = || clock.monotonic_ns() / 1_000_000;
    let (start_ms, limit_ms) = (elapsed_ms(), options.seconds.saturating_mul(1_000));
    let written = current.with_extension("next");
    let before = |number: u64, text: &str| {
        // The watching process sees the one input or the next, never a part. An error only means that
        // a finding does not name its input.
        drop(fs::write(&written, format!("{number}\n{text}")));
        drop(fs::rename(&written, current));
    };
    let mut next = first;
    while elapsed_ms() - start_ms < limit_ms {
        let report = inputs.run(&FuzzOptions {
            seed: options.seed,
            first: next,
            executions_max: INPUTS_PER_REPORT,
            time_ms_max: limit_ms - (elapsed_ms() - start_ms).min(limit_ms),
            without: &[],
            before: &before,
            canary: options.canary.as_deref().and_then(canary),
        });
        next += report.executions;
        println!("{}", to_json(&report));
    }
    true
}

/// Where inputs come from.
enum FuzzInputs {
    Sql(Corpus),
    Directory(Part, Box<Base>),
    Listener(Box<ListenerInputs>),
}

impl FuzzInputs {
    fn new(options: &FuzzRun) -> Result<Self, String> {
        if let Some(part) = options.target.part() {
            let base = Base::new().map_err(|error| error.message.clone())?;
            return Ok(Self::Directory(part, Box::new(base)));
        }
        if let Some(protocol) = options.target.protocol() {
            let is_broken = options.canary.as_deref() == Some("bug");
            let inputs = ListenerInputs::new(protocol, is_broken)?;
            return Ok(Self::Listener(Box::new(inputs)));
        }
        let mut corpus = Corpus::of_workspace(&workspace_dir());
        let folder = options.cases.clone().unwrap_or_else(conformance::default_folder);
        add_conformance(&mut corpus, &folder);
        Ok(Self::Sql(corpus))
    }

    fn run(&self, options: &FuzzOptions<'_>) -> FuzzReport {
        match self {
            Self::Sql(corpus) => fuzz::run(corpus, options),
            Self::Directory(part, base) => mutants::run(base, *part, options),
            Self::Listener(inputs) => inputs.run(options),
        }
    }
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

const STAGES: [(FuzzStage, &str); 4] = [
    (FuzzStage::Refused, "refused"),
    (FuzzStage::Parsed, "parsed"),
    (FuzzStage::Bound, "bound"),
    (FuzzStage::Compiled, "compiled"),
];

fn to_json(report: &FuzzReport) -> Json {
    let findings = report.findings.iter().map(|found| json!([found.what, found.input]));
    let reached = STAGES.iter().map(|(stage, _)| report.reached.get(stage).copied().unwrap_or(0));
    json!({
        "executions": report.executions,
        "reached": reached.collect::<Vec<u64>>(),
        "calls": report.calls.counts,
        "constructs": report.constructs,
        "findings": findings.collect::<Vec<Json>>(),
        "slowest_ms": report.slowest_ms,
        "memory_bytes_max": report.memory_bytes_max,
    })
}

// The process that watches

fn watch(options: &FuzzRun) -> bool {
    let current = std::env::temp_dir().join(format!("lockstep-fuzz-{}.txt", std::process::id()));
    println!("the input being tried is in {}", current.display());
    let clock = SystemClock::new();
    let elapsed_ms = || clock.monotonic_ns() / 1_000_000;
    let start_ms = elapsed_ms();
    let (mut report, mut first, mut deaths) = (FuzzReport::default(), 0, 0);
    let is_over = |report: &FuzzReport| options.canary.is_some() && !report.findings.is_empty();
    while deaths < DEATHS_MAX && !is_over(&report) {
        let left = options.seconds.saturating_sub((elapsed_ms() - start_ms) / 1_000);
        if left == 0 {
            break;
        }
        let end = match start(options, first, left, &current) {
            Ok(child) => follow(child, &mut report, &current, options.canary.as_deref()),
            Err(error) => {
                println!("the process did not start: {error}");
                return false;
            }
        };
        let Some(what) = end else { break };
        deaths += 1;
        let text = fs::read_to_string(&current).unwrap_or_default();
        let (number, input) = text.split_once('\n').unwrap_or(("", &text));
        report.add(what, input);
        first = number.parse::<u64>().map_or(first + INPUTS_PER_REPORT, |number| number + 1);
    }
    // The second is there if the process was killed between its steps.
    drop(fs::remove_file(&current));
    drop(fs::remove_file(current.with_extension("next")));
    print(&report, options);
    match &options.canary {
        Some(name) => {
            let is_found = !report.findings.is_empty();
            println!("canary `{name}`: {}", if is_found { "found" } else { "NOT FOUND" });
            is_found
        }
        None => report.findings.is_empty(),
    }
}

/// Starts the process that runs inputs, with a limit of its address space.
fn start(options: &FuzzRun, first: u64, seconds: u64, current: &Path) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KIB}; ulimit -c 0; exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["fuzz", "--seconds", &seconds.to_string(), "--seed", &options.seed.to_string()])
        .args(["--target", options.target.name()])
        .args(["--first", &first.to_string(), "--current"])
        .arg(current);
    if let Some(cases) = &options.cases {
        command.arg("--cases").arg(cases);
    }
    if let Some(canary) = &options.canary {
        command.args(["--canary", canary]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())
}

/// Adds up the reports of the process. Returns `None` when it ended by itself, else the cause of
/// its end.
fn follow(
    mut child: Child,
    report: &mut FuzzReport,
    current: &Path,
    canary: Option<&str>,
) -> Option<String> {
    let lines = lines_of(&mut child);
    let clock = SystemClock::new();
    // The others take their time on a busy machine.
    let hang_ms = if canary == Some("hang") { CANARY_HANG_MS } else { HANG_MS };
    let (mut seen, mut seen_ms) = (String::new(), clock.monotonic_ns() / 1_000_000);
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                add_up(report, &line);
                seen_ms = clock.monotonic_ns() / 1_000_000;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // A canary is looked for until it is found.
        if canary.is_some() && !report.findings.is_empty() {
            drop(child.kill());
            drop(child.wait());
            return None;
        }
        let now_ms = clock.monotonic_ns() / 1_000_000;
        let text = fs::read_to_string(current).unwrap_or_default();
        let number = text.lines().next().unwrap_or_default().to_owned();
        if number != seen {
            (seen, seen_ms) = (number, now_ms);
        } else if now_ms - seen_ms > hang_ms {
            drop(child.kill());
            drop(child.wait());
            return Some(format!("hang: more than {hang_ms} ms"));
        }
    }
    match child.wait() {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("the process died: {status}")),
        Err(error) => Some(format!("the process is lost: {error}")),
    }
}

/// Reads the lines that a process prints in a thread of its own.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take().expect("it was piped");
    let read = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    };
    lockstep_host::spawn("fuzz-output", read).expect("the system can start a thread");
    receiver
}

fn add_up(report: &mut FuzzReport, line: &str) {
    let Ok(json) = serde_json::from_str::<Json>(line) else { return };
    let number = |json: &Json| json.as_u64().unwrap_or_default();
    report.executions += number(&json["executions"]);
    for (index, (stage, _)) in STAGES.iter().enumerate() {
        *report.reached.entry(*stage).or_default() += number(&json["reached"][index]);
    }
    for name in entry::ENTRIES {
        *report.calls.counts.entry(name).or_default() += number(&json["calls"][*name]);
    }
    for name in constructs::ALL {
        *report.constructs.entry((*name).to_owned()).or_default() +=
            number(&json["constructs"][*name]);
    }
    for found in json["findings"].as_array().into_iter().flatten() {
        let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
        report.add(text(&found[0]), &text(&found[1]));
    }
    report.slowest_ms = report.slowest_ms.max(number(&json["slowest_ms"]));
    let bytes = usize::try_from(number(&json["memory_bytes_max"])).unwrap_or(usize::MAX);
    report.memory_bytes_max = report.memory_bytes_max.max(bytes);
}

/// The most characters of an input that are printed.
const SHOWN_CHARACTERS: usize = 4_000;

fn print(report: &FuzzReport, FuzzRun { seed, target, .. }: &FuzzRun) {
    for finding in &report.findings {
        let shown: String = finding.input.chars().take(SHOWN_CHARACTERS).collect();
        println!("{}\n{shown}\n", finding.what);
    }
    let is_listener = target.protocol().is_some();
    let reached = STAGES.iter().filter(|(stage, _)| !is_listener || *stage != FuzzStage::Bound);
    let reached = reached.map(|(stage, name)| {
        let name = match stage {
            FuzzStage::Refused if is_listener => "without an answer",
            FuzzStage::Parsed if is_listener => "answered with errors",
            FuzzStage::Compiled if is_listener => "answered",
            _ => name,
        };
        format!("{} {name}", report.reached.get(stage).copied().unwrap_or_default())
    });
    if *target == FuzzTarget::Sql {
        println!("{}", report.tables());
    }
    println!(
        "seed {seed}: {} inputs ({}), {} findings; slowest {} ms, most memory {} KiB",
        report.executions,
        reached.collect::<Vec<_>>().join(", "),
        report.findings.len(),
        report.slowest_ms,
        report.memory_bytes_max / 1024
    );
}

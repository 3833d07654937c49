//! The public test cases of the reference system, run against the engine.
//!
//! Cases come as JSON lines from `../shared/conformance` or another folder of the same format.
//! Each runs in every mode it names, in a database of its own, on a few threads. A checked-in list
//! names the cases that do not pass yet.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

mod case;
mod compare;
mod execute;
mod objects;
mod pending;
mod report;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use lockstep_host::{Clock, SystemClock};
use lockstep_testkit::panics;

use self::{
    case::Case,
    compare::{Came, Table},
    execute::Verdict,
    objects::Exception,
    pending::Review,
    report::{Group, Report},
};

/// Cases run at the same time.
const THREADS: usize = 2;

/// Room for the deepest statement of the data and the planner's recursion over it.
const STACK_BYTES: usize = 64 << 20;

/// What to run and what to print.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct Options {
    /// Only this area.
    pub area: Option<String>,
    /// A folder instead of `../shared/conformance`.
    pub cases: Option<PathBuf>,
    /// Show this case instead.
    pub case: Option<String>,
    /// Print the counts as JSON in the last line.
    pub json: bool,
    /// Print a line for every failure.
    pub failures: bool,
    /// Rewrite the list of pending cases.
    pub bless: bool,
}

/// A case in one mode, done.
struct Done<'a> {
    case: &'a Case,
    mode: &'a str,
    verdict: Verdict,
}

/// Runs the cases; whether all is as the list of pending cases says.
pub fn run(options: &Options) -> bool {
    let is_default = options.cases.is_none();
    let folder = options.cases.clone().unwrap_or_else(default_folder);
    if !folder.is_dir() {
        println!("conformance: skipped, there is no folder {}", folder.display());
        if options.json {
            println!("{{}}");
        }
        return true;
    }
    let cases = match case::read_folder(&folder, SystemClock::new().now_ms()) {
        Ok(cases) => cases,
        Err(error) => {
            println!("conformance: {error}");
            return false;
        }
    };
    panics::catch_text();
    if let Some(id) = &options.case {
        return show(&cases, id);
    }
    let is_chosen = |case: &&Case| options.area.as_ref().is_none_or(|area| *area == case.area);
    let chosen: Vec<&Case> = cases.iter().filter(is_chosen).collect();
    let done = run_all(&chosen);
    let is_whole = is_default && options.area.is_none();
    let report = count(&done);
    if options.failures {
        for done in &done {
            if let Err(reason) = &done.verdict {
                println!("{} [{}]: {}", done.case.id, done.mode, reason.replace('\n', "\n    "));
            }
        }
    }
    println!("{}", report.table());
    print_exceptions(&done);
    let skipped = chosen.iter().filter(|case| case.kind == "restful").count();
    println!("conformance: {skipped} cases over HTTP were skipped, since there is no server");
    let listed = pending::read();
    let review = review(&done, &listed, is_whole);
    let is_good = if options.bless { bless(&review, &listed) } else { complain(&review) };
    if options.json {
        println!("{}", report.json());
    }
    is_good
}

/// Where the cases lie beside a checkout.
pub(crate) fn default_folder() -> PathBuf {
    crate::workspace_dir().join("../shared/conformance")
}

/// The modes that a case runs in here. The two of a statement script are one, since there is one
/// engine; `offline` is batch mode; HTTP waits for a server.
fn modes_of(case: &Case) -> Vec<&str> {
    match case.kind.as_str() {
        "statements" => vec!["statements"],
        "restful" => Vec::new(),
        _ => case.modes.iter().map(String::as_str).collect(),
    }
}

fn run_all<'a>(cases: &[&'a Case]) -> Vec<Done<'a>> {
    // Relaxed: a ticket counter; the results come back through join.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.extend(run_case(case));
        }
        done
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let worker = thread::Builder::new().stack_size(STACK_BYTES);
                worker.spawn_scoped(scope, work).expect("the machine has room for a thread")
            })
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<Done<'a>>>| {
            worker.join().expect("panics of cases are caught where they run")
        };
        workers.into_iter().flat_map(join).collect()
    })
}

/// Runs a case in its modes; batch mode once, though it also stands for `offline`.
fn run_case(case: &Case) -> Vec<Done<'_>> {
    let modes = modes_of(case);
    let mut batch: Option<Verdict> = None;
    let mut done = Vec::new();
    for mode in modes {
        let is_batch = matches!(mode, "batch" | "offline");
        let verdict = match &batch {
            Some(verdict) if is_batch => verdict.clone(),
            _ => panics::caught(|| execute::run(case, mode).verdict).unwrap_or_else(Err),
        };
        if is_batch {
            batch = Some(verdict.clone());
        }
        done.push(Done { case, mode, verdict });
    }
    done
}

fn count(done: &[Done<'_>]) -> Report {
    let mut report = Report::default();
    for done in done {
        let is_success = execute::expects_success(done.case, done.mode);
        let group = Group {
            area: done.case.area.clone(),
            kind: done.case.kind.clone(),
            mode: done.mode.to_owned(),
            expectation: if is_success { "success" } else { "error" },
        };
        report.add(group, done.verdict.is_ok());
    }
    report
}

/// Lists the checks that passing cases did without.
fn print_exceptions(done: &[Done<'_>]) {
    let mut counts: BTreeMap<Exception, usize> = BTreeMap::new();
    for exception in done.iter().filter_map(|done| done.verdict.as_ref().ok()).flatten() {
        *counts.entry(*exception).or_default() += 1;
    }
    for ((check, reason), count) in counts {
        println!("conformance: excepted {count} times: `{check}`, {reason}");
    }
}

/// Compares the run with the list of pending cases.
fn review(done: &[Done<'_>], listed: &BTreeSet<String>, is_whole: bool) -> Review {
    let lines = |is_wanted: fn(&Done<'_>) -> bool| -> BTreeSet<String> {
        let wanted = done.iter().filter(|done| is_wanted(done));
        wanted.map(|done| pending::line(&done.case.id, done.mode)).collect()
    };
    let mut passed = lines(|done| done.verdict.is_ok());
    let mut failed = lines(|done| done.verdict.is_err());
    let deviations = pending::deviations();
    for (line, reason) in deviations.iter().filter(|(line, _)| failed.contains(*line)) {
        println!("conformance: deviates: {line}: {reason}");
    }
    for line in deviations.keys().filter(|line| passed.contains(*line)) {
        println!("conformance: deviates no more: {line}");
    }
    // A deviation has its own list and need not be pending.
    let deviating: BTreeSet<String> =
        deviations.into_keys().filter(|line| failed.contains(line)).collect();
    failed = &failed - &deviating;
    println!(
        "conformance: {} passed, {} failed, {} deviate, {} pending",
        passed.len(),
        failed.len(),
        deviating.len(),
        listed.len()
    );
    passed.extend(deviating);
    Review::of(listed, &passed, &failed, is_whole)
}

/// Rewrites the list; whether that was allowed.
fn bless(review: &Review, listed: &BTreeSet<String>) -> bool {
    let written = review.blessed(listed).and_then(|lines| {
        println!("conformance: the list holds {} cases now", lines.len());
        pending::write(&lines)
    });
    written.map_err(|error| println!("conformance: {error}")).is_ok()
}

/// Says where the list is wrong; whether it is right.
fn complain(review: &Review) -> bool {
    for (lines, complaint) in [
        (&review.failing, "fails and is not pending"),
        (&review.passing, "passes now: run with --bless to take it off the list"),
        (&review.gone, "is pending, but there is no such case"),
    ] {
        for line in lines {
            println!("{line}: {complaint}");
        }
    }
    review.is_clean()
}

/// Prints one case: what goes in, what was expected, what came.
fn show(cases: &[Case], id: &str) -> bool {
    let Some(case) = cases.iter().find(|case| case.id == id) else {
        println!("conformance: there is no case `{id}`");
        return false;
    };
    println!("case {} (area {}, kind {})", case.id, case.area, case.kind);
    for input in case.inputs.iter().chain(&case.batch_request) {
        println!("\n{}", input.create.as_deref().unwrap_or(&input.name));
        for row in &input.rows {
            println!("  {row:?}");
        }
        for insert in &input.inserts {
            println!("  {insert}");
        }
    }
    for statement in &case.statements {
        println!("\n{statement}");
    }
    let mut is_good = true;
    for mode in modes_of(case) {
        println!("\n--- {mode}: expected");
        let expectation = case.expectation_in(mode);
        println!("success: {}", expectation.is_success);
        if let Some(columns) = &expectation.columns {
            println!("{}", heading(columns));
        }
        for row in expectation.rows.iter().flatten() {
            println!("  {}", serde_json::Value::Array(row.clone()));
        }
        println!("--- {mode}: came");
        is_good &= show_trial(case, mode);
    }
    is_good
}

fn show_trial(case: &Case, mode: &str) -> bool {
    let trial = match panics::caught(|| execute::run(case, mode)) {
        Ok(trial) => trial,
        Err(panic) => {
            println!("{panic}");
            return false;
        }
    };
    match &trial.came {
        Ok(Came::Table(Table { columns, rows })) => {
            println!("{}", heading(columns));
            for row in rows {
                println!("  {row:?}");
            }
        }
        Ok(Came::Error { diagnostic, sql }) => println!("{}", diagnostic.render(Some(sql))),
        Err(reason) => println!("{reason}"),
    }
    match &trial.verdict {
        Ok(exceptions) => {
            println!("--- {mode}: passed");
            for (check, reason) in exceptions {
                println!("--- {mode}: excepted: `{check}`, {reason}");
            }
        }
        Err(reason) => println!("--- {mode}: FAILED: {reason}"),
    }
    trial.verdict.is_ok()
}

fn heading(columns: &[(String, lockstep_row::DataType)]) -> String {
    let columns: Vec<String> =
        columns.iter().map(|(name, data_type)| format!("{name} {data_type}")).collect();
    columns.join(" | ")
}

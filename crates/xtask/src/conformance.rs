//! The public test cases of OpenMLDB, run against the engine.
//!
//! Cases come as JSON lines from `../shared/conformance` or another folder of the same format. Each
//! runs in every mode it names, in a database of its own, on a few threads: first under `SET
//! compatibility = 'openmldb'`, then without it. Checked-in lists ([`lists`]) name the cases that
//! do not pass under the setting, and those whose verdict differs without it.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

mod case;
mod compare;
mod database;
mod execute;
mod folder;
pub(crate) mod lists;
mod objects;
mod report;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use lockstep_host::{Clock, SystemClock};
use lockstep_testkit::{disk_tables::SmallFiles, panics};

use self::{
    case::ConformanceCase,
    compare::{CaseOutcome, ResultTable},
    execute::{Setting, Verdict},
    lists::{List, ListLine, Review},
    objects::Exception,
    report::{CaseGroup, ConformanceReport},
};

/// Cases run at the same time.
const THREADS: usize = 2;

/// Stack of a thread: enough for the deepest statement of the data and the planner's recursion over
/// it.
const STACK_BYTES: usize = 64 << 20;

/// What to run and what to print.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct ConformanceOptions {
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
    /// Remove the cases that pass from the lists.
    pub bless: bool,
}

/// How the lists are compared with a run.
#[derive(Debug, Clone, Copy)]
struct RunScope {
    /// Whether the run has every case.
    is_whole: bool,
    /// Whether cases that pass are removed from the lists.
    blesses: bool,
}

/// The verdict on a case in one mode.
struct FinishedCase<'a> {
    case: &'a ConformanceCase,
    mode: &'a str,
    verdict: Verdict,
}

/// Runs the cases; returns whether all verdicts are as the lists say.
pub fn run(options: &ConformanceOptions) -> bool {
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
    run_cases(&cases, options).unwrap_or_else(|error| {
        println!("conformance: {error}");
        false
    })
}

fn run_cases(cases: &[ConformanceCase], options: &ConformanceOptions) -> Result<bool, String> {
    let is_chosen =
        |case: &&ConformanceCase| options.area.as_ref().is_none_or(|area| *area == case.area);
    let chosen: Vec<&ConformanceCase> = cases.iter().filter(is_chosen).collect();
    let is_whole = options.cases.is_none() && options.area.is_none();
    let scope = RunScope { is_whole, blesses: options.bless };
    let under_setting = run_all(&chosen, Setting::OpenMldb);
    let by_default = run_all(&chosen, Setting::Default);
    let on_disk = {
        let _small_files = SmallFiles::begin();
        run_all(&chosen, Setting::OnDisk)
    };
    let report = count(&under_setting);
    for (done, title) in [
        (&under_setting, "under SET compatibility = 'openmldb'"),
        (&by_default, "without the setting"),
    ] {
        if options.failures {
            print_failures(done, title);
        }
        println!("\n{title}\n{}", count(done).table());
    }
    print_exceptions(&under_setting);
    let over_http = chosen.iter().filter(|case| case.kind == "restful").count();
    println!(
        "conformance: {over_http} cases are calls over HTTP, which \
         `cargo test --package lockstep-server openmldb_s_cases_pass` runs against a server"
    );
    let mut is_good = review_setting(&under_setting, scope)?;
    is_good &= review_default(&under_setting, &by_default, scope)?;
    is_good &= review_on_disk(&under_setting, &on_disk);
    if options.json {
        println!("{}", report.json());
    }
    Ok(is_good)
}

fn print_failures(done: &[FinishedCase<'_>], title: &str) {
    for done in done {
        if let Err(reason) = &done.verdict {
            let reason = reason.replace('\n', "\n    ");
            println!("{} [{}, {title}]: {reason}", done.case.id, done.mode);
        }
    }
}

/// Returns the folder of the cases, beside the checkout or beside the folder that holds it.
pub(crate) fn default_folder() -> PathBuf {
    let root = crate::workspace_dir();
    let beside = |folder: &Path| folder.join("../shared/conformance");
    let absolute = root.canonicalize().unwrap_or_else(|_| root.clone());
    let found = absolute.ancestors().take(2).map(beside).find(|folder| folder.is_dir());
    found.unwrap_or_else(|| beside(&root))
}

/// Returns the modes that a case runs in here. The two modes of a statement script are one here,
/// and cases over HTTP are those of the server's tests.
fn modes_of(case: &ConformanceCase) -> Vec<&str> {
    match case.kind.as_str() {
        "statements" => vec!["statements"],
        "restful" => Vec::new(),
        _ => case.modes.iter().map(String::as_str).collect(),
    }
}

fn run_all<'a>(cases: &[&'a ConformanceCase], setting: Setting) -> Vec<FinishedCase<'a>> {
    // Relaxed: a counter of cases; results are passed through join.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.extend(run_case(case, setting));
        }
        done
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let worker = thread::Builder::new().stack_size(STACK_BYTES);
                worker.spawn_scoped(scope, work).expect("the system can start a thread")
            })
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<FinishedCase<'a>>>| {
            worker.join().expect("panics of cases are caught where they run")
        };
        workers.into_iter().flat_map(join).collect()
    })
}

fn run_case(case: &ConformanceCase, setting: Setting) -> impl Iterator<Item = FinishedCase<'_>> {
    modes_of(case).into_iter().map(move |mode| {
        let verdict =
            panics::caught(|| execute::run(case, mode, setting).verdict).unwrap_or_else(Err);
        FinishedCase { case, mode, verdict }
    })
}

fn count(done: &[FinishedCase<'_>]) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    for done in done {
        let is_success = execute::expects_success(done.case, done.mode);
        let group = CaseGroup {
            area: done.case.area.clone(),
            kind: done.case.kind.clone(),
            mode: done.mode.to_owned(),
            expectation: if is_success { "success" } else { "error" },
        };
        report.add(group, done.verdict.is_ok());
    }
    report
}

/// Prints the checks that were skipped in passing cases.
fn print_exceptions(done: &[FinishedCase<'_>]) {
    let mut counts: BTreeMap<Exception, usize> = BTreeMap::new();
    for exception in done.iter().filter_map(|done| done.verdict.as_ref().ok()).flatten() {
        *counts.entry(*exception).or_default() += 1;
    }
    for ((check, reason), count) in counts {
        println!("conformance: skipped {count} times: `{check}`, {reason}");
    }
}

/// Splits the lines into those that passed and those that failed.
fn split(done: &[FinishedCase<'_>]) -> (BTreeSet<ListLine>, BTreeSet<ListLine>) {
    let lines = |is_wanted: fn(&FinishedCase<'_>) -> bool| -> BTreeSet<ListLine> {
        let wanted = done.iter().filter(|done| is_wanted(done));
        wanted.map(|done| lists::line(&done.case.id, done.mode)).collect()
    };
    (lines(|done| done.verdict.is_ok()), lines(|done| done.verdict.is_err()))
}

/// Compares the run under the setting with the deviations and the pending cases.
fn review_setting(done: &[FinishedCase<'_>], scope: RunScope) -> Result<bool, String> {
    let (passed, failed) = split(done);
    let (deviations, pending) = (List::read(lists::DEVIATIONS)?, List::read(lists::PENDING)?);
    let of = |list: &List| list.reasons().into_keys().collect::<BTreeSet<_>>();
    println!(
        "conformance: {} passed, {} failed, of which {} deviate and {} are pending",
        passed.len(),
        failed.len(),
        of(&deviations).intersection(&failed).count(),
        of(&pending).intersection(&failed).count()
    );
    for (list, file) in [(&deviations, lists::DEVIATIONS), (&pending, lists::PENDING)] {
        println!("conformance: {file}: {:?}", list.counts());
    }
    let review = Review::of(&(&of(&deviations) | &of(&pending)), &passed, &failed, scope.is_whole);
    settle(&review, [(lists::DEVIATIONS, deviations), (lists::PENDING, pending)], scope.blesses)
}

/// Compares the run without the setting with the one under it.
fn review_default(
    under_setting: &[FinishedCase<'_>],
    by_default: &[FinishedCase<'_>],
    scope: RunScope,
) -> Result<bool, String> {
    let (passed_under, failed_under) = split(under_setting);
    let (passed, failed) = split(by_default);
    let differ = &(&passed_under & &failed) | &(&failed_under & &passed);
    let alike = &(&passed | &failed) - &differ;
    let list = List::read(lists::DEFAULT)?;
    println!(
        "conformance: without the setting {} passed, {} failed; {} differ from the run under it",
        passed.len(),
        failed.len(),
        differ.len()
    );
    let listed = list.reasons().into_keys().collect();
    let review = Review::of(&listed, &alike, &differ, scope.is_whole);
    settle(&review, [(lists::DEFAULT, list)], scope.blesses)
}

/// Compares the run with every table on a disk with the one in memory: there is no difference.
fn review_on_disk(in_memory: &[FinishedCase<'_>], on_disk: &[FinishedCase<'_>]) -> bool {
    let ((_, failed_in_memory), (passed, failed)) = (split(in_memory), split(on_disk));
    let (worse, better) = (&failed - &failed_in_memory, &failed_in_memory & &passed);
    println!(
        "conformance: with every table on a disk {} passed, {} failed; {} differ from the run in memory",
        passed.len(),
        failed.len(),
        worse.len() + better.len()
    );
    for line in &better {
        println!("{line}: is as expected only with every table on a disk");
    }
    for done in on_disk {
        let line = lists::line(&done.case.id, done.mode);
        if let (Err(reason), true) = (&done.verdict, worse.contains(&line)) {
            println!("{line}: is not as expected with every table on a disk: {reason}");
        }
    }
    worse.is_empty() && better.is_empty()
}

/// Prints the lines that are wrongly listed, or removes them; returns whether the lists are right
/// now. A list never grows by itself.
fn settle<const N: usize>(
    review: &Review,
    lists: [(&str, List); N],
    bless: bool,
) -> Result<bool, String> {
    for line in &review.failing {
        println!("{line}: is not as expected, and on no list");
    }
    if bless {
        let off = &review.passing | &review.gone;
        for (file, mut list) in lists {
            list.remove(&off);
            list.write(file)?;
        }
        println!("conformance: removed {} lines from the lists", off.len());
        return Ok(review.failing.is_empty());
    }
    for (lines, complaint) in [
        (&review.passing, "is as expected now: run with --bless to remove it from its list"),
        (&review.gone, "is listed, but there is no such case"),
    ] {
        for line in lines {
            println!("{line}: {complaint}");
        }
    }
    Ok(review.is_clean())
}

/// Prints one case: inputs, expected result, actual result.
fn show(cases: &[ConformanceCase], id: &str) -> bool {
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
        for setting in [Setting::OpenMldb, Setting::OnDisk, Setting::Default] {
            println!("--- {mode}, {setting:?}: outcome");
            let is_as_expected = show_trial(case, mode, setting);
            is_good &= is_as_expected || setting == Setting::Default;
        }
    }
    is_good
}

fn show_trial(case: &ConformanceCase, mode: &str, setting: Setting) -> bool {
    let trial = match panics::caught(|| execute::run(case, mode, setting)) {
        Ok(trial) => trial,
        Err(panic) => {
            println!("{panic}");
            return false;
        }
    };
    match &trial.outcome {
        Ok(CaseOutcome::Table(ResultTable { columns, rows })) => {
            println!("{}", heading(columns));
            for row in rows {
                println!("  {row:?}");
            }
        }
        Ok(CaseOutcome::Error { diagnostic, sql }) => println!("{}", diagnostic.render(Some(sql))),
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

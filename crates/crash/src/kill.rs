//! Killing the child at random moments, or at failpoints, and comparing what is left.
//!
//! # Life of a cycle
//!
//! 1. A child opens the directory; sometimes it is killed before it has, and another one is started.
//! 2. It describes what it has. The operations of the former cycle that were acknowledged, and of those
//!    that were not the ones that are there, are given to a database in memory; both are compared.
//! 3. Each writer gets operations, a few at a time. At a random moment the child is killed.

mod comparison;

use std::{
    fs,
    path::{Path, PathBuf},
};

use lockstep_testkit::random::Random;

pub(crate) use self::comparison::moved_rows;
use crate::{
    child::ChildOptions,
    difference::{Violation, ViolationKind},
    merge::SentOperation,
    model::{BEGIN_MS, ModelDatabase},
    objects::{Effect, WriterObjects, create_shared},
    observation::Observation,
    operation::{Action, ChildAnswer, ChildRequest, DrawnOperation},
    process::{ChildProcess, errors_path},
    report::Report,
    workload::Writer,
};

/// The number of writers.
pub const WRITERS: usize = 3;
/// The most operations of a writer that are sent and not acknowledged.
const AHEAD_MAX: usize = 4;
/// The most operations of a cycle.
const OPERATIONS_MAX: usize = 120;
/// The most cycles of a directory.
const CYCLES_MAX: usize = 10;
const HOUR_MS: i64 = 3_600_000;

/// What is run.
#[derive(Debug, Clone)]
pub struct KillOptions {
    /// This program.
    pub program: PathBuf,
    /// Where directories are made.
    pub directory: PathBuf,
    /// The number of cycles.
    pub cycles: u64,
    /// What everything is drawn from.
    pub seed: u64,
    /// The bug that each child has.
    pub bug: Option<String>,
    /// Whether the run ends with the first violation.
    pub stops_early: bool,
}

/// Runs cycles in one directory after the other. A directory in which a violation was found is kept.
pub fn run(options: &KillOptions) -> Report {
    let mut report = Report::default();
    let mut random = Random::new(options.seed);
    while report.cycles < options.cycles {
        let seed = random.number();
        let mut driver = Driver::new(options, seed, &mut report);
        let cycles = 1 + driver.random.below(CYCLES_MAX);
        for cycle in 0..cycles {
            let end = if cycle + 1 == cycles { CycleEnd::Close } else { CycleEnd::Kill };
            if !driver.cycle(end, None) {
                break;
            }
        }
        driver.finish();
        if options.stops_early && report.violation_count() > 0 {
            break;
        }
    }
    report
}

/// Lets the child end at a failpoint when it is reached for the `count`th time: while it serves, or
/// while it opens the directory after some cycles. Returns whether it did.
pub fn run_failpoint(options: &KillOptions, name: &str, count: u64, report: &mut Report) -> bool {
    let ended = report.failpoints.get(name).copied().unwrap_or(0);
    let seed = name.bytes().fold(options.seed ^ (count << 32), |seed, byte| {
        Random::new(seed ^ u64::from(byte)).number()
    });
    let mut driver = Driver::new(options, seed, report);
    // Small, so that there are several.
    driver.child_options.segment_bytes = 16 << 10;
    let armed = Some((name.to_owned(), count));
    // The directory gets something to be read, then the failpoint, then it is compared.
    let is_whole = driver.cycle(CycleEnd::Kill, None)
        && driver.cycle(CycleEnd::Failpoint, armed)
        && driver.cycle(CycleEnd::Close, None);
    driver.finish();
    is_whole && report.failpoints.get(name).copied().unwrap_or(0) > ended
}

/// How a cycle ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CycleEnd {
    Kill,
    Failpoint,
    Close,
}

/// What a comparison has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Same,
    Different,
    /// The child has ended before.
    Ended,
}

/// The driver of one directory.
struct Driver<'a> {
    options: &'a KillOptions,
    report: &'a mut Report,
    random: Random,
    directory: PathBuf,
    writers: Vec<Writer>,
    /// What exists for each writer, as far as it was compared.
    confirmed: Vec<WriterObjects>,
    model: ModelDatabase,
    /// The operations of the last cycle.
    sent: Vec<SentOperation>,
    observed: Observation,
    /// What was seen before the last kill, after which nothing was done.
    seen: Option<Observation>,
    child_options: ChildOptions,
    /// The files of loads that were not acknowledged.
    uncertain_loads: Vec<String>,
    cycle: u64,
    events: u64,
    is_good: bool,
    /// What was sent and how it ended, for who looks at a violation.
    history: String,
}

impl<'a> Driver<'a> {
    fn new(options: &'a KillOptions, seed: u64, report: &'a mut Report) -> Self {
        let mut random = Random::new(seed);
        let directory = options.directory.join(format!("{seed:016x}"));
        let files = directory.with_extension("files");
        // Left by a run of the same seed.
        remove(&directory);
        fs::create_dir_all(&files).expect("the folder of directories is writable");
        let child_options = ChildOptions {
            now_ms: BEGIN_MS,
            segment_bytes: *random.pick(&[4 << 10, 16 << 10, 64 << 10, 1 << 20]),
            part_bytes: 500,
            chunk_rows: *random.pick(&[1, 3, 128]),
            leaf_rows: *random.pick(&[1, 2, 5]),
            writers: WRITERS,
            failpoint: None,
            bug: options.bug.clone(),
        };
        report.directories += 1;
        Self {
            options,
            report,
            random,
            directory,
            writers: (0..WRITERS).map(|writer| Writer::new(writer, files.clone())).collect(),
            confirmed: vec![WriterObjects::default(); WRITERS],
            model: ModelDatabase::new(WRITERS),
            sent: Vec::new(),
            observed: Observation::default(),
            seen: None,
            child_options,
            uncertain_loads: Vec::new(),
            cycle: 0,
            events: 0,
            is_good: true,
            history: String::new(),
        }
    }

    /// Runs a cycle. Whether no violation was found.
    fn cycle(&mut self, ending: CycleEnd, failpoint: Option<(String, u64)>) -> bool {
        self.cycle += 1;
        self.report.cycles += 1;
        self.advance();
        if ending == CycleEnd::Kill {
            self.kill_while_opening();
        }
        let Some(mut child) = self.open(failpoint.as_ref()) else { return self.is_good };
        match self.compare(&mut child) {
            Comparison::Same => {}
            Comparison::Ended if failpoint.is_some() => {
                self.note_failpoint(failpoint);
                return true;
            }
            Comparison::Ended => {
                self.violation(ViolationKind::Failure, "the child ended while it was observed");
                return false;
            }
            Comparison::Different => return false,
        }
        if self.cycle == 1 {
            self.set_up(&mut child);
        }
        let (target, pause_ms) = match ending {
            CycleEnd::Failpoint => (8 * OPERATIONS_MAX, 0),
            CycleEnd::Kill | CycleEnd::Close => {
                (self.random.below(OPERATIONS_MAX), self.random.below(4))
            }
        };
        let is_alive = self.send(&mut child, target);
        match ending {
            CycleEnd::Close => self.close(child),
            CycleEnd::Kill => {
                if self.random.chance(30) {
                    self.wait_for_all(&child);
                    self.look(&mut child);
                } else if self.random.chance(50) {
                    lockstep_host::pause(u32::try_from(pause_ms).expect("it is small"));
                }
                if !is_alive {
                    self.violation(ViolationKind::Failure, "the child ended by itself");
                }
                self.report.kills += 1;
                let answers = child.kill();
                self.note(answers);
            }
            CycleEnd::Failpoint => {
                self.note_failpoint(failpoint.filter(|_| !is_alive));
                let answers = child.kill();
                self.note(answers);
            }
        }
        self.is_good
    }

    /// Lets time pass before the directory is opened, unless it is not known what was done before, since
    /// what had expired then depends on it, or the same is to be seen again.
    fn advance(&mut self) {
        if self.seen.is_none() && self.sent.iter().all(|sent| sent.acknowledged.is_some()) {
            let hours = i64::try_from(self.random.below(5)).expect("it is small");
            self.child_options.now_ms += hours * HOUR_MS;
        }
    }

    /// Waits until everything was acknowledged, or the child has ended.
    fn wait_for_all(&mut self, child: &ChildProcess) {
        while self.sent.iter().any(|sent| sent.acknowledged.is_none()) {
            let Some(answer) = child.answer() else { break };
            self.note(vec![answer]);
        }
    }

    /// Observes the database before a kill, sometimes: what was seen is to be there.
    fn look(&mut self, child: &mut ChildProcess) {
        if self.random.chance(60) && child.send(&ChildRequest::Observe) {
            match child.answer() {
                Some(ChildAnswer::Observed(observed)) => self.seen = Some(observed),
                _ => {
                    self.violation(ViolationKind::Failure, "the child ended while it was observed");
                }
            }
        }
    }

    /// Counts a process that ended at a failpoint.
    fn note_failpoint(&mut self, failpoint: Option<(String, u64)>) {
        if let Some((name, _)) = failpoint {
            *self.report.failpoints.entry(name).or_default() += 1;
        }
    }

    /// Starts children that are killed before the directory is open, or soon after.
    fn kill_while_opening(&mut self) {
        while self.random.chance(25) {
            let child =
                ChildProcess::start(&self.options.program, &self.directory, &self.child_options);
            lockstep_host::pause(u32::try_from(self.random.below(25)).expect("it is small"));
            let answers = child.kill();
            if answers.is_empty() {
                self.report.kills_while_opening += 1;
            }
            self.note(answers);
        }
    }

    /// Opens the directory in a child; `None` when there is nothing to go on with.
    fn open(&mut self, failpoint: Option<&(String, u64)>) -> Option<ChildProcess> {
        let options = ChildOptions { failpoint: failpoint.cloned(), ..self.child_options.clone() };
        let child = ChildProcess::start(&self.options.program, &self.directory, &options);
        match child.answer() {
            Some(ChildAnswer::Opened { rows, is_cut }) => {
                self.report.rows_read += rows;
                self.report.cuts += u64::from(is_cut);
                return Some(child);
            }
            Some(ChildAnswer::Refused(error)) => {
                self.violation(
                    ViolationKind::Failure,
                    &format!("the directory does not open: {error}"),
                );
                return None;
            }
            _ => {}
        }
        if failpoint.is_none() {
            self.violation(ViolationKind::Failure, "the child ended while it opened the directory");
        }
        self.note_failpoint(failpoint.cloned());
        None
    }

    /// Makes the shared tables, before anything is killed.
    fn set_up(&mut self, child: &mut ChildProcess) {
        for sql in create_shared() {
            let operation = DrawnOperation {
                kind: "CREATE TABLE",
                action: Action::Script(sql),
                added: Vec::new(),
                effect: Effect::Nothing,
                witness: None,
                needs_directory: false,
            };
            self.send_operation(child, 0, operation);
        }
        self.wait_for_all(child);
    }

    /// Sends operations until there are enough. Whether the child is still there.
    fn send(&mut self, child: &mut ChildProcess, target: usize) -> bool {
        for _ in 0..target {
            while let Some(answer) = child.answer_now() {
                self.note(vec![answer]);
            }
            let is_free = |writer: &usize| self.ahead_of(*writer) < AHEAD_MAX;
            let free: Vec<usize> = (0..WRITERS).filter(is_free).collect();
            if free.is_empty() {
                let Some(answer) = child.answer() else { return false };
                self.note(vec![answer]);
                continue;
            }
            let writer = *self.random.pick(&free);
            let operation = self.writers[writer].draw(&mut self.random);
            if !self.send_operation(child, writer, operation) {
                return false;
            }
        }
        true
    }

    /// Returns how many operations of a writer are not acknowledged.
    fn ahead_of(&self, writer: usize) -> usize {
        let is_ahead = |sent: &&SentOperation| sent.writer == writer && sent.acknowledged.is_none();
        // Only the last ones may be.
        self.sent.iter().rev().take(WRITERS * AHEAD_MAX * 2).filter(is_ahead).count()
    }

    fn send_operation(
        &mut self,
        child: &mut ChildProcess,
        writer: usize,
        operation: DrawnOperation,
    ) -> bool {
        let (id, action) = (self.sent.len(), operation.action.clone());
        self.report.operation(operation.kind).drawn += 1;
        self.events += 1;
        self.sent.push(SentOperation { operation, writer, sent: self.events, acknowledged: None });
        child.send(&ChildRequest::Run { id, writer, action })
    }

    /// Notes acknowledgements.
    fn note(&mut self, answers: Vec<ChildAnswer>) {
        for answer in answers {
            if let ChildAnswer::Acknowledged { id, outcome } = answer {
                self.events += 1;
                let sent = &mut self.sent[id];
                sent.acknowledged = Some((self.events, outcome));
                self.report.operation(sent.operation.kind).acknowledged += 1;
            }
        }
    }

    /// Closes the database after everything was acknowledged.
    fn close(&mut self, mut child: ChildProcess) {
        self.wait_for_all(&child);
        child.send(&ChildRequest::Close);
        if !matches!(child.answer(), Some(ChildAnswer::Closed)) {
            self.violation(ViolationKind::Failure, "the database does not close");
        }
        child.end();
        self.report.closed += 1;
        self.child_options.now_ms += HOUR_MS;
        if let Some(mut child) = self.open(None)
            && self.compare(&mut child) == Comparison::Ended
        {
            self.violation(ViolationKind::Failure, "the child ended while it was observed");
        }
    }

    fn violation(&mut self, kind: ViolationKind, what: &str) {
        self.is_good = false;
        let place = self.place();
        self.report.add(vec![Violation::new(kind, what)], &place);
    }

    fn place(&self) -> String {
        format!(
            "seed {}, directory {}, cycle {}",
            self.options.seed,
            self.directory.display(),
            self.cycle
        )
    }

    /// Removes the directory, unless it is to be looked at.
    fn finish(self) {
        if self.is_good {
            remove(&self.directory);
            return;
        }
        let written = fs::write(self.directory.with_extension("operations"), &self.history);
        written.expect("the folder of directories is writable");
    }
}

/// Removes a directory, and what belongs to it.
fn remove(directory: &Path) {
    let _absent = fs::remove_dir_all(directory);
    let _absent = fs::remove_dir_all(directory.with_extension("files"));
    let _absent = fs::remove_file(errors_path(directory));
}

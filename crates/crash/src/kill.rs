//! Killing the child at random moments, or at failpoints, and comparing what is left.
//!
//! # Life of a cycle
//!
//! 1. A child opens the directory; sometimes it is killed before it has, and another one is started.
//! 2. It describes what it has. The operations of the former cycle that were acknowledged, and of those
//!    that were not the ones that are there, are given to a database in memory; both are compared.
//! 3. Each writer gets operations, a few at a time. At a random moment the child is killed.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use lockstep_testkit::random::Random;

use crate::{
    child::{ChildOptions, open},
    difference::{Violation, ViolationKind, compare},
    merge::{SentOperation, merged},
    model::{BEGIN_MS, ModelDatabase},
    objects::{SHARED, SHARED_TRUNCATED, WriterObjects},
    observation::Observation,
    operation::{Action, Answer, Operation, Request, Witness, is_done},
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
            let end = if cycle + 1 == cycles { Ending::Close } else { Ending::Kill };
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
    let is_whole = driver.cycle(Ending::Kill, None)
        && driver.cycle(Ending::Failpoint, armed)
        && driver.cycle(Ending::Close, None);
    driver.finish();
    is_whole && report.failpoints.get(name).copied().unwrap_or(0) > ended
}

/// How a cycle ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
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
    fn cycle(&mut self, ending: Ending, failpoint: Option<(String, u64)>) -> bool {
        self.cycle += 1;
        self.report.cycles += 1;
        self.advance();
        if ending == Ending::Kill {
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
            Ending::Failpoint => (8 * OPERATIONS_MAX, 0),
            Ending::Kill | Ending::Close => {
                (self.random.below(OPERATIONS_MAX), self.random.below(4))
            }
        };
        let is_alive = self.send(&mut child, target);
        match ending {
            Ending::Close => self.close(child),
            Ending::Kill => {
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
            Ending::Failpoint => {
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
        if self.random.chance(60) && child.send(&Request::Observe) {
            match child.answer() {
                Some(Answer::Observed(observed)) => self.seen = Some(observed),
                _ => {
                    self.violation(ViolationKind::Failure, "the child ended while it was observed")
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
            Some(Answer::Opened { rows, is_cut }) => {
                self.report.rows_read += rows;
                self.report.cuts += u64::from(is_cut);
                return Some(child);
            }
            Some(Answer::Refused(error)) => {
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
        for (name, indexes) in SHARED {
            let columns = crate::rows::COLUMNS;
            let sql = format!("CREATE TABLE {name} ({columns}, {indexes})");
            let operation = Operation {
                kind: "CREATE TABLE",
                action: Action::Script(sql),
                added: None,
                effect: crate::objects::Effect::Nothing,
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
        operation: Operation,
    ) -> bool {
        let (id, action) = (self.sent.len(), operation.action.clone());
        self.report.operation(operation.kind).drawn += 1;
        self.events += 1;
        self.sent.push(SentOperation { operation, writer, sent: self.events, acknowledged: None });
        child.send(&Request::Run { id, writer, action })
    }

    /// Notes acknowledgements.
    fn note(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            if let Answer::Acknowledged { id, outcome } = answer {
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
        child.send(&Request::Close);
        if !matches!(child.answer(), Some(Answer::Closed)) {
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

    /// Compares what the child has with what the operations make. Whether it is the same.
    fn compare(&mut self, child: &mut ChildProcess) -> Comparison {
        child.send(&Request::Observe);
        let Some(Answer::Observed(found)) = child.answer() else { return Comparison::Ended };
        let mut violations = Vec::new();
        let sent = std::mem::take(&mut self.sent);
        self.remember(&sent);
        for sent in sent.iter().filter(|sent| sent.acknowledged.is_some()) {
            violations
                .extend(sent.operation.action.backup().and_then(|path| self.open_backup(path)));
        }
        let is_uncertain = |sent: &&SentOperation| sent.acknowledged.is_none();
        self.uncertain_loads.extend(sent.iter().filter(is_uncertain).filter_map(load_of));
        let unacknowledged = self.replay(sent, &found, &mut violations);
        let now_ms = self.child_options.now_ms;
        self.model.reopen(WRITERS, now_ms);
        let mut expected = self.model.observe();
        for SentOperation { operation, writer, .. } in &unacknowledged {
            let is_there = operation
                .witness
                .as_ref()
                .is_some_and(|witness| seen(&expected, witness) != seen(&found, witness));
            let count = self.report.operation(operation.kind);
            if is_there {
                count.survived += 1;
                self.model.run(*writer, operation);
                self.confirmed[*writer].apply(&operation.effect);
            } else {
                count.lost += 1;
            }
        }
        expected = self.model.observe();
        violations.extend(compare(&self.certain(&expected), &self.certain(&found)));
        violations.extend(moved_rows(&self.observed, &found));
        if let Some(seen) = self.seen.take() {
            violations.extend(compare(&self.certain(&seen), &self.certain(&found)));
            violations.extend(moved_rows(&seen, &found));
        }
        self.report.texts_compared += u64::try_from(found.texts.len()).expect("they are few");
        let rows: usize = found.arrivals.values().map(Vec::len).sum();
        self.report.rows_compared += u64::try_from(rows).expect("they are few");
        self.observed = found;
        for (writer, objects) in self.writers.iter_mut().zip(&self.confirmed) {
            writer.reset(objects.clone());
            writer.now_ms = now_ms;
        }
        self.is_good &= violations.is_empty();
        let place = self.place();
        self.report.add(violations, &place);
        if self.is_good { Comparison::Same } else { Comparison::Different }
    }

    /// Gives the acknowledged operations, and the appends that are there, to the database in memory.
    /// Returns the others that a writer may have done: one for each.
    fn replay(
        &mut self,
        sent: Vec<SentOperation>,
        found: &Observation,
        violations: &mut Vec<Violation>,
    ) -> Vec<SentOperation> {
        let (mut done, mut uncertain) = (Vec::new(), Vec::new());
        let mut has_stopped = [false; WRITERS];
        for sent in sent {
            let writer = sent.writer;
            if sent.acknowledged.is_some() {
                done.push(sent);
            } else if has_stopped[writer] {
                // The writer had not begun with it.
                self.report.operation(sent.operation.kind).lost += 1;
            } else {
                has_stopped[writer] = true;
                uncertain.push(sent);
            }
        }
        let (there, unknown): (Vec<_>, Vec<_>) =
            uncertain.into_iter().partition(|sent| self.is_there(sent, &done, found));
        for sent in &there {
            self.report.operation(sent.operation.kind).survived += 1;
        }
        done.extend(there);
        for SentOperation { operation, writer, acknowledged, .. } in
            merged(done, WRITERS, found, violations)
        {
            let outcome = self.model.run(writer, &operation);
            if outcome.as_deref().is_none_or(is_done) {
                self.confirmed[writer].apply(&operation.effect);
            }
            let (Some(expected), Some((_, found))) = (outcome, acknowledged) else { continue };
            if expected != found {
                let what = format!("{:?}: expected {expected}, found {found}", operation.action);
                violations.push(Violation::new(ViolationKind::Outcome, what));
            }
        }
        unknown
    }

    /// Returns whether what an operation does to rows is there: one of its rows, or for the TRUNCATE of a
    /// shared table that one is gone.
    fn is_there(&self, sent: &SentOperation, done: &[SentOperation], found: &Observation) -> bool {
        let Some(added) = &sent.operation.added else { return false };
        let numbers = found.numbers(&added.table);
        if added.rows.count > 0 {
            return added.rows.numbers().any(|number| numbers.contains(&number));
        }
        // Rows that no other TRUNCATE can have removed.
        let on_table = |sent: &&SentOperation| {
            sent.operation.added.as_ref().is_some_and(|added| added.table == SHARED_TRUNCATED)
        };
        let count = |sent: &SentOperation| {
            sent.operation.added.as_ref().map_or(0, |added| added.rows.count)
        };
        let truncated = done.iter().filter(on_table).filter(|sent| count(sent) == 0);
        let last = truncated.filter_map(|sent| sent.acknowledged.as_ref()).map(|(at, _)| *at).max();
        let before = match last {
            None => self.observed.numbers(SHARED_TRUNCATED),
            Some(_) => Vec::new(),
        };
        let later = done.iter().filter(on_table).filter(|sent| Some(sent.sent) > last);
        let added = later.filter_map(|sent| sent.operation.added.as_ref());
        let numbers_after = added.flat_map(|added| added.rows.numbers());
        before.into_iter().chain(numbers_after).any(|number| !numbers.contains(&number))
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

    /// Opens a backup that was acknowledged; what is in it is compared by `replay`.
    fn open_backup(&self, path: &str) -> Option<Violation> {
        let opened = open(Path::new(path), &self.child_options);
        let what = format!("the backup does not open: {}", opened.err()?);
        Some(Violation::new(ViolationKind::Failure, what))
    }

    /// Leaves out what depends on operations that were not acknowledged although they are not there: a
    /// load that is there may have no job, and an index of a deployment that is not there has left the
    /// number of its name.
    fn certain(&self, observation: &Observation) -> Observation {
        let mut observation = observation.clone();
        for (name, lines) in &mut observation.texts {
            if name == "SHOW JOBS" {
                let is_uncertain =
                    |job: &String| self.uncertain_loads.iter().any(|load| job.contains(load));
                lines.retain(|job| !is_uncertain(job));
            } else if name.starts_with("SHOW INDEXES") {
                for line in lines.iter_mut().filter(|line| line.starts_with("\"auto_")) {
                    *line = line.split_once(',').map_or("", |(_, rest)| rest).to_owned();
                }
                lines.sort_unstable();
            }
        }
        observation
    }

    /// Notes operations and how they ended.
    fn remember(&mut self, sent: &[SentOperation]) {
        writeln!(self.history, "before cycle {}:", self.cycle).expect("it is a string");
        for SentOperation { operation, writer, sent, acknowledged } in sent {
            let end = match acknowledged {
                Some((at, outcome)) => format!("acknowledged at {at}: {outcome}"),
                None => "not acknowledged".to_owned(),
            };
            let action = &operation.action;
            writeln!(self.history, "writer {writer}, sent at {sent}: {action:?}: {end}")
                .expect("it is a string");
        }
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

/// Returns the lines by which it is seen whether an operation was done.
fn seen<'o>(observation: &'o Observation, witness: &Witness) -> Vec<&'o String> {
    let lines = observation.lines(&witness.name).iter();
    lines.filter(|line| line.contains(&witness.contains)).collect()
}

/// Returns the path of the file that an operation loads.
fn load_of(sent: &SentOperation) -> Option<String> {
    match &sent.operation.action {
        Action::Script(sql) => {
            sql.split_once("LOAD DATA INFILE '")?.1.split('\'').next().map(str::to_owned)
        }
        Action::Append { .. } => None,
    }
}

/// Compares the arrivals of rows that were there before.
pub(crate) fn moved_rows(before: &Observation, after: &Observation) -> Vec<Violation> {
    let mut violations = Vec::new();
    for table in before.tables() {
        let arrivals = |observation: &Observation| -> std::collections::BTreeMap<u64, u64> {
            let arrivals = observation.arrivals.get(table).cloned().unwrap_or_default();
            observation.numbers(table).into_iter().zip(arrivals).collect()
        };
        let (before, after) = (arrivals(before), arrivals(after));
        for (number, arrival) in before {
            let now = after.get(&number).copied().unwrap_or(arrival);
            if now != arrival {
                let what = format!("row {number} of {table}: {arrival} before, {now} now");
                violations.push(Violation::new(ViolationKind::Arrival, what));
            }
        }
    }
    violations
}

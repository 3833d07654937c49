//! Calls to the disk that fail: the statement says so, reads go on, and nobody sees what was refused.

use lockstep_engine::{Durability, code};
use lockstep_sim::{CrashPolicy, DiskFault, Failure, SimulatedDisk};

use super::{
    model::{Model, difference},
    run::{Run, StepOutcome},
    workload::WorkloadStep,
};

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Calls that failed.
    pub faults: usize,
    /// Of these, in how many cases the database was not opened.
    pub not_opened: usize,
    /// In how many cases no write was accepted from then on.
    pub stopped: usize,
    /// In how many cases a step failed, and later ones did not.
    pub refused: usize,
    /// In how many cases no step failed.
    pub unnoticed: usize,
    /// Databases that were opened afterwards.
    pub reopened: usize,
}

/// Lets each call fail in a run of its own, one of `every` from `first` on. The text names what is
/// wrong.
pub fn check(
    steps: &[WorkloadStep],
    tables: &[&str],
    failure: Failure,
    (first, every): (u64, usize),
) -> Result<FaultReport, String> {
    let mut report = FaultReport::default();
    let mut model = Model::new(steps, tables);
    for nth in (first..).step_by(every) {
        let fault = DiskFault { nth, operation: None, failure };
        let mut run = FaultRun {
            steps,
            model: &mut model,
            report: &mut report,
            done: Vec::new(),
            failed: Vec::new(),
        };
        let reached = run.check(fault);
        if !reached.map_err(|what| format!("{fault:?}: {what}"))? {
            break;
        }
        report.faults += 1;
    }
    Ok(report)
}

/// The steps with one call that fails.
struct FaultRun<'r, 's> {
    steps: &'s [WorkloadStep],
    model: &'r mut Model<'s>,
    report: &'r mut FaultReport,
    /// Steps that were acknowledged.
    done: Vec<usize>,
    /// Steps that the disk refused, with the code.
    failed: Vec<(usize, String)>,
}

impl FaultRun<'_, '_> {
    /// Runs the steps; returns whether there were so many calls.
    fn check(&mut self, fault: DiskFault) -> Result<bool, String> {
        let disk = SimulatedDisk::new();
        disk.fail(fault);
        let begin_ms = self.model.now_ms(0);
        let run = match Run::open(&disk, begin_ms) {
            Ok(run) => run,
            Err(error) => {
                self.report.not_opened += 1;
                check_code(error.code)?;
                Run::open(&disk, begin_ms).map_err(|error| format!("then: {error:?}"))?
            }
        };
        let mut had_fault = true;
        for at in 0..self.steps.len() {
            self.step(&run, at)?;
            // What is shown is compared where something may have gone wrong, and at the end.
            if had_fault != disk.has_fault() || at + 1 == self.steps.len() {
                self.compare((&run, &disk), at + 1, "now")?;
            }
            had_fault = disk.has_fault();
        }
        let is_closed = run.close().is_ok();
        if disk.has_fault() {
            return Ok(false);
        }
        drop(run);
        self.reopen(&disk, is_closed)?;
        self.count();
        Ok(true)
    }

    fn step(&mut self, run: &Run, at: usize) -> Result<(), String> {
        let step = &self.steps[at];
        let is_stopped = self.stopped().is_some();
        match run.step(step) {
            StepOutcome::Failed(code) => {
                check_code(&code)?;
                if is_stopped && code != code::LOG_STOPPED {
                    return Err(format!("step {at} failed with {code} after the log had stopped"));
                }
                self.failed.push((at, code));
            }
            StepOutcome::Refused(code) if is_stopped => {
                // What it depends on may be missing; a defect of ours has another code.
                if code.starts_with("XX") || code.starts_with("58") {
                    return Err(format!("step {at}, {step:?}, was refused with {code}"));
                }
            }
            StepOutcome::Refused(_) => {}
            StepOutcome::Done => self.done.push(at),
        }
        Ok(())
    }

    /// Returns the first step that failed because the log had stopped.
    fn stopped(&self) -> Option<usize> {
        let mut failed = self.failed.iter();
        failed.find(|(_, code)| code == code::LOG_STOPPED).map(|(at, _)| *at)
    }

    fn compare(
        &mut self,
        (run, disk): (&Run, &SimulatedDisk),
        count: usize,
        when: &str,
    ) -> Result<(), String> {
        let (now_ms, had_fault) = (self.model.now_ms(count), disk.has_fault());
        let (done, mut shown) = (self.done.clone(), run.show(self.model.tables()));
        if had_fault && !disk.has_fault() {
            // The call that failed was a read of what is shown; the next one succeeds.
            shown = run.show(self.model.tables());
        }
        let expected = self.model.after_steps(done, now_ms).to_vec();
        match difference(&shown, &expected) {
            None => Ok(()),
            Some(what) => Err(format!("{when}, after {count} steps, {:?}, it {what}", self.failed)),
        }
    }

    /// Opens the database again: in a new process, and after a crash.
    fn reopen(&mut self, disk: &SimulatedDisk, is_closed: bool) -> Result<(), String> {
        let image = disk.image();
        // What was written at a level below `disk` may be lost when it could not be synced.
        let durable = if is_closed { self.done.len() } else { self.durable_count() };
        for policy in [CrashPolicy::AllLost, CrashPolicy::Random(1)] {
            let when = format!("{policy:?}");
            self.open_again(&image.disk(policy), &when, durable)?;
        }
        self.open_again(disk, "in a new process", self.done.len())
    }

    /// Counts the steps that were acknowledged up to the last one that waited for the disk.
    fn durable_count(&mut self) -> usize {
        assert!(self.done.is_sorted(), "steps are done in their order");
        let now_ms = self.model.now_ms(self.steps.len());
        let mut shown =
            |count: usize| self.model.after_steps(self.done[..count].to_vec(), now_ms).to_vec();
        (1..=self.done.len())
            .rev()
            .find(|count| {
                let step = &self.steps[self.done[count - 1]];
                let waits = step.level == Durability::Disk && step.is_statement();
                step.is_checkpoint() || (waits && shown(*count) != shown(count - 1))
            })
            .unwrap_or(0)
    }

    /// Opens the database on a disk: at least so many of the acknowledged steps are there.
    fn open_again(&mut self, disk: &SimulatedDisk, when: &str, least: usize) -> Result<(), String> {
        self.report.reopened += 1;
        let now_ms = self.model.now_ms(self.steps.len());
        let run = Run::open(disk, now_ms).map_err(|error| format!("{when}: {error:?}"))?;
        let shown = run.show(self.model.tables());
        run.load();
        if let Some(what) = difference(&run.show(self.model.tables()), &shown) {
            return Err(format!("{when}, with its tables in memory, it {what}"));
        }
        let expected = self.model.after_steps(self.done.clone(), now_ms);
        let Some(mut what) = difference(&shown, expected) else { return Ok(()) };
        let mut candidates: Vec<Vec<usize>> =
            (least..self.done.len()).map(|count| self.done[..count].to_vec()).collect();
        // Nobody knows whether the step is there whose sync failed. A step behind it has changed nothing,
        // also one that succeeded, such as a DELETE that found no row.
        if let Some(unknown) = self.stopped() {
            let before = self.done.iter().copied().filter(|done| *done < unknown);
            candidates.push(before.chain(std::iter::once(unknown)).collect());
        }
        for done in candidates {
            match difference(&shown, self.model.after_steps(done, now_ms)) {
                None => return Ok(()),
                Some(other) => what = other,
            }
        }
        Err(format!("{when}, {:?}, it {what}", self.failed))
    }

    fn count(&mut self) {
        let report = &mut *self.report;
        match (self.failed.is_empty(), self.failed.iter().any(|(_, c)| c == code::LOG_STOPPED)) {
            (true, _) => report.unnoticed += 1,
            (false, true) => report.stopped += 1,
            (false, false) => report.refused += 1,
        }
    }
}

fn check_code(code: &str) -> Result<(), String> {
    if [code::LOG_STOPPED, code::DISK_FULL, code::IO_ERROR].contains(&code) {
        return Ok(());
    }
    Err(format!("failed with {code}"))
}

/// Runs the steps while the disk has no space from one of them on, for some steps; then it has space
/// again. The text names what is wrong.
pub fn check_full(
    steps: &[WorkloadStep],
    tables: &[&str],
    from: usize,
    count: usize,
) -> Result<usize, String> {
    let disk = SimulatedDisk::new();
    let mut model = Model::new(steps, tables);
    let mut report = FaultReport::default();
    let run = Run::open(&disk, model.now_ms(0)).map_err(|error| format!("{error:?}"))?;
    let mut full = FaultRun {
        steps,
        model: &mut model,
        report: &mut report,
        done: Vec::new(),
        failed: Vec::new(),
    };
    for at in 0..steps.len() {
        if at == from {
            disk.set_space(0);
        } else if at == from + count {
            disk.set_space(usize::MAX);
        }
        let failed = full.failed.len();
        full.step(&run, at)?;
        if full.failed.len() > failed {
            let (_, code) = &full.failed[failed];
            if !(from..from + count).contains(&at) || code != code::DISK_FULL {
                return Err(format!("step {at}, no space from {from} on: {code}"));
            }
            full.compare((&run, &disk), at + 1, "without space")?;
        }
    }
    full.compare((&run, &disk), steps.len(), "with space again")?;
    run.close().map_err(|error| format!("{error:?}"))?;
    drop(run);
    full.reopen(&disk, true)?;
    Ok(full.failed.len())
}

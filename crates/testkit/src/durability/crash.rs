//! A crash at every call to the disk: what it leaves is a database with a prefix of the steps.

use lockstep_engine::Durability;
use lockstep_sim::{CrashImage, CrashPolicy, SimulatedDisk};

use super::{
    model::{Model, difference},
    run::{Run, StepOutcome},
    workload::WorkloadStep,
};
use crate::random::Random;

/// How many of the states that crashes leave are tried.
#[derive(Debug, Clone, Copy)]
pub struct CrashSample {
    /// Draws the states.
    pub seed: u64,
    /// States of each moment, at most; all when there are fewer.
    pub per_image: usize,
    /// Of how many moments one is looked at.
    pub one_image_of: usize,
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Moments: after each call to the disk, before each sync, and after each step.
    pub images: usize,
    /// States that a crash at one of these may leave.
    pub states: usize,
    /// States that were opened.
    pub tried: usize,
    /// States in which more than what was acknowledged at `disk` was there.
    pub with_more: usize,
    /// States in which steps at `os` or `memory` were lost.
    pub with_less: usize,
    /// States in which the rest of the steps was run then, and the database opened once more.
    pub continued: usize,
}

/// What may be there at a moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// So many of the first steps are on the disk.
    acknowledged: usize,
    /// So many have begun.
    begun: usize,
}

/// Runs the steps; crashes at every moment, and opens what is left. The text names what is wrong.
pub fn check(
    steps: &[WorkloadStep],
    tables: &[&str],
    sample: CrashSample,
) -> Result<CrashReport, String> {
    let disk = SimulatedDisk::new();
    disk.record_before_syncs();
    let mut check = Check {
        steps,
        model: Model::new(steps, tables),
        sample,
        random: Random::new(sample.seed),
        report: CrashReport::default(),
    };
    let run = Run::open(&disk, check.model.now_ms(0)).map_err(|error| format!("{error:?}"))?;
    let mut acknowledged = 0;
    for (at, step) in steps.iter().enumerate() {
        let outcome = run.step(step);
        if let StepOutcome::Failed(code) = outcome {
            return Err(format!("step {at}, {step:?}: {code}"));
        }
        let during = Moment { acknowledged, begun: at + 1 };
        for image in disk.take_images() {
            check.image(&image, during)?;
        }
        if step.is_checkpoint() || (step.level == Durability::Disk && check.is_change(at)) {
            acknowledged = at + 1;
        }
        check.image(&disk.image(), Moment { acknowledged, begun: at + 1 })?;
    }
    let done = Moment { acknowledged: steps.len(), begun: steps.len() };
    run.close().map_err(|error| format!("{error:?}"))?;
    let during = Moment { acknowledged, ..done };
    disk.take_images().iter().try_for_each(|image| check.image(image, during))?;
    check.image(&disk.image(), done)?;
    Ok(check.report)
}

struct Check<'s> {
    steps: &'s [WorkloadStep],
    model: Model<'s>,
    sample: CrashSample,
    random: Random,
    report: CrashReport,
}

impl Check<'_> {
    /// Whether a step changes what is shown, and so was logged.
    fn is_change(&mut self, at: usize) -> bool {
        let now_ms = self.model.now_ms(at + 1);
        let before = self.model.after(at, now_ms).to_vec();
        self.steps[at].is_statement() && before != self.model.after(at + 1, now_ms)
    }

    /// Opens some of the states that a crash leaves.
    fn image(&mut self, image: &CrashImage, moment: Moment) -> Result<(), String> {
        self.report.images += 1;
        if self.random.below(self.sample.one_image_of) > 0 {
            return Ok(());
        }
        let mut states = image.states();
        self.report.states += states.len();
        states.push(CrashPolicy::Random(self.random.number()));
        while states.len() > self.sample.per_image {
            states.swap_remove(self.random.below(states.len()));
        }
        for policy in states {
            self.state(&image.disk(policy), moment).map_err(|what| {
                let seed = self.sample.seed;
                format!("seed {seed}, image {}, {moment:?}, {policy:?}: {what}", self.report.images)
            })?;
        }
        Ok(())
    }

    /// Opens what a crash left, and compares.
    fn state(&mut self, disk: &SimulatedDisk, moment: Moment) -> Result<(), String> {
        self.report.tried += 1;
        let now_ms = self.model.now_ms(moment.begun);
        let run = Run::open(disk, now_ms).map_err(|error| format!("not opened: {error:?}"))?;
        let shown = run.show(self.model.tables());
        let count = self.prefix(&shown, moment, now_ms)?;
        self.report.with_more += usize::from(count > moment.acknowledged);
        self.report.with_less += usize::from(count + 1 < moment.begun);
        if self.random.chance(10) {
            self.report.continued += 1;
            return self.go_on(disk, run, Moment { acknowledged: count, ..moment });
        }
        Ok(())
    }

    /// Finds after how many steps a database shows this: after as many as possible.
    fn prefix(&mut self, shown: &[String], moment: Moment, now_ms: i64) -> Result<usize, String> {
        assert!(moment.acknowledged <= moment.begun, "what was acknowledged was begun");
        let mut nearest: Option<(usize, String)> = None;
        for count in (moment.acknowledged..=moment.begun).rev() {
            let expected = self.model.after(count, now_ms);
            let Some(what) = difference(shown, expected) else { return Ok(count) };
            let differences = shown.iter().zip(expected).filter(|(a, b)| a != b).count();
            if nearest.as_ref().is_none_or(|(fewest, _)| differences < *fewest) {
                nearest = Some((differences, format!("after {count} steps, {what}")));
            }
        }
        let (count, what) = nearest.expect("there is a step");
        Err(format!("no prefix of the steps; {count} answers differ from the nearest; {what}"))
    }

    /// Runs the steps that are not there, and opens the database once more. Time that has passed does
    /// not pass again.
    fn go_on(&mut self, disk: &SimulatedDisk, run: Run, found: Moment) -> Result<(), String> {
        let Moment { acknowledged, begun } = found;
        if self.random.chance(50) {
            run.load();
        }
        for (at, step) in self.steps.iter().enumerate().skip(acknowledged) {
            if at < begun && !step.is_statement() {
                continue;
            }
            if let StepOutcome::Failed(code) = run.step(step) {
                return Err(format!("step {at} after the crash: {code}"));
            }
        }
        let now_ms = self.model.now_ms(self.steps.len());
        let shown = run.show(self.model.tables());
        drop(run);
        // Steps that were run later than in the model may find other rows expired.
        if self.model.now_ms(acknowledged) == self.model.now_ms(begun) {
            let expected = self.model.after(self.steps.len(), now_ms);
            if let Some(what) = difference(&shown, expected) {
                return Err(format!("after the rest of the steps, it {what}"));
            }
        }
        let again =
            Run::open(disk, now_ms).map_err(|error| format!("not opened again: {error:?}"))?;
        if let Some(what) = difference(&again.show(self.model.tables()), &shown) {
            return Err(format!("opened again after the rest of the steps, it {what}"));
        }
        assert!(!self.model.tables().is_empty(), "a workload has tables");
        again.load();
        match difference(&again.show(self.model.tables()), &shown) {
            None => Ok(()),
            Some(what) => Err(format!("with its tables in memory again, it {what}")),
        }
    }
}

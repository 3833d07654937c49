//! What a database has to show after some of the steps: what one in memory shows that ran them.

use std::collections::BTreeMap;

use super::{
    run::Run,
    workload::{START_MS, WorkloadAction, WorkloadStep},
};

/// The steps, and what a database in memory shows after some of them.
#[derive(Debug)]
pub struct Model<'s> {
    steps: &'s [WorkloadStep],
    tables: &'s [&'s str],
    /// By the steps that were run, and the time at which it is shown.
    shown: BTreeMap<(Vec<usize>, i64), Vec<String>>,
}

impl<'s> Model<'s> {
    /// Makes the model of these steps, of which `tables` are the tables.
    pub fn new(steps: &'s [WorkloadStep], tables: &'s [&'s str]) -> Self {
        Self { steps, tables, shown: BTreeMap::new() }
    }

    /// Returns the tables.
    pub fn tables(&self) -> &'s [&'s str] {
        self.tables
    }

    /// Returns the time at the end of the first `count` steps.
    pub fn now_ms(&self, count: usize) -> i64 {
        assert!(count <= self.steps.len(), "so many steps there are not");
        let passed = self.steps[..count].iter().map(|step| match step.action {
            WorkloadAction::Advance { milliseconds } => i64::from(milliseconds),
            WorkloadAction::Execute(_)
            | WorkloadAction::ExecuteOffline(_)
            | WorkloadAction::AppendTables(_) => 0,
        });
        START_MS + passed.sum::<i64>()
    }

    /// Returns what is shown at a time after the first `count` steps.
    pub fn after(&mut self, count: usize, now_ms: i64) -> &[String] {
        self.after_steps((0..count).collect(), now_ms)
    }

    /// Returns what is shown at a time after these steps; time passes in all.
    pub fn after_steps(&mut self, done: Vec<usize>, now_ms: i64) -> &[String] {
        let (steps, tables) = (self.steps, self.tables);
        self.shown.entry((done, now_ms)).or_insert_with_key(|(done, now_ms)| {
            assert!(done.is_sorted(), "steps are done in their order");
            let run = Run::in_memory();
            let last = done.last().map_or(0, |last| last + 1);
            for (at, step) in steps[..last].iter().enumerate() {
                if done.contains(&at) || matches!(step.action, WorkloadAction::Advance { .. }) {
                    run.step(step);
                }
            }
            run.set_now_ms(*now_ms);
            run.show(tables)
        })
    }
}

/// Names the first difference between what is shown and what has to be.
pub fn difference(shown: &[String], expected: &[String]) -> Option<String> {
    let mut pairs = shown.iter().zip(expected);
    let (shown, expected) = pairs.find(|(shown, expected)| shown != expected)?;
    Some(format!("shows\n  {shown}\nand not\n  {expected}"))
}

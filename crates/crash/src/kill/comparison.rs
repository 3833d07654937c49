//! The comparison of what a child has with what the operations make.
//!
//! Operations that were acknowledged are there. Of each writer, the first one that was not may be there
//! or not; the driver finds out by what it would change, and then everything is to be the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::Path,
};

use super::{Comparison, Driver, WRITERS};
use crate::{
    child::open,
    difference::{Violation, ViolationKind, compare},
    merge::{SentOperation, merged},
    objects::{Effect, SHARED_TRUNCATED},
    observation::Observation,
    operation::{Action, AddedRows, ChildAnswer, ChildRequest, Witness, is_done},
    process::ChildProcess,
};

impl Driver<'_> {
    /// Compares what the child has with what the operations make. Whether it is the same.
    pub(super) fn compare(&mut self, child: &mut ChildProcess) -> Comparison {
        child.send(&ChildRequest::Observe);
        let Some(ChildAnswer::Observed(found)) = child.answer() else { return Comparison::Ended };
        let mut violations = Vec::new();
        let sent = std::mem::take(&mut self.sent);
        self.remember(&sent);
        for sent in sent.iter().filter(|sent| sent.acknowledged.is_some()) {
            violations
                .extend(sent.operation.action.backup().and_then(|path| self.open_backup(path)));
        }
        let is_uncertain = |sent: &&SentOperation| sent.acknowledged.is_none();
        self.uncertain_loads.extend(sent.iter().filter(is_uncertain).filter_map(load_of));
        let replaced = replaced(&sent);
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
        violations.extend(moved_rows(&self.observed, &found, &replaced));
        if let Some(seen) = self.seen.take() {
            violations.extend(compare(&self.certain(&seen), &self.certain(&found)));
            violations.extend(moved_rows(&seen, &found, &replaced));
        }
        self.report.texts_compared += u64::try_from(found.texts.len()).expect("they are few");
        let rows: usize = found.arrivals.values().map(Vec::len).sum();
        self.report.rows_compared += u64::try_from(rows).expect("they are few");
        self.report.rows_from_nodes += found.rows_from_nodes;
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
        let is_found = |added: &AddedRows| {
            let numbers = found.numbers(&added.table);
            added.rows.numbers().any(|number| numbers.contains(&number))
        };
        if !truncates(sent) {
            return sent.operation.added.iter().any(is_found);
        }
        // Rows that no other TRUNCATE can have removed.
        let numbers = found.numbers(SHARED_TRUNCATED);
        let truncated = done.iter().filter(|sent| truncates(sent));
        let last = truncated.max_by_key(|sent| sent.acknowledged.as_ref().map(|(at, _)| *at));
        let before = match last {
            None => self.observed.numbers(SHARED_TRUNCATED),
            Some(_) => Vec::new(),
        };
        let later = done.iter().filter(|sent| last.is_none_or(|last| is_after(sent, last)));
        let added = later.flat_map(|sent| &sent.operation.added);
        let added = added.filter(|added| added.table == SHARED_TRUNCATED);
        let numbers_after = added.flat_map(|added| added.rows.numbers());
        before.into_iter().chain(numbers_after).any(|number| !numbers.contains(&number))
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
}

/// Returns whether an operation was done after another one, for sure: it was sent after the other one was
/// acknowledged, or by the same writer, which does one after the other.
fn is_after(sent: &SentOperation, other: &SentOperation) -> bool {
    let acknowledged = other.acknowledged.as_ref().map(|(at, _)| *at);
    let is_later = acknowledged.is_some_and(|at| sent.sent > at);
    is_later || (sent.writer == other.writer && sent.sent > other.sent)
}

/// Returns whether an operation truncates the shared table.
fn truncates(sent: &SentOperation) -> bool {
    let mut added = sent.operation.added.iter();
    added.any(|added| added.table == SHARED_TRUNCATED && added.rows.count == 0)
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
        Action::Append { .. } | Action::AppendTables { .. } => None,
    }
}

/// Returns the tables that operations put in the place of others, which may have rows of theirs.
fn replaced(sent: &[SentOperation]) -> BTreeSet<String> {
    let replaced = sent.iter().filter_map(|sent| match &sent.operation.effect {
        Effect::Table(name, _) => Some(name.clone()),
        _ => None,
    });
    replaced.collect()
}

/// Compares the arrivals of rows that were there before, except those of tables that were replaced.
pub(crate) fn moved_rows(
    before: &Observation,
    after: &Observation,
    replaced: &BTreeSet<String>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for table in before.tables().filter(|table| !replaced.contains(*table)) {
        let arrivals = |observation: &Observation| -> BTreeMap<u64, u64> {
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

//! The shadow check: some answers that took nodes of pre-aggregates are computed once more from rows
//! alone, off the request's path, and compared bit for bit.
//!
//! A program with pre-aggregates draws a share of its answers ([`crate::TableResolver::check_share`]) and
//! keeps the request row, the answer and what was visible. `engine` has them compared on the thread that
//! makes nodes. A sample whose rows were deleted or have expired since is skipped: it cannot be computed
//! again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_host::sync::Mutex;
use lockstep_row::{Arena, Datum, Value};
use lockstep_table::{Snapshot, SnapshotMoment};

use crate::{
    context::{AnswerContext, REQUEST_ARRIVAL},
    program::{AnswerRow, AnswerView, Program},
    row_context::{ArrivedRow, LeafRow},
};

/// The share of answers that are checked, in millionths, which may change at any time.
pub type CheckShare = Arc<AtomicU64>;

/// A share of one.
const PPM: u64 = 1_000_000;
/// How many samples wait at most; further ones are not taken.
const SAMPLES_MAX: usize = 64;

/// The samples of a program and what became of them.
pub(crate) struct ShadowCheck {
    share_ppm: CheckShare,
    /// The sum of the shares of all answers so far.
    shares: AtomicU64,
    samples: Mutex<Vec<AnswerSample>>,
    outcome: Mutex<CheckOutcome>,
    wake: lockstep_table::LevelsWaker,
}

/// An answer that is to be computed again.
struct AnswerSample {
    request: Vec<Value>,
    /// What was visible, for each table of the program.
    moments: Vec<SnapshotMoment>,
    answer: Option<Vec<Value>>,
}

/// The outcome of all comparisons so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckOutcome {
    /// How many answers were compared.
    pub checked: u64,
    /// How many of them differed.
    pub differences: u64,
    /// How many could not be computed again.
    pub skipped: u64,
    /// The first difference: the request row, the answer and the one from rows alone.
    pub first: Option<String>,
}

impl ShadowCheck {
    /// Starts without samples.
    pub(crate) fn new(share_ppm: CheckShare, wake: lockstep_table::LevelsWaker) -> Self {
        Self {
            share_ppm,
            shares: AtomicU64::new(0),
            samples: Mutex::default(),
            outcome: Mutex::default(),
            wake,
        }
    }

    /// Returns the outcome so far.
    pub(crate) fn outcome(&self) -> CheckOutcome {
        self.outcome.lock().clone()
    }

    /// Returns whether the next answer is a sample.
    #[inline]
    fn is_due(&self) -> bool {
        // Relaxed: a setting, and a sum of which only the number matters.
        let share = self.share_ppm.load(Ordering::Relaxed);
        debug_assert!(share <= PPM, "a share is at most one");
        if share == 0 {
            return false;
        }
        let before = self.shares.fetch_add(share, Ordering::Relaxed);
        (before + share) / PPM > before / PPM
    }

    /// Keeps an answer if it is a sample.
    #[inline]
    pub(crate) fn offer(&self, ctx: &AnswerContext<'_>, answer: Option<&AnswerRow<'_>>) {
        if ctx.takes_nodes && self.is_due() {
            self.keep(ctx, answer);
        }
    }

    #[cold]
    fn keep(&self, ctx: &AnswerContext<'_>, answer: Option<&AnswerRow<'_>>) {
        let LeafRow::Values(request) = ctx.request.leaf else { return };
        let Some(mut samples) = self.samples.try_lock() else { return };
        if ctx.request.arrival != REQUEST_ARRIVAL || samples.len() >= SAMPLES_MAX {
            return;
        }
        samples.push(AnswerSample {
            request: request.iter().map(|value| value.to_value()).collect(),
            moments: ctx.snapshots.iter().map(Snapshot::moment).collect(),
            answer: answer.map(|row| row.values().map(|value| value.to_value()).collect()),
        });
        drop(samples);
        (self.wake)();
    }
}

impl Program {
    /// Returns the outcome of the shadow check of its answers.
    pub fn check_outcome(&self) -> CheckOutcome {
        self.shadow_check().map_or_else(CheckOutcome::default, ShadowCheck::outcome)
    }

    /// Computes the answers that wait for it once more, from rows alone, and compares them.
    pub fn check_samples(&self) {
        let Some(check) = self.shadow_check() else { return };
        let samples = std::mem::take(&mut *check.samples.lock());
        for sample in samples {
            let compared = self.compare(&sample);
            let mut outcome = check.outcome.lock();
            match compared {
                None => outcome.skipped += 1,
                Some(None) => outcome.checked += 1,
                Some(Some(difference)) => {
                    outcome.checked += 1;
                    outcome.differences += 1;
                    outcome.first.get_or_insert(difference);
                }
            }
        }
    }

    /// Compares a sample with the answer from rows alone, and describes the difference; `None` when it
    /// cannot be computed again.
    fn compare(&self, sample: &AnswerSample) -> Option<Option<String>> {
        let mut tables = self.tables();
        let snapshots = sample.moments.iter().map(|moment| tables.next()?.1.snapshot_at(*moment));
        let snapshots: Vec<Snapshot<'_>> = snapshots.collect::<Option<_>>()?;
        let values = Arena::new();
        let request: Vec<Datum<'_>> =
            sample.request.iter().map(|value| value.as_datum(&values)).collect();
        let mut scratch = self.acquire_scratch();
        scratch.arena.reset();
        let results = self.no_results();
        let view = AnswerView {
            scratch: &scratch,
            snapshots: &snapshots,
            results: &results,
            takes_nodes: false,
        };
        let ctx = self.context(ArrivedRow::values(&request, REQUEST_ARRIVAL), view, None);
        let again = self.answer_one(&ctx).ok()?;
        let again = again.map(|row| row.values().map(|v| v.to_value()).collect::<Vec<_>>());
        // What was removed meanwhile may have been missing.
        let mut pairs = snapshots.iter().zip(&sample.moments);
        if !pairs.all(|(snapshot, moment)| snapshot.is_complete_at(moment)) {
            return None;
        }
        let is_same = match (&sample.answer, &again) {
            (Some(answer), Some(again)) => {
                let mut pairs = answer.iter().zip(again);
                answer.len() == again.len()
                    && pairs.all(|(one, other)| {
                        one.as_datum(&values).is_bit_equal(&other.as_datum(&values))
                    })
            }
            (None, None) => true,
            _ => false,
        };
        let (request, answer) = (&sample.request, &sample.answer);
        Some((!is_same).then(|| {
            format!("request {request:?}: result {answer:?}, recomputed from rows {again:?}")
        }))
    }
}

impl fmt::Debug for ShadowCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShadowCheck").field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}

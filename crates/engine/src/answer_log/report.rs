//! What a comparison with logged answers has found.

use std::collections::BTreeMap;

use lockstep_function::{Settings, cast::print_datum};
use lockstep_row::{Arena, DataType, Value};

use super::{
    cause::DifferenceCause,
    columns::LoggedAnswer,
    rebuild::{AnswerValues, Explanation},
};

/// The most differing values that are reported in full.
const DIFFERENCES_MAX: usize = 20;

/// The result of VERIFY DEPLOYMENT … AGAINST ANSWERS.
#[derive(Debug, Default)]
pub(crate) struct AnswerVerification {
    /// The number of answers that are logged.
    pub(crate) logged: u64,
    /// The number of answers that were computed again.
    pub(crate) answers: u64,
    /// The number of values that were compared.
    pub(crate) values: u64,
    /// The number of answers that differ.
    pub(crate) differing: u64,
    /// How many of them differ for which cause.
    pub(crate) causes: BTreeMap<DifferenceCause, u64>,
    /// The first values that differ.
    pub(crate) differences: Vec<AnswerDifference>,
}

/// A value that differs.
#[derive(Debug)]
pub(crate) struct AnswerDifference {
    /// The position of the answer among those that are logged, from 0.
    pub(crate) answer: u64,
    /// When it was given, in milliseconds since the epoch.
    pub(crate) answered_ms: i64,
    /// The column; empty where only one of the two is a row.
    pub(crate) column: String,
    pub(crate) answered: String,
    pub(crate) rebuilt: String,
    pub(crate) cause: DifferenceCause,
    /// The arrivals of rows that made the difference, and what is said of them.
    pub(crate) arrivals: Vec<u64>,
    pub(crate) rows: String,
}

impl AnswerVerification {
    /// Returns how many answers differ for which cause, as text.
    pub(crate) fn causes_text(&self) -> String {
        let texts = self.causes.iter().map(|(cause, count)| format!("{count} {cause}"));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Whether the values of another answer that differs would be reported.
    pub(super) fn reports_more(&self) -> bool {
        self.differences.len() < DIFFERENCES_MAX
    }

    /// Adds values of an answer that differ from those of a training set; `rows`: what is said of rows that
    /// are not named by their arrivals.
    pub(super) fn add(
        &mut self,
        logged: &LoggedAnswer,
        rebuilt: &AnswerValues,
        (explanation, rows): (&Explanation, &str),
        (columns, settings): (&[(String, DataType)], &Settings),
    ) {
        *self.causes.entry(explanation.cause).or_default() += 1;
        let difference = |column: &str, answered: String, rebuilt: String| AnswerDifference {
            answer: logged.number,
            answered_ms: logged.answered_ms,
            column: column.to_owned(),
            answered,
            rebuilt,
            cause: explanation.cause,
            arrivals: explanation.arrivals.clone(),
            rows: rows.to_owned(),
        };
        let arena = Arena::new();
        let print = |value: &Value| print_datum(value.as_datum(&arena), settings);
        let mut found = Vec::new();
        match (&logged.answer, rebuilt) {
            (Some(answered), Some(rebuilt)) => {
                let values = answered.iter().zip(rebuilt).zip(columns).zip(&explanation.columns);
                for (((answered, rebuilt), (name, _)), _) in values.filter(|(_, meant)| **meant) {
                    if !answered.as_datum(&arena).is_bit_equal(&rebuilt.as_datum(&arena)) {
                        found.push(difference(name, print(answered), print(rebuilt)));
                    }
                }
            }
            (answered, rebuilt) => {
                let shown = |values: &AnswerValues| match values {
                    Some(_) => "a row".to_owned(),
                    None => "no row".to_owned(),
                };
                found.push(difference("", shown(answered), shown(rebuilt)));
            }
        }
        debug_assert!(!found.is_empty(), "an answer that differs has a value that does");
        let left = DIFFERENCES_MAX - self.differences.len().min(DIFFERENCES_MAX);
        self.differences.extend(found.into_iter().take(left));
    }
}

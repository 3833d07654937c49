//! The answer to a logged request again: as it was known then, as a training set has it now, and at the
//! moments between.

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_request::{KnownAnswers, Program};
use lockstep_row::{Arena, Datum, Value};
use lockstep_table::Snapshot;

use super::{VERSION, cause::DifferenceCause, columns::LoggedAnswer};
use crate::{known::KnownTables, verify::data_of};

/// The most rows that are named for a difference.
const ROWS_MAX: usize = 3;

/// An answer: the values of its row, if it has one.
pub(super) type AnswerValues = Option<Vec<Value>>;

/// Answers logged requests again.
pub(super) struct Rebuild<'r> {
    program: &'r Program,
    /// What the deployment says now; see `fingerprint`.
    definition: &'r str,
    tables: KnownTables<'r>,
    answers: KnownAnswers<'r>,
    /// The arrival before which all rows of all tables arrived.
    end: u64,
}

/// Why an answer differs.
pub(super) struct Explanation {
    pub(super) cause: DifferenceCause,
    /// The arrivals of rows that made the difference.
    pub(super) arrivals: Vec<u64>,
    /// The ids of the tables that lack rows.
    pub(super) lacking: Vec<u64>,
}

impl Explanation {
    fn of(cause: DifferenceCause) -> Self {
        Self { cause, arrivals: Vec::new(), lacking: Vec::new() }
    }
}

impl<'r> Rebuild<'r> {
    /// Begins over tables as they are now.
    pub(super) fn new(program: &'r Program, tables: KnownTables<'r>, definition: &'r str) -> Self {
        let ids = program.tables().map(|(id, _)| id);
        let ends = ids.filter_map(|id| tables.now(id)).map(Snapshot::visible_arrival);
        let end = ends.max().unwrap_or(0);
        Self { program, definition, answers: program.known_answers(), tables, end }
    }

    /// Returns the tables.
    pub(super) fn tables(&self) -> &KnownTables<'r> {
        &self.tables
    }

    /// Answers as a training set does: over all rows that have arrived, at the position of the row that the
    /// request became, if it became one.
    pub(super) fn trained(
        &mut self,
        logged: &LoggedAnswer,
        own: Option<u64>,
    ) -> Result<AnswerValues> {
        self.at(logged, own, self.end)
    }

    /// Says why the answer of a training set differs from the logged one; late rows are looked for where
    /// `names_rows` is set.
    pub(super) fn explain(
        &mut self,
        logged: &LoggedAnswer,
        own: Option<u64>,
        names_rows: bool,
    ) -> Result<Explanation> {
        let known = self.known(logged, logged.answered_ms)?;
        if !is_same(&known, &logged.answer) {
            return Ok(self.explain_known(logged));
        }
        // Over the same rows, by the time of now.
        let now = self.known(logged, i64::MAX)?;
        if !is_same(&now, &logged.answer) {
            let lacking = self.tables.that_expired_since(logged.answered_ms);
            return Ok(Explanation { lacking, ..Explanation::of(DifferenceCause::Expired) });
        }
        let arrivals = if names_rows { self.late_rows(logged, own)? } else { Vec::new() };
        Ok(Explanation { arrivals, ..Explanation::of(DifferenceCause::LateRow) })
    }

    /// Says why the same request over the rows that it saw has another answer now.
    fn explain_known(&self, logged: &LoggedAnswer) -> Explanation {
        if logged.definition != self.definition {
            return Explanation::of(DifferenceCause::ChangedDeployment);
        }
        if logged.version != VERSION {
            return Explanation::of(DifferenceCause::ChangedFunction);
        }
        let deleted = self.tables.that_deleted();
        if !deleted.is_empty() {
            let explanation = Explanation::of(DifferenceCause::Deleted);
            return Explanation { lacking: deleted, ..explanation };
        }
        let expired = self.tables.that_lost_expired(logged.answered_ms);
        if !expired.is_empty() {
            let explanation = Explanation::of(DifferenceCause::Expired);
            return Explanation { lacking: expired, ..explanation };
        }
        Explanation::of(DifferenceCause::Unexplained)
    }

    /// Finds rows that arrived after the request and changed its answer, the first ones. For each, one with
    /// the answer before it and another answer with it, by halving the arrivals between.
    fn late_rows(&mut self, logged: &LoggedAnswer, own: Option<u64>) -> Result<Vec<u64>> {
        let last = self.at(logged, own, self.end)?;
        let mut low = logged.seen.iter().map(|(_, arrival)| *arrival).min().unwrap_or(0);
        let mut current = self.at(logged, own, low)?;
        let mut found = Vec::new();
        while found.len() < ROWS_MAX && !is_same(&current, &last) {
            let mut high = self.end;
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match is_same(&self.at(logged, own, middle)?, &current) {
                    true => low = middle,
                    false => high = middle,
                }
            }
            debug_assert_eq!(high, low + 1, "one row is between");
            found.push(low);
            low = high;
            current = self.at(logged, own, high)?;
        }
        Ok(found)
    }

    /// Answers over the rows that the request saw, by a time.
    fn known(&mut self, logged: &LoggedAnswer, now_ms: i64) -> Result<AnswerValues> {
        self.tables.go_to_each(now_ms, |id| logged.seen_of(id));
        self.answer(logged)
    }

    /// Answers over the rows that the request saw and those before an arrival, by the time of now.
    fn at(
        &mut self,
        logged: &LoggedAnswer,
        own: Option<u64>,
        arrival: u64,
    ) -> Result<AnswerValues> {
        self.tables.go_to_each(i64::MAX, |id| logged.seen_of(id).max(arrival));
        match own {
            Some(own) if own < arrival => self.replay(logged, own),
            _ => self.answer(logged),
        }
    }

    /// Answers the request over the tables as they are cut.
    fn answer(&mut self, logged: &LoggedAnswer) -> Result<AnswerValues> {
        let arena = Arena::new();
        let request = data_of(&logged.request, &arena);
        let mut found = None;
        self.answers.answer(&request, self.tables.moment(), &mut |row| {
            debug_assert!(found.is_none(), "a request has one answer at most");
            found = Some(row.iter().map(Datum::to_value).collect());
        })?;
        Ok(found)
    }

    /// Answers for the stored row over the tables as they are cut.
    fn replay(&self, logged: &LoggedAnswer, own: u64) -> Result<AnswerValues> {
        let arena = Arena::new();
        let request = data_of(&logged.request, &arena);
        let options = self.tables.execute_options();
        let mut run = |plan: &_| lockstep_batch::execute(plan, &self.tables, &options);
        let snapshots = self.tables.moment().snapshots.to_vec();
        let program = self.program.for_replay(&mut run)?;
        let mut replay = program.over(snapshots)?.without_nodes();
        let answer = replay.answer(&request, own, &arena)?;
        Ok(answer.map(|row| row.iter().map(Datum::to_value).collect()))
    }
}

/// Checks that what a logged answer saw are the tables of a program.
pub(super) fn check_seen(program: &Program, logged: &LoggedAnswer) -> Result<()> {
    if program.tables().all(|(id, _)| logged.seen.iter().any(|(seen, _)| *seen == id)) {
        return Ok(());
    }
    let message = format!("answer {} does not say what it saw of each table", logged.number);
    Diagnostic::new(lockstep_diagnostic::code::DATA_CORRUPTED, message)
        .with_detail("The column `seen` has for each table its id, and an arrival.")
        .err()
}

/// Returns whether two answers are the same, to the bit.
pub(super) fn is_same(left: &AnswerValues, right: &AnswerValues) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => {
            let arena = Arena::new();
            debug_assert_eq!(left.len(), right.len(), "answers of one deployment");
            let mut values = left.iter().zip(right);
            values.all(|(l, r)| l.as_datum(&arena).is_bit_equal(&r.as_datum(&arena)))
        }
        _ => false,
    }
}

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

/// Why values of an answer differ.
pub(super) struct Explanation {
    /// The columns of the answer for which this is why.
    pub(super) columns: Vec<bool>,
    pub(super) cause: DifferenceCause,
    /// The arrivals of rows that made the difference.
    pub(super) arrivals: Vec<u64>,
    /// The ids of the tables that lack rows.
    pub(super) lacking: Vec<u64>,
}

impl Explanation {
    fn of(cause: DifferenceCause, columns: &[bool]) -> Self {
        Self { columns: columns.to_vec(), cause, arrivals: Vec::new(), lacking: Vec::new() }
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

    /// Says why the answer of a training set, `rebuilt`, differs from the logged one in some of these columns;
    /// late rows are looked for where `names_rows` is set.
    pub(super) fn explain(
        &mut self,
        logged: &LoggedAnswer,
        rebuilt: (&AnswerValues, Option<u64>),
        columns: &[bool],
        names_rows: bool,
    ) -> Result<Vec<Explanation>> {
        let (rebuilt, own) = rebuilt;
        debug_assert!(!is_same(rebuilt, &logged.answer, columns), "what is explained differs");
        let known = self.known(logged, logged.answered_ms)?;
        let (Some(answered), Some(now), Some(then)) = (&logged.answer, rebuilt, &known) else {
            return Ok(vec![match is_same(&known, &logged.answer, columns) {
                true => self.explain_since(logged, own, columns, names_rows)?,
                false => self.explain_known(logged, columns),
            }]);
        };
        let differ = columns_that_differ(answered, now, columns);
        // The program answers them otherwise over the rows that the request saw; the rest it does not.
        let otherwise = columns_that_differ(answered, then, &differ);
        let rest = differ.iter().zip(&otherwise).map(|(differs, other)| *differs && !other);
        let rest: Vec<bool> = rest.collect();
        let mut found = Vec::new();
        if otherwise.contains(&true) {
            found.push(self.explain_known(logged, &otherwise));
        }
        if rest.contains(&true) {
            found.push(self.explain_since(logged, own, &rest, names_rows)?);
        }
        Ok(found)
    }

    /// Says why an answer that was right over the rows that it saw differs from that of a training set.
    fn explain_since(
        &mut self,
        logged: &LoggedAnswer,
        own: Option<u64>,
        columns: &[bool],
        names_rows: bool,
    ) -> Result<Explanation> {
        // Over the same rows, by the time of now.
        let now = self.known(logged, i64::MAX)?;
        if !is_same(&now, &logged.answer, columns) {
            let lacking = self.tables.that_expired_since(logged.answered_ms);
            return Ok(Explanation {
                lacking,
                ..Explanation::of(DifferenceCause::Expired, columns)
            });
        }
        let arrivals = if names_rows { self.late_rows(logged, own, columns)? } else { Vec::new() };
        Ok(Explanation { arrivals, ..Explanation::of(DifferenceCause::LateRow, columns) })
    }

    /// Says why the same request over the rows that it saw has another answer now.
    fn explain_known(&self, logged: &LoggedAnswer, columns: &[bool]) -> Explanation {
        let of = |cause| Explanation::of(cause, columns);
        if logged.definition != self.definition {
            return of(DifferenceCause::ChangedDeployment);
        }
        if logged.version != VERSION {
            return of(DifferenceCause::ChangedFunction);
        }
        let deleted = self.tables.that_deleted();
        if !deleted.is_empty() {
            return Explanation { lacking: deleted, ..of(DifferenceCause::Deleted) };
        }
        let expired = self.tables.that_lost_expired(logged.answered_ms);
        if !expired.is_empty() {
            return Explanation { lacking: expired, ..of(DifferenceCause::Expired) };
        }
        of(DifferenceCause::Unexplained)
    }

    /// Finds rows that arrived after the request and changed these columns of its answer, the first ones.
    /// For each, one with the answer before it and another answer with it, by halving the arrivals between.
    fn late_rows(
        &mut self,
        logged: &LoggedAnswer,
        own: Option<u64>,
        columns: &[bool],
    ) -> Result<Vec<u64>> {
        let last = self.at(logged, own, self.end)?;
        let mut low = logged.seen.iter().map(|(_, arrival)| *arrival).min().unwrap_or(0);
        let mut current = self.at(logged, own, low)?;
        let mut found = Vec::new();
        while found.len() < ROWS_MAX && !is_same(&current, &last, columns) {
            let mut high = self.end;
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match is_same(&self.at(logged, own, middle)?, &current, columns) {
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
    let message =
        format!("answer {} does not record which rows of each table it read", logged.number);
    Diagnostic::new(lockstep_diagnostic::code::DATA_CORRUPTED, message)
        .with_detail("Column `seen` must contain the id of each table and an arrival.")
        .err()
}

/// Returns whether two answers are the same in these columns, to the bit.
pub(super) fn is_same(left: &AnswerValues, right: &AnswerValues, columns: &[bool]) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => !columns_that_differ(left, right, columns).contains(&true),
        _ => false,
    }
}

/// Returns which of these columns differ, in at least one bit.
fn columns_that_differ(left: &[Value], right: &[Value], columns: &[bool]) -> Vec<bool> {
    let arena = Arena::new();
    debug_assert_eq!(left.len(), right.len(), "answers of one deployment");
    debug_assert_eq!(left.len(), columns.len(), "one for each column");
    let differs = |(left, right): (&Value, &Value)| {
        !left.as_datum(&arena).is_bit_equal(&right.as_datum(&arena))
    };
    let values = left.iter().zip(right).zip(columns);
    values.map(|(values, is_compared)| *is_compared && differs(values)).collect()
}

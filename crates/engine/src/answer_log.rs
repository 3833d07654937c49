//! The log of answers: what requests to a deployment were, what they saw, and how they were answered.
//!
//! DEPLOY with the option `log_answers` names a table, which is made where there is none. Each request adds
//! a row to it ([`columns`] has the columns). VERIFY DEPLOYMENT … AGAINST ANSWERS takes the rows and
//! computes the answers again ([`verification`]), as a training set has them. (ADR 0045)
//!
//! *Cost*: an append for each request, which waits for nothing: it is as durable as the options of the table
//! say, or else `memory`. A request whose row cannot be added is answered all the same, and counted.

mod cause;
mod columns;
mod own_rows;
mod rebuild;
mod report;
mod verification;

use std::{
    fmt::{self, Write},
    sync::atomic::{AtomicU64, Ordering},
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::Datum;
use lockstep_table::{Durability, Snapshot};

pub(crate) use columns::{AnswerColumns, schema_of_answers};
pub(crate) use report::{AnswerDifference, AnswerVerification};
pub(crate) use verification::verify_answers;

use crate::{
    append::table_error, catalog::TableEntry, deployment::QuerySource,
    prepared_request::PreparedRequest,
};

/// The version of the program that answers.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The table to which the answers of a deployment are added.
pub(crate) struct AnswerLog {
    entry: TableEntry,
    columns: AnswerColumns,
    /// What the deployment says, in short; see [`fingerprint`].
    definition: String,
    /// The number of columns of the table; a table with other columns has another log.
    width: usize,
    not_logged: AtomicU64,
}

/// What a request saw: a moment of each table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeenTables {
    /// For each table its id, and the arrival before which rows were seen; as text, `id:arrival id:arrival`.
    pub(crate) text: String,
    /// The time by which rows had expired, in milliseconds since the epoch.
    pub(crate) now_ms: i64,
}

impl SeenTables {
    /// Notes what snapshots of tables with these ids show.
    pub(crate) fn of(ids: impl Iterator<Item = u64>, snapshots: &[Snapshot<'_>]) -> Self {
        let mut seen = Self::default();
        for (id, snapshot) in ids.zip(snapshots) {
            let separator = if seen.text.is_empty() { "" } else { " " };
            // A text takes what is written to it.
            let _written = write!(seen.text, "{separator}{id}:{}", snapshot.visible_arrival());
            seen.now_ms = seen.now_ms.max(snapshot.now_ms());
        }
        seen
    }

    /// Reads the text again: ids with their arrivals. `None` where it is none of ours.
    pub(crate) fn parse(text: &str) -> Option<Vec<(u64, u64)>> {
        let pair = |part: &str| {
            let (id, arrival) = part.split_once(':')?;
            Some((id.parse().ok()?, arrival.parse().ok()?))
        };
        text.split_ascii_whitespace().map(pair).collect()
    }
}

impl AnswerLog {
    /// Makes the log of a request's answers in a table, which must have its columns.
    pub(crate) fn new(
        entry: TableEntry,
        request: &PreparedRequest,
        source: &QuerySource,
    ) -> Result<Self> {
        let columns = AnswerColumns::locate(&entry, request)?;
        let width = entry.table.schema().columns.len();
        let definition = fingerprint(source);
        Ok(Self { entry, columns, definition, width, not_logged: AtomicU64::new(0) })
    }

    /// Adds an answer; `None` is that of a request without a row. Adds nothing once the table was replaced:
    /// the deployment was then replaced, too, and the request is answered again.
    pub(crate) fn add(
        &self,
        request: &[Datum<'_>],
        seen: &SeenTables,
        answer: Option<&[Datum<'_>]>,
    ) {
        let durability = self.entry.options.durability().unwrap_or(Durability::Memory);
        let added = self.entry.write_as(Some(durability), |table| {
            let row = self.row(request, seen, answer);
            table.append([row]).map_err(|error| table_error(&error))
        });
        if let Err(error) = added
            && error.code != code::STALE_DEFINITION
        {
            // Relaxed: the number itself is all that is shared.
            if self.not_logged.fetch_add(1, Ordering::Relaxed) == 0 {
                let table = &self.entry.definition.name().name;
                let text = format!("could not log answers to table `{table}`: {}", error.message);
                lockstep_host::log::warn(&text);
            }
        }
    }

    /// Returns how many answers could not be added.
    pub(crate) fn not_logged(&self) -> u64 {
        // Relaxed: as above.
        self.not_logged.load(Ordering::Relaxed)
    }

    /// Makes the row; columns that are not of answers are NULL.
    fn row<'a>(
        &'a self,
        request: &[Datum<'a>],
        seen: &'a SeenTables,
        answer: Option<&[Datum<'a>]>,
    ) -> Vec<Datum<'a>> {
        let fixed = [
            Datum::Timestamp(seen.now_ms),
            Datum::String(&self.definition),
            Datum::String(VERSION),
            Datum::String(&seen.text),
            Datum::Bool(answer.is_some()),
        ];
        let mut row = vec![Datum::Null; self.width];
        self.columns.write(&mut row, fixed, request, answer.unwrap_or_default());
        row
    }
}

impl fmt::Debug for AnswerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerLog")
            .field("table", &self.entry.table)
            .field("not_logged", &self.not_logged())
            .finish_non_exhaustive()
    }
}

/// Returns a short text that differs where what a deployment says differs: the FNV-1a hash of its query and
/// of the settings on which the meaning of the query depends (Fowler, Noll, Vo).
pub(crate) fn fingerprint(source: &QuerySource) -> String {
    let QuerySource { sql, current_database, compatibility, time_zone, indexes: _, owner: _ } =
        source;
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for part in [sql, current_database, compatibility, time_zone] {
        // A byte that no text has ends each.
        for byte in part.bytes().chain([0xFF]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    format!("{hash:016x}")
}

/// Makes the error for a deployment whose answers cannot be logged.
pub(crate) fn not_logged(reason: &str) -> Diagnostic {
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "cannot log the answers of this deployment")
        .with_detail(reason)
}

#[cfg(test)]
mod tests {
    use super::{SeenTables, fingerprint};
    use crate::deployment::QuerySource;

    fn source(sql: &str, database: &str) -> QuerySource {
        QuerySource {
            sql: sql.to_owned(),
            current_database: database.to_owned(),
            compatibility: "standard".to_owned(),
            time_zone: "UTC".to_owned(),
            indexes: Vec::new(),
            owner: None,
        }
    }

    #[test]
    fn another_query_or_database_has_another_fingerprint() {
        let first = fingerprint(&source("SELECT a FROM t", "db"));
        assert_eq!(first, fingerprint(&source("SELECT a FROM t", "db")));
        assert_ne!(first, fingerprint(&source("SELECT b FROM t", "db")));
        assert_ne!(first, fingerprint(&source("SELECT a FROM t", "other")));
        assert_ne!(fingerprint(&source("ab", "c")), fingerprint(&source("a", "bc")));
    }

    #[test]
    fn what_was_seen_is_read_again() {
        assert_eq!(SeenTables::parse("3:21 7:0"), Some(vec![(3, 21), (7, 0)]));
        assert_eq!(SeenTables::parse(""), Some(Vec::new()));
        assert_eq!(SeenTables::parse("3"), None);
        assert_eq!(SeenTables::parse("a:1"), None);
    }
}

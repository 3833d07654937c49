//! As-known training sets: each row of a main table is answered as a request over the rows that were known
//! before it.
//!
//! *Life of one*: the query is compiled, or the program of a deployment is taken; snapshots of all
//! tables are taken at one moment; then the rows of the main table are read in order, the snapshots are cut
//! for each, and the answers are passed on batch by batch. [`arrival`] knows rows by the positions at
//! which they arrived, [`column`] by an ingestion time that they carry. (ADR 0040)
//!
//! *Cost*: a request for each row of the main table, on as many threads as the machine runs. The snapshots
//! are held until it ends, so the memory of rows that are removed meanwhile is freed only then.

mod answers;
mod arrival;
mod column;
mod moments;

use std::{ops::Range, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_sql::ast::{Ident, KnownAt, Query, RowLimit, SetExpr};

pub(crate) use arrival::ArrivalRun;
pub(crate) use column::ColumnRun;
pub(crate) use moments::{KnownTables, SharedTables};

use answers::{KnownRun, Requests};

use crate::{PreparedRequest, catalog::TableEntry};

/// How the rows of a query are known.
#[derive(Debug, Clone)]
pub(crate) struct KnownQuery {
    pub(crate) by: KnownBy,
    /// OFFSET and LIMIT, which are about the result and not about each answer.
    pub(crate) range: ResultRange,
    /// The position of the clause.
    pub(crate) span: Span,
    /// The deployment whose program answers; `None` where the query is compiled.
    pub(crate) deployed: Option<DeployedRequests>,
}

/// What says when a row was known.
#[derive(Debug, Clone)]
pub(crate) enum KnownBy {
    /// Its arrival.
    Arrival,
    /// A column.
    Column(Ident),
}

/// The rows of a result that are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResultRange {
    pub(crate) skipped: u64,
    pub(crate) rows_max: Option<u64>,
}

impl ResultRange {
    /// Takes so many rows, and returns those of them that are wanted.
    fn take(&mut self, rows: usize) -> Range<usize> {
        let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(rows);
        let most =
            self.rows_max.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let taken = (rows - skipped).min(most);
        self.skipped -= skipped as u64;
        self.rows_max = self.rows_max.map(|most| most - taken as u64);
        skipped..skipped + taken
    }
}

/// The program of a deployment, and the table whose rows are its requests.
#[derive(Debug, Clone)]
pub(crate) struct DeployedRequests {
    pub(crate) request: Arc<PreparedRequest>,
    /// `None` for the deployment's own table.
    pub(crate) table: Option<TableEntry>,
}

impl KnownQuery {
    /// Reads AS KNOWN AT of a query. Returns it with the query that each row is answered with.
    pub(crate) fn of(query: &Query) -> Result<Option<(Self, Query)>> {
        let Some(KnownAt { column, span }) = &query.known_at else { return Ok(None) };
        let refusal = match &query.body {
            _ if !query.order_by.is_empty() => Some("ORDER BY"),
            SetExpr::Select(select) if select.distinct => Some("DISTINCT"),
            SetExpr::Union { .. } => Some("UNION"),
            _ => None,
        };
        if let Some(clause) = refusal {
            let message = format!("{clause} with AS KNOWN AT is not supported");
            return Diagnostic::unsupported(message)
                .at(*span)
                .with_detail("The query is evaluated for each row of its first table, in order.")
                .with_hint("Store the result in a table or a file, and query that.")
                .err();
        }
        let count = |limit: &RowLimit| limit.count;
        let range = ResultRange {
            skipped: query.offset.as_ref().map_or(0, count),
            rows_max: query.limit.as_ref().map(count),
        };
        let by = column.clone().map_or(KnownBy::Arrival, KnownBy::Column);
        let plain = Query { known_at: None, limit: None, offset: None, ..query.clone() };
        Ok(Some((Self { by, range, span: *span, deployed: None }, plain)))
    }

    /// Fails where a query that is compiled for requests has AS KNOWN AT.
    pub(crate) fn refuse(query: &Query) -> Result<()> {
        let Some(known_at) = &query.known_at else { return Ok(()) };
        Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "a request cannot use AS KNOWN AT")
            .at(known_at.span)
            .with_detail("A request reads all rows that have arrived.")
            .with_hint("Use AS KNOWN AT in a SELECT in batch mode.")
            .err()
    }

    /// Makes the error for a query that answers the requests of its CONFIG, or reads offline data.
    pub(crate) fn not_online(&self) -> Diagnostic {
        Diagnostic::unsupported("AS KNOWN AT requires execute_mode 'online'").at(self.span).with_hint(
            "Offline data has no arrivals: name the files in FROM, and a column after AS KNOWN AT.",
        )
    }

    /// Describes it for EXPLAIN.
    pub(crate) fn describe(&self) -> String {
        match &self.by {
            KnownBy::Arrival => "as known at arrival".to_owned(),
            KnownBy::Column(column) => format!("as known at `{}`", column.text),
        }
    }
}

/// Makes the error for a result, or for copies of tables, above the memory of the call.
pub(crate) fn does_not_fit() -> Diagnostic {
    Diagnostic::new(code::OUT_OF_MEMORY, "the query needs more memory than it may use")
        .with_kind(Kind::FreeResources)
        .with_hint("Raise memory_limit (0 means no limit), or write the result with INTO OUTFILE.")
}

//! A sink: rows of a table become messages of a topic ([`topic`]) or rows of files ([`files`]).

pub(super) mod files;
pub(super) mod topic;

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_table::{TableTail, TailError, TailOptions, TailSignal};

use super::Connector;
use crate::Database;

/// So many rows are read together, and are in a transaction, at most.
const ROWS_AT_ONCE: usize = 10_000;
/// About so many bytes of rows are read together at most.
const BYTES_AT_ONCE: usize = 8 << 20;
/// How many bytes of rows are kept for a sink that were removed before it has written them.
const HELD_BYTES_MAX: u64 = 256 << 20;

/// Follows the table of a sink from a row on.
fn tail_of(
    sink: &Connector,
    database: &Database,
    from: u64,
    signal: &Arc<TailSignal>,
) -> Result<TableTail> {
    let table = Arc::clone(&database.objects().entry(&sink.table)?.table);
    let options = TailOptions { from: Some(from), limit_bytes: HELD_BYTES_MAX };
    Ok(table.tail(options, signal))
}

/// Makes the error of rows that cannot be read.
fn not_read(sink: &Connector, error: &TailError) -> Box<Diagnostic> {
    let table = &sink.table.name;
    let diagnostic = match error {
        TailError::Lost { .. } => {
            let message = format!("rows of table `{table}` were removed before they were written");
            Diagnostic::new(code::UNDEFINED_OBJECT, message)
                .with_kind(Kind::FixData)
                .with_hint("START SINK continues with the rows that the table has.")
        }
        TailError::Read(_) => {
            let message = format!("the rows of table `{table}` cannot be followed");
            Diagnostic::new(code::IO_ERROR, message).with_kind(Kind::Retry)
        }
    };
    Box::new(diagnostic.with_detail(format!("{error}.")))
}

//! The columns of a table to which rows are appended.
//!
//! Front ends read rows by them before the engine sees the append, so that a caller without the privilege
//! is refused here first.

use lockstep_diagnostic::{Result, code};
use lockstep_engine::Session;
use lockstep_row::DataType;

/// Returns the columns of a table. Whoever may not see the table is told what an append needs: to look at
/// a table takes any privilege.
pub(crate) fn append_columns(session: &Session, table: &str) -> Result<Vec<(String, DataType)>> {
    session.table_columns(table).map_err(|mut error| {
        if error.code == code::INSUFFICIENT_PRIVILEGE {
            error.message = error.message.replace("any privilege", "INSERT");
            let detail = error.detail.take();
            error.detail = detail.map(|detail| detail.replace("any privilege", "INSERT"));
            let hint = error.hint.take();
            error.hint = hint.map(|hint| hint.replacen("GRANT SELECT", "GRANT INSERT", 1));
        }
        error
    })
}

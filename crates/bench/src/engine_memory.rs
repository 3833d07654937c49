//! What Lockstep's tables take, by its own account.

use lockstep_engine::Session;
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use crate::error::Result;

/// Bytes that these tables of the current database take, as SHOW TABLE STATUS states them.
pub(crate) fn memory_bytes(session: &Session, tables: &[String]) -> Result<u64> {
    let output = session.execute("SHOW TABLE STATUS")?;
    let arena = Arena::new();
    let mut total = 0;
    for batch in &output.batches {
        let column = |name: &str| {
            let array = batch.column_by_name(name).expect("SHOW TABLE STATUS has this column");
            ColumnReader::new(array.as_ref())
        };
        let (names, bytes) = (column("Table_name"), column("Memory_data_size"));
        for row in 0..batch.num_rows() {
            let name = names.get(row, &arena);
            if tables.iter().any(|table| name == Datum::String(table)) {
                let bytes = bytes.get(row, &arena).as_i64().unwrap_or_default();
                total += u64::try_from(bytes).unwrap_or_default();
            }
        }
    }
    Ok(total)
}

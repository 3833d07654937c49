//! The memory of Lockstep's tables, as Lockstep itself states it.

use lockstep_engine::Session;
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use crate::error::Result;

/// Returns the bytes of the given tables of the current database, as SHOW TABLE STATUS states them.
pub(crate) fn memory_bytes(session: &Session, tables: &[String]) -> Result<u64> {
    memory_and_rows(session, tables).map(|(bytes, _)| bytes)
}

/// Returns the bytes and the rows of the given tables.
pub(crate) fn memory_and_rows(session: &Session, tables: &[String]) -> Result<(u64, u64)> {
    let output = session.execute("SHOW TABLE STATUS")?;
    let arena = Arena::new();
    let (mut bytes, mut rows) = (0, 0);
    for batch in &output.batches {
        let column = |name: &str| {
            let array = batch.column_by_name(name).expect("SHOW TABLE STATUS has this column");
            ColumnReader::new(array.as_ref())
        };
        let names = column("Table_name");
        let numbers = [column("Memory_data_size"), column("Rows")];
        for row in 0..batch.num_rows() {
            let name = names.get(row, &arena);
            if tables.iter().any(|table| name == Datum::String(table)) {
                let number = |reader: &ColumnReader<'_>| {
                    let number = reader.get(row, &arena).as_i64().unwrap_or_default();
                    u64::try_from(number).unwrap_or_default()
                };
                bytes += number(&numbers[0]);
                rows += number(&numbers[1]);
            }
        }
    }
    Ok((bytes, rows))
}

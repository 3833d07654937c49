//! SHOW MEMORY and ESTIMATE: what tables hold, and what one will hold.
//!
//! `session` and `show` call it. The limit itself is set with SET GLOBAL (`settings`) and kept by
//! the tables (`lockstep_table::MemoryBudget`).

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Projection, TableSchema, Value};
use lockstep_sql::ast::Estimate;
use lockstep_table::{TableMemory, TableShape, estimate};

use crate::{Output, Session, show::values};

/// The columns of SHOW MEMORY.
const MEMORY: &[(&str, DataType)] = &[
    ("Scope", DataType::String),
    ("Name", DataType::String),
    ("Memory_bytes", DataType::BigInt),
    ("Max_memory", DataType::BigInt),
    ("Alert_at", DataType::BigInt),
    ("Status", DataType::String),
    ("Writes_refused", DataType::BigInt),
];

/// The columns of ESTIMATE.
const ESTIMATE: &[(&str, DataType)] = &[
    ("Scope", DataType::String),
    ("Name", DataType::String),
    ("Memory_bytes", DataType::BigInt),
    ("Bytes_per_row", DataType::Double),
];

/// More is not estimated: rows, and bytes of a STRING.
const ROWS_MAX: u64 = 1_000_000_000_000;
const TEXT_BYTES_MAX: u64 = 1_000_000;
/// The bytes of a STRING when nothing is said about it.
const TEXT_BYTES_DEFAULT: u64 = 16;

impl Session {
    /// SHOW MEMORY: the engine as a whole, then each table of every database with its parts.
    pub(crate) fn memory(&self) -> Result<Output> {
        let now = self.database.memory_use();
        let mut rows = vec![vec![
            text("engine"),
            Value::Null,
            number(now.used),
            now.limit.map_or(Value::Null, number),
            now.alert_at.map_or(Value::Null, number),
            text(&now.status().to_string()),
            number(now.refused),
        ]];
        for (database, found) in self.database.objects().databases() {
            for (name, entry) in &found.tables {
                let name = format!("{database}.{name}");
                let held = entry.table.memory();
                for part in parts(&name, &entry.table.schema(), &held) {
                    rows.push(
                        part.into_iter().chain(std::iter::repeat_n(Value::Null, 4)).collect(),
                    );
                }
            }
        }
        values(MEMORY, &rows)
    }

    /// ESTIMATE TABLE: what a table will hold with so many rows, its indexes including what they
    /// include now.
    pub(crate) fn estimate(&self, wanted: &Estimate) -> Result<Output> {
        let text_bytes = wanted.text_bytes.unwrap_or(TEXT_BYTES_DEFAULT);
        if wanted.rows == 0 || wanted.rows > ROWS_MAX || text_bytes > TEXT_BYTES_MAX {
            let message = "an estimate is for 1 to 10^12 rows with texts of at most 10^6 bytes";
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(wanted.span).err();
        }
        let table = self.find_table(&wanted.table)?;
        let snapshot = table.snapshot();
        let schema = snapshot.schema();
        let record_size = |index| snapshot.projection(index).map_or(0, Projection::size);
        let shape = TableShape {
            rows: wanted.rows,
            keys: wanted.keys.clone(),
            text_bytes,
            record_sizes: (0..schema.indexes.len()).map(record_size).collect(),
        };
        let name = match &wanted.table.database {
            Some(database) => format!("{}.{}", database.text, wanted.table.name.text),
            None => format!("{}.{}", self.current_database(), wanted.table.name.text),
        };
        let rows: Vec<Vec<Value>> = parts(&name, schema, &estimate(schema, &shape))
            .into_iter()
            .map(|mut part| {
                let bytes = part[2].as_scalar().and_then(|bytes| bytes.as_f64()).unwrap_or(0.0);
                let rows = number(wanted.rows).as_scalar().and_then(|rows| rows.as_f64());
                // Tenths are all that an estimate is good for.
                let per_row = (bytes / rows.unwrap_or(1.0) * 10.0).round() / 10.0;
                part.push(Value::Double(per_row));
                part
            })
            .collect();
        values(ESTIMATE, &rows)
    }
}

/// The scope, name and bytes of a table and of what it is made of.
fn parts(name: &str, schema: &TableSchema, held: &TableMemory) -> Vec<Vec<Value>> {
    let row = |scope: &str, name: &str, bytes: u64| vec![text(scope), text(name), number(bytes)];
    let mut rows = vec![row("table", name, held.total()), row("rows", name, held.rows)];
    let indexes = schema.indexes.iter().zip(&held.indexes);
    for (spec, bytes) in indexes.filter(|(spec, _)| !spec.is_removed()) {
        rows.push(row("index", &format!("{name}.{}", spec.name), *bytes));
    }
    rows
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn number(count: u64) -> Value {
    Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX))
}

//! SHOW MEMORY and ESTIMATE: the memory that tables hold, and that a table will hold.
//!
//! The limit is the variable `max_memory`; the tables enforce it (`lockstep_table::MemoryBudget`).

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Projection, TableSchema, Value};
use lockstep_sql::ast::Estimate;
use lockstep_table::{TableMemory, TableShape, estimate};

use crate::{Output, Session, catalog::QualifiedName};

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

/// The most rows of an estimate.
const ROWS_MAX: u64 = 1_000_000_000_000;
/// The most bytes of a STRING in an estimate.
const TEXT_BYTES_MAX: u64 = 1_000_000;
/// The bytes of a STRING where the statement does not say.
const TEXT_BYTES_DEFAULT: u64 = 16;

impl Session {
    /// Runs SHOW MEMORY: the engine as a whole, then each table of every database with its parts.
    pub(crate) fn show_memory(&self) -> Result<Output> {
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
        let pages = self.database.page_cache();
        if pages.bytes > 0 {
            let (bytes, limit) = (number(pages.bytes), number(pages.limit));
            let mut row = vec![text("page cache"), Value::Null, bytes, limit];
            row.resize(MEMORY.len(), Value::Null);
            rows.push(row);
        }
        for (database, found) in self.database.objects().databases() {
            for (name, entry) in &found.tables {
                let name = format!("{database}.{name}");
                let memory = entry.table.memory();
                for part in memory_parts(&name, &entry.table.schema(), &memory) {
                    let values = part.values().into_iter();
                    rows.push(values.chain(std::iter::repeat_n(Value::Null, 4)).collect());
                }
            }
        }
        Output::of_values(MEMORY, &rows)
    }

    /// Runs ESTIMATE TABLE: the memory of a table with a given number of rows, its indexes
    /// including the columns that they include now, with the pre-aggregates of its deployments.
    pub(crate) fn estimate(&self, statement: &Estimate) -> Result<Output> {
        let text_bytes = statement.text_bytes.unwrap_or(TEXT_BYTES_DEFAULT);
        if statement.rows == 0 || statement.rows > ROWS_MAX || text_bytes > TEXT_BYTES_MAX {
            let message = "ESTIMATE requires 1 to 10^12 rows and strings of at most 10^6 bytes";
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(statement.span).err();
        }
        let table = self.find_table(&statement.table)?;
        let snapshot = table.snapshot();
        let schema = snapshot.schema();
        let record_size = |index| snapshot.projection(index).map_or(0, Projection::size);
        let shape = TableShape {
            rows: statement.rows,
            keys: statement.keys.clone(),
            text_bytes,
            record_sizes: (0..schema.indexes.len()).map(record_size).collect(),
        };
        let name = match &statement.table.database {
            Some(database) => format!("{}.{}", database.text, statement.table.name.text),
            None => format!("{}.{}", self.current_database(), statement.table.name.text),
        };
        let mut parts = memory_parts(&name, schema, &estimate(schema, &shape));
        let of_deployments = self.pre_aggregate_parts(&name, schema, &shape);
        parts[0].bytes += of_deployments.iter().map(|part| part.bytes).sum::<u64>();
        parts.extend(of_deployments);
        let rows: Vec<Vec<Value>> = parts
            .into_iter()
            .map(|part| {
                let per_row = Value::Double(part.bytes_per_row(statement.rows));
                part.values().into_iter().chain([per_row]).collect()
            })
            .collect();
        Output::of_values(ESTIMATE, &rows)
    }

    /// Estimates the pre-aggregates over a table of the deployments that the caller sees.
    fn pre_aggregate_parts(
        &self,
        table: &str,
        schema: &TableSchema,
        shape: &TableShape,
    ) -> Vec<MemoryPart> {
        let objects = self.database.objects();
        let all = objects.databases().values().flat_map(|found| found.deployments.values());
        let seen = all.filter(|found| {
            let QualifiedName { database, name } = found.name();
            self.caller().sees_deployment(&objects, database, name)
        });
        let parts = seen.flat_map(|found| {
            let made = found.request.pre_aggregates().iter();
            made.filter(|one| one.name().table == table).map(move |one| MemoryPart {
                scope: "pre-aggregate",
                name: format!("{table}.{}: {}", one.name().index, found.name()),
                bytes: one.estimate(schema, shape),
            })
        });
        parts.collect()
    }
}

/// The memory of a table, of its rows, or of one of its indexes.
struct MemoryPart {
    scope: &'static str,
    name: String,
    bytes: u64,
}

impl MemoryPart {
    fn values(&self) -> [Value; 3] {
        [text(self.scope), text(&self.name), number(self.bytes)]
    }

    /// Returns the bytes of a row, to a tenth: an estimate is not more exact.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn bytes_per_row(&self, rows: u64) -> f64 {
        debug_assert!(rows > 0, "an estimate is for one row at least");
        (self.bytes as f64 / rows as f64 * 10.0).round() / 10.0
    }
}

/// Returns the memory of a table, of its rows and of each index.
fn memory_parts(name: &str, schema: &TableSchema, memory: &TableMemory) -> Vec<MemoryPart> {
    let part = |scope, name: &str, bytes| MemoryPart { scope, name: name.to_owned(), bytes };
    let mut parts = vec![part("table", name, memory.total()), part("rows", name, memory.rows)];
    let indexes = schema.indexes.iter().zip(&memory.indexes);
    for (spec, bytes) in indexes.filter(|(spec, _)| !spec.is_removed()) {
        parts.push(part("index", &format!("{name}.{}", spec.name), *bytes));
    }
    if memory.parts > 0 {
        parts.push(part("files", name, memory.parts));
    }
    parts
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn number(count: u64) -> Value {
    Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX))
}

//! SHOW MEMORY and ESTIMATE: the memory that tables hold, and what a table will take in memory and in files.
//!
//! The limit is the variable `max_memory`; the tables enforce it (`lockstep_table::MemoryBudget`).

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::memory;
use lockstep_row::{DataType, IndexSpec, Projection, TableSchema, Value};
use lockstep_sql::ast::Estimate;
use lockstep_table::{
    PartEstimate, Snapshot, Table, TableMemory, TableShape, estimate, estimate_on_disk,
};

use crate::{Output, Session, catalog::QualifiedName, statement::StorageMode};

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
    ("File_bytes", DataType::BigInt),
    ("Memory_bytes_on_disk", DataType::BigInt),
    ("Recommended", DataType::String),
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
        self.database.await_freed_memory();
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

    /// Runs ESTIMATE TABLE: what a table takes in memory and in files with a given number of rows, or with those
    /// that are there; its indexes including the columns that they include now, with the pre-aggregates of
    /// its deployments.
    pub(crate) fn estimate(&self, statement: &Estimate) -> Result<Output> {
        let table = self.find_table(&statement.table)?;
        let snapshot = table.snapshot();
        let schema = snapshot.schema();
        let shape = shape_of(statement, &snapshot)?;
        let name = match &statement.table.database {
            Some(database) => format!("{}.{}", database.text, statement.table.name.text),
            None => format!("{}.{}", self.current_database(), statement.table.name.text),
        };
        let mut parts = memory_parts(&name, schema, &estimate(schema, &shape));
        let of_deployments = self.pre_aggregate_parts(&name, schema, &shape);
        parts[0].bytes += of_deployments.iter().map(|part| part.bytes).sum::<u64>();
        let on_disk = estimate_on_disk(schema, &shape);
        let nodes = of_deployments.iter().map(|part| PartEstimate { files: 0, memory: part.bytes });
        let nodes: Vec<_> = nodes.collect();
        let is_index = |(spec, _): &(&IndexSpec, &PartEstimate)| !spec.is_removed();
        let indexes = schema.indexes.iter().zip(&on_disk.indexes).filter(is_index);
        let mut in_files = vec![on_disk.total(), on_disk.rows];
        in_files[0].memory += nodes.iter().map(|part| part.memory).sum::<u64>();
        in_files.extend(indexes.map(|(_, index)| *index));
        in_files.extend(nodes);
        let recommended = self.recommended_storage(&table, parts[0].bytes).name();
        let recommended = std::iter::once(text(recommended)).chain(std::iter::repeat(Value::Null));
        parts.extend(of_deployments);
        let described = parts.into_iter().zip(in_files).zip(recommended);
        let row = |((part, on_disk), recommended): ((MemoryPart, PartEstimate), Value)| {
            let per_row = Value::Double(part.bytes_per_row(shape.rows));
            let of_files = [number(on_disk.files), number(on_disk.memory)];
            part.values()
                .into_iter()
                .chain([per_row])
                .chain(of_files)
                .chain([recommended])
                .collect()
        };
        let rows: Vec<Vec<Value>> = described.map(row).collect();
        Output::of_values(ESTIMATE, &rows)
    }

    /// Returns where a table is to be that takes so many bytes in memory: there, if it fits beside the others
    /// below the alert threshold; without `max_memory`, into half of what the process may take.
    fn recommended_storage(&self, table: &Table, bytes: u64) -> StorageMode {
        let now = self.database.memory_use();
        let others = now.used.saturating_sub(table.memory().total());
        let limit = now.alert_at.or(now.limit).or(memory::total().map(|total| total / 2));
        match limit {
            Some(limit) if others.saturating_add(bytes) > limit => StorageMode::Disk,
            _ => StorageMode::Memory,
        }
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

/// Returns the sizes that a statement gives, or those of the rows that are there.
fn shape_of(statement: &Estimate, snapshot: &Snapshot<'_>) -> Result<TableShape> {
    let record_size = |index| snapshot.projection(index).map_or(0, Projection::size);
    let record_sizes = (0..snapshot.schema().indexes.len()).map(record_size).collect();
    let stored = match statement.rows {
        Some(_) => None,
        None => Some(TableShape::of_rows(snapshot)?),
    };
    let TableShape { rows, keys, text_bytes, .. } = stored.unwrap_or_else(|| TableShape {
        rows: statement.rows.unwrap_or(0),
        text_bytes: TEXT_BYTES_DEFAULT,
        ..TableShape::default()
    });
    let text_bytes = statement.text_bytes.unwrap_or(text_bytes);
    if rows == 0 && statement.rows.is_none() {
        let message = "ESTIMATE of an empty table requires a number of rows";
        return Diagnostic::new(code::INVALID_PARAMETER, message)
            .at(statement.table.name.span)
            .with_hint("Write ESTIMATE TABLE t ROWS 1000000.")
            .err();
    }
    if rows == 0 || rows > ROWS_MAX || text_bytes > TEXT_BYTES_MAX {
        let message = "ESTIMATE requires 1 to 10^12 rows and strings of at most 10^6 bytes";
        return Diagnostic::new(code::INVALID_PARAMETER, message).at(statement.span).err();
    }
    let keys = if statement.keys.is_empty() { keys } else { statement.keys.clone() };
    Ok(TableShape { rows, keys, text_bytes, record_sizes })
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

//! The reads of a query's stored tables: which rows of which table are decoded, for which scans.
//!
//! `execute` takes the snapshots of all tables together, before anything else runs, and decodes the
//! columns that the query reads. Scans of one table without conditions share one read. A scan whose
//! conditions are the keys of a declared index reads the rows of those keys ([`KeyRead`]), and one
//! whose rows a LIMIT ends reads no further ([`limit_scans`]); these conditions are the filters of
//! the scan, and stay in the operators above it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use datafusion::{
    common::{
        DFSchema, Result,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    execution::{SessionState, memory_pool::MemoryConsumer},
    logical_expr::{
        Expr, FetchType, Limit, LogicalPlan, SkipType, TableScan,
        physical_planning_context::PhysicalPlanningContext,
        utils::{conjunction, split_conjunction},
    },
    physical_expr::{PhysicalExpr, create_physical_expr},
};
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_host::query;
use lockstep_plan::{CatalogTable, KeyRead};
use lockstep_table::{Snapshot, StoredRow, Table};

use crate::{
    StoredTables,
    error::{interrupted, into_datafusion},
    operator::OperatorOptions,
    scan::{DecodeSource, RowsRead, ScanMemory, ScannedTable, projection},
};

/// The part of a table's rows from which on a scan is cheaper than looking the rows up.
const LOOKED_UP_PART: usize = 4;

/// Bounds of the number of rows that are looked up: a few are always, and so many need memory.
const LOOKED_UP_ROWS: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 20;

/// The decoded reads of a query.
#[derive(Debug, Default)]
pub(crate) struct TableReads {
    reads: Vec<(ReadKind, ScannedTable)>,
}

/// The scans that a read is for.
#[derive(Debug, Clone, PartialEq)]
enum ReadKind {
    /// All scans of a table, by its id, that have no read of their own.
    Table(u64),
    /// The scans of a table with these filters and this limit.
    Filtered(u64, Vec<Expr>, Option<usize>),
}

impl ReadKind {
    fn of_filters(table: &CatalogTable, scan: &TableScan) -> Self {
        Self::Filtered(table.id, scan.filters.clone(), scan.fetch)
    }
}

impl TableReads {
    /// Returns the decoded rows of a scan.
    pub(crate) fn find(&self, table: &CatalogTable, scan: &TableScan) -> Option<&ScannedTable> {
        let find = |kind: &ReadKind| self.reads.iter().find(|(known, _)| known == kind);
        let own = find(&ReadKind::of_filters(table, scan));
        own.or_else(|| find(&ReadKind::Table(table.id))).map(|(_, read)| read)
    }
}

/// The scans of a plan that one read serves.
struct WantedRead<'p> {
    kind: ReadKind,
    table: &'p CatalogTable,
    /// One of the scans.
    scan: &'p TableScan,
    columns: BTreeSet<usize>,
    /// The most rows that a scan without filters wants.
    rows_max: Option<usize>,
}

/// Takes the snapshots of the tables that plans read, all before the first one is decoded, and decodes
/// them.
pub(crate) fn read_tables<'p>(
    plans: impl Iterator<Item = &'p LogicalPlan>,
    tables: &dyn StoredTables,
    read_through: &BTreeMap<u64, usize>,
    state: &SessionState,
    operators: &OperatorOptions,
) -> Result<TableReads> {
    let scans = stored_scans(plans)?;
    let mut ids: Vec<u64> = Vec::new();
    for (table, _) in &scans {
        if !ids.contains(&table.id) {
            ids.push(table.id);
        }
    }
    let named = |id: u64| scans.iter().find(|(table, _)| table.id == id).map(|(table, _)| *table);
    let stored = ids.iter().map(|id| match tables.view(*id) {
        Some(_) => Ok(None),
        None => find_table(tables, *id, named(*id)).map(Some),
    });
    let stored = stored.collect::<Result<Vec<_>>>()?;
    let mut taken: Vec<_> =
        stored.iter().map(|table| table.as_ref().map(|table| table.snapshot())).collect();
    Snapshot::align(&mut taken.iter_mut().flatten().collect::<Vec<_>>());
    let mut snapshots = BTreeMap::new();
    for (id, taken) in ids.iter().zip(&taken) {
        if let Some(snapshot) = taken.as_ref().or_else(|| tables.view(*id)) {
            snapshots.insert(*id, (snapshot, read_through.get(id).copied()));
        }
    }
    let reading = Reading { snapshots, state, operators };
    reading.read(&scans)
}

/// Returns the scans of stored tables.
fn stored_scans<'p>(
    plans: impl Iterator<Item = &'p LogicalPlan>,
) -> Result<Vec<(&'p CatalogTable, &'p TableScan)>> {
    let mut scans = Vec::new();
    for plan in plans {
        plan.apply(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Some(table) = CatalogTable::of(scan.source.as_ref())
                && table.source.is_none()
            {
                scans.push((table, scan));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(scans)
}

fn find_table(
    tables: &dyn StoredTables,
    id: u64,
    named: Option<&CatalogTable>,
) -> Result<Arc<Table>> {
    tables.table(id).ok_or_else(|| {
        let name = named.map_or("", |table| table.name.as_str());
        let message = format!("table `{name}` was dropped");
        into_datafusion(Box::new(Diagnostic::new(code::UNDEFINED_TABLE, message)))
    })
}

/// What the reads of one query share.
struct Reading<'s> {
    /// By table id, the snapshot, and the index whose rule decides which rows are visible.
    snapshots: BTreeMap<u64, (&'s Snapshot<'s>, Option<usize>)>,
    state: &'s SessionState,
    operators: &'s OperatorOptions,
}

impl<'s> Reading<'s> {
    /// Decodes what the scans read.
    fn read(&self, scans: &[(&CatalogTable, &TableScan)]) -> Result<TableReads> {
        let mut reads = TableReads::default();
        let mut shared: Vec<WantedRead<'_>> = Vec::new();
        let mut own: Vec<(WantedRead<'_>, RowsRead<'s>)> = Vec::new();
        for (table, scan) in scans.iter().copied() {
            let columns = projection(scan);
            let kind = ReadKind::of_filters(table, scan);
            if let Some((known, _)) = own.iter_mut().find(|(known, _)| known.kind == kind) {
                known.columns.extend(columns);
                continue;
            }
            if let Some(rows) = self.own_rows(table, scan)? {
                let columns = columns.into_iter().collect();
                own.push((WantedRead { kind, table, scan, columns, rows_max: None }, rows));
                continue;
            }
            let fetch = scan.fetch.filter(|_| scan.filters.is_empty());
            match shared.iter_mut().find(|known| known.table.id == table.id) {
                Some(known) => {
                    known.columns.extend(columns);
                    known.rows_max = known.rows_max.zip(fetch).map(|(one, other)| one.max(other));
                }
                None => {
                    let kind = ReadKind::Table(table.id);
                    let columns = columns.into_iter().collect();
                    shared.push(WantedRead { kind, table, scan, columns, rows_max: fetch });
                }
            }
        }
        for wanted in shared {
            let found = self.snapshots.get(&wanted.table.id);
            let Some((snapshot, kept_by)) = found.copied() else { continue };
            let (source, rows_max) = (DecodeSource::Scan(snapshot, kept_by), wanted.rows_max);
            reads.reads.push(self.decoded(wanted, RowsRead { source, filter: None, rows_max })?);
        }
        for (wanted, rows) in own {
            let filter = match rows.rows_max {
                Some(_) => Some(self.filter(&wanted)?),
                None => None,
            };
            reads.reads.push(self.decoded(wanted, RowsRead { filter, ..rows })?);
        }
        Ok(reads)
    }

    fn decoded(
        &self,
        wanted: WantedRead<'_>,
        rows: RowsRead<'s>,
    ) -> Result<(ReadKind, ScannedTable)> {
        let env = self.state.runtime_env();
        let memory = MemoryConsumer::new("scan").register(&env.memory_pool);
        let memory = ScanMemory { memory, env, on_disk: self.operators.on_disk };
        let WantedRead { kind, table, columns, .. } = wanted;
        Ok((kind, ScannedTable::new(rows, table, &columns, memory, self.operators)?))
    }

    /// Returns the rows that a scan with filters reads for itself; `None` where it reads those of the
    /// table.
    fn own_rows(&self, table: &CatalogTable, scan: &TableScan) -> Result<Option<RowsRead<'s>>> {
        if scan.filters.is_empty() {
            return Ok(None);
        }
        let found = self.snapshots.get(&table.id).copied();
        let Some((snapshot, kept_by)) = found else { return Ok(None) };
        let read = KeyRead::find(snapshot.schema(), &scan.filters, kept_by);
        let rows_max = scan.fetch;
        if let Some(read) = read {
            let rows = usize::try_from(snapshot.stored_row_count()).unwrap_or(usize::MAX);
            let found_max =
                (rows / LOOKED_UP_PART).clamp(*LOOKED_UP_ROWS.start(), *LOOKED_UP_ROWS.end());
            let found = look_up(snapshot, &read, kept_by.is_some(), found_max);
            let found = found.map_err(into_datafusion)?;
            if let Some(rows) = found {
                let memory = MemoryConsumer::new("rows by key");
                let memory = memory.register(&self.state.runtime_env().memory_pool);
                if memory.try_grow(rows.capacity() * size_of::<StoredRow<'_>>()).is_ok() {
                    let source = DecodeSource::Found { rows, _memory: memory };
                    return Ok(Some(RowsRead { source, filter: None, rows_max }));
                }
            }
        }
        let source = DecodeSource::Scan(snapshot, kept_by);
        Ok(rows_max.map(|_| RowsRead { source, filter: None, rows_max }))
    }

    /// Returns the condition of a scan's filters over the columns that are decoded for it.
    fn filter(&self, wanted: &WantedRead<'_>) -> Result<Arc<dyn PhysicalExpr>> {
        let columns: Vec<usize> = wanted.columns.iter().copied().collect();
        let decoded = wanted.table.arrow_schema.project(&columns)?;
        let schema = DFSchema::try_from_qualified_schema(wanted.scan.table_name.clone(), &decoded)?;
        let filter = conjunction(wanted.scan.filters.iter().cloned());
        let filter = filter.unwrap_or_else(|| datafusion::logical_expr::lit(true));
        let properties = self.state.execution_props();
        create_physical_expr(&filter, &schema, properties, &PhysicalPlanningContext::default())
    }
}

/// Returns the visible rows of the keys in order of arrival: those of a scan that have one of the keys
/// and an event time within the bounds. `None` where there are more than `rows_max`.
pub(crate) fn look_up<'s>(
    snapshot: &'s Snapshot<'s>,
    read: &KeyRead,
    by_own_rule: bool,
    rows_max: usize,
) -> lockstep_diagnostic::Result<Option<Vec<StoredRow<'s>>>> {
    let mut found = Vec::new();
    for key in &read.keys {
        let mut rows = match by_own_rule {
            true => snapshot.rows_kept_by(read.index, key),
            false => snapshot.rows(read.index, key),
        };
        if *read.event_times.end() < i64::MAX {
            rows.seek(*read.event_times.end());
        }
        for row in rows {
            let row = row?;
            if row.event_time < *read.event_times.start() {
                break;
            }
            if found.len() == rows_max {
                return Ok(None);
            }
            found.push(row);
        }
        query::checkpoint().map_err(interrupted)?;
    }
    found.sort_unstable_by_key(|row| row.arrival);
    Ok(Some(found))
}

/// A read by key, by names, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRead {
    /// The id of the table.
    pub table: u64,
    /// The index.
    pub index: String,
    /// Its key columns.
    pub keys: Vec<String>,
    /// The column of its event time, if conditions bound that.
    pub event_time: Option<String>,
}

/// Returns the reads by key of an optimised plan, in the order of its scans.
pub(crate) fn index_reads<'p>(
    plans: impl Iterator<Item = &'p LogicalPlan>,
    tables: &dyn StoredTables,
    read_through: &BTreeMap<u64, usize>,
) -> Result<Vec<IndexRead>> {
    let mut reads = Vec::new();
    for (table, scan) in stored_scans(plans)? {
        let Some(stored) = tables.table(table.id) else { continue };
        let schema = stored.schema();
        let only = read_through.get(&table.id).copied();
        let Some(read) = KeyRead::find(&schema, &scan.filters, only) else { continue };
        let spec = &schema.indexes[read.index];
        let name = |column: usize| schema.columns[column].name.clone();
        let is_bounded = read.event_times != (i64::MIN..=i64::MAX);
        reads.push(IndexRead {
            table: table.id,
            index: spec.name.clone(),
            keys: spec.keys.iter().copied().map(name).collect(),
            event_time: spec.event_time.filter(|_| is_bounded).map(name),
        });
    }
    Ok(reads)
}

/// Moves a LIMIT over the filter of a stored table into the scan, which then decodes rows until as many
/// pass. The filter and the LIMIT stay above it.
pub(crate) fn limit_scans(plan: LogicalPlan) -> Result<LogicalPlan> {
    let limited = plan.transform_down_with_subqueries(|plan| {
        let LogicalPlan::Limit(limit) = plan else { return Ok(Transformed::no(plan)) };
        match limited_input(&limit)? {
            Some(input) => {
                let limit = Limit { input: Arc::new(input), ..limit };
                Ok(Transformed::yes(LogicalPlan::Limit(limit)))
            }
            None => Ok(Transformed::no(LogicalPlan::Limit(limit))),
        }
    })?;
    Ok(limited.data)
}

/// Returns the filter below a LIMIT with the limit in its scan; `None` for any other input.
fn limited_input(limit: &Limit) -> Result<Option<LogicalPlan>> {
    let (SkipType::Literal(skip), FetchType::Literal(Some(fetch))) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return Ok(None);
    };
    let LogicalPlan::Filter(filter) = limit.input.as_ref() else { return Ok(None) };
    let LogicalPlan::TableScan(scan) = filter.input.as_ref() else { return Ok(None) };
    let is_stored =
        CatalogTable::of(scan.source.as_ref()).is_some_and(|table| table.source.is_none());
    if !is_stored || scan.fetch.is_some() || filter.predicate.is_volatile() {
        return Ok(None);
    }
    let filters = split_conjunction(&filter.predicate).into_iter().cloned().collect();
    let scan = TableScan { filters, fetch: Some(skip.saturating_add(fetch)), ..scan.clone() };
    let mut filter = filter.clone();
    filter.input = Arc::new(LogicalPlan::TableScan(scan));
    Ok(Some(LogicalPlan::Filter(filter)))
}

//! The reads of a query's stored tables: which rows of which table are read, for which scans.
//!
//! `execute` takes the snapshots of all tables together, before anything else runs, and holds their rows, which
//! the scans decode while the query runs. A scan whose conditions are the keys of a declared index reads the rows
//! of those keys ([`KeyRead`]) at once; conditions on times leave out blocks of files and rows before they are
//! decoded ([`ColumnRange`]), and one whose rows a LIMIT ends reads no further ([`limit_scans`]). These conditions
//! are the filters of the scan, and stay in the operators above it.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use arrow::array::RecordBatch;
use datafusion::{
    common::{
        DFSchema, Result, internal_datafusion_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    execution::{
        SessionState,
        context::ExecutionProps,
        memory_pool::{MemoryConsumer, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    logical_expr::{
        Expr, FetchType, Limit, LogicalPlan, SkipType, TableScan,
        physical_planning_context::PhysicalPlanningContext,
        utils::{conjunction, split_conjunction},
    },
    physical_expr::{PhysicalExpr, create_physical_expr},
    physical_plan::ExecutionPlan,
};
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_host::query;
use lockstep_plan::{CatalogTable, KeyRead, column_ranges};
use lockstep_table::{ColumnRange, HeldRows, ScanRows, Snapshot, StoredRow, Table};

use crate::{
    StoredTables,
    error::{interrupted, into_datafusion},
    operator::{BATCH_ROWS, OperatorOptions},
    scan::{DecodedColumns, DecodedRows, Decoder, ScannedRows, projection},
    spill::is_out_of_memory,
};

/// The part of a table's rows from which on a scan is cheaper than looking the rows up.
const LOOKED_UP_PART: usize = 4;

/// Bounds of the number of rows that are looked up: a few are always, and so many need memory.
const LOOKED_UP_ROWS: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 20;

/// Rows of a table of which an index counts rows are looked up one by one, and not found by a read of the whole
/// index, where at most so many are wanted.
const FEW_ROWS: usize = 1 << 12;

/// The reads of a query.
#[derive(Debug, Default)]
pub(crate) struct TableReads {
    /// The rows of tables, by id.
    held: BTreeMap<u64, Arc<HeldRows>>,
    /// The rows that were read at once.
    decoded: Vec<(ScanKind, DecodedRows)>,
}

/// The scans of a table, by its id, that have these filters and this limit.
#[derive(Debug, Clone, PartialEq)]
struct ScanKind(u64, Vec<Expr>, Option<usize>);

impl ScanKind {
    fn of(table: &CatalogTable, scan: &TableScan) -> Self {
        Self(table.id, scan.filters.clone(), scan.fetch)
    }
}

impl TableReads {
    /// Returns the operator of a scan.
    pub(crate) fn plan(
        &self,
        table: &CatalogTable,
        scan: &TableScan,
        env: &RuntimeEnv,
        options: &OperatorOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let kind = ScanKind::of(table, scan);
        if let Some((_, decoded)) = self.decoded.iter().find(|(known, _)| *known == kind) {
            return decoded.plan(scan);
        }
        let rows = self.held.get(&table.id);
        let rows =
            rows.ok_or_else(|| internal_datafusion_err!("table {} was not read", table.name))?;
        let columns = DecodedColumns::new(table, projection(scan))?;
        let filter = filter_of_limited(scan, &columns)?;
        let ranges = ranges_of(table, scan);
        let scanned = ScannedRows { rows: Arc::clone(rows), filter, ranges, rows_max: scan.fetch };
        Ok(scanned.plan(table, columns, env, options))
    }
}

/// Returns the ranges of columns that a scan's filters let pass.
fn ranges_of(table: &CatalogTable, scan: &TableScan) -> Vec<ColumnRange> {
    let ranges = column_ranges(&table.schema, &scan.filters).into_iter();
    ranges.map(|(column, values)| ColumnRange { column, values }).collect()
}

/// Returns the condition of the filters of a scan with a LIMIT, over the columns that are decoded for it: so many
/// rows are wanted that pass. `None` without a LIMIT, where the filter above the scan is enough.
fn filter_of_limited(
    scan: &TableScan,
    columns: &DecodedColumns,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let filter = scan.fetch.and_then(|_| conjunction(scan.filters.iter().cloned()));
    let Some(filter) = filter else { return Ok(None) };
    let schema = DFSchema::try_from_qualified_schema(scan.table_name.clone(), columns.schema())?;
    let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    create_physical_expr(&filter, &schema, &properties, &context).map(Some)
}

/// Takes the snapshots of the tables that plans read, all before the first one is read, and holds their rows.
pub(crate) fn read_tables<'p>(
    plans: impl Iterator<Item = &'p LogicalPlan>,
    tables: &dyn StoredTables,
    read_through: &BTreeMap<u64, usize>,
    state: &SessionState,
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
    Reading { snapshots, state }.read(&scans)
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
}

impl<'s> Reading<'s> {
    /// Reads for the scans what is read at once, and holds the rows of the others.
    fn read(&self, scans: &[(&CatalogTable, &TableScan)]) -> Result<TableReads> {
        let mut reads = TableReads::default();
        for (table, scan) in scans.iter().copied() {
            let Some((snapshot, kept_by)) = self.snapshots.get(&table.id).copied() else {
                continue;
            };
            let kind = ScanKind::of(table, scan);
            if reads.decoded.iter().any(|(known, _)| *known == kind) {
                continue;
            }
            // One read is for all scans of the kind.
            let of_kind = scans.iter().filter(|(of, scan)| ScanKind::of(of, scan) == kind);
            let columns: BTreeSet<usize> = of_kind.flat_map(|(_, scan)| projection(scan)).collect();
            let columns = DecodedColumns::new(table, columns.into_iter().collect())?;
            if let Some(decoded) = self.at_once(scan, (snapshot, kept_by), columns)? {
                reads.decoded.push((kind, decoded));
            } else if let Entry::Vacant(vacant) = reads.held.entry(table.id) {
                let held = snapshot.hold(kept_by, &mut || query::checkpoint().map_err(interrupted));
                vacant.insert(Arc::new(held.map_err(into_datafusion)?));
            }
        }
        Ok(reads)
    }

    /// Decodes the rows of a scan that are found by their keys, or that are few; `None` for any other.
    fn at_once(
        &self,
        scan: &TableScan,
        (snapshot, kept_by): (&'s Snapshot<'s>, Option<usize>),
        columns: DecodedColumns,
    ) -> Result<Option<DecodedRows>> {
        let memory =
            |name| MemoryConsumer::new(name).register(&self.state.runtime_env().memory_pool);
        let rows_max = scan.fetch.unwrap_or(usize::MAX);
        let rows = match self.found_rows(scan, snapshot, kept_by)? {
            Some(found) => {
                let bytes = found.capacity() * size_of::<StoredRow<'_>>();
                let found_memory = memory("rows by key");
                if found_memory.try_grow(bytes).is_err() {
                    return Ok(None);
                }
                RowsAtOnce::Found { rows: found.into_iter(), _memory: found_memory }
            }
            None if rows_max <= FEW_ROWS
                && scan.filters.is_empty()
                && snapshot.looks_rows_up(kept_by) =>
            {
                RowsAtOnce::Scan(snapshot.scan_by(kept_by))
            }
            None => return Ok(None),
        };
        let filter = filter_of_limited(scan, &columns)?;
        let mut decoder = Decoder::new(&columns, filter.as_ref(), rows_max);
        let decoded_memory = memory("rows of a scan");
        decoder.count_in(&decoded_memory);
        match rows.decode(decoder) {
            Ok(batches) => Ok(Some(DecodedRows::new(columns, batches, decoded_memory))),
            Err(error) if is_out_of_memory(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the rows that a scan's filters leave of an index; `None` where they are too many, or not read by
    /// key.
    fn found_rows(
        &self,
        scan: &TableScan,
        snapshot: &'s Snapshot<'s>,
        kept_by: Option<usize>,
    ) -> Result<Option<Vec<StoredRow<'s>>>> {
        let read = match scan.filters.is_empty() {
            true => None,
            false => KeyRead::find(snapshot.schema(), &scan.filters, kept_by),
        };
        let Some(read) = read else { return Ok(None) };
        let rows = usize::try_from(snapshot.stored_row_count()).unwrap_or(usize::MAX);
        let found_max =
            (rows / LOOKED_UP_PART).clamp(*LOOKED_UP_ROWS.start(), *LOOKED_UP_ROWS.end());
        look_up(snapshot, &read, kept_by.is_some(), found_max).map_err(into_datafusion)
    }
}

/// Rows that are decoded before the query runs.
enum RowsAtOnce<'r> {
    /// Rows that were found by their keys, and their memory.
    Found {
        rows: std::vec::IntoIter<StoredRow<'r>>,
        _memory: MemoryReservation,
    },
    Scan(ScanRows<'r>),
}

impl RowsAtOnce<'_> {
    fn next_row(&mut self) -> Result<Option<StoredRow<'_>>> {
        match self {
            Self::Found { rows, .. } => Ok(rows.next()),
            Self::Scan(rows) => rows.next_row().map_err(|error| into_datafusion(error.into())),
        }
    }

    /// Decodes the rows, until there are enough.
    fn decode(mut self, mut decoder: Decoder<'_>) -> Result<Vec<RecordBatch>> {
        let mut read = 0_usize;
        while decoder.wants_rows()
            && let Some(found) = self.next_row()?
        {
            read += 1;
            if read.is_multiple_of(BATCH_ROWS) {
                query::checkpoint().map_err(|interrupt| into_datafusion(interrupted(interrupt)))?;
            }
            decoder.push(found.row)?;
        }
        decoder.finish()
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

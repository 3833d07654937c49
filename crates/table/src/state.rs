//! The state of a table: the schema, the series and the log that its readers use. Replaced as a whole
//! when an index is added or removed; the states before and after share the series that stay.

use std::sync::Arc;

use lockstep_row::persistent::RetentionRecord;
use lockstep_row::{Column, DataType, IndexSpec, Projection, Retention, RowView, TableSchema};
use lockstep_series::{Account, RecordFormat, RowLog, Series};
use serde::{Deserialize, Serialize};

use crate::{
    TableError,
    disk::DiskRows,
    expired::NewestTimes,
    part::bug::{self, PartBug},
};

/// The stored part of an index.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) series: Arc<Series>,
    /// The columns that it includes: the contents of the series' records.
    pub(crate) projection: Arc<Projection>,
    /// How records are made of rows; `None` when it includes no columns.
    pub(crate) format: Option<Arc<RecordFormat>>,
    /// Why the index exists.
    pub(crate) origin: Origin,
}

/// The reason why an index exists. The rule by which it keeps rows in fact, which holds may have
/// widened, is in its `IndexSpec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// The user declared it, to keep rows by this rule.
    Declared(#[serde(with = "RetentionRecord")] Retention),
    /// It is held by readers.
    Automatic,
    /// It was removed; its position is empty.
    Removed,
}

impl Index {
    /// Makes an index without rows that includes the columns of a projection.
    pub(crate) fn empty(projection: &Arc<Projection>, origin: Origin) -> Self {
        let format = (projection.size() > 0).then(|| {
            let writing = Arc::clone(projection);
            let write = move |row: &[u8], record: &mut [u8]| writing.write(row, record);
            Arc::new(RecordFormat::new(projection.widths(), write))
        });
        Self::of_format(projection, format, origin)
    }

    fn of_format(
        projection: &Arc<Projection>,
        format: Option<Arc<RecordFormat>>,
        origin: Origin,
    ) -> Self {
        let series = format
            .as_ref()
            .map_or_else(Series::new, |format| Series::with_records(Arc::clone(format)));
        Self { series: Arc::new(series), projection: Arc::clone(projection), format, origin }
    }

    /// Makes a copy of this index without rows.
    pub(crate) fn emptied(&self) -> Self {
        if bug::is_seeded(PartBug::NodesOfOtherRows) {
            return self.successor();
        }
        Self::of_format(&self.projection, self.format.clone(), self.origin)
    }

    /// Makes the index without rows that takes the place of this one when its rows are frozen. Levels go on in it.
    pub(crate) fn successor(&self) -> Self {
        Self { series: Arc::new(self.series.successor()), ..self.clone() }
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        if self.origin == Origin::Removed { 0 } else { self.series.memory_bytes() }
    }
}

/// The schema and the series of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableState {
    pub(crate) schema: Arc<TableSchema>,
    // Dropped before the log, to whose rows they point.
    /// The stored part of each of the schema's indexes.
    pub(crate) indexes: Vec<Index>,
    /// All rows, to which the series point.
    pub(crate) log: Arc<RowLog>,
    /// The rows of a disk table that arrived before those of the log; `None` for a memory table.
    pub(crate) disk: Option<DiskRows>,
    /// Rows with a smaller arrival were visible when the state was installed: a reader that loads it
    /// sees at least these, so that it sees the change together with all rows that arrived before.
    pub(crate) visible_min: u64,
    /// Whether no row can expire: there is no declared index, or one that keeps every row.
    pub(crate) keeps_everything: bool,
    /// Positions of the declared indexes; first those for which a row alone decides whether it is kept.
    pub(crate) declared: Vec<usize>,
    /// For each index the rule by which its rows are live, that is, kept by some declared index; `None`
    /// where each row has to be looked up in the others.
    pub(crate) live_retentions: Vec<Option<Retention>>,
    /// The greatest event times, by which most rows are known not to have expired.
    pub(crate) newest: Arc<NewestTimes>,
}

/// Returns whether no row of a table with these indexes can expire: none is declared, or a declared one
/// keeps every row.
pub(crate) fn keeps_everything<'s>(indexes: impl Iterator<Item = &'s IndexSpec>) -> bool {
    let mut declared = indexes.filter(|spec| spec.declared).peekable();
    declared.peek().is_none() || declared.any(|spec| spec.retention == Retention::Forever)
}

impl TableState {
    /// Makes a state of indexes that belong to the log.
    pub(crate) fn new(schema: Arc<TableSchema>, indexes: Vec<Index>, log: Arc<RowLog>) -> Self {
        assert_eq!(schema.indexes.len(), indexes.len(), "each index has its series");
        let retention = |index: usize| schema.indexes[index].retention;
        let is_declared = |index: &usize| schema.indexes[*index].declared;
        let mut declared: Vec<usize> = (0..schema.indexes.len()).filter(is_declared).collect();
        declared.sort_by_key(|index| !matches!(retention(*index), Retention::Absolute { .. }));
        let keeps_everything = keeps_everything(schema.indexes.iter());
        let live = |index| {
            if keeps_everything {
                Some(Retention::Forever)
            } else {
                live_retention(&schema, &declared, index)
            }
        };
        let live_retentions = (0..indexes.len()).map(live).collect();
        let newest = Arc::new(NewestTimes::new(indexes.len()));
        let visible_min = 0;
        Self {
            schema,
            indexes,
            log,
            disk: None,
            visible_min,
            keeps_everything,
            declared,
            live_retentions,
            newest,
        }
    }

    /// Makes a state without rows whose indexes include no columns.
    pub(crate) fn empty(schema: Arc<TableSchema>) -> Self {
        let none = Arc::default();
        let index = |spec: &IndexSpec| {
            let origin = match spec.declared {
                _ if spec.is_removed() => Origin::Removed,
                true => Origin::Declared(spec.retention),
                false => Origin::Automatic,
            };
            Index::empty(&none, origin)
        };
        let indexes = schema.indexes.iter().map(index).collect();
        Self::new(schema, indexes, Arc::new(RowLog::new()))
    }

    /// Makes a copy of this state without rows.
    pub(crate) fn emptied(&self) -> Self {
        let indexes = self.indexes.iter().map(Index::emptied).collect();
        let emptied = Self::new(Arc::clone(&self.schema), indexes, Arc::new(RowLog::new()));
        emptied.with_disk(self.disk.as_ref().map(|_| DiskRows::default()))
    }

    /// Returns this state with other rows on a disk.
    pub(crate) fn with_disk(self, disk: Option<DiskRows>) -> Self {
        Self { disk, ..self }
    }

    /// Returns the indexes that were not removed, with their positions and descriptions.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, (&IndexSpec, &Index))> + Clone {
        let all = self.schema.indexes.iter().zip(&self.indexes).enumerate();
        all.filter(|(_, (_, index))| index.origin != Origin::Removed)
    }

    /// Charges an account with the memory of the state, except what it was charged with before.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) {
        self.log.adopt(account);
        self.present().for_each(|(_, (_, index))| index.series.adopt(account));
        if let Some(disk) = &self.disk {
            disk.adopt(account);
        }
    }

    /// Returns the bytes of memory of rows and indexes, with the allocator's own overhead.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let on_disk = self.disk.as_ref().map_or(0, DiskRows::memory_bytes);
        let indexes = self.indexes.iter().map(Index::memory_bytes).sum::<u64>();
        self.log.memory_bytes() + indexes + on_disk
    }
}

/// Computes an element of [`TableState::live_retentions`]; some rows expire.
fn live_retention(schema: &TableSchema, declared: &[usize], index: usize) -> Option<Retention> {
    if *declared == [index] {
        return Some(schema.indexes[index].retention);
    }
    let absolute = |other: &usize| match &schema.indexes[*other] {
        IndexSpec { event_time, retention: Retention::Absolute { ttl_ms }, .. }
            if *event_time == schema.indexes[index].event_time =>
        {
            Some(*ttl_ms)
        }
        _ => None,
    };
    let ttls = declared.iter().map(absolute).collect::<Option<Vec<i64>>>()?;
    let ttl_ms = ttls.iter().copied().max()?;
    // Without a time to live, a row does not expire.
    let is_forever = ttls.iter().any(|ttl_ms| *ttl_ms <= 0);
    Some(if is_forever { Retention::Forever } else { Retention::Absolute { ttl_ms } })
}

/// Returns whether a rule keeps rows by number.
pub(crate) fn counts_rows(retention: Retention) -> bool {
    !matches!(retention, Retention::Forever | Retention::Absolute { .. })
}

/// Returns the event time of a row in an index; NULL is `i64::MIN`.
#[inline]
pub(crate) fn event_time(
    spec: &IndexSpec,
    row: RowView<'_>,
    arrival_ms: impl FnOnce() -> i64,
) -> i64 {
    match spec.event_time {
        None => arrival_ms(),
        Some(column) => row.get(column).as_i64().unwrap_or(i64::MIN),
    }
}

/// Writes the entity key of a row in an index after what `key` holds.
#[inline]
pub(crate) fn encode_key(spec: &IndexSpec, row: RowView<'_>, key: &mut Vec<u8>) {
    lockstep_row::key::encode_key(spec.keys.iter().map(|column| row.get(*column)), key);
}

/// Checks a row against the event-time column of a declared index.
pub(crate) fn check_event_time(
    schema: &TableSchema,
    spec: &IndexSpec,
    row: RowView<'_>,
    row_number: u64,
) -> Result<(), TableError> {
    let Some(column) = spec.event_time else { return Ok(()) };
    let name = || (schema.columns[column].name.clone(), spec.name.clone());
    match row.get(column).as_i64() {
        None => {
            let (column, index) = name();
            Err(TableError::NullEventTime { column, index, row_number })
        }
        Some(event_time) if event_time < 0 => {
            let (column, index) = name();
            Err(TableError::NegativeEventTime { column, index, event_time, row_number })
        }
        Some(_) => Ok(()),
    }
}

/// Checks that the columns of an index exist and are of types that can be keys and event times.
pub(crate) fn check_spec(columns: &[Column], spec: &IndexSpec) -> Result<(), TableError> {
    let find = |position: usize| {
        columns.get(position).ok_or_else(|| TableError::ColumnMissing {
            index: spec.name.clone(),
            position,
            columns: columns.len(),
        })
    };
    for key in &spec.keys {
        let column = find(*key)?;
        if matches!(column.data_type, DataType::Array(_) | DataType::Map(_, _)) {
            let data_type = column.data_type.clone();
            return Err(TableError::KeyType { column: column.name.clone(), data_type });
        }
    }
    if let Some(position) = spec.event_time {
        let column = find(position)?;
        if !column.data_type.is_integer() && column.data_type != DataType::Timestamp {
            let data_type = column.data_type.clone();
            return Err(TableError::EventTimeType { column: column.name.clone(), data_type });
        }
    }
    Ok(())
}

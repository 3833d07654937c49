//! What changes a table as a whole: indexes that come and go, DELETE, TRUNCATE.
//!
//! Each makes another state while readers go on with the old one, and appends wait.

use std::{ptr::NonNull, sync::Arc};

use lockstep_row::{IndexSpec, Projection, Retention, RowView, TableSchema};
use lockstep_series::{Guard, LogRow, RowRef};

use crate::{
    Snapshot, Table, TableError,
    state::{self, Index, State},
};

impl Table {
    /// The position of the index over exactly these key columns (in any order) and this event
    /// time; when there is none, builds one from the rows that some declared index keeps, which
    /// are also the rows it will show. No key columns: the whole table is one key.
    ///
    /// Readers go on while it builds, writers wait. Panics when a column is out of range or of a
    /// type that cannot be a key or an event time: the plan has checked that.
    pub fn ensure_index(&self, keys: &[usize], event_time: Option<usize>) -> usize {
        if let Some(position) = self.schema().find_index(keys, event_time) {
            return position;
        }
        let alone = self.alone();
        let snapshot = self.snapshot();
        let schema = snapshot.schema();
        if let Some(position) = schema.find_index(keys, event_time) {
            return position;
        }
        let position = schema.indexes.len();
        let is_taken = |name: &String| schema.indexes.iter().any(|spec| spec.name == *name);
        let mut names = (position..).map(|number| format!("auto_{number}"));
        let name = names.find(|name| !is_taken(name)).expect("there are more numbers than indexes");
        let spec = IndexSpec {
            name,
            keys: keys.to_vec(),
            event_time,
            retention: Retention::Forever,
            declared: false,
        };
        let checked = state::check_spec(&schema.columns, &spec);
        assert_eq!(checked, Ok(()), "the plan asks for indexes that the table can have");
        let index = self.build((&spec, &Arc::default()), &snapshot);
        self.replace_state(&alone, snapshot.state().with_index(spec, index));
        position
    }

    /// Adds a declared index, built from the live rows, and returns its position. From then on it
    /// has its say in which rows live: those of a table without declared indexes start to expire.
    pub fn add_declared_index(&self, spec: IndexSpec) -> Result<usize, TableError> {
        let spec = IndexSpec { declared: true, ..spec };
        let alone = self.alone();
        let snapshot = self.snapshot();
        let schema = snapshot.schema();
        state::check_spec(&schema.columns, &spec)?;
        if schema.indexes.iter().any(|other| other.name == spec.name) {
            return Err(TableError::IndexExists { name: spec.name });
        }
        let position = schema.indexes.len();
        let state = if snapshot.state().keeps_everything {
            let index = self.build((&spec, &Arc::default()), &snapshot);
            snapshot.state().with_index(spec, index)
        } else {
            let mut schema = TableSchema::clone(schema);
            schema.indexes.push(spec);
            self.without_dead_rows(schema, &snapshot)
        };
        self.replace_state(&alone, state);
        Ok(position)
    }

    /// Makes an index keep rows by this rule from now on, as a declared one; the rule should keep
    /// what the index keeps already. Rows that expired everywhere stay so. Fails when the index
    /// was not declared and a stored row has no event time in it. Reads every row; readers go on,
    /// writers wait.
    pub fn widen_index(&self, index: usize, retention: Retention) -> Result<(), TableError> {
        let alone = self.alone();
        let snapshot = self.snapshot();
        let old = snapshot.state();
        let mut schema = TableSchema::clone(&old.schema);
        let spec = &mut schema.indexes[index];
        (spec.retention, spec.declared) = (retention, true);
        for (row, row_number) in snapshot.scan().zip(1..) {
            state::check_event_time(&schema, &schema.indexes[index], row.row, row_number)?;
        }
        let state = if old.keeps_everything {
            let mut indexes = old.indexes.clone();
            let projection = &old.indexes[index].projection;
            indexes[index] = self.build((&schema.indexes[index], projection), &snapshot);
            State::new(Arc::new(schema), indexes, Arc::clone(&old.log))
        } else {
            self.without_dead_rows(schema, &snapshot)
        };
        self.replace_state(&alone, state);
        Ok(())
    }

    /// A state of the rows that are live now. Rows that expired stay so, although a new index
    /// might keep them by its own rule.
    fn without_dead_rows(&self, schema: TableSchema, snapshot: &Snapshot<'_>) -> State {
        let mut key = Vec::new();
        self.state_of(schema, snapshot, &mut |row| snapshot.is_live(row, &mut key))
    }

    /// A state of the rows for which `is_kept` holds, which is asked once for each stored row. Its
    /// indexes include what they included; one that the schema has more includes nothing.
    fn state_of(
        &self,
        schema: TableSchema,
        snapshot: &Snapshot<'_>,
        is_kept: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> State {
        let log = &snapshot.state().log;
        let log = log.filtered(&mut |found| is_kept(found.row), snapshot.guard());
        let rows: Vec<LogRow<'_>> = log.rows(u64::MAX, snapshot.guard()).collect();
        let mut projections = snapshot.state().projections();
        projections.resize_with(schema.indexes.len(), Arc::default);
        let described = schema.indexes.iter().zip(&projections);
        let index = |described| self.index_of(described, &rows, snapshot.guard());
        let indexes = described.map(index).collect();
        drop(rows);
        State::new(Arc::new(schema), indexes, Arc::new(log))
    }

    /// Removes a declared index. Its place stays, as an index that keeps what the other declared
    /// indexes keep, so that what reads through it goes on. The last declared index stays.
    pub fn drop_declared_index(&self, name: &str) -> Result<(), TableError> {
        let alone = self.alone();
        let snapshot = self.snapshot();
        let schema = snapshot.schema();
        let is_declared = |spec: &IndexSpec| spec.declared && spec.name == name;
        let Some(position) = schema.indexes.iter().position(is_declared) else {
            return Err(TableError::IndexMissing { name: name.to_owned() });
        };
        if schema.indexes.iter().filter(|spec| spec.declared).count() == 1 {
            return Err(TableError::LastIndex { name: name.to_owned() });
        }
        let mut state = snapshot.state().with_undeclared(position);
        let remaining = Snapshot::new(
            self,
            lockstep_series::pin(),
            NonNull::from(&state),
            (snapshot.visible_arrival(), snapshot.now_ms()),
        );
        let projection = &state.indexes[position].projection;
        let index = self.build((&state.schema.indexes[position], projection), &remaining);
        drop(remaining);
        state.indexes[position] = index;
        self.replace_state(&alone, state);
        Ok(())
    }

    /// Removes the rows for which `is_deleted` holds, from every index at once, and returns how
    /// many. Snapshots taken before go on seeing them. Rebuilds every index from the rows that
    /// stay, so the time is linear in the rows of the table; readers go on, writers wait.
    pub fn delete(&self, mut is_deleted: impl FnMut(RowView<'_>) -> bool) -> u64 {
        let alone = self.alone();
        let snapshot = self.snapshot();
        let mut deleted = 0;
        let mut key = Vec::new();
        let schema = TableSchema::clone(snapshot.schema());
        let state = self.state_of(schema, &snapshot, &mut |row| {
            if !snapshot.is_live(row, &mut key) {
                return false;
            }
            let is_deleted = is_deleted(self.view(row));
            deleted += u64::from(is_deleted);
            !is_deleted
        });
        if deleted > 0 {
            self.replace_state(&alone, state);
        }
        deleted
    }

    /// Makes what is stored of an index from the live rows.
    pub(crate) fn build(
        &self,
        described: (&IndexSpec, &Arc<Projection>),
        snapshot: &Snapshot<'_>,
    ) -> Index {
        self.index_of(described, &snapshot.live_rows().collect::<Vec<_>>(), snapshot.guard())
    }

    /// Makes what is stored of an index, that includes columns, from rows in order of arrival.
    fn index_of(
        &self,
        (spec, projection): (&IndexSpec, &Arc<Projection>),
        rows: &[LogRow<'_>],
        guard: &Guard,
    ) -> Index {
        let event_time =
            |found: &LogRow<'_>| state::event_time(spec, self.view(found.row), || found.arrival_ms);
        let mut rows: Vec<(i64, RowRef<'_>)> =
            rows.iter().map(|found| (event_time(found), found.row)).collect();
        // In order, every row is an append. Stable: equal event times stay in order of arrival.
        rows.sort_by_key(|(event_time, _)| *event_time);
        let index = Index::empty(projection);
        let series = &index.series;
        let mut key = Vec::new();
        for (event_time, row) in rows {
            key.clear();
            state::encode_key(spec, self.view(row), &mut key);
            // SAFETY: the row is in the log that the series shares a state with.
            unsafe { series.insert((series.hash(&key), &key), event_time, row, guard) };
        }
        index
    }

    /// Removes every row. Snapshots taken before go on seeing them.
    pub fn truncate(&self) {
        let alone = self.alone();
        let state = self.sole_state(&alone).emptied();
        self.replace_state(&alone, state);
    }
}

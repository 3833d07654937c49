//! One append over several tables: in the log wholly or not at all, and visible together.
//!
//! The rows of each table are a [`BulkLoad`], so they were encoded and checked, and memory is reserved
//! for them. Here they take their arrivals together, under the locks of all commit queues; the log has
//! them as one group of records, one or more for each table. Where that would be too large, all but the
//! last rows of each table are logged before as parts, which the group makes valid.
//!
//! **Order of locks:** tables by the ids under which they are logged, so that two appends over the same
//! tables do not wait for each other. First all schema locks, shared; then all commit queues.

use lockstep_host::{failpoint, query};
use lockstep_series::RowBatch;
use lockstep_wal::{Group, Log};

use crate::{
    Appended, Table, TableError,
    append::{ApplyMemory, ArrivedRows, FirstArrivals, Reservation, StampedRows},
    commit_queue::InFlightAppend,
    load::BulkLoad,
    record::{LogFailure, RowsPart, TableLog, rows_of, write_rows},
    state::TableState,
    table::number,
};

/// The rows of one table.
struct TableRows<'a> {
    table: &'a Table,
    batches: Vec<RowBatch>,
    reservation: Reservation<'a>,
    /// The position of the load among those that were given.
    position: usize,
}

impl TableRows<'_> {
    /// Returns the number of rows.
    fn count(&self) -> usize {
        self.batches.iter().map(RowBatch::len).sum()
    }

    /// Returns the bytes of the rows.
    fn bytes(&self) -> usize {
        self.batches.iter().map(RowBatch::stored_size).sum()
    }
}

impl BulkLoad<'_> {
    /// Makes the rows of several loads, each of a table of its own, visible together: a crash leaves
    /// all of them or none, and so does an error. Returns what became of each load, in their order.
    /// Fails as [`Self::finish`] does. The tables are of one engine.
    pub fn finish_all(loads: Vec<Self>) -> Result<Vec<Appended>, TableError> {
        // Before any lock: the check for interrupts may run any code.
        let _commit = query::commit().map_err(TableError::Interrupted)?;
        let mut appended = vec![Appended::default(); loads.len()];
        let mut loads: Vec<(usize, Self)> = loads.into_iter().enumerate().collect();
        loads.retain(|(_, load)| load.reservation.is_some());
        if loads.is_empty() {
            return Ok(appended);
        }
        loads.sort_by_key(|(_, load)| (load.table.log_id(), std::ptr::from_ref(load.table).addr()));
        let is_other = |pair: &[(usize, Self)]| !std::ptr::eq(pair[0].1.table, pair[1].1.table);
        assert!(loads.windows(2).all(is_other), "each table has one load");
        let tables: Vec<&Table> = loads.iter().map(|(_, load)| load.table).collect();
        let locks: Vec<_> = tables.iter().map(|table| table.lock_shared()).collect();
        let mut states = Vec::with_capacity(tables.len());
        for ((table, lock), (_, load)) in tables.iter().zip(&locks).zip(&loads) {
            table.check_open()?;
            let state = table.shared_state(lock);
            load.check_again(&state.schema)?;
            states.push(state);
        }
        let rows = loads.into_iter().filter_map(|(position, load)| {
            let BulkLoad { table, batches, reservation, .. } = load;
            reservation.map(|reservation| TableRows { table, batches, reservation, position })
        });
        let mut rows: Vec<TableRows<'_>> = rows.collect();
        let done = apply_all(&states, &mut rows)?;
        for (rows, done) in rows.iter().zip(done) {
            appended[rows.position] = done;
        }
        Ok(appended)
    }
}

/// Gives rows of several tables their arrivals and makes them visible, all at once.
fn apply_all(
    states: &[&TableState],
    rows: &mut [TableRows<'_>],
) -> Result<Vec<Appended>, TableError> {
    debug_assert_eq!(states.len(), rows.len(), "each table has a state");
    let arrivals = &rows[0].table.arrivals;
    debug_assert!(
        rows.iter().all(|rows| std::sync::Arc::ptr_eq(&rows.table.arrivals, arrivals)),
        "the tables are of one engine"
    );
    let counts: Vec<usize> = rows.iter().map(TableRows::count).collect();
    let like_seconds = states.iter().zip(&*rows);
    let like_seconds: Vec<u64> = like_seconds
        .map(|(state, rows)| rows.table.count_like_seconds(state, &rows.batches))
        .collect();
    let (in_flight, arrived) = take_arrivals(states, rows)?;
    let mut memory = ApplyMemory::default();
    for ((state, rows), arrived) in states.iter().zip(&mut *rows).zip(&arrived) {
        let TableRows { table, reservation, .. } = rows;
        let group_keys = &mut memory.group_keys;
        table.insert_everywhere(state, group_keys, *arrived, reservation, |_| true);
    }
    failpoint::reach("table.rows_stored");
    if let Some(log) = rows[0].table.log() {
        let end = in_flight.iter().map(InFlightAppend::end).max();
        // Dropped in flight when it fails: nothing that was not logged becomes visible.
        log.wait(end.expect("there are tables")).map_err(TableError::Log)?;
    }
    let publications = &rows[0].table.arrivals.publications;
    if !InFlightAppend::commit_all(in_flight, publications) {
        return Err(rows[0].table.damaged());
    }
    let done = states.iter().zip(rows).zip(counts).zip(arrived).zip(like_seconds);
    Ok(done
        .map(|((((state, rows), count), arrived), like_seconds)| {
            rows.table.note_appended(count);
            let expired = rows.table.count_expired(state, arrived);
            Appended { rows: number(count), expired, like_seconds }
        })
        .collect())
}

/// Takes the arrivals of all rows, and stores the rows.
fn take_arrivals<'a>(
    states: &[&TableState],
    rows: &mut [TableRows<'a>],
) -> Result<(Vec<InFlightAppend<'a>>, Vec<ArrivedRows>), TableError> {
    // Dropped after the locks of the queues, which it takes when what follows panics.
    let mut in_flight = Vec::with_capacity(rows.len());
    let mut queues = Vec::with_capacity(rows.len());
    for rows in &*rows {
        let queue = rows.table.commit_queue.lock();
        queues.push(queue.ok_or_else(|| rows.table.damaged())?);
    }
    let now_ms = rows[0].table.clock.now_ms();
    let latest = queues.iter_mut().map(|queue| queue.arrival_ms(now_ms)).max();
    let arrival_ms = latest.expect("there are tables");
    for queue in &mut queues {
        queue.arrival_ms(arrival_ms);
    }
    let firsts = position_all(rows, arrival_ms)?;
    for ((queue, rows), firsts) in queues.iter_mut().zip(&*rows).zip(&firsts) {
        let last = rows.batches.last().map_or(0, RowBatch::len);
        in_flight.push(queue.take_from(firsts.first(), firsts.last() + number(last)));
    }
    failpoint::reach("table.rows_logged");
    let mut arrived = Vec::with_capacity(rows.len());
    for ((state, rows), firsts) in states.iter().zip(rows).zip(firsts) {
        let stamped = StampedRows { firsts, arrival_ms };
        let TableRows { table, batches, reservation, .. } = rows;
        arrived.push(table.store(state, batches, &stamped, reservation));
    }
    Ok((in_flight, arrived))
}

/// Returns the positions of the batches of each table, from the log where there is one.
fn position_all(
    rows: &mut [TableRows<'_>],
    arrival_ms: i64,
) -> Result<Vec<FirstArrivals>, TableError> {
    let table = rows[0].table;
    let Some(TableLog { log, part_bytes, .. }) = table.log() else {
        let count = rows.iter().map(TableRows::count).sum::<usize>();
        let mut next = table.arrivals.take(number(count));
        return Ok(rows.iter().map(|rows| positions_from(&mut next, &rows.batches)).collect());
    };
    let mut parts = Vec::new();
    if rows.iter().map(TableRows::bytes).sum::<usize>() > part_bytes {
        let share = (part_bytes / rows.len()).max(1);
        for rows in &mut *rows {
            let batches = std::mem::take(&mut rows.batches);
            rows.batches = batches.into_iter().flat_map(|batch| batch.split(share)).collect();
        }
        parts = log_parts(rows, arrival_ms).map_err(TableError::Log)?;
    }
    parts.resize(rows.len(), Vec::new());
    log_ends(log, rows, parts, arrival_ms).map_err(TableError::Log)
}

/// Returns the positions of batches that follow one another, and goes on behind them.
fn positions_from(next: &mut u64, batches: &[RowBatch]) -> FirstArrivals {
    let firsts = batches.iter().map(|batch| {
        let first = *next;
        *next += number(batch.len());
        first
    });
    FirstArrivals::Several(firsts.collect())
}

/// Logs all batches of each table but the last one, each as a group of its own, which means nothing
/// without what follows. Returns their positions.
fn log_parts(rows: &[TableRows<'_>], arrival_ms: i64) -> Result<Vec<Vec<u64>>, LogFailure> {
    let mut positions = Vec::with_capacity(rows.len());
    for TableRows { table, batches, .. } in rows {
        let mut firsts = Vec::with_capacity(batches.len());
        let log = table.log().expect("the tables are of one engine");
        for batch in &batches[..batches.len() - 1] {
            let batch = std::slice::from_ref(batch);
            log.append_part(batch, arrival_ms, RowsPart::Part, &mut firsts)?;
            failpoint::reach("table.part_logged");
        }
        positions.push(firsts);
    }
    Ok(positions)
}

/// Logs the batches of which no part was logged, as one group. Returns the positions of all.
fn log_ends(
    log: &dyn Log,
    rows: &[TableRows<'_>],
    mut positions: Vec<Vec<u64>>,
    arrival_ms: i64,
) -> Result<Vec<FirstArrivals>, LogFailure> {
    let mut payloads = Vec::new();
    for (TableRows { table, batches, .. }, positions) in rows.iter().zip(&positions) {
        let id = table.log_id().expect("its changes are logged");
        let part = match positions.first() {
            None => RowsPart::Whole,
            Some(first) => RowsPart::Last { first: *first },
        };
        for batch in &batches[positions.len()..] {
            let mut payload = Vec::new();
            write_rows(&mut payload, id, arrival_ms, part, batch);
            payloads.push((part.kind(), rows_of(batch), payload));
        }
    }
    let mut group = Group::new();
    for (kind, rows, payload) in &payloads {
        group.push(*kind, *rows, payload);
    }
    let mut next = if failpoint::is_seeded("tables_logged_separately") {
        append_separately(log, &payloads)?
    } else {
        log.append(&group, &mut |_| ())?.start
    };
    for (TableRows { batches, .. }, positions) in rows.iter().zip(&mut positions) {
        for batch in &batches[positions.len()..] {
            positions.push(next);
            next += number(batch.len());
        }
    }
    Ok(positions.into_iter().map(FirstArrivals::Several).collect())
}

/// Logs records as groups of their own: a seeded bug. Returns the position of the first.
fn append_separately(
    log: &dyn Log,
    payloads: &[(lockstep_wal::RecordKind, u32, Vec<u8>)],
) -> Result<u64, LogFailure> {
    let mut first = None;
    for (kind, rows, payload) in payloads {
        let positions = log.append(&Group::of(*kind, *rows, payload), &mut |_| ())?;
        first.get_or_insert(positions.start);
        failpoint::reach("table.part_logged");
    }
    Ok(first.expect("there are rows"))
}

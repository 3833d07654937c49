//! A source of a continuous query: the rows of a table as they arrive, those included that are read again when a query
//! goes on after an end.
//!
//! While rows are read, *marks* are made: a place in the order of arrival, with the newest event time before it. When
//! no row before a mark counts any more, those before are dropped; the first one is where another query begins to read.
//! A row that was late because its source was idle is known by its arrival, since nothing else tells; what else is
//! late is late again. The number of rows behind the mark tells whether some were removed meanwhile.
//!
//! A LAST JOIN needs the newest row of each key, however old it is, and none of those that it has replaced: its source is
//! read again from the beginning, whatever is left of it, and has to lead to the same rows.
//!
//! A source may have a *part* of its table: the rows of one partition of a topic. Their offsets then are their arrivals:
//! they are the same in every process that reads the topic, so that another one can go on.

use std::collections::VecDeque;

use lockstep_diagnostic::Result;
use lockstep_request::SingleRowProgram;
use lockstep_row::{Arena, Datum, RowView};
use lockstep_stream::{Pushed, StreamRow};
use lockstep_table::{TableTail, TailRow};
use serde::{Deserialize, Serialize};

use super::{OutputRows, ROWS_AT_ONCE, lost, removed};
use crate::json_text::write_json_object;

/// The join of a continuous query.
type QueryJoin = lockstep_stream::WindowJoin<OutputRows>;

/// A source of a continuous query.
#[derive(Debug)]
pub(super) struct FollowedSource {
    number: usize,
    /// The name of its table.
    table: String,
    tail: TableTail,
    program: SourceProgram,
    arena: Arena,
    /// Whether the last read found no more rows.
    is_read: bool,
    /// How many rows are to be read again; of the source of a LAST JOIN, how many at most.
    rows_to_replay: u64,
    /// What the source of a LAST JOIN held before the query went on.
    held: Option<u64>,
    /// Rows with a smaller arrival were read before the query went on.
    replayed_to: u64,
    /// How many rows were read, those before the query went on included.
    rows_read: u64,
    marks: VecDeque<SourceMark>,
    /// Which rows of the table it has; `None` for all.
    part: Option<SourcePart>,
    /// The arrivals of the rows after the first mark that were late because it was idle, in their order.
    late_after_idle: VecDeque<u64>,
    rows_late: u64,
    /// How much later than its arrival a row's time may be.
    ahead_ms_max: Option<i64>,
    /// The late rows that were not taken; `None` where they are only counted.
    late_rows: Option<Vec<LateSourceRow>>,
}

/// What is computed of a row.
#[derive(Debug)]
pub(super) struct SourceProgram {
    /// Computes its columns, unless a condition leaves it out.
    pub(super) rows: SingleRowProgram,
    /// Which of them has the event time.
    pub(super) order: usize,
    /// Computes the event time of a row that was left out; `None` where there are no conditions.
    pub(super) times: Option<SingleRowProgram>,
}

/// The rows of a table that are of one partition of a topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourcePart {
    pub(super) partition: i32,
    /// The columns with the partition and the offset.
    pub(super) columns: (usize, usize),
    /// Rows with a smaller offset were read, or do not count.
    pub(super) next: u64,
}

impl SourcePart {
    /// Returns the offset of a row that it has and that was not read.
    pub(super) fn offset(&self, row: RowView<'_>, arena: &Arena) -> Option<u64> {
        let (partition, offset) = self.columns;
        let is_own = row.get_in(partition, arena).as_i64() == Some(self.partition.into());
        let offset = if is_own { row.get_in(offset, arena).as_i64() } else { None };
        offset.and_then(|offset| u64::try_from(offset).ok()).filter(|offset| *offset >= self.next)
    }
}

/// A place in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SourceMark {
    /// The arrival of the next row.
    arrival: u64,
    /// Where the tail was.
    position: u64,
    /// The newest event time before it.
    newest: Option<i64>,
    /// How many rows were read before it.
    rows: u64,
}

/// A row that was late.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LateSourceRow {
    /// The name of its table.
    pub(crate) table: String,
    /// Its event time.
    pub(crate) time: Option<i64>,
    /// Its arrival.
    pub(crate) arrival: u64,
    /// When it arrived, in milliseconds since the epoch.
    pub(crate) arrival_ms: i64,
    /// Its columns, as JSON.
    pub(crate) row: String,
}

/// How far a source is, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourcePlace {
    /// Rows with a smaller arrival were read.
    reached: u64,
    /// The arrival from which on rows are read again.
    from: u64,
    /// The newest event time before it.
    newest: Option<i64>,
    /// How many rows there are between.
    rows: u64,
    /// How many rows were read from the beginning.
    rows_read: u64,
    /// Which rows the source of a LAST JOIN holds ([`lockstep_stream::JoinedRound::held`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    /// The arrivals of those between that were late because the source was idle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    late_after_idle: Vec<u64>,
}

impl SourcePlace {
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    pub(super) fn reached(&self) -> u64 {
        self.reached
    }

    pub(super) fn newest(&self) -> Option<i64> {
        self.newest
    }

    pub(super) fn rows_read(&self) -> u64 {
        self.rows_read
    }

    /// Returns the place of a source that holds these rows, where it is that of a LAST JOIN.
    pub(super) fn holding(self, held: Option<u64>) -> Self {
        Self { held, ..self }
    }

    /// Makes the place of a source none of whose rows is read again.
    pub(super) fn without_rows(reached: u64, rows_read: u64) -> Self {
        Self { reached, from: reached, rows_read, ..Self::default() }
    }
}

impl FollowedSource {
    /// Makes a source that follows a table, and was so far before.
    pub(super) fn new(
        number: usize,
        table: String,
        tail: TableTail,
        program: SourceProgram,
        (known, part): (Option<&SourcePlace>, Option<SourcePart>),
    ) -> Self {
        let known = known.cloned().unwrap_or_default();
        let rows_read = known.rows_read - known.rows;
        let position = tail.position();
        let arrival = part.map_or(position, |part| part.next);
        let first = SourceMark { arrival, position, newest: known.newest, rows: rows_read };
        Self {
            number,
            table,
            tail,
            program,
            arena: Arena::new(),
            is_read: false,
            held: known.held,
            rows_to_replay: known.rows,
            replayed_to: known.reached,
            rows_read,
            marks: VecDeque::from([first]),
            part,
            late_after_idle: known.late_after_idle.into(),
            rows_late: 0,
            ahead_ms_max: None,
            late_rows: None,
        }
    }

    /// Keeps late rows until they are taken, or only counts them.
    pub(super) fn keeping_late_rows(self, keeps: bool) -> Self {
        Self { late_rows: keeps.then(Vec::new), ..self }
    }

    /// Takes rows for late whose times are further ahead of their arrival.
    pub(super) fn with_times_up_to(self, ahead_ms_max: Option<i64>) -> Self {
        debug_assert!(ahead_ms_max.is_none_or(|ahead_ms| ahead_ms >= 0), "the options were read");
        Self { ahead_ms_max, ..self }
    }

    /// Returns its number among the sources of the query.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Returns whether rows are left that were read before.
    pub(super) fn is_replaying(&self) -> bool {
        self.rows_to_replay > 0
    }

    /// Returns whether the last read found no more rows.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns whether rows may be read that are to be read again. Those of a part may not have come yet.
    pub(super) fn is_replayed_next(&self) -> bool {
        self.is_replaying() && !(self.part.is_some() && self.is_read)
    }

    /// Takes note that all rows before an offset were stored, and read. Fails where rows that are to be read again were
    /// none of them; those of a LAST JOIN may have been replaced.
    pub(super) fn check_stored(&mut self, stored: u64) -> Result<()> {
        let is_over = self.is_replaying() && self.is_read && stored >= self.replayed_to;
        match self.held {
            _ if !is_over => Ok(()),
            Some(_) => {
                self.end_replay();
                Ok(())
            }
            None => Err(removed(&self.table)),
        }
    }

    /// Takes note that no more rows are read again.
    fn end_replay(&mut self) {
        self.rows_read += self.rows_to_replay;
        self.rows_to_replay = 0;
    }

    /// Returns the place in its table from which on rows count.
    pub(super) fn position(&self) -> u64 {
        self.marks[0].position
    }

    /// Takes note that there may be more rows.
    pub(super) fn look_again(&mut self) {
        self.is_read = false;
    }

    /// Counts the rows that were read, each once.
    pub(super) fn rows_read(&self) -> u64 {
        self.rows_read + self.rows_to_replay
    }

    pub(super) fn rows_late(&self) -> u64 {
        self.rows_late
    }

    /// Takes the late rows since the last call.
    pub(super) fn take_late_rows(&mut self) -> Vec<LateSourceRow> {
        self.late_rows.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Fails unless all rows of a LAST JOIN that are needed were read again.
    pub(super) fn check_held(&self, held: Option<u64>) -> Result<()> {
        debug_assert_eq!(self.rows_to_replay, 0, "all rows were read again");
        match held {
            Some(held) if self.held.is_some_and(|before| before != held) => {
                Err(removed(&self.table))
            }
            _ => Ok(()),
        }
    }

    /// Returns how far it is when all rows were read again; not which rows a LAST JOIN holds.
    pub(super) fn progress(&mut self, join: &QueryJoin) -> SourcePlace {
        debug_assert_eq!(self.rows_to_replay, 0, "all rows were read again");
        let needed_from = join.needed_from(self.number);
        let is_over = |mark: &SourceMark| match (mark.newest, needed_from) {
            (Some(newest), Some(needed_from)) => newest < needed_from,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        while self.marks.len() > 1 && is_over(&self.marks[1]) {
            self.marks.pop_front();
        }
        let SourceMark { arrival, newest, rows, .. } = self.marks[0];
        while self.late_after_idle.pop_front_if(|late| *late < arrival).is_some() {}
        SourcePlace {
            reached: self.next_arrival(),
            from: arrival,
            newest,
            rows: self.rows_read - rows,
            rows_read: self.rows_read,
            held: None,
            late_after_idle: self.late_after_idle.iter().copied().collect(),
        }
    }

    /// Reads the next rows and pushes them into the join. Returns whether there were some.
    pub(super) fn read(&mut self, (join, now_ms): (&mut QueryJoin, i64)) -> Result<bool> {
        let is_join = join.is_of_lookup(self.number);
        self.make_mark(join.sources()[self.number].newest);
        let replayed_to = (self.rows_to_replay > 0).then_some(self.replayed_to);
        let left = usize::try_from(self.rows_to_replay).unwrap_or(usize::MAX);
        // How many rows of a LAST JOIN are left is not known.
        let (rows_max, end) = match replayed_to {
            Some(_) if is_join && self.part.is_some() => (ROWS_AT_ONCE, u64::MAX),
            Some(replayed_to) if is_join => (ROWS_AT_ONCE, replayed_to),
            Some(_) => (left.min(ROWS_AT_ONCE), u64::MAX),
            None => (ROWS_AT_ONCE, u64::MAX),
        };
        let Self { number, table, tail, program, arena, late_after_idle, late_rows, .. } = self;
        let ahead_ms_max = self.ahead_ms_max;
        let part = self.part.as_mut();
        let is_part = part.is_some();
        let mut rows = ReadRows {
            number: *number,
            table,
            part,
            of_part: 0,
            is_join,
            behind: None,
            program,
            arena,
            ahead_ms_max,
            replayed_to,
            late_after_idle,
            late_rows,
            late: 0,
        };
        let mut pushed = Ok(());
        let read = tail.read_before(end, rows_max, |row| {
            if pushed.is_ok() {
                pushed = rows.push(&row, (join, now_ms));
            }
        });
        let (late, of_part, behind) = (rows.late, rows.of_part, rows.behind);
        arena.reset();
        pushed?;
        let count = read.map_err(|error| lost(&error, &self.table))?;
        let has_read = count > 0;
        let is_replaying = replayed_to.is_some();
        if is_replaying && !is_join && !is_part && count == 0 {
            return Err(removed(&self.table));
        }
        // A replay that ends at a place says nothing of what is behind it.
        self.is_read = count < rows_max && end == u64::MAX;
        let count = if is_part { of_part } else { count };
        if is_part && is_join {
            self.tail.release(behind.unwrap_or_else(|| self.tail.position()));
        }
        self.rows_late += late;
        let read = match is_replaying && is_join && !is_part && count < rows_max {
            // Those that were removed had been read.
            true => self.rows_to_replay,
            false => u64::try_from(count).unwrap_or(u64::MAX),
        };
        self.rows_read += read;
        self.rows_to_replay -= read.min(self.rows_to_replay);
        if behind.is_some() {
            self.tail.rewind();
            self.is_read = false;
            self.end_replay();
        }
        Ok(has_read)
    }

    /// Makes a mark where the source is, unless the last one is near.
    fn make_mark(&mut self, newest: Option<i64>) {
        let last = self.marks.back().map_or(0, |mark| mark.rows);
        if self.rows_read - last >= u64::try_from(ROWS_AT_ONCE).unwrap_or(u64::MAX) {
            let (arrival, position) = (self.next_arrival(), self.tail.position());
            self.marks.push_back(SourceMark { arrival, position, newest, rows: self.rows_read });
        }
    }

    /// Returns the arrival before which all rows were read.
    fn next_arrival(&self) -> u64 {
        self.part.map_or_else(|| self.tail.position(), |part| part.next)
    }
}

/// The rows of a read, which are pushed into the join.
struct ReadRows<'s> {
    number: usize,
    table: &'s str,
    part: Option<&'s mut SourcePart>,
    /// How many rows of the part were read.
    of_part: usize,
    is_join: bool,
    /// The place of the first row of a part behind those of a LAST JOIN that are read again. It is not read yet, nor are
    /// those after it.
    behind: Option<u64>,
    program: &'s mut SourceProgram,
    arena: &'s Arena,
    ahead_ms_max: Option<i64>,
    /// Where the rows end that are read again; `None` where none are.
    replayed_to: Option<u64>,
    late_after_idle: &'s mut VecDeque<u64>,
    late_rows: &'s mut Option<Vec<LateSourceRow>>,
    late: u64,
}

impl ReadRows<'_> {
    fn push(
        &mut self,
        TailRow { arrival, arrival_ms, row }: &TailRow<'_>,
        (join, now_ms): (&mut QueryJoin, i64),
    ) -> Result<()> {
        let (of_table, arena) = (*arrival, self.arena);
        let arrival = match &mut self.part {
            None => of_table,
            Some(_) if self.behind.is_some() => return Ok(()),
            Some(part) => {
                let Some(offset) = part.offset(*row, arena) else { return Ok(()) };
                if self.is_join && self.replayed_to.is_some_and(|end| offset >= end) {
                    self.behind = Some(of_table);
                    return Ok(());
                }
                part.next = offset + 1;
                self.of_part += 1;
                offset
            }
        };
        if self.replayed_to.is_some_and(|replayed_to| arrival >= replayed_to) {
            return Err(removed(self.table));
        }
        let is_replaying = self.replayed_to.is_some();
        if is_replaying && self.late_after_idle.binary_search(&arrival).is_ok() {
            return Ok(());
        }
        let SourceProgram { rows: program, order, times } = &mut *self.program;
        let last_ms = self.ahead_ms_max.map_or(i64::MAX, |ahead| arrival_ms.saturating_add(ahead));
        let columns = program.input().map_or(0, |schema| schema.columns.len());
        let columns = (0..columns).map(|column| row.get_in(column, arena));
        let values: &[Datum<'_>] = arena.alloc_slice_fill_iter(columns);
        let Some(columns) = program.compute(values, of_table, arena)? else {
            let Some(times) = times else { return Ok(()) };
            let time = times.compute(values, of_table, arena)?;
            let time = time.and_then(|columns| columns[0].as_i64());
            let passed = time.filter(|time| *time <= last_ms);
            let passed = passed.map(|time| join.pass(self.number, time, now_ms));
            if passed == Some(Pushed::LateAfterIdle) && !is_replaying {
                self.late_after_idle.push_back(arrival);
            }
            return Ok(());
        };
        let time = columns[*order].as_i64();
        let row = StreamRow { source: self.number, arrival, columns };
        let is_ahead = time > Some(last_ms);
        let pushed = if is_ahead { Pushed::Late } else { join.push(row, now_ms) };
        if is_replaying || !matches!(pushed, Pushed::Late | Pushed::LateAfterIdle) {
            return Ok(());
        }
        self.late += 1;
        if pushed == Pushed::LateAfterIdle {
            self.late_after_idle.push_back(arrival);
        }
        if let Some(late_rows) = self.late_rows {
            let names = program.input().map_or(&[][..], |schema| &schema.columns);
            let names = names.iter().map(|column| column.name.as_str());
            late_rows.push(LateSourceRow {
                table: self.table.to_owned(),
                time,
                arrival: of_table,
                arrival_ms: *arrival_ms,
                row: json_of(names, values),
            });
        }
        Ok(())
    }
}

/// Writes a row as a JSON object.
fn json_of<'n>(names: impl Iterator<Item = &'n str>, row: &[Datum<'_>]) -> String {
    let mut out = Vec::new();
    write_json_object(&mut out, names.zip(row.iter().copied()));
    String::from_utf8(out).unwrap_or_default()
}

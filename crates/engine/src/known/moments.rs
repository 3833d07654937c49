//! The tables of a query as they were at earlier moments: one set of snapshots, cut for each request.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use lockstep_batch::{ExecuteOptions, StoredTables};
use lockstep_diagnostic::Result;
use lockstep_host::temporary::TemporaryStorage;
use lockstep_request::{KnownMoment, PlanRunner, Program, SeenSnapshots};
use lockstep_table::{SharedSnapshot, Snapshot, Table};

use crate::database::TableSet;

/// The tables of a query at one moment, and as they were at an earlier one.
pub(crate) struct KnownTables<'t> {
    /// The ids of the tables: first those of the program, in its order.
    ids: Vec<u64>,
    program_count: usize,
    now: Vec<Snapshot<'t>>,
    /// Parallel to `now`; as it is until the first cut.
    then: Vec<Snapshot<'t>>,
    /// By table id, the index whose retention decides which rows batch mode reads.
    read_through: BTreeMap<u64, usize>,
    /// Where the rows of batch mode go that do not fit into memory.
    temporary: TemporaryStorage,
}

/// The tables of a query at one moment, for other threads to read while the [`KnownTables`] exist.
pub(crate) struct SharedTables<'t> {
    ids: Vec<u64>,
    program_count: usize,
    now: Vec<SharedSnapshot<'t>>,
    read_through: BTreeMap<u64, usize>,
    temporary: TemporaryStorage,
}

impl<'t> SharedTables<'t> {
    /// Makes snapshots of this thread, of the tables of the program.
    pub(crate) fn open_of_program(&self) -> Vec<Snapshot<'t>> {
        self.now[..self.program_count].iter().map(SharedSnapshot::open).collect()
    }

    /// Makes tables of this thread.
    pub(crate) fn open(&self) -> KnownTables<'t> {
        let now: Vec<Snapshot<'t>> = self.now.iter().map(SharedSnapshot::open).collect();
        KnownTables {
            ids: self.ids.clone(),
            program_count: self.program_count,
            then: now.clone(),
            now,
            read_through: self.read_through.clone(),
            temporary: self.temporary.clone(),
        }
    }
}

impl<'t> KnownTables<'t> {
    /// Takes snapshots of the tables of a program, and of others that its query reads, at one moment.
    pub(crate) fn new(
        program: &'t Program,
        others: &'t TableSet,
        read_through: BTreeMap<u64, usize>,
    ) -> Self {
        let mut ids: Vec<u64> = program.tables().map(|(id, _)| id).collect();
        let mut now: Vec<Snapshot<'t>> =
            program.tables().map(|(_, table)| table.snapshot()).collect();
        let program_count = ids.len();
        for (id, table) in &others.by_id {
            if !ids.contains(id) {
                ids.push(*id);
                now.push(table.snapshot());
            }
        }
        assert_eq!(ids.len(), now.len(), "a snapshot of each table");
        Snapshot::align(&mut now);
        let then = now.clone();
        let temporary = others.temporary.clone();
        Self { ids, program_count, now, then, read_through, temporary }
    }

    /// Shares the tables with other threads.
    pub(crate) fn share(&self) -> SharedTables<'_> {
        SharedTables {
            ids: self.ids.clone(),
            program_count: self.program_count,
            now: self.now.iter().map(Snapshot::share).collect(),
            read_through: self.read_through.clone(),
            temporary: self.temporary.clone(),
        }
    }

    /// Returns the snapshot of a table as it is.
    pub(crate) fn now(&self, id: u64) -> Option<&Snapshot<'t>> {
        self.position(id).map(|at| &self.now[at])
    }

    /// Returns the snapshot of a table as it was.
    pub(crate) fn then(&self, id: u64) -> Option<&Snapshot<'t>> {
        self.position(id).map(|at| &self.then[at])
    }

    /// Cuts all tables before an arrival, by the time `now_ms`.
    pub(crate) fn go_to(&mut self, arrival: u64, now_ms: i64) {
        self.go_to_each(now_ms, |_| arrival);
    }

    /// Cuts each table before an arrival of its own, which its id gives, by the time `now_ms`.
    pub(crate) fn go_to_each(&mut self, now_ms: i64, arrival: impl Fn(u64) -> u64) {
        debug_assert_eq!(self.then.len(), self.now.len(), "each table is cut");
        for ((then, now), id) in self.then.iter_mut().zip(&self.now).zip(&self.ids) {
            *then = now.before(arrival(*id), now_ms);
        }
    }

    /// Returns the moment to which the tables are cut, for an answer.
    pub(crate) fn moment(&self) -> KnownMoment<'_> {
        KnownMoment { snapshots: &self.then[..self.program_count], batch: self }
    }

    /// Returns the ids of the tables of which rows that were there at `now_ms`, or later, may have been
    /// removed.
    pub(crate) fn that_may_lack(&self, now_ms: i64) -> Vec<u64> {
        let tables = self.ids.iter().zip(&self.now);
        tables.filter(|(_, now)| now.may_lack(now_ms)).map(|(id, _)| *id).collect()
    }

    /// Returns the ids of the tables of which rows may have expired since a time.
    pub(crate) fn that_expired_since(&self, now_ms: i64) -> Vec<u64> {
        let has_expired = |now: &Snapshot<'_>| now.may_expire() && now.now_ms() > now_ms;
        let tables = self.ids.iter().zip(&self.now);
        tables.filter(|(_, now)| has_expired(now)).map(|(id, _)| *id).collect()
    }

    /// Returns the ids of the tables from which rows that had not expired at a time may have been removed
    /// since by retention.
    pub(crate) fn that_lost_expired(&self, now_ms: i64) -> Vec<u64> {
        let tables = self.ids.iter().zip(&self.now);
        tables.filter(|(_, now)| now.may_have_expired(now_ms)).map(|(id, _)| *id).collect()
    }

    /// Returns the ids of the tables of which rows were removed otherwise than by retention.
    pub(crate) fn that_deleted(&self) -> Vec<u64> {
        let tables = self.ids.iter().zip(&self.now);
        tables.filter(|(_, now)| now.has_deleted()).map(|(id, _)| *id).collect()
    }

    /// Returns the options for batch mode over these tables, in which a query reads what it reads now.
    pub(crate) fn execute_options(&self) -> ExecuteOptions {
        ExecuteOptions {
            read_through: self.read_through.clone(),
            temporary: self.temporary.clone(),
            ..ExecuteOptions::default()
        }
    }

    /// Returns the index through which batch mode reads a table.
    pub(crate) fn index_read(&self, id: u64) -> Option<usize> {
        self.read_through.get(&id).copied()
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.ids.iter().position(|known| *known == id)
    }
}

impl StoredTables for KnownTables<'_> {
    fn table(&self, _id: u64) -> Option<Arc<Table>> {
        None
    }

    fn view(&self, id: u64) -> Option<&Snapshot<'_>> {
        self.then(id)
    }
}

/// The parts of a query that request mode does not compile; as a request has them run, which reads
/// through no index.
impl PlanRunner for KnownTables<'_> {
    fn run(&self, plan: &LogicalPlan, _seen: SeenSnapshots<'_>) -> Result<Vec<RecordBatch>> {
        lockstep_batch::execute(plan, self, &ExecuteOptions::default())
    }
}

impl fmt::Debug for KnownTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownTables").field("ids", &self.ids).finish_non_exhaustive()
    }
}

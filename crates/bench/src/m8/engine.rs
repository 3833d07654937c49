//! Lockstep under M8: one table, and deployments with pre-aggregates and without them.
//!
//! `m8.rs` deploys a family of aggregates, waits until its nodes are made, and drops it; `writes`
//! inserts. Progress and memory are read from `lockstep.pre_aggregates` and `lockstep.tables`, as
//! a user reads them.

use std::{sync::Arc, time::Duration};

use lockstep_engine::{Appender, Database, PreparedRequest, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::{Arena, arrow::ColumnReader};

use super::{
    data::{DataPart, EventRow, KeySet, LongRequest, WINDOW_DAYS},
    family::Family,
};
use crate::{
    error::{Error, Result},
    in_process::InProcess,
    report::LOCKSTEP,
    system::{Client, System},
};

/// Rows of one call of the appender while the table is filled.
const LOAD_ROWS: usize = 256;
/// How often progress is read.
const POLL: Duration = Duration::from_millis(2);
/// Nothing must have been folded for so long for the nodes to count as made.
const QUIET_NS: u64 = 50_000_000;
/// How long making the nodes may take.
const CATCH_UP_NS_MAX: u64 = 1_800_000_000_000;

/// Whether a deployment has pre-aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreAggregates {
    /// For all keys.
    On,
    /// For none.
    Off,
}

/// A database with the table of M8.
#[derive(Debug)]
pub(super) struct M8Lockstep {
    session: Session,
    appender: Appender,
    database: Database,
}

/// What `lockstep.pre_aggregates` says of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PreAggregateProgress {
    /// Keys that wait for nodes.
    pub(super) waiting: u64,
    /// Rows that were folded into leaves.
    pub(super) folded: u64,
    /// Bytes of the nodes.
    pub(super) bytes: u64,
    /// Rows that answers took from nodes.
    pub(super) rows_from_nodes: u64,
}

impl M8Lockstep {
    /// Creates the empty table.
    pub(super) fn new() -> Result<Self> {
        let database = Database::in_memory();
        let session = database.session();
        session.execute(
            "CREATE TABLE events (k STRING, ts TIMESTAMP, amount DOUBLE, units BIGINT, item BIGINT, \
             category STRING, INDEX(KEY=k, TS=ts, TTL=0m, TTL_TYPE=absolute))",
        )?;
        let appender = session.appender("events")?;
        Ok(Self { session, appender, database })
    }

    /// Inserts a part of the rows of all keys.
    pub(super) fn load(&self, sets: &[KeySet], late_percent: u64, part: DataPart) -> Result<()> {
        let keys = sets.iter().flat_map(|set| (0..set.keys).map(move |key| (set, key)));
        for (set, key) in keys {
            let name = set.key(key);
            let mut numbers = set.arrivals(key, late_percent, part).peekable();
            while numbers.peek().is_some() {
                let taken = numbers.by_ref().take(LOAD_ROWS);
                let rows: Vec<EventRow> = taken.map(|number| set.row(key, number)).collect();
                self.appender.append(rows.iter().map(|row| row.datums(&name)))?;
            }
        }
        Ok(())
    }

    /// Returns the appender of the table.
    pub(super) fn appender(&self) -> &Appender {
        &self.appender
    }

    /// Deploys a family of aggregates.
    pub(super) fn deploy(
        &self,
        family: Family,
        pre_aggregates: PreAggregates,
    ) -> Result<Arc<PreparedRequest>> {
        let calls: Vec<String> = family
            .calls()
            .iter()
            .enumerate()
            .map(|(number, call)| format!("{call} OVER w AS f{number}"))
            .collect();
        let setting = match pre_aggregates {
            PreAggregates::On => "always",
            PreAggregates::Off => "off",
        };
        let name = deployment(family, pre_aggregates);
        self.session.execute(&format!("SET pre_aggregation = '{setting}'"))?;
        self.session.execute(&format!(
            "DEPLOY {name} SELECT {} FROM events WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE \
             BETWEEN {WINDOW_DAYS}d PRECEDING AND CURRENT ROW)",
            calls.join(", ")
        ))?;
        self.deployed(family, pre_aggregates)
    }

    /// Returns the deployment of a family.
    pub(super) fn deployed(
        &self,
        family: Family,
        pre_aggregates: PreAggregates,
    ) -> Result<Arc<PreparedRequest>> {
        Ok(self.session.prepare_request(&deployment(family, pre_aggregates))?)
    }

    /// Drops the deployment of a family.
    pub(super) fn drop_deployment(
        &self,
        family: Family,
        pre_aggregates: PreAggregates,
    ) -> Result<()> {
        let name = deployment(family, pre_aggregates);
        self.session.execute(&format!("DROP DEPLOYMENT {name}"))?;
        Ok(())
    }

    /// Returns what is known of the pre-aggregates of a family.
    pub(super) fn progress(&self, family: Family) -> Result<PreAggregateProgress> {
        let name = deployment(family, PreAggregates::On);
        let [waiting, folded, bytes, rows_from_nodes] = self.numbers(&format!(
            "SELECT sum(keys_waiting), sum(rows_folded), sum(memory_bytes), sum(rows_from_nodes) \
             FROM lockstep.pre_aggregates WHERE deployment = '{name}'"
        ))?;
        Ok(PreAggregateProgress { waiting, folded, bytes, rows_from_nodes })
    }

    /// Returns the bytes of the table.
    pub(super) fn table_bytes(&self) -> Result<u64> {
        let sql = "SELECT sum(memory_bytes) FROM lockstep.tables WHERE name = 'events'";
        self.numbers(sql).map(|[bytes]| bytes)
    }

    /// Reads the numbers of a query's only row. NULL is 0.
    fn numbers<const COUNT: usize>(&self, sql: &str) -> Result<[u64; COUNT]> {
        let output = self.session.execute(sql)?;
        let arena = Arena::new();
        let mut numbers = [0; COUNT];
        for batch in output.batches.iter().filter(|batch| batch.num_rows() > 0) {
            for (number, column) in numbers.iter_mut().zip(batch.columns()) {
                let value = ColumnReader::new(column.as_ref()).get(0, &arena);
                *number = u64::try_from(value.as_i64().unwrap_or_default()).unwrap_or_default();
            }
        }
        Ok(numbers)
    }

    /// Makes all nodes that wait to be made.
    pub(super) fn make_nodes(&self) {
        self.database.make_pre_aggregates();
    }

    /// Waits until the pre-aggregates of a family have the nodes of most of these rows, no key waits,
    /// and nothing was made for a while. Returns when the last of them were made, by the clock.
    pub(super) fn wait_for_nodes(
        &self,
        family: Family,
        rows: usize,
        clock: &SystemClock,
    ) -> Result<u64> {
        let rows = u64::try_from(rows).expect("a count fits");
        let start_ns = clock.monotonic_ns();
        let (mut last, mut changed_ns) = (PreAggregateProgress::default(), start_ns);
        loop {
            let progress = self.progress(family)?;
            let now_ns = clock.monotonic_ns();
            if (progress.folded, progress.waiting) != (last.folded, last.waiting) {
                (last, changed_ns) = (progress, now_ns);
            }
            // The newest rows of a key are in no leaf yet.
            let has_most = progress.folded * 4 >= rows * 3;
            let is_quiet = now_ns - changed_ns > QUIET_NS;
            if progress.waiting == 0 && has_most && is_quiet {
                return Ok(changed_ns);
            }
            if now_ns - start_ns > CATCH_UP_NS_MAX {
                return Err(Error::Idle { what: "the pre-aggregates were not built in time" });
            }
            std::thread::park_timeout(POLL);
        }
    }
}

fn deployment(family: Family, pre_aggregates: PreAggregates) -> String {
    match pre_aggregates {
        PreAggregates::On => format!("m8_{}_on", family.name()),
        PreAggregates::Off => format!("m8_{}_off", family.name()),
    }
}

/// A deployment and requests.
#[derive(Debug)]
pub(super) struct DeployedSystem<'a> {
    /// Whether it has pre-aggregates.
    pub(super) pre_aggregates: PreAggregates,
    /// The deployment.
    pub(super) deployed: &'a PreparedRequest,
    /// The requests.
    pub(super) requests: &'a [LongRequest],
}

impl System for DeployedSystem<'_> {
    fn name(&self) -> &'static str {
        match self.pre_aggregates {
            PreAggregates::On => LOCKSTEP,
            PreAggregates::Off => "lockstep_off",
        }
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let rows = self.requests.iter().map(LongRequest::datums).collect();
        Ok(Box::new(InProcess::new(self.deployed, rows)))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        None
    }
}

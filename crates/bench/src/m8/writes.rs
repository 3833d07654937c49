//! Inserts under M8: the same rows into a table without deployments, with one deployment, and with one
//! of each family; the deployments without pre-aggregates and with them.
//!
//! What a deployment costs writes apart from its pre-aggregates, its index includes the columns that it
//! reads, is the same with both.
//! Rows go to many keys in turn, and five of a hundred are late by up to an hour. After the inserts
//! answers with pre-aggregates must be those without, to the bit.

use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_row::Datum;

use super::{
    data::{DataPart, END_MS, EventRow, HOUR_MS, KeySet, LongRequest},
    engine::{DeployedSystem, M8Lockstep, PreAggregates},
    family::Family,
    requests::compare,
};
use crate::{
    answer::AnswerValue,
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::Result,
    measure::{ClientLoad, closed_loop},
    report::median,
    result_table::{MeasurementTable, ResultCell},
    suite::say,
    system::{Client, System},
};

/// Percentage of late rows.
const LATE_PERCENT: u64 = 5;
/// Rows of an insert.
const BATCHES: [usize; 2] = [1, 100];
/// How many tables are compared.
const TABLES: usize = 5;
/// Longer loops would fill the memory.
const RUN_MS_MAX: u64 = 250;
/// Requests whose answers are compared after the inserts.
const CHECKED: usize = 20;

/// The deployments over a table.
#[derive(Clone, Copy)]
struct DeployedFamilies {
    name: &'static str,
    families: &'static [Family],
    pre_aggregates: PreAggregates,
}

/// A table into which rows are inserted.
struct WrittenTable {
    deployed: DeployedFamilies,
    lockstep: M8Lockstep,
    keys: Vec<String>,
    next: AtomicUsize,
}

/// Measures inserts.
pub(super) fn measure(options: &BenchOptions, set: KeySet) -> Result<MeasurementTable> {
    say("inserts");
    let deployed =
        |name, families, pre_aggregates| DeployedFamilies { name, families, pre_aggregates };
    let (off, on) = (PreAggregates::Off, PreAggregates::On);
    let deployments: [DeployedFamilies; TABLES] = [
        deployed("none", &[], off),
        deployed("sum_avg_count", &[Family::Totals], off),
        deployed("sum_avg_count", &[Family::Totals], on),
        deployed("all five", &Family::ALL, off),
        deployed("all five", &Family::ALL, on),
    ];
    let tables = deployments.map(|deployed| WrittenTable::new(deployed, set));
    let tables = tables.into_iter().collect::<Result<Vec<WrittenTable>>>()?;
    let (warm_ms, run_ms) = options.loop_ms();
    let run_ms = run_ms.min(RUN_MS_MAX);
    let load = ClientLoad { threads: 1, warm_ms: warm_ms.min(run_ms), run_ms, requests: 1 };
    let mut rows = Vec::new();
    for batch in BATCHES {
        let (mut rates, mut p99_us) = (vec![Vec::new(); TABLES], vec![Vec::new(); TABLES]);
        for _ in 0..options.runs() {
            for (place, table) in tables.iter().enumerate() {
                let measured = closed_loop(&BatchInserts { table, batch }, load)?;
                rates[place].push(measured.ops_per_s * batch as f64);
                let p99_ns = measured.latency_ns.value_at_quantile(0.99);
                p99_us[place].push(p99_ns as f64 / 1_000.0);
            }
        }
        let medians: Vec<f64> = rates.iter().map(|rates| median(&mut rates.clone())).collect();
        for (place, (rates, p99_us)) in rates.into_iter().zip(p99_us).enumerate() {
            let table = &tables[place];
            // The table before it has the same deployments without pre-aggregates.
            let quotient = match table.deployed.pre_aggregates {
                PreAggregates::On => vec![medians[place] / medians[place - 1]],
                PreAggregates::Off => Vec::new(),
            };
            rows.push(vec![
                ResultCell::Text(table.deployed.name.to_owned()),
                ResultCell::Text(table.deployed.pre_aggregation().to_owned()),
                ResultCell::Text(batch.to_string()),
                ResultCell::Numbers(rates),
                ResultCell::Numbers(p99_us),
                ResultCell::Numbers(quotient),
            ]);
        }
    }
    tables.iter().try_for_each(WrittenTable::check)?;
    Ok(MeasurementTable {
        title: format!("Inserts, {LATE_PERCENT} % late, with pre-aggregates of deployments"),
        columns: vec![
            "deployments",
            "pre_aggregation",
            "rows per insert",
            "rows/s",
            "insert p99 µs",
            "rows/s, always / off",
        ],
        rows,
    })
}

impl DeployedFamilies {
    /// Returns the setting; that of a table without deployments does not matter.
    fn pre_aggregation(self) -> &'static str {
        match (self.families, self.pre_aggregates) {
            ([], _) => "",
            (_, PreAggregates::Off) => "off",
            (_, PreAggregates::On) => "always",
        }
    }
}

impl WrittenTable {
    fn new(deployed: DeployedFamilies, set: KeySet) -> Result<Self> {
        let lockstep = M8Lockstep::new()?;
        for part in [DataPart::Early, DataPart::Further] {
            lockstep.load(&[set], 0, part)?;
        }
        for family in deployed.families {
            lockstep.deploy(*family, deployed.pre_aggregates)?;
        }
        lockstep.make_nodes();
        let keys = (0..set.keys).map(|key| set.key(key)).collect();
        Ok(Self { deployed, lockstep, keys, next: AtomicUsize::new(0) })
    }

    /// Returns the key and the row of an insert.
    fn row(&self, number: usize) -> (&str, EventRow) {
        let place = u64::try_from(number).expect("a count fits");
        let draw = KeyedRandom::at(&[81, place]);
        let hour_ms = u32::try_from(HOUR_MS).expect("an hour fits");
        let late_ms = if draw.chance(0, LATE_PERCENT) { draw.int(1, hour_ms) } else { 0 };
        // Ten rows of a millisecond: event times repeat.
        let ms = i64::try_from(number / 10).expect("a count fits");
        let row = EventRow::at(&[82, place], END_MS + ms - late_ms);
        (&self.keys[number % self.keys.len()], row)
    }

    /// Checks that answers with pre-aggregates are those without, also while nodes lack rows.
    fn check(&self) -> Result<()> {
        let written = self.next.load(Ordering::Relaxed); // Relaxed: the clients have ended.
        let last_ms = END_MS + i64::try_from(written / 10).expect("a count fits");
        let request = |number: usize| LongRequest {
            key: self.keys[number % self.keys.len()].clone(),
            // Windows end before and after the late rows.
            time_ms: last_ms - i64::try_from(number).expect("a count fits") * HOUR_MS / 8,
        };
        let requests: Vec<LongRequest> = (0..CHECKED).map(request).collect();
        for family in self.deployed.families.iter().copied() {
            let find_or_deploy = |pre_aggregates| match self.deployed.pre_aggregates {
                known if known == pre_aggregates => self.lockstep.deployed(family, pre_aggregates),
                _ => self.lockstep.deploy(family, pre_aggregates),
            };
            let off = find_or_deploy(PreAggregates::Off)?;
            let on = find_or_deploy(PreAggregates::On)?;
            let system = |pre_aggregates, deployed| DeployedSystem {
                pre_aggregates,
                deployed,
                requests: &requests,
            };
            let on = system(PreAggregates::On, &*on);
            let off = system(PreAggregates::Off, &*off);
            compare(&on, &[&off], requests.len())?;
            self.lockstep.make_nodes();
            compare(&on, &[&off], requests.len())?;
        }
        Ok(())
    }
}

/// Inserts of so many rows.
struct BatchInserts<'a> {
    table: &'a WrittenTable,
    batch: usize,
}

impl System for BatchInserts<'_> {
    fn name(&self) -> &'static str {
        self.table.deployed.name
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(InsertClient { table: self.table, batch: self.batch, rows: Vec::new() }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        None
    }
}

struct InsertClient<'a> {
    table: &'a WrittenTable,
    batch: usize,
    rows: Vec<[Datum<'a>; 6]>,
}

impl Client for InsertClient<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        // Relaxed: only uniqueness matters.
        let first = self.table.next.fetch_add(self.batch, Ordering::Relaxed);
        self.rows.clear();
        for number in first..first + self.batch {
            let (key, row) = self.table.row(number);
            self.rows.push(row.datums(key));
        }
        self.table.lockstep.appender().append(&self.rows)?;
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.serve(request).map(|()| Vec::new())
    }
}

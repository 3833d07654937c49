//! M16: requests over a table that is ten times as large as the memory of all tables.
//!
//! A window of 20, 100, 1,000 and 10,000 rows over the rows of one key, in a disk table and in a memory table
//! with the same rows, answered one after the other. *Warm*: 64 keys in turn, whose pages are in the page cache;
//! for 10,000 rows fewer, as far as they fit. *Zipf*: keys by a Zipf distribution with exponent 0.99. *Uniform*:
//! any key, so that most pages come from the page cache of the system. *With inserts*: as uniform, while another
//! thread inserts 10,000 rows a second. *Cold*: each key once after the database was opened again, without the
//! system's page cache. The answers of both tables are compared for each key.
//!
//! The peers are PostgreSQL and MariaDB with InnoDB and with `MyRocks`, each with as much memory for its cache as the
//! disk table has for everything (`peers`). Libraries that store rows on a disk are measured over the same shape by
//! `crates/table/engines`.

mod load;
mod peers;

use std::collections::HashMap;

use load::{EventRows, Inserting, LoadedEvents, request_of};
use lockstep_engine::PreparedRequest;
use lockstep_host::{Clock, SystemClock};
use lockstep_row::Arena;
use serde_json::{Map, Value as Json, json};

use self::peers::PeerRun;
use crate::{
    answer::AnswerValue,
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::{Error, Result},
    measure::{latencies, record},
    page_cache::{SystemPageCache, disk_bytes},
    peer::folder::TemporaryFolder,
    report::{Point, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say},
};

/// Keys with `--quick` and without it.
const KEYS_QUICK: u64 = 20;
const KEYS: u64 = 500;
/// The sizes of windows, in rows.
const WINDOWS: [u64; 4] = [20, 100, 1_000, 10_000];
/// Requests of a case, with `--quick` and without it; a window of many rows has fewer.
const REQUESTS_QUICK: u64 = 200;
const REQUESTS: u64 = 4_000;
/// The keys of warm requests.
const WARM_KEYS: u64 = 64;
/// The rows of warm windows together, so that their pages are in the page cache.
const WARM_ROWS: u64 = 30_000;
/// The exponent of the Zipf distribution.
const ZIPF_EXPONENT: f64 = 0.99;

/// The cases without inserts, and the one with them.
const CASES: [(&str, KeyOrder); 3] =
    [("warm", KeyOrder::Warm), ("Zipf", KeyOrder::Zipf), ("uniform", KeyOrder::Uniform)];
const WITH_INSERTS: &str = "uniform, with inserts";
/// The answers of so many keys are compared with those of peers.
const KEYS_COMPARED: u64 = 64;

/// How keys are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyOrder {
    Warm,
    Zipf,
    Uniform,
    /// Each key once.
    Once,
}

/// The keys of the requests of one case.
struct CaseKeys {
    order: KeyOrder,
    keys: u64,
    warm: u64,
    /// For each key the probability that it or one before it is drawn.
    zipf: Vec<f64>,
}

/// The latencies of some requests, in microseconds.
struct CaseLatencies {
    p50: f64,
    p99: f64,
    p999: f64,
    /// Pages of a request that were read from files; `None` for a peer.
    pages_read: Option<f64>,
}

/// The cases that were measured, one line for each table and case, and the ratios.
#[derive(Default)]
struct MeasuredCases {
    lines: Vec<Vec<ResultCell>>,
    ratios: Map<String, Json>,
    /// The p50 of the disk table by window and case.
    of_disk: HashMap<(u64, &'static str), f64>,
}

/// The answers for some keys by window, before anything is inserted.
type ExpectedAnswers = HashMap<u64, Vec<Vec<AnswerValue>>>;

/// Both databases, and what was measured.
struct BothTables {
    memory: LoadedEvents,
    disk: LoadedEvents,
    rows: EventRows,
    /// The number of the next row that is inserted.
    next_row: u64,
    requests: u64,
    cases: MeasuredCases,
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let rows = EventRows { keys: if options.quick { KEYS_QUICK } else { KEYS } };
    say(&format!("M16: {} rows of {} keys", rows.count(), rows.keys));
    let folder = TemporaryFolder::new("m16")?;
    let memory = LoadedEvents::load(&folder.path().join("memory"), "memory", rows, None)?;
    let memory_bytes = memory.memory_bytes()?;
    let limit = (memory_bytes / 10).max(4 << 20);
    say(&format!("a disk table with max_memory = {limit}"));
    let path = folder.path().join("disk");
    let disk = LoadedEvents::load(&path, "disk", rows, Some(limit))?;
    disk.settle()?;
    let disk_memory = disk.memory_bytes()?;
    let file_bytes = disk_bytes(&path.join("data"))?;
    let mut notes = Map::new();
    let per_row = |bytes: u64| json!(rounded(bytes as f64 / rows.count() as f64));
    for (name, value) in [
        ("memory table: bytes of memory for each row", per_row(memory_bytes)),
        ("disk table: bytes of memory for each row, pages included", per_row(disk_memory)),
        ("disk table: bytes of files for each row", per_row(file_bytes)),
        ("bytes of a row's values", json!(rounded(rows.row_bytes()))),
        ("memory table: rows/s of inserts", json!(rounded(memory.rows_per_second))),
        ("disk table: rows/s of inserts", json!(rounded(disk.rows_per_second))),
        ("disk table: bytes written for each row", json!(disk.written_bytes.map(per_row))),
    ] {
        say(&format!("{name}: {value}"));
        notes.insert(name.to_owned(), value);
    }
    let requests = if options.quick { REQUESTS_QUICK } else { REQUESTS };
    let (next_row, cases) = (rows.count(), MeasuredCases::default());
    let mut both = BothTables { memory, disk, rows, next_row, requests, cases };
    let expected = both.measure()?;
    let BothTables { memory, disk, mut cases, .. } = both;
    memory.close()?;
    let open_ms = cold(disk, rows, &mut cases.lines)?;
    notes.insert("open_ms".to_owned(), json!(rounded(open_ms)));
    let run = PeerRun { rows, cache_bytes: limit, requests, expected: &expected };
    peers::measure(options, run, &mut cases, &mut notes)?;
    let MeasuredCases { lines, ratios, .. } = cases;
    let columns = vec!["window", "table", "keys", "p50 µs", "p99 µs", "p999 µs", "pages read"];
    let title = format!("windows over {} rows, max_memory {limit}", rows.count());
    let tables = vec![MeasurementTable { title, columns, rows: lines }];
    let params = json!({ "rows": rows.count(), "keys": rows.keys, "max_memory": limit });
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, notes, ..Outcome::default() })
}

impl BothTables {
    /// Measures all cases but the cold ones. Returns the answers before rows are inserted.
    fn measure(&mut self) -> Result<ExpectedAnswers> {
        let mut expected = HashMap::new();
        let mut requests = Vec::new();
        for window in WINDOWS {
            let in_memory = self.memory.deploy(window)?;
            let on_disk = self.disk.deploy(window)?;
            expected.insert(window, compare(&in_memory, &on_disk, self.rows.keys)?);
            requests.push((window, in_memory, on_disk));
        }
        for (window, in_memory, on_disk) in requests {
            for (name, order) in CASES {
                self.case(window, name, order, [&in_memory, &on_disk])?;
            }
            let (memory, disk) = (self.memory.clone(), self.disk.clone());
            let begin = self.next_row;
            let inserting = [Inserting::start(memory, begin)?, Inserting::start(disk, begin)?];
            self.case(window, WITH_INSERTS, KeyOrder::Uniform, [&in_memory, &on_disk])?;
            let [of_memory, of_disk] = inserting.map(Inserting::end);
            let (of_memory, of_disk) = (of_memory?, of_disk?);
            // Both have the same rows again.
            self.next_row = of_memory.max(of_disk);
            self.memory.insert(of_memory..self.next_row)?;
            self.disk.insert(of_disk..self.next_row)?;
        }
        Ok(expected)
    }

    /// Measures one case in both tables.
    fn case(
        &mut self,
        window: u64,
        name: &'static str,
        order: KeyOrder,
        requests: [&PreparedRequest; 2],
    ) -> Result<()> {
        let keys = CaseKeys::new(order, self.rows.keys, window);
        let count = request_count(self.requests, window);
        let memory = measure(requests[0], &self.memory, count, &keys)?;
        let disk = measure(requests[1], &self.disk, count, &keys)?;
        let ratio = json!(rounded(disk.p50 / memory.p50));
        self.cases.ratios.insert(format!("disk/memory, p50 of {window} rows, {name}"), ratio);
        self.cases.of_disk.insert((window, name), disk.p50);
        self.cases.lines.push(memory.cells(window, "memory", name));
        self.cases.lines.push(disk.cells(window, "disk", name));
        Ok(())
    }
}

/// Returns how many requests are measured over a window, of so many for a short one.
fn request_count(requests: u64, window: u64) -> u64 {
    (requests * 100 / window.max(100)).max(50)
}

/// Measures the disk table after it was opened again, without its files in the system's page cache. Returns how
/// long opening took, in milliseconds.
fn cold(disk: LoadedEvents, rows: EventRows, table: &mut Vec<Vec<ResultCell>>) -> Result<f64> {
    let path = disk.path.clone();
    disk.close()?;
    let mut open_ms = 0.0;
    for window in WINDOWS {
        SystemPageCache::Cold.prepare(&path)?;
        let clock = SystemClock::new();
        let opened = LoadedEvents::open(&path)?;
        open_ms = clock.monotonic_ns() as f64 / 1e6;
        let request = opened.session.prepare_request(&LoadedEvents::deployment(window))?;
        let keys = CaseKeys::new(KeyOrder::Once, rows.keys, window);
        let cold = measure(&request, &opened, rows.keys, &keys)?;
        table.push(cold.cells(window, "disk", "cold"));
        drop(request);
        opened.close()?;
    }
    Ok(open_ms)
}

/// Compares the answers for all keys. Returns those of the first ones.
fn compare(
    memory: &PreparedRequest,
    disk: &PreparedRequest,
    keys: u64,
) -> Result<Vec<Vec<AnswerValue>>> {
    let arena = Arena::new();
    let mut answers = Vec::new();
    for key in 0..keys {
        let row = request_of(key);
        let answer = |request: &PreparedRequest| -> Result<Vec<AnswerValue>> {
            let answer = request.answer(&row, &arena)?.unwrap_or_default();
            Ok(answer.iter().map(AnswerValue::from).collect())
        };
        let (in_memory, on_disk) = (answer(memory)?, answer(disk)?);
        if in_memory != on_disk {
            let difference = format!("{on_disk:?}, but {in_memory:?} in memory");
            let request = usize::try_from(key).unwrap_or(usize::MAX);
            return Err(Error::Disagreement { system: "disk".to_owned(), request, difference });
        }
        if key < KEYS_COMPARED {
            answers.push(on_disk);
        }
    }
    Ok(answers)
}

impl CaseKeys {
    fn new(order: KeyOrder, keys: u64, window: u64) -> Self {
        assert!(keys > 0, "there is a key");
        let warm = (WARM_ROWS / window).clamp(1, WARM_KEYS.min(keys));
        let mut zipf = Vec::new();
        if order == KeyOrder::Zipf {
            let weights: Vec<f64> = (1..=keys).map(weight).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = 0.0;
            zipf.extend(weights.iter().map(|weight| {
                sum += weight / total;
                sum
            }));
        }
        Self { order, keys, warm, zipf }
    }

    fn key(&self, at: u64) -> u64 {
        let draw = KeyedRandom::at(&[16, at]);
        match self.order {
            KeyOrder::Warm => at % self.warm,
            KeyOrder::Once => at % self.keys,
            KeyOrder::Uniform => draw.below(0, self.keys),
            KeyOrder::Zipf => {
                let point = draw.below(0, 1 << 40) as f64 / (1_u64 << 40) as f64;
                let found = self.zipf.partition_point(|sum| *sum <= point);
                u64::try_from(found).unwrap_or(u64::MAX).min(self.keys - 1)
            }
        }
    }
}

/// Returns the weight of a rank in the Zipf distribution.
fn weight(rank: u64) -> f64 {
    libm::pow(rank as f64, -ZIPF_EXPONENT)
}

/// Answers requests of Lockstep as [`measure_calls`] does.
fn measure(
    request: &PreparedRequest,
    loaded: &LoadedEvents,
    count: u64,
    keys: &CaseKeys,
) -> Result<CaseLatencies> {
    let mut arena = Arena::new();
    let pages = || loaded.database.page_cache().reads;
    let mut before = 0;
    let mut latencies = measure_calls(count, keys, &mut || before = pages(), &mut |key| {
        arena.reset();
        std::hint::black_box(request.answer(&request_of(key), &arena)?);
        Ok(())
    })?;
    latencies.pages_read = Some((pages() - before) as f64 / count as f64);
    Ok(latencies)
}

/// Makes calls for keys, one after the other; warm keys each once before, after which `begin` is called.
fn measure_calls(
    count: u64,
    keys: &CaseKeys,
    begin: &mut dyn FnMut(),
    call: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<CaseLatencies> {
    let (mut times, clock) = (latencies(), SystemClock::new());
    if keys.order == KeyOrder::Warm {
        for at in 0..keys.warm {
            call(keys.key(at))?;
        }
    }
    begin();
    for at in 0..count {
        let key = keys.key(at);
        let begun = clock.monotonic_ns();
        call(key)?;
        record(&mut times, clock.monotonic_ns() - begun);
    }
    let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
    Ok(CaseLatencies { p50: at(0.5), p99: at(0.99), p999: at(0.999), pages_read: None })
}

impl CaseLatencies {
    fn cells(&self, window: u64, table: &str, keys: &str) -> Vec<ResultCell> {
        let text = |text: &str| ResultCell::Text(text.to_owned());
        let numbers = |numbers| ResultCell::Numbers(numbers);
        let mut cells = vec![text(&window.to_string()), text(table), text(keys)];
        cells.extend([self.p50, self.p99, self.p999].map(|number| numbers(vec![number])));
        cells.push(self.pages_read.map_or_else(|| text("–"), |pages| numbers(vec![pages])));
        cells
    }
}

//! Results: numbers of each system, ratios, one JSON object, a Markdown table.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::measure::Measured;

/// The name of Lockstep in results.
pub(crate) const LOCKSTEP: &str = "lockstep";
/// The name of the hand-written baseline in results.
pub(crate) const BASELINE: &str = "speed_of_light";

/// One system under one load, run once or more often.
#[derive(Debug, Clone)]
pub(crate) struct LoadRuns {
    /// Client threads.
    pub(crate) threads: usize,
    /// The result of each run.
    pub(crate) runs: Vec<Measured>,
}

/// One system at one point of a workload.
#[derive(Debug, Clone)]
pub(crate) struct SystemResult {
    /// Its name.
    pub(crate) name: String,
    /// Memory of a row in bytes, as the system states it.
    pub(crate) bytes_per_row: Option<f64>,
    /// Its loads; the first one gives the headline.
    pub(crate) loads: Vec<LoadRuns>,
}

/// Everything measured at one point of a workload's parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Point {
    /// The parameters.
    pub(crate) params: Json,
    /// Lockstep first.
    pub(crate) systems: Vec<SystemResult>,
    /// Ratios besides those of times, by name.
    pub(crate) ratios: Map<String, Json>,
}

/// Returns the numbers of a run, by name; microseconds, operations per second.
fn numbers(measured: &Measured) -> [(&'static str, f64); 6] {
    let us = |quantile: f64| measured.latency_ns.value_at_quantile(quantile) as f64 / 1_000.0;
    [
        ("p50_us", us(0.5)),
        ("p99_us", us(0.99)),
        ("p999_us", us(0.999)),
        ("p9999_us", us(0.9999)),
        ("max_us", measured.latency_ns.max() as f64 / 1_000.0),
        ("ops_per_s", measured.ops_per_s),
    ]
}

/// Rounds a number as results show it: to four significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    format!("{value:.3e}").parse().expect("a written number is a number")
}

/// Returns the median of some numbers; of the two in the middle the smaller.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    assert!(!values.is_empty(), "the median of no runs");
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

impl LoadRuns {
    /// Medians over the runs, and with more than one run the least and the greatest.
    fn json(&self) -> Map<String, Json> {
        let all: Vec<_> = self.runs.iter().map(numbers).collect();
        let mut stats = Map::new();
        let mut spread = Map::new();
        for place in 0..all[0].len() {
            let name = all[0][place].0;
            let mut values: Vec<f64> = all.iter().map(|run| run[place].1).collect();
            let middle = rounded(median(&mut values));
            stats.insert(name.to_owned(), json!(middle));
            let (least, greatest) = (rounded(values[0]), rounded(values[values.len() - 1]));
            spread.insert(name.to_owned(), json!([least, middle, greatest]));
        }
        let operations: u64 = self.runs.iter().map(|run| run.latency_ns.len()).sum();
        stats.insert("operations".to_owned(), json!(operations));
        if self.runs.len() > 1 {
            stats.insert("min_median_max".to_owned(), Json::Object(spread));
        }
        stats
    }

    /// Returns the median over the runs of one of the numbers.
    pub(crate) fn median(&self, name: &str) -> f64 {
        let of = |run: &Measured| {
            let found = numbers(run).into_iter().find(|(known, _)| *known == name);
            found.expect("a number of this name").1
        };
        median(&mut self.runs.iter().map(of).collect::<Vec<f64>>())
    }
}

impl SystemResult {
    fn json(&self) -> Json {
        let Some(first) = self.loads.first() else {
            let none = ["p50_us", "p99_us", "p999_us", "p9999_us", "ops_per_s"];
            let mut stats: Map<String, Json> =
                none.map(|name| (name.to_owned(), Json::Null)).into_iter().collect();
            stats.insert("bytes_per_row".to_owned(), json!(self.bytes_per_row.map(rounded)));
            return Json::Object(stats);
        };
        let mut stats = first.json();
        stats.insert("bytes_per_row".to_owned(), json!(self.bytes_per_row.map(rounded)));
        stats.insert("threads".to_owned(), json!(first.threads));
        if self.loads.len() > 1 {
            let loads = self.loads.iter();
            let loads = loads.map(|load| (load.threads.to_string(), Json::Object(load.json())));
            stats.insert("by_threads".to_owned(), Json::Object(loads.collect()));
        }
        Json::Object(stats)
    }

    fn p50_us(&self) -> Option<f64> {
        self.loads.first().map(|load| load.median("p50_us"))
    }
}

impl Point {
    fn lockstep_p50_us(&self) -> Option<f64> {
        self.systems.iter().find(|system| system.name == LOCKSTEP).and_then(SystemResult::p50_us)
    }

    /// Returns the ratios by p50: each peer to Lockstep, and Lockstep to the speed of light; and
    /// Lockstep's p99 to its p50.
    fn ratios(&self) -> Json {
        let mut ratios = self.ratios.clone();
        let Some(own) = self.lockstep_p50_us() else { return Json::Object(ratios) };
        for system in &self.systems {
            let Some(p50_us) = system.p50_us() else { continue };
            match system.name.as_str() {
                LOCKSTEP => {
                    let tail = system.loads[0].median("p99_us") / p50_us;
                    ratios.insert("lockstep_p99/lockstep_p50".to_owned(), json!(rounded(tail)));
                }
                BASELINE => {
                    let times = rounded(own / p50_us);
                    ratios.insert(format!("{LOCKSTEP}/{BASELINE}"), json!(times));
                }
                peer => {
                    let times = rounded(p50_us / own);
                    ratios.insert(format!("{peer}/{LOCKSTEP}"), json!(times));
                }
            }
        }
        Json::Object(ratios)
    }

    /// Returns the systems and the ratios of this point.
    pub(crate) fn json(&self) -> Map<String, Json> {
        let systems = self.systems.iter().map(|system| (system.name.clone(), system.json()));
        let mut object = Map::new();
        object.insert("params".to_owned(), self.params.clone());
        object.insert("systems".to_owned(), Json::Object(systems.collect()));
        object.insert("ratios".to_owned(), self.ratios());
        object
    }

    /// Returns a table of the systems: one line for each system and number of threads.
    pub(crate) fn markdown(&self) -> String {
        let mut text = "| system | threads | p50 µs | p99 µs | p999 µs | p9999 µs | ops/s | \
                        bytes/row | × Lockstep |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
            .to_owned();
        let own = self.lockstep_p50_us();
        for system in &self.systems {
            if let (true, Some(bytes)) = (system.loads.is_empty(), system.bytes_per_row) {
                let (name, bytes) = (&system.name, short(bytes));
                writeln!(text, "| {name} | – | – | – | – | – | – | {bytes} | |")
                    .expect("a string takes everything");
            }
            for load in &system.loads {
                let of = |name: &str| short(load.median(name));
                let bytes = system.bytes_per_row.map_or_else(|| "–".to_owned(), short);
                let times = own.map_or_else(String::new, |own| short(load.median("p50_us") / own));
                let (name, threads) = (&system.name, load.threads);
                let numbers = ["p50_us", "p99_us", "p999_us", "p9999_us", "ops_per_s"].map(of);
                writeln!(
                    text,
                    "| {name} | {threads} | {} | {bytes} | {times} |",
                    numbers.join(" | ")
                )
                .expect("a string takes everything");
            }
        }
        text
    }
}

/// Formats a number with three significant digits, for a table.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let whole = text.split('.').next().map_or(0, str::len);
    if digits > 0 || whole <= 3 {
        return text;
    }
    let mut grouped = String::new();
    for (place, digit) in text.chars().enumerate() {
        if place > 0 && (whole - place).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{LoadRuns, Point, SystemResult, short};
    use crate::measure::{Measured, latencies, record};

    fn runs(latency_us: &[u64]) -> LoadRuns {
        let run = |us: &u64| {
            let mut latency_ns = latencies();
            (0..1_000).for_each(|_| record(&mut latency_ns, us * 1_000));
            Measured { latency_ns, ops_per_s: 1e6 / *us as f64 }
        };
        LoadRuns { threads: 1, runs: latency_us.iter().map(run).collect() }
    }

    #[test]
    fn a_point_states_medians_and_ratios() {
        let system = |name: &str, latency_us: &[u64]| SystemResult {
            name: name.to_owned(),
            bytes_per_row: None,
            loads: vec![runs(latency_us)],
        };
        let systems = vec![
            system("lockstep", &[30, 20, 10]),
            system("speed_of_light", &[10]),
            system("duckdb", &[4_000]),
        ];
        let point = Point { params: json!({}), systems, ratios: serde_json::Map::new() };
        let json = point.json();
        let p50 = json["systems"]["lockstep"]["p50_us"].as_f64().unwrap();
        assert!((p50 - 20.0).abs() < 0.1, "{p50}");
        let spread = &json["systems"]["lockstep"]["min_median_max"]["p50_us"];
        assert!((spread[0].as_f64().unwrap() - 10.0).abs() < 0.1, "{spread}");
        let ratio = json["ratios"]["duckdb/lockstep"].as_f64().unwrap();
        assert!((ratio - 200.0).abs() < 1.0, "{ratio}");
        let ratio = json["ratios"]["lockstep/speed_of_light"].as_f64().unwrap();
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
        assert_eq!(point.markdown().lines().count(), 5);
    }

    #[test]
    fn numbers_of_a_table_have_three_digits() {
        let texts = [1.234, 12.34, 123.4, 1_234.5, 1_234_567.0].map(short);
        assert_eq!(texts, ["1.23", "12.3", "123", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
    }
}

//! The phases of the measurement: the build, and reads with less and less in caches.
//!
//! *Warm*: a few keys whose pages fit in the engine's cache, after each was read once. *OS-warm*: all
//! keys; the files are in the operating system's cache, and the same number of other queries ran before.
//! *Cold*: the engine is opened again and the operating system's cache dropped before each batch of
//! queries, in which every key is read once. Queries and their keys are the same for all engines.

use std::error::Error;

use lockstep_host::{Clock, SystemClock};

use crate::{
    draw::{Distribution, draw, draw_distinct},
    engine::{Engine, EngineSpec},
    figures::{Case, Figures, Phase},
    machine,
    workload::WindowSum,
};

/// Numbers of rows of queries, the largest first, so that it fills the cache.
const NEWEST: [usize; 3] = [1_000, 100, 20];
const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Zipf];
/// Number of keys of a cold batch.
const COLD_KEYS: usize = 200;
/// Maximum number of keys of the warm phase.
const WARM_KEYS_MAX: u64 = 64;
/// Estimated maximum size of the pages of a key in a cache: 200 pages of 40 KiB.
const KEY_BYTES_MAX: u64 = 8 << 20;

/// Builds an engine and prints what it costs.
pub(crate) fn build(spec: &EngineSpec) -> Result<(), Box<dyn Error>> {
    let figures = Figures { configuration: spec.configuration };
    let clock = SystemClock::new();
    let written = machine::written_bytes()?;
    Engine::build(spec)?;
    let nanoseconds = clock.monotonic_ns();
    figures.print_build("seconds", format_args!("{:.2}", nanoseconds as f64 / 1e9));
    figures.print_build("written_bytes", machine::written_bytes()? - written);
    figures.print_build("disk_bytes", machine::file_bytes(&spec.directory)?);
    figures.print_build("resident_bytes", machine::resident_bytes()?);
    figures.print_build("resident_bytes_max", machine::resident_bytes_max()?);
    Ok(())
}

/// Runs the phases that read, with this number of queries in each case that is not cold.
pub(crate) fn read(spec: &EngineSpec, queries: usize) -> Result<(), Box<dyn Error>> {
    if queries == 0 {
        return Err("at least one query is required".into());
    }
    let engine = Engine::open(spec)?;
    warm(spec, &engine, queries)?;
    os_warm(spec, &engine, queries)?;
    drop(engine);
    cold(spec)
}

fn warm(spec: &EngineSpec, engine: &Engine, queries: usize) -> Result<(), Box<dyn Error>> {
    let ranks = (spec.cache_bytes / KEY_BYTES_MAX).clamp(1, WARM_KEYS_MAX);
    let ranks = ranks.min(spec.workload.keys());
    let all = keys(spec, (0..ranks).collect());
    for case in cases(Phase::Warm) {
        run(engine, &all, case.newest)?;
        let drawn = draw(case.distribution, ranks, seed(case, 0), queries);
        measure(spec, engine, case, &keys(spec, drawn))?;
    }
    Ok(())
}

fn os_warm(spec: &EngineSpec, engine: &Engine, queries: usize) -> Result<(), Box<dyn Error>> {
    machine::read_files(&spec.directory)?;
    let ranks = spec.workload.keys();
    for case in cases(Phase::OsWarm) {
        let drawn = |pass| keys(spec, draw(case.distribution, ranks, seed(case, pass), queries));
        run(engine, &drawn(0), case.newest)?;
        measure(spec, engine, case, &drawn(1))?;
    }
    Ok(())
}

fn cold(spec: &EngineSpec) -> Result<(), Box<dyn Error>> {
    for newest in NEWEST {
        let case = Case { phase: Phase::Cold, distribution: Distribution::Uniform, newest };
        let drawn = draw_distinct(spec.workload.keys(), seed(case, 0), COLD_KEYS);
        let engine = Engine::open(spec)?;
        // After the engine was opened, which reads files.
        let phase = if machine::drop_cache() { Phase::Cold } else { Phase::Reopened };
        measure(spec, &engine, Case { phase, ..case }, &keys(spec, drawn))?;
    }
    Ok(())
}

/// Returns the cases of a phase.
fn cases(phase: Phase) -> impl Iterator<Item = Case> {
    let by_distribution =
        move |newest| DISTRIBUTIONS.map(|distribution| Case { phase, distribution, newest });
    NEWEST.into_iter().flat_map(by_distribution)
}

/// Returns the seed of a pass of a case.
fn seed(case: Case, pass: u64) -> u64 {
    let Case { phase, distribution, newest } = case;
    let newest = u64::try_from(newest).expect("a count fits in 64 bits");
    (newest << 8) | ((phase as u64) << 4) | ((distribution as u64) << 2) | pass
}

/// Returns the keys that have these ranks.
fn keys(spec: &EngineSpec, ranks: Vec<u64>) -> Vec<u64> {
    ranks.into_iter().map(|rank| spec.workload.spread(rank)).collect()
}

/// Runs queries that are not measured.
fn run(engine: &Engine, keys: &[u64], newest: usize) -> Result<(), Box<dyn Error>> {
    for key in keys {
        engine.window(*key, newest)?;
    }
    Ok(())
}

/// Runs queries, compares their results with the workload, and prints the figures.
fn measure(
    spec: &EngineSpec,
    engine: &Engine,
    case: Case,
    keys: &[u64],
) -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::new();
    let (mut latencies, mut sums) =
        (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    let (blocks, bytes) = (engine.blocks_read(), machine::read_bytes()?);
    for key in keys {
        let start = clock.monotonic_ns();
        let sum = engine.window(*key, case.newest)?;
        latencies.push(clock.monotonic_ns() - start);
        sums.push(sum);
    }
    let (blocks, bytes) = (engine.blocks_read() - blocks, machine::read_bytes()? - bytes);
    let resident = machine::resident_bytes()?;
    let amount = checked_amount(spec, case, keys, &sums)?;
    latencies.sort_unstable();
    let figures = Figures { configuration: spec.configuration };
    for (measure, permille) in [("p50_us", 500), ("p99_us", 990), ("p999_us", 999)] {
        let microseconds = percentile(&latencies, permille) as f64 / 1e3;
        figures.print_case(case, measure, format_args!("{microseconds:.1}"));
    }
    let per_query = |count: u64| count as f64 / keys.len() as f64;
    figures.print_case(case, "blocks_per_query", format_args!("{:.3}", per_query(blocks)));
    figures.print_case(case, "disk_bytes_per_query", format_args!("{:.0}", per_query(bytes)));
    figures.print_case(case, "resident_bytes", resident);
    figures.print_case(case, "amount", format_args!("{amount:.2}"));
    Ok(())
}

/// Returns the sum of the amounts of all queries; fails if one is not as expected.
fn checked_amount(
    spec: &EngineSpec,
    case: Case,
    keys: &[u64],
    sums: &[WindowSum],
) -> Result<f64, Box<dyn Error>> {
    let mut amount = 0.0;
    for (key, found) in keys.iter().zip(sums) {
        let expected = spec.workload.expected(*key, case.newest);
        if *found != expected {
            return Err(format!("key {key}: found {found:?}, expected {expected:?}").into());
        }
        amount += found.amount;
    }
    Ok(amount)
}

/// Returns the smallest latency that at least `permille` of 1,000 queries do not exceed.
fn percentile(sorted: &[u64], permille: usize) -> u64 {
    let rank = (sorted.len() * permille).div_ceil(1_000);
    sorted[rank.max(1) - 1]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Phase, cases, percentile, seed};

    #[test]
    fn a_percentile_is_a_latency_that_was_measured() {
        let latencies: Vec<u64> = (1..=1_000).collect();
        assert_eq!(percentile(&latencies, 500), 500);
        assert_eq!(percentile(&latencies, 999), 999);
        assert_eq!(percentile(&[7], 500), 7);
        assert_eq!(percentile(&[7, 8], 999), 8);
    }

    #[test]
    fn every_pass_has_a_seed_of_its_own() {
        let all = [Phase::Warm, Phase::OsWarm].into_iter().flat_map(cases);
        let seeds: BTreeSet<u64> = all.flat_map(|case| [seed(case, 0), seed(case, 1)]).collect();
        assert_eq!(seeds.len(), 24);
    }
}

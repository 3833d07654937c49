//! M9: training sets, from rows in memory to a Parquet file.
//!
//! Five aggregates of each window, over one window, four windows of different keys, one window of which 80 %
//! of the rows have one key; two point-in-time joins; a wide query, ten aggregates of each of ten windows
//! with the joins; and the demonstration's training set, whose rows are also taken fifty times. Each
//! system runs in a process of its own, which is filled from one file first; the time is that of the
//! query with the writing of its result, memory by how much the process grew at its greatest, both read
//! from outside. Every result is read afterwards: it must have the same number of rows and the same sums.

mod baseline;
mod flights;
mod shape;
mod step;

use std::path::Path;

use lockstep_engine::Database;
use lockstep_row::{Arena, arrow::ColumnReader};
use serde_json::{Map, Value as Json, json};
use shape::TrainingShape;
pub(crate) use step::run_step;
use step::{TrainingStep, TrainingSystem};

use crate::{
    arguments::{BenchOptions, PeerName},
    error::{Error, Result},
    measured_process::ProcessFigures,
    peer::{duckdb::DuckDb, folder::TemporaryFolder, install::python_program},
    report::{Point, median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say, wanted},
};

/// Rows with `--quick`, without it, and with `--sweep` beside that.
const ROWS_QUICK: u64 = 200_000;
const ROWS: u64 = 1_000_000;
const ROWS_OF_SWEEP: [u64; 2] = [10_000_000, 50_000_000];

/// The measurements of one system.
struct TrainingRuns {
    system: TrainingSystem,
    figures: Vec<ProcessFigures>,
}

impl TrainingRuns {
    fn median_of(&self, of: impl Fn(&ProcessFigures) -> f64) -> f64 {
        assert!(!self.figures.is_empty(), "{} was measured", self.system.name());
        median(&mut self.figures.iter().map(of).collect::<Vec<f64>>())
    }

    fn cells(&self, rows: u64) -> Vec<ResultCell> {
        let numbers = |of: &dyn Fn(&ProcessFigures) -> f64| {
            ResultCell::Numbers(self.figures.iter().map(of).collect())
        };
        vec![
            ResultCell::Text(self.system.name().to_owned()),
            numbers(&|figures| figures.ms),
            numbers(&|figures| rows as f64 * 1e3 / figures.ms),
            numbers(&|figures| figures.memory_mib),
            numbers(&|figures| figures.processors),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let row_counts = match (options.quick, options.sweep) {
        (true, _) => vec![ROWS_QUICK],
        (false, false) => vec![ROWS],
        (false, true) => [ROWS].into_iter().chain(ROWS_OF_SWEEP).collect(),
    };
    let systems = systems(options)?;
    let (mut tables, mut ratios) = (Vec::new(), Map::new());
    let mut measure_shape = |shape: TrainingShape, rows: u64, source: &Path| -> Result<()> {
        if !systems.iter().any(|system| system.has(shape, rows)) {
            return Ok(());
        }
        let title = format!("{}, {rows} rows", shape.title());
        say(&format!("M9 {title}"));
        let mut measured: Vec<TrainingRuns> = Vec::new();
        let mut expected = None;
        for system in systems.iter().filter(|system| system.has(shape, rows)) {
            let step = TrainingStep { system: *system, shape, rows, source: source.to_owned() };
            measured.push(measure(options, &step, source, &mut expected)?);
        }
        add_ratios(&mut ratios, &measured, &title);
        let columns = vec!["system", "ms", "rows/s", "MiB", "processors"];
        let cells = measured.iter().map(|runs| runs.cells(rows)).collect();
        tables.push(MeasurementTable { title, columns, rows: cells });
        Ok(())
    };
    for rows in &row_counts {
        let folder = TemporaryFolder::new("m9")?;
        shape::write_rows(*rows, folder.path())?;
        for shape in TrainingShape::OF_MADE_ROWS {
            measure_shape(shape, *rows, folder.path())?;
        }
    }
    if python_environment(flights::ENVIRONMENT).is_ok() {
        for copies in flight_copies(options) {
            let folder = TemporaryFolder::new("m9")?;
            let rows = flights::write_rows(*copies, folder.path())?;
            measure_shape(TrainingShape::Flights, rows, folder.path())?;
        }
    } else {
        say("the flights are skipped: `--install` fetches them");
    }
    let params: Json = json!({ "rows": row_counts, "aggregates_per_window": 5 });
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, ..Outcome::default() })
}

/// Returns the systems that are there.
fn systems(options: &BenchOptions) -> Result<Vec<TrainingSystem>> {
    let mut systems = vec![
        TrainingSystem::Lockstep,
        TrainingSystem::LockstepLimited,
        TrainingSystem::SpeedOfLight,
    ];
    if wanted(options, PeerName::Duckdb, || DuckDb::open_at(None).map(drop))?.is_some() {
        systems.push(TrainingSystem::DuckDb);
    }
    if wanted(options, PeerName::Polars, || python_environment("polars"))?.is_some() {
        systems.push(TrainingSystem::Polars);
    }
    if wanted(options, PeerName::Spark, || python_environment("pyspark"))?.is_some() {
        systems.push(TrainingSystem::Spark);
    }
    Ok(systems)
}

/// Fails where a Python environment is not installed.
pub(crate) fn python_environment(name: &'static str) -> Result<()> {
    let program = python_program(name);
    if program.exists() {
        return Ok(());
    }
    Err(Error::Missing {
        system: name,
        message: format!("program {} not found", program.display()),
    })
}

/// Returns how many times the flights are taken.
fn flight_copies(options: &BenchOptions) -> &'static [u64] {
    if options.quick || !options.sweep { &[1] } else { &[1, 50] }
}

/// Adds how many times as long as Lockstep each peer takes, and Lockstep beside the hand-written loop.
fn add_ratios(ratios: &mut Map<String, Json>, measured: &[TrainingRuns], title: &str) {
    let Some((own, peers)) = measured.split_first() else { return };
    debug_assert_eq!(own.system, TrainingSystem::Lockstep, "the first system is Lockstep");
    let own_ms = own.median_of(|figures| figures.ms);
    for peer in peers {
        let (name, ms) = (peer.system.name(), peer.median_of(|figures| figures.ms));
        let (name, ratio) = match peer.system {
            TrainingSystem::SpeedOfLight => (format!("lockstep/{name}"), own_ms / ms),
            _ => (format!("{name}/lockstep"), ms / own_ms),
        };
        ratios.insert(format!("{name}, {title}"), json!(rounded(ratio)));
    }
}

/// Measures a system, and checks that every result is that of the system before.
fn measure(
    options: &BenchOptions,
    step: &TrainingStep,
    folder: &Path,
    expected: &mut Option<String>,
) -> Result<TrainingRuns> {
    let system = step.system;
    say(system.name());
    let mut figures = Vec::new();
    for run in 0..options.runs() {
        let target = folder.join(format!("{}-{run}.parquet", system.name()));
        figures.push(step.perform(&target)?);
        let found = sums_of(&target, step.shape)?;
        let expected = expected.get_or_insert_with(|| found.clone());
        if found != *expected {
            let difference = format!("{found}, but the first system returns {expected}");
            return Err(Error::Disagreement {
                system: system.name().to_owned(),
                request: 0,
                difference,
            });
        }
        // A folder of Spark's, or a file.
        let _removed = std::fs::remove_file(&target).or_else(|_| std::fs::remove_dir_all(&target));
    }
    Ok(TrainingRuns { system, figures })
}

/// Reads a result: the number of its rows, and the sum of each column with the digits that any order of
/// additions has.
fn sums_of(target: &Path, shape: TrainingShape) -> Result<String> {
    let database = Database::in_memory();
    let files = match target.is_dir() {
        true => target.join("*.parquet"),
        false => target.to_owned(),
    };
    let columns = shape.columns();
    let sums: Vec<String> = columns.iter().map(|column| format!("sum(double({column}))")).collect();
    let query = format!("SELECT count(*), {} FROM '{}'", sums.join(", "), files.display());
    let output = database.session().execute(&query)?;
    let arena = Arena::new();
    let batches = output.batches.iter().filter(|batch| batch.num_rows() > 0);
    let numbers = batches.flat_map(|batch| batch.columns()).map(|column| {
        let value = ColumnReader::new(column.as_ref()).get(0, &arena);
        value.as_f64().or(value.as_i64().map(|value| value as f64)).unwrap_or(f64::NAN)
    });
    Ok(numbers.map(|number| format!("{number:.6e}")).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::{
        shape::{self, TrainingShape},
        step::{TrainingStep, TrainingSystem},
        sums_of,
    };
    use crate::peer::folder::TemporaryFolder;

    #[test]
    fn the_loop_and_lockstep_give_the_same_training_sets() {
        let folder = TemporaryFolder::new("m9-test").unwrap();
        let source = shape::write_rows(2_000, folder.path()).unwrap();
        let systems = [
            TrainingSystem::Lockstep,
            TrainingSystem::LockstepLimited,
            TrainingSystem::SpeedOfLight,
        ];
        for shape in TrainingShape::OF_MADE_ROWS {
            let mut found = Vec::new();
            for system in systems {
                if system.has(shape, 2_000) {
                    let step = TrainingStep { system, shape, rows: 2_000, source: source.clone() };
                    let target = folder.path().join(format!("{}.parquet", system.name()));
                    step.fill().unwrap().write(&target).unwrap();
                    found.push(sums_of(&target, shape).unwrap());
                }
            }
            assert!(found[0].starts_with("2.000000e3 "), "{found:?}");
            assert!(found.iter().all(|sums| *sums == found[0]), "{found:?}");
        }
    }

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let (system, shape) = (TrainingSystem::Spark, TrainingShape::Skew);
        let step = TrainingStep { system, shape, rows: 30, source: "/tmp/t".into() };
        assert_eq!(TrainingStep::of_text(&step.to_json().to_string()), Some(step));
        assert_eq!(TrainingStep::of_text("[]"), None);
    }
}

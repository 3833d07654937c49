//! Runs the workload of the command line: loads, compares answers, measures, reports.

use std::{fs, path::Path};

use lockstep_host::disk;
use serde_json::{Map, Value as Json, json};

use crate::{
    answer::{Closeness, difference},
    arguments::{BenchOptions, PeerChoice, PeerName, WorkloadId},
    curves::{Curves, picture},
    error::{Error, Result, Trying},
    m1, m2, m3, m4, m5, m6, m8, m9, m10, m11, m13, m14, m16, m17, machine,
    measure::{ClientLoad, closed_loop},
    peer::install::install,
    plot::svg,
    publish::{publish, section},
    report::{BASELINE, LOCKSTEP, LoadRuns, Point, SystemResult},
    result_table::{MeasurementTable, markdown},
    system::System,
};

/// Requests that every system answers before anything is timed.
const SAMPLES: usize = 64;

/// The result of a workload: the point of default parameters, and sweeps.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The default parameters.
    pub(crate) point: Point,
    /// Each sweep's name and points.
    pub(crate) sweeps: Vec<(&'static str, Vec<Point>)>,
    /// Other results, by name.
    pub(crate) notes: Map<String, Json>,
    /// Tables of workloads that are no closed loop of requests.
    pub(crate) tables: Vec<MeasurementTable>,
    /// Pictures of such workloads.
    pub(crate) curves: Vec<Curves>,
}

/// Runs the command.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    if let Some(step) = &options.restart_step {
        return m11::run_step(step);
    }
    if let Some(step) = &options.grouping_step {
        return m10::run_step(step);
    }
    if let Some(step) = &options.training_step {
        return m9::run_step(step);
    }
    if let Some(step) = &options.network_step {
        return m14::run_step(step);
    }
    if let Some(step) = &options.stream_step {
        return m17::run_step(step);
    }
    if options.install {
        install(&mut |line| say(line))?;
    }
    if let Some(workload) = options.workload {
        run_workload(options, workload)?;
    }
    match &options.publish {
        Some(page) => publish(&options.results(), page),
        None => Ok(()),
    }
}

fn run_workload(options: &BenchOptions, workload: WorkloadId) -> Result<()> {
    let machine = machine::describe();
    let outcome = match workload {
        WorkloadId::M1 => m1::run(options)?,
        WorkloadId::M2 => m2::run(options)?,
        WorkloadId::M3 => m3::run(options)?,
        WorkloadId::M4 => m4::run(options)?,
        WorkloadId::M5 => m5::run(options)?,
        WorkloadId::M6 => m6::run(options)?,
        WorkloadId::M8 => m8::run(options)?,
        WorkloadId::M9 => m9::run(options)?,
        WorkloadId::M10 => m10::run(options)?,
        WorkloadId::M11 => m11::run(options)?,
        WorkloadId::M13 => m13::run(options)?,
        WorkloadId::M14 => m14::run(options)?,
        WorkloadId::M15 => m14::run_beside(options)?,
        WorkloadId::M16 => m16::run(options)?,
        WorkloadId::M17 => m17::run(options)?,
    };
    let id = format!("{workload:?}");
    let result = result_of(&id, machine, &outcome);
    if !outcome.point.systems.is_empty() {
        say(&outcome.point.markdown());
    }
    outcome.tables.iter().for_each(|table| say(&markdown(&table.json())));
    if !outcome.tables.is_empty() {
        let ratios = outcome.point.ratios.iter();
        ratios.for_each(|(name, times)| say(&format!("{name}: {times}")));
    }
    if let Some(folder) = &options.out {
        write_files(folder, &id, &result, &outcome)?;
    }
    if options.json {
        say(&result.to_string());
    }
    Ok(())
}

/// Makes the result object.
fn result_of(id: &str, machine: Json, outcome: &Outcome) -> Json {
    let mut object = Map::new();
    object.insert("workload".to_owned(), json!(id));
    object.insert("params".to_owned(), outcome.point.params.clone());
    object.insert("commit".to_owned(), json!(machine::commit()));
    object.insert("machine".to_owned(), machine);
    for (name, value) in outcome.point.json().into_iter().filter(|(name, _)| name != "params") {
        object.insert(name, value);
    }
    for (name, value) in &outcome.notes {
        object.insert(name.clone(), value.clone());
    }
    let sweeps = outcome.sweeps.iter().map(|(name, points)| {
        let points = points.iter().map(|point| Json::Object(point.json())).collect();
        ((*name).to_owned(), Json::Array(points))
    });
    let sweeps: Map<String, Json> = sweeps.collect();
    if !sweeps.is_empty() {
        object.insert("sweeps".to_owned(), Json::Object(sweeps));
    }
    if !outcome.tables.is_empty() {
        let tables = outcome.tables.iter().map(MeasurementTable::json).collect();
        object.insert("tables".to_owned(), Json::Array(tables));
    }
    if !outcome.curves.is_empty() {
        let curves = outcome.curves.iter().map(Curves::json).collect();
        object.insert("curves".to_owned(), Json::Array(curves));
    }
    Json::Object(object)
}

/// Writes the JSON, a table and a picture.
fn write_files(folder: &Path, id: &str, result: &Json, outcome: &Outcome) -> Result<()> {
    fs::create_dir_all(folder).trying(|| format!("create directory {}", folder.display()))?;
    let write = |extension: &str, text: &str| {
        let path = folder.join(format!("{id}.{extension}"));
        let file = disk::create(&path);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
            .trying(|| format!("write {}", path.display()))
    };
    write("json", &format!("{result}\n"))?;
    write("md", &section(id, result))?;
    if !outcome.curves.is_empty() {
        write("svg", &picture(id, &outcome.curves))?;
    } else if !outcome.point.systems.is_empty() {
        write("svg", &svg(result))?;
    }
    Ok(())
}

/// Prints a line to the terminal.
#[expect(clippy::print_stdout, reason = "a command prints to standard output")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Opens a peer if it is to run: `None` when it is not to run, or when it is not installed and was
/// not named.
pub(crate) fn wanted<T>(
    options: &BenchOptions,
    name: PeerName,
    open: impl FnOnce() -> Result<T>,
) -> Result<Option<T>> {
    match (options.wants(name), open_if(options.wants(name) != PeerChoice::No, open)) {
        (PeerChoice::No, _) => Ok(None),
        (PeerChoice::IfThere, Some(Err(Error::Missing { system, message }))) => {
            say(&format!("{system} is skipped: {message}; `--install` installs it"));
            Ok(None)
        }
        (_, result) => result.transpose(),
    }
}

fn open_if<T>(is_wanted: bool, open: impl FnOnce() -> Result<T>) -> Option<Result<T>> {
    is_wanted.then(open)
}

/// Checks that all systems give the same answers as the first one, which is Lockstep.
pub(crate) fn compare(systems: &[&dyn System], requests: usize) -> Result<()> {
    let Some((lockstep, others)) = systems.split_first() else { return Ok(()) };
    assert_eq!(lockstep.name(), LOCKSTEP, "the first system returns the expected results");
    assert!(requests > 0, "at least one request is sampled");
    let mut lockstep = lockstep.connect()?;
    let sampled = |number: usize| number * requests.max(SAMPLES) / SAMPLES % requests;
    let mut expected = Vec::new();
    for number in 0..SAMPLES {
        expected.push(lockstep.answer(sampled(number))?);
    }
    for system in others {
        let closeness =
            if system.name() == BASELINE { Closeness::Exact } else { Closeness::Rounding };
        let mut client = system.connect()?;
        for (number, expected) in expected.iter().enumerate() {
            let request = sampled(number);
            let found = client.answer(request)?;
            if let Some(difference) = difference(expected, &found, closeness) {
                let system = system.name().to_owned();
                return Err(Error::Disagreement { system, request, difference });
            }
        }
    }
    let names: Vec<&str> = others.iter().map(|system| system.name()).collect();
    say(&format!(
        "{SAMPLES} sampled requests: {} and {LOCKSTEP} return the same results",
        names.join(", ")
    ));
    Ok(())
}

/// Measures systems side by side: in each run one after another, so that other load of the machine
/// affects them all.
pub(crate) fn measure(
    systems: &[&dyn System],
    options: &BenchOptions,
    requests: usize,
    params: Json,
) -> Result<Point> {
    let (warm_ms, run_ms) = options.loop_ms();
    let mut results: Vec<SystemResult> = systems
        .iter()
        .map(|system| SystemResult {
            name: system.name().to_owned(),
            bytes_per_row: system.bytes_per_row(),
            loads: options
                .threads()
                .into_iter()
                .map(|threads| LoadRuns { threads, runs: vec![] })
                .collect(),
        })
        .collect();
    for _ in 0..options.runs() {
        for (place, threads) in options.threads().into_iter().enumerate() {
            for (system, result) in systems.iter().zip(&mut results) {
                let load = ClientLoad { threads, warm_ms, run_ms, requests };
                result.loads[place].runs.push(closed_loop(*system, load)?);
            }
        }
    }
    Ok(Point { params, systems: results, ratios: Map::new() })
}

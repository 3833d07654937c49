//! Runs what the command line asks for: loads, compares answers, measures, reports.

use std::fs;

use lockstep_host::disk;
use serde_json::{Map, Value as Json, json};

use crate::{
    arguments::{Options, PeerName, Wanted, WorkloadId},
    cell::{Closeness, difference},
    error::{Error, Result, Trying},
    m1, m2, m3, m4, m5, m6, machine,
    measure::{Load, closed_loop},
    peer::install::install,
    plot::svg,
    publish::{publish, section},
    report::{LOCKSTEP, Point, Runs, SystemResult, TWIN},
    system::System,
};

/// How many requests every system answers before anything is timed.
const SAMPLES: usize = 64;

/// What a workload gives: its point of default parameters, and sweeps.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The default parameters.
    pub(crate) point: Point,
    /// Each sweep's name and points.
    pub(crate) sweeps: Vec<(&'static str, Vec<Point>)>,
    /// What else is to be said, by name.
    pub(crate) notes: Map<String, Json>,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
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

fn run_workload(options: &Options, workload: WorkloadId) -> Result<()> {
    let machine = machine::describe();
    let outcome = match workload {
        WorkloadId::M1 => m1::run(options)?,
        WorkloadId::M2 => m2::run(options)?,
        WorkloadId::M3 => m3::run(options)?,
        WorkloadId::M4 => m4::run(options)?,
        WorkloadId::M5 => m5::run(options)?,
        WorkloadId::M6 => m6::run(options)?,
    };
    let id = format!("{workload:?}");
    let mut object = Map::new();
    object.insert("workload".to_owned(), json!(id));
    object.insert("params".to_owned(), outcome.point.params.clone());
    object.insert("commit".to_owned(), json!(machine::commit()));
    object.insert("machine".to_owned(), machine);
    for (name, value) in outcome.point.json().into_iter().filter(|(name, _)| name != "params") {
        object.insert(name, value);
    }
    for (name, value) in outcome.notes {
        object.insert(name, value);
    }
    let sweeps = outcome.sweeps.iter().map(|(name, points)| {
        let points = points.iter().map(|point| Json::Object(point.json())).collect();
        ((*name).to_owned(), Json::Array(points))
    });
    let sweeps: Map<String, Json> = sweeps.collect();
    if !sweeps.is_empty() {
        object.insert("sweeps".to_owned(), Json::Object(sweeps));
    }
    let table = outcome.point.markdown();
    let result = Json::Object(object);
    let json = result.to_string();
    say(&table);
    if let Some(folder) = &options.out {
        fs::create_dir_all(folder).trying(|| format!("make the folder {}", folder.display()))?;
        let write = |extension: &str, text: &str| {
            let path = folder.join(format!("{id}.{extension}"));
            let file = disk::create(&path);
            file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
                .trying(|| format!("write {}", path.display()))
        };
        write("json", &format!("{json}\n"))?;
        write("md", &section(&id, &result))?;
        write("svg", &svg(&result))?;
    }
    if options.json {
        say(&json);
    }
    Ok(())
}

/// Tells the person at the terminal.
#[expect(clippy::print_stdout, reason = "a command speaks on its output")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Opens a peer that is wanted: `None` when it was not asked for, or is not installed and was not
/// asked for by name.
pub(crate) fn wanted<T>(
    options: &Options,
    name: PeerName,
    open: impl FnOnce() -> Result<T>,
) -> Result<Option<T>> {
    match (options.wants(name), open_if(options.wants(name) != Wanted::No, open)) {
        (Wanted::No, _) => Ok(None),
        (Wanted::IfThere, Some(Err(Error::Missing { system, message }))) => {
            say(&format!("{system} is left out: {message} is not there; `--install` installs it"));
            Ok(None)
        }
        (_, result) => result.transpose(),
    }
}

fn open_if<T>(is_wanted: bool, open: impl FnOnce() -> Result<T>) -> Option<Result<T>> {
    is_wanted.then(open)
}

/// Makes sure that all systems answer as the first one, which is Lockstep.
pub(crate) fn compare(systems: &[&dyn System], requests: usize) -> Result<()> {
    let Some((lockstep, others)) = systems.split_first() else { return Ok(()) };
    let mut lockstep = lockstep.connect()?;
    let sampled = |number: usize| number * requests.max(SAMPLES) / SAMPLES % requests;
    let mut expected = Vec::new();
    for number in 0..SAMPLES {
        expected.push(lockstep.answer(sampled(number))?);
    }
    for system in others {
        let closeness = if system.name() == TWIN { Closeness::Exact } else { Closeness::Rounding };
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
    say(&format!("{SAMPLES} sampled requests: {} answer as {LOCKSTEP}", names.join(", ")));
    Ok(())
}

/// Measures systems side by side: in each run one after another, so that what the machine does
/// meanwhile meets them all.
pub(crate) fn measure(
    systems: &[&dyn System],
    options: &Options,
    requests: usize,
    params: Json,
) -> Result<Point> {
    let (warm_ms, run_ms) = options.loop_ms();
    let mut results: Vec<SystemResult> = systems
        .iter()
        .map(|system| SystemResult {
            name: system.name().to_owned(),
            bytes_per_row: system.bytes_per_row(),
            loads: options.threads.iter().map(|&threads| Runs { threads, runs: vec![] }).collect(),
        })
        .collect();
    for _ in 0..options.runs() {
        for (place, threads) in options.threads.iter().enumerate() {
            for (system, result) in systems.iter().zip(&mut results) {
                let load = Load { threads: *threads, warm_ms, run_ms, requests };
                result.loads[place].runs.push(closed_loop(*system, load)?);
            }
        }
    }
    Ok(Point { params, systems: results, ratios: Map::new() })
}

//! `cargo xtask sim`: the durable engine on a simulated disk, many crashes and failing calls.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

use lockstep_sim::Failure;
use lockstep_testkit::durability::{
    crash::{self, CrashSample},
    faults,
    run::Folder,
    workload::{self, TABLES, WorkloadStep},
};

/// Steps of a drawn workload.
const STEPS: usize = 120;

/// Runs the workload with each kind of statement, and drawn ones; returns whether nothing was found.
pub fn run(workloads: u64, seed: u64) -> bool {
    let folder = match Folder::new("sim") {
        Ok(folder) => folder,
        Err(error) => {
            println!("the files to load were not written: {error}");
            return false;
        }
    };
    let each = workload::each_kind(&folder.path());
    let sample = CrashSample { seed, per_image: usize::MAX, one_image_of: 1 };
    let mut is_good = check(&each, &workload::EACH_KIND_TABLES, sample, 1);
    for seed in seed..seed + workloads {
        let steps = workload::drawn(seed, STEPS, &folder.path());
        let sample = CrashSample { seed, per_image: 4, one_image_of: 1 };
        println!("cargo xtask sim --workloads 1 --seed {seed}");
        is_good &= check(&steps, &TABLES, sample, 5);
    }
    is_good
}

/// Checks a workload; of the calls one of `every` fails.
fn check(steps: &[WorkloadStep], tables: &[&str], sample: CrashSample, every: usize) -> bool {
    assert!(every > 0, "at least one call fails");
    let mut is_good = true;
    let mut say = |text: Result<String, String>| {
        is_good &= text.is_ok();
        println!("  {}", text.unwrap_or_else(|what| format!("FOUND: {what}")));
    };
    say(crash::check(steps, tables, sample).map(|report| format!("{report:?}")));
    for failure in [Failure::Device, Failure::Full] {
        let first = 1 + sample.seed % every as u64;
        let checked = faults::check(steps, tables, failure, (first, every));
        say(checked.map(|report| format!("{failure:?}: {report:?}")));
    }
    for from in (0..steps.len()).step_by(steps.len() / 8) {
        let checked = faults::check_full(steps, tables, from, 10);
        say(checked.map(|refused| format!("no space from step {from} on: {refused} refused")));
    }
    is_good
}

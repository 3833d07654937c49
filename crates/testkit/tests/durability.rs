//! The durable engine on a simulated disk, in short runs: crashes and failing calls.
//!
//! `cargo xtask sim` tries more.

use lockstep_engine::{DiskTuning, Durability, set_disk_tuning};
use lockstep_sim::Failure;
use lockstep_testkit::{
    durability::{
        crash::{self, CrashSample},
        faults,
        mutants::{self, Base, Part},
        run::Folder,
        workload::{self, EACH_KIND_TABLES, TABLES},
    },
    fuzz::{FuzzOptions, memory::Counting},
};

/// Ends this process before an input takes the machine's memory.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_crash_leaves_a_prefix_of_the_steps() {
    let folder = Folder::new("crash").unwrap();
    let steps = workload::each_kind(&folder.path());
    let sample = CrashSample { seed: 1, per_image: 4, one_image_of: 1 };
    let report = crash::check(&steps, &EACH_KIND_TABLES, sample).unwrap();
    println!("{report:?}");
    assert!(report.tried > 100 && report.with_more > 0 && report.with_less > 0, "{report:?}");
}

#[test]
fn a_crash_leaves_a_prefix_of_the_steps_over_disk_tables() {
    set_disk_tuning(DiskTuning::SMALL);
    let folder = Folder::new("crash-disk").unwrap();
    let steps = workload::each_kind_on_disk(&folder.path());
    let sample = CrashSample { seed: 1, per_image: 2, one_image_of: 1 };
    let report = crash::check(&steps, &EACH_KIND_TABLES, sample).unwrap();
    println!("{report:?}");
    assert!(report.tried > 100 && report.with_more > 0 && report.with_less > 0, "{report:?}");
}

#[test]
fn a_crash_leaves_a_prefix_of_drawn_steps() {
    set_disk_tuning(DiskTuning::SMALL);
    let folder = Folder::new("crash-drawn").unwrap();
    for seed in 1..=3 {
        let steps = workload::drawn(seed, 40, &folder.path());
        let sample = CrashSample { seed, per_image: 1, one_image_of: 1 };
        let report = crash::check(&steps, &TABLES, sample).unwrap();
        println!("seed {seed}: {report:?}");
    }
}

#[test]
fn a_call_that_fails_loses_nothing_and_shows_nothing_that_was_refused() {
    let folder = Folder::new("faults").unwrap();
    let steps = workload::each_kind(&folder.path());
    for failure in [Failure::Device, Failure::Full] {
        let report = faults::check(&steps, &EACH_KIND_TABLES, failure, (1, 1)).unwrap();
        println!("{failure:?}: {report:?}");
        assert!(report.stopped > 0 && report.refused > 0, "{report:?}");
    }
}

#[test]
fn a_call_of_a_disk_table_that_fails_loses_nothing() {
    set_disk_tuning(DiskTuning::SMALL);
    let folder = Folder::new("faults-disk").unwrap();
    let steps = workload::each_kind_on_disk(&folder.path());
    for failure in [Failure::Device, Failure::Full] {
        let report = faults::check(&steps, &EACH_KIND_TABLES, failure, (1, 3)).unwrap();
        println!("{failure:?}: {report:?}");
        assert!(report.stopped > 0 && report.refused > 0, "{report:?}");
    }
}

#[test]
fn writes_go_on_when_there_is_space_again() {
    let folder = Folder::new("full").unwrap();
    let steps = workload::each_kind(&folder.path());
    assert!(steps.iter().any(|step| step.level == Durability::Os));
    let refused: usize = (1..steps.len())
        .step_by(3)
        .map(|from| faults::check_full(&steps, &EACH_KIND_TABLES, from, 6).unwrap())
        .sum();
    assert!(refused > 0);
}

#[test]
fn no_content_of_a_directory_breaks_who_opens_it() {
    let base = Base::new().unwrap();
    for part in [Part::Log, Part::Checkpoint, Part::Manifest] {
        let options = FuzzOptions {
            seed: 1,
            first: 0,
            executions_max: 150,
            time_ms_max: u64::MAX,
            without: &[],
            before: &|_, _| {},
            canary: None,
        };
        let report = mutants::run(&base, part, &options);
        println!("{part:?}: {} inputs, {} ms", report.executions, report.slowest_ms);
        // Slow calls are not judged here: other tests run at the same time.
        let mut found = report.findings.iter().filter(|found| !found.what.starts_with("slow"));
        if let Some(first) = found.next() {
            // Panics are kept as text from now on.
            println!("{:#?}", report.findings);
            panic!("{first:?}");
        }
    }
}

//! The Nth call fails, for every N; the disk is full; syncs fail.

use std::{path::Path, sync::Arc};

use lockstep_host::file::Operation;
use lockstep_sim::{CrashImage, CrashPolicy, DiskFault, Failure};

use super::harness::{Model, Run, check, check_image, found, open, workload, write};
use crate::{Error, tests::checkpoint::harness::DIRECTORY};

/// Runs a workload in which one call fails, and checks what a crash leaves, then and at every call of
/// the next process. Whether there was such a call.
fn check_fault(seed: u64, fault: DiskFault) -> Result<bool, String> {
    let mut run = Run::new();
    run.disk.fail(fault);
    for step in workload(seed, 8) {
        run.step(&step)?;
    }
    if run.disk.has_fault() {
        return Ok(false);
    }
    let check_crash = |image: &CrashImage, allowed: &[Model]| {
        // Calls of every kind are many: some crashes stand for all.
        if fault.operation.is_some() {
            return check_image(image, allowed, seed).map(|_| ());
        }
        // Nothing of what was not synced, everything, and some of it.
        let random = CrashPolicy::Random(seed + fault.nth);
        image.states().into_iter().take(2).chain([random]).try_for_each(|policy| {
            let checked = check(&image.disk(policy), allowed);
            checked.map_err(|what| format!("{policy:?}: {what}"))
        })
    };
    check_crash(&run.disk.image(), &run.allowed)?;
    // The process ends, the machine does not; the machine stops while the next process opens.
    let (disk, allowed) = run.end();
    disk.record();
    drop(open(&disk).map_err(|error| format!("reopened: {error}"))?);
    for (index, image) in disk.take_images().iter().enumerate() {
        check_crash(image, &allowed).map_err(|what| format!("reopened, {index}: {what}"))?;
    }
    check(&disk, &allowed).map_err(|what| format!("reopened: {what}"))?;
    Ok(true)
}

pub(super) fn check_faults(seed: u64, operation: Option<Operation>) -> Result<u64, String> {
    let mut tried = 0;
    for failure in [Failure::Device, Failure::Full] {
        for nth in 1.. {
            let fault = DiskFault { nth, operation, failure };
            let fired = check_fault(seed, fault);
            if !fired.map_err(|what| format!("seed {seed}, {fault:?}: {what}"))? {
                break;
            }
            tried += 1;
        }
    }
    Ok(tried)
}

#[test]
fn any_call_may_fail() {
    let tried: u64 =
        (0..2).map(|seed| check_faults(seed, None).unwrap_or_else(|e| panic!("{e}"))).sum();
    println!("failed calls: {tried}");
    assert!(tried > 250, "{tried}");
}

#[test]
fn any_sync_may_fail() {
    let check = |operation| {
        let faults = |seed| check_faults(seed, Some(operation)).unwrap_or_else(|e| panic!("{e}"));
        (0..2).map(faults).sum::<u64>()
    };
    let tried = check(Operation::SyncData) + check(Operation::SyncDirectory);
    println!("failed syncs: {tried}");
    assert!(tried > 80, "{tried}");
}

#[test]
#[ignore = "takes minutes; part of the nightly run"]
fn any_call_of_many_workloads_may_fail() {
    for seed in 10_000..10_040 {
        let tried = check_faults(seed, None).unwrap_or_else(|what| panic!("{what}"));
        println!("seed {seed}: {tried} failed calls");
    }
}

#[test]
fn after_a_failed_sync_of_the_directory_nothing_is_committed_and_reads_go_on() {
    let run = Run::new();
    let directory = open(&run.disk).unwrap();
    let blocks = vec![b"one".to_vec()];
    let file = write(&directory, &blocks).unwrap();
    let manifest = directory.manifest().successor(0, vec![file], b"first".to_vec());
    directory.commit(manifest).unwrap();
    let before = found(&directory).unwrap();
    let second = directory.manifest().successor(0, vec![file], b"second".to_vec());
    // The first such call syncs the names of data files, the second one that of the manifest.
    let operation = Some(Operation::SyncDirectory);
    run.disk.fail(DiskFault { nth: 2, operation, failure: Failure::Device });
    for _ in 0..3 {
        let error = directory.commit(second.clone()).unwrap_err();
        assert!(matches!(error, Error::CheckpointsStopped { .. }), "{error}");
        assert!(matches!(directory.create_data_file(), Err(Error::CheckpointsStopped { .. })));
        assert_eq!(found(&directory).unwrap(), before);
    }
    let after = Model { generation: 2, body: b"second".to_vec(), ..before.clone() };
    check_image(&run.disk.image(), &[before, after], 0).unwrap();
}

#[test]
fn after_a_failed_sync_of_the_manifest_the_former_one_is_current_and_the_next_is_committed() {
    let run = Run::new();
    let directory = open(&run.disk).unwrap();
    let manifest = directory.manifest().successor(0, Vec::new(), b"first".to_vec());
    run.disk.fail(DiskFault {
        nth: 1,
        operation: Some(Operation::SyncData),
        failure: Failure::Device,
    });
    assert!(matches!(directory.commit(manifest.clone()), Err(Error::Disk { .. })));
    assert_eq!(directory.manifest().generation, 0);
    check_image(&run.disk.image(), &[Model::first()], 0).unwrap();
    directory.commit(manifest).unwrap();
    drop(directory);
    let lost = run.disk.image().disk(CrashPolicy::AllLost);
    assert_eq!(open(&lost).unwrap().manifest().body, b"first");
}

#[test]
fn a_full_disk_refuses_a_checkpoint_and_takes_it_when_there_is_space() {
    let run = Run::new();
    let directory = open(&run.disk).unwrap();
    run.disk.set_space(8_000);
    let blocks = vec![vec![7; 3_000]; 2];
    let error = write(&directory, &blocks).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    // What was written of it is gone.
    let data = Path::new(DIRECTORY).join("data");
    assert_eq!(lockstep_host::file::Disk::list(&run.disk, &data).unwrap(), [""; 0]);
    let small = write(&directory, &blocks[..1]).unwrap();
    let body = vec![1; 2_000];
    let manifest = directory.manifest().successor(0, vec![small], body);
    let error = directory.commit(manifest.clone()).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    run.disk.set_space(usize::MAX);
    directory.commit(manifest.clone()).unwrap();
    assert_eq!(directory.manifest(), Arc::new(manifest));
}

//! The Nth call fails, for every N; the disk is full.

use lockstep_host::file::Operation;
use lockstep_sim::{CrashPolicy, DiskFault, Failure};

use super::harness::{Run, check, disk, group, open, options, workload};
use crate::{Durability, Error, Log, Options, SegmentedLog};

/// Runs a workload in which one call fails, and checks what a crash leaves, with and without another
/// process that goes on before it. Whether there was such a call.
fn check_fault(seed: u64, fault: DiskFault) -> Result<bool, String> {
    let mut run = Run::new(disk());
    run.disk.fail(fault);
    for step in workload(seed, 20) {
        run.step(&step)?;
    }
    if run.disk.has_fault() {
        return Ok(false);
    }
    let image = run.disk.image();
    let (lost, kept) = (CrashPolicy::AllLost, CrashPolicy::AllKept);
    for policy in [lost, kept, CrashPolicy::Random(fault.nth), CrashPolicy::Random(seed)] {
        let crashed = image.disk(policy);
        check(&crashed, &run.expected).map_err(|what| format!("{policy:?}: {what}"))?;
    }
    // The process ends, the machine does not: whatever was appended is there.
    let Run { disk, mut expected, end, .. } = run;
    expected.acknowledged = end;
    check(&disk, &expected).map_err(|what| format!("reopened: {what}"))?;
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
        (0..20).map(|seed| check_faults(seed, None).unwrap_or_else(|e| panic!("{e}"))).sum();
    println!("failed calls: {tried}");
    assert!(tried > 1_000, "{tried}");
}

#[test]
fn any_sync_may_fail() {
    let sync = Some(Operation::SyncData);
    let tried: u64 =
        (0..60).map(|seed| check_faults(seed, sync).unwrap_or_else(|e| panic!("{e}"))).sum();
    println!("failed syncs: {tried}");
    assert!(tried > 1_000, "{tried}");
}

#[test]
#[ignore = "takes minutes; part of the nightly run"]
fn any_call_of_many_workloads_may_fail() {
    for seed in 10_000..10_300 {
        let tried = check_faults(seed, None).unwrap_or_else(|what| panic!("{what}"));
        println!("seed {seed}: {tried} failed calls");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_and_reads_go_on() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    let records = [(1, 1, b"row".to_vec())];
    let end = log.append(&group(&records), &mut |_| ()).unwrap().end;
    let operation = Some(Operation::SyncData);
    disk.fail(DiskFault { nth: 1, operation, failure: Failure::Device });
    let stopped = |result: Result<(), Error>| matches!(result, Err(Error::Stopped { .. }));
    let append = |log: &SegmentedLog| log.append(&group(&records), &mut |_| panic!("no turn"));
    for _ in 0..2 {
        assert!(stopped(log.wait(end, Durability::Disk)));
        assert!(stopped(append(&log).map(|_| ())));
        assert!(stopped(log.tick()) && stopped(log.truncate(0)));
    }
    assert_eq!(log.durable_end(), 0);
    assert!(log.read(0).unwrap().next_group().unwrap().is_some());
    let error = log.wait(end, Durability::Disk).unwrap_err();
    assert_eq!(error.to_string(), "the log is read-only after a failed sync");
}

#[test]
fn a_full_disk_refuses_groups_and_takes_them_when_there_is_room() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    disk.set_space(8_192);
    let records = [(1, 1, vec![7; 1_000])];
    let full = loop {
        match log.append(&group(&records), &mut |_| ()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { .. }), "{full:?}");
    let end = log.end();
    assert_eq!(end, 6);
    // What is smaller still fits.
    log.append(&group(&[(2, 1, vec![1; 50])]), &mut |_| ()).unwrap();
    log.wait(end + 1, Durability::Disk).unwrap();
    disk.set_space(usize::MAX);
    assert_eq!(log.append(&group(&records), &mut |_| ()).unwrap(), 7..8);
    drop(log);
    let opened = open(&disk, Options { needed: 0, ..options() }).unwrap();
    assert_eq!(opened.groups.len(), 8);
}

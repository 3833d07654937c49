//! What the simulated disk promises to those who test with it.

use std::path::{Path, PathBuf};

use lockstep_host::file::{Disk, File, LockMode, OpenMode, Operation};

use crate::{CrashPolicy, DiskFault, Failure, Random, SimulatedDisk};

const PAGE: usize = 4_096;

fn path(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

/// A disk with a durable file of two pages, all ones.
fn disk() -> (SimulatedDisk, std::sync::Arc<dyn File>) {
    let disk = SimulatedDisk::new();
    let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    file.write_at(0, &[1; 2 * PAGE]).unwrap();
    file.sync_data().unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    (disk, file)
}

/// The first byte of each page of `a`, after a crash.
fn pages(disk: &SimulatedDisk, policy: CrashPolicy) -> Vec<u8> {
    disk.image().disk(policy).bytes(&path("a")).chunks(PAGE).map(|page| page[0]).collect()
}

#[test]
fn what_is_synced_survives_and_what_is_not_may() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 2 * PAGE]).unwrap();
    let found = |policy| pages(&disk, policy);
    assert_eq!(found(CrashPolicy::AllLost), [1, 1]);
    assert_eq!(found(CrashPolicy::AllKept), [2, 2]);
    assert_eq!(found(CrashPolicy::OneLost(0)), [1, 2]);
    assert_eq!(found(CrashPolicy::OneKept(0)), [2, 1]);
    assert_eq!(found(CrashPolicy::FirstKept(1)), [2, 1]);
    file.sync_data().unwrap();
    assert_eq!(disk.image().states(), [CrashPolicy::AllLost]);
    assert_eq!(found(CrashPolicy::AllLost), [2, 2]);
}

#[test]
fn a_page_is_torn_between_sectors() {
    let (disk, file) = disk();
    file.map(2 * PAGE).unwrap().write(0, &[2; PAGE]);
    let tears = disk.image().states();
    assert_eq!(tears.iter().filter(|s| matches!(s, CrashPolicy::TornKept(..))).count(), 7);
    let torn = disk.image().disk(CrashPolicy::TornKept(0, 3)).bytes(&path("a"));
    let ends = torn.iter().position(|byte| *byte == 1);
    assert_eq!(ends, Some(3 * 512));
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let (disk, _file) = disk();
    disk.open(&path("b"), OpenMode::CreateNew).unwrap().sync_data().unwrap();
    disk.rename(&path("a"), &path("c")).unwrap();
    let names = |policy| disk.image().disk(policy).list(Path::new("/")).unwrap();
    assert_eq!(names(CrashPolicy::AllLost), ["a"]);
    assert_eq!(names(CrashPolicy::OneLost(0)), ["c"]);
    assert_eq!(names(CrashPolicy::OneLost(1)), ["a", "b"]);
    disk.sync_directory(Path::new("/")).unwrap();
    assert_eq!(names(CrashPolicy::AllLost), ["b", "c"]);
    disk.remove(&path("b")).unwrap();
    assert_eq!((names(CrashPolicy::AllLost).len(), names(CrashPolicy::AllKept).len()), (2, 1));
}

#[test]
fn a_length_is_lost_with_the_bytes_behind_it() {
    let (disk, file) = disk();
    file.write_at(2 * PAGE as u64, &[3; PAGE]).unwrap();
    assert_eq!(pages(&disk, CrashPolicy::AllLost), [1, 1]);
    assert_eq!(pages(&disk, CrashPolicy::OneKept(0)), [1, 1, 0]);
    assert_eq!(pages(&disk, CrashPolicy::OneLost(0)), [1, 1]);
    assert_eq!(pages(&disk, CrashPolicy::AllKept), [1, 1, 3]);
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 2 * PAGE]).unwrap();
    let operation = Some(Operation::SyncData);
    disk.fail(DiskFault { nth: 1, operation, failure: Failure::Device });
    assert!(file.sync_data().is_err());
    file.write_at(PAGE as u64, &[3]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(pages(&disk, CrashPolicy::AllLost), [1, 3]);
}

#[test]
fn the_nth_call_fails_and_a_full_disk_refuses() {
    let (disk, file) = disk();
    disk.fail(DiskFault { nth: 2, operation: None, failure: Failure::Full });
    file.length().unwrap();
    assert!(file.write_at(0, &[2]).unwrap_err().is_full());
    assert!(!disk.has_fault());
    file.write_at(0, &[2]).unwrap();
    disk.set_space(3 * PAGE);
    assert_eq!(disk.free_space(Path::new("/")).unwrap(), PAGE as u64);
    assert!(file.allocate(4 * PAGE as u64).unwrap_err().is_full());
    file.allocate(3 * PAGE as u64).unwrap();
    assert_eq!(disk.calls(Some(Operation::Allocate)), 2);
}

#[test]
fn reads_are_short_and_pages_are_written_back_early() {
    let (disk, file) = disk();
    disk.shorten_reads(1);
    let mut buffer = [0; PAGE];
    assert!(file.read_at(0, &mut buffer).unwrap() < PAGE);
    assert_eq!(file.read_full_at(0, &mut buffer).unwrap(), PAGE);
    file.write_at(0, &[2; PAGE]).unwrap();
    disk.write_back(&mut Random::new(1));
    assert_eq!(pages(&disk, CrashPolicy::AllLost), [2, 1]);
}

#[test]
fn each_call_leaves_an_image_and_a_lock_is_held_once() {
    let (disk, file) = disk();
    disk.record();
    file.write_at(0, &[2]).unwrap();
    file.sync_data().unwrap();
    let images = disk.take_images();
    let first = images.iter().map(|image| image.disk(CrashPolicy::AllLost).bytes(&path("a"))[0]);
    assert_eq!(first.collect::<Vec<_>>(), [1, 2]);
    let lock = |mode| disk.lock(&path("LOCK"), mode);
    assert!(lock(LockMode::Shared).is_err());
    let held = lock(LockMode::Exclusive).unwrap();
    assert!(lock(LockMode::Exclusive).is_err() && lock(LockMode::Shared).is_err());
    drop(held);
    let shared = (lock(LockMode::Shared).unwrap(), lock(LockMode::Shared).unwrap());
    drop(shared.0);
    assert!(lock(LockMode::Exclusive).is_err());
    drop(shared.1);
    lock(LockMode::Exclusive).unwrap();
}

#[test]
fn a_directory_that_is_lost_takes_what_is_in_it() {
    let disk = SimulatedDisk::new();
    disk.create_directory(&path("d")).unwrap();
    disk.open(&path("d/a"), OpenMode::CreateNew).unwrap();
    disk.sync_directory(&path("d")).unwrap();
    let lost = disk.image().disk(CrashPolicy::AllLost);
    lost.create_directory(&path("d")).unwrap();
    assert_eq!(lost.list(&path("d")).unwrap(), [""; 0]);
}

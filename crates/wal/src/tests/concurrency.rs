//! Threads that append at the same time, on the machine's disk.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_host::{
    JoinHandle,
    file::{Disk, SystemDisk},
    sync::Mutex,
};

use super::harness::{LOG_ID, PlacedGroup, group, placed};
use crate::{Durability, Log, Options, SegmentedLog};

/// A directory that is gone when the test ends.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-wal-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        SystemDisk.create_directory(&path).unwrap();
        Self(path)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn options() -> Options {
    Options { segment_bytes: 64 << 10, durability_window_ms: 5, ..Options::new(LOG_ID) }
}

fn open(directory: &TestDirectory) -> (SegmentedLog, Vec<PlacedGroup>) {
    let mut groups = Vec::new();
    let visit = &mut |entries: crate::Entries<'_>| groups.push(placed(entries));
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let (log, _) = SegmentedLog::open(disk, &directory.0, options(), visit).unwrap();
    (log, groups)
}

/// Appends groups, some of which it waits for; gives where they went.
fn append(
    log: Arc<SegmentedLog>,
    turns: Arc<Mutex<Vec<u64>>>,
    thread: u8,
) -> JoinHandle<Vec<PlacedGroup>> {
    let body = move || {
        let one = |number: u32| {
            let payload = vec![thread + 1; 20 + number as usize % 90];
            let records = vec![(thread, 1 + number % 3, payload.clone()), (9, 1, payload)];
            let turn = &mut |first| turns.lock().push(first);
            let range = log.append(&group(&records), turn).unwrap();
            let level = match number % 16 {
                0 => Durability::Disk,
                1..=4 => Durability::Os,
                _ => Durability::Memory,
            };
            log.wait(range.end, level).unwrap();
            assert!(level != Durability::Disk || log.durable_end() >= range.end);
            PlacedGroup { first: range.start, records }
        };
        (0..800).map(one).collect()
    };
    lockstep_host::spawn("appends", body).unwrap()
}

#[test]
fn groups_of_many_threads_are_all_there_and_whole() {
    let directory = TestDirectory::new("threads");
    let (log, _) = open(&directory);
    let (log, turns) = (Arc::new(log), Arc::new(Mutex::new(Vec::new())));
    let threads: Vec<_> =
        (0..4).map(|thread| append(Arc::clone(&log), Arc::clone(&turns), thread)).collect();
    let read = AtomicU64::new(0);
    while read.load(Ordering::Relaxed) < 4 * 800 / 2 {
        let mut reader = log.read(0).unwrap();
        let mut count = 0;
        while reader.next_group().unwrap().is_some() {
            count += 1;
        }
        read.store(count, Ordering::Relaxed);
    }
    let mut expected: Vec<PlacedGroup> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    expected.sort_by_key(|group| group.first);
    let firsts: Vec<u64> = expected.iter().map(|group| group.first).collect();
    assert_eq!(*turns.lock(), firsts, "turns come in the order of positions");
    // Without a close: the process might as well be gone.
    drop(log);
    let (log, found) = open(&directory);
    assert_eq!(found.len(), 4 * 800);
    assert!(found == expected, "what was appended is what is read");
    log.close().unwrap();
}

#[test]
fn what_nobody_waits_for_is_durable_after_the_window() {
    let directory = TestDirectory::new("window");
    let (log, _) = open(&directory);
    let end = log.append(&group(&[(1, 1, vec![1])]), &mut |_| ()).unwrap().end;
    log.wait(end, Durability::Memory).unwrap();
    while log.durable_end() < end {
        lockstep_host::pause(1);
    }
}

#[test]
fn a_shorter_window_takes_effect_at_once() {
    let directory = TestDirectory::new("shorter-window");
    let options = Options { durability_window_ms: u32::MAX, ..options() };
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let (log, _) = SegmentedLog::open(disk, &directory.0, options, &mut |_| ()).unwrap();
    let end = log.append(&group(&[(1, 1, vec![1])]), &mut |_| ()).unwrap().end;
    assert!(log.durable_end() < end);
    log.set_durability_window_ms(1);
    while log.durable_end() < end {
        lockstep_host::pause(1);
    }
    log.close().unwrap();
}

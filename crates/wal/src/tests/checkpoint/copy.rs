//! A copy of which any call fails leaves nothing behind.

use std::path::Path;

use lockstep_host::{Threads, file::Disk};
use lockstep_sim::{DiskFault, Failure, SimulatedDisk};

use super::harness::{open, write};
use crate::{DatabaseDirectory, Error, Group, Log, Options};

const COPY: &str = "/copies/one";

/// Writes a whole copy.
fn fill(copy: &DatabaseDirectory) -> Result<(), Error> {
    let file = write(copy, &[vec![1; 600]])?;
    let options = Options { segment_bytes: 4_096, threads: Threads::None, ..Options::new([0; 16]) };
    let (log, _) = copy.open_log(options, &mut |_| ())?;
    let mut group = Group::new();
    group.push(1, 1, &[7; 3_000]);
    // The second one takes another segment.
    log.append(&group, &mut |_| ())?;
    log.append(&group, &mut |_| ())?;
    log.close()?;
    copy.commit(copy.manifest().successor(5, vec![file], b"body".to_vec()))
}

/// Copies a database while the Nth call fails; gives whether it failed.
fn copy(nth: u64, failure: Failure, is_there: bool) -> bool {
    let disk = SimulatedDisk::new();
    disk.create_directory(Path::new("/copies")).unwrap();
    let before: &[&str] = if is_there { &["one"] } else { &[] };
    if is_there {
        disk.create_directory(Path::new(COPY)).unwrap();
    }
    let directory = open(&disk).unwrap();
    disk.fail(DiskFault { nth, operation: None, failure });
    let copied = directory.create_copy(Path::new(COPY), [9; 16], 5).and_then(|copy| {
        let filled = fill(&copy);
        if filled.is_err() {
            copy.discard_copy();
        }
        filled
    });
    if copied.is_err() {
        assert_eq!(disk.list(Path::new("/copies")).unwrap(), before, "call {nth}: {copied:?}");
        if is_there {
            assert_eq!(disk.list(Path::new(COPY)).unwrap(), [""; 0], "call {nth}");
        }
    }
    copied.is_err()
}

#[test]
fn a_copy_that_fails_leaves_nothing() {
    for failure in [Failure::Full, Failure::Device] {
        for is_there in [false, true] {
            // The last calls remove what is not listed, and note that the log was closed.
            let failed = (1..).take_while(|nth| copy(*nth, failure, is_there)).count();
            assert!(failed > 20, "{failed}");
        }
    }
}

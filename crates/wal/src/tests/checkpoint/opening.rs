//! What is refused when a directory is opened, each with an error of its own.

use std::{path::Path, sync::Arc};

use lockstep_host::{
    Threads,
    file::{Disk, OpenMode, Operation},
};
use lockstep_sim::{CrashPolicy, DiskFault, Failure, SimulatedDisk};

use super::harness::{DIRECTORY, ID, open, open_for};
use crate::{Access, Error, Group, Log, Options, segment};

const READ_WRITE: Access = Access::ReadWrite { new_id: ID };

/// Puts a file on the disk, as somebody else would.
fn put(disk: &SimulatedDisk, path: &str, bytes: &[u8]) {
    let path = Path::new(path);
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("/")) {
        let _exists = disk.create_directory(parent);
    }
    disk.open(path, OpenMode::Create).unwrap().write_at(0, bytes).unwrap();
}

/// What opening a directory says; it changes nothing then.
fn refused(disk: &SimulatedDisk, access: Access) -> String {
    let names = |path: &str| disk.list(Path::new(path)).ok();
    let before = (names("/"), names(DIRECTORY));
    let error = open_for(disk, access).unwrap_err();
    assert_eq!((names("/"), names(DIRECTORY)), before, "{error}");
    error.to_string()
}

/// A database that was created and closed.
fn created() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    drop(open(&disk).unwrap());
    disk.image().disk(CrashPolicy::AllLost)
}

fn options() -> Options {
    Options { segment_bytes: 4_096, threads: Threads::None, ..Options::new([0; 16]) }
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let disk = SimulatedDisk::new();
    put(&disk, DIRECTORY, b"a file");
    for access in [READ_WRITE, Access::ReadOnly] {
        assert_eq!(refused(&disk, access), "/features.lockstep is not a directory");
    }
}

#[test]
fn foreign_files_are_left_and_one_of_them_is_named() {
    for foreign in ["notes.txt", "data/prices.csv", "log/access.log", "data/7.data"] {
        let disk = SimulatedDisk::new();
        disk.create_directory(Path::new(DIRECTORY)).unwrap();
        let path = format!("{DIRECTORY}/{foreign}");
        put(&disk, &path, b"mine");
        let expected =
            format!("{DIRECTORY} is not a database and contains other files, such as {path}");
        assert_eq!(refused(&disk, READ_WRITE), expected);
        assert_eq!(
            refused(&disk, Access::ReadOnly),
            format!("{DIRECTORY} does not contain a database")
        );
    }
}

#[test]
fn beside_a_manifest_foreign_files_do_no_harm() {
    let disk = created();
    put(&disk, &format!("{DIRECTORY}/notes.txt"), b"mine");
    put(&disk, &format!("{DIRECTORY}/data/prices.csv"), b"mine");
    drop(open(&disk).unwrap());
    assert_eq!(disk.bytes(&Path::new(DIRECTORY).join("data/prices.csv")), b"mine");
}

#[test]
fn a_database_that_lost_its_manifest_is_not_created_again() {
    let disk = created();
    let directory = open(&disk).unwrap();
    let (log, _) = directory.open_log(options(), &mut |_| ()).unwrap();
    let mut group = Group::new();
    group.push(1, 1, b"row");
    log.append(&group, &mut |_| ()).unwrap();
    log.close().unwrap();
    drop(directory);
    disk.remove(&Path::new(DIRECTORY).join("MANIFEST")).unwrap();
    let expected = format!(
        "{DIRECTORY}/MANIFEST is damaged at byte 0: the file is missing, but log or data files \
         exist"
    );
    assert_eq!(refused(&disk, READ_WRITE), expected);
}

#[test]
fn who_may_not_write_is_told_so() {
    let denied = |disk: &SimulatedDisk, operation, nth| {
        disk.fail(DiskFault { nth, operation: Some(operation), failure: Failure::Denied });
        let error = open(disk).unwrap_err();
        assert!(matches!(error, Error::NotWritable { .. }), "{error}");
        assert_eq!(error.to_string(), "/features.lockstep is not writable");
    };
    denied(&SimulatedDisk::new(), Operation::CreateDirectory, 1);
    denied(&SimulatedDisk::new(), Operation::CreateDirectory, 2);
    denied(&SimulatedDisk::new(), Operation::Lock, 1);
    denied(&created(), Operation::Lock, 1);
}

#[test]
fn a_file_system_without_locks_is_refused() {
    for access in [READ_WRITE, Access::ReadOnly] {
        let disk = created();
        let operation = Some(Operation::Lock);
        disk.fail(DiskFault { nth: 1, operation, failure: Failure::Unsupported });
        assert_eq!(
            refused(&disk, access),
            "the file system of /features.lockstep does not support locks"
        );
    }
}

#[test]
fn one_writes_or_several_read() {
    let disk = created();
    let this = std::process::id();
    let writer = open(&disk).unwrap();
    for access in [READ_WRITE, Access::ReadOnly] {
        let expected = format!("{DIRECTORY} is open for writing by process {this}");
        assert_eq!(refused(&disk, access), expected);
    }
    drop(writer);
    let readers = [(); 3].map(|()| open_for(&disk, Access::ReadOnly).unwrap());
    let expected = format!("{DIRECTORY} is open for reading by another process");
    assert_eq!(refused(&disk, READ_WRITE), expected);
    drop(readers);
    drop(open(&disk).unwrap());
}

#[test]
fn who_reads_writes_nothing() {
    let disk = created();
    let directory = open_for(&disk, Access::ReadOnly).unwrap();
    let manifest = directory.manifest().successor(0, Vec::new(), Vec::new());
    assert!(matches!(directory.commit(manifest), Err(Error::ReadOnly { .. })));
    assert!(matches!(directory.create_data_file(), Err(Error::ReadOnly { .. })));
    let log = directory.open_log(options(), &mut |_| ());
    assert_eq!(log.unwrap_err().to_string(), "/features.lockstep is open read-only");
    assert_eq!(directory.read_log(&mut |_| ()).unwrap().end, 0);
    let empty = SimulatedDisk::new();
    assert_eq!(refused(&empty, Access::ReadOnly), "/features.lockstep does not contain a database");
}

#[test]
fn a_missing_or_foreign_log_is_refused() {
    let log = Path::new(DIRECTORY).join("log");
    for access in [READ_WRITE, Access::ReadOnly] {
        let disk = created();
        let first = segment::path(&log, 1);
        let header = segment::header([9; 16], 1, 4_096).encode();
        disk.replace(&first, header.to_vec());
        let expected = format!("{} belongs to another log", first.display());
        assert_eq!(refused(&disk, access), expected);
        disk.remove(&first).unwrap();
        let expected = format!("{} is missing or contains no log", log.display());
        assert_eq!(refused(&disk, access), expected);
    }
}

#[test]
fn the_log_is_read_from_where_the_checkpoint_needs_it() {
    let disk = created();
    let directory = open(&disk).unwrap();
    let (log, _) = directory.open_log(options(), &mut |_| ()).unwrap();
    for row in 0..200_u8 {
        let mut group = Group::new();
        let payload = [row; 100];
        group.push(1, 1, &payload);
        log.append(&group, &mut |_| ()).unwrap();
    }
    log.wait(200, crate::Durability::Disk).unwrap();
    let manifest = directory.manifest().successor(120, Vec::new(), Vec::new());
    directory.commit(manifest).unwrap();
    log.truncate(120).unwrap();
    drop((log, directory));
    let mut rows = Vec::new();
    let reader = open_for(&disk, Access::ReadOnly).unwrap();
    let visit = &mut |entries: crate::Entries<'_>| rows.extend(entries.map(|e| e.position));
    let recovered = reader.read_log(visit).unwrap();
    assert_eq!((recovered.end, rows), (200, (120..200).collect()));
    assert!(recovered.first > 0, "segments were removed");
    drop(reader);
    let directory = open(&disk).unwrap();
    let (_log, again) = directory.open_log(options(), &mut |_| ()).unwrap();
    assert_eq!((again.end, again.log_id), (200, ID));
    let id = Arc::new(directory).database_id();
    assert_eq!(id, ID);
}

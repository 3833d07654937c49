//! What the machine's disk does, on a directory of its own.

use std::{fs, io::ErrorKind, path::PathBuf, sync::Arc, sync::atomic::AtomicU64};

use super::{Disk, Error, LockMode, Mapping, OpenMode, Operation, SystemDisk};

/// A directory that is gone when the test ends.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-host-file-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        SystemDisk.create_directory(&path).unwrap();
        Self(path)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_file_is_written_read_renamed_and_removed() {
    let directory = TestDirectory::new("calls");
    let (first, second) = (directory.0.join("a"), directory.0.join("b"));
    let file = SystemDisk.open(&first, OpenMode::CreateNew).unwrap();
    file.write_at(3, b"rows").unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.length().unwrap(), 7);
    let mut buffer = [9; 10];
    assert_eq!(file.read_full_at(2, &mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..6], b"\0rows\x09");
    file.set_length(4).unwrap();
    file.allocate(5_000).unwrap();
    assert_eq!(file.length().unwrap(), 5_000);
    let again = SystemDisk.open(&first, OpenMode::CreateNew).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert!(again.to_string().starts_with("could not open /"), "{again}");
    SystemDisk.rename(&first, &second).unwrap();
    SystemDisk.sync_directory(&directory.0).unwrap();
    assert_eq!(SystemDisk.list(&directory.0).unwrap(), ["b"]);
    assert!(SystemDisk.open(&first, OpenMode::Read).is_err());
    SystemDisk.remove(&second).unwrap();
    assert_eq!(SystemDisk.remove(&second).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(SystemDisk.free_space(&directory.0).unwrap() > 0);
}

#[test]
fn a_mapping_and_its_file_are_the_same_bytes() {
    let directory = TestDirectory::new("mapping");
    let file = SystemDisk.open(&directory.0.join("a"), OpenMode::Create).unwrap();
    file.allocate(8_192).unwrap();
    let mapping = file.map(8_192).unwrap();
    mapping.prefault(4_096, 1 << 20);
    mapping.write(16, b"ten bytes.");
    file.write_at(4_096, b"eight by").unwrap();
    let (mut read, mut mapped) = ([9; 17], [0; 3]);
    assert_eq!(file.read_full_at(16, &mut read).unwrap(), 17);
    assert_eq!(&read, b"ten bytes.\0\0\0\0\0\0\0");
    mapping.read(4_096, &mut mapped);
    assert_eq!(&mapped, b"eig");
    assert_eq!((mapping.length(), file.length().unwrap()), (8_192, 8_192));
}

#[test]
fn memory_that_stands_in_for_a_file_is_written_by_words() {
    let memory: Arc<[AtomicU64]> = (0..4).map(|_| AtomicU64::new(u64::MAX)).collect();
    let mapping = Mapping::of_memory(Arc::clone(&memory), 3);
    mapping.write(8, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let mut bytes = [0; 24];
    mapping.read(0, &mut bytes);
    let expected = [[255; 8], [1, 2, 3, 4, 5, 6, 7, 8], [9, 0, 0, 0, 0, 0, 0, 0]];
    assert_eq!(bytes, *expected.as_flattened());
}

#[test]
fn a_second_lock_names_the_process_that_holds_the_first() {
    let directory = TestDirectory::new("lock");
    let path = directory.0.join("LOCK");
    let held = SystemDisk.lock(&path, LockMode::Exclusive).unwrap();
    let this = std::process::id();
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        let refused = SystemDisk.lock(&path, mode).unwrap_err();
        let Error::Locked { process_id, mode: LockMode::Exclusive, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(process_id, Some(this));
        assert!(
            refused.to_string().ends_with(&format!("is locked by process {this}")),
            "{refused}"
        );
    }
    drop(held);
    drop(SystemDisk.lock(&path, LockMode::Exclusive).unwrap());
}

#[test]
fn shared_locks_exclude_only_exclusive_ones_and_name_nobody() {
    let directory = TestDirectory::new("shared-lock");
    let path = directory.0.join("LOCK");
    let missing = SystemDisk.lock(&path, LockMode::Shared).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    fs::write(&path, "1\n").unwrap();
    let first = SystemDisk.lock(&path, LockMode::Shared).unwrap();
    let second = SystemDisk.lock(&path, LockMode::Shared).unwrap();
    for held in [first, second] {
        let refused = SystemDisk.lock(&path, LockMode::Exclusive).unwrap_err();
        assert!(matches!(refused, Error::Locked { process_id: None, mode: LockMode::Shared, .. }));
        drop(held);
    }
    assert_eq!(fs::read(&path).unwrap(), b"1\n");
    drop(SystemDisk.lock(&path, LockMode::Exclusive).unwrap());
}

#[test]
fn a_file_system_without_locks_is_told_from_other_failures() {
    let failed = |operation, code| {
        let source = std::io::Error::from_raw_os_error(code);
        Error::io(operation, &PathBuf::from("LOCK"), source).lacks_locks()
    };
    assert!(failed(Operation::Lock, 95) && failed(Operation::Lock, 37));
    assert!(!failed(Operation::Lock, 5) && !failed(Operation::Open, 95));
}

#[test]
fn no_room_is_told_from_other_failures() {
    let path = PathBuf::from("a");
    let full = Error::io(Operation::Allocate, &path, ErrorKind::StorageFull.into());
    let other = Error::io(Operation::Allocate, &path, ErrorKind::Other.into());
    assert_eq!((full.is_full(), other.is_full()), (true, false));
    assert_eq!(full.to_string(), "could not allocate a");
}

//! Checkpoints on the machine's disk: files of several threads, long blocks, locks.

use std::{fs, path::PathBuf, sync::Arc};

use lockstep_host::file::{Disk, SystemDisk};

use super::harness::{ID, read, write};
use crate::{Access, DatabaseDirectory, Error};

/// A path that is gone when the test ends.
struct TemporaryPath(PathBuf);

impl TemporaryPath {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-wal-checkpoint-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self, access: Access) -> Result<DatabaseDirectory, Error> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        DatabaseDirectory::open(disk, &self.0, access)
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

const READ_WRITE: Access = Access::ReadWrite { new_id: ID };

#[test]
fn several_threads_write_files_of_one_checkpoint() {
    let path = TemporaryPath::new("threads");
    let directory = path.open(READ_WRITE).unwrap();
    let blocks = |seed: u8| (0..300).map(|index| vec![seed; 37 * index]).collect::<Vec<_>>();
    let files: Vec<_> = std::thread::scope(|scope| {
        let directory = &directory;
        let write = |seed| scope.spawn(move || write(directory, &blocks(seed)).unwrap());
        let threads: Vec<_> = (1..=4).map(write).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let manifest = directory.manifest().successor(0, files.clone(), Vec::new());
    directory.commit(manifest).unwrap();
    drop(directory);
    let directory = path.open(Access::ReadOnly).unwrap();
    for (seed, file) in (1..).zip(&files) {
        assert_eq!(read(&directory, *file).unwrap(), blocks(seed), "{file:?}");
    }
}

#[test]
fn a_block_may_be_longer_than_the_buffers() {
    let path = TemporaryPath::new("long");
    let directory = path.open(READ_WRITE).unwrap();
    // Around a mebibyte, and more than what is synced at once.
    let lengths = [(1 << 20) - 13, (1 << 20) - 12, 1 << 20, (1 << 20) + 1, 40 << 20, 5];
    let blocks: Vec<_> =
        lengths.map(|length| vec![u8::try_from(length % 251).unwrap(); length]).into();
    let file = write(&directory, &blocks).unwrap();
    let bytes = 48 + lengths.iter().map(|length| 12 + *length as u64).sum::<u64>();
    assert_eq!((file.bytes, file.blocks), (bytes, 6));
    let found = read(&directory, file).unwrap();
    assert!(found == blocks, "the blocks are what was written");
}

#[test]
fn files_that_a_checkpoint_does_not_list_are_removed_and_their_numbers_not_used_again() {
    let path = TemporaryPath::new("numbers");
    let directory = path.open(READ_WRITE).unwrap();
    let block = [b"rows".to_vec()];
    let names = || SystemDisk.list(&path.0.join("data")).unwrap();
    let first = write(&directory, &block).unwrap();
    let commit = |directory: &DatabaseDirectory, files: &[crate::DataFile]| {
        directory.commit(directory.manifest().successor(0, files.to_vec(), Vec::new())).unwrap();
    };
    commit(&directory, &[first]);
    let unfinished = directory.create_data_file().unwrap();
    let second = write(&directory, &block).unwrap();
    // What is being written stays.
    commit(&directory, &[second]);
    assert_eq!(names(), ["00000000000000000002.data", "00000000000000000003.data"]);
    drop(unfinished);
    assert_eq!(names(), ["00000000000000000003.data"]);
    commit(&directory, &[]);
    drop(directory);
    let directory = path.open(READ_WRITE).unwrap();
    assert_eq!(directory.create_data_file().unwrap().number(), 4);
    assert_eq!((directory.manifest().generation, names().len()), (3, 0));
}

#[test]
fn a_file_that_is_finished_after_a_commit_belongs_to_the_next_one() {
    let path = TemporaryPath::new("next");
    let directory = path.open(READ_WRITE).unwrap();
    let mut early = directory.create_data_file().unwrap();
    early.push_block(b"early").unwrap();
    directory.commit(directory.manifest().successor(0, Vec::new(), Vec::new())).unwrap();
    let file = early.finish().unwrap();
    directory.commit(directory.manifest().successor(0, vec![file], Vec::new())).unwrap();
    assert_eq!(read(&directory, file).unwrap(), [b"early"]);
}

#[test]
fn a_directory_is_opened_once_for_writing_and_several_times_for_reading() {
    let path = TemporaryPath::new("locks");
    let writer = path.open(READ_WRITE).unwrap();
    let this = std::process::id();
    for access in [READ_WRITE, Access::ReadOnly] {
        let Err(Error::InUse { process_id, is_read: false, .. }) = path.open(access) else {
            panic!("the directory is open");
        };
        assert_eq!(process_id, Some(this));
    }
    drop(writer);
    let readers = [path.open(Access::ReadOnly).unwrap(), path.open(Access::ReadOnly).unwrap()];
    let refused = path.open(READ_WRITE);
    assert!(matches!(refused, Err(Error::InUse { process_id: None, is_read: true, .. })));
    drop(readers);
    drop(path.open(READ_WRITE).unwrap());
}

#[test]
fn a_file_and_foreign_files_are_refused_and_left() {
    let path = TemporaryPath::new("foreign");
    fs::write(&path.0, "a file").unwrap();
    assert!(matches!(path.open(READ_WRITE), Err(Error::NotADirectory { .. })));
    assert!(matches!(path.open(Access::ReadOnly), Err(Error::NotADirectory { .. })));
    fs::remove_file(&path.0).unwrap();
    fs::create_dir(&path.0).unwrap();
    fs::write(path.0.join("notes.txt"), "mine").unwrap();
    assert!(matches!(path.open(READ_WRITE), Err(Error::ForeignFiles { .. })));
    assert_eq!(SystemDisk.list(&path.0).unwrap(), ["notes.txt"]);
}

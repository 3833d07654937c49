//! Damaged bytes of checkpoints: every byte flipped, every length, files and blocks exchanged.
//!
//! A damaged file gives blocks that were written, in their places, and then an error that names it.

use std::path::{Path, PathBuf};

use lockstep_host::file::Disk;
use lockstep_sim::{CrashPolicy, SimulatedDisk};

use super::harness::{Blocks, DIRECTORY, ID, Model, Run, found, open, places, write};
use crate::{Access, DatabaseDirectory, Error, Manifest};

fn manifest_path() -> PathBuf {
    Path::new(DIRECTORY).join("MANIFEST")
}

fn data_path(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("data/{number:020}.data"))
}

fn blocks(seed: u8) -> Blocks {
    vec![vec![seed; 40], Vec::new(), vec![seed + 1; 40], vec![seed + 2; 700]]
}

/// A database with a checkpoint of two files, which is closed.
fn written() -> (SimulatedDisk, Model) {
    let run = Run::new();
    let directory = open(&run.disk).unwrap();
    let files = [10, 20].map(|seed| write(&directory, &blocks(seed)).unwrap());
    let manifest = directory.manifest().successor(0, files.to_vec(), b"what they are".to_vec());
    directory.commit(manifest).unwrap();
    let model = found(&directory).unwrap();
    drop(directory);
    (run.disk.image().disk(CrashPolicy::AllLost), model)
}

/// Damages a file in every way; each time `check` opens the database and says what is wrong. Gives
/// how often.
fn damage_each(
    disk: &SimulatedDisk,
    path: &Path,
    check: impl Fn() -> Result<(), String>,
) -> Result<u64, String> {
    let bytes = disk.bytes(path);
    let mut count = 0;
    let mut tried = |how: String, bytes: Vec<u8>| {
        disk.replace(path, bytes);
        count += 1;
        check().map_err(|what| format!("{how}: {what}"))
    };
    for offset in 0..bytes.len() {
        for mask in [1 << (offset % 8), 0xff] {
            let mut flipped = bytes.clone();
            flipped[offset] ^= mask;
            tried(format!("byte {offset} flipped"), flipped)?;
        }
        tried(format!("cut at {offset}"), bytes[..offset].to_vec())?;
    }
    tried("longer".into(), [bytes.as_slice(), &[0]].concat())?;
    disk.replace(path, bytes);
    Ok(count)
}

/// Whether an error names a damaged file.
fn check_names(error: &Error, path: &Path) -> Result<(), String> {
    let is_named = matches!(error, Error::CheckpointDamaged { file, .. } if file == path);
    if is_named { Ok(()) } else { Err(format!("another error: {error}")) }
}

/// Damages the manifest; gives how often.
pub(super) fn check_manifest() -> Result<u64, String> {
    let (disk, _) = written();
    let path = manifest_path();
    damage_each(&disk, &path, || match open(&disk) {
        Ok(directory) => Err(format!("opened: {:?}", directory.manifest())),
        Err(error) => check_names(&error, &path),
    })
}

/// Reads a file of a checkpoint, which is damaged: what comes before the error must be right.
fn check_blocks(
    directory: &DatabaseDirectory,
    index: usize,
    expected: &Blocks,
) -> Result<(), String> {
    let listed = directory.manifest().files[index];
    let path = data_path(listed.number);
    let mut reader = match directory.read_data_file(listed) {
        Ok(reader) => reader,
        Err(error) => return check_names(&error, &path),
    };
    for number in 0.. {
        match reader.next_block() {
            Ok(Some(block)) if expected.get(number).is_some_and(|blocks| blocks == block) => {}
            Ok(Some(block)) => return Err(format!("block {number} is {block:?}")),
            Ok(None) => return Err("no error".into()),
            Err(error) => return check_names(&error, &path),
        }
    }
    Ok(())
}

/// Reads the blocks of a damaged file singly: each is right or an error, and one is an error.
fn check_single_blocks(
    directory: &DatabaseDirectory,
    index: usize,
    expected: &Blocks,
) -> Result<(), String> {
    let listed = directory.manifest().files[index];
    let path = data_path(listed.number);
    let reader = match directory.open_blocks(listed) {
        Ok(reader) => reader,
        Err(error) => return check_names(&error, &path),
    };
    assert_eq!((reader.path(), reader.file()), (path.as_path(), listed));
    let mut errors = 0;
    for (number, place) in places(expected).into_iter().enumerate() {
        match reader.read(place) {
            Ok(block) if block == expected[number] => {}
            Ok(block) => return Err(format!("block {number} is {block:?}")),
            Err(error) => {
                check_names(&error, &path)?;
                errors += 1;
            }
        }
    }
    if errors > 0 { Ok(()) } else { Err("no error of a single block".into()) }
}

/// Damages a data file; gives how often.
pub(super) fn check_data_file() -> Result<u64, String> {
    let (disk, model) = written();
    let directory = open(&disk).map_err(|error| error.to_string())?;
    damage_each(&disk, &data_path(2), || {
        check_blocks(&directory, 1, &model.files[1])?;
        check_single_blocks(&directory, 1, &model.files[1])
    })
}

/// Puts whole blocks and files into other places; gives how often.
pub(super) fn check_exchanged() -> Result<u64, String> {
    let (disk, model) = written();
    let directory = open(&disk).map_err(|error| error.to_string())?;
    let first = disk.bytes(&data_path(1));
    // Two blocks of 40 bytes with their headers of 12, and the empty one between them.
    let (before, after) = (48..100, 112..164);
    let mut blocks_exchanged = first.clone();
    blocks_exchanged[before.clone()].copy_from_slice(&first[after.clone()]);
    blocks_exchanged[after].copy_from_slice(&first[before]);
    let others =
        [blocks_exchanged, disk.bytes(&data_path(2)), same_number(&[9; 16]), same_number(&ID)];
    for (index, other) in others.iter().enumerate() {
        assert_eq!(other.len(), first.len(), "it differs in what it holds, not in its length");
        disk.replace(&data_path(1), other.clone());
        // The last one is whole: what is given is not looked at, but that there is an error.
        let expected = if index == 3 { blocks(50) } else { model.files[0].clone() };
        check_blocks(&directory, 0, &expected).map_err(|what| format!("file {index}: {what}"))?;
        // A whole file in the place of another one is found by its checksum only.
        if index < 3 {
            check_single_blocks(&directory, 0, &expected)?;
        }
    }
    Ok(others.len() as u64)
}

/// The first data file of another copy of a database, with other blocks.
fn same_number(id: &[u8; 16]) -> Vec<u8> {
    let disk = SimulatedDisk::new();
    let access = Access::ReadWrite { new_id: *id };
    let directory =
        DatabaseDirectory::open(std::sync::Arc::new(disk.clone()), Path::new(DIRECTORY), access);
    write(&directory.unwrap(), &blocks(50)).unwrap();
    disk.bytes(&data_path(1))
}

#[test]
fn a_damaged_manifest_is_refused_and_named() {
    println!("damaged manifests: {}", check_manifest().unwrap());
}

#[test]
fn a_damaged_data_file_gives_no_wrong_block() {
    println!("damaged data files: {}", check_data_file().unwrap());
}

#[test]
fn blocks_and_files_in_other_places_are_errors() {
    check_exchanged().unwrap();
}

#[test]
fn a_missing_data_file_is_an_error_that_names_it() {
    let (disk, model) = written();
    let directory = open(&disk).unwrap();
    disk.remove(&data_path(2)).unwrap();
    let listed: Vec<_> = Manifest::clone(&directory.manifest()).files;
    assert_eq!(super::harness::read(&directory, listed[0]).unwrap(), model.files[0]);
    let error = directory.read_data_file(listed[1]).unwrap_err();
    let single = directory.open_blocks(listed[1]).unwrap_err();
    assert_eq!(single.to_string(), error.to_string());
    let name = data_path(2);
    let expected = format!("{} is damaged at byte 0: the file is missing", name.display());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_damaged_block_does_not_hide_the_ones_behind_it() {
    let (disk, model) = written();
    let directory = open(&disk).unwrap();
    let mut bytes = disk.bytes(&data_path(1));
    bytes[70] ^= 1;
    disk.replace(&data_path(1), bytes);
    let mut reader = directory.read_data_file(directory.manifest().files[0]).unwrap();
    let error = reader.next_block().unwrap_err();
    assert!(error.to_string().ends_with("byte 48: the payload of a block is invalid"), "{error}");
    for expected in &model.files[0][1..] {
        assert_eq!(reader.next_block().unwrap().unwrap(), expected);
    }
    assert!(reader.next_block().unwrap().is_none());
}

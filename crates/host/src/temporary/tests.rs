//! Temporary files of a test: what counts, what is removed, and when.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{FOLDER_PREFIX, OWNER, TemporaryError, TemporarySpace, TemporaryStorage};

/// A folder of a test, removed when it is dropped.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-host-temporary-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn storage(&self) -> TemporaryStorage {
        TemporaryStorage { folder: Some(self.0.clone()), space: Arc::default() }
    }

    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_file_counts_until_it_is_dropped() {
    let folder = TestFolder::new("counts");
    let storage = folder.storage();
    let files = storage.files();
    assert!(folder.entries().is_empty(), "nothing is made before it is needed");
    let file = files.create().unwrap();
    let mut writer = file.writer().unwrap();
    writer.write_all(b"rows").unwrap();
    writer.write_all(b" and rows").unwrap();
    assert_eq!((file.bytes(), storage.space.used_bytes()), (13, 13));
    assert_eq!((mode(file.path()), mode(file.path().parent().unwrap())), (0o600, 0o700));
    let mut text = String::new();
    file.open().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "rows and rows");
    let path = file.path().to_owned();
    drop((file, writer));
    assert!(!path.exists());
    assert_eq!(storage.space.used_bytes(), 0);
    drop(files);
    assert!(folder.entries().is_empty());
}

#[test]
fn files_are_gone_when_their_query_ends_although_they_are_in_use() {
    let folder = TestFolder::new("ends");
    let storage = folder.storage();
    let files = storage.files();
    let file = files.create().unwrap();
    let mut writer = file.writer().unwrap();
    files.end();
    assert!(folder.entries().is_empty());
    writer.write_all(b"rows").unwrap();
    assert!(matches!(file.open(), Err(TemporaryError::Ended)));
    assert!(matches!(files.create(), Err(TemporaryError::Ended)));
    assert_eq!(storage.space.used_bytes(), 4);
    drop((file, writer));
    assert_eq!(storage.space.used_bytes(), 0);
}

#[test]
fn queries_share_one_limit() {
    let folder = TestFolder::new("limit");
    let storage = folder.storage();
    storage.space.set_limit(Some(10));
    let (first, second) = (storage.files().create().unwrap(), storage.files().create().unwrap());
    first.writer().unwrap().write_all(b"seven b").unwrap();
    let error = second.writer().unwrap().write_all(b"four").unwrap_err();
    let Some(TemporaryError::LimitReached { folder: named, wanted: 4, used: 7, limit: 10 }) =
        TemporaryError::of_io(&error)
    else {
        panic!("{error:?}")
    };
    assert_eq!(*named, folder.0);
    drop(first);
    second.writer().unwrap().write_all(b"four").unwrap();
    storage.space.set_limit(None);
    second.writer().unwrap().write_all(b"more than ten").unwrap();
}

#[test]
fn a_space_takes_what_was_given_back() {
    let space = TemporarySpace::default();
    space.set_limit(Some(5));
    assert_eq!(space.reserve(5), Ok(()));
    assert_eq!(space.reserve(1), Err((5, 5)));
    space.release(2);
    assert_eq!(space.reserve(2), Ok(()));
}

#[test]
fn leftovers_are_removed_and_nothing_else() {
    let folder = TestFolder::new("leftovers");
    let at = |name: &str| folder.0.join(format!("{FOLDER_PREFIX}{name}"));
    for name in ["killed", "running", "without-lock", "new"] {
        fs::create_dir(at(name)).unwrap();
    }
    for name in ["killed", "running"] {
        fs::write(at(name).join(OWNER), "").unwrap();
    }
    for name in ["killed", "without-lock"] {
        fs::write(at(name).join("1"), "rows").unwrap();
    }
    let lock = fs::File::open(at("running").join(OWNER)).unwrap();
    lock.lock().unwrap();
    let elsewhere = folder.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join(OWNER), "").unwrap();
    symlink(&elsewhere, at("link")).unwrap();
    fs::write(at("file"), "").unwrap();
    let files = folder.storage().files();
    let _file = files.create().unwrap();
    assert!(!at("killed").exists() && !at("new").exists());
    assert!(at("running").exists() && at("link").exists() && at("file").exists());
    assert!(elsewhere.join(OWNER).exists() && at("without-lock").join("1").exists());
    // The folder of a query that runs is none.
    let other = folder.storage().files();
    let _other = other.create().unwrap();
    assert_eq!(folder.entries().iter().filter(|path| path.is_dir()).count(), 6);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let storage =
        TemporaryStorage { folder: Some(PathBuf::from("/does/not/exist")), ..Default::default() };
    let Err(TemporaryError::System { folder, .. }) = storage.files().create() else {
        panic!("there is no such folder")
    };
    assert_eq!(folder, PathBuf::from("/does/not/exist"));
}

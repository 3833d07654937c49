//! Files below folders, and what leads out of them.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use super::{FileAccess, RefusedFile};
use crate::{QueryContext, disk};

/// A folder `in` to which the access is limited, and one beside it; removed at the end.
struct TestFolders(PathBuf);

impl TestFolders {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir()
            .join(format!("lockstep-host-access-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(path.join("in/deep/er")).unwrap();
        fs::create_dir_all(path.join("out")).unwrap();
        fs::write(path.join("in/deep/a"), "inside").unwrap();
        fs::write(path.join("out/secret"), "outside").unwrap();
        Self(fs::canonicalize(path).unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn access(&self) -> FileAccess {
        FileAccess::below([self.at("in")])
    }
}

impl Drop for TestFolders {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn refused<T>(result: std::io::Result<T>) -> Option<RefusedFile> {
    RefusedFile::of_io(&result.err()?)
}

fn text(access: &FileAccess, path: &Path) -> String {
    let mut text = String::new();
    access.open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn links_are_followed_within_the_folders_only() {
    let test = TestFolders::new("links");
    let access = test.access();
    symlink(test.at("in/deep/a"), test.at("in/deep/er/absolute")).unwrap();
    symlink("../a", test.at("in/deep/er/relative")).unwrap();
    symlink(test.at("in/deep"), test.at("in/folder")).unwrap();
    for path in ["in/deep/a", "in/deep/er/absolute", "in/deep/er/relative", "in/folder/a"] {
        assert_eq!(text(&access, &test.at(path)), "inside", "{path}");
    }
    symlink(test.at("out/secret"), test.at("in/deep/er/secret")).unwrap();
    symlink("../../../out", test.at("in/deep/er/out")).unwrap();
    symlink(test.at("out/nothing"), test.at("in/deep/er/dangling")).unwrap();
    fs::hard_link(test.at("out/secret"), test.at("in/deep/hard")).unwrap();
    assert_eq!(text(&access, &test.at("in/deep/hard")), "outside", "it is a file of the folder");
    let outside = Some(RefusedFile::Outside);
    for path in [
        "in/deep/er/secret",
        "in/deep/er/out/secret",
        "in/deep/er/out/nothing",
        "in/deep/er/dangling",
        "in/../out/secret",
        "out/secret",
        "out/nothing",
    ] {
        let path = test.at(path);
        assert_eq!(refused(access.open(&path)), outside, "{}", path.display());
        assert_eq!(refused(access.status(&path)), outside);
        assert_eq!(refused(access.list(&path)), outside);
        assert_eq!(refused(access.resolve(&path)), outside);
    }
    let missing = access.open(&test.at("in/deep/nothing")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn nothing_is_written_through_a_link_that_leads_out() {
    let test = TestFolders::new("write");
    let access = test.access();
    symlink(test.at("out"), test.at("in/deep/out")).unwrap();
    symlink(test.at("out/new"), test.at("in/deep/new")).unwrap();
    let outside = Some(RefusedFile::Outside);
    assert_eq!(refused(access.create_new(&test.at("in/deep/out/x"))), outside);
    assert_eq!(refused(access.create(&test.at("in/deep/out/secret"))), outside);
    assert_eq!(refused(access.create_folders(&test.at("in/deep/out/x/y"))), outside);
    assert_eq!(refused(access.remove_file(&test.at("in/deep/out/secret"))), outside);
    assert_eq!(refused(access.remove_folder(&test.at("out"))), outside);
    let (inside, beyond) = (test.at("in/deep/a"), test.at("in/deep/out/a"));
    assert_eq!(refused(access.rename(&inside, &beyond)), outside);
    // A link in place of the file is not followed either.
    assert!(access.create(&test.at("in/deep/new")).is_err());
    assert_eq!(fs::read_dir(test.at("out")).unwrap().count(), 1, "nothing was added or removed");
    access.create_folders(&test.at("in/one/two")).unwrap();
    access.create_new(&test.at("in/one/two/x")).unwrap().write_all(b"x").unwrap();
    assert!(access.create_new(&test.at("in/one/two/x")).is_err());
    access.create(&test.at("in/one/two/x")).unwrap();
    assert_eq!(fs::read(test.at("in/one/two/x")).unwrap(), b"", "it was emptied");
    access.rename(&test.at("in/one/two/x"), &test.at("in/one/y")).unwrap();
    access.remove_file(&test.at("in/one/y")).unwrap();
    access.remove_folder(&test.at("in/one/two")).unwrap();
    assert_eq!(access.list(&test.at("in")).unwrap().len(), 2);
}

#[test]
fn special_files_and_folders_of_temporary_files_are_not_opened() {
    let test = TestFolders::new("special");
    let socket = test.at("in/socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let pipe = test.at("in/pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for access in [test.access(), FileAccess::default()] {
        assert_eq!(refused(access.open(&pipe)), Some(RefusedFile::Special("a pipe")));
        assert_eq!(refused(access.open(&socket)), Some(RefusedFile::Special("a socket")));
        assert!(access.open(&test.at("in/deep")).is_err(), "a folder is no file");
    }
    assert_eq!(refused(test.access().create(&pipe)), Some(RefusedFile::Special("a pipe")));
    let device = FileAccess::default().open(Path::new("/dev/null"));
    assert_eq!(refused(device), Some(RefusedFile::Special("a device")));
    fs::create_dir(test.at("in/lockstep-temp-1-0")).unwrap();
    fs::write(test.at("in/lockstep-temp-1-0/1"), "rows").unwrap();
    let temporary = test.access().open(&test.at("in/lockstep-temp-1-0/1"));
    assert_eq!(refused(temporary), Some(RefusedFile::Outside));
}

#[test]
fn a_call_opens_the_files_of_its_context() {
    let test = TestFolders::new("context");
    let secret = test.at("out/secret");
    assert!(disk::exists(&secret));
    QueryContext::opening(test.access()).run(|| {
        assert!(!disk::exists(&secret));
        let nested = QueryContext::scratch();
        assert_eq!(refused(nested.run(|| disk::open(&secret))), Some(RefusedFile::Outside));
        assert_eq!(disk::list(&test.at("in")).unwrap(), [test.at("in/deep")]);
    });
}

//! Opening, creating and reading files.
//!
//! An open file is `std`'s. Errors are `std::io`'s and have no path: the caller adds it.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Opens a file for reading.
#[expect(clippy::disallowed_methods, reason = "this is the real disk")]
pub fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Creates a file for writing; an existing one is emptied.
#[expect(clippy::disallowed_methods, reason = "this is the real disk")]
pub fn create(path: &Path) -> io::Result<File> {
    File::create(path)
}

/// Creates a file for writing; fails with `AlreadyExists` when there is one.
pub fn create_new(path: &Path) -> io::Result<File> {
    File::create_new(path)
}

/// Reads a whole file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Reads a whole file of UTF-8 text.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    #[test]
    fn a_created_file_can_be_read() {
        let name = format!("lockstep-host-disk-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        super::create(&path).unwrap().write_all(b"rows").unwrap();
        assert_eq!(super::read(&path).unwrap(), b"rows");
        assert_eq!(super::read_to_string(&path).unwrap(), "rows");
        assert!(super::create_new(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(super::open(&path).is_err());
    }
}

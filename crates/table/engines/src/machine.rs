//! Statistics of this process, the bytes of files, and the operating system's cache.

use std::{error::Error, fs, io, path::Path};

/// Statistics of this process.
const PROCESS_IO: &str = "/proc/self/io";
const PROCESS_STATUS: &str = "/proc/self/status";
/// Accepts the number 3 from the superuser and drops the operating system's cache.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Returns the bytes that this process has read from the disk.
pub(crate) fn read_bytes() -> Result<u64, Box<dyn Error>> {
    field(PROCESS_IO, "read_bytes")
}

/// Returns the bytes that this process has written, also if they are not on the disk yet.
pub(crate) fn written_bytes() -> Result<u64, Box<dyn Error>> {
    field(PROCESS_IO, "write_bytes")
}

/// Returns the resident memory of this process.
pub(crate) fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    Ok(field(PROCESS_STATUS, "VmRSS")? << 10)
}

/// Returns the maximum of the resident memory of this process so far.
pub(crate) fn resident_bytes_max() -> Result<u64, Box<dyn Error>> {
    Ok(field(PROCESS_STATUS, "VmHWM")? << 10)
}

/// Returns the number in the line `name: number` of a file.
fn field(file: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = values.next().and_then(|value| value.split_whitespace().next());
    let value = value.ok_or_else(|| format!("{file}: missing field `{name}`"))?;
    Ok(value.parse()?)
}

/// Drops the operating system's cache. Returns `false` if this process may not. Dirty pages stay: they
/// must be on the disk before.
pub(crate) fn drop_cache() -> bool {
    fs::write(DROP_CACHES, "3").is_ok()
}

/// Returns the sum of the lengths of all files in a directory and below.
pub(crate) fn file_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    visit_files(directory, &mut |path| {
        bytes += fs::metadata(path)?.len();
        Ok(())
    })?;
    Ok(bytes)
}

/// Reads all files in a directory and below, so that the operating system's cache contains them.
pub(crate) fn read_files(directory: &Path) -> io::Result<()> {
    visit_files(directory, &mut |path| {
        let mut file = fs::File::open(path)?;
        io::copy(&mut file, &mut io::sink()).map(|_| ())
    })
}

fn visit_files(directory: &Path, visit: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            visit_files(&entry.path(), visit)?;
        } else {
            visit(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_statistics_of_a_process_are_read() {
        assert!(super::read_bytes().is_ok() && super::written_bytes().is_ok());
        let (now, max) = (super::resident_bytes().unwrap(), super::resident_bytes_max().unwrap());
        assert!(now > 0 && max > 0);
        assert!(super::field("/proc/self/io", "bytes").is_err());
    }
}

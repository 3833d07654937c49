//! Where a result was measured: processor, kernel, commit, profile.

use std::{path::Path, process::Command};

use lockstep_host::disk;
use serde_json::{Value as Json, json};

/// The machine, as results state it.
pub(crate) fn describe() -> Json {
    json!({
        "cpu": line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "not known".to_owned()),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_kb": line_of("/proc/meminfo", "MemTotal"),
        "kernel": disk::read_to_string(Path::new("/proc/sys/kernel/osrelease"))
            .map(|text| text.trim().to_owned()).unwrap_or_default(),
        "load_average_at_start": load_average(),
        "profile": "dev: opt-level 2, overflow checks on, no LTO",
    })
}

/// Runnable tasks over the last minute; others' work on the machine shows here.
fn load_average() -> Option<f64> {
    let text = disk::read_to_string(Path::new("/proc/loadavg")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The commit that the sources of this program stand at, with `-dirty` when they differ from it.
pub(crate) fn commit() -> String {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        let output = output_of(command.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(args))?;
        Some(output.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "not known".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]).as_deref() {
        Some("") | None => commit,
        Some(_) => format!("{commit}-dirty"),
    }
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// What stands behind `name :` in a file of the kernel.
fn line_of(path: &str, name: &str) -> Option<String> {
    let text = disk::read_to_string(Path::new(path)).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// Memory of this process that is in the machine's memory, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let kilobytes = line_of("/proc/self/status", "VmRSS")?;
    kilobytes.split(' ').next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

/// Makes the allocator give free memory back to the machine, so that growth is seen.
pub(crate) fn give_back_memory() {
    // SAFETY: it touches memory that is free only.
    unsafe { libc::malloc_trim(0) };
}

//! The machine that a result was measured on: processor, kernel, commit, profile.

use std::{path::Path, process::Command};

use lockstep_host::disk;
use serde_json::{Value as Json, json};

/// The profile that the program was built with: that of the tests, and that of a release (ADR 0026).
const DEV: &str = "dev: opt-level 2, overflow checks on, no LTO";
const RELEASE: &str = "release: opt-level 3, overflow checks on, LTO";

/// Describes the machine, as results state it.
pub(crate) fn describe() -> Json {
    json!({
        "cpu": line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_kb": line_of("/proc/meminfo", "MemTotal"),
        "kernel": disk::read_to_string(Path::new("/proc/sys/kernel/osrelease"))
            .map(|text| text.trim().to_owned()).unwrap_or_default(),
        "load_average_at_start": load_average(),
        "profile": if cfg!(debug_assertions) { DEV } else { RELEASE },
    })
}

/// Returns the number of runnable tasks over the last minute, which shows other work on the
/// machine.
fn load_average() -> Option<f64> {
    let text = disk::read_to_string(Path::new("/proc/loadavg")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Returns the commit of the sources, with `-dirty` when they differ from it.
pub(crate) fn commit() -> String {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        let output = output_of(command.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(args))?;
        Some(output.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
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

/// Returns the text after `name :` in a file of the kernel.
fn line_of(path: &str, name: &str) -> Option<String> {
    let text = disk::read_to_string(Path::new(path)).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let kilobytes = line_of("/proc/self/status", "VmRSS")?;
    kilobytes.split(' ').next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

/// Returns free memory of the allocator to the system, so that growth can be measured.
pub(crate) fn give_back_memory() {
    // SAFETY: it releases only memory that is free.
    unsafe { libc::malloc_trim(0) };
}

//! What a machine should be like for Lockstep: each check looks at figures that were read and says what
//! was found, and how to mend what is not as it should be.
//!
//! Reads nothing: `doctor_command` has the figures. So each check is a function that a test can call.

use lockstep_host::machine::OpenFileLimit;

/// Files that a server has open besides its connections.
const OTHER_FILES: u64 = 1_000;

/// The least free space of a disk, in bytes.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// The longest time that a disk should take to make a write durable, in microseconds.
const SYNC_US_MAX: u64 = 20_000;

/// The least time that a disk takes for it, unless it has a cache that survives a loss of power.
const SYNC_US_MIN: u64 = 30;

/// How many maps of memory a process should be allowed.
const MAPS_MIN: u64 = 65_530;

/// How many connections the system should hold until they are accepted.
const PENDING_MIN: u64 = 1_024;

/// Sources of time that cost about a microsecond for each look at the clock.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "refined-jiffies", "jiffies"];

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingStatus {
    /// As it should be.
    Fine,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something is wrong or will be.
    Problem,
}

impl FindingStatus {
    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineFinding {
    pub(crate) check: &'static str,
    pub(crate) status: FindingStatus,
    /// What was found.
    pub(crate) found: String,
    /// How to mend it.
    pub(crate) fix: Option<String>,
}

impl MachineFinding {
    /// Makes a finding that all is well.
    pub(crate) fn fine(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: FindingStatus::Fine, found: found.into(), fix: None }
    }

    /// Makes a finding that is worth knowing.
    pub(crate) fn note(check: &'static str, found: impl Into<String>, fix: &str) -> Self {
        debug_assert!(!fix.is_empty(), "{check}: what is not fine has a way to mend it");
        Self { status: FindingStatus::Note, fix: Some(fix.to_owned()), ..Self::fine(check, found) }
    }

    /// Makes a finding that something is wrong.
    pub(crate) fn problem(check: &'static str, found: impl Into<String>, fix: &str) -> Self {
        Self { status: FindingStatus::Problem, ..Self::note(check, found, fix) }
    }
}

/// Checks the limit of open files against the connections that the settings allow.
pub(crate) fn open_files(limit: Option<OpenFileLimit>, connections_max: u64) -> MachineFinding {
    let check = "open files";
    let wanted = connections_max.saturating_add(OTHER_FILES);
    debug_assert!(wanted > connections_max, "the server has files besides its connections");
    match limit {
        None => MachineFinding::note(check, "the limit is unknown", "No action needed."),
        Some(OpenFileLimit { hard: None, .. }) => MachineFinding::fine(check, "no limit"),
        Some(OpenFileLimit { hard: Some(hard), .. }) if hard < wanted => MachineFinding::problem(
            check,
            format!("limit {hard}, but limits.connections_max requires {wanted}"),
            &format!(
                "Set LimitNOFILE={wanted} in the systemd unit, or `ulimit -Hn {wanted}`; or lower \
                 limits.connections_max."
            ),
        ),
        Some(OpenFileLimit { hard: Some(hard), .. }) => {
            MachineFinding::fine(check, format!("limit {hard}, {wanted} required"))
        }
    }
}

/// Checks how the system gives huge pages, by the text of `transparent_hugepage/enabled`.
pub(crate) fn huge_pages(enabled: Option<&str>) -> MachineFinding {
    let check = "huge pages";
    let chosen = enabled.and_then(|text| text.split('[').nth(1)?.split(']').next());
    match chosen {
        None => MachineFinding::note(check, "unknown", "No action needed."),
        Some("never") => MachineFinding::note(
            check,
            "never",
            "Enable huge pages, which make reads of large tables faster: \
             echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(other) => MachineFinding::fine(check, other),
    }
}

/// Checks where the system takes the time from.
pub(crate) fn clock_source(current: Option<&str>, available: Option<&str>) -> MachineFinding {
    let check = "clock source";
    match current.map(str::trim) {
        None => MachineFinding::note(check, "unknown", "No action needed."),
        Some(name) if SLOW_CLOCKS.contains(&name) => MachineFinding::problem(
            check,
            format!("{name}: each clock read takes about 1 microsecond"),
            &format!(
                "Boot with clocksource=tsc if tsc is available; available clock sources: {}",
                available.unwrap_or("unknown").trim()
            ),
        ),
        Some(name) => MachineFinding::fine(check, name),
    }
}

/// Checks whether the clock is kept right. Rows expire, tokens end and `now()` returns by it.
pub(crate) fn clock(is_synchronized: Option<bool>) -> MachineFinding {
    let check = "clock";
    match is_synchronized {
        Some(true) => MachineFinding::fine(check, "synchronized"),
        Some(false) => MachineFinding::problem(
            check,
            "not synchronized; expiry of rows and tokens depends on the clock",
            "Run chrony, systemd-timesyncd or another NTP client; for a container, on its host.",
        ),
        None => MachineFinding::note(check, "unknown", "No action needed."),
    }
}

/// Checks the memory that is available; bytes.
pub(crate) fn memory(total: Option<u64>, available: Option<u64>) -> MachineFinding {
    let check = "memory";
    let (Some(total), Some(available)) = (total, available) else {
        return MachineFinding::note(check, "unknown", "No action needed.");
    };
    let text = format!("{} of {} available", size_text(available), size_text(total));
    if available < total / 10 {
        let fix = "Stop other programs, or set max_memory with SET GLOBAL, so that writes are \
                   rejected before the system kills the process.";
        return MachineFinding::problem(check, text, fix);
    }
    MachineFinding::fine(check, text)
}

/// Checks how many maps of memory a process may have: the log and large tables are mapped.
pub(crate) fn maps(limit: Option<u64>) -> MachineFinding {
    let check = "memory maps";
    match limit {
        Some(limit) if limit < MAPS_MIN => MachineFinding::problem(
            check,
            format!("at most {limit} per process"),
            "Run `sysctl -w vm.max_map_count=262144`.",
        ),
        Some(limit) => MachineFinding::fine(check, format!("at most {limit} per process")),
        None => MachineFinding::note(check, "unknown", "No action needed."),
    }
}

/// Checks how many connections the system holds until they are accepted.
pub(crate) fn pending_connections(limit: Option<u64>) -> MachineFinding {
    let check = "pending connections";
    match limit {
        Some(limit) if limit < PENDING_MIN => MachineFinding::problem(
            check,
            format!(
                "the queue holds {limit}; if it is full, new connections are delayed by a second"
            ),
            "Run `sysctl -w net.core.somaxconn=4096`.",
        ),
        Some(limit) => MachineFinding::fine(check, format!("the queue holds {limit}")),
        None => MachineFinding::note(check, "unknown", "No action needed."),
    }
}

/// Checks the free space of the directory's file system; bytes.
pub(crate) fn free_space(free: u64, used: u64) -> MachineFinding {
    let text = format!("{} free, {} used by the directory", size_text(free), size_text(used));
    // A checkpoint writes the data files again before it removes the old ones.
    let wanted = FREE_BYTES_MIN.max(used);
    debug_assert!(wanted >= used, "a checkpoint needs as much again");
    if free >= wanted {
        return MachineFinding::fine("free space", text);
    }
    let fix = format!(
        "Free {} more: a checkpoint rewrites data files before it removes the old ones.",
        size_text(wanted - free)
    );
    MachineFinding::problem("free space", text, &fix)
}

/// Checks how long the disk takes to make a write durable: the median in microseconds.
pub(crate) fn disk(sync_us: u64, file_system: Option<&str>) -> MachineFinding {
    let check = "disk";
    let name = file_system.unwrap_or("unknown file system");
    let text = format!("{name}, a durable write takes {sync_us} us");
    match file_system {
        Some("tmpfs" | "ramfs") => MachineFinding::problem(
            check,
            text,
            "Move the directory to a disk: this file system is in memory and is lost at a restart.",
        ),
        Some("nfs" | "nfs4" | "cifs" | "smb3" | "9p") => MachineFinding::problem(
            check,
            text,
            "Move the directory to a local disk: network locks and durable writes are unreliable.",
        ),
        _ if sync_us > SYNC_US_MAX => MachineFinding::problem(
            check,
            text,
            "Use a faster disk, or durability 'os' for tables for which that is sufficient.",
        ),
        _ if sync_us < SYNC_US_MIN => MachineFinding::note(
            check,
            text,
            "Make sure that the disk has a cache with power-loss protection: otherwise, writes this \
             fast mean that the disk ignores flushes.",
        ),
        _ => MachineFinding::fine(check, text),
    }
}

/// Checks who may read the directory, by the bits of its mode.
pub(crate) fn permissions(mode: Option<u32>) -> MachineFinding {
    let check = "permissions";
    match mode {
        Some(mode) if mode & 0o007 != 0 => MachineFinding::problem(
            check,
            format!(
                "mode {:03o}: every user of this machine can access the directory",
                mode & 0o777
            ),
            "Run `chmod 700 DIR`: the data is not encrypted.",
        ),
        Some(mode) => MachineFinding::fine(check, format!("mode {:03o}", mode & 0o777)),
        None => MachineFinding::note(check, "unknown", "No action needed."),
    }
}

/// Writes a number of bytes for a person.
fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut tenths, mut unit) = (bytes.saturating_mul(10), 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1_024;
        unit += 1;
    }
    debug_assert!(unit < UNITS.len(), "the last unit takes the rest");
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use lockstep_host::machine::OpenFileLimit;

    use super::{
        FindingStatus, MachineFinding, clock, clock_source, disk, free_space, huge_pages, maps,
        memory, open_files, pending_connections, permissions, size_text,
    };

    #[test]
    fn what_is_wrong_is_a_problem_with_a_way_to_mend_it() {
        let files = |hard| open_files(Some(OpenFileLimit { soft: Some(1), hard }), 10_000);
        for (finding, is_problem) in [
            (files(Some(4_096)), true),
            (files(Some(11_000)), false),
            (files(None), false),
            (huge_pages(Some("always [madvise] never")), false),
            (clock_source(Some("hpet\n"), Some("tsc hpet")), true),
            (clock_source(Some("tsc\n"), None), false),
            (clock(Some(false)), true),
            (clock(Some(true)), false),
            (memory(Some(100), Some(5)), true),
            (memory(Some(100), Some(50)), false),
            (maps(Some(1_000)), true),
            (maps(Some(65_530)), false),
            (pending_connections(Some(128)), true),
            (pending_connections(Some(4_096)), false),
            (free_space(1 << 20, 0), true),
            (free_space(1 << 31, 1 << 32), true),
            (free_space(1 << 33, 1 << 32), false),
            (disk(500, Some("ext4")), false),
            (disk(500, Some("tmpfs")), true),
            (disk(500, Some("nfs4")), true),
            (disk(50_000, Some("ext4")), true),
            (permissions(Some(0o40_755)), true),
            (permissions(Some(0o40_700)), false),
        ] {
            assert_eq!(finding.status == FindingStatus::Problem, is_problem, "{finding:?}");
            assert_eq!(finding.fix.is_some(), is_problem, "{finding:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_a_note() {
        let status = |finding: MachineFinding| finding.status;
        for finding in [
            open_files(None, 1),
            huge_pages(None),
            huge_pages(Some("always madvise [never]")),
            clock_source(None, None),
            clock(None),
            memory(None, Some(1)),
            maps(None),
            pending_connections(None),
            permissions(None),
            disk(5, None),
        ] {
            assert_eq!(status(finding), FindingStatus::Note);
        }
    }

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(size_text(0), "0.0 B");
        assert_eq!(size_text(1_536), "1.5 KiB");
        assert_eq!(size_text(1 << 40), "1.0 TiB");
        assert_eq!(size_text(1 << 51), "2048.0 TiB");
    }
}

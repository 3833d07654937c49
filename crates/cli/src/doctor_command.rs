//! `lockstep doctor`: what of this machine, of a directory and of a configuration is not as it should
//! be.
//!
//! Reads the figures and prints what `doctor` says of them, as text or as one JSON object. Changes
//! nothing; in the directory it writes a file of its own and removes it.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process,
};

use clap::Parser;
use lockstep_host::{
    Clock, SystemClock, disk,
    file::{Disk, OpenMode, SystemDisk},
    machine,
};
use lockstep_server::{ServerSettings, SettingError};

use crate::doctor::{self, FindingStatus, MachineFinding};

/// The writes whose time is measured.
const SYNCS: u64 = 21;

/// The bytes of each.
const SYNC_BYTES: usize = 4_096;

/// Checks this machine, and optionally a database directory and a server configuration, and suggests a
/// fix for each problem.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "lockstep doctor",
    after_help = "Exit codes: 0 if no problem was found, 1 if a problem was found, and 2 if arguments \
                  are invalid."
)]
pub(crate) struct DoctorCommand {
    /// Database directory, which need not exist yet.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Checks this server configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Prints the result as one JSON object.
    #[arg(long)]
    json: bool,
}

impl DoctorCommand {
    /// Parses the arguments behind `doctor`.
    pub(crate) fn from_arguments(args: &[String]) -> Result<Self, clap::Error> {
        let name = std::iter::once("lockstep doctor".to_owned());
        Self::try_parse_from(name.chain(args.iter().cloned()))
    }

    /// Looks, prints what was found, and returns the exit code.
    pub(crate) fn run(&self, out: &mut dyn Write, _err: &mut dyn Write) -> io::Result<i32> {
        let findings = self.findings();
        debug_assert!(findings.len() > 8, "every machine is looked at");
        match self.json {
            true => writeln!(out, "{}", to_json(&findings))?,
            false => print(&findings, out)?,
        }
        let has_problem = findings.iter().any(|found| found.status == FindingStatus::Problem);
        Ok(i32::from(has_problem))
    }

    fn findings(&self) -> Vec<MachineFinding> {
        let (settings, config) = self.settings();
        let read = |path: &str| disk::read_to_string(Path::new(path)).ok();
        let clocks =
            |name: &str| read(&format!("/sys/devices/system/clocksource/clocksource0/{name}"));
        let mut found = vec![versions(read("/proc/sys/kernel/osrelease"))];
        found.extend(config);
        found.extend([
            doctor::open_files(machine::open_file_limit(), settings.connections_max()),
            doctor::clock(machine::is_clock_synchronized()),
            doctor::clock_source(
                clocks("current_clocksource").as_deref(),
                clocks("available_clocksource").as_deref(),
            ),
            doctor::huge_pages(read("/sys/kernel/mm/transparent_hugepage/enabled").as_deref()),
            doctor::maps(number("/proc/sys/vm/max_map_count")),
            doctor::pending_connections(number("/proc/sys/net/core/somaxconn")),
            available_memory(read("/proc/meminfo").as_deref()),
        ]);
        found.extend(ports(&settings));
        if let Some(directory) = &self.directory {
            found.extend(look_at_directory(directory));
        }
        found
    }

    /// Reads the configuration; what is wrong with it is a finding.
    fn settings(&self) -> (ServerSettings, Option<MachineFinding>) {
        let Some(path) = &self.config else { return (ServerSettings::default(), None) };
        let read = disk::read_to_string(path).map_err(|error| error.to_string());
        let settings = read.and_then(|text| {
            let settings = ServerSettings::from_toml(&text).map_err(|error| error.to_string())?;
            settings.validate().map_err(|error| error.to_string())?;
            Ok(settings)
        });
        let name = path.display();
        match settings {
            Ok(settings) => {
                (settings, Some(MachineFinding::fine("configuration", name.to_string())))
            }
            Err(error) => {
                let text = format!("{name}: {error}");
                let fix = "Correct the file; `lockstep serve --print-config` lists all settings.";
                (
                    ServerSettings::default(),
                    Some(MachineFinding::problem("configuration", text, fix)),
                )
            }
        }
    }
}

/// Says which program and which system this is.
fn versions(kernel: Option<String>) -> MachineFinding {
    let kernel = kernel.unwrap_or_else(|| "unknown".to_owned());
    let (version, system, machine) =
        (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let text = format!("lockstep {version}, {system} {machine}, kernel {}", kernel.trim());
    MachineFinding::fine("versions", text)
}

/// Checks the memory by the text of `/proc/meminfo`, and by the limit of the container if that is lower.
fn available_memory(meminfo: Option<&str>) -> MachineFinding {
    let bytes = |name: &str| {
        let line = meminfo?.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().ok()?;
        Some(kib * 1_024)
    };
    let limit = number("/sys/fs/cgroup/memory.max");
    let used = number("/sys/fs/cgroup/memory.current");
    let (total, available) = (bytes("MemTotal"), bytes("MemAvailable"));
    match (limit, used, total) {
        (Some(limit), Some(used), Some(total)) if limit < total => {
            let left = limit.saturating_sub(used);
            doctor::memory(Some(limit), Some(available.map_or(left, |found| found.min(left))))
        }
        _ => doctor::memory(total, available),
    }
}

/// Reads a file that has a number.
fn number(path: &str) -> Option<u64> {
    debug_assert!(path.starts_with('/'), "it is one of the system's");
    disk::read_to_string(Path::new(path)).ok()?.trim().parse().ok()
}

/// Checks whether the ports of the settings are free.
fn ports(settings: &ServerSettings) -> Vec<MachineFinding> {
    let http = settings.http_address().map(Some);
    let addresses = [
        ("port of HTTP", http),
        ("port of PostgreSQL", settings.postgres_address()),
        ("port of Flight SQL", settings.flight_address()),
    ];
    let check = |(check, address): (&'static str, Result<Option<SocketAddr>, _>)| match address {
        Ok(address) => address.map(|address| port(check, address)),
        Err(error) => {
            let error: SettingError = error;
            Some(MachineFinding::problem(check, error.to_string(), "Correct the setting."))
        }
    };
    addresses.into_iter().filter_map(check).collect()
}

/// Checks whether a port is free.
fn port(check: &'static str, address: SocketAddr) -> MachineFinding {
    match TcpListener::bind(address) {
        Ok(_listener) => MachineFinding::fine(check, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => MachineFinding::note(
            check,
            format!("{address} is in use"),
            "Expected if the server is running; otherwise configure another address.",
        ),
        Err(error) => MachineFinding::problem(
            check,
            format!("{address}: {error}"),
            "Use an address of this machine and a port above 1023.",
        ),
    }
}

/// Checks a directory: who may open it, its disk and its space.
fn look_at_directory(directory: &Path) -> Vec<MachineFinding> {
    let is_there = disk::is_folder(directory);
    let place = match (is_there, directory.parent()) {
        (true, _) => directory,
        (false, Some(parent)) if parent.as_os_str().is_empty() => Path::new("."),
        (false, Some(parent)) => parent,
        (false, None) => directory,
    };
    let mut found = vec![if is_there {
        doctor::permissions(disk::status(directory).ok().and_then(|found| found.mode))
    } else {
        let text = format!("{} does not exist yet", directory.display());
        MachineFinding::note(
            "directory",
            text,
            "No action needed: `lockstep serve` and the shell create the directory.",
        )
    }];
    match SystemDisk.free_space(place) {
        Ok(free) => found.push(doctor::free_space(free, bytes_in(directory))),
        Err(error) => {
            found.push(MachineFinding::problem("free space", error.to_string(), PLACE_FIX));
        }
    }
    found.push(match sync_us(place) {
        Ok(median) => doctor::disk(median, file_system(place).as_deref()),
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let text = format!("{error}: {}", source.unwrap_or_default());
            MachineFinding::problem("disk", text, PLACE_FIX)
        }
    });
    debug_assert_eq!(found.len(), 3, "permissions, free space and disk");
    found
}

/// What mends a folder in which nothing can be written.
const PLACE_FIX: &str = "Use a directory to which this user can write.";

/// Returns the bytes of the files in a directory and the folders in it.
fn bytes_in(directory: &Path) -> u64 {
    let size = |path: &PathBuf| match disk::status(path) {
        Ok(found) if found.is_folder => bytes_in(path),
        Ok(found) => found.bytes,
        Err(_) => 0,
    };
    disk::list(directory).unwrap_or_default().iter().map(size).sum()
}

/// Returns the median time of durable writes in a folder, in microseconds.
fn sync_us(folder: &Path) -> Result<u64, lockstep_host::file::Error> {
    let path = folder.join(format!(".lockstep-doctor-{}", process::id()));
    let file = SystemDisk.open(&path, OpenMode::CreateNew)?;
    let clock = SystemClock::new();
    let measured: Result<Vec<u64>, _> = (0..SYNCS)
        .map(|number| {
            let begun_ns = clock.monotonic_ns();
            file.write_at(number * SYNC_BYTES as u64, &[1; SYNC_BYTES])?;
            file.sync_data()?;
            Ok((clock.monotonic_ns() - begun_ns) / 1_000)
        })
        .collect();
    SystemDisk.remove(&path)?;
    let mut times = measured?;
    times.sort_unstable();
    debug_assert!(!times.is_empty(), "some writes were measured");
    Ok(times[times.len() / 2])
}

/// Returns the kind of the file system of a folder: that of the longest mount point above it.
fn file_system(folder: &Path) -> Option<String> {
    let folder = disk::resolve(folder).ok()?;
    debug_assert!(folder.is_absolute(), "mount points are");
    let mounts = disk::read_to_string(Path::new("/proc/self/mounts")).ok()?;
    let parts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = parts.filter(|(point, _)| folder.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

/// Prints findings as lines, and what to do about those that are not fine.
fn print(findings: &[MachineFinding], out: &mut dyn Write) -> io::Result<()> {
    for MachineFinding { check, status, found, fix } in findings {
        writeln!(out, "{:8} {check}: {found}", status.name())?;
        debug_assert_eq!(fix.is_none(), *status == FindingStatus::Fine, "{check}");
        if let Some(fix) = fix {
            writeln!(out, "         {fix}")?;
        }
    }
    let count = findings.iter().filter(|found| found.status == FindingStatus::Problem).count();
    match count {
        0 => writeln!(out, "No problems found."),
        1 => writeln!(out, "1 problem found."),
        count => writeln!(out, "{count} problems found."),
    }
}

/// Writes findings as a JSON object.
fn to_json(findings: &[MachineFinding]) -> String {
    let member = |found: &MachineFinding| {
        let fix = found.fix.as_deref().map_or_else(|| "null".to_owned(), json_text);
        format!(
            "{{\"check\":{},\"status\":\"{}\",\"found\":{},\"fix\":{fix}}}",
            json_text(found.check),
            found.status.name(),
            json_text(&found.found)
        )
    };
    let members: Vec<String> = findings.iter().map(member).collect();
    let count = findings.iter().filter(|found| found.status == FindingStatus::Problem).count();
    format!("{{\"problems\":{count},\"checks\":[{}]}}", members.join(","))
}

/// Writes a text as JSON.
fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            '\u{0}'..='\u{1f}' => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => json.push(letter),
        }
    }
    json.push('"');
    debug_assert!(json.len() >= text.len() + 2, "the text and its quotes");
    json
}

#[cfg(test)]
mod tests {
    use super::{DoctorCommand, available_memory, json_text};
    use crate::doctor::FindingStatus;

    fn run(args: &[&str]) -> (i32, String) {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let command = DoctorCommand::from_arguments(&args).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = command.run(&mut out, &mut err).unwrap();
        (code, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_directory_is_looked_at_and_left_as_it_was() {
        let folder = std::env::temp_dir().join(format!("lockstep-doctor-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let name = folder.to_str().unwrap();
        let (_, text) = run(&[name]);
        for part in
            ["versions: lockstep ", "permissions: ", "free space: ", "disk: ", "open files: "]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let (_, text) = run(&[&format!("{name}/none.lockstep")]);
        assert!(text.contains("does not exist yet"), "{text}");
        std::fs::remove_dir(&folder).unwrap();
        let (code, text) = run(&[&format!("{name}/none/none.lockstep")]);
        assert!(code == 1 && text.contains("problem  disk: "), "{text}");
    }

    #[test]
    fn a_wrong_configuration_is_a_problem() {
        let path =
            std::env::temp_dir().join(format!("lockstep-doctor-{}.toml", std::process::id()));
        std::fs::write(&path, "[limits]\nconnection_max = 1\n").unwrap();
        let (code, json) = run(&["--config", path.to_str().unwrap(), "--json"]);
        assert_eq!(code, 1);
        assert!(json.contains("did you mean limits.connections_max?"), "{json}");
        std::fs::write(
            &path,
            "[limits]\nconnections_max = 1000000\n[http]\nlisten = \"127.0.0.1:0\"\n",
        )
        .unwrap();
        let (_, text) = run(&["--config", path.to_str().unwrap()]);
        assert!(text.contains("ok       configuration"), "{text}");
        assert!(text.contains("requires 1001000") || text.contains("no limit"), "{text}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn figures_are_read_and_texts_written() {
        let memory = available_memory(Some("MemTotal: 1000 kB\nMemAvailable: 10 kB\n"));
        assert_eq!(memory.status, FindingStatus::Problem, "{memory:?}");
        assert_eq!(json_text("a\"\\\n"), "\"a\\\"\\\\\\u000a\"");
    }
}

//! One measurement in a process of its own: filled first, then timed, its size and its processor time read
//! from outside.
//!
//! The process prints the line `filled`, waits for a line, works, prints a JSON object with its time (`ms`)
//! and waits for its end. What it started counts with it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value as Json;

use crate::{
    error::{Error, Result, Trying},
    suite::say,
};

/// Clock ticks of a second in the figures of `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that works once.
pub(crate) struct MeasuredProcess {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// What a process did.
#[derive(Debug, Clone)]
pub(crate) struct ProcessFigures {
    /// What it printed.
    pub(crate) result: Json,
    /// How long it worked, as it says.
    pub(crate) ms: f64,
    /// By how much it grew at most, in MiB.
    pub(crate) memory_mib: f64,
    /// Its processor time divided by the time.
    pub(crate) processors: f64,
}

impl MeasuredProcess {
    /// Starts the process.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.trying(|| "start a process to measure".to_owned())?;
        let output = process.stdout.take().ok_or(FAILED)?;
        Ok(Self { process, output: BufReader::new(output) })
    }

    /// Waits until it is filled, lets it work, and ends it.
    pub(crate) fn measure(mut self) -> Result<ProcessFigures> {
        if self.line()?.trim() != "filled" {
            return Err(FAILED);
        }
        let family = family(self.process.id());
        // The greatest size is counted from here.
        for process in &family {
            let cleared = fs::write(format!("/proc/{process}/clear_refs"), "5");
            cleared.trying(|| "reset the peak size of a process".to_owned())?;
        }
        let size =
            |name: &str| family.iter().map(|process| status_kib(*process, name)).sum::<f64>();
        let ticks = || family.iter().map(|process| processor_ticks(*process)).sum::<f64>();
        let (before_kib, before_ticks) = (size("VmRSS:"), ticks());
        let mut input = self.process.stdin.take().ok_or(FAILED)?;
        writeln!(input).trying(|| "start the work of a process".to_owned())?;
        let text = self.line()?;
        let memory_mib = ((size("VmHWM:") - before_kib) / 1024.0).max(1.0);
        let seconds = (ticks() - before_ticks) / TICKS_PER_SECOND;
        let result: Json = serde_json::from_str(&text).ok().ok_or(FAILED)?;
        let ms = result["ms"].as_f64().ok_or(FAILED)?;
        Ok(ProcessFigures { result, ms, memory_mib, processors: seconds * 1e3 / ms.max(1.0) })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).trying(|| "read from a process".to_owned())?;
        Ok(line)
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        // What it started would go on without it.
        for process in family(self.process.id()).into_iter().skip(1) {
            // SAFETY: a signal to a process that this one has started.
            let _killed = unsafe { libc::kill(process.cast_signed(), libc::SIGKILL) };
        }
        // SIGKILL. A process that failed has ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

const FAILED: Error = Error::Idle { what: "the measured process failed" };

/// Waits in the measured process for the start, works, and says how long it took; ends with its input.
pub(crate) fn work(milliseconds_of: impl FnOnce() -> Result<Json>) -> Result<()> {
    say("filled");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).trying(|| "wait for the start".to_owned())?;
    say(&milliseconds_of()?.to_string());
    std::io::stdin().read_line(&mut line).trying(|| "wait for the end".to_owned()).map(drop)
}

/// Returns a process and all that it started, itself first.
fn family(process: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers
        .filter_map(|number| Some((number, fields_of(&stat(number))?.first()?.parse().ok()?)))
        .collect();
    let mut family = vec![process];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(number, _)| *number));
        next += 1;
        assert!(family.len() < 10_000, "a process has no circle of parents");
    }
    family
}

/// Reads the fields of `/proc/…/stat` from the parent on, which follow the name in parentheses.
fn fields_of(text: &str) -> Option<Vec<&str>> {
    let (_, rest) = text.rsplit_once(')')?;
    // The state is first.
    Some(rest.split_whitespace().skip(1).collect())
}

/// Reads the file `stat` of a process; empty when it has ended.
fn stat(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

/// Reads the processor time of a process or a thread, in clock ticks.
fn ticks_of(stat: &str) -> f64 {
    let fields = fields_of(stat).unwrap_or_default();
    // Fields 14 and 15 of the line, of which the first three are left out.
    let ticks = fields.get(10..12).unwrap_or_default();
    ticks.iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

/// Reads the processor time of a process, in clock ticks; 0 when it has ended.
fn processor_ticks(process: u32) -> f64 {
    ticks_of(&stat(process))
}

/// Reads the processor time of those threads of this process that have a name, each with its number.
pub(crate) fn thread_seconds(name: &str) -> Vec<(u32, f64)> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |task: fs::DirEntry| {
        let number = task.file_name().to_str()?.parse().ok()?;
        let of_thread = fs::read_to_string(task.path().join("comm")).ok()?;
        let text = fs::read_to_string(task.path().join("stat")).ok()?;
        // A name has 15 bytes at most.
        let is_named = name.starts_with(of_thread.trim()) && !of_thread.trim().is_empty();
        is_named.then(|| (number, ticks_of(&text) / TICKS_PER_SECOND))
    };
    tasks.filter_map(read).collect()
}

/// Reads a size from the status of a process, in KiB; 0 when it has ended.
pub(crate) fn status_kib(process: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{family, processor_ticks, status_kib, thread_seconds};

    #[test]
    fn threads_are_found_by_their_names() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (runs, begun) = std::sync::mpsc::channel::<()>();
        let wait = move || {
            runs.send(()).unwrap();
            receiver.recv().is_err()
        };
        let thread = lockstep_host::spawn("a-thread-of-a-test", wait).unwrap();
        begun.recv().unwrap();
        assert_eq!(thread_seconds("a-thread-of-a-test").len(), 1);
        assert_eq!(thread_seconds("no-such-thread"), []);
        drop(sender);
        assert!(thread.join().unwrap());
    }

    #[test]
    fn this_process_has_a_size_and_a_family() {
        let process = std::process::id();
        assert_eq!(family(process).first(), Some(&process));
        assert!(status_kib(process, "VmRSS:") > 100.0);
        assert!(processor_ticks(process) >= 0.0);
        assert!(family(1).len() >= family(process).len());
    }
}

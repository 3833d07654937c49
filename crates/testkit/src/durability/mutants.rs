//! Fuzzing of the readers of a directory: files that are damaged, and files that are whole and say what
//! no database would.
//!
//! A base directory is made once. Each input changes it, by its number: bytes of a file are flipped, cut
//! or spliced; or payloads of log records, blocks of data files or the body of the manifest are changed
//! and written again with checksums that are right. To open it is an error with a code, or a database
//! that answers and takes writes. No panic, no internal error, no long time, and little memory.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_engine::{Diagnostic, code};
use lockstep_host::{
    Clock, SystemClock, Threads,
    file::{Disk, OpenMode},
};
use lockstep_sim::SimulatedDisk;
use lockstep_wal::{
    Access, DatabaseDirectory, Entries, Group, Log, Manifest, Options, RecordKind, SegmentedLog,
};

use super::{
    run::{Folder, PATH, Run, StepOutcome},
    workload::{self, EACH_KIND_TABLES, START_MS, WorkloadStep},
};
use crate::{
    fuzz::{FuzzOptions, FuzzReport, MEMORY_BYTES_MAX, memory},
    panics,
    random::Random,
};

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The log.
    Log,
    /// The data files of the checkpoint.
    Checkpoint,
    /// The manifest.
    Manifest,
}

/// A directory whose opening takes longer is reported, in milliseconds.
const SLOW_MS: u64 = 10_000;

/// The directory that is changed.
#[derive(Debug)]
pub struct Base {
    /// With a checkpoint and a log behind it.
    files: Vec<(PathBuf, Vec<u8>)>,
    manifest: Arc<Manifest>,
    /// The data files.
    blocks: Vec<FileBlocks>,
    /// Records of the log behind the checkpoint.
    tail: Vec<LogRecord>,
    /// Records of a log without a checkpoint.
    whole: Vec<LogRecord>,
}

/// The number of a data file, and its blocks.
type FileBlocks = (u64, Vec<Vec<u8>>);

#[derive(Debug, Clone)]
struct LogRecord {
    kind: RecordKind,
    rows: u32,
    payload: Vec<u8>,
}

impl Base {
    /// Makes the directory.
    pub fn new() -> Result<Self, Box<Diagnostic>> {
        let failed = |error: &dyn fmt::Display| {
            Box::new(Diagnostic::internal(format!("the base was not made: {error}")))
        };
        let folder = Folder::new("mutants").map_err(|error| failed(&error))?;
        let steps = workload::each_kind(&folder.path());
        let disk = made(&steps)?;
        let files = files_of(&disk);
        let (manifest, tail) = log_of(&disk).map_err(|error| failed(&error))?;
        let blocks = blocks_of(&disk).map_err(|error| failed(&error))?;
        let logged: Vec<WorkloadStep> =
            steps.into_iter().filter(|step| !step.is_checkpoint()).collect();
        let (_, whole) = log_of(&made(&logged)?).map_err(|error| failed(&error))?;
        Ok(Self { files, manifest, blocks, tail, whole })
    }
}

/// Runs steps on a new disk.
fn made(steps: &[WorkloadStep]) -> Result<SimulatedDisk, Box<Diagnostic>> {
    let disk = SimulatedDisk::new();
    let run = Run::open(&disk, START_MS)?;
    for step in steps {
        run.step(step);
    }
    run.close()?;
    Ok(disk)
}

fn shared(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// The files of a directory, with those of its directories.
fn files_of(disk: &SimulatedDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for directory in ["", "log", "data"] {
        let directory = Path::new(PATH).join(directory);
        for name in disk.list(&directory).unwrap_or_default() {
            let path = directory.join(name);
            if disk.list(&path).is_err() {
                files.push((path.clone(), disk.bytes(&path)));
            }
        }
    }
    files
}

fn log_of(disk: &SimulatedDisk) -> Result<(Arc<Manifest>, Vec<LogRecord>), lockstep_wal::Error> {
    let directory = DatabaseDirectory::open(shared(disk), Path::new(PATH), Access::ReadOnly)?;
    let mut records = Vec::new();
    directory.read_log(&mut |entries: Entries<'_>| {
        records.extend(entries.map(|entry| LogRecord {
            kind: entry.kind,
            rows: entry.rows,
            payload: entry.payload.to_vec(),
        }));
    })?;
    Ok((directory.manifest(), records))
}

fn blocks_of(disk: &SimulatedDisk) -> Result<Vec<FileBlocks>, lockstep_wal::Error> {
    let directory = DatabaseDirectory::open(shared(disk), Path::new(PATH), Access::ReadOnly)?;
    let mut files = Vec::new();
    for file in &directory.manifest().files {
        let (mut reader, mut blocks) = (directory.read_data_file(*file)?, Vec::new());
        while let Some(block) = reader.next_block()? {
            blocks.push(block.to_vec());
        }
        files.push((file.number, blocks));
    }
    Ok(files)
}

/// Runs until one of the limits is reached; see [`crate::fuzz::run`].
pub fn run(base: &Base, part: Part, options: &FuzzOptions<'_>) -> FuzzReport {
    let clock = SystemClock::new();
    let now_ms = || clock.monotonic_ns() / 1_000_000;
    let start_ms = now_ms();
    let mut report = FuzzReport::default();
    panics::catch_text();
    while report.executions < options.executions_max && now_ms() - start_ms < options.time_ms_max {
        let number = options.first + report.executions;
        let input = format!("{part:?}, seed {}, number {number}", options.seed);
        (options.before)(number, &input);
        let mut random = Random::new(options.seed ^ number.wrapping_mul(0x9e37_79b9));
        let disk = base.changed(part, &mut random);
        let (before, begun_ms) = (memory::start(), now_ms());
        let found = panics::caught(|| open(&disk)).unwrap_or_else(Err);
        let (bytes, took_ms) = (memory::peak_since(before), now_ms() - begun_ms);
        report.executions += 1;
        report.slowest_ms = report.slowest_ms.max(took_ms);
        report.memory_bytes_max = report.memory_bytes_max.max(bytes);
        let slow = (took_ms > SLOW_MS).then(|| format!("slow: {took_ms} ms"));
        let big = (bytes > MEMORY_BYTES_MAX).then(|| format!("big: {bytes} bytes"));
        for what in [found.err(), slow, big].into_iter().flatten() {
            report.add(what, &input);
        }
    }
    report
}

/// Opens a directory; what opens is read and written to, closed and opened again.
fn open(disk: &SimulatedDisk) -> Result<(), String> {
    let internal = |error: &Diagnostic| {
        let is_internal = error.code == code::INTERNAL_ERROR;
        if is_internal { Err(format!("internal error: {}", error.message)) } else { Ok(()) }
    };
    let run = match Run::open(disk, START_MS) {
        Ok(run) => run,
        Err(error) => return internal(&error),
    };
    for shown in run.show(&EACH_KIND_TABLES) {
        if shown.contains(&format!("error {}", code::INTERNAL_ERROR)) {
            return Err(format!("internal error: {shown}"));
        }
    }
    for step in workload::after_opening() {
        if let StepOutcome::Refused(what) = run.step(&step)
            && what.starts_with(code::INTERNAL_ERROR)
        {
            return Err(format!("{step:?}: {what}"));
        }
    }
    if let Err(error) = run.close() {
        return internal(&error);
    }
    drop(run);
    match Run::open(disk, START_MS) {
        Ok(_) => Ok(()),
        // What was written then is whole.
        Err(error) => Err(format!("not opened again: {}: {}", error.code, error.message)),
    }
}

impl Base {
    /// Makes the directory of an input.
    fn changed(&self, part: Part, random: &mut Random) -> SimulatedDisk {
        if random.chance(40) {
            return self.damaged(part, random);
        }
        let written = match part {
            Part::Log => self.with_records(random),
            Part::Checkpoint => self.with_blocks(random),
            Part::Manifest => self.with_body(random),
        };
        written.unwrap_or_else(|_| self.damaged(part, random))
    }

    /// Changes bytes of files.
    fn damaged(&self, part: Part, random: &mut Random) -> SimulatedDisk {
        let mut files = self.files.clone();
        let is_part = |path: &Path| match part {
            Part::Log => path.extension().is_some_and(|end| end == "wal"),
            Part::Checkpoint => path.extension().is_some_and(|end| end == "data"),
            Part::Manifest => path.ends_with("MANIFEST"),
        };
        let of_part: Vec<usize> = (0..files.len()).filter(|at| is_part(&files[*at].0)).collect();
        for _ in 0..=random.below(3) {
            let at = *random.pick(&of_part);
            let other = files[*random.pick(&of_part)].1.clone();
            mutate_bytes(&mut files[at].1, &other, random);
        }
        let disk = SimulatedDisk::new();
        for directory in ["", "log", "data"] {
            let made = disk.create_directory(&Path::new(PATH).join(directory));
            made.expect("the disk is empty");
        }
        for (path, bytes) in files {
            let file = disk.open(&path, OpenMode::Create).expect("its directory is there");
            file.write_at(0, &bytes).expect("there is space");
        }
        disk
    }

    /// Writes a log without a checkpoint again, some records changed.
    fn with_records(&self, random: &mut Random) -> Result<SimulatedDisk, lockstep_wal::Error> {
        let mut records = self.whole.clone();
        mutate_records(&mut records, random);
        let disk = SimulatedDisk::new();
        let access = Access::ReadWrite { new_id: [7; 16] };
        let directory = DatabaseDirectory::open(shared(&disk), Path::new(PATH), access)?;
        append(&open_log(&directory)?, &records)?;
        Ok(disk)
    }

    /// Writes the checkpoint again, some blocks changed.
    fn with_blocks(&self, random: &mut Random) -> Result<SimulatedDisk, lockstep_wal::Error> {
        let mut files = self.blocks.clone();
        for _ in 0..=random.below(2) {
            let other = random.pick(&files).1.clone();
            let at = random.below(files.len());
            let Some(block) = files[at].1.first_mut() else { continue };
            let other = other.first().cloned().unwrap_or_default();
            mutate_bytes(block, &other, random);
        }
        self.with_checkpoint(&files, self.manifest.body.clone())
    }

    /// Writes the manifest again, its body changed.
    fn with_body(&self, random: &mut Random) -> Result<SimulatedDisk, lockstep_wal::Error> {
        let mut body = self.manifest.body.clone();
        for _ in 0..=random.below(3) {
            mutate_text(&mut body, random);
        }
        self.with_checkpoint(&self.blocks, body)
    }

    fn with_checkpoint(
        &self,
        files: &[FileBlocks],
        body: Vec<u8>,
    ) -> Result<SimulatedDisk, lockstep_wal::Error> {
        let disk = SimulatedDisk::new();
        let access = Access::ReadWrite { new_id: [7; 16] };
        let directory = DatabaseDirectory::open(shared(&disk), Path::new(PATH), access)?;
        let position = self.manifest.position;
        let log = open_log(&directory)?;
        // What the checkpoint holds is not read from the log.
        let rows = u32::try_from(position).unwrap_or(1).max(1);
        log.append(&Group::of(1, rows, b"none"), &mut |_| ())?;
        append(&log, &self.tail)?;
        drop(log);
        let mut listed = Vec::new();
        for (number, blocks) in files {
            loop {
                let mut writer = directory.create_data_file()?;
                if writer.number() > *number {
                    return Ok(disk);
                }
                let is_it = writer.number() == *number;
                if is_it {
                    blocks.iter().try_for_each(|block| writer.push_block(block).map(drop))?;
                    listed.push(writer.finish()?);
                    break;
                }
                writer.finish()?;
            }
        }
        let manifest = directory.manifest().successor(position, listed, body);
        directory.commit(manifest)?;
        Ok(disk)
    }
}

fn open_log(directory: &DatabaseDirectory) -> Result<SegmentedLog, lockstep_wal::Error> {
    let options =
        Options { threads: Threads::None, segment_bytes: 64 << 10, ..Options::new([7; 16]) };
    Ok(directory.open_log(options, &mut |_| ())?.0)
}

fn append(log: &SegmentedLog, records: &[LogRecord]) -> Result<(), lockstep_wal::Error> {
    for LogRecord { kind, rows, payload } in records {
        log.append(&Group::of(*kind, *rows, payload), &mut |_| ())?;
    }
    log.close()
}

/// Changes some records: their payloads, counts, kinds, and which there are.
fn mutate_records(records: &mut Vec<LogRecord>, random: &mut Random) {
    assert!(!records.is_empty(), "there is a record to change");
    for _ in 0..=random.below(3) {
        let at = random.below(records.len());
        let other = records[random.below(records.len())].clone();
        match random.below(10) {
            0 => drop(records.remove(at)),
            1 => records.insert(at, other.clone()),
            2 => {
                let next = (at + 1) % records.len();
                records.swap(at, next);
            }
            3 => records[at].kind = *random.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 16, 17]),
            4 => records[at].rows = *random.pick(&[1, 2, 7, 1_000, u32::MAX]),
            5 => mutate_bytes(&mut records[at].payload, &other.payload, random),
            // The first bytes are the table, times and positions.
            6 if records[at].payload.len() >= 24 => {
                let field = random.below(3) * 8;
                let value = *random.pick(&[0, 1, 2, 3, 1 << 47, 1 << 63, u64::MAX]);
                records[at].payload[field..field + 8].copy_from_slice(&value.to_le_bytes());
            }
            _ => mutate_text(&mut records[at].payload, random),
        }
        if records.is_empty() {
            records.push(other);
        }
    }
}

/// Flips, cuts, repeats or splices bytes.
fn mutate_bytes(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len().max(1)).min(bytes.len());
    debug_assert!(at <= bytes.len(), "a change begins within the bytes");
    match random.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_slice(other),
        2 => {
            let from = random.below(other.len().max(1)).min(other.len());
            let count = random.below(64).min(other.len() - from);
            let end = (at + count).min(bytes.len());
            drop(bytes.splice(at..end, other[from..from + count].iter().copied()));
        }
        3 => {
            let end = (at + random.below(64)).min(bytes.len());
            bytes[at..end].fill(*random.pick(&[0, 0xff]));
        }
        _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        _ => bytes.push(0),
    }
}

/// Changes a number, a word or a value of a JSON text; bytes where there is none.
fn mutate_text(bytes: &mut Vec<u8>, random: &mut Random) {
    let is_start = |at: &usize| {
        let is_digit = |at: usize| bytes[at].is_ascii_digit();
        is_digit(*at) && (*at == 0 || !is_digit(at - 1))
    };
    let numbers: Vec<usize> = (0..bytes.len()).filter(is_start).collect();
    let quotes: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'"').collect();
    if random.chance(60) && !numbers.is_empty() {
        let at = *random.pick(&numbers);
        let end = (at..bytes.len()).find(|at| !bytes[*at].is_ascii_digit()).unwrap_or(bytes.len());
        let value = *random.pick(&[
            "0",
            "1",
            "2",
            "3",
            "7",
            "255",
            "-1",
            "65536",
            "4294967295",
            "281474976710656",
            "9223372036854775807",
            "18446744073709551615",
            "1.5",
            "null",
        ]);
        drop(bytes.splice(at..end, value.bytes()));
    } else if quotes.len() > 3 {
        // One quoted text becomes another one of the same record.
        let pair = |random: &mut Random| {
            let at = random.below(quotes.len() - 1);
            (quotes[at], quotes[at + 1] + 1)
        };
        let ((from, to), (other_from, other_to)) = (pair(random), pair(random));
        let other = bytes[other_from..other_to].to_vec();
        drop(bytes.splice(from..to, other));
    } else {
        mutate_bytes(bytes, &[], random);
    }
}

//! Workloads, what they may leave behind, and the check of it.
//!
//! The model of a log is a list of groups. After a crash the log must be a prefix of the list that
//! reaches at least to what was acknowledged as being on the disk.

use std::{path::Path, sync::Arc};

use lockstep_host::{
    ManualClock, Threads,
    file::{Disk, OpenMode},
};
use lockstep_sim::{CrashImage, CrashPolicy, Random, SimulatedDisk};

use crate::{Durability, Entries, Error, Group, Log, Options, Recovered, SegmentedLog};

pub(super) const DIRECTORY: &str = "/log";
pub(super) const LOG_ID: [u8; 16] = *b"the log of tests";

/// A record as it is appended: kind, rows, payload.
pub(super) type Record = (u8, u32, Vec<u8>);

/// A group and where it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedGroup {
    pub(super) first: u64,
    pub(super) records: Vec<Record>,
}

impl PlacedGroup {
    pub(super) fn end(&self) -> u64 {
        self.first + self.records.iter().map(|(_, rows, _)| u64::from(*rows)).sum::<u64>()
    }
}

/// One thing that a program does with a log.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Append(Vec<Record>),
    /// Waits for the disk.
    Wait,
    /// Lets the window end.
    Tick,
    /// Truncates what is acknowledged, so many groups before its end.
    Truncate(usize),
    /// The machine writes some pages back.
    WriteBack(u64),
    /// The program ends, with or without closing the log, and opens it again.
    Close,
    Drop,
}

/// Draws a workload.
pub(super) fn workload(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut steps = Vec::new();
    for number in 0..count {
        steps.push(match random.below(16) {
            0..=7 => Step::Append(records(&mut random, number)),
            8..=10 => Step::Wait,
            11 => Step::Tick,
            12 => Step::Truncate(random.index(4)),
            13 => Step::WriteBack(random.any()),
            14 => Step::Drop,
            _ => Step::Close,
        });
    }
    steps
}

/// Draws a group whose bytes no other group of the workload has.
fn records(random: &mut Random, number: usize) -> Vec<Record> {
    let count = 1 + random.index(3);
    let record = |index: usize| {
        // Few lengths, so that what is written later ends where something older began.
        let length = match random.below(24) {
            0 => 6_000,
            1..=4 => 700,
            5..=8 => 107,
            _ => 24,
        };
        let mut payload = format!("group {number} record {index} ").into_bytes();
        payload.resize_with(length, || u8::try_from(1 + random.below(255)).unwrap());
        (
            u8::try_from(random.below(5)).unwrap(),
            1 + u32::try_from(random.below(3)).unwrap(),
            payload,
        )
    };
    (0..count).map(record).collect()
}

pub(super) fn group(records: &[Record]) -> Group<'_> {
    let mut group = Group::new();
    for (kind, rows, payload) in records {
        group.push(*kind, *rows, payload);
    }
    group
}

pub(super) fn options() -> Options {
    Options {
        segment_bytes: 4_096,
        threads: Threads::None,
        clock: Arc::new(ManualClock::new(0)),
        ..Options::new(LOG_ID)
    }
}

/// An empty directory on an empty disk.
pub(super) fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    disk
}

/// A log that was opened, and what was in it.
#[derive(Debug)]
pub(super) struct OpenedLog {
    pub(super) log: SegmentedLog,
    pub(super) recovered: Recovered,
    pub(super) groups: Vec<PlacedGroup>,
}

pub(super) fn open(disk: &SimulatedDisk, options: Options) -> Result<OpenedLog, Error> {
    let mut groups = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let visit = &mut |entries: Entries<'_>| groups.push(placed(entries));
    let (log, recovered) = SegmentedLog::open(disk, Path::new(DIRECTORY), options, visit)?;
    Ok(OpenedLog { log, recovered, groups })
}

/// The model's form of what was read.
pub(super) fn placed(entries: Entries<'_>) -> PlacedGroup {
    let entries: Vec<_> = entries.collect();
    let first = entries[0].position;
    let mut next = first;
    let record = |entry: &crate::Entry<'_>| {
        assert_eq!(entry.position, next, "positions have no gaps");
        next += u64::from(entry.rows);
        (entry.kind, entry.rows, entry.payload.to_vec())
    };
    PlacedGroup { first, records: entries.iter().map(record).collect() }
}

/// What a log must have and may have.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    /// What was appended, or may have been.
    pub(super) groups: Vec<PlacedGroup>,
    /// Everything before this position is acknowledged.
    pub(super) acknowledged: u64,
    /// Nobody needs what is before this position.
    pub(super) needed: u64,
}

/// A moment at which the machine may stop, and what must be found then.
pub(super) struct StopMoment {
    pub(super) image: CrashImage,
    pub(super) expected: Expected,
}

/// A log, the program that writes it, and what it must have.
pub(super) struct Run {
    pub(super) disk: SimulatedDisk,
    log: Option<SegmentedLog>,
    pub(super) expected: Expected,
    /// The position after the last group that was appended.
    pub(super) end: u64,
    pub(super) is_stopped: bool,
}

impl Run {
    pub(super) fn new(disk: SimulatedDisk) -> Self {
        Self { disk, log: None, expected: Expected::default(), end: 0, is_stopped: false }
    }

    /// Does one step. What fails is taken note of; what must not happen is an error.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        if self.log.is_none() {
            self.open()?;
        }
        let Some(log) = &self.log else { return Ok(()) };
        let result = match step {
            Step::Append(records) => {
                let first = log.end();
                let placed = PlacedGroup { first, records: records.clone() };
                let appended = log.append(&group(records), &mut |turn| assert_eq!(turn, first));
                if self.is_stopped && appended.is_ok() {
                    return Err("a group was accepted after a failed sync".into());
                }
                appended.map(|range| {
                    assert_eq!(range, first..placed.end());
                    self.end = range.end;
                    self.expected.groups.push(placed);
                })
            }
            Step::Wait => log.wait(self.end, Durability::Disk).map(|()| {
                self.expected.acknowledged = self.end;
            }),
            Step::Tick => log.tick(),
            Step::Truncate(count) => {
                let needed = self.truncated(*count);
                self.expected.needed = needed;
                log.truncate(needed)
            }
            Step::WriteBack(seed) => {
                self.disk.write_back(&mut Random::new(*seed));
                Ok(())
            }
            Step::Close => self.log.take().map_or(Ok(()), |log| log.close()),
            Step::Drop => {
                self.log = None;
                Ok(())
            }
        };
        self.is_stopped |= matches!(result, Err(Error::Stopped { .. }));
        self.is_stopped &= self.log.is_some();
        Ok(())
    }

    /// The position to truncate at: so many groups before the last acknowledged one.
    fn truncated(&self, count: usize) -> u64 {
        let ends = self.expected.groups.iter().map(PlacedGroup::end);
        let known: Vec<u64> = ends.filter(|end| *end <= self.expected.acknowledged).collect();
        let chosen = known.len().checked_sub(count + 1).map_or(0, |index| known[index]);
        chosen.max(self.expected.needed)
    }

    /// Opens the log again after the program ended: everything that was appended is there.
    fn open(&mut self) -> Result<(), String> {
        let needed = self.expected.needed;
        match open(&self.disk, Options { needed, ..options() }) {
            Ok(opened) => {
                // The machine went on: whatever was appended is there.
                let appended = Expected { acknowledged: self.end, ..self.expected.clone() };
                compare(&opened, &appended)?;
                self.end = opened.recovered.end;
                self.log = Some(opened.log);
                Ok(())
            }
            // The fault that was set; the next step tries again.
            Err(Error::Disk { .. } | Error::Full { .. } | Error::Stopped { .. }) => Ok(()),
            Err(error) => Err(format!("the log was not opened: {error}")),
        }
    }
}

/// Runs a workload; gives a moment after each call to the disk, and after each step.
pub(super) fn moments(steps: &[Step]) -> Result<Vec<StopMoment>, String> {
    let mut run = Run::new(disk());
    let mut moments = Vec::new();
    run.disk.record();
    for step in steps {
        let before = run.expected.clone();
        run.step(step)?;
        let mut during = run.expected.clone();
        during.acknowledged = before.acknowledged;
        let images = run.disk.take_images();
        moments
            .extend(images.into_iter().map(|image| StopMoment { image, expected: during.clone() }));
        moments.push(StopMoment { image: run.disk.image(), expected: run.expected.clone() });
    }
    Ok(moments)
}

/// Compares what was found with what must be; gives how many of the expected groups there are.
fn compare(opened: &OpenedLog, expected: &Expected) -> Result<usize, String> {
    let end = opened.recovered.end;
    if end < expected.acknowledged {
        let acknowledged = expected.acknowledged;
        return Err(format!("the log ends at {end}, acknowledged was {acknowledged}"));
    }
    let skipped = expected.groups.partition_point(|group| group.end() <= expected.needed);
    let wanted = expected.groups[skipped..].iter();
    for (index, (found, wanted)) in opened.groups.iter().zip(wanted).enumerate() {
        if found != wanted {
            return Err(format!("group {index} is {found:?} and not {wanted:?}"));
        }
    }
    let count = skipped + opened.groups.len();
    if count > expected.groups.len() {
        return Err(format!("a group that nobody appended: {:?}", opened.groups.last()));
    }
    let last = expected.groups[..count].last().map_or(0, PlacedGroup::end);
    if end != last {
        return Err(format!("the log ends at {end}, its last group at {last}"));
    }
    Ok(count)
}

/// Opens what a crash left, crashes at each call on the way, and compares.
fn check_opening(disk: &SimulatedDisk, expected: &Expected, seed: u64) -> Result<u64, String> {
    let options = Options { needed: expected.needed, ..options() };
    disk.record();
    drop(open(disk, options).map_err(|error| format!("not opened: {error}"))?);
    let images = disk.take_images();
    for (index, image) in images.iter().enumerate() {
        let random = CrashPolicy::Random(seed + index as u64);
        for policy in [CrashPolicy::AllLost, CrashPolicy::AllKept, random] {
            let when = "crashed while it was opened";
            check_groups(&image.disk(policy), expected, when)
                .map_err(|what| format!("call {index}, {policy:?}: {what}"))?;
        }
    }
    Ok(3 * images.len() as u64)
}

/// Opens what a crash left and compares; then appends to it, crashes again, and compares again.
pub(super) fn check(disk: &SimulatedDisk, expected: &Expected) -> Result<(), String> {
    let options = Options { needed: expected.needed, ..options() };
    let opened = open(disk, options).map_err(|error| format!("not opened: {error}"))?;
    let count = compare(&opened, expected)?;
    let mut after = expected.clone();
    after.groups.truncate(count);
    let records = vec![(1, 2, b"appended after the crash".to_vec())];
    let range = opened.log.append(&group(&records), &mut |_| ()).map_err(|e| e.to_string())?;
    after.groups.push(PlacedGroup { first: range.start, records });
    let kept = disk.image().disk(CrashPolicy::AllKept);
    check_groups(&kept, &after, "all kept")?;
    opened.log.wait(range.end, Durability::Disk).map_err(|error| error.to_string())?;
    after.acknowledged = range.end;
    let image = disk.image();
    for policy in [CrashPolicy::AllLost, CrashPolicy::Random(range.end)] {
        check_groups(&image.disk(policy), &after, "appended after a crash")?;
    }
    Ok(())
}

fn check_groups(disk: &SimulatedDisk, expected: &Expected, when: &str) -> Result<(), String> {
    let options = Options { needed: expected.needed, ..options() };
    let opened = open(disk, options).map_err(|error| format!("{when}: not opened: {error}"))?;
    compare(&opened, expected).map_err(|what| format!("{when}: {what}"))?;
    Ok(())
}

/// Checks every crash that a moment can have, and some random ones; gives how many.
pub(super) fn check_moment(moment: &StopMoment, seed: u64) -> Result<u64, String> {
    let mut states = moment.image.states();
    states.extend((0..4).map(|number| CrashPolicy::Random(seed.wrapping_mul(31) + number)));
    let mut count = states.len() as u64;
    for (index, policy) in (seed..).zip(&states) {
        let named = |what| format!("{policy:?}: {what}");
        check(&moment.image.disk(*policy), &moment.expected).map_err(named)?;
        // Opening takes many calls: some of the states stand for all.
        if index % 32 == 0 {
            let disk = moment.image.disk(*policy);
            count += check_opening(&disk, &moment.expected, seed).map_err(named)?;
        }
    }
    Ok(count)
}

/// Runs a workload and checks every crash at every moment; gives how many crashes.
pub(super) fn check_workload(seed: u64, count: usize) -> Result<u64, String> {
    let mut states = 0;
    let named = |what: String| format!("seed {seed}, {count} steps: {what}");
    for (index, moment) in moments(&workload(seed, count)).map_err(named)?.iter().enumerate() {
        let checked = check_moment(moment, seed + index as u64);
        states += checked.map_err(|what| named(format!("moment {index}, {what}")))?;
    }
    Ok(states)
}

/// Puts a file into the log's directory, as if somebody had.
pub(super) fn put(disk: &SimulatedDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(&Path::new(DIRECTORY).join(name), OpenMode::Create).unwrap();
    file.write_at(0, bytes).unwrap();
}

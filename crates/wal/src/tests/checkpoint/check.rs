//! What `check` and the survey of a log list: all damage, and nothing that is whole.

use std::path::{Path, PathBuf};

use lockstep_host::{Threads, file::Disk};
use lockstep_sim::{CrashPolicy, Random, SimulatedDisk};

use super::{
    super::harness::{PlacedGroup, group, placed},
    harness::{DIRECTORY, ID, open, open_for, write},
};
use crate::{
    Access, CheckReport, CheckedPart, Durability, Error, Log, LogExpectation, LogSurvey, Options,
    check, check_with, survey_log,
};

fn segment(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("log/{number:020}.wal"))
}

fn data(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("data/{number:020}.data"))
}

/// A closed database of two data files and a log of several segments, and the groups of the log.
fn written() -> (SimulatedDisk, Vec<PlacedGroup>) {
    let disk = SimulatedDisk::new();
    let directory = open(&disk).unwrap();
    let options = Options { segment_bytes: 4_096, threads: Threads::None, ..Options::new(ID) };
    let (log, _) = directory.open_log(options, &mut |_| ()).unwrap();
    let mut groups = Vec::new();
    for number in 0..40_u8 {
        let record = |index: u8| (index, 1 + u32::from(index), vec![number | 128; 60]);
        let records: Vec<_> = (0..1 + number % 3).map(record).collect();
        let range = log.append(&group(&records), &mut |_| ()).unwrap();
        groups.push(PlacedGroup { first: range.start, records });
        if number % 9 == 5 {
            log.wait(range.end, Durability::Disk).unwrap();
        }
    }
    let blocks = |seed: u8| vec![vec![seed; 50], vec![seed + 1; 70], vec![seed + 2; 90]];
    let files = [10, 20].map(|seed| write(&directory, &blocks(seed)).unwrap()).to_vec();
    directory.commit(directory.manifest().successor(0, files, Vec::new())).unwrap();
    log.close().unwrap();
    drop(directory);
    (disk.image().disk(CrashPolicy::AllLost), groups)
}

fn checked(disk: &SimulatedDisk) -> CheckReport {
    check(disk, Path::new(DIRECTORY)).unwrap()
}

fn flip(disk: &SimulatedDisk, path: &Path, offset: usize) {
    let mut bytes = disk.bytes(path);
    bytes[offset] ^= 1;
    disk.replace(path, bytes);
}

#[test]
fn a_whole_database_has_no_damage() {
    let (disk, groups) = written();
    let report = checked(&disk);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.files, report.blocks, report.block_bytes), (2, 6, 420));
    let end = groups.last().unwrap().end();
    let log = &report.log;
    assert_eq!((log.first, log.end, log.groups, log.log_id), (Some(0), end, 40, Some(ID)));
    assert_eq!(log.cut, None);
}

#[test]
fn all_damage_is_listed() {
    let (disk, _) = written();
    flip(&disk, &data(1), 70);
    flip(&disk, &data(1), 48 + 12 + 50 + 20);
    disk.remove(&data(2)).unwrap();
    flip(&disk, &segment(2), 1_000);
    disk.remove(&segment(3)).unwrap();
    let report = checked(&disk);
    let place = |damage: &crate::Damage| {
        let file = damage.file.strip_prefix(DIRECTORY).unwrap().display().to_string();
        (file, damage.offset, damage.what.clone())
    };
    let expected = |file: &str, offset, what: &str| (file.to_owned(), offset, what.to_owned());
    let (first, second) = ("data/00000000000000000001.data", "data/00000000000000000002.data");
    let payload = "the payload of a block is invalid";
    assert_eq!(
        report.damages.iter().map(place).collect::<Vec<_>>(),
        [
            expected(first, 48, payload),
            expected(first, 110, payload),
            expected(second, 0, "the file is missing"),
        ]
    );
    let files: Vec<_> = report.log.damages.iter().map(|damage| place(damage).0).collect();
    assert_eq!(files, ["log/00000000000000000002.wal", "log/00000000000000000003.wal"]);
    assert_eq!((report.blocks, report.files, report.is_whole()), (1, 0, false));
}

/// Gives the payloads that can be read of the first data file, by length.
fn readable_blocks(disk: &SimulatedDisk) -> Vec<usize> {
    let mut lengths = Vec::new();
    let report = check_with(disk, Path::new(DIRECTORY), &mut |part| {
        if let CheckedPart::Block { file, payload, .. } = part
            && file.number == 1
        {
            lengths.push(payload.len());
        }
    });
    assert!(lengths == [50, 70, 90] || !report.unwrap().damages.is_empty(), "{lengths:?}");
    lengths
}

#[test]
fn blocks_behind_a_damage_are_read() {
    const HEADERS: [usize; 4] = [48, 48 + 62, 48 + 62 + 82, 48 + 62 + 82 + 102];
    let (disk, _) = written();
    assert_eq!(readable_blocks(&disk), [50, 70, 90]);
    let whole = disk.bytes(&data(1));
    for offset in 0..whole.len() {
        flip(&disk, &data(1), offset);
        let lost = HEADERS.iter().rposition(|begin| *begin <= offset);
        let mut left = vec![50, 70, 90];
        lost.map(|lost| left.remove(lost));
        assert_eq!(readable_blocks(&disk), left, "byte {offset}");
        disk.replace(&data(1), whole.clone());
    }
    for length in 0..whole.len() {
        disk.replace(&data(1), whole[..length].to_vec());
        let left = HEADERS[1..].iter().filter(|end| **end <= length).count();
        assert_eq!(readable_blocks(&disk), [50, 70, 90][..left], "cut at {length}");
    }
}

#[test]
fn without_a_manifest_the_log_is_still_checked() {
    let (disk, _) = written();
    let manifest = Path::new(DIRECTORY).join("MANIFEST");
    flip(&disk, &manifest, 100);
    let report = checked(&disk);
    assert_eq!((report.damages.len(), report.log.groups), (1, 40));
    assert_eq!(report.damages[0].file, manifest);
    disk.remove(&manifest).unwrap();
    assert_eq!(checked(&disk).damages.len(), 1);
}

#[test]
fn where_there_is_no_database_or_it_is_written_nothing_is_checked() {
    let empty = SimulatedDisk::new();
    let error = check(&empty, Path::new(DIRECTORY)).unwrap_err();
    assert!(matches!(error, Error::NoDatabase { .. }), "{error}");
    let (disk, _) = written();
    let writer = open(&disk).unwrap();
    let error = check(&disk, Path::new(DIRECTORY)).unwrap_err();
    assert!(matches!(error, Error::InUse { is_read: false, .. }), "{error}");
    drop(writer);
    let _reader = open_for(&disk, Access::ReadOnly).unwrap();
    assert!(checked(&disk).is_whole());
}

/// Reads all that can be read of a log; gives what was found, and the groups.
fn surveyed(disk: &SimulatedDisk) -> (LogSurvey, Vec<PlacedGroup>) {
    let mut groups = Vec::new();
    let visit = &mut |entries: crate::Entries<'_>| groups.push(placed(entries));
    let expected = LogExpectation { log_id: Some(ID), needed: 0 };
    let log = Path::new(DIRECTORY).join("log");
    (survey_log(disk, &log, expected, visit).unwrap(), groups)
}

/// Where the log may end, as far as a test knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogEnd {
    /// Behind its last group: something that knows of it is left.
    Known,
    /// Anywhere: what is left may look like a torn tail.
    Torn,
}

/// Checks that each group is found as it was appended, or lies in what is listed as in danger.
fn check_survey(
    disk: &SimulatedDisk,
    groups: &[PlacedGroup],
    ending: LogEnd,
) -> Result<LogSurvey, String> {
    let (survey, found) = surveyed(disk);
    let end = if ending == LogEnd::Torn { survey.end } else { u64::MAX };
    for group in &found {
        if !groups.contains(group) {
            return Err(format!("a group that nobody appended: {group:?}"));
        }
    }
    for group in groups.iter().filter(|group| group.first < end && !found.contains(group)) {
        let is_listed = |damage: &crate::Damage| {
            damage.positions.start <= group.first && group.end() <= damage.positions.end
        };
        if !survey.damages.iter().any(is_listed) {
            return Err(format!("{} is lost and not listed: {survey:?}", group.first));
        }
    }
    Ok(survey)
}

#[test]
fn a_flipped_byte_of_the_log_costs_at_most_two_groups() {
    let (disk, groups) = written();
    let mut lost = [0; 3];
    for number in 1..=3 {
        let bytes = disk.bytes(&segment(number));
        // The header of a segment is needed for all of it.
        for offset in (64..bytes.len()).filter(|offset| bytes[*offset] != 0) {
            flip(&disk, &segment(number), offset);
            let survey = check_survey(&disk, &groups, LogEnd::Known);
            let survey = survey.unwrap_or_else(|what| panic!("{number}, {offset}: {what}"));
            let missing = usize::try_from(40 - survey.groups).unwrap();
            assert!(missing <= 2, "{number}, {offset}: {survey:?}");
            lost[missing] += 1;
            disk.replace(&segment(number), bytes.clone());
        }
    }
    println!("flipped bytes that cost 0, 1 and 2 groups: {lost:?}");
    assert!(lost.iter().all(|count| *count > 0));
}

#[test]
fn whatever_is_lost_of_a_log_is_listed() {
    let (disk, groups) = written();
    let originals: Vec<_> = (1..=3).map(|number| disk.bytes(&segment(number))).collect();
    for seed in 0..600 {
        let mut random = Random::new(seed);
        for _ in 0..1 + random.index(3) {
            let number = 1 + random.index(3);
            let path = segment(number as u64);
            let mut bytes = originals[number - 1].clone();
            let from = random.index(bytes.len());
            let length = 1 + random.index(2_000).min(bytes.len() - from - 1);
            let drawn = random.bytes(length);
            match random.below(3) {
                0 => bytes.truncate(from),
                1 => bytes[from..from + length].fill(0),
                _ => bytes[from..from + length].copy_from_slice(&drawn),
            }
            disk.replace(&path, bytes);
        }
        let survey = check_survey(&disk, &groups, LogEnd::Torn);
        survey.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        for (number, bytes) in (1..).zip(&originals) {
            disk.replace(&segment(number), bytes.clone());
        }
    }
}

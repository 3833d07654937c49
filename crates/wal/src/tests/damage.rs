//! Damaged bytes: the end of the log zeroed, cut or overwritten, headers flipped, files exchanged.

use std::path::{Path, PathBuf};

use lockstep_host::file::Disk;
use lockstep_sim::{CrashPolicy, Random, SimulatedDisk};

use super::harness::{DIRECTORY, LOG_ID, OpenedLog, PlacedGroup, disk, group, open, options, put};
use crate::{Durability, Error, Log, LogExpectation, Options, recovery::SHORT, survey_log};

/// How much of the end of the log is damaged, in bytes.
const END_BYTES: usize = 64 << 10;

pub(super) fn segment(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{number:020}.wal"))
}

/// A log of one segment, its groups, and where each of them ends in the file.
struct WrittenLog {
    disk: SimulatedDisk,
    groups: Vec<PlacedGroup>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

/// Returns the disk after a crash that loses nothing.
fn crashed(disk: &SimulatedDisk) -> SimulatedDisk {
    disk.image().disk(CrashPolicy::AllKept)
}

fn long_options() -> Options {
    Options { segment_bytes: 80 << 10, ..options() }
}

/// Appends 70 KiB in groups, none of which is known to be on the disk.
fn written() -> WrittenLog {
    let disk = disk();
    let log = open(&disk, long_options()).unwrap().log;
    let mut random = Random::new(7);
    let (mut groups, mut ends, mut offset) = (Vec::new(), Vec::new(), 104);
    while offset < 70 << 10 {
        let draw = |_| {
            let length = 1 + random.index(300);
            let payload = random.bytes(length).into_iter().map(|byte| byte | 1).collect::<Vec<_>>();
            (3, 1, payload)
        };
        let records: Vec<_> = (0..1 + groups.len() % 3).map(draw).collect();
        let first = log.append(&group(&records), &mut |_| ()).unwrap().start;
        for (_, _, payload) in &records {
            ends.push(offset + 40 + payload.len());
            offset = (offset + 40 + payload.len()).next_multiple_of(8);
        }
        ends.drain(groups.len()..ends.len() - 1);
        groups.push(PlacedGroup { first, records });
    }
    drop(log);
    let disk = crashed(&disk);
    let bytes = disk.bytes(&segment(1));
    WrittenLog { disk, groups, ends, bytes }
}

/// Damages the end of the log from an offset on, in two ways, and opens it; then cuts the file there.
fn check_end(written: &WrittenLog, offset: usize) -> Result<(), String> {
    let used = *written.ends.last().unwrap();
    let whole = written.ends.partition_point(|end| *end <= offset);
    let mut zeroed = written.bytes.clone();
    zeroed[offset..used].fill(0);
    let mut noise = written.bytes.clone();
    let drawn = Random::new(offset as u64).bytes(used - offset);
    for (byte, drawn) in noise[offset..used].iter_mut().zip(drawn) {
        // Any other byte.
        *byte = byte.wrapping_add(drawn.max(1));
    }
    for (how, bytes) in [("zeroed", zeroed), ("noise", noise)] {
        written.disk.replace(&segment(1), bytes);
        let opened = open(&written.disk, long_options());
        let opened = opened.map_err(|error| format!("{how} at {offset}: {error}"))?;
        if opened.groups != written.groups[..whole] {
            let found = opened.groups.len();
            return Err(format!("{how} at {offset}: {found} groups and not {whole}"));
        }
    }
    // The whole length of a segment was on the disk before its first record.
    written.disk.replace(&segment(1), written.bytes[..offset].to_vec());
    match open(&written.disk, long_options()) {
        Err(Error::Damaged { what: SHORT, offset: at, .. }) if at == offset as u64 => Ok(()),
        other => Err(format!("cut at {offset}: {other:?}")),
    }
}

/// Tries every `step`th offset of the end; gives how many logs were opened.
pub(super) fn check_ends(step: usize) -> Result<usize, String> {
    let written = written();
    let used = *written.ends.last().unwrap();
    let offsets = (used - END_BYTES..used).step_by(step);
    let tried = offsets.len() * 3;
    for offset in offsets {
        check_end(&written, offset)?;
    }
    Ok(tried)
}

#[test]
fn a_damaged_end_is_cut_where_it_begins() {
    println!("ends: {}", check_ends(61).unwrap());
}

#[test]
#[ignore = "takes minutes; part of the nightly run"]
fn a_damaged_end_is_cut_where_it_begins_at_any_offset() {
    assert_eq!(check_ends(1), Ok(3 * END_BYTES));
}

/// A log over several segments that was closed, or was not.
fn closed(is_closed: bool) -> (SimulatedDisk, Vec<PlacedGroup>) {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    let mut groups = Vec::new();
    for number in 0..30_u8 {
        let records = vec![(number % 5, 1, vec![number | 128; 100]), (1, 2, vec![7; 100])];
        let range = log.append(&group(&records), &mut |_| ()).unwrap();
        groups.push(PlacedGroup { first: range.start, records });
        if number % 7 == 3 {
            log.wait(range.end, Durability::Disk).unwrap();
        }
    }
    if is_closed {
        log.close().unwrap();
    }
    (crashed(&disk), groups)
}

/// Flips a byte at every offset that `choose` takes; each must be an error, or leave a log that has a
/// prefix of the groups with at least `known` positions. Gives how many were refused and accepted.
fn flip_bytes(
    (disk, groups): &(SimulatedDisk, Vec<PlacedGroup>),
    known: u64,
    choose: impl Fn(usize) -> bool,
) -> Result<(u64, u64), String> {
    let (mut refused, mut accepted) = (0, 0);
    let image = disk.image();
    for number in 1..=3 {
        let bytes = disk.bytes(&segment(number));
        for offset in (0..bytes.len()).filter(|offset| choose(*offset) && bytes[*offset] != 0) {
            let damaged = image.disk(CrashPolicy::AllLost);
            let mut bytes = bytes.clone();
            bytes[offset] ^= 1 << (offset % 8);
            damaged.replace(&segment(number), bytes);
            match open(&damaged, options()) {
                Err(Error::Damaged { .. }) => refused += 1,
                Err(error) => return Err(format!("segment {number}, {offset}: {error}")),
                Ok(OpenedLog { recovered, groups: found, .. }) => {
                    accepted += 1;
                    if recovered.end < known || found != groups[..found.len()] {
                        let end = recovered.end;
                        return Err(format!("segment {number}, byte {offset}: end {end}"));
                    }
                }
            }
        }
    }
    Ok((refused, accepted))
}

pub(super) fn check_flips() -> Result<(u64, u64), String> {
    let closed = closed(true);
    let end = closed.1.last().unwrap().end();
    flip_bytes(&closed, end, |_| true)
}

#[test]
fn a_flipped_byte_of_a_closed_log_is_an_error_or_changes_nothing() {
    let (refused, accepted) = check_flips().unwrap();
    println!("flipped bytes: {refused} refused, {accepted} without effect");
    // The last mark's own bytes, which tell that nothing may be missing.
    assert!(refused > 6_000 && accepted < 40, "{refused} {accepted}");
}

#[test]
fn a_flipped_byte_before_what_is_known_to_be_on_the_disk_is_an_error() {
    // The last record that knows of one was written after group 24 was synced.
    let open = closed(false);
    let known = open.1[24].end();
    let (refused, accepted) = flip_bytes(&open, known, |offset| offset % 3 == 0).unwrap();
    assert!(refused > 0 && accepted > 0);
}

#[test]
fn a_missing_foreign_or_newer_segment_is_an_error() {
    let (disk, _) = closed(true);
    let image = disk.image();
    let first = disk.bytes(&segment(1));
    let opened = |change: &dyn Fn(&SimulatedDisk)| {
        let disk = image.disk(CrashPolicy::AllLost);
        change(&disk);
        open(&disk, options()).map(|opened| opened.recovered).unwrap_err().to_string()
    };
    for number in 1..=3 {
        let error = opened(&|disk| disk.remove(&segment(number)).unwrap());
        assert!(error.contains("is damaged"), "{number}: {error}");
    }
    let error = opened(&|disk| disk.replace(&segment(2), first.clone()));
    assert!(error.contains("number of another segment"), "{error}");
    let mut newer = first;
    newer[8] = 2;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&newer[..12]), &newer[16..64]);
    newer[12..16].copy_from_slice(&checksum.to_le_bytes());
    let error = opened(&|disk| disk.replace(&segment(1), newer.clone()));
    assert!(
        error.ends_with("has format version 2, but this program supports versions up to 1"),
        "{error}"
    );
    let foreign = crate::segment::header([9; 16], 2, 4_096).encode();
    let error = opened(&|disk| disk.replace(&segment(2), foreign.to_vec()));
    assert!(error.ends_with("belongs to another log"), "{error}");
}

#[test]
fn a_log_that_does_not_reach_what_is_needed_is_an_error() {
    let (disk, groups) = closed(true);
    let end = groups.last().unwrap().end();
    let needing =
        |needed| open(&disk.image().disk(CrashPolicy::AllLost), Options { needed, ..options() });
    assert_eq!(needing(end).unwrap().groups, []);
    assert_eq!(needing(end - 1).unwrap().groups.len(), 1);
    assert!(matches!(needing(end + 1), Err(Error::Damaged { .. })));
    let empty = super::harness::disk();
    assert!(matches!(open(&empty, Options { needed: 1, ..options() }), Err(Error::Damaged { .. })));
}

#[test]
fn files_that_are_not_the_logs_are_left_and_unfinished_ones_removed() {
    let disk = disk();
    put(&disk, "notes.txt", b"mine");
    put(&disk, "00000000000000000001.wal.new", b"half");
    let opened = open(&disk, options()).unwrap();
    assert_eq!((opened.recovered.end, opened.recovered.log_id), (0, LOG_ID));
    let names = disk.list(Path::new(DIRECTORY)).unwrap();
    assert_eq!(names, ["00000000000000000001.wal", "notes.txt"]);
}

/// A log of one segment that was closed, reopened and closed again; and the bytes of its segment.
fn closed_twice() -> (SimulatedDisk, Vec<u8>) {
    let disk = disk();
    for number in 0..2_u8 {
        let log = open(&disk, options()).unwrap().log;
        log.append(&group(&[(1, 1, vec![number | 128; 10])]), &mut |_| ()).unwrap();
        log.close().unwrap();
    }
    let disk = crashed(&disk);
    let bytes = disk.bytes(&segment(1));
    (disk, bytes)
}

#[test]
fn a_log_that_ends_before_its_last_clean_close_is_damaged() {
    let (disk, bytes) = closed_twice();
    // Records of 56 bytes, and marks of 40: the second group ends at 256.
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut refused = 0;
    for offset in (64..used).step_by(8) {
        let mut zeroed = bytes.clone();
        zeroed[offset..].fill(0);
        let damaged = crashed(&disk);
        damaged.replace(&segment(1), zeroed);
        let survey =
            survey_log(&damaged, Path::new(DIRECTORY), LogExpectation::default(), &mut |_| ());
        let survey = survey.unwrap();
        match open(&damaged, options()) {
            Ok(opened) => {
                assert_eq!(opened.recovered.end, 2, "zeroed from {offset}");
                assert_eq!(survey.damages, []);
            }
            Err(Error::Damaged { to, .. }) => {
                refused += 1;
                assert_eq!(to, 2, "zeroed from {offset}");
                assert_eq!(survey.damages.last().unwrap().positions.end, 2, "from {offset}");
            }
            Err(error) => panic!("zeroed from {offset}: {error}"),
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn the_message_names_what_is_missing() {
    let (disk, bytes) = closed_twice();
    let mut zeroed = bytes.clone();
    // Behind the first group and its mark.
    zeroed[200..].fill(0);
    let damaged = crashed(&disk);
    damaged.replace(&segment(1), zeroed);
    let error = open(&damaged, options()).unwrap_err().to_string();
    assert!(
        error.contains("the log ends before the position at which it was last closed"),
        "{error}"
    );
    assert!(error.ends_with("positions 1 to 2 are at risk"), "{error}");
    damaged.replace(&segment(1), bytes[..200].to_vec());
    let error = open(&damaged, options()).unwrap_err().to_string();
    assert!(error.ends_with("positions 1 to 2 are at risk"), "{error}");
    // Without the mark, as a version had it that wrote none, the length says so.
    damaged.remove(&Path::new(DIRECTORY).join("CLOSED")).unwrap();
    let error = open(&damaged, options()).unwrap_err().to_string();
    assert!(
        error.contains("at byte 200: the file is shorter than its header specifies"),
        "{error}"
    );
    assert!(error.ends_with("positions 1 and later are at risk"), "{error}");
}

#[test]
fn a_log_without_a_mark_opens_and_a_damaged_mark_is_an_error() {
    let (disk, _) = closed_twice();
    let mark = Path::new(DIRECTORY).join("CLOSED");
    let whole = disk.bytes(&mark);
    for at in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        disk.replace(&mark, bytes);
        let error = open(&disk, options()).unwrap_err().to_string();
        assert!(error.contains("the mark of the last clean close is invalid"), "{error}");
        let survey =
            survey_log(&disk, Path::new(DIRECTORY), LogExpectation::default(), &mut |_| ());
        assert_eq!(survey.unwrap().damages.len(), 1);
    }
    disk.replace(&mark, whole);
    let elsewhere = crashed(&disk);
    elsewhere.remove(&segment(1)).unwrap();
    assert!(matches!(open(&elsewhere, options()), Err(Error::Damaged { to: 2, .. })));
    disk.remove(&mark).unwrap();
    assert_eq!(open(&disk, options()).unwrap().recovered.end, 2);
}

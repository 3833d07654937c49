//! What a log does when nothing goes wrong.

use super::harness::{disk, group, open, options, placed};
use crate::{Durability, Error, Group, Log, Options};

#[test]
fn groups_come_back_in_order_at_their_positions() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    let records = [(1, 2, b"two rows".to_vec()), (2, 1, Vec::new())];
    let mut turns = Vec::new();
    for _ in 0..3 {
        log.append(&group(&records), &mut |first| turns.push(first)).unwrap();
    }
    assert_eq!((turns, log.end(), log.durable_end()), (vec![0, 3, 6], 9, 0));
    log.wait(9, Durability::Os).unwrap();
    assert_eq!(log.durable_end(), 0);
    log.wait(9, Durability::Disk).unwrap();
    assert_eq!(log.durable_end(), 9);
    let mut reader = log.read(4).unwrap();
    let mut found = Vec::new();
    while let Some(entries) = reader.next_group().unwrap() {
        found.push(placed(entries).first);
    }
    assert_eq!(found, [3, 6]);
    log.close().unwrap();
    let opened = open(&disk, options()).unwrap();
    assert_eq!(opened.recovered.cut, None);
    assert_eq!((opened.recovered.first, opened.recovered.end), (0, 9));
    assert_eq!((opened.recovered.groups, opened.recovered.records), (3, 6));
    assert_eq!(opened.groups[2].records, records);
}

#[test]
fn a_group_larger_than_a_segment_gets_one_of_its_own() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    for length in [10, 100_000, 10, 5_000] {
        log.append(&Group::of(1, 1, &vec![3; length]), &mut |_| ()).unwrap();
    }
    drop(log);
    let opened = open(&disk, options()).unwrap();
    let lengths = opened.groups.iter().map(|group| group.records[0].2.len());
    assert_eq!(lengths.collect::<Vec<_>>(), [10, 100_000, 10, 5_000]);
}

#[test]
fn a_group_that_is_too_large_is_refused() {
    // A gibibyte that is one page: the refusal comes before any byte is looked at again.
    let log = open(&disk(), options()).unwrap().log;
    let part = vec![0; 64 << 20];
    let mut group = Group::new();
    for _ in 0..17 {
        group.push(1, 1, &part);
    }
    let refused = log.append(&group, &mut |_| ()).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    assert_eq!(log.end(), 0);
}

#[test]
fn what_was_truncated_cannot_be_read_and_the_rest_can() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    for _ in 0..20 {
        log.append(&Group::of(1, 1, &[7; 1_000]), &mut |_| ()).unwrap();
    }
    let mut before = log.read(0).unwrap();
    log.truncate(10).unwrap();
    assert!(matches!(log.read(0), Err(Error::NotHere { position: 0, first: 9, end: 20 })));
    assert!(matches!(log.read(21), Err(Error::NotHere { .. })));
    let mut count = 0;
    while before.next_group().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 20, "a reader goes on");
    drop(log);
    let opened = open(&disk, Options { needed: 10, ..options() }).unwrap();
    assert_eq!((opened.recovered.first, opened.groups.len()), (9, 10));
    assert!(open(&disk, Options { needed: 8, ..options() }).is_err());
}

#[test]
fn a_panic_in_its_turn_leaves_nothing_of_a_group() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    let append = || log.append(&Group::of(1, 1, b"lost"), &mut |_| panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(append)).is_err());
    assert_eq!(log.append(&Group::of(1, 1, b"kept"), &mut |_| ()).unwrap(), 0..1);
    drop(log);
    assert_eq!(open(&disk, options()).unwrap().groups.len(), 1);
}

#[test]
fn short_reads_change_nothing() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    for _ in 0..20 {
        log.append(&Group::of(1, 1, &[7; 1_000]), &mut |_| ()).unwrap();
    }
    drop(log);
    disk.shorten_reads(5);
    assert_eq!(open(&disk, options()).unwrap().groups.len(), 20);
}

#[test]
fn groups_longer_than_a_block_are_read_whole() {
    let disk = disk();
    let log = open(&disk, options()).unwrap().log;
    let mut sizes = Vec::new();
    for (count, length) in [(1, 10), (40, 100_000), (3, 5), (9_000, 300), (1, 3 << 20)] {
        let payload = vec![7; length];
        let mut group = Group::new();
        (0..count).for_each(|_| group.push(1, 1, &payload));
        sizes.push((group.rows(), length));
        log.append(&group, &mut |_| ()).unwrap();
    }
    log.close().unwrap();
    let opened = open(&disk, options()).unwrap();
    let size =
        |group: &super::harness::PlacedGroup| (group.end() - group.first, group.records[0].2.len());
    assert_eq!(opened.groups.iter().map(size).collect::<Vec<_>>(), sizes);
}

//! A page shows what a series with the same rows shows, and bytes that are no page are refused.

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    Insert, Keeps, SeriesFixture, batch, filled, inserts, model, retention, runs, widths,
    write_record,
};
use crate::{
    Bounds, Page, PageWriter, RECORD_SIZE_MAX, RecordFormat, RowBatch, SeriesRows,
    page::PAGE_HEADER_BYTES, pin,
};

/// Writes all rows of a series of the keys 0 to 3 into one page.
fn written(fixture: &SeriesFixture) -> Vec<u8> {
    let mut writer = PageWriter::default();
    let guard = pin();
    for key in 0..4_u8 {
        let rows = fixture.series.seek(&[key], Bounds::everything(), &guard);
        writer.begin_key(&[key]);
        rows.into_iter().flatten().for_each(|found| writer.push(found.event_time, found.row));
    }
    let (_, bytes) = writer.byte_counts();
    if bytes == 0 {
        return Vec::new();
    }
    let page = writer.finish();
    assert_eq!((page.len(), writer.byte_counts()), (bytes, (0, 0)));
    page
}

/// The rows of the tests have eight bytes.
fn is_row(bytes: &[u8]) -> bool {
    bytes.len() == 8
}

fn format(size: usize) -> Option<Arc<RecordFormat>> {
    (size > 0).then(|| Arc::new(RecordFormat::new(widths(size), write_record)))
}

fn check(inserts: &[Insert], visible: u64, keeps: Keeps, event_time_max: i64) {
    let bytes = written(&filled(inserts));
    if bytes.is_empty() {
        return;
    }
    let format = format([0, 17, RECORD_SIZE_MAX][inserts.len() % 3]);
    let page = Page::read(bytes.clone(), format.as_ref(), is_row).unwrap();
    assert!(page.memory_bytes() >= bytes.len());
    let bounds = Bounds::new(visible, keeps.retention, keeps.now_ms);
    let mut keys = 0;
    for key in 0..4 {
        let Some(mut rows) = page.rows(&[key], bounds) else {
            assert!(inserts.iter().all(|insert| insert.0 != key));
            continue;
        };
        keys += 1;
        let mut expected = model(inserts, key, visible, keeps);
        assert_eq!(runs::shown(rows.clone()), expected);
        rows.seek(event_time_max);
        expected.retain(|(event_time, _)| *event_time <= event_time_max);
        assert_eq!(runs::shown(rows), expected);
    }
    assert!(page.rows(&[4], bounds).is_none());
    let all: Vec<_> = page.keys(Bounds::everything()).collect();
    assert_eq!(all.len(), keys);
    assert!(all.is_sorted_by(|one, next| one.0 < next.0));
    let rows: usize = all.into_iter().map(|(_, rows)| rows.count()).sum();
    assert_eq!(rows, inserts.len());
}

/// Reads every byte of the rows and of their records; returns how many rows there are.
fn read_all(mut rows: SeriesRows<'_>) -> usize {
    let (mut count, mut record) = (0, [0; 17]);
    while let Some(run) = rows.next_run() {
        for at in 0..run.len() {
            assert!(is_row(run.row(at).bytes()));
            let records = run.records().inspect(|records| records.copy_to(at, &mut record));
            assert!(records.is_none_or(|_| run.row(at).bytes()[..] == record[..8]));
        }
        count += run.len();
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn a_page_shows_what_a_series_shows(
        inserts in inserts(),
        visible in 0_u64..300,
        (retention, now_ms) in (retention(), -5_i64..60),
        event_time_max in -5_i64..60,
    ) {
        check(&inserts, visible, Keeps { retention, now_ms }, event_time_max);
    }

    /// What a checksum would have found is refused, or is another page that can be read.
    #[test]
    fn damaged_bytes_are_never_read_beyond(
        inserts in inserts(),
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = written(&filled(&inserts));
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let format = format(17);
        if let Some(page) = Page::read(bytes, format.as_ref(), is_row) {
            let rows = page.keys(Bounds::everything()).map(|(_, rows)| read_all(rows));
            assert!(rows.sum::<usize>() > 0);
        }
    }
}

#[test]
fn a_page_has_long_rows_and_far_times() {
    let mut long = RowBatch::default();
    for size in [0_usize, 65_534, 65_535, 70_000] {
        let pushed: Result<(), ()> = long.push(|out| {
            out.resize(out.len() + size, 7);
            Ok(())
        });
        pushed.unwrap();
    }
    let mut writer = PageWriter::default();
    writer.begin_key(b"");
    long.rows().take(1).for_each(|row| writer.push(i64::MIN, row));
    writer.begin_key(b"long");
    for (row, event_time) in long.rows().zip([i64::MAX, 0, -1, i64::MIN]) {
        writer.push(event_time, row);
    }
    // The second key goes on in the next page.
    let (ended, all) = writer.byte_counts();
    let pages = [writer.finish_ended(), writer.finish()];
    assert_eq!((pages[0].len(), pages.concat().len()), (ended, all + PAGE_HEADER_BYTES));
    let [first, second] = pages.map(|page| Page::read(page, None, |_| true).unwrap());
    let rows = second.rows(b"long", Bounds::everything()).unwrap();
    let found: Vec<_> = rows.map(|found| (found.event_time, found.row.bytes().len())).collect();
    assert_eq!(found, [(i64::MAX, 0), (0, 65_534), (-1, 65_535), (i64::MIN, 70_000)]);
    assert_eq!(first.rows(b"", Bounds::everything()).unwrap().count(), 1);
    assert!(first.rows(b"long", Bounds::everything()).is_none());
}

#[test]
fn rows_in_disorder_are_no_page() {
    let rows = [batch(0), batch(1)];
    let row = |at: usize| rows[at].rows().next().unwrap();
    let page = |write: &dyn Fn(&mut PageWriter)| {
        let mut writer = PageWriter::default();
        write(&mut writer);
        Page::read(writer.finish(), None, |_| true).is_some()
    };
    let two_keys = |first: &'static [u8], second: &'static [u8]| {
        move |writer: &mut PageWriter| {
            for key in [first, second] {
                writer.begin_key(key);
                writer.push(1, row(0));
            }
        }
    };
    assert!(page(&two_keys(b"a", b"b")));
    assert!(!page(&two_keys(b"b", b"a")) && !page(&two_keys(b"a", b"a")));
    assert!(!page(&|writer| {
        writer.begin_key(b"a");
        writer.push(1, row(0));
        writer.push(2, row(1));
    }));
    assert!(
        Page::read(vec![0; 4], None, |_| true)
            .is_some_and(|page| page.keys(Bounds::everything()).count() == 0)
    );
    assert!(
        Page::read(vec![0; 5], None, |_| true).is_none()
            && Page::read(Vec::new(), None, |_| true).is_none()
    );
}

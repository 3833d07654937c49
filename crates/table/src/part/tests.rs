//! Runs and memory together show what a sorted list of their rows shows, whatever is where; and what is
//! damaged is an error.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use lockstep_row::{Column, DataType, Datum, Retention, RowCodec, TableSchema};
use lockstep_series::{Bounds, HashedKey, KeyRow, RecordFormat, RowBatch, RowLog, Series, pin};
use lockstep_sim::SimulatedDisk;
use lockstep_wal::{Access, DatabaseDirectory};
use proptest::{collection::vec, prelude::*};

use super::{
    IndexRun, MergeError, MergeRule, MergedRows, PageCache, PageSource, Pins, RunWriter,
    bug::{self, PartBug},
    merge,
};
use crate::{Horizon, ReadFailure, tests::retention};

/// A row of the tests: its key and its event time; its place in the list is its arrival.
type Row = (u8, i64);

/// Rows `(event time, arrival)` of a key, newest first.
type Shown = Vec<(i64, u64)>;

fn codec() -> RowCodec {
    let columns = vec![Column::new("v", DataType::BigInt), Column::new("s", DataType::String)];
    RowCodec::new(&TableSchema { columns, indexes: Vec::new() })
}

/// The records of the tests: the first column.
fn format(codec: &RowCodec) -> Arc<RecordFormat> {
    let width = 9;
    let codec = codec.clone();
    Arc::new(RecordFormat::new([1, 8], move |row, record| {
        let value = codec.view(row).get(0).as_i64().unwrap();
        assert_eq!(record.len(), width);
        record[1..].copy_from_slice(&value.to_le_bytes());
    }))
}

/// Rows in memory.
struct Memory {
    // Dropped first: it leads to the rows.
    series: Series,
    _log: RowLog,
}

impl Memory {
    /// Stores those of the rows whose arrivals are in a range.
    fn of(rows: &[Row], arrivals: std::ops::Range<usize>, format: &Arc<RecordFormat>) -> Self {
        let codec = codec();
        let (series, log) = (Series::with_records(Arc::clone(format)), RowLog::new());
        let guard = pin();
        for arrival in arrivals {
            let (key, event_time) = rows[arrival];
            let mut batch = RowBatch::default();
            let number = i64::try_from(arrival).unwrap();
            let text = "x".repeat(arrival % 40);
            let values = [Datum::BigInt(number), Datum::String(text.as_str())];
            batch.push(|out| codec.encode(&values, out)).unwrap();
            let arrival = u64::try_from(arrival).unwrap();
            let (position, _) = log.append(&batch, arrival, 0);
            let row = log.rows_from(position, &guard).next().unwrap().row;
            let hashed = HashedKey { hash: series.hash(&[key]), key: &[key] };
            // SAFETY: the log keeps its rows until it is dropped, after the series.
            unsafe { series.insert(hashed, KeyRow { event_time, row }, &guard) };
        }
        Self { series, _log: log }
    }

    /// Writes the rows into a run.
    fn write(&self, directory: &DatabaseDirectory, page_bytes: usize) -> IndexRun {
        let keys = self.series.sorted_keys();
        let file = directory.create_data_file().unwrap();
        let mut writer = RunWriter::new(file, keys.len() as u64).with_page_bytes(page_bytes);
        let guard = pin();
        for key in keys.iter() {
            writer.begin_key(key);
            for found in self.series.seek(key, Bounds::everything(), &guard).into_iter().flatten() {
                writer.push(found.event_time, found.row).unwrap();
            }
        }
        let written = writer.finish().unwrap();
        let file = directory.open_blocks(written.file()).unwrap();
        let reopened = IndexRun::open(file, written.last_block()).unwrap();
        assert_eq!(reopened.counts(), written.counts());
        assert_eq!(written.counts().keys, keys.len() as u64);
        written
    }
}

fn directory() -> (SimulatedDisk, DatabaseDirectory) {
    let disk = SimulatedDisk::new();
    let access = Access::ReadWrite { new_id: *b"a database of ok" };
    let directory = DatabaseDirectory::open(Arc::new(disk.clone()), Path::new("/parts"), access);
    (disk, directory.unwrap())
}

/// What a reader sees.
#[derive(Debug, Clone, Copy)]
struct Reader {
    visible: u64,
    retention: Retention,
    now_ms: i64,
}

impl Reader {
    fn bounds(&self) -> Bounds {
        Bounds::new(self.visible, self.retention, self.now_ms)
    }

    /// The rows of a key that it sees in a list of rows.
    fn model(&self, rows: &[Row], key: u8) -> Shown {
        let of_key =
            (0..).zip(rows).filter(|(arrival, row)| row.0 == key && *arrival < self.visible);
        let mut of_key: Shown = of_key.map(|(arrival, row)| (row.1, arrival)).collect();
        of_key.sort_unstable_by(|one, other| other.cmp(one));
        let is_kept =
            |(n, row): &(u64, (i64, u64))| !self.retention.is_expired(row.0, *n, self.now_ms);
        (1..).zip(of_key).filter(is_kept).map(|(_, row)| row).collect()
    }
}

/// A step of a reader.
#[derive(Debug, Clone, Copy)]
enum Step {
    Row,
    Run,
    Seek(i64),
    SeekBefore(i64, u64),
}

/// Takes steps, then reads what is left; the rows must be those of the model.
fn check_steps<'s>(
    mut rows: MergedRows<'s>,
    pages: &PageSource<'s>,
    mut expected: Shown,
    steps: &[Step],
) {
    let mut found = Shown::new();
    let mut read: Shown = Vec::new();
    let mut take = |run: lockstep_series::ChunkRun<'_>| {
        for at in 0..run.len() {
            let row = (run.event_time(at), run.row(at).arrival());
            if let Some(records) = run.records() {
                let mut record = [0; 9];
                records.copy_to(at, &mut record);
                assert_eq!(record[1..], row.1.to_le_bytes());
            }
            found.push(row);
        }
        run.len()
    };
    for step in steps {
        let taken = match *step {
            Step::Row => {
                let run = rows.next_run(pages).unwrap();
                if let Some(run) = &run {
                    rows.put_back(run.slice(1..run.len()));
                }
                run.map_or(0, |run| take(run.slice(0..1)))
            }
            Step::Run => rows.next_run(pages).unwrap().map_or(0, &mut take),
            Step::Seek(event_time_max) => {
                rows.seek(event_time_max);
                expected.retain(|row| row.0 <= event_time_max);
                0
            }
            Step::SeekBefore(event_time, arrival) => {
                rows.seek_before(event_time, arrival);
                expected.retain(|row| *row < (event_time, arrival));
                0
            }
        };
        read.extend(expected.drain(..taken.min(expected.len())));
    }
    while let Some(run) = rows.next_run(pages).unwrap() {
        let taken = take(run);
        read.extend(expected.drain(..taken.min(expected.len())));
    }
    assert_eq!(found, read);
    assert_eq!(expected, []);
}

/// Where rows are, and how they are read.
#[derive(Debug, Clone)]
struct Case {
    rows: Vec<Row>,
    /// Where the runs end, of which the last rows are in memory, twice.
    cuts: Vec<prop::sample::Index>,
    page_bytes: usize,
    /// The runs that are merged, if any, and how much older than the reader the horizon is.
    merged: Option<(prop::sample::Index, prop::sample::Index)>,
    older: (u64, i64),
    reader: Reader,
    steps: Vec<Step>,
}

/// Merges some runs that follow each other.
fn merge_some(case: &Case, directory: &DatabaseDirectory, runs: &mut Vec<Arc<IndexRun>>) {
    let Some((first, count)) = &case.merged else { return };
    if runs.is_empty() {
        return;
    }
    let first = first.index(runs.len());
    let last = first + count.index(runs.len() - first);
    let Reader { visible, retention, now_ms } = case.reader;
    let horizon = Horizon {
        visible_arrival: visible.saturating_sub(case.older.0),
        now_ms: now_ms - case.older.1,
    };
    let keys = runs[first..=last].iter().map(|run| run.counts().keys).sum();
    let writer = RunWriter::new(directory.create_data_file().unwrap(), keys);
    let writer = writer.with_page_bytes(case.page_bytes);
    let mut count = 0;
    let rule = MergeRule { retention, horizon };
    let checkpoint = || {
        count += 1;
        Ok(())
    };
    let merged = merge::<MergeError>(&runs[first..=last], rule, writer, |_| true, checkpoint);
    let run = merged.unwrap();
    let written = run.counts();
    assert!(count <= keys);
    let before: u64 = runs[first..=last].iter().map(|run| run.counts().rows).sum();
    assert!(written.rows <= before && (retention != Retention::Forever || written.rows == before));
    runs.splice(first..=last, [Arc::new(run)]);
}

fn check(case: &Case) {
    let Case { rows, cuts, page_bytes, reader, steps, .. } = case;
    let codec = codec();
    let format = format(&codec);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
    cuts.sort_unstable();
    let (_disk, directory) = directory();
    let mut begin = 0;
    let mut runs = Vec::new();
    let in_memory = cuts.split_off(cuts.len().saturating_sub(1));
    for end in cuts {
        runs.push(Arc::new(Memory::of(rows, begin..end, &format).write(&directory, *page_bytes)));
        begin = end;
    }
    merge_some(case, &directory, &mut runs);
    let middle = in_memory.first().copied().unwrap_or(rows.len()).max(begin);
    let frozen = Memory::of(rows, begin..middle, &format);
    let active = Memory::of(rows, middle..rows.len(), &format);
    let cache = PageCache::new(1 << 20);
    let guard = pin();
    for key in 0..4 {
        let pins = Pins::default();
        let pages = PageSource { cache: &cache, codec: &codec, format: Some(&format), pins: &pins };
        let mut merged = MergedRows::new(&[key], reader.bounds());
        for memory in [&active, &frozen] {
            let visible = Bounds::visible(reader.visible);
            memory
                .series
                .seek(&[key], visible, &guard)
                .into_iter()
                .for_each(|rows| merged.add_memory(rows));
        }
        for run in runs.iter().rev() {
            merged.add_run(run, reader.visible);
        }
        check_steps(merged, &pages, reader.model(rows, key), steps);
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let late = (0_u8..3, prop_oneof![16 => 0_i64..60, 2 => Just(i64::MIN), 1 => Just(i64::MAX)]);
    prop_oneof![
        // Keys of several chunks in a page.
        1 => vec((0_u8..2, 0_i64..40), 200..400),
        6 => vec(late, 0..120),
        // In the order of event time, with some late ones and ties.
        6 => vec((0_u8..2, 0_i64..8), 0..200).prop_map(|rows| {
            (0..).zip(rows).map(|(at, (key, back))| (key, (at - back * 4) / 3)).collect()
        }),
    ]
}

fn seek_time() -> impl Strategy<Value = i64> {
    prop_oneof![18 => -2_i64..70, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Row),
        2 => Just(Step::Run),
        1 => seek_time().prop_map(Step::Seek),
        1 => (seek_time(), prop_oneof![4 => 0_u64..200, 1 => Just(0)])
            .prop_map(|(time, arrival)| Step::SeekBefore(time, arrival)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let reader =
        (prop_oneof![2 => Just(1_000_u64), 1 => 0_u64..200], retention(0..40, 0..30), -2_i64..90)
            .prop_map(|(visible, retention, now_ms)| Reader { visible, retention, now_ms });
    let cuts = vec(any::<prop::sample::Index>(), 0..6);
    // From one row in a page to all of them.
    let page_bytes = prop_oneof![Just(1_usize), 100_usize..600, Just(1 << 20)];
    let merged = any::<Option<(prop::sample::Index, prop::sample::Index)>>();
    let older = (prop_oneof![Just(0_u64), 0_u64..200], prop_oneof![Just(0_i64), 0_i64..50]);
    (rows(), cuts, page_bytes, (merged, older), reader, vec(step(), 0..12)).prop_map(
        |(rows, cuts, page_bytes, (merged, older), reader, steps)| Case {
            rows,
            cuts,
            page_bytes,
            merged,
            older,
            reader,
            steps,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn runs_and_memory_show_what_a_sorted_list_shows(case in case()) {
        check(&case);
    }
}

/// How many cases of the generator it takes at most to find a bug.
const CASES_TO_FIND: usize = 2_000;

#[test]
fn each_seeded_bug_is_found() {
    let bugs = [
        PartBug::LatestCutByLaterRows,
        PartBug::OneRunOfKeyMerged,
        PartBug::OnePageOfKey,
        PartBug::PageOfSeekSkipped,
        PartBug::BoundOfOtherKey,
        PartBug::SkippedNotCounted,
        PartBug::TiesNotCompared,
        PartBug::CountedBySource,
        PartBug::LaterRowsShown,
        PartBug::FilterOfLastKey,
    ];
    bug::find_each(&bugs, CASES_TO_FIND, &case(), |case| check(&case));
}

/// A run of some keys, the bytes of its file, and where its last block is.
fn one_run() -> (SimulatedDisk, DatabaseDirectory, IndexRun) {
    let rows: Vec<Row> =
        (0..200).map(|number| (u8::try_from(number % 7).unwrap(), number)).collect();
    let (disk, directory) = directory();
    let run = Memory::of(&rows, 0..rows.len(), &format(&codec())).write(&directory, 300);
    (disk, directory, run)
}

#[test]
fn a_page_that_is_damaged_is_an_error_with_file_and_offset() {
    let (disk, _directory, run) = one_run();
    let codec = codec();
    assert!(run.page_count() > 7);
    let path = run.path().to_path_buf();
    let whole = disk.bytes(&path);
    // From the second page on: the first ones stay readable.
    let mut damaged = whole.clone();
    let at = usize::try_from(run.place(3).offset).unwrap() + 20;
    damaged[at] ^= 1;
    disk.replace(&path, damaged);
    assert!(run.read_page(2, None, &codec).is_ok());
    let error = run.read_page(3, None, &codec).unwrap_err();
    assert_eq!(error.reason(), &ReadFailure::Damaged);
    let expected =
        format!("file `{}` is damaged at offset {}", path.display(), run.place(3).offset);
    assert_eq!(error.to_string(), expected);
    disk.replace(&path, whole);
    assert!(run.read_page(3, None, &codec).is_ok());
}

/// Reads the rows of a key of one run to the end, after a seek; returns how many.
fn read_from(run: &IndexRun, cache: &PageCache, bounds: Bounds, event_time_max: i64) -> usize {
    let (codec, pins) = (codec(), Pins::default());
    let source = PageSource { cache, codec: &codec, format: None, pins: &pins };
    let mut merged = MergedRows::new(&[0], bounds);
    merged.add_run(run, u64::MAX);
    merged.seek(event_time_max);
    let mut count = 0;
    while let Some(run) = merged.next_run(&source).unwrap() {
        count += run.len();
    }
    count
}

#[test]
fn readers_read_no_more_pages_than_they_need() {
    let rows: Vec<Row> = (0..1_000).map(|number| (0, number)).collect();
    let (_disk, directory) = directory();
    let format = format(&codec());
    let run = Memory::of(&rows, 0..900, &format).write(&directory, 1_000);
    assert!(run.page_count() > 30);
    let reads = |bounds, event_time_max| {
        let cache = PageCache::new(1 << 20);
        let rows = read_from(&run, &cache, bounds, event_time_max);
        (rows, cache.cache_use().reads)
    };
    let all = Bounds::everything();
    assert_eq!(reads(all, i64::MAX), (900, run.page_count() as u64));
    let (rows_read, pages) = reads(all, 5);
    assert!(rows_read == 6 && pages <= 2, "{pages} pages for the oldest rows");
    let latest = Bounds::new(u64::MAX, Retention::Latest { latest: 10 }, 0);
    let (rows_read, pages) = reads(latest, i64::MAX);
    assert!(rows_read == 10 && pages == 1, "{pages} pages for the ten rows that are kept");
    let (rows_read, pages) = reads(latest, 5);
    assert!(rows_read == 0 && pages <= 2, "{pages} pages for rows that are expired");
    let young = Bounds::new(u64::MAX, Retention::Absolute { ttl_ms: 100 }, 900);
    let (rows_read, pages) = reads(young, i64::MAX);
    assert!(rows_read == 99 && pages <= 6, "{pages} pages for the rows that are young enough");
    // Memory has all rows of the window.
    let memory = Memory::of(&rows, 900..1_000, &format);
    let (codec, pins, cache) = (codec(), Pins::default(), PageCache::new(1 << 20));
    let source = PageSource { cache: &cache, codec: &codec, format: None, pins: &pins };
    for bounds in [all, Bounds::new(u64::MAX, Retention::Latest { latest: 500 }, 0)] {
        let guard = pin();
        let mut merged = MergedRows::new(&[0], bounds);
        merged.add_memory(memory.series.seek(&[0], all, &guard).unwrap());
        merged.add_run(&run, u64::MAX);
        assert!(merged.next_run(&source).unwrap().is_some_and(|run| run.len() >= 20));
        assert_eq!(cache.cache_use().reads, 0);
    }
}

#[test]
fn a_read_that_failed_can_be_repeated() {
    let (disk, _directory, run) = one_run();
    let (codec, pins, cache) = (codec(), Pins::default(), PageCache::new(1 << 20));
    let source = PageSource { cache: &cache, codec: &codec, format: None, pins: &pins };
    let whole = disk.bytes(run.path());
    let mut merged = MergedRows::new(&[0], Bounds::everything());
    merged.add_run(&run, u64::MAX);
    let first = merged.next_run(&source).unwrap().unwrap().len();
    disk.replace(run.path(), vec![0; whole.len()]);
    for _ in 0..2 {
        assert_eq!(merged.next_run(&source).unwrap_err().reason(), &ReadFailure::Damaged);
    }
    disk.replace(run.path(), whole);
    let mut count = first;
    while let Some(run) = merged.next_run(&source).unwrap() {
        count += run.len();
    }
    assert_eq!(count, 29);
}

#[test]
fn a_last_block_of_other_bytes_is_refused() {
    let (_, directory, run) = one_run();
    let bytes = run.last_block_bytes();
    let mut found = BTreeMap::new();
    for (what, bytes) in [
        ("version", [&2_u32.to_le_bytes()[..], &bytes[4..]].concat()),
        ("end", bytes[..bytes.len() - 1].to_vec()),
        ("nothing", Vec::new()),
        ("whole", bytes.clone()),
    ] {
        let mut file = directory.create_data_file().unwrap();
        let place = file.push_block(&bytes).unwrap();
        let reader = directory.open_blocks(file.finish().unwrap()).unwrap();
        let reason = IndexRun::open(reader, place).map_err(|error| error.reason().clone());
        found.insert(what, reason.err());
    }
    let newer = ReadFailure::NewerFormat { found: 2, supported: 1 };
    let expected = [
        ("end", Some(ReadFailure::Damaged)),
        ("nothing", Some(ReadFailure::Damaged)),
        ("version", Some(newer)),
        ("whole", None),
    ];
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn readers_of_one_page_share_it_and_its_bytes_count() {
    let (_, _directory, run) = one_run();
    let (codec, cache) = (codec(), PageCache::new(1 << 20));
    let all_pins = [Pins::default(), Pins::default()];
    let read = |visible, pins| {
        let pages = PageSource { cache: &cache, codec: &codec, format: None, pins };
        let mut merged = MergedRows::new(&[3], Bounds::everything());
        merged.add_run(&run, visible);
        let mut count = 0;
        while let Some(run) = merged.next_run(&pages).unwrap() {
            count += run.len();
        }
        count
    };
    assert_eq!(read(u64::MAX, &all_pins[0]), 29);
    let first = cache.cache_use();
    assert!(first.reads > 1 && first.hits == 0 && first.bytes > 0 && first.bytes <= first.limit);
    assert_eq!(read(100, &all_pins[1]), 14);
    // A reader has each page once.
    assert_eq!(all_pins[0].memory_bytes() as u64, first.bytes);
    assert_eq!(read(100, &all_pins[0]), 14);
    assert_eq!(cache.cache_use().hits, first.reads);
    let second = cache.cache_use();
    assert_eq!((second.reads, second.bytes), (first.reads, first.bytes));
    assert_eq!(second.hits, first.reads);
    // Most keys that are not there cost no page.
    let absent = (10_u8..=255).filter(|key| !run.pages_of(&[*key]).is_empty()).count();
    assert!(absent < 20, "{absent}");
    let format = format(&codec);
    let other =
        PageSource { cache: &cache, codec: &codec, format: Some(&format), pins: &all_pins[1] };
    let mut merged = MergedRows::new(&[3], Bounds::everything());
    merged.add_run(&run, u64::MAX);
    assert!(merged.next_run(&other).unwrap().is_some());
    assert!(cache.cache_use().reads > first.reads, "pages with other records are other pages");
}

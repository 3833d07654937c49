//! Models of one key: a reader sees every row that was visible when it looked, in order and with its
//! record, whatever the writer does.

use loom::thread;

use crate::{
    chunk::{ChunkView, KeyRow},
    entry::{
        EntryRef, EntryRows, Inserted, KeyEntry, Remaining, RowAction, WriteContext, chunk_at,
    },
    guard::{Guard, Retiring},
    record::{RecordField, RecordFormat},
    row_ref::{RowRef, header_with_arrival},
    sync::{AtomicPtr, AtomicU64, Ordering},
};

/// Rows: arrival is the position, event time the value.
type Times = &'static [i64];

/// One key, and the rows that its reader must see.
struct ModelKey {
    /// What would be in the bucket.
    bucket: AtomicPtr<KeyEntry>,
    /// Rows with a smaller arrival are visible.
    visible: AtomicU64,
    /// Headers, and a byte each: the arrival.
    rows: Vec<[u8; ROW_SIZE]>,
    times: Times,
    format: Option<RecordFormat>,
}

const ROW_SIZE: usize = 9;
/// A record is the row's byte, so many times.
const RECORD_SIZE: usize = 3;
const FIELDS: [RecordField; 2] =
    [RecordField { offset: 0, width: 1 }, RecordField { offset: 1, width: 2 }];

fn format() -> RecordFormat {
    RecordFormat::new(FIELDS.map(|field| field.width), |row, record| record.fill(row[0]))
}

impl ModelKey {
    fn new(times: Times, format: Option<RecordFormat>) -> Self {
        let row = |arrival: u64| {
            // One byte, which follows.
            let head = header_with_arrival(&[0, 0, 0, 0, 0, 0, 1, 0], arrival);
            let mut row = [arrival.to_le_bytes()[0]; ROW_SIZE];
            row[..head.len()].copy_from_slice(&head);
            row
        };
        let rows: Vec<[u8; ROW_SIZE]> = (0..).take(times.len()).map(row).collect();
        rows.as_ptr().expose_provenance();
        let mut key = Self {
            bucket: AtomicPtr::new(std::ptr::null_mut()),
            visible: AtomicU64::new(1),
            rows,
            times,
            format,
        };
        let entry = EntryRef::make(b"key", times[0], key.row(0));
        key.bucket = AtomicPtr::new(entry);
        key
    }

    fn row(&self, arrival: usize) -> RowRef<'_> {
        let start = self.rows.as_ptr().wrapping_add(arrival).cast_mut().cast();
        // SAFETY: the row was written when the key was made.
        unsafe { RowRef::from_raw(start) }
    }

    /// The entry as the reader or the writer finds it.
    fn entry(&self) -> EntryRef<'_> {
        // Acquire: pairs with the Release in `replace`.
        // SAFETY: entries are freed when the execution is over.
        unsafe { EntryRef::from_raw(self.bucket.load(Ordering::Acquire)) }
    }

    fn replace(&self, made: *mut KeyEntry, guard: &Guard) {
        // AcqRel: pairs with the Acquire in `entry`.
        let old = self.bucket.swap(made, Ordering::AcqRel);
        // SAFETY: it was unlinked just now.
        unsafe { Retiring::new(guard, None).retire(old.cast(), EntryRef::free, 0) };
    }

    fn context<'w>(&'w self, guard: &'w Guard) -> WriteContext<'w> {
        let retiring = Retiring::new(guard, None);
        WriteContext { format: self.format.as_ref(), retiring }
    }

    fn insert(&self, arrival: usize, guard: &Guard) {
        let row = self.row(arrival);
        let item = KeyRow { event_time: self.times[arrival], row };
        let context = self.context(guard);
        let inserted = match self.entry().insert_newest(item, context) {
            Inserted::Late => self.entry().insert_late(&[item], context),
            inserted => inserted,
        };
        match inserted {
            Inserted::Grown(_) => {}
            Inserted::Replaced(made) => self.replace(made, guard),
            Inserted::Late => panic!("rows that are inserted as late ones are not refused"),
        }
        // Release: pairs with the Acquire in `read`.
        self.visible.store(row.arrival() + 1, Ordering::Release);
    }

    /// Inserts all rows from an arrival on together, as late ones.
    fn insert_run(&self, first: usize, guard: &Guard) {
        let item = |arrival| KeyRow { event_time: self.times[arrival], row: self.row(arrival) };
        let mut run: Vec<KeyRow<'_>> = (first..self.times.len()).map(item).collect();
        run.sort_by_key(KeyRow::position);
        let context = self.context(guard);
        if let Inserted::Replaced(made) = self.entry().insert_late(&run, context) {
            self.replace(made, guard);
        }
        let visible = u64::try_from(self.times.len()).unwrap();
        // Release: pairs with the Acquire in `read`.
        self.visible.store(visible, Ordering::Release);
    }

    fn retain(&self, is_kept: fn(u64) -> bool, guard: &Guard) {
        let entry = self.entry();
        let mut action = |_, row: RowRef<'_>| {
            if is_kept(row.arrival()) { RowAction::Keep } else { RowAction::Remove }
        };
        let context = self.context(guard);
        match entry.retain(&mut action, context).remaining {
            Remaining::Grown(_) => {}
            Remaining::One(event_time, row) => {
                let made = EntryRef::make(entry.key(), event_time, row);
                self.replace(made, guard);
            }
            Remaining::Nothing => panic!("the models keep a row"),
        }
    }

    /// What a reader sees: (event time, arrival), oldest first.
    fn shown(&self) -> Vec<(i64, u64)> {
        let of = |view: ChunkView<'_>| {
            let position = |at: usize| {
                let (event_time, row) = (view.event_time(at), view.row(at));
                // A row in its key's entry has no record.
                for field in FIELDS.into_iter().filter(|_| view.has_records()) {
                    // SAFETY: all records have these fields.
                    let values = unsafe { view.field(at..at + 1, field) };
                    assert_eq!(values, &[row.bytes()[0]; RECORD_SIZE][..field.width]);
                }
                (event_time, row.arrival())
            };
            (0..view.len()).map(position).collect::<Vec<_>>()
        };
        match self.entry().rows() {
            EntryRows::Single(single) => of(single),
            EntryRows::Chunk(chunk) => of(chunk.view()),
            EntryRows::Directory(directory) => {
                (0..directory.len()).flat_map(|at| of(chunk_at(directory, at).view())).collect()
            }
        }
    }

    /// Reads once and checks what was seen; rows that `may_be_gone` need not be.
    fn read(&self, may_be_gone: fn(u64) -> bool) {
        // Acquire: pairs with the Release in `insert`.
        let visible = self.visible.load(Ordering::Acquire);
        let shown = self.shown();
        assert!(shown.is_sorted_by(|one, other| one < other), "{shown:?}");
        for (arrival, time) in (0..visible).zip(self.times) {
            let is_there = shown.contains(&(*time, arrival));
            assert!(is_there || may_be_gone(arrival), "row {arrival} of {visible} in {shown:?}");
        }
    }
}

/// Fills a key with some rows, then lets a writer go on beside a reader; without records and with
/// them.
fn check(times: Times, before: usize, write: fn(&ModelKey, &Guard), may_be_gone: fn(u64) -> bool) {
    for format in [|| None, || Some(format())] {
        check_with(format, (times, before), write, may_be_gone);
    }
}

fn check_with(
    format: fn() -> Option<RecordFormat>,
    (times, before): (Times, usize),
    write: fn(&ModelKey, &Guard),
    may_be_gone: fn(u64) -> bool,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let key: &'static ModelKey = Box::leak(Box::new(ModelKey::new(times, format())));
        let guard = Guard::default();
        for arrival in 1..before {
            key.insert(arrival, &guard);
        }
        let reader = thread::spawn(move || key.read(may_be_gone));
        write(key, &guard);
        reader.join().unwrap();
        key.read(may_be_gone);
        guard.free();
        // SAFETY: the reader is gone, and the key was leaked above.
        let key = unsafe { Box::from_raw(std::ptr::from_ref(key).cast_mut()) };
        // Relaxed: no other thread is left.
        // SAFETY: as above.
        unsafe { EntryRef::free(key.bucket.load(Ordering::Relaxed).cast()) };
    });
}

fn insert_rest(key: &ModelKey, guard: &Guard) {
    // Relaxed: only the writer writes it.
    let first = usize::try_from(key.visible.load(Ordering::Relaxed)).unwrap();
    for arrival in first..key.times.len() {
        key.insert(arrival, guard);
    }
}

fn none(_: u64) -> bool {
    false
}

#[test]
fn rows_in_order() {
    // Single, chunk, chunk appended to, chunk copied into a larger one.
    check(&[1, 2, 3], 1, insert_rest, none);
    check(&[1, 2, 3, 4], 2, insert_rest, none);
    // Full chunk, directory, newest chunk copied, directory appended to, longer directory.
    check(&[1, 2, 3, 4, 5, 6], 4, insert_rest, none);
    check(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 7, insert_rest, none);
    check(&(const { ordered::<18>() }), 16, insert_rest, none);
}

const fn ordered<const COUNT: usize>() -> [i64; COUNT] {
    let mut times = [0; COUNT];
    let mut at = 0;
    while at < COUNT {
        times[at] = at as i64;
        at += 1;
    }
    times
}

#[test]
fn late_rows() {
    // Before a single; into a chunk that has space; into one that splits; into chunks of a directory.
    check(&[5, 3], 1, insert_rest, none);
    check(&[5, 7, 6], 2, insert_rest, none);
    check(&[5, 7, 9, 11, 6], 4, insert_rest, none);
    check(&[10, 20, 30, 40, 50, 15, 5], 5, insert_rest, none);
}

#[test]
fn late_rows_together() {
    // Into a single; into a chunk; into one that splits; into both chunks of a directory.
    check(&[5, 3, 7], 1, |key, guard| key.insert_run(1, guard), none);
    check(&[5, 7, 6, 1], 2, |key, guard| key.insert_run(2, guard), none);
    check(&[5, 7, 9, 11, 6, 8], 4, |key, guard| key.insert_run(4, guard), none);
    check(&[10, 20, 30, 40, 50, 15, 45], 5, |key, guard| key.insert_run(5, guard), none);
}

#[test]
fn event_times_that_lie_far_apart() {
    check(&[0, i64::MAX, i64::MIN], 1, insert_rest, none);
}

#[test]
fn rows_removed() {
    let is_odd = |arrival: u64| arrival % 2 == 1;
    let retain = |key: &ModelKey, guard: &Guard| {
        key.retain(|arrival| arrival % 2 == 0, guard);
    };
    check(&[1, 2], 2, retain, is_odd);
    check(&[1, 2, 3, 4, 5], 5, retain, is_odd);
    check(&[1, 2, 3, 4, 5, 6, 7], 7, retain, is_odd);
    check(
        &[1, 2, 3, 4, 5, 6],
        5,
        |key, guard| {
            key.retain(|arrival| arrival % 2 == 0, guard);
            insert_rest(key, guard);
        },
        |arrival| arrival % 2 == 1 && arrival < 5,
    );
}

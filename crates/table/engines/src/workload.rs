//! The workload: rows of entity keys in the order of event time, computed from their numbers alone.
//!
//! Row `n` has the arrival `n`. The rows are divided into rounds, and each round has one row of every
//! key, in an order of its own. The amount of a row depends on its key and its round, so that the sum of
//! a window is known without any engine. Amounts are multiples of 0.25, so that their sums are exact in
//! any order of addition.

use std::{error::Error, ops::Range};

use lockstep_row::{Column, DataType, Datum, RowCodec, RowError, TableSchema};

/// Position of the column that is summed.
pub(crate) const AMOUNT: usize = 2;

/// Milliseconds between rows.
const ROW_INTERVAL_MS: i64 = 10;
/// Bytes of the string column: an encoded row has 100 bytes.
const NOTE_BYTES: usize = 73;
/// Amounts are a number below this limit, divided by [`AMOUNT_PARTS`].
const AMOUNT_LIMIT: u64 = 100_000;
const AMOUNT_PARTS: f64 = 4.0;
/// A prime number, so that its multiples reach every key.
const STRIDE: u64 = 2_654_435_761;
/// Maximum number of keys: less than [`STRIDE`], and a product of both fits in 64 bits.
const KEYS_MAX: u64 = 1 << 31;
/// Maximum number of rows, so that event times fit in 63 bits.
const ROWS_MAX: u64 = 1 << 40;
/// Distinguishes the numbers that notes are made of from those of amounts.
const NOTE_SALT: u64 = 0x6e6f_7465;

/// Words of notes, of five letters or more: 73 bytes take fewer than 16 of them.
const WORDS: [&str; 16] = [
    "amber", "basil", "cedar", "delta", "ember", "fjord", "glade", "heron", "ivory", "juniper",
    "krill", "lilac", "maple", "nectar", "ochre", "pepper",
];

/// Numbers of rows and of entity keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    rows: u64,
    keys: u64,
}

/// A row before it is encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) key: u64,
    pub(crate) event_time: i64,
    pub(crate) arrival: u64,
    pub(crate) amount: f64,
}

/// Result of a query.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct WindowSum {
    pub(crate) count: usize,
    pub(crate) amount: f64,
}

/// Encodes rows.
#[derive(Debug)]
pub(crate) struct RowEncoder {
    codec: RowCodec,
    note: String,
}

impl Workload {
    /// Creates the workload of `rows` rows of `keys` keys, which all have the same number of rows.
    pub(crate) fn new(rows: u64, keys: u64) -> Result<Self, Box<dyn Error>> {
        if keys == 0 || keys > KEYS_MAX || rows == 0 || rows > ROWS_MAX {
            return Err(format!("the limits are {ROWS_MAX} rows and {KEYS_MAX} keys").into());
        }
        if !rows.is_multiple_of(keys) {
            return Err(format!("{rows} rows are not a multiple of {keys} keys").into());
        }
        Ok(Self { rows, keys })
    }

    /// Returns the number of rows.
    pub(crate) fn rows(self) -> u64 {
        self.rows
    }

    /// Returns the number of keys.
    pub(crate) fn keys(self) -> u64 {
        self.keys
    }

    /// Returns the number of rows of each key.
    fn rounds(self) -> u64 {
        self.rows / self.keys
    }

    /// Returns the numbers of at most `count` rows from `first` on.
    pub(crate) fn batch(self, first: u64, count: usize) -> Range<u64> {
        let count = u64::try_from(count).expect("a count fits in 64 bits");
        first..(first + count).min(self.rows)
    }

    /// Returns the row with a number.
    pub(crate) fn row(self, number: u64) -> Row {
        let (round, position) = (number / self.keys, number % self.keys);
        let key = (self.spread(position) + mix(round) % self.keys) % self.keys;
        let event_time = i64::try_from(number).expect("rows are limited") * ROW_INTERVAL_MS;
        Row { key, event_time, arrival: number, amount: self.amount(key, round) }
    }

    /// Returns a key for a rank below the number of keys, another one for each rank, so that frequent
    /// keys are not neighbours on the disk.
    pub(crate) fn spread(self, rank: u64) -> u64 {
        debug_assert!(rank < self.keys, "a rank is below the number of keys");
        rank * STRIDE % self.keys
    }

    fn amount(self, key: u64, round: u64) -> f64 {
        let parts = mix(key * self.rounds() + round) % AMOUNT_LIMIT;
        f64::from(u32::try_from(parts).expect("amounts are limited")) / AMOUNT_PARTS
    }

    /// Returns the result of a query over the `newest` newest rows of a key.
    pub(crate) fn expected(self, key: u64, newest: usize) -> WindowSum {
        let newest = u64::try_from(newest).expect("a count fits in 64 bits");
        let rounds = self.rounds();
        let mut sum = WindowSum::default();
        for round in (rounds.saturating_sub(newest)..rounds).rev() {
            sum.add(self.amount(key, round));
        }
        sum
    }
}

impl WindowSum {
    /// Adds the amount of a row.
    #[inline]
    pub(crate) fn add(&mut self, amount: f64) {
        self.count += 1;
        self.amount += amount;
    }
}

impl RowEncoder {
    /// Creates an encoder.
    pub(crate) fn new() -> Self {
        Self { codec: codec(), note: String::new() }
    }

    /// Appends the bytes of a row to `out`.
    pub(crate) fn encode(&mut self, row: &Row, out: &mut Vec<u8>) -> Result<(), RowError> {
        write_note(row.arrival, &mut self.note);
        let values = [
            Datum::BigInt(row.key.cast_signed()),
            Datum::Timestamp(row.event_time),
            Datum::Double(row.amount),
            Datum::String(&self.note),
        ];
        self.codec.encode(&values, out)
    }
}

/// Creates the codec of the rows.
pub(crate) fn codec() -> RowCodec {
    let columns = vec![
        Column::new("key", DataType::BigInt),
        Column::new("time", DataType::Timestamp),
        Column::new("amount", DataType::Double),
        Column::new("note", DataType::String),
    ];
    RowCodec::new(&TableSchema { columns, indexes: Vec::new() })
}

/// Returns the amount of an encoded row that an engine has stored.
#[inline]
pub(crate) fn amount(codec: &RowCodec, row: &[u8]) -> f64 {
    // SAFETY: the engines store only rows that this codec has encoded, and compare the checksums of the
    // bytes that they read.
    let view = unsafe { codec.view_trusted(row) };
    match view.get(AMOUNT) {
        Datum::Double(amount) => amount,
        other => panic!("the column is of type DOUBLE and never NULL: {other:?}"),
    }
}

/// Returns the key of a row in RocksDB and lsm-tree: the rows of an entity key follow each other, newest
/// first.
pub(crate) fn stored_key(row: &Row) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&row.key.to_be_bytes());
    key[8..16].copy_from_slice(&(u64::MAX - row.event_time.cast_unsigned()).to_be_bytes());
    key[16..].copy_from_slice(&(u64::MAX - row.arrival).to_be_bytes());
    key
}

/// Writes the note of a row. Its words compress about as well as ordinary text.
fn write_note(number: u64, note: &mut String) {
    let mut bits = mix(number ^ NOTE_SALT);
    note.clear();
    while note.len() < NOTE_BYTES {
        note.push_str(WORDS[usize::try_from(bits % 16).expect("four bits")]);
        note.push(' ');
        bits /= 16;
    }
    note.truncate(NOTE_BYTES);
}

/// Returns the output of the generator splitmix64 for a state.
pub(crate) fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{RowEncoder, WindowSum, Workload, amount, codec, stored_key};

    #[test]
    fn every_key_has_the_same_number_of_rows_and_the_expected_sum() {
        let workload = Workload::new(1_200, 24).unwrap();
        let mut by_key: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for number in 0..workload.rows() {
            let row = workload.row(number);
            by_key.entry(row.key).or_default().push(row.amount);
        }
        assert_eq!(by_key.len(), 24);
        for (key, amounts) in by_key {
            assert_eq!(amounts.len(), 50);
            for newest in [1, 20, 50, 100] {
                let mut sum = WindowSum::default();
                amounts.iter().rev().take(newest).for_each(|amount| sum.add(*amount));
                assert_eq!(workload.expected(key, newest), sum);
            }
        }
    }

    #[test]
    fn an_encoded_row_has_100_bytes_and_its_amount() {
        let (workload, codec) = (Workload::new(1_000, 10).unwrap(), codec());
        let mut encoder = RowEncoder::new();
        for number in 0..workload.rows() {
            let (row, mut bytes) = (workload.row(number), Vec::new());
            encoder.encode(&row, &mut bytes).unwrap();
            assert_eq!(bytes.len(), 100);
            assert_eq!(amount(&codec, &bytes).to_bits(), row.amount.to_bits());
        }
    }

    #[test]
    fn newer_rows_of_a_key_have_smaller_stored_keys() {
        let row = Workload::new(10, 1).unwrap();
        let keys: Vec<[u8; 24]> = (0..10).map(|number| stored_key(&row.row(number))).collect();
        assert!(keys.is_sorted_by(|older, newer| older > newer));
        assert!(keys.iter().all(|key| key[..8] == [0; 8]));
    }
}

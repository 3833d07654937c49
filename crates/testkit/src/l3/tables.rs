//! Drawn tables: their columns, indexes, rows and request rows, and the order of arrival.
//!
//! All tables have the same columns. Keys and event times come from small domains, so that rows
//! share keys, tie in time and arrive late; a key has rows in one chunk or in many.

use std::collections::BTreeMap;

use lockstep_engine::{Database, Session};
use lockstep_row::{DataType, Value};

use super::constructs::{DISK_TABLES, LONG_KEYS, OPENMLDB, STANDARD};
use crate::{
    disk_tables, oracle::OracleRow, random::Random, rows::to_batch, scenario::script::literal,
};

/// Names and types of the columns of every table.
pub const COLUMNS: [(&str, DataType); 12] = [
    ("id", DataType::Int),
    ("k", DataType::String),
    ("g", DataType::Int),
    ("ts", DataType::Timestamp),
    ("v", DataType::Int),
    ("x", DataType::Double),
    ("f", DataType::Bool),
    ("n", DataType::SmallInt),
    ("b", DataType::BigInt),
    ("e", DataType::Float),
    ("d", DataType::Date),
    ("s", DataType::String),
];

/// The positions of the key `k` and of the event time among them.
const KEY: usize = 1;
const EVENT_TIME: usize = 3;

/// The id of the request row, greater than all others.
pub const REQUEST_ID: i32 = 1_000_000;

/// Index clauses of a table, each with the number of its indexes. The last ones have a retention:
/// under the compatibility setting a deployment gives the indexes that it creates for such a table
/// their own retention, and sees the rows that each keeps (ADR 0013), so they are not drawn there.
const INDEXES: [(usize, &str); 11] = [
    (0, ""),
    (0, ""),
    (1, ", INDEX(KEY=k, TS=ts)"),
    (1, ", INDEX(KEY=k, TS=ts)"),
    (1, ", INDEX(KEY=g)"),
    (2, ", INDEX(KEY=k, TS=ts), INDEX(KEY=g, TS=ts)"),
    (3, ", INDEX(KEY=k, TS=ts), INDEX(KEY=(k, g), TS=ts), INDEX(KEY=id)"),
    (3, ", INDEX(KEY=g, TS=ts), INDEX(KEY=k), INDEX(KEY=(g, f), TS=ts)"),
    (2, ", INDEX(KEY=(n, b), TS=ts, TTL=0m), INDEX(KEY=d, TS=ts)"),
    (1, ", INDEX(KEY=k, TS=ts, TTL=1000, TTL_TYPE=latest)"),
    (2, ", INDEX(KEY=k, TS=ts, TTL=1000, TTL_TYPE=latest), INDEX(KEY=g, TS=ts)"),
];

/// The number of these without a retention.
const INDEXES_THAT_KEEP: usize = 9;

/// A drawn table.
#[derive(Debug)]
pub struct DrawnTable {
    /// The name.
    pub name: &'static str,
    indexes: &'static str,
    /// The rows by arrival.
    pub rows: Vec<OracleRow>,
    /// The number of rows that arrive before a DEPLOY among the rows.
    early: usize,
}

/// Which rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPart {
    /// Rows before a DEPLOY among the rows.
    Early,
    /// The other rows.
    Late,
}

/// The drawn tables of a case.
#[derive(Debug)]
pub struct DrawnTables {
    /// The request table first.
    pub tables: Vec<DrawnTable>,
    /// The capacity of a chunk in rows.
    pub chunk_rows: usize,
    /// Whether the compatibility setting is on.
    pub is_compatible: bool,
    /// Whether each row is appended alone.
    is_one_by_one: bool,
    /// Whether they are disk tables; then the parts of the rows that are written into files.
    flushed: Option<FlushedRows>,
    /// The properties of the rows, by the names of constructs.
    pub features: Vec<&'static str>,
}

/// The rows of disk tables that are in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlushedRows {
    /// Those that arrive first; the others are in memory.
    Early,
    /// All, in two parts.
    All,
}

/// The domains of keys and event times.
#[derive(Debug, Clone, Copy)]
struct Domain {
    keys: usize,
    seconds: usize,
    is_extreme: bool,
}

impl DrawnTables {
    /// Draws tables of these names, the request table first.
    pub fn draw(names: &[&'static str], random: &mut Random) -> Self {
        let (chunk_rows, of_chunks) = *random.pick(&[
            (2, "chunks of 2 rows"),
            (5, "chunks of 5 rows"),
            (128, "chunks of 128 rows"),
        ]);
        let is_compatible = random.chance(40);
        let is_one_by_one = random.chance(20);
        let is_extreme = random.chance(30);
        let mut features = vec![of_chunks, if is_compatible { OPENMLDB } else { STANDARD }];
        let mut note = |is_so: bool, feature: &'static str| {
            if is_so {
                features.push(feature);
            }
        };
        note(is_one_by_one, "rows one by one");
        let flushed = match random.below(8) {
            0 => Some(FlushedRows::Early),
            1 => Some(FlushedRows::All),
            _ => None,
        };
        note(flushed.is_some(), DISK_TABLES);
        note(is_extreme, "extreme values");
        let mut tables: Vec<DrawnTable> = Vec::new();
        for (name, first_id) in names.iter().zip((0..).step_by(10_000)) {
            let offered = if is_compatible { INDEXES_THAT_KEEP } else { INDEXES.len() };
            let (index_count, indexes) = *random.pick(&INDEXES[..offered]);
            note(index_count == 0, "no declared index");
            note(index_count == 1, "one index");
            note(index_count > 1, "several indexes");
            note(indexes.contains("TTL"), "retention that keeps every row");
            let rows = draw_rows(first_id, chunk_rows, is_extreme, random);
            note(rows.is_sorted_by_key(event_time) && rows.len() > 1, "rows in order of time");
            note(!rows.is_sorted_by_key(event_time), "late rows");
            note(rows_of_a_key(&rows) > chunk_rows, LONG_KEYS);
            let early = random.below(rows.len() + 1);
            assert!(rows.len() < 10_000, "the ids of two tables differ");
            tables.push(DrawnTable { name, indexes, rows, early });
        }
        features.sort_unstable();
        features.dedup();
        Self { tables, chunk_rows, is_compatible, is_one_by_one, flushed, features }
    }

    /// Draws a request row.
    pub fn request(&self, id: i32, random: &mut Random) -> OracleRow {
        let is_extreme = self.features.contains(&"extreme values");
        row(id, Domain { keys: 4, seconds: 9, is_extreme }, random)
    }

    /// Creates the empty tables in a new database and returns its session.
    pub fn open(&self) -> Session {
        let database = match self.flushed {
            None => Database::in_memory(),
            Some(_) => disk_tables::open().expect("the disk is empty"),
        };
        let session = database.session();
        for statement in self.definitions() {
            session.execute(&statement).expect("the tables are made");
        }
        session
    }

    /// Appends rows to all tables.
    pub fn append(&self, session: &Session, part: RowPart) {
        for table in &self.tables {
            self.append_to(session, table.name, table.part(part));
        }
        self.flush(session, part);
    }

    /// Writes the rows of disk tables into files after a part of them was appended, if that part is to be there.
    pub fn flush(&self, session: &Session, part: RowPart) {
        let is_flushed = match self.flushed {
            None => false,
            Some(FlushedRows::Early) => part == RowPart::Early,
            Some(FlushedRows::All) => true,
        };
        if is_flushed {
            disk_tables::flush(session.database()).expect("the disk takes it");
        }
    }

    /// Appends rows to one table.
    pub fn append_to(&self, session: &Session, name: &str, rows: &[OracleRow]) {
        if rows.is_empty() {
            return;
        }
        for rows in rows.chunks(if self.is_one_by_one { 1 } else { rows.len() }) {
            session.append(name, &[to_batch(&columns(), rows)]).expect("their rows fit");
        }
    }

    /// Returns the statements that create the tables.
    pub fn definitions(&self) -> Vec<String> {
        let set = self.is_compatible.then(|| "SET compatibility = 'openmldb'".to_owned());
        let create = self.tables.iter().map(|table| create(table.name, table.indexes));
        set.into_iter().chain(create).collect()
    }

    /// Returns INSERT statements for rows of all tables.
    pub fn inserts(&self, part: RowPart) -> String {
        let of_table = |table: &DrawnTable| -> String {
            table.part(part).iter().map(|row| insert(table.name, row)).collect()
        };
        self.tables.iter().map(of_table).collect()
    }
}

impl DrawnTable {
    fn part(&self, part: RowPart) -> &[OracleRow] {
        let (early, late) = self.rows.split_at(self.early);
        match part {
            RowPart::Early => early,
            RowPart::Late => late,
        }
    }

    /// Returns the CREATE TABLE of a copy with the same index clauses.
    pub fn copy(&self, name: &str) -> String {
        create(name, self.indexes)
    }
}

/// Names and types of the columns.
pub fn columns() -> Vec<(String, DataType)> {
    COLUMNS.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone())).collect()
}

/// Formats a row as literals in parentheses.
pub fn tuple(row: &OracleRow) -> String {
    let literals =
        row.iter().zip(&COLUMNS).map(|(value, (_, data_type))| literal(value, data_type));
    literals.collect::<Vec<_>>().join(", ")
}

/// Returns the INSERT of a row.
pub fn insert(table: &str, row: &OracleRow) -> String {
    format!("INSERT INTO {table} VALUES ({});\n", tuple(row))
}

fn create(name: &str, indexes: &str) -> String {
    let columns: Vec<String> =
        COLUMNS.iter().map(|(name, data_type)| format!("{name} {data_type}")).collect();
    format!("CREATE TABLE {name} ({}{indexes})", columns.join(", "))
}

/// Draws few rows mostly; at times more than a chunk of each key, and at times one key of hundreds.
fn draw_rows(
    first_id: i32,
    chunk_rows: usize,
    is_extreme: bool,
    random: &mut Random,
) -> Vec<OracleRow> {
    let (count, keys, seconds) = match random.below(20) {
        0..=11 => (random.below(14), 4, 8),
        12..=17 => (8 + random.below(24), 2, 8),
        // A key has several chunks whatever their size.
        18 => (chunk_rows + 2 + random.below(12), 1, 30),
        _ => (2 * chunk_rows + random.below(20), 2, 12),
    };
    let domain = Domain { keys, seconds, is_extreme };
    let mut rows: Vec<OracleRow> =
        (first_id..).take(count).map(|id| row(id, domain, random)).collect();
    if random.chance(30) {
        rows.sort_by_key(event_time);
        for (row, id) in rows.iter_mut().zip(first_id..) {
            row[0] = Value::Int(id);
        }
    }
    assert!(rows.iter().all(|row| row.len() == COLUMNS.len()), "a value for each column");
    rows
}

/// Draws a row. Event times are never NULL.
fn row(id: i32, domain: Domain, random: &mut Random) -> OracleRow {
    let small = |random: &mut Random, end: usize| i32::try_from(random.below(end)).unwrap_or(0);
    let tenths = |random: &mut Random| i16::try_from(random.below(100)).unwrap_or(0) - 50;
    let is_extreme = domain.is_extreme && random.chance(25);
    let key = ["a", "b", "c", ""][random.below(domain.keys)];
    let narrow = i16::try_from(random.below(5)).unwrap_or(0) - 2;
    let texts = ["", "k1:v1", "k1:v1,k2:v2", "b,a", "k3:", "ü:漢"];
    let mut row = vec![
        Value::Int(id),
        Value::String(key.into()),
        Value::Int(small(random, domain.keys)),
        Value::Timestamp(1_000 * i64::from(small(random, domain.seconds))),
        Value::Int(small(random, 40) - 20),
        Value::Double(f64::from(small(random, 100)) / 7.0 - 5.0),
        Value::Bool(random.chance(50)),
        Value::SmallInt(narrow),
        Value::BigInt(i64::from(small(random, 7))),
        Value::Float(f32::from(tenths(random)) / 10.0),
        Value::Date(18_262 + small(random, 3)),
        Value::String((*random.pick(&texts)).into()),
    ];
    if is_extreme {
        make_extreme(&mut row, random);
    }
    for (column, value) in row.iter_mut().enumerate() {
        if column != 0 && column != EVENT_TIME && random.chance(12) {
            *value = Value::Null;
        }
    }
    row
}

/// Sets values to the limits of their types.
fn make_extreme(row: &mut OracleRow, random: &mut Random) {
    for value in row.iter_mut().skip(EVENT_TIME + 1) {
        let extreme = match value {
            Value::Int(_) => Value::Int(*random.pick(&[i32::MAX, i32::MIN, i32::MAX - 1])),
            Value::SmallInt(_) => Value::SmallInt(*random.pick(&[i16::MAX, i16::MIN])),
            Value::BigInt(_) => Value::BigInt(*random.pick(&[i64::MAX, i64::MIN, 1 << 53])),
            Value::Double(_) => {
                Value::Double(*random.pick(&[-0.0, 5e-324, f64::MAX, f64::NAN, f64::INFINITY]))
            }
            Value::Float(_) => {
                Value::Float(*random.pick(&[-0.0, f32::MAX, f32::NAN, f32::NEG_INFINITY, 1e-45]))
            }
            _ => continue,
        };
        if random.chance(40) {
            *value = extreme;
        }
    }
}

fn event_time(row: &OracleRow) -> i64 {
    match &row[EVENT_TIME] {
        Value::Timestamp(time) => *time,
        _ => i64::MIN,
    }
}

/// Returns the greatest number of rows that share a `k`.
fn rows_of_a_key(rows: &[OracleRow]) -> usize {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(format!("{:?}", row[KEY])).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

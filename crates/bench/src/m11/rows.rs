//! The rows of M11: of M1's main table, or of 100 bytes with one index.

use lockstep_row::Datum;
use serde_json::{Value as Json, json};

use crate::{
    draw::KeyedRandom,
    m1::{Data, M1Row, M1Shape, TableName, columns, m1_query, m1_schema},
    statement::{Dialect, PeerStatement, PeerType, StatementParameter},
};

/// Rows of a key.
const ROWS_PER_KEY: usize = 1_000;
/// The event time of the first row, in milliseconds since the epoch.
const START_MS: i64 = 1_718_409_600_000;
/// When the request arrives: later than every row.
const REQUEST_MS: i64 = START_MS + 86_400_000_000;
/// Bytes of the text that makes a row 100 bytes long.
const TEXT_BYTES: usize = 50;
/// The letters of that text.
const LETTERS: &[u8; 16] = b"abcdefghijklmnop";

/// What the rows look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowShape {
    /// 30 columns and two indexes.
    M1,
    /// A key of 10 bytes, an event time, four numbers and a text of 50 bytes; one index.
    Bytes100,
}

impl RowShape {
    /// Returns its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::M1 => "M1",
            Self::Bytes100 => "100 bytes",
        }
    }

    /// Returns the shape of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::M1, Self::Bytes100].into_iter().find(|shape| shape.name() == name)
    }
}

/// So many rows of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartRows {
    /// Their shape.
    pub(crate) shape: RowShape,
    /// Their number, a multiple of [`ROWS_PER_KEY`].
    pub(crate) count: usize,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RestartRow {
    /// One of M1's main table.
    M1(Box<M1Row>),
    /// One of 100 bytes.
    Bytes100(Row100),
}

/// A row of 100 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row100 {
    key: [u8; 10],
    time_ms: i64,
    doubles: [f64; 2],
    ints: [i64; 2],
    text: [u8; TEXT_BYTES],
}

impl RestartRow {
    /// Returns the values in the order of the columns.
    pub(crate) fn datums(&self) -> Vec<Datum<'_>> {
        match self {
            Self::M1(row) => row.datums().to_vec(),
            Self::Bytes100(row) => vec![
                Datum::String(ascii(&row.key)),
                Datum::Timestamp(row.time_ms),
                Datum::Double(row.doubles[0]),
                Datum::Double(row.doubles[1]),
                Datum::BigInt(row.ints[0]),
                Datum::BigInt(row.ints[1]),
                Datum::String(ascii(&row.text)),
            ],
        }
    }
}

fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("texts are ASCII")
}

impl RestartRows {
    fn keys(self) -> usize {
        assert!(self.count.is_multiple_of(ROWS_PER_KEY), "every key has as many rows");
        self.count / ROWS_PER_KEY
    }

    fn m1(self) -> Data {
        let shape = M1Shape {
            joins: 0,
            hot_keys: self.keys(),
            window_rows: ROWS_PER_KEY,
            ..M1Shape::default()
        };
        Data { shape }
    }

    /// Returns the parameters as results state them.
    pub(crate) fn params(self) -> Json {
        json!({ "rows": self.count, "keys": self.keys(), "rows_per_key": ROWS_PER_KEY })
    }

    /// Returns the name of the table.
    pub(crate) fn table(self) -> &'static str {
        match self.shape {
            RowShape::M1 => "mt",
            RowShape::Bytes100 => "r",
        }
    }

    /// Returns the columns that have an index, by number.
    pub(crate) fn index_columns(self) -> std::ops::Range<usize> {
        match self.shape {
            RowShape::M1 => 0..self.m1().shape.windows,
            RowShape::Bytes100 => 0..1,
        }
    }

    /// Returns the names of the columns of (key, event time) of an index.
    pub(crate) fn index_names(self, column: usize) -> (String, &'static str) {
        match self.shape {
            RowShape::M1 => (format!("col_s{column}"), "col_t0"),
            RowShape::Bytes100 => ("k".to_owned(), "ts"),
        }
    }

    /// Returns the position of the event time in a row.
    pub(crate) fn time_column(self) -> usize {
        match self.shape {
            RowShape::M1 => 20,
            RowShape::Bytes100 => 1,
        }
    }

    /// Returns the names and types of the columns.
    pub(crate) fn columns(self) -> Vec<(String, PeerType)> {
        let text = PeerType::Text(50);
        let of_100 = [
            ("k", PeerType::Text(10)),
            ("ts", PeerType::Time),
            ("d0", PeerType::Double),
            ("d1", PeerType::Double),
            ("i0", PeerType::Int),
            ("i1", PeerType::Int),
            ("s", text),
        ];
        match self.shape {
            RowShape::M1 => columns().collect(),
            RowShape::Bytes100 => of_100.map(|(name, kind)| (name.to_owned(), kind)).into(),
        }
    }

    /// Returns the statements that create Lockstep's table and its deployment `first`.
    pub(crate) fn lockstep_script(self) -> String {
        match self.shape {
            RowShape::M1 => {
                format!("{}\nDEPLOY first {};", m1_schema(self.m1()), m1_query(self.m1().shape))
            }
            RowShape::Bytes100 => "CREATE TABLE r (k STRING, ts TIMESTAMP, d0 DOUBLE, d1 DOUBLE, \
                 i0 BIGINT, i1 BIGINT, s STRING, INDEX(KEY=k, TS=ts, TTL=0m, TTL_TYPE=absolute));\n\
                 DEPLOY first SELECT k, count(i0) OVER w AS n, sum(d0) OVER w AS x FROM r WINDOW w \
                 AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 2000 PRECEDING AND CURRENT ROW);"
                .to_owned(),
        }
    }

    /// Returns the statement that counts the rows of the last key.
    pub(crate) fn count_statement(self, dialect: Dialect) -> PeerStatement {
        let (key, _) = self.index_names(0);
        let parameter = StatementParameter { name: "k".to_owned(), kind: PeerType::Text(10) };
        let template = format!("SELECT count(*) FROM {} WHERE {key} = {{k}}", self.table());
        dialect.render(&template, &[parameter])
    }

    /// Returns how many rows the last key has.
    pub(crate) fn rows_of_a_key(self) -> u64 {
        u64::try_from(ROWS_PER_KEY).expect("a count fits")
    }

    /// Returns the rows in the order in which they arrive: keys in turn, event times ascending.
    pub(crate) fn rows(self) -> Box<dyn Iterator<Item = RestartRow>> {
        match self.shape {
            RowShape::M1 => {
                Box::new(self.m1().rows(TableName::Main).map(|row| RestartRow::M1(Box::new(row))))
            }
            RowShape::Bytes100 => {
                let keys = self.keys();
                let row = move |number| RestartRow::Bytes100(row_100(number, number % keys));
                Box::new((0..self.count).map(row))
            }
        }
    }

    /// Returns a request row of the last key, later than every row.
    pub(crate) fn request(self) -> RestartRow {
        match self.shape {
            RowShape::M1 => {
                let last = self.m1().rows(TableName::Main).nth(self.keys() - 1);
                let mut row = last.expect("there are rows of every key");
                row.times_ms[0] = START_MS;
                RestartRow::M1(Box::new(row))
            }
            RowShape::Bytes100 => {
                let mut row = row_100(self.count, self.keys() - 1);
                row.time_ms = REQUEST_MS;
                RestartRow::Bytes100(row)
            }
        }
    }
}

fn row_100(number: usize, key: usize) -> Row100 {
    let draw = KeyedRandom::at(&[71, u64::try_from(number).expect("a count fits")]);
    let mut row = Row100 {
        key: *b"k000000000",
        time_ms: START_MS + i64::try_from(number).expect("a count fits"),
        doubles: [draw.int(0, 1_000_000) as f64 / 4.0, draw.int(1, 1_000) as f64],
        ints: [draw.int(2, 1_000_000), draw.int(3, 100)],
        text: [b' '; TEXT_BYTES],
    };
    debug_assert!(key < 1_000_000_000, "a key has nine digits");
    let mut rest = key;
    for digit in row.key[1..].iter_mut().rev() {
        *digit += u8::try_from(rest % 10).expect("it is a digit");
        rest /= 10;
    }
    for (column, letter) in (4..).zip(&mut row.text) {
        *letter = LETTERS[draw.index(column, LETTERS.len())];
    }
    row
}

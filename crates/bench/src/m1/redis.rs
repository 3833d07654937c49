//! Redis under M1: a sorted set for each index and key, scored by event time.
//!
//! A member is the packed row, with a number before it, since a set holds a member once. The client
//! sends one round trip: a range for each window, the newest member for each join. Either it
//! fetches the rows and aggregates them itself, or a script aggregates them on the server
//! (`redis_lua`). Floats are added one by one, as a user's code would.

use std::hint::black_box;

use lockstep_row::{Arena, Datum};

use super::{
    Data, M1Shape,
    baseline::{
        HAS_D4, HAS_I3, HAS_S11, HAS_S12, SideRow, Texts, present, scalars, side_scalars, wide,
    },
    data::{M1Row, REACH_MS, TableName},
    query::{AGGREGATES, OWN_SCALARS},
};
use crate::{
    answer::AnswerValue,
    error::Result,
    peer::redis::{Redis, Reply, Resp},
    system::{Client, System},
};

/// Where the parts of a packed row begin.
const FLAGS: usize = 8;
const TEXTS: usize = 9;
const DOUBLES: usize = TEXTS + 15 * 10;
const TIMES: usize = DOUBLES + 5 * 8;
const INTS: usize = TIMES + 5 * 8;

/// Bytes of commands that are sent at once while the server is filled.
const BATCH_BYTES: usize = 1 << 20;

/// Where windows are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldLocation {
    /// In the client.
    Client,
    /// In a script on the server.
    Script,
}

/// A filled server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RedisRows<'a> {
    /// The server.
    pub(crate) redis: &'a Redis,
    /// The parameters of its rows.
    pub(crate) shape: M1Shape,
    /// The request rows.
    pub(crate) requests: &'a [M1Row],
    /// Memory, by the server's own account.
    pub(crate) bytes_per_row: f64,
    /// Where windows are aggregated.
    pub(crate) fold: FoldLocation,
}

impl RedisRows<'_> {
    /// Adds a row to the main table's sets, in one round trip.
    pub(crate) fn insert(&self, resp: &mut Resp, row: &M1Row, number: u64) -> Result<()> {
        let member = pack(row, number);
        let score = row.times_ms[0].to_string();
        for column in 0..self.shape.windows {
            let key = key(TableName::Main, column, row);
            resp.command(&[b"ZADD", &key, score.as_bytes(), &member]);
        }
        resp.send()?;
        resp.skip(self.shape.windows)
    }
}

/// Fills a server and returns how much its memory grew, in bytes.
pub(crate) fn load(redis: &Redis, data: Data) -> Result<u64> {
    let before = redis.used_bytes()?;
    let mut resp = redis.connect()?;
    let mut number = 0_u64;
    for table in data.tables() {
        let mut commands = 0;
        for row in data.rows(table) {
            let member = pack(&row, number);
            number += 1;
            for column in data.index_columns(table) {
                let key = key(table, column, &row);
                let score = row.times_ms[0].to_string();
                resp.command(&[b"ZADD", &key, score.as_bytes(), &member]);
                commands += 1;
            }
            if resp.pending() > BATCH_BYTES {
                resp.send()?;
                resp.skip(std::mem::take(&mut commands))?;
            }
        }
        resp.send()?;
        resp.skip(commands)?;
    }
    Ok(redis.used_bytes()?.saturating_sub(before))
}

fn key(table: TableName, column: usize, row: &M1Row) -> Vec<u8> {
    let mut key = format!("{}.{column}:", table.name()).into_bytes();
    key.extend(row.texts[column].expect("keys are never NULL"));
    key
}

fn pack(row: &M1Row, number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(present(row));
    row.texts.iter().for_each(|text| bytes.extend(text.unwrap_or([b' '; 10])));
    row.doubles.iter().for_each(|value| bytes.extend(value.unwrap_or(0.0).to_le_bytes()));
    row.times_ms.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    row.ints.iter().for_each(|value| bytes.extend(value.unwrap_or(0).to_le_bytes()));
    bytes
}

fn text_at(packed: &[u8], column: usize) -> [u8; 10] {
    let at = TEXTS + 10 * column;
    packed[at..at + 10].try_into().expect("ten bytes")
}

fn eight_at(packed: &[u8], start: usize, column: usize) -> [u8; 8] {
    let at = start + 8 * column;
    packed[at..at + 8].try_into().expect("eight bytes")
}

fn side_row(packed: &[u8]) -> SideRow {
    SideRow {
        s1: text_at(packed, 1),
        s2: text_at(packed, 2),
        s3: text_at(packed, 3),
        t1_ms: i64::from_le_bytes(eight_at(packed, TIMES, 1)),
        i1: i64::from_le_bytes(eight_at(packed, INTS, 1)),
        i2: i64::from_le_bytes(eight_at(packed, INTS, 2)),
        d0: f64::from_le_bytes(eight_at(packed, DOUBLES, 0)),
    }
}

/// The running totals of a window.
#[derive(Debug, Clone, Default)]
struct WindowTotals {
    distinct: i64,
    sum: i64,
    s11: i64,
    d4: i64,
    d4_sum: f64,
    s12: i64,
    i3: i64,
}

impl WindowTotals {
    fn add(&mut self, flags: u8, int: i64, double: f64) {
        self.sum += int;
        self.s11 += i64::from(flags & HAS_S11 != 0);
        self.s12 += i64::from(flags & HAS_S12 != 0);
        self.i3 += i64::from(flags & HAS_I3 != 0);
        if flags & HAS_D4 != 0 {
            self.d4 += 1;
            self.d4_sum += double;
        }
    }

    fn answer(&self, own: u8) -> [Datum<'static>; AGGREGATES] {
        let newest_then =
            |bit: u8, count: i64| if own & bit == 0 { Datum::Null } else { Datum::BigInt(count) };
        let mean = || Datum::Double(self.d4_sum / self.d4 as f64);
        [
            Datum::BigInt(self.distinct),
            Datum::BigInt(self.sum),
            Datum::BigInt(self.s11),
            if self.d4 == 0 { Datum::Null } else { mean() },
            newest_then(HAS_S12, self.s12),
            newest_then(HAS_I3, self.i3),
        ]
    }
}

impl System for RedisRows<'_> {
    fn name(&self) -> &'static str {
        match self.fold {
            FoldLocation::Client => "redis",
            FoldLocation::Script => "redis_lua",
        }
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let mut resp = self.redis.connect()?;
        let mut script = Vec::new();
        if self.fold == FoldLocation::Script {
            resp.command(&[b"SCRIPT", b"LOAD", lua().as_bytes()]);
            resp.send()?;
            let place = resp.bulk()?;
            script = resp.bytes(place).to_vec();
        }
        let texts = Texts::for_values(self.shape.window_rows);
        let arena = Arena::new();
        Ok(Box::new(RedisWindowClient {
            rows: self,
            resp,
            script,
            texts,
            arena,
            places: Vec::new(),
        }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}

struct RedisWindowClient<'a> {
    rows: &'a RedisRows<'a>,
    resp: Resp,
    /// The digest of the script.
    script: Vec<u8>,
    texts: Texts,
    arena: Arena,
    /// The byte ranges of a reply's members.
    places: Vec<std::ops::Range<usize>>,
}

impl RedisWindowClient<'_> {
    fn windows_and_sides(
        &mut self,
        row: &M1Row,
    ) -> Result<(Vec<WindowTotals>, Vec<Option<SideRow>>)> {
        let now = row.times_ms[0].to_string();
        let since = (row.times_ms[0] - REACH_MS).to_string();
        let limit = (self.rows.shape.window_rows - 1).to_string();
        let windows = (0..self.rows.shape.windows).map(|column| key(TableName::Main, column, row));
        let sides = (0..self.rows.shape.joins).map(|join| key(TableName::Side(join), 0, row));
        if self.rows.fold == FoldLocation::Script {
            let counts = [self.rows.shape.windows, self.rows.shape.joins].map(|n| n.to_string());
            let keys: Vec<Vec<u8>> = windows.chain(sides).collect();
            let count = keys.len().to_string();
            let text = row.texts[13].expect("it has no NULLs");
            let mut parts: Vec<&[u8]> = vec![b"EVALSHA", &self.script, count.as_bytes()];
            parts.extend(keys.iter().map(Vec::as_slice));
            parts.extend([since.as_bytes(), now.as_bytes(), limit.as_bytes()]);
            parts.extend([counts[0].as_bytes(), counts[1].as_bytes(), &text]);
            self.resp.command(&parts);
            self.resp.send()?;
            return self.scripted();
        }
        for key in windows {
            let (now, since, limit) = (now.as_bytes(), since.as_bytes(), limit.as_bytes());
            self.resp.command(&[b"ZREVRANGEBYSCORE", &key, now, since, b"LIMIT", b"0", limit]);
        }
        for key in sides {
            self.resp.command(&[b"ZREVRANGE", &key, b"0", b"0"]);
        }
        self.resp.send()?;
        let windows = (0..self.rows.shape.windows).map(|_| self.fold(row));
        let windows = windows.collect::<Result<_>>()?;
        let sides = (0..self.rows.shape.joins).map(|_| self.side());
        Ok((windows, sides.collect::<Result<_>>()?))
    }

    /// Aggregates the rows of the next reply.
    fn fold(&mut self, row: &M1Row) -> Result<WindowTotals> {
        let count = self.resp.array()?;
        self.places.clear();
        for _ in 0..count {
            self.places.push(self.resp.bulk()?);
        }
        let mut folded = WindowTotals::default();
        self.texts.clear();
        self.texts.insert(wide(row.texts[13].expect("it has no NULLs")));
        for place in &self.places {
            let packed = self.resp.bytes(place.clone());
            self.texts.insert(wide(text_at(packed, 13)));
            let int = i64::from_le_bytes(eight_at(packed, INTS, 1));
            folded.add(packed[FLAGS], int, f64::from_le_bytes(eight_at(packed, DOUBLES, 4)));
        }
        folded.distinct = i64::try_from(self.texts.count()).expect("a count fits");
        Ok(folded)
    }

    fn side(&mut self) -> Result<Option<SideRow>> {
        match self.resp.array()? {
            0 => Ok(None),
            _ => {
                let place = self.resp.bulk()?;
                Ok(Some(side_row(self.resp.bytes(place))))
            }
        }
    }

    /// Reads the reply of the script: seven numbers for each window, and a member for each join.
    fn scripted(&mut self) -> Result<(Vec<WindowTotals>, Vec<Option<SideRow>>)> {
        self.resp.array()?;
        let mut windows = Vec::new();
        for _ in 0..self.rows.shape.windows {
            let (distinct, sum) = (self.resp.int()?, self.resp.int()?);
            let (s11, d4, s12, i3) =
                (self.resp.int()?, self.resp.int()?, self.resp.int()?, self.resp.int()?);
            let place = self.resp.bulk()?;
            let text = String::from_utf8_lossy(self.resp.bytes(place));
            let d4_sum = text.parse().unwrap_or(f64::NAN);
            windows.push(WindowTotals { distinct, sum, s11, d4, d4_sum, s12, i3 });
        }
        let mut sides = Vec::new();
        for _ in 0..self.rows.shape.joins {
            sides.push(match self.resp.reply()? {
                Reply::Bulk(place) => Some(side_row(self.resp.bytes(place))),
                _ => None,
            });
        }
        Ok((windows, sides))
    }

    /// Sends a request and passes the whole answer to `take`.
    fn ask<T>(&mut self, request: usize, take: impl FnOnce(&[Datum<'_>]) -> T) -> Result<T> {
        let row = &self.rows.requests[request];
        let (mut windows, sides) = self.windows_and_sides(row)?;
        self.arena.reset();
        let mut answer = Vec::with_capacity(OWN_SCALARS + AGGREGATES * windows.len() + 8);
        answer.extend(scalars(row, &self.arena));
        let own = present(row);
        for folded in &mut windows {
            let int = row.ints[1].unwrap_or_default();
            folded.add(own, int, row.doubles[4].unwrap_or_default());
            answer.extend(folded.answer(own));
        }
        for (join, side) in sides.iter().enumerate() {
            answer
                .extend(side_scalars(join, side.as_ref(), row, &self.arena).into_iter().flatten());
        }
        Ok(take(&answer))
    }
}

impl Client for RedisWindowClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.ask(request, |answer| {
            black_box(answer);
        })
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.ask(request, |answer| answer.iter().map(AnswerValue::from).collect())
    }
}

/// Returns the script. `ARGV`: the least and the greatest event time, the limit, how many of the
/// keys are windows, how many joins, and the request's own text.
fn lua() -> String {
    let text = TEXTS + 10 * 13 + 1;
    let (text_end, flags) = (text + 9, FLAGS + 1);
    let (int, double) = (INTS + 8 + 1, DOUBLES + 8 * 4 + 1);
    format!(
        "local out, n = {{}}, tonumber(ARGV[4])
         for w = 1, n do
           local rows = redis.call('ZREVRANGEBYSCORE', KEYS[w], ARGV[2], ARGV[1], 'LIMIT', 0, ARGV[3])
           local seen, distinct, sum, s11, d4, s12, i3, total = {{[ARGV[6]] = true}}, 1, 0, 0, 0, 0, 0, 0
           for i = 1, #rows do
             local row = rows[i]
             local text = string.sub(row, {text}, {text_end})
             if not seen[text] then seen[text] = true; distinct = distinct + 1 end
             sum = sum + struct.unpack('<i8', row, {int})
             local flags = string.byte(row, {flags})
             if flags % 2 >= 1 then s11 = s11 + 1 end
             if flags % 4 >= 2 then s12 = s12 + 1 end
             if flags % 8 >= 4 then i3 = i3 + 1 end
             if flags >= 8 then d4 = d4 + 1; total = total + struct.unpack('<d', row, {double}) end
           end
           local o = (w - 1) * 7
           out[o + 1], out[o + 2], out[o + 3], out[o + 4] = distinct, sum, s11, d4
           out[o + 5], out[o + 6], out[o + 7] = s12, i3, string.format('%.17g', total)
         end
         for j = 1, tonumber(ARGV[5]) do
           out[n * 7 + j] = redis.call('ZREVRANGE', KEYS[n + j], 0, 0)[1] or false
         end
         return out"
    )
}

//! Redis under M8, for sums: what a careful user keeps by hand.
//!
//! For each key a hash has the sum and the count of each hour, and a sorted set has the rows. A
//! request reads the whole hours and the rows at both ends in one round trip, and the client adds.

use std::{collections::BTreeMap, hint::black_box};

use super::data::{HOUR_MS, KeySet, LongRequest};
use crate::{
    answer::AnswerValue,
    error::{Error, Result},
    peer::redis::{Redis, Reply, Resp},
    system::{Client, System},
};

/// Bytes of commands after which they are sent.
const SEND_BYTES: usize = 1 << 20;

/// Fills the server.
pub(super) fn load_redis(redis: &Redis, sets: &[KeySet]) -> Result<()> {
    let mut resp = redis.connect()?;
    let mut sent = 0;
    let mut send = |resp: &mut Resp, is_last: bool| -> Result<()> {
        sent += 1;
        if is_last || resp.pending() > SEND_BYTES {
            resp.send()?;
            resp.skip(std::mem::take(&mut sent))?;
        }
        Ok(())
    };
    for set in sets {
        for key in 0..set.keys {
            let name = set.key(key);
            let mut hours: BTreeMap<i64, (f64, u64)> = BTreeMap::new();
            for number in 0..set.key_rows() {
                let row = set.row(key, number);
                let hour = hours.entry(row.time_ms.div_euclid(HOUR_MS)).or_default();
                *hour = (hour.0 + row.amount, hour.1 + 1);
                let mut member = row.amount.to_le_bytes().to_vec();
                member.extend(u64::try_from(number).expect("a count fits").to_le_bytes());
                let score = row.time_ms.to_string();
                resp.command(&[b"ZADD", name.as_bytes(), score.as_bytes(), &member]);
                send(&mut resp, false)?;
            }
            let of_hours = hours_key(&name);
            for (hour, (sum, count)) in hours {
                let value = [sum.to_le_bytes(), count.to_le_bytes()].concat();
                let field = hour.to_string();
                resp.command(&[b"HSET", of_hours.as_bytes(), field.as_bytes(), &value]);
                send(&mut resp, false)?;
            }
        }
    }
    resp.command(&[b"PING"]);
    send(&mut resp, true)
}

fn hours_key(key: &str) -> String {
    format!("{key}:hours")
}

/// A filled server and requests.
#[derive(Debug)]
pub(super) struct RedisHours<'a> {
    pub(super) redis: &'a Redis,
    pub(super) requests: &'a [LongRequest],
}

impl System for RedisHours<'_> {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(HourClient { requests: self.requests, resp: self.redis.connect()? }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        None
    }
}

struct HourClient<'a> {
    requests: &'a [LongRequest],
    resp: Resp,
}

/// A sum and a count.
#[derive(Debug, Clone, Copy, Default)]
struct HourTotal {
    sum: f64,
    count: u64,
}

impl HourClient<'_> {
    fn total(&mut self, request: usize) -> Result<HourTotal> {
        let request = &self.requests[request];
        let (since_ms, now_ms) = (request.since_ms(), request.time_ms);
        let first = since_ms.div_euclid(HOUR_MS) + i64::from(since_ms.rem_euclid(HOUR_MS) > 0);
        let end = (now_ms + 1).div_euclid(HOUR_MS);
        let key = request.key.as_bytes();
        let mut rows = |from_ms: i64, to_ms: i64| {
            let (from, to) = (from_ms.to_string(), to_ms.to_string());
            self.resp.command(&[b"ZRANGEBYSCORE", key, from.as_bytes(), to.as_bytes()]);
        };
        rows(since_ms, first * HOUR_MS - 1);
        rows(end * HOUR_MS, now_ms);
        let of_hours = hours_key(&request.key);
        let fields: Vec<String> = (first..end).map(|hour| hour.to_string()).collect();
        let mut command: Vec<&[u8]> = vec![b"HMGET", of_hours.as_bytes()];
        command.extend(fields.iter().map(String::as_bytes));
        self.resp.command(&command);
        self.resp.send()?;
        let mut total = HourTotal::default();
        for _ in 0..2 {
            for _ in 0..self.resp.array()? {
                let member = self.resp.bulk()?;
                total.sum += f64::from_le_bytes(eight(self.resp.bytes(member), 0)?);
                total.count += 1;
            }
        }
        for _ in 0..self.resp.array()? {
            if let Reply::Bulk(place) = self.resp.reply()? {
                let value = self.resp.bytes(place);
                total.sum += f64::from_le_bytes(eight(value, 0)?);
                total.count += u64::from_le_bytes(eight(value, 8)?);
            }
        }
        Ok(total)
    }
}

fn eight(bytes: &[u8], start: usize) -> Result<[u8; 8]> {
    let found = bytes.get(start..start + 8).and_then(|bytes| bytes.try_into().ok());
    found.ok_or_else(|| Error::peer("redis", "a value is shorter than its written form"))
}

impl Client for HourClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        black_box(self.total(request)?);
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        let HourTotal { sum, count } = self.total(request)?;
        let mean = AnswerValue::Double(sum / count as f64);
        let count = AnswerValue::Int(i64::try_from(count).expect("a count fits"));
        Ok(vec![AnswerValue::Double(sum), mean, count])
    }
}

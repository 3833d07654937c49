//! Redis under M3: a sorted set for each key. The client adds the row and reads the longest
//! window in one round trip, and counts.

use std::{
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering},
};

use lockstep_row::{Arena, Datum};

use super::{Event, M3Shape, baseline::CountedValues};
use crate::{
    answer::AnswerValue,
    error::Result,
    peer::redis::{Redis, Resp},
    system::{Client, System},
};

/// Bytes of a member: a number, the event time, and eight bytes for each column.
const HEAD: usize = 16;

/// A filled server.
#[derive(Debug)]
pub(crate) struct RedisEvents<'a> {
    redis: &'a Redis,
    shape: M3Shape,
    next: AtomicUsize,
    bytes_per_row: f64,
}

impl<'a> RedisEvents<'a> {
    /// Fills the server.
    pub(crate) fn load(redis: &'a Redis, shape: M3Shape) -> Result<Self> {
        let before = redis.used_bytes()?;
        let mut resp = redis.connect()?;
        let mut commands = 0;
        for (number, event) in shape.stored().enumerate() {
            add(&mut resp, &event, number, shape);
            commands += 1;
            if commands == 10_000 {
                resp.send()?;
                resp.skip(std::mem::take(&mut commands))?;
            }
        }
        resp.send()?;
        resp.skip(commands)?;
        let rows = shape.keys * shape.rows_per_key;
        let grown = redis.used_bytes()?.saturating_sub(before);
        let bytes_per_row = grown as f64 / rows as f64;
        Ok(Self { redis, shape, next: AtomicUsize::new(0), bytes_per_row })
    }
}

fn add(resp: &mut Resp, event: &Event, number: usize, shape: M3Shape) {
    let number = u64::try_from(number).expect("a count fits");
    let mut member = number.to_le_bytes().to_vec();
    member.extend(event.time_ms.to_le_bytes());
    event.values[..shape.columns].iter().for_each(|value| member.extend(value));
    let score = event.time_ms.to_string();
    resp.command(&[b"ZADD", event.key_text().as_bytes(), score.as_bytes(), &member]);
}

impl System for RedisEvents<'_> {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(RedisEventClient {
            system: self,
            resp: self.redis.connect()?,
            arena: Arena::new(),
            counts: CountedValues::new(),
            places: Vec::new(),
        }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}

struct RedisEventClient<'a> {
    system: &'a RedisEvents<'a>,
    resp: Resp,
    arena: Arena,
    counts: CountedValues,
    places: Vec<std::ops::Range<usize>>,
}

impl RedisEventClient<'_> {
    fn operate<T>(&mut self, take: impl FnOnce(&[Datum<'_>]) -> T) -> Result<T> {
        let shape = self.system.shape;
        // Relaxed: only uniqueness matters.
        let operation = self.system.next.fetch_add(1, Ordering::Relaxed);
        let event = shape.event(operation);
        let key = event.key_text();
        add(&mut self.resp, &event, shape.keys * shape.rows_per_key + operation, shape);
        let since = M3Shape::since_ms(shape.windows - 1, &event).to_string();
        let now = event.time_ms.to_string();
        let range: [&[u8]; 4] =
            [b"ZREVRANGEBYSCORE", key.as_bytes(), now.as_bytes(), since.as_bytes()];
        self.resp.command(&range);
        self.resp.send()?;
        self.resp.int()?;
        self.places.clear();
        for _ in 0..self.resp.array()? {
            self.places.push(self.resp.bulk()?);
        }
        self.arena.reset();
        let answer = self.arena.alloc_slice_fill_default(1 + shape.windows * shape.columns);
        answer[0] = Datum::String(&key);
        let eight = |place: &std::ops::Range<usize>, start: usize| -> [u8; 8] {
            let bytes = self.resp.bytes(place.clone());
            bytes[start..start + 8].try_into().expect("eight bytes")
        };
        for column in 0..shape.columns {
            self.counts.clear();
            let mut rows = self.places.iter().peekable();
            for window in 0..shape.windows {
                let since_ms = M3Shape::since_ms(window, &event);
                let is_inside = |place: &&std::ops::Range<usize>| {
                    i64::from_le_bytes(eight(place, 8)) >= since_ms
                };
                while let Some(place) = rows.next_if(is_inside) {
                    self.counts.add(u64::from_be_bytes(eight(place, HEAD + 8 * column)));
                }
                let text = self.counts.top(&self.arena);
                answer[1 + window * shape.columns + column] = Datum::String(text);
            }
        }
        Ok(take(answer))
    }
}

impl Client for RedisEventClient<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.operate(|answer| {
            black_box(answer);
        })
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        self.operate(|answer| answer.iter().map(AnswerValue::from).collect())
    }
}

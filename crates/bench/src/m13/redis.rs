//! Redis under M13: a member in the sorted set of the key, with every command in the log (AOF). The
//! commands of an operation go out in one write.

use super::{SHAPE, WriteTarget, WrittenRows};
use crate::{
    answer::AnswerValue,
    error::Result,
    m6::{OwnPuts, packed_put},
    peer::redis::{Redis, RedisPersistence, Resp},
    system::Client,
};

/// A server with a log.
#[derive(Debug)]
pub(super) struct RedisWrites {
    redis: Redis,
    written: WrittenRows,
}

impl RedisWrites {
    /// Starts the server; it needs no table.
    pub(super) fn create(persistence: RedisPersistence) -> Result<Self> {
        Ok(Self { redis: Redis::start_with(persistence)?, written: WrittenRows::default() })
    }
}

impl WriteTarget for RedisWrites {
    fn writer(&self, batch: usize) -> Result<Box<dyn Client + '_>> {
        assert!(batch > 0, "an operation has rows");
        let (resp, own) = (self.redis.connect()?, self.written.numbers.begin(SHAPE));
        Ok(Box::new(LogWriter { system: self, resp, own, batch }))
    }

    fn written(&self) -> &WrittenRows {
        &self.written
    }

    /// Counts the members of all sets.
    fn stored(&self) -> Result<Option<u64>> {
        let mut resp = self.redis.connect()?;
        resp.command(&[b"KEYS", b"*"]);
        resp.send()?;
        let count = resp.array()?;
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let key = resp.bulk()?;
            keys.push(resp.bytes(key).to_vec());
        }
        keys.iter().for_each(|key| resp.command(&[b"ZCARD", key]));
        resp.send()?;
        let mut members = 0;
        for _ in keys {
            members += u64::try_from(resp.int()?).unwrap_or_default();
        }
        Ok(Some(members))
    }
}

struct LogWriter<'a> {
    system: &'a RedisWrites,
    resp: Resp,
    own: OwnPuts<'a>,
    batch: usize,
}

impl Client for LogWriter<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        for _ in 0..self.batch {
            let (number, put) = self.own.take();
            let key = format!("0:{}", put.key(0));
            let score = put.time_ms.to_string();
            let member = packed_put(number, &put);
            self.resp.command(&[b"ZADD", key.as_bytes(), score.as_bytes(), &member]);
        }
        self.resp.send()?;
        self.resp.skip(self.batch)?;
        self.system.written.acknowledge(self.batch);
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.serve(request).map(|()| Vec::new())
    }
}

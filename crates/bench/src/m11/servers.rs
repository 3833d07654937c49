//! Redis and PostgreSQL under M11: servers that are killed and started again on their data.

use std::path::Path;

use lockstep_host::{Clock, SystemClock};
use lockstep_row::Datum;

use super::{FirstAnswer, RestartTarget, duckdb, rows::RestartRows};
use crate::{
    error::{Error, Result},
    m1::write_line,
    peer::{
        SqlPeer as _,
        postgres::{Postgres, PostgresDurability},
        redis::{Redis, RedisPersistence, Resp},
    },
};

/// Bytes of commands that are sent at once while Redis is filled.
const SENT_BYTES: usize = 1 << 20;
/// Rows of one message while PostgreSQL is filled.
const MESSAGE_ROWS: usize = 1_000;

/// A server of Redis, with what SAVE wrote or with a log of all commands.
#[derive(Debug)]
pub(super) struct RedisRestart {
    redis: Redis,
    rows: RestartRows,
    persistence: RedisPersistence,
}

impl RedisRestart {
    /// Starts an empty server.
    pub(super) fn create(rows: RestartRows, persistence: RedisPersistence) -> Result<Self> {
        Ok(Self { redis: Redis::start_with(persistence)?, rows, persistence })
    }
}

impl RestartTarget for RedisRestart {
    fn load(&mut self) -> Result<()> {
        let rows = self.rows;
        let mut resp = self.redis.connect()?;
        let mut commands = 0;
        for (number, row) in (0_u64..).zip(rows.rows()) {
            let datums = row.datums();
            let member = packed(number, &datums);
            let score = datums[rows.time_column()].as_i64().unwrap_or_default().to_string();
            for column in rows.index_columns() {
                let key = set_key(column, &datums[column]);
                resp.command(&[b"ZADD", &key, score.as_bytes(), &member]);
                commands += 1;
            }
            if resp.pending() > SENT_BYTES {
                resp.send()?;
                resp.skip(std::mem::take(&mut commands))?;
            }
        }
        resp.send()?;
        resp.skip(commands)?;
        if self.persistence == RedisPersistence::Snapshots {
            resp.command(&[b"SAVE"]);
            resp.send()?;
            resp.skip(1)?;
        }
        self.redis.kill()
    }

    fn restart(&mut self) -> Result<FirstAnswer> {
        let request = self.rows.request();
        let key = set_key(0, &request.datums()[0]);
        let clock = SystemClock::new();
        let rows_of_a_key = self.redis.restart(|resp| cardinality(resp, &key))?;
        let ms = clock.monotonic_ns() as f64 / 1e6;
        self.redis.kill()?;
        Ok(FirstAnswer { ms, open_ms: None, loaded_ms: None, rows_of_a_key })
    }

    fn folder(&self) -> &Path {
        self.redis.folder()
    }

    fn is_changed_by_a_restart(&self) -> bool {
        false
    }
}

fn cardinality(resp: &mut Resp, key: &[u8]) -> Result<u64> {
    resp.command(&[b"ZCARD", key]);
    resp.send()?;
    let count = resp.int()?;
    u64::try_from(count).map_err(|_negative| Error::peer("redis", format!("{count} members")))
}

/// Returns the key of the sorted set of an index.
fn set_key(column: usize, value: &Datum<'_>) -> Vec<u8> {
    let mut key = format!("{column}:").into_bytes();
    debug_assert!(matches!(value, Datum::String(_)), "keys are texts");
    if let Datum::String(text) = value {
        key.extend(text.as_bytes());
    }
    key
}

/// Packs a row and its number, which makes members of a set distinct.
fn packed(number: u64, datums: &[Datum<'_>]) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    for datum in datums {
        match datum {
            Datum::String(text) => bytes.extend(text.as_bytes()),
            Datum::Double(value) => bytes.extend(value.to_le_bytes()),
            value => bytes.extend(value.as_i64().unwrap_or_default().to_le_bytes()),
        }
    }
    bytes
}

/// A server of PostgreSQL that writes no checkpoint: all rows are recovered from its log.
#[derive(Debug)]
pub(super) struct PostgresRestart {
    /// The server of the last load.
    postgres: Postgres,
    rows: RestartRows,
}

impl PostgresRestart {
    /// Starts an empty server.
    pub(super) fn create(rows: RestartRows) -> Result<Self> {
        let postgres = Postgres::start_durable(PostgresDurability::WithoutCheckpoints)?;
        Ok(Self { postgres, rows })
    }
}

impl RestartTarget for PostgresRestart {
    fn load(&mut self) -> Result<()> {
        let rows = self.rows;
        let mut connection = self.postgres.connect()?;
        connection.execute(&format!("DROP TABLE IF EXISTS {}", rows.table()))?;
        connection.create_table(rows.table(), &rows.columns(), rows.count)?;
        for column in rows.index_columns() {
            let (key, time) = rows.index_names(column);
            connection.create_time_index(rows.table(), &key, time, &[])?;
        }
        // What was there before is not recovered again.
        connection.execute("CHECKPOINT")?;
        let mut left = rows.rows();
        connection.copy_in(rows.table(), "", &mut |lines: &mut String| {
            let mut count = 0;
            for row in left.by_ref().take(MESSAGE_ROWS) {
                write_line(&row.datums(), lines);
                count += 1;
            }
            count
        })?;
        drop(connection);
        self.postgres.crash()
    }

    fn restart(&mut self) -> Result<FirstAnswer> {
        let rows = self.rows;
        let clock = SystemClock::new();
        let rows_of_a_key = self.postgres.restart(|connection| duckdb::count(connection, rows))?;
        let ms = clock.monotonic_ns() as f64 / 1e6;
        Ok(FirstAnswer { ms, open_ms: None, loaded_ms: None, rows_of_a_key })
    }

    fn folder(&self) -> &Path {
        self.postgres.folder()
    }

    fn is_changed_by_a_restart(&self) -> bool {
        true
    }
}

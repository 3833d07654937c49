//! M6 for the peers: a prepared INSERT of one row; for Redis a member in each index's sorted set.

use super::{M6Shape, Numbers, OwnPuts, Put};
use crate::{
    answer::AnswerValue,
    error::Result,
    peer::{
        SqlConnection, SqlPeer,
        redis::{Redis, Resp},
    },
    statement::{PeerStatement, PeerType, StatementParameter},
    system::{Client, System},
};

/// Names and types of the columns.
pub(crate) const M6_COLUMNS: [(&str, PeerType); 8] = [
    ("k0", PeerType::Text(8)),
    ("k1", PeerType::Text(8)),
    ("k2", PeerType::Text(8)),
    ("ts", PeerType::Time),
    ("d0", PeerType::Double),
    ("d1", PeerType::Double),
    ("i0", PeerType::Int),
    ("i1", PeerType::Int),
];

/// An upper limit of the rows that the fastest peer inserts in all loops of a run.
const ROWS_MAX: usize = 5_000_000;

/// A peer with an empty table.
pub(crate) struct SqlPuts<'a> {
    peer: &'a dyn SqlPeer,
    shape: M6Shape,
    insert: PeerStatement,
    count: PeerStatement,
    numbers: Numbers,
}

impl<'a> SqlPuts<'a> {
    /// Creates the table and its indexes.
    pub(crate) fn new(peer: &'a dyn SqlPeer, shape: M6Shape) -> Result<Self> {
        let mut connection = peer.connect()?;
        let columns = M6_COLUMNS.map(|(name, kind)| (name.to_owned(), kind));
        connection.create_table("puts", &columns, ROWS_MAX)?;
        for index in 0..shape.indexes {
            connection.create_time_index("puts", &format!("k{index}"), "ts", &[])?;
        }
        let parameters = columns.map(|(name, kind)| StatementParameter { name, kind });
        let dialect = connection.dialect();
        let insert = "INSERT INTO puts VALUES ({k0}, {k1}, {k2}, {ts}, {d0}, {d1}, {i0}, {i1})";
        Ok(Self {
            peer,
            shape,
            insert: dialect.render(insert, &parameters),
            count: dialect.render("SELECT count(*) FROM puts WHERE k0 = {k0}", &parameters),
            numbers: Numbers::default(),
        })
    }
}

impl System for SqlPuts<'_> {
    fn name(&self) -> &'static str {
        self.peer.name()
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let mut connection = self.peer.connect()?;
        let insert = connection.prepare(&self.insert)?;
        let count = connection.prepare(&self.count)?;
        let own = self.numbers.begin(self.shape);
        Ok(Box::new(SqlWriter { system: self, connection, insert, count, own }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        let mut connection = self.peer.connect().ok()?;
        let bytes = connection.table_bytes(&["puts".to_owned()]).ok()??;
        let rows = connection.execute("SELECT count(*) FROM puts").ok()?;
        match rows.first()?.first()? {
            AnswerValue::Int(rows) if *rows > 0 => Some(bytes as f64 / *rows as f64),
            _ => None,
        }
    }
}

struct SqlWriter<'a> {
    system: &'a SqlPuts<'a>,
    connection: Box<dyn SqlConnection + 'a>,
    insert: usize,
    count: usize,
    own: OwnPuts<'a>,
}

impl SqlWriter<'_> {
    fn put(&mut self) -> Result<Vec<AnswerValue>> {
        let (_, put) = self.own.take();
        let values: Vec<AnswerValue> = put.datums().iter().map(AnswerValue::from).collect();
        self.connection.run(self.insert, &mut self.system.insert.values(&values))?;
        Ok(values)
    }
}

impl Client for SqlWriter<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.put().map(drop)
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        let values = self.put()?;
        let rows = self.connection.run(self.count, &mut self.system.count.values(&values))?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }
}

/// A Redis server.
#[derive(Debug)]
pub(crate) struct RedisPuts<'a> {
    redis: &'a Redis,
    shape: M6Shape,
    numbers: Numbers,
}

impl<'a> RedisPuts<'a> {
    /// Creates the system; Redis needs no table.
    pub(crate) fn new(redis: &'a Redis, shape: M6Shape) -> Self {
        Self { redis, shape, numbers: Numbers::default() }
    }
}

impl System for RedisPuts<'_> {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let (resp, own) = (self.redis.connect()?, self.numbers.begin(self.shape));
        Ok(Box::new(RedisWriter { system: self, resp, own }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        None
    }
}

struct RedisWriter<'a> {
    system: &'a RedisPuts<'a>,
    resp: Resp,
    own: OwnPuts<'a>,
}

impl RedisWriter<'_> {
    fn put(&mut self) -> Result<Put> {
        let (number, put) = self.own.take();
        let member = packed_put(number, &put);
        let score = put.time_ms.to_string();
        for index in 0..self.system.shape.indexes {
            let key = key(&put, index);
            self.resp.command(&[b"ZADD", key.as_bytes(), score.as_bytes(), &member]);
        }
        self.resp.send()?;
        self.resp.skip(self.system.shape.indexes)?;
        Ok(put)
    }
}

/// Packs a row and its number, which makes members of a set distinct.
pub(crate) fn packed_put(number: usize, put: &Put) -> Vec<u8> {
    let mut member = u64::try_from(number).expect("a count fits").to_le_bytes().to_vec();
    put.keys.iter().for_each(|key| member.extend(key));
    member.extend(put.time_ms.to_le_bytes());
    put.doubles.iter().for_each(|value| member.extend(value.to_le_bytes()));
    put.ints.iter().for_each(|value| member.extend(value.to_le_bytes()));
    member
}

fn key(put: &Put, index: usize) -> String {
    format!("{index}:{}", put.key(index))
}

impl Client for RedisWriter<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.put().map(drop)
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        let put = self.put()?;
        self.resp.command(&[b"ZCARD", key(&put, 0).as_bytes()]);
        self.resp.send()?;
        Ok(vec![AnswerValue::Int(self.resp.int()?)])
    }
}

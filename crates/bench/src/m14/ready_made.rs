//! Redis with ready-made features: the cheapest thing that a user could do instead.

use super::{
    NetworkSystem,
    connection::{Endpoint, Framing, ListenAddress},
};
use crate::{error::Result, peer::redis::Redis};

/// Stores a text of so many bytes for each request, and returns the requests that read them.
pub(super) fn fill(redis: &Redis, requests: usize, bytes: usize) -> Result<NetworkSystem> {
    assert!(bytes > 0, "features have bytes");
    let mut resp = redis.connect()?;
    let value = vec![b'7'; bytes];
    let mut reads = Vec::with_capacity(requests);
    for request in 0..requests {
        let key = format!("features:{request}");
        resp.command(&[b"SET", key.as_bytes(), &value]);
        resp.send()?;
        resp.skip(1)?;
        reads.push(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes());
    }
    let address = ListenAddress::Unix(redis.folder().join("socket"));
    let endpoint = Endpoint { address, framing: Framing::Resp, setup: Vec::new() };
    Ok(NetworkSystem { name: "redis", endpoint, requests: reads })
}

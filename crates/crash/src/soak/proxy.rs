//! A bug for the soak to find: a proxy that changes a digit of few answers.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// One of so many parts of answers is changed.
const PARTS_PER_CHANGE: u64 = 40;

/// A proxy. It ends with the process.
#[derive(Debug)]
pub struct DigitProxy;

impl DigitProxy {
    /// Starts a proxy before a server; returns its address.
    pub fn start(server: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let parts = Arc::new(AtomicU64::new(0));
        lockstep_host::spawn("proxy", move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A connection that is not passed on ends.
                let _passed = pass(client, server, &parts);
            }
        })?;
        Ok(address)
    }
}

fn pass(client: TcpStream, server: SocketAddr, parts: &Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    lockstep_host::spawn("proxy-sent", move || {
        let _ended = io::copy(&mut from_client, &mut to_server);
        let _ended = to_server.shutdown(Shutdown::Write);
    })?;
    let parts = Arc::clone(parts);
    lockstep_host::spawn("proxy-answers", move || {
        let (mut from_server, mut to_client) = (server, client);
        let mut part = [0; 16_384];
        while let Ok(count @ 1..) = from_server.read(&mut part) {
            // Relaxed: a counter that publishes nothing else.
            if parts.fetch_add(1, Ordering::Relaxed) % PARTS_PER_CHANGE == PARTS_PER_CHANGE - 1 {
                change_digit(&mut part[..count]);
            }
            if to_client.write_all(&part[..count]).is_err() {
                break;
            }
        }
        let _ended = to_client.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

/// Changes the lowest bit of the last digit.
fn change_digit(bytes: &mut [u8]) {
    if let Some(digit) = bytes.iter_mut().rev().find(|byte| byte.is_ascii_digit()) {
        *digit ^= 1;
        debug_assert!(digit.is_ascii_digit(), "'0' and '1' to '8' and '9' differ in that bit");
    }
}

#[cfg(test)]
mod tests {
    use super::change_digit;

    #[test]
    fn one_digit_is_changed() {
        let mut bytes = *b"[12,38]x";
        change_digit(&mut bytes);
        assert_eq!(&bytes, b"[12,39]x");
    }
}

//! A proxy that records what clients send, so that the conversations of real clients can be changed.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use lockstep_host::sync::Mutex;

/// What the clients have sent, one element for each connection.
type SentBytes = Arc<Mutex<Vec<Vec<u8>>>>;

/// A proxy in front of a server. It ends with the process.
#[derive(Debug)]
pub(super) struct RecordingProxy {
    address: SocketAddr,
    sent: SentBytes,
}

impl RecordingProxy {
    /// Starts a proxy on a free port of loopback.
    pub(super) fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let sent = SentBytes::default();
        let kept = Arc::clone(&sent);
        lockstep_host::spawn("recording", move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A connection that is not passed on ends, which its client reports.
                let _passed = pass(client, server, &kept);
            }
        })?;
        Ok(Self { address, sent })
    }

    /// Returns the address of the proxy.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what was sent so far over each connection.
    pub(super) fn conversations(&self) -> Vec<Vec<u8>> {
        self.sent.lock().clone()
    }
}

/// Passes the bytes of a connection on in both directions.
fn pass(client: TcpStream, server: SocketAddr, sent: &SentBytes) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let number = {
        let mut sent = sent.lock();
        sent.push(Vec::new());
        sent.len() - 1
    };
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let sent = Arc::clone(sent);
    lockstep_host::spawn("recording-sent", move || {
        let mut part = [0; 8_192];
        while let Ok(count @ 1..) = from_client.read(&mut part) {
            sent.lock()[number].extend_from_slice(&part[..count]);
            if to_server.write_all(&part[..count]).is_err() {
                break;
            }
        }
        // It may have ended before.
        let _ended = to_server.shutdown(Shutdown::Write);
    })?;
    lockstep_host::spawn("recording-answers", move || {
        let _ended = io::copy(&mut &server, &mut &client);
        let _ended = client.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

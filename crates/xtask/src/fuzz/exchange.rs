//! One conversation with a listener: sends all bytes at once and reads until the server has answered.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// How long nothing is read before the client ends its side: the server waits for more, or works.
pub(super) const QUIET: Duration = Duration::from_millis(25);

/// The same where an answer has to arrive, on a machine that is busy with something else.
pub(super) const PATIENT: Duration = Duration::from_secs(5);

/// A connection that the server does not end for so long after its client has hangs.
const END_MAX: Duration = Duration::from_secs(30);

/// What the server has answered.
#[derive(Debug)]
pub(super) struct ExchangeAnswer {
    pub(super) bytes: Vec<u8>,
    /// Whether the server has ended the connection.
    pub(super) is_ended: bool,
}

/// Sends bytes and reads the answer: until the server ends the connection, `is_answered` says that
/// nothing is missing, or nothing more arrives for `quiet`. Then the client ends its side, and waits for the
/// server's.
pub(super) fn exchange(
    address: SocketAddr,
    bytes: &[u8],
    quiet: Duration,
    is_answered: impl Fn(&[u8]) -> bool,
) -> io::Result<ExchangeAnswer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(END_MAX))?;
    // The server may end the connection before it has read everything.
    let _sent = stream.write_all(bytes);
    stream.set_read_timeout(Some(quiet))?;
    let mut answer = Vec::new();
    let is_ended = read_while(&mut stream, &mut answer, |answer| !is_answered(answer));
    if is_ended {
        return Ok(ExchangeAnswer { bytes: answer, is_ended });
    }
    // It may have been ended meanwhile.
    let _ended = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(END_MAX))?;
    let is_ended = read_while(&mut stream, &mut answer, |_| true);
    Ok(ExchangeAnswer { bytes: answer, is_ended })
}

/// Reads while `goes_on` says so. Returns whether the server has ended the connection.
fn read_while(
    stream: &mut TcpStream,
    answer: &mut Vec<u8>,
    goes_on: impl Fn(&[u8]) -> bool,
) -> bool {
    let mut part = [0; 16_384];
    while goes_on(answer) {
        match stream.read(&mut part) {
            Ok(0) => return true,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
    false
}

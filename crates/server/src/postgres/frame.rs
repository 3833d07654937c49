//! The bytes of a connection: frames in, an output buffer out.
//!
//! A frame is a type of one byte, a length of four bytes that counts itself, and a body. The packets
//! before a session begins have no type. Knows no message.

use std::{io, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A stream to a client, encrypted or not.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> ClientStream for S {}

/// The most bytes that are read while a statement runs, before the client has to wait.
const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;

/// How much output is collected before it is written.
pub(crate) const OUTPUT_BYTES: usize = 64 * 1024;

/// A frame.
#[derive(Debug)]
pub(crate) struct MessageFrame {
    pub(crate) kind: u8,
    pub(crate) body: Bytes,
}

/// Why there is no frame.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The connection has ended.
    Closed,
    /// The length of a frame is beyond the limit, or less than that of the length itself.
    Length(i32),
    /// The frame did not arrive in time.
    TimedOut,
}

impl From<io::Error> for FrameError {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// A connection as frames.
pub(crate) struct FrameStream {
    stream: Box<dyn ClientStream>,
    input: BytesMut,
    /// What is to be written.
    pub(crate) output: Vec<u8>,
}

impl std::fmt::Debug for FrameStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameStream").field("input", &self.input.len()).finish_non_exhaustive()
    }
}

impl FrameStream {
    /// Makes it of a stream.
    pub(crate) fn new(stream: Box<dyn ClientStream>) -> Self {
        Self { stream, input: BytesMut::new(), output: Vec::new() }
    }

    /// Returns the stream; `None` where bytes of it were read already that nobody has taken.
    pub(crate) fn into_stream(self) -> Option<Box<dyn ClientStream>> {
        self.input.is_empty().then_some(self.stream)
    }

    /// Returns the stream and the bytes of it that were read already.
    pub(crate) fn into_parts(self) -> (Box<dyn ClientStream>, Bytes) {
        (self.stream, self.input.freeze())
    }

    /// Reads a frame, whose body has at most `bytes_max` bytes.
    pub(crate) async fn read_frame(&mut self, bytes_max: u64) -> Result<MessageFrame, FrameError> {
        loop {
            if let Some(frame) = self.buffered_frame(bytes_max)? {
                return Ok(frame);
            }
            self.read_more().await?;
        }
    }

    /// Reads a frame that has to arrive in time.
    pub(crate) async fn read_frame_within(
        &mut self,
        bytes_max: u64,
        limit: Duration,
    ) -> Result<MessageFrame, FrameError> {
        let read = tokio::time::timeout(limit, self.read_frame(bytes_max)).await;
        read.map_err(|_elapsed| FrameError::TimedOut)?
    }

    /// Takes a frame of which all bytes have arrived.
    fn buffered_frame(&mut self, bytes_max: u64) -> Result<Option<MessageFrame>, FrameError> {
        let Some(head) = self.input.first_chunk::<5>() else { return Ok(None) };
        let kind = head[0];
        let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let Some(size) = body_size(length, bytes_max) else {
            return Err(FrameError::Length(length));
        };
        if self.input.len() < 5 + size {
            self.input.reserve((5 + size - self.input.len()).min(OUTPUT_BYTES));
            return Ok(None);
        }
        self.input.advance(5);
        Ok(Some(MessageFrame { kind, body: self.input.split_to(size).freeze() }))
    }

    /// Reads a packet without a type, of at most `bytes_max` bytes.
    pub(crate) async fn read_packet(&mut self, bytes_max: u64) -> Result<Bytes, FrameError> {
        loop {
            if let Some(head) = self.input.first_chunk::<4>() {
                let length = i32::from_be_bytes(*head);
                let Some(size) = body_size(length, bytes_max) else {
                    return Err(FrameError::Length(length));
                };
                if self.input.len() >= 4 + size {
                    self.input.advance(4);
                    return Ok(self.input.split_to(size).freeze());
                }
            }
            self.read_more().await?;
        }
    }

    /// Returns the first byte, which stays where it is.
    pub(crate) async fn first_byte(&mut self) -> Result<u8, FrameError> {
        while self.input.is_empty() {
            self.read_more().await?;
        }
        Ok(self.input[0])
    }

    async fn read_more(&mut self) -> Result<(), FrameError> {
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(FrameError::Closed),
            _ => Ok(()),
        }
    }

    /// Waits until the client has closed the connection, while a statement runs. What it sends
    /// meanwhile is kept, up to a limit.
    pub(crate) async fn closed(&mut self) {
        while self.input.len() < READ_AHEAD_BYTES_MAX {
            if self.read_more().await.is_err() {
                return;
            }
        }
        // What is not read tells nothing of the connection.
        std::future::pending::<()>().await;
    }

    /// Writes the output.
    pub(crate) async fn flush(&mut self) -> Result<(), FrameError> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
            self.output.shrink_to(4 * OUTPUT_BYTES);
        }
        Ok(self.stream.flush().await?)
    }

    /// Writes the output where much was collected.
    pub(crate) async fn flush_full(&mut self) -> Result<(), FrameError> {
        if self.output.len() < OUTPUT_BYTES { Ok(()) } else { self.flush().await }
    }

    /// Writes the output and ends the connection.
    pub(crate) async fn close(&mut self) {
        if self.flush().await.is_ok() {
            // The client may be gone.
            let _ended = self.stream.shutdown().await;
        }
    }
}

/// Returns the size of a body whose frame has this length.
fn body_size(length: i32, bytes_max: u64) -> Option<usize> {
    let size = usize::try_from(length).ok()?.checked_sub(4)?;
    u64::try_from(size).is_ok_and(|size| size <= bytes_max).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::body_size;

    #[test]
    fn a_length_counts_itself_and_has_a_limit() {
        assert_eq!(body_size(4, 0), Some(0));
        assert_eq!(body_size(14, 10), Some(10));
        for wrong in [15, 3, 0, -1, i32::MIN, i32::MAX] {
            assert_eq!(body_size(wrong, 10), None, "{wrong}");
        }
    }
}

//! The begin of a connection: encryption, the protocol's version, and the parameters of the session.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use bytes::Bytes;
use lockstep_diagnostic::{Diagnostic, Kind, code};
use tokio_rustls::server::TlsStream;

use super::{
    ClientFailure,
    cancel::CancelKey,
    frame::{ClientStream, FrameError, FrameStream},
    login::LoginChannel,
    message::{BodyReader, violation},
    response::{message, push_text},
};
use crate::{
    metrics::Refusal,
    protocol::Protocol,
    server_state::ServerState,
    tls::{TlsEndpoint, client_names},
};

/// The most bytes of a packet before the session, as in PostgreSQL.
const PACKET_BYTES_MAX: u64 = 10_000;

/// The codes at the begin of a packet.
const CANCEL: i32 = 80_877_102;
const TLS: i32 = 80_877_103;
const GSSAPI: i32 = 80_877_104;
/// Version 3 of the protocol: the lower 16 bits are the minor version.
const VERSION_MAJOR: i32 = 3;

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// How a connection begins.
#[derive(Debug)]
pub(crate) enum Opening {
    /// With a session that has these parameters, by name.
    Session(BTreeMap<String, String>),
    /// With the request to cancel another one.
    Cancel(CancelKey),
}

/// Opens a connection: agrees about encryption and the version of the protocol.
#[derive(Debug)]
pub(crate) struct ConnectionOpener<'s> {
    state: &'s ServerState,
    pub(crate) frames: FrameStream,
    pub(crate) is_encrypted: bool,
    pub(crate) channel: LoginChannel,
}

impl<'s> ConnectionOpener<'s> {
    /// Makes it of a stream of which nothing was read.
    pub(crate) fn new(state: &'s ServerState, stream: Box<dyn ClientStream>) -> Self {
        Self {
            state,
            frames: FrameStream::new(stream),
            is_encrypted: false,
            channel: LoginChannel::default(),
        }
    }

    /// Reads how the connection begins.
    pub(crate) async fn open(&mut self, address: IpAddr) -> Result<Opening, ClientFailure> {
        let limit = Duration::from_millis(self.state.settings().header_timeout_ms);
        let negotiated = tokio::time::timeout(limit, self.negotiate()).await;
        let opening =
            negotiated.map_err(|_elapsed| ClientFailure::from(FrameError::TimedOut))??;
        let is_open = !self.is_encrypted && !address.to_canonical().is_loopback();
        if is_open && matches!(opening, Opening::Session(_)) {
            let message = "connections from other machines require TLS";
            let refused = Diagnostic::new(code::INVALID_AUTHORIZATION, message)
                .with_hint("Connect with sslmode=require or verify-full.");
            return Err(ClientFailure::Error(Box::new(refused)));
        }
        Ok(opening)
    }

    async fn negotiate(&mut self) -> Result<Opening, ClientFailure> {
        if self.frames.first_byte().await? == TLS_HANDSHAKE {
            self.direct_tls().await?;
        }
        // A client may try both kinds of encryption before it goes on without.
        for _ in 0..4 {
            let packet = self.frames.read_packet(PACKET_BYTES_MAX).await?;
            let mut body = BodyReader::new(packet);
            match body.i32()? {
                TLS if !self.is_encrypted && self.endpoint().is_some() => {
                    self.answer(b'S').await?;
                    self.accept_tls().await?;
                }
                TLS | GSSAPI => self.answer(b'N').await?,
                CANCEL => {
                    let (process, secret) = (body.i32()?, body.i32()?);
                    return Ok(Opening::Cancel(CancelKey { process, secret }));
                }
                version if version >> 16 == VERSION_MAJOR => {
                    let parameters = read_parameters(body)?;
                    negotiate_version(&mut self.frames, version & 0xffff, &parameters);
                    return Ok(Opening::Session(parameters));
                }
                version => {
                    let (major, minor) = (version >> 16, version & 0xffff);
                    let text = format!(
                        "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
                    );
                    let refused = Diagnostic::unsupported(text).with_kind(Kind::FixRequest);
                    return Err(ClientFailure::Error(Box::new(refused)));
                }
            }
        }
        Ok(violation("too many encryption requests")?)
    }

    fn endpoint(&self) -> Option<TlsEndpoint> {
        self.state.tls(Protocol::PostgreSql)
    }

    /// Writes the one byte that answers a request for encryption.
    async fn answer(&mut self, byte: u8) -> Result<(), FrameError> {
        self.frames.output.push(byte);
        self.frames.flush().await
    }

    /// Begins TLS. Nothing may have been sent behind the request: somebody in between could have put it
    /// there without encryption.
    async fn accept_tls(&mut self) -> Result<(), ClientFailure> {
        let Some(stream) = self.take_frames().into_stream() else {
            self.state.metrics.add_refused(Refusal::Tls);
            return Err(FrameError::Closed.into());
        };
        let accepted = self.handshake(stream).await?;
        self.frames = FrameStream::new(Box::new(accepted));
        Ok(())
    }

    /// Begins TLS where the client has not done so before; it has to choose the protocol by ALPN.
    async fn direct_tls(&mut self) -> Result<(), ClientFailure> {
        let (stream, read) = self.take_frames().into_parts();
        let accepted = self.handshake(Box::new(ReadAgain { read, stream })).await?;
        if accepted.get_ref().1.alpn_protocol() != Some(b"postgresql") {
            self.state.metrics.add_refused(Refusal::Tls);
            return Err(FrameError::Closed.into());
        }
        self.frames = FrameStream::new(Box::new(accepted));
        Ok(())
    }

    /// Takes the frames, and leaves those of a stream that has ended.
    fn take_frames(&mut self) -> FrameStream {
        let ended = FrameStream::new(Box::new(tokio::io::empty()));
        std::mem::replace(&mut self.frames, ended)
    }

    async fn handshake(
        &mut self,
        stream: Box<dyn ClientStream>,
    ) -> Result<TlsStream<Box<dyn ClientStream>>, ClientFailure> {
        let TlsEndpoint { acceptor, binding } = self.endpoint().ok_or(FrameError::Closed)?;
        let accepted = acceptor.accept(stream).await.map_err(|_error| {
            self.state.metrics.add_refused(Refusal::Tls);
            FrameError::Closed
        })?;
        self.is_encrypted = true;
        self.channel = LoginChannel { names: client_names(accepted.get_ref().1), binding };
        Ok(accepted)
    }
}

/// A stream of which some bytes were read already.
struct ReadAgain {
    read: Bytes,
    stream: Box<dyn ClientStream>,
}

mod read_again {
    //! Reading the bytes that were read already, then those of the stream.

    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use bytes::Buf;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::ReadAgain;

    impl AsyncRead for ReadAgain {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.read.is_empty() {
                return Pin::new(&mut self.stream).poll_read(cx, buffer);
            }
            let count = self.read.len().min(buffer.remaining());
            buffer.put_slice(&self.read[..count]);
            self.read.advance(count);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for ReadAgain {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}

/// Reads names and values; an empty name ends them.
fn read_parameters(mut body: BodyReader) -> Result<BTreeMap<String, String>, ClientFailure> {
    let mut parameters = BTreeMap::new();
    loop {
        let name = body.string()?;
        if name.is_empty() {
            body.end()?;
            return Ok(parameters);
        }
        parameters.insert(name, body.string()?);
    }
}

/// Tells a client that wants a later version, or options of the protocol, that there are none.
fn negotiate_version(frames: &mut FrameStream, minor: i32, parameters: &BTreeMap<String, String>) {
    let options: Vec<&String> =
        parameters.keys().filter(|name| name.starts_with("_pq_.")).collect();
    if minor == 0 && options.is_empty() {
        return;
    }
    message(&mut frames.output, b'v', |out| {
        out.extend_from_slice(&(VERSION_MAJOR << 16).to_be_bytes());
        let count = i32::try_from(options.len()).unwrap_or(0);
        out.extend_from_slice(&count.to_be_bytes());
        options.iter().for_each(|name| push_text(out, name));
    });
}

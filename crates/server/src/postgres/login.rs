//! How a client says who it is: a certificate, SCRAM-SHA-256, or a token.
//!
//! A client whose certificate, which TLS has verified, names the user of the session is logged in.
//! A client logs in with a password by SCRAM (RFC 5802, RFC 7677), which shows nobody the password and
//! proves to both that the other has it. A user who does not exist has an exchange that looks the same.
//! Over TLS the exchange may be bound to the certificate of the server (SCRAM-SHA-256-PLUS, RFC 5929
//! tls-server-end-point), so that nobody in between can pass it on.
//! A token has no verifier, so it is sent as it is: only where the client asks for it with the setting
//! `lockstep.authentication=token`, and only encrypted or on this machine.

use std::{net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{ClientInfo, Proof, ScramVerifier, Session, guarded};

use super::{
    ClientFailure,
    frame::FrameStream,
    message::{BodyReader, violation},
    response::{message, push_text},
};
use crate::{
    access::{Authentication, LoginOrigin, wait_for_turn},
    server_state::ServerState,
};

/// The mechanism.
const MECHANISM: &str = "SCRAM-SHA-256";

/// The mechanism that is bound to the connection.
const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";

/// What a client that binds the exchange to its connection begins with.
const BOUND: &str = "p=tls-server-end-point";

/// The most bytes of a message of a login.
const MESSAGE_BYTES_MAX: u64 = 10_000;

/// The codes of authentication messages.
mod authentication {
    pub(super) const OK: i32 = 0;
    pub(super) const CLEARTEXT: i32 = 3;
    pub(super) const SASL: i32 = 10;
    pub(super) const SASL_CONTINUE: i32 = 11;
    pub(super) const SASL_FINAL: i32 = 12;
}

/// What TLS says of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoginChannel {
    /// The names of the client's certificate; none where it has shown none.
    pub(crate) names: Arc<[String]>,
    /// With what a login is bound to the connection.
    pub(crate) binding: Option<Arc<[u8]>>,
}

/// A client that logs in.
#[derive(Debug)]
pub(crate) struct LoginRequest<'r> {
    pub(crate) user: &'r str,
    /// Whether it wants to send a token.
    pub(crate) has_token: bool,
    pub(crate) address: IpAddr,
    pub(crate) client: ClientInfo,
    pub(crate) channel: LoginChannel,
}

/// Logs a client in.
pub(crate) async fn log_in(
    state: &ServerState,
    frames: &mut FrameStream,
    request: LoginRequest<'_>,
) -> Result<Session, ClientFailure> {
    if state.access.authentication() == Authentication::None {
        let session = guarded(|| state.access.trust(request.client))?;
        write_authentication(frames, authentication::OK, &[]);
        return Ok(session);
    }
    let is_named = request.channel.names.iter().any(|name| name == request.user);
    let session = if is_named {
        request.open(state, Proof::Checked).await?
    } else if request.has_token {
        token(state, frames, &request).await?
    } else {
        scram(state, frames, &request).await?
    };
    write_authentication(frames, authentication::OK, &[]);
    Ok(session)
}

fn write_authentication(frames: &mut FrameStream, code: i32, body: &[u8]) {
    message(&mut frames.output, b'R', |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(body);
    });
}

/// Reads the next message of the client.
async fn read(state: &ServerState, frames: &mut FrameStream) -> Result<Bytes, ClientFailure> {
    frames.flush().await?;
    let limit = Duration::from_millis(state.settings().header_timeout_ms);
    let frame = frames.read_frame_within(MESSAGE_BYTES_MAX, limit).await?;
    if frame.kind != b'p' {
        return Ok(violation("expected password response")?);
    }
    Ok(frame.body)
}

impl LoginRequest<'_> {
    /// Opens the session, once its turn has come.
    async fn open(&self, state: &ServerState, proof: Proof<'_>) -> Result<Session> {
        let _turn = wait_for_turn(state, self.address).await?;
        let now_ns = state.clock.monotonic_ns();
        let origin = LoginOrigin { address: self.address, client: self.client.clone(), now_ns };
        guarded(|| state.access.open_session(self.user, proof, origin))
    }
}

/// Logs in with a token, which is the password of the message.
async fn token(
    state: &ServerState,
    frames: &mut FrameStream,
    request: &LoginRequest<'_>,
) -> Result<Session, ClientFailure> {
    write_authentication(frames, authentication::CLEARTEXT, &[]);
    let mut body = BodyReader::new(read(state, frames).await?);
    let token = body.string()?;
    body.end()?;
    Ok(request.open(state, Proof::Token(&token)).await?)
}

/// Logs in with a password.
async fn scram(
    state: &ServerState,
    frames: &mut FrameStream,
    request: &LoginRequest<'_>,
) -> Result<Session, ClientFailure> {
    let mut mechanisms = Vec::new();
    let binding = request.channel.binding.as_deref();
    if binding.is_some() {
        push_text(&mut mechanisms, BOUND_MECHANISM);
    }
    push_text(&mut mechanisms, MECHANISM);
    mechanisms.push(0);
    write_authentication(frames, authentication::SASL, &mechanisms);
    let mut body = BodyReader::new(read(state, frames).await?);
    let mechanism = body.string()?;
    let choice = match mechanism.as_str() {
        MECHANISM if binding.is_some() => ScramBinding::Offered,
        MECHANISM => ScramBinding::None,
        BOUND_MECHANISM => ScramBinding::of(binding)?,
        _ => {
            return Ok(violation("client selected an invalid SASL authentication mechanism")?);
        }
    };
    let first = body.value()?.unwrap_or_default();
    body.end()?;
    let verifier = state.access.database().scram_verifier(request.user);
    let exchange = ScramExchange::begin(&first, choice, &verifier, &server_nonce())?;
    write_authentication(frames, authentication::SASL_CONTINUE, exchange.server_first.as_bytes());
    let last = read(state, frames).await?;
    let last = exchange.finish(&last)?;
    let auth_message = last.auth_message.as_bytes();
    let proof =
        Proof::Scram { verifier: &verifier, auth_message, client_proof: &last.client_proof };
    let session = request.open(state, proof).await?;
    let signature = STANDARD.encode(verifier.server_signature(auth_message));
    let server_last = format!("v={signature}");
    write_authentication(frames, authentication::SASL_FINAL, server_last.as_bytes());
    Ok(session)
}

/// Makes a nonce: text without a comma.
fn server_nonce() -> String {
    STANDARD.encode(lockstep_host::random::id())
}

/// How an exchange is bound to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScramBinding<'b> {
    /// Not at all, and the client was not offered to.
    None,
    /// Not at all, though the client was offered to.
    Offered,
    /// By this.
    Bound(&'b [u8]),
}

impl<'b> ScramBinding<'b> {
    /// Takes what binds the exchange of a client that wants that.
    fn of(binding: Option<&'b [u8]>) -> Result<Self> {
        let missing = || violation("channel binding is not available on this connection");
        binding.map_or_else(missing, |binding| Ok(Self::Bound(binding)))
    }

    /// Returns whether the first message of a client may begin so.
    fn takes(self, begin: &str) -> Result<bool> {
        Ok(match (self, begin) {
            (Self::Bound(_), begin) => begin == BOUND,
            // The client believes that the server cannot: somebody in between has told it so.
            (Self::Offered, "y") => return violation("SCRAM channel binding negotiation error"),
            (Self::None | Self::Offered, begin) => ["n", "y"].contains(&begin),
        })
    }
}

/// An exchange whose first messages were sent.
#[derive(Debug)]
struct ScramExchange {
    /// What the last message of the client repeats: the begin of its first one, and the binding.
    header: Vec<u8>,
    client_first: String,
    server_first: String,
    nonce: String,
}

/// What the last message of a client says.
#[derive(Debug)]
struct ScramProof {
    auth_message: String,
    client_proof: Vec<u8>,
}

impl ScramExchange {
    /// Reads the first message of a client and makes the answer.
    fn begin(
        first: &[u8],
        binding: ScramBinding<'_>,
        verifier: &ScramVerifier,
        server_nonce: &str,
    ) -> Result<Self> {
        let text = scram_text(first)?;
        let mut parts = text.splitn(3, ',');
        let (begin, identity, bare) = (parts.next(), parts.next(), parts.next());
        let (Some(begin), Some(""), Some(bare)) = (begin, identity, bare) else {
            return malformed();
        };
        if !binding.takes(begin)? {
            return malformed();
        }
        let mut attributes = bare.split(',');
        let (name, nonce) = (attributes.next(), attributes.next());
        let nonce = nonce.and_then(|text| text.strip_prefix("r=")).filter(|nonce| {
            !nonce.is_empty() && nonce.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
        });
        let (Some(_), Some(nonce)) = (name.and_then(|text| text.strip_prefix("n=")), nonce) else {
            return malformed();
        };
        let nonce = format!("{nonce}{server_nonce}");
        let (salt, iterations) = (STANDARD.encode(verifier.salt()), verifier.iterations());
        Ok(Self {
            header: match binding {
                ScramBinding::Bound(bytes) => [begin.as_bytes(), b",,", bytes].concat(),
                ScramBinding::None | ScramBinding::Offered => format!("{begin},,").into_bytes(),
            },
            client_first: bare.to_owned(),
            server_first: format!("r={nonce},s={salt},i={iterations}"),
            nonce,
        })
    }

    /// Reads the last message of a client.
    fn finish(&self, last: &[u8]) -> Result<ScramProof> {
        let text = scram_text(last)?;
        let Some((unsigned, proof)) = text.rsplit_once(",p=") else { return malformed() };
        let mut attributes = unsigned.split(',');
        let binding = attributes.next().and_then(|text| text.strip_prefix("c="));
        let nonce = attributes.next().and_then(|text| text.strip_prefix("r="));
        let binding = binding.and_then(|text| STANDARD.decode(text).ok());
        if binding.as_deref() != Some(self.header.as_slice()) || nonce != Some(self.nonce.as_str())
        {
            return malformed();
        }
        let Ok(client_proof) = STANDARD.decode(proof) else { return malformed() };
        let auth_message = format!("{},{},{unsigned}", self.client_first, self.server_first);
        Ok(ScramProof { auth_message, client_proof })
    }
}

fn scram_text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_or_else(|_error| malformed(), Ok)
}

fn malformed<T>() -> Result<T> {
    violation("malformed SCRAM message")
}

/// Makes the error for a token that would be sent readable over the network.
pub(crate) fn readable_token() -> Diagnostic {
    let message = "a token requires an encrypted connection or a local connection";
    Diagnostic::new(code::INVALID_AUTHORIZATION, message).with_hint("Connect with sslmode=require.")
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;

    use super::{ScramBinding, ScramExchange};

    #[test]
    fn an_exchange_is_bound_to_its_connection() {
        let verifier = Database::in_memory().scram_verifier("nobody");
        let begin = |binding, text: &str| {
            ScramExchange::begin(text.as_bytes(), binding, &verifier, "server")
        };
        let bound = ScramBinding::Bound(b"hash");
        let exchange = begin(bound, "p=tls-server-end-point,,n=,r=client").unwrap();
        // "p=tls-server-end-point,,hash", and the same with "hush".
        let last =
            |data: &str| format!("c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwsa{data},r=clientserver,p=AAAA");
        assert!(exchange.finish(last("GFzaA==").as_bytes()).is_ok());
        assert_eq!(exchange.finish(last("HVzaA==").as_bytes()).unwrap_err().code, "08P01");
        assert!(exchange.finish(b"c=biws,r=clientserver,p=AAAA").is_err());
        for text in ["n,,n=,r=x", "y,,n=,r=x", "p=tls-unique,,n=,r=x"] {
            assert_eq!(begin(bound, text).unwrap_err().code, "08P01", "{text}");
        }
        assert!(begin(ScramBinding::Offered, "n,,n=,r=x").is_ok());
        let removed = begin(ScramBinding::Offered, "y,,n=,r=x").unwrap_err();
        assert_eq!(removed.message, "SCRAM channel binding negotiation error");
        assert!(begin(ScramBinding::None, "y,,n=,r=x").is_ok());
        assert!(ScramBinding::of(None).is_err());
    }

    #[test]
    fn an_exchange_follows_the_standard() {
        let verifier = Database::in_memory().scram_verifier("nobody");
        let none = ScramBinding::None;
        let begin = |text: &str| ScramExchange::begin(text.as_bytes(), none, &verifier, "server");
        let exchange = begin("n,,n=,r=client").unwrap();
        assert!(exchange.server_first.starts_with("r=clientserver,s="));
        let proof = exchange.finish(b"c=biws,r=clientserver,p=AAAA").unwrap();
        assert!(proof.auth_message.starts_with("n=,r=client,r=clientserver,s="));
        assert!(proof.auth_message.ends_with(",c=biws,r=clientserver"));
        assert!(!verifier.has_proof(proof.auth_message.as_bytes(), &proof.client_proof));
        for wrong in ["", "n,,", "p=tls-unique,,n=,r=x", "n,a=x,n=,r=x", "n,,n=,r=", "n,,r=x,n="] {
            assert_eq!(begin(wrong).unwrap_err().code, "08P01", "{wrong}");
        }
        for wrong in [
            "c=biws,r=clientserver",
            "c=eSws,r=clientserver,p=AAAA",
            "c=biws,r=client,p=AAAA",
            "c=biws,r=clientserver,p=!",
        ] {
            assert_eq!(exchange.finish(wrong.as_bytes()).unwrap_err().code, "08P01", "{wrong}");
        }
    }
}

//! How a client says who it is: SCRAM-SHA-256, or a token.
//!
//! A client logs in with a password by SCRAM (RFC 5802, RFC 7677), which shows nobody the password and
//! proves to both that the other has it. A user who does not exist has an exchange that looks the same.
//! A token has no verifier, so it is sent as it is: only where the client asks for it with the setting
//! `lockstep.authentication=token`, and only encrypted or on this machine.

use std::{net::IpAddr, time::Duration};

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

/// The one mechanism.
const MECHANISM: &str = "SCRAM-SHA-256";

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

/// A client that logs in.
#[derive(Debug)]
pub(crate) struct LoginRequest<'r> {
    pub(crate) user: &'r str,
    /// Whether it wants to send a token.
    pub(crate) has_token: bool,
    pub(crate) address: IpAddr,
    pub(crate) client: ClientInfo,
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
    wait_for_turn(state, request.address).await?;
    let session = if request.has_token {
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
        return Ok(violation("expected a message of the login")?);
    }
    Ok(frame.body)
}

impl LoginRequest<'_> {
    /// Opens the session.
    fn open(&self, state: &ServerState, proof: Proof<'_>) -> Result<Session> {
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
    Ok(request.open(state, Proof::Token(&token))?)
}

/// Logs in with a password.
async fn scram(
    state: &ServerState,
    frames: &mut FrameStream,
    request: &LoginRequest<'_>,
) -> Result<Session, ClientFailure> {
    let mut mechanisms = Vec::new();
    push_text(&mut mechanisms, MECHANISM);
    mechanisms.push(0);
    write_authentication(frames, authentication::SASL, &mechanisms);
    let mut body = BodyReader::new(read(state, frames).await?);
    let mechanism = body.string()?;
    if mechanism != MECHANISM {
        return Ok(violation("the client has chosen another mechanism than SCRAM-SHA-256")?);
    }
    let first = body.value()?.unwrap_or_default();
    body.end()?;
    let verifier = state.access.database().scram_verifier(request.user);
    let exchange = ScramExchange::begin(&first, &verifier, &server_nonce())?;
    write_authentication(frames, authentication::SASL_CONTINUE, exchange.server_first.as_bytes());
    let last = read(state, frames).await?;
    let last = exchange.finish(&last)?;
    let auth_message = last.auth_message.as_bytes();
    let proof =
        Proof::Scram { verifier: &verifier, auth_message, client_proof: &last.client_proof };
    let session = request.open(state, proof)?;
    let signature = STANDARD.encode(verifier.server_signature(auth_message));
    let server_last = format!("v={signature}");
    write_authentication(frames, authentication::SASL_FINAL, server_last.as_bytes());
    Ok(session)
}

/// Makes a nonce: text without a comma.
fn server_nonce() -> String {
    STANDARD.encode(lockstep_host::random::id())
}

/// An exchange whose first messages were sent.
#[derive(Debug)]
struct ScramExchange {
    /// The part of the client's first message before its attributes.
    header: String,
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
    fn begin(first: &[u8], verifier: &ScramVerifier, server_nonce: &str) -> Result<Self> {
        let text = scram_text(first)?;
        let mut parts = text.splitn(3, ',');
        let (binding, identity, bare) = (parts.next(), parts.next(), parts.next());
        let (Some(binding @ ("n" | "y")), Some(""), Some(bare)) = (binding, identity, bare) else {
            return malformed();
        };
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
            header: format!("{binding},,"),
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
        if binding.as_deref() != Some(self.header.as_bytes()) || nonce != Some(self.nonce.as_str())
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
    let message = "a token is sent over an encrypted connection or on the server's machine only";
    Diagnostic::new(code::INVALID_AUTHORIZATION, message).with_hint("Connect with sslmode=require.")
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;

    use super::ScramExchange;

    #[test]
    fn an_exchange_follows_the_standard() {
        let verifier = Database::in_memory().scram_verifier("nobody");
        let begin = |text: &str| ScramExchange::begin(text.as_bytes(), &verifier, "server");
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

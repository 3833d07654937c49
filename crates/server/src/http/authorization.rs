//! The header `Authorization`: Basic with the name and password of a user, Bearer with a token. Without it
//! the certificate of the connection says who calls.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_engine::ClientInfo;

use super::error::HttpResult;
use crate::{
    access::{ClientPeer, Credentials, Login, LoginAttempt, login},
    protocol::Protocol,
    server_state::ServerState,
};

/// The most characters of a program's name that are kept.
const APPLICATION_CHARS_MAX: usize = 128;

/// Logs the client of a call over HTTP in.
pub(crate) async fn log_in(
    state: &Arc<ServerState>,
    headers: &HeaderMap,
    peer: &ClientPeer,
) -> HttpResult<Arc<Login>> {
    log_in_as(state, headers, peer, Protocol::Http).await
}

/// Base64 with its padding or without: clients of Flight in Go leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Logs the client of a call in. Where it has called a short time ago, that costs a hash of the header.
pub(crate) async fn log_in_as(
    state: &Arc<ServerState>,
    headers: &HeaderMap,
    peer: &ClientPeer,
    protocol: Protocol,
) -> HttpResult<Arc<Login>> {
    let bytes = |name| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let (shown, agent) = (bytes(header::AUTHORIZATION), bytes(header::USER_AGENT));
    let (address, has_names) = (peer.address, shown.is_empty() && !peer.names.is_empty());
    let application = [protocol.name().as_bytes(), b" ", agent].concat();
    let key = if has_names {
        // No header has a zero.
        let names = format!("certificate\0{}", peer.names.join("\0"));
        state.access.key(names.as_bytes(), address, &application)
    } else {
        state.access.key(shown, address, &application)
    };
    if let Some(found) = state.access.find(&key, state.clock.monotonic_ns()) {
        return Ok(found);
    }
    let agent = String::from_utf8_lossy(agent);
    let client = ClientInfo {
        address: Some(address.to_string()),
        application: Some(agent.chars().take(APPLICATION_CHARS_MAX).collect())
            .filter(|name: &String| !name.is_empty()),
        protocol: Some(protocol.name().to_owned()),
    };
    let credentials =
        if has_names { Credentials::Certificate(Arc::clone(&peer.names)) } else { read(shown)? };
    let attempt = LoginAttempt { key, credentials, address, client };
    Ok(login(state, attempt).await?)
}

/// Reads the value of the header; an empty one is as none.
fn read(value: &[u8]) -> HttpResult<Credentials> {
    if value.is_empty() {
        return Ok(Credentials::Nobody);
    }
    let text = std::str::from_utf8(value).unwrap_or_default();
    let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let found = match scheme.to_ascii_lowercase().as_str() {
        "basic" => basic(rest),
        "bearer" if !rest.is_empty() => Some(Credentials::Token(rest.to_owned())),
        _ => None,
    };
    // The message has nothing of the value, which was to be a secret.
    found.ok_or_else(|| {
        let message = "invalid Authorization header";
        Diagnostic::new(code::INVALID_AUTHORIZATION, message)
            .with_hint("Send `Basic` with user:password in Base64, or `Bearer` with a token.")
            .into()
    })
}

/// Reads the name and the password, which is everything behind the first colon (RFC 7617).
fn basic(text: &str) -> Option<Credentials> {
    let decoded = String::from_utf8(BASE64.decode(text).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(Credentials::Password { user: user.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use lockstep_diagnostic::code;

    use super::{Credentials, read};

    #[test]
    fn both_schemes_are_read() {
        let password = |user: &str, password: &str| Credentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        for (value, expected) in [
            ("", Credentials::Nobody),
            ("Basic YW5uOnNlY3JldA==", password("ann", "secret")),
            ("BASIC YW5uOmE6Yg==", password("ann", "a:b")),
            ("Basic YW5uOmE6Yg", password("ann", "a:b")),
            ("Basic Og==", password("", "")),
            ("bearer  lockstep_x ", Credentials::Token("lockstep_x".to_owned())),
        ] {
            assert!(read(value.as_bytes()) == Ok(expected), "{value}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused_and_not_shown() {
        for value in ["secret", "Basic", "Basic secret", "Basic YW5u", "Bearer ", "Digest secret"] {
            let error = read(value.as_bytes()).unwrap_err();
            assert_eq!(error.diagnostic.code, code::INVALID_AUTHORIZATION, "{value}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        assert!(read(b"Basic \xff").is_err());
    }
}

//! Tokens: secrets of programs, which the engine makes and of which it keeps a hash.
//!
//! A token is 32 random bytes; nobody can guess it, so that a plain SHA-256 is a safe hash of it.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use lockstep_sql::ast::Ident;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What the text of a token begins with, so that a scan for secrets finds it.
const PREFIX: &str = "lockstep_";

/// A token as the catalog has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessToken {
    /// The SHA-256 of the text, in Base64.
    hash: String,
    pub(crate) created_ms: i64,
    /// When it ceases to be valid; `None`: never.
    pub(crate) expires_ms: Option<i64>,
}

/// A token that is being created.
#[derive(Debug)]
pub(crate) struct NewToken {
    pub(crate) user: Ident,
    pub(crate) name: Ident,
    pub(crate) token: AccessToken,
}

impl AccessToken {
    /// Makes a token. The second value is its text, which is nowhere else.
    pub(crate) fn new(created_ms: i64, expires_ms: Option<i64>) -> (Self, String) {
        debug_assert!(
            expires_ms.is_none_or(|expires_ms| expires_ms > created_ms),
            "a token is valid for some time"
        );
        let secret = [lockstep_host::random::id(), lockstep_host::random::id()].concat();
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        (Self { hash: hash_of(&text), created_ms, expires_ms }, text)
    }

    /// Returns the hash.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns whether the token is valid at this time.
    pub(crate) fn is_valid_at(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }
}

/// Returns the hash of the text of a token.
pub(crate) fn hash_of(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()))
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("expires_ms", &self.expires_ms).finish_non_exhaustive()
    }
}

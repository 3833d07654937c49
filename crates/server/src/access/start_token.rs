//! The token that a server prints when it starts and nobody could log in otherwise.
//!
//! It is in the memory of the process only, and ends with it.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// What the text begins with, as that of every token, so that a scan for secrets finds it.
const PREFIX: &str = "lockstep_";

/// The token of `root` for this machine.
pub(crate) struct StartToken(String);

impl fmt::Debug for StartToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StartToken")
    }
}

impl StartToken {
    /// Makes a token that nobody can guess.
    pub(crate) fn new() -> Self {
        let secret = [lockstep_host::random::id(), lockstep_host::random::id()].concat();
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret)))
    }

    /// Returns its text.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns whether a text is this token, after a time that does not tell how much of it is right.
    pub(crate) fn is(&self, text: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), text.as_bytes());
        let pairs = own.iter().zip(given);
        let difference = pairs.fold(0, |difference, (left, right)| difference | (left ^ right));
        own.len() == given.len() && difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::StartToken;

    #[test]
    fn only_the_whole_text_is_the_token() {
        let token = StartToken::new();
        let text = token.text().to_owned();
        assert!(text.len() > 40 && token.is(&text));
        assert!(!token.is("") && !token.is(&text[1..]) && !token.is(&format!("{text}x")));
        assert!(!token.is(StartToken::new().text()));
    }
}

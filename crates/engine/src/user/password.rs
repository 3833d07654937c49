//! Passwords as SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677): what a server needs to check one, and
//! from which nobody can compute it.
//!
//! The text form is that of PostgreSQL's `pg_authid`:
//! `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, the last three in Base64. It is what the
//! log holds. `Debug` shows neither the password nor the verifier.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};

/// The iterations of a new verifier; PostgreSQL's number, and the least that RFC 7677 allows.
const ITERATIONS: u32 = 4_096;

/// The most iterations of a verifier that is read: checking a password takes a time in proportion.
const ITERATIONS_MAX: u32 = 10_000_000;

/// The bytes of a salt.
const SALT_BYTES: usize = 16;

const MECHANISM: &str = "SCRAM-SHA-256";

type ScramKey = [u8; 32];

/// The verifier of a password.
///
/// The password's bytes are used as they are, without the `SASLprep` of RFC 5802; for printable ASCII
/// both are the same.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: ScramKey,
    pub(crate) server_key: ScramKey,
}

impl Verifier {
    /// Makes the verifier of a password with a salt of its own. Takes about a millisecond, by design.
    pub(crate) fn of_password(password: &str) -> Self {
        Self::with_salt(password, &lockstep_host::random::id(), ITERATIONS)
    }

    /// Makes a verifier that no password fits, with the salt that a name always has. An exchange with it
    /// looks like one with a wrong password.
    pub(crate) fn of_nobody(name: &str, secret: &[u8]) -> Self {
        let mask = hmac(secret, name.as_bytes());
        let key = lockstep_host::random::id().repeat(2);
        let key = |part: &[u8]| hmac(&key, part);
        let salt = mask[..SALT_BYTES].to_vec();
        let (stored_key, server_key) = (key(b"stored"), key(b"server"));
        Self { iterations: ITERATIONS, salt, stored_key, server_key }
    }

    /// Returns whether a client that sent this proof, in an exchange of these messages, has the password
    /// (RFC 5802, section 3).
    pub(crate) fn has_proof(&self, auth_message: &[u8], client_proof: &[u8]) -> bool {
        let mask = hmac(&self.stored_key, auth_message);
        if client_proof.len() != mask.len() {
            return false;
        }
        let client_key: Vec<u8> =
            client_proof.iter().zip(mask).map(|(proof, mask)| proof ^ mask).collect();
        is_equal(&Sha256::digest(client_key), &self.stored_key)
    }

    /// Returns what proves to the client that the server has the verifier.
    pub(crate) fn server_signature(&self, auth_message: &[u8]) -> ScramKey {
        hmac(&self.server_key, auth_message)
    }

    fn with_salt(password: &str, salt: &[u8], iterations: u32) -> Self {
        assert!(iterations > 0, "a salted password takes an iteration");
        let mut salted: ScramKey = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, &mut salted);
        let client_key = hmac(&salted, b"Client Key");
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: Sha256::digest(client_key).into(),
            server_key: hmac(&salted, b"Server Key"),
        }
    }

    /// Returns whether this is the password. Takes as long for a wrong one.
    pub(crate) fn verify(&self, password: &str) -> bool {
        let found = Self::with_salt(password, &self.salt, self.iterations);
        is_equal(&found.stored_key, &self.stored_key)
    }

    /// Reads the text form.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (derivation, keys) = rest.split_once('$')?;
        let (iterations, salt) = derivation.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let key = |text| ScramKey::try_from(STANDARD.decode(text).ok()?).ok();
        Some(Self {
            iterations: iterations.parse().ok().filter(|n| (1..=ITERATIONS_MAX).contains(n))?,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }

    /// Writes the text form.
    fn text(&self) -> String {
        let [salt, stored_key, server_key] = [&self.salt[..], &self.stored_key, &self.server_key]
            .map(|bytes| STANDARD.encode(bytes));
        format!("{MECHANISM}${}:{salt}${stored_key}:{server_key}", self.iterations)
    }
}

/// Compares all bytes, so that the time does not tell how many are equal.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    debug_assert_eq!(left.len(), right.len(), "both are hashes");
    let pairs = left.iter().zip(right);
    pairs.fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

fn hmac(key: &[u8], message: &[u8]) -> ScramKey {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.chain_update(message).finalize().into_bytes().into()
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Verifier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Verifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The message has no text: whatever it is, it was to be a secret.
        Self::parse(&text).ok_or_else(|| D::Error::custom("a password is not a SCRAM verifier"))
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use sha2::{Digest, Sha256};

    use super::{Verifier, hmac};

    /// The exchange of RFC 7677, section 3.
    const AUTH_MESSAGE: &str = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_SIGNATURE: &str = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn of_rfc() -> Verifier {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Verifier::with_salt("pencil", &salt, 4_096)
    }

    #[test]
    fn the_exchange_of_rfc_7677_succeeds() {
        let verifier = of_rfc();
        let signature = hmac(&verifier.server_key, AUTH_MESSAGE.as_bytes());
        assert_eq!(STANDARD.encode(signature), SERVER_SIGNATURE);
        let mask = hmac(&verifier.stored_key, AUTH_MESSAGE.as_bytes());
        let proof = STANDARD.decode(CLIENT_PROOF).unwrap();
        let client_key: Vec<u8> =
            proof.iter().zip(mask).map(|(proof, mask)| proof ^ mask).collect();
        assert_eq!(Sha256::digest(client_key)[..], verifier.stored_key);
    }

    #[test]
    fn only_the_password_is_verified() {
        let verifier = of_rfc();
        assert!(verifier.verify("pencil"));
        assert!(!verifier.verify("Pencil"));
        assert!(!verifier.verify(""));
        let (one, other) = (Verifier::of_password("x"), Verifier::of_password("x"));
        assert_ne!(one, other, "each has a salt of its own");
        assert!(one.verify("x") && other.verify("x"));
    }

    #[test]
    fn the_text_is_postgresql_s_and_is_read_again() {
        // What PostgreSQL stores for this password, salt and number of iterations.
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
            WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(of_rfc().text(), text);
        let json = serde_json::to_string(&of_rfc()).unwrap();
        assert_eq!(serde_json::from_str::<Verifier>(&json).unwrap(), of_rfc());
        assert_eq!(format!("{:?}", of_rfc()), "***");
    }

    #[test]
    fn a_text_that_is_no_verifier_is_refused_and_not_shown() {
        let texts = [
            "secret",
            "SCRAM-SHA-256$",
            "SCRAM-SHA-256$0:c2FsdA==$c2VjcmV0:c2VjcmV0",
            "SCRAM-SHA-256$4096:secret",
        ];
        for text in texts {
            let error = serde_json::from_str::<Verifier>(&format!("\"{text}\"")).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

//! The brokers of a cluster, and how a client connects to them.

use std::{fmt, time::Duration};

use krafka::{
    Kafka,
    auth::{AuthConfig, TlsConfig},
};
use lockstep_diagnostic::Result;

use crate::error::cluster_error;

/// How long a client waits for a connection, and for an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How old the known partitions of a topic may be: readers look for new ones less often.
const METADATA_AGE_MAX: Duration = Duration::from_secs(5);

/// The brokers of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brokers {
    /// Some of them: `host:port`, separated by commas.
    pub addresses: String,
    /// `None`: the connection is not encrypted.
    pub tls: Option<Tls>,
    /// `None`: the client does not log in.
    pub sasl: Option<Sasl>,
}

/// An encrypted connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file with the certificates that are trusted; `None`: those of the system.
    pub authorities: Option<String>,
    /// PEM files with the client's certificate and its key.
    pub certificate: Option<(String, String)>,
}

/// A login.
#[derive(Clone, PartialEq, Eq)]
pub struct Sasl {
    /// The mechanism.
    pub mechanism: SaslMechanism,
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

/// A mechanism of SASL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// `PLAIN`.
    Plain,
    /// `SCRAM-SHA-256`.
    ScramSha256,
    /// `SCRAM-SHA-512`.
    ScramSha512,
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mechanism, username, password: _ } = self;
        f.debug_struct("Sasl")
            .field("mechanism", mechanism)
            .field("username", username)
            .finish_non_exhaustive()
    }
}

impl Brokers {
    /// Connects to the cluster.
    pub(crate) async fn connect(&self) -> Result<Kafka> {
        let mut builder = Kafka::builder(self.addresses.clone())
            .client_id("lockstep")
            .connect_timeout(CONNECT_TIMEOUT)
            .request_timeout(REQUEST_TIMEOUT)
            .metadata_max_age(METADATA_AGE_MAX);
        if let Some(security) = self.security() {
            builder = builder.security(security);
        }
        builder.connect().await.map_err(|error| cluster_error(&self.addresses, &error))
    }

    fn security(&self) -> Option<AuthConfig> {
        let tls = self.tls.as_ref().map(Tls::config);
        let Some(Sasl { mechanism, username, password }) = &self.sasl else {
            return tls.map(AuthConfig::ssl);
        };
        let login = match mechanism {
            SaslMechanism::Plain => AuthConfig::sasl_plain(username, password),
            SaslMechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(username, password),
            SaslMechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(username, password),
        };
        Some(match tls {
            Some(tls) => login.with_tls(tls),
            None => login,
        })
    }
}

impl Tls {
    fn config(&self) -> TlsConfig {
        let config = match &self.authorities {
            Some(path) => TlsConfig::new().with_ca_cert(path),
            None => TlsConfig::new().with_native_roots(),
        };
        match &self.certificate {
            Some((certificate, key)) => config.with_client_cert(certificate, key),
            None => config,
        }
    }
}

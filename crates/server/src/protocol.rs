//! The protocols that a server speaks.

use lockstep_engine::ClientInfo;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// That of PostgreSQL, version 3.
    PostgreSql,
    /// Arrow Flight SQL.
    Flight,
}

impl Protocol {
    /// All protocols.
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::PostgreSql, Self::Flight];

    /// Returns its name in metrics and in the list of sessions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::PostgreSql => ClientInfo::POSTGRESQL,
            Self::Flight => "flight",
        }
    }

    /// Returns the names by which a client chooses it in TLS (ALPN).
    pub(crate) fn tls_names(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http => &[b"h2", b"http/1.1"],
            Self::PostgreSql => &[b"postgresql"],
            Self::Flight => &[b"h2"],
        }
    }
}

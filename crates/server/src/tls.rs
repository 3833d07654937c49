//! TLS: certificate and key from PEM files, read at the start and again at each reload.
//!
//! TLS 1.2 and 1.3 by rustls. Connections that are open keep the certificate with which they began.
//! Clients may show a certificate of an authority that the settings name, or have to. Knows no protocol
//! above TLS, except the names by which a client chooses one.

mod certificate;

use std::sync::Arc;

use lockstep_host::disk;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio_rustls::TlsAcceptor;

/// The files of a certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CertificateFiles<'a> {
    pub(crate) certificate: &'a str,
    pub(crate) key: &'a str,
    /// The authorities of clients' certificates; empty: clients show none.
    pub(crate) client_ca: &'a str,
    /// Whether a client without a certificate is refused.
    pub(crate) needs_client: bool,
}

/// What accepts connections with TLS.
#[derive(Clone)]
pub(crate) struct TlsEndpoint {
    pub(crate) acceptor: TlsAcceptor,
    /// With what a login is bound to its connection; `None` where that is not defined.
    pub(crate) binding: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for TlsEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsEndpoint").finish_non_exhaustive()
    }
}

/// Returns the names of the certificate that a client has shown; none where it has shown none.
pub(crate) fn client_names(connection: &ServerConnection) -> Arc<[String]> {
    let first = connection.peer_certificates().and_then(<[_]>::first);
    first.map_or_else(Arc::default, |shown| certificate::names(shown).into())
}

impl CertificateFiles<'_> {
    /// Reads the files, and returns what accepts connections with them. `protocols` are the names of
    /// ALPN. An error says which file is wrong, and nothing of its content.
    pub(crate) fn endpoint(self, protocols: &[&[u8]]) -> Result<TlsEndpoint, String> {
        let Self { certificate, key, .. } = self;
        let chain = read_certificates(certificate)?;
        let binding = chain.first().and_then(|own| certificate::end_point(own)).map(Arc::from);
        let private = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|_error| format!("no private key found in file `{key}`"))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let mut config = builder
            .with_client_cert_verifier(self.client_verifier()?)
            .with_single_cert(chain, private)
            .map_err(|error| {
                format!("certificate `{certificate}` does not match private key `{key}`: {error}")
            })?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(TlsEndpoint { acceptor: TlsAcceptor::from(Arc::new(config)), binding })
    }

    /// Makes what verifies the certificates of clients.
    fn client_verifier(self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let Self { client_ca, needs_client, .. } = self;
        if client_ca.is_empty() {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        let wrong = |error: &dyn std::fmt::Display| {
            format!("invalid certificate authority in file `{client_ca}`: {error}")
        };
        let mut roots = RootCertStore::empty();
        for authority in read_certificates(client_ca)? {
            roots.add(authority).map_err(|error| wrong(&error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if needs_client { builder } else { builder.allow_unauthenticated() };
        builder.build().map(|verifier| verifier as _).map_err(|error| wrong(&error))
    }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    disk::read(path.as_ref()).map_err(|error| format!("could not read file `{path}`: {error}"))
}

/// Reads the certificates of a file, of which there is one at least.
fn read_certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("`{path}` is not a valid PEM file: {error}"))?;
    if found.is_empty() { Err(format!("no certificate found in file `{path}`")) } else { Ok(found) }
}

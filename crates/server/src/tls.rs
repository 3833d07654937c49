//! TLS: certificate and key from PEM files, read at the start and again at each reload.
//!
//! TLS 1.2 and 1.3 by rustls. Connections that are open keep the certificate with which they began.
//! Knows no protocol above TLS, except the names by which a client chooses one.

use std::sync::Arc;

use lockstep_host::disk;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

/// The files of a certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CertificateFiles<'a> {
    pub(crate) certificate: &'a str,
    pub(crate) key: &'a str,
}

impl CertificateFiles<'_> {
    /// Reads the files, and returns what accepts connections with them. `protocols` are the names of
    /// ALPN. An error says which file is wrong, and nothing of its content.
    pub(crate) fn acceptor(self, protocols: &[&[u8]]) -> Result<TlsAcceptor, String> {
        let Self { certificate, key } = self;
        let read =
            |path: &str| disk::read(path.as_ref()).map_err(|error| format!("{path}: {error}"));
        let chain = CertificateDer::pem_slice_iter(&read(certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("{certificate} is not a PEM file: {error}"))?;
        if chain.is_empty() {
            return Err(format!("{certificate} has no certificate"));
        }
        let private = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|_error| format!("{key} has no private key"))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| format!("{certificate} and {key} do not match: {error}"))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

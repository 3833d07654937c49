//! What a certificate says, as far as the server asks: whom it names, and the hash of its signature.
//!
//! Reads DER (X.690) of certificates (RFC 5280) that rustls has verified, or that the operator has given.
//! What is not as expected has no names and no hash, and is never more than that.
//!
//! # Layout
//!
//! ```text
//! certificate  SEQUENCE { content, algorithm SEQUENCE { OID, … }, signature }
//! content      SEQUENCE { [0] version?, serial, algorithm, issuer, validity, subject, key, …, [3] extensions? }
//! subject      SEQUENCE OF SET OF SEQUENCE { OID, text }
//! extensions   SEQUENCE OF SEQUENCE { OID, critical?, OCTET STRING }
//! names        SEQUENCE OF { [1] email, [2] host, … }, in the extension subjectAltName
//! ```

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The tags of DER.
mod tag {
    pub(super) const OBJECT_ID: u8 = 0x06;
    pub(super) const OCTETS: u8 = 0x04;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    /// `UTF8String`, `PrintableString` and `IA5String`, all of which are UTF-8.
    pub(super) const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
    pub(super) const EMAIL: u8 = 0x81;
    pub(super) const HOST: u8 = 0x82;
}

/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 1.2.840.113549.1.1: RSA with a hash, which the next byte names.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// 1.2.840.10045.4: ECDSA with a hash, which the next bytes name.
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// The elements before the subject: serial, algorithm, issuer, validity.
const ELEMENTS_BEFORE_SUBJECT: usize = 4;

/// Returns the names of a certificate: common names first, then hosts and addresses of mail.
pub(crate) fn names(certificate: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(mut content) = content_of(certificate) {
        let subject = (0..=ELEMENTS_BEFORE_SUBJECT).map_while(|_| content.next()).last();
        names.extend(subject.into_iter().flat_map(|(_, subject)| common_names(subject)));
        let extensions = content.find(|(tag, _)| *tag == tag::EXTENSIONS);
        names.extend(extensions.into_iter().flat_map(|(_, bytes)| alternative_names(bytes)));
    }
    names
}

/// Returns the data with which a login is bound to a connection of this certificate (RFC 5929,
/// tls-server-end-point); `None` where its signature has no hash of its own.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let mut parts = inside(certificate, tag::SEQUENCE)?;
    let (_, algorithm) = parts.nth(1)?;
    let (tag, algorithm) = DerElements(algorithm).next()?;
    if tag != tag::OBJECT_ID {
        return None;
    }
    let is_rsa = algorithm.strip_prefix(RSA);
    let is_ecdsa = algorithm.strip_prefix(ECDSA);
    Some(match (is_rsa, is_ecdsa) {
        // MD5 and SHA-1 are replaced by SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Sha256::digest(certificate).to_vec(),
        (Some([12]), _) | (_, Some([3, 3])) => Sha384::digest(certificate).to_vec(),
        (Some([13]), _) | (_, Some([3, 4])) => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// Returns the elements of a certificate's content behind the version.
fn content_of(certificate: &[u8]) -> Option<std::iter::Peekable<DerElements<'_>>> {
    let (_, content) = inside(certificate, tag::SEQUENCE)?.next()?;
    let mut content = DerElements(content).peekable();
    // The first version has no number.
    let _version = content.next_if(|(tag, _)| *tag == tag::VERSION);
    Some(content)
}

fn common_names(subject: &[u8]) -> Vec<String> {
    let sets = DerElements(subject).filter(|(tag, _)| *tag == tag::SET);
    let pairs = sets.flat_map(|(_, set)| DerElements(set));
    let name = |(_, pair): (u8, &[u8])| {
        let mut pair = DerElements(pair);
        let (_, kind) = pair.next()?;
        let (tag, value) = pair.next()?;
        let is_name = kind == COMMON_NAME && tag::TEXTS.contains(&tag);
        is_name.then(|| text(value)).flatten()
    };
    pairs.filter_map(name).collect()
}

fn alternative_names(extensions: &[u8]) -> Vec<String> {
    let extensions = inside(extensions, tag::SEQUENCE).into_iter().flatten();
    let content = |(_, extension): (u8, &'_ [u8])| {
        let mut parts = DerElements(extension);
        let is_names = parts.next()?.1 == SUBJECT_ALT_NAME;
        let (_, content) = parts.find(|(tag, _)| *tag == tag::OCTETS)?;
        let names = inside(content, tag::SEQUENCE).filter(|_| is_names)?;
        let names = names.filter(|(tag, _)| [tag::EMAIL, tag::HOST].contains(tag));
        Some(names.filter_map(|(_, name)| text(name)).collect::<Vec<String>>())
    };
    extensions.filter_map(content).flatten().collect()
}

/// Returns a name; `None` where it is none that a user could have.
fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_name = !text.is_empty() && !text.contains(char::is_control);
    is_name.then(|| text.to_owned())
}

/// Returns the elements inside of an element that has a tag.
fn inside(bytes: &[u8], tag: u8) -> Option<DerElements<'_>> {
    let (found, content) = DerElements(bytes).next()?;
    (found == tag).then_some(DerElements(content))
}

/// The elements of DER one after another, each with its tag and content. They end where the bytes are
/// not as expected.
#[derive(Debug, Clone)]
struct DerElements<'b>(&'b [u8]);

impl<'b> Iterator for DerElements<'b> {
    type Item = (u8, &'b [u8]);

    fn next(&mut self) -> Option<(u8, &'b [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ 0..0x80 => (usize::from(*short), rest),
            long => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                let is_usable = (1..=4).contains(&bytes.len());
                let sum = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
                (is_usable.then(|| bytes.iter().fold(0, sum))?, rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::{Digest, Sha256, end_point, names};

    fn read(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).unwrap()
    }

    #[test]
    fn a_certificate_names_its_holder() {
        let server = read(include_bytes!("../../tests/server/certificate/certificate.pem"));
        assert_eq!(names(&server), ["localhost", "localhost"]);
        let client = read(include_bytes!("../../tests/server/certificate/client.pem"));
        assert_eq!(names(&client), ["ann", "ann@example.com", "ann.example.com"]);
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let server = read(include_bytes!("../../tests/server/certificate/certificate.pem"));
        assert_eq!(end_point(&server).unwrap(), Sha256::digest(&server).as_slice());
        let client = read(include_bytes!("../../tests/server/certificate/client.pem"));
        assert_eq!(end_point(&client).unwrap().len(), 48, "SHA-384");
    }

    #[test]
    fn what_is_cut_or_changed_has_no_more_names() {
        let client = read(include_bytes!("../../tests/server/certificate/client.pem"));
        for end in 0..client.len() {
            assert!(names(&client[..end]).is_empty(), "{end}");
            let mut changed = client.to_vec();
            changed[end] ^= 0xff;
            let _either = (names(&changed), end_point(&changed));
        }
    }
}

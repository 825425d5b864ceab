//! The certificate of the server: given, or made on the spot.

use sha2::{Digest, Sha256};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::NoServerSessionStorage;

/// A certificate chain and its private key, each as the contents of a PEM file.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The chain; the server's certificate first.
    pub certificate: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
}

/// Without the key.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pem({} bytes of certificates)", self.certificate.len())
    }
}

pub(super) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Identity {
    pub fn load(pem: &Pem) -> io::Result<Identity> {
        let chain = CertificateDer::pem_slice_iter(&pem.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| invalid(format!("cannot read PEM certificates: {e}")))?;
        if chain.is_empty() {
            return Err(invalid("the file of certificates has none in PEM".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&pem.key)
            .map_err(|e| invalid(format!("cannot read a PEM private key: {e}")))?;
        Ok(Identity { chain, key })
    }

    /// A self-signed one for this machine: clients know it by its fingerprint.
    pub fn make(address: SocketAddr) -> io::Result<Identity> {
        let failed = |e: rcgen::Error| io::Error::other(format!("cannot make a certificate: {e}"));
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let ip = address.ip().to_canonical();
        if !ip.is_unspecified() && !ip.is_loopback() {
            names.push(ip.to_string());
        }
        let made = rcgen::generate_simple_self_signed(names).map_err(failed)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { chain: vec![made.cert.der().clone()], key: key.into() })
    }

    pub fn fingerprint(&self) -> String {
        use std::fmt::Write;
        let digest = Sha256::digest(self.chain.first().map_or(&[][..], |first| first));
        digest.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    pub fn config(self) -> io::Result<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| io::Error::other(e.to_string()))?
            .with_no_client_auth()
            .with_single_cert(self.chain, self.key)
            .map_err(|e| invalid(format!("certificate and key do not match: {e}")))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A probe measures a whole handshake, and tickets would follow it as additional data.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_certificate_is_used_and_differs_each_time() {
        let make = || Identity::make(([192, 0, 2, 1], 1).into()).unwrap();
        let (first, second) = (make(), make());
        assert_eq!(first.fingerprint().len(), 64);
        assert_ne!(first.fingerprint(), second.fingerprint());
        assert!(first.config().is_ok());
    }

    #[test]
    fn bad_files_are_explained() {
        let load = |certificate: &[u8], key: &[u8]| {
            let pem = Pem { certificate: certificate.to_vec(), key: key.to_vec() };
            Identity::load(&pem).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(load(b"", b""), "the file of certificates has none in PEM");
        let certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(load(certificate, b"none").starts_with("cannot read a PEM private key: "));
    }
}

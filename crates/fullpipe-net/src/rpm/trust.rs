//! Which certificates the client accepts.

use sha2::{Digest, Sha256};
use std::str::FromStr;
use std::sync::Arc;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The certificates that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that an authority of the web has signed for the host.
    Authorities,
    /// The one with this fingerprint, even if no authority signed it.
    Pinned(Fingerprint),
    /// Any: a measurement transfers nothing secret.
    Any,
}

/// SHA-256 of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// Why a fingerprint is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 fingerprint has 64 hexadecimal digits")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Hexadecimal digits, also with colons as OpenSSL prints them.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits: Option<Vec<u8>> = text
            .bytes()
            .filter(|byte| *byte != b':')
            .map(|byte| (byte as char).to_digit(16).map(|digit| digit as u8))
            .collect();
        let digits: [u8; 64] = digits.and_then(|d| d.try_into().ok()).ok_or(FingerprintError)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Fingerprint(bytes))
    }
}

impl Trust {
    /// The configuration of TLS: HTTP/2, and whole handshakes only, which are what is measured.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let accept = |pin| {
            let verifier = Arc::new(Accept { pin, algorithms });
            builder.clone().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        };
        let mut config = match self {
            Trust::Authorities => {
                let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            Trust::Pinned(fingerprint) => accept(Some(fingerprint.clone())),
            Trust::Any => accept(None),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// Accepts a certificate whatever its names and dates; its key must still sign the handshake.
#[derive(Debug)]
struct Accept {
    pin: Option<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Accept {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found: [u8; 32] = Sha256::digest(end_entity).into();
        match &self.pin {
            Some(pin) if pin.0 != found => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_with_and_without_colons() {
        let plain: Fingerprint = "0aFF".repeat(16).parse().unwrap();
        assert_eq!(plain.0[..2], [0x0a, 0xff]);
        let colons = vec!["0A:FF"; 16].join(":");
        assert_eq!(colons.parse(), Ok(plain));
        for bad in ["", "0a", "zz", &"0".repeat(63), &"0".repeat(65), &"é".repeat(64)] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(FingerprintError), "{bad}");
        }
    }
}

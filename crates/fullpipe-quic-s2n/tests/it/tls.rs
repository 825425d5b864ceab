//! Real TLS whose packets have the same sizes in each process.

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use s2n_quic::provider::tls::rustls as s2n;
use std::sync::{Arc, OnceLock};

struct Certificate {
    der: CertificateDer<'static>,
    key: Vec<u8>,
}

/// The process's certificate for `localhost`. Ed25519 signatures have one size, those of ECDSA do not.
fn certificate() -> &'static Certificate {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("Ed25519 is supported");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a valid name");
        params.serial_number = Some(SerialNumber::from(1));
        let certificate = params.self_signed(&key).expect("its own key fits");
        Certificate { der: certificate.der().clone(), key: key.serialize_der() }
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub fn server() -> s2n::Server {
    let certificate = certificate();
    let key = PrivateKeyDer::try_from(certificate.key.clone()).expect("rcgen's key");
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der.clone()], key)
        .expect("rcgen's certificate");
    config.alpn_protocols = vec![b"test".to_vec()];
    s2n::Server::from(config)
}

pub fn client() -> s2n::Client {
    let mut roots = RootCertStore::empty();
    roots.add(certificate().der.clone()).expect("rcgen's certificate");
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"test".to_vec()];
    s2n::Client::from(config)
}

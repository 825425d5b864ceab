//! Endpoints with a certificate of their own.

use noq_proto::congestion::Bbr3Config;
use noq_proto::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;

/// Receive window: above three BDPs of the path, so that it does not limit.
const WINDOW: u32 = 16 << 20;

/// A client and a server, and the client's configuration.
pub fn endpoints() -> (Endpoint, Endpoint, ClientConfig) {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    let certificate = key.cert.der().clone();
    let private = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.clone()).expect("a valid certificate");
    let mut client = ClientConfig::with_root_certificates(Arc::new(trusted)).expect("TLS 1.3 is available");
    client.transport_config(transport());
    let mut server = ServerConfig::with_single_cert(vec![certificate], private).expect("the key fits");
    server.transport_config(transport());
    let endpoint = |server| Endpoint::new(Arc::new(EndpointConfig::default()), server, false);
    (endpoint(None), endpoint(Some(Arc::new(server))), client)
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(Arc::new(Bbr3Config::default()))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(2 * WINDOW))
        .max_idle_timeout(None)
        .mtu_discovery_config(None)
        .initial_mtu(1472);
    Arc::new(transport)
}

//! What differs between noq-proto and quinn-proto, in quinn-proto's terms.

pub(super) use quinn_proto as proto;

#[path = "session.rs"]
mod session;

#[path = "end.rs"]
mod end;

#[path = "observer.rs"]
mod observer;

use crate::quinn as adapter;

pub(crate) use end::{End, Factory};
pub(crate) use observer::{Observing, Source};

use std::sync::Arc;

/// The factory of the stack's own controller `name`, with an initial window in bytes. The stack's
/// default, CUBIC, under other names.
pub(crate) fn own_controller(name: &str, initial_window: u64) -> Factory {
    use proto::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
    match name {
        "bbr" => {
            let mut config = BbrConfig::default();
            config.initial_window(initial_window);
            Arc::new(config)
        }
        "reno" => {
            let mut config = NewRenoConfig::default();
            config.initial_window(initial_window);
            Arc::new(config)
        }
        _ => {
            let mut config = CubicConfig::default();
            config.initial_window(initial_window);
            Arc::new(config)
        }
    }
}

/// The state of a stack's own controller, where it can be read.
fn own_state(_: &dyn proto::congestion::Controller) -> Option<&'static str> {
    None
}

/// Its model, where it can be read.
fn own_snapshot(_: &dyn proto::congestion::Controller) -> Option<fullpipe_cc::Snapshot> {
    None
}

/// Keys and configurations: the traits of the two stacks take different arguments.
mod crypto_keys {
    use super::proto::crypto::{
        self, AeadKey, CryptoError, HandshakeTokenKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
    };
    use super::proto::transport_parameters::TransportParameters;
    use super::proto::{ConnectError, ConnectionId, Side};
    use super::session::{PlainHeader, Session, server_initial_keys};
    use crate::harness::crypto::{NullKey, Progress, TAG_BYTES};
    use bytes::BytesMut;
    use std::sync::Arc;

    pub(super) type CidArgument<'a> = &'a ConnectionId;

    /// The keys of both directions; what is sent is recorded in `progress`.
    pub(super) fn keys(key: NullKey, progress: Option<Arc<Progress>>) -> Keys {
        Keys {
            header: KeyPair { local: Box::new(PlainHeader), remote: Box::new(PlainHeader) },
            packet: KeyPair { local: Box::new(key.clone().recording(progress)), remote: Box::new(key) },
        }
    }

    impl PacketKey for NullKey {
        fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
            self.seal(packet, buf, header_len);
        }

        fn decrypt(&self, packet: u64, _: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
            let len = self.open(packet, payload).ok_or(CryptoError)?;
            payload.truncate(len);
            Ok(())
        }

        fn tag_len(&self) -> usize {
            TAG_BYTES
        }

        fn confidentiality_limit(&self) -> u64 {
            u64::MAX
        }

        fn integrity_limit(&self) -> u64 {
            u64::MAX
        }
    }

    /// Starts the sessions of one side.
    pub(super) struct Crypto {
        pub(super) progress: Option<Arc<Progress>>,
    }

    impl crypto::ClientConfig for Crypto {
        fn start_session(
            self: Arc<Self>,
            _: u32,
            _: &str,
            parameters: &TransportParameters,
        ) -> Result<Box<dyn crypto::Session>, ConnectError> {
            Ok(Box::new(Session::new(Side::Client, parameters, self.progress.clone())))
        }
    }

    impl crypto::ServerConfig for Crypto {
        fn initial_keys(&self, _: u32, _: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
            server_initial_keys()
        }

        fn retry_tag(&self, _: u32, _: &ConnectionId, _: &[u8]) -> [u8; 16] {
            [0; 16]
        }

        fn start_session(
            self: Arc<Self>,
            _: u32,
            parameters: &TransportParameters,
        ) -> Box<dyn crypto::Session> {
            Box::new(Session::new(Side::Server, parameters, self.progress.clone()))
        }
    }

    /// Tokens are neither sent nor accepted.
    pub(super) struct NoTokens;

    impl HandshakeTokenKey for NoTokens {
        fn aead_from_hkdf(&self, _: &[u8]) -> Box<dyn AeadKey> {
            Box::new(NoTokens)
        }
    }

    impl AeadKey for NoTokens {
        fn seal(&self, _: &mut Vec<u8>, _: &[u8]) -> Result<(), CryptoError> {
            Err(CryptoError)
        }

        fn open<'a>(&self, _: &'a mut [u8], _: &[u8]) -> Result<&'a mut [u8], CryptoError> {
            Err(CryptoError)
        }
    }
}

/// Calls whose arguments differ between the stacks.
mod calls {
    use super::proto::congestion::ControllerMetrics;
    use super::proto::{
        Connection, ConnectionIdGenerator, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, SendStream,
        ServerConfig, Transmit, TransportError, TransportErrorCode, WriteError,
    };
    use crate::harness::pair::{Counters, Metrics};
    use bytes::{Bytes, BytesMut};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Instant;

    /// An alert of the handshake: `unexpected_message` (RFC 8446 §6).
    pub(super) fn unexpected(reason: String) -> TransportError {
        TransportError { reason, ..TransportErrorCode::crypto(10).into() }
    }

    pub(super) fn cid_generator(
        config: &mut EndpointConfig,
        build: impl Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + 'static,
    ) {
        config.cid_generator(build);
    }

    pub(super) fn endpoint(
        config: EndpointConfig,
        server: Option<ServerConfig>,
        mtu_discovery: bool,
    ) -> Endpoint {
        Endpoint::new(Arc::new(config), server.map(Arc::new), mtu_discovery, None)
    }

    pub(super) fn handle(
        endpoint: &mut Endpoint,
        now: Instant,
        remote: SocketAddr,
        ecn: Option<EcnCodepoint>,
        payload: BytesMut,
        response: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        endpoint.handle(now, remote, None, ecn, payload, response)
    }

    pub(super) fn poll_transmit(
        connection: &mut Connection,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        connection.poll_transmit(now, max_datagrams.max(1), buf)
    }

    pub(super) fn write(stream: &mut SendStream<'_>, chunk: Bytes) -> Result<usize, WriteError> {
        stream.write_chunks(&mut [chunk]).map(|written| written.bytes)
    }

    pub(super) fn counters(connection: &mut Connection) -> Counters {
        let path = connection.stats().path;
        Counters { sent: path.sent_packets, lost: path.lost_packets, srtt: Some(path.rtt) }
    }

    pub(super) fn metrics(connection: &Connection) -> Metrics {
        let ControllerMetrics { congestion_window, ssthresh, pacing_rate, .. } =
            connection.congestion_state().metrics();
        // It reports bits per second.
        Metrics { window: congestion_window, ssthresh, pacing_rate: pacing_rate.map(|rate| rate / 8) }
    }
}

/// Records the calls and passes them on.
mod observed_calls {
    use super::observer::Observer;
    use super::proto::RttEstimator;
    use super::proto::congestion::{Controller, ControllerMetrics};
    use std::any::Any;
    use std::time::Instant;

    impl Controller for Observer {
        fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
            let mut observed = self.lock();
            observed.log.on_sent(self.time(now), bytes);
            observed.inner.get_mut().on_sent(now, bytes, last_packet_number);
        }

        fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
            let mut observed = self.lock();
            observed.log.on_acked(self.time(sent), bytes);
            observed.inner.get_mut().on_ack(now, sent, bytes, app_limited, rtt);
        }

        fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
            let mut observed = self.lock();
            observed.log.on_end_acks(self.time(now), in_flight);
            observed.inner.get_mut().on_end_acks(now, in_flight, app_limited, largest);
        }

        fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost_bytes: u64) {
            let mut observed = self.lock();
            // Without lost bytes it is an ECN mark.
            if lost_bytes > 0 {
                observed.log.on_lost(self.time(now), self.time(sent), lost_bytes, persistent);
            }
            observed.inner.get_mut().on_congestion_event(now, sent, persistent, lost_bytes);
        }

        fn on_mtu_update(&mut self, new_mtu: u16) {
            self.lock().inner.get_mut().on_mtu_update(new_mtu);
        }

        fn window(&self) -> u64 {
            self.lock().inner.get().window()
        }

        fn metrics(&self) -> ControllerMetrics {
            self.lock().inner.get().metrics()
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            self.unobserved()
        }

        fn initial_window(&self) -> u64 {
            self.lock().inner.get().initial_window()
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }
}

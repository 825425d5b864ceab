//! What differs between noq-proto and quinn-proto, in noq-proto's terms.

pub(super) use noq_proto as proto;

#[path = "session.rs"]
mod session;

#[path = "end.rs"]
mod end;

#[path = "observer.rs"]
mod observer;

use super::noq_bbr3::{snapshot as own_snapshot, state as own_state};
use crate::noq as adapter;

pub(crate) use end::{End, Factory};
pub(crate) use observer::{Observing, Source};

use std::sync::Arc;

/// The factory of the stack's own controller `name`, with an initial window in bytes. The stack's
/// default, CUBIC, under other names.
pub(crate) fn own_controller(name: &str, initial_window: u64) -> Factory {
    use proto::congestion::{Bbr3Config, CubicConfig, NewRenoConfig};
    match name {
        "bbr3" => {
            let mut config = Bbr3Config::default();
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

/// Keys and configurations: the traits of the two stacks take different arguments.
mod crypto_keys {
    use super::proto::crypto::{
        self, CryptoError, HandshakeTokenKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
    };
    use super::proto::transport_parameters::TransportParameters;
    use super::proto::{ConnectError, ConnectionId, PathId, Side};
    use super::session::{PlainHeader, Session, server_initial_keys};
    use crate::harness::crypto::{NullKey, Progress, TAG_BYTES};
    use bytes::BytesMut;
    use std::sync::Arc;

    pub(super) type CidArgument<'a> = ConnectionId;

    /// The keys of both directions; what is sent is recorded in `progress`.
    pub(super) fn keys(key: NullKey, progress: Option<Arc<Progress>>) -> Keys {
        Keys {
            header: KeyPair { local: Box::new(PlainHeader), remote: Box::new(PlainHeader) },
            packet: KeyPair { local: Box::new(key.clone().recording(progress)), remote: Box::new(key) },
        }
    }

    impl PacketKey for NullKey {
        fn encrypt(&self, _: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
            self.seal(packet, buf, header_len);
        }

        fn decrypt(
            &self,
            _: PathId,
            packet: u64,
            _: &[u8],
            payload: &mut BytesMut,
        ) -> Result<(), CryptoError> {
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
            &self,
            _: u32,
            _: &str,
            parameters: &TransportParameters,
        ) -> Result<Box<dyn crypto::Session>, ConnectError> {
            Ok(Box::new(Session::new(Side::Client, parameters, self.progress.clone())))
        }
    }

    impl crypto::ServerConfig for Crypto {
        fn initial_keys(&self, _: u32, _: ConnectionId) -> Result<Keys, UnsupportedVersion> {
            server_initial_keys()
        }

        fn retry_tag(&self, _: u32, _: ConnectionId, _: &[u8]) -> [u8; 16] {
            [0; 16]
        }

        fn start_session(&self, _: u32, parameters: &TransportParameters) -> Box<dyn crypto::Session> {
            Box::new(Session::new(Side::Server, parameters, self.progress.clone()))
        }
    }

    /// Tokens are neither sent nor accepted.
    pub(super) struct NoTokens;

    impl HandshakeTokenKey for NoTokens {
        fn seal(&self, _: u128, _: &mut Vec<u8>) -> Result<(), CryptoError> {
            Err(CryptoError)
        }

        fn open<'a>(&self, _: u128, _: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
            Err(CryptoError)
        }
    }
}

/// Calls whose arguments differ between the stacks.
mod calls {
    use super::proto::congestion::ControllerMetrics;
    use super::proto::{
        Connection, ConnectionIdGenerator, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, FourTuple,
        PathId, SendStream, ServerConfig, Transmit, TransportError, TransportErrorCode, WriteError,
    };
    use crate::harness::pair::{Counters, Metrics};
    use bytes::{Bytes, BytesMut};
    use std::net::SocketAddr;
    use std::num::NonZeroUsize;
    use std::sync::Arc;
    use std::time::Instant;

    /// An alert of the handshake: `unexpected_message` (RFC 8446 §6).
    pub(super) fn unexpected(reason: String) -> TransportError {
        TransportError::new(TransportErrorCode::crypto(10), reason)
    }

    pub(super) fn cid_generator(
        config: &mut EndpointConfig,
        build: impl Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + 'static,
    ) {
        config.cid_generator(Arc::new(build));
    }

    pub(super) fn endpoint(
        config: EndpointConfig,
        server: Option<ServerConfig>,
        mtu_discovery: bool,
    ) -> Endpoint {
        Endpoint::new(Arc::new(config), server.map(Arc::new), mtu_discovery)
    }

    pub(super) fn handle(
        endpoint: &mut Endpoint,
        now: Instant,
        remote: SocketAddr,
        ecn: Option<EcnCodepoint>,
        payload: BytesMut,
        response: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        endpoint.handle(now, FourTuple::new(remote, None), ecn, payload, response)
    }

    pub(super) fn poll_transmit(
        connection: &mut Connection,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        connection.poll_transmit(now, NonZeroUsize::new(max_datagrams).unwrap_or(NonZeroUsize::MIN), buf)
    }

    pub(super) fn write(stream: &mut SendStream<'_>, chunk: Bytes) -> Result<usize, WriteError> {
        stream.write_chunks(&mut &mut [chunk][..])
    }

    pub(super) fn counters(connection: &mut Connection) -> Counters {
        let srtt = connection.rtt(PathId::ZERO);
        connection.path_stats(PathId::ZERO).map_or_else(Counters::default, |path| Counters {
            sent: path.sent_packets,
            lost: path.lost_packets,
            srtt,
        })
    }

    pub(super) fn metrics(connection: &Connection) -> Metrics {
        let Some(controller) = connection.congestion_state(PathId::ZERO) else { return Metrics::default() };
        let ControllerMetrics { congestion_window, ssthresh, pacing_rate, .. } = controller.metrics();
        Metrics { window: congestion_window, ssthresh, pacing_rate }
    }
}

/// Records the calls and passes them on.
mod observed_calls {
    use super::observer::Observer;
    use super::proto::RttEstimator;
    use super::proto::congestion::{Controller, ControllerMetrics};
    use std::any::Any;
    use std::time::{Duration, Instant};

    impl Controller for Observer {
        fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
            let mut observed = self.lock();
            observed.log.on_sent(self.time(now), bytes.into());
            observed.inner.get_mut().on_packet_sent(now, bytes, pn);
        }

        fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
            self.lock().inner.get_mut().on_sent(now, bytes, largest_pn);
        }

        fn on_cwnd_limited(&mut self) {
            self.lock().inner.get_mut().on_cwnd_limited();
        }

        fn on_ack(
            &mut self,
            now: Instant,
            sent: Instant,
            bytes: u64,
            pn: u64,
            app_limited: bool,
            rtt: &RttEstimator,
        ) {
            let mut observed = self.lock();
            observed.log.on_acked(self.time(sent), bytes);
            observed.inner.get_mut().on_ack(now, sent, bytes, pn, app_limited, rtt);
        }

        fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
            let mut observed = self.lock();
            observed.log.on_end_acks(self.time(now), in_flight);
            observed.inner.get_mut().on_end_acks(now, in_flight, app_limited, largest);
        }

        fn on_congestion_event(
            &mut self,
            now: Instant,
            sent: Instant,
            persistent: bool,
            ecn: bool,
            lost_bytes: u64,
            largest_lost_pn: u64,
        ) {
            let mut observed = self.lock();
            if !ecn {
                observed.log.on_lost(self.time(now), self.time(sent), lost_bytes, persistent);
            }
            let inner = observed.inner.get_mut();
            inner.on_congestion_event(now, sent, persistent, ecn, lost_bytes, largest_lost_pn);
        }

        fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
            self.lock().inner.get_mut().on_packet_lost(lost_bytes, pn, now);
        }

        fn on_spurious_congestion_event(&mut self) {
            let mut observed = self.lock();
            observed.log.on_spurious();
            observed.inner.get_mut().on_spurious_congestion_event();
        }

        fn on_mtu_update(&mut self, new_mtu: u16) {
            self.lock().inner.get_mut().on_mtu_update(new_mtu);
        }

        fn on_ack_frequency_update(&mut self, threshold: u64, max_ack_delay: Duration) {
            self.lock().inner.get_mut().on_ack_frequency_update(threshold, max_ack_delay);
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

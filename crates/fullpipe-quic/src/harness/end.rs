//! One end of a connection: an endpoint and its connection. Compiled once for each stack, whose
//! types it finds in its parent module.

use super::crypto_keys::{Crypto, NoTokens};
use super::proto::congestion::ControllerFactory;
use super::proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent, Dir,
    EcnCodepoint, Endpoint, EndpointConfig, Event, Incoming, MtuDiscoveryConfig, ReadError, ServerConfig,
    StreamEvent, StreamId, TransportConfig, VarInt, WriteError,
};
use super::session::PlainHmac;
use crate::harness::crypto::Progress;
use crate::harness::pair::{Batch, Counters, EndEvent, EndOptions, Metrics, Read, Rebinding, StackEnd};
use bytes::{Bytes, BytesMut};
use fullpipe_path::Ecn;
use fullpipe_sim::TransportEnd;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Builds the congestion controller of the sending end.
pub(crate) type Factory = Arc<dyn ControllerFactory + Send + Sync>;

/// Zeroes to send: static, so that the stack keeps a reference instead of a copy.
static ZEROES: [u8; 1 << 16] = [0; 1 << 16];

/// Streams that the peer may have open: requests beyond wait. The stacks allocate them in advance.
const MAX_REQUESTS: u64 = 256;

/// Connection identifiers: numbers, so that a seed gives the same bytes.
struct CountingIds {
    next: AtomicU64,
}

impl CountingIds {
    fn after(first: u64) -> Self {
        CountingIds { next: AtomicU64::new(first) }
    }

    fn id(&self) -> ConnectionId {
        ConnectionId::new(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes())
    }
}

impl ConnectionIdGenerator for CountingIds {
    fn generate_cid(&mut self) -> ConnectionId {
        self.id()
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// One end.
pub(crate) struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// Of the end that opens the connection.
    client: Option<ClientConfig>,
    peer: SocketAddr,
    /// The changes of the peer's port to come, and when the next is due.
    rebinding: Option<(Rebinding, Option<Instant>)>,
    /// Datagrams that the endpoint sends without a connection.
    responses: VecDeque<Vec<u8>>,
    failure: Option<String>,
}

fn address(end: TransportEnd) -> SocketAddr {
    let (host, port) = match end {
        TransportEnd::Sender => (1, 40_000),
        TransportEnd::Receiver => (2, 443),
    };
    (Ipv4Addr::new(10, 0, 0, host), port).into()
}

fn var_int(n: u64) -> VarInt {
    VarInt::from_u64(n).unwrap_or(VarInt::MAX)
}

fn transport(options: &EndOptions, factory: Option<Factory>) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(None)
        .initial_mtu(options.min_payload)
        .min_mtu(options.min_payload)
        .mtu_discovery_config(options.mtu_discovery.then(|| {
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(options.payload);
            discovery
        }))
        .max_concurrent_uni_streams(var_int(MAX_REQUESTS))
        .send_window(options.send_window);
    if let Some(window) = options.receive_window {
        transport.stream_receive_window(var_int(window)).receive_window(var_int(window));
    }
    if let Some(factory) = factory {
        transport.congestion_controller_factory(factory);
    }
    Arc::new(transport)
}

impl End {
    /// One end, with the controller of `factory` or the stack's default. It records the progress of
    /// its first stream in `progress`.
    pub(crate) fn new(
        end: TransportEnd,
        options: &EndOptions,
        factory: Option<Factory>,
        progress: Option<Arc<Progress>>,
    ) -> Self {
        // The ends differ in what they draw.
        let own = (options.seed << 1) | u64::from(end == TransportEnd::Receiver);
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&own.to_le_bytes());
        let first_id = u64::from(end == TransportEnd::Receiver) << 63;
        let mut config = EndpointConfig::new(Arc::new(PlainHmac));
        config.rng_seed(Some(seed));
        super::calls::cid_generator(&mut config, move || Box::new(CountingIds::after(first_id)));
        if config.max_udp_payload_size(options.payload.max(1200)).is_err() {
            unreachable!("the size of packets is checked before");
        }
        let crypto = Arc::new(Crypto { progress });
        let transport = transport(options, factory);
        let (client, server) = match end {
            TransportEnd::Sender => {
                let ids = CountingIds::after(1 << 62);
                let mut client = ClientConfig::new(crypto);
                client.transport_config(transport).initial_dst_cid_provider(Arc::new(move || ids.id()));
                (Some(client), None)
            }
            TransportEnd::Receiver => {
                let mut server = ServerConfig::new(crypto, Arc::new(NoTokens));
                server.transport_config(transport);
                (None, Some(server))
            }
        };
        let peer = address(match end {
            TransportEnd::Sender => TransportEnd::Receiver,
            TransportEnd::Receiver => TransportEnd::Sender,
        });
        let endpoint = super::calls::endpoint(config, server, options.mtu_discovery);
        let rebinding = options.rebinding.filter(|_| end == TransportEnd::Receiver);
        End {
            endpoint,
            connection: None,
            client,
            peer,
            rebinding: rebinding.map(|rebinding| (rebinding, None)),
            responses: VecDeque::new(),
            failure: None,
        }
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let mut response = Vec::new();
        match self.endpoint.accept(incoming, now, &mut response, None) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.failure = Some(error.cause.to_string());
                if let Some(transmit) = error.response {
                    response.truncate(transmit.size);
                    self.responses.push_back(response);
                }
            }
        }
    }

    /// The peer's address, which changes now and then if that is wanted, though not before the
    /// handshake is complete (RFC 9000 §9).
    fn peer_address(&mut self, now: Instant) -> SocketAddr {
        let is_open = self.connection.as_ref().is_some_and(|(_, connection)| !connection.is_handshaking());
        if let Some((rebinding, next)) = &mut self.rebinding
            && is_open
        {
            let every = Duration::from_nanos(rebinding.every.as_nanos());
            let due = *next.get_or_insert(now + every);
            if due <= now && rebinding.times > 0 {
                *next = Some(now + every);
                rebinding.times -= 1;
                self.peer.set_port(self.peer.port().wrapping_add(1).max(1024));
            }
        }
        self.peer
    }

    /// Passes what connection and endpoint have for each other.
    fn exchange_events(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut().map(|(_, connection)| connection)
    }
}

fn stream_id(stream: u64) -> StreamId {
    StreamId::from(var_int(stream))
}

impl StackEnd for End {
    fn connect(&mut self, now: Instant) {
        let Some(client) = self.client.take() else { return };
        match self.endpoint.connect(now, client, self.peer, "receiver") {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    fn receive(&mut self, now: Instant, ecn: Ecn, payload: Vec<u8>) {
        let ecn = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(EcnCodepoint::Ect0),
            Ecn::Ect1 => Some(EcnCodepoint::Ect1),
            Ecn::Ce => Some(EcnCodepoint::Ce),
        };
        let payload = BytesMut::from(Bytes::from(payload));
        let mut response = Vec::new();
        let peer = self.peer_address(now);
        match super::calls::handle(&mut self.endpoint, now, peer, ecn, payload, &mut response) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some(connection) = self.connection() {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) if self.connection.is_none() => {
                self.accept(now, incoming);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            Some(DatagramEvent::Response(transmit)) => {
                response.truncate(transmit.size);
                self.responses.push_back(response);
            }
            None => {}
        }
        self.exchange_events();
    }

    fn transmit(&mut self, now: Instant, max_datagrams: usize, buf: &mut Vec<u8>) -> Option<Batch> {
        if let Some(response) = self.responses.pop_front() {
            let size = response.len();
            *buf = response;
            return Some(Batch { size, segment: size, ecn: Ecn::NotEct });
        }
        let transmit = super::calls::poll_transmit(self.connection()?, now, max_datagrams, buf);
        self.exchange_events();
        let transmit = transmit?;
        let ecn = match transmit.ecn {
            None => Ecn::NotEct,
            Some(EcnCodepoint::Ect0) => Ecn::Ect0,
            Some(EcnCodepoint::Ect1) => Ecn::Ect1,
            Some(EcnCodepoint::Ce) => Ecn::Ce,
        };
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        Some(Batch { size: transmit.size, segment, ecn })
    }

    fn next_timer(&mut self) -> Option<Instant> {
        self.connection()?.poll_timeout()
    }

    fn on_timer(&mut self, now: Instant) {
        if let Some(connection) = self.connection() {
            connection.handle_timeout(now);
        }
        self.exchange_events();
    }

    fn poll(&mut self) -> Option<EndEvent> {
        if let Some(reason) = self.failure.take() {
            return Some(EndEvent::Failed(reason));
        }
        let connection = self.connection()?;
        loop {
            return Some(match connection.poll()? {
                Event::Connected => EndEvent::Connected,
                Event::ConnectionLost { reason } => EndEvent::Failed(reason.to_string()),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    match connection.streams().accept(Dir::Uni) {
                        Some(id) => EndEvent::Readable(id.into()),
                        None => continue,
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => EndEvent::Readable(id.into()),
                Event::Stream(StreamEvent::Writable { .. } | StreamEvent::Available { .. }) => {
                    EndEvent::Writable
                }
                _ => continue,
            });
        }
    }

    fn open_stream(&mut self) -> Option<u64> {
        Some(self.connection()?.streams().open(Dir::Uni)?.into())
    }

    fn write(&mut self, stream: u64, bytes: u64) -> u64 {
        let Some(connection) = self.connection() else { return 0 };
        let mut stream = connection.send_stream(stream_id(stream));
        let mut written = 0;
        while written < bytes {
            let len = (bytes - written).min(ZEROES.len() as u64) as usize;
            match super::calls::write(&mut stream, Bytes::from_static(&ZEROES[..len])) {
                Ok(count) => written += count as u64,
                Err(WriteError::Blocked | WriteError::ClosedStream | WriteError::Stopped(_)) => break,
            }
        }
        written
    }

    fn finish_stream(&mut self, stream: u64) {
        if let Some(connection) = self.connection() {
            // It fails for a stream that the peer stopped, which does not happen here.
            let _ = connection.send_stream(stream_id(stream)).finish();
        }
    }

    fn read(&mut self, stream: u64) -> Read {
        let mut read = Read::default();
        let Some(connection) = self.connection() else { return read };
        let mut stream = connection.recv_stream(stream_id(stream));
        let Ok(mut chunks) = stream.read(true) else { return read };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => read.bytes += chunk.bytes.len() as u64,
                Ok(None) | Err(ReadError::Reset(_)) => {
                    read.finished = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
            }
        }
        // More of the window is offered with the next packet, which is polled after every call.
        let _ = chunks.finalize();
        read
    }

    fn counters(&mut self) -> Counters {
        self.connection().map_or_else(Counters::default, super::calls::counters)
    }

    fn metrics(&self) -> Metrics {
        self.connection
            .as_ref()
            .map_or_else(Metrics::default, |(_, connection)| super::calls::metrics(connection))
    }
}

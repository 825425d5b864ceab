//! One connection of noq-proto 1.1.0 with its BBR v3 over a clean path of the simulator, in virtual
//! time. `docs/evidence/quic/noq-loss-underflow.md` has the result.

mod tls;

use bytes::{Bytes, BytesMut};
use fullpipe_path::{BuildContext, Direction, LinkSpec, Outcome, Packet, Path};
use fullpipe_units::Time;
use noq_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, FourTuple, PathId, StreamEvent,
    StreamId,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Length of the connection.
const DURATION: Duration = Duration::from_secs(10);
/// IPv4 and UDP headers.
const HEADER_BYTES: u32 = 28;
/// Datagrams that one call may build.
const BATCH: NonZeroUsize = NonZeroUsize::new(10).unwrap();

fn main() {
    let result = run();
    println!(
        "noq-proto 1.1.0, 10 s over 100 Mbit/s and 40 ms: {} packets sent, {} declared lost ({:.1} %), \
         {} dropped by the queue; {:.1} Mbit/s delivered",
        result.sent,
        result.lost,
        100.0 * result.lost as f64 / result.sent as f64,
        result.dropped,
        result.delivered as f64 * 8e-6 / DURATION.as_secs_f64(),
    );
}

/// What a connection came to.
#[derive(Debug)]
struct Report {
    sent: u64,
    lost: u64,
    dropped: u64,
    delivered: u64,
}

/// One end, and the path to the other.
struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    peer: SocketAddr,
    stream: Option<StreamId>,
    path: Path<Vec<u8>>,
    sent: u64,
    delivered: u64,
}

impl End {
    fn new(endpoint: Endpoint, peer: SocketAddr, direction: Direction) -> Self {
        let link = |text: &str| -> LinkSpec { toml::from_str(text).expect("a valid link") };
        let forward = [link("rate = '100mbit'\ndelay = '20ms'\nqueue = '1bdp'")];
        let reverse = [link("delay = '20ms'")];
        let context = BuildContext::for_path(&forward, &reverse, direction, 1500, 1);
        let links = if direction == Direction::Forward { &forward } else { &reverse };
        let path = Path::new(links, &context).expect("a valid path");
        End { endpoint, connection: None, peer, stream: None, path, sent: 0, delivered: 0 }
    }

    fn receive(&mut self, now: Instant, payload: Vec<u8>) {
        let mut response = Vec::new();
        let from = FourTuple::new(self.peer, None);
        match self.endpoint.handle(now, from, None, BytesMut::from(Bytes::from(payload)), &mut response) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.connection = self.endpoint.accept(incoming, now, &mut response, None).ok();
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Handles the events of the connection: the client writes without end, the server reads.
    fn handle_events(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if connection.side().is_client() => {
                    self.stream = connection.streams().open(Dir::Uni);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.stream = connection.streams().accept(Dir::Uni);
                }
                Event::ConnectionLost { reason } => panic!("the connection is closed: {reason}"),
                _ => {}
            }
        }
        let Some(stream) = self.stream else { return };
        if connection.side().is_client() {
            static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
            while connection.send_stream(stream).write(&ZEROES).is_ok() {}
        } else if let Ok(mut chunks) = connection.recv_stream(stream).read(true) {
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                self.delivered += chunk.bytes.len() as u64;
            }
            let _ = chunks.finalize();
        }
    }

    /// Sends what the connection has to send.
    fn transmit(&mut self, now: Instant, time: Time) {
        self.handle_events();
        loop {
            let Some((_, connection)) = &mut self.connection else { return };
            let mut buf = Vec::new();
            let Some(transmit) = connection.poll_transmit(now, BATCH, &mut buf) else { return };
            for payload in buf[..transmit.size].chunks(transmit.segment_size.unwrap_or(transmit.size)) {
                self.sent += 1;
                let bytes = payload.len() as u32 + HEADER_BYTES;
                self.path.push(time, Packet::new(0, bytes, payload.to_vec()));
            }
            self.handle_events();
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(|(_, connection)| connection.poll_timeout())
    }
}

/// Runs the connection.
fn run() -> Report {
    let base = Instant::now();
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (client, server, config) = tls::endpoints();
    let mut client = End::new(client, address(443), Direction::Forward);
    let mut server = End::new(server, address(40_000), Direction::Reverse);
    client.connection = Some(
        client.endpoint.connect(base, config, address(443), "localhost").expect("a valid configuration"),
    );
    let (mut now, end) = (Time::ZERO, Time::from_nanos(DURATION.as_nanos() as u64));
    let mut dropped = 0;
    while now <= end {
        let instant = base + Duration::from_nanos(now.as_nanos());
        let mut arrived = (Vec::new(), Vec::new());
        client.path.advance(now, &mut |_, outcome| match outcome {
            Outcome::Delivered(packet) => arrived.0.push(packet.data),
            Outcome::Dropped(..) => dropped += 1,
        });
        server.path.advance(now, &mut |_, outcome| {
            if let Outcome::Delivered(packet) = outcome {
                arrived.1.push(packet.data);
            }
        });
        for payload in arrived.0 {
            server.receive(instant, payload);
        }
        for payload in arrived.1 {
            client.receive(instant, payload);
        }
        let mut next = Time::NEVER;
        for end in [&mut client, &mut server] {
            if end.next_timer().is_some_and(|timer| timer <= instant)
                && let Some((_, connection)) = &mut end.connection
            {
                connection.handle_timeout(instant);
            }
            end.transmit(instant, now);
            let timer = end.next_timer().map_or(Time::NEVER, |at| {
                Time::from_nanos(at.saturating_duration_since(base).as_nanos() as u64)
            });
            next = next.min(timer);
        }
        now = next.min(client.path.next_event()).min(server.path.next_event()).max(now);
    }
    let (_, connection) = client.connection.as_mut().expect("it was opened");
    let lost = connection.path_stats(PathId::ZERO).map_or(0, |stats| stats.lost_packets);
    Report { sent: client.sent, lost, dropped, delivered: server.delivered }
}

#[cfg(test)]
mod tests {
    /// `Bbr3::inflight_at_loss`: the only fault of this version that panics.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "attempt to subtract with overflow")]
    fn a_clean_path_makes_bbr3_panic_with_overflow_checks() {
        super::run();
    }
}

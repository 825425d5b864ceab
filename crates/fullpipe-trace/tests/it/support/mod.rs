//! Segments and capture files for tests.

use fullpipe_experiment::connection::Connection;
use fullpipe_trace::wire::{Ecn, Flags, Identity, Segment, TcpOptions};
use fullpipe_trace::{Analyser, Options, TracedConnection};
use fullpipe_units::{Span, Time};
use std::net::SocketAddr;

pub const MSS: u32 = 1000;

pub fn client() -> SocketAddr {
    "10.0.0.1:40000".parse().unwrap()
}

pub fn server() -> SocketAddr {
    "10.0.0.2:443".parse().unwrap()
}

/// Time `ms` after the start of the capture.
pub fn at(ms: f64) -> Time {
    Time::from_nanos(1_700_000_000_000_000_000) + Span::from_secs_f64(ms / 1e3)
}

pub fn segment(ms: f64, from: SocketAddr, flags: u8, seq: u32, ack: u32, payload: u32) -> Segment {
    let to = if from == client() { server() } else { client() };
    Segment {
        at: at(ms),
        from,
        to,
        seq,
        ack,
        flags: Flags(flags),
        window: 60_000,
        payload,
        headers: 40,
        options: TcpOptions::default(),
        ecn: Ecn::NotCapable,
        identity: Identity::default(),
    }
}

/// A download of 10 kB over 40 ms.
pub fn exchange() -> Vec<Segment> {
    let mut t = Exchange::new(7, 9);
    t.open(0.0, 40.0, 0.125);
    for i in 0..10_u32 {
        t.data(41.0 + f64::from(i), i * 1000, (i + 1) * 1000);
        t.ack(81.0 + f64::from(i), (i + 1) * 1000);
    }
    t.segments.sort_by_key(|s| s.at);
    t.segments
}

/// Segments of one connection with the given initial sequence numbers.
pub struct Exchange {
    pub segments: Vec<Segment>,
    pub client_isn: u32,
    pub server_isn: u32,
}

impl Exchange {
    pub fn new(client_isn: u32, server_isn: u32) -> Self {
        Exchange { segments: Vec::new(), client_isn, server_isn }
    }

    /// A handshake in which the server answers after `to_server` and the client after `to_client`
    /// milliseconds.
    pub fn open(&mut self, ms: f64, to_server: f64, to_client: f64) {
        let options = TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..TcpOptions::default() };
        let (c, s) = (self.client_isn, self.server_isn);
        let mut syn = segment(ms, client(), Flags::SYN, c, 0, 0);
        syn.options = options;
        let mut answer = segment(ms + to_server, server(), Flags::SYN | Flags::ACK, s, c.wrapping_add(1), 0);
        answer.options = options;
        self.segments.extend([syn, answer]);
        let done = ms + to_server + to_client;
        self.segments.push(segment(done, client(), Flags::ACK, c.wrapping_add(1), s.wrapping_add(1), 0));
    }

    /// The client sends bytes `from..to` of its data.
    pub fn data(&mut self, ms: f64, from: u32, to: u32) {
        let seq = self.client_isn.wrapping_add(1).wrapping_add(from);
        self.segments.push(segment(
            ms,
            client(),
            Flags::ACK,
            seq,
            self.server_isn.wrapping_add(1),
            to - from,
        ));
    }

    /// The server acknowledges the client's data up to `to`.
    pub fn ack(&mut self, ms: f64, to: u32) -> &mut Segment {
        let ack = self.client_isn.wrapping_add(1).wrapping_add(to);
        self.segments.push(segment(ms, server(), Flags::ACK, self.server_isn.wrapping_add(1), ack, 0));
        self.segments.last_mut().unwrap()
    }

    /// Like [`ack`](Self::ack), with SACK blocks.
    pub fn sack(&mut self, ms: f64, to: u32, blocks: &[(u32, u32)]) {
        let mut list = Vec::new();
        for (a, b) in blocks {
            for edge in [a, b] {
                list.extend(self.client_isn.wrapping_add(1).wrapping_add(*edge).to_be_bytes());
            }
        }
        let option = [&[5, 2 + list.len() as u8][..], &list].concat();
        self.ack(ms, to).options = TcpOptions::parse(&option);
    }

    fn all_traced(&self) -> Vec<TracedConnection> {
        let mut analyser = Analyser::new(Options::default());
        let mut segments = self.segments.clone();
        segments.sort_by_key(|s| s.at);
        segments.iter().for_each(|s| analyser.add_segment(s));
        analyser.finish().connections
    }

    pub fn connections(&self) -> Vec<Connection> {
        self.all_traced().into_iter().map(|c| c.record).collect()
    }

    pub fn traced(&self) -> TracedConnection {
        let mut all = self.all_traced();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    pub fn connection(&self) -> Connection {
        self.traced().record
    }
}

/// An Ethernet frame with `s` in IPv4.
pub fn frame(s: &Segment) -> Vec<u8> {
    let v4 = |a: SocketAddr| match a {
        SocketAddr::V4(a) => a.ip().octets(),
        SocketAddr::V6(_) => [0; 4],
    };
    let mut f = vec![0; 12];
    f.extend(0x0800_u16.to_be_bytes());
    f.extend([0x45, 0]);
    let mut options = Vec::new();
    if let blocks @ [_, ..] = s.options.sack.blocks() {
        options.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
        blocks.iter().for_each(|(a, b)| options.extend([a.to_be_bytes(), b.to_be_bytes()].concat()));
    }
    f.extend((40 + options.len() as u16 + s.payload as u16).to_be_bytes());
    f.extend(s.identity.id.to_be_bytes());
    // Without one, that of a packet of Linux.
    f.extend([0x40, 0, if s.identity.ttl > 0 { s.identity.ttl } else { 64 }, 6, 0, 0]);
    f.extend(v4(s.from));
    f.extend(v4(s.to));
    f.extend(s.from.port().to_be_bytes());
    f.extend(s.to.port().to_be_bytes());
    f.extend(s.seq.to_be_bytes());
    f.extend(s.ack.to_be_bytes());
    f.extend([0x50 + ((options.len() / 4) << 4) as u8, s.flags.0]);
    f.extend(s.window.to_be_bytes());
    f.extend([0; 4]);
    f.extend(options);
    f.extend(vec![0; s.payload as usize]);
    f
}

/// Format of a pcap file.
#[derive(Clone, Copy)]
pub struct PcapFormat {
    pub big_endian: bool,
    pub nanoseconds: bool,
    pub snaplen: usize,
}

pub const FORMAT: PcapFormat = PcapFormat { big_endian: false, nanoseconds: true, snaplen: 65_535 };

/// A pcap file of Ethernet frames.
pub fn pcap(segments: &[Segment], format: PcapFormat) -> Vec<u8> {
    let word = |n: u32| if format.big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let half = |n: u16| if format.big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut out = word(if format.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
    out.extend([half(2), half(4)].concat());
    out.extend([word(0), word(0), word(format.snaplen as u32), word(1)].concat());
    for s in segments {
        let frame = frame(s);
        let kept = frame.len().min(format.snaplen);
        let ns = s.at.as_nanos();
        let part = (ns % 1_000_000_000) as u32 / if format.nanoseconds { 1 } else { 1000 };
        out.extend([word((ns / 1_000_000_000) as u32), word(part), word(kept as u32)].concat());
        out.extend(word(frame.len() as u32));
        out.extend(&frame[..kept]);
    }
    out
}

/// The clock of a pcapng interface.
#[derive(Clone, Copy)]
pub struct Clock {
    pub resolution: u8,
    pub ticks_per_s: u64,
    pub offset_s: u64,
}

impl Clock {
    pub const NANOSECONDS: Clock = Clock { resolution: 9, ticks_per_s: 1_000_000_000, offset_s: 0 };
}

/// The kind of a pcapng block with a packet.
#[derive(Clone, Copy, PartialEq)]
pub enum PacketBlock {
    Enhanced,
    Obsolete,
}

/// The order of bytes in a pcapng section.
#[derive(Clone, Copy)]
struct Order {
    big_endian: bool,
}

impl Order {
    fn word(self, n: u32) -> [u8; 4] {
        if self.big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn half(self, n: u16) -> [u8; 2] {
        if self.big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = 12 + body.len().next_multiple_of(4);
        let mut out = [self.word(kind), self.word(length as u32)].concat();
        out.extend(body);
        out.resize(length - 4, 0);
        out.extend(self.word(length as u32));
        out
    }

    /// The block that begins a section.
    fn section(self) -> Vec<u8> {
        let magic = self.word(0x1a2b_3c4d);
        self.block(0x0a0d_0d0a, &[&magic[..], &self.half(1), &self.half(0), &[0xff; 8]].concat())
    }
}

/// A pcapng file with one interface.
pub fn pcapng_with(segments: &[Segment], big_endian: bool, clock: Clock, packets: PacketBlock) -> Vec<u8> {
    let order = Order { big_endian };
    let (word, half) = (|n| order.word(n), |n| order.half(n));
    let offset = if big_endian { clock.offset_s.to_be_bytes() } else { clock.offset_s.to_le_bytes() };
    let mut out = order.section();
    let mut description = [&half(1)[..], &half(0), &word(0)].concat();
    description.extend([&half(9)[..], &half(1), &[clock.resolution, 0, 0, 0]].concat());
    description.extend([&half(14)[..], &half(8), &offset, &[0; 4]].concat());
    out.extend(order.block(1, &description));
    for s in segments {
        let frame = frame(s);
        let ticks = (u128::from(s.at.as_nanos()) * u128::from(clock.ticks_per_s) / 1_000_000_000) as u64;
        let id = match packets {
            PacketBlock::Enhanced => word(0).to_vec(),
            // The interface and the number of dropped packets, which is unknown.
            PacketBlock::Obsolete => [half(0), half(0xffff)].concat(),
        };
        let length = word(frame.len() as u32);
        let body =
            [&id[..], &word((ticks >> 32) as u32), &word(ticks as u32), &length, &length, &frame].concat();
        out.extend(order.block(if packets == PacketBlock::Enhanced { 6 } else { 2 }, &body));
    }
    out
}

/// A pcapng file with one section, two alternating interfaces (the second with nanoseconds), and
/// drop counters.
pub fn pcapng(segments: &[Segment], big_endian: bool) -> Vec<u8> {
    let order = Order { big_endian };
    let (word, half) = (|n| order.word(n), |n| order.half(n));
    let mut out = order.section();
    let description = |options: &[u8]| [&half(1)[..], &half(0), &word(0), options].concat();
    out.extend(order.block(1, &description(&[])));
    out.extend(order.block(1, &description(&[&half(9)[..], &half(1), &[9, 0, 0, 0], &[0; 4]].concat())));
    for (i, s) in segments.iter().enumerate() {
        let frame = frame(s);
        let units = s.at.as_nanos() / if i % 2 == 0 { 1000 } else { 1 };
        let mut body = [word(i as u32 % 2), word((units >> 32) as u32), word(units as u32)].concat();
        body.extend([word(frame.len() as u32), word(frame.len() as u32)].concat());
        body.extend(&frame);
        out.extend(order.block(6, &body));
    }
    let drops = |n: u64| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut body = [word(0), word(0), word(0)].concat();
    body.extend([&half(5)[..], &half(8), &drops(17), &[0; 4]].concat());
    out.extend(order.block(5, &body));
    out
}

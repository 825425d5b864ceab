//! Senders that wait: for a closed receive window, for the acknowledgment of a small write, or for
//! their application.

use crate::support;
use crate::support::{Exchange, MSS, client, segment, server};
use fullpipe_experiment::connection::{Connection, Direction, Limitation, Point};
use fullpipe_trace::wire::{Flags, TcpOptions};
use fullpipe_trace::{Analyser, Options, text};
use fullpipe_units::Span;
use proptest::prelude::*;

/// How a sender probes a closed window.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Probe {
    /// Without data, as Linux does.
    Empty,
    /// With one byte of new data, as BSD and Windows do.
    Byte,
    /// As before, and the receiver accepts each byte.
    AcceptedByte,
}

/// A path of 30 ms, captured at one end.
struct Path {
    exchange: Exchange,
    at_sender: bool,
    timestamps: bool,
    /// Timestamps, as last received by each end: when, and which.
    values: [Vec<(f64, u32)>; 2],
}

const ONE_WAY: f64 = 15.0;

impl Path {
    fn new(at_sender: bool, timestamps: bool) -> Self {
        let mut exchange = Exchange::new(1000, 2000);
        exchange.open(0.0, if at_sender { 30.0 } else { 0.0 }, if at_sender { 0.0 } else { 30.0 });
        exchange.segments.iter_mut().for_each(|s| {
            if s.flags.has(Flags::SYN) {
                s.options.window_scale = Some(0);
                s.options.mss = Some(MSS as u16 + if timestamps { 12 } else { 0 });
            }
        });
        Path { exchange, at_sender, timestamps, values: [Vec::new(), Vec::new()] }
    }

    /// Adjusts the last segment, which leaves its end at `ms`.
    fn sent(&mut self, ms: f64, from_sender: bool) {
        let seen = if from_sender == self.at_sender { ms } else { ms + ONE_WAY };
        let (mine, other) = (usize::from(from_sender), usize::from(!from_sender));
        let echo = self.values[other].iter().filter(|(at, _)| *at <= ms).map(|(_, v)| *v).max();
        let value = 5000 + ms as u32;
        self.values[mine].push((ms + ONE_WAY, value));
        let last = self.exchange.segments.last_mut().unwrap();
        last.at = support::at(seen);
        if self.timestamps {
            last.options.timestamps = Some((value, echo.unwrap_or(0)));
        }
    }

    fn data(&mut self, ms: f64, from: u32, to: u32) {
        self.exchange.data(ms, from, to);
        self.sent(ms, true);
    }

    fn pushed(&mut self, ms: f64, from: u32, to: u32) {
        self.exchange.data(ms, from, to);
        self.exchange.segments.last_mut().unwrap().flags = Flags(Flags::ACK | Flags::PSH);
        self.sent(ms, true);
    }

    fn ack(&mut self, ms: f64, to: u32, window: u16) {
        self.exchange.ack(ms, to).window = window;
        self.sent(ms, false);
    }

    fn answer(&mut self, ms: f64, from: u32, to: u32, ack: u32) {
        let (seq, ack) = (self.exchange.server_isn + 1 + from, self.exchange.client_isn + 1 + ack);
        let flags = Flags::ACK | Flags::PSH;
        self.exchange.segments.push(segment(ms, server(), flags, seq, ack, to - from));
        self.sent(ms, false);
    }

    fn answer_acked(&mut self, ms: f64, seq: u32, to: u32) {
        let (seq, ack) = (self.exchange.client_isn + 1 + seq, self.exchange.server_isn + 1 + to);
        self.exchange.segments.push(segment(ms, client(), Flags::ACK, seq, ack, 0));
        self.sent(ms, true);
    }

    fn connection(&self) -> Connection {
        self.exchange.connection()
    }
}

/// An upload of forty segments; the window is closed for `seconds`, then twenty more segments follow
/// unless the capture ends.
fn stalled(mut path: Path, probe: Probe, seconds: f64, opens: bool) -> Path {
    let (mut ms, full) = (60.0, 40 * MSS);
    let mut sent = 0;
    for _ in 0..40 {
        path.data(ms, sent, sent + MSS);
        sent += MSS;
        path.ack(ms + ONE_WAY, sent, (full - sent) as u16);
        ms += 1.0;
    }
    let (opening, mut interval) = (ms + seconds * 1e3, 230.0);
    while ms + interval < opening {
        ms += interval;
        interval = f64::min(interval * 2.0, 5000.0);
        match probe {
            Probe::Empty => path.data(ms, sent - 1, sent - 1),
            Probe::Byte | Probe::AcceptedByte => path.data(ms, sent, sent + 1),
        }
        sent += u32::from(probe == Probe::AcceptedByte);
        path.ack(ms + ONE_WAY, sent, 0);
    }
    if opens {
        path.ack(opening, sent, full as u16);
        ms = opening + ONE_WAY + 0.1;
        for _ in 0..20 {
            path.data(ms, sent, sent + MSS);
            sent += MSS;
            path.ack(ms + ONE_WAY, sent, full as u16);
            ms += 1.0;
        }
    }
    path
}

/// Every end, with and without timestamps, and each kind of probe.
fn variants() -> impl Iterator<Item = (bool, bool, Probe)> {
    let probes = [Probe::Empty, Probe::Byte, Probe::AcceptedByte];
    probes.into_iter().flat_map(|p| [(true, true, p), (true, false, p), (false, true, p), (false, false, p)])
}

fn is_within(value: Span, seconds: f64) -> bool {
    (value.as_secs_f64() - seconds).abs() < 0.1
}

#[test]
fn closed_window_is_the_limit_and_its_probes_are_no_data() {
    for (at_sender, timestamps, probe) in variants() {
        let name = format!("at the sender: {at_sender}, timestamps: {timestamps}, {probe:?}");
        let c = stalled(Path::new(at_sender, timestamps), probe, 20.0, true).connection();
        let d = &c.to_server;
        let accepted = if probe == Probe::AcceptedByte { 7 } else { 0 };
        assert_eq!((d.window.zero, d.window.probes), (1, 7), "{name}: {:?}", d.window);
        assert!(is_within(d.window.zero_total, 20.0), "{name}: {:?}", d.window);
        assert_eq!(d.window.zero_longest, d.window.zero_total, "{name}");
        assert_eq!((d.bytes, d.bytes_missed, d.data_packets), (60_000 + accepted, 0, 60), "{name}");
        assert_eq!((d.segments, d.retransmissions.segments, d.lost_segments), (60, 0, 0), "{name}");
        assert_eq!((d.idle.times, d.keep_alives), (0, 0), "{name}: {:?}", d.idle);
        assert!(d.limits.share(Limitation::ReceiveWindow) > 0.985, "{name}: {:?}", d.limits);
        let words = d.limits.words.concat();
        assert!(words.contains("(1 zero window, total 20.0 s)"), "{name}: {words}");
        let text = text::detail(&c);
        assert!(text.contains("zero windows     1, total 20.0 s, longest 20.0 s; 7 window probes"), "{text}");
        let json = serde_json::to_value(&d.window).unwrap();
        assert!((json["zero_total_s"].as_f64().unwrap() - 20.0).abs() < 0.1, "{json}");
        assert_eq!((json["zero"].as_u64(), json["probes"].as_u64()), (Some(1), Some(7)));
    }
}

#[test]
fn window_that_stays_closed_counts_until_the_end_of_the_capture() {
    for (at_sender, timestamps, probe) in variants() {
        let name = format!("at the sender: {at_sender}, timestamps: {timestamps}, {probe:?}");
        let path = stalled(Path::new(at_sender, timestamps), probe, 20.0, false);
        // The last probe is after 17.1 s.
        let d = path.connection().to_server;
        assert!(is_within(d.window.zero_total, 17.1), "{name}: {:?}", d.window);
        assert!(is_within(d.active, 17.2), "{name}: {:?}", d.active);
        assert!(d.limits.share(Limitation::ReceiveWindow) > 0.985, "{name}: {:?}", d.limits);
        assert_eq!(d.retransmissions.segments, 0, "{name}");
        // Another connection shows that the capture went on, but the sender may have given up later.
        for (end, total) in [(30.0, 29.9), (500.0, 137.1)] {
            let mut analyser = Analyser::new(Options::default());
            let mut segments = path.exchange.segments.clone();
            segments.sort_by_key(|s| s.at);
            segments.push(segment(end * 1e3, client(), Flags::SYN, 1, 0, 0));
            let other = segments.last_mut().unwrap();
            other.from.set_port(7);
            segments.iter().for_each(|s| analyser.add_segment(s));
            let d = &analyser.finish().connections[0].record.to_server;
            assert!(is_within(d.window.zero_total, total), "{name}: {:?}", d.window);
            assert!(d.limits.share(Limitation::ReceiveWindow) > 0.985, "{name}: {:?}", d.limits);
        }
    }
}

#[test]
fn short_closed_windows_without_probes_are_the_limit_if_data_waited() {
    for at_sender in [true, false] {
        let mut path = Path::new(at_sender, true);
        let mut ms = 60.0;
        for n in 0..20 {
            path.data(ms, n * MSS, (n + 1) * MSS);
            path.ack(ms + ONE_WAY, (n + 1) * MSS, 0);
            path.ack(ms + ONE_WAY + 100.0, (n + 1) * MSS, MSS as u16);
            ms += 130.1;
        }
        let d = path.connection().to_server;
        assert_eq!((d.window.zero, d.window.probes), (20, 0));
        assert!(d.limits.share(Limitation::ReceiveWindow) > 0.97, "{:?}", d.limits);
    }
}

#[test]
fn idle_sender_does_not_wait_for_a_closed_window() {
    for at_sender in [true, false] {
        let mut path = Path::new(at_sender, true);
        path.pushed(60.0, 0, 500);
        path.ack(75.0, 500, 0);
        path.ack(5075.0, 500, 60_000);
        path.pushed(9000.0, 500, 1000);
        path.ack(9015.0, 1000, 60_000);
        let d = path.connection().to_server;
        assert!(is_within(d.window.zero_total, 5.0), "{:?}", d.window);
        assert_eq!(d.limits.share(Limitation::ReceiveWindow), 0.0, "{:?}", d.limits);
        assert_eq!(d.idle.times, 1);
    }
}

#[test]
fn keep_alives_are_counted_and_are_no_window_probes() {
    for (at_sender, bytes) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let mut path = Path::new(at_sender, false);
        path.data(60.0, 0, MSS);
        path.ack(75.0, MSS, 60_000);
        for n in 0..3 {
            let ms = 10_000.0 + f64::from(n) * 1000.0;
            path.data(ms, MSS - 1, MSS - 1 + bytes);
            // The peer is gone after the first.
            if n == 0 {
                path.ack(ms + ONE_WAY, MSS, 60_000);
            }
        }
        let c = path.connection();
        let d = &c.to_server;
        assert_eq!((d.keep_alives, d.window.probes), (3, 0), "{at_sender} {bytes}");
        assert_eq!((d.bytes, d.data_packets, d.retransmissions.segments), (1000, 1, 0));
        assert!(text::detail(&c).contains("keep-alives      3\n"), "{}", text::detail(&c));
    }
}

#[test]
fn single_request_is_limited_by_its_application() {
    for at_sender in [true, false] {
        let mut path = Path::new(at_sender, false);
        path.pushed(60.0, 0, 600);
        path.ack(75.0, 600, 60_000);
        path.answer(84.0, 0, 900, 600);
        path.answer_acked(99.1, 600, 900);
        let c = path.connection();
        for d in [&c.to_server, &c.to_client] {
            assert!(d.limits.share(Limitation::Application) > 0.99, "{:?}", d.limits);
            assert_eq!(d.small_writes, None);
        }
    }
}

#[test]
fn bulk_data_that_ends_with_a_short_segment_is_not_limited_by_its_application() {
    let mut path = Path::new(true, false);
    for n in 0..20 {
        path.data(60.0 + f64::from(n) * 0.1, n * MSS, (n + 1) * MSS);
    }
    path.pushed(62.0, 20 * MSS, 20 * MSS + 300);
    path.ack(76.9, 20 * MSS + 300, 60_000);
    let d = path.connection().to_server;
    assert_eq!(d.limits.share(Limitation::Application), 0.0, "{:?}", d.limits);
}

#[test]
fn polling_is_limited_by_its_application_throughout() {
    let mut path = Path::new(true, false);
    for n in 0..50 {
        let ms = 1000.0 + 1000.0 * f64::from(n);
        path.pushed(ms, n * 200, (n + 1) * 200);
        path.answer(ms + ONE_WAY, n * 100, (n + 1) * 100, (n + 1) * 200);
        path.answer_acked(ms + 30.1, (n + 1) * 200, (n + 1) * 100);
    }
    let c = path.connection();
    for d in [&c.to_server, &c.to_client] {
        assert!(d.limits.share(Limitation::Application) > 0.99, "{:?}", d.limits);
        // A segment is not as short as the requests are.
        assert_eq!((d.segment_bytes, d.segments, d.btlbw), (Some(MSS), 50, None));
        assert_eq!(d.small_writes, None);
    }
}

/// Writes of `bytes` that each wait for the acknowledgment of the one before, which is delayed by
/// `delay` ms.
fn nagle(at_sender: bool, count: u32, bytes: u32, delay: f64) -> Direction {
    let mut path = Path::new(at_sender, false);
    let mut ms = 60.0;
    for n in 0..count {
        path.pushed(ms, n * bytes, (n + 1) * bytes);
        path.ack(ms + ONE_WAY + delay, (n + 1) * bytes, 60_000);
        ms += 2.0 * ONE_WAY + delay + 0.05;
    }
    path.connection().to_server
}

#[test]
fn small_writes_that_wait_for_acknowledgments_are_named() {
    for (at_sender, bytes, delay) in [true, false]
        .into_iter()
        .flat_map(|a| [(a, 100, 0.0), (a, 100, 40.0), (a, 100, 200.0), (a, 700, 0.0), (a, 1, 0.0)])
    {
        let d = nagle(at_sender, 20, bytes, delay);
        let small = d.small_writes.as_ref().unwrap_or_else(|| panic!("{at_sender} {bytes} {delay}: {d:?}"));
        assert_eq!(small.held, 19);
        assert_eq!(small.delayed_acks, if delay > 0.0 { 19 } else { 0 }, "{at_sender} {delay}");
        assert!(is_within(small.waited, 19.0 * (0.03 + delay / 1e3)), "{small:?}");
        assert!(d.limits.share(Limitation::Application) > 0.98, "{:?}", d.limits);
        let words = d.limits.words.concat();
        assert!(words.contains("small writes waiting for ACKs (Nagle)"), "{words}");
        assert_eq!(words.contains("19 of 19 for a delayed ACK"), delay > 0.0, "{words}");
    }
}

#[test]
fn second_write_of_each_request_waits_for_a_delayed_acknowledgment() {
    for at_sender in [true, false] {
        let mut path = Path::new(at_sender, false);
        for n in 0..5 {
            let ms = 1000.0 + 300.0 * f64::from(n);
            path.pushed(ms, n * 200, n * 200 + 50);
            path.ack(ms + ONE_WAY + 40.0, n * 200 + 50, 60_000);
            path.pushed(ms + 70.02, n * 200 + 50, (n + 1) * 200);
            path.answer(ms + 70.02 + ONE_WAY, n * 100, (n + 1) * 100, (n + 1) * 200);
        }
        let small = path.connection().to_server.small_writes.unwrap();
        assert_eq!((small.held, small.delayed_acks), (5, 5));
    }
}

#[test]
fn writes_on_a_timer_or_after_a_response_do_not_wait() {
    // Every 47 ms, which is longer than the RTT.
    let mut path = Path::new(true, false);
    for n in 0..40 {
        let ms = 60.0 + 47.0 * f64::from(n);
        path.pushed(ms, n * 100, (n + 1) * 100);
        path.ack(ms + ONE_WAY, (n + 1) * 100, 60_000);
    }
    assert_eq!(path.connection().to_server.small_writes, None);
    // Every 7 ms with TCP_NODELAY.
    let mut path = Path::new(true, false);
    for n in 0..40 {
        let ms = 60.0 + 7.0 * f64::from(n);
        path.pushed(ms, n * 100, (n + 1) * 100);
        path.ack(ms + ONE_WAY, (n + 1) * 100, 60_000);
    }
    assert_eq!(path.connection().to_server.small_writes, None);
    // One after each response.
    let mut path = Path::new(true, false);
    for n in 0..40 {
        let ms = 60.0 + 30.05 * f64::from(n);
        path.pushed(ms, n * 100, (n + 1) * 100);
        path.answer(ms + ONE_WAY, n * 100, (n + 1) * 100, (n + 1) * 100);
    }
    assert_eq!(path.connection().to_server.small_writes, None);
}

#[test]
fn segment_size_of_a_connection_older_than_the_capture_is_not_that_of_a_tiny_segment() {
    for sizes in [[1448, 1448, 1448], [1, 1448, 1448], [1, 20, 3]] {
        let mut t = Exchange::new(1000, 2000);
        let mut sent = 0;
        for (n, size) in sizes.into_iter().enumerate() {
            let ms = 100.0 * n as f64;
            t.data(ms, sent, sent + size);
            let last = t.segments.last_mut().unwrap();
            if size < 1448 {
                last.flags = Flags(Flags::ACK | Flags::PSH);
            }
            last.options = TcpOptions::default();
            sent += size;
            t.ack(ms + 20.0, sent);
        }
        let d = t.connection().to_server;
        assert_eq!((d.segments, d.retransmissions.segments), (3, 0), "{sizes:?}");
        assert!(d.segment_bytes >= Some(1448), "{sizes:?}: {:?}", d.segment_bytes);
        assert!(d.limits.share(Limitation::Application) > 0.8, "{sizes:?}: {:?}", d.limits);
    }
}

#[test]
fn segment_larger_than_the_window_does_not_fill_it() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.segments.iter_mut().filter(|s| s.flags.has(Flags::SYN)).for_each(|s| s.options.mss = Some(65_495));
    t.segments.push(segment(30.0, client(), Flags::ACK | Flags::PSH, 1001, 2001, 7));
    t.ack(50.0, 7);
    t.segments.iter_mut().for_each(|s| s.window = 43_690);
    let d = t.connection().to_server;
    assert_eq!(d.limits.share(Limitation::ReceiveWindow), 0.0, "{:?}", d.limits);
    assert_eq!(d.limits.share(Limitation::Application), 1.0, "{:?}", d.limits);
}

#[test]
fn retransmitted_syns_lengthen_the_connect_time() {
    let mut t = Exchange::new(1000, 2000);
    t.segments.push(segment(0.0, client(), Flags::SYN, 1000, 0, 0));
    t.segments.push(segment(1000.0, client(), Flags::SYN, 1000, 0, 0));
    t.open(3000.0, 20.0, 0.1);
    let c = t.connection();
    assert_eq!(c.opening.retransmitted, 2);
    assert!(is_within(c.opening.connect.unwrap(), 3.0201));
    let text = text::detail(&c);
    assert!(text.contains("connected after 3.02 s, 2 retransmitted SYNs or SYN-ACKs"), "{text}");
}

/// A step of a random exchange: its pause, whether the client sends, and its sequence number, payload
/// and window.
fn any_step() -> impl Strategy<Value = (f64, bool, u32, u32, u16)> {
    let payload = prop_oneof![Just(0), Just(1), Just(700), Just(MSS)];
    let window = prop_oneof![Just(0), Just(1), Just(3000), Just(60_000)];
    (0.0..400.0, any::<bool>(), 0..8_u32, payload, window)
}

proptest! {
    #[test]
    fn random_windows_and_probes_keep_figures_consistent(
        steps in proptest::collection::vec(any_step(), 0..80), at_sender: bool
    ) {
        let mut path = Path::new(at_sender, false);
        let mut ms = 60.0;
        let mut ends = [0; 2];
        for (pause, is_client, back, payload, window) in steps {
            ms += pause;
            let (mine, other) = (usize::from(is_client), usize::from(!is_client));
            // Mostly the next byte, and otherwise slightly below.
            let seq = ends[mine] - u32::min(ends[mine], back.saturating_sub(4));
            let (from, isns) = if is_client { (client(), [1000, 2000]) } else { (server(), [2000, 1000]) };
            let mut s = segment(ms, from, Flags::ACK, isns[0] + 1 + seq, isns[1] + 1 + ends[other], payload);
            s.window = window;
            path.exchange.segments.push(s);
            ends[mine] = u32::max(ends[mine], seq + payload);
        }
        let c = path.connection();
        for d in [&c.to_server, &c.to_client] {
            let sum: f64 = d.limits.shares.iter().map(|s| s.share).sum();
            let rest = 1.0 - sum;
            prop_assert!((-1e-6..=1.0 + 1e-6).contains(&rest), "{:?}", d.limits);
            let mut words = d.limits.words.iter();
            let is_named = words.any(|words| words.contains("does not show what limited"));
            let is_rounded = (rest - 0.1).abs() < 1e-6 || d.limits.words.is_empty();
            prop_assert!(is_rounded || is_named == (rest > 0.1), "{:?}", d.limits);
            let w = &d.window;
            prop_assert!(w.zero_longest <= w.zero_total, "{:?}", w);
            prop_assert!(w.zero_longest * w.zero >= w.zero_total, "{:?}", w);
            prop_assert!(w.zero_total <= c.duration + Span::from_millis(40), "{:?} in {:?}", w, c.duration);
            prop_assert!(d.bytes <= u64::from(ends[0].max(ends[1])), "{:?}", d);
        }
    }
}

/// The client writes every 80 ms and is answered after 0.02 ms, with timestamps. Whether the capture
/// is at the server, or at the client of a server nearby, only a handshake can show.
#[test]
fn place_is_a_guess_if_an_end_answers_with_data_only() {
    for handshake in [false, true] {
        let mut t = Exchange::new(100, 500);
        if handshake {
            t.open(0.0, 0.02, 79.98);
        }
        for n in 0..12 {
            let ms = 160.0 + 80.0 * f64::from(n);
            t.data(ms, n * MSS, (n + 1) * MSS);
            t.segments.last_mut().unwrap().options.timestamps = Some((1000 + n * 80, 500 + n * 80));
            t.ack(ms + 0.02, (n + 1) * MSS).options.timestamps = Some((580 + n * 80, 1000 + n * 80));
        }
        let c = t.connection();
        assert_eq!((c.vantage.point, c.vantage.is_guess), (Point::Server, !handshake), "{:?}", c.vantage);
        let evidence = c.vantage.evidence.iter().any(|e| e.contains("the client answered with data only"));
        assert_eq!(evidence, !handshake, "{:?}", c.vantage);
        let printed = text::detail(&c).contains("captured probably at the server: ");
        assert_eq!(printed, !handshake);
    }
}

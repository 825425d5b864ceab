//! What captures do to connections: packets captured twice or written out of order, and packets of
//! other connections with the same ports.

use crate::support::{Exchange, MSS, PcapFormat, at, client, pcap, segment, server};
use fullpipe_experiment::connection::{Closing, Connection, Handshake, Limitation, Point};
use fullpipe_trace::wire::{Flags, Identity, Segment};
use fullpipe_trace::{Analyser, Options, input, text};
use proptest::prelude::*;
use std::net::SocketAddr;

/// Round-trip time of the path.
const RTT: f64 = 20.0;

fn analysed(segments: &[Segment]) -> Vec<Connection> {
    let mut analyser = Analyser::new(Options::default());
    segments.iter().for_each(|s| analyser.add_segment(s));
    analyser.finish().connections.into_iter().map(|c| c.record).collect()
}

fn single(segments: &[Segment]) -> Connection {
    let mut all = analysed(segments);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// `segments` in the order of their times.
fn sorted(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.sort_by_key(|s| s.at);
    segments
}

/// An upload of `rounds` rounds of 20 segments, captured `to_receiver` milliseconds from the
/// receiver on a path of [`RTT`], with a new identification for each packet.
fn upload(rounds: u32, to_receiver: f64, timestamps: bool) -> Vec<Segment> {
    let mut t = Exchange::new(100, 500);
    t.open(0.0, to_receiver, RTT - to_receiver + 0.01);
    for n in 0..rounds * 20 {
        let sent = RTT + 1.0 + f64::from(n) * RTT / 20.0;
        t.data(sent, n * MSS, (n + 1) * MSS);
        t.ack(sent + to_receiver, (n + 1) * MSS);
    }
    let mut segments = sorted(t.segments);
    let mut ids = [0_u16; 2];
    for s in &mut segments {
        let from = usize::from(s.from == server());
        ids[from] += 1;
        s.identity = Identity { id: ids[from], ttl: 64 };
        if timestamps {
            let ms = |t: f64| ((s.at.since(at(0.0)).as_secs_f64() * 1e3 + t).max(0.0)) as u32;
            let (value, echo) = (ms(1000.0), ms(if from == 0 { 1000.0 - RTT } else { 1000.0 - to_receiver }));
            s.options.timestamps = Some((value, echo));
        }
    }
    segments
}

/// `segments` and their copies of `from` (both ends if `None`), captured `gap` milliseconds later
/// with a TTL lower by `hops`.
fn doubled(segments: &[Segment], gap: f64, hops: u8, from: Option<SocketAddr>) -> Vec<Segment> {
    let copied = segments.iter().filter(|s| from.is_none_or(|from| s.from == from));
    let copies = copied.map(|s| Segment {
        at: s.at + fullpipe_units::Span::from_secs_f64(gap / 1e3),
        identity: Identity { ttl: s.identity.ttl - hops, ..s.identity },
        ..*s
    });
    sorted(segments.iter().copied().chain(copies).collect())
}

/// `c` without what reports copies, and without times that a late copy at the end extends.
fn without_copies(mut c: Connection) -> Connection {
    c.duration = fullpipe_units::Span::ZERO;
    c.notes.retain(|note| !note.contains("captured twice"));
    for d in [&mut c.to_server, &mut c.to_client] {
        d.duplicate_packets = 0;
    }
    c
}

#[test]
fn packets_captured_twice_change_no_figure() {
    for (to_receiver, timestamps) in [(RTT, false), (RTT, true), (0.1, false), (0.1, true), (8.0, true)] {
        let segments = upload(30, to_receiver, timestamps);
        let once = without_copies(single(&segments));
        assert_eq!(once.to_server.retransmissions.segments, 0);
        // Next to each other, a while later, and behind many other packets.
        for gap in [0.0, 0.02, 0.3, 5.0, 15.0] {
            for hops in [0, 1] {
                for from in [None, Some(client()), Some(server())] {
                    let twice = single(&doubled(&segments, gap, hops, from));
                    let context = format!("{to_receiver} ms {timestamps} gap {gap} hops {hops} {from:?}");
                    let copies = twice.to_server.duplicate_packets + twice.to_client.duplicate_packets;
                    let expected = segments.iter().filter(|s| from.is_none_or(|from| s.from == from)).count();
                    assert_eq!(copies, expected as u64, "{context}");
                    assert!(twice.notes.iter().any(|n| n.contains("captured twice")), "{context}");
                    assert_eq!(without_copies(twice), once, "{context}");
                }
            }
        }
    }
}

#[test]
fn capture_without_acks_is_noted() {
    let with_data = |seconds: f64, from| Segment {
        at: at(seconds * 1e3),
        ..segment(0.0, from, Flags::ACK, 1000 + seconds as u32 * 100, 1000 + seconds as u32 * 100, 100)
    };
    let mut segments = vec![with_data(1.0, client()), with_data(1.1, server()), with_data(8.0, client())];
    let is_noted =
        |segments: &[Segment]| single(segments).notes.iter().any(|n| n.contains("no packets without data"));
    assert!(is_noted(&segments));
    segments.insert(2, Segment { payload: 0, ..with_data(1.2, client()) });
    assert!(!is_noted(&segments));
}

#[test]
fn copies_are_counted_in_text_and_json() {
    let c = single(&doubled(&upload(2, RTT, false), 0.02, 1, None));
    assert_eq!((c.to_server.duplicate_packets, c.to_client.duplicate_packets), (42, 41));
    let text = text::detail(&c);
    assert!(text.contains("42 packets captured twice"), "{text}");
    assert!(text.contains("note: 42 packets to the server were captured twice"), "{text}");
    let json = serde_json::to_value(&c).unwrap();
    assert_eq!(json["to_server"]["duplicate_packets"], 42);
    let once = serde_json::to_value(single(&upload(2, RTT, false))).unwrap();
    assert!(once["to_server"].get("duplicate_packets").is_none());
}

#[test]
fn copies_in_a_file_are_recognised_by_their_headers() {
    let segments = doubled(&upload(3, 0.1, false), 0.3, 1, None);
    let file = pcap(&segments, PcapFormat { big_endian: false, nanoseconds: true, snaplen: 96 });
    let mut analyser = Analyser::new(Options::default());
    input::read("copies", &file[..], |frame| analyser.add_frame(frame)).unwrap();
    let d = analyser.finish().connections.remove(0).record.to_server;
    assert_eq!((d.duplicate_packets, d.retransmissions.segments, d.lost_segments), (62, 0, 0));
}

#[test]
fn copies_without_identification_are_recognised_if_no_retransmission_is_that_early() {
    for (to_receiver, timestamps) in [(RTT, false), (RTT, true), (0.1, false), (0.1, true)] {
        let mut segments = upload(30, to_receiver, timestamps);
        segments.iter_mut().for_each(|s| s.identity.id = 0);
        for (gap, hops) in [(0.02, 0), (0.02, 1), (3.0, 1), (3.0, 0)] {
            let twice = single(&doubled(&segments, gap, hops, None));
            let d = &twice.to_server;
            let context = format!("{to_receiver} ms {timestamps} gap {gap} hops {hops}");
            assert_eq!((d.retransmissions.segments, d.lost_segments), (0, 0), "{context}");
            // ACKs that are alike and have one TTL may be duplicate ACKs.
            assert!(d.duplicate_packets >= 601, "{context}: {}", d.duplicate_packets);
            assert_eq!(twice.to_client.duplicate_packets > 1, hops > 0, "{context}");
            assert_eq!(d.bytes, 600_000, "{context}");
        }
    }
}

#[test]
fn retransmissions_are_not_copies() {
    // With a new identification at any time, and without one an RTT later. Some hosts have one
    // identification for all packets.
    for (id, gap) in
        [(Some(40_000), 0.5), (Some(40_000), 25.0), (Some(0), 25.0), (None, 25.0), (Some(7), 25.0)]
    {
        let mut segments = upload(3, RTT, false);
        if id == Some(7) || id == Some(0) {
            segments.iter_mut().for_each(|s| s.identity.id = id.unwrap());
        }
        let original = *segments.iter().filter(|s| s.payload > 0).nth(30).unwrap();
        let mut again = original;
        again.at += fullpipe_units::Span::from_secs_f64(gap / 1e3);
        again.identity.id = id.unwrap_or(original.identity.id);
        segments.push(again);
        let d = single(&sorted(segments)).to_server;
        assert_eq!((d.duplicate_packets, d.retransmissions.segments), (0, 1), "{id:?} {gap}");
    }
}

#[test]
fn equal_duplicate_acks_with_one_identification_are_not_copies() {
    let mut t = Exchange::new(100, 500);
    t.open(0.0, RTT, 0.1);
    for n in 0..6 {
        t.data(30.0 + f64::from(n), n * MSS, (n + 1) * MSS);
    }
    t.ack(50.0, MSS);
    for n in 0..3 {
        t.ack(52.0 + f64::from(n), MSS);
    }
    t.segments.iter_mut().for_each(|s| s.identity = Identity { id: 1, ttl: 64 });
    t.data(55.0, MSS, 2 * MSS);
    t.ack(75.0, 6 * MSS);
    let c = t.connection();
    assert_eq!(c.to_client.duplicate_packets, 0);
    assert_eq!((c.to_server.retransmissions.fast, c.to_server.lost_segments), (1, 1));
}

/// An upload of `count` segments from `start` ms on, a millisecond apart.
fn add_upload(t: &mut Exchange, start: f64, count: u32) {
    t.open(start, RTT, 0.1);
    for n in 0..count {
        t.data(start + RTT + 1.0 + f64::from(n), n * MSS, (n + 1) * MSS);
        t.ack(start + 2.0 * RTT + 1.0 + f64::from(n), (n + 1) * MSS);
    }
}

#[test]
fn ack_of_an_old_connection_does_not_hide_the_upload() {
    let mut clean = Exchange::new(255_601_861, 499);
    add_upload(&mut clean, 1000.0, 600);
    let expected = clean.connection();
    let mut t = Exchange::new(255_601_861, 499);
    t.segments.push(segment(0.0, client(), Flags::SYN, 255_601_861, 0, 0));
    t.segments.push(segment(29.0, server(), Flags::ACK, 3_738_406_957, 1_116_180_385, 0));
    t.segments.push(segment(29.2, client(), Flags::RST, 1_116_180_385, 0, 0));
    add_upload(&mut t, 1000.0, 600);
    let c = t.connection();
    assert_eq!((c.closing, c.opening.handshake), (Closing::Open, Handshake::Seen));
    assert_eq!(c.vantage, expected.vantage);
    let d = &c.to_server;
    assert_eq!((d.bytes, d.bytes_missed, d.unbelieved_acks), (600_000, 0, 1));
    assert_eq!((d.goodput, d.rtprop, d.btlbw), {
        let e = &expected.to_server;
        (e.goodput, e.rtprop, e.btlbw)
    });
    assert!(
        c.notes.iter().any(|n| n.starts_with("1 ACK of data to the server was ignored")),
        "{:?}",
        c.notes
    );
    assert!(text::detail(&c).contains("1 ACK of another connection"));
    assert_eq!(serde_json::to_value(&c).unwrap()["to_server"]["unbelieved_acks"], 1);
}

#[test]
fn ack_of_an_old_connection_in_between_is_not_believed() {
    for timestamps in [false, true] {
        for far in [900_000_000_u32, 20_000_000, 3_000_000_000] {
            let mut t = Exchange::new(1000, 2000);
            add_upload(&mut t, 0.0, 300);
            if timestamps {
                for s in &mut t.segments {
                    let ms = s.at.since(at(0.0)).as_millis_f64() as u32 + 1000;
                    s.options.timestamps = Some((ms, ms - 20));
                }
            }
            let expected = t.connection().to_server;
            for ms in [150.0, 151.0, 250.0] {
                let mut stray = segment(ms + 0.5, server(), Flags::ACK, 77, far, 0);
                stray.options.timestamps = timestamps.then_some((4_000_000, 9));
                t.segments.push(stray);
            }
            let d = t.connection().to_server;
            assert_eq!(d.unbelieved_acks, 3, "{far}");
            let figures = |d: &fullpipe_experiment::connection::Direction| {
                (d.bytes, d.bytes_missed, d.goodput, d.btlbw, d.rtt.clone(), d.retransmissions.clone())
            };
            assert_eq!(figures(&d), figures(&expected), "{far}");
        }
    }
}

#[test]
fn acks_continue_after_data_that_the_capture_missed() {
    let mut t = Exchange::new(1000, 2000);
    add_upload(&mut t, 0.0, 100);
    // The capture misses 40 MB.
    for n in 0..20 {
        t.ack(1000.0 + f64::from(n), 40_000_000 + n * MSS);
    }
    let d = t.connection().to_server;
    assert_eq!((d.unbelieved_acks, d.bytes), (0, 100_000));
    assert_eq!(d.bytes_missed, 40_000_000 + 19_000 - 100_000);
    // Data shows it as well.
    let mut t = Exchange::new(1000, 2000);
    add_upload(&mut t, 0.0, 100);
    t.ack(1000.0, 40_000_000);
    t.data(1001.0, 40_010_000, 40_011_000);
    t.ack(1021.0, 40_011_000);
    let d = t.connection().to_server;
    assert_eq!((d.unbelieved_acks, d.bytes), (0, 101_000));
}

#[test]
fn syn_with_a_new_number_opens_another_connection() {
    let fin = Flags::FIN | Flags::ACK;
    let reset = [segment(60.0, client(), Flags::RST, 1501, 0, 0)].to_vec();
    let closed = [
        segment(60.0, client(), fin, 1501, 2001, 0),
        segment(80.0, server(), fin, 2001, 1502, 0),
        segment(80.1, client(), Flags::ACK, 1502, 2002, 0),
    ];
    for end in [Vec::new(), reset, closed.to_vec()] {
        let mut t = Exchange::new(1000, 2000);
        t.open(0.0, RTT, 0.1);
        t.data(30.0, 0, 500);
        t.segments.extend(&end);
        let first = t.segments.clone();
        let mut again = Exchange::new(900_000, 800_000);
        again.open(100.0, RTT, 0.1);
        again.data(130.0, 0, 700);
        t.segments.extend(&again.segments);
        let bytes: Vec<_> = t.connections().iter().map(|c| c.to_server.bytes).collect();
        assert_eq!(bytes, [500, 700], "{end:?}");
        // From the other end.
        let swapped = again.segments.iter().map(|s| Segment { from: s.to, to: s.from, ..*s });
        let found = analysed(&first.iter().copied().chain(swapped).collect::<Vec<_>>());
        let ends: Vec<_> = found.iter().map(|c| (c.client, c.to_server.bytes)).collect();
        assert_eq!(ends, [(client(), 500), (server(), 700)], "{end:?}");
    }
}

#[test]
fn closed_connection_with_the_same_number_begins_again() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, RTT, 0.1);
    t.data(30.0, 0, 500);
    t.segments.push(segment(60.0, client(), Flags::RST, 1501, 0, 0));
    let mut again = Exchange::new(1000, 7000);
    again.open(1000.0, RTT, 0.1);
    again.data(1030.0, 0, 700);
    t.segments.extend(&again.segments);
    let found: Vec<_> = t.connections().iter().map(|c| (c.to_server.bytes, c.opening.handshake)).collect();
    assert_eq!(found, [(500, Handshake::Seen), (700, Handshake::Seen)]);
}

/// An upload of which every tenth data packet is captured `late` ms after its ACK.
fn behind_acks(late: f64, timestamps: bool) -> (Vec<Segment>, Connection) {
    let mut t = Exchange::new(100, 500);
    add_upload(&mut t, 0.0, 300);
    if timestamps {
        for s in &mut t.segments {
            let ms = s.at.since(at(0.0)).as_millis_f64() as u32 + 1000;
            s.options.timestamps = Some((ms, ms - 20));
        }
    }
    let clean = t.connection();
    let data = t.segments.iter_mut().filter(|s| s.payload > 0).enumerate();
    data.filter(|(n, _)| n % 10 == 5)
        .for_each(|(_, s)| s.at += fullpipe_units::Span::from_secs_f64((RTT + late) / 1e3));
    (sorted(t.segments), clean)
}

#[test]
fn data_behind_its_own_ack_is_no_loss() {
    for late in [0.005, 0.4, 2.0] {
        for timestamps in [false, true] {
            let (segments, clean) = behind_acks(late, timestamps);
            let c = single(&segments);
            let d = &c.to_server;
            assert_eq!((d.lost_segments, d.retransmissions.segments), (0, 0), "{late}");
            assert_eq!((d.bytes, d.bytes_missed, d.misordered_packets), (300_000, 0, 30), "{late}");
            assert!(d.limits.shares.iter().all(|s| s.by != Limitation::Policer), "{:?}", d.limits);
            assert_eq!(d.limits.dominant().unwrap().by, clean.to_server.limits.dominant().unwrap().by);
            let rate =
                |d: &fullpipe_experiment::connection::Direction| d.btlbw.unwrap().as_bits_per_sec_f64();
            let ratio = rate(d) / rate(&clean.to_server);
            assert!((0.97..1.03).contains(&ratio), "{ratio}");
            assert!(
                c.notes
                    .iter()
                    .any(|n| n.starts_with("30 packets to the server were reordered by the capture"))
            );
            assert!(text::detail(&c).contains("30 packets written out of order"));
        }
    }
}

#[test]
fn data_behind_its_own_ack_at_the_receiver_is_no_loss() {
    let mut t = Exchange::new(100, 500);
    t.open(0.0, 0.1, RTT);
    for n in 0..300 {
        let late = if n % 10 == 5 { 0.105 } else { 0.0 };
        t.data(30.0 + f64::from(n) + late, n * MSS, (n + 1) * MSS);
        t.ack(30.1 + f64::from(n), (n + 1) * MSS);
    }
    let c = t.connection();
    let d = &c.to_server;
    assert_eq!(c.vantage.point, Point::Server);
    assert_eq!((d.lost_segments, d.retransmissions.segments, d.reordering.segments), (0, 0, 0));
    assert_eq!((d.bytes, d.bytes_missed, d.misordered_packets), (300_000, 0, 30));
    assert!(d.limits.shares.iter().all(|s| s.by != Limitation::Policer), "{:?}", d.limits);
}

#[test]
fn retransmission_of_missed_data_is_not_written_late() {
    let mut t = Exchange::new(100, 500);
    add_upload(&mut t, 0.0, 50);
    // The capture misses a segment; its retransmission is spurious.
    t.ack(200.0, 51 * MSS);
    t.data(250.0, 50 * MSS, 51 * MSS);
    let d = t.connection().to_server;
    assert_eq!((d.misordered_packets, d.retransmissions.segments, d.bytes_missed), (0, 1, 1000));
}

#[test]
fn handshake_written_out_of_order_is_one_connection() {
    let mut t = Exchange::new(100, 500);
    add_upload(&mut t, 0.0, 50);
    let clean = t.connection();
    let order = |order: &[usize]| {
        let mut segments = t.segments.clone();
        for (i, &from) in order.iter().enumerate() {
            segments[i] = Segment { at: at(i as f64 * 0.001 + 20.0), ..t.segments[from] };
        }
        single(&segments)
    };
    // SYN, SYN-ACK, ACK and data in other orders.
    for positions in [[1, 0, 2, 3], [1, 2, 0, 3], [0, 2, 1, 3], [2, 3, 0, 1], [3, 2, 1, 0], [3, 0, 1, 2]] {
        let c = order(&positions);
        assert_eq!((c.client, c.opening.handshake), (client(), Handshake::Seen), "{positions:?}");
        assert_eq!(c.to_server.options, clean.to_server.options, "{positions:?}");
        let d = &c.to_server;
        assert_eq!((d.bytes, d.retransmissions.segments, d.bytes_missed), (50_000, 0, 0), "{positions:?}");
        assert!(d.misordered_packets + c.to_client.misordered_packets > 0, "{positions:?}");
    }
    // The ports suggest the wrong roles until the SYN is read.
    let ends = |s: &Segment| Segment { from: s.to, to: s.from, ..*s };
    let mut segments: Vec<_> = t.segments.iter().map(ends).collect();
    segments[0].at = segments[3].at + fullpipe_units::Span::from_micros(5);
    segments.drain(1..3);
    let c = single(&sorted(segments));
    assert_eq!((c.client, c.to_server.bytes), (server(), 50_000));
    // The third packet before the SYN-ACK, as a client's queues write it.
    let mut segments = t.segments.clone();
    segments[1].at = segments[2].at + fullpipe_units::Span::from_micros(5);
    let c = single(&sorted(segments));
    assert_eq!(c.vantage.point, Point::Client, "{:?}", c.vantage);
}

#[test]
fn packets_with_times_before_the_previous_one_are_counted() {
    let mut t = Exchange::new(100, 500);
    add_upload(&mut t, 0.0, 50);
    let mut segments = sorted(t.segments);
    let clean = single(&segments);
    segments.swap(30, 31);
    segments[30].at = segments[31].at + fullpipe_units::Span::from_micros(3);
    let c = single(&segments);
    assert_eq!(c.to_server.misordered_packets + c.to_client.misordered_packets, 1);
    assert_eq!(c.to_server.retransmissions, clean.to_server.retransmissions);
}

proptest! {
    #[test]
    fn any_mixture_of_copies_and_numbers_is_analysed(
        steps in proptest::collection::vec((0..300_000_u64, any::<[u8; 6]>(), any::<u32>()), 0..300),
    ) {
        let mut now = at(0.0);
        let mut analyser = Analyser::new(Options::default());
        for (us, [way, flags, seq, id, ttl, payload], number) in steps {
            now += fullpipe_units::Span::from_micros(us >> (way >> 4));
            let from = if way & 1 == 0 { client() } else { server() };
            let near = u32::from(seq) * 500;
            let far = if way & 6 == 6 { number } else { near };
            let mut s = segment(0.0, from, flags & 0x1f, near, far, u32::from(payload) * 8);
            s.at = now;
            s.identity = Identity { id: u16::from(id & 7), ttl: 64 - (ttl & 1) };
            analyser.add_segment(&s);
            if ttl & 2 != 0 {
                analyser.add_segment(&s);
            }
        }
        let found = analyser.finish();
        prop_assert!(found.connections.iter().all(|c| !text::detail(&c.record).is_empty()));
    }
}

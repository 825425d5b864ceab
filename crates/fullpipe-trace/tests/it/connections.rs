//! Analysis of segment sequences with known results.

use crate::support::{Exchange, client, segment, server};
use fullpipe_experiment::connection::{Closing, Handshake, Limitation, Place, Point};
use fullpipe_trace::wire::{Flags, Segment, TcpOptions};
use fullpipe_trace::{Analyser, Options};
use fullpipe_units::{Span, Time};
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddr};

#[test]
fn handshake_shows_place_and_options() {
    for (to_server, to_client, point) in [
        (40.0, 0.1, Point::Client),
        (0.1, 40.0, Point::Server),
        (15.0, 25.0, Point::Between),
        (0.01, 0.02, Point::Unknown),
    ] {
        let mut t = Exchange::new(100, 200);
        t.open(0.0, to_server, to_client);
        let c = t.connection();
        assert_eq!(c.vantage.point, point, "{:?}", c.vantage);
        assert_eq!(c.opening.handshake, Handshake::Seen);
        assert_eq!(c.to_server.options.mss, Some(1000));
        assert!(!c.vantage.evidence.is_empty());
    }
}

#[test]
fn place_is_unknown_if_a_host_may_take_as_long_to_answer() {
    for (to_server, to_client) in [(0.2, 0.06), (0.9, 0.5), (12.0, 1.5)] {
        let mut t = Exchange::new(1000, 2000);
        t.open(0.0, to_server, to_client);
        let vantage = t.connection().vantage;
        let expected = if to_client > 1.0 { Point::Between } else { Point::Unknown };
        assert_eq!(vantage.point, expected, "{vantage:?}");
    }
}

#[test]
fn connection_within_a_host_has_no_place() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 5.0, 0.01);
    let local = |a: SocketAddr| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), a.port());
    for s in &mut t.segments {
        (s.from, s.to) = (local(s.from), local(s.to));
    }
    let vantage = t.connection().vantage;
    assert_eq!(vantage.point, Point::Unknown);
    assert!(vantage.evidence.iter().any(|e| e.contains("one host")), "{vantage:?}");
}

#[test]
fn bytes_are_counted_across_sequence_number_wraparound() {
    let mut t = Exchange::new(u32::MAX - 2500, 5);
    t.open(0.0, 20.0, 0.1);
    for i in 0..10 {
        t.data(30.0 + f64::from(i) * 30.0, i * 1000, (i + 1) * 1000);
        t.ack(50.0 + f64::from(i) * 30.0, (i + 1) * 1000);
    }
    let c = t.connection();
    assert_eq!((c.to_server.bytes, c.to_server.retransmissions.segments), (10_000, 0));
    assert_eq!(c.to_server.rtprop, Some(Span::from_millis(20)));
}

#[test]
fn reused_port_is_another_connection() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 500);
    t.segments.push(segment(60.0, server(), Flags::RST, 2001, 0, 0));
    let mut again = Exchange::new(900_000, 800_000);
    again.open(100.0, 20.0, 0.1);
    again.data(130.0, 0, 700);
    t.segments.extend(again.segments);
    let found = t.connections();
    let facts: Vec<_> = found.iter().map(|c| (c.closing, c.to_server.bytes)).collect();
    assert_eq!(facts, [(Closing::ResetByServer, 500), (Closing::Open, 700)]);
}

#[test]
fn retransmitted_syn_opens_no_connection() {
    let mut t = Exchange::new(1000, 2000);
    t.segments.push(segment(0.0, client(), Flags::SYN, 1000, 0, 0));
    t.open(1000.0, 20.0, 0.1);
    let c = t.connection();
    assert_eq!(c.opening.retransmitted, 1);
    // Karn's algorithm: it is unknown which SYN was answered.
    assert_eq!(c.opening.to_server, None);
}

#[test]
fn syn_ack_that_was_sent_once_gives_a_round_trip_although_the_syn_was_repeated() {
    let mut t = Exchange::new(1000, 2000);
    t.segments.push(segment(0.0, client(), Flags::SYN, 1000, 0, 0));
    t.open(1026.0, 3.0, 3.5);
    t.data(1040.0, 0, 132);
    t.ack(1068.0, 132);
    t.segments.push(segment(1069.0, server(), Flags::ACK | Flags::PSH, 2001, 1133, 52));
    // A delayed ACK.
    t.segments.push(segment(1587.0, client(), Flags::ACK, 1133, 2053, 0));
    let c = t.connection();
    assert_eq!(c.opening.to_server, None);
    let is = |span: Option<Span>, ms: f64| span.is_some_and(|s| (s.as_millis_f64() - ms).abs() < 1e-3);
    assert!(is(c.opening.to_client, 3.5), "{:?}", c.opening);
    assert!(is(c.to_server.rtprop, 31.5), "{:?}", c.vantage);
    assert_ne!(c.vantage.point, Point::Server);
}

#[test]
fn one_end_can_close_before_the_other() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 500);
    t.segments.push(segment(31.0, client(), Flags::FIN | Flags::ACK, 1501, 2001, 0));
    t.ack(51.0, 501);
    assert_eq!(t.connection().closing, Closing::HalfClosed);
    t.segments.push(segment(60.0, server(), Flags::FIN | Flags::ACK, 2001, 1502, 0));
    t.segments.push(segment(60.1, client(), Flags::ACK, 1502, 2002, 0));
    let c = t.connection();
    assert_eq!((c.closing, c.to_server.bytes, c.to_client.bytes), (Closing::Closed, 500, 0));
}

#[test]
fn reset_of_a_connection_that_both_ends_closed_is_not_its_end() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 500);
    t.segments.push(segment(31.0, client(), Flags::FIN | Flags::ACK, 1501, 2001, 0));
    t.segments.push(segment(60.0, server(), Flags::FIN | Flags::ACK, 2001, 1502, 0));
    t.segments.push(segment(60.1, client(), Flags::ACK, 1502, 2002, 0));
    t.segments.push(segment(60.2, client(), Flags::RST, 1502, 0, 0));
    assert_eq!(t.connection().closing, Closing::Closed);
}

#[test]
fn goodput_ends_with_the_data_not_with_a_late_fin() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.ack(50.0, 1000);
    t.segments.push(segment(6000.0, client(), Flags::FIN | Flags::ACK, 2001, 2001, 0));
    t.ack(6020.0, 1001);
    let d = t.connection().to_server;
    assert_eq!(d.active, Span::from_millis(20));
    assert_eq!(d.goodput.map(|rate| rate.as_bytes_per_sec()), Some(50_000));
}

#[test]
fn connection_open_before_the_capture_is_tracked() {
    let mut t = Exchange::new(5_000_000, 9_000_000);
    for i in 0..20_u32 {
        t.data(f64::from(i) * 10.0, i * 1000, (i + 1) * 1000);
        t.ack(f64::from(i) * 10.0 + 8.0, (i + 1) * 1000);
    }
    let c = t.connection();
    assert_eq!(c.opening.handshake, Handshake::NotSeen);
    assert_eq!(c.to_server.bytes, 20_000);
    assert!(c.to_server.window.scale_unknown);
    assert!(c.notes.iter().any(|n| n.contains("handshake")), "{:?}", c.notes);
}

#[test]
fn data_in_a_syn_is_behind_its_sequence_number() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.segments[0].payload = 300;
    t.ack(20.05, 300);
    t.data(30.0, 300, 500);
    t.ack(50.0, 500);
    let d = t.connection().to_server;
    assert_eq!((d.bytes, d.bytes_sent, d.retransmissions.segments), (500, 500, 0));
}

#[test]
fn small_segments_retransmitted_in_one_packet_are_one_retransmission() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    for i in 0..12_u32 {
        t.data(30.0 + f64::from(i), i * 50, (i + 1) * 50);
    }
    t.data(300.0, 0, 600);
    t.ack(320.0, 600);
    let d = t.connection().to_server;
    assert_eq!((d.retransmissions.segments, d.retransmissions.bytes, d.lost_segments), (1, 600, 1));
}

#[test]
fn packet_that_repeats_two_is_retransmitted_as_a_whole() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 85);
    t.data(30.2, 85, 138);
    t.data(30.3, 0, 138);
    let from_client = t.segments.iter_mut().filter(|s| s.from == client());
    from_client.zip([5, 6, 7, 8, 7]).for_each(|(s, id)| s.identity.id = id);
    t.ack(50.3, 138);
    let d = t.connection().to_server;
    assert_eq!((d.packets, d.duplicate_packets, d.data_packets), (5, 0, 3));
    assert_eq!((d.bytes, d.bytes_sent, d.retransmissions.bytes), (138, 276, 138));
}

#[test]
fn merged_copy_of_packets_is_in_no_other_figure() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.data(30.1, 1000, 2000);
    t.data(30.2, 0, 2000);
    t.ack(50.3, 2000);
    let d = t.connection().to_server;
    assert_eq!((d.packets, d.duplicate_packets, d.data_packets, d.segments), (4, 1, 2, 2));
    assert_eq!((d.bytes_sent, d.retransmissions.segments), (2000, 0));
}

#[test]
fn first_segment_can_be_reordered_or_lost() {
    for (late, reordered, inferred) in [(30.5, 1, 0), (55.0, 0, 1)] {
        let mut t = Exchange::new(1000, 2000);
        t.open(0.0, 0.1, 20.0);
        t.data(30.0, 1000, 2000);
        t.data(30.1, 2000, 3000);
        t.ack(30.2, 0);
        t.data(late, 0, 1000);
        t.ack(late + 0.1, 3000);
        let d = t.connection().to_server;
        assert_eq!(d.place, Place::Receiver);
        assert_eq!((d.reordering.segments, d.retransmissions.inferred), (reordered, inferred), "{late} ms");
    }
}

/// Ten segments a millisecond apart, of which the third is lost.
fn lossy() -> Exchange {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    for i in 0..10 {
        t.data(30.0 + f64::from(i), i * 1000, (i + 1) * 1000);
    }
    t.ack(50.0, 1000);
    t.ack(51.0, 2000);
    for i in 3..10_u32 {
        t.sack(50.0 + f64::from(i), 2000, &[(3000, (i + 1) * 1000)]);
    }
    t
}

#[test]
fn retransmission_after_later_data_arrived_is_fast() {
    let mut t = lossy();
    t.data(60.0, 2000, 3000);
    t.ack(80.0, 10_000);
    let d = t.connection().to_server;
    assert_eq!(d.place, Place::Sender);
    let r = &d.retransmissions;
    assert_eq!((r.segments, r.fast, r.timeout, r.spurious, r.bytes), (1, 1, 0, 0, 1000));
    assert_eq!((d.bytes, d.bytes_sent, d.lost_segments), (10_000, 11_000, 1));
}

#[test]
fn duplicate_reported_by_the_receiver_is_spurious() {
    let mut t = lossy();
    t.data(60.0, 2000, 3000);
    t.ack(61.0, 10_000);
    t.sack(80.0, 10_000, &[(2000, 3000)]);
    let d = t.connection().to_server;
    assert_eq!((d.retransmissions.segments, d.retransmissions.spurious, d.lost_segments), (1, 1, 0));
}

#[test]
fn silence_leads_to_a_probe_and_then_a_timeout() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.ack(50.0, 1000);
    t.data(51.0, 1000, 2000);
    t.data(52.0, 2000, 3000);
    t.data(130.0, 2000, 3000);
    t.data(400.0, 1000, 2000);
    t.ack(420.0, 3000);
    let r = t.connection().to_server.retransmissions;
    assert_eq!((r.segments, r.tail_loss, r.timeout, r.fast), (2, 1, 1, 0));
}

#[test]
fn losses_at_the_receiver_are_inferred_from_holes() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 0.1, 40.0);
    for i in (0..40).filter(|i| *i != 5 && *i != 20) {
        t.data(60.0 + f64::from(i), i * 1000, (i + 1) * 1000);
        t.ack(60.05 + f64::from(i), if i < 5 { (i + 1) * 1000 } else { 5000 });
    }
    // Reordered by a millisecond; then retransmitted a round trip later.
    t.data(81.5, 20_000, 21_000);
    t.data(105.0, 5_000, 6_000);
    t.ack(105.1, 40_000);
    let d = t.connection().to_server;
    assert_eq!(d.place, Place::Receiver);
    assert_eq!((d.bytes, d.retransmissions.segments, d.retransmissions.inferred), (40_000, 1, 1));
    assert_eq!((d.reordering.segments, d.reordering.extent_bytes), (1, 1000));
    assert_eq!(d.rtprop, Some(Span::from_millis(40)));
}

#[test]
fn receiver_side_captures_use_the_window_known_to_the_sender() {
    for (window, held) in [(4000, 0.9..=1.0), (60_000, 0.0..=0.0)] {
        let mut t = Exchange::new(1000, 2000);
        t.open(0.0, 0.1, 40.0);
        // Four segments per round trip, one after another; each echoes the acknowledgment of the segment
        // four before.
        for i in 0..80_u32 {
            let ms = 60 + 40 * (i / 4) + i % 4;
            t.data(f64::from(ms), i * 1000, (i + 1) * 1000);
            t.segments.last_mut().unwrap().options.timestamps = Some((ms, ms - 40));
            let ack = t.ack(f64::from(ms) + 0.05, (i + 1) * 1000);
            ack.window = window;
            ack.options.timestamps = Some((ms, ms));
        }
        let limits = t.connection().to_server.limits;
        let share = limits.share(Limitation::ReceiveWindow);
        assert!(held.contains(&share), "{share}: {limits:?}");
    }
}

#[test]
fn merged_packets_count_as_their_segments() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 10_000);
    t.data(30.1, 10_000, 12_500);
    t.ack(50.0, 12_500);
    let d = t.connection().to_server;
    assert_eq!((d.data_packets, d.segments, d.bytes), (2, 13, 12_500));
}

#[test]
fn keep_alive_is_neither_data_nor_retransmission() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.ack(50.0, 1000);
    t.data(9_000.0, 999, 1000);
    t.ack(9_020.0, 1000);
    let d = t.connection().to_server;
    assert_eq!((d.bytes, d.retransmissions.segments), (1000, 0));
}

#[test]
fn acknowledgments_of_missed_data_are_reported() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.data(32.0, 2000, 3000);
    t.ack(52.0, 3000);
    let c = t.connection();
    assert_eq!((c.to_server.bytes, c.to_server.bytes_missed), (2000, 1000));
    assert!(c.notes.iter().any(|n| n.starts_with("1000 bytes to the server")), "{:?}", c.notes);
}

#[test]
fn syn_after_data_does_not_move_the_data() {
    let mut t = Exchange::new(1000, 2000);
    t.data(0.0, 0, 3000);
    t.segments.push(segment(1.0, client(), Flags::SYN | Flags::ACK, 500, 2001, 0));
    t.data(2.0, 1000, 2000);
    let d = t.connection().to_server;
    assert_eq!((d.bytes, d.retransmissions.segments), (3000, 1));
}

fn any_segment() -> impl Strategy<Value = Segment> {
    let near = |base: u32| (0..20_u32).prop_map(move |n| base.wrapping_add(n * 700));
    let seq = prop_oneof![near(u32::MAX - 3000), near(1000), any::<u32>()];
    (
        (0.0..5000.0, any::<bool>(), any::<u8>(), seq.clone(), seq.clone(), 0..4000_u32),
        (
            proptest::option::of((any::<u32>(), any::<u32>())),
            proptest::collection::vec((seq.clone(), seq), 0..4),
        ),
        any::<u16>(),
    )
        .prop_map(|((ms, up, flags, seq, ack, payload), (timestamps, blocks), window)| {
            let mut option = vec![5, 2 + 8 * blocks.len() as u8];
            blocks.iter().for_each(|(a, b)| option.extend([a.to_be_bytes(), b.to_be_bytes()].concat()));
            let sack = TcpOptions::parse(&option);
            let from = if up { client() } else { server() };
            // Resets would end most sequences early.
            let flags = if flags % 16 == 4 { flags } else { flags & !Flags::RST };
            Segment {
                options: TcpOptions { timestamps, ..sack },
                window,
                ..segment(ms, from, flags, seq, ack, payload)
            }
        })
}

proptest! {
    #[test]
    fn arbitrary_segments_do_not_panic(segments in proptest::collection::vec(any_segment(), 0..60)) {
        let mut analyser = Analyser::new(Options::default());
        for s in &segments {
            analyser.add_segment(s);
        }
        for c in analyser.finish().connections {
            for d in [&c.record.to_server, &c.record.to_client] {
                let sum: f64 = d.limits.shares.iter().map(|s| s.share).sum();
                let rest = 1.0 - sum;
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&rest), "{:?}", d.limits);
                let mut words = d.limits.words.iter();
                let is_named = words.any(|words| words.contains("does not show what limited"));
                let is_rounded = (rest - 0.1).abs() < 1e-6 || d.limits.words.is_empty();
                prop_assert!(is_rounded || is_named == (rest > 0.1), "{:?}", d.limits);
            }
        }
    }

    #[test]
    fn jumping_clock_does_not_split_connections(ns in proptest::collection::vec(any::<u64>(), 2..30)) {
        let mut analyser = Analyser::new(Options::default());
        for (i, ns) in ns.iter().enumerate() {
            let mut s = segment(0.0, client(), Flags::ACK, i as u32 * 1000, 1, 1000);
            s.at = Time::from_nanos(*ns);
            analyser.add_segment(&s);
        }
        prop_assert_eq!(analyser.finish().connections.len(), 1);
    }
}

#[test]
fn first_packet_of_a_connection_older_than_the_capture_counts_as_its_segments() {
    let mut t = Exchange::new(7, 9);
    for i in 0..12_u32 {
        let ms = f64::from(i) * 80.0;
        // Merged by offloads: 14 segments of up to 1448 bytes with timestamps.
        let mut data = segment(ms, client(), Flags::ACK | Flags::PSH, 1000 + i * 20_000, 1, 20_000);
        data.options.timestamps = Some((1000 + i * 80, 500 + i * 80));
        let mut ack = segment(ms + 0.02, server(), Flags::ACK, 1, 1000 + (i + 1) * 20_000, 0);
        ack.options.timestamps = Some((580 + i * 80, 1000 + i * 80));
        t.segments.extend([data, ack]);
    }
    assert_eq!(t.connection().to_server.segments, 168);
}

/// SYNs from `count` addresses, one each microsecond.
fn syn_flood(count: u32) -> impl Iterator<Item = Segment> {
    (0..count).map(|n| {
        let from = SocketAddr::from((Ipv4Addr::from(0x0b00_0000 + n), 40_000));
        Segment { from, to: server(), ..segment(f64::from(n) * 1e-3, client(), Flags::SYN, n, 0, 0) }
    })
}

#[test]
fn flood_of_connections_takes_linear_time_and_evicts_the_longest_silent() {
    let mut analyser = Analyser::new(Options::default());
    let mut t = Exchange::new(7, 9);
    t.open(0.0, 40.0, 0.125);
    let opening = t.segments.len();
    t.data(190.0, 0, 1000);
    t.data(280.0, 1000, 2000);
    // It is the first connection, but others are silent for longer when the table is full.
    t.segments[..opening].iter().for_each(|s| analyser.add_segment(s));
    let mut flood = syn_flood(300_000).map(|s| Segment { at: s.at + Span::from_millis(100), ..s });
    for (count, data) in [(90_000, t.segments[opening]), (90_000, t.segments[opening + 1])] {
        flood.by_ref().take(count).for_each(|s| analyser.add_segment(&s));
        analyser.add_segment(&data);
    }
    let began = std::time::Instant::now();
    flood.for_each(|s| analyser.add_segment(&s));
    // It took 8 ms for each of them.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    let analysis = analyser.finish();
    let with_data: Vec<_> = analysis.connections.iter().filter(|c| c.record.to_server.bytes > 0).collect();
    assert_eq!(with_data.len(), 1);
    assert_eq!((with_data[0].record.number, with_data[0].record.to_server.bytes), (1, 2000));
    assert_eq!(analysis.connections.len(), 20_001);
    assert_eq!(analysis.packets.unlisted_connections, 280_000);
    assert!(analysis.connections.is_sorted_by_key(|c| c.record.number));
}

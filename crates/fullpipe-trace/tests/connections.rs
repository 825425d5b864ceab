//! What the TCP machine makes of segments whose truth is known.

mod support;

use fullpipe_experiment::connection::{Closing, Handshake, Limitation, Place, Point};
use fullpipe_trace::wire::{Flags, Segment, Selective};
use fullpipe_trace::{Analysis, Options};
use fullpipe_units::{Span, Time};
use proptest::prelude::*;
use support::{Talk, client, segment, server};

#[test]
fn the_handshake_tells_the_place_and_the_options() {
    for (to_server, to_client, point) in [
        (40.0, 0.1, Point::Client),
        (0.1, 40.0, Point::Server),
        (15.0, 25.0, Point::Between),
        (0.01, 0.02, Point::Unknown),
    ] {
        let mut t = Talk::new(100, 200);
        t.open(0.0, to_server, to_client);
        let c = t.connection();
        assert_eq!(c.vantage.point, point, "{:?}", c.vantage);
        assert_eq!(c.opening.handshake, Handshake::Seen);
        assert_eq!(c.to_server.options.mss, Some(1000));
        assert!(!c.vantage.evidence.is_empty());
    }
}

#[test]
fn bytes_are_counted_across_the_wrap_of_sequence_numbers() {
    let mut t = Talk::new(u32::MAX - 2500, 5);
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
fn a_port_that_is_used_again_is_another_connection() {
    let mut t = Talk::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 500);
    t.segments.push(segment(60.0, server(), Flags::RST, 2001, 0, 0));
    let mut again = Talk::new(900_000, 800_000);
    again.open(100.0, 20.0, 0.1);
    again.data(130.0, 0, 700);
    t.segments.extend(again.segments);
    let found = t.connections();
    let facts: Vec<_> = found.iter().map(|c| (c.closing, c.to_server.bytes)).collect();
    assert_eq!(facts, [(Closing::ResetByServer, 500), (Closing::Open, 700)]);
}

#[test]
fn a_syn_that_is_sent_again_opens_nothing_new() {
    let mut t = Talk::new(1000, 2000);
    t.segments.push(segment(0.0, client(), Flags::SYN, 1000, 0, 0));
    t.open(1000.0, 20.0, 0.1);
    let c = t.connection();
    assert_eq!(c.opening.retransmitted, 1);
    // Which SYN was answered is not known (Karn).
    assert_eq!(c.opening.to_server, None);
}

#[test]
fn one_end_may_close_before_the_other() {
    let mut t = Talk::new(1000, 2000);
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
fn a_connection_that_was_open_before_is_followed_from_where_it_is_seen() {
    let mut t = Talk::new(5_000_000, 9_000_000);
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

/// Ten segments each a millisecond apart, of which the third is lost.
fn lossy() -> Talk {
    let mut t = Talk::new(1000, 2000);
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
fn what_is_sent_again_after_later_data_arrived_is_fast() {
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
fn a_duplicate_that_the_receiver_reports_was_spurious() {
    let mut t = lossy();
    t.data(60.0, 2000, 3000);
    t.ack(61.0, 10_000);
    t.sack(80.0, 10_000, &[(2000, 3000)]);
    let d = t.connection().to_server;
    assert_eq!((d.retransmissions.segments, d.retransmissions.spurious, d.lost_segments), (1, 1, 0));
}

#[test]
fn silence_ends_in_a_probe_and_then_in_a_timeout() {
    let mut t = Talk::new(1000, 2000);
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
fn at_the_receiver_losses_are_concluded_from_holes() {
    let mut t = Talk::new(1000, 2000);
    t.open(0.0, 0.1, 40.0);
    for i in (0..40).filter(|i| *i != 5 && *i != 20) {
        t.data(60.0 + f64::from(i), i * 1000, (i + 1) * 1000);
        t.ack(60.05 + f64::from(i), if i < 5 { (i + 1) * 1000 } else { 5000 });
    }
    // Overtaken by one millisecond; then sent again a round trip later.
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
fn at_the_receiver_the_window_is_the_one_that_the_data_was_sent_under() {
    for (window, held) in [(4000, 0.9..=1.0), (60_000, 0.0..=0.0)] {
        let mut t = Talk::new(1000, 2000);
        t.open(0.0, 0.1, 40.0);
        // Four segments a round trip, which pass one after another; each answers the acknowledgment of the one four before.
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
fn super_packets_count_as_the_segments_they_were_made_of() {
    let mut t = Talk::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 10_000);
    t.data(30.1, 10_000, 12_500);
    t.ack(50.0, 12_500);
    let d = t.connection().to_server;
    assert_eq!((d.data_packets, d.segments, d.bytes), (2, 13, 12_500));
}

#[test]
fn a_keep_alive_is_neither_data_nor_a_retransmission() {
    let mut t = Talk::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.ack(50.0, 1000);
    t.data(9_000.0, 999, 1000);
    t.ack(9_020.0, 1000);
    let d = t.connection().to_server;
    assert_eq!((d.bytes, d.retransmissions.segments), (1000, 0));
}

#[test]
fn acknowledgments_of_data_that_is_not_there_are_told() {
    let mut t = Talk::new(1000, 2000);
    t.open(0.0, 20.0, 0.1);
    t.data(30.0, 0, 1000);
    t.data(32.0, 2000, 3000);
    t.ack(52.0, 3000);
    let c = t.connection();
    assert_eq!((c.to_server.bytes, c.to_server.bytes_missed), (2000, 1000));
    assert!(c.notes.iter().any(|n| n.starts_with("1000 bytes to the server")), "{:?}", c.notes);
}

#[test]
fn a_syn_after_data_does_not_move_where_the_data_stands() {
    let mut t = Talk::new(1000, 2000);
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
            let sack = Selective::read(&option);
            let from = if up { client() } else { server() };
            // Resets would end most of the sequences at once.
            let flags = if flags % 16 == 4 { flags } else { flags & !Flags::RST };
            Segment {
                options: Selective { timestamps, ..sack },
                window,
                ..segment(ms, from, flags, seq, ack, payload)
            }
        })
}

proptest! {
    #[test]
    fn no_segments_make_it_panic(segments in proptest::collection::vec(any_segment(), 0..60)) {
        let mut analysis = Analysis::new(Options::default());
        for s in &segments {
            analysis.segment(s);
        }
        for c in analysis.finish().connections {
            for d in [&c.record.to_server, &c.record.to_client] {
                let sum: f64 = d.limits.shares.iter().map(|s| s.share).sum();
                prop_assert!(d.limits.shares.is_empty() || (sum - 1.0).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_does_not_matter(ns in proptest::collection::vec(any::<u64>(), 2..30)) {
        let mut analysis = Analysis::new(Options::default());
        for (i, ns) in ns.iter().enumerate() {
            let mut s = segment(0.0, client(), Flags::ACK, i as u32 * 1000, 1, 1000);
            s.at = Time::from_nanos(*ns);
            analysis.segment(&s);
        }
        prop_assert_eq!(analysis.finish().connections.len(), 1);
    }
}

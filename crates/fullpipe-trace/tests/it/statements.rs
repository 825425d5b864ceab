//! What is said of small, partial or unusual captures: it is right, or it is not said.

use crate::support::{Exchange, MSS, client, segment, server};
use fullpipe_experiment::connection::{Connection, Limitation, Place};
use fullpipe_trace::text;
use fullpipe_trace::wire::Flags;

const PUSHED: u8 = Flags::ACK | Flags::PSH;

/// The server sends bytes `from..to` of its data, and acknowledges `acked` bytes.
fn answer(t: &mut Exchange, ms: f64, flags: u8, from: u32, to: u32, acked: u32) {
    let (seq, ack) = (t.server_isn + 1 + from, t.client_isn + 1 + acked);
    t.segments.push(segment(ms, server(), flags, seq, ack, to - from));
}

/// The client acknowledges `acked` bytes, after `sent` bytes of its own data.
fn acknowledge(t: &mut Exchange, ms: f64, sent: u32, acked: u32) {
    let (seq, ack) = (t.client_isn + 1 + sent, t.server_isn + 1 + acked);
    t.segments.push(segment(ms, client(), Flags::ACK, seq, ack, 0));
}

/// A request of 100 bytes at a client 30 ms away, and a response in `count` segments, `every`
/// milliseconds.
fn download(count: u32, every: f64) -> Exchange {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 30.0, 0.05);
    t.segments.push(segment(31.0, client(), PUSHED, 1001, 2001, 100));
    for n in 0..count {
        let ms = 61.0 + every * f64::from(n);
        let flags = if n + 1 == count { PUSHED } else { Flags::ACK };
        answer(&mut t, ms, flags, n * MSS, (n + 1) * MSS, 100);
        acknowledge(&mut t, ms + 0.05, 100, (n + 1) * MSS);
    }
    t
}

#[test]
fn burst_within_a_round_trip_has_no_goodput() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 0.05, 40.0);
    for n in 0..4 {
        t.data(41.0 + 0.001 * f64::from(n), n * MSS, (n + 1) * MSS);
    }
    let d = t.connection().to_server;
    assert_eq!((d.place, d.bytes, d.goodput), (Place::Receiver, 4000, None));
}

#[test]
fn rate_of_a_longer_transfer_is_its_goodput() {
    let d = download(40, 1.0).connection().to_client;
    assert_eq!((d.place, d.goodput.is_some()), (Place::Receiver, true));
}

#[test]
fn wait_for_an_application_is_no_round_trip_time() {
    let mut t = Exchange::new(1000, 2000);
    // Each end answers with its next data, the client after nine seconds.
    for n in 0..4 {
        let ms = 9100.0 * f64::from(n);
        let (seq, ack) = (1001 + n * 200, 2001 + n * 300);
        t.segments.push(segment(ms, client(), PUSHED, seq, ack, 200));
        answer(&mut t, ms + 100.0, PUSHED, n * 300, (n + 1) * 300, (n + 1) * 200);
    }
    let c = t.connection();
    assert_eq!((c.to_server.rtprop, c.to_client.rtprop), (None, None));
    assert_eq!((c.to_server.rtt.samples, c.to_client.rtt.max), (0, None));
}

/// The limits of the bulk are unknown, for a reason that contains `why`.
fn assert_unknown(c: &Connection, why: &str) {
    let d = c.bulk().0;
    assert!(d.limits.shares.is_empty() && d.limits.words[0].contains(why), "{:?}", d.limits);
    assert_eq!(d.btlbw, None);
    let printed = text::detail(c);
    assert!(printed.contains("limited by       unknown\n"), "{printed}");
}

#[test]
fn limit_without_the_acks_of_the_receiver_is_unknown() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 30.0, 0.05);
    t.segments.push(segment(31.0, client(), PUSHED, 1001, 2001, 100));
    for n in 0..500_u32 {
        answer(&mut t, 61.0 + f64::from(n), Flags::ACK, n * MSS, (n + 1) * MSS, 100);
    }
    let c = t.connection();
    assert_unknown(&c, "no ACKs");
    assert_eq!((c.to_client.inflight_max_bytes, c.to_client.cwnd_at_least_bytes), (None, None));
}

#[test]
fn limit_of_data_that_the_capture_missed_is_unknown() {
    let mut t = Exchange::new(1000, 2000);
    t.open(0.0, 20.0, 0.05);
    for n in 0..300_u32 {
        let ms = 30.0 + f64::from(n);
        if !n.is_multiple_of(3) {
            t.data(ms, n * MSS, (n + 1) * MSS);
        }
        t.ack(ms + 20.0, (n + 1) * MSS);
    }
    assert_unknown(&t.connection(), "missed too much");
}

#[test]
fn limit_at_an_unknown_place_is_unknown() {
    // At the receiver: its ACKs follow at once, and the sender has no data to acknowledge.
    let mut t = Exchange::new(1000, 2000);
    for n in 0..60_u32 {
        t.data(f64::from(n), n * MSS, (n + 1) * MSS);
        t.ack(f64::from(n) + 0.05, (n + 1) * MSS);
    }
    let c = t.connection();
    assert_unknown(&c, "responses of one end only");
    assert_eq!(c.to_server.idle.times, 0);
    assert_eq!(c.to_server.rtprop, None);
}

#[test]
fn few_segments_do_not_show_a_congestion_window() {
    let c = download(4, 10.0).connection();
    let share = |c: &Connection| c.to_client.limits.share(Limitation::CongestionWindow);
    assert_eq!(share(&c), 0.0, "{:?}", c.to_client.limits);
    let words = &c.to_client.limits.words;
    assert!(words.iter().any(|w| w.contains("does not show what limited")), "{words:?}");
    let sentences = text::conclusions(&c.to_client);
    let is_one = |s: &String| s.starts_with(|c: char| !c.is_lowercase()) && s.ends_with('.');
    assert!(sentences.len() >= words.len() && sentences.iter().all(is_one), "{sentences:?}");
    // Slow start: a second flight waits for the ACKs of the first.
    let mut t = download(12, 1.0);
    for n in 12..36 {
        let ms = 91.0 + 0.5 * f64::from(n - 12);
        answer(&mut t, ms, Flags::ACK, n * MSS, (n + 1) * MSS, 100);
        acknowledge(&mut t, ms + 0.05, 100, (n + 1) * MSS);
    }
    t.segments.iter_mut().for_each(|s| s.flags = Flags(s.flags.0 & !Flags::PSH));
    let c = t.connection();
    assert!(share(&c) > 0.3, "{:?}", c.to_client.limits);
}

#[test]
fn recorded_limits_end_where_they_are_unknown() {
    // Four segments of a response, ten seconds without data, and four more.
    let mut t = download(4, 10.0);
    for n in 4..8 {
        let ms = 10_100.0 + 10.0 * f64::from(n);
        answer(&mut t, ms, Flags::ACK, n * MSS, (n + 1) * MSS, 100);
        acknowledge(&mut t, ms + 0.05, 100, (n + 1) * MSS);
    }
    let traced = t.traced();
    let intervals = &traced.record.to_client.limits.intervals;
    let recording = traced.recording();
    let states = &recording.flows[0].states;
    assert!(!intervals.is_empty() && states.len() > intervals.len(), "{intervals:?}, {states:?}");
    let last = states.last().unwrap();
    assert_eq!((last.at_s, &*last.state), (intervals.last().unwrap().to.as_secs_f64(), ""));
    for interval in intervals {
        let middle = (interval.from + (interval.to - interval.from) / 2).as_secs_f64();
        let state = states.iter().rfind(|change| change.at_s <= middle).unwrap();
        assert_eq!(state.state, interval.by.name(), "{states:?}");
    }
}

#[test]
fn text_omits_what_is_unknown() {
    let mut t = Exchange::new(1000, 2000);
    t.segments.push(segment(0.0, client(), PUSHED, 1001, 2001, 72));
    let c = t.connection();
    let printed = text::detail(&c);
    assert!(
        printed.contains("data             72 B; 1 packet captured, 1 segment of 1460 bytes\n"),
        "{printed}"
    );
    assert!(!printed.contains("RTT ") && !printed.contains("BtlBw"), "{printed}");
    let printed = text::detail(&download(4, 1.0).connection());
    assert!(!printed.contains('–') && printed.contains("0 segments lost, 0 reordered\n"), "{printed}");
}

#[test]
fn note_on_the_handshake_is_only_about_windows_that_are_shown() {
    let mut t = Exchange::new(1000, 2000);
    t.segments.push(segment(0.0, client(), Flags::SYN, 1000, 0, 0));
    assert!(t.connection().notes.is_empty(), "{:?}", t.connection().notes);
}

//! How loss governs each controller: the closed forms of the literature.

use crate::common::{bulk, losing, path, run, run_seeded, scenario};

/// Payload bits of a packet.
const PACKET_BITS: f64 = 1448.0 * 8.0;

/// Mean goodput over a few seeds, in packets per round trip of `rtt_s`.
fn window(cc: &str, rtt: &str, rtt_s: f64, loss: &str, seconds: u64) -> f64 {
    let seeds = 3;
    let total: f64 = (1..=seeds)
        .map(|seed| {
            let mut s = scenario(losing(path("10gbit", rtt, "1bdp"), loss), &[cc], seconds);
            s.warmup = fullpipe_units::Span::from_secs(seconds / 5);
            run_seeded(&s, seed).summary.goodput_bps
        })
        .sum();
    total / seeds as f64 * rtt_s / PACKET_BITS
}

#[test]
fn bbr_carries_the_rate_less_the_loss_where_cubic_collapses() {
    let lossy = || losing(path("100mbit", "100ms", "1bdp"), "1%");
    let (bbr, cubic) = (bulk(lossy(), "bbr", 30), bulk(lossy(), "cubic", 30));
    assert!(bbr.goodput_bps > 85e6, "bbr {}", bbr.goodput_bps);
    assert!(cubic.goodput_bps < 4e6, "cubic {}", cubic.goodput_bps);
}

/// Cardwell et al. 2017, figure 8. BBR paces at what was delivered at best, so that in six phases
/// of eight loss takes its share off once more; the kernel's own carried 82.2 of 96.5 Mbit/s at 5
/// %, which is 0.90 of the rate less the loss.
#[test]
fn bbr_delivers_the_rate_less_the_loss_up_to_five_percent() {
    for (loss, share, least) in
        [("0.1%", 0.001, 0.95), ("1%", 0.01, 0.94), ("3%", 0.03, 0.91), ("5%", 0.05, 0.88)]
    {
        let mut s = scenario(losing(path("100mbit", "100ms", "1bdp"), loss), &["bbr"], 60);
        s.warmup = fullpipe_units::Span::from_secs(5);
        let got = run_seeded(&s, 1).summary.utilization.unwrap() / (1.0 - share);
        assert!((least..1.003).contains(&got), "{loss}: {got}");
    }
}

#[test]
fn cubic_falls_tenfold_at_a_thousandth_loss() {
    let clean = bulk(path("100mbit", "100ms", "1bdp"), "cubic", 60).goodput_bps;
    let lossy = bulk(losing(path("100mbit", "100ms", "1bdp"), "0.1%"), "cubic", 60).goodput_bps;
    assert!(clean > 90e6 && lossy < clean / 8.0, "{clean} {lossy}");
}

/// Mathis et al. 1997: W = sqrt(3/(2p)). Linux counts the packets of a delayed ACK one by one, so
/// that the factor for delayed ACKs does not apply.
#[test]
fn reno_follows_the_square_root_of_the_loss() {
    for (loss, p) in [("0.1%", 1e-3), ("0.4%", 4e-3), ("1%", 1e-2)] {
        let expected = f64::sqrt(1.5 / p);
        let got = window("reno", "50ms", 0.05, loss, 200);
        assert!((0.8..1.2).contains(&(got / expected)), "{loss}: {got} for {expected}");
    }
}

/// RFC 9438 §5.1, table 1: the average window is 1.054 · (RTT³/p³)^(1/4), or that of its
/// Reno-friendly region (§4.3), whichever is larger.
#[test]
fn cubic_follows_its_response_function() {
    for (rtt, rtt_s, loss, p) in
        [("100ms", 0.1f64, "0.01%", 1e-4f64), ("100ms", 0.1, "0.1%", 1e-3), ("200ms", 0.2, "0.02%", 2e-4)]
    {
        let cubic = 1.054 * (rtt_s.powi(3) / p.powi(3)).powf(0.25);
        let friendly = f64::sqrt(1.5 / p);
        let expected = cubic.max(friendly);
        let got = window("cubic", rtt, rtt_s, loss, 400);
        assert!((0.8..1.35).contains(&(got / expected)), "{rtt} {loss}: {got} for {expected}");
    }
}

/// Caini and Firrincieli 2004: throughput as if the round trip were 25 ms, at any round trip.
#[test]
fn hybla_does_not_depend_on_the_round_trip_where_reno_does() {
    let rate = |cc, rtt, rtt_s: f64| window(cc, rtt, rtt_s, "0.1%", 150) / rtt_s;
    let (near, far) = (rate("hybla", "50ms", 0.05), rate("hybla", "200ms", 0.2));
    assert!((0.5..2.0).contains(&(near / far)), "hybla {near} {far} packets/s");
    let (near, far) = (rate("reno", "50ms", 0.05), rate("reno", "200ms", 0.2));
    assert!(near / far > 3.0, "reno {near} {far} packets/s");
}

/// Of the retransmissions of a transfer of `size` by `cc`, the share that the receiver did not
/// need.
fn spurious(cc: &str, rate: &str, loss: &str, size: &str) -> f64 {
    let mut s = scenario(losing(path(rate, "100ms", "1bdp"), loss), &[cc], 60);
    s.flows[0].size = Some(size.parse().unwrap());
    let segments = s.flows[0].size.unwrap().0.div_ceil(u64::from(s.smss()));
    let transfer = run(&s).summary;
    assert!(transfer.completion_s.is_some(), "{cc} {rate} {loss}");
    let unneeded = transfer.packets_sent - transfer.packets_lost - segments;
    unneeded as f64 / transfer.packets_retransmitted as f64
}

/// A receiver that compresses ACKs reports every run that changed, so that RACK does not take
/// retransmissions that have arrived for lost ones (`tcp_sack_compress_send_ack`).
#[test]
fn almost_no_retransmission_on_a_fast_lossy_path_is_spurious() {
    for (rate, size) in [("500mbit", "100MB"), ("1gbit", "200MB"), ("10gbit", "1GB")] {
        for (cc, loss) in [("bbr", "1%"), ("bbr", "3%"), ("bbr3", "1%")] {
            let share = spurious(cc, rate, loss, size);
            assert!(share <= 0.01, "{cc} at {rate} and {loss} loss: {:.1} %", share * 100.0);
        }
    }
}

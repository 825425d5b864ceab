//! What controllers are known for, seen from outside.

use crate::transport::{Flow, Path, SMSS};
use fullpipe_cc::{CONTROLLERS, CongestionControl, Rate, Span};

fn seconds(s: u64) -> Span {
    Span::from_secs(s)
}

/// Goodput in Mbit/s after ten seconds' start, over `s` seconds.
fn goodput(name: &str, path: Path, s: u64) -> f64 {
    let mut flow = Flow::new(name, &[], path);
    flow.run_for(seconds(10));
    flow.goodput_over(seconds(s))
}

#[test]
fn every_controller_fills_a_clean_path() {
    // A constant window controls nothing, and TCP-LP yields to any queue, its own included.
    for c in CONTROLLERS.iter().filter(|c| !["fixed", "lp"].contains(&c.name)) {
        let got = goodput(c.name, Path::new(20, 40), 20);
        // CDG backs off before there is a queue.
        let least = if c.name == "cdg" { 18.0 } else { 18.5 };
        assert!(got > least && got < 20.1, "{}: {got} of 20 Mbit/s", c.name);
    }
}

/// Cardwell et al. 2016, figure 8: BBR's goodput is the rate less the loss, up to several percent.
#[test]
fn bbr_delivers_the_rate_less_the_loss() {
    for one_in in [1000, 100, 50, 20] {
        let path = Path { lose_one_in: one_in, ..Path::new(50, 50) };
        let got = goodput("bbr", path, 30);
        let bound = 50.0 * (1.0 - 1.0 / one_in as f64);
        assert!(got > 0.9 * bound && got <= bound * 1.01, "1/{one_in}: {got} of {bound} Mbit/s");
    }
}

#[test]
fn cubic_collapses_at_one_percent_loss_where_bbr_does_not() {
    let path = Path { lose_one_in: 100, ..Path::new(100, 100) };
    let (bbr, cubic) = (goodput("bbr", path, 30), goodput("cubic", path, 30));
    assert!(bbr > 85.0 && cubic < 4.0, "bbr {bbr}, cubic {cubic} Mbit/s");
}

/// Mathis et al. 1997: with a loss every 1/p packets, Reno's window averages √(3/2p).
#[test]
fn renos_window_follows_the_square_root_law() {
    for every in [200, 1000, 5000] {
        let path = Path { lose_every: every, ..Path::new(1000, 100) };
        let law = (1.5 * every as f64).sqrt() * SMSS as f64 * 8.0 / 0.1 / 1e6;
        let got = goodput("reno", path, 200);
        assert!((got / law - 1.0).abs() < 0.12, "every {every}: {got} Mbit/s, the law says {law}");
    }
}

/// RFC 9438 §5.1, eq. 5 for C = 0.4 and β = 0.7: AVG_W = 1.054 (RTT³/p³)^¼ outside the
/// Reno-friendly region.
#[test]
fn cubics_window_follows_its_response_function() {
    for every in [10_000u64, 30_000, 100_000] {
        let path = Path { lose_every: every, ..Path::new(4000, 100) };
        let law = 1.054 * (0.1f64.powi(3) * (every as f64).powi(3)).powf(0.25);
        let law = law * SMSS as f64 * 8.0 / 0.1 / 1e6;
        let mut flow = Flow::new("cubic", &[("hystart", "off")], path);
        flow.run_for(seconds(60));
        let got = flow.goodput_over(seconds(300));
        assert!((got / law - 1.0).abs() < 0.15, "every {every}: {got} Mbit/s, the function says {law}");
    }
}

/// RFC 9438 §4.3: at small bandwidth-delay products CUBIC grows no slower than Reno.
#[test]
fn cubic_is_no_slower_than_reno_where_reno_is_fast() {
    let path = Path { lose_every: 5000, ..Path::new(1000, 10) };
    let (cubic, reno) = (goodput("cubic", path, 60), goodput("reno", path, 60));
    assert!(cubic > 0.93 * reno, "cubic {cubic}, reno {reno} Mbit/s");
}

/// Caini & Firrincieli 2004: Hybla's goodput under loss does not depend on the round-trip time.
#[test]
fn hyblas_goodput_does_not_depend_on_the_round_trip_time() {
    let at = |name, rtt| goodput(name, Path { lose_every: 2000, ..Path::new(1000, rtt) }, 100);
    let short = at("hybla", 25);
    for rtt in [50, 100, 200, 400] {
        let long = at("hybla", rtt);
        assert!((long / short - 1.0).abs() < 0.35, "{rtt} ms: {long}, 25 ms: {short} Mbit/s");
    }
    let reno = at("reno", 25) / at("reno", 400);
    assert!(reno > 10.0, "Reno's falls with the round-trip time: {reno} times");
}

#[test]
fn bbr_goes_through_its_states_in_order_and_probes_the_rtt_every_ten_seconds() {
    let mut flow = Flow::new("bbr", &[], Path::new(20, 40));
    flow.run_for(seconds(45));
    let names: Vec<&str> = flow.states.iter().map(|s| s.1).collect();
    assert_eq!(names[..3], ["Startup", "Drain", "ProbeBW"]);
    let probes: Vec<f64> =
        flow.states.iter().filter(|s| s.1 == "ProbeRTT").map(|s| s.0.as_secs_f64()).collect();
    assert_eq!(probes.len(), 4, "{probes:?}");
    for pair in probes.windows(2) {
        assert!((10.0..11.0).contains(&(pair[1] - pair[0])), "{probes:?}");
    }
    assert_eq!(flow.least_cwnd, 4 * SMSS);
}

/// The kernel waits in ProbeRTT until 200 ms, in whole ticks of `CONFIG_HZ`, are over: more than 5
/// and up to 6 ticks of 1/24 s, a tick that has begun and 200 of 1 ms. Then the next ACK, of a path
/// of 2 ms, ends it.
#[test]
fn bbr_uses_the_configured_clock() {
    let seen = |settings: &[(&str, &str)]| {
        let mut flow = Flow::new("bbr", settings, Path::new(20, 2));
        flow.run_for(seconds(60));
        let states = flow.states.clone();
        let probes: Vec<f64> = states
            .windows(2)
            .filter(|pair| pair[0].1 == "ProbeRTT")
            .map(|pair| pair[1].0.since(pair[0].0).as_millis_f64())
            .collect();
        assert!(probes.len() >= 4, "{settings:?}: {states:?}");
        (probes, states)
    };
    for (hz, least, most) in [("24", 1000.0 * 5.0 / 24.0, 1000.0 * 6.0 / 24.0), ("1000", 200.0, 201.0)] {
        let (probes, _) = seen(&[("hz", hz)]);
        // Draining to four packets, and the next ACK, take some milliseconds more.
        assert!(probes.iter().all(|ms| *ms > least && *ms < most + 12.0), "{hz}: {probes:?}");
    }
    let linux = fullpipe_cc::bbr::v1::Params::LINUX.hz.to_string();
    assert_eq!(seen(&[]).1, seen(&[("hz", &linux)]).1, "by default, the clock of Params::LINUX");
    assert_ne!(seen(&[]).1, seen(&[("hz", "1000")]).1);
}

#[test]
fn bbr_keeps_the_queue_short_that_cubic_fills() {
    // Eight bandwidth-delay products of buffer.
    let deep = |name| {
        let path = Path::new(20, 40);
        let mut flow = Flow::new(
            name,
            &[("hystart", "off")][..usize::from(name == "cubic")],
            Path { buffer: path.buffer * 8, ..path },
        );
        flow.run_for(seconds(30));
        flow.inflight() as f64 / path.rate.bytes_in(path.rtt) as f64
    };
    let (bbr, cubic) = (deep("bbr"), deep("cubic"));
    assert!(bbr < 1.6 && cubic > 4.0, "in flight: bbr {bbr}, cubic {cubic} bandwidth-delay products");
}

#[test]
fn bbr_finds_a_doubled_rate_within_some_cycles() {
    let mut flow = Flow::new("bbr", &[], Path::new(10, 40));
    flow.run_for(seconds(20));
    flow.set_rate(Rate::from_bits_per_sec(20_000_000));
    flow.run_for(seconds(3));
    let got = flow.goodput_over(seconds(3));
    assert!(got > 18.0, "{got} of 20 Mbit/s");
}

#[test]
fn bbr_accepts_a_halved_rate_within_ten_rounds() {
    let mut flow = Flow::new("bbr", &[], Path::new(20, 40));
    flow.run_for(seconds(20));
    flow.set_rate(Rate::from_bits_per_sec(10_000_000));
    flow.run_for(seconds(4));
    let bw = flow.cc().snapshot().bw.unwrap().as_bits_per_sec_f64() / 1e6;
    assert!((9.0..11.0).contains(&bw), "{bw} Mbit/s");
}

#[test]
fn both_hystarts_spare_the_overflow_that_ends_a_plain_slow_start() {
    let path = Path { buffer: 2000, ..Path::new(50, 50) };
    let losses_with = |hystart| {
        let mut flow = Flow::new("cubic", &[("hystart", hystart)], path);
        flow.run_for(seconds(5));
        flow.control.lost() / SMSS
    };
    let (linux, plus, off) = (losses_with("linux"), losses_with("plus"), losses_with("off"));
    assert!(linux == 0 && plus * 10 < off && off > 100, "lost: linux {linux}, plus {plus}, off {off}");
}

#[test]
fn a_time_out_starts_over_at_one_packet() {
    for name in ["cubic", "reno", "hybla", "bbr"] {
        let mut flow = Flow::new(name, &[], Path::new(20, 40));
        flow.run_for(seconds(5));
        let cwnd = flow.cc().cwnd();
        assert!(cwnd > 10 * SMSS && flow.timeouts == 0 && flow.least_cwnd > SMSS, "{name}: {cwnd}");
        flow.break_path();
        flow.run_for(seconds(5));
        assert!(flow.timeouts > 0, "{name}");
        assert_eq!(flow.least_cwnd, SMSS, "{name}");
    }
}

#[test]
fn an_application_limited_bbr_flow_keeps_its_estimate() {
    let mut flow = Flow::new("bbr", &[], Path::new(20, 40));
    flow.run_for(seconds(5));
    let before = flow.cc().snapshot().bw.unwrap();
    // Ten packets every 100 ms: 1.2 Mbit/s of the 20.
    flow.backlog = Some(0);
    for _ in 0..100 {
        *flow.backlog.as_mut().unwrap() += 10;
        flow.run_for(Span::from_millis(100));
    }
    let after = flow.cc().snapshot().bw.unwrap();
    assert!(after >= Rate::from_bytes_per_sec(before.as_bytes_per_sec() * 9 / 10), "{before:?} to {after:?}");
}

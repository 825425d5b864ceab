//! What real time and real ends do to a run, each alone: packets that come a little late, and a receive window that has to grow. These
//! are why runs of the lab differ from exact ones (docs/sim-vs-lab.md).

mod common;
use common::{run, run_seeded, scenario};
use fullpipe_experiment::recording::EventKind;
use fullpipe_experiment::scenario::{App, PathSpec, Scenario};
use fullpipe_path::{Distribution, JitterSpec, LinkSpec};
use fullpipe_units::{Bytes, Span};

/// `scenario` with packets that leave either way on time, but for three in ten: these by Pareto's law of shape 3, one in a hundred by
/// 3.6 `spread` or more. So the lab's emulator is late.
fn late(scenario: &Scenario, spread: Span) -> Scenario {
    let mut scenario = scenario.clone();
    let jitter = JitterSpec { spread, distribution: Distribution::Pareto, reorder: false };
    for links in [&mut scenario.path.forward, &mut scenario.path.reverse] {
        links.push(LinkSpec { jitter: Some(jitter), ..LinkSpec::default() });
    }
    scenario
}

/// Least and most of the median round-trip time over eight seeds, in milliseconds.
fn medians(scenario: &Scenario) -> (f64, f64) {
    let medians = (1..=8).map(|seed| run_seeded(scenario, seed).summary.rtt_ms.p50.unwrap());
    medians.fold((f64::INFINITY, 0.0), |(least, most), ms| (least.min(ms), most.max(ms)))
}

fn bbr(path: &str, seconds: u64, warmup: u64) -> Scenario {
    let path: PathSpec = toml::from_str(path).unwrap();
    let mut s = scenario(path, &["bbr"], seconds);
    s.warmup = Span::from_secs(warmup);
    s.flows[0].tso = Some(true);
    s
}

/// BBR takes the highest rate of ten rounds. Where packets come in bursts one that comes a little early after one that came a little
/// late makes a higher one, which fills a queue up to the window's twice the BDP. Tens of microseconds are enough.
#[test]
fn bbr_keeps_a_queue_where_bursts_are_not_exactly_on_time() {
    let aggregation = bbr(
        "[[forward]]\nrate='50mbit'\ndelay='20ms'\nqueue='4bdp'\n[[reverse]]\ndelay='20ms'\naggregate={hold='5ms'}",
        10,
        5,
    );
    let reordering = bbr(
        "[[forward]]\nrate='50mbit'\ndelay='20ms'\nqueue='4bdp'\nreorder={share='2%',by='4ms'}\n[[reverse]]\ndelay='20ms'",
        10,
        0,
    );
    let cellular = bbr(
        "[[forward]]\ncellular={min='1mbit',max='20mbit'}\ndelay='30ms'\nqueue='200k'\n[[reverse]]\ndelay='30ms'",
        30,
        10,
    );
    for (name, scenario, exact, later) in [
        ("aggregation", aggregation, 43.0..48.0, 80.0..95.0),
        ("reordering", reordering, 50.0..62.0, 66.0..80.0),
        ("cellular", cellular, 60.0..72.0, 76.0..102.0),
    ] {
        let within = |range: &std::ops::Range<f64>, (least, most): (f64, f64)| {
            assert!(range.contains(&least) && range.contains(&most), "{name}: {least}–{most} ms");
        };
        within(&exact, medians(&scenario));
        within(&later, medians(&late(&scenario, Span::from_micros(100))));
    }
}

/// The slow start of Hybla, which on 600 ms adds packets by the thousand, overflows the queue only if the receiver's window is open from
/// the start. Linux's has to grow, in steps of a round trip; the kernel's Hybla carried 11.8 Mbit/s and sent 0.16 % again.
#[test]
fn a_window_that_has_to_grow_keeps_hybla_from_overflowing_a_satellite() {
    let path = common::losing(common::path("20mbit", "600ms", "1bdp"), "0.1%");
    let mut s = scenario(path, &["hybla"], 120);
    s.warmup = Span::from_secs(20);
    s.flows[0].tso = Some(true);
    let open = run(&s).summary;
    s.flows[0].auto_tuning = true;
    s.flows[0].first_receive_buffer = Some(Bytes(1 << 20));
    s.flows[0].receive_buffer = Some(Bytes(1 << 30));
    let tuned = run(&s).summary;
    let again =
        |s: &fullpipe_experiment::recording::Summary| s.packets_retransmitted as f64 / s.packets_sent as f64;
    assert!(again(&open) > 0.4 && open.goodput_bps > 14e6, "{open:?}");
    assert!(again(&tuned) < 0.01 && (10e6..12.5e6).contains(&tuned.goodput_bps), "{tuned:?}");
}

/// CUBIC's slow start on 250 ms overfills an FQ-PIE queue, which goes on dropping while the recovery lasts. What was lost after that began
/// is on its way again when the recovery ends. For Linux that is another one, with another reduction: it carries 51.4 Mbit/s in ten seconds.
#[test]
fn what_was_lost_during_a_recovery_begins_another() {
    let path: PathSpec = toml::from_str(
        "[[forward]]\nrate='90mbit'\ndelay='125ms'\nqueue={kind='fq-pie',limit='10240p'}\n[[reverse]]\ndelay='125ms'",
    )
    .unwrap();
    let mut s = scenario(path, &["cubic"], 10);
    let recoveries = |s: &Scenario| {
        let r = run(s);
        let entered: Vec<f64> = r.flows[0]
            .events
            .iter()
            .filter(|e| e.kind == EventKind::RecoveryEntered)
            .map(|e| e.at_s)
            .collect();
        (entered, r.summary.goodput_bps / 1e6)
    };
    let (one, goodput) = recoveries(&s);
    assert!(one.iter().filter(|at| **at < 5.0).count() == 1 && goodput > 60.0, "{one:?}, {goodput} Mbit/s");
    s.flows[0].tso = Some(true);
    let (two, goodput) = recoveries(&s);
    assert!(two.iter().filter(|at| **at < 5.0).count() == 2, "{two:?}");
    assert!((50.0..53.0).contains(&goodput), "{goodput} Mbit/s");
}

/// A small segment ends what was written. Once the application has read it, and nothing is left to read, Linux acknowledges at once; else
/// the last ACK of a burst, for which the next one waits, takes 40 ms more.
#[test]
fn the_end_of_a_burst_is_acknowledged_when_it_is_read() {
    let mut s = scenario(common::path("100mbit", "20ms", "1bdp"), &["cubic"], 10);
    // 68 segments and a small one: the last has no second.
    s.flows[0].app = App::Bursts { size: Bytes(99_000), every: Span::from_millis(10) };
    let bursts = |s: &Scenario| {
        run(s).flows[0].events.iter().filter(|e| e.kind == EventKind::TransferDelivered).count()
    };
    let plain = bursts(&s);
    s.flows[0].auto_tuning = true;
    let tuned = bursts(&s);
    // A round trip and 8 ms, and 40 ms longer.
    assert!((130..160).contains(&plain) && (320..360).contains(&tuned), "{plain}, {tuned}");
}

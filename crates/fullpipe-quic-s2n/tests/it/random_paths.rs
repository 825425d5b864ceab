//! Random paths: no panic (overflow checks are on), no closed connection, no silent sender.

use crate::transfer::Transfer;
use fullpipe_path::{BlackoutSpec, JitterSpec, LinkSpec, ReorderSpec};
use fullpipe_testing::Random;
use fullpipe_units::{Fraction, Rate, Span};

/// Paths for each controller.
const PATHS: u64 = 100;

/// Between 0.25 and 8 Mbit/s, 1 and 400 ms of round-trip time; half of the paths lose up to 20 %,
/// a third reorder, a
/// third have jitter, a third have blackouts of up to 2 s.
fn random_path(controller: &'static str, seed: u64) -> Transfer {
    let mut random = Random::new(seed);
    let delay = Span::from_micros(500 + random.below(199_500));
    let rate = Rate::from_bits_per_sec((250_000 + random.below(250_000)) << random.below(5));
    let queue = format!("{}p", 5 + random.below(200));
    let mut forward = LinkSpec {
        rate: Some(rate),
        delay,
        queue: Some(queue.parse::<fullpipe_path::Limit>().expect("a number of packets").into()),
        ..LinkSpec::default()
    };
    let mut reverse = LinkSpec { delay, ..LinkSpec::default() };
    if random.one_in(2) {
        forward.loss = Some(Fraction::from_billionths(random.below(200_000_000) as u32).into());
        reverse.loss = Some(Fraction::from_billionths(random.below(50_000_000) as u32).into());
    }
    if random.one_in(3) {
        let share = Fraction::from_billionths(random.below(100_000_000) as u32);
        forward.reorder = Some(ReorderSpec { share, by: Span::from_millis(1 + random.below(100)) });
    }
    if random.one_in(3) {
        let spread = Span::from_micros(random.below(20_000)).min(delay);
        let reorder = random.one_in(2);
        for link in [&mut forward, &mut reverse] {
            link.jitter = Some(JitterSpec { reorder, ..JitterSpec::from(spread) });
        }
    }
    if random.one_in(3) {
        let at = Span::from_millis(random.below(8000));
        let lasts = Span::from_millis(1 + random.below(2000));
        forward.blackouts = vec![BlackoutSpec { at, r#for: lasts, every: None, hold: random.one_in(2) }];
    }
    let pause = Span::from_millis(if random.one_in(4) { random.below(500) } else { 0 });
    Transfer { controller, forward, reverse, duration: Span::from_secs(15), seed, pause }
}

fn survives(controller: &'static str) {
    let mut received = 0;
    for seed in 0..PATHS {
        let report = random_path(controller, seed).run();
        assert!(!report.closed, "{controller}, path {seed}: closed");
        assert!(report.silence < Span::from_secs(10), "{controller}, path {seed}: {report:?}");
        assert!(report.received > 0, "{controller}, path {seed}: {report:?}");
        received += report.received;
    }
    println!("{controller}: {} MB over {PATHS} paths", received / 1_000_000);
}

#[test]
fn bbr3_survives_random_paths() {
    survives("bbr3");
}

#[test]
fn bbr_survives_random_paths() {
    survives("bbr");
}

#[test]
fn cubic_survives_random_paths() {
    survives("cubic");
}

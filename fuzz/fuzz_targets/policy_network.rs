//! A trained controller's file: refused with a reason, or one that decides whatever it sees, and is
//! written and read again.
#![no_main]

use fullpipe_policy::{Agent, Network, Step};
use fullpipe_units::Span;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(network) = text.parse::<Network>() else { return };
    assert_eq!(network.to_json().parse::<Network>().expect("what was written is read"), network);
    for seen in [[0.0; 8], [10.0; 8], [-10.0; 8]] {
        assert!(network.decide(&seen).iter().all(|value| (-1.0..=1.0).contains(value)));
    }
    let mut pilot = Agent::new(network, 14_480, 1448);
    for i in 1..40 {
        let ms = Span::from_millis(i);
        let step = Step {
            duration: ms,
            sent: i << i,
            acked: i << (i / 2),
            rtt: Some(ms),
            min_rtt: Some(ms),
            cwnd: pilot.window(),
            ..Step::default()
        };
        let orders = pilot.decide(&step);
        assert!((1448..=1_448_000_000).contains(&orders.window));
        assert!(orders.pacing.is_none_or(|rate| (125..=125_000_000_000).contains(&rate.as_bytes_per_sec())));
    }
});

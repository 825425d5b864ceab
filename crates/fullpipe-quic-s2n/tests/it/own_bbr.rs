//! s2n-quic's own BBR keeps a queue: `docs/evidence/quic/s2n-bbr-queue.md`.

use crate::transfer::{OWN_BBR, Transfer};

/// The queue of these paths: one BDP.
const BDP: f64 = 500_000.0;

/// Median queue as a share of the BDP, over `seeds`.
fn queues(controller: &'static str, seeds: u64) -> Vec<f64> {
    let measure = |seed| {
        let report = Transfer::over_100mbit(controller, "0", seed).run();
        assert!(!report.closed);
        println!(
            "{controller}, seed {seed}: {:.1} Mbit/s, median queue {:.0} kB, {} of {} packets dropped",
            report.goodput,
            report.median_queue as f64 / 1e3,
            report.overflowed,
            report.sent,
        );
        report.median_queue as f64 / BDP
    };
    (1..=seeds).map(measure).collect()
}

/// `cargo test --test it own_bbr -- --nocapture`
#[test]
fn s2ns_bbr_keeps_a_queue_that_bbr3_does_not() {
    for queue in queues("bbr3", 1) {
        assert!(queue <= 0.05, "{queue}");
    }
    for queue in queues(OWN_BBR, 3) {
        assert!(queue >= 0.5, "fixed: update docs/evidence/quic/s2n-bbr-queue.md: {queue}");
    }
}

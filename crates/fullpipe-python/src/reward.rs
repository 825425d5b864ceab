//! Reward functions from the literature.

use fullpipe_policy::{Observer, Step};
use fullpipe_units::Span;

/// Rewards in the order of [`REWARDS`].
pub type Rewards = [f64; REWARDS.len()];

/// Names of the rewards.
pub const REWARDS: [&str; 3] = ["orca", "aurora", "remy"];

/// Computes all rewards of a step.
pub fn all(step: &Step, observer: &Observer, srtt: Option<Span>, smss: u32) -> Rewards {
    [orca(step, observer), aurora(step, srtt, smss), remy(step, srtt)]
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn bps(bytes: u64, step: &Step) -> f64 {
    share(bytes as f64 * 8.0, step.duration.as_secs_f64())
}

/// Abbasloo et al., SIGCOMM 2020, § 4.
fn orca(step: &Step, observer: &Observer) -> f64 {
    let (max_bps, min_rtt) = (observer.max_bps(), observer.min_rtt());
    if max_bps <= 0.0 || !min_rtt.is_finite() {
        return 0.0;
    }
    // Without an RTT sample assume no queue.
    let rtt = step.rtt.map_or(min_rtt, |rtt| rtt.as_secs_f64());
    let delay = if rtt > 1.25 * min_rtt { rtt } else { min_rtt };
    (bps(step.acked, step) - 5.0 * bps(step.lost, step)) / delay / (max_bps / min_rtt)
}

/// Jay et al., ICML 2019, § 4.
fn aurora(step: &Step, srtt: Option<Span>, smss: u32) -> f64 {
    let packets = bps(step.acked, step) / 8.0 / f64::from(smss.max(1));
    let latency = step.rtt.or(srtt).map_or(0.0, Span::as_secs_f64);
    10.0 * packets - 1000.0 * latency - 2000.0 * share(step.lost as f64, step.sent as f64)
}

/// Winstein and Balakrishnan, SIGCOMM 2013, § 3.3, with δ = 1: log2 of the throughput in Mbit/s,
/// less log2 of the delay in units of 100 ms. A step that delivers nothing counts as one of 10
/// kbit/s.
fn remy(step: &Step, srtt: Option<Span>) -> f64 {
    let delay = step.rtt.or(srtt).map_or(0.1, Span::as_secs_f64);
    libm::log2((bps(step.acked, step) / 1e6).max(0.01)) - libm::log2((delay / 0.1).max(1e-6))
}

//! Applies a network's decisions to a connection.

use crate::network::{Action, Network};
use crate::observer::Observer;
use crate::totals::Step;
use fullpipe_units::Rate;

/// Minimum window in packets.
pub const MIN_WINDOW: f64 = 1.0;
/// Maximum window in packets.
pub const MAX_WINDOW: f64 = 1e6;

/// Scales a window by 2 to the power of `action`, which is clamped to [-1, 1].
pub fn scaled_window(cwnd: f64, action: f64) -> f64 {
    cwnd * libm::exp2(action.clamp(-1.0, 1.0))
}

/// The pacing rate for a window in bytes: 2 to the power of `action` windows per mean round trip of
/// the step (or per minimum round trip without a sample), from 1 kbit/s to 1 Tbit/s. `None` if
/// neither is known.
pub fn pacing_rate_for(window: f64, step: &Step, action: f64) -> Option<Rate> {
    let rtt = step.rtt.or(step.min_rtt).filter(|rtt| !rtt.is_zero())?;
    let bps = window * 8.0 / rtt.as_secs_f64() * libm::exp2(action.clamp(-1.0, 1.0));
    Some(Rate::from_bits_per_sec(bps.clamp(1e3, 1e12) as u64))
}

/// A policy's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Congestion window in bytes.
    pub window: u64,
    /// Pacing rate; `None` for unpaced.
    pub pacing: Option<Rate>,
}

/// Decides the window, and optionally the pacing rate, of a connection step by step.
#[derive(Clone, Debug)]
pub struct Agent {
    network: Network,
    observer: Observer,
    smss: f64,
    /// In bytes, fractional so that small steps add up.
    window: f64,
    pacing: Option<Rate>,
}

impl Agent {
    /// An agent with an initial window of `initial` bytes and segments of `smss` bytes.
    pub fn new(network: Network, initial: u64, smss: u32) -> Self {
        let (smss, window) = (f64::from(smss.max(1)), initial as f64);
        Agent { network, observer: Observer::default(), smss, window, pacing: None }
    }

    /// The window in bytes.
    pub fn window(&self) -> u64 {
        self.window as u64
    }

    /// The pacing rate; `None` before the first round trip or if the policy sets none.
    pub fn pacing(&self) -> Option<Rate> {
        self.pacing
    }

    /// Sets a new segment size.
    pub fn on_mtu(&mut self, smss: u32) {
        self.smss = f64::from(smss.max(1));
    }

    /// Decides the window and pacing rate after `step`.
    pub fn decide(&mut self, step: &Step) -> Decision {
        self.observer.record(step);
        let observation = self.observer.observe(step);
        let [first, second] = self.network.decide(&observation);
        let window = scaled_window(self.window, first);
        self.window = window.clamp(MIN_WINDOW * self.smss, MAX_WINDOW * self.smss);
        if self.network.action() == Action::MultiplierPacing {
            self.pacing = pacing_rate_for(self.window, step, second).or(self.pacing);
        }
        Decision { window: self.window(), pacing: self.pacing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Activation, Layer};
    use fullpipe_units::Span;

    fn agent(action: f32) -> Agent {
        let layer = Layer { weights: vec![vec![0.0; 8]], bias: vec![action] };
        let network = Network::new("", Action::Multiplier, Activation::Tanh, vec![layer]).unwrap();
        Agent::new(network, 10_000, 1000)
    }

    #[test]
    fn pacing_rate_is_in_windows_per_round_trip() {
        let layer = Layer { weights: vec![vec![0.0; 8]; 2], bias: vec![0.0, -1.0] };
        let network = Network::new("", Action::MultiplierPacing, Activation::Tanh, vec![layer]).unwrap();
        let mut agent = Agent::new(network, 10_000, 1000);
        assert_eq!(agent.decide(&Step::default()).pacing, None, "no round trip is known");
        let step = Step { rtt: Some(Span::from_millis(40)), ..Step::default() };
        let half = Some(Rate::from_bits_per_sec(1_000_000));
        assert_eq!(agent.decide(&step), Decision { window: 10_000, pacing: half });
        // A step without samples leaves the rate unchanged.
        assert_eq!(agent.decide(&Step::default()).pacing, half);
        let known = Step { min_rtt: Some(Span::from_millis(20)), ..Step::default() };
        assert_eq!(agent.decide(&known).pacing, Some(Rate::from_bits_per_sec(2_000_000)));
    }

    #[test]
    fn small_steps_add_up_and_large_ones_are_bounded() {
        let mut slow = agent(1e-5);
        for _ in 0..100_000 {
            slow.decide(&Step::default());
        }
        // Twice as much after a hundred thousand hundred-thousandths; 1e-5 is not exact in binary.
        assert!((19_999..=20_000).contains(&slow.window()), "{}", slow.window());
        let (mut up, mut down) = (agent(1.0), agent(-7.0));
        for _ in 0..40 {
            up.decide(&Step::default());
            down.decide(&Step::default());
        }
        assert_eq!((up.window(), down.window()), (1_000_000_000, 1000));
    }
}

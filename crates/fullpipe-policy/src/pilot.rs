//! A network at the wheel of a connection.

use crate::account::Step;
use crate::network::Network;
use crate::observer::Observer;

/// The least window, in packets.
pub const LEAST_WINDOW: f64 = 1.0;
/// The greatest, in packets.
pub const MOST_WINDOW: f64 = 1e6;

/// The window (bytes) that an action makes of `cwnd`: 2 to the power of it times as much, the action cut to [-1, 1].
pub fn multiplied(cwnd: f64, action: f64) -> f64 {
    cwnd * libm::exp2(action.clamp(-1.0, 1.0))
}

/// Decides the window of a connection, step by step.
#[derive(Clone, Debug)]
pub struct Pilot {
    network: Network,
    observer: Observer,
    smss: f64,
    /// In bytes, with what is less than a byte: small steps add up.
    window: f64,
}

impl Pilot {
    /// One that begins with a window of `initial` bytes; segments have `smss`.
    pub fn new(network: Network, initial: u64, smss: u32) -> Self {
        Pilot { network, observer: Observer::default(), smss: f64::from(smss.max(1)), window: initial as f64 }
    }

    /// The window in bytes.
    pub fn window(&self) -> u64 {
        self.window as u64
    }

    /// Segments have another size.
    pub fn on_mtu(&mut self, smss: u32) {
        self.smss = f64::from(smss.max(1));
    }

    /// What the window shall be after `step`, in bytes.
    pub fn decide(&mut self, step: &Step) -> u64 {
        self.observer.note(step);
        let observation = self.observer.observe(step);
        let window = multiplied(self.window, self.network.decide(&observation));
        self.window = window.clamp(LEAST_WINDOW * self.smss, MOST_WINDOW * self.smss);
        self.window()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Activation, Layer};

    fn pilot(action: f32) -> Pilot {
        let layer = Layer { weights: vec![vec![0.0; 8]], bias: vec![action] };
        Pilot::new(Network::new("", Activation::Tanh, vec![layer]).unwrap(), 10_000, 1000)
    }

    #[test]
    fn small_steps_add_up_and_large_ones_have_an_end() {
        let mut slow = pilot(1e-5);
        for _ in 0..100_000 {
            slow.decide(&Step::default());
        }
        // Twice as much after a hundred thousand hundred-thousandths; 1e-5 is not exact in binary.
        assert!((19_999..=20_000).contains(&slow.window()), "{}", slow.window());
        let (mut up, mut down) = (pilot(1.0), pilot(-7.0));
        for _ in 0..40 {
            up.decide(&Step::default());
            down.decide(&Step::default());
        }
        assert_eq!((up.window(), down.window()), (1_000_000_000, 1000));
    }
}

//! What a factory builds controllers from.

use fullpipe_cc::{Config, Controller, ControllerSpec};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The settings of a factory.
#[derive(Debug)]
pub(crate) struct Settings {
    pub spec: ControllerSpec,
    /// Initial window in bytes; RFC 9002 §7.2 if none.
    pub initial_window: Option<u64>,
    pub seed: u64,
    /// Controllers built so far.
    built: AtomicU64,
}

impl Settings {
    pub fn new(spec: ControllerSpec) -> Self {
        let seed = RandomState::new().hash_one("fullpipe");
        Settings { spec, initial_window: None, seed, built: AtomicU64::new(0) }
    }

    /// A controller for a new path with UDP payloads of `mtu` bytes at most.
    pub fn build(&self, mtu: u16) -> Controller {
        self.build_number(self.built.fetch_add(1, Ordering::Relaxed), mtu)
    }

    /// A controller as the first would be.
    #[cfg(feature = "harness")]
    pub fn peek(&self, mtu: u16) -> Controller {
        self.build_number(0, mtu)
    }

    fn build_number(&self, number: u64, mtu: u16) -> Controller {
        let smss = u32::from(mtu).max(1);
        self.spec.build(&Config {
            smss,
            initial_cwnd: self.initial_window(mtu),
            seed: self.seed.wrapping_add(number),
            selective_acks: true,
            // Both stacks pace by the window.
            paced: true,
        })
    }

    /// The initial window in bytes (RFC 9002 §7.2).
    pub fn initial_window(&self, mtu: u16) -> u64 {
        let mtu = u64::from(mtu).max(1);
        self.initial_window.unwrap_or_else(|| (10 * mtu).min(14_720.max(2 * mtu)))
    }
}

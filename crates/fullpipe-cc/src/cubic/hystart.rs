//! HyStart (Ha & Rhee 2008) as in Linux `tcp_cubic.c`: leaves slow start before the queue
//! overflows, when a round's train of closely spaced ACKs has become as long as the path (*ack
//! train*), or the round-trip time of a round's first packets has grown by an eighth (*delay*).

use crate::control::Ack;
use crate::loss_based::Window;
use crate::pacer::{GSO_MAX_BYTES, rate_for_window};
use fullpipe_units::Time;

/// Round-trip samples to judge a round by (`HYSTART_MIN_SAMPLES`).
const MIN_SAMPLES: u8 = 8;

/// Bounds of the growth of delay that ends slow start, in µs.
const DELAY_MIN: u32 = 4_000;
const DELAY_MAX: u32 = 16_000;

/// HyStart's parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HyStartConfig {
    /// Detect by trains of ACKs (`hystart_detect` bit 1).
    pub ack_train: bool,
    /// Detect by delay (`hystart_detect` bit 2).
    pub delay: bool,
    /// Inactive below this window, in packets (`hystart_low_window`).
    pub low_window: u32,
    /// ACKs at most this far apart belong to one train, in µs (`hystart_ack_delta_us`).
    pub ack_delta_us: u32,
    /// The transport paces this controller: an ACK train may then last a whole round trip instead
    /// of half.
    pub paced: bool,
}

impl Default for HyStartConfig {
    fn default() -> Self {
        HyStartConfig { ack_train: true, delay: true, low_window: 16, ack_delta_us: 2000, paced: false }
    }
}

/// The state of a detection. Times in µs, wrapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    config: HyStartConfig,
    samples: u8,
    found: bool,
    round_start: u32,
    /// The delivered count that ends the round, in bytes.
    round_end: u64,
    last_ack: u32,
    least_rtt: u32,
}

fn micros(t: Time) -> u32 {
    t.as_micros() as u32
}

impl HyStart {
    pub(super) fn new(config: HyStartConfig) -> Self {
        HyStart {
            config,
            samples: 0,
            found: false,
            round_start: 0,
            round_end: 0,
            last_ack: 0,
            least_rtt: u32::MAX,
        }
    }

    /// A new round starts at `now` and ends when more than `end` bytes are delivered.
    fn start_round(&mut self, now: Time, end: u64) {
        self.round_start = micros(now);
        self.last_ack = self.round_start;
        self.round_end = end;
        self.least_rtt = u32::MAX;
        self.samples = 0;
    }

    /// Restarts slow start after a timeout.
    pub(super) fn restart(&mut self, now: Time, end: u64) {
        self.found = false;
        self.start_round(now, end);
    }

    /// An ACK in slow start with a round-trip time of `rtt` µs, with a minimum of `least` µs
    /// (`hystart_update`).
    pub(super) fn on_rtt(&mut self, window: &mut Window, ack: &Ack, rtt: u32, least: u32) {
        if self.found {
            return;
        }
        if ack.delivered > self.round_end {
            self.start_round(ack.now, ack.delivered.saturating_add(ack.inflight));
        }
        if window.cwnd < self.config.low_window {
            return;
        }
        let mut end = false;
        if self.config.ack_train {
            let now = micros(ack.now);
            if now.wrapping_sub(self.last_ack) as i32 <= self.config.ack_delta_us as i32 {
                self.last_ack = now;
                let mut threshold = least.saturating_add(Self::batch_delay(window, ack));
                if !self.config.paced {
                    threshold /= 2;
                }
                end |= i64::from(now.wrapping_sub(self.round_start) as i32) > i64::from(threshold);
            }
        }
        if self.config.delay {
            self.least_rtt = self.least_rtt.min(rtt);
            if self.samples < MIN_SAMPLES {
                self.samples += 1;
            } else {
                end |= self.least_rtt > least.saturating_add((least >> 3).clamp(DELAY_MIN, DELAY_MAX));
            }
        }
        if end {
            self.found = true;
            window.ssthresh = window.cwnd;
        }
    }

    /// Delay that host batching may add to a train, in µs, at most a millisecond
    /// (`hystart_ack_delay`).
    fn batch_delay(window: &Window, ack: &Ack) -> u32 {
        let Some(srtt) = window.srtt else { return 0 };
        let bytes = |packets: u32| u64::from(packets) * u64::from(window.smss());
        let rate = rate_for_window(bytes(window.cwnd), bytes(window.ssthresh), ack.inflight, srtt);
        if rate.as_bytes_per_sec() == 0 {
            return 0;
        }
        (GSO_MAX_BYTES * 4 * 1_000_000 / rate.as_bytes_per_sec()).min(1000) as u32
    }
}

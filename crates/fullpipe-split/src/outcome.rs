//! What a connection came to.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A connection of one arm that closed. What is not known is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The place of its arm among the plan's.
    pub arm: u8,
    /// Of the shares when it opened.
    pub generation: u64,
    /// The kernel's lasting name for the socket.
    pub cookie: u64,
    /// When it opened, seconds since 1970.
    pub opened_unix_s: f64,
    /// From its opening until the kernel was done with it, s.
    pub duration_s: f64,
    /// This host's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whether this host opened it.
    pub active: bool,
    /// Payload that the peer acknowledged, bytes.
    pub delivered_bytes: u64,
    /// Bytes that came in, in order; the peer's FIN counts for one.
    pub received_bytes: u64,
    /// Payload sent, what was sent again counted in, bytes.
    pub sent_bytes: u64,
    /// Payload that was sent again, bytes.
    pub resent_bytes: u64,
    /// Segments with data, those sent again counted in.
    pub segments: u64,
    /// Segments that were sent again.
    pub resent_segments: u64,
    /// Time in which there was something to send or to be acknowledged, s (`tcpi_busy_time`).
    pub busy_s: f64,
    /// Mean of the smoothed RTT over the samples of the first 10 MB, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// The least RTT of its last minutes, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// From the opening until 100 kB were acknowledged, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_100kb_s: Option<f64>,
    /// Until 1 MB was, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_1mb_s: Option<f64>,
    /// Until 10 MB were, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_10mb_s: Option<f64>,
    /// The controller it closed with, where that is not its arm's: its program chose one later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chose: Option<String>,
    /// Whether it ended by an error, such as a reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl Outcome {
    /// What it must be beyond its form: times and counts that can be.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self, arms: usize) -> Result<(), String> {
        if usize::from(self.arm) >= arms {
            return Err(format!("arm {} of {arms}", self.arm));
        }
        let times = [
            ("opened_unix_s", Some(self.opened_unix_s)),
            ("duration_s", Some(self.duration_s)),
            ("busy_s", Some(self.busy_s)),
            ("rtt_ms", self.rtt_ms),
            ("min_rtt_ms", self.min_rtt_ms),
            ("deliver_100kb_s", self.deliver_100kb_s),
            ("deliver_1mb_s", self.deliver_1mb_s),
            ("deliver_10mb_s", self.deliver_10mb_s),
        ];
        for (name, time) in times {
            // The year 5138 is far enough.
            if time.is_some_and(|time| !(0.0..=1e11).contains(&time)) {
                return Err(format!("{name} is no time: {}", time.unwrap_or(f64::NAN)));
            }
        }
        Ok(())
    }
}

/// A connection for tests: 1 MB in a second over 40 ms.
#[cfg(test)]
pub(crate) fn example(arm: u8, remote: &str) -> Outcome {
    Outcome {
        arm,
        generation: 0,
        cookie: 1,
        opened_unix_s: 100.0,
        duration_s: 1.0,
        local: "192.0.2.1:443".parse().unwrap(),
        remote: remote.parse().unwrap(),
        active: false,
        delivered_bytes: 1_000_000,
        received_bytes: 100,
        sent_bytes: 1_010_000,
        resent_bytes: 10_000,
        segments: 700,
        resent_segments: 7,
        busy_s: 1.0,
        rtt_ms: Some(50.0),
        min_rtt_ms: Some(40.0),
        deliver_100kb_s: Some(0.2),
        deliver_1mb_s: Some(1.0),
        deliver_10mb_s: None,
        chose: None,
        failed: false,
    }
}

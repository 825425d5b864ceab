//! Outcome of a connection.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A closed connection of one arm. Unknown values are omitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Index of its arm in the plan.
    pub arm: u8,
    /// Generation of the shares when it opened.
    pub generation: u64,
    /// Socket cookie (`SO_COOKIE`).
    pub cookie: u64,
    /// Time of opening, Unix seconds.
    pub opened_unix_s: f64,
    /// Time from opening to closing, s.
    pub duration_s: f64,
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Whether this host opened it (active open).
    pub active: bool,
    /// Payload acknowledged by the peer, bytes.
    pub delivered_bytes: u64,
    /// Bytes received in order, including the peer's FIN.
    pub received_bytes: u64,
    /// Payload sent, with retransmissions, bytes.
    pub sent_bytes: u64,
    /// Payload retransmitted, bytes.
    pub resent_bytes: u64,
    /// Data segments sent, with retransmissions.
    pub segments: u64,
    /// Segments retransmitted.
    pub resent_segments: u64,
    /// Time with data queued or outstanding, s (`tcpi_busy_time`).
    pub busy_s: f64,
    /// Mean of the smoothed RTT over the samples of the first 10 MB, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Minimum RTT of its last minutes, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Time from opening until 100 kB were acknowledged, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_100kb_s: Option<f64>,
    /// Time until 1 MB was acknowledged, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_1mb_s: Option<f64>,
    /// Time until 10 MB were acknowledged, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_10mb_s: Option<f64>,
    /// Controller at closing, if it differs from the arm's: the program changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chose: Option<String>,
    /// Whether it ended with an error, such as a reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl Outcome {
    /// Validates times and the arm.
    ///
    /// # Errors
    /// A description of the invalid field.
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
            // Up to the year 5138.
            if time.is_some_and(|time| !(0.0..=1e11).contains(&time)) {
                return Err(format!("{name} is not a valid time: {}", time.unwrap_or(f64::NAN)));
            }
        }
        Ok(())
    }
}

/// A connection for tests: 1 MB in one second over 40 ms.
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

//! ACK frequency of a receiver, in the terms of draft-ietf-quic-ack-frequency.

use super::Fault;
use fullpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameters of an ACK_FREQUENCY frame. Defaults are those of RFC 9000 § 13.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AckFrequency {
    /// Data packets the receiver may receive without acknowledging; the next one triggers an ACK.
    pub ack_eliciting_threshold: u32,
    /// Longest delay of an ACK, 1 µs to 16384 ms.
    pub max_ack_delay: Span,
    /// Distance beyond a missing packet that triggers an immediate ACK; 0 for never.
    pub reordering_threshold: u32,
}

impl Default for AckFrequency {
    fn default() -> Self {
        AckFrequency {
            ack_eliciting_threshold: 1,
            max_ack_delay: Span::from_millis(25),
            reordering_threshold: 1,
        }
    }
}

/// The largest max_ack_delay of QUIC: 2¹⁴ ms (RFC 9000 § 18.2).
const MAX_ACK_DELAY: Span = Span::from_millis(1 << 14);

impl AckFrequency {
    pub(super) fn validate(&self) -> Result<(), Fault> {
        if self.ack_eliciting_threshold > 100_000 {
            let reason = format!("{} is more than 100000 packets", self.ack_eliciting_threshold);
            return Err(Fault::new("ack_eliciting_threshold", reason));
        }
        if self.max_ack_delay < Span::from_micros(1) || self.max_ack_delay > MAX_ACK_DELAY {
            let reason = format!("{} is not between 1us and {MAX_ACK_DELAY}", self.max_ack_delay);
            return Err(Fault::new("max_ack_delay", reason));
        }
        if self.reordering_threshold > 100_000 {
            let reason = format!("{} is more than 100000 packets", self.reordering_threshold);
            return Err(Fault::new("reordering_threshold", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_quic() {
        let read = |text: &str| toml::from_str::<AckFrequency>(text).unwrap();
        assert_eq!(read(""), AckFrequency::default());
        let frequency = read("ack_eliciting_threshold = 9");
        assert_eq!((frequency.ack_eliciting_threshold, frequency.max_ack_delay), (9, Span::from_millis(25)));
        assert!(frequency.validate().is_ok());
        for (text, key) in [
            ("ack_eliciting_threshold = 100001", "ack_eliciting_threshold"),
            ("max_ack_delay = 0", "max_ack_delay"),
            ("max_ack_delay = '17s'", "max_ack_delay"),
            ("reordering_threshold = 100001", "reordering_threshold"),
        ] {
            assert_eq!(read(text).validate().unwrap_err().key, key);
        }
    }
}

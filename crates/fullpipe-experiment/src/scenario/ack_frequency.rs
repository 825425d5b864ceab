//! How often a receiver acknowledges that is asked for it, in the words of draft-ietf-quic-ack-frequency.

use super::Fault;
use fullpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an ACK_FREQUENCY frame asks for. What is left out is as RFC 9000 § 13.2 has it without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AckFrequency {
    /// Data packets that the receiver may get before it acknowledges: the next one it acknowledges at once.
    pub ack_eliciting_threshold: u32,
    /// How long it holds an ACK back at most.
    pub max_ack_delay: Span,
    /// How far beyond a missing packet one must be for an ACK at once; 0: reordering calls for none.
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

/// The longest that a QUIC transport may hold an ACK back: 2¹⁴ ms (RFC 9000 § 18.2).
const DELAY_MOST: Span = Span::from_millis(1 << 14);

impl AckFrequency {
    pub(super) fn validate(&self) -> Result<(), Fault> {
        if self.ack_eliciting_threshold > 100_000 {
            let reason = format!("{} is more than 100000 packets", self.ack_eliciting_threshold);
            return Err(Fault::new("ack_eliciting_threshold", reason));
        }
        if self.max_ack_delay < Span::from_micros(1) || self.max_ack_delay > DELAY_MOST {
            let reason = format!("{} is not between 1us and {DELAY_MOST}", self.max_ack_delay);
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
    fn what_is_left_out_is_quics_own() {
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

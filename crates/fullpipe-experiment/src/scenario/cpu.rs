//! Processing cost at a flow's endpoints.

use super::Fault;
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPU cost of sending and receiving; each end of each connection has its own CPU. A sender starts
/// its next burst once the previous burst and the received ACKs are processed. Packets that reach
/// a busy receiver wait and are processed and acknowledged together, as with generic receive
/// offload (`dev_gro_receive`): up to 64 kB in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CpuSpec {
    /// Time per burst sent (per packet without `tso`), per ACK, and per aggregate received. 0 to 1
    /// s.
    #[serde(skip_serializing_if = "Span::is_zero")]
    pub per_segment: Span,
    /// Processing rate for bytes, in addition; by default bytes cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// Upper limit of `per_segment`.
const MAX_PER_SEGMENT: Span = Span::from_secs(1);

impl CpuSpec {
    /// The time to process `segments` segments of `bytes` in total.
    #[inline]
    pub fn processing_time(&self, segments: u64, bytes: u64) -> Span {
        self.per_segment * segments + self.rate.map_or(Span::ZERO, |rate| rate.time_to_send(bytes))
    }

    pub(super) fn validate(&self) -> Result<(), Fault> {
        if self.per_segment.is_zero() && self.rate.is_none() {
            return Err(Fault::new("", "has no effect without `per_segment` or `rate`")
                .help("set `per_segment`, `rate` or both"));
        }
        if self.per_segment > MAX_PER_SEGMENT {
            return Err(Fault::new("per_segment", format!("must be at most 1s, got {}", self.per_segment)));
        }
        if self.rate == Some(Rate::ZERO) {
            return Err(Fault::new("rate", "must be above zero"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_cpu_cost_is_rejected_with_its_key() {
        let parsed = |text: &str| toml::from_str::<CpuSpec>(text).unwrap();
        let error = |text: &str| parsed(text).validate().unwrap_err();
        assert_eq!(error("").key, "");
        assert_eq!(error("rate = '0bit'").key, "rate");
        assert_eq!(error("per_segment = '2s'").key, "per_segment");
        let costs = parsed("per_segment = '2us'\nrate = '8gbit'");
        assert!(costs.validate().is_ok());
        assert_eq!(costs.processing_time(2, 3000), Span::from_micros(7));
    }
}

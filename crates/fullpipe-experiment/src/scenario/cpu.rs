//! What the processors of a flow's ends take.

use super::Fault;
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What it takes an end to handle what it sends and receives; each end of each connection has a processor of its own. A sender begins
/// with the next burst when it is done with the one before and with the ACKs that have come. What comes to a busy receiver waits, and is
/// taken together and acknowledged once, as by generic receive offload (`dev_gro_receive`): up to 64 kB in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CpuSpec {
    /// For each burst that leaves (each packet without `tso`), each ACK, and what is taken in together. 0 to 1 s.
    #[serde(skip_serializing_if = "Span::is_zero")]
    pub per_segment: Span,
    /// How fast it handles bytes, on top of that; without it they cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// No processor takes longer.
const LONGEST: Span = Span::from_secs(1);

impl CpuSpec {
    /// How long so many segments take, of `bytes` together.
    #[inline]
    pub fn processing_time(&self, segments: u64, bytes: u64) -> Span {
        self.per_segment * segments + self.rate.map_or(Span::ZERO, |rate| rate.time_to_send(bytes))
    }

    pub(super) fn validate(&self) -> Result<(), Fault> {
        if self.per_segment.is_zero() && self.rate.is_none() {
            return Err(Fault::new("", "takes no time, so it does nothing")
                .help("give it `per_segment` or a `rate`, or both"));
        }
        if self.per_segment > LONGEST {
            return Err(Fault::new("per_segment", format!("{} is more than a second", self.per_segment)));
        }
        if self.rate == Some(Rate::ZERO) {
            return Err(Fault::new("rate", "an end that handles no bytes sends and receives nothing"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_processor_takes_is_refused_by_its_key() {
        let parsed = |text: &str| toml::from_str::<CpuSpec>(text).unwrap();
        let refused = |text: &str| parsed(text).validate().unwrap_err();
        assert_eq!(refused("").key, "");
        assert_eq!(refused("rate = '0bit'").key, "rate");
        assert_eq!(refused("per_segment = '2s'").key, "per_segment");
        let costs = parsed("per_segment = '2us'\nrate = '8gbit'");
        assert!(costs.validate().is_ok());
        assert_eq!(costs.processing_time(2, 3000), Span::from_micros(7));
    }
}

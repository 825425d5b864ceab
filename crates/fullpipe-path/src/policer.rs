//! A token-bucket policer: drops what exceeds a rate, without a queue.

use fullpipe_units::{Bytes, Rate, Span, Time};
use serde::{Deserialize, Serialize};

use crate::build::LinkError;

/// A token bucket in front of the queue: drops packets that find too few tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicerSpec {
    /// Rate at which tokens are added.
    pub rate: Rate,
    /// Size of the bucket in bytes, at least one MTU.
    pub burst: Bytes,
    /// Tokens in the bucket when policing starts, in bytes, at most `burst` (default: `burst`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Bytes>,
    /// When policing starts, counted from the start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Span>,
}

/// Tokens are counted in byte·ns/s to avoid rounding errors.
const TOKEN: u128 = 1_000_000_000;

/// The bucket.
pub(crate) struct Policer {
    rate: u128,
    burst: u128,
    tokens: u128,
    filled: Time,
    from: Time,
}

impl Policer {
    pub fn new(spec: &PolicerSpec, mtu: u32) -> Result<Self, LinkError> {
        if spec.burst.0 < u64::from(mtu) {
            let reason = format!(
                "a bucket of {} bytes never lets a full packet pass: write at least {mtu}",
                spec.burst.0
            );
            return Err(LinkError::new("policer.burst", reason));
        }
        let initial = spec.initial.unwrap_or(spec.burst);
        if initial > spec.burst {
            let reason = format!("{initial} is more than the size of the bucket, {}", spec.burst);
            return Err(LinkError::new("policer.initial", reason));
        }
        let burst = u128::from(spec.burst.0) * TOKEN;
        let from = Time::ZERO + spec.from.unwrap_or(Span::ZERO);
        Ok(Policer {
            rate: u128::from(spec.rate.as_bytes_per_sec()),
            burst,
            tokens: u128::from(initial.0) * TOKEN,
            filled: from,
            from,
        })
    }

    /// Whether a packet of `bytes` conforms at `at`; if so, removes its tokens.
    pub fn passes(&mut self, at: Time, bytes: u32) -> bool {
        if at < self.from {
            return true;
        }
        let gained = self.rate * u128::from(at.since(self.filled).as_nanos());
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled = self.filled.max(at);
        let need = u128::from(bytes) * TOKEN;
        let conforms = need <= self.tokens;
        if conforms {
            self.tokens -= need;
        }
        conforms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policer(rate: &str, burst: u64) -> Policer {
        let spec =
            PolicerSpec { rate: rate.parse().unwrap(), burst: Bytes(burst), initial: None, from: None };
        Policer::new(&spec, 1500).unwrap()
    }

    #[test]
    fn a_full_bucket_passes_its_burst_and_then_the_rate() {
        let mut p = policer("12mbit", 15_000);
        let at = |ms: u64| Time::ZERO + Span::from_millis(ms);
        assert_eq!((0..20).filter(|_| p.passes(at(0), 1500)).count(), 10);
        // 1500 bytes per millisecond.
        assert!(!p.passes(Time::from_nanos(999_999), 1500));
        assert!(p.passes(at(1), 1500));
        assert!(!p.passes(at(1), 1));
        assert_eq!(
            (0..20).filter(|_| p.passes(at(1000), 1500)).count(),
            10,
            "never more than the bucket holds"
        );
    }

    #[test]
    fn a_bucket_may_start_partly_filled() {
        let with = |initial| PolicerSpec {
            rate: "12mbit".parse().unwrap(),
            burst: Bytes(15_000),
            initial: Some(Bytes(initial)),
            from: Some(Span::from_secs(1)),
        };
        let start = Time::ZERO + Span::from_secs(1);
        for (initial, passed) in [(0, 0), (3000, 2), (15_000, 10)] {
            let mut p = Policer::new(&with(initial), 1500).unwrap();
            assert_eq!((0..20).filter(|_| p.passes(start, 1500)).count(), passed, "{initial}");
            assert!(p.passes(start + Span::from_millis(1), 1500), "tokens come in at the rate");
        }
        assert_eq!(Policer::new(&with(15_001), 1500).err().unwrap().key, "policer.initial");
    }

    #[test]
    fn a_policer_is_inactive_before_its_start() {
        let spec = PolicerSpec {
            rate: Rate::ZERO,
            burst: Bytes(1500),
            initial: None,
            from: Some(Span::from_secs(1)),
        };
        let mut p = Policer::new(&spec, 1500).unwrap();
        assert!((0..100).all(|_| p.passes(Time::ZERO, 1500)));
        let later = Time::ZERO + Span::from_secs(1);
        assert_eq!((p.passes(later, 1500), p.passes(later, 1500)), (true, false));
    }

    #[test]
    fn a_bucket_smaller_than_a_packet_is_refused() {
        let spec = PolicerSpec { rate: Rate::MAX, burst: Bytes(1499), initial: None, from: None };
        let wrong = Policer::new(&spec, 1500).err().unwrap();
        assert_eq!(wrong.key, "policer.burst");
        assert!(wrong.reason.contains("1500"));
    }

    proptest! {
        #[test]
        fn passed_data_is_at_most_the_burst_plus_the_rate(
            rate in 0u64..1 << 34,
            burst in 1500u64..1 << 24,
            packets in prop::collection::vec((0u64..5_000_000, 1u32..1500), 1..300),
        ) {
            let rate_limit = Rate::from_bytes_per_sec(rate);
            let spec = PolicerSpec { rate: rate_limit, burst: Bytes(burst), initial: None, from: None };
            let mut p = Policer::new(&spec, 1500).unwrap();
            let (mut now, mut passed) = (0u64, 0u64);
            for (gap, bytes) in packets {
                now += gap;
                if p.passes(Time::from_nanos(now), bytes) {
                    passed += u64::from(bytes);
                }
                let allowed = u128::from(burst) * TOKEN + u128::from(rate) * u128::from(now);
                prop_assert!(u128::from(passed) * TOKEN <= allowed);
            }
        }
    }
}

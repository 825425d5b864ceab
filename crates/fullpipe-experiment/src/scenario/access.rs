//! A flow's access link, between its sender and the shared path.

use super::{Fault, FlowSpec, Scenario};
use fullpipe_path::{BuildError, LinkSpec, Path, QueueSpec, shorthand};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An access link that the flow's data crosses before the shared path. ACKs do not cross it; use
/// `extra_rtt` to delay them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSpec {
    /// Its rate; without a rate it has no queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Its one-way propagation delay.
    #[serde(skip_serializing_if = "Span::is_zero")]
    pub delay: Span,
    /// Its queue; by default drop-tail with 1 BDP of the flow's end-to-end path.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "shorthand::queue")]
    #[schemars(schema_with = "shorthand::queue_schema")]
    pub queue: Option<QueueSpec>,
}

impl AccessSpec {
    /// Whether it delays packets at all.
    pub fn has_delay(&self) -> bool {
        self.rate.is_some() || !self.delay.is_zero()
    }

    /// The time a packet of `bytes` takes through an empty queue.
    #[inline]
    pub fn unloaded_delay(&self, bytes: u32) -> Span {
        self.delay + self.rate.map_or(Span::ZERO, |rate| rate.time_to_send(bytes.into()))
    }

    /// Builds the link for connection `number` of `flow`, seeded from the run's `seed`.
    ///
    /// # Errors
    /// An invalid queue, with its key.
    pub fn build<T>(
        &self,
        scenario: &Scenario,
        flow: &FlowSpec,
        number: usize,
        seed: u64,
    ) -> Result<Path<T>, BuildError> {
        // Connections and the path need distinct random streams (SplitMix64's increment).
        let seed = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut context = scenario.path.context(flow.direction, scenario.mtu, seed);
        context.base_rtt += self.delay + flow.extra_rtt;
        context.bottleneck = self.rate.map_or(context.bottleneck, |rate| rate.min(context.bottleneck));
        let link =
            LinkSpec { rate: self.rate, delay: self.delay, queue: self.queue.clone(), ..LinkSpec::default() };
        Path::new(&[link], &context)
    }

    pub(super) fn validate(&self, scenario: &Scenario, flow: &FlowSpec) -> Result<(), Fault> {
        if !self.has_delay() {
            return Err(
                Fault::new("", "has no effect without `rate` or `delay`").help("set `rate`, `delay` or both")
            );
        }
        if self.queue.is_some() && self.rate.is_none() {
            return Err(
                Fault::new("queue", "has no effect without `rate`").help("give the access link a `rate`")
            );
        }
        self.build::<()>(scenario, flow, 0, 0).map(drop).map_err(|e| Fault::new(&e.key, e.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::PathSpec;

    fn scenario(access: &str) -> Scenario {
        let path = PathSpec::bottleneck(
            "100mbit".parse().unwrap(),
            "20ms".parse().unwrap(),
            "1bdp".parse().unwrap(),
        );
        let access = Some(toml::from_str(access).unwrap_or_else(|e| panic!("{access}: {e}")));
        Scenario::new(path, vec![FlowSpec { access, ..FlowSpec::bulk("cubic") }])
    }

    /// Packets delivered of 200 that arrive at once: those in the queue and in transmission.
    fn delivered_of_200(access: &str) -> usize {
        use fullpipe_path::{Outcome, Packet};
        let scenario = scenario(access);
        let flow = &scenario.flows[0];
        let mut path = flow.access.as_ref().unwrap().build(&scenario, flow, 0, 1).unwrap();
        (0..200).for_each(|n| path.push(fullpipe_units::Time::ZERO, Packet::new(0, 1500, n)));
        let mut delivered = 0;
        path.advance(fullpipe_units::Time::ZERO + Span::from_secs(10), &mut |_, outcome| {
            delivered += usize::from(matches!(outcome, Outcome::Delivered(_)));
        });
        delivered
    }

    #[test]
    fn default_queue_is_one_bdp_of_the_end_to_end_path() {
        // 12 Mbit/s times 20 and 30 ms are 50 packets; one more is being sent.
        assert_eq!(delivered_of_200("rate = '12mbit'\ndelay = '30ms'"), 51);
        assert_eq!(delivered_of_200("rate = '12mbit'\nqueue = '7p'"), 8);
    }

    #[test]
    fn access_link_without_effect_is_rejected() {
        let wrong = |access: &str| {
            let scenario = scenario(access);
            let flow = &scenario.flows[0];
            flow.access.as_ref().unwrap().validate(&scenario, flow).unwrap_err().to_string()
        };
        assert!(wrong("").contains("no effect without `rate` or `delay`"));
        assert!(wrong("delay = '1ms'\nqueue = '5p'").contains("no effect without `rate`"));
        assert!(wrong("rate = '1mbit'\nqueue = { kind = 'pie', alpha = -1.0 }").starts_with("queue"));
    }
}

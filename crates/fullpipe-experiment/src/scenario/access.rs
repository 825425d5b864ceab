//! A link of a flow's own: what lies between its sender and the path that it shares with others.

use super::{Fault, FlowSpec, Scenario};
use fullpipe_path::{BuildError, LinkSpec, Path, QueueSpec, shorthand};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A link that the flow's data meets before the path. ACKs do not: `extra_rtt` is on their way.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSpec {
    /// Its rate; without one nothing queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Its propagation delay, one way.
    #[serde(skip_serializing_if = "Span::is_zero")]
    pub delay: Span,
    /// The queue in front of its rate; a drop-tail queue of 1 BDP of the flow's whole way unless written.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "shorthand::queue")]
    #[schemars(schema_with = "shorthand::queue_schema")]
    pub queue: Option<QueueSpec>,
}

impl AccessSpec {
    /// Whether a packet takes time on it.
    pub fn has_delay(&self) -> bool {
        self.rate.is_some() || !self.delay.is_zero()
    }

    /// How long a packet of `bytes` takes on it when nothing is in front of it.
    #[inline]
    pub fn unloaded_delay(&self, bytes: u32) -> Span {
        self.delay + self.rate.map_or(Span::ZERO, |rate| rate.time_to_send(bytes.into()))
    }

    /// It as the connection `number` of `flow` has it, its chances drawn from the run's `seed`.
    ///
    /// # Errors
    /// A queue that cannot be, with its key.
    pub fn build<T>(
        &self,
        scenario: &Scenario,
        flow: &FlowSpec,
        number: usize,
        seed: u64,
    ) -> Result<Path<T>, BuildError> {
        // Neighbouring connections must not draw alike, nor as the path does (SplitMix64's increment).
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
                Fault::new("", "takes no time, so it does nothing").help("give it a `rate` or a `delay`")
            );
        }
        if self.queue.is_some() && self.rate.is_none() {
            return Err(
                Fault::new("queue", "without a rate nothing queues").help("give the access link a `rate`")
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

    /// Packets that its queue and its rate hold of 200 that come at once.
    fn held(access: &str) -> usize {
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
    fn its_queue_is_a_bdp_of_the_whole_way_unless_written() {
        // 12 Mbit/s times 20 and 30 ms are 50 packets; one more is being sent.
        assert_eq!(held("rate = '12mbit'\ndelay = '30ms'"), 51);
        assert_eq!(held("rate = '12mbit'\nqueue = '7p'"), 8);
    }

    #[test]
    fn what_does_nothing_is_refused() {
        let wrong = |access: &str| {
            let scenario = scenario(access);
            let flow = &scenario.flows[0];
            flow.access.as_ref().unwrap().validate(&scenario, flow).unwrap_err().to_string()
        };
        assert!(wrong("").contains("does nothing"));
        assert!(wrong("delay = '1ms'\nqueue = '5p'").contains("nothing queues"));
        assert!(wrong("rate = '1mbit'\nqueue = { kind = 'pie', alpha = -1.0 }").starts_with("queue"));
    }
}

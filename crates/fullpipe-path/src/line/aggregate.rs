//! Aggregation: delivery in bursts, as on Wi-Fi, cable and cellular links, above all of
//! acknowledgements (paper §6.2).

use std::collections::HashMap;

use fullpipe_units::{Bytes, Span, Time};
use serde::{Deserialize, Serialize};

use crate::build::LinkError;

/// Packets are held at the far end of the link and delivered in bursts. Write `hold` or `every`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AggregateSpec {
    /// How long the first packet of a burst waits for others; all are delivered together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// Packets are delivered at multiples of this time only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Most packets of a burst. With `hold` a full burst is delivered at once, with `every` the
    /// rest waits for the next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Most bytes of a burst, at least one MTU: a packet that no longer fits starts the next burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<Bytes>,
    /// Of this many successive pure acknowledgements of a flow in a burst, only the last is
    /// delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thin: Option<u32>,
}

/// The result of adding a packet to a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Joined {
    /// When it is delivered.
    pub release: Time,
    /// Number of earlier packets that are delivered now because their burst is complete.
    pub early: usize,
    /// It replaces the packet with this number.
    pub replaces: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Hold(Span),
    Every(Span),
}

/// The burst that is being collected.
pub(crate) struct Aggregate {
    when: When,
    max: u32,
    max_bytes: u64,
    thin: u32,
    release: Time,
    packets: u32,
    bytes: u64,
    /// Per flow: number of its latest acknowledgement in the burst, and how many that one replaces.
    runs: HashMap<u32, (u64, u32)>,
}

impl Aggregate {
    pub fn new(spec: &AggregateSpec, mtu: u32) -> Result<Self, LinkError> {
        let when = match (spec.hold, spec.every) {
            (Some(hold), None) => When::Hold(hold),
            (None, Some(every)) if every.is_zero() => {
                return Err(LinkError::new("aggregate.every", "write a time above 0"));
            }
            (None, Some(every)) => When::Every(every),
            _ => return Err(LinkError::new("aggregate", "write either `hold` or `every`")),
        };
        for (key, value) in [("aggregate.max", spec.max), ("aggregate.thin", spec.thin)] {
            if value == Some(0) {
                return Err(LinkError::new(key, "write a number of packets, at least 1"));
            }
        }
        if let Some(most) = spec.max_bytes.filter(|most| most.0 < u64::from(mtu)) {
            let reason = format!("a burst of {most} never holds a full packet: write at least {mtu}");
            return Err(LinkError::new("aggregate.max_bytes", reason));
        }
        Ok(Aggregate {
            when,
            max: spec.max.unwrap_or(u32::MAX),
            max_bytes: spec.max_bytes.map_or(u64::MAX, |most| most.0),
            thin: spec.thin.unwrap_or(1),
            release: Time::ZERO,
            packets: 0,
            bytes: 0,
            runs: HashMap::new(),
        })
    }

    /// Whether a burst can be delivered before its scheduled time.
    pub fn may_be_early(&self) -> bool {
        matches!(self.when, When::Hold(_)) && (self.max < u32::MAX || self.max_bytes < u64::MAX)
    }

    /// Adds packet `number` of `flow`, which arrives at `at`; calls must be in order of time.
    pub fn join(&mut self, at: Time, number: u64, flow: u32, bytes: u32, pure_ack: bool) -> Joined {
        let bytes = u64::from(bytes);
        // A packet that no longer fits completes the previous burst when it arrives.
        let overflows = self.packets > 0 && self.bytes + bytes > self.max_bytes;
        let complete = if overflows && self.may_be_early() && at < self.release { self.packets } else { 0 };
        let full = self.packets >= self.max || overflows;
        match self.when {
            When::Hold(hold) => {
                // A burst accepts packets until it is delivered.
                if self.packets == 0 || full || at > self.release {
                    self.begin(at + hold);
                }
            }
            When::Every(every) => {
                let due = Time::from_nanos(
                    at.as_nanos().div_ceil(every.as_nanos()).saturating_mul(every.as_nanos()),
                );
                if due > self.release || self.packets == 0 {
                    self.begin(due.max(self.release));
                } else if full {
                    self.begin(self.release + every);
                }
            }
        }
        self.packets += 1;
        self.bytes += bytes;
        let replaces = if pure_ack && self.thin > 1 { self.thin(number, flow) } else { None };
        let mut joined = Joined { release: self.release, early: complete as usize, replaces };
        if (self.packets == self.max || self.bytes == self.max_bytes) && self.may_be_early() {
            joined.early += (self.packets - 1) as usize;
            joined.release = at;
            self.release = at;
        }
        joined
    }

    fn begin(&mut self, release: Time) {
        self.release = release;
        self.packets = 0;
        self.bytes = 0;
        self.runs.clear();
    }

    fn thin(&mut self, number: u64, flow: u32) -> Option<u64> {
        match self.runs.get_mut(&flow) {
            Some((latest, stands_for)) if *stands_for < self.thin => {
                *stands_for += 1;
                Some(std::mem::replace(latest, number))
            }
            _ => {
                self.runs.insert(flow, (number, 1));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregate(text: &str) -> Aggregate {
        Aggregate::new(&toml::from_str(text).unwrap(), 1500).unwrap()
    }

    /// Delivery times of packets that arrive at these milliseconds.
    fn releases(text: &str, arrivals: &[u64]) -> Vec<u64> {
        sized_releases(text, &arrivals.iter().map(|&ms| (ms, 1500)).collect::<Vec<_>>())
    }

    /// Delivery times of packets of `bytes` that arrive at these milliseconds.
    fn sized_releases(text: &str, arrivals: &[(u64, u32)]) -> Vec<u64> {
        let mut aggregate = aggregate(text);
        let mut out: Vec<u64> = Vec::new();
        for (i, &(ms, bytes)) in arrivals.iter().enumerate() {
            let joined = aggregate.join(Time::ZERO + Span::from_millis(ms), i as u64, 0, bytes, false);
            let n = out.len();
            out[n - joined.early..].fill(ms);
            out.push(joined.release.as_nanos() / 1_000_000);
        }
        out
    }

    #[test]
    fn the_first_packet_waits_for_the_others() {
        assert_eq!(releases("hold = '10ms'", &[0, 3, 10, 11, 40]), [10, 10, 10, 21, 50]);
    }

    #[test]
    fn a_full_burst_does_not_wait() {
        assert_eq!(releases("hold = '10ms'\nmax = 3", &[0, 3, 4, 5, 6]), [4, 4, 4, 15, 15]);
        assert_eq!(releases("hold = '10ms'\nmax = 1", &[0, 3]), [0, 3]);
    }

    #[test]
    fn slots_deliver_at_their_times_and_are_limited() {
        assert_eq!(releases("every = '10ms'", &[0, 3, 10, 11, 40]), [0, 10, 10, 20, 40]);
        assert_eq!(
            releases("every = '10ms'\nmax = 2", &[1, 2, 3, 4, 5, 12, 60]),
            [10, 10, 20, 20, 30, 30, 60]
        );
    }

    #[test]
    fn a_burst_is_limited_in_bytes() {
        // The third would make 3500 bytes: the first two are delivered when it arrives, and it waits until
        // its own burst is full.
        let sized = [(0, 1500), (3, 1400), (5, 600), (6, 1500), (7, 900), (8, 40), (60, 1500)];
        assert_eq!(sized_releases("hold = '10ms'\nmax_bytes = 3000", &sized), [5, 5, 7, 7, 7, 18, 70]);
        // With slots the rest waits for the next one.
        assert_eq!(sized_releases("every = '10ms'\nmax_bytes = 3000", &sized), [0, 10, 10, 20, 20, 20, 60]);
        // Whichever limit is met first counts.
        assert_eq!(
            sized_releases(
                "hold = '10ms'\nmax = 2\nmax_bytes = 3000",
                &[(0, 40), (1, 40), (2, 1500), (3, 1501)]
            ),
            [1, 1, 3, 13]
        );
    }

    #[test]
    fn thinning_delivers_the_last_of_n_acknowledgements() {
        let mut a = aggregate("hold = '10ms'\nthin = 3");
        let mut join = |ms, number, flow, ack| {
            a.join(Time::ZERO + Span::from_millis(ms), number, flow, 40, ack).replaces
        };
        assert_eq!(join(0, 0, 1, true), None);
        assert_eq!(join(1, 1, 2, true), None, "another flow");
        assert_eq!(join(2, 2, 1, false), None, "not a pure acknowledgement");
        assert_eq!(join(3, 3, 1, true), Some(0));
        assert_eq!(join(4, 4, 1, true), Some(3));
        assert_eq!(join(5, 5, 1, true), None, "three are one: the next run");
        assert_eq!(join(50, 6, 1, true), None, "another burst");
    }

    #[test]
    fn invalid_aggregation_is_refused() {
        let wrong = |text: &str| Aggregate::new(&toml::from_str(text).unwrap(), 1500).err().unwrap().key;
        assert_eq!(wrong(""), "aggregate");
        assert_eq!(wrong("hold = '1ms'\nevery = '1ms'"), "aggregate");
        assert_eq!(wrong("every = 0"), "aggregate.every");
        assert_eq!(wrong("hold = '1ms'\nmax = 0"), "aggregate.max");
        assert_eq!(wrong("hold = '1ms'\nthin = 0"), "aggregate.thin");
        assert_eq!(wrong("hold = '1ms'\nmax_bytes = 1499"), "aggregate.max_bytes");
    }
}

//! Delivery in bursts: what Wi-Fi, cable and cellular links do to packets and above all to
//! acknowledgements (paper §6.2).

use std::collections::HashMap;

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::build::Wrong;

/// Packets are held at the far end of the link and come out in bursts. Write `hold` or `every`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AggregateSpec {
    /// The first packet waits so long for others; all come out together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
    /// Packets come out at multiples of this time only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Most packets of a burst. With `hold` a full burst comes out at once, with `every` the rest
    /// waits for the next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Of so many successive pure acknowledgements of a flow in a burst only the last comes out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thin: Option<u32>,
}

/// What happens to a packet that joins a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Joined {
    /// When it comes out.
    pub release: Time,
    /// The burst is complete with it: so many packets before it come out at `release` as well.
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
    thin: u32,
    release: Time,
    packets: u32,
    /// Of each flow: number of its latest acknowledgement in the burst, and how many it stands
    /// for.
    runs: HashMap<u32, (u64, u32)>,
}

impl Aggregate {
    pub fn new(spec: &AggregateSpec) -> Result<Self, Wrong> {
        let when = match (spec.hold, spec.every) {
            (Some(hold), None) => When::Hold(hold),
            (None, Some(every)) if every.is_zero() => {
                return Err(Wrong::new("aggregate.every", "write a time above 0"));
            }
            (None, Some(every)) => When::Every(every),
            _ => return Err(Wrong::new("aggregate", "write either `hold` or `every`")),
        };
        for (key, value) in [("aggregate.max", spec.max), ("aggregate.thin", spec.thin)] {
            if value == Some(0) {
                return Err(Wrong::new(key, "write a number of packets, at least 1"));
            }
        }
        Ok(Aggregate {
            when,
            max: spec.max.unwrap_or(u32::MAX),
            thin: spec.thin.unwrap_or(1),
            release: Time::ZERO,
            packets: 0,
            runs: HashMap::new(),
        })
    }

    /// Whether a burst that has a time can come out before it.
    pub fn may_be_early(&self) -> bool {
        matches!(self.when, When::Hold(_)) && self.max < u32::MAX
    }

    /// Packet `number` of `flow` arrives; arrivals come in the order of time.
    pub fn join(&mut self, at: Time, number: u64, flow: u32, pure_ack: bool) -> Joined {
        let full = self.packets >= self.max;
        match self.when {
            When::Hold(hold) => {
                // A burst takes what arrives until it comes out.
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
        let replaces = if pure_ack && self.thin > 1 { self.thin(number, flow) } else { None };
        let mut joined = Joined { release: self.release, early: 0, replaces };
        if self.packets == self.max && self.may_be_early() {
            joined.early = (self.packets - 1) as usize;
            joined.release = at;
            self.release = at;
        }
        joined
    }

    fn begin(&mut self, release: Time) {
        self.release = release;
        self.packets = 0;
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
        Aggregate::new(&toml::from_str(text).unwrap()).unwrap()
    }

    /// When packets that arrive at these milliseconds come out.
    fn releases(text: &str, arrivals: &[u64]) -> Vec<u64> {
        let mut aggregate = aggregate(text);
        let mut out: Vec<u64> = Vec::new();
        for (i, &ms) in arrivals.iter().enumerate() {
            let joined = aggregate.join(Time::ZERO + Span::from_millis(ms), i as u64, 0, false);
            let release = joined.release.as_nanos() / 1_000_000;
            out.push(release);
            let n = out.len();
            out[n - 1 - joined.early..].fill(release);
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
    fn slots_release_at_their_times_and_take_no_more_than_they_hold() {
        assert_eq!(releases("every = '10ms'", &[0, 3, 10, 11, 40]), [0, 10, 10, 20, 40]);
        assert_eq!(
            releases("every = '10ms'\nmax = 2", &[1, 2, 3, 4, 5, 12, 60]),
            [10, 10, 20, 20, 30, 30, 60]
        );
    }

    #[test]
    fn of_n_acknowledgements_of_a_flow_the_last_comes_out() {
        let mut a = aggregate("hold = '10ms'\nthin = 3");
        let mut join =
            |ms, number, flow, ack| a.join(Time::ZERO + Span::from_millis(ms), number, flow, ack).replaces;
        assert_eq!(join(0, 0, 1, true), None);
        assert_eq!(join(1, 1, 2, true), None, "another flow");
        assert_eq!(join(2, 2, 1, false), None, "not a pure acknowledgement");
        assert_eq!(join(3, 3, 1, true), Some(0));
        assert_eq!(join(4, 4, 1, true), Some(3));
        assert_eq!(join(5, 5, 1, true), None, "three are one: the next run");
        assert_eq!(join(50, 6, 1, true), None, "another burst");
    }

    #[test]
    fn bursts_that_mean_nothing_are_refused() {
        let wrong = |text: &str| Aggregate::new(&toml::from_str(text).unwrap()).err().unwrap().key;
        assert_eq!(wrong(""), "aggregate");
        assert_eq!(wrong("hold = '1ms'\nevery = '1ms'"), "aggregate");
        assert_eq!(wrong("every = 0"), "aggregate.every");
        assert_eq!(wrong("hold = '1ms'\nmax = 0"), "aggregate.max");
        assert_eq!(wrong("hold = '1ms'\nthin = 0"), "aggregate.thin");
    }
}

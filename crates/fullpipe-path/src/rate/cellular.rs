//! A cellular link: the scheduler grants what it believes is asked for (paper §6.1).
//!
//! Every interval the rate becomes what was served in the last one plus what still waits, within
//! its bounds. A sender that never queues is therefore never granted more than it already sends;
//! one that makes a queue is.

use fullpipe_units::{Rate, Span, Time};
use serde::{Deserialize, Serialize};

use crate::build::LinkError;

/// A link whose rate follows the demand, instead of `rate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellularSpec {
    /// The rate of an idle link; greater than zero.
    pub min: Rate,
    /// The most that is granted.
    pub max: Rate,
    /// How often the grant is decided, at least 1 ms; 100 ms unless written.
    #[serde(default = "interval")]
    pub interval: Span,
}

fn interval() -> Span {
    Span::from_millis(100)
}

/// The scheduler's view of one subscriber.
pub(crate) struct Cellular {
    spec: CellularSpec,
    served: u64,
    /// End of the interval; [`Time::NEVER`] while nothing is asked for.
    decides: Time,
}

impl Cellular {
    pub fn new(spec: &CellularSpec) -> Result<Self, LinkError> {
        let CellularSpec { min, max, interval } = *spec;
        if min == Rate::ZERO {
            return Err(LinkError::new(
                "cellular.min",
                "a link that grants nothing is never asked: write a rate above 0",
            ));
        }
        if max < min {
            return Err(LinkError::new(
                "cellular.max",
                format!("{max} is less than `min` ({min}): swap them"),
            ));
        }
        if interval < Span::from_millis(1) {
            return Err(LinkError::new(
                "cellular.interval",
                format!("{interval} is too often: write at least 1ms"),
            ));
        }
        Ok(Cellular { spec: *spec, served: 0, decides: Time::NEVER })
    }

    /// When the next grant is decided.
    pub fn next(&self) -> Time {
        self.decides
    }

    /// Something was asked for at `at`.
    pub fn asked(&mut self, at: Time) {
        if self.decides == Time::NEVER {
            self.decides = at + self.spec.interval;
        }
    }

    pub fn served(&mut self, bytes: u32) {
        self.served += u64::from(bytes);
    }

    /// The grant for the next interval, while `backlog` bytes wait.
    pub fn decide(&mut self, backlog: u64) -> Rate {
        let demand = Rate::from_bytes_in(self.served.saturating_add(backlog), self.spec.interval);
        let idle = self.served == 0 && backlog == 0;
        self.decides = if idle { Time::NEVER } else { self.decides + self.spec.interval };
        self.served = 0;
        demand.clamp(self.spec.min, self.spec.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> Rate {
        Rate::from_bits_per_sec(n * 1_000_000)
    }

    fn cellular() -> Cellular {
        let mut cellular = Cellular::new(&toml::from_str("min = '1mbit'\nmax = '20mbit'").unwrap()).unwrap();
        cellular.asked(Time::ZERO);
        cellular
    }

    #[test]
    fn the_grant_is_what_was_served_and_what_waits() {
        let mut c = cellular();
        c.served(50_000);
        // 50 kB in 100 ms are 4 Mbit/s.
        assert_eq!(c.decide(0), mbit(4));
        c.served(50_000);
        assert_eq!(c.decide(12_500), mbit(5));
        assert_eq!(c.next(), Time::ZERO + Span::from_millis(300));
    }

    #[test]
    fn it_stays_within_its_bounds_and_sleeps_when_idle() {
        let mut c = cellular();
        assert_eq!(c.decide(u64::MAX), mbit(20));
        c.served(1);
        assert_eq!(c.decide(0), mbit(1));
        assert_eq!((c.decide(0), c.next()), (mbit(1), Time::NEVER));
    }

    #[test]
    fn bounds_that_cannot_be_are_refused() {
        let wrong = |text: &str| Cellular::new(&toml::from_str(text).unwrap()).err().unwrap().key;
        assert_eq!(wrong("min = 0\nmax = '1mbit'"), "cellular.min");
        assert_eq!(wrong("min = '2mbit'\nmax = '1mbit'"), "cellular.max");
        assert_eq!(wrong("min = '1mbit'\nmax = '2mbit'\ninterval = '1us'"), "cellular.interval");
    }
}

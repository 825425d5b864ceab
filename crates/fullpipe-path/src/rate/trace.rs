//! Recorded links in mahimahi's format: each line is a millisecond at which 1500 bytes can leave.
//!
//! As in mahimahi the trace starts over when it ends, an opportunity that finds no packet is
//! lost, several packets may share one, and a packet larger than what is left takes the next too.

use fullpipe_units::{Rate, Span, Time};
use serde::{Deserialize, Serialize};

use crate::build::LinkError;

/// Bytes that may leave at one opportunity.
const OPPORTUNITY: u32 = 1500;

/// A recorded link, as a scenario writes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum TraceSpec {
    /// A file in mahimahi's format, relative to the scenario.
    File(String),
    /// The opportunities themselves.
    Inline(Trace),
}

/// Times at which a link delivers, in milliseconds from its start; it repeats after the last one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Milliseconds, in non-decreasing order, the last one greater than zero. A number that
    /// occurs n times stands for n·1500 bytes.
    pub ms: Vec<u64>,
}

/// What is wrong with a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that is not a number of milliseconds.
    #[error("line {line} is not a whole number of milliseconds")]
    NotANumber {
        /// Counted from 1. What the line says is not repeated: the file may be one that its reader
        /// may not see.
        line: usize,
    },
    /// A time before its predecessor.
    #[error("opportunity {position}: {ms} ms comes after {before} ms; times must not decrease")]
    Decreasing {
        /// Counted from 1.
        position: usize,
        /// The offending time.
        ms: u64,
        /// The one before.
        before: u64,
    },
    /// No opportunity at all.
    #[error("the trace is empty; it needs at least one line with a time in milliseconds")]
    Empty,
    /// All opportunities at time zero.
    #[error("the trace lasts no time; its last line must be greater than 0 (it is the period)")]
    NoPeriod,
    /// Times that overflow a clock of nanoseconds.
    #[error("the trace ends at {0} ms; times must be at most 10^12 ms (30 years)")]
    TooLong(u64),
}

impl Trace {
    /// Reads mahimahi's format: one whole number of milliseconds a line; empty lines and lines
    /// that start with `#` are skipped.
    ///
    /// # Errors
    /// A line that is not a number, decreasing times, a trace without opportunities or length.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut ms = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            ms.push(line.parse().map_err(|_| TraceError::NotANumber { line: i + 1 })?);
        }
        let trace = Trace { ms };
        trace.check()?;
        Ok(trace)
    }

    /// Whether the trace can be played.
    ///
    /// # Errors
    /// See [`Trace::parse`].
    pub fn check(&self) -> Result<(), TraceError> {
        for (i, pair) in self.ms.windows(2).enumerate() {
            if pair[1] < pair[0] {
                return Err(TraceError::Decreasing { position: i + 2, ms: pair[1], before: pair[0] });
            }
        }
        match self.ms.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoPeriod),
            Some(&ms) if ms > 1_000_000_000_000 => Err(TraceError::TooLong(ms)),
            Some(_) => Ok(()),
        }
    }

    /// The mean rate over one period.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.ms.len() as u64 * u64::from(OPPORTUNITY);
        self.ms.last().map_or(Rate::ZERO, |&ms| Rate::from_bytes_in(bytes, Span::from_millis(ms)))
    }
}

impl TraceSpec {
    pub(crate) fn build(&self) -> Result<TraceServer, LinkError> {
        match self {
            TraceSpec::File(name) => Err(LinkError::new(
                "trace",
                format!("the file `{name}` has not been read: call `LinkSpec::load_trace` first"),
            )),
            TraceSpec::Inline(trace) => {
                trace.check().map_err(|e| LinkError::new("trace", e.to_string()))?;
                Ok(TraceServer::new(&trace.ms))
            }
        }
    }
}

/// A place in the endlessly repeated trace.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    /// Index of the opportunity in its period.
    index: usize,
    /// Start of that period in milliseconds.
    base: u64,
}

/// Serves at the opportunities of a trace.
pub(crate) struct TraceServer {
    ms: Vec<u64>,
    period: u64,
    /// The opportunity in use, and what is left of it.
    current: Place,
    left: u32,
}

impl TraceServer {
    fn new(ms: &[u64]) -> Self {
        TraceServer {
            ms: ms.to_vec(),
            period: ms[ms.len() - 1],
            current: Place { index: 0, base: 0 },
            left: OPPORTUNITY,
        }
    }

    fn time(&self, place: Place) -> Time {
        Time::ZERO + Span::from_millis(place.base.saturating_add(self.ms[place.index]))
    }

    fn after(&self, place: Place) -> Place {
        if place.index + 1 < self.ms.len() {
            Place { index: place.index + 1, ..place }
        } else {
            Place { index: 0, base: place.base.saturating_add(self.period) }
        }
    }

    /// The first opportunity not before `ready` that is not used up.
    fn seek(&self, ready: Time) -> Place {
        let place = if self.left > 0 { self.current } else { self.after(self.current) };
        if self.time(place) >= ready {
            return place;
        }
        let ms = ready.as_nanos().div_ceil(1_000_000);
        // A period owns the times (base, base + period], and of the first one also time 0.
        let base = (ms - 1) / self.period * self.period;
        let index = self.ms.partition_point(|&t| base.saturating_add(t) < ms);
        if (base, index) < (place.base, place.index) { place } else { Place { index, base } }
    }

    pub fn next_start(&self, ready: Time) -> Time {
        self.time(self.seek(ready))
    }

    pub fn serve(&mut self, start: Time, bytes: u32) -> Time {
        let place = self.seek(start);
        if place != self.current || self.left == 0 {
            self.current = place;
            self.left = OPPORTUNITY;
        }
        let mut need = bytes;
        if need > self.left {
            need -= self.left;
            self.current = self.after(self.current);
            // Whole periods at once: a packet may be far larger than a period carries.
            let whole = u64::from(OPPORTUNITY).saturating_mul(self.ms.len() as u64);
            let periods = u64::from(need - 1) / whole;
            need -= (periods * whole) as u32;
            self.current.base = self.current.base.saturating_add(periods.saturating_mul(self.period));
            while need > OPPORTUNITY {
                need -= OPPORTUNITY;
                self.current = self.after(self.current);
            }
            self.left = OPPORTUNITY;
        }
        self.left -= need;
        self.time(self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    fn server(text: &str) -> TraceServer {
        TraceSpec::Inline(Trace::parse(text).unwrap()).build().unwrap()
    }

    #[test]
    fn full_packets_leave_at_the_opportunities_and_the_trace_repeats() {
        let mut s = server("1\n1\n5\n10\n");
        let mut at = Time::ZERO;
        let departures: Vec<Time> = (0..9)
            .map(|_| {
                at = s.serve(at, 1500);
                at
            })
            .collect();
        assert_eq!(departures, [1, 1, 5, 10, 11, 11, 15, 20, 21].map(ms));
    }

    #[test]
    fn an_opportunity_without_a_packet_is_lost() {
        let mut s = server("1\n2\n3\n");
        assert_eq!(s.next_start(Time::from_nanos(2_000_001)), ms(3));
        assert_eq!(s.serve(Time::from_nanos(2_000_001), 1500), ms(3));
        assert_eq!(s.serve(ms(1000), 1500), ms(1000), "1000 = 3·333 + 1");
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let mut s = server("1\n2\n3\n4\n");
        assert_eq!(s.serve(ms(0), 700), ms(1));
        assert_eq!(s.serve(ms(1), 700), ms(1));
        assert_eq!(s.serve(ms(1), 700), ms(2), "100 bytes were left, 600 go with the next");
        assert_eq!(s.serve(ms(2), 900), ms(2));
        assert_eq!(s.serve(ms(2), 4500), ms(5));
        let mut s = server("1\n2\n3\n4\n");
        assert_eq!(s.serve(ms(0), 1500 * 4_000), ms(4_000), "whole periods at once");
    }

    #[test]
    fn the_rest_of_an_opportunity_expires_with_it() {
        let mut s = server("1\n2\n");
        assert_eq!(s.serve(ms(0), 100), ms(1));
        assert_eq!(s.serve(Time::from_nanos(1_000_001), 100), ms(2));
    }

    #[test]
    fn bad_traces_name_the_line_and_the_reason() {
        assert_eq!(Trace::parse(""), Err(TraceError::Empty));
        assert_eq!(Trace::parse("0\n0\n"), Err(TraceError::NoPeriod));
        let error = Trace::parse("1\nsecret\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
        assert!(Trace::parse("5\n4\n").unwrap_err().to_string().contains("4 ms comes after 5 ms"));
        assert!(Trace::parse("18446744073709551615\n").unwrap_err().to_string().contains("30 years"));
        assert_eq!(Trace::parse("# a comment\n\n 7 \r\n").unwrap().ms, [7]);
    }

    proptest! {
        /// The quick search agrees with walking from one opportunity to the next.
        #[test]
        fn seeking_finds_the_first_opportunity(
            mut times in prop::collection::vec(0u64..50, 1..20),
            readies in prop::collection::vec((0u64..120_000_000, 1u32..5000), 1..50),
        ) {
            times.sort_unstable();
            prop_assume!(times[times.len() - 1] > 0);
            let mut s = TraceServer::new(&times);
            let period = s.period;
            // The walk: budget of each opportunity in turn.
            let mut walk = (0u64..).flat_map(|cycle| times.iter().map(move |t| cycle * period + t));
            let (mut now, mut left) = (walk.next().unwrap(), OPPORTUNITY);
            let mut clock = 0;
            for (gap, bytes) in readies {
                clock += gap;
                let mut need = bytes;
                loop {
                    if left > 0 && now * 1_000_000 >= clock {
                        let take = need.min(left);
                        (need, left) = (need - take, left - take);
                        if need == 0 {
                            break;
                        }
                    }
                    (now, left) = (walk.next().unwrap(), OPPORTUNITY);
                }
                let end = s.serve(Time::from_nanos(clock), bytes);
                prop_assert_eq!(end, ms(now));
                clock = clock.max(end.as_nanos());
            }
        }

        #[test]
        fn no_text_panics(text in "[0-9 \\n#x]{0,60}") {
            if let Ok(trace) = Trace::parse(&text) {
                let mut s = TraceServer::new(&trace.ms);
                let end = s.serve(Time::from_nanos(123_456_789), u32::MAX);
                prop_assert!(s.serve(end, 1500) >= end);
            }
        }
    }
}

//! The algorithm of the draft (draft-ietf-ippm-responsiveness-08, sections 4.2 to 4.4), without I/O:
//! its inputs are what was transferred and how long probes took, its outputs when to open connections, how
//! fast to probe and when to end.

use super::statistics::{standard_deviation, trimmed_mean};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// The draft's parameters (section 4.2), with its defaults.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Parameters {
    /// MAD: intervals of a moving average, and averages that must agree.
    pub intervals: usize,
    /// ID: duration of an interval, seconds.
    pub interval_s: f64,
    /// TMP: share of the samples that the trimmed mean keeps.
    pub kept_share: f64,
    /// SDT: standard deviation of stable values, as a share of the last one.
    pub tolerance: f64,
    /// INP: load-generating connections at the beginning.
    pub initial_connections: usize,
    /// INC: load-generating connections that are added at each interval.
    pub added_connections: usize,
    /// MNP: maximum load-generating connections.
    pub max_connections: usize,
    /// MPS: maximum pairs of probes per second.
    pub probes_per_second: f64,
    /// PTC: share of the capacity that probes may use.
    pub probe_share: f64,
    /// Time limit of one direction, seconds.
    pub time_limit_s: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            intervals: 4,
            interval_s: 1.0,
            kept_share: 0.95,
            tolerance: 0.05,
            initial_connections: 1,
            added_connections: 1,
            max_connections: 16,
            probes_per_second: 100.0,
            probe_share: 0.05,
            time_limit_s: 20.0,
        }
    }
}

/// Bytes that a pair of probes transfers: a foreign and a self probe (draft section 4.3.1).
const PAIR_BYTES: f64 = 5000.0 + 1000.0;

/// Durations of a probe on a connection of its own, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForeignProbe {
    /// The TCP handshake.
    pub tcp_ms: f64,
    /// The TLS handshake, per round trip of it; `None` without TLS.
    pub tls_ms: Option<f64>,
    /// The request.
    pub http_ms: f64,
}

/// The probes that completed in one interval.
#[derive(Clone, Debug, Default)]
struct Samples {
    tcp: Vec<f64>,
    tls: Vec<f64>,
    http: Vec<f64>,
    on_load: Vec<f64>,
}

/// Trimmed means of durations, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Times {
    /// TM(tcp_f): TCP handshakes.
    pub tcp_ms: f64,
    /// TM(tls_f): TLS handshakes, per round trip; null without TLS.
    pub tls_ms: Option<f64>,
    /// TM(http_f): requests on connections of their own.
    pub http_ms: f64,
    /// TM(http_l): requests on load-generating connections.
    pub self_ms: f64,
}

/// Round trips per minute.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Responsiveness {
    /// The mean of the two others.
    pub rpm: f64,
    /// On connections of their own (foreign).
    pub foreign_rpm: f64,
    /// On load-generating connections (self).
    pub self_rpm: f64,
    /// What they are computed from.
    pub times: Times,
}

impl Times {
    /// The draft's formulas (sections 4.3.2.1 and 4.3.2.2).
    pub fn responsiveness(self) -> Responsiveness {
        let foreign_ms = match self.tls_ms {
            Some(tls_ms) => (self.tcp_ms + tls_ms + self.http_ms) / 3.0,
            None => f64::midpoint(self.tcp_ms, self.http_ms),
        };
        let (foreign_rpm, self_rpm) = (60_000.0 / foreign_ms, 60_000.0 / self.self_ms);
        Responsiveness { rpm: f64::midpoint(foreign_rpm, self_rpm), foreign_rpm, self_rpm, times: self }
    }
}

/// How far a stage came (section 4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Not as many intervals as a moving average has.
    Low,
    /// The values did not become stable within the time limit.
    Medium,
    /// The values became stable.
    High,
}

/// The values of a stage, one per interval.
#[derive(Clone, Debug, Default)]
struct Stage {
    values: Vec<f64>,
    stable: bool,
}

impl Stage {
    /// Adds a value. The stage is stable once the standard deviation of the last values is small
    /// compared to the last one.
    fn push(&mut self, value: f64, parameters: &Parameters) {
        self.values.push(value);
        let last = self.values.len().checked_sub(parameters.intervals).map(|from| &self.values[from..]);
        self.stable |= last.is_some_and(|last| standard_deviation(last) < parameters.tolerance * value);
    }

    fn confidence(&self, executed: usize, parameters: &Parameters) -> Confidence {
        match (self.stable, executed >= parameters.intervals) {
            (true, _) => Confidence::High,
            (false, true) => Confidence::Medium,
            (false, false) => Confidence::Low,
        }
    }
}

/// What to do after an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open so many more load-generating connections.
    Open(usize),
    /// Both stages are stable.
    Finish,
}

/// One direction of a test.
#[derive(Clone, Debug)]
pub struct Algorithm {
    parameters: Parameters,
    connections: usize,
    /// Bytes per second of each interval.
    rates: Vec<f64>,
    goodput: Stage,
    responsiveness: Stage,
    /// Of the last intervals, the current one last.
    samples: VecDeque<Samples>,
}

impl Algorithm {
    /// Begins with the initial connections open.
    pub fn new(parameters: Parameters) -> Algorithm {
        let connections = parameters.initial_connections;
        Algorithm {
            parameters,
            connections,
            rates: Vec::new(),
            goodput: Stage::default(),
            responsiveness: Stage::default(),
            samples: VecDeque::from([Samples::default()]),
        }
    }

    /// Records a completed probe on a connection of its own.
    pub fn add_foreign(&mut self, probe: ForeignProbe) {
        if let Some(current) = self.samples.back_mut() {
            current.tcp.push(probe.tcp_ms);
            current.tls.extend(probe.tls_ms);
            current.http.push(probe.http_ms);
        }
    }

    /// Records a completed probe on a load-generating connection.
    pub fn add_self(&mut self, http_ms: f64) {
        if let Some(current) = self.samples.back_mut() {
            current.on_load.push(http_ms);
        }
    }

    /// Ends an interval in which `bytes` were transferred.
    pub fn end_interval(&mut self, bytes: u64, elapsed: Duration) -> Step {
        let parameters = &self.parameters;
        self.rates.push(bytes as f64 / elapsed.as_secs_f64().max(1e-9));
        // The first average that covers all its intervals is that of the interval MAD − 1.
        if let Some(average) = self.average_rate()
            && !self.goodput.stable
        {
            self.goodput.push(average, parameters);
        }
        if self.goodput.stable
            && let Some(current) = self.current()
        {
            self.responsiveness.push(current.rpm, &self.parameters);
        }
        if self.responsiveness.stable {
            return Step::Finish;
        }
        self.samples.push_back(Samples::default());
        if self.samples.len() > self.parameters.intervals {
            self.samples.pop_front();
        }
        let left = self.parameters.max_connections.saturating_sub(self.connections);
        let added = self.parameters.added_connections.min(left);
        self.connections += added;
        Step::Open(added)
    }

    /// The moving average of the goodput, bytes per second, once it covers as many intervals.
    fn average_rate(&self) -> Option<f64> {
        let from = self.rates.len().checked_sub(self.parameters.intervals)?;
        Some(self.rates[from..].iter().sum::<f64>() / self.parameters.intervals as f64)
    }

    /// The goodput, bit/s: the last moving average, or the mean of fewer intervals.
    pub fn goodput_bps(&self) -> f64 {
        let mean = || self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64;
        8.0 * self.average_rate().unwrap_or_else(mean)
    }

    /// The responsiveness by the probes of the last intervals; `None` if a kind has not completed.
    pub fn current(&self) -> Option<Responsiveness> {
        let mean = |of: fn(&Samples) -> &Vec<f64>| {
            let all: Vec<f64> = self.samples.iter().flat_map(of).copied().collect();
            trimmed_mean(&all, self.parameters.kept_share)
        };
        let times = Times {
            tcp_ms: mean(|s| &s.tcp)?,
            tls_ms: mean(|s| &s.tls),
            http_ms: mean(|s| &s.http)?,
            self_ms: mean(|s| &s.on_load)?,
        };
        Some(times.responsiveness())
    }

    /// Pairs of probes to send per second: at most the draft's number, and at most its share of the
    /// capacity. None before the capacity is known.
    pub fn probe_rate(&self) -> f64 {
        let capacity = self.rates.last().copied().unwrap_or(0.0);
        (capacity * self.parameters.probe_share / PAIR_BYTES).min(self.parameters.probes_per_second)
    }

    /// Number of intervals.
    pub fn intervals(&self) -> usize {
        self.rates.len()
    }

    /// Number of load-generating connections.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Confidence in the goodput and in the responsiveness.
    pub fn confidence(&self) -> (Confidence, Confidence) {
        let goodput = self.goodput.confidence(self.rates.len(), &self.parameters);
        let executed = self.responsiveness.values.len();
        (goodput, self.responsiveness.confidence(executed, &self.parameters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn algorithm() -> Algorithm {
        Algorithm::new(Parameters::default())
    }

    fn probe(algorithm: &mut Algorithm, ms: f64) {
        algorithm.add_foreign(ForeignProbe { tcp_ms: ms, tls_ms: Some(ms), http_ms: ms });
        algorithm.add_self(ms);
    }

    #[test]
    fn responsiveness_follows_the_formulas() {
        // Foreign: 60 000 / ((20 + 30 + 40) / 3) = 2000; self: 60 000 / 60 = 1000.
        let times = Times { tcp_ms: 20.0, tls_ms: Some(30.0), http_ms: 40.0, self_ms: 60.0 };
        let result = times.responsiveness();
        assert_eq!((result.foreign_rpm, result.self_rpm, result.rpm), (2000.0, 1000.0, 1500.0));
        // Without TLS: 60 000 / ((20 + 40) / 2) = 2000.
        assert_eq!(Times { tls_ms: None, ..times }.responsiveness().foreign_rpm, 2000.0);
    }

    #[test]
    fn a_constant_load_is_stable_as_soon_as_four_averages_agree() {
        let mut algorithm = algorithm();
        // Averages of four intervals end with the intervals 3 to 6, and responsiveness is evaluated at
        // 6 to 9.
        for interval in 0..9 {
            probe(&mut algorithm, 50.0);
            assert_eq!(algorithm.end_interval(1_000_000, SECOND), Step::Open(1), "interval {interval}");
        }
        assert_eq!(algorithm.confidence(), (Confidence::High, Confidence::Low));
        probe(&mut algorithm, 50.0);
        assert_eq!(algorithm.end_interval(1_000_000, SECOND), Step::Finish);
        assert_eq!(algorithm.confidence(), (Confidence::High, Confidence::High));
        assert_eq!(algorithm.goodput_bps(), 8e6);
        assert_eq!(algorithm.current().unwrap().rpm, 1200.0);
        assert_eq!((algorithm.intervals(), algorithm.connections()), (10, 10));
    }

    #[test]
    fn a_ramp_is_not_stable_until_its_averages_are() {
        let mut algorithm = algorithm();
        // Averages of 100, 200, 300, 400, 500, then 500: 250, 350, 425, 475, 500, 500, 500, …
        // Standard deviations of four: (250 … 475) 84.8; (350 … 500) 57.3; (425 … 500) 30.6, more than
        // 25; (475 … 500) 10.8.
        for (interval, rate) in [100, 200, 300, 400, 500, 500, 500, 500, 500, 500].into_iter().enumerate() {
            algorithm.end_interval(rate, SECOND);
            assert_eq!(algorithm.confidence().0 == Confidence::High, interval >= 9, "interval {interval}");
        }
    }

    #[test]
    fn a_load_that_alternates_stays_unstable_only_if_its_averages_do() {
        let mut algorithm = algorithm();
        for interval in 0..20 {
            algorithm.end_interval(if interval % 2 == 0 { 100 } else { 300 }, SECOND);
        }
        // Four intervals average to 200 wherever they begin.
        assert_eq!(algorithm.confidence().0, Confidence::High);
        let mut growing = self::algorithm();
        for interval in 0..20_i32 {
            growing.end_interval(1_u64 << interval, SECOND);
        }
        assert_eq!(growing.confidence(), (Confidence::Medium, Confidence::Low));
    }

    #[test]
    fn only_probes_of_the_last_four_intervals_count() {
        let mut algorithm = algorithm();
        assert_eq!(algorithm.current(), None);
        for ms in [1000.0, 10.0, 20.0, 30.0] {
            probe(&mut algorithm, ms);
            algorithm.end_interval(1000, SECOND);
        }
        probe(&mut algorithm, 40.0);
        // 10, 20, 30 and 40.
        assert_eq!(algorithm.current().unwrap().times.self_ms, 25.0);
    }

    #[test]
    fn probes_use_no_more_than_their_share_of_the_capacity() {
        let mut algorithm = algorithm();
        assert_eq!(algorithm.probe_rate(), 0.0);
        // 10 Mbit/s: 5 % are 62 500 byte/s, 10.4 pairs of 6000 bytes.
        algorithm.end_interval(1_250_000, SECOND);
        assert!((algorithm.probe_rate() - 62_500.0 / 6000.0).abs() < 1e-9);
        algorithm.end_interval(125_000_000, SECOND);
        assert_eq!(algorithm.probe_rate(), 100.0);
    }

    #[test]
    fn connections_are_added_up_to_the_maximum() {
        let mut algorithm = algorithm();
        for _ in 0..15 {
            assert_eq!(algorithm.end_interval(0, SECOND), Step::Open(1));
        }
        assert_eq!(algorithm.end_interval(0, SECOND), Step::Open(0));
        assert_eq!(algorithm.connections(), 16);
        assert_eq!(algorithm.confidence(), (Confidence::Medium, Confidence::Low), "no data is not stable");
    }
}

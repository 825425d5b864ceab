//! Accumulated outcomes of all arms.

use crate::stats::{Sample, half_width, p_value, ratio_p_value};
use crate::{AssignBy, Assigner, Comparison, Metric, Outcome, Period, Plan};
use fullpipe_units::Fraction;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum sample size for a reliable variance and normality of the mean.
pub(crate) const MIN_CONNECTIONS: u64 = 100;
const MIN_UNITS: u64 = 30;

/// Compared statistic of a metric's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The mean on the metric's scale: of logarithms, a ratio of geometric means.
    Mean,
    /// The 5th percentile.
    P5,
    /// The median.
    P50,
    /// The 95th percentile.
    P95,
}

impl Statistic {
    /// The quantile; `None` for the mean.
    pub fn quantile(self) -> Option<f64> {
        match self {
            Statistic::Mean => None,
            Statistic::P5 => Some(0.05),
            Statistic::P50 => Some(0.5),
            Statistic::P95 => Some(0.95),
        }
    }

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P5 => "p5",
            Statistic::P50 => "p50",
            Statistic::P95 => "p95",
        }
    }
}

/// Comparison of an arm with the control on the metric's scale, with an always-valid interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// Level of the arm.
    pub arm: f64,
    /// Level of the control.
    pub control: f64,
    /// Arm minus control.
    pub difference: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
    /// Always-valid p-value of no difference, for means only.
    pub p: Option<f64>,
}

impl Contrast {
    /// Whether the interval excludes zero.
    pub fn is_significant(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Spread of a metric, for sample-size calculations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Standard deviation of single connections on the metric's scale.
    pub deviation: f64,
    /// Variance inflation of a mean due to units (design effect).
    pub inflation: f64,
}

/// Sums of an arm.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) connections: u64,
    pub(crate) transfers: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) resent_bytes: u64,
    pub(crate) resent_segments: u64,
    pub(crate) changed_controller: u64,
    pub(crate) failed: u64,
    /// Minimum RTT, logarithms of ms: a property of the path.
    pub(crate) min_rtt: Sample,
    samples: Vec<Sample>,
}

impl Tally {
    fn new(in_units: bool) -> Self {
        Tally {
            connections: 0,
            transfers: 0,
            delivered_bytes: 0,
            received_bytes: 0,
            sent_bytes: 0,
            resent_bytes: 0,
            resent_segments: 0,
            changed_controller: 0,
            failed: 0,
            min_rtt: Sample::new(Metric::Rtt.comparison().bucket(), false),
            samples: Metric::ALL
                .iter()
                .map(|metric| Sample::new(metric.comparison().bucket(), in_units))
                .collect(),
        }
    }

    fn add(&mut self, o: &Outcome, min_transfer: u64, unit: u64) {
        self.connections += 1;
        self.transfers += u64::from(o.delivered_bytes >= min_transfer.max(1));
        for (sum, more) in [
            (&mut self.delivered_bytes, o.delivered_bytes),
            (&mut self.received_bytes, o.received_bytes),
            (&mut self.sent_bytes, o.sent_bytes),
            (&mut self.resent_bytes, o.resent_bytes),
            (&mut self.resent_segments, o.resent_segments),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.changed_controller += u64::from(o.chose.is_some());
        self.failed += u64::from(o.failed);
        if let Some(rtt) = o.min_rtt_ms.filter(|rtt| *rtt > 0.0) {
            self.min_rtt.add(rtt.ln(), 0);
        }
        for (metric, sample) in Metric::ALL.into_iter().zip(&mut self.samples) {
            if let Some(value) = metric.value(o, min_transfer) {
                sample.add(value, unit);
            }
        }
    }

    pub(crate) fn sample(&self, metric: Metric) -> &Sample {
        &self.samples[metric as usize]
    }
}

/// Counts per arm while shares were constant.
#[derive(Clone, Debug)]
struct Round {
    shares: Vec<f64>,
    counts: Vec<u64>,
    /// Observed units, if not single connections are assigned.
    units: Vec<BTreeSet<u64>>,
}

/// Outcomes of an experiment. Memory grows with the number of prefixes or periods, not of
/// connections.
#[derive(Clone, Debug)]
pub struct Ledger {
    plan: Plan,
    assigner: Assigner,
    arms: Vec<Tally>,
    /// The control's connections in two random halves, for an A/A test.
    halves: [Tally; 2],
    rounds: BTreeMap<u64, Round>,
    washed_out: u64,
}

fn as_fractions(shares: &[Fraction]) -> Vec<f64> {
    shares.iter().map(|share| share.as_f64()).collect()
}

impl Ledger {
    /// An empty ledger.
    pub fn new(plan: &Plan) -> Self {
        let in_units = plan.by != AssignBy::Connection;
        let mut ledger = Ledger {
            assigner: Assigner::new(plan.seed, plan.by),
            arms: plan.arms.all().iter().map(|_| Tally::new(in_units)).collect(),
            halves: [Tally::new(in_units), Tally::new(in_units)],
            rounds: BTreeMap::new(),
            washed_out: 0,
            plan: plan.clone(),
        };
        ledger.set_shares(0, &plan.arms.shares());
        ledger
    }

    /// Sets the shares from a generation on.
    pub fn set_shares(&mut self, generation: u64, shares: &[Fraction]) {
        let arms = self.arms.len();
        let round =
            Round { shares: as_fractions(shares), counts: vec![0; arms], units: vec![BTreeSet::new(); arms] };
        self.rounds.insert(generation, round);
    }

    /// Adds the outcome of a connection, ignoring unknown arms.
    pub fn add(&mut self, o: &Outcome) {
        if usize::from(o.arm) >= self.arms.len() {
            return;
        }
        let Some((unit, hash)) = self.unit(o) else {
            self.washed_out += 1;
            return;
        };
        let tally = &mut self.arms[usize::from(o.arm)];
        tally.add(o, self.plan.min_transfer.0, unit);
        if usize::from(o.arm) == self.plan.control_index() {
            // The arm is determined by the upper half of the hash.
            self.halves[(hash & 1) as usize].add(o, self.plan.min_transfer.0, unit);
        }
        if let Some(round) = self.rounds.get_mut(&o.generation) {
            let arm = usize::from(o.arm);
            round.counts[arm] += 1;
            if self.plan.by != AssignBy::Connection {
                round.units[arm].insert(unit);
            }
        }
    }

    /// Adds the CPU time of a period; ignored without delivered data, or unless assignment is by
    /// time.
    pub fn add_period(&mut self, period: &Period) {
        let arm = usize::from(period.arm);
        let cpu_per_gb = (period.processor_s / (period.acked_bytes as f64 * 1e-9)).ln();
        if arm >= self.arms.len() || !matches!(self.plan.by, AssignBy::Time { .. }) || !cpu_per_gb.is_finite()
        {
            return;
        }
        let processor = Metric::Processor as usize;
        self.arms[arm].samples[processor].add(cpu_per_gb, period.number);
        if arm == self.plan.control_index() {
            let half = self.assigner.hash_period(period.number) & 1;
            self.halves[half as usize].samples[processor].add(cpu_per_gb, period.number);
        }
    }

    /// The unit of a connection and its hash; `None` in a wash-out.
    fn unit(&self, o: &Outcome) -> Option<(u64, u64)> {
        let hash = self.assigner.hash(o.local, o.remote);
        match self.plan.by {
            AssignBy::Connection | AssignBy::ClientPrefix { .. } => Some((hash, hash)),
            AssignBy::Time { .. } => match self.plan.period(o.opened_unix_s) {
                Some((number, false)) => Some((number, self.assigner.hash_period(number))),
                _ => None,
            },
        }
    }

    /// Arm and unit of a connection: its prefix, period or cookie. `None` if excluded.
    pub(crate) fn place(&self, o: &Outcome) -> Option<(usize, u64)> {
        let arm = usize::from(o.arm);
        let (unit, _) = self.unit(o).filter(|_| arm < self.arms.len())?;
        Some((arm, if self.plan.by == AssignBy::Connection { o.cookie } else { unit }))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn tally(&self, arm: usize) -> &Tally {
        &self.arms[arm]
    }

    /// Connections excluded because they opened in a wash-out.
    pub fn washed_out(&self) -> u64 {
        self.washed_out
    }

    /// Number of connections.
    pub fn connections(&self) -> u64 {
        self.arms.iter().map(|arm| arm.connections).sum()
    }

    /// Number of transfers.
    pub fn transfers(&self) -> u64 {
        self.arms.iter().map(|arm| arm.transfers).sum()
    }

    /// Spread of a metric in the control; `None` with too little data.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        let sample = self.arms[self.plan.control_index()].sample(metric);
        let (deviation, inflation) =
            sample.spread().filter(|_| is_sufficient(sample, min_observations(metric)))?;
        Some(Spread { deviation, inflation })
    }

    /// Number of units of an arm: connections, prefixes, periods.
    pub fn units(&self, arm: usize) -> u64 {
        if self.plan.by == AssignBy::Connection {
            return self.arms[arm].connections;
        }
        let all: BTreeSet<u64> = self.rounds.values().flat_map(|round| &round.units[arm]).copied().collect();
        all.len() as u64
    }

    /// Comparison of an arm with the control; `None` with too little data.
    pub fn contrast(&self, arm: usize, metric: Metric, statistic: Statistic, alpha: f64) -> Option<Contrast> {
        let control = self.plan.control_index();
        contrast(&self.arms[arm], &self.arms[control], metric, statistic, alpha)
    }

    /// Comparison of two random halves of the control (A/A test).
    pub fn control_halves(&self, metric: Metric, alpha: f64) -> Option<Contrast> {
        contrast(&self.halves[0], &self.halves[1], metric, Statistic::Mean, alpha)
    }

    /// Always-valid p-value of the sample-ratio test over connections, prefixes or periods.
    pub fn ratio_p_value(&self) -> f64 {
        let counts = |round: &Round| -> Vec<u64> {
            match self.plan.by {
                AssignBy::Connection => round.counts.clone(),
                _ => round.units.iter().map(|units| units.len() as u64).collect(),
            }
        };
        let rounds: Vec<_> =
            self.rounds.values().map(|round| (counts(round), round.shares.clone())).collect();
        ratio_p_value(rounds.iter().map(|(counts, shares)| (&counts[..], &shares[..])))
    }
}

/// A period is a unit with one value.
fn min_observations(metric: Metric) -> u64 {
    if metric == Metric::Processor { MIN_UNITS } else { MIN_CONNECTIONS }
}

fn is_sufficient(sample: &Sample, min: u64) -> bool {
    sample.len() >= min && sample.units() >= MIN_UNITS
}

fn contrast(
    arm: &Tally,
    control: &Tally,
    metric: Metric,
    statistic: Statistic,
    alpha: f64,
) -> Option<Contrast> {
    let samples = [arm.sample(metric), control.sample(metric)];
    contrast_of_samples(samples, min_observations(metric), metric.comparison(), statistic, alpha)
}

/// Compares two samples, of an arm and the control; `None` if one has fewer than `min`
/// observations.
pub(crate) fn contrast_of_samples(
    [arm, control]: [&Sample; 2],
    min: u64,
    comparison: Comparison,
    statistic: Statistic,
    alpha: f64,
) -> Option<Contrast> {
    if !is_sufficient(arm, min) || !is_sufficient(control, min) {
        return None;
    }
    let Some(q) = statistic.quantile() else {
        let scale = comparison.scale();
        let (a, c) = (arm.mean()?, control.mean()?);
        let (difference, variance) = (a.mean - c.mean, a.variance + c.variance);
        let half = half_width(variance, scale, alpha);
        return Some(Contrast {
            arm: a.mean,
            control: c.mean,
            difference,
            low: difference - half,
            high: difference + half,
            p: Some(p_value(difference, variance, scale)),
        });
    };
    let ([a_low, a, a_high], [c_low, c, c_high]) =
        (arm.quantile_interval(q, alpha)?, control.quantile_interval(q, alpha)?);
    // The interval of a difference from those of its parts (Zou and Donner, *Construction of confidence
    // limits about effect measures: a general approach*, Statistics in Medicine 2008).
    let difference = a - c;
    Some(Contrast {
        arm: a,
        control: c,
        difference,
        low: difference - (a - a_low).hypot(c_high - c),
        high: difference + (a_high - a).hypot(c - c_low),
        p: None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::outcome::example;
    use crate::stats::{Design, Normal};
    use crate::{Arms, Guard};
    use std::net::SocketAddr;

    pub(crate) fn plan(by: &str, arms: &[&str]) -> Plan {
        let arms = Arms::parse(arms).unwrap();
        Plan {
            control: arms.all()[arms.all().len() - 1].label.clone(),
            arms,
            by: by.parse().unwrap(),
            seed: 7,
            min_transfer: "100kB".parse().unwrap(),
            ports: vec![],
            condition: String::new(),
            cgroup: "/".to_owned(),
            guard: Guard::default(),
            began_unix_s: 0.0,
        }
    }

    /// Simulated production: goodput log-normal between clients and connections, RTT and
    /// retransmissions with it; in arm 0 goodput is multiplied by `effect`. `stop` is called
    /// after every 100 connections.
    pub(crate) fn simulate(
        plan: &Plan,
        seed: u64,
        connections: u64,
        clients: u64,
        effect: f64,
        mut stop: impl FnMut(&Ledger, u64) -> bool,
    ) -> bool {
        let mut random = Normal::new(seed);
        let assigner = Assigner::new(seed, plan.by);
        let cuts = crate::cuts(&plan.arms.shares());
        let client_effects: Vec<f64> = (0..clients).map(|_| 0.3 * random.draw()).collect();
        let mut ledger = Ledger::new(&Plan { seed, ..plan.clone() });
        let template = example(0, "10.0.0.1:1024");
        for n in 0..connections {
            // A few clients generate much of the traffic.
            let client = (random.uniform().powi(2) * clients as f64) as u64 % clients;
            let [.., high, low] = client.to_be_bytes();
            let mut o = Outcome {
                remote: SocketAddr::new([10, high, low, 1].into(), (1024 + n % 60_000) as u16),
                ..template.clone()
            };
            o.opened_unix_s = n as f64;
            let hash = match plan.period(o.opened_unix_s) {
                Some((number, _)) => assigner.hash_period(number),
                None => assigner.hash(o.local, o.remote),
            };
            let Some(arm) = crate::pick(&cuts, hash) else { continue };
            o.arm = arm as u8;
            let factor = if arm == 0 { effect } else { 1.0 };
            o.busy_s = (client_effects[client as usize] + 0.5 * random.draw()).exp() / factor;
            o.rtt_ms = Some(40.0 * (0.4 * random.draw().abs() + client_effects[client as usize]).exp());
            o.resent_bytes = (o.sent_bytes as f64 * 0.02 * random.uniform()) as u64;
            ledger.add(&o);
            if n % 100 == 99 && stop(&ledger, n + 1) {
                return true;
            }
        }
        false
    }

    fn differs(ledger: &Ledger, metric: Metric) -> bool {
        ledger.contrast(0, metric, Statistic::Mean, 0.05).is_some_and(|c| c.is_significant())
    }

    /// Number of 200 runs without a difference that find one, with a check after every 100
    /// connections.
    fn false_positives(by: &str, connections: u64, clients: u64) -> usize {
        let plan = plan(by, &["a:cubic=50%", "b:cubic=50%"]);
        let wrong = |seed: &u64| {
            simulate(&plan, *seed, connections, clients, 1.0, |ledger, _| differs(ledger, Metric::Goodput))
        };
        (0..200).filter(wrong).count()
    }

    #[test]
    fn continuously_checked_a_a_runs_have_at_most_8_percent_false_positives() {
        for (by, connections, clients) in
            [("connection", 8000, 300), ("client-prefix/24", 8000, 400), ("time=100s", 12_000, 300)]
        {
            let wrong = false_positives(by, connections, clients);
            println!("{by}: {wrong} of 200 A/A runs found a difference");
            assert!(wrong <= 16, "{by}: {wrong} of 200");
        }
    }

    #[test]
    fn effects_are_found_with_the_calculated_power() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        // Between clients and between connections.
        let deviation = (0.3_f64.powi(2) + 0.5_f64.powi(2)).sqrt();
        let design = Design { deviation, inflation: 1.0, shares: [0.5, 0.5], alpha: 0.05, scale: 0.1 };
        for effect in [1.05_f64, 1.1, 1.2] {
            // Checked after every 100 connections.
            let needed = design.needed(effect.ln(), 0.8, 200).unwrap().next_multiple_of(100);
            let found = (0..100)
                .filter(|seed| {
                    simulate(&plan, *seed, needed, 5000, effect, |l, _| differs(l, Metric::Goodput))
                })
                .count();
            println!("an effect of {effect}: {needed} connections, found in {found} of 100");
            // Expected 80; the standard deviation of a binomial with n = 100 is 4.
            assert!((70..=90).contains(&found), "{effect}: {found} of 100 with {needed}");
        }
    }

    #[test]
    fn quantiles_of_a_a_runs_do_not_differ() {
        let plan = plan("client-prefix/24", &["a:cubic=50%", "b:cubic=50%"]);
        for statistic in [Statistic::P50, Statistic::P95] {
            let wrong = (0..100)
                .filter(|seed| {
                    simulate(&plan, *seed, 8000, 300, 1.0, |ledger, n| {
                        n % 400 == 0
                            && ledger
                                .contrast(0, Metric::Rtt, statistic, 0.05)
                                .is_some_and(|c| c.is_significant())
                    })
                })
                .count();
            assert!(wrong <= 8, "{statistic:?}: {wrong} of 100");
        }
    }

    #[test]
    fn effects_are_estimated_in_mean_and_quantiles() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let mut last = None;
        simulate(&plan, 1, 30_000, 3000, 1.5, |ledger, n| {
            last = (n == 30_000).then(|| ledger.clone());
            false
        });
        let ledger = last.unwrap();
        for statistic in [Statistic::Mean, Statistic::P5, Statistic::P50, Statistic::P95] {
            let c = ledger.contrast(0, Metric::Goodput, statistic, 0.05).unwrap();
            assert!(
                c.low < 1.5_f64.ln() && 1.5_f64.ln() < c.high && c.is_significant(),
                "{statistic:?}: {c:?}"
            );
        }
        assert!(ledger.ratio_p_value() > 0.05);
        assert!(!ledger.control_halves(Metric::Goodput, 0.05).unwrap().is_significant());
        let all = ledger.units(0) + ledger.units(1);
        assert_eq!((all, ledger.connections()), (30_000, 30_000));
    }

    #[test]
    fn too_little_data_gives_no_contrast() {
        let plan = plan("client-prefix/24", &["bbr=50%", "cubic=50%"]);
        // Many connections, few clients.
        simulate(&plan, 1, 5000, 20, 3.0, |ledger, _| {
            assert_eq!(ledger.contrast(0, Metric::Goodput, Statistic::Mean, 0.05), None);
            false
        });
    }

    #[test]
    fn cpu_time_is_compared_by_period_only() {
        let plan = plan("time=100s", &["bbr=50%", "cubic=50%"]);
        let mut random = Normal::new(3);
        let (assigner, cuts) = (Assigner::new(plan.seed, plan.by), crate::cuts(&plan.arms.shares()));
        let mut ledger = Ledger::new(&plan);
        let mut counted = [0; 2];
        for number in 0..400 {
            let arm = crate::pick(&cuts, assigner.hash_period(number)).unwrap();
            let acked_bytes = 2_000_000_000 + 5_000_000 * (number % 100);
            let seconds_per_byte = if arm == 0 { 1.2 } else { 1.0 } * (0.1 * random.draw()).exp() * 3e-9;
            let period = Period {
                number,
                arm: arm as u8,
                unix_s: 100.0 * (number + 1) as f64,
                duration_s: 90.0,
                processor_s: acked_bytes as f64 * seconds_per_byte,
                acked_bytes,
            };
            ledger.add_period(&period);
            // A period without delivered data is ignored.
            ledger.add_period(&Period { acked_bytes: 0, ..period });
            counted[arm] += 1;
            let contrast = ledger.contrast(0, Metric::Processor, Statistic::Mean, 0.05);
            assert_eq!(contrast.is_some(), counted.iter().all(|n| *n >= MIN_UNITS), "{counted:?}");
        }
        let c = ledger.contrast(0, Metric::Processor, Statistic::Mean, 0.05).unwrap();
        assert!(c.is_significant() && c.low < 1.2_f64.ln() && 1.2_f64.ln() < c.high, "{c:?}");
        assert!((c.control.exp() / 3.0 - 1.0).abs() < 0.03, "{c:?}");
        assert!(Metric::Processor.level(c.control).ends_with(" s/GB"));
        assert!(!ledger.control_halves(Metric::Processor, 0.05).unwrap().is_significant());

        let by_connection = tests::plan("connection", &["bbr=50%", "cubic=50%"]);
        let mut ledger = Ledger::new(&by_connection);
        let period =
            Period { number: 0, arm: 0, unix_s: 1.0, duration_s: 1.0, processor_s: 1.0, acked_bytes: 1 };
        ledger.add_period(&period);
        assert_eq!(ledger.tally(0).sample(Metric::Processor).len(), 0);
    }

    #[test]
    fn connections_opened_in_a_wash_out_are_excluded() {
        let plan = plan("time=100s,wash-out=20s", &["bbr=50%", "cubic=50%"]);
        let mut ledger = Ledger::new(&plan);
        for second in 0..100 {
            let mut o = example(0, "10.0.0.1:5000");
            o.opened_unix_s = f64::from(second);
            ledger.add(&o);
        }
        assert_eq!((ledger.washed_out(), ledger.connections(), ledger.units(0)), (20, 80, 1));
    }
}

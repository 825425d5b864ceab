//! Evaluates checks on a run.

use super::Check;
use super::window::Window;
use crate::recording::{
    CheckResult, Distributions, FlowRecording, Histogram, Quantiles, Quantity, QueueQuantiles, Recording,
    column, jain,
};
use crate::statistics::quantile;

impl Check {
    /// Evaluates the check on a run: one result per bound.
    pub fn evaluate(&self, run: &Recording) -> Vec<CheckResult> {
        let selected =
            |f: &&FlowRecording| self.flow.as_ref().is_none_or(|name| f.cc == *name || f.label == *name);
        let flows: Vec<&FlowRecording> = run.flows.iter().filter(selected).collect();
        let selection = Selection {
            run,
            window: Window { from: self.from, to: self.to },
            whole: !self.is_windowed(),
            all: self.flow.is_none(),
            flows,
        };
        let mut results = Vec::new();
        for (quantity, bound, written) in self.bounds() {
            let check = self.named(&format!("{} {written}", quantity.name()));
            results.push(CheckResult::for_quantity(check, quantity, bound, selection.measure(quantity)));
        }
        if let Some(wanted) = &self.states {
            for flow in &selection.flows {
                let entered = selection.window.states(flow);
                let mut rest = entered.iter();
                let passed = wanted.iter().all(|state| rest.any(|s| s == state));
                let check = self.named(&format!("{}: states {}", flow.label, wanted.join(" → ")));
                results.push(CheckResult::for_states(check, &entered, passed));
            }
        }
        if let Some(forbidden) = &self.never {
            for flow in &selection.flows {
                let entered = selection.window.states(flow);
                let passed = !entered.iter().any(|s| forbidden.iter().any(|f| f == s));
                let check = self.named(&format!("{}: never {}", flow.label, forbidden.join(", ")));
                results.push(CheckResult::for_states(check, &entered, passed));
            }
        }
        results
    }

    /// Describes what is checked, with its flows and time window.
    fn named(&self, what: &str) -> String {
        let flow = self.flow.as_ref().map(|f| format!("{f}: ")).unwrap_or_default();
        let window = match (self.from, self.to) {
            (None, None) => String::new(),
            (from, None) => format!(" from {}", from.unwrap_or_default()),
            (from, Some(to)) => format!(" from {} to {to}", from.unwrap_or_default()),
        };
        format!("{flow}{what}{window}")
    }
}

/// The part of a run that a check covers.
struct Selection<'a> {
    run: &'a Recording,
    window: Window,
    /// The whole run, not a window of it.
    whole: bool,
    /// All flows, not some of them.
    all: bool,
    flows: Vec<&'a FlowRecording>,
}

impl Selection<'_> {
    /// The value of `quantity` in its unit; `None` if nothing was measured.
    fn measure(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Goodput => Some(self.goodput()),
            Quantity::Utilization => Some(self.goodput() / self.run.path.goodput_limit_bps?),
            Quantity::Loss => self.share_of_sent(|f| f.summary.packets_lost, column::LOST_PACKETS),
            Quantity::Retransmitted => {
                self.share_of_sent(|f| f.summary.packets_retransmitted, column::RETRANSMITTED_PACKETS)
            }
            Quantity::RttMin => self.rtt(0.0, |r| r.min),
            Quantity::RttP50 => self.rtt(0.50, |r| r.p50),
            Quantity::RttP95 => self.rtt(0.95, |r| r.p95),
            Quantity::RttP99 => self.rtt(0.99, |r| r.p99),
            Quantity::QueueP50 => self.queue(|q| q.p50),
            Quantity::QueueP95 => self.queue(|q| q.p95),
            Quantity::QueueMax => self.queue(|q| q.max),
            Quantity::Fairness => (self.flows.len() > 1).then(|| jain(&self.goodputs())),
            Quantity::Completion => {
                let mut done = self.flows.iter().map(|f| f.summary.completion_s);
                done.try_fold(0.0f64, |most, s| s.map(|s| most.max(s))).map(|s| s * 1e3)
            }
        }
    }

    fn goodputs(&self) -> Vec<f64> {
        let one = |f: &&FlowRecording| match self.whole {
            true => f.summary.goodput_bps,
            false => self.window.mean(&f.series, column::GOODPUT_BPS),
        };
        self.flows.iter().map(one).collect()
    }

    fn goodput(&self) -> f64 {
        // For all flows the run's summary applies: it accounts for their common duration.
        if self.whole && self.all { self.run.summary.goodput_bps } else { self.goodputs().iter().sum() }
    }

    /// Packets as a share of those sent: `count` over the whole run, or the increase of the column
    /// `name` within the window.
    fn share_of_sent(&self, count: fn(&FlowRecording) -> u64, name: &str) -> Option<f64> {
        let sum = |count: &dyn Fn(&FlowRecording) -> f64| self.flows.iter().map(|f| count(f)).sum::<f64>();
        let (part, sent) = if self.whole {
            (sum(&|f| count(f) as f64), sum(&|f| f.summary.packets_sent as f64))
        } else {
            let increase = |name: &str| sum(&|f| self.window.increase(&f.series, name));
            (increase(name), increase(column::SENT_PACKETS))
        };
        (sent > 0.0).then_some(part / sent)
    }

    fn rtt(&self, q: f64, known: fn(&Quantiles) -> Option<f64>) -> Option<f64> {
        if !self.whole {
            let values = self.flows.iter().flat_map(|f| self.window.values(&f.series, column::RTT_MS));
            return quantile(&mut values.collect::<Vec<f64>>(), q);
        }
        match self.flows.as_slice() {
            _ if self.all => known(&self.run.summary.rtt_ms),
            [flow] => known(&flow.summary.rtt_ms),
            _ => known(&self.merged(|d| &d.rtt)?.rtt_ms()),
        }
    }

    fn queue(&self, known: fn(&QueueQuantiles) -> Option<f64>) -> Option<f64> {
        match self.flows.as_slice() {
            [flow] => known(&flow.summary.queue_ms),
            _ if self.all => known(&self.run.summary.queue_ms),
            _ => known(&self.merged(|d| &d.queue)?.queue_ms()),
        }
    }

    /// The distribution over all selected flows; `None` if any flow has none.
    fn merged(&self, of: fn(&Distributions) -> &Histogram) -> Option<Histogram> {
        let mut all = Histogram::default();
        for flow in &self.flows {
            all.merge(of(flow.distributions.as_deref()?));
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{PathFacts, Provenance, Series, Source, StateChange, Summary, Unit};

    fn run() -> Recording {
        let mut series = Series::with_columns([column::GOODPUT_BPS, column::RTT_MS]);
        for i in 1..=10 {
            series.push(f64::from(i), &[if i <= 5 { 10e6 } else { 20e6 }, 40.0 + f64::from(i)]);
        }
        let states = ["Startup", "Drain", "ProbeBW", "ProbeRTT"];
        let flow = FlowRecording {
            label: "bbr".into(),
            cc: "bbr".into(),
            start_s: 0.0,
            summary: Summary {
                goodput_bps: 15e6,
                packets_sent: 100,
                packets_retransmitted: 2,
                ..Summary::default()
            },
            series,
            states: states
                .iter()
                .zip(0..)
                .map(|(s, i)| StateChange { at_s: f64::from(i) * 3.0, state: (*s).into() })
                .collect(),
            events: Vec::new(),
            distributions: None,
        };
        Recording {
            label: "bbr".into(),
            contender: None,
            varied: Vec::new(),
            source: Source::Sim,
            cc: "bbr".into(),
            seed: 1,
            valid: true,
            invalid_because: Vec::new(),
            summary: flow.summary.clone(),
            fairness: None,
            flows: vec![flow],
            links: Vec::new(),
            path: PathFacts { goodput_limit_bps: Some(20e6), ..PathFacts::default() },
            checks: Vec::new(),
            health: None,
            provenance: Provenance::default(),
        }
    }

    fn check(toml: &str) -> Vec<CheckResult> {
        toml::from_str::<Check>(toml).unwrap().evaluate(&run())
    }

    #[test]
    fn result_reports_the_measured_value() {
        let results = check("goodput = '>= 15mbit'\nutilization = '< 70%'\nretransmitted='1% .. 2%'");
        let passed: Vec<bool> = results.iter().map(|r| r.passed).collect();
        assert_eq!(passed, [true, false, true]);
        assert_eq!(results[1].check, "utilization < 70%");
        assert_eq!(results[1].measured, "75.000%");
        let CheckResult { quantity, value, unit, bound, .. } = &results[1];
        assert_eq!((*quantity, *value, *unit), (Some(Quantity::Utilization), Some(0.75), Some(Unit::Share)));
        assert_eq!(bound.unwrap().high.unwrap().at, 0.7);
    }

    #[test]
    fn window_uses_only_its_part_of_the_series() {
        let results = check("goodput = '19mbit .. 21mbit'\nrtt_p50 = '47ms .. 49ms'\nfrom='5s'");
        assert!(results.iter().all(|r| r.passed), "{results:?}");
        assert!(!check("goodput = '> 10mbit'\nto='5s'")[0].passed);
    }

    #[test]
    fn states_match_in_order_with_others_in_between() {
        assert!(check("states = ['Startup', 'ProbeRTT']")[0].passed);
        assert!(!check("states = ['ProbeRTT', 'Startup']")[0].passed);
        assert!(check("never = ['ProbeRTT']\nto = '8s'")[0].passed);
        assert!(!check("never = ['Drain']")[0].passed);
    }

    #[test]
    fn quantiles_of_selected_flows_cover_all_their_packets() {
        let mut run = run();
        let flow = |cc: &str, from_ms: u64| {
            let mut distributions = Distributions::default();
            (from_ms..from_ms + 100).for_each(|ms| distributions.rtt.add(ms * 1_000_000));
            (0..100).for_each(|ms| distributions.queue.add(ms * 1_000_000));
            distributions.rtt.flush();
            distributions.queue.flush();
            FlowRecording {
                cc: cc.into(),
                distributions: Some(Box::new(distributions)),
                ..run.flows[0].clone()
            }
        };
        run.flows = vec![flow("cubic", 100), flow("cubic", 300), flow("bbr", 900)];
        let check = "flow = 'cubic'\nrtt_min = '100ms .. 100ms'\nrtt_p50 = '198ms .. 200ms'\n\
            rtt_p99 = '396ms .. 399ms'\nqueue_max = '99ms .. 99ms'";
        let check: Check = toml::from_str(check).unwrap();
        let results = check.evaluate(&run);
        assert!(results.len() == 4 && results.iter().all(|r| r.passed), "{results:?}");
        // A recording read from a file has no distributions.
        run.flows[0].distributions = None;
        assert!(check.evaluate(&run).iter().all(|r| r.measured == "nothing measured"));
    }

    #[test]
    fn check_without_a_measurement_fails() {
        assert!(!check("completion = '< 1h'")[0].passed);
        assert!(!check("queue_p95 = '< 1h'")[0].passed);
    }
}

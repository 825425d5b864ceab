//! Agreement of the simulator with the lab: the same scenarios in both engines, compared.

use crate::BbrVersions;
use crate::counterpart::counterpart;
use fullpipe_cc::registry::{ControllerInfo, find};
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::{Health, Histogram, Variation};
use fullpipe_experiment::scenario::{App, Case, FlowSpec, Setting};
use fullpipe_experiment::statistics;
use fullpipe_kernel::facts::tick_rate;
use fullpipe_kernel::tcp_info::bbr_versions;
use fullpipe_lab::{INITIAL_BUFFER, max_buffer};
use fullpipe_path::{Distribution, JitterSpec, LinkSpec};
use fullpipe_units::{Bytes, Span};

/// Relative difference of goodput up to which a run agrees without further explanation.
pub const GOODPUT_TOLERANCE: f64 = 0.10;

/// Tolerances of goodput and of the median RTT, for a comparison with repeated simulations.
pub const CLOSE_TOLERANCE: (f64, f64) = (0.05, 0.10);

/// The quantiles between which the median RTT may lie. Where RTTs alternate between two levels, a
/// tenth more of the time at one level moves the median from one level to the other.
const MEDIAN_QUANTILES: (f64, f64) = (0.40, 0.60);

/// Gives a flow the end points of Linux, unless its scenario sets other values: segmentation
/// offload, buffer tuning and the running kernel's tick.
pub fn use_linux_ends(flow: &mut FlowSpec) {
    flow.tso = flow.tso.or(Some(true));
    if flow.receive_buffer.is_none() && !flow.auto_tuning {
        flow.receive_buffer = Some(Bytes(max_buffer()));
        flow.first_receive_buffer = Some(Bytes(INITIAL_BUFFER));
    }
    flow.auto_tuning = true;
    flow.timer_hz = flow.timer_hz.or_else(tick_rate);
    let has_tick_setting = |about: &&ControllerInfo| about.settings.iter().any(|s| s.key == "hz");
    if let (Some(_), Some(hz)) = (find(&flow.cc).filter(has_tick_setting), tick_rate()) {
        flow.settings.entry("hz".to_owned()).or_insert(Setting::Integer(hz.into()));
    }
}

/// Shortens a case to `max`, unless a change in it would then come too late. Returns whether it
/// did.
pub fn shorten(case: &mut Case, max: Span) -> bool {
    let s = &mut case.scenario;
    let last =
        s.flows.iter().map(|f| f.start.earliest() + f.stagger * u64::from(f.count)).max().unwrap_or_default();
    let links = s.path.forward.iter().chain(&s.path.reverse);
    let last = links.flat_map(|l| &l.schedule).map(|c| c.at).fold(last.max(s.warmup), Span::max);
    let writes = s.flows.iter().filter_map(|f| match &f.app {
        App::Writes { writes } => Some(writes),
        _ => None,
    });
    let last = writes.flatten().map(|write| write.at).fold(last, Span::max);
    if last * 2 > max {
        return false;
    }
    s.duration = max;
    true
}

/// How a lab run agrees with its simulation, and with simulations that are as late as the lab was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// It agrees with the exact simulation.
    Exact,
    /// It agrees with the median of the late simulations.
    AsLate,
    /// It is within the range of the late simulations.
    WithinRange,
    /// It is outside that range.
    Differs,
}

/// Minimum and maximum over one or several simulations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// Goodput in bit/s.
    goodput: (f64, f64),
    /// Values that the median RTT may have, in milliseconds.
    rtt: (f64, f64),
}

impl Range {
    /// The range of a single run.
    pub fn from_recording(run: &Recording) -> Range {
        let goodput = run.summary.goodput_bps;
        let mut rtts = Histogram::default();
        for distributions in run.flows.iter().filter_map(|flow| flow.distributions.as_deref()) {
            rtts.merge(&distributions.rtt);
        }
        let median = run.summary.rtt_ms.p50.unwrap_or_default();
        let at = |q| rtts.quantile(q).map_or(median, |nanos| nanos as f64 / 1e6);
        Range {
            goodput: (goodput, goodput),
            rtt: (at(MEDIAN_QUANTILES.0).min(median), at(MEDIAN_QUANTILES.1).max(median)),
        }
    }

    fn union(self, other: Range) -> Range {
        let both = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        Range { goodput: both(self.goodput, other.goodput), rtt: both(self.rtt, other.rtt) }
    }

    /// The medians of several ranges.
    fn median(several: &[Range]) -> Option<Range> {
        let median =
            |value: fn(&Range) -> f64| statistics::median(&mut several.iter().map(value).collect::<Vec<_>>());
        Some(Range {
            goodput: (median(|range| range.goodput.0)?, median(|range| range.goodput.1)?),
            rtt: (median(|range| range.rtt.0)?, median(|range| range.rtt.1)?),
        })
    }

    /// Whether a run with this goodput and median RTT is within the range and its tolerances.
    fn contains(&self, (goodput, rtt): (f64, f64)) -> bool {
        let is_close = |(min, max): (f64, f64), value: f64, tolerance: f64| {
            (min * (1.0 - tolerance)..=max * (1.0 + tolerance)).contains(&value)
        };
        is_close(self.goodput, goodput, CLOSE_TOLERANCE.0) && is_close(self.rtt, rtt, CLOSE_TOLERANCE.1)
    }
}

/// How `lab` agrees with the exact simulation `sim`, and with simulations `late` like the lab.
pub fn agreement(sim: Range, lab: (f64, f64), late: &[Range]) -> Agreement {
    let is_close = |range: Option<Range>| range.is_some_and(|range| range.contains(lab));
    if sim.contains(lab) {
        Agreement::Exact
    } else if is_close(Range::median(late)) {
        Agreement::AsLate
    } else if is_close(late.iter().copied().reduce(Range::union)) {
        Agreement::WithinRange
    } else {
        Agreement::Differs
    }
}

/// The agreement of each of `several` late simulations with the others, as if it were the lab run.
pub fn agreement_of_each(sim: Range, several: &[Recording], late: &[Range]) -> Vec<Agreement> {
    let others = |i: usize| [&late[..i], &late[i + 1..]].concat();
    several.iter().enumerate().map(|(i, run)| agreement(sim, result(run), &others(i))).collect()
}

/// The number of runs per kind of agreement, from the best to the worst.
pub fn count(agreements: &[Agreement]) -> [usize; 4] {
    [Agreement::Exact, Agreement::AsLate, Agreement::WithinRange, Agreement::Differs]
        .map(|kind| agreements.iter().filter(|agreement| **agreement == kind).count())
}

/// Goodput in bit/s and median RTT in milliseconds of a run.
pub fn result(run: &Recording) -> (f64, f64) {
    (run.summary.goodput_bps, run.summary.rtt_ms.p50.unwrap_or_default())
}

/// The standard deviation of a Pareto distribution of shape 3 ([`Distribution::Pareto`]) with the
/// 99th percentile of the emulator's lateness.
pub fn lateness(health: &Health) -> Span {
    // In standard deviations: (100^⅓ − 3/2) / √¾.
    const P99: f64 = 3.628;
    Span::from_nanos((health.lateness_p99_us / P99 * 1e3) as u64)
}

/// `case` with Google's BBR v3 for controllers that are v3 in the kernel, as in a batch with both engines.
fn as_the_kernel(case: &Case, versions: &BbrVersions) -> Case {
    counterpart(case, versions).0
}

/// `case` with another seed, with the kernel's version of BBR, and with packets that leave the path
/// late like the lab's.
pub fn with_lateness(case: &Case, seed: u64, spread: Span) -> Case {
    let mut case = as_the_kernel(case, &bbr_versions());
    case.scenario.seed = case.scenario.seed.wrapping_add(seed);
    let late = JitterSpec { spread, distribution: Distribution::Pareto, reorder: false };
    if !spread.is_zero() {
        for links in [&mut case.scenario.path.forward, &mut case.scenario.path.reverse] {
            links.push(LinkSpec { jitter: Some(late), ..LinkSpec::default() });
        }
    }
    case
}

/// The label of a run without its seed, which its repeats share.
pub fn label_without_seed(run: &Recording) -> String {
    let swept = run.varied.iter().filter(|v| !v.is_repeat() && !v.is_cc()).map(Variation::label);
    std::iter::once(run.contender().to_owned()).chain(swept).collect::<Vec<_>>().join(", ")
}

/// The ratio of two series of runs with the same seeds.
pub struct MeanRatio {
    /// Mean and standard deviation of the simulated goodput, in bit/s.
    pub sim: (f64, f64),
    /// The same of the lab.
    pub lab: (f64, f64),
    /// The ratio of the means, lab over simulator.
    pub ratio: f64,
    /// The standard error of the ratio; none for a single pair.
    pub error: Option<f64>,
}

impl MeanRatio {
    /// The ratio for pairs of simulator and lab.
    ///
    /// It is a ratio of means, since the mean of ratios is biased where the simulated values vary.
    /// Its error is that of `lab − ratio · sim`, so that variation common to both does not
    /// count as noise.
    pub fn new(pairs: &[(f64, f64)]) -> MeanRatio {
        let n = pairs.len().max(1) as f64;
        let mean_and_deviation = |values: &mut dyn Iterator<Item = f64>| {
            let values: Vec<f64> = values.collect();
            let mean = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (mean, (squares / (n - 1.0).max(1.0)).sqrt())
        };
        let sim = mean_and_deviation(&mut pairs.iter().map(|pair| pair.0));
        let lab = mean_and_deviation(&mut pairs.iter().map(|pair| pair.1));
        let ratio = 1.0 + relative_difference(sim.0, lab.0);
        let (_, rest) = mean_and_deviation(&mut pairs.iter().map(|pair| pair.1 - ratio * pair.0));
        let error = (pairs.len() > 1).then(|| rest / n.sqrt() / sim.0);
        MeanRatio { sim, lab, ratio, error }
    }
}

/// The relative difference of the lab from the simulator.
pub fn relative_difference(sim: f64, lab: f64) -> f64 {
    if sim == 0.0 { if lab == 0.0 { 0.0 } else { f64::INFINITY } } else { lab / sim - 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_experiment::recording::Distributions;
    use std::ops::ControlFlow;

    #[test]
    fn relative_difference_from_zero_is_infinite() {
        assert_eq!(relative_difference(0.0, 0.0), 0.0);
        assert_eq!(relative_difference(0.0, 1.0), f64::INFINITY);
        assert!((relative_difference(100.0, 90.0) + 0.1).abs() < 1e-9);
    }

    #[test]
    fn agreement_falls_back_to_late_simulations() {
        let one = |goodput, rtt| Range { goodput: (goodput, goodput), rtt: (rtt, rtt) };
        let sim = one(10e6, 50.0);
        assert_eq!(agreement(sim, (10.4e6, 54.0), &[]), Agreement::Exact);
        let far = (7e6, 50.0);
        assert_eq!(agreement(sim, far, &[one(6.9e6, 51.0), one(9e6, 49.0)]), Agreement::WithinRange);
        assert_eq!(
            agreement(sim, far, &[one(6.9e6, 51.0), one(9e6, 49.0), one(7.1e6, 48.0)]),
            Agreement::AsLate
        );
        assert_eq!(agreement(sim, far, &[one(8e6, 51.0), one(9e6, 49.0)]), Agreement::Differs);
        let late = [one(6.9e6, 60.0), one(7.1e6, 59.0), one(9e6, 58.0)];
        assert_eq!(agreement(sim, far, &late), Agreement::Differs, "its round trip");
        assert_eq!(agreement(sim, far, &[]), Agreement::Differs);
    }

    #[test]
    fn each_simulation_is_compared_with_the_others() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'";
        let run = crate::run(&case(file), &mut |_| ControlFlow::Continue(())).unwrap();
        let scaled = |factor: f64| {
            let mut run = run.clone();
            run.summary.goodput_bps *= factor;
            run
        };
        // The first agrees with the exact simulation, two only with each other, and the last with none.
        let several = [scaled(1.0), scaled(0.8), scaled(0.8), scaled(2.0)];
        let late: Vec<Range> = several.iter().map(Range::from_recording).collect();
        let verdicts = agreement_of_each(Range::from_recording(&run), &several, &late);
        assert_eq!(verdicts[0], Agreement::Exact);
        assert_eq!(verdicts[3], Agreement::Differs);
        assert_eq!(count(&verdicts), [1, 0, 2, 1]);
    }

    #[test]
    fn the_median_rtt_may_be_any_central_quantile() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'";
        let mut run = crate::run(&case(file), &mut |_| ControlFlow::Continue(())).unwrap();
        // Half of the samples are 40 ms, half 57 ms.
        let mut rtts = Histogram::default();
        (0..50).for_each(|_| rtts.add(40_000_000));
        (0..50).for_each(|_| rtts.add(57_000_000));
        rtts.flush();
        run.summary.rtt_ms = rtts.rtt_ms();
        run.flows[0].distributions = Some(Box::new(Distributions { rtt: rtts, ..Distributions::default() }));
        let range = Range::from_recording(&run);
        let goodput = run.summary.goodput_bps;
        assert!(
            range.contains((goodput, 40.0))
                && range.contains((goodput, 57.0))
                && !range.contains((goodput, 30.0))
        );
    }

    #[test]
    fn with_lateness_changes_seed_and_jitter_only() {
        let late = Health { lateness_p99_us: 362.8, ..Health::default() };
        assert_eq!(lateness(&late), Span::from_micros(100));
        let exact = case("duration = '1s'\nseed = 7\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'");
        let one = with_lateness(&exact, 2, Span::from_micros(100));
        assert_eq!(one.scenario.seed, 9);
        assert_eq!(one.scenario.path.reverse.last().unwrap().jitter.unwrap().spread, Span::from_micros(100));
        assert_eq!(with_lateness(&exact, 2, Span::ZERO).scenario.path, exact.scenario.path);
    }

    #[test]
    fn repeated_simulations_have_the_kernels_version_of_bbr() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'bbr'";
        let cc = |version| {
            let versions = BbrVersions::from([("bbr".to_owned(), version)]);
            as_the_kernel(&case(file), &versions).scenario.flows[0].cc.clone()
        };
        assert_eq!((cc(1).as_str(), cc(3).as_str()), ("bbr", "bbr3"));
    }

    #[test]
    fn common_variation_does_not_count_as_noise() {
        // The lab has 90 % of each, at any variation.
        let equal = MeanRatio::new(&[(10.0, 9.0), (20.0, 18.0), (40.0, 36.0)]);
        assert!((equal.ratio - 0.9).abs() < 1e-9 && equal.error.unwrap() < 1e-9);
        // By hand: means 10 and 11, lab − 1.1 · sim is ∓1, its deviation √2, over √2 pairs and 10.
        let noisy = MeanRatio::new(&[(10.0, 10.0), (10.0, 12.0)]);
        assert!((noisy.ratio - 1.1).abs() < 1e-9 && (noisy.error.unwrap() - 0.1).abs() < 1e-9);
        assert!(MeanRatio::new(&[(10.0, 10.0)]).error.is_none());
    }

    #[test]
    fn the_label_without_seed_keeps_all_other_values() {
        let file = "duration = '1s'\nrepeats = 2\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\n\
                    [sweep]\n'path.rtt' = ['20ms', '40ms']";
        let vocabulary = crate::vocabulary(&[crate::Engine::Sim]);
        let cases = fullpipe_experiment::scenario::parse("x", file, &vocabulary, &|_| Err(String::new()));
        let label = |case: &Case| {
            let run = crate::run(case, &mut |_| ControlFlow::Continue(())).unwrap();
            (run.label.clone(), label_without_seed(&run))
        };
        let labels: Vec<_> = cases.unwrap().iter().map(label).collect();
        assert!(
            labels.iter().all(|(full, short)| full.starts_with(&format!("{short}, seed "))),
            "{labels:?}"
        );
        assert_eq!(labels[0].1, "cubic, rtt 20ms");
    }

    fn case(text: &str) -> Case {
        let vocabulary = crate::vocabulary(&[crate::Engine::Sim, crate::Engine::Lab]);
        fullpipe_experiment::scenario::parse("x", text, &vocabulary, &|_| Err(String::new()))
            .unwrap()
            .remove(0)
    }

    #[test]
    fn linux_ends_keep_values_of_the_scenario() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\nreceive_buffer = \
            '500kB'\n[[flow]]\ncc = 'reno'\n\
                    [[flow]]\ncc = 'cubic'\nsettings = { hz = 100 }\ntso = false";
        let mut flows = case(file).scenario.flows;
        flows.iter_mut().for_each(use_linux_ends);
        assert!(tick_rate().is_some() && flows.iter().all(|f| f.timer_hz == tick_rate()));
        let hz = tick_rate().map(|n| Setting::Integer(n.into()));
        assert_eq!(flows.iter().map(|f| f.tso).collect::<Vec<_>>(), [Some(true), Some(true), Some(false)]);
        assert!(flows.iter().all(|f| f.auto_tuning));
        let buffers = |f: &FlowSpec| (f.first_receive_buffer, f.receive_buffer);
        assert_eq!(buffers(&flows[0]), (None, Some(Bytes(500_000))));
        assert_eq!(buffers(&flows[1]), (Some(Bytes(INITIAL_BUFFER)), Some(Bytes(max_buffer()))), "the lab's");
        assert_eq!(flows[0].settings.get("hz").cloned(), hz);
        assert!(flows[1].settings.is_empty(), "Reno has no clock");
        assert_eq!(flows[2].settings["hz"], Setting::Integer(100));
    }

    #[test]
    fn a_scenario_is_not_shortened_before_its_last_change() {
        let file = "duration = '60s'\n[path]\n[[path.forward]]\nrate = '10mbit'\nschedule = [{ at = '20s', \
            rate = '5mbit' }]\n[[flow]]\ncc = 'cubic'";
        let writes = "duration = '60s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\n\
                      app = { kind = 'writes', writes = [{ at = '20s', bytes = '10kB' }] }";
        assert!(!shorten(&mut case(writes), Span::from_secs(30)));
        assert!(!shorten(&mut case(file), Span::from_secs(30)));
        let mut cut = case(file);
        assert!(shorten(&mut cut, Span::from_secs(50)));
        assert_eq!(cut.scenario.duration, Span::from_secs(50));
    }
}

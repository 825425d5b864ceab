//! Reduces recordings to what can be plotted: the lines, and few enough points.

use fullpipe_experiment::recording::{
    FlowRecording, Quantiles, QueueQuantiles, Recording, Results, Series, Source, Summary, Variation, column,
};
use fullpipe_presentation::palette::{Colour, controller_colour, style};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// With more flows in total, each run shows one line per controller instead of one per flow.
const MAX_LINES: usize = 32;

/// All column names of flows and links, in order of first appearance.
pub(crate) fn columns(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for run in &results.runs {
        let flows = run.flows.iter().map(|f| &f.series);
        for series in flows.chain(run.links.iter().map(|l| &l.series)) {
            for column in &series.columns {
                if !names.contains(&column.name.as_str()) {
                    names.push(&column.name);
                }
            }
        }
    }
    names
}

/// Names of runs, which tell apart runs of one label.
pub(crate) struct RunNames {
    engines: bool,
    seeds: bool,
}

impl RunNames {
    pub(crate) fn new(results: &Results) -> Self {
        let pairs = || results.runs.windows(2);
        RunNames {
            engines: pairs().any(|w| w[0].source != w[1].source),
            seeds: pairs().any(|w| w[0].seed != w[1].seed && w[0].label == w[1].label),
        }
    }

    /// Label and engine.
    pub(crate) fn with_engine(&self, run: &Recording) -> String {
        match self.engines {
            true => format!("{} ({})", run.label, run.source.name()),
            false => run.label.clone(),
        }
    }

    /// Label, engine and seed.
    pub(crate) fn with_seed(&self, run: &Recording) -> String {
        let name = self.with_engine(run);
        if self.seeds { format!("{name} #{}", run.seed) } else { name }
    }
}

/// Time of the last sample, or the duration of a run without samples.
pub(crate) fn end_s(run: &Recording) -> f64 {
    let flows = run.flows.iter().filter_map(|f| f.series.t_s.last());
    let links = run.links.iter().filter_map(|l| l.series.t_s.last());
    let last = flows.chain(links).copied().fold(0.0, f64::max);
    if last > 0.0 { last } else { run.summary.duration_s }
}

/// Total goodput of the flows with the indices `which` over time.
#[cfg(feature = "terminal")]
pub(crate) fn goodput_of(run: &Recording, which: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let flows: Vec<&FlowRecording> = which.iter().filter_map(|&i| run.flows.get(i)).collect();
    let total = merged(&flows);
    let goodput = total.get(column::GOODPUT_BPS).map(<[f64]>::to_vec).unwrap_or_default();
    (total.t_s.clone(), goodput)
}

/// The varied parameters of a run, without controller and repeat.
pub(crate) fn varied_path(run: &Recording) -> impl Iterator<Item = &Variation> {
    run.varied.iter().filter(|v| !v.is_cc() && !v.is_repeat())
}

/// Text that distinguishes the path of a run from those of the others.
pub(crate) fn path_label(run: &Recording) -> String {
    let varied: Vec<String> = varied_path(run).map(Variation::label).collect();
    if varied.is_empty() { run.path.description.clone() } else { varied.join(", ") }
}

/// The values without duplicates, in order of first appearance.
pub(crate) fn distinct<T: Clone + Eq + Hash>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    values.filter(|value| seen.insert(value.clone())).collect()
}

/// With more runs, the repeats of a run are shown as one.
const MAX_SINGLE_RUNS: usize = 24;

/// With at least this many repeats of each, fewer runs are shown as one as well: an interval needs
/// three.
const MIN_REPEATS: usize = 3;

/// Runs, each of which may be the mean of its repeats.
pub(crate) struct Condensed<'a> {
    pub(crate) results: Cow<'a, Results>,
    /// Per run: half of the 95 % confidence interval of its mean goodput in bit/s, if it is a mean
    /// of repeats.
    pub(crate) half: Vec<Option<f64>>,
}

impl<'a> Condensed<'a> {
    fn unchanged(results: &'a Results) -> Self {
        Condensed { half: vec![None; results.runs.len()], results: Cow::Borrowed(results) }
    }

    /// Whether there are intervals.
    pub(crate) fn has_intervals(&self) -> bool {
        self.half.iter().any(Option::is_some)
    }
}

/// Explains the intervals.
pub(crate) const INTERVALS: &str = "±: 95 % CI of the mean over repeats (Student's t)";

/// Half of the 95 % confidence interval of the mean (Student's t), for two and more values.
pub(crate) fn half_interval(values: &[f64]) -> Option<f64> {
    // 97.5 % quantiles of t by degrees of freedom.
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    let n = values.len();
    let freedom = n.checked_sub(1).filter(|f| *f > 0)?;
    let mean = values.iter().sum::<f64>() / n as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / freedom as f64;
    // Beyond the table: approximation within 0.1 %.
    let t = T.get(freedom - 1).copied().unwrap_or(1.96 + 2.45 / freedom as f64);
    Some(t * (variance / n as f64).sqrt())
}

/// Replaces repeats (runs that differ only in their seed) by their mean if there are many runs or
/// repeats.
pub(crate) fn condense(results: &Results) -> Condensed<'_> {
    let same = |run: &Recording, other: &Recording| {
        run.seed == other.seed && run.varied(Variation::ROUND) == other.varied(Variation::ROUND)
    };
    let mut groups: Vec<Vec<&Recording>> = Vec::new();
    let mut of_kind: HashMap<(&str, Source, String), Vec<usize>> = HashMap::new();
    for run in &results.runs {
        let alike = of_kind.entry((run.contender(), run.source, path_label(run))).or_default();
        // Runs with the same seed are not repeats: they differ in a parameter that the label does not name.
        match alike.iter().find(|&&i| !same(groups[i][0], run)) {
            Some(&i) => groups[i].push(run),
            None => {
                alike.push(groups.len());
                groups.push(vec![run]);
            }
        }
    }
    let repeated = groups.iter().all(|group| group.len() >= MIN_REPEATS);
    if groups.iter().all(|g| g.len() == 1) || (results.runs.len() <= MAX_SINGLE_RUNS && !repeated) {
        return Condensed::unchanged(results);
    }
    let goodputs = |group: &Vec<&Recording>| group.iter().map(|r| r.summary.goodput_bps).collect::<Vec<_>>();
    let half = groups.iter().map(|group| half_interval(&goodputs(group))).collect();
    let runs = groups.into_iter().map(|group| {
        let mut one = group[0].clone();
        let label = match one.varied.iter().any(Variation::is_repeat) {
            true => {
                let what = std::iter::once(one.contender().to_owned());
                what.chain(varied_path(&one).map(Variation::label)).collect::<Vec<_>>().join(", ")
            }
            false => one.label,
        };
        one.label = format!("{label} × {}", group.len());
        one.valid = group.iter().all(|r| r.valid);
        one.summary = mean_summary(&group.iter().map(|r| &r.summary).collect::<Vec<_>>());
        one
    });
    let results = Cow::Owned(Results {
        schema: results.schema.clone(),
        runs: runs.collect(),
        fairness: results.fairness,
        part: None,
        comparison: results.comparison.clone(),
    });
    Condensed { results, half }
}

/// Mean of each figure over the runs that have it.
fn mean_summary(all: &[&Summary]) -> Summary {
    let mean = |figure: &dyn Fn(&Summary) -> Option<f64>| {
        let (sum, n) = all.iter().filter_map(|s| figure(s)).fold((0.0, 0u32), |(sum, n), v| (sum + v, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    };
    let count =
        |figure: &dyn Fn(&Summary) -> u64| mean(&|s| Some(figure(s) as f64)).unwrap_or(0.0).round() as u64;
    Summary {
        duration_s: mean(&|s| Some(s.duration_s)).unwrap_or(0.0),
        goodput_bps: mean(&|s| Some(s.goodput_bps)).unwrap_or(0.0),
        utilization: mean(&|s| s.utilization),
        bytes_delivered: count(&|s| s.bytes_delivered),
        packets_sent: count(&|s| s.packets_sent),
        packets_retransmitted: count(&|s| s.packets_retransmitted),
        packets_lost: count(&|s| s.packets_lost),
        rtt_ms: Quantiles {
            min: mean(&|s| s.rtt_ms.min),
            p50: mean(&|s| s.rtt_ms.p50),
            p95: mean(&|s| s.rtt_ms.p95),
            p99: mean(&|s| s.rtt_ms.p99),
        },
        queue_ms: QueueQuantiles {
            p50: mean(&|s| s.queue_ms.p50),
            p95: mean(&|s| s.queue_ms.p95),
            max: mean(&|s| s.queue_ms.max),
        },
        completion_s: mean(&|s| s.completion_s),
    }
}

/// The series of the link with the longest queue.
pub(crate) fn fullest_queue(run: &Recording) -> Option<&Series> {
    let longest = |s: &Series| {
        let queue = s.get(column::QUEUE_BYTES).unwrap_or_default();
        queue.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max)
    };
    let queues = run.links.iter().map(|l| &l.series).filter(|s| s.get(column::QUEUE_BYTES).is_some());
    // On a tie the first link, as forward links come first.
    queues.rev().max_by(|a, b| longest(a).total_cmp(&longest(b)))
}

/// The flows of one line: a single flow, or all flows of one controller in a run.
pub(crate) struct Group<'a> {
    /// Index of its run.
    run: usize,
    label: String,
    cc: &'a str,
    /// Colour and dash.
    pub(crate) look: (Colour, usize),
    flows: Vec<&'a FlowRecording>,
}

impl<'a> Group<'a> {
    /// The flow, if there is only one.
    pub(crate) fn flow(&self) -> Option<&'a FlowRecording> {
        if let [flow] = self.flows[..] { Some(flow) } else { None }
    }

    /// Adds the values over time; several flows are merged.
    fn line(self) -> Line<'a> {
        let flow = self.flow();
        let series = flow.map_or_else(|| Cow::Owned(merged(&self.flows)), |flow| Cow::Borrowed(&flow.series));
        let Group { run, label, cc, look, .. } = self;
        Line { run, label, cc, look, series, flow }
    }
}

/// A line with its values over time.
pub(crate) struct Line<'a> {
    /// Index of its run.
    pub(crate) run: usize,
    pub(crate) label: String,
    pub(crate) cc: &'a str,
    /// Colour and dash.
    pub(crate) look: (Colour, usize),
    pub(crate) series: Cow<'a, Series>,
    /// The flow, if there is only one.
    pub(crate) flow: Option<&'a FlowRecording>,
}

/// All lines with their values.
pub(crate) fn lines(results: &Results) -> Vec<Line<'_>> {
    groups(results).into_iter().map(Group::line).collect()
}

/// All lines without their values.
pub(crate) fn groups(results: &Results) -> Vec<Group<'_>> {
    let single = results.runs.iter().map(|r| r.flows.len()).sum::<usize>() <= MAX_LINES;
    // By colour: controllers that share one differ in their dashes, too.
    let mut counts: BTreeMap<[u8; 3], usize> = BTreeMap::new();
    let mut all = Vec::new();
    let names = RunNames::new(results);
    for (index, run) in results.runs.iter().enumerate() {
        let name = names.with_engine(run);
        let mut groups: Vec<Vec<&FlowRecording>> = Vec::new();
        for flow in &run.flows {
            match groups.iter_mut().find(|g| !single && g[0].cc == flow.cc) {
                Some(group) => group.push(flow),
                None => groups.push(vec![flow]),
            }
        }
        let several = groups.len() > 1;
        for group in groups {
            let cc = group[0].cc.as_str();
            let colour = controller_colour(cc);
            let nth = counts.entry(colour.light).or_default();
            let label = match (group.len(), several) {
                (1, false) => name.clone(),
                (1, true) if results.runs.len() > 1 => format!("{name}: {}", group[0].label),
                (1, true) => group[0].label.clone(),
                (n, _) if results.runs.len() > 1 => format!("{name}: {n} × {cc}"),
                (n, _) => format!("{n} × {cc}"),
            };
            all.push(Group { run: index, label, cc, look: (colour, *nth), flows: group });
            *nth += 1;
        }
    }
    for group in &mut all {
        let (colour, nth) = group.look;
        group.look = style(group.cc, nth, counts[&colour.light]);
    }
    all
}

/// Whether a column is summed over flows; others are averaged.
fn is_additive(name: &str) -> bool {
    !matches!(
        name,
        column::RTT_MS | column::SRTT_MS | column::MIN_RTT_MS | column::PACING_GAIN | column::CWND_GAIN
    )
}

/// Merges flows on the columns and times of the flow with the most samples. A flow counts from its
/// first sample to its last.
fn merged(flows: &[&FlowRecording]) -> Series {
    if let [flow] = flows {
        return flow.series.clone();
    }
    let Some(longest) = flows.iter().max_by_key(|f| f.series.t_s.len()) else { return Series::default() };
    let times = &longest.series.t_s;
    let mut total = Series { t_s: times.clone(), columns: Vec::new() };
    for template in &longest.series.columns {
        let mut sums = vec![(0.0, 0u32); times.len()];
        for flow in flows {
            let Some(values) = flow.series.get(&template.name) else { continue };
            let own = &flow.series.t_s;
            let mut i = 0;
            for (&t, (sum, n)) in times.iter().zip(&mut sums) {
                while i + 1 < own.len() && own[i + 1] <= t {
                    i += 1;
                }
                let within = own.first().is_some_and(|f| *f <= t) && own.last().is_some_and(|l| *l >= t);
                match values.get(i) {
                    Some(v) if within && v.is_finite() => {
                        *sum += v;
                        *n += 1;
                    }
                    _ => {}
                }
            }
        }
        let total_of = |(sum, n): (f64, u32)| match n {
            0 => f64::NAN,
            _ if is_additive(&template.name) => sum,
            n => sum / f64::from(n),
        };
        let values = sums.into_iter().map(total_of).collect();
        total.columns.push(fullpipe_experiment::recording::Column { name: template.name.clone(), values });
    }
    total
}

/// Interval over which plotted goodput is averaged: five round trips, because data behind a loss is
/// delivered at once one or two round trips later; at least 0.1 s and at most a twentieth of the
/// run.
pub(crate) fn smoothing_s(results: &Results) -> f64 {
    let rtt = results.runs.iter().filter_map(|r| r.path.base_rtt_ms).fold(0.0, f64::max) / 1e3;
    let end = results.runs.iter().map(end_s).fold(0.0, f64::max);
    (5.0 * rtt).max(0.1).min(end / 20.0)
}

/// Moving average over the `window_s` up to each sample.
pub(crate) fn smoothed(t: &[f64], values: &[f64], window_s: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut n = 0u32;
    let mut first = 0;
    let mut means = Vec::with_capacity(values.len());
    for (i, &v) in values.iter().enumerate() {
        if v.is_finite() {
            sum += v;
            n += 1;
        }
        while first < i && t[first] <= t[i] - window_s {
            if values[first].is_finite() {
                sum -= values[first];
                n -= 1;
            }
            first += 1;
        }
        means.push(if n > 0 { (sum / f64::from(n)).max(0.0) } else { f64::NAN });
    }
    means
}

/// Times at which all lines are plotted.
pub(crate) struct Grid {
    pub(crate) t: Vec<f64>,
    /// Width of an interval with two points; 0 if the samples are kept unchanged.
    bucket: f64,
}

impl Grid {
    /// The sampling times if all `series` share them and there are at most `rows`; otherwise up to
    /// `rows` points in pairs.
    pub(crate) fn new(series: &[&Series], rows: usize) -> Grid {
        let longest = series.iter().max_by_key(|s| s.t_s.len());
        let Some(times) = longest.map(|s| &s.t_s).filter(|t| !t.is_empty()) else {
            return Grid { t: Vec::new(), bucket: 0.0 };
        };
        // A flow that starts later or ends earlier has a part of the same times.
        let shared = |s: &&Series| {
            let from = s.t_s.first().map_or(0, |f| times.partition_point(|t| t < f));
            times.get(from..from + s.t_s.len()) == Some(&s.t_s[..])
        };
        if times.len() <= rows && series.iter().all(shared) {
            return Grid { t: times.clone(), bucket: 0.0 };
        }
        let end = series.iter().filter_map(|s| s.t_s.last()).copied().fold(0.0, f64::max);
        // For few samples at different times, twice the densest line is fine enough.
        let densest = series.iter().map(|s| s.t_s.len()).max().unwrap_or(0);
        let buckets = (rows / 2).min(densest * 2).max(1);
        let bucket = if end > 0.0 { end / buckets as f64 } else { 1.0 };
        let t = (0..buckets * 2).map(|i| (i as f64 + 0.5) * bucket / 2.0).collect();
        Grid { t, bucket }
    }

    /// Resamples `values` at `times`. Each interval keeps its lowest and highest value in their
    /// order, so that peaks remain. Between samples further apart than an interval, values are
    /// interpolated.
    pub(crate) fn fit(&self, times: &[f64], values: &[f64]) -> Vec<f64> {
        if self.bucket == 0.0 {
            let from = times.first().map_or(0, |f| self.t.partition_point(|t| t < f));
            let mut out = vec![f64::NAN; self.t.len()];
            for (slot, v) in out[from.min(self.t.len())..].iter_mut().zip(values) {
                *slot = *v;
            }
            return out;
        }
        let buckets = self.t.len() / 2;
        let mut out = vec![f64::NAN; self.t.len()];
        let mut next = 0;
        for b in 0..buckets {
            let end = if b + 1 == buckets { f64::INFINITY } else { (b + 1) as f64 * self.bucket };
            let start = next;
            while next < times.len() && times[next] < end {
                next += 1;
            }
            let slice = &values[start.min(values.len())..next.min(values.len())];
            if start == next {
                for (slot, t) in [2 * b, 2 * b + 1].map(|i| (i, self.t[i])) {
                    out[slot] = interpolate(times, values, next, t);
                }
                continue;
            }
            let finite = || slice.iter().enumerate().filter(|(_, v)| v.is_finite());
            let low = finite().min_by(|a, b| a.1.total_cmp(b.1));
            let high = finite().max_by(|a, b| a.1.total_cmp(b.1));
            if let (Some((i, low)), Some((j, high))) = (low, high) {
                (out[2 * b], out[2 * b + 1]) = if i <= j { (*low, *high) } else { (*high, *low) };
            }
        }
        out
    }
}

/// Linear interpolation between the sample before `next` and the one at `next`.
fn interpolate(times: &[f64], values: &[f64], next: usize, t: f64) -> f64 {
    let (Some(a), Some(&tb)) = (next.checked_sub(1), times.get(next)) else { return f64::NAN };
    let (Some(va), Some(vb), ta) = (values.get(a), values.get(next), times[a]) else { return f64::NAN };
    va + (vb - va) * ((t - ta) / (tb - ta)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use proptest::prelude::*;

    #[test]
    fn few_samples_stay_unchanged() {
        let race = support::race(2.0);
        let lines = lines(&race);
        let series: Vec<&Series> = lines.iter().map(|l| l.series.as_ref()).collect();
        let grid = Grid::new(&series, 1000);
        assert_eq!(grid.t, series[0].t_s);
        let cwnd = series[0].get(column::CWND_BYTES).unwrap();
        assert_eq!(grid.fit(&series[0].t_s, cwnd), cwnd);
    }

    #[test]
    fn thousand_flows_become_one_line_per_controller() {
        let mut results = support::together(1.0);
        let flow = results.runs[0].flows[1].clone();
        results.runs[0].flows.resize(1000, flow);
        let lines = lines(&results);
        let labels: Vec<&str> = lines.iter().map(|l| l.label.as_str()).collect();
        assert_eq!(labels, ["bbr 1", "999 × cubic"]);
        let one = results.runs[0].flows[1].series.get(column::GOODPUT_BPS).unwrap()[50];
        let all = lines[1].series.get(column::GOODPUT_BPS).unwrap()[50];
        assert!((all / one - 999.0).abs() < 1e-6);
        let rtt = |s: &Series| s.get(column::RTT_MS).unwrap()[50];
        assert!((rtt(&lines[1].series) - rtt(&results.runs[0].flows[1].series)).abs() < 1e-6);
    }

    #[test]
    fn repeats_of_many_runs_are_averaged() {
        let mut results = support::race(0.5);
        let runs = std::mem::take(&mut results.runs);
        for seed in 1..=10 {
            for run in &runs {
                let mut run = run.clone();
                run.seed = seed;
                run.varied =
                    vec![Variation::new("path.loss", "1%"), Variation::new("seed", seed.to_string())];
                run.label = format!("{}, loss 1%, seed {seed}", run.cc);
                run.summary.goodput_bps = seed as f64;
                results.runs.push(run);
            }
        }
        let few = condense(&results);
        assert_eq!(few.results.runs.len(), runs.len());
        assert_eq!(few.results.runs[0].label, "bbr, loss 1% × 10");
        assert_eq!(few.results.runs[0].summary.goodput_bps, 5.5);
        // Of 1 to 10: standard deviation 3.0277, over the root of ten, times 2.262.
        assert!(few.half.iter().all(|half| (half.unwrap() - 2.1659).abs() < 1e-3));
        // The same controller with other settings is another contender.
        for run in results.runs.iter_mut().take(4) {
            run.contender = Some(format!("{}:ecn=on", run.cc));
        }
        assert_eq!(condense(&results).results.runs[0].label, "bbr:ecn=on, loss 1% × 1");
        assert_eq!(condense(&results).half[0], None);
        results.runs.truncate(8);
        assert_eq!(condense(&results).results.runs.len(), 8);
    }

    #[test]
    fn three_repeats_are_averaged_even_of_few_runs() {
        let mut results = support::race(0.5);
        results.runs.truncate(1);
        let run = results.runs.remove(0);
        for seed in 1..=3 {
            let mut run = run.clone();
            run.seed = seed;
            run.varied = vec![Variation::new(Variation::SEED, seed.to_string())];
            run.summary.goodput_bps = seed as f64;
            results.runs.push(run);
        }
        let one = condense(&results);
        assert_eq!((one.results.runs.len(), one.results.runs[0].label.as_str()), (1, "bbr × 3"));
        // Standard deviation 1, over the root of three, times 4.303.
        assert!((one.half[0].unwrap() - 2.4843).abs() < 1e-3);
        assert_eq!(half_interval(&[1.0]), None);
        assert_eq!(half_interval(&[5.0; 40]), Some(0.0));
    }

    #[test]
    fn moving_average_covers_its_window_only() {
        let t: Vec<f64> = (0..6).map(f64::from).collect();
        assert_eq!(smoothed(&t, &[0.0, 2.0, 4.0, f64::NAN, 8.0, 0.0], 2.0), [0.0, 1.0, 3.0, 4.0, 8.0, 4.0]);
    }

    proptest! {
        #[test]
        fn resampling_keeps_the_extremes(
            values in proptest::collection::vec(-1e9f64..1e9, 1..3000), rows in 2usize..400,
        ) {
            let t: Vec<f64> = (0..values.len()).map(|i| i as f64 * 0.01).collect();
            let mut series = Series::with_columns(["x"]);
            for (t, v) in t.iter().zip(&values) {
                series.push(*t, &[*v]);
            }
            let grid = Grid::new(&[&series], rows);
            let fitted = grid.fit(&t, &values);
            prop_assert_eq!(fitted.len(), grid.t.len());
            prop_assert!(fitted.len() <= rows.max(2));
            let most = |v: &[f64]| v.iter().copied().filter(|x| x.is_finite()).fold(f64::MIN, f64::max);
            let least = |v: &[f64]| v.iter().copied().filter(|x| x.is_finite()).fold(f64::MAX, f64::min);
            prop_assert_eq!(most(&fitted), most(&values));
            prop_assert_eq!(least(&fitted), least(&values));
        }

        #[test]
        fn sparse_samples_are_interpolated(n in 2usize..10) {
            let sparse_t: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let ramp: Vec<f64> = sparse_t.iter().map(|t| t * 10.0).collect();
            let grid = Grid { t: (0..200).map(|i| (f64::from(i) + 0.5) * 0.05).collect(), bucket: 0.1 };
            let fitted = grid.fit(&sparse_t, &ramp);
            for (t, v) in grid.t.iter().zip(&fitted) {
                if *t < (n - 1) as f64 - 0.1 && t.fract() > 0.1 {
                    prop_assert!((v - t * 10.0).abs() < 1e-6, "{} {}", t, v);
                }
            }
        }
    }
}

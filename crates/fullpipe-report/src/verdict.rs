//! The conclusion in a sentence: the goodput of each controller, the ratio, and the reason that the
//! recording shows.

use crate::comparison;
use crate::reduce::{distinct, path_label};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{EventKind, FlowRecording, Recording, Source, Summary, column};
use fullpipe_presentation::numbers::{millis, percent, rate, seconds};
use std::collections::HashMap;

/// Goodputs or round-trip times within this ratio count as equal.
const EQUAL_RATIO: f64 = 1.05;

/// All runs, or all flows, with the same name.
struct Contender {
    name: String,
    cc: String,
    count: usize,
    goodput: f64,
    rtt_ms: Option<f64>,
    utilization: Option<f64>,
    /// Mean completion time, if every run completed.
    completion_s: Option<f64>,
    /// Duration of its longest run.
    duration_s: f64,
    /// Mean bytes in flight as a share of the bandwidth-delay product.
    fill: Option<f64>,
    /// Entries into loss recovery and timeouts, per run.
    recoveries: f64,
    /// Whether the congestion window shrinks after losses.
    backs_off: bool,
    /// Whether most losses were random rather than queue drops.
    wire_loss: bool,
}

/// Summarises the results in one or two sentences.
pub fn verdict(results: &Results) -> String {
    if let Some(found) = &results.comparison {
        return comparison::conclusion(found);
    }
    let valid: Vec<&Recording> = results.runs.iter().filter(|r| r.valid).collect();
    match valid.as_slice() {
        [] if results.runs.is_empty() => "No runs.".to_owned(),
        [] => "No run is valid, so there is no conclusion.".to_owned(),
        [run] if distinct_flows(run) => shared(run),
        [run] => single(run),
        runs if runs.iter().all(|r| distinct_flows(r)) => sharing_repeated(runs),
        runs if same_path(runs) => compare(&contenders(runs), ""),
        runs => swept(runs),
    }
}

/// Invalid runs and failed checks, to be read before the figures.
pub fn problems(results: &Results) -> Vec<String> {
    let mut problems = Vec::new();
    for run in &results.runs {
        let name = format!("{} ({}, seed {})", run.label, run.source.name(), run.seed);
        if !run.valid {
            let why = if run.invalid_because.is_empty() {
                "the engine gave no reason".to_owned()
            } else {
                run.invalid_because.join("; ")
            };
            problems.push(format!("not valid: {name}: {why}"));
        }
        for check in run.checks.iter().filter(|c| !c.passed) {
            problems.push(format!("check failed: {name}: {} (measured: {})", check.check, check.measured));
        }
    }
    problems
}

fn distinct_flows(run: &Recording) -> bool {
    run.flows.len() > 1 && run.flows.iter().any(|f| f.cc != run.flows[0].cc)
}

fn same_path(runs: &[&Recording]) -> bool {
    runs.iter().all(|r| r.path == runs[0].path)
}

/// One run with one controller.
fn single(run: &Recording) -> String {
    let s = &run.summary;
    let name = if run.flows.len() > 1 {
        format!("{} {} flows together", run.flows.len(), run.cc)
    } else {
        run.label.clone()
    };
    let mut text = format!("{name} carried {}", rate(s.goodput_bps));
    if let Some(u) = s.utilization {
        text += &format!(", {} of the link", percent(u));
    }
    if let Some(p50) = s.rtt_ms.p50 {
        text += &format!(", at a median round-trip time of {}", millis(p50));
        if let Some(base) = run.path.base_rtt_ms.filter(|b| *b > 0.0) {
            text += &match p50 / base {
                x if x < EQUAL_RATIO => " (the path's base RTT)".to_owned(),
                x => format!(" ({} times the base RTT)", times(x)),
            };
        }
    }
    if let Some(j) = run.fairness() {
        text += &format!("; Jain index {j:.2}");
    }
    text + "."
}

/// One run in which different controllers share the path.
fn shared(run: &Recording) -> String {
    let mut contenders: Vec<Contender> = Vec::new();
    for cc in distinct(run.flows.iter().map(|f| f.cc.as_str())) {
        let flows: Vec<(&Recording, &FlowRecording)> =
            run.flows.iter().filter(|f| f.cc == cc).map(|f| (run, f)).collect();
        let summaries: Vec<&Summary> = flows.iter().map(|(_, f)| &f.summary).collect();
        contenders.push(Contender::new(cc, cc, &summaries, &flows));
    }
    let mut text = compare(&contenders, "Sharing the path, ");
    if let Some(j) = run.fairness() {
        let word = match j {
            j if j >= 0.95 => "fair",
            j if j >= 0.75 => "fairly uneven",
            _ => "unfair",
        };
        text += &format!(" The shares are {word} (Jain index {j:.2}).");
    }
    text
}

/// Several runs, each of which shares the path among different controllers.
fn sharing_repeated(runs: &[&Recording]) -> String {
    let parts: Vec<String> = distinct(runs.iter().flat_map(|r| r.flows.iter().map(|f| f.cc.as_str())))
        .into_iter()
        .map(|cc| {
            let each = runs.iter().map(|r| {
                let total: f64 = r.flows.iter().map(|f| f.summary.goodput_bps).sum();
                let own: f64 = r.flows.iter().filter(|f| f.cc == cc).map(|f| f.summary.goodput_bps).sum();
                if total > 0.0 { own / total } else { 0.0 }
            });
            format!("{cc} got {} of the total goodput", span(each, percent))
        })
        .collect();
    format!("Over {} runs of a shared path: {}.", runs.len(), parts.join("; "))
}

/// Runs on different paths: the goodputs on the first and the last path.
fn swept(runs: &[&Recording]) -> String {
    let placed: Vec<(String, &Recording)> = runs.iter().map(|r| (path_label(r), *r)).collect();
    let places = distinct(placed.iter().map(|(place, _)| place.as_str()));
    let at = |place: &str| {
        let own = || placed.iter().filter(|(at, _)| at == place).map(|(_, r)| *r);
        let each = distinct(own().map(|r| r.cc.as_str())).into_iter().map(|cc| {
            let goodputs = own().filter(|r| r.cc == cc).map(|r| r.summary.goodput_bps);
            format!("{cc} carried {}", rate(mean(goodputs).unwrap_or(0.0)))
        });
        format!("at {place}, {}", each.collect::<Vec<_>>().join(", "))
    };
    match places.as_slice() {
        [first, .., last] => format!("Over {} runs: {}; {}.", runs.len(), at(first), at(last)),
        _ => {
            let goodputs = span(runs.iter().map(|r| r.summary.goodput_bps), rate);
            format!("Over {} runs on different paths: {goodputs}.", runs.len())
        }
    }
}

/// `a to b`, or `a` where that is all.
fn span(values: impl Iterator<Item = f64>, write: fn(f64) -> String) -> String {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let (low, high) = (write(low), write(high));
    if low == high { low } else { format!("{low} to {high}") }
}

fn contenders(runs: &[&Recording]) -> Vec<Contender> {
    let engines = distinct(runs.iter().map(|r| r.source.name()));
    let name = |r: &Recording| {
        if engines.len() > 1 { format!("{} ({})", r.cc, r.source.name()) } else { r.cc.clone() }
    };
    // Runs of one controller with different labels differ in something the label says.
    let mut labels: HashMap<(&str, Source, u64), Option<&str>> = HashMap::new();
    for r in runs {
        let only = labels.entry((&r.cc, r.source, r.seed)).or_insert(Some(&r.label));
        *only = only.filter(|label| *label == r.label);
    }
    let names = runs.iter().map(|r| match labels.get(&(r.cc.as_str(), r.source, r.seed)) {
        Some(None) => r.label.clone(),
        _ => name(r),
    });
    let names: Vec<String> = names.collect();
    let mut groups: HashMap<&str, Vec<&Recording>> = HashMap::new();
    for (r, name) in runs.iter().zip(&names) {
        groups.entry(name).or_default().push(r);
    }
    distinct(names.iter().map(String::as_str))
        .into_iter()
        .map(|name| {
            let own = &groups[name];
            let summaries: Vec<&Summary> = own.iter().map(|r| &r.summary).collect();
            let flows: Vec<(&Recording, &FlowRecording)> =
                own.iter().flat_map(|r| r.flows.iter().map(move |f| (*r, f))).collect();
            Contender::new(name, &own[0].cc, &summaries, &flows)
        })
        .collect()
}

/// Compares the best contender with CUBIC, or with the runner-up.
fn compare(contenders: &[Contender], preamble: &str) -> String {
    if contenders.len() > 1 && contenders.iter().any(|c| c.completion_s.is_some()) {
        return timed(contenders, preamble);
    }
    let mut order: Vec<&Contender> = contenders.iter().collect();
    order.sort_by(|a, b| b.goodput.total_cmp(&a.goodput));
    let best = order[0];
    let rest = &order[1..];
    if rest.is_empty() {
        let runs =
            if best.count > 1 { format!(" on average over {} runs", best.count) } else { String::new() };
        let share = best.utilization.map(|u| format!(", {} of the link", percent(u)));
        let name = &best.name;
        return format!(
            "{preamble}{name} carried {}{runs}{}.",
            rate(best.goodput),
            share.unwrap_or_default()
        );
    }
    let worst = rest[rest.len() - 1];
    if best.goodput <= worst.goodput * EQUAL_RATIO {
        return equal(&order, preamble);
    }
    // Most hosts run CUBIC, so others are compared with it.
    let other = rest.iter().find(|c| c.cc == "cubic").copied().unwrap_or(rest[0]);
    let ratio = best.goodput / other.goodput;
    let difference = if other.goodput <= 0.0 {
        format!("{} carried nothing", other.name)
    } else if ratio < EQUAL_RATIO {
        format!("hardly more than {}'s {}", other.name, rate(other.goodput))
    } else if ratio < 2.0 {
        format!("{:.0} % more than {}'s {}", (ratio - 1.0) * 100.0, other.name, rate(other.goodput))
    } else {
        format!("{} times {}'s {}", times(ratio), other.name, rate(other.goodput))
    };
    let mut text = format!("{preamble}{} carried {}, {difference}", best.name, rate(best.goodput));
    // Flows that share a path fill it together: the inflight of one flow does not explain it.
    if let Some(reason) = other.reason().filter(|_| preamble.is_empty()) {
        text += &reason;
    }
    text + "."
}

/// Compares the completion times of transfers of a fixed size.
fn timed(contenders: &[Contender], preamble: &str) -> String {
    let mut order: Vec<&Contender> = contenders.iter().collect();
    let time = |c: &Contender| c.completion_s.unwrap_or(f64::INFINITY);
    order.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let first = order[0];
    let other = order[1..].iter().find(|c| c.cc == "cubic").copied().unwrap_or(order[1]);
    let mut text = format!("{preamble}{} finished in {}; ", first.name, seconds(time(first)));
    text += &match other.completion_s {
        None => format!("{} did not finish within {}", other.name, seconds(other.duration_s)),
        Some(t) if t <= time(first) * EQUAL_RATIO => format!("{} took about as long", other.name),
        Some(t) => format!("{} took {}, {} times as long", other.name, seconds(t), times(t / time(first))),
    };
    if let Some(reason) =
        other.reason().filter(|_| preamble.is_empty() && time(other) > time(first) * EQUAL_RATIO)
    {
        text += &reason;
    }
    text + "."
}

/// Compares the delay of contenders with equal goodput.
fn equal(order: &[&Contender], preamble: &str) -> String {
    let goodputs = span(order.iter().map(|c| c.goodput), rate);
    let subject = match order.len() {
        2 => "both carried".to_owned(),
        n => format!("all {n} carried"),
    };
    let mut text = format!("{preamble}{subject} about the same ({goodputs})");
    if preamble.is_empty() {
        text = text.replacen(&subject[..1], &subject[..1].to_uppercase(), 1);
    }
    let timed = |c: &&&Contender| c.rtt_ms.is_some_and(|r| r > 0.0);
    let delay = |c: &Contender| c.rtt_ms.unwrap_or(f64::INFINITY);
    let quickest = order.iter().filter(timed).min_by(|a, b| delay(a).total_cmp(&delay(b)));
    let slowest = order.iter().filter(timed).max_by(|a, b| delay(a).total_cmp(&delay(b)));
    if let (Some(quick), Some(slow)) = (quickest, slowest) {
        if delay(slow) > delay(quick) * EQUAL_RATIO && preamble.is_empty() {
            text += &format!(
                "; {} had the lowest round-trip time: {} at the median, compared with {} for {}",
                quick.name,
                millis(delay(quick)),
                millis(delay(slow)),
                slow.name
            );
        } else if preamble.is_empty() {
            text += &format!(", at about the same round-trip time ({})", millis(delay(quick)));
        }
    }
    text + "."
}

impl Contender {
    fn new(name: &str, cc: &str, summaries: &[&Summary], flows: &[(&Recording, &FlowRecording)]) -> Self {
        let n = summaries.len() as f64;
        let recoveries: usize = flows.iter().map(|(_, f)| backoffs(f).count()).sum();
        // Flows of one run fill its path together.
        let mut fills: Vec<(&Recording, f64)> = Vec::new();
        for (run, flow) in flows {
            let Some(share) = fill(run, flow) else { continue };
            match fills.iter_mut().find(|(r, _)| std::ptr::eq(*r, *run)) {
                Some((_, sum)) => *sum += share,
                None => fills.push((run, share)),
            }
        }
        let (wire, all) = flows.iter().fold((0, 0), |(wire, all), (r, _)| {
            let drops = r.links.iter().flat_map(|l| &l.drops);
            drops.fold((wire, all), |(w, a), (cause, n)| (w + if cause == "loss" { *n } else { 0 }, a + n))
        });
        Contender {
            name: name.to_owned(),
            cc: cc.to_owned(),
            count: summaries.len(),
            goodput: summaries.iter().map(|s| s.goodput_bps).sum::<f64>() / n,
            rtt_ms: mean(summaries.iter().filter_map(|s| s.rtt_ms.p50)),
            utilization: mean(summaries.iter().filter_map(|s| s.utilization)),
            completion_s: summaries
                .iter()
                .map(|s| s.completion_s)
                .collect::<Option<Vec<f64>>>()
                .and_then(|all| mean(all.into_iter())),
            duration_s: summaries.iter().map(|s| s.duration_s).fold(0.0, f64::max),
            fill: mean(fills.into_iter().map(|(_, share)| share)),
            recoveries: recoveries as f64 / n,
            backs_off: flows.iter().any(|(r, f)| backs_off(r, f)),
            wire_loss: wire * 2 > all,
        }
    }

    /// The reason for a low goodput, if the recording shows one.
    fn reason(&self) -> Option<String> {
        let fill = self.fill.filter(|f| *f < 0.6)?;
        let fill = percent_round(fill);
        let name = &self.name;
        if !self.backs_off || self.recoveries < 1.0 {
            return Some(format!("; {name} kept only {fill} of the BDP in flight"));
        }
        let times = format!("{:.0}", self.recoveries);
        let cause = if self.wire_loss { ", mostly because of non-congestion losses," } else { "" };
        Some(format!("; {name} backed off {times} times{cause} and kept {fill} of the BDP in flight"))
    }
}

/// Times at which the flow entered fast recovery or timed out.
fn backoffs(flow: &FlowRecording) -> impl Iterator<Item = f64> + '_ {
    flow.events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::RecoveryEntered | EventKind::RetransmissionTimeout))
        .map(|e| e.at_s)
}

/// Mean bytes in flight divided by the BDP.
fn fill(run: &Recording, flow: &FlowRecording) -> Option<f64> {
    let bdp = run.path.bdp_bytes.filter(|b| *b > 0)? as f64;
    let inflight = flow.series.get(column::INFLIGHT_BYTES)?;
    mean(inflight.iter().copied().filter(|v| v.is_finite())).map(|m| m / bdp)
}

/// Whether, after most losses, the congestion window is at least a tenth smaller two round trips
/// later.
fn backs_off(run: &Recording, flow: &FlowRecording) -> bool {
    let Some(cwnd) = flow.series.get(column::CWND_BYTES) else { return false };
    let t = &flow.series.t_s;
    let wait = 2.0 * flow.summary.rtt_ms.p50.or(run.path.base_rtt_ms).unwrap_or(0.0) / 1e3;
    let ratios: Vec<f64> = backoffs(flow)
        .filter_map(|at| {
            let before = t.partition_point(|x| *x < at).checked_sub(1)?;
            let after = t.partition_point(|x| *x < at + wait).min(t.len() - 1);
            let span = cwnd.get(before + 1..=after)?;
            let low = span.iter().copied().filter(|v| v.is_finite()).fold(f64::INFINITY, f64::min);
            (low.is_finite() && cwnd[before] > 0.0).then(|| low / cwnd[before])
        })
        .collect();
    let lower = ratios.iter().filter(|r| **r < 0.9).count();
    lower * 2 > ratios.len()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0usize), |(sum, n), v| (sum + v, n + 1));
    (n > 0).then(|| sum / n as f64)
}

fn percent_round(share: f64) -> String {
    if share >= 0.01 { format!("{:.0} %", share * 100.0) } else { percent(share) }
}

fn times(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use fullpipe_experiment::recording::{CheckResult, Variation};

    #[test]
    fn best_is_compared_with_cubic_and_the_recording_gives_the_reason() {
        let text = verdict(&support::race(30.0));
        assert!(text.starts_with("bbr carried 9"), "{text}");
        assert!(text.contains("times cubic's 2."), "{text}");
        assert!(
            text.contains("; cubic backed off 43 times, mostly because of non-congestion losses,"),
            "{text}"
        );
        assert!(text.ends_with("and kept 2 % of the BDP in flight."), "{text}");
    }

    #[test]
    fn winner_has_the_highest_goodput() {
        let mut race = support::race(30.0);
        for run in &mut race.runs {
            let bps = if run.cc == "reno" { 95e6 } else { 60e6 };
            run.summary.goodput_bps = bps;
        }
        let text = verdict(&race);
        assert!(text.starts_with("reno carried 95.0 Mbit/s, 58 % more than cubic's 60.0 Mbit/s"), "{text}");
    }

    #[test]
    fn equal_goodput_is_decided_by_delay() {
        let mut race = support::race(5.0);
        for run in &mut race.runs {
            run.summary.goodput_bps = 95e6;
            run.summary.rtt_ms.p50 = Some(if run.cc == "bbr" { 104.0 } else { 188.0 });
        }
        let text = verdict(&race);
        assert!(text.starts_with("All 4 carried about the same (95.0 Mbit/s); bbr had"), "{text}");
        assert!(text.contains("104 ms at the median, compared with 188 ms"), "{text}");
    }

    #[test]
    fn flows_that_share_a_path_are_compared_with_their_fairness() {
        let text = verdict(&support::together(20.0));
        assert!(text.starts_with("Sharing the path, bbr carried 72"), "{text}");
        assert!(
            text.contains("3.0 times cubic's") && text.contains("fairly uneven (Jain index 0.80)"),
            "{text}"
        );
        assert!(!text.contains("in flight"), "{text}");
    }

    #[test]
    fn sweep_is_summarised_by_its_ends() {
        let mut race = support::race(2.0);
        for (i, run) in race.runs.iter_mut().enumerate() {
            let loss = ["0%", "5%"][i / 2];
            run.cc = ["bbr", "cubic"][i % 2].to_owned();
            run.varied = vec![Variation::new("flow.cc", run.cc.as_str()), Variation::new("path.loss", loss)];
            run.label = format!("{}, loss {loss}", run.cc);
            run.path.description = format!("a path, {loss} loss");
            run.summary.goodput_bps = [90e6, 91e6, 80e6, 1e6][i];
        }
        assert_eq!(
            verdict(&race),
            "Over 4 runs: at loss 0%, bbr carried 90.0 Mbit/s, cubic carried 91.0 Mbit/s; at loss 5%, bbr \
             carried 80.0 Mbit/s, cubic carried 1.00 Mbit/s."
        );
    }

    #[test]
    fn transfers_are_compared_by_completion_time() {
        let mut race = support::race(5.0);
        race.runs[0].summary.completion_s = Some(2.0);
        race.runs[1].summary.completion_s = None;
        let text = verdict(&race);
        assert!(
            text.starts_with("bbr finished in 2 s; cubic did not finish within 5 s; cubic backed off"),
            "{text}"
        );
        race.runs[1].summary.completion_s = Some(3.0);
        assert!(verdict(&race).contains("; cubic took 3 s, 1.5 times as long"), "{}", verdict(&race));
    }

    #[test]
    fn repeats_are_averaged() {
        let mut race = support::race(2.0);
        race.runs.truncate(1);
        race.runs[0].summary.goodput_bps = 90e6;
        let mut again = race.runs[0].clone();
        again.seed = 2;
        again.summary.goodput_bps = 94e6;
        race.runs.push(again);
        assert!(
            verdict(&race).starts_with("bbr carried 92.0 Mbit/s on average over 2 runs"),
            "{}",
            verdict(&race)
        );
    }

    #[test]
    fn invalid_runs_give_no_conclusion() {
        let mut race = support::race(2.0);
        for run in &mut race.runs {
            run.valid = false;
            run.invalid_because = vec!["the emulator was 12 ms late".to_owned()];
        }
        race.runs[1].checks =
            vec![CheckResult::for_states("goodput >= 85mbit".to_owned(), &["2.4 Mbit/s"], false)];
        assert!(verdict(&race).starts_with("No run is valid"));
        let problems = problems(&race);
        assert_eq!(problems.len(), 5);
        assert!(
            problems[0].contains("12 ms late") && problems[2].contains("goodput >= 85mbit"),
            "{problems:?}"
        );
    }

    #[test]
    fn empty_runs_do_not_panic() {
        let mut race = support::race(0.0);
        for run in &mut race.runs {
            run.summary = Summary::default();
            run.flows.clear();
            run.links.clear();
        }
        assert!(!verdict(&race).is_empty());
        race.runs.clear();
        assert_eq!(verdict(&race), "No runs.");
    }
}

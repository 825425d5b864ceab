//! Explanations of figures that seem to contradict each other.

use crate::reduce::distinct;
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Source, Summary, TransportFacts};
use fullpipe_presentation::numbers::{millis, percent, significant, size_unit};

/// An RTT is explained if it exceeds the queueing delay by this many milliseconds and by this
/// factor.
const MIN_EXCESS_MS: f64 = 10.0;
const MIN_EXCESS_RATIO: f64 = 3.0;
/// Runs named one by one; more are counted.
const MAX_NAMED: usize = 4;
/// Utilisation above which goodput beyond the path's rate is explained; less is rounding.
const MAX_UTILIZATION: f64 = 1.002;

/// Receive window in bandwidth-delay products that Startup of BBR v1 fills: its cwnd gain is 2.89.
const NEEDED_BDPS: u64 = 3;

/// One sentence for each kind of surprising figure.
pub(crate) fn notes(results: &Results) -> Vec<String> {
    let valid: Vec<&Recording> = results.runs.iter().filter(|r| r.valid).collect();
    let mut notes: Vec<String> =
        [rtt_beyond_queue(&valid), above_the_rate(&valid)].into_iter().flatten().collect();
    notes.extend(transports(&valid));
    notes
}

/// The transports other than the simulated TCP, each with the largest BDP of its runs in bytes, and
/// what limits the comparison.
fn transports(runs: &[&Recording]) -> Vec<String> {
    let mut all: Vec<(&TransportFacts, Option<u64>)> = Vec::new();
    for run in runs {
        for facts in &run.provenance.transports {
            match all.iter_mut().find(|(known, _)| *known == facts) {
                Some((_, bdp)) => *bdp = (*bdp).max(run.path.bdp_bytes),
                None => all.push((facts, run.path.bdp_bytes)),
            }
        }
    }
    all.into_iter().map(|(facts, bdp)| transport(facts, bdp)).collect()
}

fn size(bytes: u64) -> String {
    let (unit, size) = size_unit(bytes as f64);
    format!("{} {unit}", significant(bytes as f64 / size, 3))
}

fn transport(facts: &TransportFacts, bdp: Option<u64>) -> String {
    let mut parts = facts.notes.clone();
    if let Some(window) = facts.receive_window {
        let needed = bdp.map(|bdp| bdp.saturating_mul(NEEDED_BDPS)).filter(|&needed| window < needed);
        let limit = needed.map_or(String::new(), |needed| {
            format!(", less than {NEEDED_BDPS} BDP ({}), so it may limit the flow", size(needed))
        });
        parts.insert(0, format!("receive window {}{limit}", size(window)));
    }
    if !facts.repeatable {
        parts.push("not repeatable: it draws random numbers from the system".to_owned());
    }
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join("; ")) };
    format!("{} runs over {} {}{parts}.", facts.cc, facts.name, facts.version)
}

/// Explains an RTT tail that exceeds the tail of the queueing delay.
fn rtt_beyond_queue(runs: &[&Recording]) -> Option<String> {
    let beyond = |s: &Summary| {
        let waited = s.rtt_ms.p99? - s.rtt_ms.min?;
        let queue = s.queue_ms.p95?;
        (waited > queue + MIN_EXCESS_MS && waited > queue * MIN_EXCESS_RATIO).then_some((
            s.rtt_ms.p99?,
            queue,
            waited,
        ))
    };
    let found: Vec<(&Recording, (f64, f64, f64))> =
        runs.iter().filter_map(|run| Some((*run, beyond(&run.summary)?))).collect();
    let &(run, (rtt, queue, _)) = found.iter().max_by(|a, b| a.1.2.total_cmp(&b.1.2))?;
    let labels = distinct(found.iter().map(|(run, _)| run.label.as_str()));
    let others: Vec<&str> = labels.into_iter().filter(|label| *label != run.label).collect();
    let likewise = match others[..] {
        [] => String::new(),
        [other] => format!("; likewise {other}"),
        [ref first @ .., last] if others.len() <= MAX_NAMED => {
            format!("; likewise {} and {last}", first.join(", "))
        }
        _ => format!("; likewise {} other runs", others.len()),
    };
    Some(format!(
        "{}: the RTT p99 ({}) is far above the minimum ({}), although the queue p95 is only {}{likewise}. \
         Both are right: one packet in twenty waited longer than the p95, and the RTT includes delayed \
         ACKs, jitter and queues on the reverse path.",
        run.label,
        millis(rtt),
        millis(run.summary.rtt_ms.min?),
        millis(queue),
    ))
}

/// Explains goodput above the bottleneck's rate, which occurs where bytes are counted in order.
fn above_the_rate(runs: &[&Recording]) -> Option<String> {
    let in_order = runs.iter().filter(|run| run.source != Source::Sim);
    let above =
        in_order.filter_map(|run| Some((*run, run.summary.utilization.filter(|&u| u > MAX_UTILIZATION)?)));
    let (run, most) = above.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{}: the goodput is {} of the link's. This is possible: goodput counts bytes when they can be read \
         in order, so bytes received before the measured interval that waited for a retransmission or in a \
         buffer can count within it.",
        run.label,
        percent(most),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use fullpipe_experiment::recording::{Quantiles, QueueQuantiles};

    fn race() -> Results {
        let mut race = support::race(1.0);
        for run in &mut race.runs {
            run.summary.rtt_ms =
                Quantiles { min: Some(100.0), p50: Some(100.0), p95: Some(102.0), p99: Some(103.0) };
            run.summary.queue_ms = QueueQuantiles { p50: Some(0.1), p95: Some(0.7), max: Some(3.0) };
            run.summary.utilization = Some(0.9);
        }
        race
    }

    #[test]
    fn consistent_figures_need_no_note() {
        assert_eq!(notes(&race()), Vec::<String>::new());
        let mut full = race();
        // A full queue explains a high round-trip time.
        full.runs[0].summary.rtt_ms.p99 = Some(190.0);
        full.runs[0].summary.queue_ms.p95 = Some(80.0);
        assert_eq!(notes(&full), Vec::<String>::new());
    }

    #[test]
    fn rtt_tail_beyond_the_queue_is_explained() {
        let mut race = race();
        race.runs[0].summary.rtt_ms.p99 = Some(142.0);
        let texts = notes(&race);
        assert_eq!(texts.len(), 1);
        let label = race.runs[0].label.clone();
        for part in [
            "RTT p99 (142 ms) is far above the minimum (100 ms)",
            "queue p95 is only 0.700 ms",
            "delayed ACKs",
            &format!("{label}: "),
        ] {
            assert!(texts[0].contains(part), "{part}: {}", texts[0]);
        }
        race.runs[1].summary.rtt_ms.p99 = Some(150.0);
        let texts = notes(&race);
        assert!(
            texts.len() == 1 && texts[0].contains("150 ms") && texts[0].contains("; likewise "),
            "{texts:?}"
        );
        race.runs.iter_mut().for_each(|run| run.valid = false);
        assert_eq!(notes(&race), Vec::<String>::new());
    }

    #[test]
    fn other_transports_are_described_once() {
        let mut race = race();
        let facts = TransportFacts {
            cc: "quinn/bbr".to_owned(),
            name: "quinn-proto".to_owned(),
            version: "0.11.19".to_owned(),
            receive_window: Some(1_250_000),
            notes: vec!["its pacer takes no rate".to_owned()],
            ..TransportFacts::default()
        };
        for run in &mut race.runs {
            run.provenance.transports = vec![facts.clone()];
            run.path.bdp_bytes = None;
        }
        assert_eq!(
            notes(&race),
            ["quinn/bbr runs over quinn-proto 0.11.19: \
              receive window 1.25 MB; its pacer takes no rate; not \
              repeatable: it draws random numbers from the system."]
        );
    }

    #[test]
    fn a_receive_window_that_may_limit_is_named_with_the_largest_need() {
        let mut race = race();
        for (i, run) in race.runs.iter_mut().enumerate() {
            run.path.bdp_bytes = Some(500_000 * (i as u64 + 1));
            let facts = TransportFacts {
                receive_window: Some(2_000_000),
                repeatable: true,
                ..TransportFacts::default()
            };
            run.provenance.transports = vec![facts];
        }
        let largest = size(1_500_000 * race.runs.len() as u64);
        let found = notes(&race);
        assert!(found.len() == 1 && found[0].contains("so it may limit the flow"));
        assert!(
            found[0].contains(&format!("receive window 2.00 MB, less than 3 BDP ({largest})")),
            "{found:?}"
        );
        for run in &mut race.runs {
            run.path.bdp_bytes = Some(600_000);
        }
        assert!(!notes(&race)[0].contains("may limit"));
    }

    #[test]
    fn goodput_above_the_rate_is_explained_where_bytes_are_counted_in_order() {
        let mut race = race();
        race.runs[0].summary.utilization = Some(1.01);
        assert_eq!(
            notes(&race),
            Vec::<String>::new(),
            "the simulator counts arrivals: nothing may hide that"
        );
        race.runs[0].source = Source::Lab;
        let texts = notes(&race);
        assert!(
            texts.len() == 1 && texts[0].contains("101.0 %") && texts[0].contains("in order"),
            "{texts:?}"
        );
    }
}

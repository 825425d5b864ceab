//! Words for figures that look as though they contradicted each other.

use crate::figures::{millis, percent};
use crate::reduce::distinct;
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Source, Summary};

/// A high RTT is called beyond its queue from this many milliseconds on, and this many times the queue's.
const BEYOND_MS: f64 = 10.0;
const BEYOND_TIMES: f64 = 3.0;
/// Goodput of more than the path's rate, as a share of it, that rounding does not explain.
const ABOVE: f64 = 1.002;

/// Sentences, one for each kind of figures that puzzle; none if none do.
pub(crate) fn notes(results: &Results) -> Vec<String> {
    let valid: Vec<&Recording> = results.runs.iter().filter(|r| r.valid).collect();
    [rtt_beyond_queue(&valid), above_the_rate(&valid)].into_iter().flatten().collect()
}

/// Tails of the RTT that the tail of the queue does not account for.
fn rtt_beyond_queue(runs: &[&Recording]) -> Option<String> {
    let beyond = |s: &Summary| {
        let waited = s.rtt_ms.p99? - s.rtt_ms.min?;
        let queue = s.queue_ms.p95?;
        (waited > queue + BEYOND_MS && waited > queue * BEYOND_TIMES).then_some((
            s.rtt_ms.p99?,
            queue,
            waited,
        ))
    };
    let found: Vec<(&Recording, (f64, f64, f64))> =
        runs.iter().filter_map(|run| Some((*run, beyond(&run.summary)?))).collect();
    let &(run, (rtt, queue, _)) = found.iter().max_by(|a, b| a.1.2.total_cmp(&b.1.2))?;
    let more = match distinct(found.iter().map(|(run, _)| run.label.as_str())).len() {
        1 => String::new(),
        n => format!("; {} more alike", n - 1),
    };
    Some(format!(
        "An RTT p99 of {} beside a queue p95 of {} ({}{more}) is no contradiction: an RTT also counts ACKs that the \
         receiver held back (delayed ACKs), jitter and queues on the way back, and one packet in twenty waited longer \
         than the p95.",
        millis(rtt),
        millis(queue),
        run.label,
    ))
}

/// More than the bottleneck's rate, which only who counts in order can see.
fn above_the_rate(runs: &[&Recording]) -> Option<String> {
    let in_order = runs.iter().filter(|run| run.source != Source::Sim);
    let above = in_order.filter_map(|run| Some((*run, run.summary.utilization.filter(|&u| u > ABOVE)?)));
    let (run, most) = above.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{} of what the path allows ({}) is no error: goodput counts bytes when they can be read in order, so what waited \
         for a retransmission, or in a buffer, before the measured time began counts within it.",
        percent(most),
        run.label,
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
    fn figures_that_agree_have_no_words() {
        assert_eq!(notes(&race()), Vec::<String>::new());
        let mut full = race();
        // A full queue explains a high round-trip time.
        full.runs[0].summary.rtt_ms.p99 = Some(190.0);
        full.runs[0].summary.queue_ms.p95 = Some(80.0);
        assert_eq!(notes(&full), Vec::<String>::new());
    }

    #[test]
    fn a_tail_of_the_rtt_that_the_queue_does_not_explain_is_explained() {
        let mut race = race();
        race.runs[0].summary.rtt_ms.p99 = Some(142.0);
        let words = notes(&race);
        assert_eq!(words.len(), 1);
        let label = race.runs[0].label.clone();
        for part in ["RTT p99 of 142 ms", "queue p95 of 0.700 ms", "delayed ACKs", &format!("({label})")] {
            assert!(words[0].contains(part), "{part}: {}", words[0]);
        }
        race.runs[1].summary.rtt_ms.p99 = Some(150.0);
        let words = notes(&race);
        assert!(
            words.len() == 1 && words[0].contains("150 ms") && words[0].contains("; 1 more alike"),
            "{words:?}"
        );
        race.runs.iter_mut().for_each(|run| run.valid = false);
        assert_eq!(notes(&race), Vec::<String>::new());
    }

    #[test]
    fn goodput_above_the_rate_is_explained_where_it_is_counted_in_order() {
        let mut race = race();
        race.runs[0].summary.utilization = Some(1.01);
        assert_eq!(
            notes(&race),
            Vec::<String>::new(),
            "the simulator counts arrivals: nothing may hide that"
        );
        race.runs[0].source = Source::Lab;
        let words = notes(&race);
        assert!(
            words.len() == 1 && words[0].contains("101.0 %") && words[0].contains("in order"),
            "{words:?}"
        );
    }
}

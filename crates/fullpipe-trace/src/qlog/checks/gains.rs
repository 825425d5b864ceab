//! The pacing rate in each state: 99 % of the state's gain times the bandwidth estimate
//! (draft § Pacing Rate, § Summary of Control Behavior in the State Machine).

use super::{State, View, count, digits, judged, not_judged};
use fullpipe_experiment::connection::Judgement;
use fullpipe_experiment::recording::column;
use fullpipe_experiment::statistics;

/// `PacingMarginPercent`.
const MARGIN: f64 = 0.99;
/// How exact a rate has to be: 0.5 %.
const TOLERANCE: f64 = 0.005;
/// Share of the samples that have to be so. A sample at a change may show either state, one between two
/// ACKs an estimate that the rate does not follow yet, and a restart from idle paces at the estimate.
const SHARE: f64 = 0.75;
/// Fewer samples decide nothing.
const MIN_SAMPLES: usize = 3;

/// Pacing gain, and the cases that judge it.
fn expected(state: State) -> (f64, &'static [&'static str]) {
    match state {
        State::Startup => (2.77, &[]),
        State::Drain => (0.5, &["exiting-drain-based-on-inflight"]),
        State::Down => (0.9, &[]),
        State::Cruise | State::Refill | State::ProbeRtt => (1.0, &[]),
        State::Up => (1.25, &[]),
    }
}

/// One check for each state.
pub(super) fn all(view: &View<'_>) -> Vec<Judgement> {
    State::ALL.into_iter().map(|state| gain(view, state)).collect()
}

fn gain(view: &View<'_>, state: State) -> Judgement {
    let check = format!("pacing gain in {}", state.name());
    let (gain, cases) = expected(state);
    if view.visits_to(state).next().is_none() {
        return not_judged(&check, "never entered");
    }
    let logged = samples(view, state, column::PACING_GAIN, None);
    let (found, wanted, what) = if logged.len() >= MIN_SAMPLES {
        (logged, gain, "the pacing gain")
    } else if !view.has(column::PACING_BPS) {
        return not_judged(&check, "the log has no `pacing_rate`");
    } else if !view.has(column::BW_BPS) {
        return not_judged(&check, "the log has no `bandwidth_estimate` to compare the pacing rate with");
    } else if !view.facts.units.pacing_is_sound {
        return not_judged(&check, "the unit of `pacing_rate` is doubtful, see the notes");
    } else {
        let found = samples(view, state, column::PACING_BPS, Some(column::BW_BPS));
        (found, MARGIN * gain, "pacing rate / bandwidth estimate")
    };
    if found.len() < MIN_SAMPLES {
        return not_judged(&check, format!("{} while in it", count(found.len() as u64, "sample")));
    }
    let wrong = found.iter().filter(|ratio| (**ratio / wanted - 1.0).abs() > TOLERANCE).count();
    let median = statistics::quantile(&mut found.clone(), 0.5).unwrap_or(f64::NAN);
    let share = 1.0 - wrong as f64 / found.len() as f64;
    let number = count(found.len() as u64, "sample");
    let words = format!("{what} {median:.3} in {number}, the draft: {wanted:.3}");
    let spread = format!("{words}; {} % within 0.5 %", digits(share * 100.0));
    judged(&check, cases, if share < SHARE && wrong > 1 { vec![spread] } else { Vec::new() }, words)
}

/// The values of a column, or their ratios to another, at the samples within visits of `state`.
fn samples(view: &View<'_>, state: State, name: &str, by: Option<&str>) -> Vec<f64> {
    let series = view.series();
    let Some(values) = series.get(name) else { return Vec::new() };
    let divisors = by.and_then(|by| series.get(by));
    let mut found = Vec::new();
    for visit in view.visits_to(state).filter(|visit| visit.is_pipe_full) {
        let from = series.t_s.partition_point(|t| *t <= visit.from + 1e-9);
        let to = series.t_s.partition_point(|t| *t < visit.to - 1e-9);
        // Rows are the latest values of intervals: the first may straddle the change.
        let from = if view.facts.interval_s > 0.0 { from + 1 } else { from };
        for i in from..to {
            // In Startup, the rate only rises: a rise shows that it was set at this sample.
            let rises = i > 0 && values[i] > values[i - 1] * (1.0 + TOLERANCE);
            let value = match divisors {
                Some(divisors) if state != State::Startup || rises => values[i] / divisors[i],
                Some(_) => continue,
                None => values[i],
            };
            if value.is_finite() && value > 0.0 {
                found.push(value);
            }
        }
    }
    found
}

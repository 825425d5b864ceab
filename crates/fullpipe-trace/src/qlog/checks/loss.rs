//! The response to loss: at most 30 % less in a round (`Beta`), and never less than four packets.

use super::{State, View, Visit, digits, judged, judgement, not_judged, seconds};
use fullpipe_experiment::connection::{Judged, Judgement};
use fullpipe_experiment::recording::{EventKind, column};

/// `Beta`, and how exact a step has to be.
const BETA: f64 = 0.7;
const TOLERANCE: f64 = 0.01;
/// A step to less than this share of the value shows the factor.
const SHOWN: f64 = 0.72;
const CASES: &[&str] = &["decreasing-bandwidth-10x-and-ensuring-max-bandwidth-adapts-down"];

/// A value that fell in a round with losses: when, and to which share of what it was.
#[derive(Clone, Copy)]
struct Step {
    at: f64,
    share: f64,
    what: &'static str,
}

/// `Beta`: a lossy round takes the short-term bounds to 70 % of what they were, or to what was
/// delivered if that is more.
pub(super) fn beta(view: &View<'_>) -> Judgement {
    const CHECK: &str = "response to loss (Beta)";
    if view.lost.last().is_none_or(|n| *n == 0.0) {
        return not_judged(CHECK, "the log has no losses");
    }
    let mut steps: Vec<Step> = Vec::new();
    if let Some(why) = view.visits_to(State::Cruise).find_map(|visit| view.coarse(view.rtt(visit.from)?)) {
        return not_judged(CHECK, why);
    }
    for visit in view.visits_to(State::Cruise) {
        steps.extend(bandwidth_steps(view, visit));
        steps.extend(window_step(view, visit));
    }
    let Some(least) = steps.iter().copied().min_by(|a, b| a.share.total_cmp(&b.share)) else {
        return not_judged(CHECK, "no loss in ProbeBW_CRUISE lowered the bandwidth or the window");
    };
    let words = format!(
        "{} fell to {} of what it was in a round with losses, at {}",
        least.what,
        digits(least.share),
        seconds(least.at)
    );
    if least.share < BETA - TOLERANCE {
        judgement(CHECK, CASES, Judged::Failed, format!("{words}; the draft: 0.70 at least"))
    } else if least.share <= SHOWN {
        judgement(CHECK, CASES, Judged::Passed, words)
    } else {
        not_judged(CHECK, format!("{words} only, which does not show the factor"))
    }
}

/// Steps of the bandwidth estimate, or of its short-term bound, within a visit of CRUISE: the filter of
/// the maximum advances only when DOWN ends.
fn bandwidth_steps(view: &View<'_>, visit: &Visit) -> Vec<Step> {
    let Some(rtt) = view.rtt(visit.from) else { return Vec::new() };
    let from = visit.from + rtt;
    let mut steps = Vec::new();
    for (name, what) in [(column::BW_BPS, "the bandwidth"), (column::BW_SHORTTERM_BPS, "bw_shortterm")] {
        let points = view.series().points(name, from, visit.to);
        for pair in points.windows(2) {
            let [(before, old), (at, new)] = pair else { continue };
            let rtt = view.rtt(*at).unwrap_or(rtt);
            // Several rounds, each with its step, may be between two samples.
            if at - before > view.min_rtt(*at).unwrap_or(rtt) {
                continue;
            }
            // A round ends up to two round trips after the loss.
            if new < old && *old > 0.0 && view.losses(at - 2.5 * rtt, *at) > 0.0 {
                steps.push(Step { at: *at, share: new / old, what });
            }
        }
    }
    steps
}

/// The first reduction of the window in a visit of CRUISE. Before it, the window is twice the BDP,
/// which becomes `inflight_shortterm`; later ones depend on what was delivered.
fn window_step(view: &View<'_>, visit: &Visit) -> Option<Step> {
    if !visit.is_begun {
        return None;
    }
    let points = view.series().points(column::CWND_BYTES, visit.from, visit.to);
    let packet = view.packet();
    for pair in points.windows(2) {
        let [(before, old), (at, new)] = pair else { continue };
        let lost = view.losses(*before, *at) * packet;
        // Recovery takes the lost packets off.
        if *new >= old - lost - 2.0 * packet {
            continue;
        }
        let rtt = view.rtt(*at)?;
        if at - before > view.min_rtt(*at).unwrap_or(rtt) {
            return None;
        }
        let steady = |name: &str| {
            let values = [view.at(name, *before)?, view.at(name, *at)?];
            ((values[1] / values[0] - 1.0).abs() < 0.02).then_some(values[1])
        };
        let (bw, min_rtt) = (steady(column::BW_BPS)?, steady(column::MIN_RTT_MS)?);
        let usual = 2.0 * bw / 8.0 * min_rtt / 1e3;
        let is_usual = (old / usual - 1.0).abs() < 0.1;
        let is_loss = view.losses(at - 2.5 * rtt, *at) > 0.0;
        return (is_usual && is_loss && !view.has_event(EventKind::RetransmissionTimeout)).then(|| Step {
            at: *at,
            share: (new + lost) / old,
            what: "the window",
        });
    }
    None
}

/// The window is at least four packets.
pub(super) fn smallest_window(view: &View<'_>) -> Judgement {
    const CHECK: &str = "smallest window";
    if view.has_event(EventKind::RetransmissionTimeout) {
        return not_judged(CHECK, "a timeout may have reduced it");
    }
    let values = view.series().values(column::CWND_BYTES, f64::NEG_INFINITY, view.facts.end_s);
    let Some(least) = values.into_iter().reduce(f64::min) else {
        return not_judged(CHECK, "the log has no `congestion_window`");
    };
    // Every QUIC path carries packets of 1200 bytes.
    let packet = view.facts.packet_bytes.map_or(1200.0, |b| (b as f64).min(1200.0));
    let words = format!("{} packets of {packet:.0} bytes", digits(least / packet));
    judged(CHECK, &[], if least < 4.0 * packet { vec![words.clone()] } else { Vec::new() }, words)
}

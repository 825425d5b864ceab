//! The order of the states, and when Startup, Drain and the time between probes end.

use super::{State, View, Visit, count, digits, judged, judgement, not_judged, seconds};
use fullpipe_experiment::connection::{Judged, Judgement};
use fullpipe_experiment::recording::{EventKind, column};

/// Rounds without growth by a quarter that end Startup.
const FULL_BW_ROUNDS: u32 = 3;
const GROWTH: f64 = 1.25;
/// Rounds after which Startup should have ended, with the round trips that it takes to see it.
const MAX_PLATEAU_ROUNDS: f64 = 10.0;
/// A queue is drained within these rounds, or Drain ends.
const DRAIN_ROUNDS: f64 = 3.0;
/// The longest wait between two probes; drawn from 2 s to 3 s.
const MAX_WAIT: f64 = 3.0;
const MIN_WAIT: f64 = 2.0;
/// Rounds after which a Reno flow would have grown its window by as much.
const MAX_WAIT_ROUNDS: f64 = 63.0;

/// Which states may follow which.
pub(super) fn order(view: &View<'_>) -> Judgement {
    use State::{Cruise, Down, Drain, ProbeRtt, Refill, Startup, Up};
    const CHECK: &str = "order of the states";
    let undo = view.has_event(EventKind::SpuriousLoss);
    // Several changes at one ACK are one in a log: a state that ends at once is not seen.
    let allowed = |from: State, to: State, at: f64| match (from, to) {
        (Startup, Down | Cruise | Refill) => is_drained(view, at),
        (Startup, Drain | ProbeRtt)
        | (Drain, Down | Cruise | Refill | ProbeRtt)
        | (Down, Cruise | Refill | ProbeRtt)
        | (Cruise, Refill | ProbeRtt)
        | (Refill, Up | ProbeRtt)
        | (Up, Down | Cruise | Refill | ProbeRtt)
        | (ProbeRtt, Startup | Down | Cruise | Refill) => true,
        // Losses that turn out spurious are undone, with the state that they ended.
        (Drain | Down, Startup) | (Down | Cruise, Up) => undo,
        _ => false,
    };
    let mut wrong = Vec::new();
    let mut changes = 0;
    for (a, b) in view.changes() {
        changes += 1;
        if !allowed(a.state, b.state, b.from) {
            wrong.push(format!("{} led to {} at {}", a.state.name(), b.state.name(), seconds(b.from)));
        }
    }
    if changes == 0 {
        return not_judged(CHECK, format!("{} only", view.visits.first().map_or("none", |v| v.state.name())));
    }
    judged(CHECK, &[], wrong, format!("{} as in the draft", count(changes, "change")))
}

/// Whether no more than the estimated BDP is in flight at `t`, as far as the log shows it: Drain ends
/// at once then.
fn is_drained(view: &View<'_>, t: f64) -> bool {
    let bdp = view.bdp(t).filter(|_| view.facts.units.rtt_is_sound);
    match (bdp, inflight_near(view, t)) {
        (Some(bdp), Some(left)) => {
            let target = bdp.max(4.0 * view.packet());
            left <= target + (0.1 * target).max(8.0 * view.packet())
        }
        _ => true,
    }
}

/// The bytes in flight at a change of state, which may be between two samples.
fn inflight_near(view: &View<'_>, t: f64) -> Option<f64> {
    let series = view.series();
    let next = series.t_s.partition_point(|x| *x <= t + 1e-9);
    let after = series.get(column::INFLIGHT_BYTES).and_then(|v| v.get(next)).copied();
    let near = [view.at(column::INFLIGHT_BYTES, t), after.filter(|v| v.is_finite())];
    near.into_iter().flatten().reduce(f64::min)
}

/// Startup ends when the bandwidth no longer grows by a quarter in three rounds, or by loss.
pub(super) fn startup_end(view: &View<'_>) -> Judgement {
    const CHECK: &str = "end of Startup";
    const CASES: &[&str] = &["exiting-startup-on-bandwidth-plateau"];
    if !view.has(column::BW_BPS) {
        return not_judged(CHECK, "the log has no `bandwidth_estimate`");
    }
    let mut changes = view.changes();
    let to_drain = changes.find(|(a, b)| a.state == State::Startup && b.state == State::Drain);
    let Some((&Visit { from, to, .. }, _)) = to_drain else {
        return not_judged(CHECK, "the log has no change from Startup to Drain");
    };
    let (Some(rtt), Some(bw)) = (view.rtt(to), view.at(column::BW_BPS, to)) else {
        return not_judged(CHECK, "no round-trip time or bandwidth estimate at its end");
    };
    if let Some(why) = view.coarse(rtt) {
        return not_judged(CHECK, why);
    }
    if view.losses(to - 2.0 * rtt - view.slack(), to + view.slack()) > 0.0 {
        return not_judged(CHECK, "packets were lost in its last two rounds: loss may have ended it");
    }
    let before = (0..FULL_BW_ROUNDS).try_fold(to, |t, _| view.round_before(t));
    let before = before.and_then(|t| view.at(column::BW_BPS, t + view.step()));
    let growth = before.map(|b| bw / b);
    let points = view.series().points(column::BW_BPS, from, to);
    let reached = points.iter().find(|(_, v)| *v >= bw / GROWTH).map_or(to, |p| p.0);
    let rounds = (to - reached) / rtt;
    let words = format!(
        "ended {} rounds after the bandwidth reached 80 % of {} Mbit/s",
        digits(rounds),
        digits(bw / 1e6)
    );
    let mut failures = Vec::new();
    if growth.is_some_and(|g| g >= GROWTH * 1.05) {
        failures.push(format!(
            "ended while the bandwidth grew: × {} in the last three rounds",
            digits(growth.unwrap_or(f64::NAN))
        ));
    } else if growth.is_none() && rounds < 1.0 {
        return not_judged(CHECK, "no bandwidth estimate three rounds before its end");
    } else if rounds > MAX_PLATEAU_ROUNDS {
        // An application that sends less than the path carries shows no plateau.
        return judgement(
            CHECK,
            CASES,
            Judged::NotJudged,
            format!("{words}: an application limit may be the cause"),
        );
    }
    judged(CHECK, CASES, failures, words)
}

/// Drain ends when what is in flight is no more than the estimated BDP, or in the fourth round.
pub(super) fn drain_end(view: &View<'_>) -> Judgement {
    const CHECK: &str = "end of Drain";
    const CASES: &[&str] = &["exiting-drain-based-on-inflight", "exiting-drain-based-on-time"];
    if !view.has(column::INFLIGHT_BYTES) || !view.has(column::BW_BPS) {
        return not_judged(CHECK, "the log has no `bytes_in_flight` or no `bandwidth_estimate`");
    }
    let mut failures = Vec::new();
    let mut words = Vec::new();
    for visit in view.visits_to(State::Drain).filter(|v| v.is_begun && v.is_complete) {
        let (Some(bdp), Some(rtt)) = (view.bdp(visit.to), view.rtt(visit.to)) else { continue };
        let Some(left) = inflight_near(view, visit.to) else { continue };
        if let Some(why) = view.coarse(rtt) {
            return not_judged(CHECK, why);
        }
        let packet = view.packet();
        let target = bdp.max(4.0 * packet);
        // At half the bandwidth, half of a step's worth drains between two samples.
        let slack = (0.03 * target).max(8.0 * packet) + bdp / rtt * view.step();
        let rounds = (visit.to - visit.from - view.slack()) / rtt;
        let ratio = digits(left / bdp);
        if left > target + slack && rounds < DRAIN_ROUNDS {
            failures.push(format!("left after {} rounds with {ratio} BDP in flight", digits(rounds)));
        }
        words.push(format!("left with {ratio} BDP in flight after {}", seconds(visit.to - visit.from)));
    }
    if words.is_empty() {
        return not_judged(CHECK, "the log has no end of Drain, or no bandwidth and round-trip time there");
    }
    judged(CHECK, CASES, failures, words.swap_remove(0))
}

/// From the beginning of DOWN to the next REFILL: 2 s to 3 s, or as many rounds as packets fit in
/// the BDP, at most 63.
pub(super) fn time_between_probes(view: &View<'_>) -> Judgement {
    const CHECK: &str = "time between probes (DOWN and CRUISE)";
    let mut failures = Vec::new();
    let mut waits = Vec::new();
    let mut begun: Option<Visit> = None;
    let mut before = None;
    for visit in &view.visits {
        let before = before.replace(visit.state);
        if !visit.is_begun {
            begun = None;
            continue;
        }
        match visit.state {
            State::Down => begun = Some(*visit),
            // The beginning of this DOWN is not in the log.
            State::Cruise if before == Some(State::Down) => {}
            // A DOWN that ends at once may not be logged.
            State::Cruise => begun = Some(*visit),
            State::Refill => {
                let Some(down) = begun.take() else { continue };
                if view.is_idle_within(down.from, visit.from) {
                    continue;
                }
                let Some(rtt) = view.rtt(visit.from) else { continue };
                let wait = visit.from - down.from;
                let slack = 2.5 * rtt + view.slack() + 0.05;
                // After a precautionary end of UP, the next probe follows after a round.
                if wait <= slack {
                    continue;
                }
                waits.push(wait);
                if wait > MAX_WAIT + slack {
                    failures.push(format!("{} at {}, more than 3 s", seconds(wait), seconds(visit.from)));
                }
                // `rounds_since_bw_probe` starts at 0 or 1.
                let packets = view.bdp(visit.from).map(|bdp| bdp / view.packet());
                let rounds = packets.map(|p| p.min(MAX_WAIT_ROUNDS) - 1.0);
                let least = rounds.zip(view.min_rtt(visit.from)).map(|(n, rtt)| (n * rtt).min(MIN_WAIT));
                if let Some(least) = least.filter(|l| wait < 0.9 * l - slack) {
                    failures.push(format!(
                        "{} at {}, less than {}",
                        seconds(wait),
                        seconds(visit.from),
                        seconds(least)
                    ));
                }
            }
            _ => begun = None,
        }
    }
    if waits.is_empty() {
        return not_judged(
            CHECK,
            "the log has no time from ProbeBW_DOWN to ProbeBW_REFILL without an idle time",
        );
    }
    let (least, most) = waits.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), w| (a.min(*w), b.max(*w)));
    judged(CHECK, &[], failures, format!("{} of {} to {}", waits.len(), seconds(least), seconds(most)))
}

//! ProbeRTT: how often, how long, and with how much in flight (draft § ProbeRTT).

use super::{State, View, Visit, count, digits, judged, not_judged, seconds};
use fullpipe_experiment::connection::Judgement;
use fullpipe_experiment::recording::column;

/// `ProbeRTTInterval`, `ProbeRTTDuration`, `ProbeRTTCwndGain`.
const INTERVAL: f64 = 5.0;
const DURATION: f64 = 0.2;
const GAIN: f64 = 0.5;
const CASES: &[&str] = &["entering-and-exiting-probe-rtt"];

/// ProbeRTT begins 5 s after the last time that the round-trip time was at its minimum.
pub(super) fn interval(view: &View<'_>) -> Judgement {
    const CHECK: &str = "interval of ProbeRTT";
    let first = view.visits.first();
    let start = first.map_or(0.0, |v| v.from);
    let rtts = view.series().points(column::RTT_MS, start, f64::INFINITY);
    let mut since = start;
    // Whether the interval is known to begin at `since`.
    let mut is_begun = first.is_some_and(|v| v.state == State::Startup && v.is_begun);
    let gaps: Vec<f64> = view.visits.iter().filter(|v| !v.is_begun).map(|v| v.from).collect();
    let mut intervals = Vec::new();
    let mut failures = Vec::new();
    let mut entries: Vec<Visit> = view.visits_to(State::ProbeRtt).copied().collect();
    let end = view.facts.end_s;
    // The time after the last visit, in which another may be missing.
    entries.push(Visit {
        state: State::ProbeRtt,
        from: end,
        to: end,
        is_begun: true,
        is_complete: false,
        is_pipe_full: false,
    });
    for (i, visit) in entries.iter().enumerate() {
        let is_entry = i + 1 < entries.len();
        let gap = gaps.get(gaps.partition_point(|t| *t <= since));
        if gap.is_some_and(|t| *t <= visit.from) {
            (since, is_begun) = (visit.to, visit.is_complete);
            continue;
        }
        let rtt = view.rtt(visit.from).unwrap_or(0.0);
        // The last new minimum since then restarts the interval.
        let mut renewed = since;
        let mut least = f64::INFINITY;
        let from = rtts.partition_point(|(t, _)| *t <= since);
        for (t, ms) in rtts.iter().skip(from).take_while(|(t, _)| *t <= visit.from) {
            if *ms < least {
                (least, renewed) = (*ms, *t);
            }
        }
        let passed = visit.from - since;
        let late = visit.from - renewed - INTERVAL;
        let is_idle = view.is_idle_within(since, visit.from);
        let slack = 5.0 * rtt + 0.15 + view.slack();
        if is_entry && is_begun {
            intervals.push(passed);
            if passed < INTERVAL - 2.5 * rtt - view.slack() {
                failures.push(format!("entered {} after the last: too early", seconds(passed)));
            }
        }
        // A minimum that is not logged restarts the interval, too.
        if late > slack && !is_idle && view.facts.has_every_rtt {
            let when = if is_entry { "entered" } else { "not entered until the end of the log," };
            failures
                .push(format!("{when} {} after the last new minimum: too late", seconds(INTERVAL + late)));
        }
        (since, is_begun) = (visit.to, visit.is_complete);
    }
    if intervals.is_empty() && failures.is_empty() {
        let found = view.visits_to(State::ProbeRtt).count();
        return not_judged(
            CHECK,
            match found {
                0 => format!("not entered in {}", seconds(end - start)),
                _ => "the log has no interval from its beginning to its end".to_owned(),
            },
        );
    }
    let shown: Vec<String> = intervals.iter().take(3).map(|s| seconds(*s)).collect();
    judged(
        CHECK,
        CASES,
        failures,
        format!("entered {}, after {}", count(intervals.len() as u64, "time"), shown.join(", ")),
    )
}

/// It lasts 200 ms and a round from the time at which no more than half a BDP is in flight.
pub(super) fn length(view: &View<'_>) -> Judgement {
    const CHECK: &str = "length of ProbeRTT";
    let mut failures = Vec::new();
    let mut lengths = Vec::new();
    for visit in view.visits_to(State::ProbeRtt).filter(|v| v.is_begun && v.is_complete) {
        let Some(rtt) = view.rtt(visit.from) else { continue };
        let inflight = view.series().points(column::INFLIGHT_BYTES, visit.from, visit.to);
        let low = target(view, visit).and_then(|target| {
            let slack = (0.04 * target).max(4.0 * view.packet());
            inflight.iter().find(|(_, bytes)| *bytes <= target + slack).map(|p| p.0)
        });
        // The first sample with little in flight may be late, and the ACKs of so few packets are rare.
        let slack = 2.0 * view.slack();
        match low {
            Some(low) => {
                let stayed = visit.to - low;
                lengths.push(stayed);
                if stayed < DURATION - 0.2 * rtt - slack {
                    failures.push(format!("only {} with little in flight, not 200 ms", seconds(stayed)));
                } else if stayed > DURATION + 2.5 * rtt + slack
                    && view.losses(visit.from - rtt, visit.to) == 0.0
                {
                    // A lost packet delays the end of the round.
                    failures.push(format!("{} with little in flight: too long", seconds(stayed)));
                }
            }
            None if inflight.is_empty() || target(view, visit).is_none() => {
                let stayed = visit.to - visit.from;
                lengths.push(stayed);
                if stayed < DURATION - slack {
                    failures.push(format!("lasted {}, not 200 ms", seconds(stayed)));
                }
            }
            None => failures
                .push(format!("what is in flight did not fall to half the BDP at {}", seconds(visit.from))),
        }
    }
    if lengths.is_empty() && failures.is_empty() {
        return not_judged(CHECK, "the log has no complete visit");
    }
    let shown: Vec<String> = lengths.iter().take(3).map(|s| seconds(*s)).collect();
    judged(CHECK, CASES, failures, format!("{} with little in flight", shown.join(", ")))
}

/// Its window is half of the estimated BDP, at least four packets.
pub(super) fn window(view: &View<'_>) -> Judgement {
    const CHECK: &str = "window of ProbeRTT";
    if !view.has(column::CWND_BYTES) {
        return not_judged(CHECK, "the log has no `congestion_window`");
    }
    let mut failures = Vec::new();
    let mut ratios = Vec::new();
    for visit in view.visits_to(State::ProbeRtt).filter(|v| v.is_complete) {
        let windows = view.series().points(column::CWND_BYTES, visit.from, visit.to - 1e-6);
        let least = windows.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        // The estimate may change while it lasts: that of the same sample counts.
        let Some((least, bdp)) = least.and_then(|(t, least)| Some((least, view.bdp(t)?))) else { continue };
        let target = (GAIN * bdp).max(4.0 * view.packet());
        let slack = (0.05 * target).max(2.0 * view.packet());
        // Recovery takes lost packets off.
        let is_lossy = view.losses(visit.from - view.slack(), visit.to) > 0.0;
        if least < target - slack && is_lossy {
            continue;
        }
        ratios.push(least / bdp);
        if (least - target).abs() > slack {
            failures.push(format!("{} of the estimated BDP, not 0.5", digits(least / bdp)));
        }
    }
    if ratios.is_empty() {
        return not_judged(
            CHECK,
            "the log has no complete visit with a window, a bandwidth estimate and no losses",
        );
    }
    judged(CHECK, CASES, failures, format!("{} of the estimated BDP, or four packets", digits(ratios[0])))
}

/// `ProbeRTTCwnd()`, for the highest bandwidth estimate of a visit.
fn target(view: &View<'_>, visit: &Visit) -> Option<f64> {
    let times = view.series().points(column::BW_BPS, visit.from, visit.to);
    let bdps = times.iter().filter_map(|(t, _)| view.bdp(*t)).chain(view.bdp(visit.from));
    Some((GAIN * bdps.reduce(f64::max)?).max(4.0 * view.packet()))
}

//! Whether a run is valid.

use crate::emulator::{Audit, micros};
use crate::flow::FlowReport;
use fullpipe_experiment::recording::{Health, Waits};
use fullpipe_units::{Rate, Span};

/// The result of the audit.
pub(crate) struct Verdict {
    pub(crate) health: Health,
    /// Why the run is invalid; empty if it is valid.
    pub(crate) invalid_because: Vec<String>,
}

/// Largest allowed lateness at the 99th percentile; lateness is jitter that the scenario did not
/// ask for. A twentieth of the round trip, at least 1 ms (below that the kernel's timers and the
/// ends' scheduling dominate) and at most 5 ms (the smallest that affects a rate sample over a few
/// packets). For round trips under 2 ms, where the emulator spins: 250 µs.
pub(crate) fn lateness_bound(base_rtt: Span) -> Span {
    if base_rtt < Span::from_millis(2) {
        return Span::from_micros(250);
    }
    (base_rtt / 20).clamp(Span::from_millis(1), Span::from_millis(5))
}

/// The shortest retransmission timeout beyond the round trip (`TCP_RTO_MIN`).
const RTO_MIN: Span = Span::from_millis(200);

/// A flow that starts late changes the scenario: at most a hundredth of `duration`, or 20 ms, is
/// allowed.
pub(crate) fn late_start(flow: &FlowReport, duration: Span) -> Option<String> {
    let bound = (duration / 100).max(Span::from_millis(20));
    (flow.late > bound).then(|| {
        format!(
            "{} started {} late, at most {bound} is allowed: the machine was too busy",
            flow.recording.label, flow.late
        )
    })
}

/// TCP cannot send what its application has not written.
pub(crate) fn starved(flow: &FlowReport) -> Option<String> {
    (flow.starved > 0.02).then(|| {
        format!(
            "{}: at {:.0} % of the samples its application had left TCP without data: the ends lacked \
             processor time, or its send buffer is small",
            flow.recording.label,
            flow.starved * 100.0
        )
    })
}

/// Below this rate any machine keeps up with both ends and the emulator.
pub(crate) const KEEPS_UP_BELOW: Rate = Rate::from_bits_per_sec(500_000_000);

/// Largest share of a run that an end may wait for a processor. Measured
/// (docs/evidence/lab-scheduling.md): at most a twelfth next to compilers of lower priority, half
/// next to one busy program per processor.
const MAX_WAITED: f64 = 0.2;

/// An end that waits for a processor answers late, so the run measures the machine.
pub(crate) fn waited(waits: &Waits) -> Vec<String> {
    let mut because = Vec::new();
    for (end, share) in [("client", waits.client), ("server", waits.server)] {
        if share > MAX_WAITED {
            because.push(format!(
                "the {end}'s end waited for a processor for {:.0} % of the run, at most {:.0} % is \
                 allowed: other programs used the processors",
                share * 100.0,
                MAX_WAITED * 100.0
            ));
        }
    }
    if waits.end_max_ms >= RTO_MIN.as_millis_f64() {
        because.push(format!(
            "an end waited {:.0} ms for a processor, which TCP may have treated as loss: other programs \
             used the processors",
            waits.end_max_ms
        ));
    }
    because
}

/// An end that waits for a processor while its socket is locked delays acknowledgements, after
/// which unpaced flows send a burst: in slow start two packets for each that arrived meanwhile. So
/// a queue that drains in twice the wait overflows, whatever the path (measured:
/// docs/evidence/lab-scheduling.md). `shortest` is the drain time of the queue that overflowed.
pub(crate) fn burst(waits: &Waits, shortest: Span) -> Option<String> {
    (waits.end_p99_ms > shortest.as_millis_f64() / 2.0).then(|| {
        format!(
            "the ends waited up to {:.1} ms for a processor (99th percentile), and a queue overflowed \
             that drains in {shortest}, less than twice that: unpaced flows send in bursts then; other \
             programs used the processors",
            waits.end_p99_ms
        )
    })
}

/// Judges a run of `duration`.
pub(crate) fn judge(audit: &Audit, stray_drops: u64, base_rtt: Span, duration: Span) -> Verdict {
    let p99 = micros(&audit.lateness, 0.99);
    let bound = lateness_bound(base_rtt);
    let mut invalid_because = Vec::new();
    if p99 > bound.as_nanos() as f64 / 1e3 {
        invalid_because.push(format!(
            "the emulator was late: p99 {:.2} ms, at most {} is allowed at this round trip; other programs \
             may have used the processors",
            p99 / 1e3,
            bound
        ));
    }
    // A single stall does not show in the 99th percentile, because a flow without ACKs soon stops
    // sending.
    let stalled = Span::from_nanos(audit.lateness.max());
    if stalled >= RTO_MIN {
        invalid_because.push(format!(
            "the emulator stalled for {stalled}, which TCP may have treated as loss; other programs may \
             have used the processors"
        ));
    }
    let lost = audit.ring_drops + audit.send_failures + stray_drops;
    if lost > 0 {
        invalid_because.push(format!(
            "{lost} packets were lost outside the emulated path ({} unread, {} refused by the kernel, \
             {stray_drops} on interfaces): the machine is too slow or too busy for this rate",
            audit.ring_drops, audit.send_failures
        ));
    }
    let health = Health {
        lateness_p50_us: micros(&audit.lateness, 0.5),
        lateness_p99_us: p99,
        lateness_max_us: micros(&audit.lateness, 1.0),
        read_latency_p99_us: micros(&audit.read_latency, 0.99),
        stray_drops: lost,
        emulator_cpu: audit.cpu.as_secs_f64() / duration.as_secs_f64().max(1e-9),
        waits: None,
        notes: Vec::new(),
    };
    Verdict { health, invalid_because }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lateness_bound_grows_with_the_round_trip() {
        assert_eq!(lateness_bound(Span::from_micros(200)), Span::from_micros(250));
        assert_eq!(lateness_bound(Span::from_millis(10)), Span::from_millis(1));
        assert_eq!(lateness_bound(Span::from_millis(40)), Span::from_millis(2));
        assert_eq!(lateness_bound(Span::from_secs(1)), Span::from_millis(5));
    }

    #[test]
    fn one_packet_dropped_by_the_machine_invalidates_a_run() {
        let mut audit = Audit::new();
        audit.late(Span::from_micros(50), 1000);
        let second = Span::from_secs(1);
        assert!(judge(&audit, 0, Span::from_millis(40), second).invalid_because.is_empty());
        let verdict = judge(&audit, 1, Span::from_millis(40), second);
        assert!(verdict.invalid_because[0].contains("outside the emulated path"));
        audit.late(Span::from_millis(3), 1000);
        let verdict = judge(&audit, 0, Span::from_millis(40), second);
        assert!(verdict.invalid_because[0].contains("late"), "{:?}", verdict.invalid_because);
    }

    #[test]
    fn an_end_that_waits_for_a_processor_invalidates_a_run() {
        let quiet = Waits { client: 0.01, server: 0.02, end_max_ms: 40.0, ..Waits::default() };
        assert_eq!(waited(&quiet), Vec::<String>::new());
        let busy = Waits { server: 0.31, end_max_ms: 250.0, ..quiet };
        let because = waited(&busy);
        assert_eq!(because.len(), 2, "{because:?}");
        assert!(because[0].contains("server's end waited") && because[0].contains("31 %"), "{because:?}");
        assert!(because[1].contains("250 ms"), "{because:?}");
    }

    #[test]
    fn waits_of_half_a_queues_drain_time_invalidate_unpaced_runs() {
        let queue = Span::from_micros(2400);
        let waits = |ms| Waits { end_p99_ms: ms, ..Waits::default() };
        assert_eq!(burst(&waits(1.1), queue), None);
        let because = burst(&waits(1.44), queue).unwrap();
        assert!(because.contains("1.4 ms") && because.contains("2.4ms"), "{because}");
    }

    #[test]
    fn one_long_stall_invalidates_an_otherwise_punctual_run() {
        let judged = |stall| {
            let mut audit = Audit::new();
            audit.late(Span::from_micros(50), 100_000);
            audit.late(stall, 1);
            judge(&audit, 0, Span::from_millis(40), Span::from_secs(10)).invalid_because
        };
        assert!(judged(Span::from_millis(150)).is_empty());
        let because = judged(Span::from_millis(300));
        assert!(because.len() == 1 && because[0].contains("stalled for 30"), "{because:?}");
    }
}

//! Spurious losses are undone.

use crate::experiment::{Experiment, trigger};
use crate::observed::Observed;
use crate::{Case, Judgement};
use fullpipe_experiment::recording::{EventKind, column};

pub(super) const FAST_RECOVERY: Case = Case {
    name: "handling-spurious-fast-recovery",
    heading: "Handling Spurious Fast Recovery",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // Some packets take nearly a round trip longer: RACK marks them lost, DSACK shows they were not.
        let link = format!("reorder = {{ share = \"0.02%\", by = \"{:.6}s\" }}", 0.8 * rtt);
        vec![Experiment { link, ..Experiment::new(s, 14.0, rtt / 10.0, "8bdp", fast_recovery) }]
    },
};

fn fast_recovery(o: &Observed<'_>, c: &mut Judgement) {
    let spurious = o.events(EventKind::SpuriousLoss);
    // A QUIC stack need not tell its controller.
    if o.is_quic && spurious.is_empty() {
        return c.not_judged("the stack reported no spurious loss");
    }
    c.expect(!spurious.is_empty(), || "reordering was never recognised as a spurious loss".into());
    for t in &spurious {
        let entered =
            o.events(EventKind::RecoveryEntered).into_iter().filter(|e| e <= t).fold(f64::NAN, f64::max);
        // Bounds are at least what they were before the episode; none is infinite.
        for name in [column::INFLIGHT_SHORTTERM_BYTES, column::INFLIGHT_LONGTERM_BYTES] {
            let before = o.at(name, entered - o.step());
            let after = o.after_row(name, *t);
            c.expect(after.is_nan() || (before.is_finite() && after >= before), || {
                format!("{name} {before:.0} before, {after:.0} after the undo")
            });
        }
        cwnd_is_restored(o, c, entered, *t, o.after_row(column::CWND_BYTES, *t));
    }
    o.link_is_filled(c, 0.85, 3.0, o.end);
}

/// The window is what it was before the episode, unless ProbeRTT intervened.
fn cwnd_is_restored(o: &Observed<'_>, c: &mut Judgement, began: f64, undone: f64, after: f64) {
    let probe_rtt = o.visits("ProbeRTT").iter().any(|(a, b)| *a <= undone + 0.1 && began - 3.0 * o.rtt <= *b);
    let before = o.at(column::CWND_BYTES, began - o.step());
    c.expect(probe_rtt || after >= 0.75 * before, || {
        format!("cwnd {before:.0} before, {after:.0} after the undo")
    });
}

pub(super) const RTO: Case = Case {
    name: "handling-spurious-rto-recovery",
    heading: "Handling Spurious RTO Recovery",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // In UP the path becomes a second longer for 0.2 s: nothing is lost, but the timer fires.
        let delay = |seconds: f64| format!("delay = '{seconds:.6}s'");
        let triggers = trigger("state = 'ProbeBW_UP'", &delay(rtt / 2.0 + 1.0))
            + &trigger("state = 'ProbeBW_UP', delay = '200ms'", &delay(rtt / 2.0));
        vec![Experiment { triggers, ..Experiment::new(s, 12.0, rtt / 10.0, "16bdp", rto) }]
    },
};

fn rto(o: &Observed<'_>, c: &mut Judgement) {
    if o.is_quic {
        return c.not_judged(
            "QUIC has no retransmission timeout: a probe timeout declares nothing lost (RFC 9002 §6.2)",
        );
    }
    let timeouts = o.events(EventKind::RetransmissionTimeout);
    let spurious = o.events(EventKind::SpuriousLoss);
    c.expect(!timeouts.is_empty(), || "the timer never fired".into());
    c.expect(!spurious.is_empty(), || "the timeout was never recognised as spurious".into());
    let (Some(fired), Some(undone)) = (timeouts.first(), spurious.first()) else { return };
    let low = o.min(column::CWND_BYTES, *fired, *undone);
    c.expect(low <= 6.0 * o.smss, || format!("cwnd stayed at {low:.0} after the timeout"));
    cwnd_is_restored(o, c, *fired, *undone, o.after_row(column::CWND_BYTES, undone + o.step()));
    o.bw_matches_the_rate(c, o.end, 0.1);
    o.link_is_filled(c, 0.85, o.end - 4.0, o.end);
}

//! What limited the sender, as far as its log shows it.

use super::windows::{Window, Windows};
use crate::connection::{FULL_SHARE, QUEUE_SEGMENTS, QUEUE_SHARE};
use crate::quantity;
use fullpipe_experiment::connection::{Interval, LimitShare, Limitation, Limits};
use fullpipe_units::{Rate, Span};

/// Share of what the pacing rate allows from which pacing was the limit.
const PACED_SHARE: f64 = 0.9;

/// The path of a connection.
pub(super) struct Path {
    pub(super) rtprop_ms: Option<f64>,
    pub(super) btlbw: Option<Rate>,
    /// The controller's bandwidth estimate.
    pub(super) estimate_bps: Option<f64>,
    pub(super) packet_bytes: u64,
    /// Whether the pacing rates are in the unit that qlog defines.
    pub(super) pacing_is_sound: bool,
}

/// The limits over time. Time without any evidence belongs to no limit.
pub(super) fn limits(windows: &Windows, path: &Path) -> Limits {
    let mut spent = [0_u64; Limitation::ALL.len()];
    let mut observed = 0_u64;
    let mut intervals: Vec<Interval> = Vec::new();
    let mut rtt_ms = 0.0;
    let (width, windows) = windows.all();
    for (i, window) in windows.iter().enumerate() {
        // Without a sample, the latest still tells of the queue.
        rtt_ms = if window.rtt_ms > 0.0 { window.rtt_ms } else { rtt_ms };
        let window = &Window { rtt_ms, ..*window };
        observed += window.observed;
        let [application, flow_control, full, pacer] = window.blocked;
        let rest = window.observed.saturating_sub(application).saturating_sub(flow_control);
        let by_path = by_path(window, path, rest, full, pacer);
        let parts = [
            (Some(Limitation::Application), application),
            (Some(Limitation::ReceiveWindow), flow_control),
            (by_path, rest),
        ];
        for (by, time) in parts {
            if let Some(sum) = by.and_then(|by| spent.get_mut(by as usize)) {
                *sum += time;
            }
        }
        let most =
            parts.into_iter().max_by_key(|(_, time)| *time).and_then(|(by, time)| by.filter(|_| time > 0));
        let from = width * i as u64;
        let to = from + Span::from_nanos(window.observed);
        if let Some(by) = most {
            match intervals.last_mut() {
                Some(last) if last.by == by && last.to == from => last.to = to,
                _ => intervals.push(Interval { from, to, by }),
            }
        }
    }
    if observed == 0 {
        return Limits::default();
    }
    let mut shares: Vec<LimitShare> = Limitation::ALL
        .into_iter()
        .zip(spent)
        .filter(|(_, time)| *time > 0)
        .map(|(by, time)| LimitShare { by, share: time as f64 / observed as f64 })
        .collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    let known: f64 = shares.iter().map(|s| s.share).sum();
    let mut words = Vec::new();
    if known < 0.95 {
        words.push(format!("the log does not show what limited {:.0} % of the time", (1.0 - known) * 100.0));
    }
    if let Some(rate) = path.btlbw.filter(|_| shares.iter().any(|s| s.by == Limitation::Bandwidth)) {
        words.push(format!("the path was full at {}", quantity::rate(rate)));
    }
    Limits { shares, intervals, words }
}

/// The limit of the time in which the sender had data and credit.
fn by_path(window: &Window, path: &Path, rest: u64, full: u64, pacer: u64) -> Option<Limitation> {
    if rest == 0 {
        return None;
    }
    let delivered = window.delivered as f64 * 8e9 / rest as f64;
    let is_full = path.btlbw.is_some_and(|b| delivered >= FULL_SHARE * b.as_bits_per_sec_f64());
    let rate = path.btlbw.map(|b| b.as_bits_per_sec_f64()).or(path.estimate_bps).filter(|r| *r > 0.0);
    let has_queue = path.rtprop_ms.zip(rate).is_some_and(|(rtprop, rate)| {
        let packets_ms = QUEUE_SEGMENTS as f64 * path.packet_bytes as f64 * 8e3 / rate;
        window.rtt_ms > rtprop * (1.0 + QUEUE_SHARE) + packets_ms
    });
    let paced = (path.pacing_is_sound && window.paced_time > 0)
        .then(|| window.paced * rest as f64 / window.paced_time as f64)
        .filter(|bytes| *bytes > 0.0);
    let is_paced = paced.is_some_and(|allowed| window.sent as f64 >= PACED_SHARE * allowed);
    if is_full || has_queue {
        Some(Limitation::Bandwidth)
    } else if full * 2 >= rest {
        Some(Limitation::CongestionWindow)
    } else if is_paced || pacer * 2 >= rest {
        Some(Limitation::Pacing)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::windows::Block;
    use super::*;
    use fullpipe_units::Time;

    fn path() -> Path {
        Path {
            rtprop_ms: Some(40.0),
            btlbw: None,
            estimate_bps: Some(100e6),
            packet_bytes: 1200,
            pacing_is_sound: true,
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn each_kind_of_evidence_is_its_limit() {
        let mut windows = Windows::new(Time::ZERO, 4000);
        windows.pass(at(100), Block::Application, None);
        windows.pass(at(300), Block::FlowControl, None);
        windows.pass(at(600), Block::Window, None);
        windows.pass(at(1000), Block::Pacer, None);
        windows.pass(at(2000), Block::None, None);
        let found = limits(&windows, &path());
        for (by, share) in [
            (Limitation::Application, 0.05),
            (Limitation::ReceiveWindow, 0.1),
            (Limitation::CongestionWindow, 0.15),
            (Limitation::Pacing, 0.2),
        ] {
            assert!((found.share(by) - share).abs() < 1e-9, "{by:?}: {:?}", found.shares);
        }
        assert!(found.words[0].contains("50 %"), "{:?}", found.words);
        assert_eq!(found.intervals.len(), 4);
        assert_eq!(found.intervals[1].to, Span::from_millis(300));
    }

    #[test]
    fn queue_or_full_rate_is_the_bandwidth() {
        let mut windows = Windows::new(Time::ZERO, 1000);
        for ms in 0..100 {
            windows.pass(at(ms * 10), Block::Window, Some(100e6));
            windows.add_rtt(if ms < 50 { 40.0 } else { 60.0 });
        }
        let found = limits(&windows, &path());
        assert!((0.45..0.55).contains(&found.share(Limitation::Bandwidth)), "{:?}", found.shares);
        assert!((0.45..0.55).contains(&found.share(Limitation::CongestionWindow)), "{:?}", found.shares);
    }

    #[test]
    fn sending_at_the_pacing_rate_is_pacing() {
        let mut windows = Windows::new(Time::ZERO, 1000);
        for ms in 1..=100 {
            windows.pass(at(ms), Block::None, Some(8e6));
            windows.add_sent(if ms <= 50 { 1000 } else { 100 });
        }
        let found = limits(&windows, &path());
        assert!((0.4..0.6).contains(&found.share(Limitation::Pacing)), "{:?}", found.shares);
    }
}

//! What limited a connection between two samples, from the kernel's own accounting.
//!
//! `tcpi_busy_time` runs while data is queued or outstanding, and within it `tcpi_rwnd_limited`
//! while the receive window is full and `tcpi_sndbuf_limited` while the send buffer is
//! (`tcp_chrono_start`, net/ipv4/tcp_output.c). The rest of it is limited by the network: by the
//! congestion window where the path had spare capacity, otherwise by its bandwidth.

use crate::connection::Figures;
use fullpipe_experiment::connection::{LimitShare, Limitation};
use fullpipe_kernel::tcp_info::{PathSender, TcpInfo};
use fullpipe_units::Span;

/// The kernel's accounting of a connection's time since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    busy: Span,
    receiver: Span,
    buffer: Span,
}

impl Times {
    /// `None` from kernels without it (before 4.10).
    pub(crate) fn from_tcp_info(info: &TcpInfo) -> Option<Times> {
        Some(Times { busy: info.busy_time?, receiver: info.rwnd_limited?, buffer: info.sndbuf_limited? })
    }
}

/// Shares of the time between two samples, largest first; empty if no time passed. `now` is the
/// connection at the second sample.
///
/// Whether the window or the path limits the rest of the time is decided as in `diagnose`, by
/// [`PathSender::is_path_limited`].
pub(crate) fn shares(
    before: &Times,
    after: &Times,
    now: &Figures,
    elapsed: Span,
    sender: &PathSender<'_>,
) -> Vec<LimitShare> {
    let since = |time: fn(&Times) -> Span| time(after).as_secs_f64() - time(before).as_secs_f64();
    let (busy, receiver, buffer) = (since(|t| t.busy), since(|t| t.receiver), since(|t| t.buffer));
    let elapsed = elapsed.as_secs_f64();
    if elapsed <= 0.0 {
        return Vec::new();
    }
    // The kernel counts in jiffies of a millisecond or more, so busy time may slightly exceed the
    // elapsed time.
    let share_of = |seconds: f64| (seconds / elapsed).clamp(0.0, 1.0);
    let (busy, receiver, buffer) = (share_of(busy), share_of(receiver), share_of(buffer));
    // So may the sum of both.
    let sum = (receiver + buffer).max(1.0);
    let (receiver, buffer) = (receiver / sum, buffer / sum);
    let network = (busy - receiver - buffer).max(0.0);
    let mut shares = [
        (Limitation::Application, 1.0 - busy.max(receiver + buffer)),
        (Limitation::ReceiveWindow, receiver),
        (Limitation::SendBuffer, buffer),
        (network_limit(now, sender), network),
    ]
    .map(|(by, share)| LimitShare { by, share: share.max(0.0) })
    .to_vec();
    // Network time may turn out to be application-limited.
    if let [application, .., rest] = &mut shares[..]
        && rest.by == Limitation::Application
    {
        application.share += rest.share;
        rest.share = 0.0;
    }
    shares.retain(|s| s.share > 0.0);
    // Most lists have one entry, and there is one list per connection.
    shares.shrink_to_fit();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

fn network_limit(now: &Figures, sender: &PathSender<'_>) -> Limitation {
    let nothing_unsent = now.unsent_bytes == Some(0);
    // All data is in flight and the window had room for more.
    if nothing_unsent && now.inflight_segments < now.cwnd_segments && now.delivery_app_limited {
        return Limitation::Application;
    }
    window_or_bandwidth(sender)
}

/// Whether the congestion window or the path's bandwidth was the limit.
pub(crate) fn window_or_bandwidth(sender: &PathSender<'_>) -> Limitation {
    match sender.is_path_limited() {
        true => Limitation::Bandwidth,
        false => Limitation::CongestionWindow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(controller: &str, srtt: u64) -> PathSender<'_> {
        let (srtt, min_rtt) = (Span::from_millis(srtt), Some(Span::from_millis(40)));
        PathSender { controller, has_model: controller != "cubic", srtt, min_rtt, ..PathSender::default() }
    }

    fn times(busy_ms: u64, receiver_ms: u64, buffer_ms: u64) -> Times {
        let mut bytes = [0; 248];
        let mut micros = |at: usize, ms: u64| bytes[at..at + 8].copy_from_slice(&(ms * 1000).to_ne_bytes());
        micros(168, busy_ms);
        micros(176, receiver_ms);
        micros(184, buffer_ms);
        Times::from_tcp_info(&TcpInfo::decode(&bytes).unwrap()).unwrap()
    }

    fn figures() -> Figures {
        Figures::from_tcp_info(&TcpInfo::decode(&[0; 248]).unwrap())
    }

    fn named(shares: &[LimitShare]) -> Vec<(Limitation, i64)> {
        shares.iter().map(|s| (s.by, (s.share * 100.0).round() as i64)).collect()
    }

    #[test]
    fn time_between_samples_is_divided() {
        let (before, after) = (times(5000, 1000, 0), times(5800, 1500, 100));
        let shares = shares(&before, &after, &figures(), Span::from_secs(1), &sender("cubic", 40));
        assert_eq!(
            named(&shares),
            [
                (Limitation::ReceiveWindow, 50),
                (Limitation::Application, 20),
                (Limitation::CongestionWindow, 20),
                (Limitation::SendBuffer, 10)
            ]
        );
        assert!((shares.iter().map(|s| s.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_standing_queue_or_a_model_means_bandwidth_limited() {
        let (before, after) = (times(0, 0, 0), times(1000, 0, 0));
        let mut now = figures();
        (now.cwnd_segments, now.inflight_segments, now.unsent_bytes) = (10, 10, Some(1));
        let dominant = |now: &Figures, by: &PathSender<'_>| {
            named(&shares(&before, &after, now, Span::from_secs(1), by))[0].0
        };
        assert_eq!(dominant(&now, &sender("cubic", 41)), Limitation::CongestionWindow);
        assert_eq!(dominant(&now, &sender("bbr", 41)), Limitation::Bandwidth);
        assert_eq!(dominant(&now, &sender("cubic", 80)), Limitation::Bandwidth);
        // As in `diagnose`: BBR v3 that loses more than 2 % is slowed down by its response.
        let lossy = PathSender { loss: 0.05, bbr_version: Some(3), ..sender("bbr", 41) };
        assert_eq!(dominant(&now, &lossy), Limitation::CongestionWindow);
        (now.inflight_segments, now.unsent_bytes, now.delivery_app_limited) = (3, Some(0), true);
        assert_eq!(dominant(&now, &sender("bbr", 80)), Limitation::Application);
    }

    #[test]
    fn no_accounting_or_no_elapsed_time_gives_no_shares() {
        assert!(Times::from_tcp_info(&TcpInfo::decode(&[0; 104]).unwrap()).is_none());
        assert_eq!(shares(&times(0, 0, 0), &times(0, 0, 0), &figures(), Span::ZERO, &sender("bbr", 40)), []);
    }
}

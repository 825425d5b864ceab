//! What limited a connection between two looks, from the kernel's own account of it.
//!
//! `tcpi_busy_time` runs while there is something to send or outstanding, and within it `tcpi_rwnd_limited` while the
//! receiver's window is full and `tcpi_sndbuf_limited` while the send buffer is (`tcp_chrono_start`, net/ipv4/tcp_output.c).
//! What is left of it is the network's: the congestion window where the path would have carried more, or the path's
//! bandwidth.

use crate::connection::Figures;
use fullpipe_experiment::connection::{LimitShare, Limitation};
use fullpipe_kernel::tcp_info::TcpInfo;
use fullpipe_units::Span;

/// The kernel's account of a connection's time since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    busy: Span,
    receiver: Span,
    buffer: Span,
}

impl Times {
    /// None where the kernel keeps no account (before 4.10).
    pub(crate) fn of(info: &TcpInfo) -> Option<Times> {
        Some(Times { busy: info.busy_time?, receiver: info.rwnd_limited?, buffer: info.sndbuf_limited? })
    }
}

/// The shares of the time between two looks that lay `elapsed` apart, the greatest first; nothing where no time passed.
/// `now` is what the connection was at the second.
///
/// `modelled` says that the controller sends at the bandwidth that it believes in (BBR), so that what holds it back is the
/// path.
pub(crate) fn shares(
    before: &Times,
    after: &Times,
    now: &Figures,
    elapsed: Span,
    modelled: bool,
) -> Vec<LimitShare> {
    let since = |of: fn(&Times) -> Span| of(after).as_secs_f64() - of(before).as_secs_f64();
    let (busy, receiver, buffer) = (since(|t| t.busy), since(|t| t.receiver), since(|t| t.buffer));
    let elapsed = elapsed.as_secs_f64();
    if elapsed <= 0.0 {
        return Vec::new();
    }
    // The kernel's ticks are milliseconds and more: what is busy throughout may come out a little longer than the time.
    let part = |seconds: f64| (seconds / elapsed).clamp(0.0, 1.0);
    let (busy, receiver, buffer) = (part(busy), part(receiver), part(buffer));
    // So may both together.
    let over = (receiver + buffer).max(1.0);
    let (receiver, buffer) = (receiver / over, buffer / over);
    let network = (busy - receiver - buffer).max(0.0);
    let mut shares = [
        (Limitation::Application, 1.0 - busy.max(receiver + buffer)),
        (Limitation::ReceiveWindow, receiver),
        (Limitation::SendBuffer, buffer),
        (of_the_network(now, modelled), network),
    ]
    .map(|(by, share)| LimitShare { by, share: share.max(0.0) })
    .to_vec();
    // The rest of what the network had may have been the application's after all.
    if let [application, .., rest] = &mut shares[..]
        && rest.by == Limitation::Application
    {
        application.share += rest.share;
        rest.share = 0.0;
    }
    shares.retain(|s| s.share > 0.0);
    // Most have one, and there is one list a connection.
    shares.shrink_to_fit();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

fn of_the_network(now: &Figures, modelled: bool) -> Limitation {
    let nothing_waits = now.unsent_bytes == Some(0);
    // In flight is all there was, and the window would have let more out.
    if nothing_waits && now.inflight_segments < now.cwnd_segments && now.delivery_app_limited {
        return Limitation::Application;
    }
    window_or_path(modelled, now.srtt, now.min_rtt)
}

/// Whether the window held data back or the path did.
pub(crate) fn window_or_path(modelled: bool, srtt: Span, min_rtt: Option<Span>) -> Limitation {
    if modelled {
        return Limitation::Bandwidth;
    }
    // A window that makes a queue fills the path; one that does not leaves some of it unused. Receivers that delay their
    // ACKs make round trips of LANs look longer by a millisecond or so.
    let queue = min_rtt.map(|least| srtt.as_millis_f64() - least.as_millis_f64());
    let least = min_rtt.map_or(0.0, Span::as_millis_f64);
    if queue.is_some_and(|queue| queue > (least / 4.0).max(1.0)) {
        Limitation::Bandwidth
    } else {
        Limitation::CongestionWindow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(busy_ms: u64, receiver_ms: u64, buffer_ms: u64) -> Times {
        let mut bytes = [0; 248];
        let mut micros = |at: usize, ms: u64| bytes[at..at + 8].copy_from_slice(&(ms * 1000).to_ne_bytes());
        micros(168, busy_ms);
        micros(176, receiver_ms);
        micros(184, buffer_ms);
        Times::of(&TcpInfo::decode(&bytes).unwrap()).unwrap()
    }

    fn figures() -> Figures {
        Figures::of(&TcpInfo::decode(&[0; 248]).unwrap())
    }

    fn named(shares: &[LimitShare]) -> Vec<(Limitation, i64)> {
        shares.iter().map(|s| (s.by, (s.share * 100.0).round() as i64)).collect()
    }

    #[test]
    fn the_times_between_two_looks_are_divided() {
        let (before, after) = (times(5000, 1000, 0), times(5800, 1500, 100));
        let shares = shares(&before, &after, &figures(), Span::from_secs(1), false);
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
    fn a_standing_queue_or_a_model_says_that_the_path_was_full() {
        let (before, after) = (times(0, 0, 0), times(1000, 0, 0));
        let mut now = figures();
        (now.cwnd_segments, now.inflight_segments, now.unsent_bytes) = (10, 10, Some(1));
        let most =
            |now: &Figures, modelled| named(&shares(&before, &after, now, Span::from_secs(1), modelled))[0].0;
        (now.min_rtt, now.srtt) = (Some(Span::from_millis(40)), Span::from_millis(41));
        assert_eq!(most(&now, false), Limitation::CongestionWindow);
        assert_eq!(most(&now, true), Limitation::Bandwidth);
        now.srtt = Span::from_millis(80);
        assert_eq!(most(&now, false), Limitation::Bandwidth);
        (now.inflight_segments, now.unsent_bytes, now.delivery_app_limited) = (3, Some(0), true);
        assert_eq!(most(&now, true), Limitation::Application);
    }

    #[test]
    fn an_old_kernel_tells_nothing_and_no_time_is_no_division() {
        assert!(Times::of(&TcpInfo::decode(&[0; 104]).unwrap()).is_none());
        assert_eq!(shares(&times(0, 0, 0), &times(0, 0, 0), &figures(), Span::ZERO, false), []);
    }
}

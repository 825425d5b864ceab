//! Proportional Rate Reduction: how much to send on each ACK of a fast recovery, so that the window
//! reaches its reduced size smoothly and without bursts. RFC 6937 with the reduction bound that
//! Linux uses (`tcp_cwnd_reduction`, PRR-SSRB): slow start towards the threshold while recovery
//! makes progress without further loss, packet conservation otherwise.

/// The state of one fast recovery. Payload bytes.
/// The sender creates one at the start of fast recovery if the controller
/// [`uses_prr`](crate::CongestionControl::uses_prr), uses [`cwnd`](Self::cwnd) instead of the
/// controller's during recovery, and drops it at the end.
///
/// ```
/// use fullpipe_cc::Prr;
///
/// // A window of 20 packets of 1000 bytes; the controller wants 10.
/// let mut prr = Prr::new(20_000, 1000);
/// let mut inflight = 19_000;
/// for _ in 0..18 {
///     inflight -= 1000;
///     let cwnd = prr.on_ack(1000, 0, inflight, 10_000, false);
///     while inflight + 1000 <= cwnd {
///         prr.on_sent(1000);
///         inflight += 1000;
///     }
/// }
/// assert_eq!(inflight, 10_000); // one packet out for every two delivered
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prr {
    prior_cwnd: u64,
    smss: u64,
    delivered: u64,
    out: u64,
    cwnd: u64,
}

impl Prr {
    /// Starts a recovery with a window of `prior_cwnd` bytes before the reduction.
    pub fn new(prior_cwnd: u64, smss: u32) -> Self {
        Prr { prior_cwnd: prior_cwnd.max(1), smss: u64::from(smss), delivered: 0, out: 0, cwnd: prior_cwnd }
    }

    /// Sets the size of the largest packet to `smss` bytes.
    pub fn on_mtu(&mut self, smss: u32) {
        self.smss = u64::from(smss);
    }

    /// Records a packet of `bytes`, new or retransmitted, sent during recovery.
    pub fn on_sent(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
    }

    /// Processes an ACK during recovery that acknowledged `newly_acked` bytes and revealed
    /// `newly_lost` lost bytes, leaving `inflight`; `advanced` is whether it advanced the
    /// cumulative acknowledgement. Returns the window until the next ACK.
    pub fn on_ack(
        &mut self,
        newly_acked: u64,
        newly_lost: u64,
        inflight: u64,
        ssthresh: u64,
        advanced: bool,
    ) -> u64 {
        if newly_acked == 0 {
            return self.cwnd;
        }
        self.delivered = self.delivered.saturating_add(newly_acked);
        let may_send = if inflight > ssthresh {
            let share = (u128::from(ssthresh) * u128::from(self.delivered))
                .div_ceil(u128::from(self.prior_cwnd))
                .min(u128::from(u64::MAX)) as u64;
            share.saturating_sub(self.out)
        } else {
            let mut send = self.delivered.saturating_sub(self.out).max(newly_acked);
            if advanced && newly_lost == 0 {
                send = send.saturating_add(self.smss);
            }
            send.min(ssthresh - inflight)
        };
        // The first retransmission of a recovery is always allowed.
        let floor = if self.out == 0 { self.smss } else { 0 };
        self.cwnd = inflight.saturating_add(may_send.max(floor));
        self.cwnd
    }

    /// The current window in bytes.
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Recovers from `lost` losses out of `window` packets towards `ssthresh`: the window at the
    /// end and the most packets one ACK released.
    fn recover(window: u64, lost: u64, ssthresh: u64) -> (u64, u64) {
        let mut prr = Prr::new(window * 1000, 1000);
        let (mut inflight, mut burst) = ((window - lost) * 1000, 0);
        for _ in 0..window - lost {
            inflight -= 1000;
            let cwnd = prr.on_ack(1000, 0, inflight, ssthresh * 1000, false);
            let mut sent = 0;
            while inflight + 1000 <= cwnd {
                prr.on_sent(1000);
                inflight += 1000;
                sent += 1;
            }
            burst = burst.max(sent);
        }
        (inflight / 1000, burst)
    }

    #[test]
    fn a_single_loss_ends_at_ssthresh_without_a_burst() {
        assert_eq!(recover(100, 1, 70), (70, 1));
        assert_eq!(recover(100, 1, 50), (50, 1));
    }

    #[test]
    fn heavy_loss_falls_back_to_packet_conservation() {
        // 60 of 100 lost: inflight is below ssthresh at once, each ACK lets one packet out.
        assert_eq!(recover(100, 60, 70), (40, 1));
    }

    #[test]
    fn progress_without_loss_slow_starts_back_to_ssthresh() {
        let mut prr = Prr::new(100_000, 1000);
        assert_eq!(prr.on_ack(1000, 0, 20_000, 70_000, true), 22_000);
        prr.on_sent(2000);
        assert_eq!(prr.on_ack(1000, 1000, 20_000, 70_000, true), 21_000);
    }

    #[test]
    fn an_ack_that_delivers_nothing_changes_nothing() {
        let mut prr = Prr::new(10_000, 1000);
        let before = prr.on_ack(1000, 0, 8000, 5000, false);
        assert_eq!(prr.on_ack(0, 1000, 7000, 5000, false), before);
    }

    proptest! {
        #[test]
        fn the_window_never_exceeds_what_was_delivered_plus_ssthresh(
            window in 2u64..1000, lost_share in 0u64..100, thresh_share in 1u64..100
        ) {
            let lost = (window * lost_share / 100).clamp(1, window - 1);
            let ssthresh = (window * thresh_share / 100).max(2);
            let (end, burst) = recover(window, lost, ssthresh);
            prop_assert!(end <= ssthresh.max(window - lost));
            prop_assert!(burst <= 2);
        }

        #[test]
        fn absurd_numbers_do_not_panic(
            prior in any::<u64>(),
            smss in any::<u32>(),
            acks in prop::collection::vec(
                (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()),
                1..20,
            ),
        ) {
            let mut prr = Prr::new(prior, smss);
            for (acked, lost, inflight, ssthresh, advanced) in acks {
                prop_assert!(prr.on_ack(acked, lost, inflight, ssthresh, advanced) >= inflight || acked == 0);
                prr.on_sent(acked);
            }
        }
    }
}

//! NewReno: RFC 5681's slow start and congestion avoidance, RFC 6582's recovery, with the kernel's
//! counting of packets (`tcp_reno_cong_avoid`, `tcp_reno_ssthresh`): stretched ACKs count in full,
//! and a packet counts once it is fully acknowledged.

use crate::control::{Ack, Config};
use crate::loss_based::{Growth, LossBased, Window};
use crate::registry::{Build, BuildError, ControllerInfo, Settings};

/// Additive increase of a packet per round trip, multiplicative decrease to a half.
#[derive(Clone, Copy, Debug, Default)]
pub struct RenoGrowth;

impl Growth for RenoGrowth {
    #[inline]
    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        if window.is_limiting(ack) {
            window.reno(acked);
        }
    }

    #[inline]
    fn ssthresh(&mut self, window: &Window) -> u32 {
        (window.cwnd >> 1).max(2)
    }
}

/// The NewReno controller.
pub type Reno = LossBased<RenoGrowth>;

impl Build for Reno {
    const INFO: ControllerInfo = ControllerInfo {
        name: "reno",
        aliases: &["newreno"],
        kernel: Some("reno"),
        about: "NewReno (RFC 5681, RFC 6582): adds a packet per round trip, halves the window on loss",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        LossBased::new(config, RenoGrowth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{CongestionControl, Recovery, RecoveryContext, RecoveryState};
    use fullpipe_units::{Span, Time};

    struct Test {
        c: Reno,
        delivered: u64,
        now: Time,
    }

    impl Test {
        fn new() -> Self {
            let config = Config { smss: 1000, initial_cwnd: 10_000, seed: 0, ..Config::default() };
            Test { c: LossBased::new(&config, RenoGrowth), delivered: 0, now: Time::ZERO }
        }

        fn ack(&mut self, packets: u64) -> u64 {
            self.ack_with(packets, |ack| ack)
        }

        fn ack_with(&mut self, packets: u64, change: impl Fn(Ack) -> Ack) -> u64 {
            self.delivered += packets * 1000;
            let ack = Ack {
                newly_acked: packets * 1000,
                delivered: self.delivered,
                srtt: Some(Span::from_millis(100)),
                cwnd_limited: true,
                ..Ack::at(self.now)
            };
            self.c.on_ack(&change(ack));
            self.c.cwnd() / 1000
        }

        fn recovery(&mut self, event: Recovery, inflight: u64) -> u64 {
            let context = RecoveryContext {
                now: self.now,
                inflight: inflight * 1000,
                delivered: self.delivered,
                lost: 0,
            };
            self.c.on_recovery(event, &context);
            self.c.cwnd() / 1000
        }
    }

    #[test]
    fn slow_start_doubles_the_window_each_round_trip_whatever_the_acks_cover() {
        let mut t = Test::new();
        assert_eq!((0..10).map(|_| t.ack(1)).last(), Some(20));
        assert_eq!(t.ack(20), 40);
    }

    #[test]
    fn congestion_avoidance_adds_a_packet_each_window() {
        let mut t = Test::new();
        t.recovery(Recovery::EnterFast, 10);
        assert_eq!(t.recovery(Recovery::Exit, 5), 5);
        assert_eq!((0..4).map(|_| t.ack(1)).last(), Some(5));
        assert_eq!(t.ack(1), 6);
        assert_eq!(t.ack(6 + 7), 8);
    }

    #[test]
    fn a_loss_halves_the_window_once_a_recovery() {
        let mut t = Test::new();
        t.ack(10);
        assert_eq!(t.recovery(Recovery::EnterFast, 20), 10);
        assert_eq!(t.recovery(Recovery::EnterFast, 20), 10);
        assert_eq!(t.ack(8), 10, "no growth during recovery");
        assert_eq!(t.c.ssthresh(), 10_000);
    }

    #[test]
    fn the_window_is_never_halved_below_two_packets() {
        let mut t = Test::new();
        for _ in 0..10 {
            t.recovery(Recovery::EnterFast, 2);
            t.recovery(Recovery::Exit, 2);
        }
        assert_eq!(t.c.cwnd(), 2000);
    }

    #[test]
    fn a_spurious_loss_is_undone() {
        let mut t = Test::new();
        t.ack(10);
        t.recovery(Recovery::EnterFast, 20);
        assert_eq!(t.recovery(Recovery::Spurious, 20), 20);
        assert_eq!(t.c.ssthresh(), u64::MAX);
        let mut t = Test::new();
        t.ack(10);
        assert_eq!(t.recovery(Recovery::EnterRto, 0), 1);
        assert_eq!(t.recovery(Recovery::Spurious, 20), 20);
    }

    #[test]
    fn timeout_leaves_one_packet_and_halves_the_threshold_once() {
        let mut t = Test::new();
        t.ack(10);
        assert_eq!(t.recovery(Recovery::EnterRto, 0), 1);
        assert_eq!(t.c.ssthresh(), 10_000);
        // The timer backs off and fires again: nothing was delivered in between.
        t.recovery(Recovery::EnterRto, 0);
        assert_eq!(t.c.ssthresh(), 10_000);
        assert_eq!(t.ack(1), 2, "slow start");
        t.recovery(Recovery::EnterRto, 0);
        assert_eq!(t.c.ssthresh(), 2_000);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut t = Test::new();
        t.recovery(Recovery::EnterFast, 10);
        t.recovery(Recovery::Exit, 5);
        assert_eq!(t.ack_with(50, |ack| Ack { cwnd_limited: false, ..ack }), 5);
    }

    #[test]
    fn slow_start_continues_while_half_the_window_is_used() {
        let mut t = Test::new();
        let used = |inflight| move |ack| Ack { cwnd_limited: false, inflight_before: inflight, ..ack };
        assert_eq!(t.ack_with(1, used(5000)), 10);
        assert_eq!(t.ack_with(1, used(5001)), 11);
    }

    #[test]
    fn selective_acks_before_a_loss_do_not_grow_the_window_unless_the_path_reorders() {
        let mut t = Test::new();
        let hole = |ack| Ack { recovery: RecoveryState::Disorder, ..ack };
        assert_eq!(t.ack_with(1, hole), 10);
        // The hole fills without a loss: it was reordering.
        assert_eq!(t.ack(1), 11);
        assert_eq!(t.ack_with(1, hole), 12);
    }

    #[test]
    fn ecn_mark_halves_the_window_once_per_window() {
        let mut t = Test::new();
        t.ack(10);
        let marked = |ack| Ack { ce_count: 1, inflight: 15_000, ..ack };
        assert_eq!(t.ack_with(1, marked), 10);
        assert_eq!(t.ack_with(1, marked), 10);
        assert_eq!(t.ack_with(13, marked), 10);
        assert_eq!(t.ack_with(1, marked), 5, "what was in flight then is delivered");
    }

    #[test]
    fn idle_connection_halves_its_window_per_rto_down_to_the_initial_window() {
        let send = |t: &mut Test| {
            let sent = crate::Sent {
                now: t.now,
                bytes: 1000,
                inflight: 0,
                app_limited: true,
                delivered: t.delivered,
                retransmit: false,
            };
            t.c.on_send(&sent);
            t.c.cwnd() / 1000
        };
        let mut t = Test::new();
        t.ack(70);
        send(&mut t);
        // The RTO is the round trip of 100 ms and 200 ms on top.
        t.now += Span::from_millis(299);
        assert_eq!(send(&mut t), 80);
        t.now += Span::from_millis(500);
        assert_eq!(send(&mut t), 40);
        t.now += Span::from_secs(100);
        assert_eq!(send(&mut t), 10);
    }

    #[test]
    fn a_new_segment_size_keeps_the_window_in_bytes() {
        let mut t = Test::new();
        t.ack(10);
        t.c.on_mtu(500);
        assert_eq!(t.c.cwnd(), 20_000);
        assert_eq!(t.ack(10), 30, "20 packets of the new size acknowledged");
    }
}

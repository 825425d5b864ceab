//! What draft-ietf-ccwg-bbr asks of BBR v3 in places that a simulated path seldom shows, asked of
//! the Rust core and of the C core alike.

use fullpipe_cc::bbr::v3;
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, RateSample, Recovery, RecoveryContext, RecoveryState,
};
use fullpipe_ebpf::native;
use fullpipe_units::{Rate, Span, Time};

const PACKET: u64 = 1000;
/// 10 Mbit/s: a packet every 0.8 ms.
const RATE: Rate = Rate::from_bytes_per_sec(1_250_000);
const INTERVAL: Span = Span::from_micros(800);
const RTT: Span = Span::from_millis(40);
const BDP: u64 = 50_000;

/// A controller whose packets are acknowledged one by one, at a constant rate after a constant
/// time.
struct Flow {
    cc: Box<dyn CongestionControl>,
    core: &'static str,
    now: Time,
    delivered: u64,
    lost: u64,
    recovery: RecoveryState,
}

impl Flow {
    /// The same flow on each core.
    fn on_both_cores(config: Config) -> [Flow; 2] {
        let new = |core, cc| Flow {
            cc,
            core,
            now: Time::ZERO + Span::from_secs(1),
            delivered: 0,
            lost: 0,
            recovery: RecoveryState::Open,
        };
        let mut flows = [
            new("Rust", Box::new(v3::Bbr3::new(&config, v3::Params::DRAFT)) as Box<dyn CongestionControl>),
            new("C", Box::new(native::Bbr3::new(&config, &v3::Params::DRAFT))),
        ];
        for flow in &mut flows {
            flow.cc.on_handshake(flow.now, RTT);
        }
        flows
    }

    fn context(&self) -> RecoveryContext {
        RecoveryContext { now: self.now, inflight: BDP, delivered: self.delivered, lost: self.lost }
    }

    fn recovery(&mut self, event: Recovery) {
        self.cc.on_recovery(event, &self.context());
        self.recovery = match event {
            Recovery::EnterFast => RecoveryState::Recovery,
            Recovery::EnterRto => RecoveryState::Loss,
            _ => RecoveryState::Open,
        };
    }

    /// The next packet is acknowledged; `change` says what is unusual about the ACK.
    fn ack(&mut self, change: impl FnOnce(&mut Ack)) {
        self.now += INTERVAL;
        self.delivered += PACKET;
        let mut ack = Ack {
            sample: RateSample {
                rate: Some(RATE),
                delivered: BDP.min(self.delivered),
                interval: RTT,
                prior_delivered: self.delivered.saturating_sub(BDP),
                tx_in_flight: BDP,
                has_packet: true,
                ..RateSample::default()
            },
            rtt: Some(RTT),
            srtt: Some(RTT),
            newly_acked: PACKET,
            inflight_before: BDP,
            inflight: BDP - PACKET,
            delivered: self.delivered,
            lost: self.lost,
            recovery: self.recovery,
            ..Ack::at(self.now)
        };
        change(&mut ack);
        self.cc.on_ack(&ack);
    }

    /// An ACK that acknowledges nothing new.
    fn empty_ack(&mut self) {
        let (now, delivered, recovery) = (self.now, self.delivered, self.recovery);
        self.cc.on_ack(&Ack { srtt: Some(RTT), inflight: BDP, delivered, recovery, ..Ack::at(now) });
    }

    fn lose(&mut self, app_limited: bool) {
        self.lost += PACKET;
        self.cc.on_lost(&Lost {
            now: self.now,
            bytes: PACKET,
            tx_in_flight: BDP,
            delivered_at_send: self.delivered.saturating_sub(BDP),
            lost_at_send: self.lost - PACKET,
            lost: self.lost,
            delivered: self.delivered,
            app_limited,
        });
    }

    fn state(&self) -> &'static str {
        self.cc.snapshot().state
    }

    fn run_to(&mut self, state: &str) {
        for _ in 0..30_000 {
            if self.state() == state {
                return;
            }
            self.ack(|_| {});
        }
        panic!("{} core: {state} does not come, but {}", self.core, self.state());
    }

    /// A round trip's packets.
    fn round(&mut self, mut change: impl FnMut(&mut Ack)) {
        for _ in 0..BDP / PACKET {
            self.ack(&mut change);
        }
    }
}

fn each(config: Config, mut check: impl FnMut(&mut Flow)) {
    for mut flow in Flow::on_both_cores(config) {
        println!("{} core", flow.core);
        check(&mut flow);
    }
}

fn plain() -> Config {
    Config { smss: PACKET as u32, initial_cwnd: 10 * PACKET, ..Config::default() }
}

/// § ECN: a sender that claims ECN treats any mark as congestion.
#[test]
fn a_mark_lowers_the_short_term_bounds_as_a_loss_does() {
    each(plain(), |flow| {
        assert!(flow.cc.claims_ecn());
        flow.run_to("ProbeBW_CRUISE");
        assert_eq!(flow.cc.snapshot().inflight_shortterm, None);
        let cwnd = flow.cc.cwnd();
        flow.ack(|ack| ack.ce_count = 1);
        flow.round(|_| {});
        flow.ack(|_| {});
        let bound = flow.cc.snapshot().inflight_shortterm.expect("a bound");
        assert!(bound < cwnd && bound >= cwnd * 7 / 10, "{bound} of {cwnd}");
    });
}

#[test]
fn more_than_two_percent_of_marks_bound_a_probe() {
    each(plain(), |flow| {
        flow.run_to("ProbeBW_UP");
        assert_eq!(flow.cc.snapshot().inflight_longterm, None);
        flow.ack(|ack| ack.ce_count = 1);
        assert_eq!(flow.state(), "ProbeBW_UP", "2 % is tolerated");
        flow.ack(|ack| ack.ce_count = 1);
        assert_eq!(flow.state(), "ProbeBW_DOWN");
        assert_eq!(flow.cc.snapshot().inflight_longterm, Some(BDP));
    });
}

#[test]
fn a_round_of_many_marks_ends_startup_and_of_few_does_not() {
    for (marked, ends) in [(5, false), (6, true)] {
        each(plain(), |flow| {
            let mut left = marked;
            // Growing by half each round: no plateau.
            let mut rate = 1_000_000;
            for round in 0..4 {
                flow.round(|ack| {
                    ack.sample.rate = Some(Rate::from_bytes_per_sec(rate));
                    if round == 1 && left > 0 {
                        left -= 1;
                        ack.ce_count = 1;
                    }
                });
                rate += rate / 2;
            }
            assert_eq!(flow.state() != "Startup", ends, "{marked} marks: {}", flow.state());
            assert_eq!(flow.cc.snapshot().inflight_longterm.is_some(), ends);
        });
    }
}

/// § Saving State Upon Loss Recovery: what is restored is from the start of the episode that was
/// spurious.
#[test]
fn a_mark_saves_nothing_that_a_later_spurious_recovery_would_restore() {
    each(plain(), |flow| {
        flow.run_to("ProbeBW_CRUISE");
        // The first mark comes while there is no bound; the second round of them lowers it.
        for _ in 0..2 {
            flow.ack(|ack| ack.ce_count = 1);
            flow.round(|_| {});
        }
        let bound = flow.cc.snapshot().inflight_shortterm;
        assert!(bound.is_some());
        flow.recovery(Recovery::EnterFast);
        flow.recovery(Recovery::Spurious);
        assert_eq!(flow.cc.snapshot().inflight_shortterm, bound, "not the bound from before the marks");
    });
}

/// § Probing for Bandwidth In ProbeBW: without selective ACKs any loss may be more than is seen.
#[test]
fn without_selective_acks_a_single_loss_ends_a_probe() {
    for selective_acks in [true, false] {
        each(Config { selective_acks, ..plain() }, |flow| {
            flow.run_to("ProbeBW_UP");
            flow.lose(false);
            let ended = flow.state() == "ProbeBW_DOWN";
            assert_eq!(ended, !selective_acks, "1 of 50 packets is 2 %: {}", flow.state());
            assert_eq!(flow.cc.snapshot().inflight_longterm.is_some(), !selective_acks);
        });
    }
}

/// § Exiting Startup Based on Packet Loss.
#[test]
fn without_selective_acks_a_loss_in_fast_recovery_ends_startup() {
    for selective_acks in [true, false] {
        each(Config { selective_acks, ..plain() }, |flow| {
            flow.round(|_| {});
            assert_eq!(flow.state(), "Startup");
            flow.recovery(Recovery::EnterFast);
            flow.ack(|ack| (ack.newly_lost, ack.lost_ranges) = (PACKET, 1));
            assert_eq!(flow.state() == "Startup", selective_acks, "{}", flow.state());
        });
    }
}

/// § ProbeRTT Logic: `EnterProbeRTT()` comes before `SaveCwnd()`, which then keeps the larger
/// window of the two.
#[test]
fn probe_rtt_keeps_the_larger_of_the_window_and_the_one_saved_before() {
    each(plain(), |flow| {
        flow.run_to("ProbeBW_CRUISE");
        let before = flow.cc.cwnd();
        // A time-out cuts the window, which it saves; the next one to save is ProbeRTT, while the window is
        // still small.
        flow.recovery(Recovery::EnterRto);
        flow.recovery(Recovery::Exit);
        for _ in 0..3 {
            flow.ack(|ack| ack.ce_count = 1);
            flow.round(|_| {});
        }
        let small = flow.cc.cwnd();
        assert!(small < before, "{small} of {before}");
        // Nothing new in six seconds but longer round trips.
        flow.now += Span::from_secs(6);
        flow.ack(|ack| ack.rtt = Some(RTT * 2));
        assert_eq!(flow.state(), "ProbeRTT");
        // Idle, past ProbeRTT's end: the window comes back at once, before any ACK bounds it.
        flow.ack(|ack| (ack.inflight, ack.rtt) = (4 * PACKET, Some(RTT * 2)));
        flow.now += Span::from_secs(1);
        let (now, delivered) = (flow.now, flow.delivered);
        flow.cc.on_send(&fullpipe_cc::Sent {
            now,
            bytes: PACKET,
            inflight: 0,
            app_limited: true,
            delivered,
            retransmit: false,
        });
        assert_ne!(flow.state(), "ProbeRTT");
        assert_eq!(flow.cc.cwnd(), before);
    });
}

/// § Modulating cwnd in Loss Recovery: at the end of ACK processing the window that was restored is
/// bounded.
#[test]
fn an_ack_without_a_sample_bounds_the_window_that_leaving_recovery_restored() {
    each(plain(), |flow| {
        flow.run_to("ProbeBW_CRUISE");
        let before = flow.cc.cwnd();
        flow.recovery(Recovery::EnterFast);
        flow.lose(false);
        flow.round(|_| {});
        flow.ack(|_| {});
        let bound = flow.cc.snapshot().inflight_shortterm.expect("losses bound the window");
        flow.recovery(Recovery::Exit);
        assert_eq!(flow.cc.cwnd(), before, "restored");
        flow.empty_ack();
        assert_eq!(flow.cc.cwnd(), bound, "and bounded again");
    });
}

/// § ProbeRTT Logic: `HandleProbeRTT()` marks the connection application-limited before it asks
/// whether it is over.
#[test]
fn the_ack_that_ends_probe_rtt_still_marks_the_connection_application_limited() {
    each(plain(), |flow| {
        flow.run_to("ProbeBW_CRUISE");
        flow.now += Span::from_secs(6);
        flow.ack(|ack| ack.rtt = Some(RTT * 2));
        let mut marked = 0;
        while flow.state() == "ProbeRTT" {
            assert!(flow.cc.marks_app_limited());
            marked += 1;
            assert!(marked < 2000, "ProbeRTT ends");
            flow.ack(|ack| (ack.inflight, ack.rtt) = (4 * PACKET, Some(RTT * 2)));
        }
        assert!(flow.cc.marks_app_limited(), "what was sent until this ACK was sent in ProbeRTT");
        flow.ack(|_| {});
        assert!(!flow.cc.marks_app_limited());
    });
}

/// § Send Quantum: what the pacing rate sends in a millisecond, two packets at least and 64 KiB at
/// most; and § Offload Budget: three of them are the least that inflight is bounded by, which on a
/// short path is more than its bandwidth-delay product.
#[test]
fn the_quantum_is_a_millisecond_of_the_pacing_rate_and_three_of_them_a_short_paths_window() {
    for megabits in [10, 100, 500, 1000, 10_000] {
        let rate = Rate::from_bits_per_sec(megabits * 1_000_000);
        for rtt in [Span::from_micros(100), Span::from_millis(1), Span::from_millis(16)] {
            each(plain(), |flow| {
                let ack = |flow: &mut Flow| {
                    flow.ack(|ack| {
                        (ack.sample.rate, ack.inflight) = (Some(rate), 0);
                        (ack.rtt, ack.srtt, ack.sample.interval) = (Some(rtt), Some(rtt), rtt);
                    });
                };
                (0..2000).for_each(|_| ack(flow));
                let (mut quanta, mut windows) = (Vec::new(), Vec::new());
                for _ in 0..3000 {
                    ack(flow);
                    let paced = flow.cc.pacing_rate().expect("BBR paces").as_bytes_per_sec();
                    let quantum = flow.cc.send_quantum();
                    assert_eq!(
                        quantum,
                        (paced / 1000).clamp(2 * PACKET, 64 << 10),
                        "{megabits} Mbit/s, {rtt}"
                    );
                    quanta.push(quantum);
                    windows.push(flow.cc.cwnd());
                }
                // The quantum goes with the gain of the state, and the window follows by what is
                // acknowledged.
                let [least, most] = [quanta.iter().min(), quanta.iter().max()].map(|q| 3 * q.unwrap());
                let least = least.max(4 * PACKET);
                let bdp = rate.as_bytes_per_sec() * rtt.as_nanos() / 1_000_000_000;
                for window in windows {
                    assert!(window >= least, "{megabits} Mbit/s, {rtt}: {window} of {least}");
                    // Twice the BDP, in UP 2.25 times and two packets more; a few for what looks like
                    // aggregation.
                    let bound = (bdp * 9 / 4).max(most) + 5 * PACKET;
                    assert!(window <= bound, "{megabits} Mbit/s, {rtt}: {window} of {bound}");
                }
            });
        }
    }
}

//! Controllers with a fault each: additive increase and multiplicative decrease (RFC 5681), except
//! in one point. Each fault is one that real controllers have had.

use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};
use fullpipe_sim::Controllers;

/// What differs from RFC 5681.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Losses do not reduce the window.
    IgnoresLoss,
    /// The window does not grow after a loss.
    NeverGrowsAgain,
    /// The window never exceeds the largest at which it lost a packet in slow start.
    RemembersItsFirstLoss,
    /// Each lost packet halves the window, not each round trip with losses.
    HalvesForEachPacket,
    /// The window stays at a packet after a timeout.
    StopsAfterTimeout,
    /// The pacing rate comes from the shortest time between two ACKs, with a window to match.
    BelievesNeighbouringAcks,
    /// A round trip 5 ms above the shortest is congestion.
    FearsDelay,
    /// A queue of 15 ms above the shortest round trip is kept: a later flow takes the queue of the
    /// first for part of its path (the latecomer's advantage of LEDBAT, RFC 6817).
    KeepsAQueue,
    /// The pacing rate is that of a LAN.
    PacesFarAboveTheLink,
}

/// The largest window that neighbouring ACKs lead to.
const MAX_WINDOW: u64 = 4_000_000;

struct Planted {
    fault: Fault,
    smss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    credit: u64,
    lost: bool,
    timed_out: bool,
    in_recovery: bool,
    min_rtt: Option<Span>,
    srtt: Option<Span>,
    last_ack: Option<Time>,
    /// The highest rate between two ACKs in bytes per second.
    fastest: u64,
    reduced_at: Time,
}

impl Planted {
    fn new(config: &Config, fault: Fault) -> Self {
        Planted {
            fault,
            smss: u64::from(config.smss),
            cwnd: config.initial_cwnd,
            ssthresh: u64::MAX,
            credit: 0,
            lost: false,
            timed_out: false,
            in_recovery: false,
            min_rtt: None,
            srtt: None,
            last_ack: None,
            fastest: 0,
            reduced_at: Time::ZERO,
        }
    }

    fn halve(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(2 * self.smss);
        self.cwnd = self.ssthresh;
        self.credit = 0;
    }

    fn grow(&mut self, acked: u64) {
        let frozen = match self.fault {
            Fault::NeverGrowsAgain => self.lost,
            Fault::StopsAfterTimeout => self.timed_out,
            Fault::RemembersItsFirstLoss => self.cwnd >= self.ssthresh,
            _ => false,
        };
        if frozen {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += acked;
        } else {
            self.credit += acked;
            if self.credit >= self.cwnd {
                self.credit -= self.cwnd;
                self.cwnd += self.smss;
            }
        }
    }

    fn estimate(&mut self, ack: &Ack) {
        if let Some(last) = self.last_ack.replace(ack.now) {
            let between = ack.now.since(last).max(Span::from_micros(1));
            self.fastest = self.fastest.max(Rate::from_bytes_in(ack.newly_acked, between).as_bytes_per_sec());
        }
        let rtt = self.srtt.unwrap_or(Span::from_millis(100));
        self.cwnd =
            Rate::from_bytes_per_sec(self.fastest).bytes_in(rtt).clamp(self.cwnd, MAX_WINDOW.max(self.cwnd));
    }
}

impl CongestionControl for Planted {
    fn on_send(&mut self, _: &Sent) {}

    fn on_lost(&mut self, _: &Lost) {
        if self.fault == Fault::HalvesForEachPacket {
            self.halve();
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.srtt = ack.srtt.or(self.srtt);
        self.min_rtt = self.min_rtt.into_iter().chain(ack.rtt).min();
        if self.fault == Fault::BelievesNeighbouringAcks {
            return self.estimate(ack);
        }
        if let (Fault::FearsDelay, Some(rtt), Some(min)) = (self.fault, ack.rtt, self.min_rtt)
            && rtt > min + Span::from_millis(5)
            && ack.now.since(self.reduced_at) > rtt
        {
            self.reduced_at = ack.now;
            self.halve();
        }
        if let (Fault::KeepsAQueue, Some(rtt), Some(min)) = (self.fault, ack.rtt, self.min_rtt)
            && rtt > min + Span::from_millis(15)
        {
            self.cwnd = (self.cwnd - self.smss * ack.newly_acked / self.cwnd).max(2 * self.smss);
            self.ssthresh = self.cwnd;
            return;
        }
        if !self.in_recovery && ack.cwnd_limited {
            self.grow(ack.newly_acked);
        }
    }

    fn on_recovery(&mut self, event: Recovery, _: &RecoveryContext) {
        match event {
            Recovery::EnterFast => {
                self.in_recovery = true;
                self.lost = true;
                if !matches!(self.fault, Fault::IgnoresLoss | Fault::BelievesNeighbouringAcks) {
                    self.halve();
                }
            }
            Recovery::EnterRto => {
                self.lost = true;
                self.timed_out = true;
                self.in_recovery = false;
                self.ssthresh = (self.cwnd / 2).max(2 * self.smss);
                self.cwnd = self.smss;
            }
            _ => self.in_recovery = false,
        }
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    fn pacing_rate(&self) -> Option<Rate> {
        (self.fault == Fault::PacesFarAboveTheLink).then(|| Rate::from_bytes_per_sec(1_000_000_000))
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { state: "Planted", cwnd: self.cwnd, pacing_rate: self.pacing_rate(), ..Snapshot::default() }
    }
}

macro_rules! planted {
    ($($name:ident = $text:literal: $fault:ident;)+) => {
        $(
            struct $name(Planted);

            fullpipe_cc::forward_congestion_control! {
                impl[] for $name { c => c.0 }
            }

            impl Build for $name {
                const INFO: ControllerInfo = ControllerInfo {
                    name: $text,
                    aliases: &[],
                    kernel: None,
                    about: "planted",
                    settings: &[],
                };
                type Params = ();

                fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
                    Ok(())
                }

                fn build(config: &Config, (): &()) -> Self {
                    $name(Planted::new(config, Fault::$fault))
                }
            }
        )+

        /// The controllers of `fullpipe-cc` and those with a fault.
        pub fn controllers() -> Controllers {
            Controllers::new()$(.with::<$name>())+
        }
    };
}

planted! {
    Sound = "sound": None;
    IgnoresLoss = "ignores-loss": IgnoresLoss;
    NeverGrowsAgain = "never-grows-again": NeverGrowsAgain;
    RemembersItsFirstLoss = "remembers-its-first-loss": RemembersItsFirstLoss;
    HalvesForEachPacket = "halves-for-each-packet": HalvesForEachPacket;
    StopsAfterTimeout = "stops-after-timeout": StopsAfterTimeout;
    BelievesNeighbouringAcks = "believes-neighbouring-acks": BelievesNeighbouringAcks;
    FearsDelay = "fears-delay": FearsDelay;
    KeepsAQueue = "keeps-a-queue": KeepsAQueue;
    PacesFarAboveTheLink = "paces-far-above-the-link": PacesFarAboveTheLink;
}

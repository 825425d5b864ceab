//! A connection for the tests of this folder: by default 100 packets/ms over 10 ms.

use super::params::{BW_UNIT, Params};
use super::socket::{CA_OPEN, RateSample, Socket};
use super::state::{Bbr, Mode};
use crate::loss_based::NO_SSTHRESH;

pub(super) struct Test {
    pub(super) bbr: Bbr,
    pub(super) sk: Socket,
    /// The next number of the dice.
    pub(super) draw: u32,
}

/// A socket of ten packets after a handshake of 10 ms, at the time of 1 s.
pub(super) fn socket() -> Socket {
    Socket {
        snd_cwnd: 10,
        snd_cwnd_clamp: u32::MAX,
        snd_ssthresh: NO_SSTHRESH,
        mss_cache: 1448,
        srtt_us: 10_000 << 3,
        min_rtt_us: 10_000,
        delivered: 0,
        lost: 0,
        delivered_mstamp: 1_000_000,
        tcp_mstamp: 1_000_000,
        tcp_clock_cache: 1_000_000_000,
        tcp_wstamp_ns: 0,
        packets_in_flight: 0,
        app_limited: 0,
        ca_state: CA_OPEN,
        jiffies: 1000,
        pacing_rate: 0,
        max_pacing_rate: u64::MAX,
    }
}

impl Test {
    pub(super) fn new() -> Self {
        Self::with(Params { hz: 1000, ..Params::LINUX })
    }

    pub(super) fn with(params: Params) -> Self {
        let mut t = Test { bbr: Bbr::zeroed(params), sk: socket(), draw: 0 };
        t.bbr.init(&mut t.sk);
        t
    }

    /// One packet per 10 µs known, the pipe full, in PROBE_BW.
    pub(super) fn steady() -> Self {
        let mut t = Self::new();
        t.bbr.bw.reset(0, (BW_UNIT / 10) as u32);
        t.bbr.full_bw_reached = true;
        t.bbr.mode = Mode::ProbeBw;
        t.bbr.cycle_idx = 2;
        t.bbr.cycle_mstamp = t.sk.delivered_mstamp;
        t.sk.snd_cwnd = 2000;
        t.sk.packets_in_flight = 1000;
        t.bbr.update_gains();
        t
    }

    /// `us` pass.
    pub(super) fn pass(&mut self, us: u64) {
        self.sk.tcp_mstamp += us;
        self.sk.tcp_clock_cache += us * 1000;
        self.sk.jiffies = (self.sk.tcp_mstamp / 1000) as u32;
    }

    /// An ACK of `packets` sent a round trip ago, `us` after the last, delivered at `per_us` << 24.
    pub(super) fn sample(&mut self, packets: u32, us: u64, per_us: u64) -> RateSample {
        self.pass(us);
        let prior = self.sk.delivered;
        self.sk.delivered += packets;
        self.sk.delivered_mstamp = self.sk.tcp_mstamp;
        let delivered = (per_us * 10_000) >> 24;
        RateSample {
            prior_delivered: prior.saturating_sub(delivered as u32),
            delivered: delivered as i32,
            interval_us: 10_000,
            rtt_us: 10_000,
            losses: 0,
            acked_sacked: packets,
            prior_in_flight: self.sk.packets_in_flight + packets,
            is_app_limited: false,
            is_ack_delayed: false,
        }
    }

    pub(super) fn main(&mut self, rs: &RateSample) {
        let draw = self.draw;
        self.bbr.main(&mut self.sk, rs, || draw);
    }

    /// A round trip in one ACK: everything sent in the last is acknowledged.
    pub(super) fn round(&mut self, per_us: u64) -> RateSample {
        let packets = ((per_us * 10_000) >> 24).max(1) as u32;
        let mut rs = self.sample(packets, 10_000, per_us);
        rs.prior_delivered = self.bbr.next_rtt_delivered.max(self.sk.delivered - packets);
        rs
    }
}

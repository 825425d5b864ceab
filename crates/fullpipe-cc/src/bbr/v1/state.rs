//! `struct bbr`: the algorithm's per-connection state, with the kernel's 104-byte layout.

use super::params::Params;
use crate::minmax::{MinMax, Sample};

/// The states of the machine (`enum bbr_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Mode {
    /// Ramps up to fill the pipe.
    #[default]
    Startup = 0,
    /// Drains the queue that ramping up has built.
    Drain = 1,
    /// Cycles around the estimated bandwidth to share it and discover more.
    ProbeBw = 2,
    /// Cuts inflight to see the path without a queue.
    ProbeRtt = 3,
}

/// BBR's inner model, in packets and microseconds, with the arithmetic of Linux `tcp_bbr.c` bit by
/// bit.
///
/// Fields carry the kernel's names. Bandwidths are in packets per µs shifted left by
/// [`BW_SCALE`](super::BW_SCALE), gains by [`GAIN_SCALE`](super::GAIN_SCALE), `stamp`s without a
/// unit are ticks, `mstamp`s µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bbr {
    /// The algorithm's parameters (not part of the state).
    pub params: Params,
    /// Least round-trip time in the window; `u32::MAX` before the first sample.
    pub min_rtt_us: u32,
    /// When it was seen.
    pub min_rtt_stamp: u32,
    /// When PROBE_RTT may end; 0 while inflight has not yet come down.
    pub probe_rtt_done_stamp: u32,
    /// Largest delivery rate of the last rounds.
    pub bw: MinMax<u32>,
    /// Packet-timed rounds so far.
    pub rtt_cnt: u32,
    /// `delivered` at which the round ends.
    pub next_rtt_delivered: u32,
    /// When the present phase of the gain cycle began.
    pub cycle_mstamp: u64,
    /// State of the machine.
    pub mode: Mode,
    /// Loss-recovery state at the last ACK.
    pub prev_ca_state: u8,
    /// In the first round of recovery, send as much as is delivered.
    pub packet_conservation: bool,
    /// This ACK began a round.
    pub round_start: bool,
    /// Restarting after idle.
    pub idle_restart: bool,
    /// PROBE_RTT has seen a round at its small window.
    pub probe_rtt_round_done: bool,
    /// Long-term sampling is under way.
    pub lt_is_sampling: bool,
    /// Rounds in the long-term interval.
    pub lt_rtt_cnt: u8,
    /// The long-term bandwidth is the estimate.
    pub lt_use_bw: bool,
    /// Long-term bandwidth.
    pub lt_bw: u32,
    /// `delivered` at the start of the long-term interval.
    pub lt_last_delivered: u32,
    /// Its start in ms.
    pub lt_last_stamp: u32,
    /// `lost` at its start.
    pub lt_last_lost: u32,
    /// Gain of the pacing rate.
    pub pacing_gain: u32,
    /// Gain of the window.
    pub cwnd_gain: u32,
    /// STARTUP has filled the pipe.
    pub full_bw_reached: bool,
    /// Rounds without much growth of bandwidth.
    pub full_bw_cnt: u8,
    /// Phase of the gain cycle.
    pub cycle_idx: u8,
    /// A round-trip time has been seen.
    pub has_seen_rtt: bool,
    /// The window before recovery or PROBE_RTT.
    pub prior_cwnd: u32,
    /// Bandwidth that growth is measured from.
    pub full_bw: u32,
    /// Start of the aggregation epoch.
    pub ack_epoch_mstamp: u64,
    /// Most packets acknowledged beyond expectation, in the present and the last slot.
    pub extra_acked: [u16; 2],
    /// Packets acknowledged in the epoch, 20 bits.
    pub ack_epoch_acked: u32,
    /// Age of the present slot in rounds.
    pub extra_acked_win_rtts: u8,
    /// The present slot.
    pub extra_acked_win_idx: u8,
    pub(super) memo: Memo,
}

/// Cached results, recomputed when their inputs change. Not part of the state: models compare equal
/// regardless of the cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memo {
    /// Bandwidth, gain, segment size; and the pacing rate in bytes/s they give.
    pub(super) rate: ((u32, u32, u32), u64),
    /// Pacing rate, segment size; and the segments of a batch they give.
    pub(super) tso_segs: ((u64, u32), u32),
}

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Memo {}

/// Size of the kernel's `struct bbr` (`ICSK_CA_PRIV_SIZE` of a 64-bit kernel).
pub const KERNEL_SIZE: usize = 104;

impl Bbr {
    /// The block as the kernel hands it to `init`: all zero.
    pub fn zeroed(params: Params) -> Self {
        Bbr {
            params,
            min_rtt_us: 0,
            min_rtt_stamp: 0,
            probe_rtt_done_stamp: 0,
            bw: MinMax::new(0, 0),
            rtt_cnt: 0,
            next_rtt_delivered: 0,
            cycle_mstamp: 0,
            mode: Mode::Startup,
            prev_ca_state: 0,
            packet_conservation: false,
            round_start: false,
            idle_restart: false,
            probe_rtt_round_done: false,
            lt_is_sampling: false,
            lt_rtt_cnt: 0,
            lt_use_bw: false,
            lt_bw: 0,
            lt_last_delivered: 0,
            lt_last_stamp: 0,
            lt_last_lost: 0,
            pacing_gain: 0,
            cwnd_gain: 0,
            full_bw_reached: false,
            full_bw_cnt: 0,
            cycle_idx: 0,
            has_seen_rtt: false,
            prior_cwnd: 0,
            full_bw: 0,
            ack_epoch_mstamp: 0,
            extra_acked: [0; 2],
            ack_epoch_acked: 0,
            extra_acked_win_rtts: 0,
            extra_acked_win_idx: 0,
            memo: Memo::default(),
        }
    }

    /// The bytes of the kernel's `struct bbr` in this state (64-bit, little-endian).
    pub fn to_kernel(&self) -> [u8; KERNEL_SIZE] {
        let mut bytes = [0; KERNEL_SIZE];
        let mut put = |at: usize, v: &[u8]| bytes[at..at + v.len()].copy_from_slice(v);
        put(0, &self.min_rtt_us.to_le_bytes());
        put(4, &self.min_rtt_stamp.to_le_bytes());
        put(8, &self.probe_rtt_done_stamp.to_le_bytes());
        for (i, s) in self.bw.samples().iter().enumerate() {
            put(12 + 8 * i, &s.t.to_le_bytes());
            put(16 + 8 * i, &s.v.to_le_bytes());
        }
        put(36, &self.rtt_cnt.to_le_bytes());
        put(40, &self.next_rtt_delivered.to_le_bytes());
        put(48, &self.cycle_mstamp.to_le_bytes());
        put(56, &self.mode_bits().to_le_bytes());
        put(60, &self.lt_bw.to_le_bytes());
        put(64, &self.lt_last_delivered.to_le_bytes());
        put(68, &self.lt_last_stamp.to_le_bytes());
        put(72, &self.lt_last_lost.to_le_bytes());
        put(76, &self.gain_bits().to_le_bytes());
        put(80, &self.prior_cwnd.to_le_bytes());
        put(84, &self.full_bw.to_le_bytes());
        put(88, &self.ack_epoch_mstamp.to_le_bytes());
        put(96, &self.extra_acked[0].to_le_bytes());
        put(98, &self.extra_acked[1].to_le_bytes());
        put(100, &self.epoch_bits().to_le_bytes());
        bytes
    }

    /// The state in the bytes of a kernel's `struct bbr`; `None` if its mode is none of the four.
    pub fn from_kernel(bytes: &[u8; KERNEL_SIZE], params: Params) -> Option<Self> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (mode, gains, epoch) = (u32_at(56), u32_at(76), u32_at(100));
        let bits = |word: u32, at: u32, width: u32| word >> at & ((1 << width) - 1);
        let bw = [0, 1, 2].map(|i| Sample { t: u32_at(12 + 8 * i), v: u32_at(16 + 8 * i) });
        Some(Bbr {
            params,
            min_rtt_us: u32_at(0),
            min_rtt_stamp: u32_at(4),
            probe_rtt_done_stamp: u32_at(8),
            bw: MinMax::from_samples(bw),
            rtt_cnt: u32_at(36),
            next_rtt_delivered: u32_at(40),
            cycle_mstamp: u64_at(48),
            mode: match bits(mode, 0, 3) {
                0 => Mode::Startup,
                1 => Mode::Drain,
                2 => Mode::ProbeBw,
                3 => Mode::ProbeRtt,
                _ => return None,
            },
            prev_ca_state: bits(mode, 3, 3) as u8,
            packet_conservation: bits(mode, 6, 1) != 0,
            round_start: bits(mode, 7, 1) != 0,
            idle_restart: bits(mode, 8, 1) != 0,
            probe_rtt_round_done: bits(mode, 9, 1) != 0,
            lt_is_sampling: bits(mode, 23, 1) != 0,
            lt_rtt_cnt: bits(mode, 24, 7) as u8,
            lt_use_bw: bits(mode, 31, 1) != 0,
            lt_bw: u32_at(60),
            lt_last_delivered: u32_at(64),
            lt_last_stamp: u32_at(68),
            lt_last_lost: u32_at(72),
            pacing_gain: bits(gains, 0, 10),
            cwnd_gain: bits(gains, 10, 10),
            full_bw_reached: bits(gains, 20, 1) != 0,
            full_bw_cnt: bits(gains, 21, 2) as u8,
            cycle_idx: bits(gains, 23, 3) as u8,
            has_seen_rtt: bits(gains, 26, 1) != 0,
            prior_cwnd: u32_at(80),
            full_bw: u32_at(84),
            ack_epoch_mstamp: u64_at(88),
            extra_acked: [u16_at(96), u16_at(98)],
            ack_epoch_acked: bits(epoch, 0, 20),
            extra_acked_win_rtts: bits(epoch, 20, 5) as u8,
            extra_acked_win_idx: bits(epoch, 25, 1) as u8,
            memo: Memo::default(),
        })
    }

    fn mode_bits(&self) -> u32 {
        self.mode as u32
            | u32::from(self.prev_ca_state & 7) << 3
            | u32::from(self.packet_conservation) << 6
            | u32::from(self.round_start) << 7
            | u32::from(self.idle_restart) << 8
            | u32::from(self.probe_rtt_round_done) << 9
            | u32::from(self.lt_is_sampling) << 23
            | u32::from(self.lt_rtt_cnt & 0x7f) << 24
            | u32::from(self.lt_use_bw) << 31
    }

    fn gain_bits(&self) -> u32 {
        (self.pacing_gain & 0x3ff)
            | (self.cwnd_gain & 0x3ff) << 10
            | u32::from(self.full_bw_reached) << 20
            | u32::from(self.full_bw_cnt & 3) << 21
            | u32::from(self.cycle_idx & 7) << 23
            | u32::from(self.has_seen_rtt) << 26
    }

    fn epoch_bits(&self) -> u32 {
        (self.ack_epoch_acked & 0xf_ffff)
            | u32::from(self.extra_acked_win_rtts & 0x1f) << 20
            | u32::from(self.extra_acked_win_idx & 1) << 25
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every byte but the padding and the unused bits is some field's.
        #[test]
        fn the_kernels_bytes_survive_the_round_trip(
            mut bytes in prop::collection::vec(any::<u8>(), KERNEL_SIZE),
        ) {
            bytes[44..48].fill(0);
            bytes[56] &= 0b1111_1011;
            bytes[57] &= 0b0000_0011;
            bytes[58] &= 0b1000_0000;
            bytes[79] &= 0b0000_0111;
            bytes[103] &= 0b0000_0011;
            let bytes: [u8; KERNEL_SIZE] = bytes.try_into().unwrap();
            let state = Bbr::from_kernel(&bytes, Params::LINUX).unwrap();
            prop_assert_eq!(state.to_kernel(), bytes);
        }
    }

    #[test]
    fn a_mode_the_kernel_does_not_know_is_refused() {
        let mut bytes = [0; KERNEL_SIZE];
        bytes[56] = 4;
        assert_eq!(Bbr::from_kernel(&bytes, Params::LINUX), None);
    }
}

//! The constants of `tcp_bbr.c`, as parameters: [`Params::LINUX`] are the kernel's values.

/// Rates are in packets per µs, shifted left by this (`BW_SCALE`).
pub const BW_SCALE: u32 = 24;
/// One packet per µs.
pub const BW_UNIT: u64 = 1 << BW_SCALE;
/// Gains are shifted left by this (`BBR_SCALE`).
pub const GAIN_SCALE: u32 = 8;
/// A gain of one.
pub const GAIN_UNIT: u32 = 1 << GAIN_SCALE;

/// 2/ln 2 (`bbr_high_gain`).
const HIGH_GAIN: u32 = GAIN_UNIT * 2885 / 1000 + 1;

/// Phases of a gain cycle.
pub(super) const CYCLE_LEN: u32 = 8;
/// The cycle starts in any phase but the draining one: so many choices (`bbr_cycle_rand`).
pub const CYCLE_RAND: u32 = 7;
/// Packets to keep in flight if all goes well: two with a delayed ACK each (`bbr_cwnd_min_target`).
pub(super) const CWND_MIN_TARGET: u32 = 4;
/// Growth of bandwidth that shows there may be more (`bbr_full_bw_thresh`).
pub(super) const FULL_BW_THRESH: u32 = GAIN_UNIT * 5 / 4;
/// Rounds without such growth until the pipe counts as full (`bbr_full_bw_cnt`).
pub(super) const FULL_BW_ROUNDS: u32 = 3;
/// Bytes/s below which batches hold one segment (`bbr_min_tso_rate`: 1.2 Mbit/s).
pub(super) const MIN_TSO_RATE: u64 = 1_200_000 >> 3;
/// The window while nothing is known, in packets (`TCP_INIT_CWND`).
pub(super) const INIT_CWND: u32 = 10;

/// Long-term ("policer") sampling: least rounds of an interval (`bbr_lt_intvl_min_rtts`).
pub(super) const LT_INTERVAL_ROUNDS: u32 = 4;
/// Lost of delivered, in 1/256, that makes an interval lossy (`bbr_lt_loss_thresh`).
pub(super) const LT_LOSS_THRESH: u32 = 50;
/// Two intervals agree within this ratio, in 1/256 (`bbr_lt_bw_ratio`)…
pub(super) const LT_BW_RATIO: u32 = GAIN_UNIT / 8;
/// …or within so many bytes/s (`bbr_lt_bw_diff`: 4 kbit/s).
pub(super) const LT_BW_DIFF: u64 = 4000 / 8;
/// Rounds to trust the long-term rate for (`bbr_lt_bw_max_rtts`).
pub(super) const LT_BW_MAX_ROUNDS: u32 = 48;

/// Rounds in each of the two slots of the aggregation window (`bbr_extra_acked_win_rtts`).
pub(super) const EXTRA_ACKED_ROUNDS: u32 = 5;
/// Packets after which an aggregation epoch ends (`bbr_ack_epoch_acked_reset_thresh`).
pub(super) const ACK_EPOCH_RESET: u32 = 1 << 20;
/// Longest ACK silence the window provides for, in µs (`bbr_extra_acked_max_us`).
pub(super) const EXTRA_ACKED_MAX_US: u64 = 100_000;

/// Parameters of BBR v1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Ticks per second of `jiffies` (`CONFIG_HZ`).
    pub hz: u32,
    /// log₂ of the fraction of a second that a batch lasts (`sk_pacing_shift`).
    pub pacing_shift: u32,
    /// Payload bytes of the largest batch (`GSO_LEGACY_MAX_SIZE − 1 − MAX_TCP_HEADER`).
    pub gso_max_bytes: u32,
    /// Pacing gain of STARTUP in 1/256 (`bbr_high_gain`): 2/ln 2.
    pub startup_pacing_gain: u32,
    /// Window gain of STARTUP and DRAIN, in the kernel the same.
    pub startup_cwnd_gain: u32,
    /// Pacing gain of DRAIN (`bbr_drain_gain`): the inverse.
    pub drain_gain: u32,
    /// Window gain of PROBE_BW (`bbr_cwnd_gain`).
    pub cwnd_gain: u32,
    /// Pacing gains of PROBE_BW's first two phases; the other six pace at one (`bbr_pacing_gain`).
    pub probe_gains: [u32; 2],
    /// Share of the bandwidth left unused, in percent (`bbr_pacing_margin_percent`).
    pub pacing_margin_percent: u32,
    /// Rounds the bandwidth filter looks back (`bbr_bw_rtts`).
    pub bw_rounds: u32,
    /// Seconds the min_rtt filter looks back (`bbr_min_rtt_win_sec`).
    pub min_rtt_window_s: u32,
    /// Least time in PROBE_RTT in ms, 0 for never (`bbr_probe_rtt_mode_ms`).
    pub probe_rtt_ms: u32,
    /// How much of the measured aggregation the window provides for, in 1/256
    /// (`bbr_extra_acked_gain`).
    pub extra_acked_gain: u32,
    /// Whether to look for policers.
    pub long_term: bool,
}

impl Params {
    /// The kernel's constants with Debian's clock (250 ticks per second), see the setting `hz`. The
    /// clock affects policer detection: at 15 % loss a coarser clock has fewer false positives.
    pub const LINUX: Params = Params {
        hz: 250,
        pacing_shift: 10,
        gso_max_bytes: crate::pacer::GSO_MAX_BYTES as u32,
        startup_pacing_gain: HIGH_GAIN,
        startup_cwnd_gain: HIGH_GAIN,
        drain_gain: GAIN_UNIT * 1000 / 2885,
        cwnd_gain: GAIN_UNIT * 2,
        probe_gains: [GAIN_UNIT * 5 / 4, GAIN_UNIT * 3 / 4],
        pacing_margin_percent: 1,
        bw_rounds: CYCLE_LEN + 2,
        min_rtt_window_s: 10,
        probe_rtt_ms: 200,
        extra_acked_gain: GAIN_UNIT,
        long_term: true,
    };

    /// Milliseconds as ticks, rounded up (`msecs_to_jiffies`).
    pub(super) fn ticks(&self, ms: u32) -> u32 {
        let ticks = (u64::from(ms) * u64::from(self.hz)).div_ceil(1000);
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gains_are_the_kernels() {
        let p = Params::LINUX;
        assert_eq!((p.startup_pacing_gain, p.startup_cwnd_gain, p.drain_gain), (739, 739, 88));
        assert_eq!((p.cwnd_gain, p.probe_gains), (512, [320, 192]));
    }

    #[test]
    fn ticks_round_up() {
        assert_eq!(Params::LINUX.ticks(200), 50);
        assert_eq!(Params { hz: 100, ..Params::LINUX }.ticks(201), 21);
        assert_eq!(Params { hz: 1000, ..Params::LINUX }.ticks(200), 200);
    }
}

//! The connection state that `tcp_bbr.c` reads and writes, with the field names of `struct sock`,
//! `struct tcp_sock` and `struct rate_sample`.

/// The connection at the moment of a callback. Counts are in packets and wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket {
    /// Congestion window; BBR writes it.
    pub snd_cwnd: u32,
    /// The most it may be.
    pub snd_cwnd_clamp: u32,
    /// Slow-start threshold; BBR writes it, for information.
    pub snd_ssthresh: u32,
    /// Payload bytes of a full packet, ≥ 1.
    pub mss_cache: u32,
    /// Smoothed round-trip time in 1/8 µs; 0 before the first sample.
    pub srtt_us: u32,
    /// Least round-trip time the connection knows, in µs; `u32::MAX` before the first sample.
    /// Only `init` reads it.
    pub min_rtt_us: u32,
    /// Packets delivered so far.
    pub delivered: u32,
    /// Packets marked lost so far.
    pub lost: u32,
    /// When `delivered` was last raised, in µs.
    pub delivered_mstamp: u64,
    /// The present, in µs.
    pub tcp_mstamp: u64,
    /// The present, in ns.
    pub tcp_clock_cache: u64,
    /// Departure time of the next packet, in ns.
    pub tcp_wstamp_ns: u64,
    /// `tcp_packets_in_flight`.
    pub packets_in_flight: u32,
    /// `delivered` at which the application-limited phase ends, 0 if there is none; BBR writes it.
    pub app_limited: u32,
    /// `icsk_ca_state`: one of the `CA_` constants.
    pub ca_state: u8,
    /// `tcp_jiffies32`.
    pub jiffies: u32,
    /// Pacing rate in bytes/s; BBR writes it.
    pub pacing_rate: u64,
    /// The most it may be.
    pub max_pacing_rate: u64,
}

/// `TCP_CA_Open`.
pub const CA_OPEN: u8 = 0;
/// `TCP_CA_Disorder`.
pub const CA_DISORDER: u8 = 1;
/// `TCP_CA_CWR`.
pub const CA_CWR: u8 = 2;
/// `TCP_CA_Recovery`.
pub const CA_RECOVERY: u8 = 3;
/// `TCP_CA_Loss`.
pub const CA_LOSS: u8 = 4;

/// `struct rate_sample`: the sample of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateSample {
    /// `delivered` of the connection when the newest acknowledged packet was sent.
    pub prior_delivered: u32,
    /// Packets delivered over the interval; negative without a sample.
    pub delivered: i32,
    /// The interval in µs; 0 or negative without a sample.
    pub interval_us: i64,
    /// Round-trip time in µs; negative without one.
    pub rtt_us: i64,
    /// Packets newly marked lost.
    pub losses: i32,
    /// Packets newly acknowledged, cumulatively or selectively.
    pub acked_sacked: u32,
    /// Packets in flight before the ACK.
    pub prior_in_flight: u32,
    /// The newest packet was sent application-limited.
    pub is_app_limited: bool,
    /// The receiver may have delayed the ACK.
    pub is_ack_delayed: bool,
}

impl RateSample {
    /// Whether the ACK gave a delivery rate.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.delivered >= 0 && self.interval_us > 0
    }

    /// A sample of nothing, with `losses`.
    pub(super) fn with_losses(losses: i32) -> Self {
        RateSample {
            prior_delivered: 0,
            delivered: 0,
            interval_us: 0,
            rtt_us: 0,
            losses,
            acked_sacked: 0,
            prior_in_flight: 0,
            is_app_limited: false,
            is_ack_delayed: false,
        }
    }
}

/// `a` is later than `b` on a clock that wraps around.
#[inline]
pub(super) fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// Microseconds from `earlier` to `later`, none if the other way round (`tcp_stamp_us_delta`).
#[inline]
pub(super) fn stamp_us_delta(later: u64, earlier: u64) -> u32 {
    (later.wrapping_sub(earlier) as i64).max(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_is_judged_across_the_wrap() {
        assert!(after(1, 0) && !after(0, 0) && !after(0, 1));
        assert!(after(5, u32::MAX - 5));
        assert_eq!(stamp_us_delta(7, 5), 2);
        assert_eq!(stamp_us_delta(5, 7), 0);
    }
}

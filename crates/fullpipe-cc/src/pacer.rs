//! Pacing by earliest departure time, as Linux's TCP does it without a pacing queue discipline:
//! `tcp_pacing_check`, `tcp_update_skb_after_send`, `tcp_tso_autosize`, `tcp_update_pacing_rate`.

use fullpipe_units::{Rate, Span, Time};

/// The largest burst the kernel passes to a device, in payload bytes: 64 KiB minus headers
/// (`GSO_LEGACY_MAX_SIZE − 1 − MAX_TCP_HEADER`).
pub const GSO_MAX_BYTES: u64 = 65_536 - 1 - 320;

/// Segments sent before pacing starts: the initial window is sent as one burst.
const UNPACED_SEGMENTS: u64 = 10;

/// A burst lasts about a millisecond at the pacing rate (`sk_pacing_shift` 10: 1/1024 s).
const PACING_SHIFT: u32 = 10;

/// The extra burst size for nearby peers halves every 2⁹ µs of min_rtt (`tcp_tso_rtt_log`).
const TSO_RTT_LOG: u32 = 9;

/// Computes departure times.
///
/// ```
/// use fullpipe_cc::{Pacer, Rate, Span, Time};
///
/// let mut pacer = Pacer::new();
/// let rate = Some(Rate::from_bits_per_sec(8_000_000)); // a byte each µs
/// let mut now = Time::ZERO;
/// for _ in 0..100 {
///     assert!(pacer.ready(now));
///     pacer.on_sent(now, 1000, 1, rate);
///     now = now.max(pacer.next_departure());
/// }
/// // The first nine segments were sent at once, each of the others took 1 ms.
/// assert_eq!(now, Time::ZERO + Span::from_millis(91));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pacer {
    next: Time,
    segments: u64,
}

impl Pacer {
    /// A pacer for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// The earliest departure time of the next burst; in the past if immediately.
    pub fn next_departure(&self) -> Time {
        self.next
    }

    /// Whether a burst may be sent at `now`.
    pub fn ready(&self, now: Time) -> bool {
        self.next <= now
    }

    /// Records a burst of `bytes` in `segments` segments sent at `now` with the pacing rate `rate`
    /// (`None`: unpaced). Returns its departure time: `now`, or later if the pacer was not
    /// [`ready`](Self::ready) and lower layers have to delay it.
    /// A late sender catches up at no more than twice the rate: lateness shortens the gap to the
    /// next burst by at most half.
    pub fn on_sent(&mut self, now: Time, bytes: u64, segments: u64, rate: Option<Rate>) -> Time {
        let departure = self.next.max(now);
        let late = departure - self.next;
        self.next = departure;
        self.segments = self.segments.saturating_add(segments);
        let is_paced = |rate: &Rate| *rate != Rate::MAX && *rate != Rate::ZERO;
        if let Some(rate) = rate.filter(|rate| is_paced(rate) && self.segments >= UNPACED_SEGMENTS) {
            let gap = Self::gap(bytes, rate);
            self.next += gap - late.min(gap / 2);
        }
        departure
    }

    /// The time for `bytes` at `rate`, rounded down as in the kernel.
    fn gap(bytes: u64, rate: Rate) -> Span {
        let rate = rate.as_bytes_per_sec();
        match bytes.checked_mul(1_000_000_000) {
            Some(product) => Span::from_nanos(product / rate),
            None => Span::from_nanos(bytes / rate) * 1_000_000_000,
        }
    }
}

/// The burst size in bytes for a pacing rate (`tcp_tso_autosize`): about a millisecond, more for
/// nearby peers, a whole number of segments and at least `min_segments`.
pub fn autosize(rate: Rate, min_rtt: Option<Span>, smss: u32, min_segments: u32) -> u64 {
    let smss = u64::from(smss.max(1));
    let mut bytes = rate.as_bytes_per_sec() >> PACING_SHIFT;
    if let Some(rtt) = min_rtt {
        let halvings = rtt.as_micros() >> TSO_RTT_LOG;
        if halvings < 32 {
            bytes = bytes.saturating_add(GSO_MAX_BYTES >> halvings);
        }
    }
    let segments = bytes.min(GSO_MAX_BYTES) / smss;
    segments.max(u64::from(min_segments)).max(1) * smss
}

/// Linux's pacing rate for a controller without one (`tcp_update_pacing_rate`): twice the window
/// per round trip in early slow start, 1.2 times afterwards. Uses the outstanding data if larger,
/// so that pacing does not slow down a recovery with a smaller window. Bytes throughout.
pub fn rate_for_window(cwnd: u64, ssthresh: u64, outstanding: u64, srtt: Span) -> Rate {
    const SLOW_START: u64 = 200;
    const AVOIDANCE: u64 = 120;
    let percent = if cwnd < ssthresh / 2 { SLOW_START } else { AVOIDANCE };
    let rate = Rate::from_bytes_in(cwnd.max(outstanding), srtt);
    let scaled = u128::from(rate.as_bytes_per_sec()) * u128::from(percent) / 100;
    Rate::from_bytes_per_sec(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + Span::from_micros(n)
    }

    /// 1 byte/µs, past the unpaced start.
    fn started() -> (Pacer, Option<Rate>) {
        let mut p = Pacer::new();
        p.on_sent(Time::ZERO, 0, 10, None);
        (p, Some(Rate::from_bytes_per_sec(1_000_000)))
    }

    #[test]
    fn the_initial_window_leaves_at_once() {
        let mut p = Pacer::new();
        let rate = Some(Rate::from_bytes_per_sec(1_000_000));
        p.on_sent(us(0), 9000, 9, rate);
        assert!(p.ready(us(0)));
        p.on_sent(us(0), 1000, 1, rate);
        assert_eq!(p.next_departure(), us(1000));
    }

    #[test]
    fn a_late_sender_catches_up_at_twice_the_rate() {
        let (mut p, rate) = started();
        p.on_sent(us(0), 1000, 1, rate);
        // 300 µs late: the next gap is 700 µs.
        p.on_sent(us(1300), 1000, 1, rate);
        assert_eq!(p.next_departure(), us(2000));
        // An hour late: half the gap.
        p.on_sent(us(3_600_000_000), 1000, 1, rate);
        assert_eq!(p.next_departure(), us(3_600_000_500));
    }

    #[test]
    fn a_batch_given_early_departs_on_schedule() {
        let (mut p, rate) = started();
        p.on_sent(us(0), 1000, 1, rate);
        assert_eq!(p.on_sent(us(10), 1000, 1, rate), us(1000));
        assert_eq!(p.next_departure(), us(2000));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let (mut p, _) = started();
        for rate in [None, Some(Rate::ZERO), Some(Rate::MAX)] {
            p.on_sent(us(5), u64::MAX, 1, rate);
            assert!(p.ready(us(5)));
        }
    }

    #[test]
    fn a_batch_lasts_about_a_millisecond() {
        let rate = Rate::from_bits_per_sec(100_000_000);
        // 12.5 MB/s ≫ 10 = 12207 bytes: eight whole segments.
        assert_eq!(autosize(rate, Some(Span::from_millis(100)), 1448, 2), 8 * 1448);
        assert_eq!(autosize(rate, None, 1448, 2), 8 * 1448);
        assert_eq!(autosize(Rate::from_bits_per_sec(1_000_000), None, 1448, 1), 1448);
        assert_eq!(autosize(Rate::from_bits_per_sec(1_000_000), None, 1448, 2), 2 * 1448);
        assert_eq!(autosize(Rate::MAX, None, 1448, 2), 45 * 1448);
        // A peer at 100 µs gets the largest batch.
        assert_eq!(autosize(rate, Some(Span::from_micros(100)), 1448, 2), 45 * 1448);
    }

    #[test]
    fn an_unpaced_controller_is_paced_above_its_window_per_round_trip() {
        let rtt = Span::from_millis(100);
        assert_eq!(rate_for_window(10_000, u64::MAX, 0, rtt), Rate::from_bytes_per_sec(200_000));
        assert_eq!(rate_for_window(10_000, 10_000, 0, rtt), Rate::from_bytes_per_sec(120_000));
        assert_eq!(rate_for_window(10_000, 10_000, 20_000, rtt), Rate::from_bytes_per_sec(240_000));
    }

    #[test]
    fn absurd_sizes_do_not_panic() {
        let (mut p, rate) = started();
        p.on_sent(Time::NEVER, u64::MAX, u64::MAX, rate);
        assert_eq!(autosize(Rate::MAX, Some(Span::ZERO), 0, u32::MAX), u64::from(u32::MAX));
        assert_eq!(rate_for_window(u64::MAX, 0, u64::MAX, Span::ZERO), Rate::MAX);
    }
}

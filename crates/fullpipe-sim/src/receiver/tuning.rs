//! Receive-buffer auto-tuning as in Linux 6.18. The buffer follows the bytes that the application
//! reads per round trip (Dynamic Right-Sizing, `tcp_rcv_space_adjust`, `tcp_rcvbuf_grow`). The
//! share of it that is advertised is the share of arriving packets that is payload
//! (`scaling_ratio`), and the window grows towards that with each arrival (`tcp_grow_window`). The
//! application reads at once.

use super::reassembly::{Arrival, Reassembly};
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::HEADER_BYTES;

/// Default initial buffer (`tcp_rmem[1]`).
const INITIAL_BUFFER: u64 = 131_072;
/// Default largest buffer (`tcp_rmem[2]`).
const MAX_BUFFER: u64 = 32 << 20;
/// Payload share before the first full segment (`TCP_DEFAULT_SCALING_RATIO`), in 1/256.
const INITIAL_RATIO: u64 = 128;
/// Initial estimate of the largest segment (`TCP_MSS_DEFAULT`).
const INITIAL_LARGEST: u64 = 536;
/// Sizes of `sk_buff` and `skb_shared_info` of a packet.
const SK_BUFF: u64 = 256;
const SHARED_INFO: u64 = 320;
/// Headroom and Ethernet header in front of a packet (`NET_SKB_PAD`, `NET_IP_ALIGN`).
const HEADROOM: u64 = 64 + 14;
/// Largest window of a SYN-ACK, which is not scaled.
const MAX_UNSCALED: u64 = 65_535;
/// Largest window scale (`TCP_MAX_WSCALE`).
const MAX_SHIFT: u32 = 14;
/// Segments of the initial window that do not count as growth (`TCP_INIT_CWND`).
const INITIAL_SEGMENTS: u64 = 10;
/// Smaller segments do not grow the window.
const MIN_GROWTH_SEGMENT: u64 = 128;

/// A receive buffer and the window derived from it.
#[derive(Debug)]
pub(crate) struct TunedWindow {
    smss: u64,
    most: u64,
    /// `sk_rcvbuf`.
    buffer: u64,
    /// `scaling_ratio`, in 1/256.
    ratio: u64,
    /// The largest segment so far (`rcv_mss`).
    largest: u64,
    /// `window_clamp` and `rcv_ssthresh`.
    clamp: u64,
    threshold: u64,
    /// Window scale: log₂ of the unit in which windows are advertised.
    shift: u32,
    /// Most bytes read in a round trip (`rcvq_space.space`).
    space: u64,
    measured_at: Time,
    measured_bytes: u64,
    /// The receiver's RTT estimate from timestamps of a millisecond (`rcv_rtt_est`), in eighths of
    /// a microsecond.
    rtt_8: u64,
    /// The window of the last ACK (`rcv_wnd`), and its right edge.
    window: u64,
    edge: u64,
}

impl TunedWindow {
    /// The window of a receiver of segments of up to `smss` bytes, whose buffer grows from `first`
    /// to at most `most` bytes (`tcp_rmem[1]`, `[2]`).
    pub fn new(smss: u32, first: Option<u64>, most: Option<u64>) -> Self {
        let most = most.unwrap_or(MAX_BUFFER);
        let mut w = TunedWindow {
            smss: u64::from(smss),
            most,
            buffer: first.unwrap_or(INITIAL_BUFFER).min(most),
            ratio: INITIAL_RATIO,
            largest: INITIAL_LARGEST.min(u64::from(smss)),
            clamp: 0,
            threshold: 0,
            shift: most.max(1).ilog2().saturating_sub(15).min(MAX_SHIFT),
            space: 0,
            measured_at: Time::ZERO,
            measured_bytes: 0,
            rtt_8: 0,
            window: 0,
            edge: 0,
        };
        let full = w.window_of(w.buffer);
        // Whole segments (`tcp_select_initial_window`), even if a SYN-ACK can advertise fewer.
        w.window = (full / w.smss).max(1) * w.smss;
        // Room for one segment is reserved (`tcp_init_buffer_space`).
        w.clamp = full.saturating_sub(w.smss).max(2 * w.smss);
        w.threshold = w.window.min(w.clamp);
        w.space = w.threshold.min(INITIAL_SEGMENTS * w.smss);
        w.edge = w.window;
        w
    }

    /// The handshake is complete: the first round trip begins (`tcp_init_buffer_space`).
    pub fn opens(&mut self, now: Time) {
        self.measured_at = now;
    }

    /// The largest segment so far.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// `tcp_win_from_space`, and `tcp_space_from_win`.
    fn window_of(&self, buffer: u64) -> u64 {
        (buffer * self.ratio) >> 8
    }

    fn buffer_of(&self, window: u64) -> u64 {
        (window << 8) / self.ratio
    }

    /// A segment of `len` bytes arrived and is in `queue`; `arrived` bytes have arrived in all.
    /// Returns whether the window grows.
    pub fn on_data(
        &mut self,
        now: Time,
        len: u64,
        arrival: Arrival,
        arrived: u64,
        queue: &Reassembly,
        rtt: Option<Span>,
    ) -> bool {
        if arrival == Arrival::Duplicate {
            return false;
        }
        if let Arrival::InOrder { .. } = arrival {
            self.measure_segment(len);
            if let Some(rtt) = rtt {
                self.measure_rtt(rtt);
            }
        }
        // A segment in order has not been read yet; one beyond a hole is not counted yet
        // (`tcp_data_queue_ofo`).
        let unread = match arrival {
            Arrival::InOrder { .. } => truesize(len),
            Arrival::Beyond | Arrival::Duplicate => 0,
        };
        let grows = len >= MIN_GROWTH_SEGMENT && self.grow_threshold(len, self.free(arrived, queue, unread));
        match arrival {
            Arrival::InOrder { .. } => self.adjust(now, queue),
            // The buffer grows by what waits beyond a hole (`tcp_data_queue_ofo`).
            Arrival::Beyond => self.grow_buffer(self.space, queue),
            Arrival::Duplicate => {}
        }
        grows
    }

    /// `tcp_measure_rcv_mss`: the first full segment determines how much of a buffer is payload.
    fn measure_segment(&mut self, len: u64) {
        if len <= self.largest {
            return;
        }
        self.largest = len;
        let ratio = ((len << 8) / truesize(len)).clamp(1, 255);
        if ratio == self.ratio {
            return;
        }
        self.ratio = ratio;
        let clamp = self.window_of(self.buffer);
        // `tcp_set_window_clamp`: at most what fits, and if more fits, at least what is allowed already.
        self.threshold = match clamp < self.clamp {
            true => self.threshold.min(clamp),
            false => self.threshold.max(self.window.min(clamp)),
        };
        self.clamp = clamp;
        self.space = self.space.min(clamp);
    }

    /// `tcp_rcv_rtt_update`: follows a shorter RTT at once, a longer one by an eighth.
    fn measure_rtt(&mut self, rtt: Span) {
        let us = (rtt.as_nanos() / 1_000_000).max(1) * 1000;
        if self.rtt_8 == 0 || us * 8 < self.rtt_8 {
            self.rtt_8 = us * 8;
        } else {
            self.rtt_8 += us - (self.rtt_8 >> 3);
        }
    }

    /// The window that the free part of the buffer allows (`tcp_space`): data beyond a hole
    /// occupies it, and `unread` more bytes.
    fn free(&self, arrived: u64, queue: &Reassembly, unread: u64) -> u64 {
        let waiting = self.buffer_of(arrived - queue.next_bytes());
        self.window_of(self.buffer.saturating_sub(waiting + unread))
    }

    /// `tcp_grow_window`: grows by twice the arrived bytes if the buffer has room for as many
    /// packets like this.
    fn grow_threshold(&mut self, len: u64, free: u64) -> bool {
        let room = self.clamp.min(free).saturating_sub(self.threshold);
        let growth =
            if self.window_of(truesize(len)) <= len { 2 * self.smss } else { self.careful_growth(len) };
        let grows = growth > 0 && room > 0;
        if grows {
            self.threshold += room.min(growth.max(2 * len));
        }
        grows
    }

    /// `__tcp_grow_window`: growth for small packets, which waste most of their buffer.
    fn careful_growth(&self, len: u64) -> u64 {
        let mut space = self.window_of(truesize(len)) / 2;
        let mut window = self.window_of(self.most) / 2;
        while self.threshold <= window {
            if space <= len {
                return 2 * self.largest;
            }
            space >>= 1;
            window >>= 1;
        }
        0
    }

    /// `tcp_rcv_space_adjust`: once per round trip, measures the bytes read.
    fn adjust(&mut self, now: Time, queue: &Reassembly) {
        let rtt = Span::from_micros(self.rtt_8 >> 3);
        if self.rtt_8 == 0 || now.since(self.measured_at) < rtt {
            return;
        }
        let copied = queue.next_bytes() - self.measured_bytes;
        if copied > self.space {
            self.grow_buffer(copied, queue);
        }
        self.measured_at = now;
        self.measured_bytes = queue.next_bytes();
    }

    /// `tcp_rcvbuf_grow`: room for twice as much, because the measurement lags by a round trip, and
    /// for a sender that keeps doubling.
    fn grow_buffer(&mut self, space: u64, queue: &Reassembly) {
        let before = std::mem::replace(&mut self.space, space).max(1);
        let twice = 2 * space;
        let growth = u128::from(twice) * u128::from(space.saturating_sub(before)) / u128::from(before);
        let growth = u64::try_from(growth).unwrap_or(u64::MAX);
        let beyond = queue.beyond_bytes();
        let window = twice.saturating_add(growth.saturating_mul(2)).saturating_add(beyond).min(1 << 40);
        let buffer = self.buffer_of(window).min(self.most);
        if buffer > self.buffer {
            self.buffer = buffer;
            self.clamp = self.window_of(buffer);
        }
    }

    /// The right edge to advertise after `arrived` bytes (`__tcp_select_window`); it never moves
    /// back.
    pub fn edge(&mut self, arrived: u64, queue: &Reassembly) -> u64 {
        // Even the smallest buffer allows one segment.
        let window = self.free(arrived, queue, 0).min(self.threshold).max(self.smss);
        let unit = 1 << self.shift;
        self.edge = self.edge.max(queue.next_bytes() + window.next_multiple_of(unit));
        self.window = self.edge - queue.next_bytes();
        self.edge
    }

    /// The right edge that the SYN-ACK advertises.
    pub fn initial_edge(&self) -> u64 {
        self.window.min(MAX_UNSCALED)
    }
}

/// Receive-buffer space of a packet with `len` bytes of payload: headers, payload and structures,
/// rounded up to a power of two.
fn truesize(len: u64) -> u64 {
    (len + u64::from(HEADER_BYTES) + HEADROOM + SHARED_INFO).next_power_of_two() + SK_BUFF
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(100);

    struct Test {
        window: TunedWindow,
        queue: Reassembly,
        arrived: u64,
        now: Time,
    }

    impl Test {
        fn new(most: Option<u64>) -> Self {
            let window = TunedWindow::new(1448, None, most);
            Test { window, queue: Reassembly::default(), arrived: 0, now: Time::ZERO }
        }

        fn arrives(&mut self, seq: u64) {
            self.arrives_of(seq, 1448);
        }

        fn arrives_of(&mut self, seq: u64, smss: u64) {
            let arrival = self.queue.insert(seq, (seq + 1) * smss);
            self.arrived += smss;
            self.window.on_data(self.now, smss, arrival, self.arrived, &self.queue, Some(RTT));
        }

        fn window(&mut self) -> u64 {
            self.window.edge(self.arrived, &self.queue) - self.queue.next_bytes()
        }
    }

    /// `rcv_ssthresh` (Linux 6.18, `ss -tim`) of sockets with `tcp_rmem[1]` of 131072 and of
    /// 1048576 bytes and `tcp_rmem[2]` of 33554432, before and after the first and the second
    /// full segment, and of one without timestamps.
    #[test]
    fn the_initial_window_is_that_of_a_linux_socket() {
        let sockets = [
            (1448, 131_072, 65_160, [64_088, 68_056, 70_952]),
            (1448, 1_048_576, 65_535, [522_840, 527_072, 529_968]),
            (1460, 131_072, 64_240, [64_076, 67_160, 70_080]),
        ];
        for (smss, first, advertised, thresholds) in sockets {
            let mut t = Test { window: TunedWindow::new(smss, Some(first), None), ..Test::new(None) };
            assert_eq!((t.window.initial_edge(), t.window.space), (advertised, 10 * u64::from(smss)));
            for (seq, threshold) in (0..).zip(thresholds) {
                assert_eq!(t.window.threshold, threshold, "after {seq} of a buffer of {first}");
                t.arrives_of(seq, u64::from(smss));
            }
            assert_eq!(t.window.clamp, first * (u64::from(smss) * 256 / 2304) / 256);
        }
    }

    #[test]
    fn the_window_stays_ahead_of_a_sender_that_doubles() {
        let mut t = Test::new(None);
        let (mut seq, mut flight) = (0, 10);
        while flight < 8000 {
            let window = t.window();
            assert!(window >= flight * 1448, "{flight} packets do not fit {window}");
            t.now += RTT;
            for _ in 0..flight {
                t.arrives(seq);
                seq += 1;
            }
            flight *= 2;
        }
    }

    #[test]
    fn a_full_buffer_is_five_eighths_payload() {
        let mut t = Test::new(Some(500_000));
        let mut seq = 0;
        for _ in 0..20 {
            t.now += RTT;
            for _ in 0..t.window() / 1448 {
                t.arrives(seq);
                seq += 1;
            }
        }
        // An arriving segment has not been read yet when it grows the window.
        let (window, payload) = (t.window(), (500_000 - truesize(1448)) * 160 / 256);
        assert!((payload..payload + 16).contains(&window), "{window} {payload}");
    }

    #[test]
    fn a_slow_flow_keeps_the_initial_buffer() {
        let mut t = Test::new(None);
        for seq in 0..200 {
            t.now += RTT / 4;
            t.arrives(seq);
        }
        assert_eq!(t.window.buffer, INITIAL_BUFFER);
    }

    #[test]
    fn the_buffer_grows_by_data_beyond_a_hole() {
        let mut t = Test::new(None);
        (0..10).for_each(|seq| t.arrives(seq));
        let before = t.window.buffer;
        (11..200).for_each(|seq| t.arrives(seq));
        // Twice the bytes read in a round trip, and 190 segments.
        assert_eq!(t.window.buffer, t.window.buffer_of(2 * t.window.space + 190 * 1448));
        assert!(t.window.buffer > before);
    }

    #[test]
    fn truesize_is_that_of_linux() {
        assert_eq!([truesize(1448), truesize(1), truesize(8948)], [2304, 768, 16_640]);
    }
}

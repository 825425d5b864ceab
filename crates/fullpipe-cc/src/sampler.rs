//! Delivery-rate estimation: how fast the network delivered the packets an ACK covers.
//! IETF draft-ietf-ccwg-bbr §4.5.2 "Delivery rate samples", Linux `net/ipv4/tcp_rate.c`.

use fullpipe_units::{Rate, Span, Time};

/// State of the connection when a packet was sent. The transport stores one with each packet in
/// flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Send time (paced departure).
    pub sent_at: Time,
    /// Payload bytes delivered on the connection by then.
    pub delivered: u64,
    /// When `delivered` last increased.
    pub delivered_at: Time,
    /// Send time of the packet most recently delivered by then.
    pub first_sent_at: Time,
    /// Payload bytes lost on the connection by then.
    pub lost: u64,
    /// Payload bytes in flight, this packet included.
    pub tx_in_flight: u64,
    /// Whether the connection was application-limited.
    pub app_limited: bool,
    /// Transmission number: breaks ties between equal send times.
    pub id: u64,
}

/// The delivery-rate sample of one ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateSample {
    /// Delivery rate, if the ACK gave a valid sample.
    pub rate: Option<Rate>,
    /// Payload bytes delivered over `interval`.
    pub delivered: u64,
    /// The longer of the send and the ACK phase.
    pub interval: Span,
    /// Payload bytes delivered on the connection when the sample's newest packet was sent.
    pub prior_delivered: u64,
    /// When that count had last increased.
    pub prior_delivered_at: Time,
    /// Payload bytes in flight when that packet was sent, itself included.
    pub tx_in_flight: u64,
    /// Payload bytes marked lost between that packet's sending and now.
    pub lost: u64,
    /// Whether that packet was sent while the application had nothing more to send.
    pub app_limited: bool,
    /// Whether this ACK newly acknowledged any packet; otherwise the other fields are meaningless.
    pub has_packet: bool,
}

/// The per-connection half of delivery-rate estimation. Payload bytes and nanoseconds.
///
/// On each ACK: [`begin_ack`](Self::begin_ack), [`on_acked`](Self::on_acked) for each packet newly
/// acknowledged, [`on_lost`](Self::on_lost) for each newly marked lost,
/// [`finish_ack`](Self::finish_ack).
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    lost: u64,
    /// End of the application-limited phase as a value of `delivered`; 0 if there is none.
    app_limited: u64,
    next_id: u64,
    /// Packets with smaller numbers were sent on an earlier path.
    path_start: u64,
    newest: Option<Stamp>,
}

impl Sampler {
    /// A sampler for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Payload bytes delivered so far.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Payload bytes marked lost so far.
    #[inline]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// When a packet was last delivered.
    #[inline]
    pub fn delivered_at(&self) -> Time {
        self.delivered_at
    }

    /// Whether the connection is application-limited.
    #[inline]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// Records a packet of `bytes` sent at `sent_at` with `inflight` bytes in flight before it.
    #[inline]
    pub fn on_sent(&mut self, sent_at: Time, bytes: u64, inflight: u64) -> Stamp {
        if inflight == 0 {
            self.first_sent_at = sent_at;
            self.delivered_at = sent_at;
        }
        self.next_id += 1;
        Stamp {
            sent_at,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost: self.lost,
            tx_in_flight: inflight.saturating_add(bytes),
            app_limited: self.app_limited != 0,
            id: self.next_id,
        }
    }

    /// Starts processing an ACK.
    #[inline]
    pub fn begin_ack(&mut self) {
        self.newest = None;
    }

    /// Records that the packet of `bytes` sent with `stamp` was acknowledged at `now`.
    #[inline]
    pub fn on_acked(&mut self, now: Time, bytes: u64, stamp: &Stamp) {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        let newer = self.newest.is_none_or(|n| (stamp.sent_at, stamp.id) > (n.sent_at, n.id));
        if newer {
            self.newest = Some(*stamp);
            self.first_sent_at = stamp.sent_at;
        }
    }

    /// Records a packet of `bytes` marked lost.
    #[inline]
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// Records that a packet of `bytes` marked lost had arrived.
    pub fn on_spurious_loss(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_sub(bytes);
    }

    /// Finishes processing an ACK and returns its sample. `min_rtt` is the minimum round-trip time;
    /// a sample over a shorter interval is an artefact of stretched or reordered ACKs.
    #[inline]
    pub fn finish_ack(&mut self, now: Time, min_rtt: Option<Span>) -> RateSample {
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let Some(stamp) = self.newest else {
            return RateSample::default();
        };
        let send_elapsed = stamp.sent_at.since(stamp.first_sent_at);
        let ack_elapsed = now.since(stamp.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered.saturating_sub(stamp.delivered);
        let valid = !interval.is_zero() && min_rtt.is_none_or(|rtt| interval >= rtt);
        RateSample {
            rate: valid.then(|| Rate::from_bytes_in(delivered, interval)),
            delivered,
            interval,
            prior_delivered: stamp.delivered,
            prior_delivered_at: stamp.delivered_at,
            tx_in_flight: stamp.tx_in_flight,
            lost: self.lost.saturating_sub(stamp.lost),
            app_limited: stamp.app_limited,
            has_packet: true,
        }
    }

    /// A packet of `bytes` in flight will be neither acknowledged nor lost: the application-limited
    /// mark does not wait for it.
    pub fn on_discarded(&mut self, bytes: u64) {
        if self.app_limited != 0 {
            self.app_limited = self.app_limited.saturating_sub(bytes).max(self.delivered).max(1);
        }
    }

    /// Starts anew at `now` on another path. The counts start at zero; do not report packets sent
    /// earlier ([`is_of_path`](Self::is_of_path)).
    pub fn start_path(&mut self, now: Time) {
        *self = Sampler {
            delivered_at: now,
            first_sent_at: now,
            next_id: self.next_id,
            path_start: self.next_id.saturating_add(1),
            ..Sampler::default()
        };
    }

    /// Whether the packet with this stamp was sent on the current path.
    #[inline]
    pub fn is_of_path(&self, stamp: &Stamp) -> bool {
        stamp.id >= self.path_start
    }

    /// Marks the connection application-limited until `inflight` more bytes are delivered: samples
    /// of packets sent until then may underestimate the path.
    #[inline]
    pub fn mark_app_limited(&mut self, inflight: u64) {
        self.app_limited = self.delivered.saturating_add(inflight).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// Ten packets back to back each millisecond over a 100 ms path: 1000 bytes/ms.
    #[test]
    fn steady_flow_is_measured_at_its_rate() {
        let mut s = Sampler::new();
        let stamps: [Stamp; 10] = core::array::from_fn(|i| s.on_sent(at(i as u64), 1000, 1000 * i as u64));
        let mut last = RateSample::default();
        for (i, stamp) in stamps.iter().enumerate() {
            let now = at(100 + i as u64);
            s.begin_ack();
            s.on_acked(now, 1000, stamp);
            last = s.finish_ack(now, Some(Span::from_millis(100)));
        }
        // Ten packets in the 109 ms since the first of them left.
        assert_eq!(last.delivered, 10_000);
        assert_eq!(last.interval, Span::from_millis(109));
        assert_eq!(last.rate, Some(Rate::from_bytes_in(10_000, Span::from_millis(109))));
    }

    #[test]
    fn compressed_acks_do_not_raise_the_sample_above_the_send_rate() {
        let mut s = Sampler::new();
        let first = s.on_sent(at(0), 1000, 0);
        s.begin_ack();
        s.on_acked(at(10), 1000, &first);
        s.finish_ack(at(10), None);
        // Sent 10 ms apart, acknowledged in the same instant.
        let a = s.on_sent(at(10), 1000, 0);
        let b = s.on_sent(at(20), 1000, 1000);
        s.begin_ack();
        s.on_acked(at(30), 1000, &a);
        s.on_acked(at(30), 1000, &b);
        let sample = s.finish_ack(at(30), None);
        assert_eq!(sample.interval, Span::from_millis(20));
        assert_eq!(sample.delivered, 2000);
    }

    #[test]
    fn sample_shorter_than_min_rtt_is_invalid() {
        let mut s = Sampler::new();
        let p = s.on_sent(at(0), 1000, 0);
        s.begin_ack();
        s.on_acked(at(5), 1000, &p);
        assert_eq!(s.finish_ack(at(5), Some(Span::from_millis(10))).rate, None);
    }

    #[test]
    fn the_app_limited_mark_ends_once_what_was_in_flight_is_delivered() {
        let mut s = Sampler::new();
        let a = s.on_sent(at(0), 1000, 0);
        s.mark_app_limited(1000);
        let b = s.on_sent(at(1), 1000, 1000);
        assert!(b.app_limited && !a.app_limited);
        s.begin_ack();
        s.on_acked(at(10), 1000, &a);
        s.finish_ack(at(10), None);
        assert!(s.is_app_limited());
        s.begin_ack();
        s.on_acked(at(11), 1000, &b);
        assert!(s.finish_ack(at(11), None).app_limited);
        assert!(!s.is_app_limited());
    }

    #[test]
    fn losses_count_from_the_sending_of_the_newest_packet() {
        let mut s = Sampler::new();
        s.on_lost(500);
        let p = s.on_sent(at(0), 1000, 0);
        s.on_lost(700);
        s.begin_ack();
        s.on_acked(at(10), 1000, &p);
        let sample = s.finish_ack(at(10), None);
        assert_eq!((sample.lost, sample.tx_in_flight), (700, 1000));
    }
}

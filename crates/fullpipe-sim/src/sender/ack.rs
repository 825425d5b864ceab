//! Processing of ACKs (`tcp_ack`): newly delivered segments, RTT samples, and what follows from
//! them.

use super::Sender;
use super::scoreboard::Entry;
use crate::segment::{SackInfo, Segment};
use fullpipe_cc::{AckEvent, AckReport, CongestionControl, RecoveryState, Span, Time};

/// Transmission times of the first and the last of several segments that were transmitted once.
#[derive(Clone, Copy, Debug)]
struct SentOnce {
    first: Time,
    last: Time,
}

impl SentOnce {
    /// Adds a segment sent at `at`.
    #[inline]
    fn and(these: Option<Self>, at: Time) -> Option<Self> {
        Some(SentOnce { first: these.map_or(at, |s| s.first), last: at })
    }
}

/// What an ACK newly reported about the outstanding segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    pub now: Time,
    /// Timestamp echo: when the segment that the ACK answers was sent.
    pub echo: Time,
    pub inflight_before: u64,
    /// The first unacknowledged segment, and one past the highest reported one, before the ACK.
    pub prior_una: u64,
    pub prior_fack: u64,
    prior_sacked: u64,
    /// The cumulative acknowledgement moved.
    pub advanced: bool,
    /// Segments were newly reported selectively.
    pub sacked_more: bool,
    /// A segment of the current recovery arrived that was transmitted only once.
    pub original_arrived: bool,
    /// A retransmitted segment was acknowledged cumulatively.
    retransmission_acked: bool,
    /// The ACK has a DSACK block.
    pub dsack: bool,
    arrived: u64,
    found: u64,
    /// The lowest newly reported segment that was transmitted only once.
    lowest_late: u64,
    /// Segments newly acknowledged cumulatively, and selectively.
    acked: Option<SentOnce>,
    sacked: Option<SentOnce>,
}

impl Arrivals {
    #[inline]
    fn count(&mut self, e: &Entry) {
        self.arrived += 1;
        self.found += u64::from(e.is_lost());
    }

    /// The original transmission of `seq` arrived; recovery ends at `high`.
    #[inline]
    fn original(&mut self, seq: u64, high: u64) {
        self.original_arrived |= seq < high;
        self.lowest_late = self.lowest_late.min(seq);
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Processes an ACK. Returns its RTT sample, if it has one.
    pub fn on_ack(&mut self, now: Time, ack: &Segment, sack: &SackInfo) -> Option<Span> {
        if let Some(cpu) = &mut self.cpu {
            cpu.handle(now, 1, 0);
        }
        self.check_app_limited();
        self.edge = self.edge.max(ack.edge);
        let mut event = self.control.begin_ack(self.board.inflight());
        let arrivals = self.update_scoreboard(&mut event, now, ack, sack);
        let rtt = self.update_rtt(&arrivals);

        let mut rearm = arrivals.advanced;
        if !arrivals.advanced
            && let (Some(sacked), Some(head)) = (arrivals.sacked, self.board.head_sent_at())
        {
            rearm = now.since(sacked.last) > now.since(head);
        }
        self.process_probe_answer(&arrivals);
        rearm &= !self.alert(&mut event, &arrivals);
        self.notify_controller(event, &arrivals, rtt, ack.ce);
        if rearm {
            self.set_timer(now, true);
        }
        rtt
    }

    /// Removes delivered segments from the scoreboard, and passes each to the rate sampler and
    /// RACK.
    #[inline]
    fn update_scoreboard(
        &mut self,
        event: &mut AckEvent,
        now: Time,
        ack: &Segment,
        sack: &SackInfo,
    ) -> Arrivals {
        let mut arrivals = Arrivals {
            now,
            echo: ack.stamp,
            inflight_before: self.board.inflight(),
            prior_una: self.board.una(),
            prior_fack: self.board.fack(),
            prior_sacked: self.board.sacked(),
            advanced: false,
            sacked_more: false,
            original_arrived: false,
            retransmission_acked: false,
            dsack: sack.dsack.is_some(),
            arrived: 0,
            found: 0,
            lowest_late: u64::MAX,
            acked: None,
            sacked: None,
        };
        if let Some((seq, _)) = sack.dsack {
            self.rack.on_dsack();
            self.recovering.on_dsack(seq, arrivals.prior_una.max(ack.seq));
        }

        let high = self.recovering.high;
        let min_rtt = self.rtt.min();
        let Self { board, control, rack, .. } = self;
        board.sack(sack.blocks(), |seq, e| {
            arrivals.count(e);
            control.on_acked(event, now, u64::from(e.len), &e.stamp());
            rack.on_delivered(now, e, min_rtt);
            if !e.was_retransmitted() {
                arrivals.sacked = SentOnce::and(arrivals.sacked, e.sent_at());
                arrivals.original(seq, high);
            }
        });
        arrivals.sacked_more = arrivals.arrived > 0;
        board.ack(ack.seq, |seq, e| {
            arrivals.count(e);
            control.on_acked(event, now, u64::from(e.len), &e.stamp());
            // An older echo shows that the original arrived, not the retransmission (RFC 8985 §6.2 step 2).
            if !e.was_retransmitted() || arrivals.echo >= e.sent_at() {
                rack.on_delivered(now, e, min_rtt);
            }
            if e.was_retransmitted() {
                arrivals.retransmission_acked = true;
            } else {
                arrivals.acked = SentOnce::and(arrivals.acked, e.sent_at());
                arrivals.original(seq, high);
            }
        });
        if arrivals.lowest_late < arrivals.prior_fack {
            rack.on_reordered(arrivals.lowest_late, arrivals.prior_fack);
        }
        arrivals.advanced = board.una() > arrivals.prior_una;
        self.counts.arrived += arrivals.arrived;
        self.counts.found += arrivals.found;
        if arrivals.advanced {
            self.rtt.reset_backoff();
        }
        arrivals
    }

    /// `tcp_ack_update_rtt`: the smoothed RTT is that of the oldest newly acknowledged segment, the
    /// sample that of the newest; for retransmissions it comes from the timestamp echo.
    #[inline]
    fn update_rtt(&mut self, arrivals: &Arrivals) -> Option<Span> {
        let now = arrivals.now;
        let acked = arrivals.acked.filter(|_| !arrivals.retransmission_acked);
        let mut smoothed = acked.map(|sent| now.since(sent.first));
        let mut sample = acked.map(|sent| now.since(sent.last));
        if let Some(sent) = arrivals.sacked {
            sample = Some(now.since(sent.last));
            smoothed = smoothed.or(Some(now.since(sent.first)));
        }
        if smoothed.is_none() && arrivals.advanced {
            sample = Some(now.since(arrivals.echo));
            smoothed = sample;
        }
        let (smoothed, sample) = (smoothed?, sample?);
        self.rtt.sample_min(now, sample);
        self.rtt.sample(smoothed, self.board.una(), self.board.nxt());
        Some(sample)
    }

    /// Passes the processed ACK to the controller.
    #[inline]
    fn notify_controller(&mut self, event: AckEvent, arrivals: &Arrivals, rtt: Option<Span>, ce: u16) {
        let newly_acked = event.newly_acked();
        let report = AckReport {
            now: arrivals.now,
            rtt,
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min(),
            inflight: self.board.inflight(),
            outstanding: self.board.outstanding_bytes(),
            advanced: arrivals.advanced,
            ce_count: u32::from(ce),
            cwnd_limited: self.limited.is_limited(),
            disorder: self.recovering.state == RecoveryState::Disorder,
            lone_runt: arrivals.arrived == 1
                && arrivals.prior_sacked == 0
                && newly_acked < self.smss
                && self.board.una() == self.board.nxt(),
        };
        let sample = self.control.finish_ack(event, &report);
        if let Some(rate) = sample.rate {
            self.delivery_rate = rate;
        }
        if sample.has_packet {
            self.rack.update_window(sample.prior_delivered, sample.prior_delivered + sample.delivered);
        }
    }
}

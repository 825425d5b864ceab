//! The sending end of a connection, as Linux's TCP is one: what an ACK means, what may be sent, and
//! what happens when neither comes.

mod limited;
mod rack;
mod recovery;
mod rto;
mod scoreboard;

use crate::segment::{Kind, SackInfo, Segment};
use fullpipe_cc::{
    Ack, CongestionControl, Lost, Pacer, Prr, Recovery, RecoveryContext, RecoveryState, Sampler, Sent, Span,
    Time,
};
use fullpipe_experiment::recording::EventKind;
use limited::CwndLimited;
use rack::Rack;
use recovery::{Recovering, Shown, Verdict};
use rto::{RTO_MIN, RttEstimator};
use scoreboard::Scoreboard;

/// The most payload under way: what a TCP window can express (RFC 7323 §2.3).
const MOST_BYTES: u64 = 1 << 30;
/// The most segments under way, so that tiny segments cannot take all memory either.
const MOST_SEGMENTS: u64 = 1 << 20;
/// Least time that a timer is set for (`TCP_TIMEOUT_MIN_US`).
const TIMER_MIN: Span = Span::from_millis(2);

/// The one timer of the sender, as `icsk_pending`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    Retransmission,
    LossProbe,
    Reordering,
}

/// What the sender counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Data packets sent, retransmissions included.
    pub sent: u64,
    pub retransmitted: u64,
    /// Packets marked lost.
    pub marked_lost: u64,
    /// Packets that arrived: acknowledged, cumulatively or selectively.
    pub arrived: u64,
    /// Of these, marked lost and not retransmitted before their arrival was reported.
    pub found: u64,
    /// Packets whose mark was taken back.
    pub unmarked: u64,
    /// Packets retransmitted as a probe while still counted as in flight.
    pub superseded: u64,
}

/// Something that happened at one time, for the recording.
pub(crate) type Happening = (Time, EventKind, Option<f64>);

/// The sending end of a connection.
#[derive(Debug)]
pub(crate) struct Sender<C> {
    pub cc: C,
    smss: u64,
    board: Scoreboard,
    sampler: Sampler,
    pacer: Pacer,
    rtt: RttEstimator,
    rack: Rack,
    recovering: Recovering,
    limited: CwndLimited,
    /// The timer that runs and when it fires.
    timer: Option<Timer>,
    timer_at: Time,
    /// When the pacer lets the next packet leave, if it holds one back.
    paced_until: Time,
    /// A tail loss probe is out: acknowledged up to here, it is answered; whether it was a retransmission.
    probe: Option<(u64, bool)>,
    /// F-RTO sends new data before what is lost.
    new_first: bool,
    /// Bytes the application has written.
    written: u64,
    /// It will write no more.
    closed: bool,
    send_buffer: u64,
    /// Right edge of the receive window.
    edge: u64,
    /// One past the last segment that was sent less than full (`tcp_minshall_check`).
    small_end: u64,
    last_sent: Time,
    delivery_rate: fullpipe_cc::Rate,
    pub counts: Counts,
    pub happenings: Vec<Happening>,
}

impl<C: CongestionControl> Sender<C> {
    /// A sender of segments of `smss` payload bytes.
    pub fn new(cc: C, smss: u32, send_buffer: Option<u64>) -> Self {
        Sender {
            cc,
            smss: u64::from(smss),
            board: Scoreboard::new(),
            sampler: Sampler::new(),
            pacer: Pacer::new(),
            rtt: RttEstimator::default(),
            rack: Rack::default(),
            recovering: Recovering::default(),
            limited: CwndLimited::default(),
            timer: None,
            timer_at: Time::NEVER,
            paced_until: Time::NEVER,
            probe: None,
            new_first: false,
            written: 0,
            closed: false,
            send_buffer: send_buffer.unwrap_or(u64::MAX),
            edge: 0,
            small_end: 0,
            last_sent: Time::ZERO,
            delivery_rate: fullpipe_cc::Rate::ZERO,
            counts: Counts::default(),
            happenings: Vec::new(),
        }
    }

    /// The handshake is complete; `rtt` if it was not retransmitted.
    pub fn establish(&mut self, now: Time, rtt: Option<Span>, edge: u64) {
        self.edge = edge;
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt, 0, 0);
            self.rtt.sample_min(now, rtt);
            self.cc.on_handshake(now, rtt);
        }
    }

    /// The application has written `bytes` more.
    pub fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// What the application wrote and was not sent yet is not to be sent. How much it has written then.
    pub fn forget_unsent(&mut self) -> u64 {
        self.written = self.written.min(self.board.nxt_bytes());
        self.written
    }

    /// The application will write no more; what it did not hand over yet it will not.
    pub fn close(&mut self, truncate: bool) {
        if truncate {
            self.written = self.written.min(self.board.nxt_bytes().max(self.unlimited_end()));
        }
        self.closed = true;
    }

    /// Of an application that writes without end, what is sent already is all it has written.
    fn unlimited_end(&self) -> u64 {
        if self.written == u64::MAX { self.board.nxt_bytes() } else { self.written }
    }

    /// Whether everything written has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.board.una_bytes() == self.written
    }

    /// The next time that something must happen without an ACK.
    #[inline]
    pub fn wake(&self) -> Time {
        self.timer_at.min(self.paced_until)
    }

    /// Payload bytes in flight.
    pub fn inflight(&self) -> u64 {
        self.board.inflight()
    }

    /// Payload bytes known to have arrived.
    pub fn delivered(&self) -> u64 {
        self.sampler.delivered()
    }

    /// Latest, smoothed and least round-trip time.
    pub fn rtts(&self) -> (Option<Span>, Option<Span>, Option<Span>) {
        (self.rtt.latest(), self.rtt.srtt(), self.rtt.min())
    }

    /// The latest delivery-rate sample.
    pub fn delivery_rate(&self) -> fullpipe_cc::Rate {
        self.delivery_rate
    }

    /// Smoothed round-trip time.
    #[inline]
    pub fn srtt(&self) -> Option<Span> {
        self.rtt.srtt()
    }

    /// The retransmission time-out now.
    pub fn rto(&self) -> Span {
        self.rtt.rto()
    }

    /// The window in force: the controller's, or what proportional rate reduction makes of it.
    pub fn window(&self) -> u64 {
        self.recovering.prr.as_ref().map_or_else(|| self.cc.cwnd(), Prr::cwnd)
    }

    fn context(&self, now: Time, inflight: u64) -> RecoveryContext {
        RecoveryContext { now, inflight, delivered: self.sampler.delivered(), lost: self.sampler.lost() }
    }

    fn happened(&mut self, now: Time, kind: EventKind, value: Option<f64>) {
        self.happenings.push((now, kind, value));
    }

    /// Payload that could be sent for the first time as far as the application is concerned.
    #[inline]
    fn unsent(&self) -> u64 {
        let handed_over = self.written.min(self.board.una_bytes().saturating_add(self.send_buffer));
        handed_over.saturating_sub(self.board.nxt_bytes())
    }

    /// `tcp_rate_check_app_limited`.
    #[inline]
    fn check_app_limited(&mut self) {
        if self.unsent() < self.smss && self.board.lost() == 0 && self.board.inflight() < self.window() {
            self.sampler.mark_app_limited(self.board.inflight());
        }
    }

    /// An ACK arrives. Returns its round-trip time if it gave one.
    pub fn on_ack(&mut self, now: Time, ack: &Segment, sack: &SackInfo) -> Option<Span> {
        self.check_app_limited();
        let prior_una = self.board.una();
        let prior_fack = self.board.fack();
        let prior_sacked = self.board.sacked();
        let inflight_before = self.board.inflight();
        let delivered_before = self.sampler.delivered();
        let lost_before = self.sampler.lost();
        let high = self.recovering.high;
        self.edge = self.edge.max(ack.edge);

        if let Some((seq, _)) = sack.dsack {
            self.rack.on_dsack();
            self.recovering.on_dsack(seq, prior_una.max(ack.seq));
        }

        let Self { board, sampler, rack, counts, .. } = self;
        sampler.begin_ack();
        let min_rtt = self.rtt.min();
        let echo = ack.stamp;
        let mut original_arrived = false;
        let mut lowest_late = u64::MAX;
        let mut sacked_sent: Option<(Time, Time)> = None;
        let (mut arrived, mut found) = (0, 0);
        for &(start, end) in sack.blocks() {
            board.sack(start, end, |seq, e| {
                arrived += 1;
                found += u64::from(e.is_lost());
                sampler.on_acked(now, u64::from(e.len), &e.stamp());
                rack.on_delivered(now, e, min_rtt);
                if !e.was_retransmitted() {
                    let at = e.sent_at();
                    sacked_sent = Some((sacked_sent.map_or(at, |(first, _)| first), at));
                    original_arrived |= seq < high;
                    lowest_late = lowest_late.min(seq);
                }
            });
        }
        let sacked_more = arrived > 0;
        let mut acked_sent: Option<(Time, Time)> = None;
        let mut retransmission_acked = false;
        board.ack(ack.seq, |seq, e| {
            arrived += 1;
            found += u64::from(e.is_lost());
            sampler.on_acked(now, u64::from(e.len), &e.stamp());
            // An echo of something older: it was the original that arrived (RFC 8985 §6.2 step 2).
            if !e.was_retransmitted() || echo >= e.sent_at() {
                rack.on_delivered(now, e, min_rtt);
            }
            if e.was_retransmitted() {
                retransmission_acked = true;
            } else {
                let at = e.sent_at();
                acked_sent = Some((acked_sent.map_or(at, |(first, _)| first), at));
                original_arrived |= seq < high;
                lowest_late = lowest_late.min(seq);
            }
        });
        if lowest_late < prior_fack {
            rack.on_reordered(lowest_late, prior_fack);
        }
        counts.arrived += arrived;
        counts.found += found;
        let advanced = board.una() > prior_una;
        let newly_acked = sampler.delivered() - delivered_before;
        if advanced {
            self.rtt.answered();
        }

        let rtt = self.take_rtt(now, ack.stamp, acked_sent, sacked_sent, retransmission_acked, advanced);

        let mut rearm = advanced;
        if !advanced && let (Some((_, newest)), Some(head)) = (sacked_sent, self.board.head_sent_at()) {
            rearm = now.since(newest) > now.since(head);
        }
        self.probe_answered(now, sack.dsack.is_some(), advanced, sacked_more);

        let prior = (prior_una, prior_fack);
        let ranges = self.recover(
            now,
            ack.stamp,
            advanced,
            original_arrived,
            sacked_more,
            inflight_before,
            prior,
            &mut rearm,
        );

        let sample = self.sampler.finish_ack(now, self.rtt.min());
        if let Some(rate) = sample.rate {
            self.delivery_rate = rate;
        }
        if sample.has_packet {
            self.rack.update_window(sample.prior_delivered, sample.prior_delivered + sample.delivered);
        }
        let newly_lost = self.sampler.lost() - lost_before;
        let lone_runt = arrived == 1
            && prior_sacked == 0
            && newly_acked < self.smss
            && sample.delivered == newly_acked
            && self.board.una() == self.board.nxt();
        self.cc.on_ack(&Ack {
            now,
            sample,
            rtt,
            srtt: self.rtt.srtt(),
            newly_acked,
            newly_lost,
            lost_ranges: ranges,
            inflight_before,
            inflight: self.board.inflight(),
            delivered: self.sampler.delivered(),
            lost: self.sampler.lost(),
            cwnd_limited: self.limited.is_limited(),
            ce_count: u32::from(ack.ce),
            delayed: lone_runt,
            recovery: self.recovering.state,
            next_departure: self.pacer.next_departure(),
        });
        if self.cc.marks_app_limited() {
            self.sampler.mark_app_limited(self.board.inflight());
        }
        if let Some(prr) = &mut self.recovering.prr {
            prr.on_ack(newly_acked, newly_lost, self.board.inflight(), self.cc.ssthresh(), advanced);
        }
        if rearm {
            self.set_timer(now, true);
        }
        rtt
    }

    /// `tcp_ack_update_rtt`: the smoothed RTT is of the oldest segment newly acknowledged, the sample of
    /// the newest; of retransmissions the timestamp echo tells.
    fn take_rtt(
        &mut self,
        now: Time,
        echo: Time,
        acked: Option<(Time, Time)>,
        sacked: Option<(Time, Time)>,
        retransmission_acked: bool,
        advanced: bool,
    ) -> Option<Span> {
        let mut smoothed = acked.filter(|_| !retransmission_acked).map(|(first, _)| now.since(first));
        let mut sample = acked.filter(|_| !retransmission_acked).map(|(_, last)| now.since(last));
        if let Some((first, last)) = sacked {
            sample = Some(now.since(last));
            smoothed = smoothed.or(Some(now.since(first)));
        }
        if smoothed.is_none() && advanced {
            sample = Some(now.since(echo));
            smoothed = sample;
        }
        let (smoothed, sample) = (smoothed?, sample?);
        self.rtt.sample_min(now, sample);
        self.rtt.sample(smoothed, self.board.una(), self.board.nxt());
        Some(sample)
    }

    /// `tcp_process_tlp_ack`: a tail loss probe that was answered without a duplicate report has
    /// repaired a loss, which the controller must hear of.
    fn probe_answered(&mut self, now: Time, dsack: bool, advanced: bool, sacked_more: bool) {
        let Some((high, retransmission)) = self.probe else { return };
        if self.board.una() < high {
            return;
        }
        if !retransmission || dsack {
            self.probe = None;
        } else if self.board.una() > high || advanced {
            self.probe = None;
            if !self.recovering.is_recovering() && self.cc.uses_prr() {
                let context = self.context(now, self.board.inflight());
                self.cc.on_recovery(Recovery::EnterFast, &context);
                self.cc.on_recovery(Recovery::Exit, &context);
            }
        } else if !sacked_more {
            self.probe = None;
        }
    }

    /// `tcp_fastretrans_alert`: ends, undoes or begins recovery. Returns the ranges newly marked lost.
    #[allow(clippy::too_many_arguments, reason = "the facts of one ACK")]
    fn recover(
        &mut self,
        now: Time,
        echo: Time,
        advanced: bool,
        original_arrived: bool,
        sacked_more: bool,
        inflight_before: u64,
        (prior_una, prior_fack): (u64, u64),
        rearm: &mut bool,
    ) -> u32 {
        let shown = Shown {
            una: self.board.una(),
            nxt: self.board.nxt(),
            advanced,
            echo,
            original_arrived,
            sacked_more,
            has_new_data: self.unsent() > 0 && self.edge > self.board.nxt_bytes(),
        };
        self.new_first = false;
        match self.recovering.judge(&shown) {
            Verdict::Stay => {}
            Verdict::ProbeWithNew => self.new_first = true,
            Verdict::Exit => self.exit_recovery(now),
            Verdict::Undo { unmark } => {
                // The hole was filled by a delayed packet, not by its retransmission (`tcp_try_undo_partial`).
                if unmark && prior_una < prior_fack {
                    self.rack.on_reordered(prior_una, prior_fack);
                }
                self.undo(now, unmark);
            }
        }
        if !self.rack.take_advanced() {
            return 0;
        }
        let (ranges, doubt) = self.detect_losses(now);
        if let Some(at) = doubt {
            self.timer = Some(Timer::Reordering);
            self.timer_at = at.max(now) + TIMER_MIN;
            *rearm = false;
        }
        if self.board.lost() > 0 && !self.recovering.is_recovering() {
            self.enter_recovery(now, inflight_before);
        }
        if !self.recovering.is_recovering() {
            let disorder = self.board.sacked() > 0;
            self.recovering.state = if disorder { RecoveryState::Disorder } else { RecoveryState::Open };
        }
        ranges
    }

    /// Marks what RACK deems lost, tells the controller, and counts contiguous ranges. Also says when
    /// to look again if some segments are in doubt.
    fn detect_losses(&mut self, now: Time) -> (u32, Option<Time>) {
        let window = self.rack.reordering_window(
            self.rtt.min(),
            self.rtt.srtt(),
            self.recovering.is_recovering(),
            self.board.sacked(),
        );
        let Self { board, sampler, rack, cc, counts, .. } = self;
        let mut teller = LossTeller { now, sampler, cc, counts, ranges: 0, next: None };
        let doubt = board.detect(now, rack.newest(), rack.rtt() + window, |seq, e| teller.tell(seq, e));
        (teller.ranges, doubt)
    }

    fn enter_recovery(&mut self, now: Time, inflight_before: u64) {
        let prior = self.cc.cwnd();
        let context = self.context(now, inflight_before);
        self.cc.on_recovery(Recovery::EnterFast, &context);
        let prr = self.cc.uses_prr().then(|| Prr::new(prior, self.smss as u32));
        self.clean_up_retransmissions();
        self.recovering.enter_fast(self.board.una(), self.board.nxt(), self.board.resent(), prr);
        self.happened(now, EventKind::RecoveryEntered, Some(inflight_before as f64));
    }

    fn clean_up_retransmissions(&mut self) {
        if !self.board.any_retransmitted() {
            self.recovering.nothing_retransmitted();
        }
    }

    fn exit_recovery(&mut self, now: Time) {
        self.rack.on_recovered();
        self.recovering.exit();
        self.clean_up_retransmissions();
        let context = self.context(now, self.board.inflight());
        self.cc.on_recovery(Recovery::Exit, &context);
        self.happened(now, EventKind::RecoveryExited, None);
    }

    fn undo(&mut self, now: Time, unmark: bool) {
        if unmark {
            self.counts.unmarked += self.board.unmark_lost();
        }
        let was_recovering = self.recovering.is_recovering();
        let context = self.context(now, self.board.inflight());
        self.cc.on_recovery(Recovery::Spurious, &context);
        self.recovering.forget();
        self.happened(now, EventKind::SpuriousLoss, None);
        if was_recovering {
            self.exit_recovery(now);
        }
    }

    /// Sets the timer after progress: a tail loss probe if one may be needed, or the retransmission
    /// timer (`tcp_set_xmit_timer`).
    fn set_timer(&mut self, now: Time, advancing: bool) {
        if self.board.outstanding() == 0 {
            self.timer = None;
            self.timer_at = Time::NEVER;
        } else if !self.schedule_probe(now, advancing) {
            self.rearm_rto(now);
        }
    }

    /// `tcp_rearm_rto`.
    fn rearm_rto(&mut self, now: Time) {
        let rto = self.rtt.rto();
        let at = match self.timer {
            Some(Timer::LossProbe | Timer::Reordering) => {
                (self.board.head_sent_at().unwrap_or(now) + rto).max(now + Span::from_micros(1))
            }
            _ => now + rto,
        };
        self.timer = Some(Timer::Retransmission);
        self.timer_at = at;
    }

    /// `tcp_schedule_loss_probe`.
    #[inline]
    fn schedule_probe(&mut self, now: Time, advancing: bool) -> bool {
        if self.board.outstanding() == 0 || self.recovering.state != RecoveryState::Open {
            return false;
        }
        let mut wait = match self.rtt.srtt() {
            None => rto::RTO_INITIAL,
            Some(srtt) if self.board.outstanding() == 1 => srtt * 2 + RTO_MIN,
            Some(srtt) => srtt * 2 + TIMER_MIN,
        };
        let rto = self.rtt.rto();
        let until_rto =
            if advancing { rto } else { (self.board.head_sent_at().unwrap_or(now) + rto).since(now) };
        if !until_rto.is_zero() {
            wait = wait.min(until_rto);
        }
        self.timer = Some(Timer::LossProbe);
        self.timer_at = now + wait;
        true
    }

    /// Does what is due at `now`, except sending: the caller calls [`send`](Self::send) next.
    pub fn on_wake(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        if self.paced_until <= now {
            self.paced_until = Time::NEVER;
        }
        if self.timer_at > now {
            return;
        }
        match self.timer {
            None => self.timer_at = Time::NEVER,
            Some(_) if self.board.outstanding() == 0 => {
                self.timer = None;
                self.timer_at = Time::NEVER;
            }
            Some(Timer::Reordering) => self.reordering_timeout(now),
            Some(Timer::LossProbe) => self.send_probe(now, out),
            Some(Timer::Retransmission) => self.time_out(now, out),
        }
    }

    /// `tcp_rack_reo_timeout`.
    fn reordering_timeout(&mut self, now: Time) {
        let inflight_before = self.board.inflight();
        let lost_before = self.sampler.lost();
        let (_, doubt) = self.detect_losses(now);
        if self.board.lost() > 0 && !self.recovering.is_recovering() {
            self.enter_recovery(now, inflight_before);
            let newly_lost = self.sampler.lost() - lost_before;
            if let Some(prr) = &mut self.recovering.prr {
                prr.on_ack(self.smss, newly_lost, self.board.inflight(), self.cc.ssthresh(), false);
            }
        }
        match doubt {
            Some(at) => self.timer_at = at.max(now) + TIMER_MIN,
            None => self.rearm_rto(now),
        }
    }

    /// `tcp_send_loss_probe`: new data if there is some, else the last segment again.
    fn send_probe(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        self.check_app_limited();
        if self.probe.is_none() {
            let fits = self.board.nxt_bytes() + self.unsent().min(self.smss) <= self.edge;
            if self.unsent() > 0 && fits {
                self.send_new(now, out);
                self.probe = Some((self.board.nxt(), false));
                self.happened(now, EventKind::TailLossProbe, None);
            } else if let Some(seq) = self.board.last_unsacked() {
                self.retransmit(now, seq, out);
                self.probe = Some((self.board.nxt(), true));
                self.happened(now, EventKind::TailLossProbe, None);
            }
        }
        self.rearm_rto(now);
    }

    /// `tcp_retransmit_timer`, `tcp_enter_loss`.
    fn time_out(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        let waited = self.rtt.rto();
        self.check_app_limited();
        let rtt = self.rack.rtt();
        let Self { board, sampler, cc, counts, .. } = self;
        let mut teller = LossTeller { now, sampler, cc, counts, ranges: 0, next: None };
        board.time_out(now, rtt, |seq, e| teller.tell(seq, e));
        self.clean_up_retransmissions();
        self.recovering.enter_loss(self.board.una(), self.board.nxt(), self.board.resent());
        let context = self.context(now, self.board.inflight());
        self.cc.on_recovery(Recovery::EnterRto, &context);
        self.probe = None;
        self.new_first = false;
        self.happened(now, EventKind::RetransmissionTimeout, Some(waited.as_secs_f64()));
        self.rtt.back_off();
        self.retransmit(now, self.board.una(), out);
        self.timer = Some(Timer::Retransmission);
        self.timer_at = now + self.rtt.rto();
    }

    /// Sends what the window, the pacer, the receiver and the application allow.
    pub fn send(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        let outstanding_before = self.board.outstanding();
        let sent_before = self.counts.sent;
        let mut by_window = false;
        let pacing = self.cc.pacing_rate();
        loop {
            if pacing.is_some() && !self.pacer.ready(now) {
                if self.has_something(&mut by_window) {
                    self.paced_until = self.pacer.next_departure();
                }
                break;
            }
            let quantum = if pacing.is_some() { self.cc.send_quantum() } else { u64::MAX };
            let (bytes, segments) = self.send_burst(now, quantum, &mut by_window, out);
            if segments == 0 {
                break;
            }
            self.pacer.on_sent(now, bytes, segments, self.cc.pacing_rate());
            if pacing.is_none() {
                break;
            }
        }
        let sent = self.counts.sent > sent_before;
        if sent || by_window {
            by_window |= self.board.inflight() + self.smss > self.window();
            self.limited.on_sent(by_window, self.board.outstanding(), self.board.una(), self.board.nxt());
        }
        if sent {
            if outstanding_before == 0 || self.timer.is_none() {
                self.timer = None;
                self.rearm_rto(now);
            }
            if self.timer != Some(Timer::Reordering) && self.board.outstanding() > outstanding_before {
                self.schedule_probe(now, false);
            }
        }
    }

    /// Whether a packet could be sent were it not for the pacer.
    fn has_something(&mut self, by_window: &mut bool) -> bool {
        let window = self.window().min(MOST_BYTES);
        self.next_to_send(window, by_window).is_some()
    }

    /// What to send next: a lost segment, or the length of a new one.
    #[inline]
    fn next_to_send(&mut self, window: u64, by_window: &mut bool) -> Option<Next> {
        let inflight = self.board.inflight();
        let fits = |len: u64| inflight + len <= window || inflight == 0;
        let new = self.next_new();
        if !(self.new_first && new.is_some())
            && let Some(seq) = self.board.next_lost()
        {
            let len = u64::from(self.board.get(seq).len);
            if fits(len) {
                return Some(Next::Lost(seq));
            }
            *by_window = true;
            return None;
        }
        let len = new?;
        if !fits(len) {
            *by_window = true;
            return None;
        }
        Some(Next::New)
    }

    /// Length of the next new segment, if application and receiver let it leave.
    #[inline]
    fn next_new(&self) -> Option<u64> {
        let unsent = self.unsent();
        if unsent == 0 || self.board.outstanding() >= MOST_SEGMENTS {
            return None;
        }
        let len = unsent.min(self.smss);
        let nagle = len < self.smss && !self.closed && self.small_end > self.board.una();
        (!nagle && self.board.nxt_bytes() + len <= self.edge).then_some(len)
    }

    fn send_burst(
        &mut self,
        now: Time,
        quantum: u64,
        by_window: &mut bool,
        out: &mut impl FnMut(Segment, bool),
    ) -> (u64, u64) {
        let (mut bytes, mut segments) = (0, 0);
        let mut window = self.window().min(MOST_BYTES);
        while bytes < quantum {
            let Some(next) = self.next_to_send(window, by_window) else { break };
            let len = match next {
                Next::Lost(seq) => self.retransmit(now, seq, out),
                Next::New => self.send_new(now, out),
            };
            if segments == 0 {
                // The first packet after an idle time may have made the controller restart.
                window = self.window().min(MOST_BYTES);
            }
            bytes += len;
            segments += 1;
        }
        (bytes, segments)
    }

    #[inline]
    fn tell_sent(&mut self, now: Time, bytes: u64, retransmit: bool) {
        let inflight = self.board.inflight();
        if inflight == 0 && !retransmit && self.counts.sent > 0 && now.since(self.last_sent) > self.rtt.rto()
        {
            self.happened(now, EventKind::IdleRestart, None);
        }
        self.last_sent = now;
        self.cc.on_send(&Sent {
            now,
            bytes,
            inflight,
            app_limited: self.sampler.is_app_limited(),
            delivered: self.sampler.delivered(),
            retransmit,
        });
        if let Some(prr) = &mut self.recovering.prr {
            prr.on_sent(bytes);
        }
        self.counts.sent += 1;
    }

    fn send_new(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) -> u64 {
        let len = self.unsent().min(self.smss);
        self.tell_sent(now, len, false);
        let stamp = self.sampler.on_sent(now, len, self.board.inflight());
        let seq = self.board.nxt();
        self.board.push(len as u16, stamp);
        if len < self.smss {
            self.small_end = self.board.nxt();
        }
        let edge = self.board.nxt_bytes();
        out(Segment { seq, stamp: now, edge, detail: len as u32, ce: 0, kind: Kind::Data }, false);
        len
    }

    fn retransmit(&mut self, now: Time, seq: u64, out: &mut impl FnMut(Segment, bool)) -> u64 {
        let e = self.board.get(seq);
        let (len, start) = (u64::from(e.len), self.board.start_of(seq));
        self.counts.superseded += u64::from(!e.is_lost());
        self.tell_sent(now, len, true);
        let stamp = self.sampler.on_sent(now, len, self.board.inflight());
        self.board.retransmitted(seq, stamp);
        self.recovering.on_retransmit(now);
        self.counts.retransmitted += 1;
        let edge = start + len;
        out(Segment { seq, stamp: now, edge, detail: len as u32, ce: 0, kind: Kind::Data }, true);
        len
    }
}

#[cfg(test)]
impl<C: CongestionControl> Sender<C> {
    /// Payload bytes acknowledged cumulatively.
    pub fn acknowledged(&self) -> u64 {
        self.board.una_bytes()
    }

    /// Panics unless every packet sent is accounted for: arrived, lost, replaced or in flight.
    pub fn audit(&self) {
        let [kept, fresh] = self.board.audit();
        assert_eq!(kept, fresh, "inflight, sacked, lost, resent");
        let c = &self.counts;
        let gone = (c.arrived - c.found) + (c.marked_lost - c.unmarked) + c.superseded;
        assert_eq!(c.sent, gone + self.board.out(), "{c:?}");
        assert_eq!(self.sampler.delivered() - self.board.una_bytes(), self.board.sacked_bytes());
    }
}

enum Next {
    Lost(u64),
    New,
}

/// Tells sampler and controller of each segment marked lost, and counts contiguous ranges.
struct LossTeller<'a, C> {
    now: Time,
    sampler: &'a mut Sampler,
    cc: &'a mut C,
    counts: &'a mut Counts,
    ranges: u32,
    next: Option<u64>,
}

impl<C: CongestionControl> LossTeller<'_, C> {
    fn tell(&mut self, seq: u64, e: &scoreboard::Entry) {
        let bytes = u64::from(e.len);
        let stamp = e.stamp();
        self.sampler.on_lost(bytes);
        self.counts.marked_lost += 1;
        if self.next != Some(seq) {
            self.ranges += 1;
        }
        self.next = Some(seq + 1);
        self.cc.on_lost(&Lost {
            now: self.now,
            bytes,
            tx_in_flight: stamp.tx_in_flight,
            delivered_at_send: stamp.delivered,
            lost_at_send: stamp.lost,
            lost: self.sampler.lost(),
            delivered: self.sampler.delivered(),
            app_limited: stamp.app_limited,
        });
    }
}

//! Start, end and undo of recovery by ACKs and timers (`tcp_fastretrans_alert`,
//! `tcp_rack_reo_timeout`, `tcp_enter_loss`).

use super::ack::Arrivals;
use super::recovery::{Evidence, Verdict};
use super::scoreboard::Entry;
use super::timer::Timer;
use super::{Counts, Sender};
use fullpipe_cc::{AckEvent, CongestionControl, Event, RecoveryState, SendController, Time};
use fullpipe_experiment::recording::EventKind;

impl<C: CongestionControl> Sender<C> {
    /// `tcp_process_tlp_ack`: a tail loss probe that was answered without a DSACK has repaired a
    /// loss, which the controller must react to.
    #[inline]
    pub(super) fn process_probe_answer(&mut self, arrivals: &Arrivals) {
        let Some(probe) = self.probe else { return };
        if self.board.una() < probe.high {
            return;
        }
        if !probe.retransmission || arrivals.dsack {
            self.probe = None;
        } else if self.board.una() > probe.high || arrivals.advanced {
            self.probe = None;
            if !self.recovering.is_recovering() {
                self.control.reduce_for_repaired_loss(arrivals.now, self.board.inflight());
            }
        } else if !arrivals.sacked_more {
            self.probe = None;
        }
    }

    /// `tcp_fastretrans_alert`: ends, undoes or starts recovery. Returns whether it set the
    /// reordering timer.
    #[inline]
    pub(super) fn alert(&mut self, event: &mut AckEvent, arrivals: &Arrivals) -> bool {
        let now = arrivals.now;
        self.judge_recovery(arrivals);
        let delivered = self.rack.take_advanced();
        let doubt = if delivered { self.detect_losses(event, now) } else { None };
        if let Some(at) = doubt {
            self.timer = Some(Timer::Reordering);
            self.set_reordering_timer(now, at);
        }
        // A segment that was sent during the last recovery and lost starts the next one at once, even if it
        // was retransmitted already (`tcp_time_to_recover`).
        if self.board.deemed_lost() > 0 && !self.recovering.is_recovering() {
            self.control.enter_recovery(event, now);
            self.recovery_entered(now, arrivals.inflight_before);
        }
        if delivered && !self.recovering.is_recovering() {
            let disorder = self.board.sacked() > 0;
            self.recovering.state = if disorder { RecoveryState::Disorder } else { RecoveryState::Open };
        }
        doubt.is_some()
    }

    /// Ends or undoes recovery if the ACK shows that it is complete or was spurious.
    #[inline]
    fn judge_recovery(&mut self, arrivals: &Arrivals) {
        let evidence = Evidence {
            una: self.board.una(),
            nxt: self.board.nxt(),
            advanced: arrivals.advanced,
            echo: arrivals.echo,
            original_arrived: arrivals.original_arrived,
            sacked_more: arrivals.sacked_more,
            has_new_data: self.unsent() > 0 && self.edge > self.board.nxt_bytes(),
        };
        self.new_first = false;
        match self.recovering.judge(&evidence) {
            Verdict::Stay => {}
            Verdict::ProbeWithNew => self.new_first = true,
            Verdict::Exit => self.exit_recovery(arrivals.now),
            Verdict::Undo { unmark } => {
                // A delayed original filled the hole, not its retransmission (`tcp_try_undo_partial`).
                if unmark && arrivals.prior_una < arrivals.prior_fack {
                    self.rack.on_reordered(arrivals.prior_una, arrivals.prior_fack);
                }
                self.undo(arrivals.now, unmark);
            }
        }
    }

    /// Marks segments that RACK considers lost and notifies the controller. Returns when to check
    /// again, if some segments may be reordered.
    #[inline]
    fn detect_losses(&mut self, event: &mut impl Event, now: Time) -> Option<Time> {
        let window = self.rack.reordering_window(
            self.rtt.min(),
            self.rtt.srtt(),
            self.recovering.is_recovering(),
            self.board.sacked(),
        );
        let (newest, window) = (self.rack.newest(), self.rack.rtt() + window);
        let Self { board, control, counts, .. } = self;
        let mut losses = Losses { control, event, counts, now, next: None };
        board.detect(now, newest, window, |seq, e| losses.notify(seq, e))
    }

    fn recovery_entered(&mut self, now: Time, inflight_before: u64) {
        self.clean_up_retransmissions();
        self.recovering.enter_fast(self.board.una(), self.board.nxt(), self.board.resent());
        self.record_event(now, EventKind::RecoveryEntered, Some(inflight_before as f64));
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
        self.control.exit_recovery(now, self.board.inflight());
        self.record_event(now, EventKind::RecoveryExited, None);
    }

    fn undo(&mut self, now: Time, unmark: bool) {
        if unmark {
            self.counts.unmarked += self.board.unmark_lost();
        }
        let was_recovering = self.recovering.is_recovering();
        self.control.undo(now, self.board.inflight());
        self.recovering.forget();
        self.record_event(now, EventKind::SpuriousLoss, None);
        if was_recovering {
            self.exit_recovery(now);
        }
    }

    /// `tcp_rack_reo_timeout`.
    pub(super) fn reordering_timeout(&mut self, now: Time) {
        let inflight_before = self.board.inflight();
        let mut event = self.control.begin_losses(inflight_before);
        let doubt = self.detect_losses(&mut event, now);
        if self.board.deemed_lost() > 0 && !self.recovering.is_recovering() {
            self.control.enter_recovery_on_timer(event, now, self.board.inflight());
            self.recovery_entered(now, inflight_before);
        } else {
            self.control.finish_losses(event);
        }
        match doubt {
            Some(at) => self.set_reordering_timer(now, at),
            None => self.rearm_rto(now),
        }
    }

    /// `tcp_enter_loss`: the retransmission timer expired.
    pub(super) fn enter_loss(&mut self, now: Time) {
        let rtt = self.rack.rtt();
        let Self { board, control, counts, .. } = self;
        let mut event = control.begin_losses(board.inflight());
        let mut losses = Losses { control, event: &mut event, counts, now, next: None };
        board.mark_timed_out(now, rtt, |seq, e| losses.notify(seq, e));
        self.clean_up_retransmissions();
        self.recovering.enter_loss(self.board.una(), self.board.nxt(), self.board.resent());
        self.control.enter_loss(event, now, self.board.inflight());
        self.probe = None;
        self.new_first = false;
    }
}

/// Notifies the controller of the segments that an event marks lost.
struct Losses<'a, C, E> {
    control: &'a mut SendController<C>,
    event: &'a mut E,
    counts: &'a mut Counts,
    now: Time,
    /// The segment after the last one.
    next: Option<u64>,
}

impl<C: CongestionControl, E: Event> Losses<'_, C, E> {
    #[inline]
    fn notify(&mut self, seq: u64, e: &Entry) {
        self.counts.marked_lost += 1;
        let new_range = self.next != Some(seq);
        self.next = Some(seq.wrapping_add(1));
        self.control.on_lost(self.event, self.now, u64::from(e.len), &e.stamp(), new_range);
    }
}

//! Start, end and undo of recovery by ACKs and timers (`tcp_fastretrans_alert`,
//! `tcp_rack_reo_timeout`, `tcp_enter_loss`).

use super::ack::Arrivals;
use super::recovery::{Evidence, Verdict};
use super::scoreboard::Entry;
use super::timer::Timer;
use super::{Counts, Sender};
use fullpipe_cc::{CongestionControl, Connection, RecoveryState, Time};
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
                self.connection.reduce_for_repaired_loss(arrivals.now, self.board.inflight());
            }
        } else if !arrivals.sacked_more {
            self.probe = None;
        }
    }

    /// `tcp_fastretrans_alert`: ends, undoes or starts recovery. Returns whether it set the
    /// reordering timer.
    #[inline]
    pub(super) fn alert(&mut self, arrivals: &Arrivals) -> bool {
        let now = arrivals.now;
        self.judge_recovery(arrivals);
        let delivered = self.rack.take_advanced();
        let doubt = if delivered { self.detect_losses(now) } else { None };
        if let Some(at) = doubt {
            self.timer = Some(Timer::Reordering);
            self.set_reordering_timer(now, at);
        }
        // A segment that was sent during the last recovery and lost starts the next one at once, even if it
        // was retransmitted already (`tcp_time_to_recover`).
        if self.board.deemed_lost() > 0 && !self.recovering.is_recovering() {
            self.connection.enter_recovery(now, arrivals.inflight_before);
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
    fn detect_losses(&mut self, now: Time) -> Option<Time> {
        let window = self.rack.reordering_window(
            self.rtt.min(),
            self.rtt.srtt(),
            self.recovering.is_recovering(),
            self.board.sacked(),
        );
        let (newest, window) = (self.rack.newest(), self.rack.rtt() + window);
        let Self { board, connection, counts, .. } = self;
        board.detect(now, newest, window, |seq, e| notify_lost(connection, counts, now, seq, e))
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
        self.connection.exit_recovery(now, self.board.inflight());
        self.record_event(now, EventKind::RecoveryExited, None);
    }

    fn undo(&mut self, now: Time, unmark: bool) {
        if unmark {
            self.counts.unmarked += self.board.unmark_lost();
        }
        let was_recovering = self.recovering.is_recovering();
        self.connection.undo(now, self.board.inflight());
        self.recovering.forget();
        self.record_event(now, EventKind::SpuriousLoss, None);
        if was_recovering {
            self.exit_recovery(now);
        }
    }

    /// `tcp_rack_reo_timeout`.
    pub(super) fn reordering_timeout(&mut self, now: Time) {
        let inflight_before = self.board.inflight();
        self.connection.begin_losses();
        let doubt = self.detect_losses(now);
        if self.board.deemed_lost() > 0 && !self.recovering.is_recovering() {
            self.connection.enter_recovery_on_timer(now, inflight_before, self.board.inflight());
            self.recovery_entered(now, inflight_before);
        }
        match doubt {
            Some(at) => self.set_reordering_timer(now, at),
            None => self.rearm_rto(now),
        }
    }

    /// `tcp_enter_loss`: the retransmission timer expired.
    pub(super) fn enter_loss(&mut self, now: Time) {
        let rtt = self.rack.rtt();
        self.connection.begin_losses();
        let Self { board, connection, counts, .. } = self;
        board.mark_timed_out(now, rtt, |seq, e| notify_lost(connection, counts, now, seq, e));
        self.clean_up_retransmissions();
        self.recovering.enter_loss(self.board.una(), self.board.nxt(), self.board.resent());
        self.connection.enter_loss(now, self.board.inflight());
        self.probe = None;
        self.new_first = false;
    }
}

/// Notifies the controller of a segment marked lost.
#[inline]
fn notify_lost<C: CongestionControl>(
    connection: &mut Connection<C>,
    counts: &mut Counts,
    now: Time,
    seq: u64,
    e: &Entry,
) {
    counts.marked_lost += 1;
    connection.on_lost(now, seq, u64::from(e.len), &e.stamp());
}

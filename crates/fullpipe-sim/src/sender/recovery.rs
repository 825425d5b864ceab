//! The sender's loss-recovery state: when fast recovery and loss recovery begin and end, and when they
//! turn out to have been for nothing. Linux `tcp_fastretrans_alert`, `tcp_process_loss`,
//! `tcp_may_undo`, `tcp_check_dsack`; RFC 5682 (F-RTO), RFC 3522 (Eifel), RFC 3708 (DSACK).

use fullpipe_cc::{RecoveryState, Time};

/// Where the sender is in loss recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovering {
    pub state: RecoveryState,
    /// Recovery is over once everything below this segment is acknowledged.
    pub high: u64,
    /// The first unacknowledged segment when the window was last reduced; none if nothing can be undone.
    undo_marker: Option<u64>,
    /// Retransmissions since then that no duplicate report has shown to be unneeded; none before the first.
    unneeded_left: Option<u64>,
    /// When the first segment of this recovery was retransmitted.
    retransmitted_at: Option<Time>,
    /// Loss recovery began with a time-out that may be spurious (RFC 5682).
    pub frto: bool,
    /// The time-out has fired before in this loss recovery.
    pub repeated: bool,
}

/// What the sender has to do about an ACK, after it has taken it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing changes.
    Stay,
    /// Everything that was outstanding at its beginning is acknowledged: recovery is over.
    Exit,
    /// It was for nothing; undo it. With `unmark`, segments marked lost are in flight again.
    Undo { unmark: bool },
    /// F-RTO: send new data, to see whether the originals arrive.
    ProbeWithNew,
}

/// What an ACK showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    pub una: u64,
    pub nxt: u64,
    pub advanced: bool,
    /// When the segment it answers was sent.
    pub echo: Time,
    /// A segment below [`Recovering::high`] arrived that was sent only once.
    pub original_arrived: bool,
    pub sacked_more: bool,
    /// There is new data to send and the receiver's window has room for it.
    pub has_new_data: bool,
}

impl Recovering {
    pub fn is_recovering(&self) -> bool {
        matches!(self.state, RecoveryState::Recovery | RecoveryState::Loss)
    }

    /// The window is reduced. Of the `resent` retransmissions still in flight each may yet be reported
    /// twice (`tcp_init_undo`).
    fn remember(&mut self, una: u64, resent: u64) {
        self.undo_marker = Some(una);
        self.unneeded_left = (resent > 0).then_some(resent);
    }

    /// No retransmission is left that an ACK could be for (`tcp_retrans_stamp_cleanup`).
    pub fn nothing_retransmitted(&mut self) {
        self.retransmitted_at = None;
    }

    /// Fast recovery begins.
    pub fn enter_fast(&mut self, una: u64, nxt: u64, resent: u64) {
        self.remember(una, resent);
        self.state = RecoveryState::Recovery;
        self.high = nxt;
    }

    /// The retransmission timer fired.
    pub fn enter_loss(&mut self, una: u64, nxt: u64, resent: u64) {
        let first = !self.is_recovering();
        self.repeated = self.state == RecoveryState::Loss && self.repeated;
        if first || self.high <= una || self.state == RecoveryState::Loss && !self.repeated {
            self.remember(una, resent);
        }
        self.frto = first || self.repeated;
        self.state = RecoveryState::Loss;
        self.high = nxt;
        self.repeated = true;
    }

    /// Back to normal; what caused the last reduction can still turn out spurious by DSACK.
    pub fn exit(&mut self) {
        self.state = RecoveryState::Open;
        self.frto = false;
        self.repeated = false;
    }

    /// There is nothing left to undo.
    pub fn forget(&mut self) {
        self.undo_marker = None;
        self.unneeded_left = None;
    }

    pub fn on_retransmit(&mut self, now: Time) {
        self.retransmitted_at.get_or_insert(now);
        if self.undo_marker.is_some() {
            self.unneeded_left = Some(self.unneeded_left.unwrap_or(0) + 1);
        }
    }

    /// The receiver got `seq` twice; `prior_una` was the first unacknowledged segment before this ACK.
    pub fn on_dsack(&mut self, seq: u64, prior_una: u64) {
        if self.undo_marker.is_some_and(|marker| seq >= marker)
            && seq < prior_una
            && let Some(left) = &mut self.unneeded_left
        {
            *left = left.saturating_sub(1);
        }
    }

    fn all_were_unneeded(&self) -> bool {
        self.undo_marker.is_some() && self.unneeded_left == Some(0)
    }

    /// The segment that was acknowledged had been sent before anything was retransmitted.
    fn original_answered(&self, echo: Time) -> bool {
        self.retransmitted_at.is_none_or(|at| echo < at)
    }

    fn may_undo(&self, echo: Time) -> bool {
        self.undo_marker.is_some() && (self.all_were_unneeded() || self.original_answered(echo))
    }

    /// Judges what an ACK showed.
    pub fn judge(&mut self, evidence: &Evidence) -> Verdict {
        match self.state {
            RecoveryState::Recovery => self.judge_recovery(evidence),
            RecoveryState::Loss => self.judge_loss(evidence),
            RecoveryState::Open | RecoveryState::Disorder => {
                if self.all_were_unneeded() {
                    Verdict::Undo { unmark: false }
                } else {
                    Verdict::Stay
                }
            }
        }
    }

    fn judge_recovery(&mut self, evidence: &Evidence) -> Verdict {
        if evidence.una >= self.high {
            return if self.may_undo(evidence.echo) {
                Verdict::Undo { unmark: false }
            } else {
                Verdict::Exit
            };
        }
        if evidence.advanced && self.undo_marker.is_some() && self.original_answered(evidence.echo) {
            return Verdict::Undo { unmark: true };
        }
        if self.all_were_unneeded() {
            return Verdict::Undo { unmark: false };
        }
        Verdict::Stay
    }

    fn judge_loss(&mut self, evidence: &Evidence) -> Verdict {
        let recovered = evidence.una >= self.high;
        if evidence.advanced {
            self.repeated = false;
            if self.may_undo(evidence.echo) {
                return Verdict::Undo { unmark: true };
            }
        }
        if self.frto {
            if evidence.original_arrived {
                return Verdict::Undo { unmark: true };
            }
            if evidence.nxt > self.high {
                self.frto &= !evidence.sacked_more;
            } else if evidence.advanced && !recovered {
                self.high = evidence.nxt;
                if evidence.has_new_data {
                    return Verdict::ProbeWithNew;
                }
                self.frto = false;
            }
        }
        if recovered { Verdict::Exit } else { Verdict::Stay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_cc::Span;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    fn evidence(una: u64, echo: Time) -> Evidence {
        Evidence {
            una,
            nxt: 100,
            advanced: true,
            echo,
            original_arrived: false,
            sacked_more: false,
            has_new_data: true,
        }
    }

    fn in_recovery() -> Recovering {
        let mut r = Recovering::default();
        r.enter_fast(10, 50, 0);
        r.on_retransmit(ms(100));
        r
    }

    #[test]
    fn recovery_ends_when_all_that_was_outstanding_is_acknowledged() {
        let mut r = in_recovery();
        assert_eq!(r.judge(&evidence(49, ms(100))), Verdict::Stay);
        assert_eq!(r.judge(&evidence(50, ms(100))), Verdict::Exit);
    }

    #[test]
    fn an_echo_from_before_the_retransmission_shows_that_the_original_arrived() {
        let mut r = in_recovery();
        assert_eq!(r.judge(&evidence(11, ms(99))), Verdict::Undo { unmark: true });
    }

    #[test]
    fn duplicate_reports_for_every_retransmission_undo_even_afterwards() {
        let mut r = in_recovery();
        r.on_retransmit(ms(101));
        r.on_dsack(10, 12);
        assert_eq!(r.judge(&evidence(12, ms(100))), Verdict::Stay);
        r.exit();
        r.on_dsack(11, 50);
        assert_eq!(r.judge(&evidence(50, ms(101))), Verdict::Undo { unmark: false });
        r.forget();
        assert_eq!(r.judge(&evidence(50, ms(101))), Verdict::Stay);
    }

    #[test]
    fn after_a_time_out_new_data_is_tried_and_an_original_arriving_undoes_it() {
        let mut r = Recovering::default();
        r.enter_loss(10, 50, 0);
        r.on_retransmit(ms(400));
        assert_eq!(r.judge(&Evidence { nxt: 50, ..evidence(11, ms(400)) }), Verdict::ProbeWithNew);
        let mut spurious = evidence(11, ms(400));
        spurious.original_arrived = true;
        assert_eq!(r.judge(&spurious), Verdict::Undo { unmark: true });
        // A SACK for the new data instead: the loss was real.
        r.judge(&Evidence { nxt: 52, sacked_more: true, advanced: false, ..evidence(11, ms(400)) });
        assert!(!r.frto);
        assert_eq!(r.judge(&evidence(50, ms(500))), Verdict::Exit);
    }

    #[test]
    fn a_retransmission_of_the_last_recovery_does_not_undo_the_next() {
        let mut r = in_recovery();
        r.exit();
        // One of the retransmissions is still in flight.
        r.enter_fast(50, 90, 1);
        assert_eq!(r.judge(&evidence(51, ms(100))), Verdict::Stay);
        r.nothing_retransmitted();
        assert_eq!(r.judge(&evidence(51, ms(100))), Verdict::Undo { unmark: true });
    }

    #[test]
    fn a_second_time_out_without_progress_keeps_what_the_first_remembered() {
        let mut r = Recovering::default();
        r.enter_loss(10, 50, 0);
        r.on_retransmit(ms(400));
        r.enter_loss(10, 50, 0);
        assert!(r.frto);
        r.on_retransmit(ms(1000));
        assert_eq!(r.judge(&Evidence { has_new_data: false, ..evidence(11, ms(400)) }), Verdict::Stay);
        assert_eq!(r.judge(&evidence(12, ms(399))), Verdict::Undo { unmark: true });
    }
}

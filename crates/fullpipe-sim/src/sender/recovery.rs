//! The sender's recovery state: when fast recovery and loss recovery begin and end, and when they
//! turn out to have been spurious. Linux `tcp_fastretrans_alert`, `tcp_process_loss`,
//! `tcp_may_undo`, `tcp_check_dsack`; RFC 5682 (F-RTO), RFC 3522 (Eifel), RFC 3708 (DSACK).

use fullpipe_cc::{RecoveryState, Time};

/// The state of loss recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovering {
    pub state: RecoveryState,
    /// Recovery ends once everything below this segment is acknowledged.
    pub high: u64,
    /// First unacknowledged segment when the window was last reduced; `None` if there is nothing to
    /// undo.
    undo_marker: Option<u64>,
    /// Retransmissions since then that no DSACK has reported as duplicates; `None` before the first
    /// (`undo_retrans`).
    undo_retrans: Option<u64>,
    /// When the first segment of this recovery was retransmitted.
    retransmitted_at: Option<Time>,
    /// Loss recovery began with a timeout that may be spurious (RFC 5682).
    pub frto: bool,
    /// The timeout has expired before in this loss recovery.
    pub repeated: bool,
}

/// What the sender has to do after it has processed an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing changes.
    Stay,
    /// Everything that was outstanding when recovery began is acknowledged: end it.
    Exit,
    /// Recovery was spurious: undo it. With `unmark`, segments marked lost count as in flight.
    Undo { unmark: bool },
    /// F-RTO: send new data, to detect whether the originals arrive.
    ProbeWithNew,
}

/// The properties of an ACK that decide about recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    pub una: u64,
    pub nxt: u64,
    pub advanced: bool,
    /// When the segment it answers was sent.
    pub echo: Time,
    /// A segment below [`Recovering::high`] arrived that was transmitted only once.
    pub original_arrived: bool,
    pub sacked_more: bool,
    /// There is new data to send, and the receive window has room for it.
    pub has_new_data: bool,
}

impl Recovering {
    pub fn is_recovering(&self) -> bool {
        matches!(self.state, RecoveryState::Recovery | RecoveryState::Loss)
    }

    /// The window is reduced. Each of the `resent` retransmissions in flight may still be reported
    /// as a duplicate (`tcp_init_undo`).
    fn remember(&mut self, una: u64, resent: u64) {
        self.undo_marker = Some(una);
        self.undo_retrans = (resent > 0).then_some(resent);
    }

    /// No retransmission is outstanding (`tcp_retrans_stamp_cleanup`).
    pub fn nothing_retransmitted(&mut self) {
        self.retransmitted_at = None;
    }

    /// Fast recovery begins.
    pub fn enter_fast(&mut self, una: u64, nxt: u64, resent: u64) {
        self.remember(una, resent);
        self.state = RecoveryState::Recovery;
        self.high = nxt;
    }

    /// The retransmission timer expired.
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

    /// Recovery has ended; the last reduction can still turn out to be spurious by DSACK.
    pub fn exit(&mut self) {
        self.state = RecoveryState::Open;
        self.frto = false;
        self.repeated = false;
    }

    /// Nothing is left to undo.
    pub fn forget(&mut self) {
        self.undo_marker = None;
        self.undo_retrans = None;
    }

    pub fn on_retransmit(&mut self, now: Time) {
        self.retransmitted_at.get_or_insert(now);
        if self.undo_marker.is_some() {
            self.undo_retrans = Some(self.undo_retrans.unwrap_or(0) + 1);
        }
    }

    /// The receiver reported `seq` as a duplicate; `prior_una` was the first unacknowledged segment
    /// before this ACK.
    pub fn on_dsack(&mut self, seq: u64, prior_una: u64) {
        if self.undo_marker.is_some_and(|marker| seq >= marker)
            && seq < prior_una
            && let Some(left) = &mut self.undo_retrans
        {
            *left = left.saturating_sub(1);
        }
    }

    fn all_were_spurious(&self) -> bool {
        self.undo_marker.is_some() && self.undo_retrans == Some(0)
    }

    /// The acknowledged segment was sent before anything was retransmitted (Eifel).
    fn original_answered(&self, echo: Time) -> bool {
        self.retransmitted_at.is_none_or(|at| echo < at)
    }

    fn may_undo(&self, echo: Time) -> bool {
        self.undo_marker.is_some() && (self.all_were_spurious() || self.original_answered(echo))
    }

    /// Decides what to do about an ACK.
    pub fn judge(&mut self, evidence: &Evidence) -> Verdict {
        match self.state {
            RecoveryState::Recovery => self.judge_recovery(evidence),
            RecoveryState::Loss => self.judge_loss(evidence),
            RecoveryState::Open | RecoveryState::Disorder => {
                if self.all_were_spurious() {
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
        if self.all_were_spurious() {
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
    fn frto_sends_new_data_and_undoes_the_timeout_if_an_original_arrives() {
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
    fn a_second_timeout_without_progress_keeps_the_undo_state() {
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

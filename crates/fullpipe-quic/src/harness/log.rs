//! The events of the sending end's congestion control, recorded beside the stack: stacks publish
//! smoothed values and sums only.

use fullpipe_cc::{RecoveryState, Span, Time};
use fullpipe_experiment::recording::EventKind;
use fullpipe_sim::TransportEvent;
use std::collections::VecDeque;

/// What a retransmission timeout is above the round-trip time at least, in Linux: after a longer
/// pause, sending restarts.
const MIN_TIMEOUT: Span = Span::from_millis(200);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Events that have not been read.
    pub events: VecDeque<TransportEvent>,
    /// Bytes in flight.
    pub inflight: u64,
    /// Bytes acknowledged.
    pub delivered: u64,
    /// Latest round-trip time.
    pub rtt: Option<Span>,
    /// Events that can change the controller's state: ACKs and losses.
    pub changes: u64,
    /// When the newest packet of the current ACK was sent.
    newest: Option<Time>,
    last_sent: Option<Time>,
    /// Whether recovery is derived from losses, as RFC 9002 §7.3.2 defines it; otherwise it is
    /// reported ([`Log::on_recovery_state`]).
    derives_recovery: bool,
    /// When the current recovery began.
    recovery: Option<Time>,
}

impl Log {
    /// An empty log.
    pub fn new(derives_recovery: bool) -> Self {
        Log { derives_recovery, ..Log::default() }
    }

    /// The controller's recovery state, after an event.
    pub fn on_recovery_state(&mut self, state: RecoveryState) {
        let recovering = state != RecoveryState::Open;
        if recovering != self.recovery.is_some() {
            self.recovery = recovering.then_some(Time::ZERO);
            if recovering {
                self.record(EventKind::RecoveryEntered, Some(self.inflight as f64));
            } else {
                self.record(EventKind::RecoveryExited, None);
            }
        }
    }

    fn record(&mut self, kind: EventKind, value: Option<f64>) {
        self.events.push_back(TransportEvent::Recorded(kind, value));
    }

    /// Packets of `bytes` are sent.
    pub fn on_sent(&mut self, now: Time, bytes: u64) {
        let timeout = MIN_TIMEOUT + self.rtt.unwrap_or(Span::ZERO);
        if self.inflight == 0 && self.last_sent.is_some_and(|last| now.since(last) > timeout) {
            self.record(EventKind::IdleRestart, None);
        }
        self.last_sent = Some(now);
        self.inflight += bytes;
    }

    /// A packet sent at `sent` is acknowledged.
    pub fn on_acked(&mut self, sent: Time, bytes: u64) {
        self.delivered += bytes;
        self.inflight = self.inflight.saturating_sub(bytes);
        self.newest = self.newest.max(Some(sent));
        // RFC 9002 §7.3.2.
        if self.derives_recovery && self.recovery.is_some_and(|began| sent > began) {
            self.recovery = None;
            self.record(EventKind::RecoveryExited, None);
        }
    }

    /// The ACK ends, with `inflight` bytes in flight.
    pub fn on_end_acks(&mut self, now: Time, inflight: u64) {
        self.changes += 1;
        self.inflight = inflight;
        if let Some(sent) = self.newest.take() {
            let rtt = now.since(sent);
            self.rtt = Some(rtt);
            self.events.push_back(TransportEvent::Rtt(rtt));
        }
    }

    /// `bytes` are declared lost, of which the newest packet was sent at `sent`.
    pub fn on_lost(&mut self, now: Time, sent: Time, bytes: u64, persistent: bool) {
        self.changes += 1;
        let before = self.inflight;
        self.inflight = self.inflight.saturating_sub(bytes);
        if self.derives_recovery && self.recovery.is_none_or(|began| sent > began) {
            self.recovery = Some(now);
            self.record(EventKind::RecoveryEntered, Some(before as f64));
        }
        if persistent {
            self.record(EventKind::RetransmissionTimeout, None);
        }
    }

    /// Losses turned out to be late packets.
    pub fn on_spurious(&mut self) {
        self.changes += 1;
        if self.derives_recovery {
            self.recovery = None;
        }
        self.record(EventKind::SpuriousLoss, None);
    }
}

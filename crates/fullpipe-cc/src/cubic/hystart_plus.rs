//! HyStart++ (RFC 9406): when the round-trip time grows in slow start, growth slows to a quarter
//! for up to five rounds (*conservative slow start*), which ends early if
//! the delay increase was noise.

use crate::control::Ack;
use crate::loss_based::Window;
use fullpipe_units::Span;

/// RFC 9406 §4.3, the tuning constants.
const MIN_RTT_THRESH: Span = Span::from_millis(4);
const MAX_RTT_THRESH: Span = Span::from_millis(16);
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u32 = 5;
/// L of RFC 9406: limit on the packets counted per ACK for an unpaced sender.
const L: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    SlowStart,
    /// The least round-trip time of the round that led here, and the rounds spent here.
    Conservative {
        baseline: Span,
        rounds: u32,
    },
    Done,
}

/// The state of a detection.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStartPlus {
    phase: Phase,
    /// Delivered bytes that end the round.
    window_end: u64,
    last_round_min: Option<Span>,
    current_round_min: Option<Span>,
    samples: u32,
    /// Packets of conservative growth not yet added, in 1/[`CSS_GROWTH_DIVISOR`].
    credit: u32,
    paced: bool,
}

impl HyStartPlus {
    pub(super) fn new(paced: bool) -> Self {
        HyStartPlus {
            phase: Phase::SlowStart,
            window_end: 0,
            last_round_min: None,
            current_round_min: None,
            samples: 0,
            credit: 0,
            paced,
        }
    }

    /// Stops after congestion: HyStart++ only applies to the initial slow start (§4.3).
    pub(super) fn end(&mut self) {
        self.phase = Phase::Done;
    }

    pub(super) fn is_conservative(&self) -> bool {
        matches!(self.phase, Phase::Conservative { .. })
    }

    /// An ACK in slow start (§4.2).
    pub(super) fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        if self.phase == Phase::Done {
            return;
        }
        if let Some(rtt) = ack.rtt {
            self.current_round_min = Some(self.current_round_min.map_or(rtt, |min| min.min(rtt)));
            self.samples += 1;
        }
        if let Some(current) = self.current_round_min.filter(|_| self.samples >= N_RTT_SAMPLE) {
            match self.phase {
                Phase::SlowStart => {
                    if let Some(last) = self.last_round_min {
                        let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                        if current >= last + threshold {
                            self.phase = Phase::Conservative { baseline: current, rounds: 0 };
                        }
                    }
                }
                Phase::Conservative { baseline, .. } if current < baseline => self.phase = Phase::SlowStart,
                _ => {}
            }
        }
        if ack.delivered > self.window_end {
            self.end_round(window, ack);
        }
    }

    fn end_round(&mut self, window: &mut Window, ack: &Ack) {
        if let Phase::Conservative { rounds, .. } = &mut self.phase {
            *rounds += 1;
            if *rounds >= CSS_ROUNDS {
                self.phase = Phase::Done;
                window.ssthresh = window.cwnd;
            }
        }
        self.window_end = ack.delivered.saturating_add(ack.inflight);
        self.last_round_min = self.current_round_min;
        self.current_round_min = None;
        self.samples = 0;
    }

    /// The packets slow start may grow by for `acked` acknowledged packets (§4.2).
    pub(super) fn allowed(&mut self, acked: u32) -> u32 {
        let acked = if self.paced { acked } else { acked.min(L) };
        if !self.is_conservative() {
            return acked;
        }
        self.credit = self.credit.saturating_add(acked);
        let packets = self.credit / CSS_GROWTH_DIVISOR;
        self.credit %= CSS_GROWTH_DIVISOR;
        packets
    }
}

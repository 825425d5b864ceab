//! Tracks a connection from its first segment to its last.

use super::Detail;
use super::half::{Ack, DISORDER, Half};
use super::vantage;
use super::zero_window::MAX_PROBE_INTERVAL;
use crate::sequence::unwrap;
use crate::wire::{Flags, Segment};
use fullpipe_experiment::connection::{Closing, Handshake, Opening, Point};
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of acknowledgments in transit to the sender; further ones are processed early.
const MAX_IN_TRANSIT: usize = 1 << 16;

/// Multi-queue captures are slightly out of order; a larger step back means that the clock was set.
const MIN_CLOCK_STEP: Span = Span::from_millis(1);

/// The state of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pub(crate) number: u32,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) start: Time,
    pub(crate) last: Time,
    pub(super) opening: Opening,
    /// Data to the server and to the client.
    pub(super) halves: [Half; 2],
    /// Acknowledgments of each half's data in transit to its sender.
    in_transit: [VecDeque<(Time, Ack)>; 2],
    reset: Option<usize>,
    /// Times of the first SYN and SYN-ACK.
    syn: [Option<Time>; 2],
    /// Whether each of them was retransmitted: then its answer gives no round trip (Karn).
    has_second_syn: [bool; 2],
    /// Time of the third packet of the handshake.
    opened: Option<Time>,
    pub(super) specified_point: Option<Point>,
    /// When the last packet of the whole capture was captured.
    pub(crate) capture_end: Option<Time>,
    /// How often the capture's clock went back.
    pub(super) clock_steps: u64,
}

impl Tracker {
    /// A connection whose first segment is `s`. `specified_point`: the place of capture, if the
    /// user specified it.
    pub(crate) fn new(number: u32, s: &Segment, detail: Detail, specified_point: Option<Point>) -> Self {
        // Without a SYN, the lower port is the server's.
        let from_client = match (s.flags.has(Flags::SYN), s.flags.has(Flags::ACK)) {
            (true, ack) => !ack,
            (false, _) => s.from.port() >= s.to.port(),
        };
        let (client, server) = if from_client { (s.from, s.to) } else { (s.to, s.from) };
        Tracker {
            number,
            client,
            server,
            start: s.at,
            last: s.at,
            opening: Opening::default(),
            halves: [Half::new(s.at, detail), Half::new(s.at, detail)],
            in_transit: Default::default(),
            reset: None,
            syn: [None; 2],
            has_second_syn: [false; 2],
            opened: None,
            specified_point,
            capture_end: None,
            clock_steps: 0,
        }
    }

    /// Whether `s` opens another connection between the same addresses.
    pub(crate) fn is_reopened_by(&self, s: &Segment) -> bool {
        if !s.flags.has(Flags::SYN) {
            return false;
        }
        let from = usize::from(s.from != self.client);
        let [half, peer] = [&self.halves[from], &self.halves[1 - from]];
        let is_late = s.at.since(self.start) <= DISORDER && half.may_open(s.seq);
        let is_answer = s.flags.has(Flags::ACK);
        match half.isn {
            // Some hosts have one initial number for all connections.
            Some(isn) if isn as u32 == s.seq => {
                let was_open = self.syn[1 - from].is_some() && self.is_closed();
                !is_answer && was_open && s.at.since(self.last) > DISORDER
            }
            // The SYN of the next connection was not captured.
            Some(_) if is_answer => self.is_closed(),
            None if is_answer || is_late => false,
            _ => half.begun || self.reset.is_some() || peer.first_data.is_some(),
        }
    }

    /// Swaps client and server: the SYN shows that the segments before it were misjudged.
    fn swap_ends(&mut self) {
        std::mem::swap(&mut self.client, &mut self.server);
        self.halves.swap(0, 1);
        self.in_transit.swap(0, 1);
    }

    /// Payload bytes captured, each counted once.
    pub(crate) fn bytes(&self) -> u64 {
        self.halves.iter().map(|half| half.counts.new_bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of memory, approximately, without the packets kept for a plot.
    pub(crate) fn memory(&self) -> usize {
        let in_transit = self.in_transit.iter().map(VecDeque::capacity).sum::<usize>();
        size_of::<Tracker>()
            + self.halves.iter().map(Half::memory).sum::<usize>()
            + in_transit * size_of::<(Time, Ack)>()
    }

    /// Whether both ends closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.reset.is_some() || self.halves.iter().all(|h| h.fin.is_some_and(|fin| h.una > fin))
    }

    /// Whether both ends closed it, as captured: the last acknowledgment may not have reached its
    /// end yet, and no further packet will deliver it.
    pub(crate) fn has_ended(&self) -> bool {
        let is_acked = |of: usize| {
            let half = &self.halves[of];
            let in_transit = || self.in_transit[of].back().map(|(_, ack)| unwrap(half.una, ack.ack));
            half.fin.is_some_and(|fin| half.una > fin || in_transit().is_some_and(|ack| ack > fin))
        };
        self.reset.is_some() || is_acked(0) && is_acked(1)
    }

    pub(super) fn closing(&self) -> Closing {
        match (self.reset, self.halves.iter().filter(|h| h.fin.is_some()).count()) {
            (Some(0), _) => Closing::ResetByClient,
            (Some(_), _) => Closing::ResetByServer,
            (None, 2) => Closing::Closed,
            (None, 1) => Closing::HalfClosed,
            (None, _) => Closing::Open,
        }
    }

    pub(super) fn handshake(&self) -> Handshake {
        match self.syn {
            [Some(_), Some(_)] => Handshake::Seen,
            [None, None] => Handshake::NotSeen,
            _ => Handshake::Half,
        }
    }

    /// Round-trip time between the place of capture and the sender of half `of`; zero at the
    /// sender.
    fn sender_rtt(&self, of: usize) -> Span {
        let far = self.halves[1 - of].leg.min;
        match (self.specified_point, of) {
            (Some(Point::Client), 0) | (Some(Point::Server), 1) => return Span::ZERO,
            _ => {}
        }
        let Some(far) = far else { return Span::ZERO };
        let near = self.halves[of].leg.min.unwrap_or(Span::ZERO);
        if vantage::negligible(far, near) { Span::ZERO } else { far }
    }

    /// Minimum RTT of half `of`.
    pub(super) fn min_rtt(&self, of: usize) -> Option<Span> {
        let far = self.sender_rtt(of);
        match (self.halves[of].leg.min, far) {
            (Some(before), far) => Some(before + far),
            (None, Span::ZERO) => None,
            (None, far) => Some(far),
        }
    }

    /// Minimum RTT, if that between the place of capture and each end is known.
    fn whole_rtt(&self) -> Option<Span> {
        let [a, b] = [&self.halves[0], &self.halves[1]].map(|half| half.leg.min);
        Some(a? + b?)
    }

    /// Scale of the windows that the receiver of half `of` advertises.
    fn scale(&self, of: usize) -> Option<u8> {
        let receiver = &self.halves[1 - of].options;
        let sender = &self.halves[of].options;
        // Both ends must have offered it (RFC 7323 §2.2); without SYNs it is unknown.
        receiver.mss.or(receiver.sack.map(|_| 0))?;
        sender.mss.or(sender.sack.map(|_| 0))?;
        Some(match (receiver.window_scale, sender.window_scale) {
            (Some(scale), Some(_)) => scale,
            _ => 0,
        })
    }

    fn mss(&self, of: usize) -> u32 {
        self.halves[of].mss(&self.halves[1 - of].options)
    }

    /// Adds the next segment of the capture.
    pub(crate) fn add_segment(&mut self, s: &Segment) {
        let back = self.last.since(s.at);
        let is_misordered = !back.is_zero() && back <= MIN_CLOCK_STEP;
        self.clock_steps += u64::from(back > MIN_CLOCK_STEP);
        let at = s.at.max(self.last);
        self.last = at;
        self.deliver(at);
        let is_late_syn = s.flags.0 & (Flags::SYN | Flags::ACK) == Flags::SYN && self.syn == [None; 2];
        if is_late_syn && s.from == self.server && self.reset.is_none() {
            self.swap_ends();
        }
        let from = usize::from(s.from != self.client);
        if self.is_copy(s, from, at) {
            self.halves[from].counts.duplicates += 1;
            return;
        }
        self.halves[from].counts.packets += 1;
        self.halves[from].counts.misordered += u64::from(is_misordered);
        let has_ack =
            s.flags.has(Flags::ACK) && (s.flags.has(Flags::RST) || self.halves[1 - from].believes(s.ack));
        if s.flags.has(Flags::ACK) && !has_ack && !self.has_expected_data(s, from) {
            return;
        }
        for of in 0..2 {
            let mss = u64::from(self.mss(of));
            self.halves[of].advance(at, mss);
        }
        if let Some((value, echo)) = s.options.timestamps {
            self.halves[from].echoes.sent(value, at);
            if has_ack && let Some(sample) = self.halves[1 - from].echoes.echoed(echo, at) {
                self.add_echo_sample(1 - from, at, sample);
            }
        }
        if s.flags.has(Flags::SYN) {
            self.syn(s, from, at);
        }
        if s.flags.has(Flags::RST) {
            self.reset_by(s, from);
            return;
        }
        if s.payload == 0 {
            self.halves[from].add_empty(s, at);
        }
        if s.payload > 0 || s.flags.has(Flags::FIN) {
            let mss = self.halves[from].mss_at(&self.halves[1 - from].options, s);
            let min_rtt = self.min_rtt(from);
            let at_sender = self.sender_rtt(from).is_zero();
            self.halves[from].add_data(s, at, mss, (min_rtt, at_sender));
        }
        if has_ack {
            self.complete_handshake(s, from, at);
            // Use its own time even if it was captured slightly late.
            let captured_at = if at.since(s.at) < DISORDER { s.at } else { at };
            let ack = Ack {
                at: captured_at,
                ack: s.ack,
                sack: *s.sack(),
                window: s.window,
                echo: s.options.timestamps.map(|(_, echo)| echo),
                bare: s.payload == 0 && s.flags.0 & (Flags::SYN | Flags::FIN) == 0,
                flags: s.flags,
            };
            let of = 1 - from;
            // The window of a SYN is not scaled.
            if let Some((value, _)) = s.options.timestamps.filter(|_| !s.flags.has(Flags::SYN)) {
                let scale = self.scale(of);
                self.halves[of].ack_passes(value, &ack, scale);
            }
            let delay = self.sender_rtt(of);
            if delay.is_zero() && self.in_transit[of].is_empty() {
                self.process_ack(of, &ack, at);
            } else {
                let due = self.in_transit[of].back().map_or(at + delay, |(last, _)| *last.max(&(at + delay)));
                self.in_transit[of].push_back((due, ack));
                if self.in_transit[of].len() > MAX_IN_TRANSIT
                    && let Some((_, first)) = self.in_transit[of].pop_front()
                {
                    self.process_ack(of, &first, at);
                }
            }
        }
    }

    /// Whether `s` is a copy of a packet captured before.
    #[inline]
    fn is_copy(&mut self, s: &Segment, from: usize, at: Time) -> bool {
        let Some(suspect) = self.halves[from].doubles.record(s, at) else { return false };
        // The part between the place of capture and one end is shorter.
        let rtt = self.whole_rtt();
        let is_copy = suspect.is_copy(s, rtt, rtt.or_else(|| self.min_rtt(from)));
        if !is_copy {
            self.halves[from].doubles.replace(s, at);
        }
        is_copy
    }

    /// Whether `s`, whose acknowledgment was not believed, has data of this connection.
    fn has_expected_data(&self, s: &Segment, from: usize) -> bool {
        let has_data = s.payload > 0 || s.flags.has(Flags::FIN);
        has_data && !s.flags.has(Flags::SYN) && self.halves[from].expects(s.seq)
    }

    /// Handles a reset.
    fn reset_by(&mut self, s: &Segment, from: usize) {
        // Both ends had closed it, and one no longer knows it (RFC 9293 §3.10.7.1).
        if self.reset.is_none() && self.has_ended() {
            return;
        }
        if !self.halves[from].disbelief.is_answered_by(s.seq) {
            self.reset.get_or_insert(from);
        } else if self.syn[1 - from].is_none() {
            // It ended the peer's old connection; the next SYN opens this one.
            self.syn = [None; 2];
            self.has_second_syn = [false; 2];
        }
    }

    /// Processes the acknowledgments that reach the senders by `at`.
    fn deliver(&mut self, at: Time) {
        for of in 0..2 {
            while let Some(&(due, ack)) = self.in_transit[of].front() {
                if due > at {
                    break;
                }
                self.in_transit[of].pop_front();
                let mss = u64::from(self.mss(of));
                self.halves[of].advance(due, mss);
                self.process_ack(of, &ack, due);
            }
        }
    }

    fn process_ack(&mut self, of: usize, ack: &Ack, now: Time) {
        let (scale, mss, min_rtt) = (self.scale(of), self.mss(of), self.min_rtt(of));
        if let Some(sample) = self.halves[of].process_ack(ack, now, scale, mss, min_rtt) {
            self.add_leg_sample(of, now, sample);
            self.halves[of].leg.has_answers |= ack.bare;
        }
    }

    /// Records a round trip between the place of capture and the receiver of half `of`.
    fn add_leg_sample(&mut self, of: usize, now: Time, sample: Span) {
        self.halves[of].leg.add(sample);
        if self.sender_rtt(of).is_zero() {
            self.halves[of].add_rtt_sample(now, sample);
        }
        // For the other half it is the part between the place of capture and the sender.
        if !self.sender_rtt(1 - of).is_zero() {
            let rest = self.halves[1 - of].leg.min.unwrap_or(Span::ZERO);
            self.halves[1 - of].add_rtt_sample(now, sample + rest);
        }
    }

    /// Records a timestamp round trip, but only without data in flight: echoes include delayed
    /// ACKs.
    fn add_echo_sample(&mut self, of: usize, now: Time, sample: Span) {
        if self.halves[of].is_idle() {
            self.add_leg_sample(of, now, sample);
        }
    }

    fn syn(&mut self, s: &Segment, from: usize, at: Time) {
        if self.syn[from].is_some() {
            self.opening.retransmitted += 1;
            self.has_second_syn[from] = true;
        }
        self.syn[from].get_or_insert(at);
        self.halves[from].syn(s);
        let ece = s.flags.has(Flags::ECE);
        let ecn = &mut self.halves[from].counts.ecn;
        // RFC 3168 §6.1.1: a SYN sets both flags, a SYN-ACK one.
        ecn.agreed = Some(ece);
        if from == 1
            && let (Some(syn), [false, false]) = (self.syn[0], self.has_second_syn)
        {
            let sample = at.since(syn);
            self.opening.to_server.get_or_insert(sample);
            self.halves[0].leg.add_answer(sample);
            // Written behind its answer, which was thus captured close to the client.
            if self.opened.is_some_and(|opened| at.since(opened) <= MIN_CLOCK_STEP) && sample > MIN_CLOCK_STEP
            {
                self.halves[1].leg.add(Span::ZERO);
            }
        }
    }

    /// Handles the third packet of the handshake.
    fn complete_handshake(&mut self, s: &Segment, from: usize, at: Time) {
        if self.opened.is_some() || from != 0 || s.flags.has(Flags::SYN) {
            return;
        }
        self.opened = Some(at);
        if let [Some(syn), Some(_)] = self.syn {
            self.opening.connect = Some(at.since(syn));
        }
        if let (Some(syn_ack), [_, false]) = (self.syn[1], self.has_second_syn) {
            let sample = at.since(syn_ack);
            self.opening.to_client.get_or_insert(sample);
            self.halves[1].leg.add_answer(sample);
        }
    }

    /// Ends the capture: delivers the acknowledgments in transit.
    pub(super) fn finish(&mut self) {
        for of in 0..2 {
            while let Some((due, ack)) = self.in_transit[of].pop_front() {
                let mss = u64::from(self.mss(of));
                self.halves[of].advance(due, mss);
                self.process_ack(of, &ack, due);
            }
        }
        let end = match self.capture_end.filter(|_| !self.is_closed()) {
            // A later end without a probe would show that the sender gave up.
            Some(end) => end.clamp(self.last, self.last + MAX_PROBE_INTERVAL),
            None => self.last,
        };
        for of in 0..2 {
            let (mss, min_rtt) = (self.mss(of), self.min_rtt(of));
            self.halves[of].finish_flight(self.last, mss, min_rtt);
            self.halves[of].finish_zero_window(self.last, end);
        }
    }
}

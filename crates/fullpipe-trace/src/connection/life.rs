//! A connection from its first segment to its last.

use super::Detail;
use super::half::{Answer, DISORDER, Half};
use super::vantage;
use crate::wire::{Flags, Segment};
use fullpipe_experiment::connection::{Closing, Handshake, Opening, Point};
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Answers on their way to the sender that are remembered; more are taken at once.
const ON_THE_WAY: usize = 1 << 16;

/// Packets of several queues or threads are captured a little out of order; a clock that goes back further was set.
const STEP: Span = Span::from_millis(1);

/// A connection as far as it has been seen.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) number: u32,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) start: Time,
    pub(crate) last: Time,
    pub(super) opening: Opening,
    /// Data to the server, data to the client.
    pub(super) halves: [Half; 2],
    /// Answers to each half's data that have not reached its sender yet.
    on_the_way: [VecDeque<(Time, Answer)>; 2],
    reset: Option<usize>,
    /// Whether SYN and SYN-ACK were seen, and when first.
    syn: [Option<Time>; 2],
    opened: bool,
    pub(super) given: Option<Point>,
    /// Times at which the capture's clock went back.
    pub(super) clock_steps: u64,
}

impl Life {
    /// A connection that begins with `s`. `given` is where the capture was taken, if the user said.
    pub(crate) fn new(number: u32, s: &Segment, detail: Detail, given: Option<Point>) -> Self {
        // Without a SYN the lower port is the one that was asked for.
        let from_client = match (s.flags.has(Flags::SYN), s.flags.has(Flags::ACK)) {
            (true, ack) => !ack,
            (false, _) => s.from.port() >= s.to.port(),
        };
        let (client, server) = if from_client { (s.from, s.to) } else { (s.to, s.from) };
        Life {
            number,
            client,
            server,
            start: s.at,
            last: s.at,
            opening: Opening::default(),
            halves: [Half::new(s.at, detail), Half::new(s.at, detail)],
            on_the_way: Default::default(),
            reset: None,
            syn: [None; 2],
            opened: false,
            given,
            clock_steps: 0,
        }
    }

    /// Whether `s`, of the same two ends, opens another connection.
    pub(crate) fn is_followed_by(&self, s: &Segment) -> bool {
        if !s.flags.has(Flags::SYN) || s.flags.has(Flags::ACK) {
            return false;
        }
        let half = &self.halves[usize::from(s.from != self.client)];
        let same = half.isn.is_some_and(|isn| isn as u32 == s.seq);
        !same && (half.begun || self.reset.is_some())
    }

    /// Whether both ends are done with it.
    pub(crate) fn is_over(&self) -> bool {
        self.reset.is_some() || self.halves.iter().all(|h| h.fin.is_some_and(|fin| h.una > fin))
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

    /// How long an answer to data of half `of` takes from here to the data's sender, and what the sender does with it
    /// back to here: none at the sender.
    fn delay(&self, of: usize) -> Span {
        let beyond = self.halves[1 - of].leg.min;
        match (self.given, of) {
            (Some(Point::Client), 0) | (Some(Point::Server), 1) => return Span::ZERO,
            _ => {}
        }
        let Some(beyond) = beyond else { return Span::ZERO };
        let before = self.halves[of].leg.min.unwrap_or(Span::ZERO);
        if vantage::negligible(beyond, before) { Span::ZERO } else { beyond }
    }

    /// Least round trip of data of half `of`.
    pub(super) fn least_rtt(&self, of: usize) -> Option<Span> {
        let beyond = self.delay(of);
        match (self.halves[of].leg.min, beyond) {
            (Some(before), beyond) => Some(before + beyond),
            (None, Span::ZERO) => None,
            (None, beyond) => Some(beyond),
        }
    }

    /// The scale of windows that the receiver of half `of`'s data advertises.
    fn scale(&self, of: usize) -> Option<u8> {
        let receiver = &self.halves[1 - of].options;
        let sender = &self.halves[of].options;
        // Both must have offered it (RFC 7323 §2.2); without a SYN it is not known.
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

    /// The next segment, in the order of the capture.
    pub(crate) fn segment(&mut self, s: &Segment) {
        if self.last.since(s.at) > STEP {
            self.clock_steps += 1;
        }
        let at = s.at.max(self.last);
        self.last = at;
        self.deliver(at);
        let way = usize::from(s.from != self.client);
        self.halves[way].counts.packets += 1;
        for of in 0..2 {
            let mss = u64::from(self.mss(of));
            self.halves[of].advance(at, mss);
        }
        if let Some((value, echo)) = s.options.timestamps {
            self.halves[way].echoes.passes(value, at);
            if s.flags.has(Flags::ACK)
                && let Some(sample) = self.halves[1 - way].echoes.echoed(echo, at)
            {
                self.echo(1 - way, at, sample);
            }
        }
        if s.flags.has(Flags::SYN) {
            self.syn(s, way, at);
        }
        if s.flags.has(Flags::RST) {
            self.reset.get_or_insert(way);
            return;
        }
        if s.payload > 0 || s.flags.has(Flags::FIN) {
            let (mss, least) = (self.mss(way), self.least_rtt(way));
            let here = self.delay(way).is_zero();
            self.halves[way].data(s, at, mss, (least, here));
        }
        if s.flags.has(Flags::ACK) {
            self.opens(s, way, at);
            // As for data: when it passed, though it was captured a little late.
            let passed = if at.since(s.at) < DISORDER { s.at } else { at };
            let answer = Answer {
                at: passed,
                ack: s.ack,
                sack: *s.sack(),
                window: s.window,
                echo: s.options.timestamps.map(|(_, echo)| echo),
                bare: s.payload == 0 && s.flags.0 & (Flags::SYN | Flags::FIN) == 0,
                flags: s.flags,
            };
            let of = 1 - way;
            // A SYN's window is not scaled, and comes before any data.
            if let Some((value, _)) = s.options.timestamps.filter(|_| !s.flags.has(Flags::SYN)) {
                let scale = self.scale(of);
                self.halves[of].told(value, &answer, scale);
            }
            let delay = self.delay(of);
            if delay.is_zero() && self.on_the_way[of].is_empty() {
                self.answered(of, &answer, at);
            } else {
                let due = self.on_the_way[of].back().map_or(at + delay, |(last, _)| *last.max(&(at + delay)));
                self.on_the_way[of].push_back((due, answer));
                if self.on_the_way[of].len() > ON_THE_WAY
                    && let Some((_, first)) = self.on_the_way[of].pop_front()
                {
                    self.answered(of, &first, at);
                }
            }
        }
    }

    /// Gives the senders the answers that have reached them by `at`.
    fn deliver(&mut self, at: Time) {
        for of in 0..2 {
            while let Some(&(due, answer)) = self.on_the_way[of].front() {
                if due > at {
                    break;
                }
                self.on_the_way[of].pop_front();
                let mss = u64::from(self.mss(of));
                self.halves[of].advance(due, mss);
                self.answered(of, &answer, due);
            }
        }
    }

    fn answered(&mut self, of: usize, answer: &Answer, now: Time) {
        let (scale, mss, least) = (self.scale(of), self.mss(of), self.least_rtt(of));
        if let Some(sample) = self.halves[of].answer(answer, now, scale, mss, least) {
            self.leg(of, now, sample);
        }
    }

    /// A round trip from here to the receiver of half `of`'s data.
    fn leg(&mut self, of: usize, now: Time, sample: Span) {
        self.halves[of].leg.add(sample);
        if self.delay(of).is_zero() {
            self.halves[of].round_trip(now, sample);
        }
        // For the other half's data it is the part between here and the sender.
        if !self.delay(1 - of).is_zero() {
            let rest = self.halves[1 - of].leg.min.unwrap_or(Span::ZERO);
            self.halves[1 - of].round_trip(now, sample + rest);
        }
    }

    /// The same by timestamps: only where data did not show it better, since an echo waits with a delayed ACK.
    fn echo(&mut self, of: usize, now: Time, sample: Span) {
        if self.halves[of].is_quiet() {
            self.leg(of, now, sample);
        }
    }

    fn syn(&mut self, s: &Segment, way: usize, at: Time) {
        if self.syn[way].is_some() {
            self.opening.retransmitted += 1;
        }
        self.syn[way].get_or_insert(at);
        self.halves[way].syn(s);
        let ece = s.flags.has(Flags::ECE);
        let ecn = &mut self.halves[way].counts.ecn;
        // RFC 3168 §6.1.1: a SYN asks with both flags, a SYN-ACK agrees with one.
        ecn.agreed = Some(ece);
        if way == 1
            && let (Some(syn), 0) = (self.syn[0], self.opening.retransmitted)
        {
            let sample = at.since(syn);
            self.opening.to_server.get_or_insert(sample);
            self.halves[0].leg.add(sample);
        }
    }

    /// The third packet of the handshake.
    fn opens(&mut self, s: &Segment, way: usize, at: Time) {
        if self.opened || way != 0 || s.flags.has(Flags::SYN) {
            return;
        }
        self.opened = true;
        if let (Some(syn_ack), 0) = (self.syn[1], self.opening.retransmitted) {
            let sample = at.since(syn_ack);
            self.opening.to_client.get_or_insert(sample);
            self.halves[1].leg.add(sample);
        }
    }

    /// The capture has ended: what was on the way arrives.
    pub(super) fn end(&mut self) {
        for of in 0..2 {
            while let Some((due, answer)) = self.on_the_way[of].pop_front() {
                let mss = u64::from(self.mss(of));
                self.halves[of].advance(due, mss);
                self.answered(of, &answer, due);
            }
        }
    }
}

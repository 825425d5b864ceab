//! A sender, a bottleneck with a drop-tail queue and random loss, and a receiver that acknowledges
//! every packet: the least that shows how a controller behaves. Selective acknowledgement, loss
//! detection by three later packets, Proportional Rate Reduction, a retransmission time-out.

use fullpipe_cc::{
    AckReport, Config, CongestionControl, Controller, ControllerSpec, Event, Rate, RecoveryState,
    SendController, Span, Stamp, Time,
};
use std::collections::{BTreeSet, VecDeque};

pub const SMSS: u64 = 1448;

#[derive(Clone, Copy)]
pub struct Path {
    pub rate: Rate,
    pub rtt: Span,
    /// Queue limit in packets.
    pub buffer: u64,
    /// Every n-th packet is lost; 0 for none.
    pub lose_every: u64,
    /// One loss in so many packets at random; 0 for none.
    pub lose_one_in: u64,
    pub seed: u64,
}

impl Path {
    pub fn new(mbit: u64, rtt_ms: u64) -> Self {
        let (rate, rtt) = (Rate::from_bits_per_sec(mbit * 1_000_000), Span::from_millis(rtt_ms));
        let buffer = (rate.bytes_in(rtt) / SMSS).max(10);
        Path { rate, rtt, buffer, lose_every: 0, lose_one_in: 0, seed: 1 }
    }
}

struct Packet {
    /// Which packet of the stream it carries.
    seq: u64,
    stamp: Stamp,
    /// When its ACK arrives; `None` if it was dropped.
    acked_at: Option<Time>,
}

pub struct Flow {
    pub control: SendController<Controller>,
    pub now: Time,
    pub sent: u64,
    pub recoveries: u64,
    pub timeouts: u64,
    /// Every change of the controller's state, with its time.
    pub states: Vec<(Time, &'static str)>,
    pub least_cwnd: u64,
    path: Path,
    flight: VecDeque<Packet>,
    link_free: Time,
    srtt: Option<Span>,
    min_rtt: Option<Span>,
    /// The packet of the stream that recovery ends at.
    high_seq: u64,
    next_seq: u64,
    /// Packets of the stream not yet acknowledged, and those of them to retransmit.
    unacked: BTreeSet<u64>,
    lost: VecDeque<u64>,
    random: u64,
    /// New packets the application has yet to send; `None` for no limit.
    pub backlog: Option<u64>,
}

impl Flow {
    pub fn new(name: &str, settings: &[(&str, &str)], path: Path) -> Self {
        let config = Config { seed: path.seed, ..Config::default() };
        let cc = ControllerSpec::new(name, settings).expect("a controller and its settings").build(&config);
        let mut control = SendController::new(cc, SMSS as u32);
        control.on_handshake(Time::ZERO, path.rtt);
        Flow {
            control,
            now: Time::ZERO,
            sent: 0,
            recoveries: 0,
            timeouts: 0,
            states: Vec::new(),
            least_cwnd: u64::MAX,
            path,
            flight: VecDeque::new(),
            link_free: Time::ZERO,
            srtt: None,
            min_rtt: None,
            high_seq: 0,
            next_seq: 0,
            unacked: BTreeSet::new(),
            lost: VecDeque::new(),
            random: path.seed,
            backlog: None,
        }
    }

    pub fn inflight(&self) -> u64 {
        self.flight.len() as u64 * SMSS
    }

    /// The path loses everything from here.
    pub fn break_path(&mut self) {
        self.path.lose_every = 1;
    }

    pub fn set_rate(&mut self, rate: Rate) {
        self.path.rate = rate;
    }

    pub fn cc(&self) -> &Controller {
        self.control.controller()
    }

    pub fn window(&self) -> u64 {
        self.control.window()
    }

    fn lost_in_network(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let p = &self.path;
        p.lose_every != 0 && self.sent % p.lose_every == 0
            || p.lose_one_in != 0 && (self.random >> 32) % p.lose_one_in == 0
    }

    fn has_data(&self) -> bool {
        !self.lost.is_empty() || self.backlog != Some(0)
    }

    fn send(&mut self) {
        let (now, inflight) = (self.now, self.inflight());
        let lost = self.lost.pop_front();
        let retransmit = lost.is_some();
        let seq = lost.unwrap_or_else(|| {
            if let Some(left) = &mut self.backlog {
                *left -= 1;
            }
            self.next_seq += 1;
            self.unacked.insert(self.next_seq);
            self.next_seq
        });
        let stamp = self.control.on_sent(now, SMSS, inflight, retransmit);
        self.control.on_batch_sent(now, SMSS, 1);
        self.sent += 1;
        let queued = self.path.rate.bytes_in(self.link_free - now) / SMSS;
        let acked_at = if queued >= self.path.buffer || self.lost_in_network() {
            None
        } else {
            self.link_free = self.link_free.max(now) + self.path.rate.time_to_send(SMSS);
            Some(self.link_free + self.path.rtt)
        };
        self.flight.push_back(Packet { seq, stamp, acked_at });
    }

    fn lose(&mut self, event: &mut impl Event, packet: &Packet, new_range: bool) {
        self.control.on_lost(event, self.now, SMSS, &packet.stamp, new_range);
        self.lost.push_back(packet.seq);
    }

    fn on_ack(&mut self, index: usize) {
        let inflight_before = self.inflight();
        let cwnd_limited = inflight_before + SMSS > self.window();
        let mut event = self.control.begin_ack(inflight_before);
        let acked = self.flight.remove(index).expect("an index into the flight");
        let advanced = self.unacked.first() == Some(&acked.seq);
        self.unacked.remove(&acked.seq);
        let rtt = self.now - acked.stamp.sent_at;
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |m| m.min(rtt)));
        self.srtt = Some(self.srtt.map_or(rtt, |s| (s * 7 + rtt) / 8));
        self.control.on_acked(&mut event, self.now, SMSS, &acked.stamp);
        // The network does not reorder: a packet dropped before three later ones arrived is lost.
        let (mut lost, mut next) = (0, None);
        while let Some(first) = self.flight.front()
            && first.acked_at.is_none()
            && first.stamp.id + 3 <= acked.stamp.id
        {
            let packet = self.flight.pop_front().expect("the front just seen");
            self.lose(&mut event, &packet, next != Some(packet.seq));
            next = Some(packet.seq + 1);
            lost += 1;
        }
        let repaired = self.unacked.first().is_none_or(|&una| una > self.high_seq);
        if self.control.recovery() != RecoveryState::Open && repaired {
            self.control.exit_recovery(self.now, self.inflight());
        }
        if lost > 0 && self.control.recovery() == RecoveryState::Open {
            self.high_seq = self.next_seq;
            self.recoveries += 1;
            self.control.enter_recovery(&mut event, self.now);
        }
        self.control.finish_ack(
            event,
            &AckReport {
                rtt: Some(rtt),
                srtt: self.srtt,
                min_rtt: self.min_rtt,
                advanced,
                cwnd_limited,
                ..AckReport::at(self.now, self.inflight())
            },
        );
    }

    fn on_timeout(&mut self) {
        self.timeouts += 1;
        let mut event = self.control.begin_losses(self.inflight());
        let mut next = None;
        while let Some(packet) = self.flight.pop_front() {
            self.lose(&mut event, &packet, next != Some(packet.seq));
            next = Some(packet.seq + 1);
        }
        self.high_seq = self.next_seq;
        self.control.enter_loss(event, self.now, 0);
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: Time) {
        while self.now < end {
            let open = self.inflight() + SMSS <= self.window() || self.flight.is_empty();
            let has_data = self.has_data();
            if open && has_data && self.control.ready(self.now) {
                self.send();
                continue;
            }
            if open && !has_data {
                self.control.mark_app_limited(self.inflight());
            }
            let next = self.flight.iter().position(|p| p.acked_at.is_some());
            let ack_at = next.and_then(|i| self.flight[i].acked_at);
            let event = match (ack_at, self.flight.front()) {
                (Some(at), _) => at,
                (None, Some(first)) => first.stamp.sent_at + self.path.rtt * 2 + Span::from_secs(1),
                (None, None) => end,
            };
            let wake = if open && has_data { event.min(self.control.next_departure()) } else { event };
            if wake > end {
                self.now = end;
                break;
            }
            self.now = self.now.max(wake);
            if wake == event {
                match (next, self.flight.is_empty()) {
                    (Some(index), _) => self.on_ack(index),
                    (None, false) => self.on_timeout(),
                    (None, true) => {}
                }
                let state = self.cc().state();
                if self.states.last().is_none_or(|&(_, last)| last != state) {
                    self.states.push((self.now, state));
                }
                self.least_cwnd = self.least_cwnd.min(self.cc().cwnd());
            }
        }
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    /// Goodput in Mbit/s over the next `span`.
    pub fn goodput_over(&mut self, span: Span) -> f64 {
        let before = self.control.delivered();
        self.run_for(span);
        Rate::from_bytes_in(self.control.delivered() - before, span).as_bits_per_sec_f64() / 1e6
    }
}

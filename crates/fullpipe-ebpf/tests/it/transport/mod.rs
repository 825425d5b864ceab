//! A small sender over a bottleneck in virtual time, enough to lead a controller through all its
//! states: paced by the controller, first in first out, loss by chance and by a full buffer,
//! reordering, marks, pauses of the application, fast recovery and time-outs.

use fullpipe_cc::{
    Ack, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sampler, Sent, Stamp,
};
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// Rates in bytes/s, chances in thousandths.
pub struct Path {
    pub rate: u64,
    pub rtt: Span,
    pub buffer: u64,
    pub loss: u32,
    pub reorder: u32,
    pub marks: u32,
    pub pauses: bool,
    pub seed: u64,
}

#[derive(Clone, Copy)]
struct Packet {
    stamp: Stamp,
    number: u64,
    /// When its ACK arrives; `None` when it is lost.
    acked_at: Option<Time>,
    marked: bool,
}

const BYTES: u64 = 1448;

/// Sends over the path for `length` of virtual time, `packets` at most.
pub fn run(cc: &mut dyn CongestionControl, path: &Path, length: Span, packets: u64) {
    let mut sender = Sender::over(path);
    while sender.number < packets && sender.now.since(Time::ZERO) < length {
        let may_send = sender.inflight() + BYTES <= cc.cwnd();
        let send_at = may_send.then(|| sender.next_send.max(sender.now).max(sender.paused_until));
        let ack_at = sender.flying.iter().filter_map(|packet| packet.acked_at).min();
        let rto_at = sender.flying.front().map(|packet| {
            packet.stamp.sent_at + sender.srtt.unwrap_or(path.rtt) * 3 + Span::from_millis(200)
        });

        let earliest = [send_at, ack_at, rto_at].into_iter().flatten().min();
        let Some(at) = earliest else { break };
        sender.now = sender.now.max(at);
        if send_at == Some(at) {
            sender.send(cc);
        } else if ack_at == Some(at) {
            sender.take_ack(cc, at);
        } else {
            sender.time_out(cc);
        }
    }
}

struct Sender<'a> {
    path: &'a Path,
    random: Random,
    sampler: Sampler,
    flying: VecDeque<Packet>,
    now: Time,
    next_send: Time,
    link_free: Time,
    /// Of the last packet sent.
    number: u64,
    srtt: Option<Span>,
    min_rtt: Option<Span>,
    recovery: RecoveryState,
    recover_until: u64,
    paused_until: Time,
    burst_left: u32,
}

/// What was taken for lost at one time.
#[derive(Default)]
struct Losses {
    bytes: u64,
    ranges: u32,
    /// Whether some of it arrives later.
    spurious: bool,
}

impl<'a> Sender<'a> {
    fn over(path: &'a Path) -> Self {
        let mut random = Random(path.seed ^ 0x5eed);
        Sender {
            path,
            burst_left: 200 + random.below(400),
            random,
            sampler: Sampler::new(),
            flying: VecDeque::new(),
            now: Time::ZERO,
            next_send: Time::ZERO,
            link_free: Time::ZERO,
            number: 0,
            srtt: None,
            min_rtt: None,
            recovery: RecoveryState::Open,
            recover_until: 0,
            paused_until: Time::ZERO,
        }
    }

    fn inflight(&self) -> u64 {
        self.flying.len() as u64 * BYTES
    }

    fn send(&mut self, cc: &mut dyn CongestionControl) {
        let (path, now, inflight) = (self.path, self.now, self.inflight());
        cc.on_send(&Sent {
            now,
            bytes: BYTES,
            inflight,
            app_limited: self.sampler.is_app_limited(),
            delivered: self.sampler.delivered(),
            retransmit: false,
        });
        let stamp = self.sampler.on_sent(now, BYTES, inflight);
        let acked_at = self.arrival();
        let marked = self.random.below(1000) < path.marks;
        self.number += 1;
        self.flying.push_back(Packet { stamp, number: self.number, acked_at, marked });
        let rate = cc.pacing_rate().map_or(u64::MAX, |rate| rate.as_bytes_per_sec()).max(1);
        self.next_send = now + Span::from_nanos(BYTES * 1_000_000_000 / rate);
        self.burst_left -= 1;
        if self.burst_left == 0 {
            self.burst_left = 200 + self.random.below(400);
            if path.pauses {
                self.paused_until = now + path.rtt + Span::from_millis(u64::from(self.random.below(2000)));
                self.sampler.mark_app_limited(inflight + BYTES);
            }
        }
    }

    /// When the ACK of a packet that leaves now arrives; none if it is lost.
    fn arrival(&mut self) -> Option<Time> {
        let path = self.path;
        let queued = self.link_free.since(self.now).as_nanos() * path.rate / 1_000_000_000;
        if queued > path.buffer || self.random.below(1000) < path.loss {
            return None;
        }
        self.link_free = self.link_free.max(self.now) + Span::from_nanos(BYTES * 1_000_000_000 / path.rate);
        let late = if self.random.below(1000) < path.reorder { path.rtt } else { Span::ZERO };
        Some(self.link_free + path.rtt + late)
    }

    /// The ACK of all packets that are acknowledged `at` this time.
    fn take_ack(&mut self, cc: &mut dyn CongestionControl, at: Time) {
        let (now, inflight_before) = (self.now, self.inflight());
        self.sampler.begin_ack();
        let (mut acked, mut marks, mut rtt, mut newest) = (0, 0, None, 0);
        self.flying.retain(|packet| {
            if packet.acked_at != Some(at) {
                return true;
            }
            self.sampler.on_acked(now, BYTES, &packet.stamp);
            acked += 1;
            marks += u32::from(packet.marked);
            newest = newest.max(packet.number);
            rtt = Some(now.since(packet.stamp.sent_at));
            false
        });
        if let Some(rtt) = rtt {
            self.srtt = Some(self.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        let losses = self.lose(cc, |packet| packet.number + 3 <= newest);
        self.recover(cc, &losses, newest);
        let sample = self.sampler.finish_ack(now, self.min_rtt);
        let cwnd_limited = inflight_before + 2 * BYTES > cc.cwnd();
        cc.on_ack(&Ack {
            now,
            sample,
            rtt,
            srtt: self.srtt,
            newly_acked: acked * BYTES,
            newly_lost: losses.bytes,
            lost_ranges: losses.ranges,
            inflight_before,
            inflight: self.inflight(),
            delivered: self.sampler.delivered(),
            lost: self.sampler.lost(),
            cwnd_limited,
            ce_count: marks,
            delayed: newest % 3 == 0,
            recovery: self.recovery,
            next_departure: self.next_send,
        });
        if cc.marks_app_limited() {
            self.sampler.mark_app_limited(self.inflight());
        }
    }

    /// Nothing has come back for too long: all is lost.
    fn time_out(&mut self, cc: &mut dyn CongestionControl) {
        self.sampler.begin_ack();
        self.lose(cc, |_| true);
        cc.on_recovery(Recovery::EnterRto, &self.context());
        self.recovery = RecoveryState::Loss;
        self.recover_until = self.number;
    }

    fn lose(&mut self, cc: &mut dyn CongestionControl, is_lost: impl Fn(&Packet) -> bool) -> Losses {
        let mut losses = Losses::default();
        let mut last = 0;
        self.flying.retain(|packet| {
            if !is_lost(packet) {
                return true;
            }
            self.sampler.on_lost(BYTES);
            losses.bytes += BYTES;
            losses.ranges += u32::from(packet.number != last + 1);
            last = packet.number;
            losses.spurious |= packet.acked_at.is_some();
            cc.on_lost(&Lost {
                now: self.now,
                bytes: BYTES,
                tx_in_flight: packet.stamp.tx_in_flight,
                delivered_at_send: packet.stamp.delivered,
                lost_at_send: packet.stamp.lost,
                lost: self.sampler.lost(),
                delivered: self.sampler.delivered(),
                app_limited: packet.stamp.app_limited,
            });
            false
        });
        losses
    }

    /// Enters and leaves recovery, as an ACK of `newest` asks for.
    fn recover(&mut self, cc: &mut dyn CongestionControl, losses: &Losses, newest: u64) {
        let is_open = self.recovery == RecoveryState::Open;
        let event = if losses.bytes > 0 && is_open {
            Recovery::EnterFast
        } else if losses.spurious && !is_open {
            Recovery::Spurious
        } else if !is_open && newest > self.recover_until {
            Recovery::Exit
        } else {
            return;
        };
        cc.on_recovery(event, &self.context());
        self.recovery = RecoveryState::Open;
        if event == Recovery::EnterFast {
            self.recovery = RecoveryState::Recovery;
            self.recover_until = self.number;
        }
    }

    fn context(&self) -> RecoveryContext {
        RecoveryContext {
            now: self.now,
            inflight: self.inflight(),
            delivered: self.sampler.delivered(),
            lost: self.sampler.lost(),
        }
    }
}

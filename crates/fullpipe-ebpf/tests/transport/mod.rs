//! A small sender over a bottleneck in virtual time, enough to lead a controller through all its states:
//! paced by the controller, first in first out, loss by chance and by a full buffer, reordering, marks,
//! pauses of the application, fast recovery and time-outs.

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
    let mut random = Random(path.seed ^ 0x5eed);
    let mut sampler = Sampler::new();
    let mut flying: VecDeque<Packet> = VecDeque::new();
    let mut now = Time::ZERO;
    let mut next_send = Time::ZERO;
    let mut link_free = Time::ZERO;
    let mut number = 0;
    let (mut srtt, mut min_rtt) = (None::<Span>, None::<Span>);
    let mut recovery = RecoveryState::Open;
    let mut recover_until = 0;
    let mut paused_until = Time::ZERO;
    let mut burst_left = 200 + random.below(400);

    while number < packets && now.since(Time::ZERO) < length {
        let inflight = flying.len() as u64 * BYTES;
        let may_send = inflight + BYTES <= cc.cwnd();
        let send_at = may_send.then(|| next_send.max(now).max(paused_until));
        let ack_at = flying.iter().filter_map(|packet| packet.acked_at).min();
        let rto_at = flying
            .front()
            .map(|packet| packet.stamp.sent_at + srtt.unwrap_or(path.rtt) * 3 + Span::from_millis(200));

        let earliest = [send_at, ack_at, rto_at].into_iter().flatten().min();
        let Some(at) = earliest else { break };
        now = now.max(at);
        if send_at == Some(at) {
            cc.on_send(&Sent {
                now,
                bytes: BYTES,
                inflight,
                app_limited: sampler.is_app_limited(),
                delivered: sampler.delivered(),
                retransmit: false,
            });
            let stamp = sampler.on_sent(now, BYTES, inflight);
            let queued = link_free.since(now).as_nanos() * path.rate / 1_000_000_000;
            let lost = queued > path.buffer || random.below(1000) < path.loss;
            let mut acked_at = None;
            if !lost {
                link_free = link_free.max(now) + Span::from_nanos(BYTES * 1_000_000_000 / path.rate);
                let late = if random.below(1000) < path.reorder { path.rtt } else { Span::ZERO };
                acked_at = Some(link_free + path.rtt + late);
            }
            number += 1;
            flying.push_back(Packet { stamp, number, acked_at, marked: random.below(1000) < path.marks });
            let rate = cc.pacing_rate().map_or(u64::MAX, |rate| rate.as_bytes_per_sec()).max(1);
            next_send = now + Span::from_nanos(BYTES * 1_000_000_000 / rate);
            burst_left -= 1;
            if burst_left == 0 {
                burst_left = 200 + random.below(400);
                if path.pauses {
                    paused_until = now + path.rtt + Span::from_millis(u64::from(random.below(2000)));
                    sampler.mark_app_limited(inflight + BYTES);
                }
            }
            continue;
        }

        sampler.begin_ack();
        let (mut acked, mut marks, mut rtt, mut newest) = (0, 0, None, 0);
        let context = |sampler: &Sampler, inflight| RecoveryContext {
            now,
            inflight,
            delivered: sampler.delivered(),
            lost: sampler.lost(),
        };
        let time_out = ack_at != Some(at);
        flying.retain(|packet| {
            if packet.acked_at != Some(at) || time_out {
                return true;
            }
            sampler.on_acked(now, BYTES, &packet.stamp);
            acked += 1;
            marks += u32::from(packet.marked);
            newest = newest.max(packet.number);
            rtt = Some(now.since(packet.stamp.sent_at));
            false
        });
        if let Some(rtt) = rtt {
            srtt = Some(srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
            min_rtt = Some(min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        let mut lost = 0;
        let mut ranges = 0;
        let mut last_lost = 0;
        let mut spurious = false;
        flying.retain(|packet| {
            if !time_out && packet.number + 3 > newest {
                return true;
            }
            sampler.on_lost(BYTES);
            lost += BYTES;
            ranges += u32::from(packet.number != last_lost + 1);
            last_lost = packet.number;
            spurious |= packet.acked_at.is_some();
            cc.on_lost(&Lost {
                now,
                bytes: BYTES,
                tx_in_flight: packet.stamp.tx_in_flight,
                delivered_at_send: packet.stamp.delivered,
                lost_at_send: packet.stamp.lost,
                lost: sampler.lost(),
                delivered: sampler.delivered(),
                app_limited: packet.stamp.app_limited,
            });
            false
        });
        let after = flying.len() as u64 * BYTES;
        if time_out {
            cc.on_recovery(Recovery::EnterRto, &context(&sampler, after));
            recovery = RecoveryState::Loss;
            recover_until = number;
            continue;
        }
        if lost > 0 && recovery == RecoveryState::Open {
            cc.on_recovery(Recovery::EnterFast, &context(&sampler, after));
            recovery = RecoveryState::Recovery;
            recover_until = number;
        } else if recovery != RecoveryState::Open && newest > recover_until {
            let event = if spurious { Recovery::Spurious } else { Recovery::Exit };
            cc.on_recovery(event, &context(&sampler, after));
            recovery = RecoveryState::Open;
        } else if spurious && recovery != RecoveryState::Open {
            cc.on_recovery(Recovery::Spurious, &context(&sampler, after));
            recovery = RecoveryState::Open;
        }
        let sample = sampler.finish_ack(now, min_rtt);
        let cwnd_limited = inflight + 2 * BYTES > cc.cwnd();
        cc.on_ack(&Ack {
            now,
            sample,
            rtt,
            srtt,
            newly_acked: acked * BYTES,
            newly_lost: lost,
            lost_ranges: ranges,
            inflight_before: inflight,
            inflight: after,
            delivered: sampler.delivered(),
            lost: sampler.lost(),
            cwnd_limited,
            ce_count: marks,
            delayed: false,
            recovery,
            next_departure: next_send,
        });
        if cc.marks_app_limited() {
            sampler.mark_app_limited(after);
        }
    }
}

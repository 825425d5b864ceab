//! The record of a connection, out of what was followed of it.

use super::half::Half;
use super::life::Life;
use super::limits::{Whole, limits};
use super::vantage::vantage;
use crate::analysis::Traced;
use fullpipe_experiment::connection::{
    Connection, Direction, Handshake, Heading, Limits, MarkKind, Opening, Place, Reordering, Retransmissions,
    RoundTrips, Sequence, Window,
};
use fullpipe_units::{Rate, Span};

/// Rates that gather within this of each other are one rate (measured: what a full link gives varies by less).
const SPREAD: f64 = 0.015;
/// A rate that lasted holds at least this share of what the best-attested one does,
const OF_BEST: f64 = 0.15;
/// and this share of everything.
const OF_ALL: f64 = 0.02;
/// Fewer samples than this are not a distribution.
const SAMPLES: u64 = 8;
/// At a receiver each sample is of twenty packets.
const WINDOWS: u64 = 4;

impl Life {
    /// What is known of the connection, at its end or the capture's.
    pub(crate) fn record(mut self) -> Traced {
        self.end();
        let vantage = vantage(&self);
        let headings = [Heading::ToServer, Heading::ToClient];
        let [to_server, to_client] = [0, 1].map(|of| self.direction(of, vantage.point.place(headings[of])));
        let mut notes = Vec::new();
        if self.clock_steps > 0 {
            notes.push(format!(
                "the capture's clock went back {} times: times before are uncertain",
                self.clock_steps
            ));
        }
        for (half, name) in self.halves.iter().zip(["server", "client"]) {
            if half.counts.unseen > 0 {
                notes.push(format!(
                    "{} bytes to the {name} were acknowledged and are not in the capture: it missed packets",
                    half.counts.unseen
                ));
            }
            if half.counts.doubled > 0 {
                notes.push(format!("{} packets to the {name} were captured twice", half.counts.doubled));
            }
        }
        if self.handshake() != Handshake::Seen {
            notes.push(
                "the handshake is not in the capture whole: windows may be larger than shown".to_owned(),
            );
        }
        let record = Connection {
            number: self.number,
            client: self.client,
            server: self.server,
            start_s: self.start.as_secs_f64(),
            duration: self.last.since(self.start),
            opening: Opening { handshake: self.handshake(), ..self.opening.clone() },
            closing: self.closing(),
            vantage,
            to_server,
            to_client,
            notes,
            socket: None,
        };
        let label = |from, to| format!("{from} → {to}");
        let labels = [label(self.client, self.server), label(self.server, self.client)];
        let [a, b] = self.halves;
        let sequences = [a.marks, b.marks].into_iter().zip(labels);
        let sequences = sequences
            .filter_map(|(marks, label)| {
                let mut marks = marks.filter(|m| m.iter().any(|m| m.kind == MarkKind::Data))?;
                // Answers are taken when they reach the sender, and stand where they passed here.
                marks.sort_by_key(|m| m.at);
                Some(Sequence { label, marks })
            })
            .collect();
        Traced { record, bins: [a.bins, b.bins], courses: [a.course, b.course], sequences }
    }

    fn direction(&self, of: usize, place: Place) -> Direction {
        let (half, peer) = (&self.halves[of], &self.halves[1 - of]);
        let counts = &half.counts;
        let mss = half.mss(&peer.options);
        let rtprop = rtprop(half, peer, place);
        let active = match half.first_data {
            Some(first) => half.last_answer.unwrap_or(half.last_data).max(half.last_data).since(first),
            None => Span::ZERO,
        };
        let bytes = counts.fresh;
        let carried = bytes + counts.unseen;
        let btlbw = btlbw(half, place);
        let known = half.first_data.filter(|_| counts.acks > 0).map(|first_data| Whole {
            start: self.start,
            first_data,
            last: first_data + active,
            mss: u64::from(mss),
            rtprop,
            btlbw,
        });
        let per_segment = u64::from(mss) + u64::from(half.header);
        let on_the_wire = |r: Rate| {
            Rate::from_bytes_per_sec(
                (u128::from(r.as_bytes_per_sec()) * u128::from(per_segment) / u128::from(mss.max(1))) as u64,
            )
        };
        let retransmissions = retransmissions(half, place, mss);
        let agreed = match (counts.ecn.agreed, peer.counts.ecn.agreed) {
            (Some(a), Some(b)) => Some(a && b),
            _ => None,
        };
        let lost = match place {
            Place::Receiver => retransmissions.inferred,
            _ => retransmissions.segments.saturating_sub(retransmissions.spurious),
        };
        Direction {
            place,
            bytes,
            bytes_missed: counts.unseen,
            bytes_sent: counts.bytes_sent,
            packets: counts.packets,
            data_packets: counts.data_packets,
            segments: counts.segments,
            segment_bytes: (counts.data_packets > 0).then_some(mss),
            active,
            goodput: (bytes > 0 && !active.is_zero()).then(|| Rate::from_bytes_in(carried, active)),
            options: half.options.clone(),
            rtprop,
            btlbw,
            btlbw_on_the_wire: btlbw.map(on_the_wire),
            bdp_bytes: btlbw.zip(rtprop).map(|(rate, rtt)| rate.bytes_in(rtt)),
            rtt: RoundTrips {
                samples: half.rtt.count(),
                min: rtprop,
                p50: half.rtt.quantile(0.5).map(|ns| Span::from_nanos(ns as u64)),
                p95: half.rtt.quantile(0.95).map(|ns| Span::from_nanos(ns as u64)),
                max: (half.rtt.count() > 0).then_some(half.rtt_max),
            },
            inflight_max_bytes: (counts.acks > 0 && counts.data_packets > 0).then_some(half.inflight_max),
            window: window(half),
            cwnd_at_least_bytes: (counts.acks > 0 && half.cwnd_at_least > 0).then_some(half.cwnd_at_least),
            pacing: if place == Place::Sender { half.bursts.clone().pacing() } else { None },
            retransmissions,
            reordering: if place == Place::Sender {
                Reordering::default()
            } else {
                counts.reordering.clone()
            },
            lost_segments: lost,
            idle: counts.idle.clone(),
            ecn: fullpipe_experiment::connection::Ecn { agreed, ..counts.ecn.clone() },
            limits: known.map_or_else(Limits::default, |whole| limits(&half.bins, &whole)),
            sender: None,
        }
    }
}

/// Least round trip: both parts of it, seen from between; the one that matters, seen from an end.
fn rtprop(half: &Half, peer: &Half, place: Place) -> Option<Span> {
    match place {
        Place::Sender => half.leg.min,
        Place::Receiver => peer.leg.min,
        Place::Between | Place::Unknown => match (half.leg.min, peer.leg.min) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        },
    }
}

/// The windows, at the least scale that allows what was in flight where the scale was not seen.
fn window(half: &Half) -> Window {
    let mut w = half.counts.window.clone();
    if w.scale_unknown
        && let Some(most) = w.max_bytes.filter(|m| *m > 0)
    {
        let scale = (0..14).find(|s| most << s >= half.inflight_max).unwrap_or(14);
        w.min_bytes = w.min_bytes.map(|b| b << scale);
        w.max_bytes = Some(most << scale);
    }
    w
}

fn btlbw(half: &Half, place: Place) -> Option<Rate> {
    let (rates, least) = match place {
        Place::Receiver => (half.arrivals.rates(), WINDOWS),
        _ => (&half.rates, SAMPLES),
    };
    if rates.count() < least {
        return None;
    }
    rates.highest_mode(SPREAD, OF_BEST, OF_ALL).map(|r| Rate::from_bytes_per_sec(r.round() as u64))
}

fn retransmissions(half: &Half, place: Place, mss: u32) -> Retransmissions {
    let counts = &half.counts;
    let mut r = counts.again.clone();
    if place != Place::Sender {
        // Repairs of what had not arrived as the capture ended: each hole's, as often as they were missed.
        let open = half.holes.open();
        let left: u64 =
            open.map(|(bytes, again)| bytes.div_ceil(u64::from(mss.max(1))) * u64::from(again)).sum();
        let lost_again = counts.lost_again + left;
        let inferred = counts.filled_late + lost_again;
        r.segments += inferred;
        r.bytes += counts.filled_late_bytes + lost_again * u64::from(mss);
        r.fast += inferred;
        r.inferred = inferred;
    }
    // DSACK says it of all; Eifel only of what the last ACK shows.
    r.spurious = if counts.dsack > 0 { counts.dsack } else { counts.eifel }.min(r.segments);
    r
}

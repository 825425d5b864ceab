//! Builds the record of a connection.

use super::half::{Half, MAX_MARKS};
use super::limits::{Summary, limits};
use super::notes::{capture_notes, misordered};
use super::tracker::Tracker;
use super::vantage::{MIN_BETWEEN, vantage};
use crate::analysis::TracedConnection;
use crate::histogram::Histogram;
use crate::quantity;
use fullpipe_experiment::connection::{
    Connection, Direction, Handshake, Heading, Idle, Limits, MarkKind, Opening, Place, Reordering,
    Retransmissions, RoundTrips, Sequence, Window,
};
use fullpipe_units::{Rate, Span};

/// Half width of a mode of the rate distribution (measured: the rate of a full link varies by
/// less).
const MODE_SPREAD: f64 = 0.015;
/// Minimum weight of a sustained rate relative to the largest mode,
const MIN_SHARE_OF_BEST: f64 = 0.15;
/// and relative to all samples.
const MIN_SHARE_OF_ALL: f64 = 0.02;
/// Minimum number of delivery rate samples.
const MIN_SAMPLES: u64 = 8;
/// The same at the receiver, where each sample covers twenty packets.
const MIN_WINDOWS: u64 = 4;

/// Bytes that the capture missed, as a part (1/n) of those captured, beyond which rates and limits
/// are not known.
const MAX_MISSED_PART: u64 = 20;
/// Minimum time of a goodput if the RTT is unknown.
const MIN_ACTIVE: Span = Span::from_millis(1);

impl Tracker {
    /// Builds the record at the end of the connection or of the capture.
    pub(crate) fn into_traced(mut self) -> TracedConnection {
        self.finish();
        let vantage = vantage(&self);
        let headings = [Heading::ToServer, Heading::ToClient];
        let [to_server, to_client] = [0, 1].map(|of| self.direction(of, vantage.point.place(headings[of])));
        let mut notes = Vec::new();
        if self.clock_steps > 0 {
            notes.push(format!(
                "the clock of the capture went back {}: earlier times are uncertain",
                quantity::count(self.clock_steps, "time")
            ));
        }
        let places = headings.map(|heading| vantage.point.place(heading));
        for ((half, name), place) in self.halves.iter().zip(["server", "client"]).zip(places) {
            if half.counts.missed_bytes > 0 {
                notes.push(format!(
                    "{} bytes to the {name} were acknowledged but not captured: the capture missed packets",
                    half.counts.missed_bytes
                ));
            }
            if half.marks.as_ref().is_some_and(|marks| marks.len() >= MAX_MARKS) {
                notes.push(format!("the plot of the packets to the {name} ends after {MAX_MARKS} marks"));
            }
            if half.dropped() > 0 {
                notes.push(format!(
                    "{} ranges of data to the {name} were not followed to their end: too many were in \
                     flight or missing at a time",
                    half.dropped()
                ));
            }
            notes.extend(capture_notes(half, name, place));
        }
        let has_windows = |half: &Half| half.counts.data_packets > 0 && half.counts.window.scale_unknown;
        if self.handshake() != Handshake::Seen && self.halves.iter().any(has_windows) {
            notes.push(
                "the handshake was not captured completely: receive windows may be larger than shown"
                    .to_owned(),
            );
        }
        let has_only_data = |half: &Half| {
            let counts = &half.counts;
            counts.data_packets > 0 && counts.packets == counts.data_packets
        };
        if self.handshake() == Handshake::NotSeen && self.halves.iter().all(has_only_data) {
            notes.push(
                "the capture has no packets without data, such as ACKs: data may wait for its application, \
                 so round-trip times are unknown, and the place of capture is uncertain"
                    .to_owned(),
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
            log: None,
        };
        let label = |from, to| format!("{from} → {to}");
        let labels = [label(self.client, self.server), label(self.server, self.client)];
        let [a, b] = self.halves;
        let sequences = [a.marks, b.marks].into_iter().zip(labels);
        let sequences = sequences
            .filter_map(|(marks, label)| {
                let mut marks = marks.filter(|m| m.iter().any(|m| m.kind == MarkKind::Data))?;
                // ACKs are processed when they reach the sender, and plotted at their capture time.
                marks.sort_by_key(|m| m.at);
                Some(Sequence { label, marks })
            })
            .collect();
        TracedConnection {
            record,
            bins: [a.bins, b.bins],
            trajectories: [a.trajectory, b.trajectory],
            sequences,
        }
    }

    fn direction(&self, of: usize, place: Place) -> Direction {
        let (half, peer) = (&self.halves[of], &self.halves[1 - of]);
        let counts = &half.counts;
        let mss = half.mss(&peer.options);
        let rtprop = rtprop(half, peer, place);
        let doubt = self.doubt(of, place);
        let active = match half.first_data {
            Some(first) => {
                let data = half.last_answer.unwrap_or(half.last_data).max(half.last_data);
                half.zero_window_end().map_or(data, |end| end.max(data)).since(first)
            }
            None => Span::ZERO,
        };
        let bytes = counts.new_bytes;
        let total = bytes + counts.missed_bytes;
        let btlbw = btlbw(half, place).filter(|_| doubt.is_none() && rtprop.is_some());
        let known =
            half.first_data.filter(|_| counts.acks > 0 && doubt.is_none()).map(|first_data| Summary {
                start: self.start,
                first_data,
                last: first_data + active,
                mss: u64::from(mss),
                rtprop,
                btlbw,
                zero_windows: (counts.window.zero, counts.window.zero_total),
                small_writes: half.small_writes(),
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
            bytes_missed: counts.missed_bytes,
            bytes_sent: counts.bytes_sent,
            packets: counts.packets,
            data_packets: counts.data_packets,
            duplicate_packets: counts.duplicates,
            misordered_packets: misordered(half, place),
            unbelieved_acks: half.disbelief.count,
            segments: counts.segments,
            segment_bytes: (counts.data_packets > 0).then_some(mss),
            active,
            // Within a round trip, the rate is only that of a burst.
            goodput: (bytes > 0 && !active.is_zero() && active >= rtprop.unwrap_or(MIN_ACTIVE))
                .then(|| Rate::from_bytes_in(total, active)),
            options: half.options.clone(),
            rtprop,
            btlbw,
            btlbw_on_the_wire: btlbw.map(on_the_wire),
            bdp_bytes: btlbw.zip(rtprop).map(|(rate, rtt)| rate.bytes_in(rtt)),
            rtt: rtprop.map_or_else(RoundTrips::default, |min| RoundTrips {
                samples: half.rtt.count(),
                min: Some(min),
                p50: half.rtt.quantile(0.5).map(|ns| Span::from_nanos(ns as u64)),
                p95: half.rtt.quantile(0.95).map(|ns| Span::from_nanos(ns as u64)),
                max: (half.rtt.count() > 0).then_some(half.rtt_max),
            }),
            inflight_max_bytes: (counts.acks > 0 && counts.data_packets > 0 && doubt != Some(Doubt::NoAcks))
                .then_some(half.inflight_max),
            window: window(half),
            cwnd_at_least_bytes: (counts.acks > 0 && half.cwnd_at_least > 0 && doubt.is_none())
                .then_some(half.cwnd_at_least),
            pacing: if place == Place::Sender { half.bursts.clone().pacing() } else { None },
            retransmissions,
            reordering: if place == Place::Sender {
                Reordering::default()
            } else {
                counts.reordering.clone()
            },
            lost_segments: lost,
            // Elsewhere than at the sender, a pause may be that of the path.
            idle: if doubt == Some(Doubt::OneEnd) { Idle::default() } else { counts.idle.clone() },
            keep_alives: counts.keep_alives,
            small_writes: half.small_writes(),
            ecn: fullpipe_experiment::connection::Ecn { agreed, ..counts.ecn.clone() },
            limits: match (known, doubt) {
                (Some(summary), _) => limits(&half.bins, &summary),
                (None, Some(doubt)) if counts.data_packets > 0 => {
                    Limits { words: vec![doubt.text()], ..Limits::default() }
                }
                (None, _) => Limits::default(),
            },
            sender: None,
        }
    }
}

/// Why a capture does not show what limited a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doubt {
    /// The responses of one end are missing.
    OneEnd,
    /// Most of the data was not acknowledged in the capture.
    NoAcks,
    /// The capture missed too much of the data.
    Missed,
}

impl Doubt {
    fn text(self) -> String {
        let why = match self {
            Doubt::OneEnd => "it has responses of one end only, so where it was taken is unknown",
            Doubt::NoAcks => "it has no ACKs of most of this data",
            Doubt::Missed => "it missed too much of this data",
        };
        format!("the capture does not show what limited this direction: {why}")
    }
}

impl Tracker {
    /// Why the capture does not show what limited direction `of`, if so.
    fn doubt(&self, of: usize, place: Place) -> Option<Doubt> {
        let (half, peer) = (&self.halves[of], &self.halves[1 - of]);
        let counts = &half.counts;
        let sent = half.next.saturating_sub(half.first);
        let acked = half.una.saturating_sub(half.first).min(sent);
        if counts.missed_bytes.saturating_mul(MAX_MISSED_PART) > counts.new_bytes {
            Some(Doubt::Missed)
        } else if acked * 2 < sent {
            Some(Doubt::NoAcks)
        } else if place == Place::Unknown
            && peer.leg.min.is_none()
            && half.leg.min.is_none_or(|rtt| rtt < MIN_BETWEEN)
        {
            // A receiver answers at once, and a sender behind it may have been waiting for that.
            Some(Doubt::OneEnd)
        } else {
            None
        }
    }
}

/// Minimum RTT: at an end, that of the far leg; between the ends, the sum of both legs. Unknown
/// without a response that did not wait for an application.
fn rtprop(half: &Half, peer: &Half, place: Place) -> Option<Span> {
    let leg = |of: &Half| of.leg.min.filter(|_| of.leg.has_answers);
    match place {
        Place::Sender => leg(half),
        Place::Receiver => leg(peer),
        Place::Between | Place::Unknown => Some(leg(half)? + leg(peer)?),
    }
}

/// The receive windows. If the scale is unknown, the smallest scale that allows the data in flight
/// is assumed.
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
    match place {
        Place::Receiver => highest_rate(half.arrivals.rates(), MIN_WINDOWS),
        _ => sustained_rate(&half.rates),
    }
}

/// The highest sustained rate of delivery-rate samples in bytes per second.
pub(crate) fn sustained_rate(rates: &Histogram) -> Option<Rate> {
    highest_rate(rates, MIN_SAMPLES)
}

fn highest_rate(rates: &Histogram, min_count: u64) -> Option<Rate> {
    if rates.count() < min_count {
        return None;
    }
    rates
        .highest_mode(MODE_SPREAD, MIN_SHARE_OF_BEST, MIN_SHARE_OF_ALL)
        .map(|r| Rate::from_bytes_per_sec(r.round() as u64))
}

fn retransmissions(half: &Half, place: Place, mss: u32) -> Retransmissions {
    let counts = &half.counts;
    let mut r = counts.retransmissions.clone();
    if place != Place::Sender {
        // Lost repairs of holes that were open at the end of the capture.
        let open = half.holes.open();
        let open_repairs: u64 = open
            .map(|(bytes, lost_repairs)| {
                bytes.div_ceil(u64::from(mss.max(1))).saturating_mul(u64::from(lost_repairs))
            })
            .fold(0, u64::saturating_add);
        let lost_retransmissions = counts.lost_retransmissions.saturating_add(open_repairs);
        let inferred = counts.filled_late.saturating_add(lost_retransmissions);
        let lost_bytes = lost_retransmissions.saturating_mul(u64::from(mss));
        r.segments = r.segments.saturating_add(inferred);
        r.bytes = r.bytes.saturating_add(counts.filled_late_bytes).saturating_add(lost_bytes);
        r.fast = r.fast.saturating_add(inferred);
        r.inferred = inferred;
    }
    // DSACK covers all retransmissions, Eifel detection only some.
    r.spurious = if counts.dsack > 0 { counts.dsack } else { counts.eifel }.min(r.segments);
    r
}

//! Simulated transfers and probes of a path that does not change.

use super::Simulate;
use crate::record::{Measurement, Minute, Outcome, Pair, RttBand, TransferError};
use fullpipe_experiment::Scenario;
use fullpipe_experiment::recording::{EventKind, Recording, column};
use fullpipe_experiment::scenario::{App, FlowSpec, PathSpec};
use fullpipe_path::{Direction, LinkSpec, Outcome as Fate, Packet, Path};
use fullpipe_units::{Bytes, Rate, Span, Time};

/// Both links of a path and its transfers.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub forward: LinkSpec,
    pub reverse: LinkSpec,
    pub size: Bytes,
    pub every: Span,
    pub limit: Span,
    pub receive_buffer: Option<Bytes>,
}

/// Samples per period, from which the counters of a transfer are read.
const ROWS_PER_PERIOD: u64 = 600;
/// Bytes of a probe, with headers.
const PROBE_BYTES: u32 = 64;

impl State {
    fn path(&self) -> PathSpec {
        PathSpec { forward: vec![self.forward.clone()], reverse: vec![self.reverse.clone()] }
    }

    /// Simulates `n` transfers of `cc` on one standing connection, not counting the connection's
    /// first.
    pub(crate) fn transfers(
        &self,
        cc: &str,
        n: u16,
        seed: u64,
        simulate: Simulate,
    ) -> Result<Vec<Outcome>, String> {
        let app = App::Bursts { size: self.size, every: self.every };
        let flow = FlowSpec { app, receive_buffer: self.receive_buffer, ..FlowSpec::bulk(cc) };
        let scenario = Scenario {
            duration: self.every * (u64::from(n) + 2),
            sample: (self.every / ROWS_PER_PERIOD).max(Span::from_millis(1)),
            seed,
            ..Scenario::new(self.path(), vec![flow])
        };
        let recording = simulate(&scenario, seed)?;
        let mut all = self.read(&recording);
        all.truncate(usize::from(n));
        // The connection did not complete a single transfer.
        if all.is_empty() {
            all.push(Outcome::Failed(TransferError::TooSlow));
        }
        Ok(all)
    }

    fn read(&self, recording: &Recording) -> Vec<Outcome> {
        let Some(flow) = recording.flows.first() else { return Vec::new() };
        let at = |name: &str, t: f64| {
            let values = flow.series.get(name)?;
            let row = flow.series.t_s.partition_point(|row| *row < t);
            values.get(row).copied().filter(|v| v.is_finite())
        };
        let before = |name: &str, t: f64| {
            let row = flow.series.t_s.partition_point(|row| *row <= t).checked_sub(1)?;
            flow.series.get(name)?.get(row).copied().filter(|v| v.is_finite())
        };
        let back = self.reverse.delay;
        let delivered = flow.events.iter().filter(|e| e.kind == EventKind::TransferDelivered);
        let mut all = Vec::new();
        for event in delivered.skip(1) {
            let took = event.value.unwrap_or(0.0);
            let (begin, end) = (event.at_s - took, event.at_s + back.as_secs_f64());
            let duration = Span::from_secs_f64(end - begin);
            if duration > self.limit {
                all.push(Outcome::Failed(TransferError::TooSlow));
                continue;
            }
            // Nothing is sent between transfers, so the previous sample has the counters at the
            // start.
            let counted = |name| {
                let before = before(name, begin).unwrap_or(0.0);
                (at(name, end).unwrap_or(before) - before).max(0.0) as u32
            };
            let ms = |name, t| at(name, t).map(|ms| Span::from_secs_f64(ms / 1e3));
            let min_rtt = self.forward.delay + self.reverse.delay;
            all.push(Outcome::Done(Box::new(Measurement {
                bytes: self.size.0,
                duration,
                delivery_rate: at(column::DELIVERY_RATE_BPS, event.at_s)
                    .map(|bps| Rate::from_bits_per_sec(bps as u64)),
                rtt: ms(column::SRTT_MS, event.at_s).unwrap_or(min_rtt),
                min_rtt: recording.summary.rtt_ms.min.map_or(min_rtt, |ms| Span::from_secs_f64(ms / 1e3)),
                segments: counted(column::SENT_PACKETS),
                retransmitted: counted(column::RETRANSMITTED_PACKETS),
                receive_window_limited: self.window_limited(flow, begin, end),
                send_buffer_limited: 0.0,
                cpu: Span::ZERO,
            })));
        }
        all
    }

    /// The share of a transfer's samples in which the receiver's window was the limit: the
    /// congestion window had room, and less than an eighth of the receiver's window was left.
    fn window_limited(
        &self,
        flow: &fullpipe_experiment::recording::FlowRecording,
        begin: f64,
        end: f64,
    ) -> f32 {
        if self.receive_buffer.is_none() {
            return 0.0;
        }
        let inflight = flow.series.values(column::INFLIGHT_BYTES, begin, end);
        let cwnd = flow.series.values(column::CWND_BYTES, begin, end);
        let most = flow.series.values(column::INFLIGHT_BYTES, 0.0, f64::MAX).into_iter().fold(0.0, f64::max);
        let held = inflight
            .iter()
            .zip(&cwnd)
            .filter(|(inflight, cwnd)| **inflight > most * 0.875 && **cwnd > **inflight * 1.125);
        held.count() as f32 / inflight.len().max(1) as f32
    }

    /// Simulates `n` minutes of probes, one a second, on the idle path.
    pub(crate) fn minutes(&self, n: u16, probes: u16, seed: u64) -> Result<Vec<Minute>, String> {
        let path = self.path();
        let build = |way| {
            let context = path.context(way, 1500, seed);
            Path::<(Time, u32)>::new(path.links(way), &context).map_err(|e| e.to_string())
        };
        let (mut there, mut back) = (build(Direction::Forward)?, build(Direction::Reverse)?);
        let mut sent = Time::ZERO;
        let mut counts = vec![(0u16, Vec::new()); usize::from(n)];
        for minute in 0..u32::from(n) {
            for _ in 0..probes {
                there.push(sent, Packet::new(0, PROBE_BYTES, (sent, minute)));
                let next = sent + Span::from_secs(1);
                let mut arrived = Vec::new();
                there.advance(next, &mut |at, fate| {
                    if let Fate::Delivered(packet) = fate {
                        arrived.push((at, packet));
                    }
                });
                for (at, packet) in arrived {
                    if let Some(count) = counts.get_mut(packet.data.1 as usize) {
                        count.0 += 1;
                    }
                    back.push(at, packet);
                }
                back.advance(next, &mut |at, fate| {
                    if let Fate::Delivered(packet) = fate
                        && let Some(count) = counts.get_mut(packet.data.1 as usize)
                    {
                        count.1.push(at.since(packet.data.0));
                    }
                });
                sent = next;
            }
        }
        let minute = |(arrived, mut rtts): (u16, Vec<Span>)| {
            rtts.sort_unstable();
            Minute {
                at_ms: 0,
                pair: Pair { from: 0, to: 0 },
                sent: probes,
                arrived,
                answered: rtts.len() as u16,
                rtt: band(&rtts),
            }
        };
        Ok(counts.into_iter().map(minute).collect())
    }
}

/// The RTT band of sorted RTTs.
fn band(rtts: &[Span]) -> Option<RttBand> {
    let at = |q: f64| rtts.get(((rtts.len() - 1) as f64 * q).round() as usize).copied();
    let (min, max) = (*rtts.first()?, *rtts.last()?);
    Some(RttBand { min, p50: at(0.5)?, p95: at(0.95)?, max })
}

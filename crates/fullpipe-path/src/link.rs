//! One link: everything a packet meets between two nodes, in order.

use fullpipe_units::{Fraction, Rate, Span, Time};

use crate::build::{BuildContext, BuildError, Wrong};
use crate::line::Line;
use crate::loss::{Loss, LossSpec};
use crate::queue::{QueueContext, Verdicts};
use crate::random::Stream;
use crate::rate::{Constant, Server};
use crate::spec::{Change, LinkSpec, ScheduledChange};
use crate::station::Station;
use crate::stats::LinkStats;
use crate::{DropCause, Outcome, Packet};

/// A link at work. Its owner calls [`Link::step`] for all that is due before it pushes.
pub(crate) struct Link<T> {
    /// `None`: no rate, packets go straight onto the line.
    station: Option<Station<T>>,
    ingress_loss: Option<Loss>,
    loss: Loss,
    line: Line<T>,
    /// Changes to come, latest first.
    schedule: Vec<ScheduledChange>,
    verdicts: Verdicts<T>,
    stats: LinkStats,
}

impl<T> Link<T> {
    pub fn new(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, BuildError> {
        Self::build(spec, index, ctx).map_err(|wrong| wrong.at(index))
    }

    fn build(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, Wrong> {
        let random = |element: &str| Stream::new(ctx, index, element);
        let server = match (spec.rate, &spec.trace) {
            (Some(_), Some(_)) => {
                return Err(Wrong::new("trace", "a link has either a `rate` or a `trace`: remove one"));
            }
            (Some(rate), None) => Some(Server::Constant(Constant::new(rate))),
            (None, Some(trace)) => Some(Server::Trace(trace.build()?)),
            (None, None) => None,
        };
        let nominal = spec.nominal_rate().unwrap_or(Rate::MAX);
        let station = match server {
            Some(server) => {
                let queue = spec.queue.clone().unwrap_or_default();
                let ctx =
                    QueueContext { rate: nominal, bdp: ctx.bdp(), mtu: ctx.mtu, random: random("queue") };
                let queue = queue.build(ctx).map_err(|w| Wrong::new(format!("queue.{}", w.key), w.reason))?;
                Some(Station::new(queue, server))
            }
            None if spec.queue.is_some() => {
                return Err(Wrong::new(
                    "queue",
                    "nothing queues in front of a link without `rate` or `trace`: add one",
                ));
            }
            None => None,
        };
        let loss = |key: &str, spec: &Option<LossSpec>| {
            let build = |spec: &LossSpec| {
                spec.build(random(key)).map_err(|w| Wrong::new(format!("{key}.{}", w.key), w.reason))
            };
            spec.as_ref().map(build).transpose()
        };
        let mut schedule = spec.schedule.clone();
        // The next one is taken from the end; of several at one time the last written holds.
        schedule.sort_by_key(|change| change.at);
        schedule.reverse();
        let link = Link {
            station,
            ingress_loss: loss("ingress_loss", &spec.ingress_loss)?,
            loss: match loss("loss", &spec.loss)? {
                Some(loss) => loss,
                None => LossSpec::from(Fraction::ZERO).build(random("loss"))?,
            },
            line: Line::new(spec.delay),
            schedule,
            verdicts: Verdicts { dropped: Vec::new(), marked: 0 },
            stats: LinkStats { rate: nominal, delay: spec.delay, ..LinkStats::default() },
        };
        for (i, change) in spec.schedule.iter().enumerate() {
            link.check(change.rate.is_some(), change.loss.is_some())
                .map_err(|w| Wrong::new(format!("schedule[{i}].{}", w.key), w.reason))?;
        }
        Ok(link)
    }

    /// Whether rate or loss of this link can be changed.
    pub fn check(&self, rate: bool, loss: bool) -> Result<(), Wrong> {
        if rate && !self.station.as_ref().is_some_and(Station::has_rate) {
            let reason = "a link without a constant `rate` has none to change: write the rate it starts with";
            return Err(Wrong::new("rate", reason));
        }
        if loss && !matches!(self.loss, Loss::Bernoulli(_)) {
            return Err(Wrong::new("loss", "only a plain share (`loss = \"1%\"`) can be changed"));
        }
        Ok(())
    }

    /// When [`Link::step`] has something to do.
    pub fn next(&self) -> Time {
        let station = self.station.as_ref().map_or(Time::NEVER, Station::next);
        self.line.next_arrival().min(station).min(self.next_change())
    }

    /// Nothing leaves this link before that time unless something is pushed into it.
    pub fn wake(&self) -> Time {
        let Some(station) = &self.station else {
            return self.line.next_arrival();
        };
        if station.is_empty() {
            return self.line.next_arrival();
        }
        // A change may bring forward what waits; what is on the line is beyond its reach.
        let departure = station.next().min(self.next_change());
        if station.chooses() { self.line.next_arrival().min(departure) } else { self.line.next(departure) }
    }

    fn next_change(&self) -> Time {
        self.schedule.last().map_or(Time::NEVER, |change| Time::ZERO + change.at)
    }

    /// A packet comes in; all that was due until `at` has been done.
    pub fn push(&mut self, at: Time, packet: Packet<T>, sink: &mut impl FnMut(Time, Outcome<T>)) {
        self.stats.arrived_packets += 1;
        self.stats.arrived_bytes += u64::from(packet.bytes);
        if let Some(loss) = &mut self.ingress_loss
            && loss.loses(at)
        {
            self.drop(at, packet, DropCause::Loss, sink);
            return;
        }
        match &mut self.station {
            Some(station) => {
                station.push(at, packet, &mut self.verdicts);
                self.report(at, sink);
            }
            None => self.depart(at, packet),
        }
    }

    /// Does the first thing that is due, at [`Link::next`].
    pub fn step(&mut self, sink: &mut impl FnMut(Time, Outcome<T>)) {
        let arrival = self.line.next_arrival();
        let departure = self.station.as_ref().map_or(Time::NEVER, Station::next);
        if arrival <= departure && arrival <= self.next_change() {
            match self.line.pop() {
                Some((packet, None)) => {
                    self.stats.delivered_packets += 1;
                    self.stats.delivered_bytes += u64::from(packet.bytes);
                    sink(arrival, Outcome::Delivered(packet));
                }
                Some((packet, Some(cause))) => self.drop(arrival, packet, cause, sink),
                None => {}
            }
        } else if departure <= self.next_change() {
            if let Some(station) = &mut self.station {
                if let Some(packet) = station.step(&mut self.verdicts) {
                    self.depart(departure, packet);
                }
                self.report(departure, sink);
            }
        } else if let Some(change) = self.schedule.pop() {
            let ScheduledChange { at, rate, delay, loss } = change;
            self.change(Time::ZERO + at, rate, delay, loss);
        }
    }

    /// Changes what is written, from `now` on.
    pub fn apply(&mut self, now: Time, change: &Change) {
        self.change(now, change.rate, change.delay, change.loss);
    }

    fn change(&mut self, now: Time, rate: Option<Rate>, delay: Option<Span>, loss: Option<Fraction>) {
        if let (Some(rate), Some(station)) = (rate, &mut self.station)
            && station.has_rate()
        {
            station.set_rate(now, rate);
            self.stats.rate = rate;
        }
        if let Some(delay) = delay {
            self.line.delay = delay;
            self.stats.delay = delay;
        }
        if let Some(share) = loss {
            self.loss.set_share(share);
        }
    }

    /// The state and the counters.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The last byte of a packet has left the server.
    fn depart(&mut self, at: Time, packet: Packet<T>) {
        let lost = self.loss.loses(at).then_some(DropCause::Loss);
        self.line.push(at, packet, lost);
    }

    fn drop(
        &mut self,
        at: Time,
        packet: Packet<T>,
        cause: DropCause,
        sink: &mut impl FnMut(Time, Outcome<T>),
    ) {
        self.stats.count_drop(packet.bytes, cause);
        sink(at, Outcome::Dropped(packet, cause));
    }

    /// Passes on what the queue decided, and how full it is now.
    fn report(&mut self, at: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
        for (packet, cause) in self.verdicts.dropped.drain(..) {
            self.stats.count_drop(packet.bytes, cause);
            sink(at, Outcome::Dropped(packet, cause));
        }
        self.stats.marked_packets = self.verdicts.marked;
        if let Some(station) = &self.station {
            let (bytes, packets) = station.waiting();
            self.stats.queue_bytes = bytes;
            self.stats.queue_packets = packets as u64;
            self.stats.max_queue_bytes = self.stats.max_queue_bytes.max(bytes);
            self.stats.max_queue_packets = self.stats.max_queue_packets.max(packets as u64);
        }
    }
}

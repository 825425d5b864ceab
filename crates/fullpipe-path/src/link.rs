//! One link: all elements between two nodes, in order.

use fullpipe_units::{Fraction, Rate, Time};

use crate::blackout::{self, Blackouts};
use crate::build::{BuildContext, BuildError, LinkError};
use crate::line::Line;
use crate::loss::{Loss, LossSpec};
use crate::policer::Policer;
use crate::queue::{Backlog, QueueContext, Verdicts};
use crate::random::Stream;
use crate::rate::{Cellular, Constant, Server};
use crate::schedule::{Schedule, Step};
use crate::spec::{Change, LinkSpec};
use crate::station::Station;
use crate::stats::LinkStats;
use crate::{DropCause, Outcome, Packet};

/// A running link. The owner calls [`Link::step`] for everything that is due before it pushes.
pub(crate) struct Link<T> {
    /// `None` for a link without a rate: packets go straight onto the line.
    station: Option<Station<T>>,
    /// Whether the link has changes that are not processed while it is idle.
    sleeps: bool,
    /// The rate outside blackouts.
    rate: Rate,
    cellular: Option<Cellular>,
    ingress_loss: Option<Loss>,
    policer: Option<Policer>,
    loss: Loss,
    line: Line<T>,
    schedule: Schedule,
    /// Blackouts in which packets are lost.
    losing: Blackouts,
    /// Blackouts in which packets wait, and the next start or end of one.
    holding: Blackouts,
    edge: Time,
    /// Scheduled changes of rate, delay and loss.
    next_change: Time,
    verdicts: Verdicts<T>,
    stats: LinkStats,
}

impl<T> Link<T> {
    pub fn new(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, BuildError> {
        Self::build(spec, index, ctx).map_err(|wrong| wrong.at(index))
    }

    fn build(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, LinkError> {
        let random = |element: &str| Stream::new(ctx, index, element);
        let loss = |key: &str, spec: &Option<LossSpec>| {
            let build = |spec: &LossSpec| {
                spec.build(random(key)).map_err(|w| LinkError::new(format!("{key}.{}", w.key), w.reason))
            };
            spec.as_ref().map(build).transpose()
        };
        blackout::check(&spec.blackouts)?;
        let station = station(spec, ctx, random("queue"))?;
        let holding = Blackouts::with_hold(&spec.blackouts, true);
        if !holding.is_empty() && !station.as_ref().is_some_and(Station::has_rate) {
            let reason = "packets can only wait where there is a `rate`: add one, or remove `hold`";
            return Err(LinkError::new("blackouts", reason));
        }
        let rate = match &spec.cellular {
            Some(cellular) => cellular.min,
            None => spec.nominal_rate().unwrap_or(Rate::MAX),
        };
        let mut link = Link {
            station,
            sleeps: spec.cellular.is_some() || !holding.is_empty(),
            rate,
            cellular: spec.cellular.as_ref().map(Cellular::new).transpose()?,
            ingress_loss: loss("ingress_loss", &spec.ingress_loss)?,
            policer: spec.policer.as_ref().map(|p| Policer::new(p, ctx.mtu)).transpose()?,
            loss: match loss("loss", &spec.loss)? {
                Some(loss) => loss,
                None => LossSpec::from(Fraction::ZERO).build(random("loss"))?,
            },
            line: Line::new(spec, index, ctx)?,
            schedule: Schedule::new(spec)?,
            losing: Blackouts::with_hold(&spec.blackouts, false),
            holding,
            edge: Time::NEVER,
            next_change: Time::NEVER,
            verdicts: Verdicts { dropped: Vec::new(), marked: 0 },
            stats: LinkStats { rate, delay: spec.delay, ..LinkStats::default() },
        };
        for (i, change) in spec.schedule.iter().enumerate() {
            link.check(change.rate.is_some(), change.loss.is_some())
                .map_err(|w| LinkError::new(format!("schedule[{i}].{}", w.key), w.reason))?;
        }
        link.find_next_change();
        Ok(link)
    }

    /// Checks that rate or loss of this link can be changed.
    pub fn check(&self, rate: bool, loss: bool) -> Result<(), LinkError> {
        let has_rate = self.cellular.is_none() && self.station.as_ref().is_some_and(Station::has_rate);
        if rate && !has_rate {
            let reason = "a link without a constant `rate` has none to change: write the rate it starts with";
            return Err(LinkError::new("rate", reason));
        }
        if loss && !matches!(self.loss, Loss::Bernoulli(_)) {
            return Err(LinkError::new("loss", "only a plain share (`loss = \"1%\"`) can be changed"));
        }
        Ok(())
    }

    /// When [`Link::step`] is due.
    #[inline(always)]
    pub fn next(&self) -> Time {
        let station = self.station.as_ref().map_or(Time::NEVER, Station::next);
        self.line.next_arrival().min(station).min(self.next_change)
    }

    /// The earliest time at which a packet can leave this link without a push.
    #[inline(always)]
    pub fn wake(&self) -> Time {
        match &self.station {
            Some(station) if !station.is_empty() => self.line.wake(station.next(), self.next_change),
            _ => self.line.next_arrival(),
        }
    }

    /// See [`Path::propagating`](crate::Path::propagating).
    pub fn propagating(&self) -> impl Iterator<Item = (Time, &Packet<T>)> {
        self.line.propagating()
    }

    fn find_next_change(&mut self) {
        let granted = self.cellular.as_ref().map_or(Time::NEVER, Cellular::next);
        self.next_change = self.schedule.next().min(granted).min(self.edge);
    }

    /// Adds a packet; everything due until `at` has been processed.
    #[inline(always)]
    pub fn push(&mut self, at: Time, packet: Packet<T>, sink: &mut impl FnMut(Time, Outcome<T>)) {
        self.stats.arrived_packets += 1;
        self.stats.arrived_bytes += u64::from(packet.bytes);
        if self.ingress_loss.as_mut().is_some_and(|loss| loss.loses(at)) {
            return self.drop(at, packet, DropCause::Loss, sink);
        }
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(at, packet.bytes)) {
            return self.drop(at, packet, DropCause::Policer, sink);
        }
        if self.sleeps {
            self.wake_up(at);
        }
        match &mut self.station {
            Some(station) => {
                station.push(at, packet, &mut self.verdicts);
                self.report(at, sink);
            }
            None => self.depart(at, packet, sink),
        }
    }

    /// Processes the first event, at [`Link::next`].
    #[inline(always)]
    pub fn step(&mut self, sink: &mut impl FnMut(Time, Outcome<T>)) {
        let arrival = self.line.next_arrival();
        let departure = self.station.as_ref().map_or(Time::NEVER, Station::next);
        if arrival <= departure && arrival <= self.next_change {
            match self.line.pop() {
                Some((packet, false)) => {
                    self.stats.delivered_packets += 1;
                    self.stats.delivered_bytes += u64::from(packet.bytes);
                    sink(arrival, Outcome::Delivered(packet));
                }
                Some((packet, true)) => self.drop(arrival, packet, DropCause::Thinned, sink),
                None => {}
            }
        } else if departure <= self.next_change {
            if let Some(station) = &mut self.station {
                if let Some(packet) = station.step(&mut self.verdicts) {
                    self.depart(departure, packet, sink);
                }
                self.report(departure, sink);
            }
        } else {
            self.change(self.next_change);
        }
    }

    /// Brings the demand and the blackouts of a link that was idle up to date when a packet
    /// arrives.
    #[inline(never)]
    fn wake_up(&mut self, at: Time) {
        if let Some(cellular) = &mut self.cellular {
            cellular.asked(at);
        }
        if self.station.as_ref().is_some_and(Station::is_empty) {
            self.hold(at);
        }
        self.find_next_change();
    }

    /// Applies the fields of `change` that are set, at `now`.
    pub fn apply(&mut self, now: Time, change: &Change) {
        self.adopt(now, Step { rate: change.rate, delay: change.delay, loss: change.loss });
    }

    /// Applies the scheduled change that is due at `now`.
    #[inline(never)]
    fn change(&mut self, now: Time) {
        if now == self.edge {
            self.hold(now);
        } else if now == self.schedule.next() {
            if let Some((_, step)) = self.schedule.pop() {
                self.adopt(now, step);
            }
        } else if let (Some(cellular), Some(station)) = (&mut self.cellular, &self.station) {
            self.rate = cellular.decide(station.backlog());
            self.set_rate(now);
        }
        self.find_next_change();
    }

    fn adopt(&mut self, now: Time, step: Step) {
        if let Some(rate) = step.rate
            && self.check(true, false).is_ok()
        {
            self.rate = rate;
            self.set_rate(now);
        }
        if let Some(delay) = step.delay {
            self.line.delay = delay;
            self.stats.delay = delay;
        }
        if let Some(share) = step.loss {
            self.loss.set_share(share);
        }
    }

    /// Stops or resumes service according to the blackouts. An idle link sleeps until the next
    /// packet, so that endless blackouts do not cause endless events.
    fn hold(&mut self, now: Time) {
        if !self.holding.is_empty() {
            let idle = self.edge == now && self.station.as_ref().is_none_or(Station::is_empty);
            self.edge = if idle { Time::NEVER } else { self.holding.next_edge(now) };
            self.set_rate(now);
        }
    }

    /// Sets the server to the link's rate, or to 0 during a blackout.
    fn set_rate(&mut self, now: Time) {
        let rate = if self.holding.is_down(now) { Rate::ZERO } else { self.rate };
        if let Some(station) = &mut self.station
            && rate != self.stats.rate
        {
            station.set_rate(now, rate);
            self.stats.rate = rate;
        }
    }

    /// State and counters.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The last byte of a packet has left the server.
    #[inline(always)]
    fn depart(&mut self, at: Time, packet: Packet<T>, sink: &mut impl FnMut(Time, Outcome<T>)) {
        if let Some(cellular) = &mut self.cellular {
            cellular.served(packet.bytes);
        }
        if self.losing.is_down(at) {
            self.drop(at, packet, DropCause::Blackout, sink);
        } else if self.loss.loses(at) {
            self.drop(at, packet, DropCause::Loss, sink);
        } else {
            self.line.push(at, packet);
        }
    }

    #[cold]
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

    /// Reports the queue's drops, and updates the queue's statistics.
    #[inline(always)]
    fn report(&mut self, at: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
        if !self.verdicts.dropped.is_empty() {
            self.report_drops(at, sink);
        }
        if let Some(station) = &self.station {
            let Backlog { bytes, packets } = station.waiting();
            let stats = &mut self.stats;
            stats.queue_bytes = bytes;
            stats.queue_packets = packets as u64;
            stats.max_queue_bytes = stats.max_queue_bytes.max(bytes);
            stats.max_queue_packets = stats.max_queue_packets.max(packets as u64);
            stats.marked_packets = self.verdicts.marked;
        }
    }

    #[cold]
    fn report_drops(&mut self, at: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
        for (packet, cause) in self.verdicts.dropped.drain(..) {
            self.stats.count_drop(packet.bytes, cause);
            sink(at, Outcome::Dropped(packet, cause));
        }
    }
}

/// The queue and the server of a link, if it has a rate of any kind.
fn station<T>(spec: &LinkSpec, ctx: &BuildContext, random: Stream) -> Result<Option<Station<T>>, LinkError> {
    let server = match (spec.rate, &spec.trace, &spec.cellular) {
        (None, None, None) if spec.queue.is_some() => {
            let reason = "nothing queues in front of a link without `rate`, `trace` or `cellular`: add one";
            return Err(LinkError::new("queue", reason));
        }
        (None, None, None) => return Ok(None),
        (Some(rate), None, None) => Server::Constant(Constant::new(rate)),
        (None, Some(trace), None) => Server::Trace(trace.build()?),
        (None, None, Some(cellular)) => Server::Constant(Constant::new(cellular.min)),
        (rate, _, cellular) => {
            let key = if rate.is_some() { "rate" } else { "trace" };
            let other = if cellular.is_some() { "cellular" } else { "trace" };
            return Err(LinkError::new(
                key,
                format!("a link has one rate, and `{other}` is another: remove one"),
            ));
        }
    };
    let nominal = spec.nominal_rate().unwrap_or(Rate::MAX);
    let ctx = QueueContext { rate: nominal, bdp: ctx.bdp(), mtu: ctx.mtu, random };
    let queue = spec.queue.clone().unwrap_or_default().build(ctx);
    let queue = queue.map_err(|w| LinkError::new(format!("queue.{}", w.key), w.reason))?;
    Ok(Some(Station::new(queue, server)))
}

//! One link: everything a packet meets between two nodes, in order.

use fullpipe_units::{Fraction, Rate, Time};

use crate::blackout::{self, Blackouts};
use crate::build::{BuildContext, BuildError, Wrong};
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

/// A link at work. Its owner calls [`Link::step`] for all that is due before it pushes.
pub(crate) struct Link<T> {
    /// `None`: no rate, packets go straight onto the line.
    station: Option<Station<T>>,
    /// There are changes that nobody follows while nothing waits.
    sleeps: bool,
    /// The rate without regard to blackouts.
    rate: Rate,
    cellular: Option<Cellular>,
    ingress_loss: Option<Loss>,
    policer: Option<Policer>,
    loss: Loss,
    line: Line<T>,
    schedule: Schedule,
    /// Blackouts in which packets are lost.
    losing: Blackouts,
    /// Blackouts in which packets wait, and the next beginning or end of one.
    holding: Blackouts,
    edge: Time,
    /// When rate, delay or loss change next.
    next_change: Time,
    verdicts: Verdicts<T>,
    stats: LinkStats,
}

impl<T> Link<T> {
    pub fn new(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, BuildError> {
        Self::build(spec, index, ctx).map_err(|wrong| wrong.at(index))
    }

    fn build(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, Wrong> {
        let random = |element: &str| Stream::new(ctx, index, element);
        let loss = |key: &str, spec: &Option<LossSpec>| {
            let build = |spec: &LossSpec| {
                spec.build(random(key)).map_err(|w| Wrong::new(format!("{key}.{}", w.key), w.reason))
            };
            spec.as_ref().map(build).transpose()
        };
        blackout::check(&spec.blackouts)?;
        let station = station(spec, ctx, random("queue"))?;
        let holding = Blackouts::of(&spec.blackouts, true);
        if !holding.is_empty() && !station.as_ref().is_some_and(Station::has_rate) {
            let reason = "packets can only wait where there is a `rate`: add one, or remove `hold`";
            return Err(Wrong::new("blackouts", reason));
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
            losing: Blackouts::of(&spec.blackouts, false),
            holding,
            edge: Time::NEVER,
            next_change: Time::NEVER,
            verdicts: Verdicts { dropped: Vec::new(), marked: 0 },
            stats: LinkStats { rate, delay: spec.delay, ..LinkStats::default() },
        };
        for (i, change) in spec.schedule.iter().enumerate() {
            link.check(change.rate.is_some(), change.loss.is_some())
                .map_err(|w| Wrong::new(format!("schedule[{i}].{}", w.key), w.reason))?;
        }
        link.find_next_change();
        Ok(link)
    }

    /// Whether rate or loss of this link can be changed.
    pub fn check(&self, rate: bool, loss: bool) -> Result<(), Wrong> {
        let has_rate = self.cellular.is_none() && self.station.as_ref().is_some_and(Station::has_rate);
        if rate && !has_rate {
            let reason = "a link without a constant `rate` has none to change: write the rate it starts with";
            return Err(Wrong::new("rate", reason));
        }
        if loss && !matches!(self.loss, Loss::Bernoulli(_)) {
            return Err(Wrong::new("loss", "only a plain share (`loss = \"1%\"`) can be changed"));
        }
        Ok(())
    }

    /// When [`Link::step`] has something to do.
    #[inline(always)]
    pub fn next(&self) -> Time {
        let station = self.station.as_ref().map_or(Time::NEVER, Station::next);
        self.line.next_arrival().min(station).min(self.next_change)
    }

    /// Nothing leaves this link before that time unless something is pushed into it.
    #[inline(always)]
    pub fn wake(&self) -> Time {
        match &self.station {
            Some(station) if !station.is_empty() => self.line.wake(station.next(), self.next_change),
            _ => self.line.next_arrival(),
        }
    }

    fn find_next_change(&mut self) {
        let granted = self.cellular.as_ref().map_or(Time::NEVER, Cellular::next);
        self.next_change = self.schedule.next().min(granted).min(self.edge);
    }

    /// A packet comes in; all that was due until `at` has been done.
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

    /// Does the first thing that is due, at [`Link::next`].
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

    /// A packet comes to a link whose demand or blackouts nobody has followed while it was idle.
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

    /// Changes what is written, from `now` on.
    pub fn apply(&mut self, now: Time, change: &Change) {
        self.adopt(now, Step { rate: change.rate, delay: change.delay, loss: change.loss });
    }

    /// Makes the change that is due at `now`.
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

    /// Stops or goes on with serving, as the blackouts have it. An idle link sleeps until the next
    /// packet, so that blackouts without end are no events without end.
    fn hold(&mut self, now: Time) {
        if !self.holding.is_empty() {
            let idle = self.edge == now && self.station.as_ref().is_none_or(Station::is_empty);
            self.edge = if idle { Time::NEVER } else { self.holding.next_edge(now) };
            self.set_rate(now);
        }
    }

    /// Serves at the link's rate from now on, or not at all during a blackout.
    fn set_rate(&mut self, now: Time) {
        let rate = if self.holding.is_down(now) { Rate::ZERO } else { self.rate };
        if let Some(station) = &mut self.station
            && rate != self.stats.rate
        {
            station.set_rate(now, rate);
            self.stats.rate = rate;
        }
    }

    /// The state and the counters.
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

    /// Passes on what the queue decided, and how full it is now.
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
fn station<T>(spec: &LinkSpec, ctx: &BuildContext, random: Stream) -> Result<Option<Station<T>>, Wrong> {
    let server = match (spec.rate, &spec.trace, &spec.cellular) {
        (None, None, None) if spec.queue.is_some() => {
            let reason = "nothing queues in front of a link without `rate`, `trace` or `cellular`: add one";
            return Err(Wrong::new("queue", reason));
        }
        (None, None, None) => return Ok(None),
        (Some(rate), None, None) => Server::Constant(Constant::new(rate)),
        (None, Some(trace), None) => Server::Trace(trace.build()?),
        (None, None, Some(cellular)) => Server::Constant(Constant::new(cellular.min)),
        (rate, _, cellular) => {
            let key = if rate.is_some() { "rate" } else { "trace" };
            let other = if cellular.is_some() { "cellular" } else { "trace" };
            return Err(Wrong::new(
                key,
                format!("a link has one rate, and `{other}` is another: remove one"),
            ));
        }
    };
    let nominal = spec.nominal_rate().unwrap_or(Rate::MAX);
    let ctx = QueueContext { rate: nominal, bdp: ctx.bdp(), mtu: ctx.mtu, random };
    let queue = spec.queue.clone().unwrap_or_default().build(ctx);
    let queue = queue.map_err(|w| Wrong::new(format!("queue.{}", w.key), w.reason))?;
    Ok(Some(Station::new(queue, server)))
}

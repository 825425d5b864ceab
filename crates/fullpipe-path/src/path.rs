//! A chain of links: one direction of a path.

use std::collections::VecDeque;

use fullpipe_units::Time;

use crate::build::{BuildContext, BuildError, LinkError};
use crate::link::Link;
use crate::spec::{Change, LinkSpec};
use crate::stats::LinkStats;
use crate::{Outcome, Packet};

/// One direction of a path: a chain of links in virtual time.
///
/// The engine owns the clock. It pushes packets with the time of their arrival and collects their
/// outcomes with [`advance`](Path::advance), at the latest when
/// [`next_event`](Path::next_event) says so. All times are exact whenever the calls come: a late
/// `push` or `advance` changes neither queueing nor the reported times.
pub struct Path<T> {
    links: Vec<Link<T>>,
    /// Outcomes of a `push`, kept for the next `advance`.
    kept: VecDeque<(Time, Outcome<T>)>,
}

impl<T> Path<T> {
    /// Builds a path from `links`; without links it delivers at once.
    ///
    /// # Errors
    /// An invalid link or combination of links, with the link and the key.
    pub fn new(links: &[LinkSpec], ctx: &BuildContext) -> Result<Self, BuildError> {
        let links =
            links.iter().enumerate().map(|(i, spec)| Link::new(spec, i, ctx)).collect::<Result<_, _>>()?;
        Ok(Path { links, kept: VecDeque::new() })
    }

    /// Sends a packet into the first link at `at`.
    ///
    /// `at` must not be earlier than in the previous push. It may be earlier than the latest
    /// `advance`: a real-time engine reads packets some time after they arrived.
    #[inline]
    pub fn push(&mut self, at: Time, packet: Packet<T>) {
        let kept = &mut self.kept;
        let keep = &mut |at, outcome| kept.push_back((at, outcome));
        run(&mut self.links, at, keep);
        enter(&mut self.links, at, packet, keep);
    }

    /// When to call [`advance`](Path::advance) next: nothing is delivered before.
    /// [`Time::NEVER`] if nothing will be delivered without a `push`. A drop may be reported later
    /// than it happened, with its exact time.
    #[inline]
    pub fn next_event(&self) -> Time {
        let kept = self.kept.front().map_or(Time::NEVER, |(at, _)| *at);
        self.links.iter().fold(kept, |first, link| first.min(link.wake()))
    }

    /// The packets that have left the last link's server and have not arrived, with the times at
    /// which they will, in their order; empty without links, and if a later packet can change that
    /// order or those times.
    pub fn propagating(&self) -> impl Iterator<Item = (Time, &Packet<T>)> {
        self.links.last().into_iter().flat_map(Link::propagating)
    }

    /// Processes everything that is due until `now` and reports the outcomes in order of time.
    #[inline]
    pub fn advance(&mut self, now: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
        if !self.kept.is_empty() {
            self.report_kept(now, sink);
        }
        run(&mut self.links, now, sink);
    }

    #[cold]
    fn report_kept(&mut self, now: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
        while let Some((at, outcome)) = self.kept.pop_front_if(|(at, _)| *at <= now) {
            sink(at, outcome);
        }
    }

    /// Changes a link at `now`. Ignores parts of the change that the link does not support (see
    /// [`Path::check`]).
    pub fn apply(&mut self, now: Time, change: &Change) {
        let kept = &mut self.kept;
        run(&mut self.links, now, &mut |at, outcome| kept.push_back((at, outcome)));
        if let Some(link) = self.links.get_mut(change.link) {
            link.apply(now, change);
        }
    }

    /// Checks that [`Path::apply`] supports all parts of `change`.
    ///
    /// # Errors
    /// The link does not exist, has no rate to change, or its loss model has no share to change.
    pub fn check(&self, change: &Change) -> Result<(), BuildError> {
        let Some(link) = self.links.get(change.link) else {
            let reason = format!("there is no such link; the path has {}, counted from 0", self.links.len());
            return Err(LinkError::new("link", reason).at(change.link));
        };
        link.check(change.rate.is_some(), change.loss.is_some()).map_err(|wrong| wrong.at(change.link))
    }

    /// The state and the counters of every link, in order.
    pub fn stats(&self) -> impl ExactSizeIterator<Item = &LinkStats> {
        self.links.iter().map(Link::stats)
    }
}

/// Sends a packet into the first of `links`.
#[inline]
fn enter<T>(links: &mut [Link<T>], at: Time, packet: Packet<T>, sink: &mut impl FnMut(Time, Outcome<T>)) {
    match links.first_mut() {
        Some(link) => link.push(at, packet, sink),
        None => sink(at, Outcome::Delivered(packet)),
    }
}

/// Processes everything due until `limit`, in order of time. Among events at one time the links
/// closer to the receiver go first, so that a queue is as empty as possible when a packet arrives.
#[inline]
fn run<T>(links: &mut [Link<T>], limit: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
    // `Time::NEVER` itself is never reached.
    let limit = limit.min(Time::from_nanos(u64::MAX - 1));
    if let [link] = links {
        while link.next() <= limit {
            link.step(sink);
        }
        return;
    }
    loop {
        let mut first = (limit, None);
        for (i, link) in links.iter().enumerate() {
            let next = link.next();
            if next <= first.0 {
                first = (next, Some(i));
            }
        }
        let Some(i) = first.1 else {
            return;
        };
        let (done, rest) = links.split_at_mut(i + 1);
        done[i].step(&mut |at, outcome| match outcome {
            Outcome::Delivered(packet) => enter(rest, at, packet, sink),
            dropped => sink(at, dropped),
        });
    }
}

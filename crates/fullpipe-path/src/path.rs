//! Several links in a row: one direction of a path.

use std::collections::VecDeque;

use fullpipe_units::Time;

use crate::build::{BuildContext, BuildError, Wrong};
use crate::link::Link;
use crate::spec::{Change, LinkSpec};
use crate::stats::LinkStats;
use crate::{Outcome, Packet};

/// One direction of a path: links in a row, in virtual time.
///
/// The engine owns the clock. It pushes packets with the time of their arrival and collects what
/// became of them with [`advance`](Path::advance), at the latest when
/// [`next_event`](Path::next_event) says so. All times are exact whenever the calls come: a late
/// `push` or `advance` changes neither queueing nor the reported times.
pub struct Path<T> {
    links: Vec<Link<T>>,
    /// Outcomes of a `push`, kept for the next `advance`.
    kept: VecDeque<(Time, Outcome<T>)>,
}

impl<T> Path<T> {
    /// A path over these links; without any it delivers at once.
    ///
    /// # Errors
    /// A combination that cannot work, with the link and the key.
    pub fn new(links: &[LinkSpec], ctx: &BuildContext) -> Result<Self, BuildError> {
        let links =
            links.iter().enumerate().map(|(i, spec)| Link::new(spec, i, ctx)).collect::<Result<_, _>>()?;
        Ok(Path { links, kept: VecDeque::new() })
    }

    /// A packet enters the first link at `at`.
    ///
    /// `at` must not be earlier than that of the push before. It may be earlier than the latest
    /// `advance`: a real-time engine reads packets some time after they arrived.
    #[inline]
    pub fn push(&mut self, at: Time, packet: Packet<T>) {
        let kept = &mut self.kept;
        let keep = &mut |at, outcome| kept.push_back((at, outcome));
        run(&mut self.links, at, keep);
        enter(&mut self.links, at, packet, keep);
    }

    /// When to call [`advance`](Path::advance) next: nothing is delivered before.
    /// [`Time::NEVER`] if nothing will be without a `push`. A packet that is dropped inside may be
    /// reported later than it was, with its exact time.
    #[inline]
    pub fn next_event(&self) -> Time {
        let kept = self.kept.front().map_or(Time::NEVER, |(at, _)| *at);
        self.links.iter().fold(kept, |first, link| first.min(link.wake()))
    }

    /// Does everything that is due until `now` and reports it in the order of its times.
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

    /// Applies a change to one link from `now` on. What the link does not have (see
    /// [`Path::check`]) is left alone.
    pub fn apply(&mut self, now: Time, change: &Change) {
        let kept = &mut self.kept;
        run(&mut self.links, now, &mut |at, outcome| kept.push_back((at, outcome)));
        if let Some(link) = self.links.get_mut(change.link) {
            link.apply(now, change);
        }
    }

    /// Whether [`Path::apply`] can do all that `change` says.
    ///
    /// # Errors
    /// A link that is not there, a rate where there is none, a share where the loss has none.
    pub fn check(&self, change: &Change) -> Result<(), BuildError> {
        let Some(link) = self.links.get(change.link) else {
            let reason = format!("there is no such link; the path has {}, counted from 0", self.links.len());
            return Err(Wrong::new("link", reason).at(change.link));
        };
        link.check(change.rate.is_some(), change.loss.is_some()).map_err(|wrong| wrong.at(change.link))
    }

    /// The state and the counters of every link, in order.
    pub fn stats(&self) -> impl ExactSizeIterator<Item = &LinkStats> {
        self.links.iter().map(Link::stats)
    }
}

/// A packet enters the first of `links`.
#[inline]
fn enter<T>(links: &mut [Link<T>], at: Time, packet: Packet<T>, sink: &mut impl FnMut(Time, Outcome<T>)) {
    match links.first_mut() {
        Some(link) => link.push(at, packet, sink),
        None => sink(at, Outcome::Delivered(packet)),
    }
}

/// Does all that is due until `limit`, in the order of time. At one time the links towards the
/// receiver go first, so that a queue is as empty as it can be when a packet arrives.
#[inline]
fn run<T>(links: &mut [Link<T>], limit: Time, sink: &mut impl FnMut(Time, Outcome<T>)) {
    // Never does not come, not even for a caller who asks for everything.
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

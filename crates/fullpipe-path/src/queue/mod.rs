//! Queues in front of a rate, one file per discipline.
//!
//! A new discipline is a file here and a line in [`queues!`](self); scenario files, schema, help
//! and engines then know it.

mod backlog;
mod codel;
mod drop_tail;
mod fair;
mod fifo;
mod fq;
mod fq_codel;
mod fq_pie;
mod pie;

use fullpipe_units::{Rate, Time};
use serde::{Deserialize, Serialize};

use crate::build::Wrong;
use crate::limit::{Capacity, Limit};
use crate::random::Stream;
use crate::{DropCause, Packet};

pub(crate) use backlog::Backlog;
pub use codel::CodelSpec;
pub use drop_tail::DropTailSpec;
pub use fq::FqSpec;
pub use fq_codel::FqCodelSpec;
pub use fq_pie::FqPieSpec;
pub use pie::PieSpec;

/// What a file of this folder provides for its spec.
pub(crate) trait QueueKind {
    /// One line for help texts.
    const ABOUT: &'static str;
    /// The queue at work.
    type Queue<T>: Discipline<T>;
    /// The queue, or which of its keys is wrong.
    fn build<T>(&self, ctx: QueueContext) -> Result<Self::Queue<T>, Wrong>;
}

/// What a queue may know of its link.
pub(crate) struct QueueContext {
    pub rate: Rate,
    pub bdp: u64,
    pub mtu: u32,
    pub random: Stream,
}

impl QueueContext {
    pub fn capacity(&self, limit: Limit) -> Capacity {
        limit.resolve(self.rate, self.bdp)
    }
}

/// What a queue decided besides which packet leaves: kept until the link reports it.
pub(crate) struct Verdicts<T> {
    pub dropped: Vec<(Packet<T>, DropCause)>,
    pub marked: u64,
}

impl<T> Verdicts<T> {
    #[cold]
    pub fn drop(&mut self, packet: Packet<T>, cause: DropCause) {
        self.dropped.push((packet, cause));
    }
}

/// A queue. The packet in service has left it, except for [`DropTail`](drop_tail::DropTail).
pub(crate) trait Discipline<T> {
    /// Takes a packet in at `at`, or drops it (or another one).
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>);
    /// The packet to be served from `at` on; `None` if there is none or all were dropped.
    fn dequeue(&mut self, at: Time, verdicts: &mut Verdicts<T>) -> Option<Packet<T>>;
    /// What waits.
    fn backlog(&self) -> Backlog;
}

macro_rules! queues {
    ($($(#[$doc:meta])* $Kind:ident($Spec:ty);)+) => {
        /// Which packets wait, for how long and in which order. Written as a table with a `kind`,
        /// as a kind alone (`"codel"`), or as a limit alone (`"64k"`: a drop-tail queue).
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum QueueSpec { $($(#[$doc])* $Kind($Spec),)+ }

        impl QueueSpec {
            /// Every kind: the name that a scenario file writes, and one line about it.
            pub fn kinds() -> impl Iterator<Item = (String, &'static str)> {
                [$((crate::spec::kebab(stringify!($Kind)), <$Spec as QueueKind>::ABOUT)),+].into_iter()
            }

            /// The queue of this kind with its defaults; `None` for an unknown kind.
            pub fn of_kind(kind: &str) -> Option<Self> {
                $(if crate::spec::kebab(stringify!($Kind)) == kind {
                    return Some(QueueSpec::$Kind(Default::default()));
                })+
                None
            }

            /// The name of its kind, as a scenario file writes it.
            pub fn kind(&self) -> String {
                match self { $(QueueSpec::$Kind(_) => crate::spec::kebab(stringify!($Kind)),)+ }
            }

            /// What may wait in it at most.
            pub fn limit(&self) -> Limit {
                match self { $(QueueSpec::$Kind(spec) => spec.limit,)+ }
            }

            pub(crate) fn build<T>(&self, ctx: QueueContext) -> Result<Queue<T>, Wrong> {
                match self {
                    $(QueueSpec::$Kind(spec) => spec.build(ctx).map(Queue::$Kind),)+
                }
            }
        }

        /// A queue at work.
        pub(crate) enum Queue<T> { $($Kind(<$Spec as QueueKind>::Queue<T>),)+ }

        impl<T> Queue<T> {
            pub fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
                match self { $(Queue::$Kind(queue) => queue.enqueue(at, packet, verdicts),)+ }
            }

            pub fn dequeue(&mut self, at: Time, verdicts: &mut Verdicts<T>) -> Option<Packet<T>> {
                match self { $(Queue::$Kind(queue) => queue.dequeue(at, verdicts),)+ }
            }

            pub fn backlog(&self) -> Backlog {
                match self { $(Queue::$Kind(queue) => queue.backlog(),)+ }
            }
        }
    };
}

queues! {
    /// First in, first out; a packet that finds no room is dropped.
    DropTail(DropTailSpec);
    /// Controlled delay, RFC 8289: drops at the head when the delay stays above a target.
    Codel(CodelSpec);
    /// Proportional integral controller, RFC 8033: drops at the tail with a probability that
    /// holds the delay at a target.
    Pie(PieSpec);
    /// RFC 8290: flows hashed into queues that take turns by bytes, CoDel in each.
    FqCodel(FqCodelSpec);
    /// The same with PIE in each, after Linux.
    FqPie(FqPieSpec);
    /// Fair queueing after Linux: a queue for each flow, turns by bytes.
    Fq(FqSpec);
}

impl Default for QueueSpec {
    fn default() -> Self {
        QueueSpec::DropTail(DropTailSpec::default())
    }
}

impl From<Limit> for QueueSpec {
    fn from(limit: Limit) -> Self {
        QueueSpec::DropTail(DropTailSpec { limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_listed_under_the_name_it_is_read_by() {
        for (name, about) in QueueSpec::kinds() {
            let written: QueueSpec = toml::from_str(&format!("kind = '{name}'")).unwrap();
            assert_eq!(QueueSpec::of_kind(&name), Some(written));
            assert!(!about.is_empty());
        }
        assert_eq!(QueueSpec::of_kind("x"), None);
    }
}

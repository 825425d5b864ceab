//! Queues in front of a rate, one file per discipline.
//!
//! To add a discipline, add a file here and a line in [`queues!`](self); scenario files, schema,
//! help and engines then support it.

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

use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::random::Stream;
use crate::{DropCause, Packet};

pub(crate) use crate::backlog::Backlog;
pub use codel::CodelSpec;
pub use drop_tail::DropTailSpec;
pub use fq::FqSpec;
pub use fq_codel::FqCodelSpec;
pub use fq_pie::FqPieSpec;
pub use pie::PieSpec;

/// The interface of a queue's specification.
pub(crate) trait QueueKind {
    /// One line for help texts.
    const ABOUT: &'static str;
    /// The running queue.
    type Queue<T>: Discipline<T>;
    /// Builds the queue, or returns the invalid key.
    fn build<T>(&self, ctx: QueueContext) -> Result<Self::Queue<T>, LinkError>;
}

/// The properties of a link that a queue can use.
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

/// Drops and marks of a queue, kept until the link reports them.
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
    /// Adds a packet at `at`, or drops it or another one.
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>);
    /// The packet to be served from `at` on; `None` if there is none or all were dropped.
    fn dequeue(&mut self, at: Time, verdicts: &mut Verdicts<T>) -> Option<Packet<T>>;
    /// The current backlog.
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
            /// Every kind: its name in scenario files, and one line about it.
            pub fn kinds() -> impl Iterator<Item = (String, &'static str)> {
                [$((crate::kebab::kebab(stringify!($Kind)), <$Spec as QueueKind>::ABOUT)),+].into_iter()
            }

            /// The queue of this kind with its defaults; `None` for an unknown kind.
            pub fn from_kind(kind: &str) -> Option<Self> {
                $(if crate::kebab::kebab(stringify!($Kind)) == kind {
                    return Some(QueueSpec::$Kind(Default::default()));
                })+
                None
            }

            /// The name of its kind in scenario files.
            pub fn kind(&self) -> String {
                match self { $(QueueSpec::$Kind(_) => crate::kebab::kebab(stringify!($Kind)),)+ }
            }

            /// Its limit.
            pub fn limit(&self) -> Limit {
                match self { $(QueueSpec::$Kind(spec) => spec.limit,)+ }
            }

            pub(crate) fn build<T>(&self, ctx: QueueContext) -> Result<Queue<T>, LinkError> {
                match self {
                    $(QueueSpec::$Kind(spec) => spec.build(ctx).map(Queue::$Kind),)+
                }
            }
        }

        /// A running queue.
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
    /// First in, first out; drops arriving packets when full.
    DropTail(DropTailSpec);
    /// Controlled delay, RFC 8289: drops at the head when the delay stays above a target.
    Codel(CodelSpec);
    /// Proportional integral controller, RFC 8033: drops at the tail with a probability that
    /// holds the delay at a target.
    Pie(PieSpec);
    /// RFC 8290: per-flow queues served round-robin by bytes, CoDel on each.
    FqCodel(FqCodelSpec);
    /// Linux fq_pie: per-flow queues served round-robin by bytes, PIE on each.
    FqPie(FqPieSpec);
    /// Linux fq: per-flow queues served round-robin by bytes.
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
    fn every_kind_is_listed_under_its_name() {
        for (name, about) in QueueSpec::kinds() {
            let written: QueueSpec = toml::from_str(&format!("kind = '{name}'")).unwrap();
            assert_eq!(QueueSpec::from_kind(&name), Some(written));
            assert!(!about.is_empty());
        }
        assert_eq!(QueueSpec::from_kind("x"), None);
    }
}

//! Packets and their outcomes.

/// The two ECN bits of the IP header (RFC 3168 §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ecn {
    /// The transport does not understand marks: an AQM must drop instead.
    #[default]
    NotEct,
    /// ECN-capable transport, codepoint ECT(0).
    Ect0,
    /// ECN-capable transport, codepoint ECT(1).
    Ect1,
    /// Congestion experienced: marked by a queue.
    Ce,
}

impl Ecn {
    /// Whether a queue may mark instead of dropping.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

/// A packet on the path. `data` belongs to the engine; this crate never inspects it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<T> {
    /// The flow: any number that is the same for all packets of a flow and differs between flows
    /// (an index, a hash of the five-tuple). Fair queues classify by it.
    pub flow: u32,
    /// Length in bytes from the IP header on (L3): what rates and byte limits count.
    pub bytes: u32,
    /// The ECN bits, which a marking queue changes to [`Ecn::Ce`].
    pub ecn: Ecn,
    /// Whether it is an acknowledgement without payload, which a link that thins acknowledgements
    /// may drop in favour of a later one.
    pub pure_ack: bool,
    /// The engine's data.
    pub data: T,
}

impl<T> Packet<T> {
    /// A packet that is not ECN-capable and not a pure acknowledgement.
    pub const fn new(flow: u32, bytes: u32, data: T) -> Self {
        Packet { flow, bytes, ecn: Ecn::NotEct, pure_ack: false, data }
    }

    /// Sets the CE codepoint if the transport is ECN-capable; returns whether it is.
    pub(crate) fn mark(&mut self) -> bool {
        let capable = self.ecn.is_capable();
        if capable {
            self.ecn = Ecn::Ce;
        }
        capable
    }
}

/// Why a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// The queue had no room.
    QueueFull,
    /// Active queue management (CoDel, PIE) dropped it.
    Aqm,
    /// Random or listed loss.
    Loss,
    /// The token bucket was empty.
    Policer,
    /// The link was down.
    Blackout,
    /// A later acknowledgement of the same flow replaced this one.
    Thinned,
}

impl DropCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [DropCause; 6] = [
        DropCause::QueueFull,
        DropCause::Aqm,
        DropCause::Loss,
        DropCause::Policer,
        DropCause::Blackout,
        DropCause::Thinned,
    ];

    /// A short stable name for tables and recordings.
    pub const fn name(self) -> &'static str {
        match self {
            DropCause::QueueFull => "queue-full",
            DropCause::Aqm => "aqm",
            DropCause::Loss => "loss",
            DropCause::Policer => "policer",
            DropCause::Blackout => "blackout",
            DropCause::Thinned => "thinned",
        }
    }
}

/// The outcome of a packet; reported with its exact virtual time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// It left the far end of the path.
    Delivered(Packet<T>),
    /// It was dropped. A packet lost on the wire counts as dropped when it leaves the queue and the
    /// server.
    Dropped(Packet<T>, DropCause),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_capable_packets_are_marked() {
        let mut p = Packet::new(0, 1500, ());
        assert!(!p.mark());
        assert_eq!(p.ecn, Ecn::NotEct);
        p.ecn = Ecn::Ect0;
        assert!(p.mark());
        assert_eq!(p.ecn, Ecn::Ce);
        assert!(p.mark(), "a marked packet stays marked and need not be dropped");
    }

    #[test]
    fn causes_have_distinct_names() {
        let mut names: Vec<_> = DropCause::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropCause::ALL.len());
        for (i, cause) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, i);
        }
    }
}

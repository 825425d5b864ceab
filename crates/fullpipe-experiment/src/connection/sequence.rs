//! The marks of a time-sequence plot.

use fullpipe_units::Span;

/// The kind of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MarkKind {
    /// New data.
    Data,
    /// Retransmitted data, or data that fills a hole.
    Retransmission,
    /// Everything below `to` is acknowledged.
    Ack,
    /// The receive window extends to `to`.
    Window,
    /// `from` to `to` are acknowledged selectively.
    Sack,
}

impl MarkKind {
    /// All, in the order of their numbers.
    pub const ALL: [MarkKind; 5] =
        [MarkKind::Data, MarkKind::Retransmission, MarkKind::Ack, MarkKind::Window, MarkKind::Sack];
}

/// One mark of a time-sequence plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Time since the connection's first packet.
    pub at: Span,
    /// First payload byte, relative to the start of the direction.
    pub from: u64,
    /// End of the range (exclusive); the only value used for acknowledgments and windows.
    pub to: u64,
    /// Its kind.
    pub kind: MarkKind,
}

/// The marks of one direction, in time order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sequence {
    /// Label of the direction.
    pub label: String,
    /// The marks.
    pub marks: Vec<Mark>,
}

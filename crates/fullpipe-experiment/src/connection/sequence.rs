//! A direction's packets one by one: what a time-sequence plot shows.

use fullpipe_units::Span;

/// What one mark of a time-sequence plot is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MarkKind {
    /// Data, the first time.
    Data,
    /// Data, not the first time; or what fills a hole.
    Retransmission,
    /// Everything below `to` is acknowledged.
    Ack,
    /// The receiver takes everything below `to`.
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
    /// When, from the connection's first packet.
    pub at: Span,
    /// First payload byte, counted from the first of the direction.
    pub from: u64,
    /// One after the last; of acknowledgments and windows the only one that counts.
    pub to: u64,
    /// What.
    pub kind: MarkKind,
}

/// The marks of one direction, in the order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sequence {
    /// Whose data.
    pub label: String,
    /// Its packets.
    pub marks: Vec<Mark>,
}

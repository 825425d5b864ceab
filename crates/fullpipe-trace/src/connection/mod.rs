//! The TCP machine: segments in, what they say of a connection out.

mod arrivals;
mod bins;
mod bursts;
mod counts;
mod course;
mod echoes;
mod flight;
mod half;
mod holes;
mod life;
mod limits;
mod receiving;
mod record;
mod retransmission;
mod timeline;
mod vantage;

pub(crate) use bins::Bins;
pub(crate) use course::{Course, Step};
pub(crate) use life::Life;

/// How much is kept of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detail {
    /// Bins of its series at most.
    pub(crate) bins: usize,
    /// Whether every packet is kept.
    pub(crate) packets: bool,
}

//! Tracks a TCP connection: segments in, a connection record out.

mod arrivals;
mod belief;
mod bins;
mod bursts;
mod chunks;
mod counts;
mod doubles;
mod echoes;
mod flight;
mod half;
mod holes;
mod late;
mod limits;
mod notes;
mod receiving;
mod record;
mod retransmission;
mod spacing;
mod timeline;
mod tracker;
mod trajectory;
mod vantage;
mod zero_window;

pub(crate) use bins::Bins;
pub(crate) use limits::{FULL_SHARE, QUEUE_SEGMENTS, QUEUE_SHARE};
pub(crate) use record::sustained_rate;
pub(crate) use timeline::{Interval, Timeline};
pub(crate) use tracker::Tracker;
pub(crate) use trajectory::{Step, Trajectory};

/// How much is kept of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detail {
    /// Maximum number of bins of its time series.
    pub(crate) bins: usize,
    /// Whether every packet is kept.
    pub(crate) packets: bool,
}

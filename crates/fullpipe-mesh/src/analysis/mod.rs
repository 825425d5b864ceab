//! Analysis of a mesh's records: how the controllers compare, and what changed where.

mod change;
mod counts;
mod detector;
mod periods;
mod ratio;
mod series;

pub use change::{Change, Metric, Quantity, Shift};
pub use detector::{Detector, changes};
pub(crate) use periods::period_ms;
pub use periods::{Period, periods};
pub use ratio::Ratio;

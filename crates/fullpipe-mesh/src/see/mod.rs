//! What the records of a mesh say: how the controllers compare, what changed where, what should be.

mod change;
mod counts;
mod periods;
mod ratio;
mod series;
mod watch;

pub use change::{Change, Metric, Quantity, Shift};
pub(crate) use periods::period_ms;
pub use periods::{Period, periods};
pub use ratio::{Ratio, gains, ratio, ratios};
pub use watch::{Watch, changes};

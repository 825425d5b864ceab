//! Sequential statistics: pure functions of numbers and seeds.
//!
//! Intervals are asymptotic confidence sequences: their error probability holds over all times at
//! which they are checked together, so that a running experiment may be monitored and stopped
//! early.

mod normal;
mod power;
mod ratio;
mod sample;
mod sequence;

pub use normal::{Normal, cumulative, quantile};
pub use power::Design;
pub use ratio::ratio_p_value;
pub use sample::{Histogram, Mean, Sample};
pub use sequence::{half_width, p_value};

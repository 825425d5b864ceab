//! What can be concluded, at any moment, from what has been seen: pure functions of numbers and seeds.
//!
//! The intervals are asymptotic confidence sequences: their error holds over all moments at which somebody looks, not for
//! each look alone, so that a running experiment may be watched and stopped when it is clear.

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

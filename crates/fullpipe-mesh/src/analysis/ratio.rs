//! Comparison of a controller with the baseline on the same path.

use crate::record::{ControllerId, Pair};
use fullpipe_net::compare::Estimate;
use serde::Serialize;

/// A controller's goodput relative to the baseline's on one direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// The direction.
    pub pair: Pair,
    /// The controller compared with the first.
    pub controller: ControllerId,
    /// Median over periods of the goodput ratio, with its 95 % interval by order statistics. The
    /// interval assumes independent periods; where they are not, it is too narrow.
    pub ratio: Estimate,
    /// Number of periods in which both completed.
    pub periods: usize,
}

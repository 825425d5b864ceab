//! BBR: paces at the measured bandwidth and keeps little more than one BDP in flight.
//!
//! Cardwell, Cheng, Gunn, Hassas Yeganeh, Jacobson, "BBR: Congestion-Based Congestion Control",
//! ACM Queue 14(5), 2016.

pub mod v1;
pub mod v3;
